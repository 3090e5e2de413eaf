"""Upper bounds of sizes that a run computes."""

from __future__ import annotations

import itertools

import pytest

from irc.ir.capacity import Capacity
from irc.ir.dim import Dim

N, M = Dim.symbol("N"), Dim.symbol("M", 1, 8)
FOUND = Dim.fresh("found", N)
FREE = Dim.fresh("free")
FIXED = Dim.fresh("fixed", 5)


@pytest.mark.parametrize(
    ("size", "bound"),
    [
        (N * 3, N * 3),
        (FOUND * 2 + M, N * 2 + M),
        (M - FOUND, M),
        (FIXED * M, M * 5),
        (Dim.fresh("nested", FOUND + 1), N + 1),
        (FOUND // 2, N // 2),
        (FOUND.ceildiv(4), N.ceildiv(4)),
        (FOUND % 4, Dim.of(3)),
        (FOUND.minimum(7), N.minimum(7)),
        (FREE.minimum(M), M),
        (FREE.maximum(M), FREE.maximum(M)),
        (FOUND * (N // FOUND), N),
        (FOUND * M * (N * M // FOUND.maximum(1)), M * N * M),
    ],
    ids=str,
)
def test_bound(size: Dim, bound: Dim) -> None:
    """The bound is the one expected, and no values of the symbols exceed it."""
    found = Capacity({"N", "M"}).of(size)
    if not size.symbols() & {*FREE.symbols()}:
        assert not {s.name for s in found.symbols()} - {"N", "M"}
    for n, m, k in itertools.product(range(12), range(1, 9), range(12)):
        values = {"N": n, "M": m}
        for s in size.symbols():
            most = n if s in FOUND.symbols() else 5 if s in FIXED.symbols() else n + 1
            values.setdefault(s.name, min(k, most))
        try:
            actual = size.evaluate(values)
        except ZeroDivisionError:
            continue
        assert actual <= found.evaluate(values) or str(found) == str(size)
    assert found == bound


def test_factors() -> None:
    """All factors together have their product; some of them, or one, no more than that or 4096."""
    a, b, c = Dim.fresh_factors("part", 3, N * 64)
    capacity = Capacity({"N"})
    assert capacity.of(a * b * c) == N * 64
    assert capacity.of(a * b * c * 2) == N * 128
    assert capacity.of(a * b) == (N * 64).maximum(4096) == capacity.of(c)
    assert not capacity.free


def test_what_nothing_bounds() -> None:
    capacity = Capacity({"N"})
    assert capacity.of(FREE * N) == FREE * N
    assert list(capacity.free) == [s.name for s in FREE.symbols()]


def test_magnitude_counts_what_is_taken_away() -> None:
    assert Capacity({"N"}).magnitude(FOUND * 2 - N * 3) == N * 5
    assert Capacity({"N"}).of(FOUND * 2 - N * 3) == N * 2
