"""Attention whose query heads share heads of keys and values: what is selected, and its results.

Exporters repeat each head of K and V for its group of query heads; the kernel reads them where they stand once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irc
from irc.diagnostics import Sink
from irc.expr import Const
from irc.fusion import group
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Model
from irc.kernels import ISAS
from irc.kernels.attention.vector import AttentionKernel
from irc.kernels.core.isa import Isa
from irc.loops import interp
from irc.loops.ir import KernelCall, Program, walk
from irc.loops.lower import lower
from irc.opdef.builder import evaluate
from irc.pipelines import compile_c
from tests.kernels.test_attention import masks, run_attention
from tests.kernels.test_kernels import build as compiled_kernels, compilers
from tests.selection.test_select import check, check_compiled
from tests.support.c_program import Library
from tests.support.instruction_sets import isa_under_test
from tests.support.kernels import attention
from tests.support.lowering import Array, graph_of, random

B, M, N = Dim.symbol("b", 1), Dim.symbol("m", 1), Dim.symbol("n", 1)
D = 16


def repeated(b: Any, x: Any, group: int) -> Any:
    """Each head of x [batch, heads, n, d] `group` times."""
    wide = b.Expand(b.Unsqueeze(x, [2]), [1, 1, group, 1, 1])
    return b.Reshape(wide, [0, int(x.shape[1]) * group, -1, int(x.shape[3])])


def attended(b: Any, q: Any, k: Any, v: Any, *mask: Any) -> Any:
    scores = b.Mul(b.MatMul(q, b.Transpose(k, [0, 1, 3, 2])), 0.25)
    for each in mask:
        scores = b.Add(scores, each)
    return b.MatMul(b.Softmax(scores, axis=-1), v)


def grouped(b: Any, q: Any, k: Any, v: Any, *mask: Any) -> Any:
    group = int(q.shape[1]) // int(k.shape[1])
    return attended(b, q, repeated(b, k, group), repeated(b, v, group), *mask)


def to_a_shape(b: Any, q: Any, k: Any, v: Any) -> Any:
    """Repeated by an OpenVINO Broadcast."""
    heads = int(q.shape[1])

    def wide(x: Any) -> Any:
        batch, some, n, d = (int(s) for s in x.shape)
        target = [batch, some, heads // some, n, d]
        return b.Reshape(b.Expand(b.Unsqueeze(x, [2]), target, mode="numpy"), [batch, heads, n, d])

    return attended(b, q, wide(k), wide(v))


def heads_behind(b: Any, q: Any, k: Any, v: Any) -> Any:
    """Operands and result [batch, rows, heads, d], as a projection leaves them."""
    to = [0, 2, 1, 3]
    return b.Transpose(grouped(b, *(b.Transpose(x, to) for x in (q, k, v))), to)


def transposed_first(b: Any, q: Any, k: Any, v: Any) -> Any:
    """K is repeated after it was transposed."""
    count = int(q.shape[1]) // int(k.shape[1])
    turned = b.Unsqueeze(b.Transpose(k, [0, 1, 3, 2]), [2])
    keys = b.Reshape(b.Expand(turned, [1, 1, count, 1, 1]), [0, int(q.shape[1]), D, -1])
    return b.MatMul(b.Softmax(b.Mul(b.MatMul(q, keys), 0.25), axis=-1), repeated(b, v, count))


def interleaved(b: Any, q: Any, k: Any, v: Any) -> Any:
    """Query head h has key head h % heads, not h / group: no groups."""
    heads, group = int(k.shape[1]), int(q.shape[1]) // int(k.shape[1])

    def tiled(x: Any) -> Any:
        return b.Reshape(b.Expand(b.Unsqueeze(x, [1]), [1, group, 1, 1, 1]), [0, heads * group, -1, D])

    return attended(b, q, tiled(k), tiled(v))


def values_alone(b: Any, q: Any, k: Any, v: Any) -> Any:
    """Every query head has its own keys, groups share values."""
    return attended(b, q, k, repeated(b, v, int(q.shape[1]) // int(v.shape[1])))


def shown(b: Any, q: Any, k: Any, v: Any) -> Any:
    group = int(q.shape[1]) // int(k.shape[1])
    p = b.Softmax(b.MatMul(q, b.Transpose(repeated(b, k, group), [0, 1, 3, 2])), axis=-1)
    return b.MatMul(p, repeated(b, v, group)), p


def operands(batch: int, heads: int, group: int, m: int, n: int, d: int = D, dv: int = D) -> list[Array]:
    return [
        random(batch, heads * group, m, d, seed=1),
        random(batch, heads, n, d, seed=2),
        random(batch, heads, n, dv, seed=3),
    ]


def causal(m: int, n: int) -> Array:
    return np.where(np.arange(n) <= np.arange(m)[:, None] + n - m, 0.0, -np.inf).astype(np.float32)


def behind(feeds: list[Array]) -> list[Array]:
    return [np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in feeds]


LEFT_OUT = np.where(random(2, 1, 1, 20) > 0, 0.0, np.finfo(np.float32).min).astype(np.float32)
# name: (build, feeds, the group of each attention kernel, functions that copy)
CASES: dict[str, tuple[Any, list[Array], list[int], int]] = {
    "groups of two": (grouped, operands(2, 3, 2, 9, 12), [2], 0),
    "one head for all": (grouped, operands(2, 1, 6, 9, 12), [6], 0),
    "no groups": (grouped, operands(2, 4, 1, 9, 12), [1], 0),
    "one batch": (grouped, operands(1, 2, 4, 9, 12), [4], 0),
    "one query": (grouped, operands(2, 2, 4, 1, 33), [4], 0),
    "wider values": (grouped, operands(2, 2, 3, 9, 12, D, 24), [3], 0),
    "causal": (grouped, [*operands(2, 2, 4, 12, 12), causal(12, 12)], [4], 0),
    "causal, later keys": (grouped, [*operands(2, 2, 4, 5, 12), causal(5, 12)], [4], 0),
    "keys left out in each of the batch": (grouped, [*operands(2, 2, 4, 5, 20), LEFT_OUT], [4], 0),
    "a mask for each query head": (grouped, [*operands(2, 2, 4, 5, 12), random(1, 8, 5, 12, seed=4)], [4], 0),
    "heads behind rows": (heads_behind, behind(operands(2, 3, 2, 9, 12)), [2], 0),
    "Broadcast": (to_a_shape, operands(2, 3, 2, 9, 12), [2], 0),
    "K transposed, then repeated": (transposed_first, operands(2, 3, 2, 9, 12), [2], 0),
    "groups of values alone": (
        values_alone,
        [random(2, 6, 9, D, seed=1), random(2, 6, 12, D, seed=2), random(2, 3, 12, D, seed=3)],
        [1],
        1,
    ),
    "groups of other heads": (interleaved, operands(1, 3, 2, 9, 12), [1], 2),
    "scores that are an output": (shown, operands(2, 3, 2, 9, 12), [], 5),
}


ISA = ISAS["avx512"] if isa_under_test().tiles else isa_under_test()


def program_of(graph: Graph, isa: Isa = ISA) -> Program:
    graph, sink = graph.copy(), Sink()
    for _, run in compile_c(isa):
        run(graph, sink)
    assert not sink.errors
    return lower(graph, group.run(graph), "test")


def groups(program: Program) -> list[int]:
    """The group of each call of an attention."""
    found = [s for f in program.functions for s in walk(f.body) if isinstance(s, KernelCall)]
    sizes = [dict(zip(c.kernel.sizes, c.sizes, strict=True)) for c in found if isinstance(c.kernel, AttentionKernel)]
    return [int(x["group"].value) for x in sizes if isinstance(x["group"], Const)]


@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
@pytest.mark.parametrize("name", CASES)
def test_selects(name: str, isa: str) -> None:
    """One kernel with that group, its operands read in place or copied; interpreted it gives the references' result."""
    build, feeds, wanted_groups, copies = CASES[name]
    graph = graph_of(build, *feeds)
    wanted = evaluate(graph, dict(zip(graph.inputs, feeds, strict=True)))
    program = program_of(graph, ISAS[isa])
    assert (groups(program), len(program.functions) - len(wanted_groups)) == (wanted_groups, copies)
    check(interp.run(program, feeds), wanted)


