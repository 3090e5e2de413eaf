"""Which functions of loops are compiled for vectors of 512 bits, where a core multiplies and adds two of them a cycle.

GCC takes halves of them unless it is told otherwise.  Whole ones are faster where loops compute: functions, or what
accumulates in local memory.  They are slower where rows are short, and where loops only move what memory has, most
vectors of which are in two lines of the cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from irc.expr import Call, Const
from irc.loops.ir import For, Let, Stmt, Store, walk
from irc.traversal import walk as walk_expression

LONG = 64
"""Iterations of a loop that fill vectors."""
MACRO = """#if defined(__GNUC__) && !defined(__clang__) && defined(__AVX512F__)
#define IRC_WIDE __attribute__((target("prefer-vector-width=512")))
#else
#define IRC_WIDE
#endif
"""


def wide(body: Sequence[Stmt]) -> str:
    """Return what stands before a function of these statements: the macro, or nothing."""
    loops = [s for s in walk(list(body)) if isinstance(s, For) and s.kind in ("simd", "lanes")]
    return "IRC_WIDE " if loops and all(map(_long, loops)) and any(map(_computes, loops)) else ""


def _long(s: For) -> bool:
    return not isinstance(s.extent, Const) or int(s.extent.value) >= LONG


def _computes(s: For) -> bool:
    for inner in walk(s.body):
        if isinstance(inner, Store) and inner.buffer.root.where == "local":
            return True
        if isinstance(inner, Let | Store) and any(isinstance(e, Call) for e in walk_expression(inner.value)):
            return True
    return False
