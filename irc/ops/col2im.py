"""Blocks of columns added up to an image: Col2Im.

Sources: ONNX Col2Im; OpenVINO specification, Col2Im-15.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import reduce
from operator import add

import numpy as np

from irc.diagnostics import Facts, require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import Const, Expr, Tensor, all_of, index, inside, select
from irc.ir.dim import Dim, product
from irc.ir.graph import Value
from irc.ir.relation import at_most, multiple, same
from irc.ir.types import ANY, TensorType, i64, string
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Codec, Ints, Pads, PerAxis
from irc.opdef.conversions import as_i64
from irc.opdef.forms import Attributes, Form, write_only
from irc.opdef.precision import rounded, wide
from irc.opdef.run_sizes import each
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX, OV_ANY, onnx_all
from irc.opdef.window import extent, spatial
from irc.ops.col2im_places import write_places
from irc.ops.shape import zero

OV_WINDOW: dict[str, Codec] = {  # without them, the CPU plugin of 2026.4 reads outside of its memory
    "strides": PerAxis((), lo=1, axes=2),
    "dilations": PerAxis((), lo=1, axes=2),
    "pads_begin": PerAxis((), lo=0, fill=0, axes=2),
    "pads_end": PerAxis((), lo=0, fill=0, axes=2),
}

MOST_TAPS = 16
"""Columns of a block, and a stride, up to which each has a statement of its own."""


def read_col2im(b: Builder, a: Attributes, x: Value, image: Value, block: Value) -> Value:
    """OpenVINO's may lack the axis of the batch."""
    op = Col2Im(strides=a.strides, dilations=a.dilations, pads_begin=a.pads_begin, pads_end=a.pads_end)
    if x.rank != 2:
        return b.add(op, x, image, block)
    return b.Squeeze(b.add(op, b.Unsqueeze(x, [0]), image, block), [0])


def planes(op: Col2Im, x: Value, image: Value, block: Value) -> bool:
    """OpenVINO has two spatial axes."""
    return image.shape[0] == 2


