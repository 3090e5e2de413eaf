"""Attention and rotary position embedding.

Queries [batch, heads, steps, size]; keys and values may have fewer heads, which groups of query heads share.
Sources: ONNX Attention, RotaryEmbedding; OpenVINO specification, ScaledDotProductAttention-13.
"""

from __future__ import annotations

import math

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes, shape as shape_codes
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import FLOATS_BF16, INTEGERS, DType, bf16, boolean, f8e4m3fn, f8e5m2, f16, f32
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Codec, DTypeAttr, Float, Int
from irc.opdef.forms import Form
from irc.opdef.signature import Sig
from irc.ops.layout import reshaped

INFINITE = float("-inf")
MASKS = FLOATS_BF16 | INTEGERS | {boolean}


def usual_scale(op: str, q: Value) -> float:
    """1 / sqrt(head size); Problem IRC2301 where that is not known, IRC3109 where it is 0."""
    size = q.shape[-1]
    require(size.is_const, codes.NEEDS_CONSTANT, op=op, operand="head size")
    require(size != 0, shape_codes.SIZE_RANGE, op=op, what="head size", value=size, expected="at least 1")
    return 1.0 / math.sqrt(int(size))


def positions(b: Builder, count: Dim, axis: int) -> Value:
    """0, 1, … as an axis of a matrix."""
    scalar = b.const(np.zeros(0, np.int64))
    numbers = b.Range(b.const(0), b.Reshape(b.dims([count]), scalar), b.const(1))
    return b.Unsqueeze(numbers, [1 - axis])


def additive(b: Builder, mask: Value, like: Value) -> Value:
    """A mask as something to add: a boolean one is 0 where it holds and -∞ elsewhere."""
    if mask.dtype == boolean:
        return b.Where(mask, b.like(0.0, like), b.like(INFINITE, like))
    return mask if mask.dtype == like.dtype else b.Cast(mask, to=like.dtype)


