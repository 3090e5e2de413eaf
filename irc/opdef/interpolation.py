"""Interpolation along the axes of a tensor: where elements of the result stand, and what is taken there.

A result is computed axis by axis: `coordinates` says where each of its elements stands in the operand, `taps` which
elements are taken there and with which weights.  The same formulas run on NumPy arrays, and on graph values where a
size is symbolic.  Sources: ONNX Resize, Upsample.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import f32
from irc.opdef.base import Array
from irc.opdef.builder import Builder
from irc.opdef.codecs import single

Number: TypeAlias = "Array | Symbolic | float"

CROP = "tf_crop_and_resize"
A = single(-0.75)
FEW = 4
"""So many taps are added one by one; more are a reduction."""
LONGEST_TABLE = 1 << 22
"""Elements of an axis whose taps are constants; of a longer one they are calculated when the model runs."""


def coordinates(
    xp: Any,
    i: Number,
    size: Number,
    count: Number,
    length: Number,
    scale: Number,
    start: Number,
    end: Number,
    mode: str,
) -> Any:
    """Where result element `i` stands in the operand.

    size: of the operand; count: of the result; length: size · scale before rounding; start, end: of the
    region of interest, in 0..1.  All are f32, as in ONNX Runtime and OpenVINO: it decides which of two elements is the
    nearest where a coordinate is halfway between them.
    """
    if mode == "align_corners":
        return xp.where(length == 1, i * 0.0, i * (size - 1) / xp.maximum(length - 1, 1e-9))
    if mode == "asymmetric":
        return i / scale
    if mode == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    if mode == "tf_crop_and_resize":
        span = i * (end - start) * (size - 1) / xp.maximum(length - 1, 1e-9)
        single_one = i * 0.0 + (end - start) * (size - 1) / 2
        return xp.where(length == 1, single_one, span) + start * (size - 1)
    half = (i + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return xp.where(length == 1, i * 0.0, half)
    if mode == "half_pixel_symmetric":
        return half + size / 2 * (1 - count / xp.maximum(length, 1e-9))
    return half


def nearest(xp: Any, x: Number, size: Number, scale: Number, mode: str) -> Any:
    """The index of the element nearest to coordinate x."""
    if mode == "round_prefer_floor":
        found = xp.ceil(x - 0.5)
    elif mode == "round_prefer_ceil":
        found = xp.floor(x + 0.5)
    elif mode == "floor":
        found = xp.floor(x)
    elif mode == "ceil":
        found = xp.ceil(x)
    else:  # simple: up where the axis shrinks
        found = xp.where(scale < 1, xp.ceil(x), xp.floor(x))
    return xp.minimum(xp.maximum(found, 0.0), size - 1)


def kernel(xp: Any, t: Number, mode: str, a: float) -> Any:
    """The weight of an element at distance t."""
    t = xp.abs(t)
    if mode == "linear":
        return xp.maximum(1.0 - t, 0.0)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((t - 5) * t + 8) * t * a - 4 * a
    return xp.where(t <= 1, near, xp.where(t < 2, far, t * 0.0))


REACH = {"linear": 1, "cubic": 2}
"""How far the kernel of a mode reaches where nothing shrinks."""


def taps(
    xp: Any, x: Number, size: Number, shrink: float, mode: str, a: float, exclude: bool
) -> tuple[list[Any], list[Any]]:
    """Indices and weights of the elements that make up the result at coordinates x.

    shrink: below 1 it widens the kernel (antialiasing).  exclude: elements outside weigh nothing; otherwise
    the edge repeats.
    """
    first = math.floor(-REACH[mode] / shrink) + 1
    base = xp.floor(x)
    indices: list[Any] = []
    weights: list[Any] = []
    for k in range(first, 2 - first):
        at = base + k
        weight = kernel(xp, (at - x) * shrink, mode, a)
        inner = xp.minimum(xp.maximum(at, 0.0), size - 1)
        if exclude:
            weight = xp.where(at == inner, weight, weight * 0.0)
        indices.append(inner)
        weights.append(weight)
    if exclude or shrink < 1:
        total = sum(weights[1:], start=weights[0])
        weights = [w / total for w in weights]
    return indices, weights


def scaled_size(size: int, scale: float) -> int:
    """floor(size · scale), where the scale is the nearest f32 to what was meant."""
    return int(np.floor(np.float32(size) * np.float32(scale)))


def target(
    shape: tuple[int, ...], axes: list[int], scales: Array | None, sizes: Array | None, policy: str
) -> tuple[list[int], list[float], list[float]]:
    """For each axis: the size of the result, the scale, and size · scale before rounding."""
    if sizes is None or not len(sizes):
        factors = [float(s) for s in scales] if scales is not None else []
        counts = [scaled_size(shape[k], s) for k, s in zip(axes, factors)]
        return counts, factors, [s * shape[k] for k, s in zip(axes, factors)]
    factors = [int(n) / shape[k] if shape[k] else 1.0 for k, n in zip(axes, sizes)]
    if policy == "stretch":
        return [int(n) for n in sizes], factors, [float(n) for n in sizes]
    factor = min(factors) if policy == "not_larger" else max(factors)
    counts = [int(np.floor(factor * shape[k] + 0.5)) for k in axes]
    return counts, [factor] * len(axes), [factor * shape[k] for k in axes]


def axis_taps(
    i: Array,
    size: int,
    count: int,
    length: float,
    scale: float,
    start: float,
    end: float,
    mode: str,
    where: str,
    nearest_mode: str,
    a: float,
    antialias: bool,
    exclude: bool,
) -> tuple[list[Array], list[Array], Array]:
    """Indices and weights (none: as they are) for one axis, and which coordinates lie outside the operand."""
    x = coordinates(np, i, size, count, length, scale, start, end, where)
    outside = (x < 0) | (x > size - 1)
    if mode == "nearest":
        return [nearest(np, x, size, scale, nearest_mode).astype(np.int64)], [], outside
    indices, weights = taps(np, x, size, min(scale or 1.0, 1.0) if antialias else 1.0, mode, a, exclude)
    return [n.astype(np.int64) for n in indices], weights, outside


def weighted(x: Array, axis: int, indices: list[Array], weights: list[Array]) -> Array:
    """Σ weight · element along the axis."""
    if not weights:
        return np.take(x, indices[0], axis=axis)
    tail = (-1,) + (1,) * (x.ndim - 1 - axis)
    total = np.zeros(x.shape[:axis] + indices[0].shape + x.shape[axis + 1 :], x.dtype)
    for n, w in zip(indices, weights):
        if np.any(w):
            total = total + np.take(x, n, axis=axis) * w.astype(x.dtype).reshape(tail)
    return total


def summed(b: Builder, y: Value, axis: int, places: list[Value], factors: list[Value]) -> Value:
    """Σ weight · element along the axis."""
    if not factors:
        return b.Gather(y, places[0], axis)
    tail = list(range(1, len(y.shape) - axis))
    if len(factors) <= FEW:
        parts = [b.Mul(b.Gather(y, k, axis), b.Unsqueeze(w, tail)) for k, w in zip(places, factors, strict=True)]
        total = parts[0]
        for part in parts[1:]:
            total = b.Add(total, part)
        return total
    all_places, all_factors = (b.Concat(*(b.Unsqueeze(v, [1]) for v in vs), axis=1) for vs in (places, factors))
    return summed_rows(b, y, axis, all_places, all_factors)


def summed_rows(b: Builder, y: Value, axis: int, places: Value, factors: Value) -> Value:
    """Σ weight · element along the axis, by matrices with a row for each element of the result."""
    tail = list(range(2, len(y.shape) - axis + 1))
    picked = b.Gather(y, places, axis)
    return b.ReduceSum(b.Mul(picked, b.Unsqueeze(factors, tail)), [axis + 1], keepdims=False)


class Symbols:
    """The few NumPy functions that the formulas use, on graph values (f32 vectors and scalars)."""

    def __init__(self, b: Builder) -> None:
        self.b = b

    def of(self, x: Number) -> Symbolic:
        return x if isinstance(x, Symbolic) else Symbolic(self.b, self.b.const(float(x), f32))

    def where(self, condition: Symbolic | bool, x: Number, y: Number) -> Number:
        if isinstance(condition, bool):
            return x if condition else y
        return Symbolic(self.b, self.b.Where(condition.v, self.of(x).v, self.of(y).v))

    def maximum(self, x: Number, y: Number) -> Symbolic:
        return Symbolic(self.b, self.b.Max(self.of(x).v, self.of(y).v))

    def minimum(self, x: Number, y: Number) -> Symbolic:
        return Symbolic(self.b, self.b.Min(self.of(x).v, self.of(y).v))

    def floor(self, x: Number) -> Symbolic:
        return Symbolic(self.b, self.b.Floor(self.of(x).v))

    def ceil(self, x: Number) -> Symbolic:
        return Symbolic(self.b, self.b.Ceil(self.of(x).v))

    def abs(self, x: Number) -> Symbolic:
        return Symbolic(self.b, self.b.Abs(self.of(x).v))


@dataclasses.dataclass(frozen=True, eq=False)
class Symbolic:
    """A graph value that is calculated with like a number."""

    b: Builder
    v: Value

    def _two(self, name: str, x: Number, y: Number) -> Symbolic:
        of = Symbols(self.b).of
        return Symbolic(self.b, getattr(self.b, name)(of(x).v, of(y).v))

    def __add__(self, other: Number) -> Symbolic:
        return self._two("Add", self, other)

    def __radd__(self, other: Number) -> Symbolic:
        return self._two("Add", other, self)

    def __sub__(self, other: Number) -> Symbolic:
        return self._two("Sub", self, other)

    def __rsub__(self, other: Number) -> Symbolic:
        return self._two("Sub", other, self)

    def __mul__(self, other: Number) -> Symbolic:
        return self._two("Mul", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Number) -> Symbolic:
        return self._two("Div", self, other)

    def __rtruediv__(self, other: Number) -> Symbolic:
        return self._two("Div", other, self)

    def __eq__(self, other: Number) -> Symbolic:
        return self._two("Equal", self, other)

    __hash__ = object.__hash__

    def __lt__(self, other: Number) -> Symbolic:
        return self._two("Less", self, other)

    def __le__(self, other: Number) -> Symbolic:
        return self._two("LessOrEqual", self, other)


def present(v: Value | None) -> Value | None:
    """The operand, unless it is absent or empty."""
    return None if v is None or v.shape == (0,) else v


def scaled_dim(d: Dim, scale: float) -> Dim:
    """floor(d · scale) for a scale that is the nearest f32 to a simple fraction.  Problem IRC2207 unless it is a
    positive number."""
    right = 0 < scale < math.inf
    require(right, codes.ATTRIBUTE_RANGE, op="Resize", attribute="scale", value=scale, expected="positive")
    if d.is_const:
        return Dim.of(scaled_size(int(d), scale))
    simple = Fraction(scale).limit_denominator(1000)
    exact = simple if np.float32(float(simple)) == np.float32(scale) else Fraction(scale)
    return d * exact.numerator // exact.denominator
