"""Normalisations and activations that ONNX Runtime fuses with what stands in front of them.

Source: ONNX Runtime, contributed operators.
"""

from __future__ import annotations

import math

from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import FLOATS, FLOATS_BF16, bf16, f16, f32, i32
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Float, Int, single
from irc.opdef.composed import contributed
from irc.opdef.conversions import as_type
from irc.opdef.precision import narrowed, widened
from irc.opdef.signature import Sig
from irc.ops.layout import normal_axis, reshaped
from irc.ops.norm import centred, inverse_root

EPSILON = single(1e-12)
QUICK = single(1.702)
SMALL_FLOATS = frozenset({f32, f16, bf16})


@op
class BiasGelu(Op):
    """Gelu of A + B."""

    sig = Sig("A: T, B: T[1] -> C: T", T=FLOATS_BF16)

    def decompose(self, b: Builder, A: Value, B: Value) -> Value:
        return b.Gelu(b.Add(A, B))

    onnx = (contributed("BiasGelu", T=FLOATS_BF16),)


@op
class FastGelu(Op):
    """Gelu by tanh of X, plus a bias."""

    sig = Sig("X: T, bias?: T -> Y: T", T=FLOATS_BF16)

    def decompose(self, b: Builder, X: Value, bias: Value | None = None) -> Value:
        return b.Gelu(X if bias is None else b.Add(X, bias), approximate="tanh")

    onnx = (contributed("FastGelu", T=FLOATS_BF16),)


@op
class QuickGelu(Op):
    """x · sigmoid(alpha · x)."""

    alpha: float = QUICK
    sig = Sig("X: T -> Y: T", T=FLOATS_BF16)

    def decompose(self, b: Builder, X: Value) -> Value:
        return b.Swish(X) if self.alpha == 1.0 else b.Swish(X, b.like(self.alpha, X))

    onnx = (contributed("QuickGelu", {"alpha": Float(QUICK)}, FLOATS_BF16),)


@op
class BiasAdd(Op):
    """X + bias + skip."""

    sig = Sig("X: T[3], bias: T[1], skip: T[3] -> Y: T", T={f32, f16})

    def decompose(self, b: Builder, X: Value, bias: Value, skip: Value) -> Value:
        return b.Add(b.Add(X, bias), skip)

    onnx = (contributed("BiasAdd", T={f32, f16}),)


@op
class BiasSoftmax(Op):
    """Softmax of data + bias over all axes from `axis` on; which axes of the bias are 1, its shape says too."""

    axis: int = 1
    is_inner_broadcast: bool = False
    sig = Sig("data: T, bias: T -> output: T", T=FLOATS)

    def decompose(self, b: Builder, data: Value, bias: Value) -> Value:
        x = b.Add(data, bias)
        axis = normal_axis(self.name, self.axis, len(x.shape))
        if axis == len(x.shape) - 1:
            return b.Softmax(x, axis=-1)
        rows, columns = (math.prod(part, start=Dim.of(1)) for part in (x.shape[:axis], x.shape[axis:]))
        return reshaped(b, b.Softmax(reshaped(b, x, [rows, columns]), axis=1), x.shape)

    onnx = (contributed("BiasSoftmax", {"axis": Int(1), "is_inner_broadcast": Bool()}, FLOATS),)


@op
class SkipLayerNormalization(Op):
    """LayerNormalization of input + skip + bias; its mean and inverse deviation, and that sum."""

    epsilon: float = EPSILON
    sig = Sig(
        "input: T[2..3], skip: T[2..3], gamma: T[1], beta?: T[1], bias?: T[1]"
        " -> output: T, mean: f32, inv_std_var: f32, input_skip_bias_sum: T",
        T=SMALL_FLOATS,
    )

    def decompose(
        self, b: Builder, input: Value, skip: Value, gamma: Value, beta: Value | None = None, bias: Value | None = None
    ) -> tuple[Value, ...]:
        x = b.Add(widened(b, input), widened(b, skip))
        x = x if bias is None else b.Add(x, widened(b, bias))
        shift = None if beta is None else widened(b, beta)
        y = b.LayerNormalization(x, widened(b, gamma), shift, epsilon=self.epsilon)
        axes = [len(x.shape) - 1]
        _, variance = centred(b, x, axes)
        mean, inverse = b.ReduceMean(x, axes), inverse_root(b, variance, self.epsilon)
        return narrowed(b, y, input), mean, inverse, narrowed(b, x, input)

    onnx = (contributed("SkipLayerNormalization", {"epsilon": Float(EPSILON)}, SMALL_FLOATS),)


