"""One-hot encoding: OneHot.

Sources: ONNX OneHot; OpenVINO specification, OneHot-1 and -16.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.expr import Expr, IndexFunction, Tensor, select
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import at_most
from irc.ir.types import ANY, TensorType, i64
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Enum, Int
from irc.opdef.conversions import as_scalar
from irc.opdef.forms import Form, write_only
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX, ONNX_ALL, ONNX_NUMBERS, OV_ANY, onnx_all
from irc.ops.gather import wrapped
from irc.ops.layout import normal_axis

NEGATIVE = Enum({"ignore_negative": "ignore", "normalize": "wrap"}, "ignore", to="negative")


def whole_number(b: Builder, value: Value) -> Value:
    """The value as an integer; a constant stays one."""
    if value.array is not None and not value.dtype.is_integer:
        return b.const(np.asarray(value.array).astype(np.int64))
    return value if value.dtype.is_integer else b.Cast(value, to=i64)


def write_one_hot(b: Builder, op: OneHot, indices: Value, depth: Value, on: Value, off: Value) -> Value:
    """ONNX has off and on in one operand, and counts negative indices from the end."""
    if op.negative == "ignore":
        indices = b.Where(b.Less(indices, b.like(0, indices)), _depth_like(b, depth, indices), indices)
    values = b.Concat(b.Reshape(off, [1]), b.Reshape(on, [1]), axis=0)
    if indices.rank == 0:  # which ONNX takes no indices of
        return b.Reshape(b.OneHotPair(b.Reshape(indices, [1]), depth, values), [-1])
    return b.OneHotPair(indices, depth, values, axis=op.axis)


def _depth_like(b: Builder, depth: Value, indices: Value) -> Value:
    """The depth: an index that no element has."""
    one = as_scalar(b, depth)
    return one if one.dtype == indices.dtype else b.Cast(one, to=indices.dtype)


def ignoring(op: OneHot, *operands: Value | None) -> bool:
    return op.negative == "ignore"


def write_ignoring(b: Builder, op: OneHot, indices: Value, depth: Value, on: Value, off: Value) -> Value:
    """Negative indices are counted from 0 first, where the version ignores them."""
    size = _depth_like(b, depth, indices)
    moved = b.Where(b.Less(indices, b.like(0, indices)), b.Add(indices, size), indices)
    return b.OneHot(moved, depth, on, off, axis=op.axis)


@op
class OneHot(Op):
    """A new axis of size `depth`: `on` where its position is the index, `off` elsewhere.

    negative "wrap": a negative index counts from the end; "ignore": it is no position.
    """

    axis: int = -1
    negative: str = "ignore"
    sig = Sig("indices: I, depth: D[one], on: T[one], off: T[one] -> y: T", I=ONNX_ALL, D=ONNX_ALL, T=ANY)

    def infer(self, indices: Value, depth: Value, on: Value, off: Value) -> TensorType:
        if indices.rank is None:
            return TensorType(on.dtype, None)
        at = normal_axis("OneHot", self.axis, len(indices.shape) + 1)
        sizes = depth.dims()
        if sizes is None and depth.array is not None:
            sizes = [Dim.of(int(depth.array.reshape(-1)[0]))]
        size = sizes[0] if sizes else Dim.fresh("depth")
        require(at_most(1, size), codes.SIZE_RANGE, op="OneHot", what="depth", value=size, expected="at least 1")
        return TensorType(on.dtype, (*indices.shape[:at], size, *indices.shape[at:]))

    def run_sizes(
        self, b: Builder, out: TensorType, indices: Value, depth: Value, on: Value, off: Value
    ) -> Iterable[tuple[Dim, Value]]:
        yield out.dims()[self.axis % len(out.dims())], depth

    def reference(self, indices: Array, depth: Array, on: Array, off: Array) -> Array:
        size = int(np.asarray(depth).reshape(-1)[0])
        if size < 0:
            raise ValueError(f"depth is {size}")
        picks = indices.astype(np.int64)
        if self.negative == "wrap":
            picks = np.where(picks < 0, picks + size, picks)
        at = self.axis % (indices.ndim + 1)
        hit = np.expand_dims(picks, at) == np.arange(size).reshape((-1,) + (1,) * (indices.ndim - at))
        return np.where(hit, on.reshape(()), off.reshape(()))

    def compute(self, out: TensorType, indices: Tensor, depth: Tensor, on: Tensor, off: Tensor) -> IndexFunction:
        at = self.axis % (indices.rank + 1)
        size = out.dims()[at]

        def element(*i: Expr) -> Expr:
            pick = indices[(*i[:at], *i[at + 1 :])].cast(i64)
            pick = wrapped(pick, size) if self.negative == "wrap" else pick
            return select(pick.eq(i[at]), on[(0,) * on.rank], off[(0,) * off.rank])

        return element

    openvino = (
        Form(
            "OneHot",
            1,
            attrs={"axis": Int(assumed=0)},
            T={"I": INDEX, "D": INDEX, "T": OV_ANY},
            when=ignoring,
            write=write_ignoring,
        ),
        Form("OneHot", 16, attrs={"axis": Int(assumed=0), "negative_indices_mode": NEGATIVE}, when=None),
    )
    onnx = (write_only(write_one_hot),)


@op
class OneHotPair(Op):
    """ONNX's OneHot: operands of any numeric type, `off` and `on` as a vector of two; negative indices wrap."""

    axis: int = -1
    sig = Sig("indices: I, depth: D[one], values: T[1] -> y: T", I=ONNX_ALL, D=ONNX_ALL, T=ANY)

    def decompose(self, b: Builder, indices: Value, depth: Value, values: Value) -> Value:
        off, on = (b.Gather(values, b.const(k), b.const(0)) for k in (0, 1))
        size = whole_number(b, depth)
        size = as_scalar(b, size)
        return b.OneHot(whole_number(b, indices), size, on, off, axis=self.axis, negative="wrap")

    onnx = (
        Form("OneHot", 9, attrs={"axis": Int(-1)}, T={"I": ONNX_NUMBERS, "D": ONNX_NUMBERS, "T": ONNX_ALL}),
        Form("OneHot", 11),
        Form("OneHot", 28, T={"T": onnx_all(13)}),
    )
