"""Elements of a tensor at places that another tensor names: GridSample.

A place is normalised: -1 and 1 are the middles of the first and the last element (`align_corners`), or their outer
edges.  Sources: ONNX GridSample; OpenVINO specification, GridSample-9.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import Bin, Bits, Const, Expr, Tensor, index, select
from irc.ir.dim import Dim, DimLike, product
from irc.ir.graph import Value
from irc.ir.relation import at_most, same
from irc.ir.types import (
    ANY,
    FLOATS,
    FLOATS_BF16,
    NUMERIC,
    DType,
    TensorType,
    bf16,
    f8e4m3fn,
    f8e5m2,
    f32,
    f64,
    i32,
    i64,
    u32,
    u64,
)
from irc.loops.builder import LoopBuilder, seen_as
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Enum
from irc.opdef.conversions import as_type
from irc.opdef.forms import PREV, Form, write_only
from irc.opdef.precision import rounded
from irc.opdef.signature import Sig
from irc.opdef.typesets import ONNX_ALL, OV_ANY
from irc.ops.layout import channels_last, channels_second, reshaped
from irc.ops.shape import zero

GRID = FLOATS_BF16 | {f8e4m3fn, f8e5m2}
PADDINGS = ["zeros", "border", "reflection"]
ATTRIBUTES = {
    "mode": Enum({"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}, "linear"),
    "padding_mode": Enum(PADDINGS, "zeros", to="padding"),
    "align_corners": Bool(False),
}
"""GridSample over planes."""
CUBIC = -0.75
"""The cubic kernel's coefficient."""
EXACT = 1 << 22
"""Planes of so many elements have indices that f32 has, also far beside them."""
SMALL = 1 << 29
"""Planes of so many elements have indices of 32 bits, also a little beside them."""
FEWEST_CHANNELS, MOST_COPIED = 8, 4
"""Channels, at least, and elements of a plane for each place, fewer than which there are, where all channels of a place
are read at once."""


# ------------------------------------------------------------------------------ where an element stands
def unnormalised(g: Array, size: int, align: bool, padding: str) -> Array:
    """Positions, counted in elements, from normalised ones; `padding` may move them inside."""
    one, two = g.dtype.type(1), g.dtype.type(2)
    place: Array = (g + one) / two * g.dtype.type(size - 1) if align else ((g + one) * g.dtype.type(size) - one) / two
    if padding == "reflection":
        low, span = g.dtype.type(0 if align else -0.5), g.dtype.type(max(size - 1, 1) if align else size)
        around: Array = np.fmod(np.abs(place - low), span * two)
        place = low + np.where(around > span, span * two - around, around)  # pyright: ignore
    if padding == "zeros":
        return place
    return np.minimum(np.maximum(place, g.dtype.type(0)), g.dtype.type(size - 1))


def unnormalised_value(b: Builder, g: Value, size: Dim, align: bool, padding: str) -> Value:
    """`unnormalised` on a graph value, for a size that may be symbolic."""

    def number(d: Dim) -> Value:
        return b.const(int(d), g.dtype) if d.is_const else b.Cast(b.Reshape(b.dims([d]), []), to=g.dtype)

    moved = b.Add(g, 1.0)
    if align:
        place = b.Mul(b.Div(moved, 2.0), number(size - 1))
    else:
        place = b.Div(b.Sub(b.Mul(moved, number(size)), 1.0), 2.0)
    if padding == "reflection":
        low, span = b.const(0 if align else -0.5, g.dtype), (size - 1).maximum(1) if align else size
        around = remainder(b, b.Abs(b.Sub(place, low)), number(span * 2))
        place = b.Add(b.Where(b.Greater(around, number(span)), b.Sub(number(span * 2), around), around), low)
    if padding == "zeros":
        return place
    return b.Min(b.Max(place, b.const(0, g.dtype)), number(size - 1))


def remainder(b: Builder, x: Value, period: Value) -> Value:
    """|x mod period| of a whole period, exact below 2²⁴: a quotient that was rounded up to a whole number leaves what
    was missing.  Compilers make vectors of these operations, and none of fmod."""
    return b.Abs(b.Sub(x, b.Mul(b.Floor(b.Div(x, period)), period)))


