"""Convolutional regions channels last: the same results, and no rearrangement inside a region."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.diagnostics import Sink
from irc.fusion import group
from irc.ir.graph import Graph, Node
from irc.ir.types import TensorType, f32
from irc.ir.verify import problems
from irc.kernels import ISAS
from irc.layout import channels_last, fold_taps, transposed_conv
from irc.layout.channels_last_op import ChannelsLast
from irc.loops import interp
from irc.loops.ir import Store, walk
from irc.loops.lower import lower
from irc.opdef.builder import evaluate
from irc.ops.concat import Split
from irc.ops.conv import Conv
from irc.ops.pool import MaxPool
from irc.pipelines import COMPILE_C, compile_c
from tests.support.c_program import Library
from tests.support.instruction_sets import isa_under_test
from tests.support.lowering import Array, graph_of, random

SAME = {"pads_begin": (1, 1), "pads_end": (1, 1)}
X = random(2, 8, 6, 5)


def conv(b: Any, x: Any, outputs: int, size: int = 3, group: int = 1, bias: bool = True, **fields: Any) -> Any:
    w = random(outputs, int(x.shape[1]) // group, *[size] * (len(x.shape) - 2))
    return b.Conv(x, w, random(outputs) if bias else None, group=group, **fields)


def residual(b: Any, x: Any) -> Any:
    y = b.Relu(conv(b, x, 8, **SAME))
    return b.Relu(b.Add(conv(b, y, 8, **SAME), y))


def excited(b: Any, x: Any) -> Any:
    y = b.Relu(conv(b, x, 16, **SAME))
    scale = b.Sigmoid(conv(b, b.ReduceMean(y, [2, 3], keepdims=True), 16, size=1))
    return conv(b, b.Mul(y, scale), 8, size=1)


def fire(b: Any, x: Any) -> Any:
    squeezed = b.Relu(conv(b, x, 8, size=1))
    wide = b.Concat(b.Relu(conv(b, squeezed, 8, size=1)), b.Relu(conv(b, squeezed, 12, **SAME)), axis=1)
    left, right = b.add_all(Split(num=None), wide, 1, [8, 12])
    return conv(b, b.add_all(MaxPool(kernel=(3, 3), strides=(2, 2)), left)[0], 8, size=1), b.Sigmoid(right)


def up(b: Any, x: Any) -> Any:
    y = b.Gather(conv(b, x, 8, **SAME), b.const(np.repeat(np.arange(6), 2)), b.const(2))
    return conv(b, b.Concat(y, y, axis=1), 8, size=1)


def transposed(b: Any, x: Any) -> Any:
    y = b.ConvTranspose(b.Relu(conv(b, x, 8, **SAME)), random(8, 3, 4, 4), random(6), strides=(2, 2), group=2)
    return conv(b, y, 8, **SAME)


def broadcast(b: Any, x: Any) -> Any:
    y = b.Mul(b.Add(conv(b, x, 8, **SAME), random(8, 1, 1)), b.const(2.0, x.dtype))
    return conv(b, b.Add(y, random(5)), 8, size=1)


def ended(b: Any, x: Any) -> Any:
    y = conv(b, x, 8, **SAME)
    return conv(b, y, 8, size=1), b.Reshape(y, [2, -1])


def signal(b: Any, x: Any) -> Any:
    y = b.Relu(conv(b, x, 16, pads_begin=(1,), pads_end=(1,)))
    return conv(b, y, 8, strides=(2,))


def volumes(b: Any, x: Any) -> Any:
    """Taps along the depth, with dilation, strides and unequal padding; one tap; a residual; groups of one tap."""
    y = b.Relu(conv(b, x, 16, strides=(2, 1, 2), dilations=(2, 1, 1), pads_begin=(2, 1, 0), pads_end=(1, 0, 1)))
    z = b.Add(b.Conv(y, random(16, 16, 1, 1, 1)), y)
    z = b.add_all(MaxPool(kernel=(1, 2, 2), strides=(1, 2, 2)), z)[0]
    return b.Conv(z, random(16, 4, 1, 3, 3), group=4, strides=(2, 1, 1), pads_begin=(0, 1, 1), pads_end=(0, 1, 1))


def tokens(b: Any, x: Any) -> Any:
    """What linear layers give is channels last already, as planes or as tokens that become planes."""
    y = b.Reshape(b.Transpose(x, [0, 2, 3, 1]), [2, -1, 8])
    planes = b.Reshape(b.Transpose(b.MatMul(y, random(8, 8)), [0, 2, 1]), [2, 8, 6, 5])
    wide = b.Gather(planes, b.const(np.repeat(np.arange(6), 2)), b.const(2))
    other = b.Transpose(b.MatMul(b.Transpose(wide, [0, 2, 3, 1]), random(8, 8)), [0, 3, 1, 2])
    return conv(b, b.Relu(conv(b, b.Concat(wide, b.Sigmoid(other), axis=1), 16, size=1)), 8, size=1)


def shuffled(b: Any, x: Any) -> Any:
    """A shuffle of groups, which only rearranges the channels of each pixel."""
    y = b.Relu(conv(b, x, 12, **SAME))
    y = b.Reshape(b.Transpose(b.Reshape(y, [2, 3, 4, 6, 5]), [0, 2, 1, 3, 4]), [2, 12, 6, 5])
    return conv(b, y, 12, group=12, **SAME)


def attended(b: Any, x: Any) -> Any:
    """Branches side by side, of which a sum by weights is left; weights of each channel come from the means."""
    left, right = (b.Unsqueeze(b.Relu(conv(b, x, 8, size, **fields)), [1]) for size, fields in ((3, SAME), (1, {})))
    both = b.Concat(left, right, axis=1)
    means = b.ReduceMean(b.ReduceSum(both, [1], keepdims=False), [2, 3], keepdims=True)
    weights = b.Reshape(conv(b, means, 16, size=1), [2, 2, 8, 1, 1])
    scaled = b.Mul(both, b.Div(b.Exp(weights), b.ReduceSum(b.Exp(weights), [1], keepdims=True)))
    return conv(b, b.ReduceSum(scaled, [1], keepdims=False), 8, **SAME)


def of_groups(b: Any, x: Any) -> Any:
    """Groups of channels that are scaled, cut and joined again; also along the second axis of the channels."""
    y = b.Mul(b.Reshape(conv(b, x, 24, **SAME), [2, 4, 6, 6, 5]), random(4, 1, 1, 1))
    y = b.Concat(b.Slice(y, [1], [3], [1]), b.Slice(y, [0], [2], [1]), axis=1)
    y = b.Concat(y, b.Neg(b.Slice(y, [0], [2], [2])), axis=2)
    return conv(b, b.Reshape(y, [2, 32, 6, 5]), 8, **SAME), b.ReduceSum(y, [1, 2], keepdims=False)


# name: (build, input, Transposes left)
MODELS: dict[str, tuple[Callable[..., Any], Array, int]] = {
    "residual": (residual, X, 2),
    "depthwise": (lambda b, x: conv(b, conv(b, conv(b, x, 16, size=1), 16, group=16, **SAME), 8, size=1), X, 2),
    "squeeze and excite": (excited, X, 3),  # the mean reads through one
    "concatenation, split and pool": (fire, X, 3),
    "nearest neighbours": (up, X, 2),
    "transposed convolution": (transposed, X, 2),
    "broadcast operands": (broadcast, X, 2),
    "left in the middle": (ended, X, 3),
    "one spatial axis": (signal, random(2, 6, 40), 2),
    "tokens and planes of linear layers": (tokens, X, 2),
    "volumes": (volumes, random(2, 4, 9, 9, 8), 0),
    "padding": (lambda b, x: conv(b, b.Pad(conv(b, x, 8, size=1), [0, 0, 1, 2, 0, 0, 1, 2]), 8), X, 2),
    "shuffled channels": (shuffled, X, 3),
    "attention to branches": (attended, X, 3),
    "channels in groups": (of_groups, X, 3),
    "strides of single pixels": (lambda b, x: conv(b, conv(b, x, 64, **SAME), 96, size=1, strides=(2, 1)), X, 2),
    "average": (lambda b, x: conv(b, b.AveragePool(conv(b, x, 8, **SAME), kernel=(2, 2)), 8, size=1), X, 2),
    "one channel in": (lambda b, x: conv(b, conv(b, x, 64, size=3, strides=(2, 2)), 8), random(2, 1, 12, 9), 1),
    "a plane of one pixel": (lambda b, x: b.Relu(conv(b, conv(b, x, 64, size=5), 64, size=1)), random(2, 8, 5, 5), 1),
}


def prepared(build: Callable[..., Any], x: Array) -> Graph:
    graph, sink = graph_of(build, x), Sink()
    transposed_conv.run(graph)
    for _, run in COMPILE_C:
        run(graph, sink)
    assert not sink.errors
    return graph


@pytest.mark.parametrize("name", MODELS)
def test_the_same_results(name: str) -> None:
    build, x, transposes = MODELS[name]
    graph = prepared(build, x)
    wanted = evaluate(graph, {graph.inputs[0]: x})
    assert (channels_last.run(graph, ISAS["avx512"]) > 0) == (
        transposes > 0
    )  # kernels for volumes have the channels first
    assert not problems(graph)
    assert sum(n.op.name == "Transpose" for n in graph.nodes) == transposes
    for got, want in zip(evaluate(graph, {graph.inputs[0]: x}), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6 * np.abs(want).max())  # sums in another order


@pytest.mark.compiler
def test_compiled(tmp_path: Path) -> None:
    """All of them as code and by what its statements mean, convolutions by kernels."""
    for name, (build, x, _) in MODELS.items():
        graph, sink = graph_of(build, x), Sink()
        wanted = evaluate(graph, {graph.inputs[0]: x})
        for _, run in compile_c(isa_under_test()):
            run(graph, sink)
        assert not any(isinstance(n.op, ChannelsLast) and n.op.op.name == "Conv" for n in graph.nodes), name
        program = lower(graph, group.run(graph), "test")
        library = Library(program, tmp_path)
        compiled = library.run(library.context(), [x], [w.shape for w in wanted])
        for got, want in zip([*compiled, *interp.run(program, [x])], [*wanted, *wanted], strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6 * np.abs(want).max(), err_msg=name)


def test_elementwise_after_a_transposed_convolution_goes_before_the_rearrangement() -> None:
    """What is the same for all elements; not what differs by channel, nor what comes after."""

    def build(b: Any, x: Any) -> Any:
        y = b.ConvTranspose(x, random(6, 5, 2, 2), None, strides=(2, 2))
        y = b.Mul(np.full((1, 1, 1), 0.5, np.float32), b.Tanh(y))
        return b.Relu(b.Add(y, random(5, 1, 1)))

    x = random(1, 6, 4, 3)
    graph = graph_of(build, x)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    assert transposed_conv.run(graph) == 1
    assert not problems(graph)
    assert [n.op.name for n in graph.nodes] == ["Conv", "Tanh", "Mul", "Interleave", "Add", "Relu"]
    np.testing.assert_allclose(evaluate(graph, {graph.inputs[0]: x})[0], wanted, rtol=1e-5, atol=1e-6)


# name: (shape of x, window, fields, operations)
SMALL_PLANES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], set[str]]] = {
    "remainders": ((2, 6, 4, 5), (4, 4), {"strides": (2, 2), "pads_begin": (1, 1), "pads_end": (1, 1)}, {"Concat"}),
    "a tap more or less": (
        (1, 6, 3, 4),
        (3, 5),
        {"strides": (2, 3), "pads_begin": (1, 2), "pads_end": (1, 0), "output_padding": (1, 0)},
        {"Concat"},
    ),
    "one axis": ((2, 6, 3), (6,), {"strides": (2,), "pads_begin": (2,), "pads_end": (2,)}, {"Concat"}),
    "nothing is wasted": ((1, 6, 4, 5), (2, 2), {"strides": (2, 2)}, {"Interleave"}),
    "little is wasted": (
        (1, 6, 40, 40),
        (4, 4),
        {"strides": (2, 2), "pads_begin": (1, 1), "pads_end": (1, 1)},
        {"Interleave", "Slice"},
    ),
    "a window smaller than the stride": ((1, 6, 2, 2), (1, 2), {"strides": (2, 2)}, {"Interleave", "Slice"}),
    "in groups": (
        (1, 6, 2, 2),
        (4, 4),
        {"strides": (2, 2), "pads_begin": (1, 1), "pads_end": (1, 1), "group": 2},
        {"Interleave", "Slice"},
    ),
    "one pixel": ((2, 6, 1, 1), (4, 3), {}, {"MatMul"}),
    "one pixel, cropped": (
        (2, 6, 1, 1),
        (4, 4),
        {"strides": (2, 2), "pads_begin": (1, 0), "pads_end": (1, 2)},
        {"MatMul"},
    ),
}


@pytest.mark.parametrize("name", SMALL_PLANES)
@pytest.mark.parametrize("bias", [False, True])
def test_transposed_convolutions_of_small_planes(name: str, bias: bool) -> None:
    shape, window, fields, expected = SMALL_PLANES[name]

    def build(b: Any, x: Any) -> Any:
        w = random(6, 5 if "group" not in fields else 2, *window)
        y = b.ConvTranspose(x, w, random(int(w.shape[1]) * fields.get("group", 1)) if bias else None, **fields)
        return b.Relu(y)

    x = random(*shape)
    graph = graph_of(build, x)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    assert transposed_conv.run(graph) == 1 and not problems(graph)
    assert expected <= {n.op.name for n in graph.nodes}
    assert ("Concat" in expected) == any(n.op.name == "Concat" for n in graph.nodes)
    np.testing.assert_allclose(evaluate(graph, {graph.inputs[0]: x})[0], wanted, rtol=1e-5, atol=1e-5)


def test_what_stays() -> None:
    """Convolutions without constant weights, with few products, over volumes, or alone; a graph without."""
    w = random(8, 8, 3, 3)
    for build, feeds in (
        (lambda b, x, w: b.Conv(x, w), (X, w)),
        (lambda b, x: conv(b, conv(b, x, 2, size=1), 2, size=1), (X[:, :, :2, :2],)),
        (lambda b, x: conv(b, x, 16), (random(1, 2, 20, 64),)),
        (lambda b, x: conv(b, x, 8, size=1), (random(1, 64, 20, 20),)),
        (lambda b, x: conv(b, conv(b, x, 8, group=2), 8), (random(1, 8, 9, 9, 9),)),
        (lambda b, x: b.Relu(b.add_all(MaxPool(kernel=(2, 2)), x)[0]), (X,)),
    ):
        graph = graph_of(build, *feeds)
        before = [str(n.op) for n in graph.nodes]
        assert channels_last.run(graph, ISAS["avx512"]) == 0
        assert [str(n.op) for n in graph.nodes] == before


@pytest.mark.parametrize("size", [(28, 28), (15, 10)])
def test_single_pixels_with_strides_are_products(size: tuple[int, int]) -> None:
    """The pixels that the strides leave are gathered."""

    def reduced(b: Any, x: Any) -> Any:
        return conv(b, b.Relu(conv(b, x, 256, size=1)), 512, size=1, strides=(2, 2))

    x = random(1, 128, *size)
    graph = graph_of(reduced, x)
    wanted = evaluate(graph, {graph.inputs[0]: x})[0]
    channels_last.run(graph, ISAS["avx2"])
    assert not problems(graph)
    assert [n.op.name for n in graph.nodes].count("MatMul") == 2
    assert not any(isinstance(n.op, ChannelsLast) and n.op.op.name == "Conv" for n in graph.nodes)
    (got,) = evaluate(graph, {graph.inputs[0]: x})
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_alone_where_it_pays(isa: str) -> None:
    """Windows of 3 × 3 in many channels, for which Winograd's algorithm is there with the channels last only."""
    graph = graph_of(lambda b, x: conv(b, x, 96), random(1, 96, 42, 42))
    assert channels_last.run(graph, ISAS[isa]) == 1 and not problems(graph)
    assert [n.op.name for n in graph.nodes] == ["Transpose", "ChannelsLast", "Transpose"]


