# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
"""Specialising expressions: what is known becomes a literal, what is left keeps facts about its value.

`Expressions.visit(node)` gives the new expression and its fact.  An expression whose value is known comes back as it
was, with `Known`; `code` writes it, as a literal or, where it has none, by specialising its parts.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from irc.backends.numpy import arrays
from irc.backends.numpy.facts import (
    BOOL,
    INT,
    OTHER,
    Array,
    Fact,
    Items,
    Known,
    Scalar,
    common,
    element,
    joined,
    parts,
    sequence,
    widened,
)
from irc.backends.numpy.literals import literal, literal_node
from irc.backends.numpy.pure import safely
from irc.backends.numpy.source import NeedsStatement, NoSource, Source
from irc.backends.numpy.syntax import gives_name, is_bulky, is_super, iterated, short_slices, simplified

if TYPE_CHECKING:
    from irc.backends.numpy.functions import Library

Made = tuple[ast.expr, Fact]

BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.BitAnd: operator.and_,
    ast.MatMult: operator.matmul,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_ELEMENTWISE = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


@dataclass
class State:
    """What is known at one place of a function."""

    facts: dict[str, Fact] = field(default_factory=dict[str, "Fact"])
    same: dict[str, str] = field(default_factory=dict[str, str])  # variable → the one that it is another name of
    written: set[str] = field(default_factory=set[str])  # variables with an assignment in the new text

    def copy(self) -> State:
        return State(dict(self.facts), dict(self.same), set(self.written))


class Expressions:
    """Specialises the expressions of one function (or of a module, `source` None)."""

    def __init__(self, library: Library, outer: dict[str, Any], source: Source | None, owner: str) -> None:
        self.library, self.outer, self.source, self.owner = library, outer, source, owner
        self.local: set[str] = source.local if source else set()
        self.state: State = State()

    # ---------------------------------------------------------------------- text
    def text(self, node: ast.expr) -> ast.expr:
        """Specialise an expression, and write it."""
        return self.code(*self.visit(node))

    def code(self, node: ast.expr, fact: Fact, plain_type: bool = False) -> ast.expr:
        """Write what `visit` returned: a literal where the value is known.

        plain_type: `np.float32` does for `np.dtype(np.float32)`.
        """
        if not isinstance(fact, Known):
            return node
        value = fact.value
        if plain_type and isinstance(value, np.dtype):
            value = value.type if value.kind != "O" else object
        made = literal_node(value, self.library.note)
        if isinstance(node, ast.Name) and node.id in self.state.written and (made is None or is_bulky(made)):
            return ast.Name(node.id, ast.Load())
        if made is not None:
            return made
        found = self.library.of_value(value)
        return found if found is not None else self._unfolded(node, value)

    def _unfolded(self, node: ast.expr, value: Any) -> ast.expr:
        """Write an expression whose value is known but has no literal."""
        if isinstance(node, ast.Name):
            if node.id in self.local:
                raise NeedsStatement(node.id, f"{node.id} ({type(value).__name__}) is used as a value")
            return self.library.of_global(node.id, value, getattr(value, "__module__", None) or self.owner)
        return getattr(self, f"build_{type(node).__name__}", self._no_source)(node)[0]

    def _no_source(self, node: ast.expr) -> Made:
        raise NoSource(f"{ast.unparse(node)} is known but has no literal")

    # --------------------------------------------------------------------- dispatch
    def visit(self, node: ast.expr) -> Made:
        """Specialise an expression. Returns it with what is known of its value."""
        return getattr(self, f"visit_{type(node).__name__}", self._no_source)(node)

    def visit_Constant(self, node: ast.Constant) -> Made:
        return node, Known(node.value)

    def visit_Name(self, node: ast.Name) -> Made:
        name = self.state.same.get(node.id, node.id)
        if name in self.state.facts:
            return ast.Name(name, ast.Load()), self.state.facts[name]
        if name in self.local:
            return ast.Name(name, ast.Load()), OTHER
        if name not in self.outer:
            raise NoSource(f"{name} is not known")
        return node, Known(self.outer[name])

    def visit_Attribute(self, node: ast.Attribute) -> Made:
        if is_super(node.value):
            parent: Any = super(self.outer["__class__"], self._value("self"))
            return node, Known(getattr(parent, node.attr))
        base, fact = self.visit(node.value)
        if isinstance(fact, Known):
            found = safely(lambda: getattr(fact.value, node.attr))
            if found is not None:
                return node, found
        if isinstance(fact, Array):
            found = arrays.attribute(fact, node.attr)
            if isinstance(found, Known):
                return node, found
            return ast.Attribute(self.code(base, fact), node.attr, ast.Load()), found
        return ast.Attribute(self.code(base, fact), node.attr, ast.Load()), OTHER

    def build_Attribute(self, node: ast.Attribute) -> Made:
        return ast.Attribute(self.text(node.value), node.attr, ast.Load()), OTHER

    def _value(self, name: str) -> Any:
        fact = self.state.facts[name]
        assert isinstance(fact, Known)
        return fact.value

    # ----------------------------------------------------------------- collections
    def _elements(self, nodes: Sequence[ast.expr]) -> tuple[list[ast.expr], list[Fact] | None]:
        """Specialise the elements of a sequence. The facts are None where their number is unknown."""
        texts: list[ast.expr] = []
        facts: list[Fact] | None = []
        for n in nodes:
            if not isinstance(n, ast.Starred):
                made, fact = self.visit(n)
                texts.append(self.code(made, fact))
                if facts is not None:
                    facts.append(fact)
                continue
            made, fact = self.visit(n.value)
            inner = parts(fact)
            if isinstance(fact, Known) and inner is not None:
                texts += [self.code(ast.Constant(None), f) for f in inner]
            else:
                texts.append(ast.Starred(iterated(self.code(made, fact)), ast.Load()))
            facts = None if inner is None or facts is None else [*facts, *inner]
        return texts, facts

    def _sequence(self, node: ast.Tuple | ast.List, kind: type) -> Made:
        if any(isinstance(n, ast.Slice) for n in node.elts):
            return ast.Tuple([self._index(n) for n in node.elts], ast.Load()), OTHER
        known = [self.visit(n) for n in node.elts if not isinstance(n, ast.Starred)]
        if len(known) == len(node.elts) and all(isinstance(f, Known) for _, f in known):
            return node, sequence([f for _, f in known], kind)
        texts, facts = self._elements(node.elts)
        made = ast.Tuple(texts, ast.Load()) if kind is tuple else ast.List(texts, ast.Load())
        if facts is not None and all(isinstance(f, Known) for f in facts):
            return node, sequence(facts, kind)
        return made, OTHER if facts is None else sequence(facts, kind)

    def visit_Tuple(self, node: ast.Tuple) -> Made:
        return self._sequence(node, tuple)

    def visit_List(self, node: ast.List) -> Made:
        return self._sequence(node, list)

    def build_Tuple(self, node: ast.Tuple) -> Made:
        return ast.Tuple(self._elements(node.elts)[0], ast.Load()), OTHER

    def build_List(self, node: ast.List) -> Made:
        return ast.List(self._elements(node.elts)[0], ast.Load()), OTHER

    def visit_Set(self, node: ast.Set) -> Made:
        texts, facts = self._elements(node.elts)
        if facts is not None and all(isinstance(f, Known) for f in facts):
            found = safely(lambda: {f.value for f in facts if isinstance(f, Known)})
            if found is not None:
                return node, found
        return ast.Set(texts), OTHER

    def visit_Dict(self, node: ast.Dict) -> Made:
        if None in node.keys:
            return self.build_Dict(node)
        pairs = [(self.visit(k), self.visit(v)) for k, v in zip(node.keys, node.values, strict=True) if k]
        if all(isinstance(k, Known) and isinstance(v, Known) for (_, k), (_, v) in pairs):
            found = safely(lambda: {k.value: v.value for (_, k), (_, v) in pairs})  # type: ignore[union-attr]
            if found is not None:
                return node, found
        return ast.Dict([self.code(*k) for k, _ in pairs], [self.code(*v) for _, v in pairs]), OTHER

    def build_Dict(self, node: ast.Dict) -> Made:
        keys = [None if k is None else self.text(k) for k in node.keys]
        return ast.Dict(keys, [self.text(v) for v in node.values]), OTHER

    # ------------------------------------------------------------------- arithmetic
    def visit_BinOp(self, node: ast.BinOp) -> Made:
        left, a = self.visit(node.left)
        right, b = self.visit(node.right)
        fact = self.combined(node.op, a, b)
        if isinstance(fact, Known):
            return node, fact
        made = ast.BinOp(self.code(left, a), node.op, self.code(right, b))
        return (simplified(made) if widened(a) == widened(b) == INT else made), fact

    build_BinOp = visit_BinOp

    def combined(self, op: ast.operator, a: Fact, b: Fact) -> Fact:
        """Find what is known of `a op b`."""
        function = BINARY[type(op)]
        if isinstance(a, Known) and isinstance(b, Known):
            found = safely(lambda: function(a.value, b.value))
            return OTHER if found is None else found
        if isinstance(a, Array) or isinstance(b, Array):
            if isinstance(op, ast.MatMult):
                return arrays.call(np.matmul, [widened(a), widened(b)], {})
            return arrays.computed(function, [a, b])
        if isinstance(op, ast.Add):
            x, y, kind = parts(a), parts(b), _kind(a)
            if x is not None and y is not None and kind is not None and kind is _kind(b):
                return sequence([*x, *y], kind)
        if isinstance(op, ast.Mult) and isinstance(a, Items) and isinstance(b, Known) and type(b.value) is int:
            return sequence(list(a.items) * b.value, a.kind)
        return arrays.computed(function, [a, b])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Made:
        made, fact = self.visit(node.operand)
        function = _UNARY[type(node.op)]
        if isinstance(fact, Known):
            found = safely(lambda: function(fact.value))
            if found is not None:
                return node, found
        if isinstance(node.op, ast.Not) and isinstance(fact, Items):
            return node, Known(not fact.items)
        new = BOOL if isinstance(node.op, ast.Not) else arrays.computed(function, [fact])
        return ast.UnaryOp(node.op, self.code(made, fact)), new

    def visit_Compare(self, node: ast.Compare) -> Made:
        made = [self.visit(n) for n in (node.left, *node.comparators)]
        if len(node.ops) == 1:
            found = self._compared(node.ops[0], made[0][1], made[1][1])
            if isinstance(found, Known):
                return node, found
        else:
            pairs = zip(node.ops, made, made[1:], strict=False)
            results = [self._compared(op, a, b) for op, (_, a), (_, b) in pairs]
            if any(isinstance(r, Known) and not r.value for r in results[:1]):
                return node, Known(False)
            if all(isinstance(r, Known) for r in results):
                return node, Known(all(r.value for r in results if isinstance(r, Known)))
            found = OTHER
        texts = [self.code(*m) for m in made]
        return ast.Compare(texts[0], node.ops, texts[1:]), found

    def _compared(self, op: ast.cmpop, a: Fact, b: Fact) -> Fact:
        function = _COMPARE[type(op)]
        if isinstance(a, Known) and isinstance(b, Known):
            found = safely(lambda: function(a.value, b.value))
            return OTHER if found is None else found
        if isinstance(op, ast.Is | ast.IsNot):
            for x, y in ((a, b), (b, a)):
                if isinstance(x, Known) and x.value is None and isinstance(y, Array | Items | Scalar):
                    return Known(isinstance(op, ast.IsNot))
            return BOOL
        if isinstance(op, _ELEMENTWISE) and (isinstance(a, Array) or isinstance(b, Array)):
            return arrays.computed(function, [a, b])
        return BOOL if all(isinstance(widened(f), Scalar) for f in (a, b)) else OTHER

    def visit_BoolOp(self, node: ast.BoolOp) -> Made:
        """Decide what is known: `True and x` is x, `False and x` is False."""
        deciding = isinstance(node.op, ast.Or)
        kept: list[Made] = []
        for i, operand in enumerate(node.values):
            made, fact = self.visit(operand)
            decided = truth(fact)
            if decided is None:
                kept.append((made, fact))
            elif decided == deciding:
                kept.append((made, fact))
                break
            elif i == len(node.values) - 1:
                if all(_is_boolean(f) for _, f in kept) and kept:
                    break
                kept.append((made, fact))
        if len(kept) == 1:
            return kept[0]
        return ast.BoolOp(node.op, [self.code(*k) for k in kept]), common([f for _, f in kept])

    def visit_IfExp(self, node: ast.IfExp) -> Made:
        test, fact = self.visit(node.test)
        decided = truth(fact)
        if decided is not None:
            return self.visit(node.body if decided else node.orelse)
        a, b = self.visit(node.body), self.visit(node.orelse)
        return ast.IfExp(self.code(test, fact), self.code(*a), self.code(*b)), widened(joined(a[1], b[1]))

    build_IfExp = visit_IfExp

    # ---------------------------------------------------------------------- subscripts
    def visit_Subscript(self, node: ast.Subscript) -> Made:
        base, fact = self.visit(node.value)
        if isinstance(node.slice, ast.Slice):
            bounds = [
                None if n is None else self.visit(n) for n in (node.slice.lower, node.slice.upper, node.slice.step)
            ]
            facts = [Known(None) if b is None else b[1] for b in bounds]
            if all(isinstance(f, Known) for f in facts):
                index: Fact = Known(slice(*[f.value for f in facts if isinstance(f, Known)]))
                found = self._picked(fact, index)
                if isinstance(found, Known):
                    return node, found
            else:
                found = Array(fact.dtype, fact.rank) if isinstance(fact, Array) else OTHER
            new = ast.Slice(*[None if b is None else self.code(*b) for b in bounds])
            return ast.Subscript(self.code(base, fact), new, ast.Load()), found
        place, index = self.visit(node.slice)
        found = self._picked(fact, index, _kept_axes(node.slice, fact))
        if isinstance(found, Known):
            return node, found
        return ast.Subscript(self.code(base, fact), short_slices(self.code(place, index)), ast.Load()), found

    def build_Subscript(self, node: ast.Subscript) -> Made:
        return ast.Subscript(self.text(node.value), short_slices(self._index(node.slice)), ast.Load()), OTHER

    def _index(self, node: ast.expr) -> ast.expr:
        """Write an index, including slices and starred parts."""
        if isinstance(node, ast.Slice):
            return ast.Slice(*[None if n is None else self.text(n) for n in (node.lower, node.upper, node.step)])
        if isinstance(node, ast.Tuple):
            return ast.Tuple([self._index(n) for n in node.elts], ast.Load())
        return self.text(node)

    def _picked(self, fact: Fact, index: Fact, kept: int | None = None) -> Fact:
        if isinstance(fact, Known) and isinstance(index, Known):
            found = safely(lambda: fact.value[index.value])
            return OTHER if found is None else found
        if isinstance(fact, Items):
            if isinstance(index, Known) and isinstance(index.value, slice):
                return sequence(fact.items[index.value], fact.kind)
            if (
                isinstance(index, Known)
                and isinstance(index.value, int)
                and index.value in range(-len(fact.items), len(fact.items))
            ):
                return fact.items[index.value]
            return widened(element(fact))
        if isinstance(fact, Array):
            if isinstance(index, Known) and isinstance(index.value, slice):
                return fact
            return arrays.item(fact, index, kept)
        return widened(element(fact)) if isinstance(fact, Known) and _kind(fact) else OTHER

    def visit_Starred(self, node: ast.Starred) -> Made:
        return ast.Starred(self.text(node.value), ast.Load()), OTHER

    # --------------------------------------------------------------------------- text
    def visit_JoinedStr(self, node: ast.JoinedStr) -> Made:
        values: list[ast.expr] = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                values.append(ast.FormattedValue(self.text(part.value), part.conversion, part.format_spec))
            else:
                values.append(part)
        if all(isinstance(v, ast.Constant) or isinstance(v.value, ast.Constant) for v in values):  # type: ignore[attr-defined]
            made = ast.fix_missing_locations(ast.Expression(ast.JoinedStr(values)))
            return node, Known(eval(compile(made, "<text>", "eval")))
        return ast.JoinedStr(values), OTHER

    # ------------------------------------------------------------------ comprehensions
    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp) -> Made:
        outside = self.state
        names = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        self.state = outside.copy()
        self.state.written -= names
        for name in names:
            self.state.same.pop(name, None)
        try:
            known = self._unrolled(node)
            if known is not None:
                return node, known
            return self._loop(node)
        finally:
            self.state = outside

    def _unrolled(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp) -> Known | None:
        """Evaluate a comprehension. Returns None unless everything in it is known."""
        found: list[Any] = []

        def over(generators: list[ast.comprehension]) -> bool:
            if not generators:
                elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
                facts = [self.visit(e)[1] for e in elements]
                values = [f.value for f in facts if isinstance(f, Known)]
                found.append(tuple(values) if isinstance(node, ast.DictComp) else values[0] if values else None)
                return len(values) == len(facts)
            first, *others = generators
            items = parts(self.visit(first.iter)[1])
            if items is None:
                return False
            for item in items:
                self.bind(first.target, item)
                tests = [truth(self.visit(test)[1]) for test in first.ifs]
                if None in tests or (all(tests) and not over(others)):
                    return False
            return True

        if not over(node.generators):
            return None
        kind = set if isinstance(node, ast.SetComp) else dict if isinstance(node, ast.DictComp) else list
        return Known(kind(found))

    def _loop(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp) -> Made:
        generators: list[ast.comprehension] = []
        count: int | None = 1
        for g in node.generators:
            source, fact = self.visit(g.iter)
            number = parts(fact)
            count = None if count is None or number is None or g.ifs else count * len(number)
            self.bind(g.target, element(fact))
            target, over = self._narrowed(g.target, self.code(source, fact), fact)
            tests = [(made, f) for made, f in map(self.visit, g.ifs) if truth(f) is not True]
            generators.append(ast.comprehension(target, over, [self.code(*t) for t in tests], 0))
        if isinstance(node, ast.DictComp):
            return ast.DictComp(self.text(node.key), self.text(node.value), generators), OTHER
        made, fact = self.visit(node.elt)
        text = self.code(made, fact)
        if isinstance(node, ast.SetComp):
            return ast.SetComp(text, generators), OTHER
        if (
            isinstance(text, ast.Name)
            and len(generators) == 1
            and gives_name(generators[0], text)
            and count is not None
        ):
            if isinstance(node, ast.GeneratorExp):
                return generators[0].iter, Items((widened(fact),) * count)
            listed = ast.Call(ast.Name("list", ast.Load()), [generators[0].iter], [])
            return listed, Items((widened(fact),) * count, list)
        items = OTHER if count is None else Items((widened(fact),) * count, list)
        return type(node)(text, generators), items

    def _narrowed(self, target: ast.expr, over: ast.expr, fact: Fact) -> tuple[ast.expr, ast.expr]:
        """Drop from `for a, b in zip(x, y)` what has the same known value in every iteration."""
        if not (isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id == "zip"):
            return target, over
        names = target.elts if isinstance(target, ast.Tuple) else []
        if parts(fact) is None or len(names) != len(over.args):
            return target, over
        kept = [
            (t, a)
            for t, a in zip(names, over.args, strict=True)
            if not isinstance(t, ast.Name) or literal(getattr(self.state.facts[t.id], "value", self)) is None
        ]
        if len(kept) == 1:
            return kept[0]
        if not kept:
            return target, over
        return ast.Tuple([t for t, _ in kept], ast.Store()), ast.Call(over.func, [a for _, a in kept], [])

    visit_ListComp = visit_GeneratorExp = visit_SetComp = visit_DictComp = _comprehension
    build_ListComp = build_GeneratorExp = build_SetComp = build_DictComp = _loop

    def bind(self, target: ast.expr, fact: Fact) -> None:
        """Bind the names of an assignment's or a loop's target to what is known of the value."""
        if isinstance(target, ast.Name):
            self.state.same.pop(target.id, None)
            self.state.facts[target.id] = fact
        elif isinstance(target, ast.Tuple | ast.List):
            inner = parts(fact)
            starred = [i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)]
            if inner is not None and starred and len(inner) >= len(target.elts) - 1:
                at, behind = starred[0], len(target.elts) - 1 - starred[0]
                rest = sequence(inner[at : len(inner) - behind], list)
                inner = [*inner[:at], rest, *inner[len(inner) - behind :]]
            elif inner is None or len(inner) != len(target.elts):
                inner = [OTHER if starred else element(fact)] * len(target.elts)
            for t, f in zip(target.elts, inner, strict=True):
                self.bind(t, f)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, fact)

    def visit_Lambda(self, node: ast.Lambda) -> Made:
        outside = self.state
        self.state = outside.copy()
        for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            self.state.same.pop(a.arg, None)
            self.state.written.discard(a.arg)
            self.state.facts[a.arg] = OTHER
        try:
            return ast.Lambda(node.args, self.text(node.body)), OTHER
        finally:
            self.state = outside


def truth(fact: Fact) -> bool | None:
    if isinstance(fact, Known):
        found = safely(lambda: bool(fact.value))
        return None if found is None else found.value
    return bool(fact.items) if isinstance(fact, Items) else None


def _is_boolean(fact: Fact) -> bool:
    return fact == BOOL or (isinstance(fact, Array) and fact.dtype == np.bool_)


def _kind(fact: Fact) -> type | None:
    """Find the type of a sequence, tuple or list. Returns None for anything else."""
    if isinstance(fact, Items):
        return fact.kind
    return type(fact.value) if isinstance(fact, Known) and type(fact.value) in (tuple, list) else None


def _kept_axes(index: ast.expr, fact: Fact) -> int | None:
    """Find the rank of x[index], where the index is written out as slices, numbers and None."""
    if not isinstance(fact, Array) or fact.rank is None:
        return None
    written = index.elts if isinstance(index, ast.Tuple) else [index]
    rank, taken = 0, 0
    for part in written:
        if isinstance(part, ast.Slice):
            rank, taken = rank + 1, taken + 1
        elif isinstance(part, ast.Constant) and part.value is None:
            rank += 1
        elif isinstance(part, ast.Constant) and type(part.value) is int:
            taken += 1
        elif not (isinstance(part, ast.Constant) and part.value is Ellipsis):
            return None
    return rank + fact.rank - taken
