"""Pooling to a given number of windows: AdaptiveAvgPool, AdaptiveMaxPool, of any spatial rank.

Window i of n along an axis of size L is [⌊i·L/n⌋, ⌈(i+1)·L/n⌉).  Source: OpenVINO specification, AdaptiveAvgPool-8,
AdaptiveMaxPool-8.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import Const, Expr, IndexFunction, Tensor, all_of, flatten_index, index, reduce, select
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import at_most
from irc.ir.types import FLOATS_BF16, DType, TensorType, i32, i64
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import DTypeAttr
from irc.opdef.forms import Declined, Form, Results, write_only
from irc.opdef.precision import narrowed, rounded, wide, widened
from irc.opdef.signature import Sig
from irc.ops.reduce import lowest

SIG = Sig("x: T[>=3], output_shape: I[1] -> y: T", T=FLOATS_BF16, I={i32, i64})
MOST_PARTS = 64
"""Windows of an axis that are written one by one for a format without these operations."""


def pooled(op: Op, x: Value, output_shape: Value) -> tuple[Dim, ...]:
    """The result's shape: `output_shape` in the place of the spatial sizes."""
    rank = len(x.shape) - 2
    require(rank >= 1, codes.WRONG_RANK, op=op.name, operand="x", type=x.tensor, expected="3 or more")
    sizes = output_shape.dims()
    if sizes is None:
        return (*x.shape[:2], *(Dim.fresh("pooled") for _ in range(rank)))
    fits = len(sizes) == rank
    require(fits, operation.ATTRIBUTE_LENGTH, op=op.name, attribute="output_shape", given=len(sizes), needed=rank)
    for k, size in enumerate(sizes):
        what = f"size {k} of output_shape"
        require(at_most(1, size), codes.SIZE_RANGE, op=op.name, what=what, value=size, expected="1 or more")
    for k, size in enumerate(x.shape[2:], 2):
        what = f"size {k} of the operand"  # a window has an element
        require(at_most(1, size), codes.SIZE_RANGE, op=op.name, what=what, value=size, expected="1 or more")
    return (*x.shape[:2], *sizes)


