"""Where indices point in an operand seen as a vector, or as rows: one Gather, or one comparison, finds them."""

from __future__ import annotations

from irc.ir.dim import product
from irc.ir.graph import Value
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_i64


def counted_from_the_start(b: Builder, indices: Value, size: Value) -> Value:
    """Indices, of which those below 0 count from the end."""
    return b.Where(b.Less(indices, b.const(0)), b.Add(indices, size), indices)


def along(b: Builder, size: Value, axis: int, rank: int) -> Value:
    """The numbers 0 to size - 1 along one of the axes."""
    numbers = b.Range(b.const(0), b.Reshape(size, []), b.const(1))
    return b.Reshape(numbers, [-1 if k == axis else 1 for k in range(rank)])


def element_places(b: Builder, x: Value, indices: Value, axis: int) -> Value:
    """The places, in x as a vector, of elements that indices of x's rank pick along an axis."""
    rank, sizes, count = len(x.shape), b.Shape(x), b.Shape(indices)
    place: Value | None = None
    for k in range(rank):
        size = b.Slice(sizes, [k], [k + 1], [0])
        if k == axis:
            own = counted_from_the_start(b, as_i64(b, indices), size)
        else:
            own = along(b, b.Slice(count, [k], [k + 1], [0]), k, rank)
        place = own if place is None else b.Add(b.Mul(place, size), own)
    assert place is not None
    return place


def row_places(b: Builder, x: Value, indices: Value, batch: int = 0) -> Value:
    """The places of rows that vectors of indices pick; the first axes of both, which are a batch, go in step."""
    sizes, rank = b.Shape(x), len(indices.shape) - 1
    wide = as_i64(b, indices)
    place = b.const(0)
    for k in range(batch + int(indices.shape[-1])):
        size = b.Slice(sizes, [k], [k + 1], [0])
        if k < batch:
            own = along(b, size, k, rank)
        else:
            column = b.Squeeze(b.Slice(wide, [k - batch], [k - batch + 1], [rank]), [rank])
            own = counted_from_the_start(b, column, size)
        place = b.Add(b.Mul(place, size), own) if k else own
    return place if rank else b.Reshape(place, [])


def write_element_gather(b: Builder, op: Op, x: Value, indices: Value) -> Value:
    """GatherElements by a Gather from a vector, before opset 11."""
    at = int(op.attributes()["axis"]) % len(x.shape)  # type: ignore[call-overload]
    return b.Gather(b.Reshape(x, [-1]), element_places(b, x, indices, at), b.const(0))


def write_row_gather(b: Builder, op: Op, x: Value, indices: Value) -> Value:
    """GatherND by a Gather of rows, before opset 11, or 12 with a batch."""
    batch = int(op.attributes()["batch_dims"])  # type: ignore[call-overload]
    depth = batch + int(indices.shape[-1])
    shape = b.dims([product(x.shape[:depth]), *x.shape[depth:]])
    return b.Gather(b.Reshape(x, shape, special_zero=False), row_places(b, x, indices, batch), b.const(0))
