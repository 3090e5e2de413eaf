"""Elements of values as expressions: `compute` of each operation, traced once; producers are substituted on demand.

In a traced expression `Load.buffer` is the operand's `Value`.  `Inliner.at(value, index)` is the element of any
value in terms of the *leaves*: the values that the caller says stand in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from irc.diagnostics import Problem
from irc.diagnostics.codes import lowering as codes
from irc.expr import (
    Bin,
    Bits,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    Select,
    Tensor,
    Un,
    Var,
    rebuilt,
    select,
    size_data,
    wrap,
)
from irc.fusion.indexing import Ranges, irregular
from irc.ir.dim import Dim, product
from irc.ir.graph import Node, Value
from irc.ir.types import DType, TensorType, f32, i64
from irc.traversal import rewrite, transform, walk

ATTRIBUTE_ELEMENTS = 1 << 16
"""Constants of up to this many elements are passed to `compute` as arrays."""


@dataclass(frozen=True)
class Flat:
    """A value read by row-major position instead of by index."""

    value: Value

    @property
    def dtype(self) -> DType:
        return self.value.dtype


def value_of(load: Load) -> Value:
    """Return the value that a Load of a traced expression reads."""
    return load.buffer.value if isinstance(load.buffer, Flat) else load.buffer


@dataclass(frozen=True)
class Element:
    """One element of a value: `expr` at the index `vars`; its loads are of the operands' values."""

    vars: tuple[Var, ...]
    expr: Expr

    @cached_property
    def reduces(self) -> list[Reduce]:
        """The reductions in the expression, outermost first."""
        return [e for e in walk(self.expr) if isinstance(e, Reduce)]


class Elements:
    """The elements of a graph's values, traced when first asked for."""

    def __init__(self) -> None:
        self._known: dict[Value, Element] = {}
        self._loads: dict[Value, list[Load]] = {}

    def of(self, value: Value) -> Element:
        """Return the element of a result whose operation has `compute`."""
        if value not in self._known:
            assert value.producer is not None
            self._known.update(zip(value.producer.outputs, trace_node(value.producer), strict=True))
        return self._known[value]

    def forget(self, node: Node) -> None:
        """Forget the elements of a node's results: one of its operands has become another value."""
        for value in node.outputs:
            self._known.pop(value, None)
            self._loads.pop(value, None)

    def loads(self, value: Value) -> list[Load]:
        """Collect the distinct loads in a value's element."""
        found = self._loads.get(value)
        if found is None:
            loads = (e for e in walk(self.of(value).expr) if isinstance(e, Load))
            found = self._loads[value] = list(dict.fromkeys(loads))
        return found

    def operands(self, node: Node) -> list[Value]:
        """Collect the operands whose elements a node really reads (all of them for `loops`)."""
        if node.op.compute is None:
            return list(dict.fromkeys(v for v in node.operands if not _is_attribute(v)))
        found: dict[Value, None] = {}
        for out in node.outputs:
            for load in self.loads(out):
                found[value_of(load)] = None
        return list(found)


def _is_attribute(v: Value) -> bool:
    return not isinstance(v.type, TensorType)


def operand_tensor(value: Value | None) -> Tensor | None:
    """Make the operand that `compute` and `loops` receive."""
    if value is None:
        return None
    small = value.tensor.is_static and int(value.tensor.elements()) <= ATTRIBUTE_ELEMENTS
    return Tensor(value.tensor, lambda at: Load(value, at), value.array if small else None)


def trace_node(node: Node) -> list[Element]:
    """Trace the elements of a node's results."""
    assert node.op.compute is not None
    types = [v.tensor for v in node.outputs]
    found = node.op.compute(types[0] if len(types) == 1 else types, *map(operand_tensor, node.inputs))
    several = isinstance(found, tuple | list)
    functions: list[Callable[..., Expr]] = list(cast("Iterable[Any]", found)) if several else [found]
    elements: list[Element] = []
    for kind, function in zip(types, functions, strict=False):
        vars = tuple(Var(f"o{k}") for k in range(len(kind.dims())))
        expr = widen(wrap(function(*vars), kind.dtype))
        if expr.dtype != kind.dtype:
            raise Problem(codes.WRONG_ELEMENT_TYPE, op=node.op.name, found=expr.dtype, declared=kind.dtype)
        elements.append(Element(vars, expr))
    return elements


def widen(e: Expr) -> Expr:
    """Accumulate sums and products of narrow floats, and products of a contraction, in f32, rounded once."""

    def visit(x: Expr) -> Expr:
        if not isinstance(x, Reduce) or x.op not in ("sum", "prod") or x.dtype.compute == x.dtype:
            return x
        kind, body = x.dtype, x.body
        if isinstance(body, Bin) and body.op == "mul":
            body = Bin("mul", body.a.cast(f32), body.b.cast(f32))
        return Reduce(x.op, x.vars, x.extents, body.cast(f32)).cast(kind)

    return transform(e, visit)


