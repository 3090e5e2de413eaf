"""What is computed together: the functions that the shapes of layers people have are compiled to.

Run with IRC_UPDATE=1 to write golden/*.txt anew, and read the change: a layer norm that becomes two functions, or a
residual sum that is no epilogue any more, is a cliff.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.ir.graph import Graph
from irc.ops.recurrent import LSTM
from tests.support.functions import c_text, compiled, functions_in, layers, listing, named_graph
from tests.support.lowering import Array, random

FOLDER = Path(__file__).parent / "golden"
ROWS = random(2, 20, 96)
SCALE, SHIFT = random(96), random(96, seed=1)
PLANES = random(1, 32, 28, 28)
SAME = {"pads_begin": (1, 1), "pads_end": (1, 1)}


# -------------------------------------------------------------------------------- rows
def layer_norm(b: Any, x: Any) -> Any:
    return b.LayerNormalization(x, SCALE, SHIFT)


def layer_norm_written_out(b: Any, x: Any) -> Any:
    """As PyTorch's exporter writes it below opset 17."""
    d = b.Sub(x, b.ReduceMean(x, [-1], keepdims=True))
    variance = b.ReduceMean(b.Pow(d, b.like(2.0, x)), [-1], keepdims=True)
    return b.Add(b.Mul(b.Div(d, b.Sqrt(b.Add(variance, 1e-5))), SCALE), SHIFT)


def layer_norm_of_openvino(b: Any, x: Any) -> Any:
    return b.Add(b.Mul(b.MeanVarianceNormalization(x, [2], eps=1e-5, eps_mode="inside"), SCALE), SHIFT)


def layer_norm_of_a_product(b: Any, x: Any) -> Any:
    """The end of a transformer's block."""
    y = b.Add(b.Add(b.MatMul(x, random(96, 96)), SHIFT), x)
    return b.LayerNormalization(y, SCALE, SHIFT)


def rms_norm(b: Any, x: Any) -> Any:
    mean = b.ReduceMean(b.Pow(x, b.like(2.0, x)), [-1], keepdims=True)
    return b.Mul(b.Mul(x, b.Div(b.like(1.0, x), b.Sqrt(b.Add(mean, 1e-6)))), SCALE)


def softmax(b: Any, x: Any) -> Any:
    return b.Softmax(b.Mul(x, 0.5), axis=-1)


def softmax_written_out(b: Any, x: Any) -> Any:
    e = b.Exp(b.Sub(x, b.ReduceMax(x, [-1], keepdims=True)))
    return b.Div(e, b.ReduceSum(e, [-1], keepdims=True))


def instance_norm(b: Any, x: Any) -> Any:
    """Rows of two axes."""
    return b.InstanceNormalization(x, random(32), random(32, seed=1))


# ----------------------------------------------------------------------------- products
def dense_gelu(b: Any, x: Any) -> Any:
    """GELU as exporters write it."""
    y = b.Add(b.MatMul(x, random(96, 384)), random(384))
    return b.Mul(b.Mul(y, b.Add(b.Erf(b.Div(y, 1.4142135)), 1.0)), 0.5)


def attention(b: Any, q: Any, k: Any, v: Any, *mask: Any) -> Any:
    scores = b.Mul(b.MatMul(q, b.Transpose(k, [0, 1, 3, 2])), 0.25)
    for each in mask:
        scores = b.Add(scores, each)
    return b.MatMul(b.Softmax(scores, axis=-1), v)


def attention_of_groups(b: Any, q: Any, k: Any, v: Any) -> Any:
    """Two heads of queries for each of keys and values."""

    def repeated(x: Any) -> Any:
        return b.Reshape(b.Expand(b.Unsqueeze(x, [2]), [1, 1, 2, 1, 1]), [1, 8, 32, 16])

    return attention(b, q, repeated(k), repeated(v))


def lstm(b: Any, x: Any) -> Any:
    """One direction over 12 steps; [steps, batch, features]."""
    y, *_ = b.add_all(LSTM(hidden_size=64), x, random(1, 256, 32), random(1, 256, 64), random(1, 512))
    return b.Squeeze(y, [1])


