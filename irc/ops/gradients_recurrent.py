"""Derivatives of recurrent layers, whose steps are written out: LSTM, GRU and RNN of a known number of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from irc.diagnostics import Problem
from irc.diagnostics.codes import operation as codes
from irc.ir.graph import Value
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_i64
from irc.opdef.gradients import restated
from irc.ops.recurrent_steps import Activation, GRUSteps, LSTMSteps, RNNSteps, Steps

MOST_STEPS = 128
"""Each is some dozens of operations, and its derivative as many again."""


def activated(b: Builder, kind: Activation, x: Value) -> Value:
    """The activation of a value."""
    name, alpha, beta = kind
    if name in ("Affine", "HardSigmoid"):
        y = b.Add(b.Mul(x, b.const(alpha, x.dtype)), b.const(beta, x.dtype))
        return y if name == "Affine" else b.Clip(y, b.const(0.0, x.dtype), b.const(1.0, x.dtype))
    if name == "ScaledTanh":
        return b.Mul(b.Tanh(b.Mul(x, b.const(beta, x.dtype))), b.const(alpha, x.dtype))
    fields = {"alpha": alpha} if name in ("LeakyRelu", "ThresholdedRelu", "Elu") else {}
    return b.operation(name)(x, **fields)


def clipped(b: Builder, op: Steps, x: Value) -> Value:
    return b.Clip(x, b.const(-op.clip, x.dtype), b.const(op.clip, x.dtype)) if op.clip else x


def part(b: Builder, v: Value, axis: int, k: int) -> Value:
    """Element k along an axis, which is dropped."""
    return b.Squeeze(b.Slice(v, [k], [k + 1], [axis]), [axis])


def columns(b: Builder, v: Value, size: Value, first: int, count: int = 1) -> Value:
    """`count` gates' columns of a matrix, from gate `first` on; `size` is that of a gate."""
    start, end = (b.Mul(size, b.const([k])) for k in (first, first + count))
    return b.Slice(v, start, end, b.const([len(v.shape) - 1]))


def turned(b: Builder, v: Value, counts: Value | None) -> Value:
    """The steps of each sequence, on the first axis, in reverse."""
    if counts is None:
        return b.Reverse(v, b.const([0]))
    return b.ReverseSequence(v, b.Max(counts, b.const(1)), batch_axis=1, time_axis=0)


Step = Callable[..., Sequence[Value]]
"""step(direction, columns of projected, *states): the next states of all sequences, the result first."""


def written_out(
    b: Builder,
    op: Op,
    projected: Value,
    initial: Sequence[Value | None],
    lengths: Value | None,
    step: Step,
    hidden: Value,
) -> list[Value]:
    """The results of all steps, and the last states."""
    steps, directions = projected.shape[0].const, projected.shape[2].const
    if steps is None or directions is None or not 0 < steps <= MOST_STEPS:
        raise Problem(codes.NO_GRADIENT, through=f"{op.name} of {projected.shape[0]} steps")
    assert isinstance(op, Steps)
    nothing = b.Expand(b.like(0, projected), b.Concat(b.Shape(projected, start=1, end=2), hidden, axis=0))
    counts = None if lengths is None else b.Min(as_i64(b, lengths), b.const(steps))
    results: list[Value] = []
    lasts: list[list[Value]] = [[] for _ in initial]
    for d in range(directions):
        backward = op.direction == "reverse" or d == 1
        rows = part(b, projected, 2, d)
        rows = turned(b, rows, counts) if backward else rows
        states = [nothing if s is None else part(b, s, 0, d) for s in initial]
        outs: list[Value] = []
        for t in range(steps):
            found = step(d, part(b, rows, 0, t), *states)
            if counts is not None:
                live = b.Unsqueeze(b.Greater(counts, b.const(t)), [1])
                outs.append(b.Where(live, found[0], b.like(0, nothing)))
                states = [b.Where(live, new, old) for new, old in zip(found, states, strict=True)]
            else:
                outs.append(found[0])
                states = list(found)
        y = b.Concat(*(b.Unsqueeze(v, [0]) for v in outs), axis=0)
        results.append(b.Unsqueeze(turned(b, y, counts) if backward else y, [1]))
        for last, state in zip(lasts, states, strict=True):
            last.append(b.Unsqueeze(state, [0]))
    return [b.Concat(*results, axis=1), *(b.Concat(*last, axis=0) for last in lasts)]


