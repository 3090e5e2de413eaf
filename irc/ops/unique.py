"""Distinct elements: Unique.

Sources: ONNX Unique; OpenVINO specification, Unique-10.
"""

from __future__ import annotations

import numpy as np

from irc.expr import Const, Expr, Tensor, index, select
from irc.ir.dim import product
from irc.ir.graph import Value
from irc.ir.types import ANY, DType, TensorType, bf16, boolean, i16, i32, i64, u8, u16, u32
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, DTypeAttr, Int
from irc.opdef.conversions import as_type
from irc.opdef.forms import PREV, Declined, Form, Results, write_only
from irc.opdef.precision import wide
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX, ONNX_ALL
from irc.ops import radix_sort
from irc.ops.arithmetic import OV_NUMERIC
from irc.ops.layout import constant_int, normal_axis

WIDENED = frozenset({u8, i16, u16, i32, u32})
"""The integers whose Unique is written to ONNX as that of i64."""
_BEFORE_THE_FIRST = ((-1, "kind"), (0, "start"), (0, "lead"), (-1, "last"))
"""What the loop over runs begins with: the least number is 0, so that the first one begins a run."""
MERGES = 62
"""Passes of a merge sort that sort any number of elements."""


def write_along(b: Builder, op: Unique, x: Value) -> Results:
    return b.add_all(UniqueAlong(sorted=op.sorted), x, None if op.axis is None else b.const(op.axis))


def in_many_engines(op: Unique, x: Value) -> bool:
    """Tell whether ONNX Runtime has a kernel for the type; `onnx.reference` orders the slices of an axis otherwise."""
    return x.dtype not in WIDENED


def write_as_i64(b: Builder, op: Unique, x: Value) -> Results:
    """Write it between casts, for integers that engines lack."""
    if x.dtype not in WIDENED:
        raise Declined
    y, *numbers = b.add_all(op, b.Cast(x, to=i64))
    return [b.Cast(y, to=x.dtype), *numbers]


@op
class Unique(Op):
    """The distinct slices along `axis` (absent: elements), where each occurs first, which each is, and how often.

    They ascend, or (`sorted` is false) come in the order of their first occurrences. NaN is equal to NaN, and the
    largest.
    """

    axis: int | None = None
    sorted: bool = True
    sig = Sig("x: T -> y: T, indices: i64, inverse: i64, counts: i64", T=ANY)

    def decompose(self, b: Builder, x: Value) -> tuple[Value, Value, Value, Value]:
        axis = 0 if self.axis is None else normal_axis("Unique", self.axis, len(x.shape))
        x = b.Reshape(x, [-1]) if self.axis is None else x
        others = [k for k in range(len(x.shape)) if k != axis]
        length = product(x.shape[k] for k in others)
        moved = b.Transpose(x, [axis, *others]) if axis else x
        rows = b.Reshape(moved, b.dims([x.shape[axis], length]), special_zero=False)
        first, inverse, counts, count = b.add_all(DistinctRows(sorted=self.sorted), rows)
        indices = b.Slice(first, [0], count, [0])
        return b.Gather(x, indices, b.const(axis)), indices, inverse, b.Slice(counts, [0], count, [0])

    onnx = (
        Form("Unique", 11, attrs={"axis": Int(None), "sorted": Bool(True)}, T={"T": ONNX_ALL}, when=in_many_engines),
        Form("Unique", 28, T={"T": PREV | {bf16}}),
        write_only(write_as_i64, 11),
    )
    openvino = (write_only(write_along, 10),)


@op
class UniqueAlong(Op):
    """Unique with a constant operand for the axis, and numbers of these types."""

    sorted: bool = True
    index_element_type: DType = i64
    count_element_type: DType = i64
    sig = Sig("x: T, axis?: A[one] -> y: T, indices: any, inverse: any, counts: any", T=ANY, A=INDEX)

    def decompose(self, b: Builder, x: Value, axis: Value | None = None) -> tuple[Value, Value, Value, Value]:
        along = None if axis is None else constant_int("Unique", "axis", axis)
        y, *numbers = b.add_all(Unique(axis=along, sorted=self.sorted), x)
        types = (self.index_element_type, self.index_element_type, self.count_element_type)
        first, inverse, counts = (as_type(b, v, t) for v, t in zip(numbers, types, strict=True))
        return y, first, inverse, counts

    openvino = (
        Form(
            "Unique",
            10,
            attrs={"sorted": Bool(True), "index_element_type": DTypeAttr(i64), "count_element_type": DTypeAttr(i64)},
            T={"T": OV_NUMERIC | {boolean}, "A": INDEX},
        ),
    )


