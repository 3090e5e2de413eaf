"""DynamicQuantizeLinear without a division for each element: the same bytes as with one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto as T, helper as h

import irc
from irc.ir.types import f32
from irc.kernels import ISAS
from irc.kernels.movement.transpose import TransposeKernel
from irc.kernels.reduction.extremes import ExtremesKernel
from irc.ops.quantize import DynamicQuantizeLinear
from irc.toolchain.processor import cpu_features
from tests.selection.test_select import kernels, selected
from tests.support.lowering import graph_of, random
from tests.support.random_numbers import RANDOM

TARGETS = [
    name for name, needed in (("x86-64-v3", "avx2"), ("x86-64-v4", "avx512bw")) if {needed, "fma"} <= cpu_features()
]


GRAPH = h.make_graph(
    [h.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])],
    "quantized",
    [h.make_tensor_value_info("x", T.FLOAT, ["n"])],
    [h.make_tensor_value_info(n, t, s) for n, t, s in (("y", T.UINT8, ["n"]), ("s", 1, []), ("z", T.UINT8, []))],
)
MODEL = h.make_model(GRAPH, opset_imports=[h.make_opsetid("", 17)], ir_version=8).SerializeToString()


def quantized(x: Any, target: str) -> Any:
    with np.errstate(all="ignore"):
        return irc.compile(MODEL, backend="c", target=target)(x), irc.compile(MODEL, backend="numpy")(x)


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
        "one NaN": np.concatenate([noise, [np.nan], noise]).astype(np.float32),
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


def hardest() -> Iterator[tuple[Any, Any]]:
    """List x and y whose quotient is about the middle between k + 1/2 and the float above or below it.

    With whole Y and X of 24 bits, and M, the middle, of 25, Y M - X 2^t is a small d: one Y of 2^t solves that.
    """
    for twice in range(1, 511, 2):
        exponent = twice.bit_length() - 2
        for side in (1, -1):
            unit = exponent - 24 - (twice == 1 and side < 0)
            middle = (twice << -1 - unit) + side
            for t in (24, 25):
                inverse = pow(middle, -1, 1 << t)
                for d in (*range(-8, 0), *range(1, 9)):
                    y = d * inverse % (1 << t)
                    x = (y * middle - d) >> t
                    if 1 << 23 <= y < 1 << 24 and 1 << 23 <= x < 1 << 24:
                        yield np.ldexp(np.float32(x), t + unit), np.float32(y)


@pytest.mark.parametrize("target", TARGETS)
def test_one_correction_rounds_the_hardest_quotients(target: str) -> None:
    compiled, tested = irc.compile(MODEL, backend="c", target=target), 0
    for x, y in hardest():
        largest = np.float32(255) * y
        if largest / np.float32(255) == y:  # else the scale is another one
            given = np.full(64, x)
            given[:2] = 0, largest
            for sign, zero in ((1, 0), (-1, 255)):
                found, scale, point = compiled(given * np.float32(sign))
                assert (scale, point) == (y, zero)
                np.testing.assert_array_equal(found, np.rint(given / y) * sign + zero)
            tested += 1
    assert tested > 1000
    text = "".join(f.read_text("utf-8") for f in Path(compiled.artifact.folder).glob("*.c"))
    assert "(int32_t)irc_min_known_f32" in text  # a number within bounds: one instruction


def test_the_range_is_that_of_what_stands_in_memory() -> None:
    """The order of elements does not matter: no Transpose is made for it.  Loops find it where there are few."""

    def build(b: Any, x: Any) -> Any:
        turned = b.Transpose(b.Relu(b.Conv(x, b.const(random(40, 8, 1, 1), f32), None)), [0, 2, 3, 1])
        y, scale, _ = b.add_all(DynamicQuantizeLinear(), b.Reshape(turned, b.const([0, -1, 40]), special_zero=True))
        return b.Mul(b.Cast(y, to=f32), scale)

    for size, found in ((28, 1), (8, 0)):
        program = selected(graph_of(build, random(1, 8, size, size)), ISAS["avx512"])
        names = [type(k) for k in kernels(program.functions)]
        assert names.count(ExtremesKernel) == found
        assert TransposeKernel not in names
