"""Contractions: MatMul and Gemm.

Narrow floats accumulate in f32 and round once; integers wrap.  Sources: ONNX MatMul, Gemm; OpenVINO
specification, MatMul-1; numpy.matmul.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.expr import Expr, IndexFunction, Tensor, reduce
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import every, same, stretches_to
from irc.ir.types import FLOATS, NUMERIC, DType, TensorType, bf16, f64, i32, i64, u32, u64
from irc.opdef.base import Array, Op, op
from irc.opdef.broadcasting import broadcast_shapes, legacy_fit, repeated
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Float, FromOperands, Int
from irc.opdef.forms import PREV, Attributes, Form, Results
from irc.opdef.precision import wide
from irc.opdef.signature import Sig
from irc.ops.arithmetic import OV_NUMERIC, WIDE_INTS


def write_transposed(b: Builder, op: MatMul, x: Value, y: Value) -> Results:
    """ONNX's MatMul has no transposes: they become Transpose nodes (of matrices; a vector stays).

    Aᵀ·v is v·A, which needs no Transpose (ONNX Runtime 1.31 fuses one before a vector wrongly).
    """
    if y.rank == 1 and op.transpose_a and len(x.shape) > 1:
        return b.MatMul(y, x)
    if x.rank == 1 and op.transpose_b and len(y.shape) > 1:
        return b.MatMul(y, x)

    def swapped(v: Value, wanted: bool) -> Value:
        rank = len(v.shape)
        return b.Transpose(v, [*range(rank - 2), rank - 1, rank - 2]) if wanted and rank > 1 else v

    return b.MatMul(swapped(x, op.transpose_a), swapped(y, op.transpose_b))


@op
class MatMul(Op):
    """Matrix product over the last two axes; leading axes broadcast, rank-1 operands are vectors.

    With transpose_a or transpose_b the last two axes of that operand are swapped first (a vector is left alone).
    """

    transpose_a: bool = False
    transpose_b: bool = False
    sig = Sig("a: T[>=1], b: T[>=1] -> y: T", T=NUMERIC)

    def infer(self, a: Value, b: Value) -> TensorType:
        require(len(a.shape) > 0, codes.WRONG_RANK, op="MatMul", operand="a", type=a.tensor, expected="1 or more")
        require(len(b.shape) > 0, codes.WRONG_RANK, op="MatMul", operand="b", type=b.tensor, expected="1 or more")
        (m, k), (l, n) = self.matrix(a.shape, self.transpose_a, 0), self.matrix(b.shape, self.transpose_b, 1)
        require(same(k, l), codes.MATMUL_INNER, op="MatMul", a=k, b=l)
        lead = broadcast_shapes("MatMul", [a.shape[:-2], b.shape[:-2]])
        rows = () if len(a.shape) == 1 else (m,)
        columns = () if len(b.shape) == 1 else (n,)
        return TensorType(a.dtype, (*lead, *rows, *columns))

    @staticmethod
    def matrix(shape: Sequence[Dim], transpose: bool, side: int) -> tuple[Dim, Dim]:
        """(rows, columns) of an operand; a vector is a row on the left, a column on the right."""
        if len(shape) == 1:
            return (Dim.of(1), shape[0]) if side == 0 else (shape[0], Dim.of(1))
        return (shape[-1], shape[-2]) if transpose else (shape[-2], shape[-1])

    def reference(self, a: Array, b: Array) -> Array:
        kind = a.dtype
        a = np.swapaxes(a, -1, -2) if self.transpose_a and a.ndim > 1 else a
        b = np.swapaxes(b, -1, -2) if self.transpose_b and b.ndim > 1 else b
        return np.matmul(wide(a), wide(b)).astype(kind)

    def compute(self, out: TensorType, a: Tensor, b: Tensor) -> IndexFunction:
        depth = self.matrix(a.shape, self.transpose_a, 0)[1]
        shape = out.dims()
        lead = len(shape) - (a.rank > 1) - (b.rank > 1)

        def element(*i: Expr) -> Expr:
            batch, rest = i[:lead], list(i[lead:])
            row = rest.pop(0) if a.rank > 1 else None
            column = rest.pop(0) if b.rank > 1 else None

            def pick(x: Tensor, swap: bool, first: Expr | None, second: Expr | None) -> Expr:
                inner = [e for e in ((second, first) if swap and x.rank > 1 else (first, second)) if e is not None]
                skip = len(batch) - (x.rank - len(inner))
                at = [*batch[skip:], *inner]
                return x.broadcast(at, [*shape[skip:lead], *x.shape[x.rank - len(inner) :]])

            def term(k: Expr) -> Expr:
                return pick(a, self.transpose_a, row, k) * pick(b, self.transpose_b, k, column)

            return reduce("sum", [depth], term)

        return element

    onnx = (
        Form("MatMul", 1, T=FLOATS, write=write_transposed),
        Form("MatMul", 9, T=FLOATS | WIDE_INTS),
        Form("MatMul", 13, T=PREV | {bf16}),
    )
    openvino = (Form("MatMul", 1, attrs={"transpose_a": Bool(False), "transpose_b": Bool(False)}, T=OV_NUMERIC),)


def legacy_gemm(b: Builder, a: Attributes, x: Value, y: Value, c: Value | None = None) -> Results:
    """Gemm-1 and -6: C must have the result's shape unless `broadcast` is set."""
    made = b.Gemm(x, y, c, alpha=a.alpha, beta=a.beta, transA=a.transA, transB=a.transB)
    if c is not None and not a.broadcast:
        equal = len(c.shape) == 2 and every(*map(same, c.shape, made.shape))
        require(equal, codes.SHAPES_DIFFER, op="Gemm", first=made.tensor, second=c.tensor)
    return made