@pytest.mark.parametrize(("batch", "side", "products"), [(1, 7, 1), (4, 5, 1), (1, 28, 0)])
def test_single_pixels_of_a_small_plane_are_a_product(batch: int, side: int, products: int) -> None:
    """Of one alone, 49 pixels fill four vectors badly, which 512 channels fill well; 784 pixels need not be moved."""
    x = random(batch, 512, side, side)
    graph = graph_of(lambda b, x: conv(b, x, 512, size=1), x)
    wanted = evaluate(graph, {graph.inputs[0]: x})[0]
    assert bool(channels_last.run(graph, ISAS["avx512"])) == bool(products) and not problems(graph)
    assert [n.op.name for n in graph.nodes].count("MatMul") == products
    (got,) = evaluate(graph, {graph.inputs[0]: x})
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


def test_each_alone() -> None:
    """Windows along a sequence, one of each head, between products that do not follow them into a layout."""

    def attend(b: Any, x: Any) -> Any:
        heads = b.Transpose(b.Reshape(x, [1, 64, 4, 32]), [0, 2, 1, 3])
        added = b.Add(b.Conv(heads, random(4, 1, 9, 1), group=4, pads_begin=(4, 0), pads_end=(4, 0)), heads)
        return b.MatMul(b.Reshape(b.Transpose(added, [0, 2, 1, 3]), [1, 64, 128]), random(128, 128))

    graph = graph_of(lambda b, x: attend(b, attend(b, x)), random(1, 64, 128))
    before = [str(n.op) for n in graph.nodes]
    assert channels_last.run(graph, ISAS["avx512"]) == 0
    assert [str(n.op) for n in graph.nodes] == before


