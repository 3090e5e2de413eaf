"""Sliding windows: what convolutions and pools share (padding rules, result sizes, spatial attributes)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from irc.arrays import Array
from irc.diagnostics import require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import Expr, all_of, index, inside
from irc.ir.dim import Dim
from irc.ir.relation import at_most
from irc.opdef.codecs import Codec, Enum, Ints, Pads, PerAxis

ONNX_AUTO_PAD = Enum(
    {"NOTSET": "explicit", "SAME_UPPER": "same_upper", "SAME_LOWER": "same_lower", "VALID": "valid"}, "explicit"
)
OV_AUTO_PAD = Enum(["explicit", "same_upper", "same_lower", "valid"], "explicit")

ONNX_WINDOW: dict[str, Codec] = {"auto_pad": ONNX_AUTO_PAD, "pads": Pads(), "strides": Ints((), lo=1)}
OV_WINDOW: dict[str, Codec] = {
    "strides": PerAxis(lo=1),
    "pads_begin": PerAxis(assumed=(), fill=0),
    "pads_end": PerAxis(assumed=(), fill=0),
    "auto_pad": OV_AUTO_PAD,
}

NEUTRAL = {"strides": 1, "dilations": 1, "pads_begin": 0, "pads_end": 0, "output_padding": 0}
"""Lists with a number for each spatial axis: what each number is where the list is left out."""


class Windowed(Protocol):
    """An operation that slides a window."""

    @property
    def name(self) -> str: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dilations(self) -> tuple[int, ...]: ...
    @property
    def pads_begin(self) -> tuple[int, ...]: ...
    @property
    def pads_end(self) -> tuple[int, ...]: ...
    @property
    def auto_pad(self) -> str: ...


def spatial(op: str, attribute: str, values: Sequence[int], rank: int, default: int) -> tuple[int, ...]:
    """One value per spatial axis; absent means `default` everywhere.  Problem IRC2208 on another count."""
    if not values:
        return (default,) * rank
    ok = len(values) == rank
    require(ok, operation.ATTRIBUTE_LENGTH, op=op, attribute=attribute, given=len(values), needed=rank)
    return tuple(values)


def extent(kernel: Dim | int, dilation: int) -> Dim:
    """How far a dilated window reaches."""
    return (Dim.of(kernel) - 1) * dilation + 1


def same_padding(size: Dim, reach: Dim, stride: int, upper: bool) -> tuple[Dim, Dim]:
    """(begin, end) so that the result has ceil(size / stride) elements; the odd one goes to the end if `upper`."""
    total = ((size.ceildiv(stride) - 1) * stride + reach - size).maximum(0)
    small = total // 2
    return (small, total - small) if upper else (total - small, small)


def window_padding(op: Windowed, sizes: Sequence[Dim], kernel: Sequence[Dim | int]) -> tuple[list[Dim], list[Dim]]:
    """The padding before and after each spatial axis, by `auto_pad`."""
    rank = len(sizes)
    strides = spatial(op.name, "strides", op.strides, rank, 1)
    dilations = spatial(op.name, "dilations", op.dilations, rank, 1)
    if op.auto_pad == "explicit":
        begin = spatial(op.name, "pads_begin", op.pads_begin, rank, 0)
        end = spatial(op.name, "pads_end", op.pads_end, rank, 0)
        return [Dim.of(p) for p in begin], [Dim.of(p) for p in end]
    if op.auto_pad == "valid":
        return [Dim.of(0)] * rank, [Dim.of(0)] * rank
    pairs = [
        same_padding(n, extent(k, d), s, op.auto_pad == "same_upper")
        for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True)
    ]
    return [p[0] for p in pairs], [p[1] for p in pairs]


def window_count(
    op: Windowed, sizes: Sequence[Dim], kernel: Sequence[Dim | int], rounding: str = "floor"
) -> tuple[Dim, ...]:
    """The result's spatial sizes.

    rounding: floor; ceil; ceil_torch, which drops a last window that would start in the end padding.
    Problem IRC3109 where the window does not fit into the padded operand.
    """
    begin, end = window_padding(op, sizes, kernel)
    strides = spatial(op.name, "strides", op.strides, len(sizes), 1)
    dilations = spatial(op.name, "dilations", op.dilations, len(sizes), 1)
    found: list[Dim] = []
    for n, k, s, d, p, q in zip(sizes, kernel, strides, dilations, begin, end, strict=True):
        slack = n + p + q - extent(k, d)
        require(
            at_most(0, slack),
            codes.SIZE_RANGE,
            op=op.name,
            what="the padded size",
            value=n + p + q,
            expected=f"at least the window's {extent(k, d)}",
        )
        count = slack // s + 1 if rounding == "floor" else slack.ceildiv(s) + 1
        if rounding == "ceil_torch":
            starts_outside = (n + p).at_most((count - 1) * s)
            if starts_outside is None:
                count = count.minimum((n + p - 1) // s + 1)
            elif starts_outside:
                count = count - 1
        found.append(count)
    return tuple(found)


def window_positions(
    op: Windowed, o: Sequence[Expr], k: Sequence[Expr], sizes: Sequence[Dim], kernel: Sequence[Dim | int]
) -> tuple[list[Expr], Expr]:
    """Where window element `k` of result `o` reads, and whether that is inside the operand."""
    rank = len(sizes)
    begin, _ = window_padding(op, sizes, kernel)
    strides = spatial(op.name, "strides", op.strides, rank, 1)
    dilations = spatial(op.name, "dilations", op.dilations, rank, 1)
    at = [i * s + j * d - index(p) for i, s, j, d, p in zip(o, strides, k, dilations, begin, strict=True)]
    padded = [p != 0 or q != 0 for p, q in zip(begin, _ends(op, sizes, kernel), strict=True)]
    return at, all_of(inside(a, n) for a, n, check in zip(at, sizes, padded, strict=True) if check)


def taps_inside(size: int, result: int, window: int, stride: int, dilation: int, padding: int) -> int:
    """Count the taps along an axis, over all results, that meet the input and not its padding."""
    met = 0
    for low in (padding - tap * dilation for tap in range(window)):  # met by o if low <= o * stride < low + size
        first, end = max(-(-low // stride), 0), min(-(-(low + size) // stride), result)
        met += max(end - first, 0)
    return met


def _ends(op: Windowed, sizes: Sequence[Dim], kernel: Sequence[Dim | int]) -> list[Dim]:
    """End padding, or a nonzero stand-in where rounding up lets the last window run over the end."""
    _, end = window_padding(op, sizes, kernel)
    over = getattr(op, "rounding", "floor") != "floor"
    return [Dim.of(1) if over else q for q in end]


def pad_spatial(x: Array, begin: Sequence[int], end: Sequence[int], value: float) -> Array:
    """`x` padded on its spatial axes (from axis 2 on) with `value`; negative padding crops."""
    if any(p < 0 for p in (*begin, *end)):
        kept = [slice(max(-b, 0), n + min(e, 0)) for n, b, e in zip(x.shape[2:], begin, end, strict=True)]
        x = x[(slice(None), slice(None), *kept)]
    if any(p > 0 for p in (*begin, *end)):
        widths = [(0, 0), (0, 0), *((max(b, 0), max(e, 0)) for b, e in zip(begin, end, strict=True))]
        x = np.pad(x, widths, constant_values=value)
    return x


def windows(x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Array:
    """A view [N, C, *count, *kernel] of every window of a padded operand."""
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(range(2, 2 + len(kernel))))
    if all(s == 1 for s in (*strides, *dilations)):
        return view
    return view[(slice(None), slice(None), *(slice(None, None, s) for s in (*strides, *dilations)))]
