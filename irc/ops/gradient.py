"""Gradient: derivatives of a part of the graph, which become ordinary operations when they are read.

Source: ONNX Gradient, domain ai.onnx.preview.training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from irc.diagnostics import Problem, require
from irc.diagnostics.codes import operation as codes
from irc.formats.document import Attr
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import FLOATS_BF16, TensorType, dynamic
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Codec, Reading, Str, Strs
from irc.opdef.forms import Attributes, Declined, Form, Results
from irc.opdef.gradients import gradients, replayed
from irc.opdef.signature import Sig
from irc.opdef.sizes import SizeBuilder
from irc.ops.optimizers import DOMAIN


@dataclass(frozen=True)
class Names(Strs):
    """The values of these names; `own`: none of them is of the graph around a body."""

    own: bool = False

    def decode(self, raw: Attr, r: Reading) -> tuple[Value, ...]:  # type: ignore[override]
        assert r.value is not None
        return tuple(r.value(name, self.own) for name in super().decode(raw, r))


@dataclass(frozen=True)
class Name(Str):
    """The value of this name."""

    def decode(self, raw: Attr, r: Reading) -> Value:  # type: ignore[override]
        assert r.value is not None
        return r.value(super().decode(raw, r), False)


class GradientBuilder(SizeBuilder):
    """Takes sizes from the shapes of values, in operations that every format has."""

    def dims(self, shape: Sequence[Dim | int]) -> Value:
        try:
            return super().dims(shape)
        except Declined:  # a size that is part of none
            return Builder.dims(self, shape)

    def _axis(self, size: Dim) -> Value | None:
        return super()._axis(size) or self._axis_of((v for node in self.graph.dag for v in node.outputs), size)


ATTRIBUTES: dict[str, Codec] = {"xs": Names(own=True), "y": Name(), "zs": Names(())}


def check_type(b: Builder, operand: str, value: Value) -> None:
    """Require a tensor of floats."""
    if isinstance(value.type, TensorType) and value.dtype == dynamic:
        raise Problem(codes.NO_GRADIENT, through=f"{value.name}, whose type is not known")
    known = isinstance(value.type, TensorType) and value.dtype in FLOATS_BF16
    facts = {"op": b.label, "operand": operand, "dtype": value.type}
    require(known, codes.TYPE_NOT_ALLOWED, **facts, allowed="f64, f32, f16, bf16")


def read_gradient(b: Builder, a: Attributes, *operands: Value | None) -> Results:
    """Differentiate what computes y out of xs and zs, with the operands in their places."""
    named: Sequence[Value] = (*a.xs, *a.zs)
    given = [v if v is not None else own for v, own in zip(operands, named, strict=False)]
    facts = {"op": b.label, "attribute": "xs and zs", "given": len(named), "needed": len(operands)}
    require(len(operands) == len(named), codes.ATTRIBUTE_LENGTH, **facts)
    if any(len(set(values)) < len(values) for values in (named, given)):  # which of them is meant could not be told
        raise Problem(codes.NO_GRADIENT, through="one value under two names")
    for operand, values in (("y", [a.y]), ("xs", [*a.xs, *given[: len(a.xs)]])):
        for v in values:
            check_type(b, operand, v)
    others = {own: v for own, v in zip(named, given, strict=True) if own is not v}
    b = GradientBuilder(b.graph, b.hint, b.loc, b.origin, b.label)
    y = replayed(b, a.y, others) if others else a.y
    found = gradients(b, y, given[: len(a.xs)])
    if b.origin is not None:
        b.origin.intact = False  # a writer may rename what the attributes name
    return [g if g not in found[:k] else b.Identity(g) for k, g in enumerate(found)]


@op
class Gradient(Op):
    """The derivatives of the sum of y by each of xs.  It is read as the operations that compute them, in every format.

    irc.opdef.gradients has the method, irc/ops/gradients_*.py have the rules.
    """

    xs: tuple[str, ...] = ()
    y: str = ""
    zs: tuple[str, ...] = ()
    sig = Sig("*inputs: any -> *ys: any")

    onnx = (Form("Gradient", 1, attrs=ATTRIBUTES, read=read_gradient, domain=DOMAIN),)
