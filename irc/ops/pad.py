"""Padding: Pad, in the operand order of either format.

Negative padding crops.  Sources: ONNX Pad; OpenVINO specification, Pad-1 and Pad-12; numpy.pad.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np

from irc.diagnostics import Facts, require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import Const, Expr, IndexFunction, Tensor, all_of, index, inside, select
from irc.ir.dim import Dim, DimLike
from irc.ir.graph import Value
from irc.ir.relation import any_of, at_most, same
from irc.ir.types import ANY, FLOATS, INTEGERS, TensorType, i64
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import AsInput, Enum
from irc.opdef.conversions import as_i64, as_scalar
from irc.opdef.forms import Form, write_only
from irc.opdef.run_sizes import each, named as named_axes, spread
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX, ONNX_ALL, ONNX_NUMBERS, OV_ANY, onnx_all
from irc.ops.layout import constant_ints, normal_axes
from irc.ops.shape import zero
from irc.ops.slice import LARGEST

MODES = Enum(["constant", "reflect", "edge"], "constant")
MODES_19 = Enum(["constant", "reflect", "edge", "wrap"], "constant")
OV_MODES = Enum(["constant", "edge", "reflect", "symmetric"], assumed="constant", to="mode")


N = TypeVar("N")


def axis_padding(rank: int, pads: Sequence[N], axes: list[int] | None) -> list[tuple[N | int, N | int]]:
    """(begin, end) of every axis from ONNX's order: all begins, then all ends."""
    chosen = range(rank) if axes is None else normal_axes("Pad", axes, rank)
    n = len(chosen)
    facts: Facts = {"op": "Pad", "attribute": "pads", "given": len(pads), "needed": 2 * n}
    require(len(pads) == 2 * n, operation.ATTRIBUTE_LENGTH, **facts)
    found: list[tuple[N | int, N | int]] = [(0, 0)] * rank
    for k, axis in enumerate(chosen):
        found[axis] = (pads[k], pads[n + k])
    return found


def mirrored(j: Expr, size: Expr, mode: str) -> Expr:
    """The index of the element that stands at position j, which may lie outside 0..size-1."""
    if mode == "edge":
        return j.max(0).min(size - 1)
    if mode == "wrap":
        return j % size
    period = (size - 1) * 2 if mode == "reflect" else size * 2
    m = j % period
    return select(m.lt(size), m, period - m if mode == "reflect" else period - 1 - m)


def pad_by_parts(b: Builder, x: Value, padding: list[tuple[int, int]], mode: str) -> Value:
    """Padding for a format without that mode, or not as far: the operand between parts of itself, or a Gather."""
    found = x
    for axis, (begin, end) in enumerate(padding):
        size = x.shape[axis]
        if size.is_const and min(begin, end) >= 0 and max(begin, end) > int(size):
            if begin or end:
                picks = pad_indices(int(size), begin, end, mode)
                found = b.Gather(found, b.const(picks), b.const(axis))
            continue
        for what, count in (("padding before", begin), ("padding after", end)):
            fits = count >= 0 and Dim.of(count).at_most(size) is True
            what = f"{what} of axis {axis}"
            require(fits, codes.SIZE_RANGE, op="Pad", what=what, value=count, expected=f"in 0..{size}")
        step = -1 if mode == "symmetric" else 1
        head, tail = (0, begin), (-end, LARGEST)
        if mode == "wrap":
            head, tail = (-begin, LARGEST), (0, end)
        elif mode == "symmetric":
            head, tail = (begin - 1, -LARGEST), (-1, -end - 1)
        parts = [found]
        if begin:
            parts.insert(0, b.Slice(found, [head[0]], [head[1]], [axis], [step]))
        if end:
            parts.append(b.Slice(found, [tail[0]], [tail[1]], [axis], [step]))
        found = b.Concat(*parts, axis=axis) if len(parts) > 1 else found
    return found if found is not x else b.Identity(x)


def wrap_in_run(b: Builder, x: Value, begin: Value, end: Value) -> Value:
    """Padding by the operand itself, as far as only the run knows; less than 0 cuts elements off before."""
    nothing, found = b.const(0), x
    cut, shape = b.Max(b.Neg(begin), nothing), b.Shape(x)
    left = b.Sub(b.Sub(shape, cut), b.Max(b.Neg(end), nothing))
    first, last = b.Neg(b.Max(begin, nothing)), b.Add(left, b.Max(end, nothing))
    for axis in range(len(x.shape)):
        start, stop, size, skipped = (b.Gather(v, b.const(axis), nothing) for v in (first, last, left, cut))
        places = b.Mod(b.Range(start, stop, b.const(1)), size)
        found = b.Gather(found, b.Add(places, skipped), b.const(axis))
    return found


