"""Bit patterns under another element type: BitCast.

Source: ONNX BitCast.
"""

from __future__ import annotations

from irc.diagnostics import require
from irc.diagnostics.codes import operation
from irc.expr import Bits, Expr
from irc.ir.graph import Value
from irc.ir.types import DType, TensorType, boolean, dtype, dynamic, string, u8
from irc.opdef.base import Array, op
from irc.opdef.builder import Builder
from irc.opdef.elementwise import Elementwise
from irc.opdef.forms import Declined, Form, write_only
from irc.opdef.signature import Sig
from irc.opdef.typesets import onnx_all
from irc.ops.cast import CastTarget

TYPES = onnx_all(26) - {string}


def write_wrapped(b: Builder, op: BitCast, x: Value) -> Value:
    """OpenVINO: integers of the same width are what Convert wraps to, and so are booleans as numbers."""
    whole = x.dtype.is_integer and op.to.is_integer
    if x.dtype.bits != op.to.bits or not (whole or (x.dtype == boolean and op.to == u8)):
        raise Declined
    return b.Cast(x, to=op.to)


@op
class BitCast(Elementwise):
    """The bit pattern of each element, as an element of another type of the same width.

    As a boolean, every pattern but 0 is true.
    """

    to: DType
    sig = Sig("x: T1 -> y: T2", T1=TYPES, T2=TYPES)
    widens = "none"

    def infer(self, x: Value) -> TensorType:
        fits = self.to in TYPES and x.dtype in {dynamic, *(t for t in TYPES if t.bits == self.to.bits)}
        expected = f"an element type of {x.dtype.bits} bits, as {x.dtype} is"
        require(fits, operation.ATTRIBUTE_RANGE, op="BitCast", attribute="to", value=self.to, expected=expected)
        return TensorType(self.to, x.tensor.shape)

    def result_types(self, inputs: list[Value]) -> list[TensorType]:
        self.check(inputs)
        return [self.infer(*inputs)]

    def reference(self, x: Array) -> Array:
        if self.to.name == "bool":
            return x.view("uint8") != 0
        return x.view(self.to.numpy)

    def scalar(self, x: Expr) -> Expr:
        if x.dtype == self.to:
            return x
        whole = u8 if x.dtype == boolean else dtype(f"u{x.dtype.bits}")
        pattern = Bits(x, whole) if x.dtype.is_float else x.cast(whole)
        if self.to == boolean:
            return pattern.ne(0)
        return Bits(pattern, self.to) if self.to.is_float else pattern.cast(self.to)

    onnx = (Form("BitCast", 26, attrs={"to": CastTarget()}, T={"T1": TYPES, "T2": TYPES}),)
    openvino = (write_only(write_wrapped),)