def tap_padding(mode: str, padding: str, align: bool) -> str:
    """What stands where a tap lies outside: zeros, or for a cubic kernel an element inside."""
    if mode != "cubic" or padding == "zeros":
        return "zeros"
    return "edge" if padding == "border" else "reflect" if align else "symmetric"


def cubic_weights(t: Any, one: Any) -> list[Any]:
    """Of the elements at -1, 0, 1 and 2 from the one before; t is the way from there, in 0..1."""

    def near(d: Any) -> Any:
        return ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((d * CUBIC - 5 * CUBIC) * d + 8 * CUBIC) * d - 4 * CUBIC

    return [far(t + one), near(t), near(one - t), far(one - t + one)]


# -------------------------------------------------------------------------------------- on NumPy arrays
def element_at(x: Array, at: Sequence[Array], outside: str) -> Array:
    """x[n, c, at…] for every n and c; at: integers as floats, one array (n, …) for each spatial axis."""
    places: list[Array] = []
    valid: Array = np.ones(at[0].shape, bool)
    for axis, a in enumerate(at):
        size = x.shape[2 + axis]
        if outside == "reflect":
            period = max(2 * (size - 1), 1)
            m = np.mod(a, period)
            a = np.where(m < size, m, period - m)
        elif outside == "symmetric":
            m = np.mod(a, 2 * size)
            a = np.where(m < size, m, 2 * size - 1 - m)
        elif outside == "zeros":
            valid = valid & (a >= 0) & (a < size)
        places.append(np.clip(np.nan_to_num(a), 0, size - 1).astype(np.int64))
    batch: Array = np.arange(x.shape[0]).reshape(-1, *(1,) * (valid.ndim - 1))  # pyright: ignore
    found = np.moveaxis(x[(batch, slice(None), *places)], -1, 1)
    return np.where(np.expand_dims(valid, 1), found, x.dtype.type(0))


def sampled(x: Array, places: Sequence[Array], mode: str, outside: str) -> Array:
    """x (n, c, …) at positions, one array (n, …) for each spatial axis; interpolated in their element type."""
    if mode == "nearest":
        return element_at(x, [np.rint(p) for p in places], outside)
    first = [np.floor(p) for p in places]
    kind = places[0].dtype
    one = kind.type(1)
    if mode == "linear":
        weights = [[one - (p - f), p - f] for p, f in zip(places, first)]
    else:
        weights = [cubic_weights(p - f, one) for p, f in zip(places, first)]
    total = np.zeros((*x.shape[:2], *places[0].shape[1:]), kind)
    start = 0 if mode == "linear" else -1
    for corner in itertools.product(*(range(len(w)) for w in weights)):
        weight = weights[0][corner[0]]
        for axis in range(1, len(weights)):
            weight = weight * weights[axis][corner[axis]]
        taps = element_at(x, [f + kind.type(start + k) for f, k in zip(first, corner)], outside)
        total = total + taps.astype(kind) * np.expand_dims(weight, 1).astype(kind)
    return total


# ----------------------------------------------------------------------------------------- on graph values
def inner_index(b: Builder, i: Value, size: Value, outside: str) -> Value:
    """The index of the element that stands at i, which may lie outside."""
    zero, one, two = (b.const(n, i.dtype) for n in range(3))
    if outside == "edge":
        return b.Min(b.Max(i, zero), b.Sub(size, one))
    period = b.Mul(b.Sub(size, one) if outside == "reflect" else size, two)
    if i.dtype == i32:
        least = b.Max(period, one)  # of one element that is reflected there is no period
        whole = remainder(b, b.Cast(i, to=f32), b.Cast(least, to=f32))
        m = b.Cast(whole, to=i32)
    else:
        m = b.Mod(i, period)
    back = b.Sub(period, m)
    found = b.Where(b.Less(m, size), m, back if outside == "reflect" else b.Sub(back, one))
    return b.Min(b.Max(found, zero), b.Sub(size, one)) if i.dtype == i32 else found


