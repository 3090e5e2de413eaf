"""The passes on graphs: what each does, and that it leaves everything else alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irc
from irc.diagnostics import Sink
from irc.fusion import group
from irc.fusion.indexing import Ranges
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Model
from irc.ir.types import TensorType, boolean, f32, i64, u8
from irc.ir.verify import problems
from irc.opdef.builder import Builder, evaluate
from irc.opdef.opaque import Opaque
from irc.opdef.text import parse_graph, print_graph
from irc.passes import channel_scales, cse, decompose, fold, infer, materialize, recompose, simplify, weights
from irc.pipelines import compile_c
from tests.support.instruction_sets import isa_under_test
from tests.support.lowering import graph_of, random

X = random(3, 4)


def ops(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


# -------------------------------------------------------------------------- simplify
# name: (build, the operations left)
RULES: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "Identity": (lambda b, x: b.Exp(b.Identity(x)), ["Exp"]),
    "Reshape to the same shape": (lambda b, x: b.Exp(b.Reshape(x, [3, -1])), ["Exp"]),
    "Reshape of Reshape": (lambda b, x: b.Reshape(b.Reshape(x, [2, 6]), [4, 3]), ["Reshape"]),
    "Reshape of Unsqueeze": (lambda b, x: b.Reshape(b.Unsqueeze(x, [0]), [12]), ["Reshape"]),
    "there and back": (lambda b, x: b.Exp(b.Reshape(b.Reshape(x, [12]), [3, 4])), ["Exp"]),
    "Transpose of Transpose": (lambda b, x: b.Exp(b.Transpose(b.Transpose(x, [1, 0]), [1, 0])), ["Exp"]),
    "two permutations": (
        lambda b, x: b.Transpose(b.Transpose(b.Reshape(x, [3, 2, 2]), [1, 2, 0]), [1, 0, 2]),
        ["Reshape", "Transpose"],
    ),
    "Transpose, Reshape that merges axes, Transpose that move nothing": (
        lambda b, x: b.Transpose(
            b.Reshape(b.Transpose(b.Reshape(x, [1, 3, 2, 2]), [0, 3, 1, 2]), [1, 2, 6]), [0, 2, 1]
        ),
        ["Reshape"],
    ),
    "the same where axes change places": (
        lambda b, x: b.Transpose(
            b.Reshape(b.Transpose(b.Reshape(x, [1, 3, 2, 2]), [0, 3, 2, 1]), [1, 2, 6]), [0, 2, 1]
        ),
        ["Reshape", "Transpose", "Reshape", "Transpose"],
    ),
    "Transpose that moves nothing": (lambda b, x: b.Exp(b.Transpose(x, [0, 1])), ["Exp"]),
    "Cast to the same type": (lambda b, x: b.Exp(b.Cast(x, to=f32)), ["Exp"]),
    "x · 1": (lambda b, x: b.Exp(b.Mul(x, 1.0)), ["Exp"]),
    "1 · x": (lambda b, x: b.Exp(b.Mul(b.const(1.0, f32), x)), ["Exp"]),
    "x / 1": (lambda b, x: b.Exp(b.Div(x, 1.0)), ["Exp"]),
    "x - 0": (lambda b, x: b.Exp(b.Sub(x, 0.0)), ["Exp"]),
    "x + -0.0": (lambda b, x: b.Exp(b.Add(x, -0.0)), ["Exp"]),
    "nobody uses it": (lambda b, x: (b.Sin(x), b.Exp(x))[1], ["Exp"]),
    # and what must stay:
    "x + 0.0 turns -0.0 into 0.0": (lambda b, x: b.Add(x, 0.0), ["Add"]),
    "x - -0.0": (lambda b, x: b.Exp(b.Sub(x, -0.0)), ["Sub", "Exp"]),
    "1 / x": (lambda b, x: b.Div(b.const(1.0, f32), x), ["Div"]),
    "x · 1 that broadcasts": (lambda b, x: b.Mul(x, b.const(np.ones((2, 3, 4)), f32)), ["Mul"]),
    "an output that is an input": (lambda b, x: b.Identity(x), ["Identity"]),
}


@pytest.mark.parametrize("name", RULES)
def test_simplify(name: str) -> None:
    build, left = RULES[name]
    x = np.where(np.abs(X) < 0.5, np.float32(-0.0), X)
    graph = graph_of(build, x)
    before = evaluate(graph, {graph.inputs[0]: x})
    simplify.run(graph)
    assert ops(graph) == left and not problems(graph)
    for a, b in zip(evaluate(graph, {graph.inputs[0]: x}), before, strict=True):
        assert a.tobytes() == b.tobytes() and a.shape == b.shape


def test_integers_add_zero() -> None:
    graph = graph_of(lambda b, x: b.Abs(b.Add(x, 0)), np.arange(5))
    simplify.run(graph)
    assert ops(graph) == ["Abs"]


def test_outputs_keep_their_names() -> None:
    graph = graph_of(lambda b, x: b.Mul(b.Exp(x), 1.0), X)
    graph.outputs[0].name, graph.outputs[0].names = "y", ("alias",)
    simplify.run(graph)
    assert ops(graph) == ["Exp"] and graph.outputs[0].name == "y" and graph.outputs[0].names == ("alias",)


# ------------------------------------------------------------------------- recompose
SPELLED: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "x · sigmoid(x)": (lambda b, x: b.Mul(x, b.Sigmoid(x)), ["Swish"]),
    "sigmoid(x) · x": (lambda b, x: b.Exp(b.Mul(b.Sigmoid(x), x)), ["Swish", "Exp"]),
    "x · tanh(softplus(x))": (lambda b, x: b.Mul(x, b.Tanh(b.Softplus(x))), ["Mish"]),
    "tanh(softplus(x)) · x": (lambda b, x: b.Exp(b.Mul(b.Tanh(b.Softplus(x)), x)), ["Mish", "Exp"]),
    "tanh of something else": (lambda b, x: b.Mul(b.Neg(x), b.Tanh(b.Softplus(x))), ["Neg", "Softplus", "Tanh", "Mul"]),
    "a softplus used elsewhere": (
        lambda b, x: b.Add(b.Mul(x, b.Tanh(s := b.Softplus(x))), s),
        ["Softplus", "Tanh", "Mul", "Add"],
    ),
    "of something else": (lambda b, x: b.Mul(x, b.Sigmoid(b.Neg(x))), ["Neg", "Sigmoid", "Mul"]),
    "that is used elsewhere": (lambda b, x: b.Add(b.Mul(x, s := b.Sigmoid(x)), s), ["Sigmoid", "Mul", "Add"]),
}


@pytest.mark.parametrize("name", SPELLED)
def test_recompose(name: str) -> None:
    build, left = SPELLED[name]
    graph = graph_of(build, X)
    graph.outputs[0].names = ("alias",)
    (before,) = evaluate(graph, {graph.inputs[0]: X})
    assert recompose.run(graph) == bool({"Swish", "Mish"} & {*left})
    assert ops(graph) == left and not problems(graph) and graph.outputs[0].names == ("alias",)
    np.testing.assert_allclose(evaluate(graph, {graph.inputs[0]: X})[0], before, rtol=3e-7)


GROUPS: dict[str, tuple[list[int], bool]] = {
    "groups of channels": ([0, 3, -1], True),
    "channels": ([0, 6, -1], True),
    "across samples": ([-1, 3, 10], False),
    "parts of channels": ([0, 4, -1], False),
}


@pytest.mark.parametrize("name", GROUPS)
def test_recompose_group_norm(name: str) -> None:
    """As exporters write it before opset 21; groups that are no whole channels stay."""
    (to, whole), x = GROUPS[name], np.random.default_rng(5).standard_normal((2, 6, 2, 5)).astype(np.float32)

    def build(b: Any, x: Any) -> Any:
        flat = b.Reshape(x, to)
        count = int(flat.shape[1])
        scale, bias = (b.const(np.linspace(low, 2, count), f32) for low in (0.5, -1))
        return b.Reshape(b.InstanceNormalization(flat, scale, bias), [2, 6, 2, 5])

    graph = graph_of(build, x)
    (before,) = evaluate(graph, {graph.inputs[0]: x})
    assert recompose.run(graph) == whole
    assert ("GroupNormalization" in ops(graph)) == whole and not problems(graph)
    np.testing.assert_allclose(evaluate(graph, {graph.inputs[0]: x})[0], before, rtol=2e-6, atol=2e-6)


# name: (the weights, the operations left) of the negative of a convolution
NEGATIVES: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "constants": (lambda b, x: b.Neg(b.Conv(x, *PARAMETERS)), ["Conv"]),
    "without a bias": (lambda b, x: b.Neg(b.Conv(x, PARAMETERS[0])), ["Conv"]),
    "weights that are computed": (lambda b, x: b.Neg(b.Conv(x, b.Exp(PARAMETERS[0]))), ["Exp", "Conv", "Neg"]),
    "a result with another use": (lambda b, x: b.Mul(y := b.Conv(x, *PARAMETERS), b.Neg(y)), ["Conv", "Neg", "Mul"]),
}
PARAMETERS = random(4, 3, 2), random(4)


@pytest.mark.parametrize("name", NEGATIVES)
def test_recompose_negative(name: str) -> None:
    """Constants are negated instead of results, to the same numbers."""
    build, left = NEGATIVES[name]
    x = random(2, 3, 7)
    graph = graph_of(build, x)
    (before,) = evaluate(graph, {graph.inputs[0]: x})
    recompose.run(graph)
    assert ops(graph) == left and not problems(graph)
    np.testing.assert_array_equal(evaluate(graph, {graph.inputs[0]: x})[0], before)


# -------------------------------------------------------------------- channel_scales
NORM = [random(4, seed=k) for k in (1, 2, 3)] + [np.abs(random(4, seed=4)) + np.float32(0.5)]
FACTORS = random(4, 1, seed=5)
# name: (the layers, the operations left)
SCALES: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "a normalization": (lambda b, x: b.BatchNormalization(b.Conv(x, PARAMETERS[0]), *NORM), ["Conv"]),
    "one behind a bias": (lambda b, x: b.BatchNormalization(b.Conv(x, *PARAMETERS), *NORM), ["Conv"]),
    "of transposed": (lambda b, x: b.BatchNormalization(b.ConvTranspose(x, TRANSPOSED), *NORM), ["ConvTranspose"]),
    "of groups": (
        lambda b, x: b.BatchNormalization(b.ConvTranspose(b.Concat(x, x, x, x, axis=1), GROUPED, group=2), *NORM),
        ["Concat", "ConvTranspose"],
    ),
    "factors and summands": (
        lambda b, x: b.Add(b.Mul(b.Add(b.Mul(b.Conv(x, PARAMETERS[0]), 0.5), FACTORS), FACTORS), 2.0),
        ["Conv"],
    ),
    "a sigmoid of pieces": (lambda b, x: b.HardSigmoid(b.Conv(x, *PARAMETERS), 0.2, 0.5), ["Conv", "Clip"]),
    "each in its place": (lambda b, x: b.Mul(b.Conv(x, PARAMETERS[0]), random(4, 6)), ["Conv", "Mul"]),
    "with another use": (
        lambda b, x: b.Mul(y := b.Conv(x, PARAMETERS[0]), b.BatchNormalization(y, *NORM)),
        ["Conv", "BatchNormalization", "Mul"],
    ),
    "weights with another use": (
        lambda b, x: b.Sub(b.Mul(b.Conv(x, w := b.const(PARAMETERS[0], f32)), 2.0), b.Exp(b.Conv(x, w))),
        ["Conv", "Mul", "Conv", "Exp", "Sub"],
    ),
    "no numbers": (lambda b, x: b.Mul(b.Conv(x, PARAMETERS[0]), np.inf), ["Conv", "Mul"]),
    "weights that are computed": (
        lambda b, x: b.BatchNormalization(b.Conv(x, b.Exp(PARAMETERS[0])), *NORM),
        ["Exp", "Conv", "BatchNormalization"],
    ),
}
TRANSPOSED, GROUPED = random(3, 4, 2), random(12, 2, 2)


@pytest.mark.parametrize("name", SCALES)
def test_channel_scales(name: str) -> None:
    build, left = SCALES[name]
    x = random(2, 3, 7)
    graph = graph_of(build, x)
    (before,) = evaluate(graph, {graph.inputs[0]: x})
    recompose.run(graph, channel_scales.RULES)
    assert sorted(ops(graph)) == sorted(left) and not problems(graph)
    np.testing.assert_allclose(evaluate(graph, {graph.inputs[0]: x})[0], before, rtol=2e-6, atol=2e-6)


# ------------------------------------------------------------------------------ fold
def test_fold() -> None:
    graph = graph_of(lambda b, x: b.Mul(x, b.Exp(b.Neg(b.const([1.0, 2.0, 3.0, 4.0], f32)))), X)
    assert fold.run(graph) == 2 and ops(graph) == ["Mul"] and not problems(graph)


def test_places_of_a_constant_are_folded() -> None:
    """Exporters write ranges so; what depends on them has sizes of numbers."""

    def build(b: Any, x: Any) -> Any:
        chosen = b.Not(b.const([False, True, False, False], boolean))
        return b.Exp(b.Gather(x, b.Reshape(b.NonZero(chosen), [-1]), 1))

    graph = graph_of(build, X)
    fold.run(graph)
    assert ops(graph) == ["Gather", "Exp"] and graph.outputs[0].tensor.is_static and not problems(graph)
    np.testing.assert_array_equal(evaluate(graph, {graph.inputs[0]: X})[0], np.exp(X[:, [0, 2, 3]]))


def test_sizes_that_fold_tells_are_known_behind() -> None:
    """Pads computed from a size in floats, as TensorFlow's padding is exported: twice, each from a size before."""

    def padded(b: Any, x: Any) -> Any:
        width = b.Cast(b.Gather(b.Shape(x), b.const([2]), b.const(0)), to=f32)
        missing = b.Cast(b.Sub(b.Mul(b.Ceil(b.Div(width, 4.0)), 4.0), width), to=i64)
        return b.Pad(x, b.Concat(b.const([0, 0, 0, 0, 0]), missing, axis=0), 0.0)

    graph = graph_of(lambda b, x: padded(b, b.Slice(padded(b, x), [0], [3], [2])), random(1, 2, 7))
    for _, run in [p for p in compile_c(isa_under_test()) if p[0] in ("materialize", "fold", "simplify")]:
        run(graph, Sink())
    assert graph.outputs[0].shape == (1, 2, 4) and "Ceil" not in ops(graph) and not problems(graph)