def gemm_broadcast(op: Gemm, A: Value, B: Value, C: Value | None = None) -> int | None:
    """`broadcast` of Gemm-1 and -6."""
    return None if C is None else legacy_fit(op.infer(A, B).dims(), C.shape)


def write_legacy_gemm(b: Builder, op: Gemm, A: Value, B: Value, C: Value | None = None) -> Value:
    """Gemm-1 and -6 must have a C, and broadcast less than later versions."""
    if C is None or not A.dtype.is_float:
        return op.decompose(b, A, B, C)
    return b.Gemm(A, B, repeated(b, C, op.infer(A, B).dims()), **op.attributes())


C_REQUIRED = Sig("A: T[2], B: T[2], C: T[0..2] -> Y: T", T=FLOATS | WIDE_INTS | {bf16})
GEMM = {"alpha": Float(1.0), "beta": Float(1.0), "transA": Int(0), "transB": Int(0)}


@op
class Gemm(Op):
    """alpha · A' · B' + beta · C, where ' is an optional transpose and C broadcasts to the result."""

    alpha: float = 1.0
    beta: float = 1.0
    transA: int = 0
    transB: int = 0
    sig = Sig("A: T[2], B: T[2], C?: T[0..2] -> Y: T", T=FLOATS | WIDE_INTS | {bf16})

    def infer(self, A: Value, B: Value, C: Value | None = None) -> TensorType:
        for name, v in (("A", A), ("B", B)):
            require(len(v.shape) == 2, codes.WRONG_RANK, op="Gemm", operand=name, type=v.tensor, expected=2)
        m, k = A.shape[::-1] if self.transA else A.shape
        l, n = B.shape[::-1] if self.transB else B.shape
        require(same(k, l), codes.MATMUL_INNER, op="Gemm", a=k, b=l)
        if C is not None:
            fits = stretches_to(C.shape, (m, n))
            require(fits, codes.NOT_BROADCASTABLE, op="Gemm", shapes=f"{C.tensor} to [{m},{n}]", axis="of C")
        return TensorType(A.dtype, (m, n))

    def reference(self, A: Array, B: Array, C: Array | None = None) -> Array:
        kind = A.dtype
        product = np.matmul(wide(A.T if self.transA else A), wide(B.T if self.transB else B))
        result = self._scaled(product, self.alpha)
        return (result if C is None else result + self._scaled(wide(C), self.beta)).astype(kind)

    @staticmethod
    def _scaled(x: Array, factor: float) -> Array:
        """Integers: scaled as f64 and truncated."""
        if factor == 1.0:
            return x
        if x.dtype.kind in "iu":
            return (x * np.float64(factor)).astype(x.dtype)
        return x * x.dtype.type(factor)

    def decompose(self, b: Builder, A: Value, B: Value, C: Value | None = None) -> Value:
        kind = A.dtype
        product = b.MatMul(A, B, transpose_a=bool(self.transA), transpose_b=bool(self.transB))
        result = self._scale(b, product, self.alpha, kind)
        return result if C is None else b.Add(result, self._scale(b, C, self.beta, kind))

    @staticmethod
    def _scale(b: Builder, x: Value, factor: float, kind: DType) -> Value:
        if factor == 1.0:
            return x
        if kind.is_integer and factor != int(factor):
            return b.Cast(b.Mul(b.Cast(x, to=f64), b.const(factor, f64)), to=kind)
        return b.Mul(x, b.const(factor, kind))

    onnx = (
        Form(
            "Gemm",
            1,
            attrs={**GEMM, "broadcast": FromOperands(0, of=gemm_broadcast)},
            T=FLOATS,
            read=legacy_gemm,
            direct=True,
            sig=C_REQUIRED,
            write=write_legacy_gemm,
        ),
        Form("Gemm", 6),
        Form("Gemm", 7, attrs=GEMM, read=None, write=None),
        Form("Gemm", 9, T=PREV | {i32, u32, i64, u64}),
        Form("Gemm", 11, sig=None),
        Form("Gemm", 13, T=PREV | {bf16}),
    )
