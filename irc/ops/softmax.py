"""Softmax, LogSoftmax, Hardmax along one axis.

Narrow floats are computed in f32 and rounded once, but for Softmax of f16.  ONNX before opset 13 flattened the operand
to a matrix at `axis`; that is a Reshape at the border.  Sources: ONNX Softmax, LogSoftmax, Hardmax; OpenVINO
specification, SoftMax-1, SoftMax-8, LogSoftmax-5.
"""

from __future__ import annotations

import numpy as np

from irc.ir.dim import product
from irc.ir.graph import Value
from irc.ir.types import FLOATS, FLOATS_BF16, TensorType, bf16, boolean, f16, f32, string
from irc.opdef.base import Array, Op, op, op_base
from irc.opdef.builder import Builder
from irc.opdef.codecs import Int
from irc.opdef.forms import PREV, Attributes, Form, Read, Results, write_only
from irc.opdef.precision import narrowed, rounded, wide, widened
from irc.opdef.signature import Sig
from irc.ops.activation import OV_LOOSE
from irc.ops.layout import normal_axis, reshaped

OV_SOFTMAX = OV_LOOSE | {boolean, string}
"""What OpenVINO's validation takes."""


def flattened_read(name: str) -> Read:
    """ONNX until 12: along all axes from `axis` on, as one."""

    def read(b: Builder, a: Attributes, x: Value) -> Results:
        rank = len(x.shape)
        axis = normal_axis(name, a.axis, rank) if a.axis != rank else rank
        if axis == rank - 1:
            return b.operation(name)(x, axis=-1)
        matrix = [product(x.shape[:axis]), product(x.shape[axis:])]
        y = b.operation(name)(reshaped(b, x, matrix), axis=-1)
        return reshaped(b, y, x.shape)

    return read


def last_axis(op: AlongAxis, x: Value) -> bool:
    """Whether the flattening of ONNX until 12 makes no difference."""
    return op.axis in (-1, len(x.shape) - 1)


def write_last(b: Builder, op: AlongAxis, x: Value) -> Results:
    """ONNX until 12: the axis is moved to the end."""
    rank = len(x.shape)
    axis = op.axis % rank
    order = [i for i in range(rank) if i != axis] + [axis]
    y = b.add(type(op)(axis=rank - 1), b.Transpose(x, order))
    return b.Transpose(y, [order.index(i) for i in range(rank)])


def onnx_rows(name: str) -> tuple[Form, ...]:
    return (
        Form(
            name,
            1,
            attrs={"axis": Int(1)},
            T=FLOATS,
            read=flattened_read(name),
            direct=True,
            when=last_axis,
            write=write_last,
        ),
        Form(name, 11),
        Form(name, 13, attrs={"axis": Int(-1)}, T=PREV | {bf16}, read=None, when=None, write=None),
    )


@op_base
class AlongAxis(Op):
    """One float operand, normalised along `axis`."""

    axis: int = -1
    sig = Sig("x: T -> y: T", T=FLOATS_BF16)

    def infer(self, x: Value) -> TensorType:
        normal_axis(self.name, self.axis, len(x.shape))
        return x.tensor


def read_softmax(b: Builder, a: Attributes, x: Value) -> Results:
    """OpenVINO's validation takes other element types too; they are computed in f32."""
    if x.dtype in FLOATS_BF16 or x.dtype.kind == "?":
        return b.Softmax(x, axis=a.axis)
    return b.Cast(b.Softmax(b.Cast(x, to=f32), axis=a.axis), to=x.dtype)


def from_the_front(op: AlongAxis, x: Value) -> bool:
    """OpenVINO counts the axis from the front until version 8."""
    return op.axis >= 0


def write_from_the_front(b: Builder, op: AlongAxis, x: Value) -> Value:
    return b.Softmax(x, axis=op.axis % len(x.shape))


def write_decomposed(b: Builder, op: LogSoftmax, x: Value) -> Value:
    return op.decompose(b, x)


