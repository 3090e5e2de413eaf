"""A common element type: ConvertPromoteTypes.

Source: OpenVINO specification, ConvertPromoteTypes-14.
"""

from __future__ import annotations

from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes
from irc.ir.graph import Value
from irc.ir.types import ANY, DTYPES, DType, bf16, boolean, f8e4m3fn, f8e5m2, f16, f32, f64, string
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, DTypeAttr
from irc.opdef.conversions import as_type
from irc.opdef.forms import Form
from irc.opdef.signature import Sig
from irc.opdef.typesets import OV_ANY

FIELDS = {f8e4m3fn: (3, 4), f8e5m2: (2, 5), f16: (10, 5), bf16: (7, 8), f32: (23, 8), f64: (52, 11)}
"""Bits of the fraction and of the exponent; a type that holds two others is the first that has as many of both."""
PROMOTED = OV_ANY - {string}


def wider_float(a: DType, b: DType) -> DType:
    """The narrowest float that holds all values of both."""
    fraction, exponent = (max(FIELDS[a][k], FIELDS[b][k]) for k in (0, 1))
    return next(t for t, bits in FIELDS.items() if bits[0] >= fraction and bits[1] >= exponent)


def wider_integer(a: DType, b: DType, beyond: DType) -> DType:
    """The narrowest integer that holds all values of both; `beyond` where there is none."""
    if a.kind == b.kind:
        return a if a.bits >= b.bits else b
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return beyond if unsigned.bits == 64 else DTYPES[f"i{2 * unsigned.bits}"]


def _rank(t: DType) -> int:
    """Floats come before integers, and these before booleans."""
    return 0 if t == boolean else 1 if t.is_integer else 2


@op
class ConvertPromoteTypes(Op):
    """Both operands in a type that holds the values of both.

    promote_unsafe: also where that is wider than both, or may lose digits or range.  pytorch_scalar_promotion: of a
    scalar and another tensor of the same kind, the other's type.  u64_integer_promotion_target: of u64 and signed ones.
    """

    promote_unsafe: bool = False
    pytorch_scalar_promotion: bool = False
    u64_integer_promotion_target: DType = f32
    sig = Sig("x: T1, y: T2 -> a: any, b: any", T1=ANY - {string}, T2=ANY - {string})

    def decompose(self, b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
        to = self.common(x, y)
        return b.Identity(as_type(b, x, to)), b.Identity(as_type(b, y, to))

    def common(self, x: Value, y: Value) -> DType:
        """Find the common type.  Raises Problem where only `promote_unsafe` allows one."""
        p, q = x.dtype, y.dtype
        if p == q:
            return p
        if _rank(p) != _rank(q):
            to, other = (p, q) if _rank(p) > _rank(q) else (q, p)
            safe = other == boolean or to.bits >= 2 * other.bits
        else:
            wide = wider_integer(p, q, self.u64_integer_promotion_target) if p.is_integer else self._wide_float(p, q)
            to, safe = wide, wide.bits <= max(p.bits, q.bits) and wide.is_integer == p.is_integer
            if self.pytorch_scalar_promotion and (len(x.shape) == 0) != (len(y.shape) == 0):
                to = q if len(x.shape) == 0 else p
                safe = to == wide
        expected = f"true for {p} and {q}"
        facts = {"op": self.name, "attribute": "promote_unsafe", "text": "false", "expected": expected}
        require(self.promote_unsafe or safe, codes.BAD_ATTRIBUTE, **facts)
        return to

    def _wide_float(self, p: DType, q: DType) -> DType:
        expected = "operands of types that have a common one"
        known = p in FIELDS and q in FIELDS
        require(known, codes.BAD_ATTRIBUTE, op=self.name, attribute="types", text=f"{p}, {q}", expected=expected)
        return wider_float(p, q)

    openvino = (
        Form(
            "ConvertPromoteTypes",
            14,
            attrs={
                "promote_unsafe": Bool(False),
                "pytorch_scalar_promotion": Bool(False),
                "u64_integer_promotion_target": DTypeAttr(f32),
            },
            T={"T1": PROMOTED, "T2": PROMOTED},
        ),
    )