@op
class DistinctRows(Op):
    """What Unique is compiled to: the first row of each kind, the kind of each row, rows of each kind, how many kinds.

    There is room for as many kinds as rows; what is behind the last kind is 0.
    """

    sorted: bool = True
    sig = Sig("x: T[2] -> first: i64, inverse: i64, counts: i64, count: i64", T=ANY)

    def infer(self, x: Value) -> list[TensorType]:
        each = TensorType(i64, x.shape[:1])
        return [each, each, each, TensorType.of(i64, [1])]

    def reference(self, x: Array) -> tuple[Array, Array, Array, Array]:
        n, length = x.shape
        rows = wide(x)
        order = np.asarray(np.lexsort(rows.T[::-1]) if length else np.arange(n), np.int64)
        a, b = rows[order[:-1]], rows[order[1:]]
        new = np.concatenate([np.ones(min(n, 1), bool), ((a != b) & ((a == a) | (b == b))).any(axis=1)])
        kinds = np.cumsum(new) - 1
        first, inverse, counts = order[new], np.empty(n, np.int64), np.zeros(n, np.int64)
        inverse[order] = kinds
        if not self.sorted:
            places = np.argsort(first)
            first = first[places]
            inverse = np.argsort(places)[inverse]
        np.add.at(counts, inverse, 1)
        padded = np.zeros(n, np.int64)
        padded[: len(first)] = first
        return padded, inverse, counts, np.array([len(first)], np.int64)

    def loops(self, b: LoopBuilder, x: Tensor, first: Tensor, inverse: Tensor, counts: Tensor, count: Tensor) -> None:
        """Sort the rows; those that are equal stand in a run, whose first row is the first of its kind."""
        n = x.shape[0]
        if x.shape[1] == 1 and radix_sort.has_order(x.dtype) and not n.at_most(radix_sort.WORTH):
            keys, order = radix_sort.sort(b, x)
            if self.sorted:
                self._runs(b, keys, order, first, inverse, counts, count)
                return
        else:
            keys, order = None, b.alloc(i64, [n], "order")
            self._sort(b, x, order)
        leader, kind = (b.alloc(i64, [n], name) for name in ("leader", "kind"))
        lead = b.var(Const(0, i64), "lead")
        with b.for_(n) as k:
            row = b.let(order[k].cast(i64), "row")
            with b.if_(k.eq(0)):
                b.assign(lead, row)
            with b.else_(), b.if_(self._before(b, x, lead, row) if keys is None else keys[k - 1].ne(keys[k])):
                b.assign(lead, row)
            b.store(leader, (row,), lead)
            b.store(first, (k,), 0)
            b.store(counts, (k,), 0)
        total = b.var(Const(0, i64), "total")
        with b.for_(n) as k:
            row = b.let(order[k], "row") if self.sorted else k
            with b.if_(leader[row].eq(row)):
                b.store(kind, (row,), total)
                b.store(first, (total,), row)
                b.assign(total, total + 1)
        with b.for_(n) as k:
            found = b.let(kind[leader[k]], "found")
            b.store(inverse, (k,), found)
            b.store(counts, (found,), counts[found] + 1)
        b.store(count, (0,), total)

    def _runs(
        self, b: LoopBuilder, keys: Tensor, order: Tensor, first: Tensor, inverse: Tensor, counts: Tensor, count: Tensor
    ) -> None:
        """Number the runs of equal numbers in order, without a branch, which nobody can predict."""
        n = keys.shape[0]
        with b.for_(n, "simd") as k:
            b.store(first, (k,), 0)
            b.store(counts, (k,), 0)
        kind, start, lead, last = (b.var(Const(value, i64), name) for value, name in _BEFORE_THE_FIRST)
        with b.for_(n) as k:
            row, key = b.let(order[k].cast(i64), "row"), b.let(keys[k], "key")
            new = b.let(key.ne(last), "new")
            b.assign(kind, kind + select(new, index(1), index(0)))
            b.assign(start, select(new, k, start))
            b.assign(lead, select(new, row, lead))
            b.assign(last, key)
            b.store(first, (kind,), lead)
            b.store(counts, (kind,), k - start + 1)
            b.store(inverse, (row,), kind)
        b.store(count, (0,), kind + 1)

    def _sort(self, b: LoopBuilder, x: Tensor, order: Tensor) -> None:
        """Merge sorted parts of 1, 2, 4 … rows, in pairs; of equal rows the first comes first."""
        n = index(x.shape[0])
        merged = b.alloc(i64, x.shape[:1], "merged")
        with b.for_(n) as k:
            b.store(order, (k,), k)
        width = b.var(Const(1, i64), "width")
        with b.for_(MERGES), b.if_(width.lt(n)):
            left, right = (b.var(Const(0, i64), name) for name in ("left", "right"))
            with b.for_(n) as k:
                start = b.let(k - k % (width * 2), "start")
                middle = b.let((start + width).min(n), "middle")
                end = b.let((start + width * 2).min(n), "end")
                with b.if_(k.eq(start)):
                    b.assign(left, start)
                    b.assign(right, middle)
                take = b.var(left.lt(middle), "take")
                with b.if_(left.lt(middle).logical_and(right.lt(end))):
                    later = self._before(b, x, order[right], order[left])
                    b.assign(take, later.logical_not())
                with b.if_(take):
                    b.store(merged, (k,), order[left])
                    b.assign(left, left + 1)
                with b.else_():
                    b.store(merged, (k,), order[right])
                    b.assign(right, right + 1)
            with b.for_(n) as k:
                b.store(order, (k,), merged[k])
            b.assign(width, width * 2)

    def _before(self, b: LoopBuilder, x: Tensor, one: Expr, other: Expr) -> Expr:
        """Compare two rows by the first elements that differ."""
        less, equal = b.var(Const(False, boolean), "less"), b.var(Const(True, boolean), "equal")
        with b.for_(x.shape[1]) as j, b.if_(equal):
            p, q = b.let(x[one, j], "p"), b.let(x[other, j], "q")
            first, second = p.lt(q), q.lt(p)
            if x.dtype.is_float:
                first = first.logical_or(p.eq(p).logical_and(q.ne(q)))
                second = second.logical_or(q.eq(q).logical_and(p.ne(p)))
            b.assign(less, first)
            b.assign(equal, first.logical_or(second).logical_not())
        return less
