"""Resize and OpenVINO's Interpolate."""

from typing import Any

import numpy as np

from irc.ops.resize import Resize
from irc.ops.resize_openvino import Interpolate, InterpolateBoth
from tests.ops.cases import Case, Spec


def vector(dtype: str, *values: float) -> Spec:
    return Spec(dtype, (len(values),), values=values, const=True)


def floats(*values: float) -> Spec:
    return Spec("f32", (len(values),), values=np.array(values, np.float32), const=True)


def by_scales(*scales: float, shape: tuple[int, ...] = (1, 2, 5, 7), dtype: str = "f32", **fields: Any) -> Case:
    return Case(Resize(**fields), (Spec(dtype, shape), None, floats(*scales)), 2e-6 if dtype == "f32" else 1e-2)


def by_sizes(*sizes: int, shape: tuple[int, ...] = (1, 2, 5, 7), roi: Spec | None = None, **fields: Any) -> Case:
    return Case(Resize(**fields), (Spec("f32", shape), roi, None, vector("i64", *sizes)), 2e-6)


def interpolate(given: Spec, *axes: int, shape: tuple[int, ...] = (1, 2, 5, 7), **fields: Any) -> Case:
    by = "scales" if given.dtype == "f32" else "sizes"
    return Case(Interpolate(shape_by=by, **fields), (Spec("f32", shape), given, vector("i64", *axes)), 2e-6)


COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
ROUND = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
CASES = [
    *(
        by_scales(1, 1, *s, mode=m, coordinates=c)
        for m in ("nearest", "linear", "cubic")
        for c in COORDINATES
        for s in ((2, 2), (0.6, 0.7))
    ),
    *(
        by_sizes(1, 2, *s, mode=m, coordinates=c)
        for m in ("nearest", "linear", "cubic")
        for c in COORDINATES
        for s in ((8, 9), (3, 4))
    ),
    *(
        by_scales(1, 1, s, s, nearest_mode=n, coordinates=c)
        for n in ROUND
        for s in (2, 0.5, 3)
        for c in ("half_pixel", "asymmetric")
    ),
    *(
        by_scales(1, 1, s, s, mode=m, antialias=True, exclude_outside=e)
        for m in ("linear", "cubic")
        for s in (0.4, 0.6, 2)
        for e in (False, True)
    ),
    by_scales(1, 1, 2, 2, mode="cubic", cubic_coeff_a=-0.5, exclude_outside=True),
    by_scales(2, 0.5, axes=(2, 3), mode="linear"),
    by_scales(2, 2, axes=(-1, 1)),
    *(by_sizes(7, 8, axes=(2, 3), mode="linear", policy=p) for p in ("not_larger", "not_smaller")),
    *(
        by_sizes(
            4,
            3,
            axes=(2, 3),
            mode=m,
            coordinates="tf_crop_and_resize",
            extrapolation_value=10.0,
            roi=floats(0.2, 0.3, 0.7, 1.2),
        )
        for m in ("nearest", "linear", "cubic")
    ),
    by_scales(2, 2, 2, shape=(3, 4, 2), mode="linear"),
    by_scales(1, 1, 2, 2, 2, shape=(1, 1, 3, 4, 2), mode="linear"),
    *(by_scales(1, 1, 2, 2, dtype=t, mode="linear") for t in ("f16", "bf16", "f64", "i32", "u8")),
    *(by_scales(1, 1, 2, 2, dtype=t) for t in ("f16", "bf16", "f64", "i32", "u8", "bool", "i64")),
    by_scales(1, 1, 1, 1, mode="linear"),
    *(
        interpolate(g, 2, 3, mode=m)
        for g in (vector("i64", 8, 9), floats(2, 1.5), vector("i32", 3, 4))
        for m in ("nearest", "linear_onnx", "linear", "cubic", "bilinear_pillow", "bicubic_pillow")
    ),
    *(interpolate(vector("i64", n, n + 1), 2, 3, nearest_mode="simple", coordinates="asymmetric") for n in (3, 9)),
    interpolate(floats(1.5, 0.7), 2, 3, mode="linear_onnx", coordinates="align_corners"),
    interpolate(vector("i64", 8, 9), 2, 3, coordinates="tf_half_pixel_for_nn"),
    interpolate(vector("i64", 8, 9), 2, 3, mode="linear_onnx", pads_begin=(0, 0, 1, 0), pads_end=(0, 0, 0, 2)),
    interpolate(vector("i64", 3, 4), 2, 3, mode="linear", antialias=True),
    Case(
        InterpolateBoth(mode="linear_onnx"),
        (Spec("f32", (1, 2, 5, 7)), vector("i64", 8, 9), floats(1, 1), vector("i64", 2, 3)),
        2e-6,
    ),
    Case(
        InterpolateBoth(mode="cubic", shape_by="scales"),
        (Spec("f32", (1, 2, 5, 7)), vector("i64", 8, 9), floats(2, 0.5), vector("i64", 2, 3)),
        2e-6,
    ),
]
