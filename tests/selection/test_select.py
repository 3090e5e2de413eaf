"""Kernels in compiled models: what is selected, what becomes an epilogue, which rearrangements are read in place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.diagnostics import Sink
from irc.expr import Size, constant_of, index
from irc.fusion import group
from irc.ir.dim import Dim
from irc.ir.graph import Graph
from irc.kernels import ISAS, Isa
from irc.kernels.movement.transpose import TransposeKernel
from irc.loops import interp
from irc.loops.ir import Function, KernelCall, Program, walk
from irc.loops.lower import lower
from irc.opdef.builder import evaluate
from irc.ops.pool import MaxPool
from irc.pipelines import compile_c
from irc.selection import selector
from tests.support.c_program import Library
from tests.support.instruction_sets import isa_under_test
from tests.support.lowering import Array, graph_of, random

W, BIAS = random(64, 48), random(48)
SAME = {"pads_begin": (1, 1), "pads_end": (1, 1)}


def dense(b: Any, x: Any) -> Any:
    return b.Add(b.MatMul(x, W), BIAS)


def conv(b: Any, x: Any, outputs: int, group: int = 1, size: int = 3, **fields: Any) -> Any:
    w = random(outputs, int(x.shape[1]) // group, *[size] * (len(x.shape) - 2))
    return b.Conv(x, w, random(outputs), group=group, **fields)


def heads(b: Any, x: Any, seed: int) -> Any:
    made = b.MatMul(x, random(64, 64, seed=seed) / 8)
    return b.Transpose(b.Reshape(made, [2, 9, 4, 16]), [0, 2, 1, 3])


def attention(b: Any, x: Any) -> Any:
    q, k, v = (heads(b, x, seed) for seed in (1, 2, 3))
    scores = b.Softmax(b.Mul(b.MatMul(q, b.Transpose(k, [0, 1, 3, 2])), 0.25), axis=-1)
    return b.MatMul(b.Reshape(b.Transpose(b.MatMul(scores, v), [0, 2, 1, 3]), [2, 9, 64]), random(64, 64, seed=4) / 8)


def ended(b: Any, x: Any) -> Any:
    y = dense(b, x)
    return b.Sqrt(b.Abs(y)), b.Neg(y)


def column(b: Any, x: Any, outputs: int, group: int = 1, **fields: Any) -> Any:
    w = random(outputs, int(x.shape[1]) // group, 3, 1)
    return b.Conv(x, w, random(outputs), group=group, pads_begin=(2, 0), pads_end=(1, 0), **fields)


def columns(b: Any, x: Any) -> Any:
    """Planes of one column, with a slice, a residual and a pool."""
    y = b.Relu(column(b, b.Slice(x, [3], [393], [2]), 12, strides=(2, 3)))
    y = b.Add(column(b, column(b, y, 12, group=12), 12, dilations=(2, 1)), b.Slice(x, [0], [196], [2]))
    return b.add_all(MaxPool(kernel=(3, 1), strides=(2, 2)), y)[0]


MASK = np.where(random(2, 1, 9, 12) > 0, 0, -np.inf).astype(np.float32)
MASK[0, 0, 3] = -np.inf


def masked(b: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = b.MatMul(b.Mul(q, 0.5), b.Mul(b.Transpose(k, [0, 1, 3, 2]), 0.5))
    p = b.Softmax(b.Add(scores, mask), axis=-1)
    return b.MatMul(b.Where(b.IsNaN(p), b.like(0.0, p), p), v)


def sum_of_branches(b: Any, x: Any) -> Any:
    """A branch of one product and one of two, each with a residual sum, as blocks of vocoders are."""
    w = random(64, 64) / 8
    one = b.Add(x, b.MatMul(x, random(64, 64, seed=6) / 8))
    y = b.Add(x, b.MatMul(x, w))
    return b.Add(one, b.Add(y, b.MatMul(y, random(64, 64, seed=5) / 8)))


def shown(b: Any, x: Any) -> Any:
    p = b.Softmax(b.MatMul(x, x, transpose_b=True), axis=-1)
    return b.MatMul(p, x), p


# name: (build, feeds, kernels, functions)
CASES: dict[str, tuple[Any, list[Array], int, int]] = {
    "bias and relu": (lambda b, x: b.Relu(dense(b, x)), [random(2, 13, 64)], 1, 1),
    "gelu reads its operand twice": (lambda b, x: b.Gelu(dense(b, x)), [random(5, 64)], 1, 1),
    "hard swish, one row": (lambda b, x: b.HardSwish(dense(b, x)), [random(1, 64)], 1, 1),
    "residual": (lambda b, x, y: b.Add(y, dense(b, x)), [random(2, 5, 64), random(2, 5, 48)], 1, 1),
    "residual for all of the batch": (lambda b, x, y: b.Add(dense(b, x), y), [random(2, 5, 64), random(5, 48)], 1, 1),
    "sums of a branch that another one's epilogue reads first": (sum_of_branches, [random(5, 64)], 3, 3),
    "a result that others need ends the epilogue": (ended, [random(5, 64)], 1, 3),
    "a row of the epilogue": (lambda b, x, y: b.Mul(dense(b, x), y), [random(3, 5, 64), random(3, 5, 1)], 1, 1),
    "softmax is no epilogue": (lambda b, x: b.Softmax(dense(b, x)), [random(5, 64)], 1, 2),
    "both operands vary": (lambda b, x, y: b.MatMul(x, y), [random(3, 20, 24), random(3, 24, 17)], 1, 1),
    "both transposed, one for all": (
        lambda b, x, y: b.MatMul(x, y, transpose_a=True, transpose_b=True),
        [random(3, 24, 20), random(17, 24)],
        1,
        1,
    ),
    "constants of a batch": (lambda b, x: b.MatMul(x, random(3, 40, 33)), [random(2, 1, 6, 40)], 1, 1),
    "a vector": (lambda b, x: b.MatMul(x, random(64, 80)), [random(64)], 1, 1),
    "f64": (lambda b, x: b.MatMul(x, W.astype(np.float64)), [random(5, 64, dtype="float64")], 1, 1),
    "a slice is read in place": (lambda b, x: b.MatMul(b.Slice(x, [3], [67], [1]), W), [random(9, 70)], 1, 1),
    "attention's heads are read in place": (attention, [random(2, 9, 64)], 5, 5),
    "attention, masked, rows without keys": (
        masked,
        [random(2, 3, 9, 16), random(2, 3, 12, 16), random(2, 3, 12, 24), MASK],
        1,
        1,
    ),
    "scores that are an output are no attention": (shown, [random(3, 9, 16)], 2, 3),
    "tiny products stay loops": (lambda b, x, y: b.MatMul(x, y), [random(3, 4), random(4, 5)], 0, 1),
    "integers stay loops": (lambda b, x, y: b.MatMul(x, y), [np.ones((32, 32), np.int32)] * 2, 0, 1),
    "conv, relu": (lambda b, x: b.Relu(conv(b, x, 6, **SAME)), [random(2, 5, 9, 7)], 1, 1),
    "conv by strides, clipped": (
        lambda b, x: b.Clip(conv(b, x, 20, strides=(2, 2), pads_begin=(0, 1), pads_end=(1, 0)), 0.0, 6.0),
        [random(1, 8, 9, 10)],
        1,
        1,
    ),
    "conv, residual": (lambda b, x: b.Relu(b.Add(conv(b, x, 8, **SAME), x)), [random(2, 8, 6, 7)], 1, 1),
    "conv, one weight a channel": (
        lambda b, x, s: b.Mul(conv(b, x, 8, **SAME), s),
        [random(2, 8, 6, 7), random(2, 8, 1, 1)],
        1,
        1,
    ),
    "depthwise": (lambda b, x: b.Relu(conv(b, x, 12, group=12, **SAME)), [random(2, 12, 9, 11)], 1, 1),
    "groups": (lambda b, x: conv(b, x, 8, group=2, dilations=(2, 1), **SAME), [random(1, 12, 9, 8)], 1, 1),
    "one spatial axis": (
        lambda b, x: b.Tanh(conv(b, x, 9, size=5, strides=(2,), pads_begin=(2,), pads_end=(1,))),
        [random(2, 7, 33)],
        1,
        1,
    ),
    "the only column of a plane": (columns, [random(2, 12, 400, 1)], 5, 7),
    "channels of a split are read in place": (
        lambda b, x: conv(b, b.Slice(x, [4], [12], [1]), 6, size=1),
        [random(2, 16, 9, 9)],
        1,
        1,
    ),
    "transposed conv: windows side by side": (
        lambda b, x: b.ConvTranspose(x, random(8, 6, 2, 2), random(6), strides=(2, 2)),
        [random(2, 8, 9, 7)],
        1,
        2,
    ),
    "transposed conv: overlapping, padded, in groups": (
        lambda b, x: b.ConvTranspose(
            x,
            random(8, 3, 3, 4),
            random(6),
            strides=(2, 3),
            pads_begin=(1, 0),
            pads_end=(1, 2),
            output_padding=(1, 0),
            group=2,
        ),
        [random(2, 8, 9, 7)],
        1,
        1,
    ),
    "mean of planes of one element, repeated": (
        lambda b, x: b.ReduceMean(b.Expand(x, [2, 64, 7, 7]), [2, 3]),
        [random(2, 64, 1, 1)],
        1,
        1,
    ),
    "mean of a plane that all channels share": (
        lambda b, x: b.ReduceMean(b.Expand(b.Transpose(x, [0, 1, 3, 2]), [2, 64, 11, 7]), [2, 3]),
        [random(2, 1, 7, 11)],
        1,
        1,
    ),
    "mean of planes": (lambda b, x: b.ReduceMean(x, [2, 3]), [random(2, 8, 9, 17)], 1, 1),
    "largest of short rows": (lambda b, x: b.ReduceMax(x, [-1]), [random(3, 50, 33)], 1, 1),
    "largest of the shortest rows": (lambda b, x: b.ReduceMax(x, [-1]), [random(3, 50, 9)], 0, 1),
    "mean of planes, channels last": (
        lambda b, x: b.ReduceMean(b.Transpose(x, [0, 3, 1, 2]), [-1, 2], keepdims=False),
        [random(2, 9, 17, 8)],
        1,
        1,
    ),
    "largest of a line": (lambda b, x: b.ReduceMax(x, [2], keepdims=False), [random(2, 8, 400)], 1, 1),
    "max pool": (
        lambda b, x: b.add_all(MaxPool(kernel=(3, 3), strides=(2, 2), pads_begin=(1, 1), pads_end=(1, 1)), x)[0],
        [random(2, 8, 15, 12)],
        1,
        1,
    ),
    "mean pool, rounded up": (
        lambda b, x: b.AveragePool(
            x, kernel=(3, 2), strides=(2, 2), pads_begin=(1, 0), pads_end=(1, 1), rounding="ceil", counted="padded"
        ),
        [random(2, 8, 15, 12)],
        1,
        1,
    ),
    "columns by a table are copied": (
        lambda b, x, y: b.Add(conv(b, x, 8, size=1), b.Gather(y, np.array([3, 1, 1, 0, 2, 3]), 3)),
        [random(2, 8, 9, 6), random(2, 8, 9, 4)],
        1,
        2,
    ),
    "a product, transposed": (lambda b, x: b.Transpose(dense(b, x), [0, 2, 1]), [random(2, 13, 64)], 2, 2),
    "a view of a product, transposed": (
        lambda b, x: b.Transpose(b.Reshape(dense(b, x), [2, 13, 6, 8]), [0, 3, 1, 2]),
        [random(2, 13, 64)],
        2,
        2,
    ),
    "an input, transposed": (lambda b, x: b.Transpose(x, [3, 1, 2, 0]), [random(17, 2, 3, 40)], 1, 1),
    "a transpose with few rows stays loops": (lambda b, x: b.Transpose(x, [0, 2, 1]), [random(5, 3, 40)], 0, 1),
    "a transpose that loops read stays loops": (
        lambda b, x: b.Relu(b.Transpose(b.Sqrt(b.Abs(x)), [0, 2, 1])),
        [random(2, 13, 64)],
        0,
        1,
    ),
    "half of the columns are copied": (
        lambda b, x: conv(b, b.Slice(x, [0], [4], [3]), 9, size=3),
        [random(2, 16, 9, 9)],
        1,
        2,
    ),
}


def selected(graph: Graph, isa: Isa | None = None) -> Program:
    graph, sink = graph.copy(), Sink()
    for _, run in compile_c(isa or isa_under_test()):
        run(graph, sink)
    return lower(graph, group.run(graph), "test")


def kernels(functions: list[Function]) -> list[Any]:
    return [s.kernel for f in functions for s in walk(f.body) if isinstance(s, KernelCall)]


def check(found: list[Array], wanted: list[Array]) -> None:
    for got, want in zip(found, wanted, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=3e-5, atol=3e-5)


def check_compiled(cases: dict[str, Any], program_of: Callable[[Graph], Program], folder: Path) -> None:
    """The programs of cases (build, feeds, …), compiled, give what the operations' references give."""
    for name, (build, feeds, *_) in cases.items():
        graph = graph_of(build, *feeds)
        wanted = evaluate(graph, dict(zip(graph.inputs, feeds, strict=True)))
        library = Library(program_of(graph), folder)
        try:
            check(library.run(library.context(), feeds, [w.shape for w in wanted]), wanted)
        except AssertionError as e:
            raise AssertionError(f"{name}: {e}") from e


