"""Convolutions: Conv and ConvTranspose of any spatial rank, grouped, dilated, with every padding rule.

Weights are [out, in / group, *kernel] (ConvTranspose: [in, out / group, *kernel]), as in ONNX; OpenVINO's
group axis is folded in at the border.  Sources: ONNX Conv, ConvTranspose; OpenVINO specification, Convolution-1,
GroupConvolution-1, ConvolutionBackpropData-1, GroupConvolutionBackpropData-1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import Const, Expr, IndexFunction, Tensor, all_of, index, reduce, select
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.literal import AttributeValue
from irc.ir.relation import at_most, every, multiple, same
from irc.ir.types import FLOATS, NUMERIC, TensorType, bf16, i32, u8
from irc.opdef.base import Array, Op, op, op_base
from irc.opdef.builder import Builder
from irc.opdef.codecs import Int, Ints, PerAxis
from irc.opdef.conversions import as_type
from irc.opdef.forms import PREV, Attributes, Declined, Form, write_only
from irc.opdef.precision import wide
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX
from irc.opdef.window import (
    ONNX_WINDOW,
    OV_WINDOW,
    Windowed,
    pad_spatial,
    spatial,
    window_count,
    window_padding,
    window_positions,
    windows,
)
from irc.ops.arithmetic import OV_NUMERIC

CONV = {**ONNX_WINDOW, "dilations": Ints((), lo=1), "group": Int(1, lo=1), "kernel_shape": Ints(None, lo=1)}
OV_CONV = {**OV_WINDOW, "dilations": PerAxis(lo=1)}


def transposed_geometry(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    auto_pad: str,
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    output_padding: Sequence[int],
    output_shape: Sequence[int],
) -> tuple[list[int], list[int]]:
    """(padding before each spatial axis, result sizes) of a transposed convolution, in numbers."""
    rank = len(sizes)
    extra = output_padding or (0,) * rank
    full = [(n - 1) * s + e + (k - 1) * d + 1 for n, s, e, k, d in zip(sizes, strides, extra, kernel, dilations)]
    same = auto_pad in ("same_upper", "same_lower")
    if auto_pad == "valid":
        return [0] * rank, list(output_shape[-rank:]) if output_shape else full
    if not output_shape and not same:
        begin, end = list(pads_begin or [0] * rank), list(pads_end or [0] * rank)
        return begin, [f - p - q for f, p, q in zip(full, begin, end)]
    wanted = list(output_shape[-rank:]) if output_shape else [n * s for n, s in zip(sizes, strides)]
    totals = [max(f - w, 0) for f, w in zip(full, wanted)]
    return [t // 2 if auto_pad == "same_upper" else t - t // 2 for t in totals], wanted


def static_sizes(dims: Iterable[Dim]) -> list[int]:
    return [int(d) for d in dims]


def fold_groups(b: Builder, w: Value) -> tuple[Value, int]:
    """OpenVINO's [G, out/G, in/G, *k] as [out, in/G, *k]; how many groups there are."""
    static = all(d.is_const for d in w.shape)
    require(
        static, codes.SIZE_RANGE, op="GroupConvolution", what="a size of the weights", value=w.tensor, expected="known"
    )
    groups, outputs, *rest = static_sizes(w.shape)
    return b.Reshape(w, [groups * outputs, *rest]), groups


