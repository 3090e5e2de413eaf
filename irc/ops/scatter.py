"""Writing by index: ScatterElements, ScatterND, ScatterUpdate.

A negative index counts from the end; an update outside the data is dropped.  Updates are applied in
row-major order, so that of several for one element the last stays.
Sources: ONNX Scatter, ScatterElements, ScatterND; OpenVINO specification, ScatterElementsUpdate-3/-12,
ScatterNDUpdate-4/-15, ScatterUpdate-3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import Const, Expr, Tensor, Var, all_of, inside
from irc.ir.dim import DimLike, product
from irc.ir.graph import Value
from irc.ir.relation import at_most, same
from irc.ir.types import ANY, INTEGERS, DType, TensorType, i64
from irc.loops.builder import LoopBuilder, seen_as
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import AsInput, Bool, Enum
from irc.opdef.conversions import as_i64, as_scalar
from irc.opdef.forms import Form, write_only
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX, ONNX_ALL, OV_ANY, onnx_all
from irc.ops.gather import normal_index, wrapped
from irc.ops.layout import constant_int, normal_axis
from irc.ops.scatter_matrix import neutral, write_elements_by_matrix, write_slices
from irc.ops.shape import one, zero

ONNX_16 = Enum(["none", "add", "mul"], "none")
ONNX_18 = Enum(["none", "add", "mul", "max", "min"], "none")
OV_12 = Enum({"none": "none", "sum": "add", "prod": "mul", "min": "min", "max": "max", "mean": "mean"}, "none")
OV_15 = Enum({"none": "none", "sum": "add", "sub": "sub", "prod": "mul", "min": "min", "max": "max"}, "none")


def scattered(y: Array, places: tuple[Array, ...], updates: Array, reduction: str, use_init: bool) -> Array:
    """`updates` applied in place to the elements of y at `places`, in order."""
    if reduction == "none":
        y[places] = updates
        return y
    if not use_init:
        y[places] = neutral(reduction, y.dtype)
    if reduction == "mean":
        count = np.zeros(y.shape, np.int64)
        np.add.at(count, places, 1)
        np.add.at(y, places, updates)
        number = np.maximum(count + (1 if use_init else 0), 1)
        mean = np.floor_divide(y, number) if y.dtype.kind in "iu" else y / number
        return np.where(count > 0, mean, y).astype(y.dtype)
    if reduction == "add":
        np.add.at(y, places, updates)
    elif reduction == "sub":
        np.subtract.at(y, places, updates)
    elif reduction == "mul":
        np.multiply.at(y, places, updates)
    elif reduction == "min":
        np.minimum.at(y, places, updates)
    else:
        np.maximum.at(y, places, updates)
    return y


def combined(reduction: str, old: Expr, new: Expr) -> Expr:
    """One update as an expression."""
    match reduction:
        case "none":
            return new
        case "add" | "mean":
            return old + new
        case "sub":
            return old - new
        case "mul":
            return old * new
        case "min":
            return old.min(new)
        case _:
            return old.max(new)


def neutral_const(reduction: str, dtype: DType) -> Const:
    if reduction in ("add", "sub", "mean"):
        return zero(dtype)
    if reduction == "mul":
        return one(dtype)
    found = neutral(reduction, dtype.numpy)
    return Const(int(found) if dtype.is_integer else float(found), dtype)


# ------------------------------------------------------------------------------ ScatterElements
def write_elements(b: Builder, op: ScatterElements, data: Value, indices: Value, updates: Value, axis: Value) -> Value:
    """Mean, and reductions that leave the data's own value out, in terms of the other reductions."""
    shape = b.Shape(updates)
    if not op.use_init and op.reduction != "none":
        start = b.const(neutral(op.reduction, data.dtype.numpy), data.dtype)
        data = b.ScatterElements(data, indices, b.Expand(start, shape), axis)
    if op.reduction != "mean":
        return b.ScatterElements(data, indices, updates, axis, reduction=op.reduction)
    total = b.ScatterElements(data, indices, updates, axis, reduction="add")
    nothing = b.Expand(b.like(0, data), b.Shape(data))
    count = b.ScatterElements(nothing, indices, b.Expand(b.like(1, data), shape), axis, reduction="add")
    number = b.Add(count, b.like(1, data)) if op.use_init else b.Max(count, b.like(1, data))
    mean = b.Div(total, number)
    if not data.dtype.is_integer:
        return mean
    below = b.Less(b.Sub(total, b.Mul(mean, number)), b.like(0, data))  # division truncates, the mean rounds down
    return b.Sub(mean, b.Cast(below, to=data.dtype))


