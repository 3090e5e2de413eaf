"""Rows by segments, and matrices whose empty rows are filled: SegmentMax, SparseFillEmptyRows.

Sources: OpenVINO specification, SegmentMax-16, SparseFillEmptyRows-16.
"""

from __future__ import annotations

from ml_dtypes import finfo

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import NUMERIC, DType, boolean, value_range
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Enum
from irc.opdef.conversions import as_i64, as_scalar, as_type, as_vector
from irc.opdef.forms import Form
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX
from irc.ops.reduce import lowest
from irc.ops.sort import TopK


@op
class SegmentMax(Op):
    """The largest elements of the rows of each segment, which `segments` numbers for each row, in order.

    There are `count` segments, or as many as the last number says.  fill_mode: what a segment without rows gives, zero
    or the lowest finite number of the type.  Rows of a segment that does not exist count nowhere.
    """

    fill_mode: str = "zero"
    sig = Sig("x: T[>=1], segments: I[1], count?: J[one] -> y: T", T=NUMERIC, I=INDEX, J=INDEX)

    def decompose(self, b: Builder, x: Value, segments: Value, count: Value | None = None) -> Value:
        rows, ids = x.shape[0], segments.shape[0]
        require(same(rows, ids), codes.SIZES_DIFFER, op=self.name, what="rows and segments", a=rows, b=ids)
        numbers = as_i64(b, segments)
        if count is None:
            count = b.Add(b.ReduceMax(b.Concat(b.const([-1]), numbers, axis=0), [0], keepdims=False), b.const(1))
        size = as_vector(b, as_i64(b, count))
        places = b.Unsqueeze(numbers, [1])
        least = b.const(lowest(x.dtype.numpy), x.dtype)
        start = b.Expand(least, b.Concat(size, b.dims(x.shape[1:]), axis=0))
        best = b.ScatterND(start, places, x, reduction="max")
        none = b.Expand(b.const(True, boolean), size)
        empty = b.ScatterND(none, places, b.Expand(b.const(False, boolean), b.dims([rows])))
        empty = b.Unsqueeze(empty, list(range(1, len(x.shape)))) if len(x.shape) > 1 else empty
        fill = 0 if self.fill_mode == "zero" else _least_finite(x.dtype)
        return b.Where(empty, b.const(fill, x.dtype), best)

    openvino = (
        Form(
            "SegmentMax",
            16,
            attrs={"fill_mode": Enum(["zero", "lowest"], assumed="zero")},
            T={"T": NUMERIC, "I": INDEX, "J": INDEX},
        ),
    )


def _least_finite(kind: DType) -> float:
    return float(finfo(kind.numpy).min) if kind.is_float else value_range(kind)[0]  # pyright: ignore


@op
class SparseFillEmptyRows(Op):
    """The elements of a sparse matrix, and one of value `default` at the start of each row without any.

    Results: places [n, 2] by rows, values, and which rows were empty.
    """

    sig = Sig(
        "values: T[1], shape: I[1], places: I[2], default: T[one] -> places_out: I, values_out: T, empty: bool",
        T=NUMERIC,
        I=INDEX,
    )

    def decompose(
        self, b: Builder, values: Value, shape: Value, places: Value, default: Value
    ) -> tuple[Value, Value, Value]:
        p, q = values.shape[0], places.shape[0]
        require(same(p, q), codes.SIZES_DIFFER, op=self.name, what="values and places", a=p, b=q)
        given = as_i64(b, places)
        count = b.Gather(as_i64(b, shape), b.const([0]), b.const(0))
        none = b.Expand(b.const(True, boolean), count)
        full = b.Expand(b.const(False, boolean), b.dims([p]))
        empty = b.ScatterND(none, b.Slice(given, [0], [1], [1]), full)
        column = b.Transpose(b.NonZero(empty), [1, 0])
        both = b.Concat(given, b.Concat(column, b.Mul(column, b.const(0)), axis=1), axis=0)
        filled = b.Expand(as_vector(b, default), b.Shape(b.Squeeze(column, [1])))
        rows = b.Squeeze(b.Slice(both, [0], [1], [1]), [1])
        _, order = b.add_all(TopK(axis=0, largest=False), rows, as_scalar(b, b.Shape(rows)))
        found = b.Gather(both, order, b.const(0))
        joined = b.Gather(b.Concat(values, filled, axis=0), order, b.const(0))
        return as_type(b, found, places.dtype), joined, empty

    openvino = (Form("SparseFillEmptyRows", 16, T={"T": NUMERIC, "I": INDEX}),)
