"""Convolutional networks with symbolic height, width and batch: one artefact for every size, as ONNX Runtime has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import irc
from irc.diagnostics import Sink
from irc.ir.dim import Dim
from irc.ir.graph import Graph
from irc.kernels import ISAS
from irc.ops.pool import MaxPool
from irc.pipelines import compile_c
from tests.support.lowering import graph_of, random

Nodes = list[onnx.NodeProto]
SIZES = [(1, 3, 33, 46), (2, 3, 16, 16), (3, 3, 1, 1), (1, 3, 2, 5), (1, 3, 5, 2), (2, 3, 1, 31), (1, 3, 64, 7)]


class Net:
    """A chain of nodes over x: f32[batch, 3, h, w]."""

    def __init__(self) -> None:
        self.nodes: Nodes = []
        self.constants: list[onnx.TensorProto] = []
        self.channels = 3
        self.last = "x"

    def const(self, data: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(data), name))
        return name

    def add(self, op: str, *more: str, of: Sequence[str] = (), **fields: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [*(of or [self.last]), *more], [name], **fields))
        self.last = name
        return name

    def conv(self, outputs: int, size: int = 3, group: int = 1, **fields: Any) -> str:
        w = random(outputs, self.channels // group, size, size) / np.float32(size * np.sqrt(self.channels / group))
        fields.setdefault("pads", [size // 2] * 4)
        self.channels = outputs
        return self.add("Conv", self.const(w), self.const(random(outputs)), group=group, **fields)

    def model(self, *outputs: str) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", 1, ["batch", 3, "h", "w"])
        results = [helper.make_tensor_value_info(n, 1, None) for n in outputs or (self.last,)]
        graph = helper.make_graph(self.nodes, "net", [x], results, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def windows(net: Net) -> None:
    """3 x 3 by Winograd, strides, dilation, groups, 5 x 5, channels that fill no vector."""
    net.conv(32, strides=[2, 2])
    for fields in ({}, {"dilations": [2, 2], "pads": [2, 2, 2, 2]}, {"group": 4}, {"size": 5, "strides": [1, 2]}):
        net.conv(40, **fields)  # pyright: ignore[reportArgumentType]
        net.add("Relu")
    net.conv(33)


def depthwise(net: Net) -> None:
    net.conv(48, size=1)
    net.add("HardSwish")
    net.conv(48, group=48)
    net.conv(48, size=5, group=48, strides=[2, 2])
    net.conv(20, size=1)


def pools(net: Net) -> None:
    net.conv(36)
    net.add("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    net.conv(36)
    net.add("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    y = net.conv(36)
    mean = net.add("GlobalAveragePool")
    net.add("Mul", of=[y, net.add("Sigmoid", of=[mean])])


def few_outputs(net: Net) -> None:
    net.conv(32)
    net.add("Relu")
    net.conv(3, size=9)


def up(net: Net) -> None:
    """A transposed convolution, and a Resize to the size of the input."""
    net.conv(32, strides=[2, 2])
    y = net.conv(32)
    net.add("ConvTranspose", net.const(random(32, 20, 4, 4) / 16), of=[y], strides=[2, 2], pads=[1, 1, 1, 1])
    net.channels = 20
    y = net.conv(21, size=1)
    plane = net.add("Slice", net.const([2]), net.const([4]), of=[net.add("Shape", of=["x"])])
    first = net.add("Slice", net.const([0]), net.const([2]), of=[net.add("Shape", of=[y])])
    sizes = net.add("Concat", of=[first, plane], axis=0)
    net.add("Resize", "", "", sizes, of=[y], mode="linear", coordinate_transformation_mode="half_pixel")


def group_norm(net: Net) -> None:
    """As exporters write it before opset 21."""
    y = net.conv(64)
    shape = net.add("Shape", of=[y])
    net.add("Reshape", net.const([0, 8, -1]), of=[y])
    net.add("InstanceNormalization", net.const(np.ones(8, np.float32)), net.const(np.zeros(8, np.float32)))
    net.add("Reshape", shape)
    net.add("Mul", net.const(random(64, 1, 1)))
    y = net.add("Add", net.const(random(64, 1, 1)))
    net.add("Mul", of=[y, net.add("Sigmoid")])
    net.conv(32)


def shuffles(net: Net) -> None:
    """Channels of groups, then channels to blocks of pixels."""
    y = net.conv(36)
    shape = net.add("Shape", of=[y])
    net.add("Reshape", net.const([0, 4, 9, -1]), of=[y])
    net.add("Transpose", perm=[0, 2, 1, 3])
    net.add("Reshape", shape)
    net.conv(36, size=1, group=4)
    net.add("DepthToSpace", blocksize=3, mode="CRD")
    net.channels = 4
    net.conv(32)
    net.add("DepthToSpace", blocksize=2, mode="DCR")


NETS: dict[str, Callable[[Net], None]] = {
    f.__name__: f for f in (windows, depthwise, pools, few_outputs, up, group_norm, shuffles)
}


@pytest.mark.compiler
@pytest.mark.parametrize("name", NETS)
def test_as_onnxruntime(name: str, tmp_path: Path) -> None:
    net = Net()
    NETS[name](net)
    path = tmp_path / "net.onnx"
    onnx.save(net.model(), path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    compiled = irc.compile(path, backend="c", cache=False)
    for n, shape in enumerate(SIZES):
        x = random(*shape, seed=n)
        (want,) = session.run(None, {"x": x})
        (got,) = compiled({"x": x})
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5 * np.abs(want).max(), err_msg=f"{name} {shape}")


def graph_of_kernels(build: Any, x: Any, shape: Sequence[Any]) -> Graph:
    graph, sink = graph_of(build, x, shapes=[shape]), Sink()
    for _, run in compile_c(ISAS["avx512"]):
        run(graph, sink)
    assert not sink.errors
    return graph


def test_known_and_symbolic_planes_have_the_same_kernels() -> None:
    def build(b: Any, x: Any) -> Any:
        y = b.Conv(x, random(64, 32, 3, 3), random(64), pads_begin=(1, 1), pads_end=(1, 1))
        y = b.Conv(b.Relu(y), random(64, 1, 3, 3), group=64, pads_begin=(1, 1), pads_end=(1, 1))
        y, _ = b.add_all(MaxPool(kernel=(2, 2), strides=(2, 2)), y)
        y = b.InstanceNormalization(y, random(64), random(64))
        return b.Conv(b.Relu(y), random(3, 64, 5, 5), strides=(2, 2), pads_begin=(2, 2), pads_end=(2, 2))

    x, sizes = random(1, 32, 56, 56), [Dim.symbol(n) for n in ("n", "h", "w")]
    words = []
    for shape in (x.shape, (sizes[0], 32, *sizes[1:])):
        nodes = graph_of_kernels(build, x, shape).nodes
        kernels = [n.op.kernel.symbol for n in nodes if n.op.name == "KernelOp"]  # type: ignore[attr-defined]
        words.append(sorted(k.split("_f32")[0].split("_conv")[0].removeprefix("irc_") for k in kernels))
    assert words[0] == words[1]
    assert {"winograd", "depthwise_last_3x3_s1x1", "direct", "global_pool_last_average"} <= set(words[0])


def test_a_resize_is_computed_as_it_stands() -> None:
    """Its result changes order afterwards, by a kernel."""

    def build(b: Any, x: Any) -> Any:
        y = b.Conv(b.Relu(b.Conv(x, random(64, 32, 3, 3))), random(21, 64, 1, 1))
        return b.Resize(y, None, None, b.const([2, 21, 20, 16]), mode="linear")

    for shape in ((2, 32, 9, 8), (2, 32, Dim.symbol("h", 3), Dim.symbol("w", 3))):
        last = graph_of_kernels(build, random(2, 32, 9, 8), shape).outputs[0].producer
        assert last is not None and last.op.spelled().startswith("KernelOp[irc_transpose_")  # type: ignore[attr-defined]
