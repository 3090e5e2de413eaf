"""Logic on booleans, bits of integers, and element-wise choice.

Sources: ONNX And, Or, Xor, Not, Where, BitShift, Bitwise*; OpenVINO specification, "Logical operations",
"Bitwise operations", Select-1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from irc.expr import Bin, Expr, Un, select
from irc.ir.graph import Value
from irc.ir.types import ANY, COMPLEX, FLOATS, INTEGERS, UINTS, TensorType, bf16, boolean, i4, string, u1, u4
from irc.opdef.base import Array, Op, op
from irc.opdef.broadcasting import AUTO_BROADCAST, LEGACY_BROADCAST_6, auto_align, broadcast_shapes
from irc.opdef.builder import Builder
from irc.opdef.codecs import Enum
from irc.opdef.contents import Contents
from irc.opdef.elementwise import Binary, Elementwise, auto_read, binary, legacy_read, legacy_write, unary
from irc.opdef.forms import PREV, Attributes, Form, Read, Results, write_only
from irc.opdef.signature import Sig
from irc.ops.arithmetic import OV_NUMERIC
from irc.ops.bits import write_bits, write_not, write_shift, write_shift_by_powers

BOOL = frozenset({boolean})


def logical(name: str, doc: str, ufunc: Callable[..., Array], scalar: Binary, openvino: tuple[Form, ...]) -> type[Op]:
    """A row of And, Or, Xor: legacy broadcasting in ONNX until 6."""
    return binary(
        name,
        doc,
        ufunc,
        scalar,
        T=BOOL,
        commutative=True,
        carries_contents=True,
        onnx=(
            Form(
                name, 1, attrs=LEGACY_BROADCAST_6, T=BOOL, read=legacy_read(name), direct=True, write=legacy_write(name)
            ),
            Form(name, 7, attrs={}, read=None, write=None),
        ),
        openvino=openvino,
    )


def logical_row(name: str, since: int, canonical: str, last: int | None = None) -> Form:
    return Form(name, since, attrs=AUTO_BROADCAST, T=BOOL, read=auto_read(canonical), direct=True, last=last)


And = logical("And", "x and y", np.logical_and, lambda x, y: x.logical_and(y), (logical_row("LogicalAnd", 1, "And"),))
Or = logical("Or", "x or y", np.logical_or, lambda x, y: x.logical_or(y), (logical_row("LogicalOr", 1, "Or"),))
# OpenVINO: `Xor` in opsets 1..3, `LogicalXor` from 2 on.
Xor = logical(
    "Xor",
    "One of x and y, not both",
    np.logical_xor,
    lambda x, y: x.ne(y),
    (logical_row("Xor", 1, "Xor", last=3), logical_row("LogicalXor", 2, "Xor")),
)
Not = unary(
    "Not",
    "not x",
    np.logical_not,
    lambda x: x.logical_not(),
    T=BOOL,
    carries_contents=True,
    onnx=(Form("Not", 1, T=BOOL),),
    openvino=(Form("LogicalNot", 1, T=BOOL),),
)


# ----------------------------------------------------------------------------------- choice
ONNX_WHERE = FLOATS | INTEGERS | COMPLEX | {boolean, string}


def read_select(b: Builder, a: Attributes, condition: Value, x: Value, y: Value) -> Results:
    """Select: with pdpd the condition and the second choice align with the first choice."""
    x, y = auto_align(b, a, x, y)
    return b.Where(auto_align(b, a, x, condition)[1], x, y)


@op
class Where(Elementwise):
    """x where the condition holds, else y; the three broadcast."""

    sig = Sig("condition: bool, x: T, y: T -> z: T", T=ANY)
    carries_contents = modular = True
    whole_floats = True

    def infer(self, condition: Value, x: Value, y: Value) -> TensorType:
        return TensorType(x.dtype, broadcast_shapes("Where", [condition.shape, x.shape, y.shape]))

    def reference(self, condition: Array, x: Array, y: Array) -> Array:
        return np.where(condition, x, y)

    def contents(self, condition: Array, x: Array, y: Array) -> Contents:
        """Known where the condition is."""
        if any(not d.is_const for d in condition.flat):
            return None
        return np.where(np.array([int(d) != 0 for d in condition.flat], bool).reshape(condition.shape), x, y)

    def scalar(self, condition: Expr, x: Expr, y: Expr) -> Expr:
        return select(condition, x, y)

    onnx = (Form("Where", 9, T=ONNX_WHERE), Form("Where", 16, T=PREV | {bf16}))
    openvino = (Form("Select", 1, attrs=AUTO_BROADCAST, T=OV_NUMERIC, read=read_select, direct=True),)


# ------------------------------------------------------------------------------------- bits
OV_BITS = INTEGERS | {boolean, u1, u4, i4}
OV_SHIFTED = OV_BITS - {boolean}


def read_bits(name: str) -> Read:
    """`read` of OpenVINO's bitwise operations: of booleans they are the logical ones."""

    def read(b: Builder, a: Attributes, *xs: Value) -> Results:
        operands = auto_align(b, a, *xs) if len(xs) == 2 else xs
        return getattr(b, name.removeprefix("Bitwise") if xs[0].dtype == boolean else name)(*operands)

    return read