# -------------------------------------------------------------------------- convolutions
def conv(b: Any, x: Any, outputs: int, group: int = 1, size: int = 3) -> Any:
    around = SAME if size == 3 else {}
    return b.Conv(x, random(outputs, int(x.shape[1]) // group, size, size), random(outputs), group=group, **around)


def conv_residual(b: Any, x: Any, y: Any) -> Any:
    """A single convolution stays as its operands are."""
    return b.Relu(b.Add(conv(b, x, 64), y))


def residual_block(b: Any, x: Any) -> Any:
    """Several work with the channels last."""
    y = b.Relu(conv(b, x, 32))
    return b.Relu(b.Add(conv(b, y, 32), x))


def depthwise(b: Any, x: Any) -> Any:
    """MobileNet's: with a batch norm and ReLU6, between products of pixels."""

    def normalised(y: Any) -> Any:
        n = int(y.shape[1])
        y = b.BatchNormalization(y, random(n), random(n, seed=1), random(n, seed=2), abs(random(n, seed=3)) + 1)
        return b.Clip(y, b.like(0.0, y), b.like(6.0, y))

    y = normalised(conv(b, x, 64, size=1))
    return normalised(conv(b, normalised(conv(b, y, 64, group=64)), 32, size=1))


def squeeze_excite(b: Any, x: Any) -> Any:
    y = b.Relu(conv(b, x, 32))
    gate = b.Relu(conv(b, b.ReduceMean(y, [2, 3], keepdims=True), 8, size=1))
    return conv(b, b.Mul(y, b.Sigmoid(conv(b, gate, 32, size=1))), 32)


def concat(b: Any, x: Any) -> Any:
    """SqueezeNet's: both halves are computed where they stand in the result."""
    y = b.Relu(conv(b, x, 16, size=1))
    return conv(b, b.Concat(b.Relu(conv(b, y, 32, size=1)), b.Relu(conv(b, y, 32)), axis=1), 16, size=1)


def global_pool(b: Any, x: Any) -> Any:
    """The end of a classifier: no row is used again, so that it is a kernel's."""
    return b.MatMul(b.Reshape(b.ReduceMean(x, [2, 3], keepdims=True), [1, 32]), random(32, 100))


CASES: dict[str, tuple[Callable[..., Any], tuple[Array, ...]]] = {
    "layer_norm": (layer_norm, (ROWS,)),
    "layer_norm_written_out": (layer_norm_written_out, (ROWS,)),
    "layer_norm_of_openvino": (layer_norm_of_openvino, (ROWS,)),
    "layer_norm_of_a_product": (layer_norm_of_a_product, (ROWS,)),
    "rms_norm": (rms_norm, (ROWS,)),
    "softmax": (softmax, (ROWS,)),
    "softmax_written_out": (softmax_written_out, (ROWS,)),
    "instance_norm": (instance_norm, (PLANES,)),
    "dense_gelu": (dense_gelu, (ROWS,)),
    "attention": (attention, (random(1, 8, 24, 16), random(1, 8, 32, 16), random(1, 8, 32, 16))),
    "attention_with_mask": (
        attention,
        (random(1, 8, 24, 16), random(1, 8, 32, 16), random(1, 8, 32, 16), random(1, 1, 24, 32)),
    ),
    "attention_of_groups": (attention_of_groups, (random(1, 8, 24, 16), random(1, 4, 32, 16), random(1, 4, 32, 16))),
    "lstm": (lstm, (random(12, 1, 32),)),
    "conv_residual": (conv_residual, (PLANES, random(1, 64, 28, 28))),
    "residual_block": (residual_block, (PLANES,)),
    "depthwise": (depthwise, (PLANES,)),
    "squeeze_excite": (squeeze_excite, (PLANES,)),
    "concat": (concat, (PLANES,)),
    "global_pool": (global_pool, (PLANES,)),
}
WITH_C = ("layer_norm_written_out", "rms_norm", "softmax")
"""Those whose C is golden too: one function of loops."""


@pytest.mark.parametrize("name", CASES)
def test_functions_are_as_expected(name: str) -> None:
    build, feeds = CASES[name]
    graph = named_graph(build, *feeds)
    program = compiled(graph)
    named = {layer for f in program.functions for layer in f.origin}
    assert named == set(layers(graph)), "each layer is named, and nothing else"
    said = listing(program) + _c_of(name, graph)
    path = FOLDER / f"{name}.txt"
    if os.environ.get("IRC_UPDATE"):
        path.write_text(said, "utf-8")
    assert said == path.read_text("utf-8")


def _c_of(name: str, graph: Graph) -> str:
    if name not in WITH_C:
        return ""
    (function,) = (text for comment, text in functions_in(c_text(graph)) if ", ".join(layers(graph)) in comment)
    return "\n" + function


def test_golden_files_are_those_of_the_cases() -> None:
    assert {p.stem for p in FOLDER.glob("*.txt")} == set(CASES)


def test_rows_of_several_axes_are_summed_as_one() -> None:
    """28 × 28 pixels that stand one after the other are a row of 784, for accumulators side by side."""
    graph = named_graph(instance_norm, PLANES)
    (function,) = (text for comment, text in functions_in(c_text(graph)) if "InstanceNorm" in comment)
    assert "784" in function and "< 28" not in function


@pytest.mark.parametrize(("batch", "loop", "divided"), [(2, "n0 < end", "2 * 20"), (64, "i0 < end", "64")])
def test_rows_of_a_small_batch_are_shared_among_all_threads(batch: int, loop: str, divided: str) -> None:
    graph = named_graph(rms_norm, random(batch, 20, 96))
    (function,) = (text for comment, text in functions_in(c_text(graph)) if "ReduceMean" in comment)
    assert loop in function and f"irc_parallel(pool, {divided}, " in function


@pytest.mark.parametrize(("wide", "functions"), [(21, 2), (6, 1)])
def test_what_is_gathered_along_rows_more_often_than_it_is_there_is_computed_once(wide: int, functions: int) -> None:
    """As of an image that is resized along both axes: interpolated between rows, of which pixels are gathered."""

    def resized(b: Any, x: Any) -> Any:
        rows = b.Add(b.Mul(x, random(14, 1, seed=1)), b.Mul(b.Reverse(x, [2], mode="index"), random(14, 1, seed=2)))
        near, far = (b.const(np.sort(np.random.default_rng(i).integers(0, 14, wide))) for i in range(2))
        left, right = b.Gather(rows, near, b.const(3)), b.Gather(rows, far, b.const(3))
        return b.Add(b.Mul(left, random(wide, seed=3)), b.Mul(right, random(wide, seed=4)))

    assert len(compiled(named_graph(resized, random(1, 8, 14, 14))).functions) == functions
