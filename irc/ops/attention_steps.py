"""LinearAttention as a Loop over its steps, for formats and opsets that lack it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.ir.graph import Value
from irc.ir.types import f32
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_type
from irc.ops.loop_forms import repeated

if TYPE_CHECKING:
    from irc.ops.linear_attention import LinearAttention


def write_steps(
    b: Builder,
    op: LinearAttention,
    q: Value,
    k: Value,
    v: Value,
    past: Value | None = None,
    decay: Value | None = None,
    beta: Value | None = None,
) -> Sequence[Value]:
    """Carry the state [batch, head, key size, value size] through a Loop that gives a row for each step."""
    own, heads = op.kv_num_heads, op.q_num_heads
    size, columns = q.shape[2] // heads, v.shape[2] // own
    for what, given in (("the key size", size), ("the value size", columns)):
        require(given.is_const, codes.SIZE_RANGE, op=op.name, what=what, value=given, expected="known")
    shape, wide = (q.shape[0], own, int(size), int(columns)), [as_type(b, x, f32) for x in (q, k, v)]
    if past is None:
        state = b.Expand(b.const(0.0, f32), b.dims(shape))
    else:
        state = as_type(b, past, f32)
    rest = {"decay": decay if op.gated else None, "beta": beta if op.delta else None}
    names = ["q", "k", "v", *(name for name, x in rest.items() if x is not None)]
    outside = [*wide, *(as_type(b, x, f32) for x in rest.values() if x is not None)]

    def step(
        inner: Builder, number: Value, carried: Sequence[Value], given: Sequence[Value]
    ) -> tuple[Sequence[Value], Sequence[Value]]:
        at = {name: inner.Gather(x, number, inner.const(1)) for name, x in zip(names, given, strict=True)}
        after, row = _step(inner, op, carried[0], at, (int(size), int(columns)))
        return [after], [row]

    count = b.Gather(b.Shape(q), b.const(1), b.const(0))
    state, rows = repeated(b, count, [state], outside, step)
    y = b.Reshape(b.Transpose(rows, [1, 0, 2, 3, 4]), b.const([0, 0, heads * int(columns)]))
    return as_type(b, y, q.dtype), as_type(b, state, q.dtype if past is None else past.dtype)


def _step(
    b: Builder, op: LinearAttention, state: Value, at: dict[str, Value], sizes: tuple[int, int]
) -> tuple[Value, Value]:
    """Bring the state to the next step.  Returns it, and the results [batch, head, queries of the head, columns]."""
    (size, columns), own = sizes, op.kv_num_heads

    def split(name: str, *last: int) -> Value:
        return b.Reshape(at[name], b.const([0, own, *last]))

    if "decay" in at:
        state = b.Mul(state, b.Exp(split("decay", -1, 1)))
    new, key = split("v", 1, columns), split("k", size, 1)
    if "beta" in at:
        held = b.MatMul(split("k", 1, size), state)
        new = b.Mul(b.Reshape(at["beta"], b.const([0, -1, 1, 1])), b.Sub(new, held))
    state = b.Add(state, b.Mul(key, new))
    scale = op.scale or size**-0.5
    return state, b.Mul(b.MatMul(split("q", op.q_num_heads // own, size), state), b.const(scale, f32))
