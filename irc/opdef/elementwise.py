"""Constructors that write a whole elementwise operation from one row.

A row gives the NumPy function and the scalar expression; signature, inference, reference and
`compute` follow.  Operands broadcast by NumPy's rule.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import ClassVar

from irc.expr import Expr, IndexFunction, Tensor
from irc.ir.graph import Value
from irc.ir.literal import AttributeValue
from irc.ir.types import DType, TensorType, boolean
from irc.opdef.base import Array, Op, op
from irc.opdef.broadcasting import auto_align, broadcast_shapes, legacy_align, legacy_fit, repeated
from irc.opdef.builder import Builder
from irc.opdef.forms import Attributes, Form, Read, Results, Write
from irc.opdef.signature import Sig

Scalar = Callable[..., Expr]
Ufunc = Callable[..., Array]
Unary = Callable[[Expr], Expr]
Binary = Callable[[Expr, Expr], Expr]


class Elementwise(Op):
    """What elementwise operations share.  `scalar(*operands)` gives one element's expression and
    `ufunc` the NumPy function on arrays; both may use the operation's attributes when they are methods."""

    elementwise: ClassVar[bool] = True
    ufunc: ClassVar[Ufunc]
    scalar: ClassVar[Scalar]
    result: ClassVar[DType | None] = None  # element type of the result where it is not that of the operands

    def infer(self, *args: Value) -> TensorType:
        shape = broadcast_shapes(self.name, [v.shape for v in args])
        return TensorType(self.result or args[-1].dtype, shape)

    def reference(self, *args: Array) -> Array:
        return type(self).ufunc(*args)

    def compute(self, out: TensorType, *args: Tensor) -> IndexFunction:
        shape = out.dims()
        return lambda *i: self.scalar(*[x.broadcast(i, shape) for x in args])


def make(name: str, doc: str, base: type[Op], sig: Sig, ufunc: Ufunc, scalar: Scalar, **fields: object) -> type[Op]:
    """Declare an operation from its parts, as a class of the family file that calls."""
    frame = inspect.currentframe()
    while frame and frame.f_globals["__name__"] == __name__:
        frame = frame.f_back
    fields["__module__"] = frame.f_globals["__name__"] if frame else __name__
    members = {"sig": sig, "ufunc": staticmethod(ufunc), "scalar": staticmethod(scalar), "__doc__": doc, **fields}
    return op(type(name, (base,), members))


def unary(
    name: str,
    doc: str,
    ufunc: Ufunc,
    scalar: Unary,
    T: frozenset[DType],
    onnx: tuple[Form, ...] = (),
    openvino: tuple[Form, ...] = (),
    **fields: object,
) -> type[Op]:
    """y = f(x)."""
    sig = Sig("x: T -> y: T", T=T)
    return make(name, doc, Elementwise, sig, ufunc, scalar, onnx=onnx, openvino=openvino, **fields)


def binary(
    name: str,
    doc: str,
    ufunc: Ufunc,
    scalar: Binary,
    T: frozenset[DType],
    onnx: tuple[Form, ...] = (),
    openvino: tuple[Form, ...] = (),
    **fields: object,
) -> type[Op]:
    """z = f(x, y), broadcasting."""
    sig = Sig("x: T, y: T -> z: T", T=T)
    return make(name, doc, Elementwise, sig, ufunc, scalar, onnx=onnx, openvino=openvino, **fields)


def comparison(
    name: str,
    doc: str,
    ufunc: Ufunc,
    scalar: Binary,
    T: frozenset[DType],
    onnx: tuple[Form, ...] = (),
    openvino: tuple[Form, ...] = (),
    **fields: object,
) -> type[Op]:
    """z = f(x, y) as a boolean, broadcasting."""
    sig = Sig("x: T, y: T -> z: bool", T=T)
    return make(name, doc, Elementwise, sig, ufunc, scalar, onnx=onnx, openvino=openvino, result=boolean, **fields)


def legacy_read(name: str) -> Read:
    """`read` of the ONNX forms before opset 7: aligns the second operand, then applies `name`."""

    def read(b: Builder, a: Attributes, x: Value, y: Value) -> Results:
        return b.operation(name)(x, legacy_align(b, a, x, y))

    return read


def legacy_write(name: str) -> Write:
    """`write` of the ONNX forms before opset 7: operands that their rule cannot broadcast are swapped or repeated."""

    def write(b: Builder, op: Op, x: Value, y: Value) -> Results:
        if op.commutative and legacy_fit(y.shape, x.shape) is not None:
            return b.operation(name)(y, x)
        shape = broadcast_shapes(name, [x.shape, y.shape])
        x = repeated(b, x, shape)
        return b.operation(name)(x, y if legacy_fit(shape, y.shape) is not None else repeated(b, y, shape))

    return write


def auto_read(name: str, **attributes: AttributeValue) -> Read:
    """`read` of OpenVINO's binary operations: aligns the operands by `auto_broadcast`, then applies `name`."""

    def read(b: Builder, a: Attributes, x: Value, y: Value) -> Results:
        return b.operation(name)(*auto_align(b, a, x, y), **attributes)

    return read
