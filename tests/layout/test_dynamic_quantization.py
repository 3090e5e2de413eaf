"""DynamicQuantizeLinear without a division for each element: the same bytes as with one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto as T, helper as h

import irc
from irc.toolchain.processor import cpu_features
from tests.support.random_numbers import RANDOM

TARGETS = [
    name for name, needed in (("x86-64-v3", "avx2"), ("x86-64-v4", "avx512bw")) if {needed, "fma"} <= cpu_features()
]


def quantized(x: Any, target: str) -> Any:
    graph = h.make_graph(
        [h.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])],
        "quantized",
        [h.make_tensor_value_info("x", T.FLOAT, ["n"])],
        [h.make_tensor_value_info(n, t, s) for n, t, s in (("y", T.UINT8, ["n"]), ("s", 1, []), ("z", T.UINT8, []))],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8).SerializeToString()
    with np.errstate(all="ignore"):
        return irc.compile(model, backend="c", target=target)(x), irc.compile(model, backend="numpy")(x)


def inputs() -> dict[str, Any]:
    """Numbers of every kind, among them quotients that lie in the middle of two bytes, or next to it."""
    noise = RANDOM.standard_normal(5000).astype(np.float32)
    middles = (np.arange(-300, 211) / 2).astype(np.float32)
    near = np.concatenate([np.nextafter(middles, np.float32(side)) for side in (-999, 999)])
    ends = np.array([-150, 105], np.float32)  # a scale of 1
    found = {
        "noise": noise,
        "middles": np.concatenate([ends, middles.clip(*ends), near.clip(*ends)]),
        "zeros": np.zeros(40, np.float32),
        "positive": np.abs(noise),
        "one infinity": np.concatenate([noise, [np.inf]]).astype(np.float32),
        "infinities": np.concatenate([noise, [np.inf, -np.inf]]).astype(np.float32),
    }
    for exponent in (-148, -140, -126, -101, -90, 0, 100, 119):
        found[f"2^{exponent}"] = np.ldexp(noise.clip(-3, 3), exponent).astype(np.float32)
    for i in range(12):  # multiples of half a scale, rounded
        scale = np.float32(RANDOM.random() + 0.01)
        found[f"halves {i}"] = np.concatenate([middles * scale, near * scale]).astype(np.float32)
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_bytes_are_those_of_quotients(target: str) -> None:
    for name, x in inputs().items():
        found, wanted = quantized(x, target)
        for one, other in zip(found, wanted, strict=True):
            assert np.array_equal(one, other, equal_nan=one.dtype.kind == "f"), name


def test_quotients_by_reciprocals_are_as_rounded() -> None:
    """What the two corrections make of products, in floats of 64 bits that hold them exactly."""
    y = (RANDOM.random(200_000) + 0.5).astype(np.float32)
    x = (y * RANDOM.random(y.size) * 255).astype(np.float32)
    r = (1 / y).astype(np.float32)
    q = x * r
    for _ in range(2):
        left = (x.astype(np.float64) - q.astype(np.float64) * y).astype(np.float32)
        q = (q.astype(np.float64) + left.astype(np.float64) * r).astype(np.float32)
    assert np.array_equal(q, x / y)
