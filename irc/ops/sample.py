"""Elements of a tensor at places that another tensor names: GridSample.

A place is normalised: -1 and 1 are the middles of the first and the last element (`align_corners`), or their outer
edges.  Sources: ONNX GridSample; OpenVINO specification, GridSample-9.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import Const, Expr, IndexFunction, Tensor, all_of, call, index, inside, select
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import ANY, FLOATS, FLOATS_BF16, NUMERIC, DType, TensorType, bf16, f8e4m3fn, f8e5m2, f32, f64, i64
from irc.ops.base import Array, Op, op
from irc.ops.codecs import Bool, Enum
from irc.ops.forms import PREV, Form
from irc.ops.pad import mirrored
from irc.ops.precision import rounded
from irc.ops.shape import zero
from irc.ops.signature import Sig
from irc.ops.typesets import ONNX_ALL, OV_ANY

GRID = FLOATS_BF16 | {f8e4m3fn, f8e5m2}
PADDINGS = ["zeros", "border", "reflection"]
CUBIC = -0.75
"""The cubic kernel's coefficient."""


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


def unnormalised_value(b: Any, g: Value, size: Dim, align: bool, padding: str) -> Value:
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
        around = b.Mod(b.Abs(b.Sub(place, low)), number(span * 2), fmod=True)
        place = b.Add(b.Where(b.Greater(around, number(span)), b.Sub(number(span * 2), around), around), low)
    if padding == "zeros":
        return place
    return b.Min(b.Max(place, b.const(0, g.dtype)), number(size - 1))


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
    return np.where(np.expand_dims(valid, 1), found, np.zeros((), x.dtype))


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


# --------------------------------------------------------------------------------------- the operations
@op
class SampleAt(Op):
    """x (n, c, …) at positions counted in elements, one operand (n, …) for each spatial axis: GridSample when it is
    compiled, its positions computed once for all channels.

    outside: what a tap beyond x is: zeros, edge, reflect, symmetric.
    """

    mode: str
    outside: str
    sig = Sig("x: T, *places: P -> y: T", T=ANY, P={f32, f64})

    def infer(self, x: Value, *places: Value) -> TensorType:
        return TensorType(x.dtype, (*x.shape[:2], *places[0].shape[1:]))

    def reference(self, x: Array, *places: Array) -> Array:
        return rounded(sampled(x, places, self.mode, self.outside), x)

    def compute(self, out: TensorType, x: Tensor, *places: Tensor) -> IndexFunction:
        kind, sizes = places[0].dtype, x.shape[2:]

        def tap(n: Expr, c: Expr, at: Sequence[Expr]) -> Expr:
            if self.outside != "zeros":
                inner = [mirrored(a, index(s), self.outside) for a, s in zip(at, sizes, strict=True)]
                return x[(n, c, *inner)]
            ok = all_of([inside(a, s) for a, s in zip(at, sizes, strict=True)])
            return select(ok, x[(n, c, *at)], zero(x.dtype))

        def element(n: Expr, c: Expr, *o: Expr) -> Expr:
            # Far beyond the operand it does not matter where: i64 holds such a position.
            at = [p[(n, *o)].max(-(2.0**40)).min(2.0**40) for p in places]
            if self.mode == "nearest":
                return tap(n, c, [call("round", a).cast(i64) for a in at])
            first = [call("floor", a) for a in at]
            one, start = Const(1.0, kind), 0 if self.mode == "linear" else -1
            along = [a - f for a, f in zip(at, first, strict=True)]
            weights = [[one - t, t] if self.mode == "linear" else cubic_weights(t, one) for t in along]
            total: Expr | None = None
            for corner in itertools.product(*(range(len(w)) for w in weights)):
                taps = tap(n, c, [f.cast(i64) + (start + k) for f, k in zip(first, corner, strict=True)]).cast(kind)
                weight = weights[0][corner[0]]
                for w, k in zip(weights[1:], corner[1:], strict=True):
                    weight = weight * w[k]
                total = taps * weight if total is None else total + taps * weight
            assert total is not None
            return total.cast(x.dtype)

        return element


def planes(op: Any, x: Value, grid: Value) -> bool:
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
    sig = Sig("x: T, grid: G -> y: T", T=ANY, G=GRID)

    def infer(self, x: Value, grid: Value) -> TensorType:
        rank, facts = len(x.shape), {"op": "GridSample", "operand": "grid", "type": grid.tensor}
        require(rank >= 3, codes.WRONG_RANK, op="GridSample", operand="x", type=x.tensor, expected="3 or more")
        require(len(grid.shape) == rank, codes.WRONG_RANK, **facts, expected=rank)
        for what, a, c in (
            ("batch sizes of x and grid", x.shape[0], grid.shape[0]),
            ("last size of grid and number of spatial axes", grid.shape[-1], Dim.of(rank - 2)),
        ):
            require(a.equals(c), codes.SIZES_DIFFER, op="GridSample", what=what, a=a, b=c)
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

    def decompose(self, b: Any, x: Value, grid: Value) -> Value:
        kind = self._kind(x.dtype, grid.dtype)
        g = grid if grid.dtype == kind else b.Cast(grid, to=kind)
        count, padding = len(x.shape) - 2, "zeros" if self.mode == "cubic" else self.padding
        places: list[Value] = []
        for a in range(count):
            own = b.Gather(g, b.const(count - 1 - a), b.const(count + 1))
            places.append(unnormalised_value(b, own, x.shape[2 + a], self.align_corners, padding))
        return b.SampleAt(x, *places, mode=self.mode, outside=tap_padding(self.mode, self.padding, self.align_corners))

    onnx = (
        Form(
            "GridSample", 16, T={"T": ONNX_ALL, "G": FLOATS}, when=planes,
            attrs={
                "mode": Enum({"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}, "linear"),
                "padding_mode": Enum(PADDINGS, "zeros", to="padding"), "align_corners": Bool(False),
            },
        ),
        Form(
            "GridSample", 20, when=None,
            attrs={
                "mode": Enum(["linear", "nearest", "cubic"], "linear"),
                "padding_mode": Enum(PADDINGS, "zeros", to="padding"), "align_corners": Bool(False),
            },
        ),
        Form("GridSample", 22, T={"T": PREV | {bf16}, "G": PREV | {bf16}}),
    )  # fmt: skip
    openvino = (
        Form(
            "GridSample", 9, T={"T": OV_ANY, "G": GRID}, when=planes,
            attrs={
                "mode": Enum({"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}, "linear"),
                "padding_mode": Enum(PADDINGS, "zeros", to="padding"), "align_corners": Bool(False),
            },
        ),
    )  # fmt: skip
