"""TopK of every size: NumPy's stable order, ties and NaN included, whichever loops it gets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import irc
from irc.toolchain.c_compiler import find_compiler

CASES: list[tuple[tuple[int, ...], int, int, bool]] = [
    ((70, 9), 4, -1, True),  # many short rows
    ((70, 9), 9, -1, False),
    ((3, 17, 21), 5, 1, True),  # columns, of which the last vector would end behind the tensor
    ((2, 26, 130), 16, 1, False),
    ((2, 12, 224), 3, 1, True),  # columns that divide into tiles of more than the usual width
    ((2, 30, 3), 5, 1, True),  # few columns
    ((3, 1500), 7, -1, True),  # long rows
    ((2, 5000), 40, -1, True),  # many of a long row
    ((3, 90), 90, 1, False),  # all
    ((20, 50, 2), 20, 1, True),
]
SHORT = [((3, 2, 130), 2, 1, True), ((2, 4, 300), 3, 1, False), ((2, 3, 5, 17), 1, 1, True), ((4, 1, 65), 1, 1, True)]
"""The same along axes of which elements are chosen, not read by their places."""


def order(x: Any, axis: int, largest: bool) -> Any:
    """Indices from the best to the worst: NaN is the largest, equal ones in their order."""
    if x.dtype.kind in "iu":
        return np.argsort(-x.astype(np.int64) if largest else x.astype(np.int64), axis, kind="stable")
    nan = np.isnan(x)
    value = np.where(nan, 0, x) + np.where(nan, np.inf, 0.0)
    second = np.argsort(-value if largest else value, axis, kind="stable")
    flag = np.take_along_axis(nan, second, axis)
    return np.take_along_axis(second, np.argsort(~flag if largest else flag, axis, kind="stable"), axis)


def drawn(shape: tuple[int, ...], kind: str, seed: int) -> Any:
    random = np.random.default_rng(seed)
    if kind == "different":
        return random.standard_normal(shape, np.float32)
    if kind == "close":  # in their last bits, those of a few columns apart from others
        x = 1 + random.integers(0, 300, shape).astype(np.float32) * np.float32(2**-23)
        x[..., ::5] = random.standard_normal(x[..., ::5].shape)
        return x
    if kind != "float32":
        info = np.iinfo(kind)
        x = random.integers(-3, 4, shape) if info.min else random.integers(0, 5, shape)
        x.reshape(-1)[::7], x.reshape(-1)[1::11] = info.max, info.min
        return x.astype(kind)
    x = np.round(random.standard_normal(shape) * 3).astype(np.float32)
    for k, special in enumerate((np.nan, -np.nan, np.inf, -np.inf, -0.0, 1e-45)):
        x.reshape(-1)[k :: 13 + k] = special
    return x


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("kind", ["float32", "different", "close", "int32", "uint32"])
def test_every_size(kind: str) -> None:
    element = helper.np_dtype_to_tensor_dtype(drawn((1, 12), kind, 0).dtype)
    nodes, inputs, outputs, constants, wanted = [], [], [], [], {}
    feeds: dict[str, Any] = {}
    for n, (shape, k, axis, largest) in enumerate([*SHORT, *(CASES[1:7:2] if "int" in kind else CASES)]):
        x = feeds[f"x{n}"] = drawn(shape, kind, n)
        inputs.append(helper.make_tensor_value_info(f"x{n}", element, shape))
        constants.append(helper.make_tensor(f"k{n}", TensorProto.INT64, [1], [k]))
        nodes.append(helper.make_node("TopK", [f"x{n}", f"k{n}"], [f"v{n}", f"i{n}"], axis=axis, largest=int(largest)))
        outputs.append(helper.make_tensor_value_info(f"v{n}", element, None))
        outputs.append(helper.make_tensor_value_info(f"i{n}", TensorProto.INT64, None))
        places = np.take(order(x, axis, largest), range(k), axis)
        wanted[f"v{n}"], wanted[f"i{n}"] = np.take_along_axis(x, places, axis), places
    graph = helper.make_graph(nodes, "topk", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = irc.compile(model.SerializeToString(), backend="c")(feeds)
    for (name, want), got in zip(wanted.items(), found, strict=True):
        np.testing.assert_array_equal(got, want, err_msg=name)
        assert got.tobytes() == want.tobytes(), f"{name}: a zero or NaN of other bits"
