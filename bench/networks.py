"""Networks to measure, as ONNX models with seeded random weights: `NETWORKS` by name.

Each is built at a realistic size, or with `small=True` at one that a test runs in a moment.  Batch norms are folded
into convolutions, as exporters do; weights are scaled so that activations keep their size from layer to layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


class Net:
    """A graph being built: each method adds a node, or a few, and returns the name of the result."""

    def __init__(self, name: str) -> None:
        self.name, self.random = name, np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, *shape: int, dtype: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, value: str, name: str, *shape: int) -> None:
        self.node("Identity", [value], name)
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def node(self, kind: str, inputs: list[str], result: str = "", **attributes: Any) -> str:
        result = result or f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [result], name=result, **attributes))
        return result

    def constant(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape: int, fan: int) -> str:
        """Normally distributed, with the variance that ReLU layers keep: two over the number of summands."""
        return self.constant(self.random.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / fan)))

    def small_weight(self, *shape: int) -> str:
        return self.constant(self.random.standard_normal(shape, np.float32) * np.float32(0.1))

    def linear(self, x: str, width: int, out: int) -> str:
        product = self.node(
            "MatMul",
            [x, self.constant(self.random.standard_normal((width, out), np.float32) * np.float32(1 / np.sqrt(width)))],
        )
        return self.node("Add", [product, self.small_weight(out)])

    def conv(self, x: str, channels: int, out: int, size: int, stride: int = 1, group: int = 1) -> str:
        fan = channels // group * size * size
        pads = [size // 2] * 4
        operands = [x, self.weight(out, channels // group, size, size, fan=fan), self.small_weight(out)]
        return self.node("Conv", operands, strides=[stride] * 2, pads=pads, group=group, kernel_shape=[size] * 2)

    def norm(self, x: str, width: int) -> str:
        scale = self.constant(1 + 0.1 * self.random.standard_normal(width).astype(np.float32))
        return self.node("LayerNormalization", [x, scale, self.small_weight(width)], axis=-1, epsilon=1e-5)

    def heads(self, x: str, rows: int, count: int, width: int) -> str:
        split = self.node("Reshape", [x, self.constant(np.array([1, rows, count, width], np.int64))])
        return self.node("Transpose", [split], perm=[0, 2, 1, 3])

    def attention(self, q: str, k: str, v: str, rows: int, width: int, head: int, mask: str = "") -> str:
        turned = self.node("Transpose", [k], perm=[0, 1, 3, 2])
        scores = self.node("Mul", [self.node("MatMul", [q, turned]), self.constant(np.float32(head**-0.5))])
        if mask:
            scores = self.node("Add", [scores, mask])
        mixed = self.node("MatMul", [self.node("Softmax", [scores], axis=-1), v])
        back = self.node("Transpose", [mixed], perm=[0, 2, 1, 3])
        return self.node("Reshape", [back, self.constant(np.array([1, rows, width], np.int64))])

    def gelu(self, x: str) -> str:
        inner = self.node("Erf", [self.node("Mul", [x, self.constant(np.float32(0.5**0.5))])])
        half = self.node("Mul", [x, self.constant(np.float32(0.5))])
        return self.node("Mul", [half, self.node("Add", [inner, self.constant(np.float32(1))])])

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        onnx.checker.check_model(made)
        return made


# ------------------------------------------------------------------------------ networks
def mlp(small: bool) -> onnx.ModelProto:
    """Three dense layers, one row: little work, so that what a call costs beside it shows."""
    net, width = Net("mlp"), 64 if small else 512
    x = net.input("x", 1, width)
    for out in (width, width // 2):
        x = net.node("Relu", [net.linear(x, width, out)])
        width = out
    net.output(net.linear(x, width, 10), "y", 1, 10)
    return net.model()


def resnet(small: bool) -> onnx.ModelProto:
    """ResNet-18's layers: 7 × 7, then pairs of 3 × 3 with residuals."""
    net, size, base = Net("resnet"), 32 if small else 224, 8 if small else 64
    x = net.node("Relu", [net.conv(net.input("image", 1, 3, size, size), 3, base, 7, 2)])
    x = net.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = base
    for stage in range(4):
        for block in range(1 if small else 2):
            out, stride = base << stage, 2 if stage and not block else 1
            short = x if stride == 1 else net.conv(x, channels, out, 1, 2)
            y = net.node("Relu", [net.conv(x, channels, out, 3, stride)])
            y = net.node("Mul", [net.conv(y, out, out, 3), net.constant(np.float32(0.5))])
            x, channels = net.node("Relu", [net.node("Add", [y, short])]), out
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x])])
    net.output(net.linear(x, channels, 1000), "scores", 1, 1000)
    return net.model()


def mobilenet(small: bool) -> onnx.ModelProto:
    """MobileNetV2's inverted residuals: 1 × 1, depthwise 3 × 3, 1 × 1."""
    net, size = Net("mobilenet"), 32 if small else 224
    limits = [net.constant(np.float32(0)), net.constant(np.float32(6))]
    plan = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    channels, x = 32, net.input("image", 1, 3, size, size)
    x = net.node("Clip", [net.conv(x, 3, channels, 3, 2), *limits])
    for factor, out, count, first in plan[: 3 if small else None]:
        for k in range(count):
            wide, stride, y = channels * factor, first if k == 0 else 1, x
            if factor > 1:
                y = net.node("Clip", [net.conv(y, channels, wide, 1), *limits])
            y = net.node("Clip", [net.conv(y, wide, wide, 3, stride, wide), *limits])
            y = net.conv(y, wide, out, 1)
            x = net.node("Add", [x, y]) if stride == 1 and channels == out else y
            channels = out
    x = net.node("Clip", [net.conv(x, channels, 1280, 1), *limits])
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x])])
    net.output(net.linear(x, 1280, 1000), "scores", 1, 1000)
    return net.model()


