"""Generated steps of LSTM and GRU against NumPy in float64, at the edges of vectors and tiles, and their selection."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irc
from irc.diagnostics import Sink
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Model
from irc.ir.types import DType, TensorType, dtype_from_numpy, f32, f64
from irc.kernels import ISAS
from irc.kernels.core import reference
from irc.kernels.recurrent.lstm_gru import RecurrentKernel
from irc.kernels.recurrent.problem import RecurrentProblem
from irc.opdef.builder import Builder, evaluate
from irc.opdef.registry import find_op
from irc.ops.recurrent import LSTM
from irc.ops.recurrent_steps import GRUSteps, LSTMSteps
from irc.pipelines import compile_c
from tests.kernels.test_kernels import Pool, build, compilers, invoke, noise
from tests.support.instruction_sets import isa_under_test
from tests.support.kernels import recurrent

pytestmark = pytest.mark.skipif(not compilers(), reason="no C compiler")
Array = np.ndarray[Any, Any]
GATES = {"lstm": 4, "gru": 3, "gru_linear": 3}
LSTM_NAMES = (("Sigmoid", 1.0, 0.0), ("Tanh", 1.0, 0.0), ("Tanh", 1.0, 0.0))


@dataclass(frozen=True)
class Case:
    """h and c: initial states are given; known: so is the batch when the kernel is generated."""

    cell: Any
    direction: Any
    steps: int
    batch: int
    hidden: int
    h: bool = False
    c: bool = False
    lengths: str = ""
    bias: bool = False
    known: bool = True

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def kernel(self, isa: str, dtype: DType = f32) -> RecurrentKernel:
        batch = Dim.of(self.batch) if self.known else Dim.symbol("n")
        return recurrent(ISAS[isa], dtype, self.cell, self.direction, batch, self.h, self.c, self.lengths, self.bias)


CASES = [
    Case("lstm", "forward", 5, 1, 16),
    Case("lstm", "bidirectional", 6, 1, 33, h=True, c=True),
    Case("lstm", "reverse", 4, 2, 15, c=True),
    Case("lstm", "forward", 3, 13, 17, h=True, known=False),
    Case("lstm", "bidirectional", 7, 5, 48, lengths="int32_t", known=False),
    Case("lstm", "reverse", 5, 3, 1, h=True, c=True, lengths="int64_t", known=False),
    Case("lstm", "forward", 1, 7, 100),
    Case("lstm", "forward", 0, 2, 9, h=True, c=True),
    Case("gru", "forward", 5, 1, 32),
    Case("gru", "bidirectional", 6, 11, 19, h=True, known=False),
    Case("gru", "reverse", 4, 3, 7, lengths="int64_t", known=False),
    Case("gru_linear", "forward", 5, 1, 31, bias=True),
    Case("gru_linear", "bidirectional", 4, 9, 16, h=True, known=False),
    Case("gru_linear", "bidirectional", 6, 4, 40, h=True, bias=True, lengths="int32_t", known=False),
]


def exact(case: Case, x: Array, w: Array, given: dict[str, Array]) -> tuple[Array, ...]:
    """What the operation's reference gives in float64."""
    wide = {n: a if n == "lengths" else a.astype(np.float64) for n, a in given.items()}
    n, fields = case.directions, {"direction": case.direction}
    operands = (x.astype(np.float64), w.astype(np.float64), wide.get("h0"), wide.get("lengths"))
    if case.cell == "lstm":
        return LSTMSteps(**fields, activations=(LSTM_NAMES,) * n).reference(*operands, wide.get("c0"))
    linear = case.cell == "gru_linear"
    op = GRUSteps(**fields, activations=(LSTM_NAMES[:2],) * n, linear_before_reset=linear)
    return op.reference(*operands, wide.get("bias"))