@op
class SkipSimplifiedLayerNormalization(Op):
    """RMSNormalization of input + skip + bias; 0 for its mean, its inverse deviation, and that sum."""

    epsilon: float = EPSILON
    sig = Sig(
        "input: T[2..3], skip: T[2..3], gamma: T[1], bias?: T[1]"
        " -> output: T, mean: f32, inv_std_var: f32, input_skip_bias_sum: T",
        T=SMALL_FLOATS,
    )

    def decompose(
        self, b: Builder, input: Value, skip: Value, gamma: Value, bias: Value | None = None
    ) -> tuple[Value, ...]:
        x = b.Add(widened(b, input), widened(b, skip))
        x = x if bias is None else b.Add(x, widened(b, bias))
        y = b.RMSNormalization(x, widened(b, gamma), epsilon=self.epsilon)
        square = b.ReduceMean(b.Mul(x, x), [len(x.shape) - 1])
        mean = b.Mul(square, b.const(0.0, f32))
        return narrowed(b, y, input), mean, inverse_root(b, square, self.epsilon), narrowed(b, x, input)

    onnx = (contributed("SkipSimplifiedLayerNormalization", {"epsilon": Float(EPSILON)}, SMALL_FLOATS),)


@op
class EmbedLayerNormalization(Op):
    """LayerNormalization of the sum of the embeddings of words, positions and segments.

    The other results: how many of each row of the mask are set (0 without a mask), and that sum.
    """

    epsilon: float = EPSILON
    mask_index_type: int | None = None
    sig = Sig(
        "input_ids: i32[2], segment_ids?: i32[2], word_embedding: T[2], position_embedding: T[2], "
        "segment_embedding?: T[2], gamma: T[1], beta: T[1], mask?: i32[2], position_ids?: i32[2]"
        " -> output: T, mask_index: i32, embedding_sum: T",
        T={f32, f16},
    )

    def decompose(
        self,
        b: Builder,
        input_ids: Value,
        segment_ids: Value | None,
        word_embedding: Value,
        position_embedding: Value,
        segment_embedding: Value | None,
        gamma: Value,
        beta: Value,
        mask: Value | None = None,
        position_ids: Value | None = None,
    ) -> tuple[Value, ...]:
        batch, steps = input_ids.shape
        axis = b.const(0)
        x = widened(b, b.Gather(word_embedding, input_ids, axis))
        if position_ids is None:
            places = b.Slice(position_embedding, [0], b.dims([steps]), [0])
        else:
            places = b.Gather(position_embedding, position_ids, axis)
        x = b.Add(x, widened(b, places))
        if segment_ids is not None and segment_embedding is not None:
            x = b.Add(x, widened(b, b.Gather(segment_embedding, segment_ids, axis)))
        y = b.LayerNormalization(x, widened(b, gamma), widened(b, beta), epsilon=self.epsilon)
        if mask is None:
            count = b.Expand(b.const(0, i32), b.dims([batch]))
        else:
            count = b.ReduceSum(as_type(b, b.Equal(mask, b.const(1, i32)), i32), [1], keepdims=False)
        return narrowed(b, y, gamma), count, narrowed(b, x, gamma)

    onnx = (
        contributed("EmbedLayerNormalization", {"epsilon": Float(EPSILON), "mask_index_type": Int(None)}, {f32, f16}),
    )
