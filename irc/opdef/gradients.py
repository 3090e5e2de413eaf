"""Gradients of a value by others, as ordinary operations of the same graph: reverse-mode differentiation.

`rule(name)` declares what the gradients of an operation's operands are, given those of its results; the files
irc/ops/gradients_*.py hold these rules.  An operation without one is differentiated as what it is composed of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from irc.diagnostics import Problem
from irc.diagnostics.codes import operation as codes, shape as shape_codes
from irc.ir.dim import Dim
from irc.ir.graph import Node, Value
from irc.ir.limits import DERIVATIVES
from irc.ir.types import TensorType
from irc.opdef.base import Op
from irc.opdef.builder import Builder, Rewrite
from irc.opdef.forms import Declined, Results
from irc.opdef.reference import as_list
from irc.opdef.registry import load_all


@dataclass(frozen=True)
class Step:
    """A node that is differentiated: its operation, operands and results.

    gradients: of each result, None where nothing depends on it.  wanted: whether that of each operand is asked for.
    """

    op: Op
    operands: tuple[Value | None, ...]
    results: tuple[Value, ...]
    gradients: tuple[Value | None, ...]
    wanted: tuple[bool, ...]

    @property
    def x(self) -> Value:
        """The first operand."""
        return self.operand(0)

    @property
    def y(self) -> Value:
        """The first result."""
        return self.results[0]

    @property
    def g(self) -> Value:
        """The gradient of the first result, the only one that has one for most operations."""
        found = self.gradients[0]
        if found is None or any(g is not None for g in self.gradients[1:]):
            raise self.problem()
        return found

    def operand(self, k: int) -> Value:
        """An operand that is present."""
        found = self.operands[k] if k < len(self.operands) else None
        if found is None:
            raise self.problem()
        return found

    def attribute(self, name: str) -> object:
        return getattr(self.op, name)

    def problem(self) -> Problem:
        """What to raise where a rule does not cover this instance."""
        return Problem(codes.NO_GRADIENT, through=str(self.op))


Gradients = Value | None | Sequence[Value | None]
"""The gradient of the first operand, or those of the first ones; None: 0."""
Rule = Callable[[Builder, Step], Gradients]
RULES: dict[str, Rule] = {}
"""By the canonical name of the operation."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Declare a function as the rule of these operations."""

    def declare(function: Rule) -> Rule:
        for name in names:
            assert name not in RULES, f"{name} has two rules"
            RULES[name] = function
        return function

    return declare


def restated(name: str, rewrite: Rewrite) -> None:
    """Declare that an operation is differentiated as what `rewrite` says it in."""
    rule(name)(lambda b, s: _through(b, s, rewrite))


# ------------------------------------------------------------------------------ shapes
def sizes_of(b: Builder, x: Value) -> Value:
    """The shape of x as an i64 vector."""
    return b.dims(x.shape) if x.tensor.is_static else b.Shape(x)


def filled(b: Builder, number: float, x: Value) -> Value:
    """A tensor of that number with the type of x."""
    return b.Expand(b.like(number, x), sizes_of(b, x))


def shaped_like(b: Builder, v: Value, x: Value) -> Value:
    """The elements of v in the shape of x."""
    return v if v.shape == x.shape else b.Reshape(v, sizes_of(b, x), special_zero=False)


def summed_to(b: Builder, g: Value, x: Value) -> Value:
    """Sum a gradient over the axes along which x was broadcast."""
    extra = len(g.shape) - len(x.shape)
    if extra:
        g = b.ReduceSum(g, list(range(extra)), keepdims=False)
    pairs = [(k, have, want) for k, (have, want) in enumerate(zip(g.shape, x.shape, strict=True)) if have != want]
    ones = [k for k, _, want in pairs if want == 1]
    if ones:
        g = b.ReduceSum(g, ones, keepdims=True)
    if all(want == 1 or have.equals(want) for _, have, want in pairs):
        return g
    # Which axes have size 1 only the run knows; the sum over such an axis is right whatever was broadcast.
    single = b.Reshape(b.NonZero(b.Equal(b.Shape(x), b.const(1))), [-1])
    return shaped_like(b, b.ReduceSum(g, single, keepdims=True, noop_with_empty_axes=True), x)


def scattered(b: Builder, s: Step) -> Value:
    """The gradient of the first operand of an operation that moves elements: each goes back to where it came from."""
    x = s.x
    numbers = b.Range(b.const(0), _product(b, x)[0], b.const(1))
    places = b.Reshape(numbers, sizes_of(b, x), special_zero=False)
    moved = b.add_all(s.op, places, *s.operands[1:])[0]
    return put_back(b, s.g, moved, x)


def put_back(b: Builder, g: Value, places: Value, x: Value) -> Value:
    """Add each element of g to a tensor of zeros like x, at its flat place."""
    size = _product(b, x)[1]
    flat = (b.Reshape(v, b.const([-1])) for v in (places, g))
    total = b.ScatterElements(b.Expand(b.like(0, x), size), *flat, b.const(0), reduction="add")
    return shaped_like(b, total, x)


