"""Steps from bytes to bytes: tables, and pools of bytes; what stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import irc
from irc.diagnostics import Sink
from irc.ir.graph import Graph
from irc.ir.types import f32
from irc.kernels.core.isa import AVX512, NEON
from irc.layout import byte_tables
from irc.layout.byte_tables import Lookup
from irc.ops.layout import Reshape
from irc.pipelines import compile_c
from irc.selection.selector import KernelOp
from irc.toolchain.c_compiler import find_compiler
from irc.toolchain.processor import cpu_features
from tests.support.instruction_sets import of_other_kernels

helper = onnx.helper
Nodes = list[onnx.NodeProto]


def model_of(steps: Nodes, shape: tuple[int, ...], kinds: tuple[Any, Any], same: bool = False) -> onnx.ModelProto:
    """Write steps from "a" to "b" between bytes x and y of these types; same: of one scale and one zero point."""
    given, found = kinds
    parameters = {
        "xs": np.float32(0.05),
        "xz": given(7),
        "ys": np.float32(0.05 if same else 0.03),
        "yz": found(7 if same else -20 if found is np.int8 else 11),
        "half": np.full((1,) * len(shape), 0.5, np.float32),
        "root": np.float32(2**0.5),
        "one": np.float32(1),
        "flat": np.array([-1, shape[-1]]),
    }
    nodes = [helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["a"]), *steps]
    nodes += [helper.make_node("QuantizeLinear", ["b", "ys", "yz"], ["y"])]
    used = {n for node in nodes for n in node.input}
    constants = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in parameters.items() if n in used]
    types = {np.int8: onnx.TensorProto.INT8, np.uint8: onnx.TensorProto.UINT8}
    x = helper.make_tensor_value_info("x", types[given], shape)
    y = helper.make_tensor_value_info("y", types[found], None)
    graph = helper.make_graph(nodes, "bytes", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def gelu(start: str = "a") -> Nodes:
    return [
        helper.make_node("Div", [start, "root"], ["d"]),
        helper.make_node("Erf", ["d"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["f"]),
        helper.make_node("Mul", ["f", "half"], ["g"]),
        helper.make_node("Mul", [start, "g"], ["b"]),
    ]


FLAT = helper.make_node("Reshape", ["a", "flat"], ["v"])
POOL = helper.make_node("MaxPool", ["a"], ["b"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)


def graph_of(model: onnx.ModelProto, before: str = "") -> Graph:
    graph = irc.load(model).graph
    for name, run in compile_c(AVX512):
        if name == before:
            break
        run(graph, Sink())
    return graph


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.skipif(not {"avx2"} <= cpu_features(), reason="needs AVX2")
@pytest.mark.parametrize("target", of_other_kernels("native", "x86-64-v3"))
@pytest.mark.parametrize("kinds", [(np.uint8, np.uint8), (np.int8, np.uint8), (np.uint8, np.int8)], ids=str)
@pytest.mark.parametrize("shape", [(256,), (3, 87), (40, 1001)], ids=str)
def test_tables(target: str, kinds: tuple[Any, Any], shape: tuple[int, ...]) -> None:
    model = model_of([FLAT, *gelu("v")] if len(shape) > 1 else gelu(), shape, kinds)
    labels = [n.op.kernel.label for n in graph_of(model).nodes if isinstance(n.op, KernelOp)]
    assert labels == ["table"]
    limits = np.iinfo(kinds[0])
    x = np.resize(np.arange(limits.min, limits.max + 1), shape).astype(kinds[0])
    (wanted,) = irc.compile(model, backend="numpy")([x])
    (got,) = irc.compile(model, backend="c", target=target, threads=2)([x])
    np.testing.assert_array_equal(got, wanted)
    assert np.unique(got).size > 50


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_pools_are_of_bytes(kind: Any) -> None:
    model = model_of([POOL], (2, 5, 9, 8), (kind, kind), same=True)
    # `plane-pools` may take the bytes themselves as floats then
    assert not [v for n in graph_of(model, before="plane-pools").nodes for v in n.outputs if v.dtype == f32]
    x = np.random.default_rng(1).integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, (2, 5, 9, 8)).astype(kind)
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    (got,) = irc.compile(model, backend="c")([x])
    np.testing.assert_array_equal(got, wanted)


def test_bytes_that_become_themselves_stay() -> None:
    graph = irc.load(model_of([helper.make_node("Relu", ["a"], ["b"])], (4, 8), (np.uint8, np.uint8), same=True)).graph
    assert byte_tables.run(graph, AVX512) == 0  # those below the zero point do not
    nothing = [helper.make_node("Reshape", ["a", "flat"], ["b"])]
    graph = graph_of(model_of(nothing, (2, 4, 8), (np.uint8, np.uint8), same=True))
    assert all(isinstance(n.op, Reshape) for n in graph.nodes)


def test_a_quantized_number_is_a_constant() -> None:
    """A product with it is a step from bytes to bytes: here back to each byte, of which nothing is left."""
    model = model_of([FLAT, helper.make_node("Mul", ["v", "d"], ["b"])], (2, 4, 8), (np.uint8, np.uint8), same=True)
    model.graph.node.insert(0, helper.make_node("DequantizeLinear", ["two", "part"], ["d"]))
    parts = {"two": np.array(2, np.uint8), "part": np.float32(0.5)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in parts.items())
    assert all(isinstance(n.op, Reshape) for n in graph_of(model).nodes)


def _output_between(model: onnx.ModelProto) -> None:
    model.graph.output.append(helper.make_tensor_value_info("e", onnx.TensorProto.FLOAT, None))


def _other_operand(model: onnx.ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info("x2", onnx.TensorProto.FLOAT, (4, 8, 8)))
    model.graph.node[2].input[0] = "x2"


def _many_constants(model: onnx.ModelProto) -> None:
    (half,) = (c for c in model.graph.initializer if c.name == "half")
    half.CopyFrom(onnx.numpy_helper.from_array(np.ones((4, 1, 1), np.float32), "half"))


@pytest.mark.parametrize("change", [_output_between, _other_operand, _many_constants])
def test_others_stay(change: Callable[[onnx.ModelProto], None]) -> None:
    model = model_of(gelu(), (4, 8, 8), (np.uint8, np.uint8))
    change(model)
    graph = irc.load(model).graph
    assert byte_tables.run(graph, AVX512) == 0
    assert not [n for n in graph.nodes if isinstance(n.op, Lookup)]


def test_without_kernels_of_bytes_nothing_changes() -> None:
    assert byte_tables.run(irc.load(model_of(gelu(), (4, 8), (np.uint8, np.uint8))).graph, NEON) == 0