def test_fold_does_not_blow_up() -> None:
    graph = graph_of(lambda b, x: b.Add(x, b.Expand(b.const(1.0, f32), b.const([3, 5_000_000]))), random(3, 1))
    assert fold.run(graph) == 0


# --------------------------------------------------------------------- materialize, cse
def test_sizes_become_a_vector() -> None:
    graph = graph_of(lambda b, x: b.Mul(b.Shape(x), 2), X, shapes=[[Dim.symbol("N"), 4]])
    materialize.run(graph)
    assert ops(graph) == ["DimVector"] and [str(d) for d in graph.outputs[0].contents] == ["2*N", "8"]


def test_known_sizes_become_a_constant() -> None:
    graph = graph_of(lambda b, x: b.Mul(b.Shape(x), 2), X)
    materialize.run(graph)
    assert ops(graph) == [] and graph.outputs[0].ints() == [6, 8]


def test_cse() -> None:
    graph = graph_of(lambda b, x: b.Add(b.Mul(b.Exp(x), 2.0), b.Mul(b.Exp(x), 2.0)), X)
    assert cse.run(graph) == 2 and ops(graph) == ["Exp", "Mul", "Add"] and not problems(graph)


def test_cse_tells_zeros_apart() -> None:
    graph = graph_of(lambda b, x: b.Concat(b.Mul(x, 0.0), b.Mul(x, -0.0), axis=0), X)
    assert cse.run(graph) == 0