OfBits = Callable[[Builder, Value, Value], Value]


def bitwise(name: str, doc: str, ufunc: Callable[..., Array], operator: str, of_one: OfBits) -> type[Op]:
    """A row of BitwiseAnd, BitwiseOr, BitwiseXor.  of_one: the operation on integers that are 0 or 1."""
    return binary(
        name,
        doc,
        ufunc,
        lambda x, y: Bin(operator, x, y),
        T=INTEGERS,
        commutative=True,
        onnx=(Form(name, 18, T=INTEGERS), write_only(write_bits(of_one))),
        openvino=(Form(name, 13, attrs=AUTO_BROADCAST, T=OV_BITS, read=read_bits(name), direct=True),),
    )


BitwiseAnd = bitwise("BitwiseAnd", "Bits of both", np.bitwise_and, "bitand", lambda b, x, y: b.Mul(x, y))
BitwiseOr = bitwise(
    "BitwiseOr", "Bits of either", np.bitwise_or, "bitor", lambda b, x, y: b.Sub(b.Add(x, y), b.Mul(x, y))
)
BitwiseXor = bitwise(
    "BitwiseXor",
    "Bits of one but not both",
    np.bitwise_xor,
    "bitxor",
    lambda b, x, y: b.Sub(b.Add(x, y), b.Mul(b.Mul(x, y), b.const(2))),
)
BitwiseNot = unary(
    "BitwiseNot",
    "All bits inverted",
    np.invert,
    lambda x: Un("bitnot", x),
    T=INTEGERS,
    onnx=(Form("BitwiseNot", 18, T=INTEGERS), write_only(write_not)),
    openvino=(Form("BitwiseNot", 13, T=OV_BITS, read=read_bits("BitwiseNot"), direct=True),),
)


def shifts(direction: str) -> Callable[[BitShift, Value, Value], bool]:
    """Whether BitShift goes that way, by less than the width."""

    def when(op: BitShift, x: Value, y: Value) -> bool:
        return op.direction == direction and within(op, x, y)

    return when


def within(op: BitShift, x: Value, y: Value) -> bool:
    """Tell whether every shift is known to be from 0 to below the width, all that OpenVINO defines."""
    if y.array is not None:
        return bool(np.all((y.array >= 0) & (y.array < x.dtype.bits)))
    return y.producer is not None and y.producer.op.name == "Clip"


def write_shift_within(b: Builder, op: BitShift, x: Value, y: Value) -> Value:
    """OpenVINO: shifts from the width on, which a negative one counts as, shift by all but one bit."""
    last = b.like(x.dtype.bits - 1, y)
    moved = y if y.dtype in UINTS else b.Where(b.Less(y, b.like(0, y)), last, y)
    bounded = b.Clip(moved, b.like(0, y), last)
    found = b.BitShift(x, bounded, direction=op.direction)
    if op.direction == "RIGHT" and x.dtype not in UINTS:
        return found
    return b.Where(b.Equal(bounded, y), found, b.like(0, x))


@op
class BitShift(Elementwise):
    """x shifted by y bits.  To the right, signed integers keep their sign; from the width on nothing is left."""

    direction: str
    sig = Sig("x: T, y: T -> z: T", T=INTEGERS)

    def reference(self, x: Array, y: Array) -> Array:
        return np.left_shift(x, y) if self.direction == "LEFT" else np.right_shift(x, y)

    def scalar(self, x: Expr, y: Expr) -> Expr:
        return Bin("shl" if self.direction == "LEFT" else "shr", x, y)

    onnx = (
        Form("BitShift", 11, T=UINTS, attrs={"direction": Enum(["LEFT", "RIGHT"])}, write=write_shift),
        Form("BitShift", 28, T=INTEGERS),
        write_only(write_shift_by_powers),
    )
    openvino = (
        Form(
            "BitwiseLeftShift",
            15,
            attrs=AUTO_BROADCAST,
            T=OV_SHIFTED,
            read=auto_read("BitShift", direction="LEFT"),
            direct=True,
            judges=("direction",),
            when=shifts("LEFT"),
        ),
        Form(
            "BitwiseRightShift",
            15,
            attrs=AUTO_BROADCAST,
            T=OV_SHIFTED,
            read=auto_read("BitShift", direction="RIGHT"),
            direct=True,
            judges=("direction",),
            when=shifts("RIGHT"),
        ),
        write_only(write_shift_within, since=15),
    )
