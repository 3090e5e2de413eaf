"""Updates of a cache along its sequence: TensorScatter.

Source: ONNX TensorScatter.
"""

from __future__ import annotations

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import Expr, IndexFunction, Tensor, index, inside, select
from irc.ir.graph import Value
from irc.ir.relation import at_most, same
from irc.ir.types import ANY, TensorType
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Enum, Int
from irc.opdef.forms import Form, write_only
from irc.opdef.signature import Sig
from irc.opdef.typesets import onnx_all
from irc.ops.layout import normal_axis


def write_scatter(b: Builder, op: TensorScatter, past: Value, update: Value, start: Value | None = None) -> Value:
    """By the index of each element along the axis."""
    axis = op.along(len(past.shape))
    length, batch = b.dims([update.shape[axis]]), b.dims([update.shape[0]])
    place = b.Range(b.const(0), b.Reshape(length, []), b.const(1))
    if start is not None:
        place = b.Add(place, b.Unsqueeze(start, [1]))
    if op.circular:
        place = b.Mod(place, b.Reshape(b.dims([past.shape[axis]]), []))
    ones = [1] * (len(past.shape) - axis - 1)
    sizes = b.Concat(
        batch if start is not None else b.const([1]), b.const([1] * (axis - 1)), length, b.const(ones), axis=0
    )
    indices = b.Expand(b.Reshape(place, sizes, special_zero=False), b.Shape(update))
    return b.ScatterElements(past, indices, update, b.const(axis))


@op
class TensorScatter(Op):
    """past with `update` in the place of a part of `axis`, which begins at `start`[batch] (absent: at 0).

    What goes beyond the end continues at 0 if `circular`; else it is dropped.
    """

    axis: int = -2
    circular: bool = False
    sig = Sig("past: T[r>=2], update: T[r], start?: i64[1] -> y: T", T=ANY)

    def along(self, rank: int) -> int:
        """The axis, counted from 0."""
        axis = normal_axis(self.name, self.axis, rank)
        expected = "not the axis of the batch"
        require(axis != 0, operation.ATTRIBUTE_RANGE, op=self.name, attribute="axis", value=0, expected=expected)
        return axis

    def infer(self, past: Value, update: Value, start: Value | None = None) -> TensorType:
        axis = self.along(len(past.shape))
        for k, (a, b) in enumerate(zip(past.shape, update.shape, strict=True)):
            if k == axis:
                facts = {"op": self.name, "what": f"axis {k} of the update", "value": b}
                require(at_most(b, a), codes.SIZE_RANGE, **facts, expected=f"at most {a}")
            else:
                what = f"axis {k} of the tensor and the update"
                require(same(a, b), codes.SIZES_DIFFER, op=self.name, what=what, a=a, b=b)
        if start is not None:
            what, a, b = "batch sizes of the tensor and write_indices", past.shape[0], start.shape[0]
            require(same(a, b), codes.SIZES_DIFFER, op=self.name, what=what, a=a, b=b)
        return past.tensor

    def reference(self, past: Array, update: Array, start: Array | None = None) -> Array:
        axis = self.axis % past.ndim
        y, source = np.moveaxis(past.copy(), axis, 1), np.moveaxis(update, axis, 1)
        size = y.shape[1]
        counted = np.arange(source.shape[1], dtype=np.int64)
        for batch in range(y.shape[0]):
            first = 0 if start is None else int(start[batch])
            if self.circular:
                y[batch, (first % max(size, 1) + counted) % max(size, 1)] = source[batch]
            else:
                chosen = (counted >= -first) & (counted < size - first)
                y[batch, first + counted[chosen]] = source[batch, chosen]
        return np.moveaxis(y, 1, axis)

    def compute(self, out: TensorType, past: Tensor, update: Tensor, start: Tensor | None = None) -> IndexFunction:
        axis = self.along(past.rank)
        size = past.shape[axis]

        def element(*i: Expr) -> Expr:
            place = i[axis] if start is None else i[axis] - start[i[0]]
            if self.circular and start is not None:
                place = (i[axis] + index(size) - start[i[0]] % index(size)) % index(size)
            there = inside(place, update.shape[axis])
            return select(there, update[(*i[:axis], place, *i[axis + 1 :])], past[i])

        return element

    onnx = (
        write_only(write_scatter, since=13),
        Form(
            "TensorScatter",
            24,
            attrs={"mode": Enum({"linear": False, "circular": True}, False, to="circular"), "axis": Int(-2)},
            T={"T": onnx_all(24)},
        ),
    )
    openvino = (write_only(write_scatter, since=3),)
