"""Convolution whose kernel positions are moved by offsets.  Sources: arXiv:1811.11168; ONNX DeformConv."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import reduce

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.ir.dim import Dim, product
from irc.ir.graph import Value
from irc.ir.relation import multiple, same
from irc.ir.types import FLOATS, FLOATS_BF16, DType, TensorType, bf16, i64
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Choice, Int, Ints, Pads
from irc.opdef.conversions import as_type
from irc.opdef.forms import PREV, Attributes, Declined, Form, write_only
from irc.opdef.precision import narrowed, wide, widened
from irc.opdef.signature import Sig
from irc.opdef.window import window_count, window_padding
from irc.ops.conv import OV_CONV, Conv, add_bias, window_fields
from irc.ops.grid_sample import index_type, side_by_side

OV_DEFORMABLE = {**OV_CONV, "group": Int(1, lo=1), "deformable_group": Int(1, lo=1, to="offset_group")}


def read_deformable(
    b: Builder, a: Attributes, x: Value, w: Value, offset: Value, bias: Value | None = None, mask: Value | None = None
) -> Value:
    """Read OpenVINO's operation, whose padding may follow from the sizes."""
    clamped = getattr(a, "clamped", True)
    fields = window_fields(a)
    if fields.pop("auto_pad") != "explicit":
        padded = Conv(**window_fields(a))  # pyright: ignore[reportArgumentType]
        begin, end = window_padding(padded, x.shape[2:], w.shape[2:])
        known = all(p.is_const for p in (*begin, *end))
        facts = {"op": "DeformableConvolution", "what": "a padded size", "value": x.tensor, "expected": "known"}
        require(known, codes.SIZE_RANGE, **facts)
        fields |= {"pads_begin": tuple(map(int, begin)), "pads_end": tuple(map(int, end))}
    operands = [x, w, offset, *([] if mask is None else [None, mask])]
    return b.DeformConv(*operands, **fields, group=a.group, offset_group=a.offset_group, clamped=clamped)


def _grid(op: DeformConv, w: Value, offset: Value) -> Array:
    """The places of all kernel positions without offsets, [1, taps, 2, rows, columns]."""
    kernel, shape = [int(k) for k in w.shape[2:]], [int(d) for d in offset.shape[2:]]
    strides, dilations, begin = op.strides or (1, 1), op.dilations or (1, 1), op.pads_begin or (0, 0)
    grids: list[Array] = []
    for axis in (0, 1):
        taps = np.arange(kernel[axis]) * dilations[axis] - begin[axis]
        steps = np.arange(shape[axis]) * strides[axis]
        grid = taps.reshape([-1, 1] if axis == 0 else [1, -1])[:, :, None, None] + (
            steps[:, None] if axis == 0 else steps[None, :]
        )
        grids.append(np.broadcast_to(grid, (*kernel, *shape)).reshape(-1, *shape))
    return np.stack(grids, 1)[None]


