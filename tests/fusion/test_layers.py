"""Every layer can be found: in the comments of the C, in profiles, and from there back to the model."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import irc
from irc import driver
from irc.ir.graph import Graph, Model
from irc.loops.ir import Function, Program
from irc.loops.lower import NEW_LAYOUT
from irc.opdef.text import parse_graph, print_graph
from irc.passes import layers as layers_pass, simplify
from irc.passes.layers import layer_name
from tests.fusion.test_golden import SAME, SCALE, SHIFT, attention, dense_gelu
from tests.support.functions import c_text, compiled, functions_in, how, kernels, layers, named_graph
from tests.support.instruction_sets import TARGETS
from tests.support.lowering import random

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def mobilenet(b: Any, x: Any) -> Any:
    """A convolution, two inverted residual blocks, a pool and a classifier."""

    def conv(x: Any, outputs: int, group: int = 1, size: int = 1, stride: int = 1) -> Any:
        w = random(outputs, int(x.shape[1]) // group, size, size)
        around = SAME if size == 3 else {}
        y = b.Conv(x, w, None, group=group, strides=(stride, stride), **around)
        n = outputs
        return b.BatchNormalization(y, random(n), random(n, seed=1), random(n, seed=2), abs(random(n, seed=3)) + 1)

    def relu6(y: Any) -> Any:
        return b.Clip(y, b.like(0.0, y), b.like(6.0, y))

    y = relu6(conv(x, 16, size=3, stride=2))
    for _ in range(2):
        wide = relu6(conv(relu6(conv(y, 64)), 64, group=64, size=3))
        y = b.Add(conv(wide, 16), y)
    return b.MatMul(b.Flatten(b.ReduceMean(relu6(conv(y, 64)), [2, 3], keepdims=True)), random(64, 10))


def transformer(b: Any, x: Any) -> Any:
    """A block with 6 heads: attention and a perceptron, each behind a norm and with a residual sum."""

    def heads(x: Any, seed: int) -> Any:
        y = b.Add(b.MatMul(x, random(96, 96, seed=seed)), random(96, seed=seed))
        return b.Transpose(b.Reshape(y, [2, 20, 6, 16]), [0, 2, 1, 3])

    normal = b.LayerNormalization(x, SCALE, SHIFT)
    mixed = b.Transpose(attention(b, *(heads(normal, seed) for seed in (1, 2, 3))), [0, 2, 1, 3])
    y = b.Add(b.Add(b.MatMul(b.Reshape(mixed, [2, 20, 96]), random(96, 96, seed=4)), SHIFT), x)
    wide = dense_gelu(b, b.LayerNormalization(y, SCALE, SHIFT))
    return b.Add(b.Add(b.MatMul(wide, random(384, 96)), SHIFT), y)


def digits() -> Graph:
    return irc.load(SAMPLES / "digits" / "digits.onnx").graph


GRAPHS = {
    "digits": digits,
    "mobilenet": lambda: named_graph(mobilenet, random(1, 3, 32, 32)),
    "transformer": lambda: named_graph(transformer, random(2, 20, 96)),
}
ISAS = ("avx2", "avx512")


def computing(program: Program) -> list[Function]:
    """The functions that compute layers: not those that only change a layout between them."""
    return [f for f in program.functions if f.comment != NEW_LAYOUT]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", GRAPHS)
def test_each_layer_is_named_by_the_function_that_computes_it(name: str, isa: str) -> None:
    graph = GRAPHS[name]()
    program = compiled(graph, isa)
    assert Counter(n for f in computing(program) for n in f.origin) == Counter(layers(graph)), "each once"
    for f in program.functions:
        if f in computing(program):
            assert_connected(graph, f)
        else:
            assert kernels(f) in ([], ["transpose"]), "only moves elements"
            assert f.origin and set(f.origin) <= set(layers(graph))


def assert_connected(graph: Graph, function: Function) -> None:
    """Each layer of a function feeds another of it, or is what the function writes: nothing else is named."""
    users = {layer_name(n): {layer_name(u) for v in n.outputs for u in v.uses} for n in graph.nodes}
    (end,) = (n for n in function.origin if not users[n] & set(function.origin))
    (written,) = {b.root for b in function.writes}
    assert end in written.origin and function.origin[-1] == end, "in the model's order"


@pytest.mark.parametrize("name", GRAPHS)
def test_comments_and_profiles_name_the_layers_of_each_function(name: str) -> None:
    graph = GRAPHS[name]()
    functions = compiled(graph).functions
    named = [", ".join(f.origin) for f in functions]
    told = [words for comment, _ in functions_in(c_text(graph)) for words in layers_told(comment, named)]
    assert Counter(told) == Counter(named)
    rows = profile_of(graph, "c")
    assert [r["layers"] for r in rows] == [list(f.origin) for f in functions]
    rows = profile_of(graph, "numpy")
    assert {n for r in rows for n in r["layers"]} == set(layers(graph))
    assert max(Counter(n for r in rows for n in r["layers"]).values()) == 1


def layers_told(comment: str, known: list[str]) -> list[str]:
    """The groups of layers, `known` as they are, that a function's comment begins with."""
    text = " ".join(re.sub(r"\n \*|/\*", "", comment).split())
    several = re.match(r"(\d+) groups of layers: ", text)
    text = text[several.end() if several else 0 :]
    found: list[str] = []
    for _ in range(int(several[1]) if several else 1):
        found.append(max((x for x in known if text.startswith(x + " ")), key=len, default=""))
        text = text[len(found[-1]) + 1 :]
    return found


