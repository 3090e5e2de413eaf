"""Transposes of elements of every width: blocks of registers, and what is left at their sides."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper as h

import irc
from irc.toolchain.c_compiler import find_compiler
from irc.toolchain.processor import cpu_features

NEEDED = {"x86-64-v2": {"sse4_2"}, "x86-64-v3": {"avx2", "fma"}, "x86-64-v4": {"avx512bw"}}
TARGETS = [name for name, needed in NEEDED.items() if needed <= cpu_features()]
TYPES = ("float16", "int16", "uint16", "int32", "uint32", "int64", "uint64", "uint8", "int8", "float32", "float64")
CASES = [
    ((100, 77), (1, 0)),
    ((3, 40, 50), (0, 2, 1)),
    ((2, 17, 9, 8), (0, 3, 1, 2)),
    ((16, 8), (1, 0)),
    ((9, 300), (1, 0)),
    ((40, 3), (1, 0)),
    ((5, 6, 7, 8), (3, 2, 1, 0)),
    ((700, 65), (1, 0)),
]


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("target", TARGETS)
def test_every_element_moves(target: str, dtype: str) -> None:
    kind, random = h.np_dtype_to_tensor_dtype(np.dtype(dtype)), np.random.default_rng(1)
    arrays = [random.integers(0, 1 << 8 * np.dtype(dtype).itemsize - 1, shape).astype(dtype) for shape, _ in CASES]
    nodes = [h.make_node("Transpose", [f"x{k}"], [f"y{k}"], perm=order) for k, (_, order) in enumerate(CASES)]
    inputs = [h.make_tensor_value_info(f"x{k}", kind, x.shape) for k, x in enumerate(arrays)]
    outputs = [h.make_empty_tensor_value_info(f"y{k}") for k in range(len(CASES))]
    graph = h.make_graph(nodes, "transposes", inputs, outputs)
    made = onnx.shape_inference.infer_shapes(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=8))
    compiled = irc.compile(made.SerializeToString(), backend="c", target=target)
    found = compiled({f"x{k}": x for k, x in enumerate(arrays)})
    for x, y, (_, order) in zip(arrays, found, CASES, strict=True):
        np.testing.assert_array_equal(y, x.transpose(order))
