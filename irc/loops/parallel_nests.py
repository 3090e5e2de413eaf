"""Nests of parallel loops: which of their iterations threads divide.

Axes that a batch of unknown size keeps apart are loops of their own, the outermost of which may run once.  So threads
divide the iterations of loops inside one another together, and loops behind one another each for itself: coalescing
(Polychronopoulos, 1987) and distribution (Kennedy and McKinley, 1990).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby, takewhile

from irc.expr import Load, constant_of
from irc.loops.ir import Alloc, Buffer, For, Let, Stmt, Store, walk, written_in
from irc.traversal import walk as walk_expression

MANY = 64
"""Iterations of a parallel loop that are enough for any number of threads."""
LONG = 4096
"""Iterations of a vectorised loop that are worth a division."""


@dataclass
class ParallelNest:
    """Loops whose iterations are divided together, outermost first; `before` are what stands in front of the others."""

    loops: list[For]
    before: list[list[Let]] = field(default_factory=list[list[Let]])


def nest_of(s: For) -> ParallelNest:
    """Find the loops to divide together with a parallel one: as many as give `MANY` iterations."""
    nest, known = ParallelNest([s]), constant_of(s.extent) or 1
    while s.kind == "parallel" and known < MANY:
        before, rest = _split(s.body)
        inner = rest[0] if len(rest) == 1 else None
        if not isinstance(inner, For) or not _divides(inner):
            break
        nest.loops.append(inner)
        nest.before.append(before)
        known *= constant_of(inner.extent) or 1
        s = inner
    return nest


def apart(s: For) -> list[For]:
    """Split a parallel loop of few iterations whose body is several loops: one for each that can be divided."""
    before, rest = _split(s.body)
    loops = [x for x in rest if isinstance(x, For)]
    if s.kind != "parallel" or (constant_of(s.extent) or 1) >= MANY or len(rest) < 2 or len(loops) < len(rest):
        return [s]
    written = written_in(rest)
    inside = {x.buffer for x in walk(rest) if isinstance(x, Alloc)}
    outer = any(b.where == "local" and b not in inside for b in written)  # one for each iteration of this loop
    if outer or _read(before) & written or not any(x.kind == "parallel" for x in loops):
        return [s]
    parts: list[list[For]] = []
    for kind, run in groupby(loops, lambda x: x.kind):
        together = list(run)
        parts += [[x] for x in together] if kind == "parallel" else [together]
    return [For(s.var, s.extent, [*before, *part], "parallel", s.origin) for part in parts]


def _split(body: list[Stmt]) -> tuple[list[Let], list[Stmt]]:
    """Split a body into the constants that it begins with and the rest."""
    before = [x for x in takewhile(lambda x: isinstance(x, Let) and not x.mutable, body) if isinstance(x, Let)]
    return before, body[len(before) :]


def _divides(s: For) -> bool:
    """Tell whether iterations of a loop in a parallel one are divided with it."""
    extent = constant_of(s.extent)
    if extent == 0 or s.kind == "parallel":
        return extent != 0
    long = extent is None or extent >= LONG
    return s.kind == "simd" and long and all(map(elementwise, s.body))


def elementwise(s: Stmt) -> bool:
    """Tell whether iterations of an outermost loop write only their own elements of memory that threads share."""
    return isinstance(s, Let) or (isinstance(s, Store) and s.buffer.root.where != "local")


def _read(stmts: Iterable[Let]) -> set[Buffer]:
    return {e.buffer.root for s in stmts for e in walk_expression(s.value) if isinstance(e, Load)}