def test_transposed_weights() -> None:
    graph = graph_of(lambda b, x: b.MatMul(x, b.const(random(5, 4), f32), transpose_b=True), X)
    before = evaluate(graph, {graph.inputs[0]: X})
    assert weights.run(graph) == 1 and graph.nodes[0].inputs[1].shape == (4, 5)
    np.testing.assert_array_equal(evaluate(graph, {graph.inputs[0]: X})[0], before[0])
    one_row = graph_of(lambda b, x: b.MatMul(x, b.const(random(5, 4), f32), transpose_b=True), X[:1])
    assert weights.run(one_row) == 0


# -------------------------------------------------------------------------- decompose
@pytest.mark.parametrize("eps_mode", ["inside", "outside"])
def test_normalization_divides_once_a_mean(eps_mode: str) -> None:
    """Elements are multiplied by a reciprocal, as in every other normalization."""
    x = random(2, 4, 5, 6)
    graph = graph_of(lambda b, v: b.MeanVarianceNormalization(v, b.const([2, 3], i64), eps_mode=eps_mode), x)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    decompose.run(graph, Sink())
    assert not [n for n in graph.nodes if n.op.name == "Div"]
    assert [n.outputs[0].shape for n in graph.nodes if n.op.name == "Reciprocal"] == [(2, 4, 1, 1)]
    np.testing.assert_allclose(evaluate(graph, {graph.inputs[0]: x})[0], wanted, rtol=1e-6, atol=1e-6)


