"""Derivatives of operations that move elements: each gradient goes back to where its element came from."""

from __future__ import annotations

from dataclasses import replace

from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import i64
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_i64
from irc.opdef.gradients import Gradients, Step, filled, put_back, restated, rule, scattered, shaped_like, sizes_of
from irc.ops.affine_grid import write_grid
from irc.ops.center_crop_pad import write_centered
from irc.ops.concat import Concat, Split
from irc.ops.gather import Gather, GatherElements, GatherND
from irc.ops.grid_sample import write_rows, write_taps
from irc.ops.layout import constant_int, normal_axes, normal_axis
from irc.ops.pad import Pad
from irc.ops.pool import MaxPool
from irc.ops.scatter import ScatterElements, ScatterND
from irc.ops.slice import slice_dim


@rule("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(b: Builder, s: Step) -> Gradients:
    return shaped_like(b, s.g, s.x)


@rule("Transpose")
def transpose(b: Builder, s: Step) -> Gradients:
    order = s.operand(1).ints() if len(s.operands) > 1 else []
    if order is None:
        return scattered(b, s)
    rank = len(s.x.shape)
    order = order or list(reversed(range(rank)))
    return b.Transpose(s.g, [[a % rank for a in order].index(k) for k in range(rank)])


@rule("Expand")
def expand(b: Builder, s: Step) -> Gradients:
    return s.g  # summed where it was repeated, as after every broadcast


@rule("Tile")
def tile(b: Builder, s: Step) -> Gradients:
    rank = len(s.x.shape)
    if s.operand(1).shape[0] != rank:
        return scattered(b, s)
    pairs = (b.Unsqueeze(v, [1]) for v in (as_i64(b, s.operand(1)), sizes_of(b, s.x)))
    apart = b.Reshape(s.g, b.Reshape(b.Concat(*pairs, axis=1), [-1]), special_zero=False)
    return b.ReduceSum(apart, list(range(0, 2 * rank, 2)), keepdims=False)


@rule("ReverseSequence")
def reverse_sequence(b: Builder, s: Step) -> Gradients:
    return b.add(s.op, s.g, s.operand(1))


@rule("Trilu")
def trilu(b: Builder, s: Step) -> Gradients:
    return b.add(s.op, s.g, *s.operands[1:])


# ------------------------------------------------------------------------------ parts
@rule("Concat")
def concat(b: Builder, s: Step) -> Gradients:
    assert isinstance(s.op, Concat)
    axis, at = normal_axis("Concat", s.op.axis, len(s.y.shape)), Dim.of(0)
    found: list[Value | None] = []
    for x, wanted in zip(s.operands, s.wanted, strict=True):
        assert x is not None
        end = at + x.shape[axis]
        found.append(b.Slice(s.g, b.dims([at]), b.dims([end]), [axis]) if wanted else None)
        at = end
    return found


@rule("Split")
def split(b: Builder, s: Step) -> Gradients:
    assert isinstance(s.op, Split)
    axis = (s.operand(1).ints() or [0])[0]
    parts = [filled(b, 0, y) if g is None else g for y, g in zip(s.results, s.gradients, strict=True)]
    return b.Concat(*parts, axis=normal_axis("Split", axis, len(s.x.shape)))


@rule("Slice")
def cut(b: Builder, s: Step) -> Gradients:
    """Zeros around it, where each step is 1 and the run says nothing of the axes."""
    rank = len(s.x.shape)
    starts, ends = s.operand(1).dims(), s.operand(2).dims()
    axes, steps = (s.operands[k] if k < len(s.operands) else None for k in (3, 4))
    chosen = list(range(rank)) if axes is None else axes.ints()
    single = steps is None or all(step == 1 for step in steps.ints() or [0])
    if starts is None or ends is None or chosen is None or not single:
        return scattered(b, s)
    before, after = [Dim.of(0)] * rank, [Dim.of(0)] * rank
    for axis, start, end in zip(normal_axes("Slice", chosen[: len(starts)], rank), starts, ends, strict=True):
        size = s.x.shape[axis]
        before[axis], count = slice_dim(start, end, 1, size)
        after[axis] = size - before[axis] - count
    return b.Pad(s.g, b.dims([*before, *after]))


@rule("Pad")
def pad(b: Builder, s: Step) -> Gradients:
    assert isinstance(s.op, Pad)
    if s.op.mode != "constant":
        return scattered(b, s)
    axes = s.operands[3] if len(s.operands) > 3 else None
    inner = b.Pad(s.g, b.Neg(as_i64(b, s.operand(1))), None, axes)
    if len(s.wanted) < 3 or not s.wanted[2]:
        return inner
    return [inner, None, b.Sub(b.ReduceSum(s.g, keepdims=False), b.ReduceSum(inner, keepdims=False))]


# ------------------------------------------------------------------------------ by indices
@rule("Gather")
def gather(b: Builder, s: Step) -> Gradients:
    assert isinstance(s.op, Gather)
    indices, rank = s.operand(1), len(s.x.shape)
    axis = normal_axis("Gather", constant_int("Gather", "axis", s.operand(2)), rank)
    if s.op.batch_dims:
        return scattered(b, s)
    before, behind = (
        b.ReduceProd(b.dims(d), [0]) if d else b.const([1]) for d in (s.x.shape[:axis], s.x.shape[axis + 1 :])
    )
    g = b.Reshape(s.g, b.Concat(before, b.Reshape(b.Size(indices), [1]), behind, axis=0), special_zero=False)
    column = b.Expand(b.Reshape(indices, [1, -1, 1]), b.Shape(g))
    nothing = b.Reshape(
        filled(b, 0, s.x), b.Concat(before, b.dims([s.x.shape[axis]]), behind, axis=0), special_zero=False
    )
    return shaped_like(b, b.ScatterElements(nothing, column, g, b.const(1), reduction="add"), s.x)


@rule("GatherElements")
def gather_elements(b: Builder, s: Step) -> Gradients:
    assert isinstance(s.op, GatherElements)
    nothing = filled(b, 0, s.x)
    return b.ScatterElements(nothing, s.operand(1), s.g, b.const(s.op.axis), reduction="add")


@rule("GatherND")
def gather_nd(b: Builder, s: Step) -> Gradients:
    assert isinstance(s.op, GatherND)
    if s.op.batch_dims:
        return scattered(b, s)
    return b.ScatterND(filled(b, 0, s.x), s.operand(1), s.g, reduction="add")


@rule("ScatterElements")
def scatter_elements(b: Builder, s: Step) -> Gradients:
    """Of elements that are replaced it is 0; of what replaces them, that at its place."""
    assert isinstance(s.op, ScatterElements)
    indices, axis = s.operand(1), s.operand(3)
    if s.op.reduction not in ("none", "add") or not s.op.use_init:
        raise s.problem()
    at = normal_axis("ScatterElements", constant_int("ScatterElements", "axis", axis), len(s.x.shape))
    kept = s.g if s.op.reduction == "add" else b.ScatterElements(s.g, indices, filled(b, 0, s.operand(2)), axis)
    return kept, None, b.GatherElements(s.g, indices, axis=at)


@rule("ScatterND")
def scatter_nd(b: Builder, s: Step) -> Gradients:
    assert isinstance(s.op, ScatterND)
    indices = s.operand(1)
    if s.op.reduction not in ("none", "add"):
        raise s.problem()
    kept = s.g if s.op.reduction == "add" else b.ScatterND(s.g, indices, filled(b, 0, s.operand(2)))
    return kept, None, b.GatherND(s.g, indices)


@rule("TopK")
def top_k(b: Builder, s: Step) -> Gradients:
    return b.ScatterElements(filled(b, 0, s.x), s.results[1], s.g, b.const(s.attribute("axis")), reduction="add")


@rule("MaxPool")
def max_pool(b: Builder, s: Step) -> Gradients:
    """To the first of the largest elements of each window."""
    assert isinstance(s.op, MaxPool)
    flat = replace(s.op, index_type=i64, axis=0, column_major=False)
    places = s.results[1] if flat == s.op else b.add_all(flat, s.x)[1]
    return put_back(b, s.g, places, s.x)


restated("AffineGrid", write_grid)
restated("CenterCropPad", write_centered)
restated("WeightedRows", write_rows)
restated("WeightedTaps", write_taps)