LONE = {
    *("conv, relu", "conv by strides, clipped", "conv, residual", "conv, one weight a channel"),
    "half of the columns are copied",
}
"""Convolutions that stand alone: their channels are moved last and back where an instruction set gains by that."""


@pytest.mark.parametrize("name", CASES)
def test_selects(name: str) -> None:
    """The program has that many kernels and functions, and its interpretation is the references' result."""
    build, feeds, count, functions = CASES[name]
    graph = graph_of(build, *feeds)
    wanted = evaluate(graph, dict(zip(graph.inputs, feeds, strict=True)))
    program = selected(graph)
    chosen = [k for k in kernels(program.functions) if name not in LONE or not isinstance(k, TransposeKernel)]
    assert len(chosen) == count
    assert len(program.functions) == functions or (name in LONE and functions < len(program.functions) <= functions + 2)
    check(interp.run(program, feeds), wanted)


@pytest.mark.compiler
def test_compiled(tmp_path: Path) -> None:
    """All of them as one library."""
    check_compiled(CASES, selected, tmp_path)


N, S = Dim.symbol("n", 1), Dim.symbol("s", 1)


@pytest.mark.compiler
@pytest.mark.parametrize(("n", "s"), [(1, 1), (3, 7), (2, 40)])
def test_symbolic_sizes(n: int, s: int, tmp_path: Path) -> None:
    def build(b: Any, x: Any, y: Any) -> Any:
        return b.Add(b.Relu(dense(b, x)), y), b.MatMul(x, x, transpose_b=True)

    feeds = [random(n, s, 64), random(n, s, 48)]
    graph = graph_of(build, *feeds, shapes=[(N, S, 64), (N, S, 48)])
    wanted = evaluate(graph, dict(zip(graph.inputs, feeds, strict=True)))
    program = selected(graph)
    assert len(kernels(program.functions)) == 2
    check(interp.run(program, feeds), wanted)
    library = Library(program, tmp_path)
    check(library.run(library.context((n, s)), feeds, [w.shape for w in wanted]), wanted)


