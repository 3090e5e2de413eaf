"""Parts of a tensor: Slice, StridedSlice.

Bounds clamp as ONNX's Slice-13 says, also symbolic ones: what may be negative counts from the end where it is.
Sources: ONNX Slice; OpenVINO specification, Slice-8, StridedSlice-1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import EllipsisType

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import Expr, IndexFunction, Tensor, index, select
from irc.ir.dim import INF, Dim, Symbol
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import ANY, INTEGERS, TensorType, boolean, i64
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import AsInput, Ints
from irc.opdef.contents import Contents
from irc.opdef.conversions import as_i64
from irc.opdef.forms import Attributes, Form, write_only
from irc.opdef.run_sizes import TO_THE_END, each, named, spread
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX, OV_ANY, onnx_all
from irc.ops.early_onnx import write_slice_by_places
from irc.ops.layout import constant_ints, moved_contents, normal_axes

LARGEST = int(np.iinfo(np.int64).max)
"""As a bound: to the end; negated: from the first element."""
_LONGEST_AXIS = (1 << 31) - 1
"""Of an axis that is a size of an input (model.h states it), and `_LONGEST_PRODUCT` of any other."""
_LONGEST_PRODUCT = 1 << 40


def slice_of(start: int, end: int, step: int, size: int) -> slice:
    """One axis of a Slice as a Python slice."""
    if not size:
        return slice(0, 0)
    start = min(max(start + size if start < 0 else start, 0), size - 1 if step < 0 else size)
    end = end + size if end < 0 else end
    if step > 0:
        return slice(start, min(max(end, 0), size), step)
    end = min(max(end, -1), size - 1)
    return slice(start, None if end < 0 else end, step)


def longest(size: Dim) -> int:
    """A number that no value of a size exceeds."""
    hi = size.bounds()[1]
    if hi < INF:
        return int(hi)
    plain = [(m, c) for m, c in size.terms if m]
    alone = len(plain) == 1 and plain[0][1] == 1 and len(plain[0][0]) == 1 and isinstance(plain[0][0][0], Symbol)
    return _LONGEST_AXIS + sum(abs(c) for m, c in size.terms if not m) if alone else _LONGEST_PRODUCT


def counted(bound: Dim, size: Dim) -> Dim:
    """A bound counted from 0: a negative one counts from the end."""
    lo, hi = bound.bounds()
    return bound if lo >= 0 else bound + size if hi < 0 else bound + size * (-bound).maximum(0).minimum(1)


def clamp_bound(bound: Dim, size: Dim, lowest: int, highest: Dim) -> Dim:
    """A bound counted from 0, within lowest..highest."""
    number = bound.const
    if number is not None and not -longest(size) <= number < longest(size):
        return highest if number > 0 or size == 0 else Dim.of(lowest).minimum(highest)
    less = (size - bound).const  # where size - 1 or size - 2 is negative, twice of it from the end is not positive
    if less is None or less > 2 or lowest < 0:
        bound = counted(bound, size)
    return bound.maximum(lowest).minimum(highest)


def slice_dim(start: Dim, end: Dim, step: int, size: Dim) -> tuple[Dim, Dim]:
    """(first index, number of elements) of one axis."""
    first, stride = slice_first(start, step, size), slice_step(step, size)
    if step < 0:
        last = clamp_bound(end, size, -1, size - 1)
        return first, (first - last).ceildiv(-stride).maximum(0)
    last, number = clamp_bound(end, size, 0, size), start.const
    if last == size and number is not None and -longest(size) <= number < 0:
        length = size.minimum(-number)
    elif number is not None and 0 <= number < longest(size):
        length = (last - start).maximum(0)  # last <= size already: clamping start would say nothing new
    else:
        length = (last - first).maximum(0)
    return first, length.ceildiv(stride)


def slice_first(start: Dim, step: int, size: Dim) -> Dim:
    """The first index of one axis; -1 where a backward slice has nothing to start from."""
    return clamp_bound(start, size, 0, size) if step > 0 else clamp_bound(start, size, 0, size - 1)


def slice_step(step: int, size: Dim) -> int:
    """The step, or a smaller one that leads outside like it."""
    most = max(longest(size), 1)
    return min(max(step, -most), most)


def clamp_expr(bound: Expr, size: Dim, lowest: int, highest: Expr) -> Expr:
    """`clamp_bound` for a bound that is known when the model runs."""
    i = bound.cast(i64)
    return select(i.lt(0), i + index(size), i).max(lowest).min(highest)


def steps_written(b: Builder, op: Slice, x: Value, starts: Value, ends: Value, *rest: Value | None) -> Value:
    """Slice-8 needs its steps; before opset 8 there is StridedSlice."""
    axes = rest[0] if rest else None
    count = starts.shape[0].const
    require(count is not None, operation.NEEDS_CONSTANT, op="Slice", operand="starts")
    if len(rest) < 2 or rest[1] is None:
        return b.Slice(x, starts, ends, axes, b.const(np.ones(count or 0, starts.dtype.numpy), starts.dtype))
    return b.Slice(x, starts, ends, axes, rest[1])


def write_strided(b: Builder, op: Slice, x: Value, starts: Value, ends: Value, *rest: Value | None) -> Value:
    """Slice as StridedSlice: axes that it does not name are masked."""
    axes, steps = (*rest, None, None)[:2]
    count = starts.shape[0].const or 0
    chosen = list(range(count))
    if axes is not None:
        chosen = list(normal_axes("Slice", constant_ints("Slice", "axes", axes), len(x.shape)))
    length = max(chosen, default=-1) + 1
    mask = tuple(0 if k in chosen else 1 for k in range(length))

    def spread(v: Value | None, fill: int) -> Value:
        if v is None:
            return b.const([1] * length)
        numbers = v.ints()
        if numbers is not None:
            return b.const([numbers[chosen.index(k)] if k in chosen else fill for k in range(length)], v.dtype)
        wide = b.Concat(v, b.const([fill], v.dtype), axis=0)
        return b.Gather(wide, b.const([chosen.index(k) if k in chosen else count for k in range(length)]), b.const(0))

    return b.StridedSlice(x, spread(starts, 0), spread(ends, 0), spread(steps, 1), begin_mask=mask, end_mask=mask)


def one_index_type(op: Slice, x: Value, *operands: Value | None) -> bool:
    """ONNX gives starts, ends, axes and steps one element type."""
    return len({v.dtype for v in operands if v is not None}) <= 1


def write_one_type(b: Builder, op: Slice, x: Value, *operands: Value | None) -> Value:
    """All of them as i64."""

    def wide(v: Value | None) -> Value | None:
        numbers = None if v is None else v.ints()
        return v if v is None or v.dtype == i64 else b.const(numbers) if numbers is not None else b.Cast(v, to=i64)

    return b.Slice(x, *map(wide, operands))


@op
class Slice(Op):
    """x[start:end:step] along `axes` (absent: the first ones); bounds clamp, negative ones count from the end."""

    sig = Sig(
        "x: T[>=1], starts: I[1], ends: J[1], axes?: A[1], steps?: S[1] -> y: T",
        T=ANY,
        I=INTEGERS,
        J=INTEGERS,
        A=INTEGERS,
        S=INTEGERS,
    )
    carries_contents = modular = True
    whole_floats = True

    def _axes(self, rank: int, count: int, axes: list[int] | None) -> tuple[int, ...]:
        return normal_axes("Slice", list(range(count)) if axes is None else axes, rank)

    def infer(
        self, x: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None
    ) -> TensorType:
        count = starts.shape[0].const
        if count is None or (axes is not None and axes.ints() is None):
            return TensorType.of(x.dtype, [Dim.fresh("slice") for _ in x.shape])
        chosen = self._axes(len(x.shape), count, None if axes is None else axes.ints())
        for name, v in (("starts", chosen), ("ends", ends.dims()), ("steps", None if steps is None else steps.ints())):
            fits = v is None or len(v) == count
            require(fits, operation.ATTRIBUTE_LENGTH, op="Slice", attribute=name, given=len(v or ()), needed=count)
        result = list(x.shape)
        begin, end = starts.dims(), ends.dims()
        by = [1] * count if steps is None else steps.ints()
        for k, axis in enumerate(chosen):
            if by is not None:
                require(by[k] != 0, operation.ATTRIBUTE_RANGE, op="Slice", attribute="steps", value=0, expected="not 0")
            if begin is None or end is None or by is None:
                result[axis] = Dim.fresh("slice", x.shape[axis])
            else:
                result[axis] = slice_dim(begin[k], end[k], by[k], x.shape[axis])[1]
        return TensorType(x.dtype, tuple(result))

    def reference(
        self, x: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None
    ) -> Array:
        parts = [slice(None)] * x.ndim
        for k in range(len(starts)):
            axis = k if axes is None else int(axes[k])
            step = 1 if steps is None else int(steps[k])
            parts[axis] = slice_of(int(starts[k]), int(ends[k]), step, x.shape[axis])
        return x[tuple(parts)]

    def contents(self, x: Array, *operands: Array | None) -> Contents:
        return moved_contents(self, x, *operands)

    def run_sizes(
        self,
        b: Builder,
        out: TensorType,
        x: Value,
        starts: Value,
        ends: Value,
        axes: Value | None = None,
        steps: Value | None = None,
    ) -> Iterable[tuple[Dim, Value]]:
        chosen = self._axes(len(x.shape), int(starts.shape[0]), None if axes is None else axes.ints())
        sizes = b.dims([x.shape[a] for a in chosen])
        most = b.Max(sizes, b.const(1))
        step = b.const([1] * len(chosen)) if steps is None else b.Max(as_i64(b, steps), b.Neg(most))
        forward = b.Less(b.const(0), step)
        last = b.Where(forward, sizes, b.Sub(sizes, b.const(1)))
        first, end = (b.Where(b.Less(v, b.const(0)), b.Add(v, sizes), v) for v in (as_i64(b, starts), as_i64(b, ends)))
        first = b.Min(b.Max(first, b.const(0)), last)
        end = b.Min(b.Max(end, b.Where(forward, b.const(0), b.const(-1))), last)
        span = b.Where(forward, b.Sub(end, first), b.Sub(first, end))
        stride = b.Min(b.Abs(step), most)
        count = b.Max(b.Div(b.Sub(b.Add(span, stride), b.const(1)), stride), b.const(0))
        return each(b, [out.dims()[a] for a in chosen], count)

    def resolve(
        self, b: Builder, x: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None
    ) -> Value | None:
        if axes is None or axes.ints() is not None:
            return None
        rank = len(x.shape)
        hits, counts = named(b, axes, rank)
        first, end = (spread(b, hits, counts, v, d) for v, d in ((starts, 0), (ends, TO_THE_END)))
        step = None if steps is None else spread(b, hits, counts, steps, 1)
        return b.Slice(x, first, end, list(range(rank)), step)

    def compute(
        self,
        out: TensorType,
        x: Tensor,
        starts: Tensor,
        ends: Tensor,
        axes: Tensor | None = None,
        steps: Tensor | None = None,
    ) -> IndexFunction:
        count = int(starts.shape[0])
        chosen = self._axes(x.rank, count, None if axes is None else axes.ints())
        numbers, by = starts.ints(), [1] * count if steps is None else steps.ints()

        def first(k: int, axis: int) -> Expr:
            size = x.shape[axis]
            if numbers is not None and by is not None:
                return index(slice_first(Dim.of(numbers[k]), by[k], size))
            backwards = steps is not None and (by is None or by[k] < 0)
            return clamp_expr(starts[k], size, 0, index((size - 1).maximum(0)) if backwards else index(size))

        def element(*i: Expr) -> Expr:
            at = list(i)
            for k, axis in enumerate(chosen):
                step = slice_step(by[k], x.shape[axis]) if by is not None else steps[k].cast(i64)  # type: ignore[index]
                place = first(k, axis) + at[axis] * step  # pyright: ignore
                # What is known only when the model runs must not lead outside, whatever it is.
                top = index(x.shape[axis] - 1)
                at[axis] = place if numbers is not None and by is not None else place.min(top).max(0)  # pyright: ignore
            return x[tuple(at)]

        return element

    onnx = (
        Form(
            "Slice",
            1,
            T={"T": onnx_all(1), "I": {i64}, "J": {i64}, "A": {i64}, "S": {i64}},
            attrs={
                "starts": AsInput(index=1, dtype=i64),
                "ends": AsInput(index=2, dtype=i64),
                "axes": AsInput(None, index=3, dtype=i64),
            },
            sig=Sig("x: T[>=1] -> y: T", T=onnx_all(1)),
            write=write_one_type,
        ),
        Form("Slice", 10, attrs={}, T={"I": INDEX, "J": INDEX, "A": INDEX, "S": INDEX}, sig=None, when=one_index_type),
        Form("Slice", 11),
        Form("Slice", 13, T={"T": onnx_all(13)}),
        write_only(write_slice_by_places),
    )
    openvino = (
        write_only(write_strided),
        Form(
            "Slice",
            8,
            T={"T": OV_ANY},
            order=(0, 1, 2, 4, 3),
            write=steps_written,
            sig=Sig(
                "x: T[>=1], start: I[1], stop: J[1], step: S[1], axes?: A[1] -> y: T",
                T=OV_ANY,
                I=INTEGERS,
                J=INTEGERS,
                S=INTEGERS,
                A=INTEGERS,
            ),
        ),
    )


@dataclass(frozen=True)
class Mask(Ints):
    """A mask of StridedSlice: OpenVINO wants those that are not empty to be as long as begin_mask."""

    def value(self, attribute: str, op: Op, operands: Sequence[Value | None]) -> tuple[int, ...]:
        masks: dict[str, tuple[int, ...]] = op.attributes()
        length, own = max(map(len, masks.values())), masks[attribute]
        return own + (0,) * (length - len(own)) if own or attribute == "begin_mask" else ()


def read_strided(b: Builder, a: Attributes, *operands: Value | None) -> Value:
    """Masks that are not empty are as long as begin_mask; Problem IRC2208."""
    names = ("begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask", "ellipsis_mask")
    masks: dict[str, tuple[int, ...]] = {name: getattr(a, name) for name in names}
    for name, mask in masks.items():
        needed = len(a.begin_mask)
        fits = len(mask) in (0, needed)
        require(fits, operation.ATTRIBUTE_LENGTH, op=b.label, attribute=name, given=len(mask), needed=needed)
    return b.StridedSlice(*operands, **{name: mask if any(mask) else () for name, mask in masks.items()})


def bits(mask: Sequence[int], k: int) -> bool:
    """Whether a mask names position k."""
    return k < len(mask) and bool(mask[k])


@op
class StridedSlice(Op):
    """x[begin:end:strides] where masks give single positions another meaning.

    At position k of begin, end and strides: begin_mask and end_mask ignore the bound, new_axis_mask inserts
    an axis of 1, shrink_axis_mask takes one element and drops the axis, ellipsis_mask stands for all
    axes that no other position names.
    """

    begin_mask: tuple[int, ...] = ()
    end_mask: tuple[int, ...] = ()
    new_axis_mask: tuple[int, ...] = ()
    shrink_axis_mask: tuple[int, ...] = ()
    ellipsis_mask: tuple[int, ...] = ()
    sig = Sig("x: T, begin: I[1], end: J[1], strides?: S[1] -> y: T", T=ANY, I=INTEGERS, J=INTEGERS, S=INTEGERS)
    carries_contents = modular = True

    def _plan(self, rank: int, count: int) -> tuple[list[tuple[int, int]], list[int], list[int]]:
        """([(position, axis of x)] that slice, axes of 1 to insert in the result, axes of x to drop)."""
        new = [k for k in range(count) if bits(self.new_axis_mask, k) and not bits(self.ellipsis_mask, k)]
        dots = next((k for k in range(count) if bits(self.ellipsis_mask, k)), None)
        after = 0 if dots is None else len([k for k in range(dots + 1, count) if k not in new])
        slices: list[tuple[int, int]] = []
        inserted: list[int] = []
        dropped: list[int] = []
        axis = place = 0
        for k in range(count):
            if k == dots:
                place += rank - after - axis
                axis = rank - after
            elif k in new:
                inserted.append(place)
                place += 1
            else:
                require(axis < rank, codes.AXIS_RANGE, op="StridedSlice", axis=axis, rank=rank, lo=0, hi=rank - 1)
                slices.append((k, axis))
                dropped += [axis] if bits(self.shrink_axis_mask, k) else []
                place += not bits(self.shrink_axis_mask, k)
                axis += 1
        return slices, inserted, dropped

    def contents(self, x: Array, *operands: Array | None) -> Contents:
        return moved_contents(self, x, *operands)

    def reference(self, x: Array, begin: Array, end: Array, strides: Array | None = None) -> Array:
        parts: list[int | slice | EllipsisType | None] = []
        for k in range(len(begin)):
            if k < len(self.ellipsis_mask) and self.ellipsis_mask[k]:
                parts.append(Ellipsis)
            elif k < len(self.new_axis_mask) and self.new_axis_mask[k]:
                parts.append(None)
            else:
                parts.append(k)
        taken = [p for p in parts if isinstance(p, int)]
        dots = parts.index(Ellipsis) if Ellipsis in parts else len(parts)
        for n, k in enumerate(taken):
            size = x.shape[n if k < dots else x.ndim - len(taken) + n]
            start, step = int(begin[k]), 1 if strides is None else int(strides[k])
            if k < len(self.shrink_axis_mask) and self.shrink_axis_mask[k]:
                parts[parts.index(k)] = slice(start % size, start % size + 1)
                continue
            first = step_first(step) if k < len(self.begin_mask) and self.begin_mask[k] else start
            last = -step_first(step) if k < len(self.end_mask) and self.end_mask[k] else int(end[k])
            parts[parts.index(k)] = slice_of(first, last, step, size)
        found = x[tuple(parts)]
        shrunk = [k for k in taken if k < len(self.shrink_axis_mask) and self.shrink_axis_mask[k]]
        drop = [parts_axis(parts, x.ndim, len(taken), k) for k in shrunk]
        return np.squeeze(found, tuple(drop)) if drop else found

    def decompose(self, b: Builder, x: Value, begin: Value, end: Value, strides: Value | None = None) -> Value:
        count = begin.shape[0].const
        require(count is not None, operation.NEEDS_CONSTANT, op="StridedSlice", operand="begin")
        self._check_lengths(begin, end, strides)
        slices, inserted, dropped = self._plan(len(x.shape), count or 0)
        by = [1] * (count or 0) if strides is None else constant_ints("StridedSlice", "strides", strides)
        shrunk = [k for k, axis in slices if axis in dropped]
        firsts = {k: step_first(by[k]) for k, _ in slices if bits(self.begin_mask, k) and k not in shrunk}
        lasts = {k: -step_first(by[k]) for k, _ in slices if bits(self.end_mask, k) and k not in shrunk}
        positions, axes = [k for k, _ in slices], [axis for _, axis in slices]
        starts = chosen(b, begin, positions, firsts)
        ends = chosen(b, end, positions, lasts)
        if shrunk:  # one element: from begin to begin + 1, where -1 + 1 would be 0
            ends = self._shrunk_ends(b, begin, ends, positions, shrunk)
        steps = [1 if k in shrunk else by[k] for k in positions]
        found = b.Slice(x, starts, ends, axes, steps) if positions else x
        found = b.Squeeze(found, dropped) if dropped else found
        return b.Unsqueeze(found, inserted) if inserted else found if found is not x else b.Identity(x)

    def _check_lengths(self, begin: Value, end: Value, strides: Value | None) -> None:
        """Check that the operands are of one length; Problem IRC3108."""
        for name, v in (("end", end), ("strides", strides)):
            if v is not None:
                a, b, what = begin.shape[0], v.shape[0], f"elements of begin and of {name}"
                require(same(a, b), codes.SIZES_DIFFER, op="StridedSlice", what=what, a=a, b=b)

    def _shrunk_ends(self, b: Builder, begin: Value, ends: Value, positions: list[int], shrunk: list[int]) -> Value:
        numbers = begin.ints()
        if numbers is not None:
            after = {n: numbers[k] + 1 or LARGEST for n, k in enumerate(positions) if k in shrunk}
            return chosen(b, ends, list(range(len(positions))), {n: min(e, LARGEST) for n, e in after.items()})
        start = b.Cast(b.Gather(begin, b.const(positions), b.const(0)), to=i64)
        after = b.Where(b.Equal(start, b.const(-1)), b.const(LARGEST), b.Add(start, b.const(1)))
        return b.Where(b.const([k in shrunk for k in positions], boolean), after, b.Cast(ends, to=i64))

    openvino = (
        Form(
            "StridedSlice",
            1,
            T={"T": OV_ANY},
            attrs={
                "begin_mask": Mask(lo=0, hi=1),
                "end_mask": Mask(lo=0, hi=1, assumed=()),
                "new_axis_mask": Mask((), lo=0, hi=1),
                "shrink_axis_mask": Mask((), lo=0, hi=1),
                "ellipsis_mask": Mask((), lo=0, hi=1),
            },
            read=read_strided,
            direct=True,
        ),
    )


def step_first(step: int) -> int:
    """The bound that means "from the outermost element" for that direction (negated: "to the other end")."""
    return LARGEST if step < 0 else -LARGEST


def parts_axis(parts: Sequence[int | slice | EllipsisType | None], rank: int, taken: int, position: int) -> int:
    """The axis of the result that a position of StridedSlice stands for."""
    axis = 0
    for part in parts[:position]:
        axis += rank - taken if part is Ellipsis else 1
    return axis


def chosen(b: Builder, v: Value, positions: list[int], fixed: dict[int, int]) -> Value:
    """The elements of v at `positions`, with some replaced by numbers."""
    numbers = v.ints()
    if numbers is not None:
        return b.const([fixed.get(k, numbers[k]) for k in positions])
    found = v
    if positions != list(range(int(v.shape[0]))):
        found = b.Gather(v, b.const(positions), b.const(0))
    found = b.Cast(found, to=i64) if found.dtype != i64 else found
    if not any(k in fixed for k in positions):
        return found
    replaced = b.const([k in fixed for k in positions], boolean)
    return b.Where(replaced, b.const([fixed.get(k, 0) for k in positions]), found)
