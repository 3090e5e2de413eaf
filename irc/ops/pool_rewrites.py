"""Pools in other operations and attributes, for versions that lack them: convolutions with ones, means, padding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from irc.arrays import Array
from irc.diagnostics import require
from irc.diagnostics.codes import conversion
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.literal import AttributeValue
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_type
from irc.opdef.forms import Declined, Results
from irc.opdef.precision import narrowed, widened
from irc.opdef.window import Windowed, window_count, window_padding

if TYPE_CHECKING:
    from irc.ops.pool import AveragePool, LpPool, MaxPool


class Pooling(Windowed, Protocol):
    """An operation that slides a window of given sizes."""

    @property
    def kernel(self) -> tuple[int, ...]: ...
    @property
    def rounding(self) -> str: ...
    def attributes(self) -> dict[str, AttributeValue]: ...


def effective_rounding(op: Pooling) -> str:
    """SAME rules fix the result size, so rounding has no say."""
    return "floor" if op.auto_pad in ("same_upper", "same_lower") else op.rounding


def floored(op: Pooling, x: Value) -> dict[str, AttributeValue]:
    """The attributes that say the same with rounding down: the end padding grows by what rounding up ran over.

    Declined where that is what it does already; Problem IRC4002 where the spatial sizes are not static.
    """
    if op.rounding == "floor":
        raise Declined
    static = all(n.is_const for n in x.shape[2:])
    reason = "its pools round sizes down, and how much padding stands for rounding up is known with the sizes only"
    require(static, conversion.CANNOT_EXPRESS, target="this opset", op=str(op), types=x.tensor, reason=reason)
    begin, _end = window_padding(op, x.shape[2:], op.kernel)
    count = window_count(op, x.shape[2:], op.kernel, effective_rounding(op))
    rank = len(op.kernel)
    strides, gaps = op.strides or (1,) * rank, op.dilations or (1,) * rank
    reach = [(int(c) - 1) * s + (k - 1) * g + 1 for c, s, k, g in zip(count, strides, op.kernel, gaps, strict=True)]
    more = [r - int(n) - int(p) for r, n, p in zip(reach, x.shape[2:], begin, strict=True)]
    ends = tuple(max(m, 0) for m in more)
    return {
        **op.attributes(),
        "pads_begin": tuple(int(p) for p in begin),
        "pads_end": ends,
        "auto_pad": "explicit",
        "rounding": "floor",
    }


def sums(
    b: Builder, op: Windowed, x: Value, kernel: Sequence[int], end: Sequence[int], begin: Sequence[int] | None = None
) -> Value:
    """The sum of every window of x [n, c, …], 0 in the padding before (the operation's own) and after."""
    sizes = b.Shape(x)
    planes = b.Concat(b.const([-1, 1]), b.Slice(sizes, [2], [len(x.shape)], [0]), axis=0)
    ones = b.const(np.ones((1, 1, *kernel)), x.dtype)
    y = b.Conv(
        b.Reshape(x, planes),
        ones,
        strides=op.strides,
        dilations=op.dilations,
        auto_pad=op.auto_pad,
        pads_begin=op.pads_begin if begin is None else tuple(begin),
        pads_end=tuple(end),
    )
    spatial = b.Slice(b.Shape(y), [2], [len(x.shape)], [0])
    return b.Reshape(y, b.Concat(b.Slice(sizes, [0], [2], [0]), spatial, axis=0))


def counts(b: Builder, op: Windowed, x: Value, kernel: Sequence[int], end: Sequence[int], padded: bool) -> Value:
    """How many elements of x (and of the operation's own padding) every window holds, as [1, 1, …]."""
    sizes = list(x.shape[2:])
    begin: Sequence[int] | None = None
    if padded and op.auto_pad == "explicit":
        rank = len(sizes)
        before, after = (tuple(p) or (0,) * rank for p in (op.pads_begin, op.pads_end))
        sizes = [Dim.of(n) + p + q for n, p, q in zip(sizes, before, after, strict=True)]
        begin, end = (0,) * rank, tuple(e - q for e, q in zip(tuple(end) or (0,) * rank, after, strict=True))
    return sums(b, op, b.Expand(b.like(1, x), b.dims([1, 1, *sizes])), kernel, end, begin)


def write_average_of_padded(b: Builder, op: AveragePool, x: Value) -> Value:
    """OpenVINO, where rounding up runs over the padding that is counted: that padding becomes part of the operand."""
    if op.counted != "padded":
        raise Declined
    fields = floored(op, x)
    before, needed = (cast("tuple[int, ...]", fields[k]) for k in ("pads_begin", "pads_end"))
    none = (0,) * len(needed)
    after = [min(n, p) for n, p in zip(needed, op.pads_end or none, strict=True)]
    padded = b.Pad(x, b.const([0, 0, *before, 0, 0, *after]), b.like(0, x))
    fields |= {"pads_begin": none, "pads_end": tuple(n - a for n, a in zip(needed, after, strict=True))}
    return b.AveragePool(padded, **{**fields, "counted": "inside"})


def write_average_by_sums(b: Builder, op: AveragePool, x: Value) -> Value:
    """Where no version has the attributes: sums of windows, and how many elements each of them counts."""
    fixed = op if op.rounding == "floor" else replace(op, **floored(op, x))
    wide, kernel = widened(b, x), op.kernel
    total = sums(b, fixed, wide, kernel, fixed.pads_end)
    full = op.counted == "padded" and (op.rounding == "floor" or op.auto_pad != "explicit")
    if full or op.counted == "window":
        number = b.like(math.prod(kernel), wide)
    else:
        counting = fixed if op.counted == "inside" else op
        number = counts(b, counting, wide, kernel, fixed.pads_end, op.counted == "padded")
    return narrowed(b, b.Div(total, number), x)


def write_lp_by_sums(b: Builder, op: LpPool, x: Value) -> Value:
    """Where no version has the attributes: sums of powers."""
    fixed = op if op.rounding == "floor" else replace(op, **floored(op, x))
    wide = widened(b, x)
    power = b.Pow(b.Abs(wide), b.like(op.p, wide))
    total = sums(b, fixed, power, op.kernel, fixed.pads_end)
    return narrowed(b, b.Pow(total, b.like(1.0 / op.p, wide)), x)


def write_lp_by_means(b: Builder, op: LpPool, x: Value) -> Value:
    """OpenVINO: means of powers, times the number of elements of a window."""
    wide = widened(b, x)
    power = b.Pow(b.Abs(wide), b.like(op.p, wide))
    fields = {k: v for k, v in op.attributes().items() if k != "p"}
    means = b.AveragePool(power, **fields, counted="window")
    total = b.Mul(means, b.like(math.prod(op.kernel), wide))
    return narrowed(b, b.Pow(total, b.like(1.0 / op.p, wide)), x)


def write_row_major(b: Builder, op: MaxPool, x: Value) -> Results:
    """OpenVINO: places that are counted down the columns, from those along the rows."""
    if not op.column_major:
        raise Declined
    y, place = b.add_all(replace(op, column_major=False), x)
    sizes = [as_type(b, b.dims([d]), place.dtype) for d in x.shape[2:]]
    along: list[Value] = []
    for size in reversed(sizes):
        along.append(b.Mod(place, size))
        place = b.Div(place, size)
    for k, size in zip(along, reversed(sizes), strict=True):
        place = b.Add(b.Mul(place, size), k)
    return y, place


def write_average_pool(b: Builder, op: AveragePool, x: Value) -> Results:
    """What rounding and counting cannot say becomes padding."""
    fields = floored(op, x)
    if op.counted == "padded" and fields["pads_end"] != tuple(op.pads_end):
        raise Declined  # growing the padding would change what is counted
    if op.counted == "window":
        fields["counted"] = "padded"
    return b.AveragePool(x, **fields)


def write_torch_rounding(b: Builder, op: MaxPool, x: Value) -> Results:
    """OpenVINO before version 14: rounding as PyTorch does it is one of the others, or becomes padding."""
    if op.rounding != "ceil_torch" or not all(n.is_const for n in x.shape[2:]):
        raise Declined
    count = window_count(op, x.shape[2:], op.kernel, effective_rounding(op))
    for rounding in ("floor", "ceil"):
        if window_count(op, x.shape[2:], op.kernel, rounding) == count:
            return b.add_all(replace(op, rounding=rounding), x)
    return b.add_all(replace(op, **floored(op, x)), x)


def write_gathered_windows(b: Builder, op: MaxPool, x: Value) -> Results:
    """OpenVINO before version 8: windows whose elements lie apart, and places, by reading every window's elements."""
    if op.column_major:  # said in rows first
        raise Declined
    places = _places_of_windows(op, x)
    sizes = [int(n) for n in x.shape[2:]]
    counts = [len(rows) for rows in places]
    planes = b.Reshape(x, b.dims([*x.shape[:2], math.prod(sizes)]), special_zero=False)
    flat: Array = np.zeros((1, 1), np.int64)
    for rows, size in zip(places, sizes, strict=True):  # [windows so far, elements so far] and those of one axis more
        flat = (flat[:, None, :, None] * size + rows[None, :, None, :]).reshape(flat.shape[0] * len(rows), -1)
    elements = b.Gather(planes, b.const(flat), b.const(2))
    best = b.ReduceMax(elements, [3], keepdims=True)
    kind = op.index_type
    found = b.Where(b.Equal(elements, best), b.const(flat, kind), b.const(math.prod(sizes), kind))
    place = b.ReduceMin(found, [3], keepdims=False)
    start = op.axis % len(x.shape)
    if start < 2:
        number = b.Range(
            b.const(0), b.ReduceProd(b.Slice(b.Shape(x), [start], [2], [0]), [0], keepdims=False), b.const(1)
        )
        lead = b.dims([1] * start + list(x.shape[start:2]) + [1])
        base = b.Mul(as_type(b, b.Reshape(number, lead, special_zero=False), kind), b.const(math.prod(sizes), kind))
        place = b.Add(place, base)
    elif start > 2:
        place = b.Mod(place, b.const(math.prod(sizes[start - 2 :]), kind))
    shape = b.dims([*x.shape[:2], *counts])
    y = b.Squeeze(best, [3])
    return b.Reshape(y, shape, special_zero=False), b.Reshape(place, shape, special_zero=False)


def _places_of_windows(op: MaxPool, x: Value) -> list[Array]:
    """Where the elements of the windows along each spatial axis lie, [windows, elements].

    For one in the padding stands another of the window.  Declined where there is none, or sizes are unknown.
    """
    sizes = [n.const for n in x.shape[2:]]
    if any(n is None for n in sizes):
        raise Declined
    begin, _ = window_padding(op, x.shape[2:], op.kernel)
    windows = window_count(op, x.shape[2:], op.kernel, effective_rounding(op))
    rank = len(op.kernel)
    steps, gaps = op.strides or (1,) * rank, op.dilations or (1,) * rank
    found: list[Array] = []
    for size, p, count, k, s, d in zip(sizes, begin, windows, op.kernel, steps, gaps, strict=True):
        at: Array = np.add.outer(np.arange(int(count)) * s, np.arange(k) * d) - int(p)  # pyright: ignore
        inside: Array = (at >= 0) & (at < (size or 0))
        if not inside.any(axis=1).all():
            raise Declined
        first: Array = np.take_along_axis(at, inside.argmax(axis=1)[:, None], 1)
        found.append(np.where(inside, at, first))
    return found
