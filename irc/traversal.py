"""Walks over expressions that share parts: every distinct object is visited once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from irc.expr import Expr, Var, rebuilt

S = TypeVar("S")
T = TypeVar("T")


def fold(e: Expr, combine: Callable[[Expr, tuple[T, ...]], T], known: dict[int, T] | None = None) -> T:
    """Compute a value bottom-up: `combine(x, values of its parts)`, once for every distinct object.

    `known` keeps the values by `id` for further folds, which must not outlive the expressions.
    """
    values: dict[int, T] = {} if known is None else known
    stack = [e]
    while stack:
        x = stack[-1]
        parts = x.parts
        waiting = [c for c in parts if id(c) not in values]
        if waiting:
            stack += reversed(waiting)
            continue
        stack.pop()
        if id(x) not in values:
            values[id(x)] = combine(x, tuple(values[id(c)] for c in parts))
    return values[id(e)]


def height(e: Expr) -> int:
    """How many expressions stand inside each other."""
    return fold(e, lambda _, parts: 1 + max(parts, default=0))


class _Rewriting(Generic[S]):
    """A rewriting under way; a function that calls itself would be a circle, which waits for the collector."""

    def __init__(self, step: Callable[[Expr, S, Callable[[Expr, S], Expr]], Expr]) -> None:
        self.step = step
        self.done: dict[tuple[int, S], tuple[Expr, Expr]] = {}  # with the object, whose id is then nobody else's

    def __call__(self, x: Expr, state: S) -> Expr:
        key = (id(x), state)
        known = self.done.get(key)
        if known is None:
            known = self.done[key] = x, self.step(x, state, self)
        return known[1]


def rewrite(e: Expr, step: Callable[[Expr, S, Callable[[Expr, S], Expr]], Expr], state: S) -> Expr:
    """Rewrite top-down, with a hashable state: `step(x, state, go)` says what stands for `x`, and rewrites parts with
    `go(part, state)`.  Every pair of an object and a state is visited once, so that shared parts stay shared."""
    return _Rewriting(step)(e, state)


def transform(e: Expr, visit: Callable[[Expr], Expr], replace: Callable[[Expr], Expr | None] = lambda _: None) -> Expr:
    """Rewrite bottom-up; shared parts are visited once and stay shared.

    What `replace` gives takes the place of an expression whose parts are left alone.
    """

    def step(x: Expr, state: None, go: Callable[[Expr, None], Expr]) -> Expr:
        instead = replace(x)
        return visit(rebuilt(x, tuple(go(c, state) for c in x.parts))) if instead is None else instead

    return rewrite(e, step, None)


def replaced(e: Expr, replace: Callable[[Expr], Expr | None]) -> Expr:
    """Replace the outermost parts for which `replace` gives an expression."""
    return transform(e, lambda x: x, replace)


def walk(e: Expr, into: Callable[[Expr], bool] | None = None) -> Iterator[Expr]:
    """Every distinct object in an expression, outermost first; `into` says of which the parts follow (default: all)."""
    seen: set[int] = set()
    stack = [e]
    while stack:
        x = stack.pop()
        if id(x) not in seen:
            seen.add(id(x))
            yield x
            if into is None or into(x):
                stack.extend(x.parts[::-1])


def variables(e: Expr) -> frozenset[Var]:
    """Collect the variables of an expression, those of its reductions among them; every part keeps its own."""
    return e.__dict__[_KEPT] if _KEPT in e.__dict__ else fold(e, _keep_variables)


_KEPT = "_variables"


def _keep_variables(x: Expr, sets: tuple[frozenset[Var], ...]) -> frozenset[Var]:
    """Unite the sets of its parts for an expression: to one of them, if that has all elements."""
    if _KEPT not in x.__dict__:
        largest = frozenset({x}) if isinstance(x, Var) else max(sets, key=len, default=frozenset[Var]())
        x.__dict__[_KEPT] = largest if all(s <= largest for s in sets) else largest.union(*sets)
    return x.__dict__[_KEPT]