@op
class Col2Im(Op):
    """Images (n, c, *image) from columns (n, c · block elements, blocks): overlaps are added, padding is dropped."""

    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads_begin: tuple[int, ...] = ()
    pads_end: tuple[int, ...] = ()
    sig = Sig("x: T[3], image: I[1], block: J[1] -> y: T", T=ANY, I=INDEX, J=INDEX)

    def window(self, rank: int) -> list[tuple[int, int, int, int]]:
        """(stride, dilation, begin, end) of each spatial axis."""
        attributes = (("strides", 1), ("dilations", 1), ("pads_begin", 0), ("pads_end", 0))
        each = [spatial(self.name, name, getattr(self, name), rank, default) for name, default in attributes]
        return list(zip(*each, strict=True))  # type: ignore[arg-type]

    def infer(self, x: Value, image: Value, block: Value) -> TensorType:
        rank = image.shape[0].const
        require(rank is not None, operation.NEEDS_CONSTANT, op=self.name, operand="image_shape")
        facts: Facts = {"op": self.name, "attribute": "block_shape", "given": block.shape[0], "needed": rank}
        require(same(block.shape[0], rank or 0), operation.ATTRIBUTE_LENGTH, **facts)
        window, known, kernel = self.window(rank or 0), image.dims(), block.ints()
        sizes = known or [Dim.fresh("image") for _ in window]
        for size in sizes:
            facts = {"op": self.name, "what": "a size of the image", "value": size}
            require(at_most(0, size), codes.SIZE_RANGE, **facts, expected="0 or more")
        if kernel is None:
            return TensorType.of(x.dtype, [x.shape[0], Dim.fresh("channels", x.shape[1]), *sizes])
        for k in kernel:
            require(k >= 1, codes.SIZE_RANGE, op=self.name, what="a size of the block", value=k, expected="1 or more")
        elements = int(np.prod(kernel, dtype=object))
        facts = {"op": self.name, "what": "the number of rows", "value": x.shape[1]}
        require(multiple(x.shape[1], elements), codes.SIZE_RANGE, **facts, expected=f"a multiple of {elements}")
        counts: list[Dim] = []
        for size, k, (stride, dilation, begin, end) in zip(sizes, kernel, window, strict=True):
            reach, padded = extent(k, dilation), size + begin + end
            facts = {"op": self.name, "what": "the padded size", "value": padded}
            require(at_most(reach, padded), codes.SIZE_RANGE, **facts, expected=f"at least the block's {reach}")
            counts.append((padded - reach) // stride + 1)
        blocks, a = product(counts), x.shape[2]
        require(same(a, blocks), codes.SIZES_DIFFER, op=self.name, what="columns and blocks", a=a, b=blocks)
        return TensorType.of(x.dtype, [x.shape[0], x.shape[1] // elements, *sizes])

    def run_sizes(
        self, b: Builder, out: TensorType, x: Value, image: Value, block: Value
    ) -> Iterable[tuple[Dim, Value]]:
        """The channels are -1 where the block does not fit the columns, so that the run is refused."""
        sizes, kernel, shape = as_i64(b, image), as_i64(b, block), b.Shape(x)
        yield from each(b, out.dims()[2:], sizes)
        stride, dilation, begin, end = (b.const(list(v)) for v in zip(*self.window(len(out.dims()) - 2), strict=True))
        reach = b.Add(b.Mul(b.Sub(kernel, 1), dilation), 1)
        slack = b.Sub(b.Add(b.Add(sizes, begin), end), reach)
        counts = b.Add(b.Div(slack, stride), 1)
        rows, columns = (b.Slice(shape, [k], [k + 1], [0]) for k in (1, 2))
        elements = b.ReduceProd(kernel, [0], keepdims=True)
        possible = b.And(b.GreaterOrEqual(kernel, 1), b.GreaterOrEqual(slack, 0))
        fits = b.And(b.ReduceLogicalAnd(possible, [0]), b.Equal(b.ReduceProd(counts, [0], keepdims=True), columns))
        channels = b.Div(rows, b.Max(elements, 1))
        yield (out.dims()[1], b.Where(b.And(fits, b.Equal(b.Mul(channels, elements), rows)), channels, b.const([-1])))

    def reference(self, x: Array, image: Array, block: Array) -> Array:
        kernel, sizes, axes = [int(k) for k in block], [int(n) for n in image], range(len(image))
        strides, dilations = self.strides or (1,) * len(sizes), self.dilations or (1,) * len(sizes)
        begin, end = self.pads_begin or (0,) * len(sizes), self.pads_end or (0,) * len(sizes)
        padded = [sizes[a] + begin[a] + end[a] for a in axes]
        counts = [(padded[a] - (kernel[a] - 1) * dilations[a] - 1) // strides[a] + 1 for a in axes]
        channels = x.shape[1] // int(np.prod(kernel))
        columns = wide(x).reshape(x.shape[0], channels, *kernel, *counts)
        y = np.zeros((x.shape[0], channels, *padded), columns.dtype)
        for k in itertools.product(*map(range, kernel)):
            first = [k[a] * dilations[a] for a in axes]
            ends = [first[a] + (counts[a] - 1) * strides[a] + 1 for a in axes]
            places = tuple(slice(first[a], ends[a], strides[a]) for a in axes)
            y[(slice(None), slice(None), *places)] += columns[(slice(None), slice(None), *k)]
        inner = tuple(slice(begin[a], begin[a] + sizes[a]) for a in axes)
        return rounded(y[(slice(None), slice(None), *inner)], x)

    def loops(self, b: LoopBuilder, x: Tensor, image: Tensor, block: Tensor, y: Tensor) -> None:
        window, known, kind = self.window(y.rank - 2), block.ints(), x.dtype.compute
        rows = index(x.shape[1])
        kernel: list[Expr] = [Const(k, i64) for k in known or ()]
        kernel = kernel or [b.let(block[k].cast(i64).max(1).min(rows), "kernel") for k in range(len(window))]
        counts: list[Expr] = []
        for size, k, (stride, dilation, begin, end) in zip(y.shape[2:], kernel, window, strict=True):
            slack = index(size + begin + end - 1) - (k - 1) * dilation
            counts.append(b.let(slack // stride + 1, "count"))
        if known is not None and kind == y.dtype and known[-1] <= MOST_TAPS and window[-1][0] <= MOST_TAPS:
            self._rows(b, x, y, known, window, counts)
        else:
            self._elements(b, x, y, (kernel, known is None), window, counts)

    def _rows(
        self,
        b: LoopBuilder,
        x: Tensor,
        y: Tensor,
        kernel: Sequence[int],
        window: list[tuple[int, int, int, int]],
        counts: Sequence[Expr],
    ) -> None:
        """Add to each row of an image the rows of blocks that cover it."""
        with ExitStack() as outer:
            at = tuple(outer.enter_context(b.for_(n, "parallel")) for n in y.shape[:-1])
            with b.for_(y.shape[-1], "simd", "j") as j:
                b.store(y, (*at, j), zero(y.dtype))
            with ExitStack() as stack:
                inner = [stack.enter_context(b.for_(k, name="k")) for k in kernel[:-1]]
                row, column, checks = at[1], Const(0, i64), list[Expr]()
                for i, j, k, count, (stride, dilation, begin, _) in zip(
                    at[2:], inner, kernel[:-1], counts[:-1], window[:-1], strict=True
                ):
                    offset = b.let(i + begin - j * dilation, "offset")
                    place = offset if stride == 1 else b.let(offset // stride, "place")
                    checks += [offset.ge(0), place.lt(count)] + ([] if stride == 1 else [(offset % stride).eq(0)])
                    row, column = row * k + j, column * count + place
                stack.enter_context(b.if_(all_of(checks)))
                first = (at[0], b.let(row * kernel[-1], "row"), b.let(column * counts[-1], "column"))
                _add_row(b, x, first, y, at, kernel[-1], window[-1], counts[-1])

    def _elements(
        self,
        b: LoopBuilder,
        x: Tensor,
        y: Tensor,
        block: tuple[list[Expr], bool],
        window: list[tuple[int, int, int, int]],
        counts: Sequence[Expr],
    ) -> None:
        """Add for each element of the image what stands for it in the blocks that cover it, which a run may define."""
        (kernel, defined), kind = block, x.dtype.compute
        with b.nest(y.shape, "parallel") as at, ExitStack() as stack:
            total = b.var(zero(kind), "total")
            inner = [stack.enter_context(b.for_(k, name="k")) for k in kernel]
            row, column, checks = at[1], Const(0, i64), list[Expr]()
            for i, j, k, count, (stride, dilation, begin, _) in zip(at[2:], inner, kernel, counts, window, strict=True):
                offset = b.let(i + begin - j * dilation, "offset")
                place = offset if stride == 1 else b.let(offset // stride, "place")
                checks += [offset.ge(0), place.lt(count)] + ([] if stride == 1 else [(offset % stride).eq(0)])
                row, column = row * k + j, column * count + place
            if defined:
                checks += [inside(row, x.shape[1]), inside(column, x.shape[2])]
            with b.if_(all_of(checks)):
                b.assign(total, total + x[at[0], row, column].cast(kind))
            stack.close()
            b.store(y, at, total.cast(y.dtype))

    onnx = (
        write_only(write_places, since=11),
        Form(
            "Col2Im",
            18,
            attrs={"strides": Ints((), lo=1), "dilations": Ints((), lo=1), "pads": Pads(lo=0)},
            T={"T": onnx_all(18), "I": {i64}, "J": {i64}},
        ),
    )
    openvino = (
        Form(
            "Col2Im",
            15,
            attrs=OV_WINDOW,
            sig=Sig("x: T[2..3], image: I[1], block: J[1] -> y: T"),
            T={"T": OV_ANY - {string}, "I": INDEX, "J": INDEX},
            read=read_col2im,
            direct=True,
            when=planes,
        ),
        write_only(write_places, since=4),
    )


def _add_row(
    b: LoopBuilder,
    x: Tensor,
    first: tuple[Expr, Expr, Expr],
    y: Tensor,
    at: tuple[Expr, ...],
    taps: int,
    window: tuple[int, int, int, int],
    count: Expr,
) -> None:
    """Add what `taps` rows of x have from `first` on to a row of the image: for as many elements as the stride has
    remainders at once, so that vectors are read and written; near the ends, what there is.
    """
    (stride, dilation, begin, _), (image, row, column), width = window, first, index(y.shape[-1])
    places = [divmod(k * dilation - begin, stride) for k in range(taps)]  # (step that it begins with, remainder)
    steps = b.let((width + (stride - 1)) // stride, "steps")
    low = b.let(steps.min(max(0, *(q for q, _ in places))), "low")
    high = b.let((count + min(q for q, _ in places)).min(width // stride).max(low), "high")

    def terms(remainder: int) -> list[tuple[int, int]]:
        return [(k, q) for k, (q, r) in enumerate(places) if r == remainder]

    def element(k: int, place: Expr) -> Expr:
        return x[image, row + k, column + place]

    with b.for_(high - low, "simd", "t") as t:
        step = b.let(low + t, "step")
        for r in range(stride):
            here = (*at, step * stride + r)
            if given := terms(r):
                b.store(y, here, reduce(add, (element(k, step - q) for k, q in given), y[here]))
    with b.for_(low + (steps - high), name="t") as t:
        step = b.let(select(t.lt(low), t, t - low + high), "step")
        for r in range(stride):
            here = (*at, step * stride + r)
            for k, q in terms(r):
                place = b.let(step - q, "place")
                with b.if_(all_of([here[-1].lt(width), place.ge(0), place.lt(count)])):
                    b.store(y, here, y[here] + element(k, place))