def test_the_only_column_of_a_plane_is_a_row() -> None:
    """Kernels that go along rows take it as one."""
    program = selected(graph_of(lambda b, x: column(b, x, 8, strides=(2, 1)), random(2, 12, 40, 1)))
    (call,) = [s for f in program.functions for s in walk(f.body) if isinstance(s, KernelCall)]
    sizes = {n: constant_of(e) for n, e in zip(call.kernel.sizes, call.sizes, strict=True)}
    assert [sizes[n] for n in ("ih", "oh", "kh", "pad_h")] == [1, 1, 1, 0]
    assert "_40_21_k1x3_s2_d1_p2_" in call.kernel.symbol


def test_equal_layers_share_a_kernel_and_weights_are_stored_once() -> None:
    def build(b: Any, x: Any) -> Any:
        w = b.const(random(64, 64), x.dtype)
        for _ in range(3):
            x = b.Relu(b.MatMul(x, w))
        return x

    program = selected(graph_of(build, random(40, 64)))
    assert len({k.symbol for k in kernels(program.functions)}) == 1
    assert len(program.constants) == 1


@pytest.mark.parametrize(("columns", "apart"), [(5, True), (16, False), (17, False)])
def test_functions_of_few_columns_are_apart(columns: int, apart: bool) -> None:
    """A kernel computes them of whole vectors of each row, loops of rows side by side."""

    def build(b: Any, x: Any) -> Any:
        y = b.Add(b.MatMul(x, b.const(random(20, columns), x.dtype)), b.const(random(columns), x.dtype))
        return b.Tanh(y)

    (kernel,) = kernels(selected(graph_of(build, random(4096, 20)), ISAS["avx512"]).functions)
    assert kernel.epilogue.slots == ("row",) and (kernel.epilogue.functions() == ()) == apart