def test_decompose_names_the_source_layer() -> None:
    graph = graph_of(lambda b, x: b.Softmax(x), X)
    graph.nodes[0].name = "layer/softmax"
    decompose.run(graph, Sink())
    assert {n.name for n in graph.nodes} == {"layer/softmax"} and "Softmax" not in ops(graph)


def test_every_unknown_operation_is_reported() -> None:
    graph = graph_of(lambda b, x: b.Exp(x), X)
    for k in range(2):
        op = Opaque("onnx", f"Strange{k}", 1, "com.example", (TensorType.of(f32, (2,)),))
        out = graph.new_value(f"y{k}", op.types[0])
        graph.add_node(op, [graph.inputs[0]], [out])
        graph.outputs.append(out)
    sink = Sink()
    decompose.run(graph, sink)
    assert [d.code for d in sink.errors] == ["IRC5001", "IRC5001"]


# ------------------------------------------------------------------------------ group
def grouped(graph: Graph) -> list[list[str]]:
    """The result names of the groups."""
    decompose.run(graph, Sink())
    return [[v.producer.op.name for v in g.results if v.producer] for g in group.run(graph).groups]


def test_expensive_shared_values_are_stored() -> None:
    assert grouped(graph_of(lambda b, x: (b.Neg(b.Exp(x)), b.Abs(b.Exp(b.Exp(x)))), X)) == [["Neg"], ["Abs"]]

    def twice(b: Any, e: Any, f: str) -> Any:
        return getattr(b, f)(e), b.Abs(e)

    shared = graph_of(lambda b, x: twice(b, b.Exp(x), "Neg"), X)
    assert grouped(shared) == [["Exp"], ["Neg"], ["Abs"]]
    cheap = graph_of(lambda b, x: twice(b, b.Neg(x), "Exp"), X)
    assert grouped(cheap) == [["Exp"], ["Abs"]]