@pytest.mark.parametrize(("isa", "groups", "rearranged"), [("avx512", 16, 1), ("avx2", 16, 1), ("avx2", 8, 0)])
def test_groups_of_few_channels_stay_first(isa: str, groups: int, rearranged: int) -> None:
    """A group of four channels fills no vector, which 28 pixels of a row do; one of eight fills a vector of AVX2."""

    def block(b: Any, x: Any) -> Any:
        return conv(b, conv(b, conv(b, x, 64, size=1), 64, group=groups, **SAME), 64, size=1)

    graph = graph_of(block, random(1, 64, 28, 28))
    channels_last.run(graph, ISAS[isa])
    assert sum(type(n.op) is Conv for n in graph.nodes) == rearranged


SMALL = random(1, 3, 4, 3)
WRAPPED: dict[str, Callable[..., Any]] = {
    "Conv": lambda b, x: conv(b, x, 2, **SAME),
    "MaxPool": lambda b, x: b.add_all(MaxPool(kernel=(2, 2)), x)[0],
    "Concat": lambda b, x: b.Concat(x, b.Neg(x), axis=1),
    "Slice": lambda b, x: b.Slice(x, [1], [3], [1]),
    "Gather": lambda b, x: b.Gather(x, b.const([2, 0, 1, 1]), b.const(3)),
    "ReduceMax": lambda b, x: b.ReduceMax(x, [2], keepdims=True),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped(name: str) -> None:
    """Types, reference and code of an operation whose operand and results stand channels last."""
    graph = graph_of(WRAPPED[name], SMALL)
    wanted = evaluate(graph, {graph.inputs[0]: SMALL})
    (node,) = [n for n in graph.nodes if n.op.name == name]
    last = Graph("last")
    data = tuple(k for k, v in enumerate(node.inputs) if v is not None and v.const is None)
    before = operands_of(graph, node)
    feeds = [np.ascontiguousarray(a.transpose(0, 2, 3, 1)) for a in evaluate(before, {before.inputs[0]: SMALL})]
    operands = [
        last.add_input(f"x{k}", TensorType.of(f32, feeds[data.index(k)].shape))
        if k in data
        else v
        if v is None
        else last.add_constant(v.const)
        for k, v in enumerate(node.inputs)
    ]
    op = ChannelsLast(node.op, 4, data)
    results = [last.new_value("y", t) for t in op.result_types(operands)]
    last.add_node(op, operands, results)
    last.outputs = results[: len(wanted)]
    for run in (lambda: evaluate(last, dict(zip(last.inputs, feeds, strict=True))), lambda: interpreted(last, feeds)):
        for got, want in zip(run(), wanted, strict=True):
            np.testing.assert_allclose(got.transpose(0, 3, 1, 2), want, rtol=1e-5, atol=1e-6)


def operands_of(graph: Graph, node: Node) -> Graph:
    """The graph that gives a node's operands."""
    other = graph.copy()
    (twin,) = [n for n in other.nodes if n.name == node.name]
    other.outputs = [v for v in twin.inputs if v is not None and v.const is None]
    return other


def interpreted(graph: Graph, feeds: list[Array]) -> list[Array]:
    return interp.run(lower(graph, group.run(graph), "test"), feeds)


# ---------------------------------------------------------------- loops without choices
def concatenated(b: Any, x: Any) -> Any:
    return b.Exp(b.Concat(x, b.Neg(x), b.Sin(x), axis=1))


def padded(b: Any, x: Any) -> Any:
    return b.Exp(b.Pad(x, [0, 1, 0, 2, 0, 0, 2, 0]))


@pytest.mark.parametrize(("build", "pieces"), [(concatenated, 3), (padded, 4)])
def test_pieces(build: Callable[..., Any], pieces: int) -> None:
    """One innermost loop for each range in which an element comes from the same place."""
    graph = prepared(build, SMALL)
    program = lower(graph, group.run(graph), "test")
    stores = [s for f in program.functions for s in walk(f.body) if isinstance(s, Store)]
    assert len(stores) == pieces
    assert not any("Select" in repr(s) for f in program.functions for s in walk(f.body))
    (want,) = evaluate(graph, {graph.inputs[0]: SMALL})
    np.testing.assert_allclose(interp.run(program, [SMALL])[0], want, rtol=1e-6)


FEW: dict[str, tuple[Callable[..., Any], Array]] = {
    "planes": (lambda b, x: conv(b, x, 3, 5, pads_begin=(2, 1), pads_end=(2, 3), strides=(2, 1)), random(2, 32, 9, 7)),
    "dilation": (lambda b, x: conv(b, x, 2, size=3, bias=False, dilations=(2, 3)), random(1, 64, 9, 11)),
    "one axis": (lambda b, x: conv(b, x, 1, size=7, auto_pad="same_upper"), random(2, 96, 20)),
}


@pytest.mark.parametrize("name", FEW)
def test_taps_of_a_row_as_channels(name: str) -> None:
    build, x = FEW[name]
    graph = graph_of(build, x)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    window = next(n for n in graph.nodes if n.op.name == "Conv").inputs[1]
    assert fold_taps.run(graph, ISAS["avx512"]) == 1
    assert not problems(graph)
    weights = next(n for n in graph.nodes if n.op.name == "Conv").inputs[1]
    assert window is not None and weights is not None
    assert weights.shape == (window.shape[0] * window.shape[-1], *window.shape[1:-1], 1)
    (got,) = evaluate(graph, {graph.inputs[0]: x})
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


def test_taps_that_stay() -> None:
    """Channels that fill vectors, a stride along the rows, groups, one tap, too few products to save any."""
    for outputs, inputs, fields in (
        (16, 64, {}),
        (3, 64, {"strides": (1, 2)}),
        (4, 64, {"group": 2}),
        (3, 64, {"size": 1}),
        (3, 4, {}),
    ):
        graph = graph_of(lambda b, x, o=outputs, f=fields: conv(b, x, o, **f), random(1, inputs, 9, 9))
        assert fold_taps.run(graph, ISAS["avx512"]) == 0


@pytest.mark.parametrize(
    ("outputs", "fields", "whole", "halves"),
    [
        (24, {"size": 5, "pads_begin": (2, 2), "pads_end": (2, 2)}, 1, 0),
        (8, {"size": 3}, 1, 0),
        (3, {"size": 3}, 1, 1),
        (12, {"size": 7, "dilations": (1, 3), "pads_begin": (3, 9), "pads_end": (3, 9)}, 0, 0),
    ],
    ids=("half vectors", "Winograd", "few channels", "padding"),
)
def test_taps_are_counted_in_half_vectors(outputs: int, fields: dict[str, Any], whole: int, halves: int) -> None:
    """Where a core does vectors in halves, half of one may stay empty; products with padding are not made."""
    for fma, folded in ((2, whole), (1, halves)):
        graph = graph_of(lambda b, x: conv(b, x, outputs, **fields), random(1, 256, 14, 14))
        assert fold_taps.run(graph, dataclasses.replace(ISAS["avx512"], fma=fma)) == folded