@pytest.mark.compiler
def test_compiled(tmp_path: Path) -> None:
    """All of them as one library each."""
    check_compiled(CASES, program_of, tmp_path)


@pytest.mark.compiler
def test_symbolic_lengths(tmp_path: Path) -> None:
    """One library for every batch, number of queries and of keys; masked and not."""
    shapes = [(B, 8, M, D), (B, 2, N, D), (B, 2, N, D), (B, 1, M, N)]
    for masked in (False, True):
        feeds = [*operands(2, 2, 4, 5, 7), random(2, 1, 5, 7, seed=4)][: 4 if masked else 3]
        program = program_of(graph_of(grouped, *feeds, shapes=shapes[: len(feeds)]))
        assert groups(program) == [4] and len(program.functions) == 1
        library = Library(program, tmp_path)
        for b, m, n in ((1, 1, 1), (2, 1, 40), (1, 3, 513), (3, 17, 31), (1, 120, 120)):
            feeds = [*operands(b, 2, 4, m, n), random(b, 1, m, n, seed=4)][: 4 if masked else 3]
            graph = graph_of(grouped, *feeds)
            wanted = evaluate(graph, dict(zip(graph.inputs, feeds, strict=True)))
            sizes = {"b": b, "m": m, "n": n}
            context = library.context([sizes[name] for name in program.symbols])
            check(library.run(context, feeds, [w.shape for w in wanted]), wanted)