def test_values_whose_readers_join_are_not_stored() -> None:
    """One element of the sum computes them once; with another reader, or at another place, they are stored."""

    def joined(b: Any, e: Any) -> Any:
        return b.Add(b.Neg(e), b.Abs(e))

    def turned(b: Any, e: Any) -> Any:
        return b.Add(b.Neg(e), b.Transpose(b.Abs(e), [1, 0]))

    assert grouped(graph_of(lambda b, x: joined(b, b.Exp(x)), X)) == [["Add"]]
    assert grouped(graph_of(lambda b, x: turned(b, b.Exp(x)), random(4, 4))) == [["Exp"], ["Add"]]
    rounded = graph_of(lambda b, x: b.QuantizeLinear(b.Relu(x), b.const(0.1, f32), b.const(3, u8)), X)
    assert grouped(rounded) == [["Cast"]]


def test_what_is_read_at_many_places_is_stored() -> None:
    """Unless it is as cheap to compute, or few places read it."""

    def scaled(rows: int, f: str) -> list[list[str]]:
        def build(b: Any, x: Any, v: Any) -> Any:
            return b.Mul(x, getattr(b, f)(v))

        return grouped(graph_of(build, random(rows, 4), random(4)))

    assert scaled(group.OFTEN, "Exp") == [["Exp"], ["Mul"]]
    assert scaled(group.OFTEN - 1, "Exp") == scaled(group.OFTEN, "Neg") == [["Mul"]]


def test_epilogue() -> None:
    graph = graph_of(lambda b, x, w: b.Relu(b.Add(b.MatMul(x, w), 1.0)), X, random(4, 5))
    assert grouped(graph) == [["Relu"]]


def test_operands_of_a_contraction_are_not_computed_again() -> None:
    graph = graph_of(lambda b, x, w: b.MatMul(b.Exp(x), w), X, random(4, 5))
    assert grouped(graph) == [["Exp"], ["MatMul"]]