@op
class ScatterElements(Op):
    """data with updates[i, j, …] put at [i, …, indices[i, j, …], …]: the index replaces the one along `axis`.

    reduction: none (the update replaces), add, mul, min, max, mean; without `use_init` the data's own value
    does not take part in it.
    """

    reduction: str = "none"
    use_init: bool = True
    sig = Sig("data: T[r>=1], indices: I[r], updates: T[r], axis: A[one] -> y: T", T=ANY, I=INTEGERS, A=INTEGERS)

    def infer(self, data: Value, indices: Value, updates: Value, axis: Value) -> TensorType:
        if data.rank is None or indices.rank is None or updates.rank is None:
            return data.tensor
        at = normal_axis("ScatterElements", constant_int("ScatterElements", "axis", axis), len(data.shape))
        for name, v in (("indices", indices), ("updates", updates)):
            facts = {"op": "ScatterElements", "operand": name, "type": v.tensor}
            require(v.rank == data.rank, codes.WRONG_RANK, **facts, expected=data.rank)
        for k, (p, q) in enumerate(zip(indices.shape, updates.shape, strict=True)):
            what = f"axis {k} of indices and updates"
            require(same(p, q), codes.SIZES_DIFFER, op="ScatterElements", what=what, a=p, b=q)
        for k, (p, q) in enumerate(zip(data.shape, indices.shape, strict=True)):
            facts = {"op": "ScatterElements", "what": f"size of axis {k} of the indices", "value": q}
            require(k == at or at_most(q, p), codes.SIZE_RANGE, **facts, expected=f"at most {p}")
        return data.tensor

    def reference(self, data: Array, indices: Array, updates: Array, axis: Array) -> Array:
        at = int(np.asarray(axis).reshape(-1)[0]) % data.ndim
        where, valid = normal_index(indices, data.shape[at])
        places: list[Array] = list(np.indices(indices.shape))  # pyright: ignore
        places[at] = where
        chosen = tuple(p[valid] for p in places)
        return scattered(data.copy(), chosen, updates[valid], self.reduction, self.use_init)

    def loops(self, b: LoopBuilder, data: Tensor, indices: Tensor, updates: Tensor, axis: Tensor, y: Tensor) -> None:
        at = (axis.ints() or [0])[0] % data.rank
        size = data.shape[at]

        def place(i: tuple[Var, ...]) -> tuple[Expr, tuple[Expr, ...]]:
            k = b.let(wrapped(indices[i], size), "k")
            return inside(k, size), (*i[:at], k, *i[at + 1 :])

        scatter_loops(b, self, data, indices.shape, place, updates, y)

    onnx = (
        Form(
            "Scatter",
            9,
            attrs={"axis": AsInput(0, index=3, dtype=i64, scalar=True)},
            T={"T": ONNX_ALL, "I": INDEX, "A": {i64}},
            last=10,
        ),
        Form(
            "ScatterElements",
            11,
            attrs={"axis": AsInput(0, index=3, dtype=i64, scalar=True)},
            T={"T": ONNX_ALL, "I": INDEX, "A": {i64}},
            write=write_elements,
        ),
        Form("ScatterElements", 13, T={"T": onnx_all(13)}),
        Form("ScatterElements", 16, attrs={"axis": AsInput(0, index=3, dtype=i64, scalar=True), "reduction": ONNX_16}),
        Form("ScatterElements", 18, attrs={"axis": AsInput(0, index=3, dtype=i64, scalar=True), "reduction": ONNX_18}),
        write_only(write_elements_by_matrix),
    )
    openvino = (
        Form("ScatterElementsUpdate", 3, T={"T": OV_ANY}),
        Form("ScatterElementsUpdate", 12, attrs={"reduction": OV_12, "use_init_val": Bool(True, to="use_init")}),
        write_only(write_elements),
    )


