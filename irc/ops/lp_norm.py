"""Normalisation by the length of vectors, or by the neighbourhood (local response).

Narrow floats are computed in f32.  Sources: ONNX LpNormalization, LRN; OpenVINO specification,
NormalizeL2-1, GRN-1, LRN-1.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from irc.diagnostics import Problem, require
from irc.diagnostics.codes import conversion, operation as codes, shape as shape_codes
from irc.expr import Const, Expr, IndexFunction, Tensor, call, index, inside, reduce, select
from irc.ir.graph import Value
from irc.ir.literal import AttributeValue
from irc.ir.types import FLOATS, FLOATS_BF16, INTEGERS, DType, TensorType, bf16, boolean
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Enum, Float, Int, single
from irc.opdef.forms import PREV, Attributes, Form, Results
from irc.opdef.precision import narrowed, rounded, wide, widened
from irc.opdef.signature import Sig
from irc.ops.layout import constant_ints, normal_axes, normal_axis
from irc.ops.reduce import axes_vector


@op
class LpNormalization(Op):
    """x / ‖x‖ₚ along an axis, p 1 or 2; 0 where the norm is 0."""

    axis: int = -1
    p: int = 2
    sig = Sig("x: T -> y: T", T=FLOATS_BF16)

    def infer(self, x: Value) -> TensorType:
        normal_axis(self.name, self.axis, len(x.shape))
        require(self.p in (1, 2), codes.ATTRIBUTE_RANGE, op=self.name, attribute="p", value=self.p, expected="1 or 2")
        return x.tensor

    def reference(self, x: Array) -> Array:
        w = wide(x)
        length = np.sum(np.abs(w) if self.p == 1 else w * w, axis=self.axis, keepdims=True)
        length = length if self.p == 1 else np.sqrt(length)
        return rounded(np.where(length == 0, w.dtype.type(0), w / length), x)  # pyright: ignore

    def decompose(self, b: Builder, x: Value) -> Value:
        w = widened(b, x)
        length = (b.ReduceL1 if self.p == 1 else b.ReduceL2)(w, [self.axis])
        zero = b.const(0.0, w.dtype)
        return narrowed(b, b.Where(b.Equal(length, zero), zero, b.Div(w, length)), x)

    onnx = (
        Form("LpNormalization", 1, attrs={"axis": Int(-1), "p": Int(2)}, T=FLOATS),
        Form("LpNormalization", 22, T=PREV | {bf16}),
    )


def read_normalize_l2(b: Builder, a: Attributes, x: Value, axes: Value) -> Value:
    return b.NormalizeL2(x, axes_vector(b, axes), eps=a.eps, eps_mode=a.eps_mode)


@op
class NormalizeL2(Op):
    """x / sqrt(s), s = Σ x² over the axes + eps, or with eps_mode "max" at least eps.  Without axes all ones."""

    eps: float
    eps_mode: str
    sig = Sig("x: T, axes: I[0..1] -> y: T", T=FLOATS_BF16, I=INTEGERS)

    def infer(self, x: Value, axes: Value) -> TensorType:
        normal_axes(self.name, axes.ints() or [], len(x.shape))
        return x.tensor

    def reference(self, x: Array, axes: Array) -> Array:
        w = wide(x)
        if axes.size == 0:
            return np.ones_like(x)
        square = np.sum(w * w, axis=tuple(int(a) for a in axes.reshape(-1)), keepdims=True)
        return rounded(w / np.sqrt(square + self.eps if self.eps_mode == "add" else np.maximum(square, self.eps)), x)

    def decompose(self, b: Builder, x: Value, axes: Value) -> Value:
        w = widened(b, x)
        if axes.tensor.elements() == 0:
            return b.Expand(b.const(1.0, x.dtype), b.dims(x.shape))
        square = b.ReduceSum(b.Mul(w, w), axes)
        eps = b.const(self.eps, w.dtype)
        return narrowed(b, b.Div(w, b.Sqrt(b.Add(square, eps) if self.eps_mode == "add" else b.Max(square, eps))), x)

    openvino = (
        Form(
            "NormalizeL2",
            1,
            T={"T": FLOATS_BF16, "I": INTEGERS},
            direct=True,
            read=read_normalize_l2,
            attrs={"eps": Float(assumed=0.0), "eps_mode": Enum(["add", "max"], assumed="add")},
        ),
    )


@op
class GRN(Op):
    """x / sqrt(Σ x² over the channels + bias)."""

    bias: float
    sig = Sig("x: T -> y: T", T=FLOATS_BF16)

    def infer(self, x: Value) -> TensorType:
        require(len(x.shape) >= 2, shape_codes.WRONG_RANK, op="GRN", operand="x", type=x.tensor, expected="2 to 4")
        return x.tensor

    def reference(self, x: Array) -> Array:
        w = wide(x)
        return rounded(w / np.sqrt(np.sum(w * w, axis=1, keepdims=True) + self.bias), x)

    def decompose(self, b: Builder, x: Value) -> Value:
        w = widened(b, x)
        square = b.ReduceSum(b.Mul(w, w), [1])
        return narrowed(b, b.Div(w, b.Sqrt(b.Add(square, b.const(self.bias, w.dtype)))), x)

    openvino = (Form("GRN", 1, attrs={"bias": Float(assumed=1.0)}, T=FLOATS_BF16),)


# ----------------------------------------------------------------------- local response normalisation
def read_lrn(b: Builder, a: Attributes, x: Value, axes: Value) -> Results:
    """OpenVINO's runtime drops the fraction of `bias`, and sums over size - 1 elements where the size is even."""
    finite = math.isfinite(a.bias)
    require(finite, codes.ATTRIBUTE_RANGE, op=b.label, attribute="bias", value=a.bias, expected="finite")
    size, alpha = a.size, a.alpha
    if size > 0 and size % 2 == 0:
        count = len(constant_ints("LRN", "axes", axes))
        size, alpha = size - 1, alpha * ((size - 1) / size) ** count
    return b.LRN(x, axes, size=size, alpha=alpha, beta=a.beta, bias=float(int(a.bias)))


