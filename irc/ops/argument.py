"""Where the largest or smallest element stands, and running sums and products along an axis.

Sources: ONNX ArgMax, ArgMin, CumSum, CumProd; OpenVINO specification, CumSum-3.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from irc.diagnostics import Facts, require
from irc.diagnostics.codes import operation as codes, shape as shape_codes
from irc.expr import Const, Expr, IndexFunction, Tensor, index, reduce, select
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import at_most
from irc.ir.types import FLOATS, INTEGERS, NUMERIC, TensorType, bf16, f32, f64, i32, i64, u32, u64
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Int
from irc.opdef.forms import PREV, Form, Results, Write, write_only
from irc.opdef.precision import rounded, wide
from irc.opdef.signature import Sig
from irc.ops.arithmetic import OV_NUMERIC
from irc.ops.layout import normal_axis
from irc.ops.sort import TopK


def position(x: Array, axis: int, keepdims: bool, last: bool, smallest: bool) -> Array:
    """The first (or last) index of the largest (or smallest) element along the axis; NaN counts as both."""
    w = wide(x)
    w = np.flip(w, axis) if last else w
    found = (np.argmin(w, axis) if smallest else np.argmax(w, axis)).astype(np.int64)
    found = w.shape[axis] - 1 - found if last else found
    return np.expand_dims(found, axis) if keepdims else found


@dataclasses.dataclass(frozen=True, repr=False)
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
            nowhere = Const(-1, i64) if self.select_last_index else index(size)

            def candidate(r: Expr) -> Expr:
                hit = at(r).eq(top)
                if x.dtype.is_float:
                    hit = hit.logical_or(at(r).ne(at(r)))
                return select(hit, r, nowhere)

            return reduce("max" if self.select_last_index else "min", [size], candidate)

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


# ------------------------------------------------------------------------------------ running totals
def running(x: Array, axis: Array | None, exclusive: bool, reverse: bool, product: bool) -> Array:
    """Running sums or products along an axis (0 where absent)."""
    along = 0 if axis is None else int(np.asarray(axis).reshape(-1)[0])
    w = np.flip(wide(x), along) if reverse else wide(x)
    y: Array = np.cumprod(w, along, dtype=w.dtype) if product else np.cumsum(w, along, dtype=w.dtype)  # pyright: ignore
    if exclusive and w.shape[along]:
        first = np.full_like(np.take(y, [0], along), 1 if product else 0)  # pyright: ignore
        y = np.concatenate([first, np.delete(y, -1, along)], along)  # pyright: ignore
    return rounded(np.flip(y, along) if reverse else y, x)  # pyright: ignore


class Running(Op):
    """What CumSum and CumProd share."""

    exclusive: bool
    reverse: bool

    def infer(self, x: Value, axis: Value | None = None) -> TensorType:
        given = None if axis is None else axis.ints()
        if given is not None:
            normal_axis(self.name, given[0], len(x.shape))
        return x.tensor

    def _element(self, x: Tensor, axis: Tensor | None, kind: str) -> IndexFunction:
        given = [0] if axis is None else axis.ints()
        require(given is not None, codes.NEEDS_CONSTANT, op=self.name, operand="axis")
        along = (given or [0])[0] % max(x.rank, 1)
        neutral = Const(1 if kind == "prod" else 0, x.dtype)

        def element(*i: Expr) -> Expr:
            def term(r: Expr) -> Expr:
                here = i[along]
                taken = (
                    (here.lt(r) if self.exclusive else here.le(r))
                    if self.reverse
                    else (r.lt(here) if self.exclusive else r.le(here))
                )
                return select(taken, x[(*i[:along], r, *i[along + 1 :])], neutral)

            return reduce(kind, [x.shape[along]], term)

        return element


RUNNING = {"exclusive": Bool(False), "reverse": Bool(False)}
INDEX = frozenset({i32, i64})
RUNNING_SIG = Sig("x: T, axis?: I[one] -> y: T", T=NUMERIC, I=INDEX)
WITH_AXIS = Sig("x: T, axis: I[one] -> y: T", T=NUMERIC, I=INDEX)


def write_scalar_axis(b: Builder, op: CumSum, x: Value, axis: Value | None = None) -> Results:
    """ONNX wants the axis, as a number."""
    return b.add(op, x, b.const(0) if axis is None else b.Reshape(axis, b.const(np.zeros(0))))


@op
class CumSum(Running):
    """y[i] = x[0] + … + x[i] along an axis; exclusive: without x[i]; reverse: from the end."""

    exclusive: bool = False
    reverse: bool = False
    sig = RUNNING_SIG

    def reference(self, x: Array, axis: Array | None = None) -> Array:
        return running(x, axis, self.exclusive, self.reverse, False)

    def compute(self, out: TensorType, x: Tensor, axis: Tensor | None = None) -> IndexFunction:
        return self._element(x, axis, "sum")

    onnx = (
        Form(
            "CumSum",
            11,
            attrs=RUNNING,
            T={"T": {f32, f64, i32, i64, u32, u64}, "I": INDEX},
            sig=WITH_AXIS,
            write=write_scalar_axis,
        ),
        Form("CumSum", 14, T={"T": FLOATS | {bf16, i32, i64, u32, u64}}),
    )
    openvino = (Form("CumSum", 3, attrs=RUNNING, T={"T": OV_NUMERIC, "I": INDEX}),)


@op
class CumProd(Running):
    """y[i] = x[0] · … · x[i] along an axis; exclusive: without x[i]; reverse: from the end."""

    exclusive: bool = False
    reverse: bool = False
    sig = WITH_AXIS

    def reference(self, x: Array, axis: Array) -> Array:
        return running(x, axis, self.exclusive, self.reverse, True)

    def compute(self, out: TensorType, x: Tensor, axis: Tensor) -> IndexFunction:
        return self._element(x, axis, "prod")

    onnx = (Form("CumProd", 26, attrs=RUNNING, T={"T": FLOATS | {bf16, i32, i64, u32, u64}, "I": INDEX}),)