def scatter_loops(
    b: LoopBuilder,
    op: ScatterElements | ScatterND,
    data: Tensor,
    extents: Sequence[DimLike],
    place: Callable[[tuple[Var, ...]], tuple[Expr, tuple[Expr, ...]]],
    updates: Tensor,
    y: Tensor,
) -> None:
    """Loops of both scatters: copy the data, then apply every update whose place is inside.

    place(i) → (whether update i has a place, that place).
    """
    elements = product(data.shape)
    source, to = (seen_as(t, [elements]) for t in (data, y))
    with b.for_(elements, "parallel") as i:  # one run, however short the rows are
        b.store(to, i, source[i])
    if op.reduction != "none" and not op.use_init:
        with b.nest(extents) as i:
            ok, at = place(i)
            with b.if_(ok):
                b.store(y, at, neutral_const(op.reduction, y.dtype))
    count = b.alloc(i64, y.shape, "count") if op.reduction == "mean" else None
    if count is not None:
        with b.nest(y.shape) as i:
            b.store(count, i, Const(0, i64))
    with b.nest(extents) as i:
        ok, at = place(i)
        with b.if_(ok):
            b.store(y, at, combined(op.reduction, y[at], updates[i]))
            if count is not None:
                b.store(count, at, count[at] + 1)
    if count is not None:
        with b.nest(y.shape) as i, b.if_(count[i].gt(0)):
            number = (count[i] + (1 if op.use_init else 0)).cast(y.dtype)
            b.store(y, i, y[i] // number if y.dtype.is_integer else y[i] / number)


# ------------------------------------------------------------------------------ ScatterND
def write_subtraction(b: Builder, op: ScatterND, data: Value, indices: Value, updates: Value) -> Value:
    """ONNX adds, but does not subtract."""
    if op.reduction != "sub":
        return b.ScatterND(data, indices, updates, reduction=op.reduction)
    return b.ScatterND(data, indices, b.Sub(b.like(0, updates), updates), reduction="add")


@op
class ScatterND(Op):
    """data with slices replaced: the last axis of `indices` holds the place of each slice of `updates`."""

    reduction: str = "none"
    sig = Sig("data: T[>=1], indices: I[>=1], updates: T -> y: T", T=ANY, I=INTEGERS)
    use_init = True

    def infer(self, data: Value, indices: Value, updates: Value) -> TensorType:
        if data.rank is None or indices.rank is None or updates.rank is None:
            return data.tensor
        depth = indices.shape[-1].const if indices.shape else None
        require(depth is not None, operation.NEEDS_CONSTANT, op="ScatterND", operand="last size of indices")
        what, most = "the last size of indices", len(data.shape)
        fits = (depth or 0) <= most
        require(fits, codes.SIZE_RANGE, op="ScatterND", what=what, value=depth, expected=f"at most {most}")
        wanted = (*indices.shape[:-1], *data.shape[depth or 0 :])
        facts = {"op": "ScatterND", "operand": "updates", "type": updates.tensor}
        require(len(wanted) == len(updates.shape), codes.WRONG_RANK, **facts, expected=len(wanted))
        for k, (p, q) in enumerate(zip(wanted, updates.shape, strict=True)):
            what = f"axis {k} of updates and what the indices ask for"
            require(same(p, q), codes.SIZES_DIFFER, op="ScatterND", what=what, a=q, b=p)
        return data.tensor

    def reference(self, data: Array, indices: Array, updates: Array) -> Array:
        depth = indices.shape[-1]
        picks: list[Array] = []
        valid = np.ones(indices.shape[:-1], bool)
        for k in range(depth):
            where, ok = normal_index(indices[..., k], data.shape[k])
            picks.append(where)
            valid &= ok
        tail = data.shape[depth:]
        updates = np.broadcast_to(updates, (*indices.shape[:-1], *tail))
        rest: Array = np.indices(tail)  # pyright: ignore
        places = [np.broadcast_to(p.reshape(p.shape + (1,) * len(tail)), updates.shape) for p in picks]
        places += [np.broadcast_to(r, updates.shape) for r in rest]  # pyright: ignore
        keep = np.broadcast_to(valid.reshape(valid.shape + (1,) * len(tail)), updates.shape)
        return scattered(data.copy(), tuple(p[keep] for p in places), updates[keep], self.reduction, True)

    def loops(self, b: LoopBuilder, data: Tensor, indices: Tensor, updates: Tensor, y: Tensor) -> None:
        depth, lead = int(indices.shape[-1]), indices.rank - 1

        def place(i: tuple[Var, ...]) -> tuple[Expr, tuple[Expr, ...]]:
            picks = [b.let(wrapped(indices[(*i[:lead], k)], data.shape[k]), "k") for k in range(depth)]
            return all_of(inside(p, data.shape[k]) for k, p in enumerate(picks)), (*picks, *i[lead:])

        scatter_loops(b, self, data, updates.shape, place, updates, y)

    onnx = (
        Form("ScatterND", 11, T={"T": ONNX_ALL, "I": {i64}}, write=write_subtraction),
        Form("ScatterND", 13, T={"T": onnx_all(13)}),
        Form("ScatterND", 16, attrs={"reduction": ONNX_16}),
        Form("ScatterND", 18, attrs={"reduction": ONNX_18}),
        write_only(write_slices),
    )
    openvino = (Form("ScatterNDUpdate", 4, T={"T": OV_ANY}), Form("ScatterNDUpdate", 15, attrs={"reduction": OV_15}))


# ------------------------------------------------------------------------------ ScatterUpdate
@op
class ScatterUpdate(Op):
    """data with the slices `indices` along `axis` replaced by those of `updates`."""

    sig = Sig("data: T[>=1], indices: I, updates: T, axis: A[one] -> y: T", T=ANY, I=INTEGERS, A=INTEGERS)

    def _axis(self, data: Value, axis: Value) -> int:
        return normal_axis("ScatterUpdate", constant_int("ScatterUpdate", "axis", axis), len(data.shape))

    def infer(self, data: Value, indices: Value, updates: Value, axis: Value) -> TensorType:
        if data.rank is None or indices.rank is None or updates.rank is None:
            return data.tensor
        at = self._axis(data, axis)
        wanted = (*data.shape[:at], *indices.shape, *data.shape[at + 1 :])
        facts = {"op": "ScatterUpdate", "operand": "updates", "type": updates.tensor}
        require(len(wanted) == len(updates.shape), codes.WRONG_RANK, **facts, expected=len(wanted))
        for k, (p, q) in enumerate(zip(wanted, updates.shape, strict=True)):
            what = f"axis {k} of updates and what the indices ask for"
            require(same(p, q), codes.SIZES_DIFFER, op="ScatterUpdate", what=what, a=q, b=p)
        return data.tensor

    def reference(self, data: Array, indices: Array, updates: Array, axis: Array) -> Array:
        at = int(np.asarray(axis).reshape(-1)[0]) % data.ndim
        where, valid = normal_index(indices, data.shape[at])
        flat = updates.reshape((*data.shape[:at], indices.size, *data.shape[at + 1 :]))
        y = np.moveaxis(data.copy(), at, 0)
        y[where.reshape(-1)[valid.reshape(-1)]] = np.moveaxis(flat, at, 0)[valid.reshape(-1)]
        return np.ascontiguousarray(np.moveaxis(y, 0, at))

    def decompose(self, b: Builder, data: Value, indices: Value, updates: Value, axis: Value) -> Value:
        """ScatterND over the axis moved to the front."""
        at, rank, count = self._axis(data, axis), len(data.shape), len(indices.shape)
        places = b.Unsqueeze(as_i64(b, indices), [-1])
        if at == 0:
            return b.ScatterND(data, places, updates)
        order = [at, *range(at), *range(at + 1, rank)]
        moved = [*range(at, at + count), *range(at), *range(at + count, rank - 1 + count)]
        found = b.ScatterND(b.Transpose(data, order), places, b.Transpose(updates, moved))
        return b.Transpose(found, [order.index(k) for k in range(rank)])

    openvino = (Form("ScatterUpdate", 3, T={"T": OV_ANY}),)


# ------------------------------------------------------------------------------ SliceScatter
@op
class SliceScatter(Op):
    """data with the slice from `start` to `stop` by `step` (of `axes`, or of the first ones) replaced by `updates`."""

    sig = Sig(
        "data: T[>=1], updates: T, start: I[1], stop: J[1], step: S[1], axes?: A[1] -> y: T",
        T=ANY,
        I=INTEGERS,
        J=INTEGERS,
        S=INTEGERS,
        A=INTEGERS,
    )

    def decompose(self, b: Builder, data: Value, updates: Value, *bounds: Value) -> Value:
        start, stop, step, axes = (*bounds, None)[:4]
        size = b.dims([data.tensor.elements()])
        places = b.Reshape(b.Range(b.const(0), as_scalar(b, size), b.const(1)), b.dims(data.shape), special_zero=False)
        places = b.Slice(places, start, stop, axes, step)
        for p, q in zip(places.shape, updates.shape, strict=False):
            what = "updates and the slice"
            require(same(p, q), codes.SIZES_DIFFER, op="SliceScatter", what=what, a=updates.tensor, b=places.tensor)
        flat = b.ScatterElements(b.Reshape(data, [-1]), b.Reshape(places, [-1]), b.Reshape(updates, [-1]), b.const(0))
        return b.Reshape(flat, b.dims(data.shape), special_zero=False)

    openvino = (Form("SliceScatter", 15, T={"T": OV_ANY}),)
