"""Splitting of loops, so that innermost ones copy runs: no choice, division or remainder in them that ranges decide.

`i < c ? a[i] : b[i - c]` for i < n becomes two loops, over [0, c) and [c, n), and neither of them chooses: Concat and
the borders of Pad.  `x[i % c]` becomes two loops inside each other, over n // c and c: Tile.  `x[i // 2]` becomes one
loop over n // 2 that stores two elements: Resize, DepthToSpace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import gcd

from irc.expr import Bin, Expr, Load, Select, Var, index
from irc.fusion.elements import Elements, Inliner, is_index
from irc.fusion.indexing import Ranges, coefficient, local_name
from irc.ir.dim import LOCAL, Dim, Func, Symbol
from irc.ir.types import i64
from irc.loops.builder import LoopBuilder
from irc.loops.schedule import Axis
from irc.loops.simplify import conjuncts, depends
from irc.traversal import walk

MOST_PIECES = 32
MOST_COPIES = 8
"""Elements that one iteration stores at most, where a loop is split by a small divisor."""
MOST_NODES = 400
"""Parts of the expressions of one iteration at most, where it stores several elements."""


@dataclass(frozen=True)
class Element:
    """Where an element is stored, and what it is."""

    at: tuple[Expr, ...]
    value: Expr


@dataclass
class Nest:
    """Loops over `axes`: around other nests, or around the elements that each iteration stores."""

    axes: list[Axis]
    parts: list[Nest] = field(default_factory=list["Nest"])
    elements: list[Element] = field(default_factory=list[Element])


@dataclass(frozen=True)
class Quotient:
    """(slope · variable + rest) // divisor, or its remainder."""

    slope: int
    rest: int
    divisor: int

    @property
    def period(self) -> int:
        """After how many iterations the remainder is the same again."""
        return self.divisor // gcd(self.slope, self.divisor)

    def ends(self, size: int, most: int) -> list[int]:
        """List the first `most` iterations, from 1 on, with another quotient than the one before."""
        found: dict[int, None] = {}
        first, last = (self(i) for i in (0, size - 1))
        for k in range(1, min(abs(last - first), most) + 1):
            if self.slope > 0:
                found[-((self.rest - (first + k) * self.divisor) // self.slope)] = None
            else:
                found[(self.rest - (first - k + 1) * self.divisor) // -self.slope + 1] = None
        return list(found)

    def __call__(self, i: int) -> int:
        return (self.slope * i + self.rest) // self.divisor


class Splitter:
    """Splits nests of one group."""

    def __init__(self, b: LoopBuilder, ranges: Ranges) -> None:
        self.b, self.ranges = b, ranges
        self.inliner = Inliner(Elements(), lambda _: True, ranges)

    def split(self, axes: list[Axis], elements: Sequence[Element], room: int = MOST_PIECES) -> Nest:
        """Split a nest into at most `room` parts that follow each other."""
        for k in reversed(range(len(axes))):
            found = self._by_divisor(axes, k, elements)
            if found is not None:
                return self.split(*found, room)
        for k, axis in enumerate(axes):
            ends = self._ends(axis, elements, k == len(axes) - 1)
            if 2 < len(ends) <= room + 1:
                inside = room // (len(ends) - 1)
                parts = [self._part(axes[k:], low, high, elements, inside) for low, high in pairwise(ends)]
                return Nest(axes[:k], parts)
        return Nest(axes, [], list(elements))

    def _part(self, axes: list[Axis], low: Dim, high: Dim, elements: Sequence[Element], room: int) -> Nest:
        """Split what is left of a nest where low <= its first axis < high."""
        if high - low == 1:
            return self.split(axes[1:], self._moved(elements, axes[0].var, index(low)), room)
        axis = self._axis(high - low)
        return self.split([axis, *axes[1:]], self._moved(elements, axes[0].var, axis.var + index(low)), room)

    def _axis(self, extent: Dim) -> Axis:
        var = self.b.name("i")
        self.ranges.declare(var, extent)
        return Axis(var, extent)

    def _moved(self, elements: Sequence[Element], var: Var, to: Expr) -> list[Element]:
        """Put an expression in the place of a variable, and decide what its range decides."""
        return [
            Element(
                tuple(self.ranges.simplify(self.inliner.substituted(i, {var: to})) for i in x.at),
                self.inliner.substituted(x.value, {var: to}),
            )
            for x in elements
        ]

    # ----------------------------------------------------------------- divisions
    def _by_divisor(
        self, axes: list[Axis], k: int, elements: Sequence[Element]
    ) -> tuple[list[Axis], list[Element]] | None:
        """Split axis k by a divisor of what is computed from it into two axes, or one and several elements."""
        axis, inner = axes[k], k == len(axes) - 1
        for c in self._divisors(axis, elements, inner):
            times = axis.extent.exact_div(c)
            if times is None or times == 1 or c == 1:
                continue
            size = c.const
            if inner and size is not None and size <= MOST_COPIES and self._few(elements, size):
                whole = self._axis(times)
                copies = [self._moved(elements, axis.var, whole.var * size + r) for r in range(size)]
                return [*axes[:-1], whole], [x for copy in copies for x in copy]
            whole, rest = self._axis(times), self._axis(c)
            new = [whole, rest]
            if k == 0 and len(axes) > 2:
                new.reverse()  # threads share the outermost loop: let it be long
            return [*axes[:k], *new, *axes[k + 1 :]], self._moved(elements, axis.var, whole.var * index(c) + rest.var)
        return None

    def _few(self, elements: Sequence[Element], times: int) -> bool:
        return times * sum(1 for x in elements for _ in walk(x.value)) <= MOST_NODES

    def _divisors(self, axis: Axis, elements: Sequence[Element], inner: bool) -> list[Dim]:
        """List the extents of an inner axis with which divisions and remainders go away."""
        found: dict[Dim, None] = {}
        for atom in self._divisions(elements):
            quotient = self._quotient(atom, axis)
            if quotient is None:
                if atom.args[0] == self.ranges.symbol(axis.var) and not _moves(atom.args[1]):
                    found[atom.args[1]] = None
            elif (inner and quotient.period <= MOST_COPIES) or _aligned(quotient):
                found[Dim.of(quotient.period)] = None
        return list(found)

    def _quotient(self, atom: Func, axis: Axis) -> Quotient | None:
        """State a division by a number of what is linear in one axis, and in no other; None if it is none."""
        a, c = atom.args
        slope = coefficient(a, local_name(axis.var))
        if slope is None or slope == 0:
            return None
        rest = a - self.ranges.symbol(axis.var) * slope
        if not (slope.is_const and rest.is_const and c.is_const and int(c) > 0):
            return None
        return Quotient(int(slope), int(rest), int(c))

    def _divisions(self, elements: Sequence[Element]) -> list[Func]:
        """List the divisions and remainders in positions and index expressions, the innermost first."""
        found: dict[Func, None] = {}
        for x in elements:
            for dim in self._positions(x.value):
                _collect(dim, found)
        return list(found)

    def _positions(self, e: Expr) -> Iterator[Dim]:
        """Yield the position of every load, and what is computed from indices beside."""
        joined: set[int] = set()
        for x in walk(e):
            if isinstance(x, Load):
                yield self.ranges.flat(x.index, x.buffer.shape)
                joined.update(id(y) for i in x.index if is_index(i) for y in walk(i))
            elif isinstance(x, Bin) and x.op in ("floordiv", "mod") and x.dtype == i64 and id(x) not in joined:
                yield self.ranges.dim(x)

    # -------------------------------------------------------------------- ranges
    def _ends(self, axis: Axis, elements: Sequence[Element], inner: bool) -> list[Dim]:
        """List the ends of the ranges of an axis in which nothing changes its outcome.

        In front of the innermost loop, a choice among elements is worth a loop of its own; one among positions is not.
        """
        found: dict[Dim, None] = {}
        for x in elements:
            for e in walk(x.value, into=lambda x: inner or not isinstance(x, Load)):
                if isinstance(e, Select):
                    for cond in conjuncts(e.cond):
                        found.update(dict.fromkeys(self._changes(cond, axis)))
                elif inner and isinstance(e, Bin) and e.op in ("min", "max") and e.dtype == i64 and is_index(e):
                    found.update(dict.fromkeys(self._extremes(e, axis)))
        if inner and axis.size is not None:
            for atom in self._divisions(elements):
                quotient = self._quotient(atom, axis)
                if quotient is not None:
                    found.update(dict.fromkeys(_cuts(quotient, axis.size)))
        return _in_order(found, axis.extent)

    def _changes(self, cond: Expr, axis: Axis) -> list[Dim]:
        """List where along an axis a comparison has another outcome than before."""
        if not isinstance(cond, Bin) or cond.op not in ("lt", "le") or cond.a.dtype != i64:
            return []
        if not depends(cond, {axis.var}):
            return []
        return self._turns(cond.a, cond.b, 1 if cond.op == "lt" else 0, axis)

    def _extremes(self, e: Bin, axis: Axis) -> list[Dim]:
        """List where along an axis another operand of min or max counts; equal ones leave the moving one its run."""
        moving, fixed = (e.a, e.b) if depends(e.a, {axis.var}) else (e.b, e.a)
        return self._turns(moving, fixed, 0, axis) if e.op == "min" else self._turns(fixed, moving, 0, axis)

    def _turns(self, a: Expr, b: Expr, more: int, axis: Axis) -> list[Dim]:
        """List from where on along an axis a + more <= b holds, or does no longer."""
        gap = self.ranges.dim(b) - self.ranges.dim(a) - more
        slope = coefficient(gap, local_name(axis.var))
        if slope is None or not slope.is_const or slope == 0:
            return []
        rest, step = gap - self.ranges.symbol(axis.var) * slope, int(slope)
        if _moves(rest) or (abs(step) != 1 and not rest.is_const):
            return []
        if step > 0:  # step · i + rest >= 0
            return [-rest if step == 1 else Dim.of(-(int(rest) // step))]
        return [rest + 1 if step == -1 else Dim.of(int(rest) // -step + 1)]


def _aligned(quotient: Quotient) -> bool:
    """Tell whether the quotient changes with multiples of the period only."""
    q = quotient
    if q.divisor % q.slope:
        return False
    return q.rest % q.divisor < q.slope if q.slope > 0 else (q.rest - q.divisor + 1) % q.divisor < -q.slope


def _cuts(quotient: Quotient, size: int) -> list[Dim]:
    """List where to cut an axis of this size, so that its parts can be split by the period or need not be."""
    q = quotient
    period = q.period
    if period <= MOST_COPIES and size > period:
        return [Dim.of(size - size % period)]
    ends = q.ends(size, MOST_PIECES)
    if q.divisor % q.slope or len(ends) <= 2:
        return [Dim.of(i) for i in ends]
    return [Dim.of(ends[0] if not _aligned(q) else size - size % period)]


def _in_order(cuts: dict[Dim, None], extent: Dim) -> list[Dim]:
    """Order cuts between 0 and `extent`, leaving out those of which it is not sure that they are."""
    ends = [Dim.of(0), extent]
    for cut in cuts:
        places = [k for k, end in enumerate(ends) if end.at_most(cut)]
        place = places[-1] + 1 if places else 0
        if cut not in ends and 0 < place < len(ends) and cut.at_most(ends[place]):
            ends.insert(place, cut)
    return ends


def _moves(d: Dim) -> bool:
    """Tell whether a polynomial has loop variables."""
    return any(s.name.startswith(LOCAL) for s in d.symbols())


def _collect(d: Dim, found: dict[Func, None]) -> None:
    """Collect the divisions and remainders of a polynomial, those of their operands first."""
    for monomial, _ in d.terms:
        for atom in monomial:
            if isinstance(atom, Symbol):
                continue
            for arg in atom.args:
                _collect(arg, found)
            if atom.op in ("floordiv", "mod") and _moves(atom.args[0]):
                found[atom] = None
