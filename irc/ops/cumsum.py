"""Running sums and products along an axis.

Sources: ONNX CumSum, CumProd; OpenVINO specification, CumSum-3.
"""

from __future__ import annotations

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes
from irc.expr import Const, Expr, Tensor, index
from irc.ir.dim import product
from irc.ir.graph import Value
from irc.ir.types import FLOATS, NUMERIC, DType, TensorType, bf16, f32, f64, i32, i64, u32, u64
from irc.loops.builder import LoopBuilder, seen_as
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool
from irc.opdef.forms import Declined, Form, Results, Write, write_only
from irc.opdef.precision import rounded, wide
from irc.opdef.run_sizes import from_the_start
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX
from irc.ops.arithmetic import OV_NUMERIC
from irc.ops.layout import normal_axis


def running(x: Array, axis: Array | None, exclusive: bool, reverse: bool, product: bool) -> Array:
    """Running sums or products along an axis (0 where absent)."""
    along = 0 if axis is None else int(np.asarray(axis).reshape(-1)[0])
    w = np.flip(wide(x), along) if reverse else wide(x)
    y: Array = np.cumprod(w, along, dtype=w.dtype) if product else np.cumsum(w, along, dtype=w.dtype)  # pyright: ignore
    if exclusive and w.shape[along]:
        first = np.full_like(np.take(y, [0], along), 1 if product else 0)  # pyright: ignore
        y = np.concatenate([first, np.delete(y, -1, along)], along)  # pyright: ignore
    return rounded(np.flip(y, along) if reverse else y, x)  # pyright: ignore


TILE = 512
"""Columns that are added up together: their totals stand in the first cache."""
ROWS = 8
"""Rows whose totals stand in registers."""


