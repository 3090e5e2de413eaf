"""Cast between every two element types: the reference converts each pair, and C agrees with it."""

from __future__ import annotations

import numpy as np
import pytest

import irc
from irc.ir.graph import Graph, Model
from irc.ir.types import DTYPES, DType, TensorType
from irc.opdef.base import Array
from irc.opdef.builder import Builder
from irc.ops.cast import Cast

NUMBERS = tuple(d for d in DTYPES.values() if d.kind in "fiub" and d.name != "dynamic")


def elements(dtype: DType) -> Array:
    """All finite values of a type of up to 8 bits; else some."""
    if dtype.bits <= 8 and dtype.numpy.kind == "V":
        found = np.arange(1 << dtype.bits).astype(np.uint8).view(dtype.numpy)
        return found[np.isfinite(found.astype(np.float32))]
    some = np.array([0, 1, -1, 3.5, -7.25, 100, 200, 1e5, -1e9, 0.003, 0.5, 1.5, 2.5])
    with np.errstate(all="ignore"):
        found = some.astype(dtype.numpy)
        return found[np.isfinite(found.astype(np.float64))]


@pytest.mark.compiler
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_every_pair_of_element_types(dtype: DType) -> None:
    x, graph = elements(dtype), Graph("g")
    operand = graph.add_input("x", TensorType.of(dtype, x.shape))
    for to in NUMBERS:
        graph.outputs += Builder(graph, "n").add_all(Cast(to=to), operand)
    compiled = irc.compile(Model(graph, "onnx", 10, {"": 25}), backend="c", cache=False)
    for to, y in zip(NUMBERS, compiled([x]), strict=True):
        with np.errstate(all="ignore"):
            wanted = Cast(to=to).reference(x)
        np.testing.assert_array_equal(y.astype(np.float64), wanted.astype(np.float64), err_msg=f"{dtype} to {to}")
