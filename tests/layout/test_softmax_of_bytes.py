"""A softmax between a DequantizeLinear and a QuantizeLinear is one kernel, whose bytes are the nearest ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import irc
from irc.diagnostics import Sink
from irc.ir.graph import Graph
from irc.ir.verify import problems
from irc.kernels.core.isa import AVX2, AVX512, NEON
from irc.layout import softmax_of_bytes
from irc.layout.softmax_of_bytes import SoftmaxOfBytes
from irc.pipelines import compile_c
from irc.selection.selector import KernelOp
from irc.toolchain.c_compiler import find_compiler
from irc.toolchain.processor import cpu_features
from tests.support.instruction_sets import of_other_kernels

KINDS = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}
SHAPES = [(300, 7), (4, 15), (3, 16), (2, 3, 17), (2, 49), (5, 64), (2, 12, 197), (2, 1000), (40, 2049)]


def model_of(shape: tuple[Any, ...], kind: Any, found: Any, scale: float = 0.06, axis: int = -1) -> onnx.ModelProto:
    """Write y = QuantizeLinear(Softmax(DequantizeLinear(x)))."""
    zero = 0 if found == np.uint8 else -128
    constants = {"s": np.float32(scale), "z": np.array(10, kind), "r": np.float32(1 / 256), "q": np.array(zero, found)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"]),
        helper.make_node("Softmax", ["f"], ["p"], axis=axis),
        helper.make_node("QuantizeLinear", ["p", "r", "q"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, KINDS[k], shape) for n, k in (("x", kind), ("y", found)))
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(v, n) for n, v in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def exact(x: np.ndarray[Any, Any], scale: float, found: Any) -> np.ndarray[Any, Any]:
    e = np.exp((x.astype(np.float64) - x.max(-1, keepdims=True)) * np.float32(scale))
    return e / e.sum(-1, keepdims=True) * 256 + (0 if found == np.uint8 else -128)


@pytest.mark.skipif(find_compiler() is None or not {"avx2"} <= cpu_features(), reason="needs a compiler and AVX2")
@pytest.mark.parametrize("target", of_other_kernels("native", "x86-64-v3"))
@pytest.mark.parametrize(("kind", "found"), [(np.uint8, np.uint8), (np.int8, np.int8), (np.uint8, np.int8)])
def test_bytes_are_the_nearest(target: str, kind: Any, found: Any) -> None:
    random, limits = np.random.default_rng(3), np.iinfo(kind)
    for shape, scale in zip(SHAPES, [0.06, 0.5, 1e-9] * 3, strict=True):
        model = model_of(shape, kind, found, scale)
        x = random.integers(limits.min, limits.max + 1, shape).astype(kind)
        x[0] = limits.max  # all are alike
        (got,) = irc.compile(model, backend="c", target=target, threads=2)([x])
        wanted, most = exact(x, scale, found), np.iinfo(found)
        assert got.dtype == found
        assert (np.abs(got - wanted.clip(most.min, most.max)) <= 0.5 + 1e-3).all(), (shape, scale)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("target", ["x86-64-v2", "native"])
def test_beside_onnx_runtime_of_floats(target: str) -> None:
    """Where there is no kernel, as for rows of any length, what it stood for is computed."""
    x = np.random.default_rng(1).integers(0, 256, (5, 60)).astype(np.uint8)
    model = model_of(("rows", "n"), np.uint8, np.uint8)
    (got,) = irc.compile(model, backend="c", target=target)([x])
    assert (np.abs(got - exact(x, 0.06, np.uint8).clip(0, 255)) <= 0.5 + 1e-3).all()


def graph_of(model: onnx.ModelProto) -> Graph:
    graph = irc.load(model).graph
    for _, run in compile_c(AVX512):
        run(graph, Sink())
    return graph


def test_one_kernel_takes_the_whole() -> None:
    nodes = graph_of(model_of((2, 12, 197), np.uint8, np.uint8)).nodes
    assert [n.op.kernel.label for n in nodes if isinstance(n.op, KernelOp)] == ["rows of bytes"] and len(nodes) == 1


@pytest.mark.parametrize("isa", [AVX512, AVX2], ids=str)
def test_the_operation_says_what_the_steps_compute(isa: Any) -> None:
    graph = irc.load(model_of((3, 40), np.int8, np.uint8)).graph
    x = np.random.default_rng(1).integers(-128, 128, (3, 40)).astype(np.int8)
    assert softmax_of_bytes.run(graph, isa) == 1 and not problems(graph)
    (node,) = graph.nodes
    assert isinstance(node.op, SoftmaxOfBytes)
    assert (np.abs(node.op.reference(x) - exact(x, 0.06, np.uint8).clip(0, 255)) <= 0.5 + 1e-3).all()


def _output_between(model: onnx.ModelProto) -> None:
    model.graph.output.append(helper.make_tensor_value_info("p", TensorProto.FLOAT, None))


def _other_axis(model: onnx.ModelProto) -> None:
    model.graph.node[1].attribute[0].i = 0


def _tiny_scale(model: onnx.ModelProto) -> None:
    (scale,) = (c for c in model.graph.initializer if c.name == "r")
    scale.CopyFrom(numpy_helper.from_array(np.float32(1e-30), "r"))


@pytest.mark.parametrize("change", [_output_between, _other_axis, _tiny_scale])
def test_others_stay(change: Callable[[onnx.ModelProto], None]) -> None:
    model = model_of((30, 40), np.uint8, np.uint8)
    change(model)
    assert softmax_of_bytes.run(irc.load(model).graph, AVX512) == 0


def test_without_kernels_of_bytes_nothing_changes() -> None:
    assert softmax_of_bytes.run(irc.load(model_of((3, 40), np.uint8, np.uint8)).graph, NEON) == 0