def write_pad(
    b: Builder, op: Pad, x: Value, pads: Value, value: Value | None = None, axes: Value | None = None
) -> Value:
    """For ONNX versions without the mode, without axes, or with another type."""
    named = None if axes is None else constant_ints("Pad", "axes", axes)
    if op.mode == "wrap" and pads.ints() is None:
        return wrap_in_run(b, x, *halves(b, pads, len(x.shape), named))
    if op.mode in ("symmetric", "wrap"):
        return pad_by_parts(b, x, axis_padding(len(x.shape), constant_ints("Pad", "pads", pads), named), op.mode)
    if named is not None:
        begin, end = halves(b, pads, len(x.shape), named)
        return b.Pad(x, b.Concat(begin, end, axis=0), value, mode=op.mode)
    if value is not None and value.rank:
        return b.Pad(x, pads, b.Reshape(value, []), mode=op.mode)
    return b.Pad(x, pads, b.like(0, x) if value is None else value, mode=op.mode)


def halves(b: Builder, pads: Value, rank: int, axes: list[int] | None) -> tuple[Value, Value]:
    """The padding before and after every axis, as two vectors."""
    numbers = pads.ints()
    if numbers is not None:
        both = axis_padding(rank, numbers, axes)
        return b.const([p for p, _ in both]), b.const([q for _, q in both])
    chosen = list(range(rank)) if axes is None else list(normal_axes("Pad", axes, rank))
    n = len(chosen)
    if chosen == list(range(rank)):
        return b.Slice(pads, [0], [n], [0]), b.Slice(pads, [n], [2 * n], [0])
    wide = b.Concat(pads, b.const([0], pads.dtype), axis=0)
    places = [[chosen.index(k) + side * n if k in chosen else 2 * n for k in range(rank)] for side in (0, 1)]
    return b.Gather(wide, b.const(places[0]), b.const(0)), b.Gather(wide, b.const(places[1]), b.const(0))


def check_padding(axis: str, size: Dim, begin: DimLike, end: DimLike, mode: str) -> None:
    """Require that cropping leaves the axis a size, and that what is left has what the mode repeats."""
    begin, end = Dim.of(begin), Dim.of(end)
    left = size + begin.minimum(0) + end.minimum(0)
    facts: Facts = {"op": "Pad", "what": f"size of axis {axis} after cropping", "value": left}
    require(at_most(0, left), codes.SIZE_RANGE, **facts, expected="not negative")
    most = {"reflect": left - 1, "symmetric": left}.get(mode)
    for count in (begin, end):
        facts = {"op": "Pad", "what": f"padding of axis {axis}", "value": count}
        if most is not None:
            fits = any_of(at_most(count, 0), at_most(count, most))
            require(fits, codes.SIZE_RANGE, **facts, expected=f"at most {most} in mode {mode}")
        elif mode != "constant":
            fits = any_of(at_most(count, 0), at_most(1, left))
            require(fits, codes.SIZE_RANGE, **facts, expected=f"0 for an empty axis in mode {mode}")


def write_each(
    b: Builder, op: Pad, x: Value, pads: Value, value: Value | None = None, axes: Value | None = None
) -> Value:
    """OpenVINO has begins and ends of all axes as two operands, and does not wrap."""
    named = None if axes is None else constant_ints("Pad", "axes", axes)
    if op.mode == "wrap":
        return write_pad(b, op, x, pads, value, axes)
    begin, end = halves(b, pads, len(x.shape), named)
    value = None if value is None else as_scalar(b, value)
    return b.PadEach(x, begin, end, value if op.mode == "constant" else None, mode=op.mode)


def scalar_value(op: Pad, x: Value, pads: Value, value: Value | None = None, axes: Value | None = None) -> bool:
    return value is None or value.rank == 0


