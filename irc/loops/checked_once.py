"""Checks that are the same in every row: made once, in front of all rows.

Gather along the last axis by indices that only a run knows asks of each element of each row whether its index lies
within the data; a read behind a question is neither vectorised nor started early.  Where the index depends on the
place in the row alone, a loop in front notes all places and whether any lies outside, and rows of a tensor all of
whose places lie within read without asking.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from irc.expr import Const, Expr, Load, Select, Var, dim_of
from irc.ir.dim import Dim
from irc.ir.types import i64
from irc.loops.builder import FEW_COPIES, LoopBuilder
from irc.loops.ir import Buffer, For, If, Let, Stmt, Store, written_in
from irc.traversal import replaced, variables, walk

FEW = 8
"""Rows for which a table is not worth a loop of its own."""


def check_once(b: LoopBuilder) -> None:
    """Make checks of the places in a row once for all rows, in the builder's body in place."""
    if b.copies <= FEW_COPIES:
        return
    found: list[Stmt] = []
    for s in b.body:
        rows = _rows(s) if isinstance(s, For) else None
        if rows is not None:
            found += _asked_once(b, rows)
        found.append(s)
    b.body[:] = found


@dataclass
class _Rows:
    """A loop over the places in a row, in the innermost of loops over rows.

    known: what a place alone decides.  place: which of it the row is computed by.  check: whether an element may be
    read.  unchecked: what the row computes by `place` where all elements may.
    """

    around: For
    row: For
    size: Dim
    known: dict[Var, Let]
    place: Var
    check: Expr
    unchecked: list[Stmt]


def _rows(outermost: For) -> _Rows | None:
    """Find rows whose places are checked again in each of them."""
    loops, number = [outermost], 1
    while len(loops[-1].body) == 1 and isinstance(inner := loops[-1].body[0], For):
        extent = loops[-1].extent
        number *= int(extent.value) if isinstance(extent, Const) else FEW
        loops.append(inner)
    row = loops[-1]
    size, (*lets, last) = dim_of(row.extent), row.body
    if number < FEW or len(loops) == 1 or size is None or not isinstance(last, Store):
        return None
    known, written = dict[Var, Let](), written_in([outermost])
    for s in lets:
        if not isinstance(s, Let) or s.mutable:
            return None
        reads = {x.buffer.root for x in walk(s.value) if isinstance(x, Load)}
        if variables(s.value) <= {row.var, *known} and reads.isdisjoint(written):
            known[s.var] = s
    checks = dict.fromkeys(x for x in walk(last.value) if isinstance(x, Select) and _asks(x, row.var, known))
    if len(checks) != 1:
        return None
    (check,) = checks
    read = replaced(last.value, lambda x: check.a if x == check else None)
    others = [s for s in lets if isinstance(s, Let) and s.var not in known]
    used = variables(check.cond).union(*map(variables, (read, *last.index, *(s.value for s in others))))
    places = [v for v in known if v in used]
    if len(places) != 1 or places[0].dtype != i64:
        return None
    unchecked: list[Stmt] = [*others, Store(last.buffer, last.index, read)]
    return _Rows(loops[-2], row, size, known, places[0], check.cond, unchecked)


def _asks(x: Select, at: Var, known: dict[Var, Let]) -> bool:
    """Tell whether an element is read, and else a constant stands for it, by what a place alone decides."""
    by_place = variables(x.cond) <= {at, *known} and not any(isinstance(y, Load) for y in walk(x.cond))
    of_data = not known.keys().isdisjoint(variables(x.cond))
    return by_place and of_data and isinstance(x.a, Load) and isinstance(x.b, Const)


def _asked_once(b: LoopBuilder, rows: _Rows) -> list[Stmt]:
    """Note the places of a row, and let each row ask once.  Returns the statements for in front of all rows."""
    row, zero = rows.row, Const(0, i64)
    table, outside = (
        Buffer(b.name(name).name, i64, (n,), "arena") for name, n in (("places", rows.size), ("outside", Dim.of(1)))
    )
    b.scratch += [table, outside]
    found = Load(outside, (zero,)) + Select(rows.check, zero, Const(1, i64))
    noted: list[Stmt] = [Store(table, (row.var,), rows.place), Store(outside, (zero,), found)]
    known = [replace(s) for s in rows.known.values()]  # statements of two loops are changed by themselves
    unchecked = replace(row, body=[Let(rows.place, Load(table, (row.var,))), *map(replace, rows.unchecked)])
    rows.around.body = [If(Load(outside, (zero,)).eq(0), [unchecked], [row])]
    return [Store(outside, (zero,), zero), replace(row, body=[*known, *noted], kind="serial")]
