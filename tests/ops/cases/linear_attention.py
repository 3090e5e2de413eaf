"""CausalConvWithState and LinearAttention."""

from irc.ops.linear_attention import CausalConvWithState, LinearAttention
from tests.ops.cases import Case, Spec


def convolution(dtype: str, shape: tuple[int, int, int], taps: int, bias: bool, past: bool) -> tuple[Spec | None, ...]:
    """The operands."""
    batch, channels, _ = shape
    return (
        Spec(dtype, shape),
        Spec(dtype, (channels, 1, taps)),
        Spec(dtype, (channels,)) if bias else None,
        Spec(dtype, (batch, channels, taps - 1)) if past else None,
    )


def attention(
    dtype: str, sizes: tuple[int, int, int, int], heads: tuple[int, int], past: str = "", decay: int = 0, beta: int = 0
) -> tuple[Spec | None, ...]:
    """The operands; sizes: batch, steps, key size, value size."""
    batch, steps, key, value = sizes
    return (
        Spec(dtype, (batch, steps, heads[0] * key), low=-1, high=1),
        Spec(dtype, (batch, steps, heads[1] * key), low=-0.5, high=0.5),
        Spec(dtype, (batch, steps, heads[1] * value), low=-1, high=1),
        Spec(past, (batch, heads[1], key, value), low=-1, high=1) if past else None,
        Spec(dtype, (batch, steps, decay), low=-1, high=0) if decay else None,
        Spec(dtype, (batch, steps, beta), low=0, high=1) if beta else None,
    )


CASES = [
    Case(CausalConvWithState(), convolution("f32", (2, 3, 8), 4, False, False), 1e-5),
    Case(CausalConvWithState(), convolution("f32", (2, 3, 8), 4, True, True), 1e-5),
    Case(CausalConvWithState(silu=True), convolution("f32", (1, 4, 2), 5, True, True), 1e-5, note="fewer steps"),
    Case(CausalConvWithState(silu=True), convolution("f32", (2, 4, 3), 1, False, False), 1e-5, note="one tap"),
    Case(CausalConvWithState(silu=True), convolution("f16", (2, 3, 6), 3, True, True), 4e-3),
    Case(CausalConvWithState(silu=True), convolution("bf16", (2, 3, 6), 3, False, False), 3e-2),
    Case(LinearAttention(2, 2, update_rule="linear"), attention("f32", (2, 3, 4, 5), (2, 2)), 1e-5),
    Case(LinearAttention(4, 2, update_rule="gated"), attention("f32", (2, 3, 4, 5), (4, 2), "f32", decay=8), 1e-5),
    Case(LinearAttention(3, 3, update_rule="gated"), attention("f32", (1, 4, 4, 2), (3, 3), decay=3), 1e-5),
    Case(LinearAttention(4, 1, 0.5, "delta"), attention("f32", (2, 3, 4, 5), (4, 1), "f32", beta=1), 1e-5),
    Case(LinearAttention(2, 2), attention("f32", (2, 5, 4, 3), (2, 2), "f32", decay=8, beta=1), 1e-5),
    Case(LinearAttention(4, 2), attention("f32", (2, 5, 4, 3), (4, 2), decay=2, beta=2), 1e-5),
    Case(LinearAttention(2, 1), attention("f32", (1, 3, 1, 1), (2, 1), decay=1, beta=1), 1e-5, note="size 1"),
    Case(LinearAttention(2, 2), attention("f32", (2, 0, 4, 3), (2, 2), "f32", decay=8, beta=1), note="no step"),
    Case(LinearAttention(2, 2), attention("f16", (2, 3, 4, 3), (2, 2), "f32", decay=2, beta=2), 4e-3),
    Case(LinearAttention(2, 2), attention("bf16", (2, 3, 4, 3), (2, 2), decay=2, beta=2), 3e-2),
    Case(LinearAttention(2, 2), attention("f32", (2, 3, 64, 160), (2, 2), "f16", decay=2, beta=2), 4e-3, note="large"),
]
