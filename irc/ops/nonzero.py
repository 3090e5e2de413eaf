"""Operations whose result size depends on the data: NonZero, Compress.

Sources: ONNX NonZero, Compress; OpenVINO specification, NonZero-3.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.expr import Const, Tensor
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import ANY, DType, TensorType, boolean, i64
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import DTypeAttr, Int
from irc.opdef.forms import Form, write_only
from irc.opdef.signature import Sig
from irc.opdef.typesets import ONNX_ALL, OV_ANY, onnx_all
from irc.ops.layout import normal_axis

COUNTED = 1 << 20
"""Elements of a constant up to which inference counts those that are not zero."""


def write_i64(b: Builder, op: NonZero, x: Value) -> Value:
    return b.Cast(b.NonZero(x), to=op.output_type)


@op
class NonZero(Op):
    """The indices of the elements that are not zero, in row-major order: one column each, one row per axis."""

    output_type: DType = i64
    sig = Sig("x: T -> y: i64", T=ANY)

    def infer(self, x: Value) -> TensorType:
        if x.rank is None:
            return TensorType(self.output_type, None)
        few = x.tensor.is_static and int(x.tensor.elements()) <= COUNTED
        known = x.array if few and x.rank else None
        columns = Dim.fresh("nonzero", x.tensor.elements()) if known is None else Dim.of(int(np.count_nonzero(known)))
        return TensorType.of(self.output_type, [x.rank, columns])

    def run_sizes(self, b: Builder, out: TensorType, x: Value) -> Iterable[tuple[Dim, Value]]:
        counted = b.Cast(b.Cast(x, to=boolean), to=i64)
        yield out.dims()[1], b.ReduceSum(counted, keepdims=False) if x.rank else counted

    def loops(self, b: LoopBuilder, x: Tensor, y: Tensor) -> None:
        """Note the places in one walk; the results have as many columns as `run_sizes` has counted."""
        column = b.var(Const(0, i64), "column")
        with b.nest(x.shape) as i, b.if_(x[i].cast(boolean)):
            for axis, place in enumerate(i):
                b.store(y, (Const(axis, i64), column), place.cast(y.dtype))
            b.assign(column, column + 1)

    def reference(self, x: Array) -> Array:
        if x.ndim == 0:
            return np.zeros((0, int(bool(x))), self.output_type.numpy)
        return np.array(np.nonzero(x), self.output_type.numpy)

    onnx = (Form("NonZero", 9, T=ONNX_ALL, write=write_i64), Form("NonZero", 13, T=onnx_all(13)))
    openvino = (Form("NonZero", 3, attrs={"output_type": DTypeAttr(i64)}, T=OV_ANY),)


def write_compress(b: Builder, op: Compress, x: Value, condition: Value) -> Value:
    """Compress in terms of NonZero and Gather."""
    places = b.Reshape(b.NonZero(condition), [-1])
    if op.axis is None:
        return b.Gather(b.Reshape(x, [-1]), places, b.const(0))
    return b.Gather(x, places, b.const(op.axis))


@op
class Compress(Op):
    """The slices along `axis` (absent: the elements) for which the condition holds."""

    axis: int | None = None
    sig = Sig("x: T[>=1], condition: bool[1] -> y: T", T=ANY)

    def infer(self, x: Value, condition: Value) -> TensorType:
        vector = condition.rank is None or condition.rank == 1
        require(vector, codes.WRONG_RANK, op="Compress", operand="condition", type=condition.tensor, expected=1)
        if self.axis is None:
            return TensorType(x.dtype, (Dim.fresh("compress", x.tensor.elements()),))
        axis = normal_axis("Compress", self.axis, len(x.shape))
        return x.tensor.with_dim(axis, Dim.fresh("compress", x.shape[axis]))

    def decompose(self, b: Builder, x: Value, condition: Value) -> Value:
        return write_compress(b, self, x, condition)

    def reference(self, x: Array, condition: Array) -> Array:
        return np.compress(condition, x, axis=self.axis)

    onnx = (
        Form("Compress", 9, attrs={"axis": Int(None)}, T={"T": ONNX_ALL}),
        Form("Compress", 11),
        Form("Compress", 28, T={"T": onnx_all(13)}),
    )
    openvino = (write_only(write_compress, since=3),)