def index_type(x: Value, outside: str, places: DType = f32) -> DType:
    """The type of indices in the planes of x: vectors of 32 bits are read from all over memory twice as fast, and every
    processor with vectors converts floats to them.  What is mirrored counts how far outside it lies, which floats tell
    as exactly as places of f32 do."""
    small = product(x.shape[2:]).at_most(SMALL if outside in ("zeros", "edge") else EXACT)
    return i32 if small and (outside in ("zeros", "edge") or places == f32) else i64


def taps_along(b: Builder, place: Value, mode: str, kind: DType) -> tuple[list[Value], list[Value]]:
    """Indices, of type `kind`, and weights of the elements along one axis that make up the result at `place`."""
    far = float(2 * SMALL) if kind == i32 else 2.0**40  # far beyond the operand it does not matter where
    place = b.Max(b.Min(place, far), -far)
    if mode == "nearest":
        return [b.Cast(b.Round(place), to=kind)], []
    before = b.Floor(place)
    t, first, one = b.Sub(place, before), b.Cast(before, to=kind), b.const(1.0, place.dtype)
    steps = [-1, 0, 1, 2] if mode == "cubic" else [0, 1]
    indices = [b.Add(first, b.const(k, kind)) if k else first for k in steps]
    if mode == "linear":
        return indices, [b.Sub(one, t), t]
    weights = cubic_weights(Written(b, t), Written(b, one))
    return indices, [w.value for w in weights]


class Written:
    """A value whose arithmetic with others and with numbers is written into the graph."""

    def __init__(self, b: Builder, value: Value) -> None:
        self.b, self.value = b, value

    def _with(self, name: str, other: Written | float) -> Written:
        return Written(self.b, getattr(self.b, name)(self.value, other.value if isinstance(other, Written) else other))

    def __add__(self, other: Written | float) -> Written:
        return self._with("Add", other)

    def __sub__(self, other: Written | float) -> Written:
        return self._with("Sub", other)

    def __mul__(self, other: Written | float) -> Written:
        return self._with("Mul", other)

    __rmul__ = __mul__


