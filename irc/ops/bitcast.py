"""Bit patterns under another element type: BitCast.

Source: ONNX BitCast.
"""

from __future__ import annotations

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation
from irc.expr import Bits, Expr
from irc.ir.graph import Value
from irc.ir.types import DType, TensorType, boolean, dtype, dynamic, i32, i64, string, u8
from irc.opdef.base import Array, op
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_type
from irc.opdef.elementwise import Elementwise
from irc.opdef.forms import Declined, Form, write_only
from irc.opdef.signature import Sig
from irc.opdef.typesets import onnx_all
from irc.ops.cast import CastTarget

TYPES = onnx_all(26) - {string}


def write_wrapped(b: Builder, op: BitCast, x: Value) -> Value:
    """Integers of the same width are what Cast wraps to, and so are booleans as numbers."""
    whole = x.dtype.is_integer and op.to.is_integer
    if x.dtype.bits != op.to.bits or not (whole or (x.dtype == boolean and op.to == u8)):
        raise Declined
    return b.Cast(x, to=op.to)


LAYOUT = {"f16": (10, 15), "bf16": (7, 127), "f32": (23, 127), "f64": (52, 1023)}
"""Of each float: the bits of its fraction, and what its exponent is stored with."""


def write_parts(b: Builder, op: BitCast, x: Value) -> Value:
    """Where a format has no such operation: the parts of a float by arithmetic, which is exact; NaN has one pattern."""
    if x.dtype.bits != op.to.bits or not (x.dtype.name in LAYOUT and op.to.is_integer):
        if not (op.to.name in LAYOUT and x.dtype.is_integer):
            raise Declined
        return float_of_parts(b, x, op.to)
    return parts_of_float(b, x, op.to)


def scales(kind: DType) -> Array:
    """What the fraction of a float stands for, by its stored exponent: a power of two, the least one twice."""
    _, bias = LAYOUT[kind.name]
    return np.exp2(np.maximum(np.arange(2 * bias + 1), 1).astype(np.float64) - bias)


def inverses(kind: DType) -> list[Array]:
    """What divides by `scales`: factors neither of which is too small to be a normal number."""
    exponents = np.log2(scales(kind))
    first = np.trunc(exponents / 2)
    return [np.exp2(-first), np.exp2(first - exponents)]


def parts_of_float(b: Builder, x: Value, to: DType) -> Value:
    """The bits of a float as an integer: stored exponent and fraction side by side, the sign in front of them."""
    kind = x.dtype
    width, bias = LAYOUT[kind.name]
    whole = i64 if kind.bits == 64 else i32
    size, powers = b.Abs(x), scales(kind)
    bounds = b.const(np.append(powers[1:], np.inf), kind)
    stored = b.SearchSorted(bounds, size, right_mode=True, output_type=whole)
    finite = b.Less(stored, b.const(2 * bias + 1, whole))
    place = b.Min(stored, b.const(2 * bias, whole))
    for factors in inverses(kind):
        size = b.Mul(size, b.Gather(b.const(factors, kind), place, b.const(0)))
    fraction = b.Sub(size, b.Cast(b.Greater(stored, b.const(0, whole)), to=kind))
    fraction = b.Where(finite, fraction, b.like(0.0, x))
    bits = b.Cast(b.Mul(fraction, b.like(2.0**width, x)), to=whole)
    bits = b.Add(b.Mul(stored, b.const(1 << width, whole)), bits)
    none = b.const(((2 * bias + 1) << width) + (1 << (width - 1)), whole)
    bits = b.Where(b.Equal(x, x), bits, none)
    zero = b.like(0.0, x)
    below = b.Less(b.Where(b.Equal(x, zero), b.Reciprocal(x), x), zero)  # 1 / -0 is -inf
    sign = b.const(-(1 << (kind.bits - 1)), whole)
    return as_type(b, b.Where(below, b.Add(bits, sign), bits), to)


def float_of_parts(b: Builder, x: Value, to: DType) -> Value:
    """The float whose bits an integer holds."""
    width, bias = LAYOUT[to.name]
    signed = dtype(f"i{to.bits}")
    whole = i64 if to.bits == 64 else i32
    x = as_type(b, as_type(b, x, signed), whole)
    below = b.Less(x, b.const(0, whole))
    size = b.Where(below, b.Sub(x, b.const(-(1 << (to.bits - 1)), whole)), x)
    stored = b.Div(size, b.const(1 << width, whole))
    rest = b.Sub(size, b.Mul(stored, b.const(1 << width, whole)))
    over = b.Less(rest, b.const(0, whole))  # OpenVINO divides integers as floats, and rounds up
    stored = b.Sub(stored, b.Cast(over, to=whole))
    rest = b.Where(over, b.Add(rest, b.const(1 << width, whole)), rest)
    fraction = b.Mul(b.Cast(rest, to=to), b.const(2.0**-width, to))
    fraction = b.Add(fraction, b.Cast(b.Greater(stored, b.const(0, whole)), to=to))
    y = b.Mul(fraction, b.Gather(b.const(scales(to), to), b.Min(stored, b.const(2 * bias, whole)), b.const(0)))
    beyond = b.Where(b.Equal(rest, b.const(0, whole)), b.const(np.inf, to), b.const(np.nan, to))
    y = b.Where(b.Greater(stored, b.const(2 * bias, whole)), beyond, y)
    return b.Mul(y, b.Where(below, b.const(-1.0, to), b.const(1.0, to)))


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

    onnx = (
        Form("BitCast", 26, attrs={"to": CastTarget()}, T={"T1": TYPES, "T2": TYPES}),
        write_only(write_wrapped, since=13),
        write_only(write_parts, since=13),
    )
    openvino = (write_only(write_wrapped), write_only(write_parts))
