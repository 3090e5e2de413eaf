"""Places in sorted rows: SearchSorted, Bucketize.

Sources: OpenVINO specification, SearchSorted-15, Bucketize-3.
"""

from __future__ import annotations

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.expr import Const, Tensor, index
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import FLOATS_BF16, NUMERIC, DType, TensorType, f32, f64, i64, u64
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Codec, DTypeAttr
from irc.opdef.conversions import as_type
from irc.opdef.forms import Form, write_only
from irc.opdef.signature import Sig

HALVINGS = 63
"""More than it takes to find a place in a row of any length."""
OUTPUT_TYPE: dict[str, Codec] = {"output_type": DTypeAttr(i64)}


def write_counted(b: Builder, op: SearchSorted, rows: Value, values: Value) -> Value:
    """Count the elements of the row that come before each value."""
    places = b.Unsqueeze(values, [len(values.shape)])
    own = rows if rows.rank == 1 else b.Unsqueeze(rows, [len(rows.shape) - 1])
    before = (b.LessOrEqual if op.right_mode else b.Less)(own, places)
    return b.Cast(b.ReduceSum(b.Cast(before, to=i64), [-1], keepdims=False), to=op.output_type)


@op
class SearchSorted(Op):
    """How many elements of the sorted row come before each value; `right_mode`: and those that are equal to it.

    rows: one for all values, or one for each index of all axes of `values` but the last.
    """

    right_mode: bool = False
    output_type: DType = i64
    sig = Sig("rows: T[>=1], values: T -> places: any", T=NUMERIC)

    def infer(self, rows: Value, values: Value) -> TensorType:
        if len(rows.shape) > 1:
            facts = {"op": self.name, "operand": "values", "type": values.tensor}
            require(len(rows.shape) == len(values.shape), codes.WRONG_RANK, **facts, expected=len(rows.shape))
            for k, (p, q) in enumerate(zip(rows.shape[:-1], values.shape[:-1], strict=True)):
                what = f"axis {k} of the rows and that of the values"
                require(same(p, q), codes.SIZES_DIFFER, op=self.name, what=what, a=p, b=q)
        return values.tensor.with_dtype(self.output_type)

    def reference(self, rows: Array, values: Array) -> Array:
        own = np.broadcast_to(rows, (*values.shape[:-1], rows.shape[-1])) if values.ndim else rows
        low = np.zeros(values.shape, np.int64)
        high = np.full(values.shape, rows.shape[-1], np.int64)
        while (low < high).any():
            middle = np.minimum((low + high) // 2, rows.shape[-1] - 1)
            found = np.take_along_axis(own, middle.reshape(*own.shape[:-1], -1), -1).reshape(values.shape)
            before = (low < high) & ((found <= values) if self.right_mode else (found < values))
            low, high = np.where(before, middle + 1, low), np.where(before, high, np.minimum(middle, high))
        return low.astype(self.output_type.numpy)

    def loops(self, b: LoopBuilder, rows: Tensor, values: Tensor, places: Tensor) -> None:
        n = index(rows.shape[-1])
        steps = int(rows.shape[-1]).bit_length() if rows.shape[-1].is_const else HALVINGS
        with b.nest(values.shape, "parallel") as at:
            value = b.let(values[at], "value")
            low, high = b.var(Const(0, i64), "low"), b.var(n, "high")
            with b.for_(steps), b.if_(low.lt(high)):
                middle = b.let((low + high) // 2, "middle")
                element = b.let(rows[(*at[: rows.rank - 1], middle)], "element")
                with b.if_(element.le(value) if self.right_mode else element.lt(value)):
                    b.assign(low, middle + 1)
                with b.else_():
                    b.assign(high, middle)
            b.store(places, at, low.cast(places.dtype))

    onnx = (write_only(write_counted, 13),)
    openvino = (
        Form("SearchSorted", 15, attrs={"right_mode": Bool(False), **OUTPUT_TYPE}, T=NUMERIC),
        write_only(write_counted),
    )


@op
class Bucketize(Op):
    """The bucket of each element: how many of the sorted bounds are less, and those that are equal to it, too, if
    the right bound does not belong to a bucket."""

    with_right_bound: bool = True
    output_type: DType = i64
    sig = Sig("x: T, buckets: B[1] -> places: any", T=NUMERIC, B=NUMERIC)

    def decompose(self, b: Builder, x: Value, buckets: Value) -> Value:
        common = _common(x.dtype, buckets.dtype)
        pair = (buckets, x) if common is None else (as_type(b, buckets, common), as_type(b, x, common))
        return b.SearchSorted(*pair, right_mode=not self.with_right_bound, output_type=self.output_type)

    openvino = (
        Form(
            "Bucketize",
            3,
            attrs={"output_type": DTypeAttr(i64), "with_right_bound": Bool(True)},
            T={"T": NUMERIC, "B": NUMERIC},
        ),
    )


def _common(a: DType, b: DType) -> DType | None:
    """A type in which elements of both compare as they do; None if they are of one."""
    if a == b:
        return None
    if a.is_integer and b.is_integer:
        return u64 if u64 in (a, b) else i64
    narrow = FLOATS_BF16 - {f64}
    return f32 if all(t in narrow or t.bits <= 16 for t in (a, b)) else f64
