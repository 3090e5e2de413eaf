"""Attention as ONNX Runtime has it, in terms of that of ONNX: projections, padding masks, caches, rotary positions.

Padding adds `mask_filter_value` to the scores; what stands later than a query is not seen at all.
Source: ONNX Runtime, contributed operators.
"""

from __future__ import annotations

from collections.abc import Sequence

from ml_dtypes import finfo

from irc.diagnostics import Problem, require
from irc.diagnostics.codes import operation as codes, shape as shape_codes
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import bf16, f16, f32, i8, i32, i64, u8
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Codec, Enum, Float, Int, Ints, single
from irc.opdef.composed import composed, contributed
from irc.opdef.conversions import as_scalar, as_type
from irc.opdef.signature import Sig
from irc.ops.attention import Attention, RotaryEmbedding, positions, with_heads
from irc.ops.layout import reshaped
from irc.ops.microsoft_quantized import scaled_product

SMALL_FLOATS = frozenset({f32, f16, bf16})
BYTES = frozenset({i8, u8})
FILTER = -10000.0
QK_EPSILON = single(1e-6)
PADDED: dict[str, Codec] = {
    "num_heads": Int(lo=1),
    "unidirectional": Bool(False),
    "scale": Float(None),
    "mask_filter_value": Float(None),
}


def refuse(op: Op, given: bool, what: str) -> None:
    """Raise Problem IRC2002 where something is given that irc does not do."""
    if given:
        raise Problem(codes.UNSUPPORTED_OP, op=op.name, opset="com.microsoft opset 1", reason=f"no {what} yet")


def parts_of(b: Builder, x: Value, sizes: Sequence[Dim]) -> list[Value]:
    """Cut the last axis into parts of these sizes."""
    found: list[Value] = []
    at = Dim.of(0)
    for size in sizes:
        found.append(b.Slice(x, b.dims([at]), b.dims([at + size]), [-1]))
        at = at + size
    return found


def merged(b: Builder, y: Value) -> Value:
    """[batch, heads, steps, size] → [batch, steps, heads · size]."""
    batch, heads, steps, size = y.shape
    return reshaped(b, b.Transpose(y, [0, 2, 1, 3]), [batch, steps, heads * size])


def padding(b: Builder, op: Op, mask: Value, q: Value, total: Dim, filtered: float) -> Value:
    """What padding adds to the scores [batch, heads, steps, total].

    A matrix or a cube tells which keys count; a vector where the keys of each sample end, and then where they start.
    """
    batch = q.shape[0]
    rank = len(mask.shape)
    if rank == 1:
        j = positions(b, total, 1)
        ends = as_type(b, b.Slice(mask, [0], b.dims([batch]), [0]), i64)
        counts = b.Less(j, b.Unsqueeze(ends, [1]))
        if mask.shape[0] == batch * 2 and mask.shape[0] != batch:
            starts = as_type(b, b.Slice(mask, b.dims([batch]), b.dims([batch * 2]), [0]), i64)
            counts = b.And(counts, b.GreaterOrEqual(j, b.Unsqueeze(starts, [1])))
        else:
            refuse(op, mask.shape[0].is_const and batch.is_const and mask.shape[0] != batch, "cumulated lengths")
    else:
        fits = rank in (2, 3)
        require(fits, shape_codes.WRONG_RANK, op=op.name, operand="mask", type=mask.tensor, expected="1 to 3")
        counts = b.Greater(mask, b.const(0, i32))
    counts = b.Unsqueeze(counts, [1] if len(counts.shape) == 3 else [1, 2])
    return b.Where(counts, b.like(0.0, q), b.like(filtered, q))


def summed(b: Builder, first: Value | None, second: Value | None) -> Value | None:
    """The sum of what is there."""
    if first is None or second is None:
        return second if first is None else first
    return b.Add(first, second)