def profile_of(graph: Graph, backend: str) -> list[dict[str, Any]]:
    options = driver.CompileOptions(backend, profile=True, cache=False, target=TARGETS["avx2"])
    make = driver.sources if backend == "c" else driver.generate_numpy
    rows: list[dict[str, Any]] = make(Model(graph), options).manifest["profile"]
    return rows


def test_graphs_as_text_keep_the_names() -> None:
    """What `irc compile --dump-after` prints, here after a pass that makes one node of two."""
    graph = named_graph(FUNCTIONS["two rearrangements"][0], random(2, 3, 4))
    layers_pass.run(graph)
    simplify.run(graph)
    text = print_graph(graph)
    assert text.count('# "Transpose_1" of "Transpose", "Transpose_1"') == 1 and text.count(" of ") == 1
    again = parse_graph(text)
    assert print_graph(again) == text and again.nodes[0].layers == ("Transpose", "Transpose_1")


# ------------------------------------------------------------------------------- passes
def conv(b: Any, x: Any, outputs: int, size: int = 3) -> Any:
    return b.Conv(x, random(outputs, int(x.shape[1]), size, size), random(outputs), **(SAME if size == 3 else {}))


def upsampled(b: Any, x: Any) -> Any:
    """A transposed convolution with its activation, which a kernel takes."""
    return b.Relu(b.ConvTranspose(x, random(16, 8, 2, 2), random(8), strides=(2, 2)))


def few_outputs(b: Any, x: Any) -> Any:
    """Taps as channels: a convolution and sums of slices."""
    return b.Tanh(conv(b, b.Relu(conv(b, x, 32)), 3))


def concatenated(b: Any, x: Any) -> Any:
    """A concatenation in another: each part knows of both where it belongs to both."""
    y, z = b.Relu(conv(b, x, 16, size=1)), conv(b, x, 16)
    both = b.Concat(y, z, axis=1)
    return conv(b, b.Concat(both, b.Relu(conv(b, both, 16)), axis=1), 8, size=1)


def shared_transpose(b: Any, x: Any) -> Any:
    """Two products read through one Transpose."""
    y = b.Transpose(x, [0, 2, 1])
    return b.MatMul(y, random(20, 32)), b.MatMul(y, random(20, 48))


def reshaped_output(b: Any, x: Any) -> Any:
    return b.Reshape(x, [40, 96])


FUNCTIONS: dict[str, tuple[Any, Any, list[str]]] = {
    "equal nodes": (
        lambda b, x: b.Add(b.Exp(x), b.Softmax(b.Exp(x))),
        random(2, 5),
        ["Exp, Exp_1, Softmax, Add: loops"],
    ),
    "two rearrangements": (
        lambda b, x: b.Exp(b.Transpose(b.Transpose(x, [1, 2, 0]), [1, 0, 2])),
        random(2, 3, 4),
        ["Transpose, Transpose_1, Exp: loops"],
    ),
    "an activation in parts": (
        lambda b, x: b.MatMul(b.Mul(x, b.Sigmoid(x)), random(96, 32)),
        random(2, 20, 96),
        ["Sigmoid, Mul: loops", "MatMul: gemm_rows"],
    ),
    "removed": (lambda b, x: b.Exp(b.Mul(b.Reshape(x, [2, 5]), 1.0)), random(2, 5), ["Exp: loops"]),
    "a view of an input": (reshaped_output, random(2, 20, 96), ["Reshape: loops"]),
    "read by several": (
        shared_transpose,
        random(2, 20, 96),
        ["Transpose, MatMul: gemm_rows", "Transpose, MatMul_1: gemm_rows"],
    ),
    "a transposed convolution": (
        upsampled,
        random(1, 16, 20, 20),
        ["ConvTranspose, Relu: pointwise", "ConvTranspose: loops"],
    ),
    "taps as channels": (
        few_outputs,
        random(1, 3, 32, 32),
        ["Conv, Relu: loops for the layout", "Conv, Relu: direct_conv", "Conv_1: winograd_conv", "Conv_1, Tanh: loops"],
    ),
    "concatenations": (
        concatenated,
        random(1, 32, 28, 28),
        [
            "Conv, Relu, Concat, Concat_1: gemm_rows",
            "Conv_1, Concat, Concat_1: transpose for the layout",
            "Conv_1, Concat, Concat_1: winograd_conv",
            "Conv_2, Relu_1, Concat_1: winograd_conv",
            "Conv_3: gemm_rows",
            "Conv_3: transpose for the layout",
        ],
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_passes_hand_the_names_on(name: str) -> None:
    build, x, expected = FUNCTIONS[name]
    program = compiled(named_graph(build, x))
    assert [f"{', '.join(f.origin)}: {how(f)}" for f in program.functions] == expected