def split_groups(b: Builder, w: Value, groups: int) -> Value:
    """The reverse of `fold_groups`."""
    shape = static_sizes(w.shape)
    return b.Reshape(w, [groups, shape[0] // groups, *shape[1:]], special_zero=False)


def check_kernel_shape(op: str, a: Attributes, w: Value) -> None:
    """Require of ONNX's `kernel_shape` that it repeats the weights' shape."""
    if a.kernel_shape is not None:
        given, real = list(a.kernel_shape), list(w.shape[2:])
        agree = len(given) == len(real) and every(*(same(r, g) for g, r in zip(given, real, strict=True)))
        require(agree, codes.SIZES_DIFFER, op=op, what="kernel_shape and the weights' shape", a=given, b=w.tensor)


def read_conv(b: Builder, a: Attributes, x: Value, w: Value, bias: Value | None = None) -> Value:
    check_kernel_shape("Conv", a, w)
    return b.Conv(x, w, bias, **window_fields(a), group=a.group)


def window_fields(a: Attributes) -> dict[str, AttributeValue]:
    return {k: getattr(a, k) for k in ("strides", "dilations", "pads_begin", "pads_end", "auto_pad")}


def add_bias(b: Builder, y: Value, bias: Value) -> Value:
    """OpenVINO has no bias operand: it becomes an Add over the channel axis."""
    return b.Add(y, b.Reshape(bias, [1, -1, *[1] * (len(y.shape) - 2)], special_zero=False))


def write_conv(b: Builder, op: Conv, x: Value, w: Value, bias: Value | None = None) -> Value:
    """OpenVINO: groups as an axis of the weights, bias as an Add."""
    fields = op.attributes()
    if bias is None:
        return b.GroupedConv(x, split_groups(b, w, op.group), **{k: v for k, v in fields.items() if k != "group"})
    return add_bias(b, b.Conv(x, w, **fields), bias)


def known_padding(op: Windowed, x: Value, w: Value) -> dict[str, AttributeValue] | None:
    """The padding in numbers, where it is known and SAME is asked of a dilated window, which ONNX Runtime refuses."""
    if op.auto_pad not in ("same_upper", "same_lower") or all(d == 1 for d in op.dilations):
        return None
    begin, end = window_padding(op, x.shape[2:], w.shape[2:])
    if not all(p.is_const for p in (*begin, *end)):
        return None
    return {"auto_pad": "explicit", "pads_begin": tuple(map(int, begin)), "pads_end": tuple(map(int, end))}


def without_padding(op: Conv, x: Value, w: Value, bias: Value | None = None) -> bool:
    return known_padding(op, x, w) is None


def write_padding(b: Builder, op: Conv, x: Value, w: Value, bias: Value | None = None) -> Value:
    return b.Conv(x, w, bias, **{**op.attributes(), **(known_padding(op, x, w) or {})})


@op_base
class Convolution(Op):
    """What all four share; one number a spatial axis, and none of them where an attribute is at its default."""

    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads_begin: tuple[int, ...] = ()
    pads_end: tuple[int, ...] = ()
    auto_pad: str = "explicit"


def write_by_bytes(b: Builder, op: Conv, x: Value, w: Value, bias: Value | None = None) -> Value:
    """Of integers, whose results wrap: the sum of the convolutions of their bytes, by what these are worth."""
    kind = x.dtype
    if not kind.is_integer or kind.bits not in (8, 16, 32):
        raise Declined
    count = kind.bits // 8
    total: Value | None = None
    for j, one in enumerate(bytes_of(b, x, count)):
        for k, other in enumerate(bytes_of(b, w, count - j)):
            if one is not None and other is not None:
                part = b.ConvInteger(one, other, **op.attributes())
                part = part if j + k == 0 else b.Mul(part, b.const(256 ** (j + k), i32))
                total = part if total is None else b.Add(total, part)
    if total is None:
        raise Declined
    y = as_type(b, total, kind)
    return y if bias is None else add_bias(b, y, bias)


def bytes_of(b: Builder, value: Value, count: int) -> list[Value | None]:
    """Take the lowest bytes of integers; of constants, none that is 0 everywhere."""
    known, rest, base = value.array, as_type(b, value, i32), b.const(256, i32)
    found: list[Value | None] = []
    for k in range(count):
        lowest = b.Mod(rest, base)
        here = known is None or bool(((known.astype(np.int64) >> (8 * k)) & 255).any())
        found.append(b.Cast(lowest, to=u8) if here else None)
        rest = b.Div(b.Sub(rest, lowest), base)
    return found


@op
class Conv(Convolution):
    """y[n, o, p] = Σ x[n, g·I + i, p·stride + k·dilation − pad] · w[o, i, k] + bias[o]"""

    group: int = 1
    sig = Sig("x: T[r>=3], w: T[r], bias?: T[1] -> y: T", T=NUMERIC)

    def infer(self, x: Value, w: Value, bias: Value | None = None) -> TensorType:
        n = len(x.shape)
        require(n >= 3, codes.WRONG_RANK, op="Conv", operand="x", type=x.tensor, expected="3 or more")
        require(len(w.shape) == n, codes.WRONG_RANK, op="Conv", operand="w", type=w.tensor, expected=n)
        what = f"channels of x ({x.tensor}) and of the weights ({w.tensor}) times {self.group} groups"
        require(
            same(x.shape[1], w.shape[1] * self.group),
            codes.SIZES_DIFFER,
            op="Conv",
            what=what,
            a=x.shape[1],
            b=w.shape[1] * self.group,
        )
        require(
            multiple(w.shape[0], self.group),
            codes.SIZE_RANGE,
            op="Conv",
            what="output channels",
            value=w.shape[0],
            expected=f"a multiple of {self.group} groups",
        )
        if bias is not None:
            require(
                bias.rank is None or (bias.rank == 1 and same(bias.shape[0], w.shape[0])),
                codes.SIZES_DIFFER,
                op="Conv",
                what="bias and output channels",
                a=bias.tensor,
                b=w.shape[0],
            )
        return TensorType(x.dtype, (x.shape[0], w.shape[0], *window_count(self, x.shape[2:], w.shape[2:])))

    def reference(self, x: Array, w: Array, bias: Array | None = None) -> Array:
        kernel = w.shape[2:]
        strides = self.strides or (1,) * len(kernel)
        dilations = self.dilations or (1,) * len(kernel)
        begin, end = padding_of(self.auto_pad, self.pads_begin, self.pads_end, x.shape[2:], kernel, strides, dilations)
        view = windows(pad_spatial(x, begin, end, 0), kernel, strides, dilations)
        y = contract_windows(wide(view), wide(w), self.group).astype(x.dtype)
        return y if bias is None else y + bias.reshape(1, -1, *[1] * len(kernel))

    def compute(self, out: TensorType, x: Tensor, w: Tensor, bias: Tensor | None = None) -> IndexFunction:
        sizes, kernel = x.shape[2:], w.shape[2:]
        per_group = w.shape[0] // self.group

        def element(n: Expr, o: Expr, *p: Expr) -> Expr:
            def term(i: Expr, *k: Expr) -> Expr:
                at, ok = window_positions(self, p, k, sizes, kernel)
                channel = i if self.group == 1 else (o // index(per_group)) * w.shape[1] + i
                return select(ok, x[(n, channel, *at)], Const(0, x.dtype)) * w[(o, i, *k)]

            total = reduce("sum", [w.shape[1], *kernel], term)
            return total if bias is None else total + bias[o]

        return element

    onnx = (
        Form("Conv", 1, attrs=CONV, T=FLOATS, read=read_conv, direct=True, when=without_padding, write=write_padding),
        Form("Conv", 11),
        Form("Conv", 22, T=PREV | {bf16}),
        write_only(write_by_bytes, since=10),
    )
    openvino = (
        Form(
            "Convolution",
            1,
            attrs=OV_CONV,
            T=OV_NUMERIC,
            write=write_conv,
            sig=Sig("x: T[r>=3], w: T[r] -> y: T", T=NUMERIC),
        ),
    )


@op
class GroupedConv(Convolution):
    """Conv with OpenVINO's weights [group, out / group, in / group, *kernel]."""

    sig = Sig("x: T[>=3], w: T[>=4] -> y: T", T=NUMERIC)

    def decompose(self, b: Builder, x: Value, w: Value) -> Value:
        weights, groups = fold_groups(b, w)
        return b.Conv(x, weights, **self.attributes(), group=groups)

    openvino = (Form("GroupConvolution", 1, attrs=OV_CONV, T=OV_NUMERIC),)


def padding_of(
    auto_pad: str,
    begin: Sequence[int],
    end: Sequence[int],
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[Sequence[int], Sequence[int]]:
    """Padding before and after each spatial axis, in numbers."""
    if auto_pad == "explicit":
        return begin or (0,) * len(sizes), end or (0,) * len(sizes)
    if auto_pad == "valid":
        return (0,) * len(sizes), (0,) * len(sizes)
    totals = [
        max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0) for n, k, s, d in zip(sizes, kernel, strides, dilations)
    ]
    small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return (small, large) if auto_pad == "same_upper" else (large, small)


def contract_windows(view: Array, w: Array, group: int) -> Array:
    """[N, C, *count, *kernel] windows by [O, C / group, *kernel] weights → [N, O, *count]."""
    rank = w.ndim - 2
    batch, channels, *count = view.shape[: 2 + rank]
    view = view.reshape(batch, group, channels // group, *view.shape[2:])
    order = (0, 1, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank))
    depth = math.prod(w.shape[1:])
    columns = view.transpose(order).reshape(batch, group, math.prod(count), depth)
    rows = w.reshape(group, w.shape[0] // group, depth)
    # Pixels side by side in memory: what sums over them, as an InstanceNormalization, adds in pairs, which loses least.
    return np.matmul(rows, columns.transpose(0, 1, 3, 2)).reshape(batch, w.shape[0], *count)


def read_conv_transpose(b: Builder, a: Attributes, x: Value, w: Value, bias: Value | None = None) -> Value:
    return b.ConvTranspose(
        x, w, bias, **window_fields(a), group=a.group, output_padding=a.output_padding, output_shape=a.output_shape
    )


def read_backprop(b: Builder, a: Attributes, x: Value, w: Value, shape: Value | None = None) -> Value:
    """OpenVINO: the spatial result shape is an operand, and with it padding is chosen, lower or upper."""
    wanted = () if shape is None else tuple(_constant(shape))
    weights, groups = (w, 1) if not a.grouped else fold_groups(b, w)
    op = ConvTranspose(
        strides=a.strides,
        dilations=a.dilations,
        pads_begin=a.pads_begin,
        pads_end=a.pads_end,
        auto_pad=a.auto_pad,
        group=groups,
        output_padding=tuple(a.output_padding),
        output_shape=wanted,
    )
    if a.auto_pad == "valid" or (not wanted and a.auto_pad != "explicit"):  # SAME needs a shape to aim at
        op = replace(op, auto_pad="explicit", pads_begin=(), pads_end=())
    elif a.auto_pad != "explicit":  # the odd element of padding goes where ONNX's rule would not put it
        op = replace(op, auto_pad={"same_upper": "same_lower", "same_lower": "same_upper"}[a.auto_pad])
    if wanted and op.auto_pad == "explicit":
        # Explicit padding stays; what is missing at the end is output padding.
        op = replace(op, output_shape=())
        extra = [s - int(d) for s, d in zip(wanted, op.infer(x, weights).dims()[2:], strict=True)]
        given = op.output_padding or (0,) * len(extra)
        op = replace(op, output_padding=tuple(e + g for e, g in zip(extra, given, strict=True)))
    return b.add(op, x, weights)


def _constant(value: Value) -> list[int]:
    found = value.ints()
    require(found is not None, operation.NEEDS_CONSTANT, op="ConvolutionBackpropData", operand="output_shape")
    return found or []


def read_group_backprop(b: Builder, a: Attributes, x: Value, w: Value, shape: Value | None = None) -> Value:
    a.grouped = True
    return read_backprop(b, a, x, w, shape)


def read_plain_backprop(b: Builder, a: Attributes, x: Value, w: Value, shape: Value | None = None) -> Value:
    a.grouped = False
    return read_backprop(b, a, x, w, shape)


def write_conv_transpose(b: Builder, op: ConvTranspose, x: Value, w: Value, bias: Value | None = None) -> Value:
    """OpenVINO: padding made explicit, groups as an axis of the weights, bias as an Add."""
    begin, end = op.padding(x.shape[2:], w.shape[2:])
    explicit = replace(
        op, pads_begin=tuple(map(int, begin)), pads_end=tuple(map(int, end)), auto_pad="explicit", output_shape=()
    )
    if op.output_shape:  # a result larger than the windows reach ends in zeros
        bare = replace(explicit, output_padding=()).infer(x, w).dims()[2:]
        wanted = op.infer(x, w).dims()[2:]
        more = tuple(int(n) - int(m) for n, m in zip(wanted, bare, strict=True))
        explicit = replace(explicit, output_padding=more)
    if bias is not None:
        return add_bias(b, b.add(explicit, x, w), bias)
    if op.group == 1:
        return b.add(explicit, x, w)
    fields = explicit.attributes()
    fields.pop("group")
    fields.pop("output_shape")
    return b.GroupedConvTranspose(x, split_groups(b, w, op.group), **fields)


def plain(op: ConvTranspose, *_: Value | None) -> bool:
    """What ConvolutionBackpropData says without its third operand."""
    return op.auto_pad in ("explicit", "valid") and not op.output_shape


@op
class ConvTranspose(Convolution):
    """The transpose of Conv: y[n, o, p] = Σ x[n, i, q] · w[i, o, k] over p = q·stride + k·dilation − pad."""

    group: int = 1
    output_padding: tuple[int, ...] = ()
    output_shape: tuple[int, ...] = ()
    sig = Sig("x: T[r>=3], w: T[r], bias?: T[1] -> y: T", T=NUMERIC)

    def padding(self, sizes: Sequence[Dim], kernel: Sequence[Dim]) -> tuple[list[Dim], list[Dim]]:
        """Padding before and after each spatial axis; from `output_shape` or a SAME rule where given."""
        rank = len(sizes)
        strides = spatial("ConvTranspose", "strides", self.strides, rank, 1)
        if self.auto_pad == "valid":
            return [Dim.of(0)] * rank, [Dim.of(0)] * rank
        same = self.auto_pad in ("same_upper", "same_lower")
        if not self.output_shape and not same:
            begin = spatial("ConvTranspose", "pads_begin", self.pads_begin, rank, 0)
            end = spatial("ConvTranspose", "pads_end", self.pads_end, rank, 0)
            return list(map(Dim.of, begin)), list(map(Dim.of, end))
        wanted = self.output_shape[-rank:] if self.output_shape else [n * s for n, s in zip(sizes, strides)]
        dilations = spatial("ConvTranspose", "dilations", self.dilations, rank, 1)
        extra = spatial("ConvTranspose", "output_padding", self.output_padding, rank, 0)
        totals = [
            ((n - 1) * s + e + (k - 1) * d + 1 - w).maximum(0)
            for n, s, e, k, d, w in zip(sizes, strides, extra, kernel, dilations, wanted, strict=True)
        ]
        small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
        return (small, large) if self.auto_pad == "same_upper" else (large, small)

    def infer(self, x: Value, w: Value, bias: Value | None = None) -> TensorType:
        rank = len(x.shape) - 2
        require(rank >= 1, codes.WRONG_RANK, op="ConvTranspose", operand="x", type=x.tensor, expected="3 or more")
        require(
            len(w.shape) == rank + 2,
            codes.WRONG_RANK,
            op="ConvTranspose",
            operand="w",
            type=w.tensor,
            expected=rank + 2,
        )
        require(
            same(x.shape[1], w.shape[0]),
            codes.SIZES_DIFFER,
            op="ConvTranspose",
            what="channels of x and of the weights",
            a=x.shape[1],
            b=w.shape[0],
        )
        channels, facts = w.shape[1] * self.group, {"op": "ConvTranspose", "what": "input channels"}
        whole = multiple(x.shape[1], self.group)
        require(whole, codes.SIZE_RANGE, **facts, value=x.shape[1], expected=f"a multiple of group={self.group}")
        for k, size in enumerate(x.shape[2:], 2):
            facts = {"op": "ConvTranspose", "what": f"axis {k} of x", "value": size}
            require(at_most(1, size), codes.SIZE_RANGE, **facts, expected="1 or more")
        if bias is not None:
            agree = bias.rank is None or (bias.rank == 1 and same(bias.shape[0], channels))
            facts = {"op": "ConvTranspose", "what": "bias and output channels"}
            require(agree, codes.SIZES_DIFFER, **facts, a=bias.tensor, b=channels)
        strides = spatial("ConvTranspose", "strides", self.strides, rank, 1)
        dilations = spatial("ConvTranspose", "dilations", self.dilations, rank, 1)
        extra = spatial("ConvTranspose", "output_padding", self.output_padding, rank, 0)
        if self.output_shape:
            enough = len(self.output_shape) >= rank  # batch and channels may stand before them
            facts = {"op": "ConvTranspose", "attribute": "output_shape", "given": len(self.output_shape)}
            require(enough, operation.ATTRIBUTE_LENGTH, **facts, needed=rank)
            sizes = [Dim.of(s) for s in self.output_shape[-rank:]]
        elif self.auto_pad in ("same_upper", "same_lower"):
            sizes = [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
        else:
            begin, end = self.padding(x.shape[2:], w.shape[2:])
            sizes = [
                (n - 1) * s + e + (k - 1) * d + 1 - p - q
                for n, s, e, k, d, p, q in zip(x.shape[2:], strides, extra, w.shape[2:], dilations, begin, end)
            ]
        return TensorType(x.dtype, (x.shape[0], channels, *sizes))

    def reference(self, x: Array, w: Array, bias: Array | None = None) -> Array:
        rank, group = x.ndim - 2, self.group
        strides, dilations = self.strides or (1,) * rank, self.dilations or (1,) * rank
        begin, sizes = transposed_geometry(
            x.shape[2:],
            w.shape[2:],
            strides,
            dilations,
            self.auto_pad,
            self.pads_begin,
            self.pads_end,
            self.output_padding,
            self.output_shape,
        )
        full = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(x.shape[2:], strides, w.shape[2:], dilations)]
        full = [max(f, b + s) for f, b, s in zip(full, begin, sizes)]
        xg = wide(x).reshape(x.shape[0], group, x.shape[1] // group, math.prod(x.shape[2:]))
        wg = wide(w).reshape(group, x.shape[1] // group, w.shape[1], math.prod(w.shape[2:]))
        parts = np.einsum("ngcp,gcok->ngokp", xg, wg, optimize=True)
        parts = parts.reshape(x.shape[0], group * w.shape[1], wg.shape[-1], *x.shape[2:])
        y = np.zeros((x.shape[0], group * w.shape[1], *full), parts.dtype)
        for number, k in enumerate(np.ndindex(*w.shape[2:])):
            at = tuple(
                slice(i * d, i * d + (n - 1) * s + 1, s) for i, d, n, s in zip(k, dilations, x.shape[2:], strides)
            )
            y[(slice(None), slice(None), *at)] += parts[:, :, number]
        cut = tuple(slice(b, b + s) for b, s in zip(begin, sizes))
        y = y[(slice(None), slice(None), *cut)].astype(x.dtype)
        return y if bias is None else y + bias.reshape(1, -1, *[1] * rank)

    def compute(self, out: TensorType, x: Tensor, w: Tensor, bias: Tensor | None = None) -> IndexFunction:
        rank = x.rank - 2
        begin = list(map(index, self.padding(x.shape[2:], w.shape[2:])[0]))
        strides = spatial("ConvTranspose", "strides", self.strides, rank, 1)
        dilations = spatial("ConvTranspose", "dilations", self.dilations, rank, 1)
        out_per_group, in_per_group = w.shape[1], x.shape[1] // self.group

        def element(n: Expr, o: Expr, *p: Expr) -> Expr:
            def term(i: Expr, *k: Expr) -> Expr:
                reach = [a + b - j * d for a, b, j, d in zip(p, begin, k, dilations, strict=True)]
                at = [r // s for r, s in zip(reach, strides, strict=True)]
                ok = all_of(
                    (r % s).eq(0).logical_and(r.ge(0)).logical_and(q.lt(index(size)))
                    for r, s, q, size in zip(reach, strides, at, x.shape[2:], strict=True)
                )
                channel = i if self.group == 1 else (o // index(out_per_group)) * in_per_group + i
                local = o if self.group == 1 else o % index(out_per_group)
                return select(ok, x[(n, channel, *at)], Const(0, x.dtype)) * w[(channel, local, *k)]

            total = reduce("sum", [in_per_group, *w.shape[2:]], term)
            return total if bias is None else total + bias[o]

        return element

    onnx = (
        Form(
            "ConvTranspose",
            1,
            T=FLOATS,
            read=read_conv_transpose,
            direct=True,
            attrs={**CONV, "output_padding": Ints((), lo=0), "output_shape": Ints((), lo=1)},
        ),
        Form("ConvTranspose", 11),
        Form("ConvTranspose", 22, T=PREV | {bf16}),
    )
    openvino = (
        Form(
            "ConvolutionBackpropData",
            1,
            attrs={**OV_CONV, "output_padding": Ints(())},
            T=OV_NUMERIC,
            sig=Sig("x: T[>=3], w: T[>=3], output_shape?: I[1] -> y: T", T=NUMERIC, I=INDEX),
            read=read_plain_backprop,
            direct=True,
            write=write_conv_transpose,
            when=plain,
        ),
    )


@op
class GroupedConvTranspose(Convolution):
    """ConvTranspose with OpenVINO's weights [group, in / group, out / group, *kernel]."""

    output_padding: tuple[int, ...] = ()
    sig = Sig("x: T[>=3], w: T[>=4] -> y: T", T=NUMERIC)

    def decompose(self, b: Builder, x: Value, w: Value) -> Value:
        weights, groups = fold_groups(b, w)
        return b.ConvTranspose(x, weights, **self.attributes(), group=groups)

    openvino = (
        Form(
            "GroupConvolutionBackpropData",
            1,
            attrs={**OV_CONV, "output_padding": Ints(())},
            T=OV_NUMERIC,
            sig=Sig("x: T[>=3], w: T[>=4], output_shape?: I[1] -> y: T", T=NUMERIC, I=INDEX),
            read=read_group_backprop,
            direct=True,
        ),
    )