class Inliner:
    """Elements of values in terms of leaves.

    `is_leaf` says which values are read from memory.  Indices are simplified with the ranges of the loop
    variables, which the caller declares in `ranges`; those of reductions are renamed to be unique.
    """

    def __init__(self, elements: Elements, is_leaf: Callable[[Value], bool], ranges: Ranges | None = None) -> None:
        self.elements, self.is_leaf = elements, is_leaf
        self.ranges = ranges or Ranges()
        self.used: dict[Node, None] = {}
        """The nodes whose elements were substituted."""
        self._known: dict[tuple[Value, tuple[Expr, ...]], Expr] = {}
        self._count = 0

    def at(self, value: Value, index: tuple[Expr, ...]) -> Expr:
        """Express the element of a value by leaves; of a leaf, what it is computed from."""
        key = (value, index)
        if key not in self._known:
            element = self.elements.of(value)
            assert value.producer is not None
            self.used[value.producer] = None
            self._known[key] = self._rewrite(element.expr, dict(zip(element.vars, index, strict=True)))
        return self._known[key]

    def read(self, value: Value, index: tuple[Expr, ...]) -> Expr:
        """Express an operand's element: as a number, a load of a leaf, or what the producer computes."""
        known = known_element(value, index)
        if known is not None:
            return known
        if not self.is_leaf(value):
            return self.at(value, index)
        position = self.ranges.flat(index, value.shape)
        if not irregular(position) and any(irregular(self.ranges.dim(i)) for i in index):
            return Load(Flat(value), (self.ranges.expr(position),))
        return Load(value, index)

    def substituted(self, e: Expr, env: dict[Var, Expr]) -> Expr:
        """Substitute variables in an expression whose loads are of leaves, and decide what ranges decide."""
        return self._rewrite(e, env)

    def _rewrite(self, e: Expr, env: dict[Var, Expr]) -> Expr:
        """Substitute `env` for the element's variables, and elements of operands for its loads."""
        return rewrite(e, lambda x, _, go: self._step(x, env, lambda part: go(part, None)), None)

    def _step(self, e: Expr, env: dict[Var, Expr], go: Callable[[Expr], Expr]) -> Expr:
        if isinstance(e, Var):
            return env.get(e, e)
        if isinstance(e, Load):
            at = tuple(self.ranges.simplify(go(i)) for i in e.index)
            if isinstance(e.buffer, Flat):
                return Load(e.buffer, at)
            return self.read(e.buffer, at) if isinstance(e.buffer, Value) else Load(e.buffer, at)
        if isinstance(e, Reduce):
            return self._reduce(e, env)
        if isinstance(e, Select):
            cond = go(e.cond)
            if isinstance(cond, Const):
                return go(e.a if cond.value else e.b)
            return select(cond, go(e.a), go(e.b))
        parts = tuple(go(c) for c in e.parts)
        if isinstance(e, Bin):
            return self._binary(e, *parts)
        if isinstance(e, Un) and e.op == "not":
            return parts[0].logical_not()
        return rebuilt(e, parts)

    def _binary(self, e: Bin, a: Expr, b: Expr) -> Expr:
        if e.op in ("and", "or"):
            return a.logical_and(b) if e.op == "and" else a.logical_or(b)
        if e.op in ("eq", "ne", "lt", "le") and a.dtype == i64 and is_index(a) and is_index(b):
            sure = self.ranges.compare(e.op, a, b)
            if sure is not None:
                return Const(sure, e.dtype)
            return Bin(e.op, self.ranges.simplify(a), self.ranges.simplify(b))
        if e.op in ("min", "max") and e.dtype == i64 and is_index(a) and is_index(b):
            sure = self.ranges.compare("le", a, b)
            if sure is not None:
                return a if sure == (e.op == "min") else b
        return rebuilt(e, (a, b))

    def _reduce(self, e: Reduce, env: dict[Var, Expr]) -> Expr:
        inner = dict(env)
        vars: list[Var] = []
        extents: list[Dim] = []
        for var, extent in zip(e.vars, e.extents, strict=True):
            if extent == 1:
                inner[var] = Const(0, i64)
                continue
            fresh = Var(f"r{self._count}")
            self._count += 1
            self.ranges.declare(fresh, extent)
            inner[var] = fresh
            vars.append(fresh)
            extents.append(extent)
        body = self._rewrite(e.body, inner)
        return Reduce(e.op, tuple(vars), tuple(extents), body) if vars else body


def is_index(e: Expr) -> bool:
    """Tell whether an expression consists of loop variables, sizes and numbers only."""
    return not any(isinstance(x, Load | Call | Select | Cast | Bits | Reduce) for x in walk(e))


def known_element(value: Value, index: tuple[Expr, ...]) -> Expr | None:
    """Return an element that is known at compile time: symbolic contents, or a constant with one element; else None."""
    if value.contents is not None and not value.assumed and all(isinstance(i, Const) for i in index):
        numbers: Any = tuple(int(i.value) for i in index if isinstance(i, Const))
        if all(0 <= n < size for n, size in zip(numbers, value.contents.shape, strict=True)):
            found: Any = value.contents[numbers]
            dim = Dim.of(found)
            if dim.is_const:
                return Const({"b": bool, "f": float}.get(value.dtype.kind, int)(int(dim)), value.dtype)
            return size_data(dim).cast(value.dtype)
    if value.const is not None and product(value.shape) == 1 and value.dtype.kind in "fiub":
        number = value.const.array.reshape(-1)[0]
        kind = {"f": float, "b": bool}.get(value.dtype.kind, int)
        return Const(kind(number), value.dtype)
    return None


def identity_index(element: Element, load: Load) -> bool:
    """Tell whether a load reads the element at the index that is being computed."""
    return not isinstance(load.buffer, Flat) and load.index == element.vars


def extents_of(element: Element, value: Value) -> Ranges:
    """Declare the ranges of the index variables of a value's element."""
    ranges = Ranges()
    for var, size in zip(element.vars, value.shape, strict=True):
        ranges.declare(var, size)
    return ranges
