"""Determinants and inverses of matrices.

Sources: ONNX Det; ONNX Runtime, com.microsoft Inverse; OpenVINO specification, Inverse-14.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.expr import Const, Expr, Tensor, Un, Var, index, select
from irc.ir.dim import product
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import FLOATS, FLOATS_BF16, TensorType, bf16, f8e4m3fn, f8e5m2
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool
from irc.opdef.conversions import as_scalar, as_type
from irc.opdef.forms import MICROSOFT, PREV, Declined, Form, write_only
from irc.opdef.precision import narrowed, rounded, wide, widened
from irc.opdef.run_sizes import TO_THE_END
from irc.opdef.signature import Sig
from irc.ops.loop_forms import repeated

if TYPE_CHECKING:
    from irc.loops.builder import LoopBuilder


NARROW = frozenset({f8e4m3fn, f8e5m2})


def move_pivot(b: LoopBuilder, m: Tensor, k: Expr, product: Var | None = None) -> None:
    """Swap row k and the row at or below it whose element in column k is largest; this negates `product`, if any."""
    best, chosen = b.var(Un("abs", m[k, k]), "best"), b.var(k, "chosen")
    with b.for_(index(m.shape[0]) - 1 - k) as i:
        found = b.let(Un("abs", m[k + 1 + i, k]), "found")
        with b.if_(found.gt(best)):
            b.assign(best, found)
            b.assign(chosen, k + 1 + i)
    with b.if_(chosen.ne(k)):
        if product is not None:
            b.assign(product, -product)
        with b.for_(index(m.shape[1])) as j:
            upper = b.let(m[k, j], "upper")
            b.store(m, (k, j), m[chosen, j])
            b.store(m, (chosen, j), upper)


LARGEST = 3
"""Rows of the largest matrix whose determinant is written out in full."""


def write_products(b: Builder, op: Det, x: Value) -> Value:
    """OpenVINO has no determinants: expanded along the first row, for matrices of up to three rows."""
    size = x.shape[-1].const
    if size is None or not 1 <= size <= LARGEST:
        raise Declined
    precise = widened(b, x)
    rows = [b.Gather(precise, b.const(i), b.const(-2)) for i in range(size)]

    def expanded(row: int, columns: list[int]) -> Value:
        """Compute the determinant of the rows from `row` on, in these columns."""
        total: Value | None = None
        for k, column in enumerate(columns):
            term = b.Gather(rows[row], b.const(column), b.const(-1))
            if len(columns) > 1:
                term = b.Mul(term, expanded(row + 1, columns[:k] + columns[k + 1 :]))
            total = term if total is None else b.Sub(total, term) if k % 2 else b.Add(total, term)
        assert total is not None
        return total

    return narrowed(b, expanded(0, list(range(size))), x)


@op
class Det(Op):
    """The determinant of each square matrix that the last two axes hold; narrow floats are computed in f32."""

    sig = Sig("x: T[>=2] -> y: T", T=FLOATS_BF16)

    def infer(self, x: Value) -> TensorType:
        rows, columns = x.shape[-2:]
        require(same(rows, columns), codes.SIZES_DIFFER, op="Det", what="rows and columns", a=rows, b=columns)
        return TensorType(x.dtype, x.shape[:-2])

    def reference(self, x: Array) -> Array:
        return rounded(np.asarray(np.linalg.det(wide(x))), x)

    def loops(self, b: LoopBuilder, x: Tensor, y: Tensor) -> None:
        """Gaussian elimination with the largest pivot of each column: the product of the pivots, with its sign."""
        size, kind = x.shape[-1], x.dtype.compute
        m = b.alloc(kind, (size, size), "matrix")
        with b.nest(x.shape[:-2]) as at:
            with b.nest((size, size)) as (i, j):
                b.store(m, (i, j), x[(*at, i, j)].cast(kind))
            product = b.var(Const(1.0, kind), "product")
            with b.for_(size) as k:
                move_pivot(b, m, k, product)
                pivot = b.let(m[k, k], "pivot")
                b.assign(product, product * pivot)
                below = b.let(index(size) - 1 - k, "below")
                with b.if_(pivot.ne(0.0)), b.for_(below) as i:
                    row = k + 1 + i
                    factor = b.let(m[row, k] / pivot, "factor")
                    with b.for_(below) as j:
                        column = b.let(k + 1 + j, "column")
                        b.store(m, (row, column), m[row, column] - factor * m[k, column])
            b.store(y, at, product.cast(y.dtype))

    onnx = (Form("Det", 11, T=FLOATS), Form("Det", 22, T=PREV | {bf16}))
    openvino = (write_only(write_products),)


def write_by_columns(b: Builder, op: Inverse, x: Value) -> Value:
    """Gauss-Jordan elimination as a loop over the columns."""
    kind = x.dtype.compute
    n, size = x.shape[-1], as_scalar(b, b.dims(x.shape[-1:]))
    matrices = b.Reshape(as_type(b, x, kind), b.dims([product(x.shape[:-2]), n, n]), special_zero=False)
    rows = b.Range(b.const(0), size, b.const(1))
    identity = b.Cast(b.Equal(b.Unsqueeze(rows, [0]), b.Unsqueeze(rows, [1])), to=kind)
    start = b.Concat(matrices, b.Expand(identity, b.Shape(matrices)), axis=2)

    def step(
        b: Builder, number: Value, carried: Sequence[Value], captured: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        (m,), (rows,) = carried, captured
        column = b.Abs(b.Gather(m, number, b.const(2)))
        candidates = b.Where(b.Less(rows, number), b.const(-1.0, kind), column)
        chosen = b.ArgMax(candidates, axis=1, keepdims=True)
        row = b.GatherND(m, chosen, batch_dims=1)
        row = b.Div(row, b.Unsqueeze(b.Gather(row, number, b.const(1)), [1]))
        moved = b.Unsqueeze(b.Equal(rows, chosen), [2])
        m = b.Where(moved, b.Unsqueeze(b.Gather(m, number, b.const(1)), [1]), m)
        factor = b.Unsqueeze(b.Gather(m, number, b.const(2)), [2])
        own = b.Unsqueeze(row, [1])
        return [b.Where(b.Unsqueeze(b.Equal(rows, number), [1]), own, b.Sub(m, b.Mul(factor, own)))], []

    (m,) = repeated(b, size, [start], [rows], step)
    y = b.Slice(m, b.dims(x.shape[-1:]), b.const([TO_THE_END]), [2])
    y = b.Transpose(y, [0, 2, 1]) if op.adjoint else y
    return as_type(b, b.Reshape(y, b.dims(x.shape), special_zero=False), x.dtype)


@op
class Inverse(Op):
    """The inverse of each square matrix that the last two axes hold; narrow floats are computed in f32.

    adjoint: transposed.  Nothing is promised of singular matrices.
    """

    adjoint: bool = False
    sig = Sig("x: T[>=2] -> y: T", T=FLOATS_BF16 | NARROW)

    def infer(self, x: Value) -> TensorType:
        rows, columns = x.shape[-2:]
        require(same(rows, columns), codes.SIZES_DIFFER, op="Inverse", what="rows and columns", a=rows, b=columns)
        return x.tensor

    def reference(self, x: Array) -> Array:
        size = x.shape[-1]
        w = wide(x).reshape(-1, size, size)
        m = np.concatenate([w, np.zeros_like(w)], axis=2)
        m[:, np.arange(size), size + np.arange(size)] = 1.0
        each = np.arange(len(m))
        with np.errstate(all="ignore"):
            for k in range(size):
                chosen = k + np.abs(m[:, k:, k]).argmax(axis=1)
                row = m[each, chosen]
                m[each, chosen] = m[:, k]
                row = row / row[:, k : k + 1]
                m = m - m[:, :, k : k + 1] * row[:, None, :]
                m[:, k] = row
        y = m[:, :, size:].swapaxes(1, 2) if self.adjoint else m[:, :, size:]
        return rounded(y.reshape(x.shape), x)

    def loops(self, b: LoopBuilder, x: Tensor, y: Tensor) -> None:
        """Gauss-Jordan elimination of the matrix beside the identity, with the largest pivot of each column."""
        size, kind = x.shape[-1], x.dtype.compute
        m = b.alloc(kind, (size, size * 2), "matrix")
        with b.nest(x.shape[:-2]) as at:
            with b.nest((size, size)) as (i, j):
                b.store(m, (i, j), x[(*at, i, j)].cast(kind))
                b.store(m, (i, j + index(size)), select(i.eq(j), Const(1.0, kind), Const(0.0, kind)))
            with b.for_(size) as k:
                move_pivot(b, m, k)
                pivot = b.let(m[k, k], "pivot")
                with b.for_(size * 2) as j:
                    b.store(m, (k, j), m[k, j] / pivot)
                with b.for_(size) as i, b.if_(i.ne(k)):
                    factor = b.let(m[i, k], "factor")
                    with b.for_(size * 2) as j:
                        b.store(m, (i, j), m[i, j] - factor * m[k, j])
            with b.nest((size, size)) as (i, j):
                row, column = (j, i) if self.adjoint else (i, j)
                b.store(y, (*at, i, j), m[row, column + index(size)].cast(y.dtype))

    onnx = (Form("Inverse", 1, T=FLOATS, domain=MICROSOFT), write_only(write_by_columns, since=11))
    openvino = (Form("Inverse", 14, attrs={"adjoint": Bool(False)}, T=FLOATS_BF16 | NARROW),)
