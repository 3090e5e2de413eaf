# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
"""Specialising the statements of a function: decided branches go, checks become `raise`, facts follow the order of
statements and meet where branches do."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from irc.backends.numpy.calls import Calls
from irc.backends.numpy.expressions import State, truth
from irc.backends.numpy.facts import OTHER, Array, Fact, Known, common, element, joined, key, parts, widened
from irc.backends.numpy.literals import literal
from irc.backends.numpy.source import NeedsStatement, NoSource, Source
from irc.backends.numpy.syntax import without_constants
from irc.diagnostics import Code, Problem, require

if TYPE_CHECKING:
    from irc.backends.numpy.functions import Library

_ROUNDS = 4
"""Times that a loop's body is looked at before what it assigns counts as unknown."""
_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class Specialiser(Calls):
    """One function, for what is known of its parameters.

    kept: variables whose assignments are written in any case.
    """

    def __init__(self, library: Library, source: Source, known: Mapping[str, Fact], kept: set[str]) -> None:
        super().__init__(library, source.outer, source, source.module)
        self.kept, self.pending = kept, []
        self.results: list[Fact] = []
        self.without_text = False
        self.state.facts |= known
        self.mutable = source.mutated

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Specialise the function's statements."""
        first: list[ast.stmt] = []
        for name in sorted(filter(self.is_parameter, self.kept)):
            first += self._set(name, ast.Constant(None), self.state.facts[name])
        made = self.block(statements)
        if not _ends(made):
            self.results.append(Known(None))
        if self.without_text and not isinstance(common(self.results), Known):
            raise NoSource("one of several results has no literal")
        return [*first, *made]

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        done: list[ast.stmt] = []
        for statement in statements:
            visit = getattr(self, f"visit_{type(statement).__name__}", None)
            if visit is None:
                raise NoSource(f"a statement {type(statement).__name__} in {self.owner}")
            made = visit(statement)
            done += [*self.taken_pending(), *made]
            if _ends(done):
                break
        return done

    # ----------------------------------------------------------------------- assignments
    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        target = node.targets[0]
        if len(node.targets) > 1:
            raise NoSource(f"two targets of an assignment in {self.owner}")
        if isinstance(target, ast.Name):
            return self._assign_name(target.id, node.value)
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and _independent(target, node.value):
            done: list[ast.stmt] = []
            for t, v in zip(target.elts, node.value.elts, strict=True):
                done += self.visit_Assign(ast.Assign([t], v, lineno=0))
            return done
        made, fact = self.visit(node.value)
        inner = parts(fact)
        names = [t for t in target.elts if isinstance(t, ast.Name)] if isinstance(target, ast.Tuple) else []
        if isinstance(target, ast.Tuple) and inner is not None and len(names) == len(target.elts) == len(inner):
            values = made.elts if isinstance(made, ast.Tuple) and _independent(target, made) else None
            if isinstance(fact, Known):
                values = [ast.Constant(None)] * len(names)
            if values is not None:
                parted = zip(names, values, inner, strict=True)
                return [s for t, e, f in parted for s in self._set(t.id, e, f)]
        text = self.code(made, fact)
        if isinstance(target, ast.Subscript | ast.Attribute):
            return [ast.Assign([self._place_of(target)], text, lineno=0)]
        self.bind(target, fact)
        for n in ast.walk(target):
            if isinstance(n, ast.Name):
                self.state.written.add(n.id)
                self.state.facts[n.id] = self._general(n.id, self.state.facts.get(n.id, OTHER), widen=True)
        return [ast.Assign([target], text, lineno=0)]

    def _place_of(self, target: ast.Subscript | ast.Attribute) -> ast.expr:
        if isinstance(target, ast.Attribute):
            raise NoSource(f"an attribute is set in {self.owner}")
        return ast.Subscript(self.text(target.value), self._index(target.slice), ast.Store())

    def _assign_name(self, name: str, value: ast.expr) -> list[ast.stmt]:
        made, fact = self.visit(value)
        if isinstance(made, ast.Name) and not isinstance(fact, Known) and self._is_alias(name, made.id):
            self.state.same[name] = made.id
        return self._set(name, made, fact)

    def _is_alias(self, name: str, other: str) -> bool:
        once = self.source.once if self.source else set[str]()
        return name in once and other in once and name not in self.mutable

    def _set(self, name: str, made: ast.expr, fact: Fact) -> list[ast.stmt]:
        """Write `name = made`, unless the value is known but has no literal."""
        if self.state.same.get(name) != getattr(made, "id", None):
            self.state.same.pop(name, None)
        if isinstance(fact, Known) and name not in self.kept and literal(fact.value) is None:
            self.state.facts[name] = fact
            self.state.written.discard(name)
            if name in self.mutable:
                raise NeedsStatement(name, f"{name} is changed")
            return []
        self.state.written.discard(name)  # so that its value is written, not its name
        text = self.code(made, fact)
        self.state.written.add(name)
        self.state.facts[name] = self._general(name, fact)
        return [ast.Assign([ast.Name(name, ast.Store())], text, lineno=0)]

    def _general(self, name: str, fact: Fact, widen: bool = False) -> Fact:
        """Generalise the fact of a variable that may be changed in place; widen: a known value was not written out."""
        if name in self.mutable:
            wide = widened(fact)
            return wide if isinstance(wide, Array) else OTHER
        return widened(fact) if widen else fact

    def visit_AnnAssign(self, node: ast.AnnAssign) -> list[ast.stmt]:
        return [] if node.value is None else self.visit_Assign(ast.Assign([node.target], node.value, lineno=0))

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        value, fact = self.visit(node.value)
        text = self.code(value, fact)
        if not isinstance(node.target, ast.Name):
            place = self._place_of(node.target)
            assert isinstance(place, ast.Subscript)
            return [ast.AugAssign(place, node.op, text)]
        name = node.target.id
        before = self.state.facts.get(name, OTHER)
        self._need(name)
        wide = widened(before)
        after = wide if isinstance(wide, Array) else self.combined(node.op, before, fact)
        self.state.facts[name] = self._general(name, after)
        return [ast.AugAssign(ast.Name(name, ast.Store()), node.op, text)]

    def _need(self, name: str) -> None:
        fact = self.state.facts.get(name)
        if isinstance(fact, Known) and name not in self.state.written:
            raise NeedsStatement(name, f"{name} is changed")

    # ------------------------------------------------------------------------ branches
    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        test, fact = self.visit(node.test)
        decided = truth(fact)
        if decided is not None:
            return self.block(node.body if decided else node.orelse)
        condition = without_constants(self.code(test, fact))
        before: State = self.state
        self.state = before.copy()
        body = self.block(node.body)
        after_body, self.state = self.state, before.copy()
        orelse = self.block(node.orelse)
        if _ends(body):
            pass
        elif _ends(orelse):
            self.state = after_body
        else:
            self._meet(after_body)
        return [ast.If(condition, body or [ast.Pass()], orelse)]

    def _meet(self, other: State) -> None:
        """Join the state with that at the end of another path."""
        mine = self.state
        for name in {*mine.facts, *other.facts}:
            if name not in mine.facts or name not in other.facts:  # not bound on one way: nobody reads it behind
                mine.facts[name] = OTHER
                continue
            a, b = mine.facts[name], other.facts[name]
            if a is b or key(a) == key(b):
                continue
            for state, fact in ((mine, a), (other, b)):
                if isinstance(fact, Known) and name not in state.written:
                    raise NeedsStatement(name, f"{name} is one of several values")
            mine.facts[name] = widened(joined(a, b))
        mine.same = {k: v for k, v in mine.same.items() if other.same.get(k) == v}
        mine.written |= other.written

    def _repeat(self, node: ast.For | ast.While) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """Specialise a loop for what holds in every iteration. Returns its body and its `else`."""
        assigned = _assigned(node.body)
        for name in assigned:
            self.state.same.pop(name, None)
            self._need(name)
        for number in range(_ROUNDS):
            start = self.state.copy()
            kept = len(self.results)
            if isinstance(node, ast.For):
                self._bind_target(node)
            body = self.block(node.body)
            end, self.state = self.state, start.copy()
            self._meet(end)
            if all(key(self.state.facts.get(n, OTHER)) == key(start.facts.get(n, OTHER)) for n in assigned):
                break
            del self.results[kept:]
            if number == _ROUNDS - 2:
                self.state.facts |= dict.fromkeys(assigned, OTHER)
        else:
            raise NoSource(f"a loop in {self.owner}")
        return body or [ast.Pass()], self.block(node.orelse)

    def _bind_target(self, node: ast.For) -> None:
        self.bind(node.target, widened(element(self.visit(node.iter)[1])))
        self.state.written |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        over = self.text(node.iter)
        body, orelse = self._repeat(node)
        return [ast.For(node.target, over, body, orelse, lineno=0)]

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        assigned = _assigned(node.body)
        for name in assigned:
            self._need(name)
            self.state.facts[name] = OTHER
        test = self.text(node.test)
        body, orelse = self._repeat(node)
        return [ast.While(test, body, orelse)]

    def visit_With(self, node: ast.With) -> list[ast.stmt]:
        items = [ast.withitem(self.text(i.context_expr), i.optional_vars) for i in node.items]
        return [ast.With(items, self.block(node.body) or [ast.Pass()], lineno=0)]

    # ------------------------------------------------------------------- ends and checks
    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        if node.value is None:
            self.results.append(Known(None))
            return [ast.Return(None)]
        made, fact = self.visit(node.value)
        self.results.append(fact)
        try:
            return [ast.Return(self.code(made, fact))]
        except NeedsStatement:
            raise
        except NoSource:
            if not isinstance(fact, Known):
                raise
            self.without_text = True
            return [ast.Return(ast.Constant(...))]  # the caller knows the value and does not call

    def visit_Raise(self, node: ast.Raise) -> list[ast.stmt]:
        if isinstance(node.exc, ast.Call) and self._is(node.exc.func, Problem):
            return [ast.Raise(self._message(node.exc.args[0], node.exc.keywords), None)]
        return [ast.Raise(None if node.exc is None else self.text(node.exc), None)]

    def visit_Expr(self, node: ast.Expr) -> list[ast.stmt]:
        value = node.value
        if isinstance(value, ast.Call) and self._is(value.func, require):
            return self._check(value)
        if isinstance(value, ast.Constant):
            return []
        made, fact = self.visit(value)
        return [] if isinstance(fact, Known) else [ast.Expr(made)]

    def _check(self, call: ast.Call) -> list[ast.stmt]:
        """Turn `require(condition, CODE, facts)` into an `if` that raises."""
        made, fact = self.visit(call.args[0])
        decided = truth(fact)
        if decided:
            return []
        error = ast.Raise(self._message(call.args[1], call.keywords), None)
        return [error] if decided is False else [ast.If(ast.UnaryOp(ast.Not(), self.code(made, fact)), [error], [])]

    def _message(self, code: ast.expr, facts: list[ast.keyword]) -> ast.expr:
        known = self.visit(code)[1]
        if not isinstance(known, Known) or not isinstance(known.value, Code):
            raise NoSource("an error without a code")
        text: ast.expr = ast.Constant(f"{known.value.id}: {known.value.message}")
        kept = [ast.keyword(k.arg, self.text(k.value)) for k in facts if k.arg and k.arg != "notes"]
        text = ast.Call(ast.Attribute(text, "format", ast.Load()), [], kept) if kept else text
        return ast.Call(ast.Name("ValueError", ast.Load()), [text], [])

    def _is(self, node: ast.expr, value: Any) -> bool:
        fact = self.visit(node)[1] if isinstance(node, ast.Name) else OTHER
        return isinstance(fact, Known) and fact.value is value

    # -------------------------------------------------------------------------- others
    def visit_FunctionDef(self, node: ast.FunctionDef) -> list[ast.stmt]:
        outside: State = self.state
        results = self.results
        once = self.source.once if self.source else set[str]()
        self.state, self.results = outside.copy(), []
        for name in [n for n in self.state.facts if n not in once]:
            if not isinstance(self.state.facts[name], Known) or name in self.state.written:
                self.state.facts[name] = OTHER
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for a in (*arguments, *filter(None, (node.args.vararg, node.args.kwarg))):
            self.state.facts[a.arg] = OTHER
            self.state.same.pop(a.arg, None)
            self.state.written.discard(a.arg)
        defaults = [self.text(d) for d in node.args.defaults]
        plain = [ast.arg(a.arg) for a in (*node.args.posonlyargs, *node.args.args)]
        vararg = None if node.args.vararg is None else ast.arg(node.args.vararg.arg)
        new = ast.arguments([], plain, vararg, [ast.arg(a.arg) for a in node.args.kwonlyargs], [], None, defaults)
        new.kw_defaults = [None if d is None else self.text(d) for d in node.args.kw_defaults]
        body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
        made = ast.FunctionDef(node.name, new, self.block(body) or [ast.Pass()], [], lineno=0)
        self.state, self.results = outside, results
        self.state.facts[node.name] = OTHER
        self.state.written.add(node.name)
        return [made]

    def visit_Pass(self, node: ast.stmt) -> list[ast.stmt]:
        return []

    visit_Import = visit_ImportFrom = visit_Pass

    def visit_Continue(self, node: ast.stmt) -> list[ast.stmt]:
        return [node]

    visit_Break = visit_Continue


def _ends(statements: list[ast.stmt]) -> bool:
    """Tell whether nothing behind these statements runs."""
    if not statements:
        return False
    last = statements[-1]
    if isinstance(last, ast.If):
        return _ends(last.body) and _ends(last.orelse)
    return isinstance(last, _ENDS)


def _assigned(statements: list[ast.stmt]) -> set[str]:
    nodes = (n for s in statements for n in ast.walk(s))
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _independent(target: ast.Tuple, value: ast.Tuple) -> bool:
    """Tell whether the parts of `a, b = c, d` may be assigned one after the other."""
    if len(target.elts) != len(value.elts) or not all(isinstance(t, ast.Name) for t in target.elts):
        return False
    if any(isinstance(v, ast.Starred) for v in value.elts):
        return False
    names = {t.id for t in target.elts if isinstance(t, ast.Name)}
    return not any(isinstance(n, ast.Name) and n.id in names for v in value.elts[1:] for n in ast.walk(v))
