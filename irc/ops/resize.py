"""Resize: nearest, linear and cubic interpolation along any axes, and ONNX's older Upsample.

The formulas are those of `irc.opdef.interpolation`.  Sources: ONNX Resize, Upsample.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from irc.diagnostics import Facts, require
from irc.diagnostics.codes import operation as codes, shape as shape_codes
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.limits import TAPS
from irc.ir.relation import any_of, at_most, same
from irc.ir.types import ANY, FLOATS, TensorType, bf16, boolean, dynamic, f32, f64, i32, i64
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Codec, Enum, Float, Floats, Ints
from irc.opdef.forms import PREV, Attributes, Form, Results, write_only
from irc.opdef.interpolation import (
    CROP,
    LONGEST_TABLE,
    REACH,
    A,
    Symbolic,
    Symbols,
    axis_taps,
    coordinates,
    nearest,
    present,
    scaled_dim,
    summed,
    taps,
    target,
    weighted,
)
from irc.opdef.signature import Sig
from irc.opdef.typesets import ONNX_ALL
from irc.ops.layout import normal_axis
from irc.ops.resize_openvino import write_resize
from irc.ops.resize_run import resize_in_run

COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", CROP]
NEAREST_MODES = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
MODES = ["nearest", "linear", "cubic"]


# ---------------------------------------------------------------------------------------- reading
def read_fixed(b: Builder, a: Attributes, x: Value, roi: None, scales: Value) -> Results:
    """Upsample and Resize-10: coordinates are divided by the scale, and rounded down."""
    return b.Resize(x, None, scales, mode=a.mode, coordinates="asymmetric", nearest_mode="floor")


def read_upsample_7(b: Builder, a: Attributes, x: Value) -> Results:
    return read_fixed(b, a, x, None, b.const(a.scales, f32))


def read_upsample_1(b: Builder, a: Attributes, x: Value) -> Results:
    return read_fixed(b, a, x, None, b.const([1.0, 1.0, a.height_scale, a.width_scale], f32))


def is_fixed(op: Resize, x: Value, roi: Value | None = None, scales: Value | None = None, *sizes: Value | None) -> bool:
    """Whether the forms without attributes say it."""
    plain = op.mode == "linear" or (op.mode, op.nearest_mode) == ("nearest", "floor")
    return plain and op.coordinates == "asymmetric" and not any(v is not None for v in sizes) and scales is not None


def check_scales(scales: Value | None) -> None:
    """Raise Problem IRC2207 for a known scale that stretches nothing to anything."""
    for scale in scales.array.reshape(-1) if scales is not None and scales.array is not None else ():
        facts = {"attribute": "scales", "value": float(scale), "expected": "finite and greater than 0"}
        require(bool(np.isfinite(scale) and scale > 0), codes.ATTRIBUTE_RANGE, op="Resize", **facts)


def check_reach(op: Resize, axes: list[int], x: Value, scales: Value | None, counts: list[Dim]) -> None:
    """Raise Problem IRC3301 where antialiasing reaches too far: an axis shrinks to next to nothing."""
    known = scales.array.reshape(-1) if scales is not None and scales.array is not None else None
    for n, (axis, count) in enumerate(zip(axes, counts, strict=True)):
        size = x.shape[axis]
        if known is not None:
            TAPS.check(math.ceil(2 * REACH[op.mode] / float(known[n])), "Resize")
        elif size.is_const and count.is_const and int(count) > 0:
            TAPS.check(2 * REACH[op.mode] * int(size) // int(count), "Resize")


def all_given(
    op: Resize, x: Value, roi: Value | None = None, scales: Value | None = None, *sizes: Value | None
) -> bool:
    return roi is not None and scales is not None


def write_all_given(
    b: Builder, op: Resize, x: Value, roi: Value | None = None, scales: Value | None = None, sizes: Value | None = None
) -> Results:
    """Resize-11 wants a region and scales, empty ones where there are none."""
    nothing = b.const(np.zeros(0), f32)
    return b.add(op, x, nothing if roi is None else roi, nothing if scales is None else scales, sizes)


def least_scale(size: int, count: int) -> float:
    """The f32 number nearest to count / size by which `size` becomes `count`, and not one less, when rounded down."""
    scale = np.float32(count / size)
    while math.floor(size * float(scale)) < count:
        scale = np.nextafter(scale, np.float32(np.inf))
    return float(scale)


def write_fixed(
    b: Builder, op: Resize, x: Value, roi: Value | None = None, scales: Value | None = None, sizes: Value | None = None
) -> Results:
    """ONNX until 10 has only scales; those that the sizes make are written where they are known."""
    from irc.diagnostics import Problem
    from irc.diagnostics.codes import conversion

    known = scales if scales is not None and scales.shape != (0,) else None
    axes = op.axis_list(len(x.shape))
    counts, shape = sizes.dims() if sizes is not None else None, x.shape
    if known is None and counts and all(d.is_const for d in (*counts, *shape)) and op.policy == "stretch":
        factors = [1.0] * len(shape)
        for k, n in zip(axes, counts, strict=True):
            factors[k] = least_scale(int(shape[k]), int(n))  # pyright: ignore
        known = b.const(factors, f32)
        axes = list(range(len(shape)))
    made = dataclasses.replace(op, axes=())
    if known is None or axes != list(range(len(shape))) or not is_fixed(made, x, None, known):
        types = ", ".join(str(v.type) for v in (x, roi, scales, sizes) if v is not None)
        reason = "before opset 11 it has known scales, counted from the corner, and no other choices"
        raise Problem(conversion.CANNOT_EXPRESS, op=str(op), types=types, target="ONNX", reason=reason)
    return b.Resize(x, None, known, mode=op.mode, coordinates="asymmetric", nearest_mode="floor")


# ------------------------------------------------------------------------------------- operation
SIG = Sig("x: T, roi?: R[1], scales?: f32[1], sizes?: i64[1] -> y: T", T=ANY, R=FLOATS)


def attributes(coordinates: list[str], **more: Codec) -> dict[str, Codec]:
    return {
        "mode": Enum(MODES, "nearest"),
        "coordinate_transformation_mode": Enum(coordinates, "half_pixel", to="coordinates"),
        "nearest_mode": Enum(NEAREST_MODES, "round_prefer_floor"),
        "cubic_coeff_a": Float(A),
        "exclude_outside": Bool(False),
        "extrapolation_value": Float(0.0),
        **more,
    }


NEW: dict[str, Codec] = {
    "antialias": Bool(False),
    "axes": Ints(()),
    "keep_aspect_ratio_policy": Enum(["stretch", "not_larger", "not_smaller"], "stretch", to="policy"),
}
FIXED_JUDGES = ("coordinates", "nearest_mode")


@op
class Resize(Op):
    """x with `axes` (none: all) stretched to `sizes`, or by `scales`; an empty operand counts as absent.

    policy: "stretch", or how sizes bound one scale for all axes ("not_larger", "not_smaller").
    """

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest_mode: str = "round_prefer_floor"
    cubic_coeff_a: float = A
    exclude_outside: bool = False
    extrapolation_value: float = 0.0
    antialias: bool = False
    axes: tuple[int, ...] = ()
    policy: str = "stretch"
    sig = SIG

    def axis_list(self, rank: int) -> list[int]:
        return [normal_axis("Resize", k, rank) for k in self.axes] or list(range(rank))

    def infer(
        self, x: Value, roi: Value | None = None, scales: Value | None = None, sizes: Value | None = None
    ) -> TensorType:
        axes = self.axis_list(len(x.shape))
        mixes = self.mode != "nearest"
        numbers = x.dtype.kind in "fiub" or x.dtype == dynamic
        facts: Facts = {"operand": "x", "dtype": x.dtype, "allowed": f"numbers where mode is {self.mode}"}
        require(numbers or not mixes, codes.TYPE_NOT_ALLOWED, op="Resize", **facts)
        given = present(sizes) or present(scales)
        require(given is not None, codes.MISSING_OPERAND, op="Resize", operand="scales or sizes", index=2)
        assert given is not None
        facts = {"what": "the number of axes and of scales or sizes", "a": len(axes), "b": given.tensor.elements()}
        require(same(given.tensor.elements(), len(axes)), shape_codes.SIZES_DIFFER, op="Resize", **facts)
        check_scales(present(scales))
        result = list(x.shape)
        counts = self.counts(x, axes, present(scales), present(sizes))
        if self.antialias and self.mode != "nearest":
            check_reach(self, axes, x, present(scales), counts)
        for k, size in zip(axes, counts, strict=True):
            some: Dim = x.shape[k]
            something = any_of(at_most(1, some), same(size, 0), same(size, some))
            what = f"size {k} of the operand"
            require(something, shape_codes.SIZE_RANGE, op="Resize", what=what, value=some, expected="1 or more")
            result[k] = size
        return TensorType(x.dtype, tuple(result))

    def counts(self, x: Value, axes: list[int], scales: Value | None, sizes: Value | None) -> list[Dim]:
        """The size of each axis of the result."""
        fixed = [x.shape[k] for k in axes]
        if sizes is not None:
            counts = sizes.dims()
            if counts is not None and self.policy == "stretch":
                return counts
            if counts is not None and all(d.is_const for d in (*counts, *fixed)):
                shape = tuple(int(d) if d.is_const else 1 for d in x.shape)
                wanted = np.array([int(d) for d in counts])
                return [Dim.of(n) for n in target(shape, axes, None, wanted, self.policy)[0]]
        elif scales is not None and scales.array is not None:
            return [scaled_dim(d, float(s)) for d, s in zip(fixed, scales.array.reshape(-1), strict=True)]
        return [Dim.fresh("resized") for _ in axes]

    def reference(
        self, x: Array, roi: Array | None = None, scales: Array | None = None, sizes: Array | None = None
    ) -> Array:
        axes = [k % x.ndim for k in self.axes] if self.axes else list(range(x.ndim))
        counts, factors, lengths = target(x.shape, axes, scales, sizes, self.policy)
        kind = x.dtype if self.mode == "nearest" or x.dtype == np.float64 else np.dtype(np.float32)
        y = x.astype(kind)
        for n, axis in enumerate(axes):
            region = roi if roi is not None and self.coordinates == "tf_crop_and_resize" and len(roi) > 0 else None
            crop = region is not None
            start, end = (0.0, 1.0) if region is None else (float(region[n]), float(region[len(axes) + n]))
            if counts[n] == y.shape[axis] and factors[n] == 1.0 and not crop:
                continue
            indices, weights, outside = axis_taps(
                np.arange(counts[n]).astype(np.float32),
                y.shape[axis],
                counts[n],
                lengths[n],
                factors[n],
                start,
                end,
                self.mode,
                self.coordinates,
                self.nearest_mode,
                self.cubic_coeff_a,
                self.antialias,
                self.exclude_outside,
            )
            y = weighted(y, axis, indices, weights)
            if crop:
                mask = outside.reshape((-1,) + (1,) * (y.ndim - 1 - axis))
                y = np.where(mask, np.asarray(self.extrapolation_value).astype(kind), y)
        return y if y.dtype == x.dtype else y.astype(x.dtype)

    def resolve(
        self, b: Builder, x: Value, roi: Value | None = None, scales: Value | None = None, sizes: Value | None = None
    ) -> Value | None:
        region = present(roi) if self.coordinates == CROP else None
        scales, sizes = present(scales), present(sizes)
        if sizes is None:
            known = scales is not None and scales.array is not None
        elif self.policy != "stretch" or (self.antialias and self.mode != "nearest"):
            axes = self.axis_list(len(x.shape))
            known = sizes.ints() is not None and all(x.shape[k].is_const for k in axes)
        else:
            known = sizes.dims() is not None
        if known and (region is None or region.array is not None):
            return None
        return resize_in_run(b, self, x, region, scales, sizes)

    def decompose(
        self, b: Builder, x: Value, roi: Value | None = None, scales: Value | None = None, sizes: Value | None = None
    ) -> Value:
        axes = self.axis_list(len(x.shape))
        scales, sizes = present(scales), present(sizes)
        out = [self.infer(x, roi, scales, sizes).dims()[k] for k in axes]
        region = self._region(roi, len(axes))
        exact = self.mode == "nearest" or x.dtype == f64
        y = x if exact or x.dtype == f32 else b.Cast(x, to=f32)
        for n, axis in enumerate(axes):
            scale, length = self._scale(x, axes, n, out, scales, sizes)
            start, end = region[n]
            unchanged = scale == 1.0 if scale is not None else out[n] == x.shape[axis]
            if not unchanged or (start, end) != (0.0, 1.0):
                y = self._axis(b, y, axis, out[n], scale, length, start, end)
        return y if y.dtype == x.dtype else b.Cast(y, to=x.dtype)

    def _region(self, roi: Value | None, count: int) -> list[tuple[float, float]]:
        given = present(roi)
        if self.coordinates != CROP or given is None:
            return [(0.0, 1.0)] * count
        require(given.array is not None, codes.NEEDS_CONSTANT, op="Resize", operand="roi")
        assert given.array is not None
        numbers = [float(v) for v in given.array.reshape(-1)]
        return [(numbers[n], numbers[count + n]) for n in range(count)]

    def _scale(
        self, x: Value, axes: list[int], n: int, out: list[Dim], scales: Value | None, sizes: Value | None
    ) -> tuple[float | None, float | None]:
        """The scale of an axis and size · scale, where they are known when compiling."""
        if sizes is None:
            known = scales is not None and scales.array is not None
            require(known, codes.NEEDS_CONSTANT, op="Resize", operand="scales")
            assert scales is not None and scales.array is not None
            scale = float(scales.array.reshape(-1)[n])
            size = x.shape[axes[n]]
            return scale, scale * int(size) if size.is_const else None
        if all(d.is_const for d in (*out, *(x.shape[k] for k in axes))) and sizes.ints() is not None:
            shape = tuple(int(d) if d.is_const else 1 for d in x.shape)
            _, factors, lengths = target(shape, axes, None, np.array(sizes.ints()), self.policy)
            return factors[n], lengths[n]
        return None, None

    def _axis(
        self,
        b: Builder,
        y: Value,
        axis: int,
        count: Dim,
        scale: float | None,
        length: float | None,
        start: float,
        end: float,
    ) -> Value:
        size = y.shape[axis]
        tabled = size.is_const and count.is_const and int(count) <= LONGEST_TABLE
        if tabled and scale is not None and length is not None:
            indices, weights, outside = axis_taps(
                np.arange(int(count)).astype(np.float32),
                int(size),
                int(count),
                length,
                scale,
                start,
                end,
                self.mode,
                self.coordinates,
                self.nearest_mode,
                self.cubic_coeff_a,
                self.antialias,
                self.exclude_outside,
            )
            kept = [k for k, w in enumerate(weights) if np.any(w)]
            places = [b.const(indices[k]) for k in (kept or [0])]
            factors = [b.const(weights[k], y.dtype) for k in kept]
            mask = b.const(outside, boolean) if outside.any() else None
        else:
            places, factors, mask = self._symbolic(b, size, count, scale, start, end, y)
        found = summed(b, y, axis, places, factors)
        if self.coordinates == CROP and mask is not None:
            mask = b.Unsqueeze(mask, list(range(1, len(y.shape) - axis)))
            found = b.Where(mask, b.like(self.extrapolation_value, y), found)
        return found

    def _symbolic(
        self, b: Builder, size: Dim, count: Dim, scale: float | None, start: float, end: float, y: Value
    ) -> tuple[list[Value], list[Value], Value | None]:
        """Indices, weights and mask calculated when the model runs."""
        known = self.policy == "stretch" and not (self.antialias and scale is None)
        require(known, codes.NEEDS_CONSTANT, op="Resize", operand="the size of a resized axis")
        xp = Symbols(b)

        def number(d: Dim) -> Symbolic:
            return Symbolic(b, b.Cast(b.Reshape(b.dims([d]), b.const(np.zeros(0, np.int64))), to=f32))

        zero = b.const(np.int64(0))
        places = b.Range(zero, b.Reshape(b.dims([count]), b.const(np.zeros(0, np.int64))), b.const(np.int64(1)))
        i, n, m = Symbolic(b, b.Cast(places, to=f32)), number(size), number(count)
        factor = m / n if scale is None else scale
        x = coordinates(xp, i, n, m, m if scale is None else n * scale, factor, start, end, self.coordinates)
        mask = b.Or((x < 0.0).v, b.Less((n - 1).v, x.v)) if self.coordinates == CROP else None
        if self.mode == "nearest":
            return [b.Cast(nearest(xp, x, n, factor, self.nearest_mode).v, to=i64)], [], mask
        shrink = min(scale or 1.0, 1.0) if self.antialias else 1.0
        indices, weights = taps(xp, x, n, shrink, self.mode, self.cubic_coeff_a, self.exclude_outside)
        return [b.Cast(k.v, to=i64) for k in indices], [b.Cast(w.v, to=y.dtype) for w in weights], mask

    onnx = (
        Form(
            "Upsample",
            1,
            T={"T": FLOATS | {boolean, i32, i64}},
            sig=Sig("x: T -> y: T", T=ANY),
            read=read_upsample_1,
            direct=False,
            attrs={"mode": Enum(["nearest", "linear"], "nearest"), "height_scale": Float(), "width_scale": Float()},
        ),
        Form(
            "Upsample",
            7,
            T={"T": ONNX_ALL},
            read=read_upsample_7,
            attrs={"mode": Enum(["nearest", "linear"], "nearest"), "scales": Floats()},
        ),
        Form(
            "Upsample",
            9,
            sig=Sig("x: T, scales: f32[1] -> y: T", T=ANY),
            read=read_fixed,
            last=9,
            order=(0, 2),
            direct=True,
            when=is_fixed,
            judges=FIXED_JUDGES,
            write=write_fixed,
            attrs={"mode": Enum(["nearest", "linear"], "nearest")},
        ),
        Form(
            "Resize",
            10,
            T={"T": ONNX_ALL, "R": FLOATS},
            sig=Sig("x: T, scales: f32[1] -> y: T", T=ANY),
            read=read_fixed,
            order=(0, 2),
            direct=True,
            when=is_fixed,
            judges=FIXED_JUDGES,
            write=write_fixed,
            attrs={"mode": Enum(["nearest", "linear"], "nearest")},
        ),
        Form(
            "Resize",
            11,
            attrs=attributes([*COORDINATES, "tf_half_pixel_for_nn"]),
            read=None,
            order=None,
            judges=(),
            sig=Sig("x: T, roi: R[1], scales: f32[1], sizes?: i64[1] -> y: T", T=ANY, R=FLOATS),
            when=all_given,
            write=write_all_given,
            direct=True,
        ),
        Form(
            "Resize",
            13,
            T={"T": PREV | {bf16}, "R": FLOATS},
            sig=None,
            attrs=attributes(COORDINATES),
            when=None,
            write=None,
        ),
        Form("Resize", 18, attrs=attributes(COORDINATES, **NEW)),
        Form("Resize", 19, attrs=attributes([*COORDINATES, "half_pixel_symmetric"], **NEW)),
    )
    openvino = (write_only(write_resize, since=4),)
