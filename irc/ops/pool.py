"""Pooling: MaxPool, AveragePool, LpPool and their global forms, of any spatial rank.

Sources: ONNX MaxPool, AveragePool, LpPool, Global*Pool; OpenVINO specification, MaxPool-1/-8/-14, AvgPool-1/-14/-16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from irc.diagnostics import Facts, require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import Const, Expr, IndexFunction, Tensor, flatten_index, index, reduce, select
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import FLOATS, FLOATS_BF16, NUMERIC, DType, TensorType, bf16, i8, i32, i64, u8
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Choice, DTypeAttr, Enum, Float, Int, Ints, PerAxis
from irc.opdef.forms import PREV, Attributes, Form, Read, Results, write_only
from irc.opdef.precision import narrowed, wide, widened
from irc.opdef.signature import Sig
from irc.opdef.window import (
    ONNX_WINDOW,
    OV_AUTO_PAD,
    pad_spatial,
    window_count,
    window_padding,
    window_positions,
    windows,
)
from irc.ops.arithmetic import OV_NUMERIC
from irc.ops.conv import padding_of
from irc.ops.layout import normal_axis
from irc.ops.pool_rewrites import (
    Pooling,
    effective_rounding,
    floored,
    write_average_by_sums,
    write_average_of_padded,
    write_average_pool,
    write_gathered_windows,
    write_lp_by_means,
    write_lp_by_sums,
    write_row_major,
    write_torch_rounding,
)
from irc.ops.reduce import lowest

KERNEL = {"kernel_shape": Ints(lo=1, to="kernel")}
ONNX_ROUNDING = Enum({0: "floor", 1: "ceil_torch"}, "floor", to="rounding")
OV_ROUNDING = Enum(["floor", "ceil"], "floor", to="rounding")
OV_ROUNDING_14 = Enum(["floor", "ceil", "ceil_torch"], "floor", to="rounding")
OV_POOL = {
    "kernel": Ints(lo=1),
    "strides": PerAxis(lo=1, least=1),
    "pads_begin": PerAxis(assumed=(), fill=0, lo=0),
    "pads_end": PerAxis(assumed=(), fill=0, lo=0),
    "rounding_type": OV_ROUNDING,
    "auto_pad": OV_AUTO_PAD,
}


def checked_kernel(op: Pooling, x: Value) -> None:
    """The operand has a batch, channels and as many spatial axes as the kernel has sizes."""
    rank = len(x.shape) - 2
    require(rank >= 1, codes.WRONG_RANK, op=op.name, operand="x", type=x.tensor, expected="3 or more")
    fits = len(op.kernel) == rank
    require(fits, operation.ATTRIBUTE_LENGTH, op=op.name, attribute="kernel", given=len(op.kernel), needed=rank)


def pooled_shape(op: Pooling, x: Value) -> tuple[Dim, ...]:
    """The result shape of a pool, after checking its attributes."""
    checked_kernel(op, x)
    return (*x.shape[:2], *window_count(op, x.shape[2:], op.kernel, effective_rounding(op)))


def pool_windows(op: Pooling, x: Array, fill: float) -> tuple[Array, Sequence[int], Sequence[int]]:
    """Windows [N, C, *count, *kernel] over `x` padded with `fill`; and the padding before and after."""
    sizes, rank = x.shape[2:], len(op.kernel)
    strides, dilations = op.strides or (1,) * rank, op.dilations or (1,) * rank
    begin, end = padding_of(op.auto_pad, op.pads_begin, op.pads_end, sizes, op.kernel, strides, dilations)
    rounding = effective_rounding(op)
    if rounding == "floor":
        return windows(pad_spatial(x, begin, end, fill), op.kernel, strides, dilations), begin, end
    reach = [(k - 1) * d + 1 for k, d in zip(op.kernel, dilations)]
    count = [-(-(n + p + q - r) // s) + 1 for n, p, q, r, s in zip(sizes, begin, end, reach, strides)]
    if rounding == "ceil_torch":  # without a last window that starts in the end padding
        count = [c - ((c - 1) * s >= n + p) for c, s, n, p in zip(count, strides, sizes, begin)]
    needed = [(c - 1) * s + r - n - p for c, s, r, n, p in zip(count, strides, reach, sizes, begin)]
    over = [max(more, q) for more, q in zip(needed, end)]
    view = windows(pad_spatial(x, begin, over, fill), op.kernel, strides, dilations)
    return view[(slice(None), slice(None), *(slice(c) for c in count))], begin, end


def write_max_pool(b: Builder, op: MaxPool, x: Value) -> Results:
    """ONNX: rounding that it does not have becomes padding, other index types a Cast, later axes a remainder."""
    if op.index_type != i64:
        y, indices = b.add_all(replace(op, index_type=i64), x)
        return y, b.Cast(indices, to=op.index_type)
    if op.axis % len(x.shape) and not op.column_major:
        y, indices = b.add_all(replace(op, axis=0), x)
        return y, b.Mod(indices, b.ReduceProd(b.Shape(x, start=op.axis), [0]))
    return b.add_all(replace(op, **floored(op, x)), x)


@op
class MaxPool(Op):
    """The largest element of every window, and optionally where it stands.

    rounding: floor, ceil, or ceil_torch (no window starts in the end padding).  `indices` counts from `axis`
    on, row-major, or column-major with `column_major`; the first of equal elements wins.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads_begin: tuple[int, ...] = ()
    pads_end: tuple[int, ...] = ()
    auto_pad: str = "explicit"
    rounding: str = "floor"
    column_major: bool = False
    index_type: DType = i64
    axis: int = 0
    widens = "any"
    sig = Sig("x: T[>=3] -> y: T, indices: I", T=NUMERIC, I={i32, i64})

    def infer(self, x: Value) -> list[TensorType]:
        shape = pooled_shape(self, x)
        normal_axis("MaxPool", self.axis, len(x.shape))
        return [TensorType(x.dtype, shape), TensorType(self.index_type, shape)]

    def reference(self, x: Array) -> tuple[Array, Array]:
        view, begin, _ = pool_windows(self, x, lowest(x.dtype))
        flat = view.reshape(*view.shape[: x.ndim], math.prod(self.kernel))
        best = flat.argmax(axis=-1)
        at: Sequence[Array] = np.unravel_index(best, self.kernel)  # pyright: ignore
        start = max(self.axis % x.ndim, 0)
        position = np.zeros(best.shape, np.int64)
        grids: Array = np.indices(best.shape)  # pyright: ignore
        strides, gaps = self.strides or (1,) * (x.ndim - 2), self.dilations or (1,) * (x.ndim - 2)
        spatial = [g * s + a * d - p for g, s, a, d, p in zip(grids[2:], strides, at, gaps, begin, strict=True)]  # pyright: ignore
        places = [*grids[:2], *spatial]  # pyright: ignore
        order = list(range(start, x.ndim))
        if self.column_major:
            order = [a for a in order if a < 2] + [a for a in order if a >= 2][::-1]
        for a in order:
            position = position * x.shape[a] + places[a]  # pyright: ignore
        return flat.max(axis=-1), position.astype(self.index_type.numpy)  # pyright: ignore

    def compute(self, out: Sequence[TensorType], x: Tensor) -> tuple[IndexFunction, IndexFunction]:
        sizes = x.shape[2:]
        low = Const(lowest(x.dtype.numpy), x.dtype)

        def best(n: Expr, c: Expr, *o: Expr) -> Expr:
            def term(*k: Expr) -> Expr:
                at, ok = window_positions(self, o, k, sizes, self.kernel)
                return select(ok, x[(n, c, *at)], low)

            return reduce("max", self.kernel, term)

        def where(n: Expr, c: Expr, *o: Expr) -> Expr:
            top = best(n, c, *o)
            far = Const(np.iinfo(np.int64).max, i64)

            def term(*k: Expr) -> Expr:
                at, ok = window_positions(self, o, k, sizes, self.kernel)
                hit = ok.logical_and(x[(n, c, *at)].eq(top))
                return select(hit, flatten_index([n, c, *at], x.shape), far)

            first = reduce("min", self.kernel, term)
            return self._renumber(first, x).cast(self.index_type)

        return best, where

    def _renumber(self, position: Expr, x: Tensor) -> Expr:
        """From row-major over the whole operand to what `axis` and `column_major` ask."""
        start = self.axis % x.rank
        places = [position // index(_tail(x.shape, a)) % index(x.shape[a]) for a in range(x.rank)]
        order = list(range(start, x.rank))
        if self.column_major:
            order = [a for a in order if a < 2] + [a for a in order if a >= 2][::-1]
        return flatten_index([places[a] for a in order], [x.shape[a] for a in order])

    onnx = (
        Form(
            "MaxPool",
            1,
            attrs={**ONNX_WINDOW, **KERNEL},
            T=FLOATS,
            write=write_max_pool,
            sig=Sig("x: T[>=3] -> y: T", T=NUMERIC),
        ),
        Form("MaxPool", 8, sig=None, attrs={**ONNX_WINDOW, **KERNEL, "storage_order": Bool(False, to="column_major")}),
        Form(
            "MaxPool",
            10,
            attrs={
                **ONNX_WINDOW,
                **KERNEL,
                "storage_order": Bool(False, to="column_major"),
                "ceil_mode": ONNX_ROUNDING,
                "dilations": Ints((), lo=1),
            },
        ),
        Form("MaxPool", 11),
        Form("MaxPool", 12, T=PREV | {i8, u8}),
        Form("MaxPool", 22, T=PREV | {bf16}),
    )
    openvino = (
        Form(
            "MaxPool",
            1,
            attrs=OV_POOL,
            T=OV_NUMERIC,
            sig=Sig("x: T[>=3] -> y: T", T=NUMERIC),
            write=write_torch_rounding,
        ),
        Form(
            "MaxPool",
            8,
            sig=None,
            attrs={
                **OV_POOL,
                "dilations": PerAxis((), lo=1),
                "index_element_type": DTypeAttr(i64, to="index_type"),
                "axis": Int(0),
            },
        ),
        Form(
            "MaxPool",
            14,
            attrs={
                **OV_POOL,
                "rounding_type": OV_ROUNDING_14,
                "dilations": PerAxis((), lo=1),
                "index_element_type": DTypeAttr(i64, to="index_type"),
                "axis": Int(0),
            },
        ),
        write_only(write_row_major),
        write_only(write_gathered_windows),
    )


def _tail(shape: Sequence[Dim], axis: int) -> Dim:
    found = Dim.of(1)
    for d in shape[axis + 1 :]:
        found = found * d
    return found


OV_AVG = {**OV_POOL, "exclude-pad": Choice(assumed="window", to="counted", yes="inside", no="window", no_too="padded")}
ONNX_COUNTED = Enum({0: "inside", 1: "padded"}, "inside", to="counted")


def read_avg_pool(b: Builder, a: Attributes, x: Value) -> Value:
    """Without rounding up no window runs past the padding, and both ways of counting padding agree."""
    given = vars(a)
    fields = {k: v for k, v in given.items() if k in AveragePool.__dataclass_fields__}
    if a.counted == "window" and (a.rounding == "floor" or a.auto_pad.startswith("same")):
        fields["counted"] = "padded"
    if a.counted == "inside" and a.auto_pad == "explicit":
        some_inside(b.label, a)
    return b.AveragePool(x, **fields)


def some_inside(label: str, a: Attributes) -> None:
    """Check that no window lies in the padding alone, where it has no mean; Problem IRC3109."""
    gaps = getattr(a, "dilations", ()) or (1,) * len(a.kernel)
    for k, gap, before, after in zip(a.kernel, gaps, a.pads_begin, a.pads_end):  # other lengths are reported later
        reach, most = (k - 1) * gap + 1, max(before, after)
        facts: Facts = {"op": label, "what": "the padding", "value": most}
        require(most < reach, codes.SIZE_RANGE, **facts, expected=f"less than the window's {reach}")


def sayable(op: AveragePool, x: Value) -> bool:
    """OpenVINO divides by the whole window where it counts padding."""
    return op.counted != "padded" or effective_rounding(op) == "floor"


@op
class AveragePool(Op):
    """The mean of every window.

    counted: which positions the sum is divided by: `inside` the operand; `padded`, those and the padding;
    `window`, all of them, also beyond the end padding, which only rounding up reaches.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads_begin: tuple[int, ...] = ()
    pads_end: tuple[int, ...] = ()
    auto_pad: str = "explicit"
    rounding: str = "floor"
    counted: str = "inside"
    sig = Sig("x: T[>=3] -> y: T", T=NUMERIC)

    def infer(self, x: Value) -> TensorType:
        return TensorType(x.dtype, pooled_shape(self, x))

    def reference(self, x: Array) -> Array:
        w = wide(x)
        view, begin, end = pool_windows(self, w, 0)
        axes = tuple(range(x.ndim, view.ndim))
        rank = x.ndim - 2
        divisor = np.ones((1,) * x.ndim, w.dtype)
        for a in range(rank):
            start: Array = np.arange(int(view.shape[2 + a]))[:, None] * (self.strides or (1,) * rank)[a]
            at = start + np.arange(self.kernel[a])[None, :] * (self.dilations or (1,) * rank)[a] - begin[a]
            low, high = (0, x.shape[2 + a]) if self.counted == "inside" else (-begin[a], x.shape[2 + a] + end[a])
            inside = ((at >= low) & (at < high) | (self.counted == "window")).sum(axis=1)
            divisor = divisor * inside.reshape([-1 if k == 2 + a else 1 for k in range(x.ndim)]).astype(w.dtype)
        total = view.sum(axis=axes, dtype=w.dtype)
        if x.dtype.kind in "iu":
            return (total // np.maximum(divisor, 1)).astype(x.dtype)
        return (total / divisor).astype(x.dtype)

    def compute(self, out: TensorType, x: Tensor) -> IndexFunction:
        sizes = x.shape[2:]
        begin, end = window_padding(self, sizes, self.kernel)
        kind = x.dtype.compute

        def element(n: Expr, c: Expr, *o: Expr) -> Expr:
            def term(*k: Expr) -> Expr:
                at, ok = window_positions(self, o, k, sizes, self.kernel)
                return select(ok, x[(n, c, *at)], Const(0, x.dtype)).cast(kind)

            divisor: Expr = Const(1, i64)
            for a in range(len(sizes)):
                divisor = divisor * self._counted(o[a], a, sizes[a], begin[a], end[a])
            return (reduce("sum", self.kernel, term) / divisor.cast(kind)).cast(x.dtype)

        return element

    def _counted(self, o: Expr, a: int, size: Dim, begin: Dim, end: Dim) -> Expr:
        """How many positions of the window count along one axis."""
        if self.counted == "window":
            return Const(self.kernel[a], i64)
        stride = (self.strides or (1,) * len(self.kernel))[a]
        gap = (self.dilations or (1,) * len(self.kernel))[a]
        start = o * stride - index(begin)
        low, high = (Dim.of(0), size) if self.counted == "inside" else (-begin, size + end)
        # The first and the last k with low <= start + k * gap < high.
        first = ((index(low) - start + (gap - 1)) // gap).max(0)
        last = ((index(high) - start + (gap - 1)) // gap).min(self.kernel[a])
        return last - first

    onnx = (
        Form("AveragePool", 1, attrs={**ONNX_WINDOW, **KERNEL}, T=FLOATS, write=write_average_pool),
        Form("AveragePool", 7, attrs={**ONNX_WINDOW, **KERNEL, "count_include_pad": ONNX_COUNTED}),
        Form(
            "AveragePool",
            10,
            attrs={**ONNX_WINDOW, **KERNEL, "count_include_pad": ONNX_COUNTED, "ceil_mode": ONNX_ROUNDING},
        ),
        Form("AveragePool", 11),
        Form(
            "AveragePool",
            19,
            attrs={
                **ONNX_WINDOW,
                **KERNEL,
                "count_include_pad": ONNX_COUNTED,
                "ceil_mode": ONNX_ROUNDING,
                "dilations": Ints((), lo=1),
            },
        ),
        Form("AveragePool", 22, T=PREV | {bf16}),
        write_only(write_average_by_sums),
    )
    openvino = (
        Form(
            "AvgPool",
            1,
            attrs=OV_AVG,
            T=OV_NUMERIC,
            read=read_avg_pool,
            direct=True,
            when=sayable,
            write=write_average_pool,
        ),
        Form("AvgPool", 14, attrs={**OV_AVG, "rounding_type": OV_ROUNDING_14}, write=None),
        Form("AvgPool", 16, attrs={**OV_AVG, "rounding_type": OV_ROUNDING_14, "dilations": PerAxis((), lo=1)}),
        write_only(write_average_of_padded),
        write_only(write_average_by_sums),
    )


def read_whole_p(name: str) -> Read:
    """Version 1 has p as a float, and calls the kernel optional though nothing works without it."""

    def read(b: Builder, a: Attributes, x: Value) -> Value:
        whole = a.p == int(a.p) and a.p >= 1
        require(whole, operation.ATTRIBUTE_RANGE, op=name, attribute="p", value=a.p, expected="a whole number")
        given = vars(a)
        fields = {k: v for k, v in given.items() if k not in ("outputs", "opset")}
        if "kernel" in fields:
            require(len(a.kernel) > 0, operation.MISSING_ATTRIBUTE, op=name, attribute="kernel_shape")
        return b.operation(name)(x, **{**fields, "p": int(a.p)})

    return read


@op
class LpPool(Op):
    """(Σ |x|ᵖ)^(1/p) over every window."""

    kernel: tuple[int, ...]
    p: int = 2
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads_begin: tuple[int, ...] = ()
    pads_end: tuple[int, ...] = ()
    auto_pad: str = "explicit"
    rounding: str = "floor"
    sig = Sig("x: T[>=3] -> y: T", T=FLOATS_BF16)

    def infer(self, x: Value) -> TensorType:
        return TensorType(x.dtype, pooled_shape(self, x))

    def reference(self, x: Array) -> Array:
        view, _, _ = pool_windows(self, x, 0)
        w = np.abs(wide(view))
        return ((w**self.p).sum(axis=tuple(range(x.ndim, view.ndim))) ** (1.0 / self.p)).astype(x.dtype)

    def decompose(self, b: Builder, x: Value) -> Value:
        return write_lp_by_means(b, self, x)

    onnx = (
        Form(
            "LpPool",
            1,
            attrs={**ONNX_WINDOW, "kernel_shape": Ints((), lo=1, to="kernel"), "p": Float(2.0)},
            T=FLOATS,
            read=read_whole_p("LpPool"),
            direct=True,
        ),
        Form("LpPool", 2, attrs={**ONNX_WINDOW, **KERNEL, "p": Int(2, lo=1)}, read=None),
        Form("LpPool", 11),
        Form(
            "LpPool",
            18,
            attrs={**ONNX_WINDOW, **KERNEL, "p": Int(2, lo=1), "ceil_mode": ONNX_ROUNDING, "dilations": Ints((), lo=1)},
        ),
        Form("LpPool", 22, T=PREV | {bf16}),
        write_only(write_lp_by_sums),
    )
    openvino = (write_only(write_lp_by_means, since=14), write_only(write_lp_by_sums))


def spatial_axes(x: Value) -> list[int]:
    return list(range(2, len(x.shape)))


def global_rows(name: str) -> tuple[Form, ...]:
    return (Form(name, 1, T=FLOATS), Form(name, 22, T=PREV | {bf16}))


@op
class GlobalAveragePool(Op):
    """The mean over all spatial axes."""

    sig = Sig("x: T[>=3] -> y: T", T=FLOATS_BF16)

    def decompose(self, b: Builder, x: Value) -> Value:
        return b.ReduceMean(x, spatial_axes(x), keepdims=True)

    onnx = global_rows("GlobalAveragePool")


@op
class GlobalMaxPool(Op):
    """The maximum over all spatial axes."""

    sig = Sig("x: T[>=3] -> y: T", T=FLOATS_BF16)

    def decompose(self, b: Builder, x: Value) -> Value:
        return b.ReduceMax(x, spatial_axes(x), keepdims=True)

    onnx = global_rows("GlobalMaxPool")


@op
class GlobalLpPool(Op):
    """(Σ |x|ᵖ)^(1/p) over all spatial axes."""

    p: int = 2
    sig = Sig("x: T[>=3] -> y: T", T=FLOATS_BF16)

    def decompose(self, b: Builder, x: Value) -> Value:
        w = widened(b, x)
        power = b.Pow(b.Abs(w), b.like(float(self.p), w))
        return narrowed(b, b.Pow(b.ReduceSum(power, spatial_axes(x), keepdims=True), b.like(1.0 / self.p, w)), x)

    onnx = (
        Form("GlobalLpPool", 1, attrs={"p": Float(2.0)}, T=FLOATS, read=read_whole_p("GlobalLpPool"), direct=True),
        Form("GlobalLpPool", 2, attrs={"p": Int(2, lo=1)}, read=None),
        Form("GlobalLpPool", 22, T=PREV | {bf16}),
    )
