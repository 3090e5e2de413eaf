"""Clip: values kept between two bounds.  Sources: ONNX Clip; OpenVINO specification, Clamp-1."""

from __future__ import annotations

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation
from irc.expr import Expr, IndexFunction, Tensor
from irc.formats.document import Attr
from irc.ir.graph import Value
from irc.ir.types import FLOATS, INTEGERS, NUMERIC, DType, TensorType, bf16
from irc.opdef.base import Array, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import AsInput, Codec, Float, Reading, single
from irc.opdef.elementwise import Elementwise
from irc.opdef.forms import PREV, Attributes, Form, Results, write_only
from irc.opdef.signature import Sig
from irc.ops.activation import CONSUMED
from irc.ops.arithmetic import OV_NUMERIC
from irc.ops.early_onnx import write_clip_by_extremes


@dataclass(frozen=True)
class Bound(AsInput):
    """A bound of OpenVINO's Clamp: of integers the whole number inside, kept within the type."""

    up: bool = False

    def array(self, raw: Attr, r: Reading, dtype: DType) -> Array:
        value = Float().decode(raw, r)
        if not dtype.is_integer:
            return np.array(value).astype(dtype.numpy)
        if math.isnan(value):
            raise r.bad(raw, "a number")
        limits = ml_dtypes.iinfo(dtype.numpy)  # NumPy knows none of 4-bit integers
        if math.isinf(value):
            return np.array(limits.max if value > 0 else limits.min, dtype.numpy)
        whole = math.ceil(value) if self.up else math.floor(value)
        return np.array(min(max(whole, int(limits.min)), int(limits.max)), dtype.numpy)


def write_clip(b: Builder, op: Clip, x: Value, lo: Value | None = None, hi: Value | None = None) -> Results:
    """With bounds that are absent or not constant."""
    y = x if lo is None else b.Max(x, lo)
    return b.Identity(x) if lo is None and hi is None else y if hi is None else b.Min(y, hi)


def clip(x: Array, lo: Array | None, hi: Array | None) -> Array:
    """The upper bound wins where the bounds cross."""
    y = x if lo is None else np.maximum(x, lo)
    return y if hi is None else np.minimum(y, hi)


def read_clamp(b: Builder, a: Attributes, x: Value, lo: Value, hi: Value) -> Value:
    """OpenVINO refuses bounds that cross; ONNX lets the upper one win."""
    low, high = lo.array, hi.array
    ordered = low is None or high is None or bool(low <= high)
    require(
        ordered, operation.ATTRIBUTE_RANGE, op="Clamp", attribute="min", value=low, expected=f"at most max = {high}"
    )
    return b.Clip(x, lo, hi)


def ordered_bounds(op: Clip, x: Value, lo: Value | None = None, hi: Value | None = None) -> bool:
    known = lo is not None and hi is not None and lo.array is not None and hi.array is not None
    return not known or bool(lo.array <= hi.array)  # type: ignore[union-attr, operator]


LARGEST = single(3.4028234663852886e38)
CLIP_6: dict[str, Codec] = {
    "min": AsInput(-LARGEST, index=1, scalar=True),
    "max": AsInput(LARGEST, index=2, scalar=True),
}


@op
class Clip(Elementwise):
    """min(max(x, lo), hi); an absent bound does not limit.  NaN stays NaN."""

    sig = Sig("x: T, lo?: T[one], hi?: T[one] -> y: T", T=NUMERIC)

    def infer(self, x: Value, lo: Value | None = None, hi: Value | None = None) -> TensorType:
        return x.tensor

    def reference(self, x: Array, lo: Array | None = None, hi: Array | None = None) -> Array:
        return clip(x, lo, hi)

    def compute(self, out: TensorType, x: Tensor, lo: Tensor | None = None, hi: Tensor | None = None) -> IndexFunction:
        shape = out.dims()

        def element(*i: Expr) -> Expr:
            y = x[i]
            if lo is not None:
                y = y.max(lo.broadcast(i, shape))
            return y if hi is None else y.min(hi.broadcast(i, shape))

        return element

    onnx = (
        Form(
            "Clip",
            1,
            T=FLOATS,
            write=write_clip,
            attrs={"min": AsInput(None, index=1, scalar=True), "max": AsInput(None, index=2, scalar=True), **CONSUMED},
        ),
        Form("Clip", 6, attrs=CLIP_6),
        Form("Clip", 11, attrs={}),
        Form("Clip", 12, T=FLOATS | INTEGERS),
        Form("Clip", 13, T=PREV | {bf16}),
        write_only(write_clip_by_extremes),
    )
    openvino = (
        Form(
            "Clamp",
            1,
            T=OV_NUMERIC,
            read=read_clamp,
            direct=True,
            when=ordered_bounds,
            write=write_clip,
            attrs={
                "min": Bound(assumed=0.0, index=1, scalar=True, up=True),
                "max": Bound(assumed=0.0, index=2, scalar=True),
            },
        ),
    )
