"""Elements in another order along an axis: Reverse, ReverseSequence, Roll.

Sources: ONNX ReverseSequence; OpenVINO specification, Reverse-1, ReverseSequence-1, Roll-7.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irc.diagnostics import Facts, require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import Expr, IndexFunction, Tensor, index, select
from irc.ir.graph import Value
from irc.ir.relation import any_of, same
from irc.ir.types import ANY, NUMERIC, TensorType, i64
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Enum, Int
from irc.opdef.conversions import as_i64
from irc.opdef.forms import Form
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX, ONNX_ALL, OV_ANY, onnx_all
from irc.ops.layout import constant_ints, normal_axes, normal_axis
from irc.ops.slice import LARGEST


@op
class Reverse(Op):
    """The elements in opposite order along some axes; mode "mask" names them by a boolean per axis."""

    mode: str = "index"
    sig = Sig("x: T, axes: A[1] -> y: T", T=ANY, A=ANY)

    def _axes(self, rank: int, axes: Value) -> list[int]:
        array = axes.array
        require(array is not None, operation.NEEDS_CONSTANT, op="Reverse", operand="axes")
        given = np.asarray(array).reshape(-1)
        named = np.nonzero(given)[0].tolist() if self.mode == "mask" else [int(a) for a in given]
        return list(normal_axes("Reverse", named, rank))

    def infer(self, x: Value, axes: Value) -> TensorType:
        return x.tensor

    def reference(self, x: Array, axes: Array) -> Array:
        given = np.asarray(axes).reshape(-1)
        named = np.nonzero(given)[0] if self.mode == "mask" else given
        return np.flip(x, tuple(int(a) for a in named))

    def decompose(self, b: Builder, x: Value, axes: Value) -> Value:
        named = self._axes(len(x.shape), axes)
        n = len(named)
        return b.Slice(x, [LARGEST] * n, [-LARGEST] * n, named, [-1] * n) if named else b.Identity(x)

    openvino = (Form("Reverse", 1, T={"T": OV_ANY}, attrs={"mode": Enum(["index", "mask"], assumed="index")}, last=3),)


def rolled(b: Builder, x: Value, shift: Value, axis: int) -> Value:
    """x rolled along one axis by an i64 scalar: element i is element (i - shift) mod size."""
    size = b.Reshape(b.dims([x.shape[axis]]), [])
    places = b.Mod(b.Sub(b.Range(b.const(0), size, b.const(1)), shift), size)
    return b.Gather(x, places, b.const(axis))


@op
class Roll(Op):
    """The elements shifted along axes, those that leave at the end coming back at the start."""

    sig = Sig("x: T, shift: I[0..1], axes: A[0..1] -> y: T", T=ANY, I=INDEX, A=INDEX)

    def infer(self, x: Value, shift: Value, axes: Value) -> TensorType:
        if shift.rank is not None and axes.rank is not None:
            count, wanted = shift.tensor.elements(), axes.tensor.elements()
            facts: Facts = {"what": "the number of shifts and of axes", "a": count, "b": wanted}
            require(any_of(same(count, 1), same(count, wanted)), codes.SIZES_DIFFER, op="Roll", **facts)
        if x.rank is not None:
            for axis in axes.ints() or ():
                normal_axis("Roll", axis, x.rank)
        return x.tensor

    def reference(self, x: Array, shift: Array, axes: Array) -> Array:
        named = [int(a) for a in np.asarray(axes).reshape(-1)]
        by = [int(s) for s in np.asarray(shift).reshape(-1)]
        return np.roll(x, by * len(named) if len(by) == 1 else by, tuple(named))

    def decompose(self, b: Builder, x: Value, shift: Value, axes: Value) -> Value:
        """For every axis, the end before the start; picked by index where size or shift vary."""
        named = [normal_axis("Roll", a, len(x.shape)) for a in constant_ints("Roll", "axes", axes)]
        by = shift.ints()
        if by is None:
            return self._picked(b, x, shift, named)
        by = by * len(named) if len(by) == 1 else by
        total: dict[int, int] = {}
        for axis, s in zip(named, by, strict=True):
            total[axis] = total.get(axis, 0) + s
        found = x
        for axis, s in total.items():
            size = x.shape[axis].const
            if size is None and s:
                found = rolled(b, found, b.const(s), axis)
            elif size and s % size:
                tail = b.Slice(found, [-(s % size)], [LARGEST], [axis])
                found = b.Concat(tail, b.Slice(found, [0], [-(s % size)], [axis]), axis=axis)
        return found if found is not x else b.Identity(x)

    def _picked(self, b: Builder, x: Value, shift: Value, axes: Sequence[int]) -> Value:
        """For shifts that are known when the model runs: one for each axis, or one for all of them."""
        shift = as_i64(b, shift)
        last = shift.tensor.elements() - 1
        found = x
        for k, axis in enumerate(axes):
            place = b.Reshape(b.dims([last.minimum(k)]), [])
            by = b.Reshape(shift, []) if last == 0 else b.Gather(shift, place, b.const(0))
            found = rolled(b, found, by, axis)
        return found if found is not x else b.Identity(x)

    openvino = (Form("Roll", 7, T={"T": OV_ANY}),)


def first_two(op: ReverseSequence, x: Value, lengths: Value) -> bool:
    """ONNX knows batch and time as the first two axes only."""
    rank = len(x.shape)
    return {op.batch_axis % rank, op.time_axis % rank} == {0, 1} and min(op.batch_axis, op.time_axis) >= 0


def write_first_two(b: Builder, op: ReverseSequence, x: Value, lengths: Value) -> Value:
    """Batch and time moved to the front, and back afterwards."""
    rank = len(x.shape)
    batch, time = op.batch_axis % rank, op.time_axis % rank
    order = [batch, time, *(k for k in range(rank) if k not in (batch, time))]
    lengths = as_i64(b, lengths)
    if order == list(range(rank)):
        return b.ReverseSequence(x, lengths, batch_axis=0, time_axis=1)
    moved = b.ReverseSequence(b.Transpose(x, order), lengths, batch_axis=0, time_axis=1)
    return b.Transpose(moved, [order.index(k) for k in range(rank)])


@op
class ReverseSequence(Op):
    """For every index n of the batch axis, the first lengths[n] elements along the time axis in opposite order."""

    batch_axis: int
    time_axis: int
    sig = Sig("x: T[>=2], lengths: L[1] -> y: T", T=ANY, L=NUMERIC)

    def infer(self, x: Value, lengths: Value) -> TensorType:
        if x.rank is None:
            return x.tensor
        batch, time = (normal_axis("ReverseSequence", a, x.rank) for a in (self.batch_axis, self.time_axis))
        facts: Facts = {"op": "ReverseSequence", "attribute": "time_axis", "value": self.time_axis}
        require(batch != time, operation.ATTRIBUTE_RANGE, **facts, expected="another axis than batch_axis")
        if lengths.rank is not None:
            vector = len(lengths.shape) == 1
            require(vector, codes.WRONG_RANK, op="ReverseSequence", operand="lengths", type=lengths.tensor, expected=1)
            what, a, c = "batch size and number of lengths", x.shape[batch], lengths.shape[0]
            require(same(a, c), codes.SIZES_DIFFER, op="ReverseSequence", what=what, a=a, b=c)
        return x.tensor

    def reference(self, x: Array, lengths: Array) -> Array:
        batch, time = self.batch_axis % x.ndim, self.time_axis % x.ndim
        size = x.shape[time]
        until = lengths.astype(np.int64).reshape(-1, 1)
        t: Array = np.arange(size).reshape(1, -1)  # pyright: ignore
        order: Array = np.where(t < until, until - 1 - t, t).clip(0, max(size - 1, 0))  # pyright: ignore
        order = order if batch < time else order.T
        shape = [1] * x.ndim
        shape[batch], shape[time] = x.shape[batch], size
        return np.take_along_axis(x, order.reshape(shape), axis=time)

    def compute(self, out: TensorType, x: Tensor, lengths: Tensor) -> IndexFunction:
        batch, time = self.batch_axis % x.rank, self.time_axis % x.rank

        def element(*i: Expr) -> Expr:
            until, t = lengths[i[batch]].cast(i64), i[time]
            source = select(t.lt(until), until - 1 - t, t).min(index(x.shape[time] - 1))
            return x[(*i[:time], source, *i[time + 1 :])]

        return element

    onnx = (
        Form(
            "ReverseSequence",
            10,
            attrs={"batch_axis": Int(1), "time_axis": Int(0)},
            T={"T": ONNX_ALL, "L": {i64}},
            when=first_two,
            write=write_first_two,
        ),
        Form("ReverseSequence", 28, T={"T": onnx_all(13)}),
    )
    openvino = (
        Form(
            "ReverseSequence",
            1,
            attrs={"batch_axis": Int(0), "seq_axis": Int(1, to="time_axis")},
            T={"T": OV_ANY, "L": NUMERIC},
        ),
    )
