"""What operations of ai.onnx.ml make of the scores of classes: post transforms, and labels.

Source: ONNX ai.onnx.ml; the transforms as ONNX Runtime defines them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from irc.ir.graph import Value
from irc.ir.types import f32, i64, string
from irc.opdef.builder import Builder
from irc.opdef.codecs import Enum

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
POST_TRANSFORM = Enum(TRANSFORMS, "NONE")
NEARLY_ZERO = 1e-7
"""Scores up to this magnitude stay 0 under SOFTMAX_ZERO."""


def feature_rows(b: Builder, x: Value) -> Value:
    """Make features f32, and one row of a vector."""
    return b.Cast(b.Unsqueeze(x, [0]) if len(x.shape) == 1 else x, to=f32)


def transformed(b: Builder, transform: str, scores: Value) -> Value:
    """Apply a post transform to scores, whose last axis counts classes."""
    if transform == "SOFTMAX":
        return b.Softmax(scores, axis=-1)
    if transform == "LOGISTIC":
        return b.Sigmoid(scores)
    if transform == "SOFTMAX_ZERO":
        return _softmax_zero(b, scores)
    return _probit(b, scores) if transform == "PROBIT" else scores


def _softmax_zero(b: Builder, scores: Value) -> Value:
    """Softmax, but a score of 0 counts as 0 · exp(-max)."""
    largest = b.ReduceMax(scores, [-1], keepdims=True)
    counted = b.Less(b.like(NEARLY_ZERO, scores), b.Abs(scores))
    parts = b.Where(counted, b.Exp(b.Sub(scores, largest)), b.Mul(scores, b.Exp(b.Neg(largest))))
    total = b.ReduceSum(parts, [-1], keepdims=True)
    nothing = b.Equal(total, b.like(0, scores))
    return b.Where(nothing, b.like(0.5, scores), b.Div(parts, b.Where(nothing, b.like(1, scores), total)))


def _probit(b: Builder, scores: Value) -> Value:
    """√2 · erf⁻¹(2 · score - 1), the inverse of erf approximated with 0.147 for a (Winitzki)."""
    centred = b.Sub(b.Mul(scores, 2.0), 1.0)
    rest = b.Mul(b.Sub(b.like(1, scores), centred), b.Add(centred, 1.0))
    edge = b.Equal(rest, b.like(0, scores))
    log = b.Log(b.Where(edge, b.like(1, scores), rest))
    half = b.Add(b.Mul(log, 0.5), 2 / (math.pi * 0.147))
    found = b.Sqrt(b.Sub(b.Sqrt(b.Sub(b.Mul(half, half), b.Mul(log, 1 / 0.147))), half))
    signed = b.Where(b.Less(centred, b.like(0, scores)), b.Neg(found), found)
    return b.Where(edge, b.like(0, scores), b.Mul(signed, 1.41421356))


def table(b: Builder, ints: Sequence[int], strings: Sequence[str]) -> Value:
    """Make the labels a constant vector."""
    if strings:
        return b.const(list(strings), string)
    return b.const(list(ints), i64)


def chosen(b: Builder, labels: Value, scores: Value) -> Value:
    """Give each row the label of its largest score, of equal ones the first."""
    return b.Gather(labels, b.ArgMax(scores, axis=-1, keepdims=False), b.const(0))


def either(b: Builder, condition: Value, labels: Value) -> Value:
    """Give the second label where the condition holds, else the first."""
    first, second = (b.Gather(labels, b.const(k), b.const(0)) for k in (0, 1))
    return b.Where(condition, second, first)


def columns(b: Builder, *parts: Value) -> Value:
    """Put vectors side by side as the columns of a matrix."""
    return b.Concat(*(b.Unsqueeze(p, [1]) for p in parts), axis=1)


def opposed(b: Builder, transform: str, score: Value) -> Value:
    """Make the scores of two classes from that of the second: 1 - s and s, which only PROBIT transforms.

    LOGISTIC: σ(-s) and σ(s).
    """
    if transform == "LOGISTIC":
        return b.Sigmoid(columns(b, b.Neg(score), score))
    both = columns(b, b.Sub(b.like(1, score), score), score)
    return _probit(b, both) if transform == "PROBIT" else both