def run(lib: Any, kernel: RecurrentKernel, case: Case, seed: int, pool: Pool | None = None) -> list[Array]:
    """Checks one call.  x and y are slices of wider tensors: the rest is not read, or not written."""
    dtype, rng = kernel.tile.dtype, np.random.default_rng(seed)
    steps, batch, hidden, n, rows = case.steps, case.batch, case.hidden, case.directions, GATES[case.cell] * case.hidden

    def random(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(dtype.numpy)

    whole = np.full((steps, batch, n, rows + 3), np.nan, dtype.numpy)
    whole[..., :rows] = random(steps, batch, n, rows)
    x, w = whole[..., :rows], random(n, hidden, rows) / np.sqrt(hidden).astype(dtype.numpy)
    given: dict[str, Array] = {}
    if case.h:
        given["h0"] = random(n, batch, hidden)
    if case.c:
        given["c0"] = random(n, batch, hidden)
    if case.lengths:  # one beyond the end, one negative
        counts = rng.integers(-1, steps + 2, batch)
        given["lengths"] = counts.astype(np.int32 if case.lengths == "int32_t" else np.int64)
    if case.bias:
        given["bias"] = random(n, hidden)
    packed = kernel.pack_weights(w)
    assert packed.size == kernel.packed_elements(hidden)
    y = np.full((batch, n, steps, hidden + 2), 77, dtype.numpy)  # batch first: any strides
    last = [np.full((n, batch, hidden), 77, dtype.numpy) for _ in range(2 if case.cell == "lstm" else 1)]
    scratch = np.full(int(kernel.scratch_bytes(batch, hidden)) // dtype.itemsize, np.nan, dtype.numpy)
    x_strides = (batch * n * (rows + 3), n * (rows + 3), rows + 3)
    y_strides = (hidden + 2, n * steps * (hidden + 2), steps * (hidden + 2))
    names = ("x_step", "x_batch", "x_direction", "y_step", "y_batch", "y_direction")
    sizes = dict(zip(names, (*x_strides, *y_strides), strict=True))
    order = [int(e.value) for e in kernel.order(steps=steps, batch=batch, hidden=hidden, **sizes)]  # type: ignore[attr-defined]
    invoke(lib, kernel, whole, packed, *given.values(), y, *last, scratch, *order, pool=pool)
    found = [np.moveaxis(y[..., :hidden], (0, 1, 2), (2, 1, 0)), *last]
    eps = np.finfo(dtype.numpy).eps
    for got, want in zip(found, exact(case, x, w, given), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=eps * 4 * (hidden + 4))
    assert (y[..., hidden:] == 77).all()
    return found


@pytest.mark.parametrize("isa", ["avx512", "avx2", "neon", "sse", "plain"])
@pytest.mark.parametrize("compiler", compilers(), ids=lambda c: c[0].rsplit("/", 1)[-1])
def test_edges(tmp_path: Path, compiler: list[str], isa: str) -> None:
    kernels = [case.kernel(isa) for case in CASES]
    lib = build(tmp_path, list({k.symbol: k for k in kernels}.values()), compiler=compiler)
    for seed, (kernel, case) in enumerate(zip(kernels, CASES, strict=True)):
        run(lib, kernel, case, seed)


def test_double(tmp_path: Path) -> None:
    kernels = [case.kernel("avx2", f64) for case in CASES]
    lib = build(tmp_path, list({k.symbol: k for k in kernels}.values()))
    for seed, (kernel, case) in enumerate(zip(kernels, CASES, strict=True)):
        run(lib, kernel, case, seed)


def test_every_height_and_width(tmp_path: Path) -> None:
    """Numbers of sequences around the tile, of units around the vector."""
    for cell in GATES:
        kernel = Case(cell, "bidirectional", 0, 1, 1, h=True, known=False).kernel("avx512")
        (tmp_path / cell).mkdir()
        lib = build(tmp_path / cell, [kernel])
        rows, lanes = kernel.tile.rows, kernel.tile.lanes
        for batch, hidden in itertools.product((*range(1, rows + 2), 2 * rows + 1), (1, lanes - 1, lanes, lanes + 1)):
            run(lib, kernel, Case(cell, "bidirectional", 3, batch, hidden, h=True), batch)


def test_results_do_not_depend_on_threads(tmp_path: Path) -> None:
    cases = [
        Case("lstm", "bidirectional", 4, 13, 70, h=True, c=True, lengths="int32_t"),
        Case("gru", "bidirectional", 4, 20, 70),
    ]
    kernels = [case.kernel("avx512") for case in cases]
    lib = build(tmp_path, kernels)
    for kernel, case in zip(kernels, cases, strict=True):
        alone = run(lib, kernel, case, 3)
        for chunk in (1, 2, 5):
            pool = Pool(chunk)
            for a, b in zip(alone, run(lib, kernel, case, 3, pool), strict=True):
                assert np.array_equal(a, b)
            assert pool.calls == 1


SPLIT = [
    (Case("lstm", "forward", 5, 1, 150, h=True, c=True), 1),
    (Case("lstm", "reverse", 6, 4, 81, h=True, lengths="int32_t"), 1),
    (Case("gru", "reverse", 5, 3, 170, h=True, lengths="int64_t"), 2),
    (Case("gru", "forward", 4, 1, 202), 2),
    (Case("gru_linear", "forward", 5, 2, 121, h=True, bias=True), 1),
]


@pytest.mark.parametrize(("case", "passes"), SPLIT, ids=str)
def test_threads_split_the_steps_of_one_task(tmp_path: Path, case: Case, passes: int) -> None:
    """Where directions and the batch make one task: any cut of the panels gives the same."""
    kernel = case.kernel("avx512")
    lib = build(tmp_path, [kernel])
    alone = run(lib, kernel, case, 4)
    for chunk in (1, 2, 5):
        pool = Pool(chunk)  # last first: who comes later must not see what is new
        for a, b in zip(alone, run(lib, kernel, case, 4, pool), strict=True):
            assert np.array_equal(a, b)
        assert 0 < pool.calls <= case.steps * passes
        assert pool.calls % passes == 0


def test_short_steps_are_not_split(tmp_path: Path) -> None:
    case, pool = Case("lstm", "forward", 5, 1, 64), Pool(1)
    kernel = case.kernel("avx512")
    run(build(tmp_path, [kernel]), kernel, case, 3, pool)
    assert pool.calls == 0


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_numpy(case: Case, isa: str) -> None:
    """What a kernel says it computes, of weights as it packs them."""
    rng, n, hidden, batch = np.random.default_rng(5), case.directions, case.hidden, case.batch
    known = RecurrentProblem.contiguous(
        f64, case.cell, case.direction, case.steps, batch, hidden, case.h, case.c, case.lengths, case.bias
    )
    kernel = RecurrentKernel.best(known, ISAS[isa])
    assert kernel is not None
    x = rng.standard_normal((case.steps, batch, n, GATES[case.cell] * hidden))
    w = rng.standard_normal((n, hidden, GATES[case.cell] * hidden)) / np.sqrt(hidden)
    given: dict[str, Array] = {name: rng.standard_normal((n, batch, hidden)) for name in ("h0", "c0")}
    given = {name: state for name, state in given.items() if (case.h if name == "h0" else case.c)}
    if case.lengths:
        given["lengths"] = rng.integers(-1, case.steps + 2, batch)
    if case.bias:
        given["bias"] = rng.standard_normal((n, hidden))
    results = [np.full((case.steps, n, batch, hidden), 77.0)]
    results += [np.full((n, batch, hidden), 77.0) for _ in range(2 if case.cell == "lstm" else 1)]
    packed = kernel.packed(known).pack(w)
    sizes = {name: int(size) for name, size in kernel.arguments_for(known).items()}
    reads = [x.reshape(-1), packed, *(a.reshape(-1) for a in given.values())]
    reference.run(kernel, reads, [r.reshape(-1) for r in results], sizes)
    for got, want in zip(results, exact(case, x, w, given), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------------------ selection
def layer(kind: str, feeds: list[Array], hidden: int, shape: Any = None, swap: bool = False, **fields: Any) -> Graph:
    """A layer over x[steps, batch, input], and the operands behind B; swap: batch first, on both ends."""
    gates, n = {"LSTM": 4, "GRU": 3}[kind], 2 if fields.get("direction") == "bidirectional" else 1
    graph, b = Graph("layer"), None
    values = [
        graph.add_input(f"x{k}", TensorType.of(dtype_from_numpy(f.dtype), (shape if k == 0 else None) or f.shape))
        for k, f in enumerate(feeds)
    ]
    b = Builder(graph)
    x = b.Transpose(values[0], [1, 0, 2]) if swap else values[0]
    size = feeds[0].shape[2]
    w, r, bias = noise(n, gates * hidden, size) / 3, noise(n, gates * hidden, hidden) / 6, noise(n, 2 * gates * hidden)
    found = list(b.add_all(find_op(kind)(hidden_size=hidden, **fields), x, w, r, bias, *values[1:]))
    if swap:
        found[0] = b.Transpose(found[0], [2, 0, 1, 3])
    graph.outputs = found
    return graph


def kernels_of(graph: Graph) -> list[str]:
    """The cells of the kernels in what the graph becomes."""
    graph, sink = graph.copy(), Sink()
    for _, one in compile_c(isa_under_test()):
        one(graph, sink)
    assert not sink.errors
    kernels = [getattr(node.op, "kernel", None) for node in graph.nodes]
    return [k.cell for k in kernels if isinstance(k, RecurrentKernel)]


def check(graph: Graph, feeds: list[Array], tolerance: float = 2e-6) -> None:
    compiled = irc.compile(Model(graph, "onnx", 10, {"": 22}), backend="c", cache=False)
    wanted = evaluate(graph, dict(zip(graph.inputs, feeds, strict=True)))
    for got, want in zip(compiled(feeds), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)


BOTH = {"direction": "bidirectional"}
LENGTHS = np.array([5, 0, 3], np.int32)
SELECTED: dict[str, tuple[str, dict[str, Any], list[Array], str]] = {
    "lstm": ("LSTM", {}, [noise(5, 1, 9)], "lstm"),
    "both directions": ("LSTM", BOTH, [noise(5, 3, 9)], "lstm"),
    "initial states and lengths": ("LSTM", BOTH, [noise(5, 3, 9), LENGTHS, noise(2, 3, 40), noise(2, 3, 40)], "lstm"),
    "reverse gru": ("GRU", {"direction": "reverse"}, [noise(4, 2, 9)], "gru"),
    "gru, reset behind the product": ("GRU", {**BOTH, "linear_before_reset": True}, [noise(4, 2, 9)], "gru_linear"),
    "batch first": ("LSTM", {**BOTH, "swap": True}, [noise(3, 5, 9)], "lstm"),
    "sizes known when it runs": (
        "LSTM",
        {**BOTH, "shape": (Dim.symbol("steps"), Dim.symbol("batch"), 9)},
        [noise(4, 3, 9)],
        "lstm",
    ),
    "named functions": ("LSTM", {"activations": ("sigmoid", "tanh", "TANH")}, [noise(5, 1, 9)], "lstm"),
}


@pytest.mark.parametrize("name", SELECTED)
def test_selection(name: str) -> None:
    kind, fields, feeds, cell = SELECTED[name]
    graph = layer(kind, feeds, 40, **fields)
    assert kernels_of(graph) == [cell]
    check(graph, feeds)


def test_two_layers_share_nothing() -> None:
    """The second layer reads the first one's result; each has its own packed weights."""
    graph = Graph("stack")
    x = graph.add_input("x", TensorType.of(f32, (6, 2, 9)))
    b = Builder(graph)
    for size in (9, 80):
        w, r = noise(2, 160, size) / 9, noise(2, 160, 40) / 6
        y = b.add_all(LSTM(hidden_size=40, direction="bidirectional"), x, w, r)[0]
        x = b.Reshape(b.Transpose(y, [0, 2, 1, 3]), [6, 2, 80])
    graph.outputs = [x]
    assert kernels_of(graph) == ["lstm", "lstm"]
    check(graph, [noise(6, 2, 9)])


@pytest.mark.parametrize(
    ("kind", "fields", "more"),
    [
        ("LSTM", {"clip": 0.5}, []),
        ("LSTM", {"input_forget": True}, []),
        ("LSTM", {"activations": ("HardSigmoid", "Tanh", "Tanh")}, []),
        ("LSTM", {"peephole": True}, []),
        ("GRU", {"clip": 0.5}, []),
    ],
)
def test_other_formulas_stay_loops(kind: str, fields: dict[str, Any], more: list[Array]) -> None:
    feeds = [noise(5, 2, 9), *more]
    fields = dict(fields)
    if fields.pop("peephole", False):
        feeds += [np.array([5, 5], np.int32), noise(1, 2, 40), noise(1, 2, 40), noise(1, 120)]
    graph = layer(kind, feeds, 40, **fields)
    assert kernels_of(graph) == []
    check(graph, feeds)