def say_lstm(
    b: Builder,
    op: Op,
    projected: Value,
    weights: Value,
    h: Value | None = None,
    lengths: Value | None = None,
    c: Value | None = None,
    peephole: Value | None = None,
) -> list[Value]:
    assert isinstance(op, LSTMSteps)
    size = b.Shape(weights, start=1, end=2)

    def step(d: int, x: Value, hidden: Value, cell: Value) -> Sequence[Value]:
        kinds = op.activations[d]
        sums = b.Add(x, b.MatMul(hidden, part(b, weights, 0, d)))
        gi, go, gf, gc = (columns(b, sums, size, k) for k in range(4))
        peep = None if peephole is None else [columns(b, part(b, peephole, 0, d), size, k) for k in range(3)]
        if peep is not None:
            gi, gf = b.Add(gi, b.Mul(peep[0], cell)), b.Add(gf, b.Mul(peep[2], cell))
        i = activated(b, kinds[0], clipped(b, op, gi))
        f = b.Sub(b.like(1, i), i) if op.input_forget else activated(b, kinds[0], clipped(b, op, gf))
        fresh = b.Add(b.Mul(f, cell), b.Mul(i, activated(b, kinds[1], clipped(b, op, gc))))
        if peep is not None:
            go = b.Add(go, b.Mul(peep[1], fresh))
        return b.Mul(activated(b, kinds[0], clipped(b, op, go)), activated(b, kinds[2], fresh)), fresh

    return written_out(b, op, projected, [h, c], lengths, step, size)


def say_gru(
    b: Builder,
    op: Op,
    projected: Value,
    weights: Value,
    h: Value | None = None,
    lengths: Value | None = None,
    bias: Value | None = None,
) -> list[Value]:
    assert isinstance(op, GRUSteps)
    size = b.Shape(weights, start=1, end=2)

    def step(d: int, x: Value, hidden: Value) -> Sequence[Value]:
        kinds, w = op.activations[d], part(b, weights, 0, d)
        sums = b.Add(columns(b, x, size, 0, 2), b.MatMul(hidden, columns(b, w, size, 0, 2)))
        gates = activated(b, kinds[0], clipped(b, op, sums))
        z, r = columns(b, gates, size, 0), columns(b, gates, size, 1)
        last = columns(b, w, size, 2)
        if op.linear_before_reset:
            product = b.MatMul(hidden, last)
            inner = b.Mul(r, product if bias is None else b.Add(product, part(b, bias, 0, d)))
        else:
            inner = b.MatMul(b.Mul(r, hidden), last)
        fresh = activated(b, kinds[1], clipped(b, op, b.Add(columns(b, x, size, 2), inner)))
        return (b.Add(b.Mul(b.Sub(b.like(1, z), z), fresh), b.Mul(z, hidden)),)

    return written_out(b, op, projected, [h], lengths, step, size)


def say_rnn(
    b: Builder, op: Op, projected: Value, weights: Value, h: Value | None = None, lengths: Value | None = None
) -> list[Value]:
    assert isinstance(op, RNNSteps)

    def step(d: int, x: Value, hidden: Value) -> Sequence[Value]:
        sums = b.Add(x, b.MatMul(hidden, part(b, weights, 0, d)))
        return (activated(b, op.activations[d][0], clipped(b, op, sums)),)

    return written_out(b, op, projected, [h], lengths, step, b.Shape(weights, start=1, end=2))


restated("LSTMSteps", say_lstm)
restated("GRUSteps", say_gru)
restated("RNNSteps", say_rnn)
