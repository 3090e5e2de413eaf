"""Sequences of tensors.  C has each as two tensors (`irc.passes.pack_sequences`); in NumPy modules they are lists."""

from __future__ import annotations

from typing import Any

import numpy as np

from irc.arrays import Array
from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import ANY, DType, SequenceType, TensorType, bf16, f32, i64
from irc.opdef.base import Op, op
from irc.opdef.codecs import Bool, DTypeAttr, Int
from irc.opdef.forms import Form
from irc.opdef.regions import join
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX, ONNX_ALL
from irc.ops.layout import normal_axis


def element_of(op: str, value: Value) -> TensorType:
    """Find the type of a sequence's elements; their sizes may differ.  Raises Problem for what is no sequence."""
    type = value.type
    found = type.element if isinstance(type, SequenceType) else None
    require(isinstance(found, TensorType), codes.NOT_A_SEQUENCE, op=op, type=type)
    assert isinstance(found, TensorType)
    return found


def one_of(op: str, value: Value) -> TensorType:
    """Find the type of one element of a sequence: sizes that may differ are new symbols."""
    element = element_of(op, value)
    if element.shape is None:
        return element
    return element.with_shape(d if d.is_const else Dim.fresh("element") for d in element.shape)


@op
class SequenceEmpty(Op):
    """A sequence without elements."""

    dtype: DType = f32
    sig = Sig(" -> y: any")

    def infer(self) -> SequenceType:
        return SequenceType(TensorType(self.dtype, None), empty=True)

    def reference(self) -> Any:
        return []

    onnx = (Form("SequenceEmpty", 11, attrs={"dtype": DTypeAttr(f32)}),)


@op
class SequenceConstruct(Op):
    """The operands as a sequence."""

    sig = Sig("*xs: T -> y: any", T=ANY)

    def infer(self, *xs: Value) -> SequenceType:
        found = SequenceType(xs[0].tensor)
        for x in xs[1:]:
            joined = join("SequenceConstruct", found, SequenceType(x.tensor), "element")
            assert isinstance(joined, SequenceType)
            found = joined
        return found

    def reference(self, *xs: Array) -> Any:
        return list(xs)

    onnx = (Form("SequenceConstruct", 11, T=ONNX_ALL),)


@op
class SequenceInsert(Op):
    """The sequence with x in front of the element at `position`; without one, behind all."""

    sig = Sig("sequence: any, x: T, position?: I[one] -> y: any", T=ANY, I=INDEX)

    def infer(self, sequence: Value, x: Value, position: Value | None = None) -> SequenceType:
        element_of("SequenceInsert", sequence)
        assert sequence.type is not None
        found = join("SequenceInsert", sequence.type, SequenceType(x.tensor), "element")
        assert isinstance(found, SequenceType)
        return found

    def reference(self, sequence: Any, x: Array, position: Array | None = None) -> Any:
        place = len(sequence) if position is None else int(np.asarray(position).reshape(-1)[0])
        if not -len(sequence) <= place <= len(sequence):
            raise IndexError(f"position {place} of a sequence of {len(sequence)}")
        place = place + len(sequence) if place < 0 else place
        return [*sequence[:place], x, *sequence[place:]]

    onnx = (Form("SequenceInsert", 11, T={"T": ONNX_ALL, "I": INDEX}),)


@op
class SequenceErase(Op):
    """The sequence without the element at `position`, by default the last one."""

    sig = Sig("sequence: any, position?: I[one] -> y: any", I=INDEX)

    def infer(self, sequence: Value, position: Value | None = None) -> SequenceType:
        return SequenceType(element_of("SequenceErase", sequence))

    def reference(self, sequence: Any, position: Array | None = None) -> Any:
        place = -1 if position is None else int(np.asarray(position).reshape(-1)[0])
        if not -len(sequence) <= place < len(sequence):
            raise IndexError(f"position {place} of a sequence of {len(sequence)}")
        place = place + len(sequence) if place < 0 else place
        return [*sequence[:place], *sequence[place + 1 :]]

    onnx = (Form("SequenceErase", 11, T={"I": INDEX}),)


