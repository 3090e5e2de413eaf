"""Lowering: programs interpreted on tiny shapes against the operations' references, static and symbolic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from irc.diagnostics import Sink
from irc.expr import Bin, Load, Select, index
from irc.ir.dim import Dim
from irc.ir.types import DType, f32, u8
from irc.loops import interp
from irc.loops.builder import LoopBuilder
from irc.loops.hoist import hoist
from irc.loops.ir import Buffer, For, If, Let, Stmt, Store, bodies, walk
from irc.loops.memory import lives, plan
from irc.ops.pool import MaxPool
from irc.pipelines import COMPILE_C
from irc.traversal import walk as walk_expression
from tests.support.lowering import Array, assert_same, compiled, graph_of, random

INT = np.arange(49, dtype=np.int32).reshape(7, 7) * 123456789


def layer_norm(b: Any, x: Any) -> Any:
    d = b.Sub(x, b.ReduceMean(x, [-1], keepdims=True))
    return b.Div(d, b.Sqrt(b.Add(b.ReduceMean(b.Mul(d, d), [-1], keepdims=True), 1e-5)))


def attention(b: Any, x: Any, mask: Any) -> Any:
    scores = b.Add(b.Div(b.MatMul(x, b.Transpose(x, [0, 2, 1])), 2.0), mask)
    return b.MatMul(b.Softmax(scores), x)


def residual(b: Any, x: Any, w: Any) -> Any:
    pads = {"pads_begin": (1, 1), "pads_end": (1, 1)}
    return b.Relu(b.Add(b.Conv(b.Relu(b.Conv(x, w, **pads)), w, **pads), x))


# name: (build, feeds, functions of the static program, tolerance)
CASES: dict[str, tuple[Any, list[Array], int, float]] = {
    "layer norm": (layer_norm, [random(4, 6, 70)], 1, 1e-5),
    "log-softmax": (lambda b, x: b.LogSoftmax(x, axis=1), [random(3, 50, 2)], 1, 1e-5),
    "softmax, not the last axis": (lambda b, x: b.Softmax(b.Mul(x, 0.3), axis=1), [random(2, 5, 300)], 1, 1e-5),
    "l2 norm": (lambda b, x: b.Div(x, b.Add(b.ReduceL2(x, [1], keepdims=True), 1e-9)), [random(3, 40, 6)], 1, 1e-5),
    "mean, also an output": (
        lambda b, x: (b.ReduceMean(x, [0]), b.Sub(x, b.ReduceMean(x, [0]))),
        [random(30, 6)],
        1,
        1e-5,
    ),
    "attention": (attention, [random(2, 7, 40), random(7, 7)], 3, 1e-4),
    "sum of two axes": (lambda b, x: b.ReduceSum(x, [0, 1], keepdims=False), [random(4, 5, 6)], 1, 1e-5),
    "sum of all": (lambda b, x: b.ReduceSum(x, None, keepdims=False), [random(3, 60)], 1, 1e-5),
    "f16 sum": (lambda b, x: b.ReduceSum(x, [1]), [random(4, 70, dtype="float16")], 1, 2e-3),
    "f16 product": (lambda b, x: b.MatMul(x, b.Transpose(x, [1, 0])), [random(9, 70, dtype="float16")], 1, 1e-3),
    "f64 product": (lambda b, x: b.MatMul(x, b.Transpose(x, [1, 0])), [random(9, 70, dtype="float64")], 1, 1e-12),
    "integer product wraps": (lambda b, x: b.MatMul(x, x), [INT], 1, 0),
    "batched product": (lambda b, x, y: b.Relu(b.MatMul(x, y)), [random(2, 1, 5, 6), random(3, 6, 33)], 1, 1e-5),
    "transposed product": (
        lambda b, x, y: b.MatMul(x, y, transpose_a=True, transpose_b=True),
        [random(40, 5), random(33, 40)],
        1,
        1e-4,
    ),
    "residual": (residual, [random(1, 4, 7, 6), random(4, 4, 3, 3)], 2, 1e-4),
    "depthwise": (
        lambda b, x, w: b.Conv(x, w, pads_begin=(1, 1), pads_end=(1, 1), group=6),
        [random(2, 6, 9, 8), random(6, 1, 3, 3)],
        1,
        1e-4,
    ),
    "dilated": (
        lambda b, x, w: b.Conv(x, w, pads_begin=(2, 2), pads_end=(2, 2), dilations=(2, 2)),
        [random(1, 6, 9, 8), random(4, 6, 3, 3)],
        1,
        1e-4,
    ),
    "strided": (
        lambda b, x, w: b.Conv(x, w, pads_begin=(1, 0), pads_end=(1, 1), strides=(2, 2)),
        [random(1, 3, 9, 8), random(5, 3, 3, 3)],
        1,
        1e-4,
    ),
    "transposed convolution": (
        lambda b, x, w: b.ConvTranspose(x, w, strides=(2, 2)),
        [random(1, 3, 4, 5), random(3, 2, 3, 3)],
        1,
        1e-4,
    ),
    "max pool with positions": (
        lambda b, x: b.add_all(MaxPool(kernel=(3, 3), strides=(2, 2), pads_begin=(1, 1), pads_end=(1, 1)), x),
        [random(1, 3, 9, 8)],
        2,
        0,
    ),
    "average pool": (
        lambda b, x: b.AveragePool(x, kernel=(3, 3), strides=(2, 2), pads_begin=(1, 1), pads_end=(1, 1)),
        [random(1, 3, 9, 8)],
        1,
        1e-5,
    ),
    "concat of fused parts": (
        lambda b, x, y: b.Relu(b.Concat(x, b.Exp(y), axis=1)),
        [random(2, 3), random(2, 5)],
        1,
        1e-5,
    ),
    "reshape of a transpose": (
        lambda b, x: b.Reshape(b.Transpose(b.Relu(x), [1, 0, 2]), [6, -1]),
        [random(2, 3, 8)],
        1,
        0,
    ),
    "loops of an operation": (lambda b, x: b.CumSum(b.Exp(x), b.const(1)), [random(4, 9)], 2, 1e-5),
    "running sums of many columns": (lambda b, x: b.CumSum(x, b.const(1)), [random(2, 3, 700)], 1, 1e-5),
    "running sums of many rows": (
        lambda b, x: b.CumSum(x, b.const(-1), exclusive=True, reverse=True),
        [random(19, 7)],
        1,
        1e-5,
    ),
    "select": (lambda b, x: b.Where(b.Greater(x, 0.0), b.Exp(x), x), [random(3, 6)], 1, 1e-5),
    "a view that is an output": (lambda b, x: b.Reshape(b.Softmax(x), [6, -1]), [random(2, 3, 8)], 1, 1e-5),
    "views of one value, and their sum": (
        lambda b, x: (y := b.Softmax(x), b.Reshape(b.Reshape(y, [-1]), [4, -1]), b.ReduceSum(b.Reshape(y, [-1]), [0]))[
            1:
        ],
        [random(2, 3, 8)],
        2,
        1e-5,
    ),
    "a value and two views of it": (
        lambda b, x: (y := b.CumSum(x, b.const(1)), b.Reshape(y, [-1]), b.Reshape(y, [4, -1]))[1:],
        [random(2, 10)],
        2,
        1e-5,
    ),
    "a part of a view": (
        lambda b, x: b.Slice(b.Reshape(b.CumSum(x, b.const(1)), [-1]), [5], [15], [0], [1]),
        [random(2, 10)],
        2,
        1e-5,
    ),
    "input, view and constant as outputs": (
        lambda b, x: (x, b.Reshape(x, [-1]), b.const([1, 2])),
        [random(3, 6)],
        3,
        0,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_static(name: str) -> None:
    build, feeds, functions, tolerance = CASES[name]
    program = assert_same(graph_of(build, *feeds), *feeds, tolerance=tolerance)
    assert len(program.functions) == functions


@pytest.mark.parametrize("name", CASES)
def test_symbolic(name: str) -> None:
    build, feeds, _, tolerance = CASES[name]
    shapes = [
        [n if (f.ndim == 4 and k) or n == 1 else Dim.symbol(f"S{n}", 1) for n in f.shape] for k, f in enumerate(feeds)
    ]
    program = assert_same(graph_of(build, *feeds, shapes=shapes), *feeds, tolerance=tolerance)
    assert set(program.symbols) == {str(d) for s in shapes for d in s if isinstance(d, Dim)}


def test_empty() -> None:
    x = random(0, 5)
    shapes = [[Dim.symbol("N"), 5]]
    assert_same(graph_of(lambda b, x: b.Softmax(b.Relu(x)), x, shapes=shapes), x)
    assert_same(graph_of(lambda b, x: b.ReduceSum(x, [0]), x, shapes=shapes), x)


def test_nan_in_max() -> None:
    x = random(3, 80)
    x[1, 70] = np.nan
    assert_same(graph_of(lambda b, x: b.ReduceMax(x, [1]), x), x)


def test_two_symbols_broadcast() -> None:
    """Either may be 1, which only the run decides; anything else is a constraint."""
    build, shapes = (lambda b, x, y: b.Add(x, y)), [[Dim.symbol("A")], [Dim.symbol("B")]]
    for n, m in ((4, 4), (1, 4), (4, 1)):
        x, y = random(n), random(m, seed=1)
        program = compiled(graph_of(build, x, y, shapes=shapes))
        np.testing.assert_array_equal(interp.run(program, [x, y])[0], x + y)
    with pytest.raises(ValueError, match="Add"):
        interp.run(program, [random(3), random(4)])


def test_inner_sizes_are_a_constraint() -> None:
    shapes = [[2, Dim.symbol("A", 1)], [Dim.symbol("B", 1), 3]]
    program = compiled(graph_of(lambda b, x, y: b.MatMul(x, y), random(2, 4), random(4, 3), shapes=shapes))
    assert [list(map(str, d.relation.dims())) for d in program.constraints] == [["A", "B"]]


def test_size_that_depends_on_data() -> None:
    """An operation that says how its sizes are computed compiles; one that does not is a finding for each size."""
    assert_same(graph_of(lambda b, x, s: b.Reshape(x, s), random(6), np.array([2, 3])), random(6), np.array([2, 3]))
    graph = graph_of(lambda b, x, s: b.AdaptiveAvgPool(x, s), random(1, 1, 3, 4), np.array([2, 2]))
    sink = Sink()
    for _, run in COMPILE_C:
        run(graph, sink)
    assert {d.code for d in sink.diagnostics} == {"IRC5004"}


def test_sizes_are_stored() -> None:
    """The first is the first element of a tensor that is stored, but what counts to it must run behind it."""
    x, axes = random(3, 5), np.array([1])
    build = lambda b, x, axes: b.ReduceSum(b.Exp(x), axes, keepdims=True)  # noqa: E731
    shapes = [[Dim.symbol("N", 1), Dim.symbol("M", 1)], [Dim.symbol("K", 1)]]
    program = assert_same(graph_of(build, x, axes, shapes=shapes), x, axes)
    written = {b for f in program.functions for b in f.writes}
    assert len(program.sizes) == 2 and all(s.buffer in written for s in program.sizes)


def test_outputs_that_are_views_are_computed_in_place() -> None:
    """Nothing is copied: the kernel writes to the output, through the view."""
    x, w = random(1, 8, 9, 9), random(16, 8, 3, 3)
    for build in (lambda b, x, w: b.Reshape(b.Conv(x, w), [1, -1]), lambda b, x, w: b.Reshape(b.Relu(x), [8, -1])):
        program = compiled(graph_of(build, x, w))
        assert [b.root for b in program.functions[-1].writes] == program.outputs
        assert not [f for f in program.functions if f.name.startswith("copy")]


def test_shape_arithmetic_needs_no_buffers() -> None:
    def build(b: Any, x: Any) -> Any:
        rows = b.Gather(b.Shape(x), b.const(0), b.const(0))
        return b.Reshape(x, b.Concat(b.Reshape(rows, [1]), b.const([-1]), axis=0))

    program = compiled(graph_of(build, random(3, 4, 5), shapes=[[Dim.symbol("N"), 4, 5]]))
    assert [len(f.reads) for f in program.functions] == [1]


def test_a_sum_that_a_condition_reads_is_summed_up_once() -> None:
    """What a condition and its results read of a product stands in front of it, not in each of them."""
    x, w = random(300, 16), random(16, 1)
    build = lambda b, x, w: b.LeakyRelu(b.Add(b.MatMul(x, w), 0.5), alpha=0.1)  # noqa: E731
    program = assert_same(graph_of(build, x, w), x, w, tolerance=1e-5)
    assert not [s for f in program.functions for s in walk(f.body) if isinstance(s, If)]


def test_index_arithmetic_of_a_row_is_done_once() -> None:
    """A reflecting Pad of rows chosen by a table: nothing is left to divide, choose or look up along the channels."""

    def build(b: Any, x: Any) -> Any:
        rows = b.Gather(x, b.const([0, 0, 1, 1, 2, 2, -1, 3]), b.const(0))
        return b.Relu(b.Pad(rows, [3, 2, 0, 3, 2, 0], mode="reflect"))

    for shapes in (None, [[4, Dim.symbol("N", 3), Dim.symbol("C", 1)]]):
        program = assert_same(graph_of(build, random(4, 5, 8), shapes=shapes), random(4, 5, 8))
        (loop,) = (s for f in program.functions for s in walk(f.body) if isinstance(s, For) and s.kind == "simd")
        (store,) = loop.body
        assert isinstance(store, Store)
        parts = list(walk_expression(store.value))
        assert sum(isinstance(x, Load) for x in parts) == 1
        assert not any(isinstance(x, Select) or (isinstance(x, Bin) and x.op in ("floordiv", "mod")) for x in parts)


@pytest.mark.parametrize("reads", [True, False])
def test_what_a_loop_without_iterations_reads_is_not_read(reads: bool) -> None:
    """Loops that an operation writes itself may have none just where there is nothing to read."""
    b = LoopBuilder()
    x, y = (Buffer(n, f32, (Dim.symbol("N"),), "arena") for n in "xy")
    with b.for_(2), b.for_(Dim.symbol("N")) as j:
        b.store(y, j, Load(x, (index(0),)) + 1.0)
    with b.for_(2), b.for_(3) as j:
        b.store(y, j, Load(x, (index(0),)) + 1.0)
    hoist(b, reads)
    symbolic, known = (s for s in b.body if isinstance(s, For))
    assert [isinstance(s, Let) for s in symbolic.body] == ([True, False] if reads else [False])
    assert [isinstance(s, Let) for s in known.body] == [True, False]


@pytest.mark.parametrize(("dtype", "kinds"), [(u8, [Let, For]), (f32, [For])])
def test_what_is_read_again_after_bytes_is_read_before_all_of_them(dtype: DType, kinds: list[type]) -> None:
    """C compilers take a byte for any part of memory: after each one that is stored they would read the scale again."""
    b = LoopBuilder()
    x, y = Buffer("x", f32, (Dim.of(8),), "arena"), Buffer("y", dtype, (Dim.of(8),), "arena")
    s = Buffer("s", f32, (Dim.of(1),), "arena")
    with b.for_(8, "parallel") as i:
        b.store(y, i, (Load(x, (i,)) * Load(s, (index(0),))).cast(dtype))
    hoist(b, True)
    assert [type(found) for found in b.body] == kinds


def test_axes_that_a_reshape_leaves_alone_divide_nothing() -> None:
    def build(b: Any, x: Any) -> Any:
        n, c, h, w = x.shape
        groups = b.Transpose(b.Reshape(x, b.dims([n, 2, c // 2, h, w])), [0, 2, 1, 3, 4])
        return b.Relu(b.Reshape(groups, b.dims([n, c, h * w])))

    x, (n, h, w) = random(2, 6, 3, 5), (Dim.symbol(s) for s in "nhw")
    program = compiled(graph_of(build, x, shapes=[[n, 6, h, w]]))
    (got,) = interp.run(program, [x])
    np.testing.assert_array_equal(got, np.maximum(x.reshape(2, 2, 3, 15).swapaxes(1, 2).reshape(2, 6, 15), 0))
    stores = [s for f in program.functions for s in walk(f.body) if isinstance(s, Store)]
    parts = [y for s in stores for e in (*s.index, s.value) for y in walk_expression(e)]
    assert not any(isinstance(y, Bin) and y.op in ("floordiv", "mod") for y in parts)


def test_what_may_not_be_computed_stays_in_its_branch() -> None:
    """A table is only looked up where the condition holds that keeps the position inside of it."""

    def build(b: Any, x: Any, table: Any) -> Any:
        rows = b.Gather(x, table, b.const(0))
        return b.Relu(b.Pad(rows, [2, 0, 0, 2, 0, 1], b.const(7.0, x.dtype)))

    table, shapes = np.array([3, -4, 1]), [[4, 5, Dim.symbol("C", 1)], [Dim.symbol("N", 1)]]
    assert_same(graph_of(build, random(4, 5, 8), table, shapes=shapes), random(4, 5, 8), table)


def test_softmax_row_stays_local() -> None:
    program = compiled(graph_of(lambda b, x: b.Softmax(x), random(8, 100)))
    assert not [b for b in program.buffers() if b.where == "arena"]


def test_a_quantized_softmax_row_stays_local() -> None:
    """However long the expressions of a row are: what cuts them stands in the row."""

    def rounded(b: Any, x: Any, scale: float, zero: int) -> Any:
        operands = [b.const(scale, f32), b.const(zero, u8)]
        return b.DequantizeLinear(b.QuantizeLinear(x, *operands), *operands)

    def build(b: Any, x: Any, kept: Any) -> Any:
        masked = b.Add(rounded(b, x, 0.03, 132), b.Where(kept, b.const(0.0, f32), b.const(-3e38, f32)))
        y = b.Softmax(masked)
        return rounded(b, b.Where(b.IsNaN(y), b.const(0.0, f32), y), 0.004, 0)

    x, kept = random(3, 8, 100), random(1, 1, 100) > -1
    program = assert_same(graph_of(build, x, kept), x, kept)
    assert not [b for b in program.buffers() if b.where == "arena"]


def test_places_that_a_table_says_are_read_once_for_all_rows() -> None:
    def build(b: Any, x: Any, mask: Any, table: Any) -> Any:
        return b.Add(x, b.Where(b.Gather(mask, table, b.const(0)), b.const(0.0, f32), b.const(-9.0, f32)))

    x, mask, table = random(24, 40), random(30) > 0, np.arange(40) * 7 % 30
    program = assert_same(graph_of(build, x, mask, table), x, mask, table)
    assert [b.shape for b in program.buffers() if b.where == "arena"] == [(40,)]


def test_parallel_loops_are_outermost_or_in_parallel_ones() -> None:
    def check(body: list[Stmt], inside: bool) -> int:
        found = 0
        for s in body:
            parallel = isinstance(s, For) and s.kind == "parallel"
            assert inside or not parallel
            found += parallel + sum(check(inner, parallel) for inner in bodies(s))
        return found

    program = compiled(graph_of(lambda b, x, w: b.MatMul(x, w), random(8, 16), random(16, 1200)))
    assert sum(check(f.body, True) for f in program.functions) >= 1


@pytest.mark.parametrize("shapes", [None, [[Dim.symbol("N", 1), 40]]])
def test_memory_is_shared_but_never_while_alive(shapes: Any) -> None:
    def build(b: Any, x: Any) -> Any:
        for k in range(6):
            x = b.Relu(b.MatMul(x, b.const(random(40, 40, seed=k), f32)))
        return b.ReduceSum(x, [1])

    program = compiled(graph_of(build, random(5, 40), shapes=shapes))
    alive, found = lives(program), plan(program)
    at = {
        b: (o.evaluate({"N": 5}), o.evaluate({"N": 5}) + b.bytes.evaluate({"N": 5})) for b, o in found.offsets.items()
    }
    assert at and all(lo % 64 == 0 and hi <= found.size.evaluate({"N": 5}) for lo, hi in at.values())
    for a, (alo, ahi) in at.items():
        for b, (blo, bhi) in at.items():
            assert a is b or not alive[a].overlaps(alive[b]) or ahi <= blo or bhi <= alo
    assert len({lo for lo, _ in at.values()}) < len(at)


def test_inner_axes_that_are_reduced_together_are_one_row() -> None:
    program = compiled(graph_of(lambda b, x: b.ReduceSum(x, [2, 3], keepdims=False), random(6, 5, 16, 8)))
    assert any(isinstance(s, For) and s.kind == "lanes" for f in program.functions for s in walk(f.body))
