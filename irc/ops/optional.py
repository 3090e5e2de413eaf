"""Values that may be absent."""

from __future__ import annotations

from typing import Any

import numpy as np

from irc.arrays import Array
from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes
from irc.ir.graph import Value
from irc.ir.types import OptionalType, TensorType, Type, boolean, dynamic
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import TypeAttr
from irc.opdef.forms import Attributes, Declined, Form, write_only
from irc.opdef.signature import Sig


def read_optional(b: Builder, a: Attributes, x: Value | None = None) -> Value:
    require(x is not None or a.type is not None, codes.MISSING_ATTRIBUTE, op="Optional", attribute="type")
    return b.Optional(x, type=None if x is not None else a.type)


@op
class Optional(Op):
    """The operand as a value that may be absent; without one, an absent value of `type`."""

    type: Type | None = None
    sig = Sig("x?: any -> y: any")

    def infer(self, x: Value | None = None) -> OptionalType:
        found = self.type if x is None else x.type
        return OptionalType(found or TensorType(dynamic, None))

    def reference(self, x: Any = None) -> Any:
        return x

    onnx = (Form("Optional", 15, attrs={"type": TypeAttr(None)}, read=read_optional, direct=True), Form("Optional", 28))


def write_known(b: Builder, op: OptionalHasElement, x: Value | None = None) -> Value:
    """OpenVINO: of a tensor, which is there, and of a missing operand."""
    if x is not None and not isinstance(x.type, TensorType):
        raise Declined
    return b.const(x is not None, boolean)


def write_present(b: Builder, op: OptionalGetElement, x: Value) -> Value:
    """OpenVINO: a tensor is its own value."""
    if not isinstance(x.type, TensorType):
        raise Declined
    return b.Identity(x)


@op
class OptionalHasElement(Op):
    """Whether there is a value; one that cannot be absent is there, a missing operand is not."""

    sig = Sig("x?: any -> y: bool")

    def infer(self, x: Value | None = None) -> TensorType:
        return TensorType.of(boolean, ())

    def reference(self, x: Any = None) -> Array:
        return np.array(x is not None)

    onnx = (
        Form("OptionalHasElement", 15, sig=Sig("x: any -> y: bool")),
        Form("OptionalHasElement", 18, sig=None),
        Form("OptionalHasElement", 28),
    )
    openvino = (write_only(write_known),)


@op
class OptionalGetElement(Op):
    """The value of what may be absent, and is not."""

    sig = Sig("x: any -> y: any")

    def infer(self, x: Value) -> Type:
        found = x.type.element if isinstance(x.type, OptionalType) else x.type
        return found or TensorType(dynamic, None)

    def reference(self, x: Any) -> Any:
        if x is None:
            raise ValueError("the value is absent")
        return x

    onnx = (Form("OptionalGetElement", 15), Form("OptionalGetElement", 18), Form("OptionalGetElement", 28))
    openvino = (write_only(write_present),)