@op
class Pad(Op):
    """x with `pads` (all begins, then all ends, of `axes` or of all axes) elements around it.

    mode: constant (`value`, or 0), edge, reflect (without the edge), symmetric (with it), wrap.
    """

    mode: str = "constant"
    sig = Sig("x: T, pads: P[1], value?: T[one], axes?: A[1] -> y: T", T=ANY, P=INTEGERS, A=INTEGERS)

    def infer(self, x: Value, pads: Value, value: Value | None = None, axes: Value | None = None) -> TensorType:
        rank, sizes = len(x.shape), pads.dims()
        named = None if axes is None else axes.ints()
        for_axes = rank if axes is None else axes.shape[0]
        enough = same(pads.shape[0], Dim.of(for_axes) * 2)
        facts: Facts = {"op": "Pad", "attribute": "pads", "given": pads.shape[0], "needed": for_axes * 2}
        require(enough, operation.ATTRIBUTE_LENGTH, **facts)
        if sizes is None or (axes is not None and axes.ints() is None):
            padded = range(rank) if named is None else [a % rank for a in named]
            return TensorType(x.dtype, tuple(Dim.fresh("pad") if k in padded else d for k, d in enumerate(x.shape)))
        if value is not None:
            single = value.rank is None or same(value.tensor.elements(), 1)
            require(single, codes.WRONG_RANK, op="Pad", operand="value", type=value.tensor, expected=0)
        result: list[Dim] = []
        for axis, (begin, end) in enumerate(axis_padding(rank, sizes, named)):
            check_padding(f"{axis} of {x.tensor}", x.shape[axis], begin, end, self.mode)
            result.append(x.shape[axis] + begin + end)
        return TensorType(x.dtype, tuple(result))

    def run_sizes(
        self, b: Builder, out: TensorType, x: Value, pads: Value, value: Value | None = None, axes: Value | None = None
    ) -> Iterable[tuple[Dim, Value]]:
        begin, end = halves(b, as_i64(b, pads), len(x.shape), None if axes is None else axes.ints())
        return each(b, out.dims(), b.Add(b.Add(b.dims(x.shape), begin), end))

    def resolve(
        self, b: Builder, x: Value, pads: Value, value: Value | None = None, axes: Value | None = None
    ) -> Value | None:
        if axes is None or axes.ints() is not None:
            return None
        rank, count = len(x.shape), int(axes.shape[0])
        hits, counts = named_axes(b, axes, rank)
        ends = [spread(b, hits, counts, b.Slice(pads, [k], [k + count], [0]), 0) for k in (0, count)]
        return b.Pad(x, b.Concat(*ends, axis=0), value, mode=self.mode)

    def reference(self, x: Array, pads: Array, value: Array | None = None, axes: Array | None = None) -> Array:
        named = list(range(x.ndim)) if axes is None else [int(a) % x.ndim for a in axes]
        around = [(0, 0)] * x.ndim
        for k, axis in enumerate(named):
            around[axis] = (int(pads[k]), int(pads[len(named) + k]))
        x = x[tuple(slice(max(-p, 0), n - max(-q, 0)) for (p, q), n in zip(around, x.shape))]
        width = [(max(p, 0), max(q, 0)) for p, q in around]
        if self.mode == "constant":
            fill = np.zeros((), x.dtype) if value is None else np.asarray(value).reshape(())
            found = np.full([n + p + q for n, (p, q) in zip(x.shape, width)], fill, x.dtype)
            found[tuple(slice(p, p + n) for n, (p, _) in zip(x.shape, width))] = x
            return found
        for axis, (p, q) in enumerate(width):
            if p or q:
                x = np.take(x, pad_indices(x.shape[axis], p, q, self.mode), axis=axis)
        return x

    def compute(
        self, out: TensorType, x: Tensor, pads: Tensor, value: Tensor | None = None, axes: Tensor | None = None
    ) -> IndexFunction:
        numbers = pads.ints()
        count = int(pads.shape[0])
        bounds: Sequence[int | Expr] = numbers if numbers is not None else [pads[k].cast(i64) for k in range(count)]
        padding = axis_padding(x.rank, bounds, None if axes is None else axes.ints())
        fill: Expr = zero(out.dtype) if value is None else value[(0,) * value.rank]

        def element(*i: Expr) -> Expr:
            at: list[Expr] = []
            checks: list[Expr] = []
            for axis, (begin, end) in enumerate(padding):
                j, size = i[axis], x.shape[axis]
                if (begin, end) == (0, 0):
                    at.append(j)
                elif self.mode == "constant":
                    at.append(j - begin)
                    checks.append(inside(j - begin, size))
                else:
                    at.append(self._inner(j, begin, end, size))
            here = x[tuple(at)]
            return select(all_of(checks), here, fill) if checks else here

        return element

    def _inner(self, j: Expr, begin: int | Expr, end: int | Expr, size: Dim) -> Expr:
        """The operand's index: what negative padding leaves of the axis is what the mode repeats."""
        if isinstance(begin, int) and isinstance(end, int):
            cut = max(-begin, 0)
            return mirrored(j - max(begin, 0), index(size - cut - max(-end, 0)), self.mode) + cut
        nothing, first, last = Const(0, i64), index(begin), index(end)
        cut_begin, cut_end = (nothing - first).max(0), (nothing - last).max(0)
        return mirrored(j - first.max(0), index(size) - cut_begin - cut_end, self.mode) + cut_begin

    onnx = (
        Form(
            "Pad",
            1,
            T={"T": FLOATS, "P": {i64}, "A": INDEX},
            sig=Sig("x: T -> y: T", T=FLOATS),
            write=write_pad,
            attrs={"mode": MODES, "paddings": AsInput(index=1, dtype=i64), "value": AsInput(0.0, index=2, scalar=True)},
        ),
        Form(
            "Pad",
            2,
            attrs={"mode": MODES, "pads": AsInput(index=1, dtype=i64), "value": AsInput(0.0, index=2, scalar=True)},
        ),
        Form(
            "Pad",
            11,
            attrs={"mode": MODES},
            T={"T": ONNX_NUMBERS},
            when=scalar_value,
            sig=Sig("x: T, pads: P[1], value?: T[one] -> y: T", T=ONNX_ALL, P={i64}),
        ),
        Form("Pad", 13, T={"T": onnx_all(13)}),
        Form("Pad", 18, sig=None),
        Form("Pad", 19, attrs={"mode": MODES_19}),
        *(Form("Pad", n, T={"T": onnx_all(n)}) for n in (21, 23, 24, 25)),
    )
    openvino = (write_only(write_each),)