def _product(b: Builder, x: Value) -> tuple[Value, Value]:
    """The number of elements of x, as a scalar and as a vector."""
    if x.tensor.is_static:
        number = math.prod(x.tensor.static_shape())
        return b.const(number), b.const([number])
    number = b.ReduceProd(b.Shape(x), [0], keepdims=False)
    return number, b.Reshape(number, [1])


# ------------------------------------------------------------------------------ the walk
def differentiable(value: Value | None) -> bool:
    """Whether a value may have a gradient: it holds floats, or nothing is known of it."""
    if value is None or value.const is not None:
        return False
    return not isinstance(value.type, TensorType) or value.dtype.is_float or value.dtype.name == "dynamic"


def gradients(b: Builder, y: Value, xs: Sequence[Value]) -> list[Value]:
    """The gradients of the sum of y by each of xs, which are taken for independent.  Raises Problem."""
    load_all()
    found = _propagated(b, {y: filled(b, 1.0, y)}, dict.fromkeys(xs))
    return [found[x] if x in found else filled(b, 0.0, x) for x in xs]


def dependents(targets: Iterable[Value], xs: Iterable[Value]) -> tuple[list[Node], set[Value]]:
    """The nodes between xs and the targets, operands first, and the values among them that depend on xs."""
    active, order, done = set(xs), list[Node](), set[Node]()
    leaves = set(active)
    waiting = [(v.producer, False) for v in targets if v not in leaves]
    while waiting:
        node, ready = waiting.pop()
        if node is None or (node in done and not ready):
            continue
        if ready:
            if any(v in active for v in node.operands):
                order.append(node)
                active.update(v for v in node.outputs if differentiable(v))
            continue
        done.add(node)
        waiting.append((node, True))
        waiting += [(v.producer, False) for v in node.operands if v not in leaves]
    return order, active


def _propagated(b: Builder, seeds: Mapping[Value, Value], xs: Iterable[Value]) -> dict[Value, Value]:
    """Gradients by xs, given those by some values.  Those that are 0 are left out."""
    leaves = set(xs)
    order, active = dependents(seeds, leaves)
    total = dict(seeds)
    for node in reversed(order):
        given = tuple(None if v in leaves else total.pop(v, None) for v in node.outputs)
        if all(g is None for g in given):
            continue
        wanted = tuple(v is not None and v in active for v in node.inputs)
        step = Step(node.op, node.inputs, node.outputs, given, wanted)
        for x, g in zip(node.inputs, _of_operands(b, step), strict=False):
            if x is not None and g is not None and x in active:
                g = summed_to(b, g, x)
                total[x] = g if x not in total else b.Add(total[x], g)
        DERIVATIVES.check(len(b.graph), "Gradient")
    return {x: total[x] for x in leaves if x in total}


def _of_operands(b: Builder, s: Step) -> Sequence[Value | None]:
    """The gradients of the operands of one node."""
    known = RULES.get(s.op.name)
    if known is None and s.op.effect:
        raise s.problem()
    try:
        found = _through(b, s, _composed) if known is None else known(b, s)
    except (Problem, Declined) as p:
        if isinstance(p, Problem) and p.code is shape_codes.BEYOND_LIMIT:
            raise
        raise s.problem() from p
    return [found] if found is None or isinstance(found, Value) else found


def _composed(b: Builder, op: Op, *operands: Value | None) -> Results:
    """What an operation is composed of.  Raises Problem if it is composed of nothing."""
    found = None if op.resolve is None else op.resolve(b, *operands)
    if found is None and op.decompose is None:
        raise Problem(codes.NO_GRADIENT, through=op.name)
    return op.decompose(b, *operands) if found is None else found  # type: ignore[misc]


def _through(b: Builder, s: Step, rewrite: Rewrite) -> Sequence[Value | None]:
    """Differentiate an operation as what `rewrite` says it in."""
    results = as_list(rewrite(b, s.op, *s.operands))
    wanted = dict.fromkeys(x for x, w in zip(s.operands, s.wanted, strict=True) if w and x is not None)
    order, _ = dependents(results, wanted)
    if any(node.op.effect for node in order):  # it would be computed twice, with other results
        raise s.problem()
    seeds: dict[Value, Value] = {}
    for y, g in zip(results, s.gradients, strict=False):
        if g is not None:
            seeds[y] = g if y not in seeds else b.Add(seeds[y], g)
    found = _propagated(b, seeds, wanted)
    return [None if x is None else found.pop(x, None) for x in s.operands]


def replayed(b: Builder, y: Value, others: Mapping[Value, Value]) -> Value:
    """Compute y with other values in the place of some.  Raises Problem."""
    order, _ = dependents([y], others)
    twins = dict(others)
    for node in order:
        if node.op.effect:
            raise Problem(codes.NO_GRADIENT, through=str(node.op))
        operands = [None if v is None else twins.get(v, v) for v in node.inputs]
        twins.update(zip(node.outputs, b.add_all(node.op, *operands), strict=False))
        DERIVATIVES.check(len(b.graph), "Gradient")
    return twins.get(y, y)


def known_sizes(sizes: Iterable[Dim]) -> list[int] | None:
    """Sizes as numbers; None where the run defines one."""
    found = list(sizes)
    return [int(d) for d in found] if all(d.is_const for d in found) else None