def write_clamped(
    b: Builder, op: DeformConv, x: Value, w: Value, offset: Value, bias: Value | None = None, mask: Value | None = None
) -> Value:
    """Move places that are beyond the last element to it, and mask what is outside."""
    if not op.clamped:
        raise Declined
    static = all(d.is_const for v in (x, w, offset) for d in v.shape[1:])
    facts = {"op": op.name, "what": "a size", "value": x.tensor, "expected": "known"}
    require(static, codes.SIZE_RANGE, **facts)
    shape, taps = [int(d) for d in offset.shape[1:]], int(w.shape[2] * w.shape[3])
    grid = b.const(_grid(op, w, offset), x.dtype)
    rest = [-1, taps, 2, *shape[1:]]
    place = b.Add(b.Reshape(offset, rest, special_zero=False), grid)
    size = b.const(np.array([int(n) for n in x.shape[2:]]).reshape(2, 1, 1), x.dtype)
    zero, one = b.like(0.0, x), b.like(1.0, x)
    inside = b.And(b.GreaterOrEqual(place, zero), b.Less(place, size))
    weight = b.ReduceMin(as_type(b, inside, x.dtype), [2], keepdims=False)
    weight = b.Reshape(weight, [-1, shape[0] // 2, *shape[1:]], special_zero=False)
    moved = b.Sub(b.Min(b.Max(place, zero), b.Sub(size, one)), grid)
    offset = b.Reshape(moved, [-1, *shape], special_zero=False)
    mask = weight if mask is None else b.Mul(mask, weight)
    return b.add(dataclasses.replace(op, clamped=False), x, w, offset, bias, mask)


def write_taps(
    b: Builder, op: DeformConv, x: Value, w: Value, offset: Value, bias: Value | None = None, mask: Value | None = None
) -> Value:
    """Gather the four elements around each place, weigh them, and multiply what each kernel position sees."""
    static = all(d.is_const for v in (x, w, offset) for d in v.shape[1:]) and not op.clamped
    require(static, codes.SIZE_RANGE, op=op.name, what="a size", value=x.tensor, expected="known")
    channels, height, width = (int(d) for d in x.shape[1:])
    taps, (rows, columns) = int(w.shape[2] * w.shape[3]), (int(d) for d in offset.shape[2:])
    groups, points = op.offset_group, taps * rows * columns
    wide = [widened(b, v) for v in (x, offset)]
    place = b.Add(
        b.Reshape(wide[1], b.const([-1, taps, 2, rows, columns])), b.const(_grid(op, w, offset), wide[0].dtype)
    )
    place = b.Reshape(b.Transpose(place, [2, 0, 1, 3, 4]), b.const([2, -1, 1, points]))
    y, z = (b.Gather(place, b.const(axis), b.const(0)) for axis in (0, 1))
    flat = b.Reshape(wide[0], b.const([-1, channels // groups, height * width]))
    size = b.Concat(b.Gather(b.Shape(flat), b.const([0, 1]), b.const(0)), b.const([points]), axis=0)
    found: Value | None = None
    for down in (0, 1):
        for right in (0, 1):
            first, last = b.Floor(y), b.Floor(z)
            parts: list[Value] = []
            index: list[Value] = []
            for low, at, far, limit in ((first, y, down, height), (last, z, right, width)):
                corner = b.Add(low, b.like(float(far), low))
                part = b.Sub(at, low) if far else b.Sub(b.like(1.0, low), b.Sub(at, low))
                bound = b.like(float(limit - 1), low)
                inside = b.And(b.GreaterOrEqual(corner, b.like(0.0, low)), b.LessOrEqual(corner, bound))
                parts.append(b.Where(inside, part, b.like(0.0, low)))
                index.append(as_type(b, b.Min(b.Max(corner, b.like(0.0, low)), bound), i64))
            number = b.Expand(b.Add(b.Mul(index[0], b.const(width)), index[1]), size)
            term = b.Mul(b.GatherElements(flat, number, axis=2), b.Mul(parts[0], parts[1]))
            found = term if found is None else b.Add(found, term)
    assert found is not None
    if mask is not None:
        found = b.Mul(found, b.Reshape(widened(b, mask), b.const([-1, 1, points])))
    inner = channels // op.group * taps
    seen = b.Reshape(found, b.const([-1, op.group, inner, rows * columns]))
    weights = b.Reshape(widened(b, w), b.const([1, op.group, -1, inner]))
    product = b.Reshape(b.MatMul(weights, seen), b.const([-1, int(w.shape[0]), rows, columns]))
    return narrowed(b, product if bias is None else add_bias(b, product, widened(b, bias)), x)


def write_bias(
    b: Builder, op: DeformConv, x: Value, w: Value, offset: Value, bias: Value | None = None, mask: Value | None = None
) -> Value:
    """OpenVINO has no bias operand."""
    if bias is None:
        raise Declined
    return add_bias(b, b.add(op, x, w, offset, None, mask), bias)


def no_bias(op: DeformConv, *operands: Value | None) -> bool:
    return len(operands) < 4 or operands[3] is None


def no_mask(op: DeformConv, *operands: Value | None) -> bool:
    return op.clamped and len(operands) < 4


@op
class DeformConv(Op):
    """y[n, o, p] = Σ x[n, c, p·stride + k·dilation − pad + offset[n, k, p]] · mask[n, k, p] · w[o, c, k] + bias[o]

    x stands between its elements by linear interpolation, and is 0 outside.  Each of `offset_group` groups of channels
    has offsets (for every kernel position, one for each axis) and a mask of its own.  clamped: x is 0 before its first
    element, and between the last one and its end as the last one.
    """

    group: int = 1
    offset_group: int = 1
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads_begin: tuple[int, ...] = ()
    pads_end: tuple[int, ...] = ()
    kernel_shape: tuple[int, ...] | None = None
    clamped: bool = False
    sig = Sig("x: T[4], w: T[4], offset: T[4], bias?: T[1], mask?: T[4] -> y: T", T=FLOATS_BF16)
    auto_pad = "explicit"

    def infer(
        self, x: Value, w: Value, offset: Value, bias: Value | None = None, mask: Value | None = None
    ) -> TensorType:
        name = "DeformConv"
        channels, outputs = x.shape[1], w.shape[0]
        sizes = f"channels of x and of the weights times {self.group} groups"
        fits = same(channels, w.shape[1] * self.group)
        require(fits, codes.SIZES_DIFFER, op=name, what=sizes, a=channels, b=w.shape[1] * self.group)
        for what, value, of in (("output channels", outputs, self.group), ("channels", channels, self.offset_group)):
            facts = {"op": name, "what": what, "value": value, "expected": f"a multiple of {of} groups"}
            require(multiple(value, of), codes.SIZE_RANGE, **facts)
        shape = (x.shape[0], outputs, *window_count(self, x.shape[2:], w.shape[2:]))
        taps = w.shape[2] * w.shape[3] * self.offset_group
        for value, each in ((offset, 2), (mask, 1)):
            if value is not None:
                wanted = x.tensor.with_shape([x.shape[0], taps * each, *shape[2:]])
                for a, b in zip(value.shape, wanted.dims(), strict=True):
                    require(same(a, b), codes.SHAPES_DIFFER, op=name, first=value.tensor, second=wanted)
        if bias is not None:
            what = "bias and output channels"
            require(same(bias.shape[0], outputs), codes.SIZES_DIFFER, op=name, what=what, a=bias.tensor, b=outputs)
        return TensorType(x.dtype, shape)

    def reference(
        self, x: Array, w: Array, offset: Array, bias: Array | None = None, mask: Array | None = None
    ) -> Array:
        kernel = w.shape[2:]
        rows, columns = offset.shape[2:]
        strides, dilations = self.strides or (1, 1), self.dilations or (1, 1)
        begin = self.pads_begin or (0, 0)
        n, groups = len(x), self.offset_group
        data, moved = wide(x), wide(offset).reshape(n, groups, *kernel, 2, rows, columns)
        scale = None if mask is None else wide(mask).reshape(n, groups, *kernel, rows, columns)
        held = data.reshape(n, groups, -1, *data.shape[2:])
        taps = np.zeros((*held.shape[:3], *kernel, rows, columns), data.dtype)
        at_rows = np.arange(rows, dtype=np.int64)[:, None] * strides[0] - begin[0]
        at_columns = np.arange(columns, dtype=np.int64) * strides[1] - begin[1]
        for a in range(kernel[0]):
            for b in range(kernel[1]):
                y: Array = moved[:, :, a, b, 0] + np.asarray(at_rows + a * dilations[0], data.dtype)
                z: Array = moved[:, :, a, b, 1] + np.asarray(at_columns + b * dilations[1], data.dtype)
                found = _between(held, y, z, self.clamped)
                taps[:, :, :, a, b] = found if scale is None else found * scale[:, :, None, a, b]
        taps = taps.reshape(n, self.group, -1, rows, columns)
        weights = wide(w).reshape(self.group, w.shape[0] // self.group, -1)
        total = np.einsum("ngkij,gok->ngoij", taps, weights).reshape(n, w.shape[0], rows, columns)
        if bias is not None:
            total = total + wide(bias).reshape(-1, 1, 1)
        return total.astype(x.dtype)

    def decompose(
        self, b: Builder, x: Value, w: Value, offset: Value, bias: Value | None = None, mask: Value | None = None
    ) -> Value:
        """Multiply what each kernel position sees of all channels, which stand side by side, by the weights."""
        shape, (images, channels), (height, width) = (
            self.infer(x, w, offset, bias, mask).dims(),
            x.shape[:2],
            w.shape[2:],
        )
        taps, points, groups = height * width, shape[2] * shape[3], Dim.of(self.offset_group)
        indices, weights = self._taps(b, x, w, offset, mask, shape[2:])
        planes = b.Reshape(widened(b, x), b.dims([images, channels, product(x.shape[2:])]), special_zero=False)
        rows = side_by_side(b, planes, groups)
        if not all(d.is_const and int(d) for d in x.shape[2:]):  # an element to read where there may be none
            rows = b.Pad(rows, b.const([0] * 5 + [1] + [0] * 2))
        given = [b.Reshape(v, b.dims([images, groups, taps, points]), special_zero=False) for v in (*indices, *weights)]
        seen = b.WeightedRows(rows, *(v for pair in zip(given[:4], given[4:], strict=True) for v in pair))
        parts, inner, outputs = self.group, channels // self.group, w.shape[0] // self.group
        wide = b.Reshape(widened(b, w), b.dims([parts, outputs, inner, taps]), special_zero=False)
        wide = b.Transpose(wide, [0, 3, 2, 1])
        if parts == 1:
            seen = b.Reshape(seen, b.dims([images, points, taps * inner]), special_zero=False)
            wide = b.Reshape(wide, b.dims([taps * inner, outputs]), special_zero=False)
            y = b.Transpose(b.MatMul(seen, wide), [0, 2, 1])
        else:
            seen = b.Reshape(seen, b.dims([images, points, taps, parts, inner]), special_zero=False)
            seen = b.Transpose(seen, [0, 3, 1, 2, 4])
            seen = b.Reshape(seen, b.dims([images, parts, points, taps * inner]), special_zero=False)
            wide = b.Reshape(wide, b.dims([parts, taps * inner, outputs]), special_zero=False)
            y = b.Transpose(b.MatMul(seen, wide), [0, 1, 3, 2])
        y = b.Reshape(y, b.dims(shape), special_zero=False)
        return narrowed(b, y if bias is None else add_bias(b, y, widened(b, bias)), x)

    def _taps(
        self, b: Builder, x: Value, w: Value, offset: Value, mask: Value | None, result: Sequence[Dim]
    ) -> tuple[list[Value], list[Value]]:
        """Indices in its plane and weights of the four elements around each place, (n, groups, h, w, rows, columns).

        An index is negative where there is no element.
        """
        kernel, moved = w.shape[2:], widened(b, offset)
        strides, dilations, begin = self.strides or (1, 1), self.dilations or (1, 1), self.pads_begin or (0, 0)
        rest = [offset.shape[0], self.offset_group, *kernel]
        moved = b.Reshape(moved, b.dims([*rest, 2, *result]), special_zero=False)
        places: list[Value] = []
        inside: list[Value] = []
        for axis in (0, 1):
            step, tap = (
                b.Range(b.const(0), b.Reshape(b.dims([n]), []), b.const(1)) for n in (result[axis], kernel[axis])
            )
            step, tap = b.Mul(step, b.const(strides[axis])), b.Mul(tap, b.const(dilations[axis]))
            step = b.Reshape(b.Sub(step, b.const(begin[axis])), [-1, 1] if axis == 0 else [-1])
            grid = b.Add(b.Reshape(tap, [-1, *[1] * (3 - axis)]), step)
            place = b.Add(b.Gather(moved, b.const(axis), b.const(4)), b.Cast(grid, to=moved.dtype))
            size = b.Cast(b.Reshape(b.dims([x.shape[2 + axis]]), []), to=moved.dtype)
            zero, outside = b.like(0.0, place), b.like(-1.0, place)
            inside += [b.GreaterOrEqual(place, zero) if self.clamped else b.Greater(place, outside)]
            inside += [b.Less(place, size)]
            places.append(place)
        there = reduce(b.And, inside)
        far, kind = b.like(-2.0, places[0]), index_type(x, "zeros")
        along: list[tuple[list[Value], list[Value]]] = []
        for place, n in zip(places, x.shape[2:], strict=True):
            at = b.Where(there, place, far)  # both elements beside it are outside
            along.append(self._along(b, at, b.Cast(b.Reshape(b.dims([n]), []), to=kind), kind))
        width = b.Cast(b.Reshape(b.dims([x.shape[3]]), []), to=kind)
        scale = None
        if mask is not None:
            scale = b.Reshape(widened(b, mask), b.dims([*rest, *result]), special_zero=False)
        indices, weights = list[Value](), list[Value]()
        for row, part in zip(*along[0], strict=True):
            for column, other in zip(*along[1], strict=True):
                none = b.Less(b.Min(row, column), b.const(0, kind))
                indices.append(b.Where(none, b.const(-1, kind), b.Add(b.Mul(row, width), column)))
                weight = b.Mul(part, other)
                weights.append(weight if scale is None else b.Mul(weight, scale))
        return indices, weights

    def _along(self, b: Builder, place: Value, size: Value, kind: DType) -> tuple[list[Value], list[Value]]:
        """Indices of the two elements beside a place along an axis, negative outside, and their weights."""
        low = b.Floor(place)
        part, first = b.Sub(place, low), b.Cast(low, to=kind)
        last = b.Sub(size, b.const(1, kind))
        second = b.Add(first, b.const(1, kind))
        if self.clamped:
            second = b.Min(second, last)
        else:
            second = b.Where(b.Less(second, size), second, b.const(-1, kind))
        return [first, second], [b.Sub(b.like(1.0, place), part), part]

    onnx = (
        write_only(write_taps, since=11),
        Form(
            "DeformConv",
            19,
            attrs={
                "strides": Ints((), lo=1),
                "dilations": Ints((), lo=1),
                "pads": Pads(lo=0),
                "group": Int(1, lo=1),
                "offset_group": Int(1, lo=1),
                "kernel_shape": Ints(None, lo=1),
            },
            T=FLOATS,
            write=write_clamped,
        ),
        Form("DeformConv", 22, T=PREV | {bf16}),
    )
    openvino = (
        Form(
            "DeformableConvolution",
            1,
            attrs=OV_DEFORMABLE,
            sig=Sig("x: T[4], offset: T[4], w: T[4] -> y: T", T=FLOATS_BF16),
            T=FLOATS_BF16,
            order=(0, 2, 1),
            read=read_deformable,
            direct=True,
            when=no_mask,
            judges=("clamped", "kernel_shape"),
            last=7,
        ),
        Form(
            "DeformableConvolution",
            8,
            attrs={**OV_DEFORMABLE, "bilinear_interpolation_pad": Choice(True, to="clamped", yes=False, no=True)},
            sig=Sig("x: T[4], offset: T[4], w: T[4], mask?: T[4] -> y: T", T=FLOATS_BF16),
            order=(0, 2, 1, 4),
            when=no_bias,
            judges=("kernel_shape",),
            write=write_bias,
        ),
    )


def _between(x: Array, y: Array, z: Array, clamped: bool) -> Array:
    """x[n, g, c] at rows y and columns z, of shape [n, g, …]; 0 outside."""
    height, width = x.shape[3:]
    n, g = np.ogrid[: x.shape[0], : x.shape[1]]
    n, g = n[..., None, None], g[..., None, None]
    before = (y >= 0) & (z >= 0) if clamped else (y > -1) & (z > -1)
    inside = before & (y < height) & (z < width)
    y, z = np.where(inside, y, 0), np.where(inside, z, 0)
    top, left = np.floor(y), np.floor(z)
    total = np.zeros((*x.shape[:3], *y.shape[2:]), x.dtype)
    for down in (0, 1):
        for right in (0, 1):
            a, b = (top + down).astype(np.int64), (left + right).astype(np.int64)
            there = inside if clamped else inside & (a >= 0) & (a < height) & (b >= 0) & (b < width)
            weight = (y - top if down else 1 - (y - top)) * (z - left if right else 1 - (z - left))
            if height and width:
                found = x[n, g, :, np.clip(a, 0, height - 1), np.clip(b, 0, width - 1)]
                value = np.where(there[..., None], found, 0) * weight[..., None]
                total += np.moveaxis(value, -1, 2).astype(x.dtype)
    return total
