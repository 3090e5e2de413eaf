"""Sums of rows of a table, by bags: EmbeddingBagPacked, EmbeddingBagOffsets, EmbeddingSegmentsSum.

Sources: OpenVINO specification, EmbeddingBagPackedSum-3, EmbeddingBagOffsetsSum-3, EmbeddingSegmentsSum-3,
EmbeddingBagPacked-15, EmbeddingBagOffsets-15.
"""

from __future__ import annotations

from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes
from irc.ir.graph import Value
from irc.ir.types import NUMERIC, i64
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Enum
from irc.opdef.conversions import as_i64, as_scalar, as_type
from irc.opdef.forms import Form
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX

TYPES = {"T": NUMERIC, "I": INDEX}
REDUCTION = {"reduction": Enum(["sum", "mean"], "sum")}


def rows(b: Builder, table: Value, indices: Value, weights: Value | None) -> Value:
    """Pick rows of the table, [*indices, *row], each times its weight."""
    found = b.Gather(table, indices, b.const(0))
    if weights is None:
        return found
    own = len(indices.shape)
    return b.Mul(found, b.Unsqueeze(weights, list(range(own, own + len(table.shape) - 1))))


def counted(b: Builder, count: Value) -> Value:
    """Count 0, 1, … below a scalar."""
    return b.Range(b.const(0), count, b.const(1))


def summed(
    b: Builder, table: Value, found: Value, bags: Value, count: Value, default: Value | None, mean: bool = False
) -> Value:
    """Sum the rows of each bag: `bags` is the bag of each row.  An empty bag gives the row `default`, or zeros."""
    axes = list(range(2, 1 + len(table.shape)))
    hits = b.Equal(b.Unsqueeze(counted(b, count), [1]), b.Unsqueeze(bags, [0]))
    sums = b.Where(b.Unsqueeze(hits, axes), b.Unsqueeze(found, [0]), b.like(0, found))
    sums = b.ReduceSum(sums, [1], keepdims=False)
    counts = b.ReduceSum(b.Cast(hits, to=i64), [1], keepdims=False)
    counts = b.Unsqueeze(counts, [axis - 1 for axis in axes])
    if mean:
        sums = b.Div(sums, as_type(b, b.Max(counts, b.const(1)), sums.dtype))
    if default is None:
        return sums
    place = as_scalar(b, as_i64(b, default))
    row = b.Gather(table, b.Max(place, b.const(0)), b.const(0))
    row = b.Where(b.Less(place, b.const(0)), b.like(0, row), row)
    return b.Where(b.Equal(counts, b.const(0)), row, sums)


def require_plain_mean(op: str, reduction: str, weights: Value | None) -> None:
    """Weights are for sums only.  Raises Problem."""
    facts = {"attribute": "reduction", "text": reduction, "expected": "sum where there are weights"}
    require(reduction == "sum" or weights is None, codes.BAD_ATTRIBUTE, op=op, **facts)


@op
class EmbeddingBagPacked(Op):
    """The sum or mean of the rows that each row of `indices` [bags, size] names, each times its weight."""

    reduction: str = "sum"
    sig = Sig("table: T[>=1], indices: I[2], weights?: T[2] -> y: T", T=NUMERIC, I=INDEX)

    def decompose(self, b: Builder, table: Value, indices: Value, weights: Value | None = None) -> Value:
        require_plain_mean(self.name, self.reduction, weights)
        found = rows(b, table, indices, weights)
        return b.operation("ReduceMean" if self.reduction == "mean" else "ReduceSum")(found, [1], keepdims=False)

    openvino = (Form("EmbeddingBagPackedSum", 3, T=TYPES), Form("EmbeddingBagPacked", 15, attrs=REDUCTION, T=TYPES))


@op
class EmbeddingBagOffsets(Op):
    """The sum or mean of rows: bag k has the indices from `offsets[k]` up to the next offset.

    An empty bag gives the row `default`, or zeros if that is absent or negative.
    """

    reduction: str = "sum"
    sig = Sig(
        "table: T[>=1], indices: I[1], offsets: I[1], default?: I[one], weights?: T[1] -> y: T", T=NUMERIC, I=INDEX
    )

    def decompose(
        self,
        b: Builder,
        table: Value,
        indices: Value,
        offsets: Value,
        default: Value | None = None,
        weights: Value | None = None,
    ) -> Value:
        require_plain_mean(self.name, self.reduction, weights)
        places = b.Unsqueeze(counted(b, as_scalar(b, b.dims(indices.shape))), [0])
        begun = b.LessOrEqual(b.Unsqueeze(as_i64(b, offsets), [1]), places)
        bags = b.Sub(b.ReduceSum(b.Cast(begun, to=i64), [0], keepdims=False), b.const(1))
        count = as_scalar(b, b.dims(offsets.shape))
        return summed(b, table, rows(b, table, indices, weights), bags, count, default, mean=self.reduction == "mean")

    openvino = (Form("EmbeddingBagOffsetsSum", 3, T=TYPES), Form("EmbeddingBagOffsets", 15, attrs=REDUCTION, T=TYPES))


@op
class EmbeddingSegmentsSum(Op):
    """The sums of rows by segments, which `segments` numbers for each index; without `count`, up to the last one.

    An empty segment gives the row `default`, or zeros if that is absent or negative.
    """

    sig = Sig(
        "table: T[>=1], indices: I[1], segments: I[1], count?: I[one], default?: I[one], weights?: T[1] -> y: T",
        T=NUMERIC,
        I=INDEX,
    )

    def decompose(
        self,
        b: Builder,
        table: Value,
        indices: Value,
        segments: Value,
        count: Value | None = None,
        default: Value | None = None,
        weights: Value | None = None,
    ) -> Value:
        bags = as_i64(b, segments)
        if count is None:
            count = b.Add(b.ReduceMax(b.Concat(b.const([-1]), bags, axis=0), [0], keepdims=False), b.const(1))
        return summed(b, table, rows(b, table, indices, weights), bags, as_scalar(b, as_i64(b, count)), default)

    openvino = (Form("EmbeddingSegmentsSum", 3, T=TYPES),)