def with_heads(b: Builder, x: Value, heads: int) -> Value:
    """[batch, steps, heads · size] → [batch, heads, steps, size]."""
    if len(x.shape) == 4:
        return x
    split = reshaped(b, x, [x.shape[0], x.shape[1], heads, x.shape[2] // heads])
    return b.Transpose(split, [0, 2, 1, 3])


def repeated(b: Builder, x: Value, heads: Dim) -> Value:
    """Each head of keys or values as often as query heads share it."""
    if x.shape[1] == heads:
        return x
    batch, own, steps, size = x.shape
    shape = [batch, own, heads // own, steps, size]
    return reshaped(b, b.Expand(b.Unsqueeze(x, [2]), b.dims(shape)), [batch, heads, steps, size])


SIG = Sig(
    "q: T1[r=3..4], k: T1[r], v: T2[r], mask?: U[1..4], past_key?: T1[4], past_value?: T2[4], lengths?: i64[1]"
    " -> y: T1, present_key: T1, present_value: T2, scores: T1",
    T1=FLOATS_BF16,
    T2=FLOATS_BF16,
    U=MASKS,
)
SIG_23 = Sig(
    "q: T1[r=3..4], k: T1[r], v: T2[r], mask?: U[1..4], past_key?: T1[4], past_value?: T2[4]"
    " -> y: T1, present_key: T1, present_value: T2, scores: T1",
    T1=FLOATS_BF16,
    T2=FLOATS_BF16,
    U=MASKS,
)
ATTRIBUTES: dict[str, Codec] = {
    "is_causal": Bool(False),
    "q_num_heads": Int(None),
    "kv_num_heads": Int(None),
    "qk_matmul_output_mode": Int(0, lo=0, hi=3),
    "scale": Float(None),
    "softcap": Float(0.0),
    "softmax_precision": DTypeAttr(None),
}


@op
class Attention(Op):
    """softmax(q·kᵀ·scale + mask)·v, with the keys and values so far (past, then k and v), and the scores.

    `lengths` [batch] are the valid keys of each sample.  `scores` are the products (qk_matmul_output_mode 0),
    after softcap (1), after the mask (2) or after softmax (3).  Rows in which nothing is allowed give 0.
    """

    is_causal: bool = False
    q_num_heads: int | None = None
    kv_num_heads: int | None = None
    qk_matmul_output_mode: int = 0
    scale: float | None = None
    softcap: float = 0.0
    softmax_precision: DType | None = None
    left_window_size: int = -1
    right_window_size: int = -1
    sig = SIG

    def decompose(
        self,
        b: Builder,
        q: Value,
        k: Value,
        v: Value,
        mask: Value | None = None,
        past_key: Value | None = None,
        past_value: Value | None = None,
        lengths: Value | None = None,
    ) -> tuple[Value, ...]:
        flat = len(q.shape) == 3
        named = not flat or (self.q_num_heads is not None and self.kv_num_heads is not None)
        require(named, codes.MISSING_ATTRIBUTE, op="Attention", attribute="q_num_heads and kv_num_heads")
        q, k, v = (
            with_heads(b, x, n or 1) for x, n in ((q, self.q_num_heads), (k, self.kv_num_heads), (v, self.kv_num_heads))
        )
        before = Dim.of(0)
        if past_key is not None and past_value is not None:
            before = past_key.shape[2]
            k, v = b.Concat(past_key, k, axis=2), b.Concat(past_value, v, axis=2)
        scores, weights = self._weights(b, q, repeated(b, k, q.shape[1]), mask, lengths, before)
        weights = weights if weights.dtype == v.dtype else b.Cast(weights, to=v.dtype)
        y = b.MatMul(weights, repeated(b, v, q.shape[1]))
        y = y if y.dtype == q.dtype else b.Cast(y, to=q.dtype)
        if flat:
            batch, heads, steps, size = y.shape
            y = reshaped(b, b.Transpose(y, [0, 2, 1, 3]), [batch, steps, heads * size])
        return y, k, v, scores

    def _weights(
        self, b: Builder, q: Value, k: Value, mask: Value | None, lengths: Value | None, before: Dim
    ) -> tuple[Value, Value]:
        """The scores to report, and the weights of the values."""
        scale = self.scale if self.scale is not None else usual_scale(self.name, q)
        root = b.like(math.sqrt(scale), q)
        products = b.MatMul(b.Mul(q, root), b.Transpose(b.Mul(k, root), [0, 1, 3, 2]))
        capped = products
        if self.softcap > 0:
            cap = b.like(self.softcap, q)
            capped = b.Mul(b.Tanh(b.Div(products, cap)), cap)
        bias, guarded = self._bias(b, q, k, mask, lengths, before)
        biased = capped if bias is None else b.Add(capped, bias)
        same = self.softmax_precision in (None, biased.dtype)
        precise = biased if same else b.Cast(biased, to=self.softmax_precision)
        weights = b.Softmax(precise, axis=-1)
        weights = weights if weights.dtype == q.dtype else b.Cast(weights, to=q.dtype)
        if guarded and bias is not None:
            nowhere = b.Equal(bias, b.like(INFINITE, bias))  # the largest: OpenVINO finds no -∞ but the lowest number
            blocked = b.ReduceLogicalAnd(nowhere, [-1], keepdims=True)
            weights = b.Where(blocked, b.like(0.0, weights), weights)
        return (products, capped, biased, weights)[self.qk_matmul_output_mode], weights

    def _bias(
        self, b: Builder, q: Value, k: Value, mask: Value | None, lengths: Value | None, before: Dim
    ) -> tuple[Value | None, bool]:
        """What is added to the scores, and whether it may block a whole row."""
        steps, total = q.shape[2], k.shape[2]
        bias: Value | None = None
        if mask is not None:
            bias = additive(b, mask, q)
            missing = total - mask.shape[-1]
            if missing != 0:
                ends = b.dims([Dim.of(0)] * (2 * len(mask.shape) - 1) + [missing])
                bias = b.Pad(bias, ends, b.like(INFINITE, bias))
        i, j = positions(b, steps, 0), positions(b, total, 1)
        offset = b.dims([before])
        if lengths is not None:
            each = b.Unsqueeze(b.Reshape(lengths, [-1]), [1, 2, 3])
            bias = self._blocked(b, bias, b.Less(j, each), q)
            offset = offset if before != 0 else b.Sub(each, b.dims([steps]))
        distance = b.Sub(b.Add(i, offset), j)
        if self.is_causal:
            bias = self._blocked(b, bias, b.GreaterOrEqual(distance, b.const(0)), q)
        if self.left_window_size >= 0:
            bias = self._blocked(b, bias, b.LessOrEqual(distance, b.const(self.left_window_size)), q)
        if self.right_window_size >= 0:
            bias = self._blocked(b, bias, b.GreaterOrEqual(distance, b.const(-self.right_window_size)), q)
        windows = self.left_window_size >= 0 or self.right_window_size >= 0
        return bias, mask is not None or lengths is not None or windows

    def _blocked(self, b: Builder, bias: Value | None, allowed: Value, like: Value) -> Value:
        """-∞ also where it is not allowed."""
        more = additive(b, allowed, like)
        return more if bias is None else b.Add(bias, more)

    onnx = (
        Form("Attention", 23, attrs=ATTRIBUTES, T={"T1": FLOATS_BF16, "T2": FLOATS_BF16, "U": MASKS}, sig=SIG_23),
        Form("Attention", 24, sig=None),
        Form("Attention", 25, attrs={**ATTRIBUTES, "left_window_size": Int(-1), "right_window_size": Int(-1)}),
    )


def _is_none(mask: Value) -> bool:
    """Tell whether a mask is the number 0, as OpenVINO writes none where a scale follows."""
    return mask.rank == 0 and mask.dtype != boolean and mask.const is not None and not np.any(mask.const.array)


SDPA = FLOATS_BF16 | {f8e4m3fn, f8e5m2}


@op
class ScaledDotProductAttention(Op):
    """softmax(q·kᵀ·scale + mask)·v over the last two axes; a causal one ignores the mask."""

    causal: bool = False
    sig = Sig(
        "q: T[>=2], k?: T[>=2], v?: T[>=2], mask?: M, scale?: T[one], sink?: T -> y: T", T=SDPA, M=SDPA | {boolean}
    )

    def decompose(
        self,
        b: Builder,
        q: Value,
        k: Value | None = None,
        v: Value | None = None,
        mask: Value | None = None,
        scale: Value | None = None,
        sink: Value | None = None,
    ) -> Value:
        given = k is not None and v is not None
        require(given, codes.MISSING_OPERAND, op="ScaledDotProductAttention", operand="key or value", index=1)
        assert k is not None and v is not None
        rank = len(k.shape)
        if scale is None:
            scale = b.like(usual_scale(self.name, q), q)
        else:
            scale = b.Reshape(scale, b.const(np.zeros(0, np.int64)))
        scores = b.MatMul(b.Mul(q, scale), b.Transpose(k, [*range(rank - 2), rank - 1, rank - 2]))
        if self.causal:
            rows, columns = positions(b, q.shape[-2], 0), positions(b, k.shape[-2], 1)
            scores = b.Add(scores, additive(b, b.LessOrEqual(columns, rows), q))
        elif mask is not None and not _is_none(mask):
            scores = b.Add(scores, additive(b, mask, q))
        if sink is None:
            return b.MatMul(b.Softmax(scores, axis=-1), v)
        column = b.Expand(sink, b.dims([*scores.shape[:-1], 1]))
        both = b.Softmax(b.Concat(scores, column, axis=-1), axis=-1)
        return b.MatMul(b.Slice(both, [0], b.dims([scores.shape[-1]]), [-1]), v)

    openvino = (
        Form("ScaledDotProductAttention", 13, attrs={"causal": Bool(False)}, T={"T": SDPA, "M": SDPA | {boolean}}),
    )


@op
class RotaryEmbedding(Op):
    """Pairs of elements turned by an angle that depends on the step: (cos·a - sin·b, sin·a + cos·b).

    A pair is an element and the one half the rotated size after it, or (interleaved) two neighbours.
    Caches: [positions, half] with `position_ids` [batch, steps], else [batch, steps, half].
    """

    interleaved: bool = False
    num_heads: int | None = None
    rotary_embedding_dim: int = 0
    sig = Sig("x: T[3..4], cos: T[s=2..3], sin: T[s], position_ids?: i64[2] -> y: T", T=frozenset({f32, f16, bf16}))

    def decompose(self, b: Builder, x: Value, cos: Value, sin: Value, position_ids: Value | None = None) -> Value:
        flat, shape = len(x.shape) == 3, x.shape
        if flat:
            require(bool(self.num_heads), codes.MISSING_ATTRIBUTE, op="RotaryEmbedding", attribute="num_heads")
            heads = self.num_heads or 1
            x = reshaped(b, x, [x.shape[0], x.shape[1], heads, x.shape[2] // heads])
        if position_ids is not None:
            cos, sin = b.Gather(cos, position_ids, 0), b.Gather(sin, position_ids, 0)
        cos, sin = (b.Unsqueeze(v, [2 if flat else 1]) for v in (cos, sin))
        size = x.shape[3]
        turned = Dim.of(self.rotary_embedding_dim or size)
        parts = [x] if turned == size else [self._cut(b, x, Dim.of(0), turned), self._cut(b, x, turned, size)]
        if self.interleaved:
            p, q = (b.Slice(parts[0], [first], b.dims([turned]), [3], [2]) for first in (0, 1))
        else:
            p, q = self._cut(b, parts[0], Dim.of(0), turned // 2), self._cut(b, parts[0], turned // 2, turned)
        real, imaginary = b.Sub(b.Mul(cos, p), b.Mul(sin, q)), b.Add(b.Mul(sin, p), b.Mul(cos, q))
        if self.interleaved:
            pairs = b.Concat(b.Unsqueeze(real, [4]), b.Unsqueeze(imaginary, [4]), axis=4)
            y = reshaped(b, pairs, [*x.shape[:3], turned])
        else:
            y = b.Concat(real, imaginary, axis=3)
        y = b.Concat(y, parts[1], axis=3) if len(parts) > 1 else y
        return reshaped(b, y, shape) if flat else y

    def _cut(self, b: Builder, x: Value, first: Dim, last: Dim) -> Value:
        return b.Slice(x, b.dims([first]), b.dims([last]), [3])

    onnx = (
        Form(
            "RotaryEmbedding",
            23,
            T=frozenset({f32, f16, bf16}),
            attrs={"interleaved": Bool(False), "num_heads": Int(None), "rotary_embedding_dim": Int(0)},
        ),
    )