class Running(Op):
    """What CumSum and CumProd share."""

    exclusive: bool
    reverse: bool

    def infer(self, x: Value, axis: Value | None = None) -> TensorType:
        given = None if axis is None else axis.ints()
        if given is not None:
            normal_axis(self.name, given[0], len(x.shape))
        return x.tensor

    def resolve(self, b: Builder, x: Value, axis: Value | None = None) -> Value | None:
        """Run along the middle one of three axes, whose sizes the run computes, if only the run knows the axis."""
        if axis is None or axis.ints() is not None or not x.rank:
            return None
        shape, places, along = b.Shape(x), b.const(list(range(x.rank))), from_the_start(b, axis, x.rank)
        before, after = (
            b.ReduceProd(b.Where(there, shape, b.const(1)), [0])
            for there in (b.Less(places, along), b.Less(along, places))
        )
        # An axis that x does not have has no elements, so that the sizes do not match.
        size = b.ReduceSum(b.Where(b.Equal(places, along), shape, b.const(0)), [0])
        boxes = b.Reshape(x, b.Concat(before, size, after, axis=0), special_zero=False)
        total = b.operation(self.name)(boxes, b.const(1), exclusive=self.exclusive, reverse=self.reverse)
        return b.Reshape(total, shape, special_zero=False)

    def _run(self, b: LoopBuilder, x: Tensor, axis: Tensor | None, y: Tensor, kind: str) -> None:
        """Go along the axis once: the elements behind it side by side, or some rows."""
        given = [0] if axis is None else axis.ints()
        require(given is not None, codes.NEEDS_CONSTANT, op=self.name, operand="axis")
        if not x.rank:
            b.store(y, (), _start(kind, x.dtype).cast(x.dtype) if self.exclusive else x[()])
            return
        along = (given or [0])[0] % x.rank
        rows, columns = product(x.shape[:along]), product(x.shape[along + 1 :])
        x, y = (seen_as(t, (rows, t.shape[along], columns)) for t in (x, y))
        if columns != 1:
            if columns.const is None or columns.const > TILE:
                with b.for_(rows * columns.ceildiv(TILE), "parallel") as i:
                    count = index(columns.ceildiv(TILE))
                    start = b.let((i % count) * TILE, "start")
                    width = b.let((index(columns) - start).min(TILE), "width")
                    self._planes(b, x, y, kind, i // count, start, width, TILE)
            else:
                with b.for_(rows, "parallel") as i:
                    self._planes(b, x, y, kind, i, index(0), index(columns), columns.const)
            return
        blocks = rows // ROWS
        with b.for_(blocks, "parallel") as i:
            self._rows(b, x, y, kind, [i * ROWS + k for k in range(ROWS)])
        if rows % ROWS != 0:
            with b.for_(rows % ROWS) as i:
                self._rows(b, x, y, kind, [index(blocks) * ROWS + i])

    def _planes(
        self, b: LoopBuilder, x: Tensor, y: Tensor, kind: str, row: Expr, start: Expr, width: Expr, most: int
    ) -> None:
        """Add up some columns: each row to the result of the row before, or to totals in a wider type."""
        first = _start(kind, x.dtype)
        if first.dtype == x.dtype:
            self._rows_on_rows(b, x, y, kind, row, start, width)
            return
        total = b.alloc(first.dtype, [most], "total")
        with b.for_(width, "simd") as j:
            b.store(total, j, first)
        with b.for_(x.shape[1]) as r, b.for_(width, "simd") as j:
            at = (row, self._place(r, x), start + j)
            before = b.let(total[j], "before")
            after = b.let(_joined(kind, before, x[at]), "after")
            b.store(total, j, after)
            b.store(y, at, (before if self.exclusive else after).cast(x.dtype))

    def _rows_on_rows(
        self, b: LoopBuilder, x: Tensor, y: Tensor, kind: str, row: Expr, start: Expr, width: Expr
    ) -> None:
        """Join each row with the result of the row before."""
        with b.if_(index(x.shape[1]).gt(0)), b.for_(width, "simd") as j:
            at = (row, self._place(index(0), x), start + j)
            b.store(y, at, _start(kind, x.dtype) if self.exclusive else x[at])
        with b.for_((index(x.shape[1]) - 1).max(0)) as r, b.for_(width, "simd") as j:
            here, there = ((row, self._place(at, x), start + j) for at in (r + 1, r))
            b.store(y, here, _joined(kind, y[there], x[there if self.exclusive else here]))

    def _rows(self, b: LoopBuilder, x: Tensor, y: Tensor, kind: str, rows: list[Expr]) -> None:
        """Keep a total for each of some rows, as every one waits for the total before."""
        totals = [b.var(_start(kind, x.dtype), "total") for _ in rows]
        with b.for_(x.shape[1]) as r:
            for row, total in zip(rows, totals, strict=True):
                at = (row, self._place(r, x), index(0))
                after = b.let(_joined(kind, total, x[at]), "after")
                b.store(y, at, (total if self.exclusive else after).cast(x.dtype))
                b.assign(total, after)

    def _place(self, r: Expr, x: Tensor) -> Expr:
        return index(x.shape[1]) - 1 - r if self.reverse else r


def _start(kind: str, dtype: DType) -> Const:
    """Return the total of nothing, in the type in which narrow floats are added up."""
    total = dtype.compute if dtype.is_float else dtype
    number = int(kind == "prod")
    return Const(float(number) if total.is_float else number, total)


def _joined(kind: str, total: Expr, x: Expr) -> Expr:
    x = x.cast(total.dtype)
    return total + x if kind == "sum" else total * x


RUNNING = {"exclusive": Bool(False), "reverse": Bool(False)}
RUNNING_SIG = Sig("x: T, axis?: I[one] -> y: T", T=NUMERIC, I=INDEX)
WITH_AXIS = Sig("x: T, axis: I[one] -> y: T", T=NUMERIC, I=INDEX)


def write_scalar_axis(b: Builder, op: CumSum, x: Value, axis: Value | None = None) -> Results:
    """ONNX wants the axis, as a number."""
    return b.add(op, x, b.const(0) if axis is None else b.Reshape(axis, []))


def write_by_mask(kind: str, neutral: int) -> Write:
    """`write` by a reduction over a square of copies, of which the places that do not count are neutral."""

    def write(b: Builder, op: Op, x: Value, axis: Value | None = None) -> Value:
        given = [0] if axis is None else axis.ints()
        if given is None:
            raise Declined
        along, rank, fields = normal_axis(op.name, given[0], len(x.shape)), len(x.shape), op.attributes()
        places = b.Range(b.const(0), b.Gather(b.Shape(x), b.const(along), b.const(0)), b.const(1))
        to, of = b.Unsqueeze(places, [1]), b.Unsqueeze(places, [0])
        first, second = (to, of) if fields["reverse"] else (of, to)
        counts = b.Less(first, second) if fields["exclusive"] else b.LessOrEqual(first, second)
        counts = b.Unsqueeze(counts, list(range(2, rank - along + 1))) if rank - along > 1 else counts
        terms = b.Where(counts, b.Unsqueeze(x, [along]), b.like(neutral, x))
        return b.operation(kind)(terms, [along + 1], keepdims=False)

    return write


@op
class CumSum(Running):
    """y[i] = x[0] + … + x[i] along an axis; exclusive: without x[i]; reverse: from the end."""

    exclusive: bool = False
    reverse: bool = False
    sig = RUNNING_SIG

    def reference(self, x: Array, axis: Array | None = None) -> Array:
        return running(x, axis, self.exclusive, self.reverse, False)

    def loops(self, b: LoopBuilder, x: Tensor, axis: Tensor | None, y: Tensor) -> None:
        self._run(b, x, axis, y, "sum")

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
        write_only(write_by_mask("ReduceSum", 0)),
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

    def loops(self, b: LoopBuilder, x: Tensor, axis: Tensor, y: Tensor) -> None:
        self._run(b, x, axis, y, "prod")

    onnx = (
        Form("CumProd", 26, attrs=RUNNING, T={"T": FLOATS | {bf16, i32, i64, u32, u64}, "I": INDEX}),
        write_only(write_by_mask("ReduceProd", 1)),
    )
    openvino = (write_only(write_by_mask("ReduceProd", 1)),)