def pad_indices(size: int, begin: int, end: int, mode: str) -> Array:
    """Which elements of an axis stand in the padded one."""
    j = np.arange(-begin, size + end)
    if mode == "edge":
        return np.clip(j, 0, size - 1)
    if mode == "wrap":
        return j % size
    period = max(2 * (size - 1), 1) if mode == "reflect" else 2 * size
    m = j % period
    return np.where(m < size, m, period - m if mode == "reflect" else period - 1 - m)


def not_negative(op: PadEach, x: Value, begin: Value, end: Value, value: Value | None = None) -> bool:
    """Pad-1 does not crop."""
    return all(v.ints() is not None and min(v.ints() or [0]) >= 0 for v in (begin, end))


@op
class PadEach(Op):
    """OpenVINO's Pad: the padding before and after every axis as two operands."""

    mode: str = "constant"
    sig = Sig("x: T, begin: B[1], end: E[1], value?: T[one] -> y: T", T=ANY, B=INTEGERS, E=INTEGERS)

    def infer(self, x: Value, begin: Value, end: Value, value: Value | None = None) -> TensorType:
        for name, operand in (("begin", begin), ("end", end)):
            facts: Facts = {"op": "Pad", "attribute": name, "given": operand.shape[0], "needed": len(x.shape)}
            require(same(operand.shape[0], len(x.shape)), operation.ATTRIBUTE_LENGTH, **facts)
        first, last = begin.dims(), end.dims()
        if first is None or last is None:
            return TensorType.of(x.dtype, [Dim.fresh("pad") for _ in x.shape])
        result: list[Dim] = []
        for axis, (p, q) in enumerate(axis_padding(len(x.shape), [*first, *last], None)):
            check_padding(f"{axis} of {x.tensor}", x.shape[axis], p, q, self.mode)
            result.append(x.shape[axis] + p + q)
        return TensorType(x.dtype, tuple(result))

    def decompose(self, b: Builder, x: Value, begin: Value, end: Value, value: Value | None = None) -> Value:
        first, last = begin.ints(), end.ints()
        if first is not None and last is not None:
            return b.Pad(x, b.const([*first, *last]), value, mode=self.mode)
        return b.Pad(x, b.Concat(as_i64(b, begin), as_i64(b, end), axis=0), value, mode=self.mode)

    openvino = (
        Form("Pad", 1, attrs={"pad_mode": OV_MODES}, T={"T": OV_ANY}, when=not_negative),
        Form("Pad", 12, when=None),
    )
