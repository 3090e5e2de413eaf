"""Sizes that a tensor is cropped or padded to around its centre: CenterCropPad.

Source: ONNX CenterCropPad.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import Expr, IndexFunction, Tensor, all_of, index, inside, select
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import at_most, same
from irc.ir.types import ANY, TensorType
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Ints
from irc.opdef.conversions import as_i64
from irc.opdef.forms import Form, write_only
from irc.opdef.run_sizes import each
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX, onnx_all
from irc.ops.layout import normal_axes
from irc.ops.shape import zero


def write_centered(b: Builder, op: CenterCropPad, x: Value, shape: Value) -> Value:
    """As a slice and padding, which not every engine lets crop where it is negative."""
    axes = b.const(op.chosen(len(x.shape)))
    known = shape.ints()
    sizes = [x.shape[a] for a in op.chosen(len(x.shape))]
    if known is not None and all(s.is_const for s in sizes):
        begins = [int(added_before(Dim.of(w), s)) for w, s in zip(known, sizes, strict=True)]
        ends = [w - int(s) - p for w, s, p in zip(known, sizes, begins, strict=True)]
        if any(p < 0 for p in (*begins, *ends)):
            stops = [int(s) + min(q, 0) for s, q in zip(sizes, ends, strict=True)]
            x = b.Slice(x, [max(-p, 0) for p in begins], stops, axes)
        if not any(p > 0 for p in (*begins, *ends)):
            return x
        return b.Pad(x, b.const([max(p, 0) for p in (*begins, *ends)]), None, axes)
    size, none = b.Gather(b.Shape(x), axes, b.const(0)), b.const(0)
    growth = b.Sub(as_i64(b, shape), size)
    begin = b.Div(growth, b.const(2))
    end = b.Sub(growth, begin)
    cropped = b.Slice(x, b.Max(b.Neg(begin), none), b.Add(size, b.Min(end, none)), axes)
    return b.Pad(cropped, b.Max(b.Concat(begin, end, axis=0), none), None, axes)


def added_before(wanted: Dim, size: Dim) -> Dim:
    """The number of elements in front of the first one; negative where these are cut off."""
    return (wanted - size).maximum(0) // 2 - (size - wanted).maximum(0) // 2


@op
class CenterCropPad(Op):
    """x cropped to, or padded with zeros to, the sizes in `shape` of `axes` (absent: of all), centred.

    Of an odd number one more element is added, or cut off, at the end.
    """

    axes: tuple[int, ...] | None = None
    sig = Sig("x: T, shape: I[1] -> y: T", T=ANY, I=INDEX)

    def chosen(self, rank: int) -> list[int]:
        """The axes that `shape` is about, counted from 0."""
        return list(range(rank)) if self.axes is None else list(normal_axes(self.name, self.axes, rank))

    def infer(self, x: Value, shape: Value) -> TensorType:
        chosen, wanted = self.chosen(len(x.shape)), shape.dims()
        facts = {"op": self.name, "attribute": "shape", "given": shape.shape[0], "needed": len(chosen)}
        require(same(shape.shape[0], len(chosen)), operation.ATTRIBUTE_LENGTH, **facts)
        found = list(x.shape)
        for k, axis in enumerate(chosen):
            size = Dim.fresh("crop") if wanted is None else wanted[k]
            facts = {"op": self.name, "what": f"size of axis {axis}", "value": size}
            require(at_most(0, size), codes.SIZE_RANGE, **facts, expected="0 or more")
            found[axis] = size
        return TensorType(x.dtype, tuple(found))

    def run_sizes(self, b: Builder, out: TensorType, x: Value, shape: Value) -> Iterable[tuple[Dim, Value]]:
        return each(b, [out.dims()[a] for a in self.chosen(len(x.shape))], as_i64(b, shape))

    def reference(self, x: Array, shape: Array) -> Array:
        chosen = list(range(x.ndim)) if self.axes is None else [a % x.ndim for a in self.axes]
        size = list(x.shape)
        source, target = [slice(None)] * x.ndim, [slice(None)] * x.ndim
        for axis, wanted in zip(chosen, shape.tolist()):
            length = min(wanted, x.shape[axis])
            first, begin = (x.shape[axis] - length) // 2, (wanted - length) // 2
            source[axis], target[axis] = slice(first, first + length), slice(begin, begin + length)
            size[axis] = wanted
        y = np.full(size, np.zeros((), x.dtype), x.dtype)
        y[tuple(target)] = x[tuple(source)]
        return y

    def compute(self, out: TensorType, x: Tensor, shape: Tensor) -> IndexFunction:
        chosen = self.chosen(x.rank)

        def element(*i: Expr) -> Expr:
            at, checks = list(i), list[Expr]()
            for axis in chosen:
                wanted, size = out.dims()[axis], x.shape[axis]
                at[axis] = i[axis] - index(added_before(wanted, size))
                if wanted.at_most(size) is not True:
                    checks.append(inside(at[axis], size))
            return select(all_of(checks), x[tuple(at)], zero(x.dtype))

        return element

    onnx = (
        write_only(write_centered),
        Form("CenterCropPad", 18, attrs={"axes": Ints(None)}, T={"T": onnx_all(18), "I": INDEX}),
    )
    openvino = (write_only(write_centered),)