def same_in_openvino(op: LRN, x: Value, axes: Value | None = None) -> bool:
    """Whether OpenVINO's runtime computes the same of these attributes: see `read_lrn`."""
    return op.bias == int(op.bias) and op.size % 2 == 1


def even_window(b: Builder, op: LRN, x: Value, over: list[int]) -> Value:
    """LRN over windows with one more element after the middle than before: pooled means of x²."""
    rank = len(x.shape)
    first = 2 - min(over)  # a pool spares two axes: as many of size 1 as are missing come first
    front = list(range(max(first, 0)))
    spatial = rank + len(front) - 2
    if spatial > 3:
        what, reason = f"{op} over axes {over}", "its pools have at most three axes"
        raise Problem(conversion.CANNOT_EXPRESS, op=what, types=str(x.type), target="OpenVINO", reason=reason)
    sizes = [op.size if axis + 2 - len(front) in over else 1 for axis in range(spatial)]
    w = b.Mul(x, x)
    w = b.Unsqueeze(w, front) if front else w
    w = b.AveragePool(
        w,
        kernel=tuple(sizes),
        strides=(1,) * spatial,
        counted="padded",
        pads_begin=tuple((n - 1) // 2 for n in sizes),
        pads_end=tuple(n // 2 for n in sizes),
    )
    w = b.Squeeze(w, front) if front else w
    base = b.Add(b.Mul(w, b.const(op.alpha, x.dtype)), b.const(op.bias, x.dtype))
    return b.Div(x, b.Pow(base, b.const(op.beta, x.dtype)))


def write_lrn_openvino(b: Builder, op: LRN, x: Value, axes: Value | None = None) -> Results:
    """Without axes: the channels.  A bias with a fraction, which OpenVINO would drop: divided out first."""
    over = b.const([1]) if axes is None else axes
    if op.size % 2 == 0:
        along = [1] if axes is None else constant_ints("LRN", "axes", axes)
        if along:
            return even_window(b, op, x, list(normal_axes("LRN", along, len(x.shape))))
        op = dataclasses.replace(op, size=1)  # without windows the size is nowhere
    if same_in_openvino(op, x):
        return b.add(op, x, over)
    y = b.add(dataclasses.replace(op, alpha=op.alpha / op.bias, bias=1.0), x, over)
    return b.Mul(y, b.const(op.bias**-op.beta, x.dtype))


def window(size: int, count: int) -> tuple[int, int]:
    """How many elements before and after one are in its window of `size`, on an axis of `count` elements.

    Those that no element of the axis has are left out.
    """
    most = max(count - 1, 0)
    return min((size - 1) // 2, most), min(size // 2, most)


def window_sum(w: Array, axis: int, size: int) -> Array:
    """Sums of `size` neighbours along an axis; outside counts as 0."""
    n = w.shape[axis]
    before, after = window(size, n)
    pads = [(before, after) if i == axis else (0, 0) for i in range(w.ndim)]
    padded = np.pad(w, pads)
    total = np.take(padded, np.arange(n), axis)  # pyright: ignore
    for k in range(1, before + after + 1):
        total = total + np.take(padded, np.arange(k, k + n), axis)  # pyright: ignore
    return total


def over_channels(op: LRN, x: Value, axes: Value | None = None) -> bool:
    return axes is None


def write_lrn(b: Builder, op: LRN, x: Value, axes: Value | None = None) -> Results:
    """ONNX: along axis 1 only.  Others: one is moved there; several become a mean over windows of x²."""
    if axes is None:
        reason = f"its LRN has no {x.dtype}"
        raise Problem(conversion.CANNOT_EXPRESS, op=str(op), types=str(x.type), target="this opset", reason=reason)
    rank = len(x.shape)
    over = list(normal_axes("LRN", constant_ints("LRN", "axes", axes), rank))
    if over == [1]:
        return b.add(op, x)
    if len(over) == 1 and rank > 1:
        order = list(range(rank))
        order[1], order[over[0]] = order[over[0]], order[1]
        return b.Transpose(b.add(op, b.Transpose(x, order)), order)
    pads_begin = [(op.size - 1) // 2 if a in over else 0 for a in range(2, rank)]
    pads_end = [op.size // 2 if a in over else 0 for a in range(2, rank)]
    kernel = [op.size if a in over else 1 for a in range(2, rank)]
    spatial = not over or min(over) >= 2
    what, reason = f"LRN over axes {over}", "its pools have neither the batch nor the channels among their axes"
    require(spatial, conversion.CANNOT_EXPRESS, op=what, types=str(x.type), target="ONNX", reason=reason)
    w = b.Mul(x, x)
    if over:
        pads: dict[str, AttributeValue] = {
            "pads_begin": tuple(pads_begin),
            "pads_end": tuple(pads_end),
            "counted": "padded",
        }
        w = b.AveragePool(w, kernel=tuple(kernel), strides=(1,) * len(kernel), **pads)
    base = b.Add(b.Mul(w, b.const(op.alpha, x.dtype)), b.const(op.bias, x.dtype))
    return b.Div(x, b.Pow(base, b.const(op.beta, x.dtype)))


@op
class LRN(Op):
    """x / (bias + alpha / sizeᵏ · Σ x²)^beta, the sum over windows of `size` along k axes (1 where absent)."""

    size: int
    alpha: float = single(1e-4)
    beta: float = 0.75
    bias: float = 1.0
    sig = Sig("x: T, axes?: I[0..1] -> y: T", T=FLOATS_BF16, I=INTEGERS)

    def infer(self, x: Value, axes: Value | None = None) -> TensorType:
        given = [1] if axes is None else constant_ints(self.name, "axes", axes)
        normal_axes(self.name, given, len(x.shape))
        require(self.size > 0, codes.ATTRIBUTE_RANGE, op="LRN", attribute="size", value=self.size, expected="positive")
        return x.tensor

    def reference(self, x: Array, axes: Array | None = None) -> Array:
        w = wide(x)
        over = [1] if axes is None else [int(a) % x.ndim for a in axes.reshape(-1)]
        square = w * w
        for axis in over:
            square = window_sum(square, axis, self.size)
        return rounded(w / (self.bias + square * (self.alpha / self.size ** len(over))) ** self.beta, x)

    def compute(self, out: TensorType, x: Tensor, axes: Tensor | None = None) -> IndexFunction:
        over = [1] if axes is None else [a % x.rank for a in axes.ints() or []]
        kind, shape = x.dtype.compute, out.dims()
        windows = [window(self.size, d.const if d.const is not None else self.size) for d in (shape[a] for a in over)]

        def element(*i: Expr) -> Expr:
            def square(*r: Expr) -> Expr:
                at = list(i)
                ok: Expr = Const(True, boolean)
                for axis, k, (before, _) in zip(over, r, windows, strict=True):
                    at[axis] = i[axis] + k - index(before)
                    ok = ok.logical_and(inside(at[axis], shape[axis]))
                v = x[tuple(at)].cast(kind)
                return select(ok, v * v, 0.0)

            total = reduce("sum", [1 + before + after for before, after in windows], square) if over else square()
            base = total * (self.alpha / self.size ** len(over)) + self.bias
            return (x[i].cast(kind) / self._power(base, kind)).cast(x.dtype)

        return element

    def _power(self, base: Expr, kind: DType) -> Expr:
        """baseᵇᵉᵗᵃ by square roots, where these make it up: they take half as long as a power."""
        if self.beta not in (0.5, 0.75):
            return call("pow", base, Const(self.beta, kind))
        root = call("sqrt", base)
        return root if self.beta == 0.5 else root * call("sqrt", root)

    onnx = (
        Form(
            "LRN",
            1,
            T={"T": FLOATS},
            sig=Sig("x: T -> y: T", T=FLOATS_BF16),
            when=over_channels,
            write=write_lrn,
            attrs={"size": Int(), "alpha": Float(single(1e-4)), "beta": Float(0.75), "bias": Float(1.0)},
        ),
        Form("LRN", 13, T={"T": FLOATS_BF16}),
    )
    openvino = (
        Form(
            "LRN",
            1,
            T={"T": FLOATS_BF16, "I": INTEGERS},
            read=read_lrn,
            direct=True,
            when=same_in_openvino,
            write=write_lrn_openvino,
            sig=Sig("x: T, axes: I[0..1] -> y: T", T=FLOATS_BF16, I=INTEGERS),
            attrs={
                "alpha": Float(assumed=0.0),
                "beta": Float(assumed=0.0),
                "bias": Float(assumed=0.0),
                "size": Int(assumed=0),
            },
        ),
    )