def test_symbolic_heads_are_not_grouped() -> None:
    """How many query heads share a head must be known."""
    heads = Dim.symbol("h", 1)

    def wide(b: Any, x: Any) -> Any:
        return b.Reshape(b.Expand(b.Unsqueeze(x, [2]), [1, 1, 3, 1, 1]), [2, -1, 12, D])

    def build(b: Any, q: Any, k: Any, v: Any) -> Any:
        return attended(b, q, wide(b, k), wide(b, v))

    feeds = operands(2, 2, 3, 9, 12)
    shapes = [(2, heads * 3, 9, D), (2, heads, 12, D), (2, heads, 12, D)]
    program = program_of(graph_of(build, *feeds, shapes=shapes))
    assert groups(program) in ([], [1])
    graph = graph_of(build, *feeds)
    check(interp.run(program, feeds), evaluate(graph, dict(zip(graph.inputs, feeds, strict=True))))


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["groups of two", "causal, later keys", "one query", "heads behind rows"])
def test_as_onnxruntime(name: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    build, feeds, *_ = CASES[name]
    path = tmp_path / "model.onnx"
    irc.save(Model(graph_of(build, *feeds)), path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = {x.name: f for x, f in zip(session.get_inputs(), feeds, strict=True)}
    check(irc.compile(path, backend="c")(given), session.run(None, given))


# batch, heads, group, m, n, d, dv: around the edges of tiles, panels and blocks, and of what is read in place
EDGES = [
    (1, 8, 4, 1, 1, 16, 16),
    (2, 4, 4, 1, 65, 16, 8),
    (1, 10, 5, 1, 129, 16, 16),
    (1, 6, 2, 2, 64, 8, 16),
    (1, 6, 3, 5, 63, 16, 5),
    (2, 4, 2, 14, 128, 16, 16),
    (1, 4, 4, 7, 513, 16, 16),
    (1, 12, 4, 31, 31, 16, 16),
]
KINDS: list[tuple[Any, bool]] = [("none", False), ("add", False), ("bool", True)]


@pytest.mark.skipif(not compilers(), reason="no C compiler")
@pytest.mark.parametrize("isa", ["avx512", "avx2", "neon", "sse", "plain"])
def test_kernels(isa: str, tmp_path: Path) -> None:
    """The kernels of every instruction set, heads before rows and behind them."""
    made = [attention(ISAS[isa], M, D, 0.25, mask, order) for mask, order in KINDS]
    library = compiled_kernels(tmp_path, made)
    for kernel, (mask, order) in zip(made, KINDS, strict=True):
        assert kernel is not None
        for k, shape in enumerate(EDGES):
            for layout in ("bhsd", "bshd"):
                shift = shape[4] - shape[3] if order else 0
                run_attention(library, kernel, shape, masks(shape, mask, k), shift, layout)
