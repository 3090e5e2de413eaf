"""Building blocks of `Op.run_sizes` and `Op.resolve`: integers that the model computes about its own sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import i64
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_i64, as_vector

TO_THE_END = (1 << 63) - 1
"""A bound of Slice that no axis reaches."""


def each(b: Builder, sizes: Sequence[Dim], vector: Value) -> Iterator[tuple[Dim, Value]]:
    """Pair sizes with the elements of an i64 vector of as many."""
    for k, size in enumerate(sizes):
        yield size, b.Slice(vector, [k], [k + 1], [0])


def from_the_start(b: Builder, axes: Value, rank: int) -> Value:
    """Count axes from 0, as an i64 vector."""
    vector = as_vector(b, as_i64(b, axes))
    return b.Where(b.Less(vector, b.const(0)), b.Add(vector, b.const(rank)), vector)


def named(b: Builder, axes: Value, rank: int) -> tuple[Value, Value]:
    """Tell of every axis how often `axes` names it.  Returns a matrix with a row for each name, and an i64 vector."""
    rows = b.Unsqueeze(from_the_start(b, axes, rank), [1])
    hits = b.Equal(rows, b.const([list(range(rank))]))
    return hits, b.ReduceSum(b.Cast(hits, to=i64), [0], keepdims=False)


def spread(b: Builder, hits: Value, counts: Value, numbers: Value, default: int) -> Value:
    """Put numbers, one for each axis that is named, at the places of the axes; the default at the others."""
    column = b.Unsqueeze(as_i64(b, numbers), [1])
    there = b.ReduceSum(b.Where(hits, column, b.const(0)), [0], keepdims=False)
    return b.Where(b.Equal(counts, b.const(0)), b.const(default), there)


def kept(b: Builder, counts: Value, shape: Value, left: int) -> Value:
    """Pick the sizes of the `left` axes that are not named, in their order."""
    stays, place = _numbered(b, counts)
    rows = b.And(b.Equal(b.const([[k] for k in range(left)]), place), stays)
    return b.ReduceSum(b.Where(rows, shape, b.const(0)), [1], keepdims=False)


def with_ones(b: Builder, counts: Value, shape: Value, rank: int) -> Value:
    """Put 1 at the axes of the result that are named, and the sizes in `shape`, in their order, at the others."""
    stays, place = _numbered(b, counts)
    return b.Where(stays, b.Gather(shape, b.Max(place, b.const(0)), b.const(0)), b.const(1))


def _numbered(b: Builder, counts: Value) -> tuple[Value, Value]:
    """Tell which axes are not named, and number these from 0 on."""
    stays = b.Equal(counts, b.const(0))
    return stays, b.Sub(b.CumSum(b.Cast(stays, to=i64), b.const(0)), b.const(1))