def attended(
    b: Builder,
    op: ProjectedAttention | QAttention,
    heads: Sequence[Value],
    mask: Value | None,
    past: Value | None,
    bias: Value | None,
) -> tuple[Value, Value]:
    """Attention of queries, keys and values [batch, heads, steps, size], and the cache [2, …]."""
    q, k, v = heads
    pasts: list[Value | None] = [None, None]
    total = k.shape[2]
    if past is not None:
        pasts = [b.Squeeze(b.Slice(past, [n], [n + 1], [0]), [0]) for n in (0, 1)]
        total = total + past.shape[3]
    filtered = FILTER if op.mask_filter_value is None else op.mask_filter_value
    added = None if mask is None else padding(b, op, mask, q, total, filtered)
    inner = Attention(is_causal=op.unidirectional, scale=op.scale or None)
    y, keys, values, _ = b.add_all(inner, q, k, v, summed(b, added, bias), *pasts)
    present = b.Unsqueeze(keys, [0])
    if not isinstance(op, ProjectedAttention) or len(set(op.qkv_hidden_sizes)) < 2:
        present = b.Concat(present, b.Unsqueeze(values, [0]), axis=0)
    return merged(b, y), present


@op
class ProjectedAttention(Op):
    """Attention of the projections input · weights + bias.

    The cache holds keys, then values; only keys, where values have another size, with which there can be no past.
    """

    num_heads: int
    unidirectional: bool = False
    scale: float | None = None
    mask_filter_value: float | None = None
    qkv_hidden_sizes: tuple[int, ...] = ()
    do_rotary: bool = False
    rotary_embedding_dim: int = 0
    past_present_share_buffer: bool = False
    sig = Sig(
        "input: T[3], weights: T[2], bias?: T[1], mask_index?: i32, past?: T[5], attention_bias?: T[4], "
        "past_sequence_length?: i32 -> output: T, present: T",
        T=SMALL_FLOATS,
    )

    def decompose(
        self,
        b: Builder,
        input: Value,
        weights: Value,
        bias: Value | None = None,
        mask_index: Value | None = None,
        past: Value | None = None,
        attention_bias: Value | None = None,
        past_sequence_length: Value | None = None,
    ) -> tuple[Value, ...]:
        shared = self.past_present_share_buffer or past_sequence_length is not None
        refuse(self, shared, "cache that is shared with its result")
        refuse(self, self.do_rotary, "rotary embedding in it")
        y = b.MatMul(input, weights)
        y = y if bias is None else b.Add(y, bias)
        sizes = [Dim.of(n) for n in self.qkv_hidden_sizes] or [weights.shape[1] // 3] * 3
        require(len(sizes) == 3, codes.ATTRIBUTE_LENGTH, **self.lengths(sizes))
        heads = [with_heads(b, part, self.num_heads) for part in parts_of(b, y, sizes)]
        return attended(b, self, heads, mask_index, past, attention_bias)

    def lengths(self, sizes: Sequence[Dim]) -> dict[str, object]:
        return {"op": self.name, "attribute": "qkv_hidden_sizes", "given": len(sizes), "needed": 3}

    onnx = (
        contributed(
            "Attention",
            {
                **PADDED,
                "qkv_hidden_sizes": Ints(()),
                "do_rotary": Bool(False),
                "rotary_embedding_dim": Int(0),
                "past_present_share_buffer": Bool(False),
            },
            SMALL_FLOATS,
            composed("ProjectedAttention"),
        ),
    )


@op
class QAttention(Op):
    """ProjectedAttention of a quantized operand and quantized weights; the projections are exact sums."""

    num_heads: int
    unidirectional: bool = False
    scale: float | None = None
    mask_filter_value: float | None = None
    do_rotary: bool = False
    past_present_share_buffer: bool = False
    sig = Sig(
        "input: T1[3], weight: T2[2], bias: T3[1], input_scale: T3[one], weight_scale: T3[0..1], mask_index?: i32, "
        "input_zero_point?: T1[one], weight_zero_point?: T2[0..1], past?: T3[5] -> output: T3, present: T3",
        T1=BYTES,
        T2=BYTES,
        T3={f32, f16},
    )

    def decompose(
        self,
        b: Builder,
        input: Value,
        weight: Value,
        bias: Value,
        input_scale: Value,
        weight_scale: Value,
        mask_index: Value | None = None,
        input_zero_point: Value | None = None,
        weight_zero_point: Value | None = None,
        past: Value | None = None,
    ) -> tuple[Value, ...]:
        refuse(self, self.past_present_share_buffer, "cache that is shared with its result")
        refuse(self, self.do_rotary, "rotary embedding in it")
        zeros = input_zero_point, weight_zero_point
        y = scaled_product(b, self, (input, weight), zeros, (as_scalar(b, input_scale), weight_scale))
        y = as_type(b, b.Add(y, as_type(b, bias, f32)), bias.dtype)
        heads = [with_heads(b, part, self.num_heads) for part in parts_of(b, y, [weight.shape[1] // 3] * 3)]
        return attended(b, self, heads, mask_index, past, None)

    onnx = (
        contributed(
            "QAttention",
            {**PADDED, "do_rotary": Bool(False), "past_present_share_buffer": Bool(False)},
            {"T1": BYTES, "T2": BYTES, "T3": {f32, f16}},
        ),
    )


@op
class MultiHeadAttention(Op):
    """Attention of queries, keys and values with a bias; keys and values may stand behind the queries, packed.

    The last result are the scores after the masks.
    """

    num_heads: int
    unidirectional: bool = False
    scale: float | None = None
    mask_filter_value: float | None = None
    sig = Sig(
        "query: T[3..5], key?: T[3..5], value?: T[3..4], bias?: T[1], key_padding_mask?: i32, attention_bias?: T[4], "
        "past_key?: T[4], past_value?: T[4], past_sequence_length?: i32, cache_indirection?: i32"
        " -> output: T, present_key: T, present_value: T, qk: T",
        T=SMALL_FLOATS,
    )

    def decompose(
        self,
        b: Builder,
        query: Value,
        key: Value | None = None,
        value: Value | None = None,
        bias: Value | None = None,
        key_padding_mask: Value | None = None,
        attention_bias: Value | None = None,
        past_key: Value | None = None,
        past_value: Value | None = None,
        past_sequence_length: Value | None = None,
        cache_indirection: Value | None = None,
    ) -> tuple[Value, ...]:
        shared = past_sequence_length is not None or cache_indirection is not None
        refuse(self, shared, "cache that is shared with its result")
        q, k, v = self.heads(b, query, key, value, bias)
        total = k.shape[2] + (0 if past_key is None else past_key.shape[2])
        filtered = FILTER if self.mask_filter_value is None else self.mask_filter_value
        mask = key_padding_mask
        added = None if mask is None else padding(b, self, mask, q, total, filtered)
        inner = Attention(is_causal=self.unidirectional, scale=self.scale or None, qk_matmul_output_mode=2)
        y, keys, values, scores = b.add_all(inner, q, k, v, summed(b, added, attention_bias), past_key, past_value)
        largest = float(finfo(scores.dtype.numpy).max)  # pyright: ignore
        least = b.const(-largest, scores.dtype)  # for what is later than the query
        return merged(b, y), keys, values, b.Max(scores, least)

    def heads(
        self, b: Builder, query: Value, key: Value | None, value: Value | None, bias: Value | None
    ) -> list[Value]:
        """Queries, keys and values [batch, heads, steps, size], with their biases."""
        if len(query.shape) == 5:
            given = self.unpacked(b, query)
        else:
            require(key is not None, codes.MISSING_OPERAND, op=self.name, operand="key", index=1)
            assert key is not None
            rest = self.unpacked(b, key) if len(key.shape) == 5 else [key] if value is None else [key, value]
            given = [with_heads(b, part, self.num_heads) for part in (query, *rest)]
        require(len(given) == 3, codes.MISSING_OPERAND, op=self.name, operand="value", index=2)
        if bias is None:
            return given
        biases = parts_of(b, bias, [x.shape[1] * x.shape[3] for x in given])
        lines = [reshaped(b, part, [x.shape[1], 1, x.shape[3]]) for part, x in zip(biases, given, strict=True)]
        return [b.Add(x, line) for x, line in zip(given, lines, strict=True)]

    def unpacked(self, b: Builder, x: Value) -> list[Value]:
        """[batch, steps, heads, parts, size] → the parts, [batch, heads, steps, size]."""
        count = x.shape[3]
        require(count.is_const, codes.NEEDS_CONSTANT, op=self.name, operand="the number of packed parts")
        turned = b.Transpose(x, [3, 0, 2, 1, 4])
        return [b.Squeeze(b.Slice(turned, [n], [n + 1], [0]), [0]) for n in range(int(count))]

    onnx = (contributed("MultiHeadAttention", PADDED, SMALL_FLOATS),)


@op
class IndexedRotaryEmbedding(Op):
    """RotaryEmbedding at `position_ids`: one for each step, or the first one, from which all samples count."""

    interleaved: bool = False
    num_heads: int = 0
    rotary_embedding_dim: int = 0
    scale: float | None = None
    is_packed_batching: bool = False
    sig = Sig("input: T[3..4], position_ids: i64[1..2], cos: T[2], sin: T[2] -> output: T", T=SMALL_FLOATS)

    def decompose(self, b: Builder, input: Value, position_ids: Value, cos: Value, sin: Value) -> Value:
        refuse(self, self.is_packed_batching, "packed batches")
        refuse(self, self.scale not in (None, 1.0), "scale")
        flat = len(input.shape) == 3
        heads = self.num_heads
        if flat and not heads:
            count = input.shape[2] // (cos.shape[1] * 2)
            require(count.is_const, codes.NEEDS_CONSTANT, op=self.name, operand="the number of heads")
            heads = int(count)
        places = position_ids
        if len(places.shape) == 1:
            steps = input.shape[1 if flat else 2]
            row = b.Add(positions(b, steps, 1), places)
            places = b.Expand(row, b.dims([input.shape[0], steps]))
        fields = {"interleaved": self.interleaved, "rotary_embedding_dim": self.rotary_embedding_dim}
        return b.RotaryEmbedding(input, cos, sin, places, num_heads=heads or None, **fields)

    onnx = (
        contributed(
            "RotaryEmbedding",
            {
                "interleaved": Bool(False),
                "num_heads": Int(0),
                "rotary_embedding_dim": Int(0),
                "scale": Float(None),
                "is_packed_batching": Bool(False),
            },
            SMALL_FLOATS,
            composed("IndexedRotaryEmbedding"),
        ),
    )


@op
class GroupQueryAttention(Op):
    """Causal attention of queries with fewer heads of keys and values, which are put behind those of the cache.

    `seqlens_k` is the number of keys of each sample, less one: where a sample is shorter than its cache, what is new
    stands where it ends.  The cache grows by the steps; it is not shared with its result.
    """

    num_heads: int
    kv_num_heads: int
    scale: float | None = None
    softcap: float = 0.0
    causal: bool = True
    local_window_size: int = -1
    do_rotary: bool = False
    rotary_interleaved: bool = False
    smooth_softmax: int = -1
    qk_output: int = 0
    sliding_window_cache: bool = False
    kv_cache_bit_width: int = 0
    k_quant_type: str = "NONE"
    v_quant_type: str = "NONE"
    qk_norm_epsilon: float = QK_EPSILON
    q_norm_epsilon: float | None = None
    k_norm_epsilon: float | None = None
    sig = Sig(
        "query: T[3], key?: T[3], value?: T[3], past_key?: T[4], past_value?: T[4], seqlens_k: i32, "
        "total_sequence_length: i32[one], cos_cache?: T[2], sin_cache?: T[2], position_ids?: i64[2], "
        "attention_bias?: T[4], head_sink?: T[1], k_scale?: f32, v_scale?: f32, q_norm_weight?: T[1], "
        "k_norm_weight?: T[1], query_seqlens?: i32[1] -> output: T, present_key: T, present_value: T",
        T=SMALL_FLOATS,
    )

    def decompose(
        self,
        b: Builder,
        query: Value,
        key: Value | None,
        value: Value | None,
        past_key: Value | None,
        past_value: Value | None,
        seqlens_k: Value,
        total_sequence_length: Value,
        cos_cache: Value | None = None,
        sin_cache: Value | None = None,
        position_ids: Value | None = None,
        attention_bias: Value | None = None,
        *more: Value | None,
    ) -> tuple[Value, ...]:
        refuse(self, self.smooth_softmax > 0 or any(v is not None for v in more), "sinks, scales or norms of heads")
        refuse(self, self.sliding_window_cache or self.qk_output != 0, "window of a cache or result of the scores")
        q, k, v = self.heads(b, query, key, value)
        batch, steps = q.shape[0], q.shape[2]
        before = Dim.of(0) if past_key is None else past_key.shape[2]
        start = self.starts(b, seqlens_k, batch, steps, before)
        if self.do_rotary:
            given = cos_cache is not None and sin_cache is not None
            require(given, codes.MISSING_OPERAND, op=self.name, operand="cos_cache and sin_cache", index=7)
            places = b.Add(start, positions(b, steps, 1)) if position_ids is None else position_ids
            size = self.rotated(q, cos_cache)
            turn = RotaryEmbedding(interleaved=self.rotary_interleaved, rotary_embedding_dim=size)
            q, k = (b.add(turn, x, cos_cache, sin_cache, places) for x in (q, k))
        total = before + steps
        keys, values = self.put(b, past_key, k, start), self.put(b, past_value, v, start)
        mask = self.allowed(b, start, steps, total)
        added = None
        if mask is not None:
            added = b.Where(b.Unsqueeze(mask, [1]), b.like(0.0, q), b.like(float("-inf"), q))
        added = summed(b, added, attention_bias)
        y, *_ = b.add_all(Attention(scale=self.scale or None, softcap=self.softcap), q, keys, values, added)
        return merged(b, y), keys, values

    def heads(self, b: Builder, query: Value, key: Value | None, value: Value | None) -> list[Value]:
        """Queries, keys and values [batch, heads, steps, size]."""
        counts = self.num_heads, self.kv_num_heads, self.kv_num_heads
        if key is None or value is None:
            size = query.shape[2] // sum(counts)
            parts = parts_of(b, query, [size * n for n in counts])
        else:
            parts = [query, key, value]
        return [with_heads(b, part, n) for part, n in zip(parts, counts, strict=True)]

    def rotated(self, q: Value, cos: Value | None) -> int:
        """The size that is rotated: 0 where it is the whole head."""
        assert cos is not None
        size = cos.shape[1] * 2
        if size == q.shape[3]:
            return 0
        require(size.is_const, codes.NEEDS_CONSTANT, op=self.name, operand="the size of cos_cache")
        return int(size)

    def starts(self, b: Builder, seqlens_k: Value, batch: Dim, steps: Dim, before: Dim) -> Value:
        """Where the new keys of each sample stand, [batch, 1]."""
        last = reshaped(b, as_type(b, seqlens_k, i64), [batch, 1])
        if before == 0:
            return b.Mul(last, b.const(0))
        first = b.Sub(b.Add(last, b.const(1)), b.dims([steps]))
        return b.Max(b.Min(first, b.dims([before])), b.const(0))

    def put(self, b: Builder, past: Value | None, x: Value, start: Value) -> Value:
        """The cache with what is new behind the end of each sample."""
        if past is None or past.shape[2] == 0:
            return x
        both = b.Concat(past, x, axis=2)
        batch, heads, total, size = both.shape
        before, steps = past.shape[2], x.shape[2]
        at = positions(b, total, 1)
        new = b.Sub(at, start)
        within = b.And(b.GreaterOrEqual(new, b.const(0)), b.Less(new, b.dims([steps])))
        places = b.Unsqueeze(b.Where(within, b.Add(new, b.dims([before])), at), [1, 3])
        return b.GatherElements(both, b.Expand(places, b.dims([batch, heads, total, size])), axis=2)

    def allowed(self, b: Builder, start: Value, steps: Dim, total: Dim) -> Value | None:
        """Which keys each query sees, [batch, steps, total]."""
        if not self.causal:
            return None
        j = b.Unsqueeze(positions(b, total, 1), [0])
        own = b.Add(b.Unsqueeze(start, [2]), b.Unsqueeze(positions(b, steps, 0), [0]))
        seen = b.LessOrEqual(j, own)
        if self.local_window_size < 0:
            return seen
        return b.And(seen, b.Greater(j, b.Sub(own, b.const(self.local_window_size))))

    onnx = (
        contributed(
            "GroupQueryAttention",
            {
                "num_heads": Int(lo=1),
                "kv_num_heads": Int(lo=1),
                "scale": Float(None),
                "softcap": Float(0.0),
                "causal": Bool(True),
                "local_window_size": Int(-1),
                "do_rotary": Bool(False),
                "rotary_interleaved": Bool(False),
                "smooth_softmax": Int(-1),
                "qk_output": Int(0),
                "sliding_window_cache": Bool(False),
                "kv_cache_bit_width": Int(0),
                "k_quant_type": Enum(["NONE", "PER_TENSOR", "PER_CHANNEL"], "NONE"),
                "v_quant_type": Enum(["NONE", "PER_TENSOR", "PER_CHANNEL"], "NONE"),
                "qk_norm_epsilon": Float(QK_EPSILON),
                "q_norm_epsilon": Float(None),
                "k_norm_epsilon": Float(None),
            },
            SMALL_FLOATS,
        ),
    )
