"""Attention, ScaledDotProductAttention, RotaryEmbedding."""

from typing import Any

from irc.ops.attention import Attention, RotaryEmbedding, ScaledDotProductAttention
from tests.ops.cases import Case, Spec

LIMITS = {"f32": 3e-6, "f64": 1e-12, "f16": 6e-3, "bf16": 6e-2}


def attention(
    steps: int = 4,
    keys: int = 6,
    heads: int = 4,
    shared: int = 4,
    past: int = 0,
    mask: Spec | None = None,
    lengths: Spec | None = None,
    dtype: str = "f32",
    **fields: Any,
) -> Case:
    kv = Spec(dtype, (2, shared, keys, 8))
    before = Spec(dtype, (2, shared, past, 8)) if past else None
    operands = [Spec(dtype, (2, heads, steps, 8)), kv, kv, mask, before, before, lengths]
    while operands[-1] is None:
        operands.pop()
    return Case(Attention(**fields), tuple(operands), LIMITS[dtype])


def flat(**fields: Any) -> Case:
    op = Attention(q_num_heads=4, kv_num_heads=2, **fields)
    return Case(op, (Spec("f32", (2, 4, 32)), Spec("f32", (2, 6, 16)), Spec("f32", (2, 6, 16))), 3e-6)


def rotary(*shape: int, half: int = 4, ids: bool = True, dtype: str = "f32", **fields: Any) -> Case:
    steps = shape[1] if len(shape) == 3 else shape[2]
    cache = Spec(dtype, (9, half) if ids else (shape[0], steps, half), -1, 1)
    places = [Spec("i64", (shape[0], steps), 0, 8)] if ids else []
    return Case(RotaryEmbedding(**fields), (Spec(dtype, shape), cache, cache, *places), LIMITS[dtype])


CASES = [
    attention(),
    attention(shared=2),
    attention(is_causal=True),
    attention(is_causal=True, past=3, steps=2, keys=2),
    *(
        attention(mask=Spec(t, s), is_causal=c)
        for c in (False, True)
        for t, s in (("f32", (4, 6)), ("bool", (2, 1, 4, 6)), ("bool", (4, 6)))
    ),
    *(attention(softcap=2.0, mask=Spec("f32", (4, 6)), qk_matmul_output_mode=m) for m in range(4)),
    attention(scale=0.3),
    attention(is_causal=True, left_window_size=2),
    attention(left_window_size=1, right_window_size=1),
    attention(lengths=Spec("i64", (2,), values=(3, 6))),
    attention(lengths=Spec("i64", (2,), values=(4, 6)), is_causal=True),
    attention(mask=Spec("f32", (4, 4))),
    *(attention(dtype=t) for t in ("f64", "f16", "bf16")),
    flat(),
    flat(is_causal=True),
    *(
        Case(ScaledDotProductAttention(causal=c), (q, kv, kv, *m), 3e-6)
        for c in (False, True)
        for q, kv in (
            (Spec("f32", (2, 4, 5, 8)), Spec("f32", (2, 4, 6, 8))),
            (Spec("f32", (5, 8)), Spec("f32", (6, 8))),
        )
        for m in ((), (Spec("f32", (5, 6)),), (Spec("f32", (5, 6)), Spec("f32", (), values=0.5)))
    ),
    *(rotary(2, 3, 4, 8, interleaved=i, ids=ids) for i in (False, True) for ids in (False, True)),
    rotary(2, 3, 4, 8, half=2, rotary_embedding_dim=4),
    rotary(2, 3, 32, num_heads=4),
    rotary(2, 3, 32, num_heads=4, half=2, rotary_embedding_dim=4, interleaved=True),
    rotary(2, 3, 4, 8, dtype="f16"),
]
