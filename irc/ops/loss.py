"""Losses of classification: NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss.

Narrow floats are computed in f32.  Sources: ONNX NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss.
"""

from __future__ import annotations

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import FLOATS, FLOATS_BF16, TensorType, bf16
from irc.opdef.base import Array, Op, op, op_base
from irc.opdef.builder import Builder
from irc.opdef.codecs import Enum, Int
from irc.opdef.conversions import as_i64
from irc.opdef.forms import PREV, Form
from irc.opdef.precision import narrowed, rounded, wide, widened
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX
from irc.ops.gather import normal_index

ATTRIBUTES = {"ignore_index": Int(None), "reduction": Enum(["none", "sum", "mean"], "mean")}


def shape_of_loss(op: ClassLoss, x: Value, target: Value, weight: Value | None) -> TensorType:
    """Infer the type of the loss, after a check that the operands' sizes go together."""
    if x.rank is None or target.rank is None:
        return TensorType(x.dtype, None if op.reduction == "none" else ())
    facts = {"op": op.name, "operand": "target", "type": target.tensor}
    require(target.rank == x.rank - 1, codes.WRONG_RANK, **facts, expected=x.rank - 1)
    for k, (p, q) in enumerate(zip((x.shape[0], *x.shape[2:]), target.shape, strict=True)):
        what = f"axis {k} of the target and that of the operand"
        require(same(p, q), codes.SIZES_DIFFER, op=op.name, what=what, a=p, b=q)
    if weight is not None and weight.rank is not None:
        p, q = x.shape[1], weight.shape[0]
        require(same(p, q), codes.SIZES_DIFFER, op=op.name, what="classes and weights", a=p, b=q)
    return TensorType(x.dtype, target.shape if op.reduction == "none" else ())


def class_loss(w: Array, target: Array, weight: Array | None, ignore_index: int | None, reduction: str) -> Array:
    """Compute the loss of log probabilities, in their type; a target outside the classes finds 0."""
    where, valid = normal_index(target, w.shape[1])
    counted = np.ones(target.shape, w.dtype)
    picked = np.zeros(target.shape, w.dtype)
    if w.shape[1]:
        found = np.take_along_axis(w, np.expand_dims(where, 1), 1)
        picked = np.where(valid, np.squeeze(found, 1), picked)
        counted = counted if weight is None else np.where(valid, wide(weight)[where], w.dtype.type(0))
    loss = -picked * counted
    if ignore_index is not None:
        ignored = target == ignore_index
        loss, counted = (np.where(ignored, w.dtype.type(0), v) for v in (loss, counted))
    if reduction == "none":
        return loss
    total = np.sum(loss, dtype=w.dtype)
    with np.errstate(all="ignore"):
        return np.asarray(total / np.sum(counted, dtype=w.dtype) if reduction == "mean" else total)


@op_base
class ClassLoss(Op):
    """A loss of each target's class, and its sum or mean; a target that is `ignore_index` counts nothing."""

    ignore_index: int | None = None
    reduction: str = "mean"

    def build(self, b: Builder, w: Value, target: Value, weight: Value | None) -> Value:
        """Compute `class_loss` in terms of operations."""
        zero, counted = b.const(0.0, w.dtype), b.const(1.0, w.dtype)
        ignored = None
        if self.ignore_index is not None:  # often no class at all, where other engines read beyond their memory
            ignored = b.Equal(as_i64(b, target), b.const(self.ignore_index))
            target = b.Where(ignored, b.like(0, target), target)
        loss = b.Neg(b.Squeeze(b.GatherElements(w, b.Unsqueeze(target, [1]), axis=1), [1]))
        if weight is not None:
            counted = b.Gather(widened(b, weight), target, b.const(0))
            loss = b.Mul(loss, counted)
        if ignored is not None:
            loss, counted = b.Where(ignored, zero, loss), b.Where(ignored, zero, counted)
        if self.reduction == "none":
            return loss
        total = b.ReduceSum(loss, keepdims=False)
        if self.reduction == "sum":
            return total
        counted = counted if counted.rank else b.Expand(counted, b.dims(target.shape))
        return b.Div(total, b.ReduceSum(counted, keepdims=False))


@op
class NegativeLogLikelihoodLoss(ClassLoss):
    """-x[n, c, …] · weight[c], c = target[n, …], of log probabilities x; their sum, or their mean by weight."""

    sig = Sig("x: T[>=2], target: I[>=1], weight?: T[1] -> y: T", T=FLOATS_BF16, I=INDEX)

    def infer(self, x: Value, target: Value, weight: Value | None = None) -> TensorType:
        return shape_of_loss(self, x, target, weight)

    def reference(self, x: Array, target: Array, weight: Array | None = None) -> Array:
        return rounded(class_loss(wide(x), target, weight, self.ignore_index, self.reduction), x)

    def decompose(self, b: Builder, x: Value, target: Value, weight: Value | None = None) -> Value:
        return narrowed(b, self.build(b, widened(b, x), target, weight), x)

    onnx = (
        Form("NegativeLogLikelihoodLoss", 12, attrs=ATTRIBUTES, T={"T": FLOATS, "I": INDEX}),
        Form("NegativeLogLikelihoodLoss", 13),
        Form("NegativeLogLikelihoodLoss", 22, T={"T": PREV | {bf16}}),
    )


@op
class SoftmaxCrossEntropyLoss(ClassLoss):
    """NegativeLogLikelihoodLoss of the logarithm of the softmax of x along axis 1, and that logarithm."""

    sig = Sig("x: T[>=2], target: I[>=1], weight?: T[1] -> y: T, log_prob: T", T=FLOATS_BF16, I=INDEX)

    def infer(self, x: Value, target: Value, weight: Value | None = None) -> list[TensorType]:
        return [shape_of_loss(self, x, target, weight), x.tensor]

    def reference(self, x: Array, target: Array, weight: Array | None = None) -> tuple[Array, Array]:
        w = wide(x)
        d = w - np.max(w, axis=1, keepdims=True, initial=-np.inf)
        log = d - np.log(np.sum(np.exp(d), axis=1, keepdims=True))
        return rounded(class_loss(log, target, weight, self.ignore_index, self.reduction), x), rounded(log, x)

    def decompose(self, b: Builder, x: Value, target: Value, weight: Value | None = None) -> tuple[Value, Value]:
        log = b.LogSoftmax(widened(b, x), axis=1)
        return narrowed(b, self.build(b, log, target, weight), x), narrowed(b, log, x)

    onnx = (
        Form("SoftmaxCrossEntropyLoss", 12, attrs=ATTRIBUTES, T={"T": FLOATS, "I": INDEX}),
        Form("SoftmaxCrossEntropyLoss", 13, T={"T": PREV | {bf16}}),
    )