@op
class SequenceAt(Op):
    """The element at `position`, which counts from the end if it is negative."""

    sig = Sig("sequence: any, position: I[one] -> y: T", T=ANY, I=INDEX)

    def infer(self, sequence: Value, position: Value) -> TensorType:
        return one_of("SequenceAt", sequence)

    def reference(self, sequence: Any, position: Array) -> Any:
        place = int(np.asarray(position).reshape(-1)[0])
        if not -len(sequence) <= place < len(sequence):
            raise IndexError(f"position {place} of a sequence of {len(sequence)}")
        return sequence[place]

    onnx = (Form("SequenceAt", 11, T={"T": ONNX_ALL, "I": INDEX}),)


@op
class SequenceLength(Op):
    """The number of elements."""

    sig = Sig("sequence: any -> y: i64")

    def infer(self, sequence: Value) -> TensorType:
        element_of("SequenceLength", sequence)
        return TensorType.of(i64, ())

    def reference(self, sequence: Any) -> Array:
        return np.array(len(sequence), np.int64)

    onnx = (Form("SequenceLength", 11),)


@op
class ConcatFromSequence(Op):
    """The elements behind each other along an axis, a new one if `new_axis`."""

    axis: int
    new_axis: bool = False
    sig = Sig("sequence: any -> y: T", T=ANY)

    def infer(self, sequence: Value) -> TensorType:
        element = element_of("ConcatFromSequence", sequence)
        if element.shape is None:
            return element
        shape = list(one_of("ConcatFromSequence", sequence).dims())
        axis = normal_axis("ConcatFromSequence", self.axis, len(shape) + self.new_axis)
        if self.new_axis:
            shape.insert(axis, Dim.fresh("elements"))
        else:
            shape[axis] = Dim.fresh("elements")
        return element.with_shape(shape)

    def reference(self, sequence: Any) -> Array:
        return np.stack(sequence, self.axis) if self.new_axis else np.concatenate(sequence, self.axis)

    onnx = (Form("ConcatFromSequence", 11, attrs={"axis": Int(), "new_axis": Bool(False)}, T=ONNX_ALL),)


@op
class SplitToSequence(Op):
    """x cut along an axis: into parts of the sizes in `split`, of its one size, or of single elements.

    keepdims: without `split`, whether the parts keep the axis.
    """

    axis: int = 0
    keepdims: bool = True
    sig = Sig("x: T[>=1], split?: I[0..1] -> y: any", T=ANY, I=INDEX)

    def infer(self, x: Value, split: Value | None = None) -> SequenceType:
        axis = normal_axis("SplitToSequence", self.axis, len(x.shape))
        if split is None:
            shape = [Dim.of(1) if k == axis else d for k, d in enumerate(x.shape) if k != axis or self.keepdims]
            return SequenceType(x.tensor.with_shape(shape))
        return SequenceType(x.tensor.with_dim(axis, Dim.fresh("part", x.shape[axis])))

    def reference(self, x: Array, split: Array | None = None) -> Any:
        size = x.shape[self.axis]
        if split is None:
            parts = np.split(x, size, self.axis) if size else []
            return parts if self.keepdims else [np.squeeze(p, self.axis) for p in parts]
        if split.ndim == 0:
            if split <= 0:
                raise ValueError(f"parts of {int(split)} elements")
            return np.split(x, range(int(split), size, int(split)), self.axis)
        if int(split.sum()) != size or (split < 0).any():
            raise ValueError(f"parts of {split.tolist()} elements of {size}")
        return np.split(x, np.cumsum(split)[:-1], self.axis)

    onnx = (
        Form("SplitToSequence", 11, attrs={"axis": Int(0), "keepdims": Bool(True)}, T={"T": ONNX_ALL, "I": INDEX}),
        Form("SplitToSequence", 24, T={"T": ONNX_ALL | {bf16}, "I": INDEX}),
    )