def test_sizes_without_a_kernel_are_still_checked() -> None:
    """What a MatMul demands of the sizes of its operands holds for its kernel too."""
    feeds = [random(4, 64), random(64, 48)]
    graph = graph_of(lambda b, x, y: b.MatMul(x, y), *feeds, shapes=[(4, N), (S, 48)])
    assert [set(map(str, d.relation.dims())) for d in selected(graph).constraints] == [{"n", "s"}]


def test_kernels_of_sizes_that_the_run_tells() -> None:
    """A kernel that is selected before sizes are defined keeps its types, and says what it knows of them later."""

    def build(b: Any, x: Any) -> Any:
        y = b.Gather(x, b.Reshape(b.NonZero(x), [-1]), b.const(0))
        return y, b.Softmax(y)

    x = np.maximum(random(5000), 0)
    program = selected(graph_of(build, x), ISAS["avx2"])
    (kernel,) = (s for f in program.functions for s in walk(f.body) if isinstance(s, KernelCall))
    (size,) = program.sizes
    (columns,) = (e for e in kernel.sizes if isinstance(e, Size))
    assert columns.dim.symbols() == {size.symbol}
    above = x[x > 0]
    check(interp.run(program, [x]), [above, np.exp(above) / np.exp(above).sum()])
    op = selector.KernelOp(kernel.kernel, kernel.sizes, (index(0), index(0)), columns.dim * 4)
    known = op.with_sizes({size.symbol.name: 4})
    assert isinstance(known, selector.KernelOp) and known.scratch == 16
    assert known.sizes == tuple(index(4) if e is columns else e for e in kernel.sizes)
    assert op.with_sizes({"other": 4}) is op and not op.infers