def unet(small: bool) -> onnx.ModelProto:
    """A U-Net: pairs of 3 × 3, halved and doubled in size, with the earlier maps beside the later ones."""
    net, size, base, depth = Net("unet"), 32 if small else 192, 8 if small else 32, 2 if small else 3

    def pair(x: str, channels: int, out: int) -> str:
        x = net.node("Relu", [net.conv(x, channels, out, 3)])
        return net.node("Relu", [net.conv(x, out, out, 3)])

    x, channels, kept = net.input("image", 1, 3, size, size), 3, list[tuple[str, int]]()
    for level in range(depth):
        x = pair(x, channels, base << level)
        channels = base << level
        kept.append((x, channels))
        x = net.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = pair(x, channels, 2 * channels)
    channels *= 2
    for beside, width in reversed(kept):
        up = [x, net.weight(channels, width, 2, 2, fan=channels), net.small_weight(width)]
        x = net.node("ConvTranspose", up, strides=[2, 2], kernel_shape=[2, 2])
        x, channels = pair(net.node("Concat", [beside, x], axis=1), 2 * width, width), width
    net.output(net.conv(x, channels, 2, 1), "mask", 1, 2, size, size)
    return net.model()


def encoder(small: bool) -> onnx.ModelProto:
    """A transformer encoder: MiniLM's sizes, 6 layers of 384 with 12 heads, 128 tokens."""
    net = Net("encoder")
    layers, width, rows, count = (1, 64, 16, 4) if small else (6, 384, 128, 12)
    head = width // count
    x, mask = net.input("x", 1, rows, width), net.input("mask", 1, 1, 1, rows)
    for _ in range(layers):
        q, k, v = (net.heads(net.linear(x, width, width), rows, count, head) for _ in range(3))
        mixed = net.linear(net.attention(q, k, v, rows, width, head, mask), width, width)
        x = net.norm(net.node("Add", [x, mixed]), width)
        y = net.linear(net.gelu(net.linear(x, width, 4 * width)), 4 * width, width)
        x = net.norm(net.node("Add", [x, y]), width)
    net.output(x, "y", 1, rows, width)
    return net.model()


def lstm(small: bool) -> onnx.ModelProto:
    """Two bidirectional LSTM layers over a sequence, and a dense layer for each step."""
    net = Net("lstm")
    steps, width, hidden = (8, 16, 16) if small else (100, 128, 256)
    x = net.input("x", steps, 1, width)
    for _ in range(2):
        shapes = [(2, 4 * hidden, width), (2, 4 * hidden, hidden), (2, 8 * hidden)]
        fans = (width, hidden, 50)
        operands = [net.weight(*shape, fan=2 * fan) for shape, fan in zip(shapes, fans, strict=True)]
        y = net.node("LSTM", [x, *operands], hidden_size=hidden, direction="bidirectional")
        y = net.node("Transpose", [y], perm=[0, 2, 1, 3])
        x = net.node("Reshape", [y, net.constant(np.array([steps, 1, 2 * hidden], np.int64))])
        width = 2 * hidden
    net.output(net.linear(x, width, 32), "tags", steps, 1, 32)
    return net.model()


def decoder(small: bool) -> onnx.ModelProto:
    """One step of a decoder with the keys and values of earlier tokens as inputs: every weight is read once."""
    net = Net("decoder")
    layers, width, past, count, words = (1, 64, 7, 4, 50) if small else (8, 512, 127, 8, 8000)
    head = width // count
    x = net.input("x", 1, 1, width)
    for layer in range(layers):
        y = net.norm(x, width)
        q, k, v = (net.heads(net.linear(y, width, width), 1, count, head) for _ in range(3))
        new: list[str] = []
        for name, value in (("key", k), ("value", v)):
            before = net.input(f"{name}{layer}", 1, count, past, head)
            new.append(net.node("Concat", [before, value], axis=2))
            net.output(new[-1], f"new_{name}{layer}", 1, count, past + 1, head)
        x = net.node("Add", [x, net.linear(net.attention(q, new[0], new[1], 1, width, head), width, width)])
        y = net.linear(net.gelu(net.linear(net.norm(x, width), width, 4 * width)), 4 * width, width)
        x = net.node("Add", [x, y])
    net.output(net.linear(net.norm(x, width), width, words), "scores", 1, 1, words)
    return net.model()


NETWORKS: dict[str, Callable[[bool], onnx.ModelProto]] = {
    f.__name__: f for f in (mlp, resnet, mobilenet, unet, encoder, lstm, decoder)
}


def feeds(model: onnx.ModelProto) -> dict[str, np.ndarray[Any, Any]]:
    """Inputs for it: normally distributed, integers 0 or 1; a mask leaves the last eighth of the tokens out.

    Sizes that a model leaves open are 1.
    """
    random, found = np.random.default_rng(1), dict[str, np.ndarray[Any, Any]]()
    for value in model.graph.input:
        shape = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        numbers = random.standard_normal(shape, np.float32)
        found[value.name] = numbers.astype(kind) if kind.kind == "f" else (numbers > 0).astype(kind)
        if value.name == "mask":
            found[value.name] = np.zeros(shape, np.float32)
            found[value.name][..., -max(1, shape[-1] // 8) :] = -1e4
    return found
