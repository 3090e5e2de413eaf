"""OpenVINO's Interpolate: one operand for sizes or scales (opset 11), both (opset 4), or sizes only (opset 1).

`linear_onnx` is ONNX's linear; `linear` leaves out what lies outside and can antialias; the Pillow modes
antialias always.  Source: OpenVINO specification, Interpolate-1, -4, -11.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from irc.diagnostics import Facts, Problem, require
from irc.diagnostics.codes import conversion, operation, shape as codes
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import FLOATS_BF16, INTEGERS, f32, f64, i64
from irc.opdef.base import Array, Op, op, op_base
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Codec, Enum, Float, Ints, Str
from irc.opdef.forms import Attributes, Declined, Form, Results, write_only
from irc.opdef.interpolation import A, coordinates, present, scaled_dim, summed
from irc.opdef.signature import Sig
from irc.opdef.typesets import OV_ANY
from irc.ops.layout import normal_axes

if TYPE_CHECKING:
    from irc.ops.resize import Resize

LINEAR = frozenset({"linear", "linear_onnx", "bilinear_pillow"})
MODES = ["bicubic_pillow", "bilinear_pillow", "cubic", "linear", "linear_onnx", "nearest"]
COORDINATES = ["align_corners", "asymmetric", "half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn"]
NEAREST_MODES = ["ceil", "floor", "round_prefer_ceil", "round_prefer_floor", "simple"]
ATTRIBUTES: dict[str, Codec] = {
    "mode": Enum(MODES, assumed="nearest"),
    "shape_calculation_mode": Enum(["scales", "sizes"], to="shape_by", assumed="sizes"),
    "coordinate_transformation_mode": Enum(COORDINATES, "half_pixel", to="coordinates"),
    "nearest_mode": Enum(NEAREST_MODES, "round_prefer_floor"),
    "antialias": Bool(False),
    "pads_begin": Ints(()),
    "pads_end": Ints(()),
    "cube_coeff": Float(A),
}


def narrowed_taps(size: int, count: int, scale: float, where: str) -> tuple[list[Array], list[Array]]:
    """Indices and weights along an axis that grows by `scale` where another is antialiased: the triangle reaches
    1 / scale, so an element of the result may meet none; it is 0 then."""
    x = coordinates(np, np.arange(count).astype(np.float64), size, count, size * scale, scale, 0.0, 1.0, where)
    places: list[Array] = []
    weights: list[Array] = []
    for k in (0.0, 1.0):
        at = np.floor(x) + k
        inside = (at >= 0) & (at < size)
        places.append(np.where(inside, at, 0.0).astype(np.int64))
        weights.append(np.where(inside, np.maximum(1 - np.abs(at - x) * scale, 0.0), 0.0))
    total = weights[0] + weights[1]
    return places, [np.where(total > 0, w / np.where(total > 0, total, 1.0), 0.0) for w in weights]


def _factors(shape: list[Dim], scales: Value | None, sizes: Value | None) -> list[float] | None:
    """The scale of each axis, where all are known when compiling; Resize refuses those that make no sense."""
    known = None if scales is None or scales.array is None else [float(s) for s in scales.array.reshape(-1)]
    counts = None if sizes is None else sizes.ints()
    if scales is None and counts is not None and all(d.is_const and int(d) > 0 for d in shape):
        known = [n / int(d) for n, d in zip(counts, shape)]
    return known if known and len(known) == len(shape) and all(0 < f < math.inf for f in known) else None


@op_base
class OpenVinoResize(Op):
    """The attributes that opsets 4 and 11 share."""

    mode: str = "nearest"
    shape_by: str = "sizes"
    coordinates: str = "half_pixel"
    nearest_mode: str = "round_prefer_floor"
    antialias: bool = False
    pads_begin: tuple[int, ...] = ()
    pads_end: tuple[int, ...] = ()
    cube_coeff: float = A

    def resized(self, b: Builder, x: Value, scales: Value | None, sizes: Value | None, axes: Value | None) -> Value:
        rank = len(x.shape)
        if any((*self.pads_begin, *self.pads_end)):
            begin, end = ([*p, *[0] * (rank - len(p))] for p in (self.pads_begin, self.pads_end))
            x = b.Pad(x, b.const([*begin, *end]))
        named = () if axes is None else tuple(axes.ints() or ())
        if scales is not None and scales.dtype != f32:
            scales = b.Cast(scales, to=f32)
        if scales is not None and scales.array is not None and self.coordinates == "align_corners":
            # the corners are those of the whole number of elements that the scales make
            over = normal_axes("Interpolate", named or list(range(rank)), rank)
            numbers = scales.array.reshape(-1)
            what = "number of axes and of scales"
            fits = len(over) == len(numbers)
            require(fits, codes.SIZES_DIFFER, op="Interpolate", what=what, a=len(over), b=len(numbers))
            sizes = b.dims([scaled_dim(x.shape[k], float(s)) for k, s in zip(over, numbers, strict=True)])
            scales = None
        if sizes is not None and sizes.dtype != i64:
            sizes = b.const(sizes.ints()) if sizes.ints() is not None else b.Cast(sizes, to=i64)
        if self.antialias and self.mode == "linear":
            return self._antialiased(b, x, scales, sizes, named)
        return self._resize(b, x, scales, sizes, named)

    def _antialiased(
        self, b: Builder, x: Value, scales: Value | None, sizes: Value | None, named: Sequence[int]
    ) -> Value:
        """An axis that grows next to one that shrinks is weighted too: by a kernel as much narrower as it grows."""
        over = list(normal_axes("Interpolate", named or list(range(len(x.shape))), len(x.shape)))
        factors = _factors([x.shape[k] for k in over], scales, sizes)
        if factors is None or min(factors, default=1.0) >= 1 or max(factors, default=1.0) <= 1:
            return self._resize(b, x, scales, sizes, named)
        wide = x.dtype in (f32, f64)
        y = x if wide else b.Cast(x, to=f32)
        for n, (axis, factor) in enumerate(zip(over, factors, strict=True)):
            if factor > 1:
                size = y.shape[axis]
                require(size.is_const, operation.NEEDS_CONSTANT, op="Interpolate", operand="the size of an axis")
                numbers = None if sizes is None else sizes.ints()
                count = int(scaled_dim(size, factor) if numbers is None else numbers[n])
                places, weights = narrowed_taps(int(size), count, factor, self.coordinates)
                y = summed(b, y, axis, [b.const(p) for p in places], [b.const(w, y.dtype) for w in weights])
        rest = [n for n, factor in enumerate(factors) if factor <= 1]
        scales, sizes = (v if v is None else b.Gather(v, rest, 0) for v in (scales, sizes))
        y = self._resize(b, y, scales, sizes, tuple(over[n] for n in rest))
        return y if wide else b.Cast(y, to=x.dtype)

    def _resize(self, b: Builder, x: Value, scales: Value | None, sizes: Value | None, axes: Sequence[int]) -> Value:
        pillow = self.mode.endswith("pillow")
        return b.Resize(
            x,
            None,
            scales,
            sizes,
            axes=tuple(axes),
            mode="linear" if self.mode in LINEAR else "cubic" if self.mode != "nearest" else "nearest",
            coordinates="half_pixel" if pillow else self.coordinates,
            nearest_mode=self.nearest_mode,
            cubic_coeff_a=self.cube_coeff,
            exclude_outside=pillow or self.mode == "linear",
            antialias=pillow or (self.antialias and self.mode == "linear"),
        )


def whole_lengths(x: Value, axes: Sequence[int], scales: Value | None) -> bool:
    """Whether size · scale is whole on every axis: ONNX aligns corners by that number, OpenVINO by
    the size it rounds to."""
    factors = None if scales is None else scales.array
    sizes: list[int | None] = [x.shape[a].const for a in axes]
    if factors is None or None in sizes:
        return False
    lengths = [float(f) * (n or 0) for f, n in zip(factors.reshape(-1), sizes, strict=True)]
    return all(abs(length - round(length)) < 1e-5 for length in lengths)


def write_resize(
    b: Builder, op: Resize, x: Value, roi: Value | None = None, scales: Value | None = None, sizes: Value | None = None
) -> Results:
    """Resize as Interpolate-11; only the axes that change are named."""
    scales, sizes = present(scales), present(sizes)
    axes = op.axis_list(len(x.shape))
    mode = {"nearest": "nearest", "cubic": "cubic"}.get(op.mode, "linear" if op.exclude_outside else "linear_onnx")
    says = op.coordinates in COORDINATES and op.nearest_mode in NEAREST_MODES and op.policy == "stretch"
    says = says and (sizes is not None or op.coordinates != "align_corners" or whole_lengths(x, axes, scales))
    if not says or (op.antialias and mode != "linear") or (op.exclude_outside and mode == "cubic"):
        types = ", ".join(str(v.type) for v in (x, scales, sizes) if v is not None)
        reason = "its Interpolate has no such coordinates, rounding or policy, or not with this mode"
        raise Problem(conversion.CANNOT_EXPRESS, op=str(op), types=types, target="OpenVINO", reason=reason)
    given = sizes or scales
    assert given is not None
    keep = list(range(len(axes)))
    if sizes is not None and sizes.dims() is not None:
        keep = [n for n, d in enumerate(sizes.dims() or []) if d != x.shape[axes[n]]]
    elif scales is not None and scales.array is not None:
        keep = [n for n, s in enumerate(scales.array.reshape(-1)) if float(s) != 1.0]
    if not keep:
        return x
    if len(keep) < len(axes):
        known = given.array
        given = b.Gather(given, keep, 0) if known is None else b.const(np.asarray(known).reshape(-1)[keep], given.dtype)
    fields = {
        "mode": mode,
        "shape_by": "scales" if sizes is None else "sizes",
        "coordinates": op.coordinates,
        "nearest_mode": op.nearest_mode,
        "antialias": op.antialias,
        "cube_coeff": op.cubic_coeff_a,
    }
    return b.Interpolate(x, given, b.const([axes[n] for n in keep]), **fields)


def write_both(b: Builder, op: Interpolate, x: Value, given: Value, axes: Value | None = None) -> Results:
    """Opset 4 has sizes and scales; the one that does not count is filled with ones."""
    if op.mode.endswith("pillow"):  # came with opset 11
        raise Declined
    count = b.dims(given.shape)
    fields = op.attributes()
    if op.shape_by == "sizes":
        return b.InterpolateBoth(x, given, b.Expand(b.const(1.0, f32), count), axes, **fields)
    return b.InterpolateBoth(x, b.Expand(b.const(1), count), given, axes, **fields)


@op
class Interpolate(OpenVinoResize):
    """x resized along `axes` to sizes, or by scales."""

    sig = Sig("x: T, scales_or_sizes: S[1], axes?: I[1] -> y: T", T=OV_ANY, S=INTEGERS | FLOATS_BF16, I=INTEGERS)

    def decompose(self, b: Builder, x: Value, given: Value, axes: Value | None = None) -> Value:
        by_scale = self.shape_by == "scales"
        return self.resized(b, x, given if by_scale else None, None if by_scale else given, axes)

    openvino = (
        Form("Interpolate", 11, attrs=ATTRIBUTES, T={"T": OV_ANY, "S": INTEGERS | FLOATS_BF16, "I": INTEGERS}),
        write_only(write_both, since=4),
    )


@op
class InterpolateBoth(OpenVinoResize):
    """Interpolate of opset 4: sizes and scales, of which `shape_by` says the one that counts."""

    sig = Sig("x: T, sizes: N[1], scales: S[1], axes?: I[1] -> y: T", T=OV_ANY, N=INTEGERS, S=FLOATS_BF16, I=INTEGERS)

    def decompose(self, b: Builder, x: Value, sizes: Value, scales: Value, axes: Value | None = None) -> Value:
        by_scale = self.shape_by == "scales"
        return self.resized(b, x, scales if by_scale else None, None if by_scale else sizes, axes)

    openvino = (
        Form(
            "Interpolate", 4, attrs=ATTRIBUTES, last=10, T={"T": OV_ANY, "N": INTEGERS, "S": FLOATS_BF16, "I": INTEGERS}
        ),
    )


def read_interpolate_1(b: Builder, a: Attributes, x: Value, sizes: Value) -> Results:
    """Corners aligned, or coordinates divided by the scale; nearest rounds up where the axis shrinks."""
    modes = {"nearest": "nearest", "linear": "linear_onnx" if len(x.shape) < 5 else "linear", "cubic": "cubic"}
    if a.mode not in modes:
        choices = ", ".join(modes)
        facts: Facts = {"op": "Interpolate (opset1)", "attribute": "mode", "text": a.mode}
        raise Problem(operation.BAD_ENUM, **facts, choices=choices, guess="")
    fields = {
        "mode": modes[a.mode],
        "coordinates": "align_corners" if a.align_corners else "asymmetric",
        "nearest_mode": "simple",
        "antialias": a.antialias,
        "pads_begin": a.pads_begin,
        "pads_end": a.pads_end,
    }
    return b.Interpolate(x, sizes, b.const(list(a.axes)), **fields)


@op
class InterpolateSizes(Op):
    """Interpolate of opset 1, as it is read: it becomes that of opset 11."""

    sig = Sig("x: T, sizes: I[1] -> y: T", T=OV_ANY, I=INTEGERS)

    def decompose(self, b: Builder, x: Value, sizes: Value) -> Value:
        return b.Interpolate(x, sizes)

    openvino = (
        Form(
            "Interpolate",
            1,
            T={"T": OV_ANY, "I": INTEGERS},
            read=read_interpolate_1,
            direct=False,
            last=3,
            attrs={
                "axes": Ints(assumed=()),
                "mode": Str(assumed=""),
                "align_corners": Bool(True),
                "antialias": Bool(False),
                "pads_begin": Ints(()),
                "pads_end": Ints(()),
            },
        ),
    )