@pytest.mark.parametrize(
    ("build", "copied"),
    [
        (lambda b, x: b.Softmax(b.Transpose(x, [2, 0, 1]), axis=-1), True),  # rows of which every element is far off
        (lambda b, x: b.Relu(b.Transpose(b.Mul(x, x), [2, 0, 1])), True),
        (lambda b, x: b.Gather(b.Transpose(x, [2, 0, 1]), b.const([1, 3]), b.const(0)), False),  # half of it
        (lambda b, x: b.Relu(b.Transpose(b.Reshape(x, [8, 1024, 8]), [0, 2, 1])), True),
        (lambda b, x: b.Relu(b.Transpose(b.Reshape(x, [8, 16, 512]), [0, 2, 1])), False),  # short rows
    ],
)
def test_a_transpose_of_much_is_copied_for_loops(build: Callable[..., Any], copied: bool) -> None:
    graph = graph_of(build, random(64, 256, 4))
    found = [k for k in kernels(selected(graph).functions) if isinstance(k, TransposeKernel)]
    assert bool(found) == copied


def test_worthwhile() -> None:
    assert selector.worthwhile(Dim.of(64), Dim.of(64)) and selector.worthwhile(N, Dim.of(2))
    assert not selector.worthwhile(Dim.of(8), Dim.of(8), Dim.of(8))