def test_row_groups_never_wait_for_each_other() -> None:
    """The max of x + f(max) must not join the group of the first max: f lies between and is no member."""

    def build(b: Any, x: Any, w: Any) -> Any:
        first = b.Sub(x, b.ReduceMax(x, [1]))
        return b.Sub(first, b.ReduceMax(b.Add(first, b.MatMul(first, w)), [1]))

    graph = graph_of(build, X, random(4, 4))
    assert grouped(graph) == [["Sub"], ["Add"], ["Sub"]]


def test_reshape_of_stored_value_is_a_view() -> None:
    def build(b: Any, x: Any, w: Any) -> Any:
        return b.Exp(b.Transpose(b.Reshape(b.MatMul(x, w), [3, 2, 3]), [1, 0, 2]))

    graph = graph_of(build, X, random(4, 6))
    found = group.run(graph)
    assert [v.producer.op.name for v in found.views if v.producer] == ["Reshape"]
    assert [g.results[0].producer.op.name for g in found.groups if g.results[0].producer] == ["MatMul", "Exp"]


# --------------------------------------------------------------------------- indexing
def test_split_index_comes_together() -> None:
    from irc.expr import Var, flatten_index, unflatten_index

    S, i, s, d = Dim.symbol("S"), Var("i"), Var("s"), Var("d")
    ranges = Ranges()
    for var, size in ((i, S * 768), (s, S), (d, Dim.of(64))):
        ranges.declare(var, size)
    shape = (S, Dim.of(12), Dim.of(64))
    assert ranges.flat(unflatten_index(i, shape), shape) == ranges.dim(i)
    matrix = [S, Dim.of(64)]
    again = unflatten_index(flatten_index([s, d], matrix), matrix)
    assert [str(ranges.dim(e)) for e in again] == ["%s", "%d"]


def test_comparisons_that_are_certain() -> None:
    from irc.expr import Const, Size, Var
    from irc.ir.types import i64

    S, i = Dim.symbol("S"), Var("i")
    ranges = Ranges()
    ranges.declare(i, S)
    assert ranges.compare("lt", i, Size(S)) is True and ranges.compare("le", Const(0, i64), i) is True
    assert ranges.compare("eq", i, Size(S)) is False and ranges.compare("lt", i, Size(S - 1)) is None


# ------------------------------------------------------------------------------- text
GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.txt"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_golden(path: Path) -> None:
    """A file: the pass's name, the graph before, the graph after, separated by lines of dashes."""
    name, before, after = path.read_text().split("-----\n")
    passes: dict[str, Callable[[Graph], Any]] = {
        "simplify": simplify.run,
        "materialize": materialize.run,
        "fold": fold.run,
        "cse": cse.run,
        "weights": weights.run,
        "decompose": lambda g: decompose.run(g, Sink()),
    }
    graph = parse_graph(before)
    infer.run(graph, Sink())
    passes[name.strip()](graph)
    assert print_graph(graph) == after


def test_text_round_trip_of_odd_things() -> None:
    graph = Graph('a "graph"')
    x = graph.add_input("x y:0", TensorType.of(f32, (Dim.symbol("a b", 1, 9), 4)))
    from irc.opdef.builder import Builder

    b = Builder(graph)
    y = b.Concat(b.Clip(b.Mul(x, float("inf")), None, 6.0), b.Reshape(b.const(random(8), f32), [-1, 4]), axis=0)
    graph.outputs = [y]
    graph.nodes[0].name = "layer # 1"
    text = print_graph(graph)
    again = parse_graph(text)
    assert print_graph(again) == text and again.inputs[0].shape[0].bounds() == (1, 9)


def test_text_errors_name_the_line() -> None:
    with pytest.raises(ValueError, match="line 2"):
        parse_graph('graph "g" {\n  %y: f32[2] = Exp %x\n}')


def test_reshape_that_makes_sizes_is_not_merged() -> None:
    """What knows that there is a size of that name would be gone."""
    graph = Graph()
    b = Builder(graph)
    x, sizes = graph.add_input("x", TensorType.of(f32, [6])), graph.add_input("sizes", TensorType.of(i64, [2]))
    graph.outputs = [b.Exp(b.Unsqueeze(b.Reshape(x, sizes), [2]))]
    data = np.arange(6, dtype=np.float32)
    for backend in ("c", "numpy"):
        (y,) = irc.compile(Model(graph, "onnx", 10, {"": 22}), backend=backend)([data, np.array([3, 2])])
        np.testing.assert_allclose(y, np.exp(data).reshape(3, 2, 1), rtol=1e-6)
