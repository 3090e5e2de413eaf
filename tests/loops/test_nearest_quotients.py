"""QuantizeLinear without a division for each element: the same bytes as with one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto as T, helper as h, numpy_helper as nh

import irc
from irc.toolchain.processor import cpu_features

NEEDED = {"x86-64-v2": {"sse4_2"}, "x86-64-v3": {"avx2", "fma"}, "x86-64-v4": {"avx512bw"}}
TARGETS = [name for name, needed in NEEDED.items() if needed <= cpu_features()]


def model(shape: tuple[int, ...], layers: list[tuple[Any, Any]], axis: int = 0) -> bytes:
    """Make a model that quantizes each of its inputs by a scale and a zero point."""
    nodes, inputs, outputs, inits = [], [], [], []
    for k, (scale, zero) in enumerate(layers):
        inits += [nh.from_array(np.asarray(v), f"{n}{k}") for n, v in (("s", scale), ("z", zero))]
        nodes.append(h.make_node("QuantizeLinear", [f"x{k}", f"s{k}", f"z{k}"], [f"y{k}"], axis=axis))
        inputs.append(h.make_tensor_value_info(f"x{k}", T.FLOAT, shape))
        outputs.append(h.make_tensor_value_info(f"y{k}", h.np_dtype_to_tensor_dtype(np.asarray(zero).dtype), shape))
    graph = h.make_graph(nodes, "quantized", inputs, outputs, inits)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 21)], ir_version=10).SerializeToString()


def numbers(scale: float, random: np.random.Generator) -> Any:
    """Numbers of every kind, among them quotients that lie in the middle of two whole numbers, or next to it."""
    middles = (np.arange(-700, 700) / 2).astype(np.float32)
    near = np.concatenate([middles, *(np.nextafter(middles, np.float32(side)) for side in (-999, 999))])
    large = (np.arange(-70000, 70000, 77) + np.float32(0.5)).astype(np.float32)
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-40, -1e-45]
    noise = random.standard_normal(4000).astype(np.float32) * 90
    with np.errstate(all="ignore"):
        return np.concatenate([np.concatenate([near, large, noise]) * np.float32(scale), ends]).astype(np.float32)


def expected(x: Any, scale: Any, zero: Any) -> Any:
    limits = np.iinfo(zero.dtype)
    with np.errstate(all="ignore"):
        whole = np.rint(x / scale) + zero.astype(np.float32)
        return np.where(whole > limits.min, np.minimum(whole, limits.max), limits.min).astype(zero.dtype)


@pytest.mark.parametrize("target", TARGETS)
def test_of_one_scale(target: str) -> None:
    random = np.random.default_rng(3)
    scales = (0.02, 1.0, 0.25, 0.1, *random.random(4), 3e-30, 7e29, 2.0**-100, 1e-38, 1e-42, 1e36, 3e38)
    zeros = (np.uint8(3), np.int8(-5), np.uint16(40000), np.int16(0))
    layers = [(np.float32(scale), zero) for scale in scales for zero in zeros]
    xs = [numbers(scale, random) for scale, _ in layers]
    compiled = irc.compile(model(xs[0].shape, layers), backend="c", target=target)
    found = compiled({f"x{k}": x for k, x in enumerate(xs)})
    for x, y, (scale, zero) in zip(xs, found, layers, strict=True):
        assert np.array_equal(y, expected(x, scale, zero)), (scale, zero)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("target", TARGETS)
def test_of_a_scale_by_row_or_column(target: str, axis: int) -> None:
    random = np.random.default_rng(4)
    scale = (random.random(5) + 0.01).astype(np.float32)
    zero = np.array([0, 3, 128, 255, 77], np.uint8)
    rows = np.stack([numbers(s, random) for s in scale])
    x = rows if axis == 0 else np.ascontiguousarray(rows.T)
    shape = (5, 1) if axis == 0 else (1, 5)
    (found,) = irc.compile(model(x.shape, [(scale, zero)], axis), backend="c", target=target)(x)
    assert np.array_equal(found, expected(x, scale.reshape(shape), zero.reshape(shape)))
