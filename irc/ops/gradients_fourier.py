"""Derivatives of discrete Fourier transforms, which are linear: transforms in the other direction."""

from __future__ import annotations

from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import i64
from irc.opdef.builder import Builder
from irc.opdef.gradients import Gradients, Step, rule
from irc.ops.fourier import TransformLines


@rule("TransformLines")
def transform(b: Builder, s: Step) -> Gradients:
    assert isinstance(s.op, TransformLines)
    op, x, g, table, axis = s.op, s.x, s.g, s.operand(1), s.op.axis
    if not x.shape[-1].is_const:  # of numbers or pairs, only the run knows
        raise s.problem()
    n = table.shape[0]
    half = n // 2 + 1
    back = b.Mul(table, b.const([1.0, -1.0], table.dtype))
    number = b.Cast(b.Reshape(b.dims([n]), []), to=g.dtype)
    if not op.inverse:
        whole = resized(b, g, axis, half, n) if op.onesided else g
        found, have = b.Mul(b.TransformLines(whole, back, axis=axis, inverse=True), number), n
    elif not op.onesided:
        found, have = b.Div(b.TransformLines(g, back, axis=axis), number), n
    else:
        found = b.Div(b.TransformLines(g, back, axis=axis, onesided=True), number)
        found, have = b.Mul(found, times_used(b, n, found, axis)), half
    found = resized(b, found, axis, have, x.shape[axis])
    return b.Slice(found, [0], [1], [-1]) if x.shape[-1] == 1 else found


def resized(b: Builder, v: Value, axis: int, have: Dim, wanted: Dim) -> Value:
    """Cut an axis at its end, or pad it there with zeros."""
    if have == wanted:
        return v
    return b.Pad(v, b.dims([0, wanted - have]), None, b.const([axis]))


def times_used(b: Builder, n: Dim, half: Value, axis: int) -> Value:
    """How often each element of a half is in the whole of n, along an axis of `half`."""
    count, whole = (b.Reshape(b.dims([d]), []) for d in (n // 2 + 1, n))
    places = b.Range(b.const(0), count, b.const(1))
    once = b.Or(b.Equal(places, b.const(0)), b.Equal(b.Mul(places, b.const(2)), whole))
    times = b.Cast(b.Where(once, b.const(1, i64), b.const(2, i64)), to=half.dtype)
    return b.Reshape(times, [-1, *[1] * (len(half.shape) - 1 - axis)])
