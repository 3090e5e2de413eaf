"""Layers with a state that the caller carries from call to call: CausalConvWithState and LinearAttention.

Sources: ONNX operator pages of the same names.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import Const, Expr, Tensor, call, index
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import any_of, multiple, same
from irc.ir.types import TensorType, bf16, f16, f32
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Enum, Float, Ignored, Int
from irc.opdef.forms import Form, write_only
from irc.opdef.precision import narrowed, widened
from irc.opdef.signature import Sig
from irc.ops.attention_steps import write_steps

if TYPE_CHECKING:
    from irc.loops.builder import LoopBuilder

TYPES = frozenset({f32, f16, bf16})


@op
class CausalConvWithState(Op):
    """A convolution of each channel [batch, channel, step] with what came before; weights [channel, 1, taps].

    Before the first step stands the state [batch, channel, taps - 1] (absent: zeros); the new state is the end of both.
    """

    silu: bool = False
    sig = Sig("x: T[3], w: T[3], bias?: T[1], past?: T[3] -> y: T, state: T", T=TYPES)

    def decompose(
        self, b: Builder, x: Value, w: Value, bias: Value | None = None, past: Value | None = None
    ) -> tuple[Value, Value]:
        (batch, channels, steps), taps = x.shape, w.shape[2]
        require(channels.is_const, operation.NEEDS_CONSTANT, op=self.name, operand="number of channels")
        before = b.dims([batch, channels, taps - 1])
        if past is None:
            past = b.Expand(b.like(0.0, x), before)
        else:
            what = "state along axis {}".format
            for axis, size in enumerate([batch, channels, taps - 1]):
                facts = {"what": what(axis) + " and what the other operands ask for", "a": past.shape[axis], "b": size}
                require(same(past.shape[axis], size), codes.SIZES_DIFFER, op=self.name, **facts)
        whole = b.Concat(past, x, axis=2)
        y = b.Conv(whole, w, bias, group=int(channels))
        if self.silu:
            precise = widened(b, y)
            y = narrowed(b, b.Mul(precise, b.Sigmoid(precise)), y)
        return y, b.Slice(whole, b.dims([steps]), b.dims([steps + taps - 1]), [2])

    onnx = (
        Form(
            "CausalConvWithState",
            27,
            attrs={"activation": Enum({"none": False, "silu": True, "swish": True}, False, to="silu")},
            T=TYPES,
        ),
    )


@op
class LinearAttention(Op):
    """o = scale · Sᵀq, where each step adds k ⊗ v to the state S [batch, head, key size, value size].

    gated: before it, S is multiplied by exp(decay), of each head or of each of its rows.  delta: v is replaced by
    beta · (v - Sᵀk).  Queries, keys and values are [batch, step, heads · size]; groups of query heads share a state.
    Computed in f32; without `past` S starts as zeros, and is rounded to the queries' type.
    """

    q_num_heads: int
    kv_num_heads: int
    scale: float = 0.0
    update_rule: str = "gated_delta"
    sig = Sig("q: T[3], k: T[3], v: T[3], past?: S[4], decay?: T[3], beta?: T[3] -> y: T, state: S", T=TYPES, S=TYPES)

    @property
    def gated(self) -> bool:
        return self.update_rule in ("gated", "gated_delta")

    @property
    def delta(self) -> bool:
        return self.update_rule in ("delta", "gated_delta")

    def infer(
        self,
        q: Value,
        k: Value,
        v: Value,
        past: Value | None = None,
        decay: Value | None = None,
        beta: Value | None = None,
    ) -> list[TensorType]:
        own, name = self.kv_num_heads, self.name
        divides = multiple(self.q_num_heads, own)
        facts = {"what": "q_num_heads", "value": self.q_num_heads, "expected": f"a multiple of kv_num_heads, {own}"}
        require(divides, codes.SIZE_RANGE, op=name, **facts)
        for wanted, given, operand, at in ((self.gated, decay, "decay", 4), (self.delta, beta, "beta", 5)):
            require(given is not None or not wanted, operation.MISSING_OPERAND, op=name, operand=operand, index=at)
        (batch, steps, _), size = q.shape, q.shape[2] // self.q_num_heads
        for x, heads, what in ((q, self.q_num_heads, "queries"), (v, own, "values")):
            facts = {"what": f"size of {what}", "value": x.shape[2], "expected": f"a multiple of {heads}"}
            require(multiple(x.shape[2], heads), codes.SIZE_RANGE, op=name, **facts)
        columns = v.shape[2] // own
        self._fits("keys", k, [batch, steps, size * own])
        self._fits("values", v, [batch, steps, columns * own])
        shape = (batch, Dim.of(own), size, columns)
        if past is not None:
            self._fits("state", past, shape)
        if decay is not None:
            self._fits("decays", decay, [batch, steps, decay.shape[2]])
            last = decay.shape[2]
            facts = {"what": "size of decays", "value": last, "expected": f"{own} or {size * own}"}
            require(any_of(same(last, own), same(last, size * own)), codes.SIZE_RANGE, op=name, **facts)
        if beta is not None:
            self._fits("betas", beta, [batch, steps, beta.shape[2]])
            facts = {"what": "size of betas", "value": beta.shape[2], "expected": f"{own} or 1"}
            require(any_of(same(beta.shape[2], own), same(beta.shape[2], 1)), codes.SIZE_RANGE, op=name, **facts)
        state = q.dtype if past is None else past.dtype
        return [TensorType(q.dtype, (batch, steps, columns * self.q_num_heads)), TensorType(state, shape)]

    def _fits(self, what: str, x: Value, shape: list[Dim] | tuple[Dim, ...]) -> None:
        """Demand that an operand has this shape."""
        for axis, (a, size) in enumerate(zip(x.shape, shape, strict=True)):
            named = f"{what} along axis {axis} and what the other operands ask for"
            require(same(a, size), codes.SIZES_DIFFER, op=self.name, what=named, a=a, b=size)

    def reference(
        self,
        q: Array,
        k: Array,
        v: Array,
        past: Array | None = None,
        decay: Array | None = None,
        beta: Array | None = None,
    ) -> tuple[Array, Array]:
        batch, steps, _ = q.shape
        own, heads = self.kv_num_heads, self.q_num_heads
        size, columns = q.shape[2] // heads, v.shape[2] // own

        def split(x: Array, parts: int) -> Array:
            return x.astype(np.float32).reshape(batch, steps, parts, x.shape[2] // parts)

        queries = split(q, heads).reshape(batch, steps, own, heads // own, size)
        keys, values = split(k, own), split(v, own)
        shape = (batch, own, size, columns)
        state = np.zeros(shape, np.float32) if past is None else past.astype(np.float32)
        y = np.zeros((batch, steps, own, heads // own, columns), np.float32)
        with np.errstate(all="ignore"):
            scale = np.float32(self.scale or 1 / np.sqrt(np.float64(size)))
            for t in range(steps):
                if self.gated and decay is not None:
                    state = state * np.exp(split(decay, own)[:, t])[..., None]
                new = values[:, t]
                if self.delta and beta is not None:
                    rate = beta[:, t].astype(np.float32)[..., None]
                    new = rate * (new - np.einsum("bhij,bhi->bhj", state, keys[:, t]))
                state = state + keys[:, t][..., None] * new[..., None, :]
                y[:, t] = scale * np.einsum("bhgi,bhij->bhgj", queries[:, t], state)
        y = y.reshape(batch, steps, heads * columns).astype(q.dtype)
        return y, state.astype(q.dtype if past is None else past.dtype)

    def loops(
        self,
        b: LoopBuilder,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        past: Tensor | None,
        decay: Tensor | None,
        beta: Tensor | None,
        y: Tensor,
        state: Tensor,
    ) -> None:
        """Go through the steps of each head, rows of the state outside and its columns inside."""
        batch, own, size, columns = state.shape
        s = state if state.dtype == f32 else b.alloc(f32, state.shape, "state")
        row = b.alloc(f32, (batch, own, columns), "row")
        with b.nest((batch, own), "parallel") as (n, h):
            with b.nest((size, columns)) as (i, j):
                b.store(s, (n, h, i, j), Const(0.0, f32) if past is None else past[n, h, i, j].cast(f32))
            with b.for_(q.shape[1]) as t:
                self._update(b, (n, h, t), k, v, decay, beta, s, row)
                with b.for_(self.q_num_heads // self.kv_num_heads) as g:
                    head = b.let(h * (self.q_num_heads // self.kv_num_heads) + g, "head")
                    self._clear(b, row, n, h)
                    with b.for_(size) as i:
                        query = b.let(q[n, t, head * index(size) + i].cast(f32), "query")
                        with b.for_(columns) as j:
                            b.store(row, (n, h, j), row[n, h, j] + query * s[n, h, i, j])
                    scale = self._scale(size)
                    with b.for_(columns) as j:
                        b.store(y, (n, t, head * index(columns) + j), (row[n, h, j] * scale).cast(y.dtype))
            if s is not state:
                with b.nest((size, columns)) as (i, j):
                    b.store(state, (n, h, i, j), s[n, h, i, j].cast(state.dtype))

    def _scale(self, size: Dim) -> Expr:
        if self.scale:
            return Const(self.scale, f32)
        if size.is_const and size != 0:
            return Const(1 / math.sqrt(int(size)), f32)
        return Const(1.0, f32) / call("sqrt", index(size).cast(f32))

    @staticmethod
    def _clear(b: LoopBuilder, row: Tensor, n: Expr, h: Expr) -> None:
        with b.for_(row.shape[2]) as j:
            b.store(row, (n, h, j), Const(0.0, f32))

    def _update(
        self,
        b: LoopBuilder,
        at: tuple[Expr, Expr, Expr],
        k: Tensor,
        v: Tensor,
        decay: Tensor | None,
        beta: Tensor | None,
        s: Tensor,
        row: Tensor,
    ) -> None:
        """Bring the state of one head to step t: what is added, v or what delta makes of it, stands in `row`."""
        n, h, t = at
        size, columns = s.shape[2:]
        self._clear(b, row, n, h)
        if self.gated or self.delta:
            with b.for_(size) as i:
                if self.gated and decay is not None:
                    each = decay.shape[2] // self.kv_num_heads  # 1, or the key size
                    place = h * index(each) + i % index(each).max(1)
                    factor = b.let(call("exp", decay[n, t, place].cast(f32)), "factor")
                    with b.for_(columns) as j:
                        b.store(s, (n, h, i, j), s[n, h, i, j] * factor)
                if self.delta:
                    key = b.let(k[n, t, h * index(size) + i].cast(f32), "key")
                    with b.for_(columns) as j:
                        b.store(row, (n, h, j), row[n, h, j] + key * s[n, h, i, j])
        with b.for_(columns) as j:
            new = v[n, t, h * index(columns) + j].cast(f32)
            if self.delta and beta is not None:
                new = beta[n, t, h.min(index(beta.shape[2] - 1))].cast(f32) * (new - row[n, h, j])
            b.store(row, (n, h, j), new)
        with b.for_(size) as i:
            key = b.let(k[n, t, h * index(size) + i].cast(f32), "key")
            with b.for_(columns) as j:
                b.store(s, (n, h, i, j), s[n, h, i, j] + key * row[n, h, j])

    onnx = (
        write_only(write_steps, since=8),
        Form(
            "LinearAttention",
            27,
            attrs={
                "chunk_size": Ignored(),
                "q_num_heads": Int(lo=1),
                "kv_num_heads": Int(lo=1),
                "scale": Float(0.0),
                "update_rule": Enum(["linear", "gated", "delta", "gated_delta"], "gated_delta"),
            },
            T={"T": TYPES, "S": TYPES},
        ),
    )
    openvino = (write_only(write_steps, since=5),)
