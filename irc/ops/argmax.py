"""Where the largest or smallest element along an axis stands.  Sources: ONNX ArgMax, ArgMin."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from irc.diagnostics import Facts, require
from irc.diagnostics.codes import shape as shape_codes
from irc.expr import Const, Expr, IndexFunction, Tensor, index, reduce, select
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import at_most
from irc.ir.types import FLOATS, INTEGERS, NUMERIC, TensorType, bf16, i32, i64
from irc.opdef.base import Array, Op, op, op_base
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Int
from irc.opdef.forms import PREV, Form, Results, Write, write_only
from irc.opdef.precision import wide
from irc.opdef.signature import Sig
from irc.ops.layout import normal_axis
from irc.ops.sort import TopK


def position(x: Array, axis: int, keepdims: bool, last: bool, smallest: bool) -> Array:
    """The first (or last) index of the largest (or smallest) element along the axis; NaN counts as both."""
    w = wide(x)
    w = np.flip(w, axis) if last else w
    found = (np.argmin(w, axis) if smallest else np.argmax(w, axis)).astype(np.int64)
    found = w.shape[axis] - 1 - found if last else found
    return np.expand_dims(found, axis) if keepdims else found


@op_base
class Position(Op):
    """What ArgMax and ArgMin share."""

    axis: int = 0
    keepdims: bool = True
    select_last_index: bool = False
    sig = Sig("x: T -> y: i64", T=NUMERIC)
    smallest: ClassVar[bool]

    def infer(self, x: Value) -> TensorType:
        axis = normal_axis(self.name, self.axis, len(x.shape))
        size = x.shape[axis] if x.shape else Dim.of(1)
        facts: Facts = {"what": f"size of axis {axis} of {x.tensor}", "value": size}
        require(at_most(1, size), shape_codes.SIZE_RANGE, op=self.name, **facts, expected="1 or more")
        shape = tuple(Dim.of(1) if i == axis else d for i, d in enumerate(x.shape) if self.keepdims or i != axis)
        return TensorType(i64, shape)

    def reference(self, x: Array) -> Array:
        return position(x, self.axis, self.keepdims, self.select_last_index, self.smallest)

    def compute(self, out: TensorType, x: Tensor) -> IndexFunction:
        axis = self.axis % x.rank if x.rank else 0
        size = x.shape[axis]

        def element(*i: Expr) -> Expr:
            kept = [e for k, e in enumerate(i) if not (self.keepdims and k == axis)]

            def at(r: Expr) -> Expr:
                return x[(*kept[:axis], r, *kept[axis:])]

            top = reduce("min" if self.smallest else "max", [size], at)
            known = size.const is not None and size.const < 1 << 31
            kind = i32 if known else i64  # as wide as the elements, so that both are vectors of as many
            nowhere = Const(-1, kind) if self.select_last_index else index(size).cast(kind)

            def candidate(r: Expr) -> Expr:
                hit = at(r).eq(top)
                if x.dtype.is_float:
                    hit = hit.logical_or(at(r).ne(at(r)))
                return select(hit, r.cast(kind), nowhere)

            return reduce("max" if self.select_last_index else "min", [size], candidate).cast(i64)

        return element


def write_top(smallest: bool) -> Write:
    """OpenVINO has TopK only."""

    def write(b: Builder, op: Position, x: Value) -> Results:
        axis = normal_axis(op.name, op.axis, len(x.shape))
        if op.select_last_index:
            size = x.shape[axis]
            last = b.const(int(size) - 1) if size.is_const else b.Sub(b.dims([size]), b.const([1]))
            turned = b.Reverse(x, [axis], mode="index")
            first = b.add(type(op)(axis=axis, keepdims=op.keepdims, select_last_index=False), turned)
            return b.Sub(last, first)
        _, found = b.add_all(TopK(axis=axis, largest=not smallest), x, 1)
        return found if op.keepdims else b.Squeeze(found, [axis])

    return write


ARG_ATTRS = {"axis": Int(0), "keepdims": Bool(True)}
ARG_LAST = {**ARG_ATTRS, "select_last_index": Bool(False)}


def position_rows(name: str) -> tuple[Form, ...]:
    return (
        Form(name, 1, attrs=ARG_ATTRS, T=FLOATS | INTEGERS),
        Form(name, 11),
        Form(name, 12, attrs=ARG_LAST),
        Form(name, 13, T=PREV | {bf16}),
    )


@op
class ArgMax(Position):
    """The index of the largest element along an axis, the first of equal ones (or the last)."""

    smallest = False
    onnx = position_rows("ArgMax")
    openvino = (write_only(write_top(False)),)


@op
class ArgMin(Position):
    """The index of the smallest element along an axis, the first of equal ones (or the last)."""

    smallest = True
    onnx = position_rows("ArgMin")
    openvino = (write_only(write_top(True)),)
