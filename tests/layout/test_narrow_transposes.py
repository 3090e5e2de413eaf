"""Transposes of bytes: by squares, wherever they stand, and in front of what makes floats of the bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import irc
from irc.diagnostics import Sink
from irc.ir.graph import Graph
from irc.kernels.core.isa import AVX512, NEON
from irc.layout import narrow_transposes
from irc.pipelines import compile_c
from irc.selection.selector import KernelOp
from irc.toolchain.c_compiler import find_compiler
from irc.toolchain.processor import cpu_features
from tests.support.instruction_sets import of_other_kernels

helper = onnx.helper
LABEL = "squares of bytes"


def model_of(nodes: list[onnx.NodeProto], kind: Any, shape: tuple[int, ...], result: int) -> onnx.ModelProto:
    """Write nodes from bytes x to y; "s" and "z" are a scale and a zero point, "many" are scales of axis 1."""
    scales = np.linspace(0.1, 0.2, shape[1], dtype=np.float32).reshape(-1, *(1,) * (len(shape) - 2))
    arrays = {"s": np.float32(0.1), "z": kind(3), "many": scales}
    used = {n for node in nodes for n in node.input}
    constants = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in arrays.items() if n in used]
    types = {np.int8: onnx.TensorProto.INT8, np.uint8: onnx.TensorProto.UINT8}
    x = helper.make_tensor_value_info("x", types[kind], shape)
    y = helper.make_tensor_value_info("y", result or types[kind], None)
    graph = helper.make_graph(nodes, "bytes", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def labels(model: onnx.ModelProto) -> list[str]:
    graph: Graph = irc.load(model).graph
    for _, run in compile_c(AVX512):
        run(graph, Sink())
    return [n.op.kernel.label for n in graph.nodes if isinstance(n.op, KernelOp)]


def bytes_like(kind: Any, shape: tuple[int, ...]) -> Any:
    limits = np.iinfo(kind)
    return np.random.default_rng(1).integers(limits.min, limits.max + 1, shape).astype(kind)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.skipif(not {"avx2"} <= cpu_features(), reason="needs AVX2")
@pytest.mark.parametrize("target", of_other_kernels("native", "x86-64-v3"))
@pytest.mark.parametrize(
    ("kind", "shape", "order", "squares"),
    [
        (np.uint8, (70, 100), (1, 0), True),
        (np.int8, (1100, 16), (1, 0), True),
        (np.uint8, (2, 35, 9, 7), (0, 2, 3, 1), True),
        (np.int8, (3, 9, 21, 40), (0, 3, 1, 2), True),
        (np.uint8, (3, 5, 40, 21), (1, 3, 0, 2), True),
        (np.uint8, (3, 224, 15), (0, 2, 1), False),
        (np.uint8, (16, 20, 40), (1, 0, 2), False),
    ],
)
def test_transposes(kind: Any, shape: tuple[int, ...], order: tuple[int, ...], squares: bool, target: str) -> None:
    model = model_of([helper.make_node("Transpose", ["x"], ["y"], perm=order)], kind, shape, 0)
    assert (LABEL in labels(model)) is squares
    x = bytes_like(kind, shape)
    (got,) = irc.compile(model, backend="c", target=target, threads=2)([x])
    np.testing.assert_array_equal(got, x.transpose(order))


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.skipif(not {"avx2"} <= cpu_features(), reason="needs AVX2")
@pytest.mark.parametrize(("scale", "moves"), [("s", True), ("many", False)])
def test_what_makes_floats_of_bytes_comes_last(scale: str, moves: bool) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("Mul", ["a", scale], ["b"]),
        helper.make_node("Transpose", ["b"], ["y"], perm=[0, 2, 3, 1]),
    ]
    model = model_of(nodes, np.uint8, (2, 33, 10, 9), onnx.TensorProto.FLOAT)
    assert (LABEL in labels(model)) is moves
    x = bytes_like(np.uint8, (2, 33, 10, 9))
    (wanted,) = irc.compile(model, backend="numpy")([x])
    (got,) = irc.compile(model, backend="c")([x])
    np.testing.assert_array_equal(got, wanted)


def test_what_a_reduction_reads_does_not_move() -> None:
    """Its kernel reads planes with the channels last."""
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[0, 3, 1, 2]),
        helper.make_node("GlobalAveragePool", ["b"], ["y"]),
    ]
    assert LABEL not in labels(model_of(nodes, np.uint8, (1, 7, 7, 128), onnx.TensorProto.FLOAT))


def test_without_kernels_of_bytes_nothing_moves() -> None:
    nodes = [helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"])]
    nodes += [helper.make_node("Transpose", ["a"], ["y"], perm=[1, 0])]
    assert narrow_transposes.run(irc.load(model_of(nodes, np.uint8, (40, 50), onnx.TensorProto.FLOAT)).graph, NEON) == 0
