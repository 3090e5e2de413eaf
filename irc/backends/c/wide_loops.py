"""Which functions of loops are compiled for vectors of 512 bits, where a core multiplies and adds two of them a cycle.

GCC takes halves of them unless it is told otherwise, or does not know the processor.  Whole ones are faster where loops
compute: functions, or what accumulates in local memory.  They are slower where most iterations are of short rows, and
where loops only move what memory has, most vectors of which are in two lines of the cache.

Where a tile of halves stands in registers they are taken on every processor that has them: the tile is one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from irc.backends.c.conversions import WHOLE_VECTORS, conversion_of
from irc.expr import Call, Const, Load
from irc.loops.halves import stands_in_registers
from irc.loops.ir import For, If, Let, Stmt, Store, walk
from irc.traversal import walk as walk_expression

LONG = 64
"""Iterations of a loop that fill vectors."""
MOSTLY = 8
"""Times as many iterations of long loops as of short ones that make up for these."""
MACRO = f"""#if {WHOLE_VECTORS}
#define IRC_WIDE __attribute__((noinline, target("prefer-vector-width=512"))) /* callers have halves of them */
#else
#define IRC_WIDE
#endif
"""


def wide(body: Sequence[Stmt], fast: bool) -> str:
    """Return what stands before a function of these statements: the macro, or nothing.

    fast: whether a core multiplies and adds two of the vectors a cycle.
    """
    loops = list(_vectorised(body, 1))
    if any(_converts_a_tile(s) for s, _ in loops):
        return "IRC_WIDE "
    if not fast or not any(_computes(s) for s, _ in loops):
        return ""
    short = sum(times for s, times in loops if not _long(s))
    return "IRC_WIDE " if sum(times for _, times in loops) - short >= MOSTLY * short else ""


def _vectorised(body: Sequence[Stmt], times: int) -> Iterator[tuple[For, int]]:
    """Yield the loops of vectors, and how many iterations they have in all; unknown extents count as `LONG`."""
    for s in body:
        if isinstance(s, For):
            total = times * (int(s.extent.value) if isinstance(s.extent, Const) else LONG)
            if s.kind in ("simd", "lanes"):
                yield s, total
            yield from _vectorised(s.body, total)
        elif isinstance(s, If):
            yield from _vectorised([*s.then, *s.orelse], times)


def _converts_a_tile(s: For) -> bool:
    """Tell whether a loop is a conversion between halves and a tile of floats that stands in registers."""
    found = conversion_of(s)
    return found is not None and any(stands_in_registers(buffer) for buffer, _ in (found.to, found.source))


def _long(s: For) -> bool:
    stores = [inner for inner in s.body if isinstance(inner, Store)]
    read = (e.buffer for inner in stores for e in walk_expression(inner.value) if isinstance(e, Load))
    if any(map(stands_in_registers, (*(inner.buffer for inner in stores), *read))):
        return True  # all of it is one vector
    return not isinstance(s.extent, Const) or int(s.extent.value) >= LONG


def _computes(s: For) -> bool:
    for inner in walk(s.body):
        if isinstance(inner, Store) and inner.buffer.root.where == "local":
            return True
        if isinstance(inner, Let | Store) and any(isinstance(e, Call) for e in walk_expression(inner.value)):
            return True
    return False
