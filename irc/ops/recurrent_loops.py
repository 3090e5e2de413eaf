"""Steps of an LSTM as a Loop, for formats whose recurrent operations do not quantize, or have no peepholes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from irc.ir.graph import Value
from irc.ir.types import f32, i64
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_type
from irc.opdef.forms import Declined
from irc.ops.loop_forms import repeated

if TYPE_CHECKING:
    from irc.ops.recurrent_quantized import QuantizedLSTMSteps
    from irc.ops.recurrent_steps import Activation, LSTMCells, LSTMSteps

Product = Callable[[Builder, Value, Sequence[Value]], Value]
"""product(b, h, weights) multiplies a state with the weights, and what else belongs to them, of one direction."""


def write_quantized_loops(
    b: Builder, op: QuantizedLSTMSteps, projected: Value, weights: Value, scale: Value, zero: Value, *rest: Value | None
) -> Sequence[Value]:
    """Run a Loop for each direction that quantizes the state, multiplies, and carries what the cell makes of it."""
    h, lengths, c, peephole, bias = (*rest, *[None] * (5 - len(rest)))
    if lengths is not None:  # states of sequences that have ended still count for the range
        raise Declined
    given: list[Sequence[Value]] = []
    for d in range(int(weights.shape[0])):
        whole = b.Sub(as_type(b, _of(b, weights, d, 0), f32), as_type(b, _of(b, zero, d, 0), f32))
        given.append([whole, _of(b, scale, d, 0)])
    return _loops(b, op, projected, weights, given, _quantized_product, (h, None, c, peephole, bias))


def write_loops(b: Builder, op: LSTMSteps, projected: Value, weights: Value, *rest: Value | None) -> Sequence[Value]:
    """Run a Loop for each direction that carries what the cell makes of the state."""
    given = [[_of(b, weights, d, 0)] for d in range(int(weights.shape[0]))]

    def product(b: Builder, h: Value, weights: Sequence[Value]) -> Value:
        return b.MatMul(h, weights[0])

    return _loops(b, op, projected, weights, given, product, (*rest, *[None] * (5 - len(rest))))


def _loops(
    b: Builder,
    op: LSTMCells,
    projected: Value,
    weights: Value,
    given: Sequence[Sequence[Value]],
    product: Product,
    rest: Sequence[Value | None],
) -> Sequence[Value]:
    """Run the Loops; `given` is what `product` gets in each direction, `rest` h, lengths, c, peephole, bias."""
    h, lengths, c, peephole, bias = rest
    size = int(weights.shape[1])
    shape = b.Concat(b.Slice(b.Shape(projected), [1], [2], [0]), b.const([size]), axis=0)
    found: list[tuple[Value, ...]] = []
    for d in range(len(given)):
        zeros = b.const(0.0, projected.dtype)
        held = [_of(b, v, d, 0) if v is not None else b.Expand(zeros, shape) for v in (h, c)]
        more = {"peephole": peephole, "bias": bias}
        named = {name: _of(b, v, d, 0) for name, v in more.items() if v is not None}
        if lengths is not None:
            named["lengths"] = b.Unsqueeze(as_type(b, lengths, i64), [1])
        backwards = op.direction == "reverse" or d == 1
        found.append(_direction(b, op, d, backwards, held, _of(b, projected, d, 2), given[d], named, product))
    y, y_h, y_c = (
        b.Concat(*[b.Unsqueeze(each[k], [axis]) for each in found], axis=axis) for k, axis in ((2, 1), (0, 0), (1, 0))
    )
    return y, y_h, y_c


def _of(b: Builder, value: Value, d: int, axis: int) -> Value:
    """Take what belongs to one direction."""
    return b.Gather(value, b.const(d), b.const(axis))


def _direction(
    b: Builder,
    op: LSTMCells,
    d: int,
    backwards: bool,
    held: Sequence[Value],
    projected: Value,
    weights: Sequence[Value],
    named: Mapping[str, Value],
    product: Product,
) -> tuple[Value, ...]:
    """Go through the steps.  Returns the last state, the last cell, and the states [steps, batch, hidden] in order.

    Backwards, a sequence begins where it ends: before that its states stay as they are.
    """
    count = b.Gather(b.Shape(projected), b.const(0), b.const(0))
    outside = [projected, *weights, *named.values(), *([count] if backwards else [])]

    def step(
        inner: Builder, number: Value, carried: Sequence[Value], within: Sequence[Value]
    ) -> tuple[Sequence[Value], Sequence[Value]]:
        (h, c), (projected, *more) = carried, within
        at = inner.Sub(inner.Sub(more.pop(), inner.const(1)), number) if backwards else number
        known = dict(zip(named, more[len(weights) :], strict=True))
        sums = inner.Add(inner.Gather(projected, at, inner.const(0)), product(inner, h, more[: len(weights)]))
        sums = inner.Add(sums, known["bias"]) if "bias" in known else sums
        state, cell = _cell(inner, op, d, sums, c, known.get("peephole"))
        if "lengths" not in known:
            return [state, cell], [state]
        live = inner.Less(at, known["lengths"])
        row = inner.Where(live, state, inner.like(0.0, state))
        return [inner.Where(live, state, h), inner.Where(live, cell, c)], [row]

    state, cell, rows = repeated(b, count, held, outside, step)
    if backwards:
        places = b.Range(b.Sub(count, b.const(1)), b.const(-1), b.const(-1))
        rows = b.Gather(rows, places, b.const(0))
    return state, cell, rows


def _quantized_product(b: Builder, h: Value, weights: Sequence[Value]) -> Value:
    """Multiply the state, quantized with the range of itself and 0, with the weights."""
    whole, scale = weights
    zero, most = b.const(0.0, f32), b.const(255.0, f32)
    least = b.Min(b.ReduceMin(h, b.const([0, 1]), keepdims=False), zero)
    largest = b.Max(b.ReduceMax(h, b.const([0, 1]), keepdims=False), zero)
    unit = b.Where(b.Greater(largest, least), b.Div(b.Sub(largest, least), most), b.const(1.0, f32))
    middle = b.Min(b.Max(b.Round(b.Div(b.Neg(least), unit)), zero), most)
    quantized = b.Min(b.Max(b.Add(b.Round(b.Div(h, unit)), middle), zero), most)
    return b.Mul(b.MatMul(b.Sub(quantized, middle), whole), b.Mul(unit, scale))


def _cell(b: Builder, op: LSTMCells, d: int, sums: Value, cell: Value, peephole: Value | None) -> tuple[Value, Value]:
    """Compute the next state and the next cell from the sums of the gates i, o, f, c: `cell_step` of the operation."""
    size = int(cell.shape[1])

    def activated(position: int, x: Value) -> Value:
        if op.clip and position < 2:
            x = b.Max(b.Min(x, b.like(op.clip, x)), b.like(-op.clip, x))
        return activation(b, op.activations[d][position], x)

    def peeped(gate: int, x: Value, cell: Value) -> Value:
        if peephole is None:
            return x
        return b.Add(x, b.Mul(b.Slice(peephole, [gate * size], [(gate + 1) * size], [0]), cell))

    gi, go, gf, gc = (b.Slice(sums, [k * size], [(k + 1) * size], [1]) for k in range(4))
    i = activated(0, peeped(0, gi, cell))
    f = b.Sub(b.like(1.0, i), i) if op.input_forget else activated(0, peeped(2, gf, cell))
    fresh = b.Add(b.Mul(f, cell), b.Mul(i, activated(1, gc)))
    return b.Mul(activated(0, peeped(1, go, fresh)), activated(2, fresh)), fresh


def activation(b: Builder, kind: Activation, x: Value) -> Value:
    """Apply an activation of a recurrent operation, or what a rational one of quantized steps approximates."""
    name, alpha, beta = kind
    name = name.removeprefix("Rational")

    def scaled(x: Value, factor: float) -> Value:
        return b.Mul(x, b.like(factor, x))

    if name == "Affine":
        return b.Add(scaled(x, alpha), b.like(beta, x))
    if name == "LeakyRelu":
        return b.Where(b.Less(x, b.like(0.0, x)), scaled(x, alpha), x)
    if name == "ThresholdedRelu":
        return b.Where(b.Greater(x, b.like(alpha, x)), x, b.like(0.0, x))
    if name == "ScaledTanh":
        return scaled(b.Tanh(scaled(x, beta)), alpha)
    if name == "HardSigmoid":
        return b.Min(b.Max(b.Add(scaled(x, alpha), b.like(beta, x)), b.like(0.0, x)), b.like(1.0, x))
    if name == "Elu":
        return b.Where(b.Less(x, b.like(0.0, x)), scaled(b.Sub(b.Exp(x), b.like(1.0, x)), alpha), x)
    if name == "Softsign":
        return b.Div(x, b.Add(b.Abs(x), b.like(1.0, x)))
    return b.operation(name)(x)
