"""Random single layers that kernels compute, drawn from a seed; `layers_of_loops.py` has the others.

Sizes are those that networks have, odd ones among them; each family chooses every option of its operators that changes
how they are computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from networks import Net
from onnx import TensorProto, helper, shape_inference

OPSET = 23
CHANNELS = (1, 3, 4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 768)
PLANES = (4, 5, 7, 9, 13, 14, 19, 26, 28, 35, 40, 56, 64, 75, 112, 160)
WIDTHS = (1, 2, 3, 4, 6, 8, 10, 16, 21, 32, 50, 64, 77, 96, 128, 197, 256, 320, 512, 768, 1000, 1536, 2048, 4096)
LENGTHS = (50, 64, 128, 300, 512, 1000, 3000, 8000)


@dataclass(frozen=True)
class Layer:
    """A model of one layer or a few, its inputs, and what it is in words."""

    family: str
    text: str
    model: onnx.ModelProto
    feeds: dict[str, Any]


class Draft(Net):
    """A layer in the making: a network whose sizes are drawn."""

    def __init__(self, random: np.random.Generator) -> None:
        super().__init__("layer")
        self.random, self.feeds, self.text = random, dict[str, Any](), ""

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def x(self, *shape: int, dtype: Any = np.float32, below: int = 0, sizes: tuple[Any, ...] = ()) -> str:
        """Add an input of normally distributed numbers or, `below` a number, of integers.

        sizes: those that the model declares, where some have names.
        """
        some = self.random.integers(0, below, shape) if below else self.random.standard_normal(shape)
        return self.given(some.astype(dtype), sizes)

    def given(self, array: Any, sizes: tuple[Any, ...] = ()) -> str:
        """Add an input that is fed this array."""
        name = f"x{len(self.feeds)}"
        self.feeds[name] = array
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, kind, sizes or array.shape))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def floats(self, *values: float) -> str:
        return self.constant(np.array(values, np.float32))

    def activated(self, y: str) -> str:
        """Add the operations that often follow a layer, or none."""
        kind = self.pick("", "", "Relu", "Relu", "Clip", "Silu", "HardSwish", "LeakyRelu")
        if kind == "Silu":
            return self.node("Mul", [y, self.node("Sigmoid", [y])])
        if kind == "Clip":
            return self.node("Clip", [y, self.constant(np.float32(0)), self.constant(np.float32(6))])
        return self.node(kind, [y]) if kind else y

    def layer(self, family: str, result: str) -> Layer:
        """Finish the model.  Its output has the element type that ONNX infers: f32 where it infers none."""
        self.node("Identity", [result], "y")
        graph = helper.make_graph(self.nodes, family, self.inputs, [], self.weights)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        types = {v.name: v.type.tensor_type.elem_type for v in shape_inference.infer_shapes(made).graph.value_info}
        made.graph.output.append(helper.make_tensor_value_info("y", types.get("y", TensorProto.FLOAT), None))
        return Layer(family, self.text, made, self.feeds)


# ------------------------------------------------------------------------------ convolutions
def convolution(d: Draft, rank: int, group: str = "") -> str:
    """A convolution of this rank; group: "depthwise", or drawn."""
    planes = {1: LENGTHS, 2: PLANES, 3: PLANES[:8]}[rank]
    side = d.pick(*planes)
    size = (side,) if rank == 1 else (side, *(d.pick(side, side, d.pick(*planes)) for _ in range(rank - 1)))
    inputs, outputs = d.pick(*CHANNELS), d.pick(*CHANNELS)
    groups = inputs if group == "depthwise" else d.pick(1, 1, 1, 2, 4, 8)
    groups = groups if inputs % groups == 0 else 1
    outputs = inputs * d.pick(1, 1, 1, 2) if group == "depthwise" else outputs + -outputs % groups
    tap = d.pick(*{1: (1, 2, 3, 5, 8, 15), 2: (1, 1, 3, 3, 5, 7), 3: (1, 3, 3, 5)}[rank])
    kernel = (*([tap] * (rank - 1)), d.pick(tap, tap, 3))
    stride, dilation = d.pick(1, 1, 2), d.pick(1, 1, 1, 2, d.pick(4, 64) if rank == 1 else 4)
    batch = d.pick(1, 1, 1, 3)
    pads = [dilation * (k - 1) // 2 for k in kernel]
    cost = 2 * batch * math.prod(size) * outputs * inputs // groups * math.prod(kernel) / stride**rank
    if cost > 4e9 or any((n + 2 * p - dilation * (k - 1) - 1) < 0 for n, p, k in zip(size, pads, kernel, strict=True)):
        return convolution(d, rank, group)
    d.text = f"{batch}x{inputs}x{'x'.join(map(str, size))} -> {outputs}, k{'x'.join(map(str, kernel))}"
    d.text += f" s{stride} d{dilation} g{groups}"
    operands = [d.x(batch, inputs, *size), d.small_weight(outputs, inputs // groups, *kernel), d.small_weight(outputs)]
    fields = {"strides": [stride] * rank, "dilations": [dilation] * rank, "group": groups}
    return d.activated(d.node("Conv", operands, pads=[*pads, *pads], kernel_shape=kernel, **fields))


def transposed(d: Draft) -> str:
    side, inputs, outputs = d.pick(*PLANES[:12]), d.pick(*CHANNELS[4:]), d.pick(*CHANNELS)
    k, stride = d.pick(2, 3, 4, 5), d.pick(1, 2, 2, 2, 3)
    if 2 * side * side * k * k * inputs * outputs > 4e9:
        return transposed(d)
    d.text = f"{inputs}x{side}x{side} -> {outputs}, k{k} s{stride}"
    operands = [d.x(1, inputs, side, side), d.small_weight(inputs, outputs, k, k), d.small_weight(outputs)]
    pad = max(k - stride, 0) // 2
    return d.activated(d.node("ConvTranspose", operands, strides=[stride] * 2, pads=[pad] * 4, kernel_shape=[k, k]))


def pool(d: Draft) -> str:
    channels, side, k, stride = d.pick(8, 24, 64, 192), d.pick(*PLANES[3:]), d.pick(2, 3, 3, 5), d.pick(1, 2)
    kind = d.pick("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool")
    d.text = f"{kind} {channels}x{side}x{side} k{k} s{stride}"
    fields = (
        {} if kind.startswith("Global") else {"kernel_shape": [k, k], "strides": [stride] * 2, "pads": [k // 2] * 4}
    )
    return d.node(kind, [d.x(1, channels, side, side)], **fields)


# ------------------------------------------------------------------------------ products
def matmul(d: Draft) -> str:
    batch, m, k, n = d.pick(1, 1, 1, 3, 12), d.pick(*WIDTHS), d.pick(*WIDTHS), d.pick(*WIDTHS)
    if 2 * batch * m * k * n > 4e9:
        return matmul(d)
    constant, turned = d.pick(True, False), d.pick(True, False)
    d.text = f"{batch} of {m}x{k} . {k}x{n}{' turned' if turned else ''}{' weights' if constant else ''}"
    a, shape = d.x(batch, m, k), (n, k) if turned else (k, n)
    b = d.small_weight(*shape) if constant else d.x(*([batch, *shape] if d.pick(0, 1) else shape))
    if turned:
        axes = {"perm": [0, 2, 1]} if not constant and len(d.feeds["x1"].shape) == 3 else {"perm": [1, 0]}
        b = d.node("Transpose", [b], **axes)
    return d.activated(d.node("MatMul", [a, b]))


def einsum(d: Draft) -> str:
    sizes = {
        "b": d.pick(1, 2, 8),
        "h": d.pick(2, 8, 12),
        "i": d.pick(7, 49, 128),
        "j": d.pick(16, 64, 100),
        "k": d.pick(3, 32, 64),
    }
    text = d.pick(
        "bij,bjk->bik", "bhik,bhjk->bhij", "bij,kj->bik", "bhij,bhjk->bihk", "bij,bij->bi", "ij,jk->ki", "bi,bj->bij"
    )
    d.text = f"{text} {' '.join(f'{n}{v}' for n, v in sizes.items() if n in text)}"
    operands = [d.x(*(sizes[n] for n in part)) for part in text.split("->")[0].split(",")]
    return d.node("Einsum", operands, equation=text)


def attention(d: Draft, shared: tuple[int, ...] = (1,)) -> str:
    """Scaled dot products; shared: how many heads of queries may share keys and values."""
    rows, keys, width, heads = (
        d.pick(1, 1, 16, 64, 197),
        d.pick(16, 64, 197, 512, 1500),
        d.pick(32, 64, 80, 128),
        d.pick(2, 4, 8),
    )
    shares = d.pick(*shared)
    d.text = f"{heads * shares} heads on {heads}, {rows} queries, {keys} keys of {width}"
    q, k, v = d.x(1, heads * shares, rows, width), d.x(1, heads, keys, width), d.x(1, heads, keys, width)
    if shares > 1:
        wide = d.ints(1, heads, shares, keys, width)
        k, v = (
            d.node(
                "Reshape",
                [d.node("Expand", [d.node("Unsqueeze", [x, d.ints(2)]), wide]), d.ints(1, heads * shares, keys, width)],
            )
            for x in (k, v)
        )
    scores = d.node("MatMul", [q, d.node("Transpose", [k], perm=[0, 1, 3, 2])])
    scores = d.node("Mul", [scores, d.constant(np.float32(width**-0.5))])
    if d.pick(True, False):
        scores = d.node("Add", [scores, d.x(1, 1, rows, keys)])
    return d.node("MatMul", [d.node("Softmax", [scores], axis=-1), v])


def recurrent(d: Draft) -> str:
    kind, steps, width, hidden, ways = (
        d.pick("LSTM", "GRU", "RNN"),
        d.pick(1, 10, 80),
        d.pick(24, 64, 256),
        d.pick(24, 64, 100, 256),
        d.pick(1, 2),
    )
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    d.text = f"{kind} {steps} steps, {width} -> {hidden} x{ways}"
    shapes = (ways, gates * hidden, width), (ways, gates * hidden, hidden), (ways, 2 * gates * hidden)
    operands = [d.x(steps, d.pick(1, 1, 4), width), *(d.small_weight(*s) for s in shapes)]
    return d.node(kind, operands, hidden_size=hidden, direction="bidirectional" if ways == 2 else "forward")


# ------------------------------------------------------------------------------ narrow types
def half(d: Draft) -> str:
    """Weights that are stored in f16, with f32 around them, or all of it in f16."""
    m, k, n = d.pick(1, 4, 64, 197), d.pick(64, 300, 768), d.pick(64, 1000, 2048)
    weights = d.constant((0.1 * d.random.standard_normal((k, n))).astype(np.float16))
    if d.pick(True, False):
        d.text = f"f16 weights, {m}x{k} . {k}x{n}"
        return d.node("MatMul", [d.x(m, k), d.node("Cast", [weights], to=TensorProto.FLOAT)])
    d.text = f"all in f16, {m}x{k} . {k}x{n}"
    return d.node("MatMul", [d.x(m, k, dtype=np.float16), weights])


def compressed(d: Draft) -> str:
    """A product with weights of 4 bits and a scale for each block of a column, as decoders have them."""
    m, k, n = d.pick(1, 1, 1, 4, 16, 64), d.pick(256, 768, 1000, 2048, 4096), d.pick(256, 768, 1000, 3072, 8192)
    block, own = d.pick(32, 64, 128), d.pick(True, False)
    d.text = f"weights of 4 bits in {block}{' with zero points' if own else ''}, {m}x{k} . {k}x{n}"
    blocks = -(-k // block)
    packed = d.random.integers(0, 256, (n, blocks, block // 2)).astype(np.uint8)
    operands = [d.x(m, k), d.constant(packed), d.constant((0.01 * d.random.random(n * blocks)).astype(np.float32))]
    if own:
        operands.append(d.constant(d.random.integers(0, 256, n * -(-blocks // 2)).astype(np.uint8)))
    return d.node("MatMulNBits", operands, domain="com.microsoft", K=k, N=n, bits=4, block_size=block)


def quantized(d: Draft) -> str:
    """A product or a convolution of 8-bit integers, as quantizers write them."""
    if d.pick(True, False):
        m, k, n = d.pick(1, 1, 16, 128), d.pick(64, 256, 768), d.pick(64, 300, 1024)
        d.text = f"dynamic {m}x{k} . {k}x{n}"
        x = d.x(m, k)
        rounded, scale, zero = f"{x}q", f"{x}s", f"{x}z"
        d.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], [rounded, scale, zero]))
        weights = d.constant(d.random.integers(-127, 128, (k, n)).astype(np.int8))
        sums = d.node("Cast", [d.node("MatMulInteger", [rounded, weights, zero])], to=TensorProto.FLOAT)
        return d.node("Mul", [sums, d.node("Mul", [scale, d.floats(*([0.01] * n))])])
    side, inputs, outputs, k = d.pick(7, 14, 28, 56), d.pick(16, 64, 128), d.pick(16, 64, 256), d.pick(1, 3)
    d.text = f"Conv of u8 and i8, {inputs}x{side}x{side} -> {outputs}, k{k}"
    scale, zero, none = d.constant(np.float32(0.02)), d.constant(np.uint8(128)), d.constant(np.int8(0))
    x = d.node("DequantizeLinear", [d.node("QuantizeLinear", [d.x(1, inputs, side, side), scale, zero]), scale, zero])
    weights = d.constant(d.random.integers(-127, 128, (outputs, inputs, k, k)).astype(np.int8))
    weights = d.node("DequantizeLinear", [weights, d.constant(np.float32(0.01)), none])
    y = d.node("Relu", [d.node("Conv", [x, weights], pads=[k // 2] * 4)])
    scale = d.constant(np.float32(0.1))
    return d.node("DequantizeLinear", [d.node("QuantizeLinear", [y, scale, zero]), scale, zero])