def window(i: int, count: int, size: int) -> slice:
    """The elements of window i."""
    return slice(i * size // count, -(-(i + 1) * size // count))


def longest(size: Dim, count: Dim) -> Dim:
    """As many elements as a window can have."""
    if not (size.is_const and count.is_const):
        exact = size.exact_div(count)
        return exact if exact is not None else size // count + 2
    n, m = int(size), int(count)
    return Dim.of(-(-(n + m - math.gcd(n, m)) // m))  # from the last place within a window where one can begin


def positions(
    o: Sequence[Expr], k: Sequence[Expr], sizes: Sequence[Dim], counts: Sequence[Dim]
) -> tuple[list[Expr], Expr]:
    """Where element k of window o stands, and whether the window has it."""
    at: list[Expr] = []
    checks: list[Expr] = []
    for i, j, size, count in zip(o, k, sizes, counts, strict=True):
        first, last = bounds(i, size, count)
        at.append(first + j)
        if size.exact_div(count) is None:
            checks.append((first + j).lt(last))
    return at, all_of(checks)


def bounds(i: Expr, size: Dim, count: Dim) -> tuple[Expr, Expr]:
    """The first element of window i, and the one after its last."""
    step = size.exact_div(count)
    if step is not None:
        return i * index(step), (i + 1) * index(step)
    return i * index(size) // index(count), ((i + 1) * index(size) + (index(count) - 1)) // index(count)


def windows_of(op: Op, x: Value, output_shape: Value) -> list[tuple[int, list[tuple[Dim, Dim]]]]:
    """[(axis, [(first, end) of each window])]; Declined where there are too many, or how many is not known."""
    found: list[tuple[int, list[tuple[Dim, Dim]]]] = []
    counts = output_shape.ints()
    if counts is None or max(counts) > MOST_PARTS:
        raise Declined
    for axis, count in enumerate(counts, 2):
        size = x.shape[axis]
        found.append((axis, [(size * i // count, (size * (i + 1)).ceildiv(count)) for i in range(count)]))
    return found


def write_means(b: Builder, op: AdaptiveAvgPool, x: Value, output_shape: Value) -> Value:
    """Axis by axis, the means of slices: windows are boxes."""
    found = widened(b, x)
    for axis, places in windows_of(op, x, output_shape):
        parts = [
            b.ReduceMean(b.Slice(found, b.dims([first]), b.dims([end]), [axis], [1]), [axis], keepdims=True)
            for first, end in places
        ]
        found = b.Concat(*parts, axis=axis) if len(parts) > 1 else parts[0]
    return narrowed(b, found, x)


def write_maxima(b: Builder, op: AdaptiveMaxPool, x: Value, output_shape: Value) -> Results:
    """Axis by axis from the last one, the largest elements of slices and where they stand in the operand."""
    best, places = x, None
    for axis, parts in reversed(windows_of(op, x, output_shape)):
        values: list[Value] = []
        indices: list[Value] = []
        for first, end in parts:
            box = b.dims([first]), b.dims([end]), [axis], [1]
            part = b.Slice(best, *box)
            at = b.ArgMax(part, axis=axis, keepdims=True)
            own = b.Mul(b.Add(at, b.dims([first])), b.dims([math.prod(x.shape[axis + 1 :], start=Dim.of(1))]))
            values.append(b.ReduceMax(part, [axis], keepdims=True))
            indices.append(
                own if places is None else b.Add(own, b.GatherElements(b.Slice(places, *box), at, axis=axis))
            )
        best = b.Concat(*values, axis=axis) if len(parts) > 1 else values[0]
        places = b.Concat(*indices, axis=axis) if len(parts) > 1 else indices[0]
    assert places is not None, "there is an axis"
    return best, narrowed_index(b, places, op.index_type)


def narrowed_index(b: Builder, places: Value, to: DType) -> Value:
    return places if places.dtype == to else b.Cast(places, to=to)


@op
class AdaptiveAvgPool(Op):
    """The mean of every window; output_shape says how many there are along each spatial axis."""

    sig = SIG

    def infer(self, x: Value, output_shape: Value) -> TensorType:
        return TensorType(x.dtype, pooled(self, x, output_shape))

    def reference(self, x: Array, output_shape: Array) -> Array:
        w = wide(x)
        counts = [int(n) for n in output_shape]
        y = np.zeros((*x.shape[:2], *counts), w.dtype)
        for o in itertools.product(*(range(n) for n in counts)):
            box = tuple(window(i, n, s) for i, n, s in zip(o, counts, x.shape[2:]))
            y[(slice(None), slice(None), *o)] = w[(slice(None), slice(None), *box)].mean(axis=tuple(range(2, x.ndim)))
        return rounded(y, x)

    def compute(self, out: TensorType, x: Tensor, output_shape: Tensor) -> IndexFunction:
        sizes, counts, kind = x.shape[2:], out.dims()[2:], x.dtype.compute

        def element(n: Expr, c: Expr, *o: Expr) -> Expr:
            def term(*k: Expr) -> Expr:
                at, ok = positions(o, k, sizes, counts)
                return select(ok, x[(n, c, *at)].cast(kind), Const(0.0, kind))

            elements: Expr = Const(1, i64)
            for i, size, count in zip(o, sizes, counts, strict=True):
                first, last = bounds(i, size, count)
                elements = elements * (last - first)
            total = reduce("sum", [longest(s, m) for s, m in zip(sizes, counts, strict=True)], term)
            return (total / elements.cast(kind)).cast(x.dtype)

        return element

    onnx = (write_only(write_means),)
    openvino = (Form("AdaptiveAvgPool", 8, T={"T": FLOATS_BF16, "I": {i32, i64}}),)


@op
class AdaptiveMaxPool(Op):
    """The largest element of every window, and where it stands in its plane (row-major, the first of equals)."""

    index_type: DType = i64
    sig = Sig("x: T[>=3], output_shape: I[1] -> y: T, indices: J", T=FLOATS_BF16, I={i32, i64}, J={i32, i64})

    def infer(self, x: Value, output_shape: Value) -> list[TensorType]:
        shape = pooled(self, x, output_shape)
        return [TensorType(x.dtype, shape), TensorType(self.index_type, shape)]

    def reference(self, x: Array, output_shape: Array) -> tuple[Array, Array]:
        counts = [int(n) for n in output_shape]
        y = np.zeros((*x.shape[:2], *counts), x.dtype)
        where = np.zeros(y.shape, np.int64)
        places: Array = np.arange(math.prod(x.shape[2:])).reshape(x.shape[2:])  # pyright: ignore
        for o in itertools.product(*(range(n) for n in counts)):
            box = tuple(window(i, n, s) for i, n, s in zip(o, counts, x.shape[2:]))
            flat = x[(slice(None), slice(None), *box)].reshape(*x.shape[:2], places[box].size)  # pyright: ignore
            best = flat.argmax(axis=-1)
            y[(slice(None), slice(None), *o)] = np.take_along_axis(flat, best[..., None], axis=-1)[..., 0]
            where[(slice(None), slice(None), *o)] = places[box].reshape(-1)[best]  # pyright: ignore
        return y, where.astype(self.index_type.numpy)

    def compute(
        self, out: Sequence[TensorType], x: Tensor, output_shape: Tensor
    ) -> tuple[IndexFunction, IndexFunction]:
        sizes, counts = x.shape[2:], out[0].dims()[2:]
        extents = [longest(s, m) for s, m in zip(sizes, counts, strict=True)]
        low = Const(lowest(x.dtype.numpy), x.dtype)

        def best(n: Expr, c: Expr, *o: Expr) -> Expr:
            def term(*k: Expr) -> Expr:
                at, ok = positions(o, k, sizes, counts)
                return select(ok, x[(n, c, *at)], low)

            return reduce("max", extents, term)

        def where(n: Expr, c: Expr, *o: Expr) -> Expr:
            top, far = best(n, c, *o), Const(np.iinfo(np.int64).max, i64)

            def term(*k: Expr) -> Expr:
                at, ok = positions(o, k, sizes, counts)
                hit = ok.logical_and(x[(n, c, *at)].eq(top))
                return select(hit, flatten_index(at, sizes), far)

            return reduce("min", extents, term).cast(self.index_type)

        return best, where

    onnx = (write_only(write_maxima),)
    openvino = (
        Form(
            "AdaptiveMaxPool",
            8,
            attrs={"index_element_type": DTypeAttr(i64, to="index_type")},
            T={"T": FLOATS_BF16, "I": {i32, i64}, "J": {i32, i64}},
        ),
    )
