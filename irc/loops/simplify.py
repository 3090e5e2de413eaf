"""Rewrites of expressions in loops: substitution, guards that become loop bounds, sharing of repeated parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from irc.expr import Bin, Cast, Const, Expr, Load, Reduce, Select, Var, rebuilt
from irc.fusion.elements import is_index
from irc.fusion.indexing import Ranges, coefficient, local_name
from irc.ir.types import DType, i64
from irc.loops.builder import LoopBuilder
from irc.traversal import replaced, rewrite, transform, variables, walk


def substitute(e: Expr, values: Mapping[Expr, Expr]) -> Expr:
    """Replace parts of `e`, folding index arithmetic."""

    def visit(x: Expr) -> Expr:
        found = values.get(x)
        if found is not None:
            return found
        if isinstance(x, Bin) and x.dtype == i64 and x.op in _FOLDING:
            return _FOLDING[x.op](x.a, x.b)
        return x

    return transform(e, visit)


_FOLDING: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
}


def depends(e: Expr, vars: set[Expr]) -> bool:
    """Tell whether any of these variables occurs in `e`."""
    return not variables(e).isdisjoint(vars)


def identity(op: str, dtype: DType) -> Const:
    """Return the value of an empty reduction."""
    if op in ("any", "all"):
        return Const(op == "all", dtype)
    if op in ("sum", "prod"):
        number = int(op == "prod")
        return Const(float(number) if dtype.is_float else number, dtype)
    if dtype.is_float:
        return Const(-math.inf if op == "max" else math.inf, dtype)
    if dtype.kind == "b":
        return Const(op == "min", dtype)
    return Const(_integer_end(dtype, low=op == "max"), dtype)


def _integer_end(dtype: DType, low: bool) -> int:
    if dtype.kind == "i":
        return -(1 << (dtype.bits - 1)) if low else (1 << (dtype.bits - 1)) - 1
    return 0 if low else (1 << dtype.bits) - 1


def combine(op: str, a: Expr, b: Expr) -> Expr:
    """Combine two values by one step of a reduction."""
    names = {"sum": "add", "prod": "mul", "min": "min", "max": "max", "any": "or", "all": "and"}
    return Bin(names[op], a, b)


# ------------------------------------------------------------------------- guards
def split_guards(op: str, body: Expr) -> tuple[list[Expr], Expr]:
    """Split a body into (conditions, rest): where a condition fails, `body` is the reduction's identity.

    In a sum a product is skipped where one factor is a padding zero, so padding times an infinite or NaN weight
    counts as zero.
    """
    guards: list[Expr] = []
    if op == "sum":
        rest = _zero_guards(body, guards)
    elif (
        isinstance(body, Select)
        and isinstance(body.b, Const)
        and _same_number(body.b.value, identity(op, body.dtype).value)
    ):
        guards, rest = [body.cond], body.a
    else:
        rest = body
    return [cond for guard in guards for cond in conjuncts(guard)], rest


def _same_number(a: Any, b: Any) -> bool:
    return bool(np.asarray(a).astype(np.float64) == np.asarray(b).astype(np.float64))


def _zero_guards(e: Expr, guards: list[Expr]) -> Expr:
    """Remove the padding zeros from a product, and add their conditions to `guards`."""

    def replace(x: Expr) -> Expr | None:
        if (isinstance(x, Bin) and x.op == "mul") or isinstance(x, Cast):
            return None
        if isinstance(x, Select) and isinstance(x.b, Const) and x.b.value == 0:
            guards.append(x.cond)
            return x.a
        return x

    return replaced(e, replace)


def conjuncts(cond: Expr) -> list[Expr]:
    """List the conditions that a conjunction consists of."""

    def joins(x: Expr) -> bool:
        return isinstance(x, Bin) and x.op == "and"

    return [x for x in walk(cond, into=joins) if not joins(x)]


@dataclass
class Span:
    """The range of a loop variable: at least every `low`, below every `high`."""

    low: list[Expr] = field(default_factory=list[Expr])
    high: list[Expr] = field(default_factory=list[Expr])


def bound(cond: Expr, var: Var, ranges: Ranges, span: Span) -> bool:
    """Add a comparison that is linear in `var` to the span. Returns False if it is not."""
    if not isinstance(cond, Bin) or cond.op not in ("lt", "le") or not (is_index(cond.a) and is_index(cond.b)):
        return False
    gap = ranges.dim(cond.b) - ranges.dim(cond.a)
    if cond.op == "lt":
        gap = gap - 1
    slope = coefficient(gap, local_name(var))
    if slope is None or not slope.is_const or int(slope) == 0:
        return False
    rest, step = ranges.expr(gap - ranges.symbol(var) * slope), int(slope)
    if step > 0:  # step · var + rest >= 0
        span.low.append((Const(step - 1, i64) - rest) // step)
    else:
        span.high.append(rest // -step + 1)
    return True


# ------------------------------------------------------------------------ sharing
def share(b: LoopBuilder, e: Expr) -> Expr:
    """Bind parts of `e` that occur more than once, and are certainly evaluated, to `Let`s.

    It is enough that one of the places is certainly evaluated: a choice often tests what it then takes.
    """
    if sum(1 for _ in walk(e)) < 3:
        return e
    counts: dict[Expr, int] = {}
    always = certain(e)
    _count(e, counts)
    made: dict[Expr, Expr] = {}

    def step(x: Expr, state: None, go: Callable[[Expr, None], Expr]) -> Expr:
        if x in made:
            return made[x]
        new = rebuilt(x, tuple(go(c, state) for c in x.parts))
        if x in always and counts[x] > 1 and _worth(x):
            made[x] = new = b.let(new, "t")
        return new

    return rewrite(e, step, None)


def side_by_side(index: Sequence[Expr], var: Var) -> bool:
    """Tell whether elements of consecutive iterations stand side by side."""
    if not index:
        return False
    *outer, last = index
    return _steps(last, var) and not any(depends(i, {var}) for i in outer)


def _steps(e: Expr, var: Var) -> bool:
    """Tell whether an index is the variable and something that stays."""
    while e != var:
        if not isinstance(e, Bin) or e.op not in ("add", "sub") or depends(e.b, {var}) == depends(e.a, {var}):
            return False
        if e.op == "sub" and depends(e.b, {var}):
            return False
        e = e.b if depends(e.b, {var}) else e.a
    return True


def certain(e: Expr) -> set[Expr]:
    """Collect the parts of an expression that are evaluated whatever its conditions are."""
    found: set[Expr] = set()
    _mark(e, found)
    return found


def _mark(x: Expr, certain: set[Expr]) -> None:
    """Collect the parts that are certainly evaluated."""
    if not _is_leaf(x) and x not in certain:
        certain.add(x)
        for c in (x.cond,) if isinstance(x, Select) else x.parts:
            _mark(c, certain)


def _count(x: Expr, counts: dict[Expr, int]) -> None:
    """Count where each part stands, the places in equal parts once."""
    if not _is_leaf(x):
        counts[x] = counts.get(x, 0) + 1
        if counts[x] == 1:
            for c in x.parts:
                _count(c, counts)


def _is_leaf(x: Expr) -> bool:
    """Tell whether an expression is as short as a name: one without parts, or the read of an element of a local."""
    local = isinstance(x, Load) and x.buffer.where == "local"
    return not x.parts or (local and all(not i.parts for i in x.parts))


def _worth(e: Expr) -> bool:
    """Tell whether an expression is worth a name; index arithmetic without a division is not."""
    return not is_index(e) or any(isinstance(x, Bin) and x.op in ("floordiv", "mod") for x in walk(e))


def has_reduce(e: Expr) -> bool:
    return any(isinstance(x, Reduce) for x in walk(e))
