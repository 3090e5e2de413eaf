"""Col2Im as a sum over the kernel's positions of gathered columns, for formats and opsets that lack it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from irc.ir.graph import Value
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_i64
from irc.opdef.precision import narrowed, widened

if TYPE_CHECKING:
    from irc.ops.col2im import Col2Im


def write_places(b: Builder, op: Col2Im, x: Value, image: Value, block: Value) -> Value:
    """Gather for each element of the image and each kernel position what stands for it, or a zero, and add up."""
    axes = int(image.shape[0])
    image, block = as_i64(b, image), as_i64(b, block)
    sizes, kernel = ([b.Slice(v, [a], [a + 1], [0]) for a in range(axes)] for v in (image, block))
    shape, one = b.Shape(x), b.const([1])
    rows = columns = b.const([[0]])  # [elements of the image, positions of the kernel], so far
    valid = b.Equal(rows, b.const(0))
    elements = positions = one
    for size, k, (stride, dilation, begin, end) in zip(sizes, kernel, op.window(axes), strict=True):
        reach = b.Add(b.Mul(b.Sub(k, one), b.const([dilation])), one)
        count = b.Add(b.Div(b.Sub(b.Add(size, b.const([begin + end])), reach), b.const([stride])), one)
        place, position = (b.Range(b.const(0), b.Squeeze(n, [0]), b.const(1)) for n in (size, k))
        offset = b.Sub(b.Unsqueeze(b.Add(place, b.const(begin)), [1]), b.Mul(position, b.const(dilation)))
        column = b.Div(offset, b.const(stride))
        inside = b.And(b.GreaterOrEqual(offset, b.const(0)), b.Less(column, count))
        inside = b.And(inside, b.Equal(b.Mul(column, b.const(stride)), offset))
        before, own = (b.Concat(*n, axis=0) for n in ((elements, one, positions, one), (one, size, one, k)))
        elements, positions = b.Mul(elements, size), b.Mul(positions, k)
        flat = b.Concat(elements, positions, axis=0)
        row = b.Add(b.Mul(b.Reshape(rows, before), k), b.Reshape(b.Expand(position, b.Concat(size, k, axis=0)), own))
        column = b.Add(b.Mul(b.Reshape(columns, before), count), b.Reshape(column, own))
        inside = b.And(b.Reshape(valid, before), b.Reshape(inside, own))
        rows, columns, valid = (b.Reshape(v, flat) for v in (row, column, inside))
    steps = b.Gather(shape, b.const([2]), b.const(0))
    last = b.Mul(positions, steps)
    number = b.Where(valid, b.Add(b.Mul(rows, steps), columns), last)
    front = b.Div(b.Slice(shape, [0], [2], [0]), b.Concat(one, positions, axis=0))  # batch and channels
    wide = b.Reshape(widened(b, x), b.Concat(front, last, axis=0))
    zeros = b.Expand(b.like(0, wide), b.Concat(front, one, axis=0))
    found = b.Gather(b.Concat(wide, zeros, axis=2), number, b.const(2))
    total = b.ReduceSum(found, b.const([3]), keepdims=False)
    return narrowed(b, b.Reshape(total, b.Concat(front, image, axis=0)), x)
