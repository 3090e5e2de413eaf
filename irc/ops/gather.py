"""Reading by index: Gather, GatherElements, GatherND.

A negative index counts from the end, and an index outside the axis yields 0 (OpenVINO's Gather-8 says
so; ONNX leaves it undefined): generated code never reads out of bounds.
Sources: ONNX Gather, GatherElements, GatherND; OpenVINO specification, Gather-1/-7/-8, GatherElements-6, GatherND-5/-8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import Const, Expr, IndexFunction, Tensor, all_of, index, inside, select
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import at_most, same
from irc.ir.types import ANY, INTEGERS, TensorType, boolean, i64
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import AsInput, Int
from irc.opdef.contents import Contents
from irc.opdef.forms import Attributes, Declined, Form, write_only
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX, ONNX_ALL, OV_ANY, onnx_all
from irc.ops.compare import Less
from irc.ops.flat_places import write_element_gather, write_row_gather
from irc.ops.layout import constant_int, moved_contents, normal_axis
from irc.ops.logic import Where
from irc.ops.shape import sizes_of, zero


def normal_index(indices: Array, size: int) -> tuple[Array, Array]:
    """(indices counted from 0 and clamped, whether each is inside the axis)."""
    counted = np.asarray(indices, dtype=np.int64)
    counted = np.where(counted < 0, counted + size, counted)
    return np.clip(counted, 0, max(size - 1, 0)), (counted >= 0) & (counted < size)


def wrapped(i: Expr, size: Dim) -> Expr:
    """An index known when the model runs, counted from 0."""
    i = i.cast(i64)
    if isinstance(i, Const):
        return i if i.value >= 0 else index(size + int(i.value))
    return select(i.lt(0), i + index(size), i)


def known_inside(indices: Tensor, size: Dim) -> bool:
    """Whether constant indices are certainly inside the axis."""
    array = indices.array
    if array is None or array.size == 0:
        return False
    low, high = int(np.min(array)), int(np.max(array))
    return Dim.of(high).less_than(size) is True and (-size).at_most(low) is True


def regular_indices(array: Array, size: Dim, batch: int) -> Callable[[Sequence[Expr]], Expr] | None:
    """Compute constant indices from their places, where no table of them need be read.

    One index; or, counted from the front, start + (i // run) · step with whole runs: slices, and elements that are
    repeated equally often.
    """
    numbers = np.asarray(array, np.int64).reshape(-1)
    if numbers.size == 1:
        return lambda here: wrapped(Const(int(numbers[0]), i64), size)
    if array.ndim != 1 or batch or numbers.size == 0 or int(np.min(numbers)) < 0:
        return None
    start = int(numbers[0])
    others = np.flatnonzero(numbers != start)
    run = int(others[0]) if others.size else numbers.size
    step = int(numbers[run]) - start if others.size else 0
    if numbers.size % run or not np.array_equal(numbers, start + np.arange(numbers.size) // run * step):
        return None
    return lambda here: (here[0] // index(run) if run > 1 else here[0]) * index(step) + index(start)


def gather_by_nd(b: Builder, op: Gather, data: Value, indices: Value, axis: Value) -> Value:
    """ONNX's Gather has no batch_dims: GatherND has."""
    rank = len(data.shape)
    batch, at = op.batch(len(indices.shape)), normal_axis("Gather", constant_int("Gather", "axis", axis), rank)
    if batch == 0 and no_batch(op, data, indices, axis):  # another reason, which this cannot help
        return b.Gather(data, indices, axis)
    if batch == 0:  # an index outside gives 0 here, and is an error in ONNX
        size, numbers = int(data.shape[at]), np.asarray(indices.array)
        valid = (numbers >= -size) & (numbers < size)
        found = b.Gather(data, b.const(np.where(valid, numbers, 0), indices.dtype), axis)
        keep = b.const(valid.reshape(valid.shape + (1,) * (rank - at - 1)), boolean)
        return b.Where(keep, found, b.like(0, data))
    between, rest = list(range(batch, at)), list(range(at + 1, rank))
    if between:
        data = b.Transpose(data, [*range(batch), at, *between, *rest])
    found = b.GatherND(data, b.Unsqueeze(indices, [-1]), batch_dims=batch)
    if not between:
        return found
    here = len(indices.shape) - batch  # the result has batch, indices, between, rest; between belongs before
    order = [*range(batch), *range(batch + here, batch + here + len(between)), *range(batch, batch + here)]
    return b.Transpose(found, [*order, *range(len(order), len(order) + len(rest))])


def no_batch(op: Gather, data: Value, indices: Value, axis: Value) -> bool:
    """Whether it needs no batch_dims, and no constant index is certain to lie outside."""
    if op.batch_dims != 0:
        return False
    numbers, at = indices.ints(), axis.ints()
    size = data.shape[at[0]].const if numbers and at and data.rank else None
    return size is None or all(-size <= n < size for n in numbers or ())


def no_negative_index(op: Gather, data: Value, indices: Value, axis: Value) -> bool:
    """Whether no index counts from the end, which OpenVINO's Gather allows from opset8 on."""
    if indices.array is not None:
        return bool(np.all(indices.array >= 0))
    maker = indices.producer
    if maker is None or not isinstance(maker.op, Where):
        return False
    condition, _, same = maker.inputs  # as written below: Where(Less(i, 0), i + size, i)
    test = condition.producer if condition is not None else None
    return test is not None and isinstance(test.op, Less) and test.inputs[0] is same


def write_positive_indices(b: Builder, op: Gather, data: Value, indices: Value, axis: Value) -> Value:
    """OpenVINO before opset8: the size of the axis is added to a negative index."""
    at = constant_int("Gather", "axis", axis) % len(data.shape)
    if no_negative_index(op, data, indices, axis):
        raise Declined
    size = data.shape[at]
    if indices.array is not None and size.is_const:
        given, n = indices.array.astype(np.int64), int(size)
        found = np.where(given < -n, n, np.where(given < 0, given + n, given))  # what is outside stays outside
        return b.Gather(data, b.const(found, indices.dtype), axis, batch_dims=op.batch_dims)
    whole = b.const(int(size), indices.dtype) if size.is_const else b.Cast(sizes_of(b, data, [at]), to=indices.dtype)
    found = b.Where(b.Less(indices, b.const(0, indices.dtype)), b.Add(indices, whole), indices)
    return b.Gather(data, found, axis, batch_dims=op.batch_dims)


@op
class Gather(Op):
    """Slices of `data` along `axis`, picked by `indices`; the first `batch_dims` axes of both go together."""

    batch_dims: int = 0
    sig = Sig("data: T[>=1], indices: I, axis: A[one] -> y: T", T=ANY, I=INTEGERS, A=INTEGERS)
    carries_contents = modular = True
    whole_floats = True

    def batch(self, rank: int) -> int:
        """batch_dims counted from 0, for indices of that rank."""
        return self.batch_dims + rank if self.batch_dims < 0 else self.batch_dims

    def infer(self, data: Value, indices: Value, axis: Value) -> TensorType:
        if data.rank is None or indices.rank is None:
            return TensorType(data.dtype, None)
        at = normal_axis("Gather", constant_int("Gather", "axis", axis), len(data.shape))
        batch = self.batch(len(indices.shape))
        facts = {"op": "Gather", "attribute": "batch_dims", "value": self.batch_dims}
        fits = 0 <= batch <= min(at, len(indices.shape))
        expected = f"at most the axis ({at}) and the rank of the indices"
        require(fits, operation.ATTRIBUTE_RANGE, **facts, expected=expected)
        lead: list[Dim] = []
        for k in range(batch):
            p, q = data.shape[k], indices.shape[k]
            require(same(p, q), codes.SIZES_DIFFER, op="Gather", what=f"batch axis {k} of data and indices", a=p, b=q)
            lead.append(q if q.is_const else p)
        return TensorType(data.dtype, (*lead, *data.shape[batch:at], *indices.shape[batch:], *data.shape[at + 1 :]))

    def reference(self, data: Array, indices: Array, axis: Array) -> Array:
        at = int(np.asarray(axis).reshape(-1)[0]) % data.ndim
        batch = self.batch_dims + indices.ndim if self.batch_dims < 0 else self.batch_dims
        where, valid = normal_index(indices, data.shape[at])
        if data.shape[at] == 0:
            shape = (*data.shape[:at], *indices.shape[batch:], *data.shape[at + 1 :])
            return np.zeros(shape, data.dtype)
        if batch == 0:
            found = np.take(data, where, axis=at)
            mask = valid.reshape(valid.shape + (1,) * (data.ndim - at - 1))
        else:
            lead = data.shape[:batch]
            rows = data.reshape((math.prod(lead), *data.shape[batch:]))
            picks = where.reshape((math.prod(lead), *where.shape[batch:]))
            parts = [np.take(row, pick, axis=at - batch) for row, pick in zip(rows, picks)]
            tail = (*data.shape[batch:at], *indices.shape[batch:], *data.shape[at + 1 :])
            found = np.stack(parts).reshape(lead + tail) if parts else np.zeros(lead + tail, data.dtype)
            ones = (1,) * (at - batch)
            mask = valid.reshape(valid.shape[:batch] + ones + valid.shape[batch:] + (1,) * (data.ndim - at - 1))
        return found if valid.all() else np.where(mask, found, data.dtype.type(0))

    def contents(self, data: Array, indices: Array, axis: Array) -> Contents:
        return moved_contents(self, data, indices, axis)

    def compute(self, out: TensorType, data: Tensor, indices: Tensor, axis: Tensor) -> IndexFunction:
        at = (axis.ints() or [0])[0] % data.rank
        batch, size = self.batch(indices.rank), data.shape[at]
        sure = known_inside(indices, size)
        constant = indices.array
        regular = None if constant is None else regular_indices(constant, size, batch)
        forward = constant is not None and constant.size > 0 and int(np.min(constant)) >= 0

        def element(*i: Expr) -> Expr:
            here = i[at : at + indices.rank - batch]
            rest = i[at + len(here) :]
            if regular is not None:
                k = regular(here)
            else:
                pick = indices[(*i[:batch], *here)]
                k = pick.cast(i64) if forward else wrapped(pick, size)
            found = data[(*i[:at], k, *rest)]
            return found if sure else select(inside(k, size), found, zero(out.dtype))

        return element

    onnx = (
        Form(
            "Gather",
            1,
            attrs={"axis": AsInput(0, index=2, dtype=i64, scalar=True)},
            T={"T": ONNX_ALL, "I": INDEX},
            write=gather_by_nd,
            when=no_batch,
        ),
        Form("Gather", 11),
        Form("Gather", 13, T={"T": onnx_all(13)}),
    )
    openvino = (
        Form("Gather", 1, T={"T": OV_ANY}, when=no_negative_index, write=write_positive_indices),
        Form("Gather", 7, attrs={"batch_dims": Int(0)}),
        Form("Gather", 8, when=None, write=None),
    )


def larger_axes(op: GatherElements, data: Value, indices: Value) -> list[int]:
    """The axes, but for the one that is picked from, in which the data are known to be larger than the indices."""
    if data.rank is None or indices.rank is None:
        return []
    sizes = enumerate(zip(data.shape, indices.shape, strict=False))
    return [k for k, (p, q) in sizes if k != op.axis % data.rank and p.is_const and q.is_const and int(p) != int(q)]


def same_sizes(op: GatherElements, data: Value, indices: Value) -> bool:
    """OpenVINO wants data and indices of the same sizes in every other axis."""
    return not larger_axes(op, data, indices)


def write_cut(b: Builder, op: GatherElements, data: Value, indices: Value) -> Value:
    """OpenVINO: from the part of the data that indices of these sizes reach."""
    axes = larger_axes(op, data, indices)
    reached = b.Slice(data, [0] * len(axes), [int(indices.shape[k]) for k in axes], axes)
    return b.GatherElements(reached, indices, axis=op.axis)


@op
class GatherElements(Op):
    """y[i, j, …] = data[…, indices[i, j, …], …]: each element of `indices` picks along `axis`."""

    axis: int = 0
    sig = Sig("data: T[r>=1], indices: I[r] -> y: T", T=ANY, I=INDEX)

    def infer(self, data: Value, indices: Value) -> TensorType:
        if data.rank is None or indices.rank is None:
            return TensorType(data.dtype, indices.tensor.shape)
        axis = normal_axis("GatherElements", self.axis, len(data.shape))
        facts = {"op": "GatherElements", "operand": "indices", "type": indices.tensor}
        require(data.rank == indices.rank, codes.WRONG_RANK, **facts, expected=data.rank)
        for k, (p, q) in enumerate(zip(data.shape, indices.shape, strict=True)):
            what = f"size of axis {k} of the indices"
            fits = k == axis or at_most(q, p)
            require(fits, codes.SIZE_RANGE, op="GatherElements", what=what, value=q, expected=f"at most {p}")
        return TensorType(data.dtype, indices.shape)

    def reference(self, data: Array, indices: Array) -> Array:
        axis = self.axis % data.ndim
        where, valid = normal_index(indices, data.shape[axis])
        if data.shape[axis] == 0:
            return np.zeros(indices.shape, data.dtype)
        places: list[Array] = list(np.indices(indices.shape, sparse=True))  # pyright: ignore
        places[axis] = where
        found = data[tuple(places)]
        return found if valid.all() else np.where(valid, found, data.dtype.type(0))

    def compute(self, out: TensorType, data: Tensor, indices: Tensor) -> IndexFunction:
        axis = self.axis % data.rank
        sure = known_inside(indices, data.shape[axis])

        def element(*i: Expr) -> Expr:
            k = wrapped(indices[i], data.shape[axis])
            found = data[(*i[:axis], k, *i[axis + 1 :])]
            return found if sure else select(inside(k, data.shape[axis]), found, zero(out.dtype))

        return element

    onnx = (
        Form("GatherElements", 11, attrs={"axis": Int(0)}, T={"T": ONNX_ALL, "I": INDEX}),
        Form("GatherElements", 13, T={"T": onnx_all(13)}),
        write_only(write_element_gather),
    )
    openvino = (
        Form("GatherElements", 6, attrs={"axis": Int(assumed=0)}, T={"T": OV_ANY}, when=same_sizes, write=write_cut),
    )


def read_gather_nd_5(b: Builder, a: Attributes, data: Value, indices: Value) -> Value:
    """GatherND-5 makes one axis of several batch axes."""
    found = b.GatherND(data, indices, batch_dims=a.batch_dims)
    if a.batch_dims < 2:
        return found
    rest = list(range(a.batch_dims, len(found.shape)))
    sizes = sizes_of(b, found, rest) if rest else b.const(np.zeros(0))
    return b.Reshape(found, b.Concat(b.const([-1]), sizes, axis=0), special_zero=False)


def one_batch_axis(op: GatherND, data: Value, indices: Value) -> bool:
    return op.batch_dims < 2


@op
class GatherND(Op):
    """Slices of `data` picked by the vectors that the last axis of `indices` holds, one per batch position."""

    batch_dims: int = 0
    sig = Sig("data: T[>=1], indices: I[>=1] -> y: T", T=ANY, I=INTEGERS)

    def _depth(self, indices: Value | Tensor | Array) -> int:
        return int(indices.shape[-1])

    def infer(self, data: Value, indices: Value) -> TensorType:
        if data.rank is None or indices.rank is None:
            return TensorType(data.dtype, None)
        rank = len(indices.shape)
        require(rank > 0, codes.WRONG_RANK, op="GatherND", operand="indices", type=indices.tensor, expected="1 or more")
        batch, depth = self.batch_dims, indices.shape[-1].const
        require(depth is not None, operation.NEEDS_CONSTANT, op="GatherND", operand="last size of indices")
        fits = 0 <= batch < rank and batch <= len(data.shape)
        facts = {"op": "GatherND", "attribute": "batch_dims", "value": batch}
        require(fits, operation.ATTRIBUTE_RANGE, **facts, expected=f"in 0..{rank - 1}")
        what, most = "the last size of indices", len(data.shape) - batch
        fits = (depth or 0) <= most
        require(fits, codes.SIZE_RANGE, op="GatherND", what=what, value=depth, expected=f"at most {most}")
        lead: list[Dim] = []
        for k, (p, q) in enumerate(zip(data.shape[:batch], indices.shape[:batch], strict=True)):
            what = f"batch axis {k} of data and indices"
            require(same(p, q), codes.SIZES_DIFFER, op="GatherND", what=what, a=p, b=q)
            lead.append(q if q.is_const else p)
        return TensorType(data.dtype, (*lead, *indices.shape[batch:-1], *data.shape[batch + (depth or 0) :]))

    def reference(self, data: Array, indices: Array) -> Array:
        batch, depth = self.batch_dims, indices.shape[-1]
        tail = data.shape[batch + depth :]
        shape = (*indices.shape[:-1], *tail)
        if 0 in data.shape[batch : batch + depth]:
            return np.zeros(shape, data.dtype)
        places = [p[..., 0] for p in np.indices((*indices.shape[:-1], 1), sparse=True)[:batch]]
        valid = np.ones(indices.shape[:-1], bool)
        for k in range(depth):
            where, ok = normal_index(indices[..., k], data.shape[batch + k])
            places.append(where)
            valid &= ok
        found = data[tuple(places)] if places else np.broadcast_to(data, shape)
        found = np.broadcast_to(found, shape)
        if valid.all():
            return np.ascontiguousarray(found)
        return np.where(valid.reshape(valid.shape + (1,) * len(tail)), found, data.dtype.type(0))

    def compute(self, out: TensorType, data: Tensor, indices: Tensor) -> IndexFunction:
        batch, depth = self.batch_dims, self._depth(indices)
        lead = indices.rank - 1

        def element(*i: Expr) -> Expr:
            here, rest = i[:lead], i[lead:]
            picks: list[Expr] = [wrapped(indices[(*here, k)], data.shape[batch + k]) for k in range(depth)]
            ok = all_of(inside(p, data.shape[batch + k]) for k, p in enumerate(picks))
            return select(ok, data[(*here[:batch], *picks, *rest)], zero(out.dtype))

        return element

    onnx = (
        Form("GatherND", 11, T={"T": ONNX_ALL, "I": {i64}}),
        Form("GatherND", 12, attrs={"batch_dims": Int(0)}),
        Form("GatherND", 13, T={"T": onnx_all(13)}),
        write_only(write_row_gather),
    )
    openvino = (
        Form(
            "GatherND",
            5,
            attrs={"batch_dims": Int(0)},
            T={"T": OV_ANY},
            read=read_gather_nd_5,
            direct=True,
            when=one_batch_axis,
        ),
        Form("GatherND", 8, read=None, when=None),
    )