def side_by_side(b: Builder, planes: Value, groups: DimLike) -> Value:
    """Turn planes (n, c, elements) into what WeightedRows reads: (n, elements, groups, c / groups)."""
    images, channels, elements = planes.shape
    return reshaped(b, channels_last(b, planes), [images, elements, Dim.of(groups), channels // groups])


# --------------------------------------------------------------------------------------- the operations
def write_taps(b: Builder, op: Op, x: Value, *given: Value) -> Value:
    """WeightedTaps in both formats: elements are gathered from the planes and added up."""
    kind = given[1].dtype if len(given) > 1 else x.dtype
    ends = b.Slice(b.Shape(x), [0], [2], [0])
    zero = b.like(0, x)

    def taps(i: Value) -> Value:
        chosen = b.Unsqueeze(as_type(b, i, i64), [1])
        sizes = b.Shape(b.Reshape(i, [0, -1]), start=1)
        flat = b.Expand(b.Reshape(b.Max(chosen, b.const(0)), [0, 1, -1]), b.Concat(ends, sizes, axis=0))
        found = b.GatherElements(x, flat, axis=2)
        found = b.Reshape(found, b.Concat(ends, b.Shape(i, start=1), axis=0))
        return b.Where(b.Less(chosen, b.const(0)), zero, found)

    if len(given) == 1:
        return taps(given[0])
    terms = [
        b.Mul(as_type(b, taps(i), kind), b.Unsqueeze(w, [1])) for i, w in zip(given[::2], given[1::2], strict=True)
    ]
    return as_type(b, reduce(b.Add, terms), x.dtype)


def write_rows(b: Builder, op: Op, x: Value, *given: Value) -> Value:
    """WeightedRows in both formats, by way of WeightedTaps: groups are images, and channels stand before places."""
    images, rows, groups, channels = x.shape
    _, _, taps, points = given[0].shape
    planes = b.Reshape(b.Transpose(x, [0, 2, 3, 1]), b.dims([images * groups, channels, rows]), special_zero=False)
    flat = [b.Reshape(v, b.dims([images * groups, taps, points]), special_zero=False) for v in given]
    found = write_taps(b, op, planes, *flat)
    shape = [images, groups, channels, taps, points]
    return b.Transpose(b.Reshape(found, b.dims(shape), special_zero=False), [0, 4, 3, 1, 2])


@op
class WeightedTaps(Op):
    """The sum of elements x[n, c, i] · w over pairs of operands i (n, …; below 0: an element that is 0) and w (n, …),
    or the element itself for a single i: what GridSample of few channels becomes when it is compiled, indices and
    weights computed once for all of them."""

    sig = Sig("x: T, *indices_weights: any -> y: T", T=ANY)

    def infer(self, x: Value, *given: Value) -> TensorType:
        return TensorType(x.dtype, (*x.shape[:2], *given[0].shape[1:]))

    def reference(self, x: Array, *given: Array) -> Array:
        def taps(i: Array) -> Array:
            found = np.take_along_axis(x, np.maximum(i, 0).reshape(x.shape[0], 1, -1), axis=2)
            found = found.reshape(*x.shape[:2], *i.shape[1:])
            return np.where(np.expand_dims(i < 0, 1), x.dtype.type(0), found)

        if len(given) == 1:
            return taps(given[0])
        total = np.zeros((), x.dtype)
        for i, w in zip(given[::2], given[1::2]):
            total = total + taps(i).astype(w.dtype) * np.expand_dims(w, 1)
        return rounded(total, x)

    def loops(self, b: LoopBuilder, x: Tensor, *operands: Tensor) -> None:
        """Indices and weights stand in memory: a loop of reads and products over all points is left."""
        *given, result = operands
        images, channels, points = *result.shape[:2], product(result.shape[2:])
        given = [seen_as(t, [images, points]) for t in given]
        y = seen_as(result, [images * channels, points])

        def tap(i: Tensor, n: Expr, plane: Expr, point: Expr, kind: DType) -> Expr:
            at = b.let(i[n, point], "at")
            found = b.let(planes[plane, at.max(0).cast(i64)].cast(kind), "found")  # no size is 0
            return _unless(at.lt(0), found)

        planes = seen_as(x, [images * channels, x.shape[2]])
        with b.for_(images * channels, "parallel", "plane") as plane:
            n = b.let(plane // index(channels), "n")
            with b.for_(points, "simd", "point") as point:
                if len(given) == 1:
                    b.store(y, (plane, point), tap(given[0], n, plane, point, x.dtype))
                    return
                terms = [
                    tap(i, n, plane, point, w.dtype) * w[n, point] for i, w in zip(given[::2], given[1::2], strict=True)
                ]
                b.store(y, (plane, point), reduce(add, terms).cast(x.dtype))

    onnx = (write_only(write_taps),)
    openvino = (write_only(write_taps, since=6),)


@op
class WeightedRows(Op):
    """y[n, p, k, g] = Σ x[n, i[n, g, k, p], g] · w[n, g, k, p] over pairs of operands i (below 0: a row of zeros) and
    w, x being (n, rows, g, c): samples of all channels, which stand side by side, at places that they share."""

    sig = Sig("x: T[4], *indices_weights: any -> y: T", T=FLOATS)

    def infer(self, x: Value, *given: Value) -> TensorType:
        images, groups, taps, points = given[0].shape
        return x.tensor.with_shape([images, points, taps, groups, x.shape[3]])

    def reference(self, x: Array, *given: Array) -> Array:
        n, g = np.ogrid[: x.shape[0], : x.shape[2]]
        n, g = n[..., None, None], g[..., None, None]
        total = np.zeros((), x.dtype)
        for i, w in zip(given[::2], given[1::2]):
            found = np.where((i < 0)[..., None], x.dtype.type(0), x[n, np.maximum(i, 0), g])
            total = total + found * w[..., None]
        return np.ascontiguousarray(total.transpose(0, 3, 2, 1, 4))

    def loops(self, b: LoopBuilder, x: Tensor, *operands: Tensor) -> None:
        """Indices and weights are numbers of each row: a loop of products over the channels is left."""
        *given, y = operands
        images, points, taps, groups, channels = y.shape
        with (
            b.for_(images, "parallel", "n") as n,
            b.for_(points, "parallel", "p") as p,
            b.nest([taps, groups]) as (k, g),
        ):
            pairs: list[tuple[Expr, Expr, Expr]] = []
            for i, w in zip(given[::2], given[1::2], strict=True):
                at = b.let(i[n, g, k, p], "at")
                pairs.append((at, b.let(at.max(0).cast(i64), "row"), b.let(w[n, g, k, p], "weight")))
            with b.for_(channels, "simd", "c") as c:
                terms = [_unless(at.lt(0), b.let(x[n, row, g, c], "found")) * w for at, row, w in pairs]
                b.store(y, (n, p, k, g, c), reduce(add, terms))

    onnx = (write_only(write_rows),)
    openvino = (write_only(write_rows, since=6),)


def _unless(condition: Expr, x: Expr) -> Expr:
    """Return x, or 0 where a condition holds.

    A float is masked: gcc 12 moves the reading of what is chosen into a branch, and then makes no vectors of it.
    """
    if x.dtype not in (f32, f64):
        return select(condition, zero(x.dtype), x)
    bits = u32 if x.dtype == f32 else u64
    mask = select(condition, Const(0, bits), Const((1 << 8 * bits.itemsize) - 1, bits))
    return Bits(Bin("bitand", Bits(x, bits), mask), x.dtype)


def planes(op: GridSample, x: Value, grid: Value) -> bool:
    """Whether there are two spatial axes: OpenVINO, and ONNX before opset 20, know no other."""
    return x.rank == 4


@op
class GridSample(Op):
    """x (n, c, …) at the places that `grid` (n, …, number of spatial axes; the last axis first) names.

    mode: nearest (halves to even), linear, cubic (a = -0.75); padding: zeros, border, reflection.
    """

    mode: str = "linear"
    padding: str = "zeros"
    align_corners: bool = False
    sig = Sig("x: T[r>=3], grid: G[r] -> y: T", T=ANY, G=GRID)

    def infer(self, x: Value, grid: Value) -> TensorType:
        rank, facts = len(x.shape), {"op": "GridSample", "operand": "grid", "type": grid.tensor}
        require(rank >= 3, codes.WRONG_RANK, op="GridSample", operand="x", type=x.tensor, expected="3 or more")
        require(len(grid.shape) == rank, codes.WRONG_RANK, **facts, expected=rank)
        for what, a, c in (
            ("batch sizes of x and grid", x.shape[0], grid.shape[0]),
            ("last size of grid and number of spatial axes", grid.shape[-1], Dim.of(rank - 2)),
        ):
            require(same(a, c), codes.SIZES_DIFFER, op="GridSample", what=what, a=a, b=c)
        for k, size in enumerate(x.shape[2:], 2):
            facts = {"op": "GridSample", "what": f"axis {k} of x", "value": size}
            require(at_most(1, size), codes.SIZE_RANGE, **facts, expected="1 or more")
        numbers = self.mode == "nearest" or x.dtype in NUMERIC
        expected = f"nearest for elements of {x.dtype}"
        require(
            numbers, operation.ATTRIBUTE_RANGE, op="GridSample", attribute="mode", value=self.mode, expected=expected
        )
        return TensorType(x.dtype, (*x.shape[:2], *grid.shape[1:-1]))

    def _kind(self, x: DType, grid: DType) -> DType:
        return f64 if f64 in (x, grid) else f32

    def reference(self, x: Array, grid: Array) -> Array:
        g = grid.astype(np.float64 if np.float64 in (x.dtype, grid.dtype) else np.float32)
        padding = "zeros" if self.mode == "cubic" else self.padding
        count = x.ndim - 2
        places = [
            unnormalised(g[..., count - 1 - a], x.shape[2 + a], self.align_corners, padding) for a in range(count)
        ]
        return rounded(sampled(x, places, self.mode, tap_padding(self.mode, self.padding, self.align_corners)), x)

    def decompose(self, b: Builder, x: Value, grid: Value) -> Value:
        kind = self._kind(x.dtype, grid.dtype)
        g = grid if grid.dtype == kind else b.Cast(grid, to=kind)
        count, padding = len(x.shape) - 2, "zeros" if self.mode == "cubic" else self.padding
        outside = tap_padding(self.mode, self.padding, self.align_corners)
        kind_of_index = index_type(x, outside, kind)
        along: list[tuple[list[Value], list[Value]]] = []
        for a in range(count):
            own = b.Gather(g, b.const(count - 1 - a), b.const(count + 1))
            place = unnormalised_value(b, own, x.shape[2 + a], self.align_corners, padding)
            along.append(taps_along(b, place, self.mode, kind_of_index))
        given: list[Value] = []
        for corner in itertools.product(*(range(len(taps)) for taps, _ in along)):
            given.append(self._flat(b, x, [taps[k] for (taps, _), k in zip(along, corner, strict=True)], outside))
            chosen = [weights[k] for (_, weights), k in zip(along, corner, strict=True) if weights]
            given += [reduce(b.Mul, chosen)] if chosen else []
        planes = b.Reshape(x, b.dims([*x.shape[:2], product(x.shape[2:])]), special_zero=False)
        if self._reads_rows(x, given[0], kind):
            return self._rows(b, planes, given)
        return b.WeightedTaps(planes, *given)

    def _reads_rows(self, x: Value, at: Value, kind: DType) -> bool:
        """Tell whether all channels of a place should be read at once, which takes them side by side.

        Reading an element from anywhere takes several times as long as one of a vector, and copying one as long as two.
        """
        channels, elements, points = x.shape[1], product(x.shape[2:]), product(at.shape[1:])
        many = channels.is_const and int(channels) >= FEWEST_CHANNELS
        return self.mode != "nearest" and x.dtype == kind and many and not (points * MOST_COPIED).at_most(elements)

    def _rows(self, b: Builder, planes: Value, given: Sequence[Value]) -> Value:
        """WeightedTaps by way of WeightedRows."""
        (images, channels), places = planes.shape[:2], given[0].shape[1:]
        points = product(places)
        given = [reshaped(b, v, [images, 1, 1, points]) for v in given]
        seen = b.WeightedRows(side_by_side(b, planes, 1), *given)
        found = channels_second(b, reshaped(b, seen, [images, points, channels]))
        return reshaped(b, found, [images, channels, *places])

    def _flat(self, b: Builder, x: Value, at: Sequence[Value], outside: str) -> Value:
        """The index of an element in its plane; -1 where it is a zero outside."""
        found: Value | None = None
        checks: list[Value] = []
        for i, size in zip(at, x.shape[2:], strict=True):
            length = as_type(b, b.Reshape(b.dims([size]), []), i.dtype)
            if outside == "zeros":
                checks += [b.GreaterOrEqual(i, b.const(0, i.dtype)), b.Less(i, length)]
            else:
                i = inner_index(b, i, length, outside)
            found = i if found is None else b.Add(b.Mul(found, length), i)
        assert found is not None
        return b.Where(reduce(b.And, checks), found, b.const(-1, found.dtype)) if checks else found

    onnx = (
        Form("GridSample", 16, T={"T": ONNX_ALL, "G": FLOATS}, when=planes, attrs=ATTRIBUTES),
        Form("GridSample", 20, when=None, attrs=ATTRIBUTES | {"mode": Enum(["linear", "nearest", "cubic"], "linear")}),
        Form("GridSample", 22, T={"T": PREV | {bf16}, "G": PREV | {bf16}}),
    )
    openvino = (Form("GridSample", 9, T={"T": OV_ANY, "G": GRID}, when=planes, attrs=ATTRIBUTES),)
