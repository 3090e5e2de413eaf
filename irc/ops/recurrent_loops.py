"""Steps of a quantized LSTM as a Loop, for formats whose recurrent operations do not quantize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from irc.ir.graph import Value
from irc.ir.types import f32
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_type
from irc.opdef.forms import Declined
from irc.ops.loop_forms import repeated
from irc.ops.recurrent_steps import RATIONAL

if TYPE_CHECKING:
    from irc.ops.recurrent_quantized import QuantizedLSTMSteps

PLAIN = {name: plain for plain, rational in RATIONAL.items() for name in (plain, rational)}
"""The activations, and what they approximate."""


def write_loops(
    b: Builder, op: QuantizedLSTMSteps, projected: Value, weights: Value, scale: Value, zero: Value, *rest: Value | None
) -> Sequence[Value]:
    """Run a Loop for each direction that quantizes the state, multiplies, and carries what the cell makes of it."""
    h, lengths, c, peephole, bias = (*rest, *[None] * (5 - len(rest)))
    kinds = [PLAIN.get(kind[0]) for each in op.activations for kind in each]
    if lengths is not None or peephole is not None or op.clip or op.input_forget or None in kinds:
        raise Declined
    directions, size = int(weights.shape[0]), int(weights.shape[1])
    shape = b.Concat(b.Slice(b.Shape(projected), [1], [2], [0]), b.const([size]), axis=0)
    found: list[tuple[Value, ...]] = []
    for d in range(directions):
        held = [_of(b, v, d, 0) if v is not None else b.Expand(b.const(0.0, f32), shape) for v in (h, c)]
        whole = b.Sub(as_type(b, _of(b, weights, d, 0), f32), as_type(b, _of(b, zero, d, 0), f32))
        given = [_of(b, projected, d, 2), whole, _of(b, scale, d, 0), *([] if bias is None else [_of(b, bias, d, 0)])]
        found.append(_direction(b, op, d, op.direction == "reverse" or d == 1, held, given))
    y, y_h, y_c = (
        b.Concat(*[b.Unsqueeze(each[k], [axis]) for each in found], axis=axis) for k, axis in ((2, 1), (0, 0), (1, 0))
    )
    return y, y_h, y_c


def _of(b: Builder, value: Value, d: int, axis: int) -> Value:
    """Take what belongs to one direction."""
    return b.Gather(value, b.const(d), b.const(axis))


def _direction(
    b: Builder, op: QuantizedLSTMSteps, d: int, backwards: bool, held: Sequence[Value], given: Sequence[Value]
) -> tuple[Value, ...]:
    """Go through the steps.  Returns the last state, the last cell, and the states [steps, batch, hidden] in order."""
    count = b.Gather(b.Shape(given[0]), b.const(0), b.const(0))
    outside = [*given, *([count] if backwards else [])]

    def step(
        inner: Builder, number: Value, carried: Sequence[Value], within: Sequence[Value]
    ) -> tuple[Sequence[Value], Sequence[Value]]:
        (h, c), (projected, whole, scale, *more) = carried, within
        at = inner.Sub(inner.Sub(more.pop(), inner.const(1)), number) if backwards else number
        sums = inner.Add(inner.Gather(projected, at, inner.const(0)), _product(inner, h, whole, scale))
        h, c = _cell(inner, op, d, inner.Add(sums, more[0]) if more else sums, c)
        return [h, c], [h]

    state, cell, rows = repeated(b, count, held, outside, step)
    if backwards:
        places = b.Range(b.Sub(count, b.const(1)), b.const(-1), b.const(-1))
        rows = b.Gather(rows, places, b.const(0))
    return state, cell, rows


def _product(b: Builder, h: Value, whole: Value, scale: Value) -> Value:
    """Multiply the state, quantized with the range of itself and 0, with the weights."""
    zero, most = b.const(0.0, f32), b.const(255.0, f32)
    least = b.Min(b.ReduceMin(h, b.const([0, 1]), keepdims=False), zero)
    largest = b.Max(b.ReduceMax(h, b.const([0, 1]), keepdims=False), zero)
    unit = b.Where(b.Greater(largest, least), b.Div(b.Sub(largest, least), most), b.const(1.0, f32))
    middle = b.Min(b.Max(b.Round(b.Div(b.Neg(least), unit)), zero), most)
    quantized = b.Min(b.Max(b.Add(b.Round(b.Div(h, unit)), middle), zero), most)
    return b.Mul(b.MatMul(b.Sub(quantized, middle), whole), b.Mul(unit, scale))


def _cell(b: Builder, op: QuantizedLSTMSteps, d: int, sums: Value, cell: Value) -> tuple[Value, Value]:
    """Compute the next state and the next cell from the sums of the gates i, o, f, c."""
    size = int(cell.shape[1])
    first, second, third = (b.operation(str(PLAIN[kind[0]])) for kind in op.activations[d])
    i, o, f, c = (b.Slice(sums, [k * size], [(k + 1) * size], [1]) for k in range(4))
    fresh = b.Add(b.Mul(first(f), cell), b.Mul(first(i), second(c)))
    return b.Mul(first(o), third(fresh)), fresh
