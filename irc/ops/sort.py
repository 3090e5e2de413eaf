"""Ordering: TopK.

Sources: ONNX TopK; OpenVINO specification, TopK-1, -3, -11.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.expr import Const, Expr, Tensor, Var, index, select
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import at_most, same
from irc.ir.types import FLOATS, INTEGERS, NUMERIC, DType, TensorType, bf16, boolean, i32, i64
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import AsInput, Bool, Choice, Codec, DTypeAttr, Enum, Int
from irc.opdef.conversions import as_i64
from irc.opdef.forms import PREV, Form, Results
from irc.opdef.signature import Sig
from irc.opdef.typesets import ONNX_NUMBERS
from irc.ops.layout import normal_axis
from irc.ops.top_k_loops import TopKLoops, has_numbers

OV_TOPK: dict[str, Codec] = {
    "axis": Int(assumed=0),
    "mode": Enum({"max": True, "min": False}, to="largest", assumed=True),
    "sort": Enum(["none", "value", "index"], assumed="none"),
    "index_element_type": DTypeAttr(i32, to="index_type"),
}


def onnx_says(op: TopK, x: Value, k: Value) -> bool:
    return op.sort != "index" and k.rank == 1


def scalar_k(op: TopK, x: Value, k: Value) -> bool:
    return k.rank == 0


def stable_k(op: TopK, x: Value, k: Value) -> bool:
    """OpenVINO refuses a stable order of what is in no order."""
    return k.rank == 0 and not (op.stable and op.sort == "none")


def write_top_k(b: Builder, op: TopK, x: Value, k: Value) -> Results:
    """ONNX: k as a vector, indices as i64, and no sorting by index."""
    count = k if k.rank == 1 and k.dtype == i64 else b.Reshape(as_i64(b, k), [1])
    numbers = k.ints()
    count = b.const(numbers) if numbers is not None else count
    sort = "value" if op.sort == "index" else op.sort
    values, places = b.add_all(TopK(axis=op.axis, largest=op.largest, sort=sort), x, count)
    if op.sort == "index":
        places, _ = b.add_all(TopK(axis=op.axis, largest=False), places, count)
        values = b.GatherElements(x, places, axis=op.axis)
    return values, places if op.index_type == i64 else b.Cast(places, to=op.index_type)


def write_scalar_k(b: Builder, op: TopK, x: Value, k: Value) -> Results:
    """OpenVINO: k as a scalar; sorted, where it matters which of equal elements is taken."""
    numbers = k.ints()
    count = k if k.rank == 0 else b.const(numbers[0], k.dtype) if numbers is not None else b.Reshape(k, [])
    sort = "value" if op.stable and op.sort == "none" else op.sort
    return b.add_all(dataclasses.replace(op, sort=sort), x, count)


@op
class TopK(Op):
    """The k largest (or smallest) elements along an axis, and their indices; of equal ones the first comes first.

    sort: "value" (best first), "index" (ascending), "none" (any order; here: by value).
    """

    axis: int = -1
    largest: bool = True
    sort: str = "value"
    index_type: DType = i64
    stable: bool = True
    sig = Sig("x: T[>=1], k: K[one] -> values: T, indices: I", T=NUMERIC, K=INTEGERS, I={i32, i64})

    def infer(self, x: Value, k: Value) -> list[TensorType]:
        axis = normal_axis("TopK", self.axis, len(x.shape))
        one = k.rank is None or same(k.tensor.elements(), 1)
        require(one, codes.WRONG_RANK, op="TopK", operand="k", type=k.tensor, expected=0)
        known = k.dims()
        size = known[0] if known else Dim.fresh("k", x.shape[axis])
        what = f"k, for an axis of {x.shape[axis]} elements"
        fits = at_most(size, x.shape[axis])
        require(fits, codes.SIZE_RANGE, op="TopK", what=what, value=size, expected=f"at most {x.shape[axis]}")
        values = x.tensor.with_dim(axis, size)
        return [values, values.with_dtype(self.index_type)]

    def run_sizes(self, b: Builder, out: list[TensorType], x: Value, k: Value) -> Iterable[tuple[Dim, Value]]:
        yield out[0].dims()[self.axis % len(x.shape)], k

    def reference(self, x: Array, k: Array) -> tuple[Array, Array]:
        axis = self.axis % x.ndim
        count = int(np.asarray(k).reshape(-1)[0])
        if count < 0:
            raise ValueError(f"k is {count}")
        if self.largest:  # the last of equal ones in the reversed axis is the first
            order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
        else:
            order = np.argsort(x, axis=axis, kind="stable")
        places = np.take(order, range(count), axis=axis)
        if self.sort == "index":
            places = np.sort(places, axis=axis)
        return np.take_along_axis(x, places, axis=axis), places.astype(self.index_type.numpy)

    def better(self, a: Expr, b: Expr) -> Expr:
        """Whether a comes before b, b being earlier in the axis; NaN counts as the largest."""
        first = a.gt(b) if self.largest else a.lt(b)
        if not a.dtype.is_float:
            return first
        big, other = (a, b) if self.largest else (b, a)
        return first.logical_or(big.ne(big).logical_and(other.eq(other)))

    def loops(self, b: LoopBuilder, x: Tensor, k: Tensor, values: Tensor, indices: Tensor) -> None:
        """Numbers of an element and its index (`TopKLoops`); elements of 64 bits are inserted into the best so far."""
        axis = self.axis % x.rank
        size = values.shape[axis]
        if size == 0:
            return
        if has_numbers(x.dtype):
            TopKLoops.of(b, x, values, indices, axis, self.largest, self.sort == "index").emit()
            return
        outer = [*x.shape[:axis], *x.shape[axis + 1 :]]
        with b.nest(outer, "parallel") as o:
            filled = b.var(Const(0, i64), "filled")
            with b.for_(x.shape[axis]) as j:
                v = b.let(x[(*o[:axis], j, *o[axis:])], "candidate")
                full = filled.ge(index(size))
                worst = values[(*o[:axis], index(size) - 1, *o[axis:])]
                with b.if_(select(full, self.better(v, worst), Const(True, boolean))):
                    self._insert(b, o, axis, v, j, filled, index(size), values, indices)
            if self.sort == "index":
                self._by_index(b, o, axis, index(size), values, indices)

    def _insert(
        self,
        b: LoopBuilder,
        o: Sequence[Expr],
        axis: int,
        v: Expr,
        j: Expr,
        filled: Var,
        size: Expr,
        values: Tensor,
        indices: Tensor,
    ) -> None:
        """Move the worse ones down by one, from the last, until v's place is found."""
        last = b.let(filled.min(size - 1), "last")
        slot = b.var(last, "slot")
        moving = b.var(Const(True, boolean), "moving")
        with b.for_(last) as t:
            at = (*o[:axis], last - 1 - t, *o[axis:])
            below = (*o[:axis], last - t, *o[axis:])
            with b.if_(moving):
                with b.if_(self.better(v, values[at])):
                    b.store(values, below, values[at])
                    b.store(indices, below, indices[at])
                    b.assign(slot, last - 1 - t)
                with b.else_():
                    b.assign(moving, Const(False, boolean))
        b.store(values, (*o[:axis], slot, *o[axis:]), v)
        b.store(indices, (*o[:axis], slot, *o[axis:]), j.cast(self.index_type))
        b.assign(filled, (filled + 1).min(size))

    def _by_index(
        self, b: LoopBuilder, o: Sequence[Expr], axis: int, size: Expr, values: Tensor, indices: Tensor
    ) -> None:
        """Exchange neighbours until the indices ascend."""
        with b.for_(size) as i, b.for_(size - 1 - i) as j:
            at, after = (*o[:axis], j, *o[axis:]), (*o[:axis], j + 1, *o[axis:])
            with b.if_(indices[at].gt(indices[after])):
                for target in (values, indices):
                    held = b.let(target[at], "held")
                    b.store(target, at, target[after])
                    b.store(target, after, held)

    onnx = (
        Form(
            "TopK",
            1,
            attrs={"axis": Int(-1), "k": AsInput(index=1, dtype=i64, scalar=True)},
            T={"T": FLOATS, "K": {i64}},
            sig=Sig("x: T[>=1] -> values: T, indices: i64", T=FLOATS),
            judges=("stable",),
            write=write_top_k,
        ),
        Form("TopK", 10, attrs={"axis": Int(-1)}, sig=None, when=onnx_says),
        Form(
            "TopK",
            11,
            T={"T": ONNX_NUMBERS},
            attrs={
                "axis": Int(-1),
                "largest": Bool(True),
                "sorted": Choice("value", to="sort", yes="value", no="none"),
            },
        ),
        Form("TopK", 24, T={"T": PREV | {bf16}}),
    )
    openvino = (
        Form("TopK", 1, attrs=OV_TOPK, T={"T": NUMERIC}, when=scalar_k, write=write_scalar_k, judges=("stable",)),
        Form("TopK", 3),
        Form("TopK", 11, attrs={**OV_TOPK, "stable": Bool(False)}, when=stable_k),
    )
