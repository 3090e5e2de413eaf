"""Determinants: Det.  Source: ONNX Det."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.expr import Const, Expr, Tensor, Un, Var, index
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import FLOATS, FLOATS_BF16, TensorType, bf16
from irc.opdef.base import Array, Op, op
from irc.opdef.forms import PREV, Form
from irc.opdef.precision import rounded, wide
from irc.opdef.signature import Sig

if TYPE_CHECKING:
    from irc.loops.builder import LoopBuilder


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
                self._move_pivot(b, m, k, product)
                pivot = b.let(m[k, k], "pivot")
                b.assign(product, product * pivot)
                below = b.let(index(size) - 1 - k, "below")
                with b.if_(pivot.ne(0.0)), b.for_(below) as i:
                    row = b.let(k + 1 + i, "row")
                    factor = b.let(m[row, k] / pivot, "factor")
                    with b.for_(below) as j:
                        column = b.let(k + 1 + j, "column")
                        b.store(m, (row, column), m[row, column] - factor * m[k, column])
            b.store(y, at, product.cast(y.dtype))

    @staticmethod
    def _move_pivot(b: LoopBuilder, m: Tensor, k: Expr, product: Var) -> None:
        """Swap row k and the row at or below it whose element in column k is largest; this changes the sign."""
        size = index(m.shape[0])
        best, chosen = b.var(Un("abs", m[k, k]), "best"), b.var(k, "chosen")
        with b.for_(size - 1 - k) as i:
            found = b.let(Un("abs", m[k + 1 + i, k]), "found")
            with b.if_(found.gt(best)):
                b.assign(best, found)
                b.assign(chosen, k + 1 + i)
        with b.if_(chosen.ne(k)):
            b.assign(product, -product)
            with b.for_(size) as j:
                upper = b.let(m[k, j], "upper")
                b.store(m, (k, j), m[chosen, j])
                b.store(m, (chosen, j), upper)

    onnx = (Form("Det", 11, T=FLOATS), Form("Det", 22, T=PREV | {bf16}))