@op
class Softmax(AlongAxis):
    """e^(x - m) / Σ e^(x - m) along the axis, m the largest x there.

    Of f16, powers and sums are rounded as in ONNX's function body, but for sums that are too large for an f16.
    """

    def reference(self, x: Array) -> Array:
        w = wide(x)
        e = np.exp(w - np.max(w, axis=self.axis, keepdims=True, initial=-np.inf))
        if x.dtype == np.float16:
            e = e.astype(np.float16).astype(np.float32)
        total: Array = np.sum(e, axis=self.axis, keepdims=True)
        if x.dtype == np.float16:
            near: Array = np.minimum(total, 65504).astype(np.float16).astype(np.float32)
            total = np.where(total < 65504, near, total)  # pyright: ignore[reportUnknownVariableType]
        return rounded(np.asarray(e / total), x)

    def decompose(self, b: Builder, x: Value) -> Value:
        w = widened(b, x)
        e = b.Exp(b.Sub(w, b.ReduceMax(w, [self.axis])))
        if x.dtype != f16:
            return narrowed(b, b.Mul(e, b.Reciprocal(b.ReduceSum(e, [self.axis]))), x)
        e = widened(b, narrowed(b, e, x))
        total = b.ReduceSum(e, [self.axis])
        fits = b.Less(total, b.like(65504.0, total))
        return narrowed(b, b.Div(e, b.Where(fits, widened(b, narrowed(b, total, x)), total)), x)

    onnx = onnx_rows("Softmax")
    openvino = (
        Form(
            "SoftMax",
            1,
            attrs={"axis": Int(1)},
            T=OV_SOFTMAX,
            read=read_softmax,
            direct=True,
            when=from_the_front,
            write=write_from_the_front,
        ),
        Form("SoftMax", 8, when=None, write=None),
    )


@op
class LogSoftmax(AlongAxis):
    """log of Softmax: x - m - log Σ e^(x - m) along the axis."""

    def reference(self, x: Array) -> Array:
        w = wide(x)
        d = w - np.max(w, axis=self.axis, keepdims=True, initial=-np.inf)
        return rounded(d - np.log(np.sum(np.exp(d), axis=self.axis, keepdims=True)), x)

    def decompose(self, b: Builder, x: Value) -> Value:
        w = widened(b, x)
        d = b.Sub(w, b.ReduceMax(w, [self.axis]))
        return narrowed(b, b.Sub(d, b.Log(b.ReduceSum(b.Exp(d), [self.axis]))), x)

    onnx = onnx_rows("LogSoftmax")
    openvino = (Form("LogSoftmax", 5, attrs={"axis": Int(1)}, T=FLOATS_BF16), write_only(write_decomposed))


@op
class Hardmax(AlongAxis):
    """1 at the first largest element along the axis, 0 elsewhere."""

    def reference(self, x: Array) -> Array:
        if not x.size:
            return np.zeros(x.shape, x.dtype)
        at = np.expand_dims(np.argmax(wide(x), axis=self.axis), self.axis)
        y = np.zeros(x.shape, x.dtype)
        np.put_along_axis(y, at, x.dtype.type(1), self.axis)
        return y

    def decompose(self, b: Builder, x: Value) -> Value:
        """The position of the largest, compared with each position: a running count gives those."""
        rank = len(x.shape)
        axis = self.axis % rank
        size = x.shape[axis]
        if size.is_const:
            places = b.const(np.arange(int(size)).reshape([-1] + [1] * (rank - 1 - axis)))
        else:
            ones = b.Expand(b.const(1), b.dims([size]))
            places = reshaped(b, b.CumSum(ones, 0, exclusive=True), [size] + [1] * (rank - 1 - axis))
        return b.Cast(b.Equal(b.ArgMax(x, axis=axis, keepdims=True), places), to=x.dtype)

    onnx = onnx_rows("Hardmax")
