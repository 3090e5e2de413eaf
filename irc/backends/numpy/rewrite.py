"""The rewriting of one function's syntax tree: known parts become literals, calls become calls of emitted functions."""

from __future__ import annotations

import ast
import inspect
import types
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from irc.backends.numpy.literals import literal
from irc.backends.numpy.partial import Static, Unknown, evaluate
from irc.backends.numpy.source import NeedsStatement, NoSource
from irc.backends.numpy.text import snake
from irc.diagnostics import Code, Problem, require

if TYPE_CHECKING:
    from irc.backends.numpy.functions import Library

_TYPED_CALLS = {"astype", "asarray", "array", "zeros", "ones", "full", "empty", "arange", "frombuffer", "view"}


class Rewriter(ast.NodeTransformer):
    """Specialises a function (or the value of a constant) to what `static` knows."""

    def __init__(
        self, library: Library, static: Static, function: types.FunctionType | None, once: set[str], owner: str = ""
    ) -> None:
        self.library, self.static, self.function, self.once = library, static, function, once
        self.owner = function.__module__ if function else owner

    def run(self, node: ast.FunctionDef) -> ast.FunctionDef:
        body = node.body
        if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body = body[1:]  # the docstring is irc's, about the original
        node.body = self._block(body) or [ast.Pass()]
        return node

    # ---------------------------------------------------------------- what is known
    def _known(self, node: ast.expr) -> Any:
        return evaluate(node, self.static)

    def _literal(self, value: Any) -> ast.expr | None:
        text = literal(value)
        if text is None:
            return None
        self.library.note(text)
        return ast.parse(text, mode="eval").body

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr) and not isinstance(node, ast.Constant | ast.Name) and _is_load(node):
            if any(isinstance(c, ast.Slice) for c in ast.walk(node)):
                return super().visit(node)
            try:
                made = self._literal(self._known(node))
                if made is not None:
                    return made
            except Unknown:
                pass
        return super().visit(node)

    # ------------------------------------------------------------------- statements
    def _block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        done: list[ast.stmt] = []
        for statement in statements:
            made = self.visit(statement)
            done += made if isinstance(made, list) else [made] if made is not None else []
            if done and isinstance(done[-1], ast.Return | ast.Raise):
                break
        return done

    def visit_If(self, node: ast.If) -> Any:
        try:
            return self._block(node.body if self._known(node.test) else node.orelse)
        except Unknown:
            node.test = self.visit(node.test)
        taken = _constant(node.test)
        if taken is not None:
            return self._block(node.body if taken else node.orelse)
        node.body, node.orelse = self._block(node.body) or [ast.Pass()], self._block(node.orelse)
        return node

    def visit_For(self, node: ast.For) -> Any:
        node.iter = self.visit(node.iter)
        node.body, node.orelse = self._block(node.body) or [ast.Pass()], self._block(node.orelse)
        return node

    def visit_While(self, node: ast.While) -> Any:
        node.test = self.visit(node.test)
        node.body, node.orelse = self._block(node.body) or [ast.Pass()], self._block(node.orelse)
        return node

    def visit_With(self, node: ast.With) -> Any:
        for item in node.items:
            item.context_expr = self.visit(item.context_expr)
        node.body = self._block(node.body) or [ast.Pass()]
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        target = node.targets[0]
        if len(node.targets) == 1 and isinstance(target, ast.Name) and target.id in self.once:
            try:
                value = self._known(node.value)
                self.static.values[target.id] = value
                if self._literal(value) is None or not isinstance(value, np.ndarray | list | dict | set):
                    return None
                del self.static.values[target.id]
            except Unknown:
                pass
        self.generic_visit(node)
        same = isinstance(target, ast.Name) and isinstance(node.value, ast.Name) and target.id == node.value.id
        return None if same and len(node.targets) == 1 else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return None
        return self.visit_Assign(ast.Assign([node.target], node.value, lineno=node.lineno))

    def visit_Import(self, node: ast.Import) -> Any:
        return None

    visit_ImportFrom = visit_Import  # type: ignore[assignment]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.returns = None
        for a in ast.walk(node.args):
            if isinstance(a, ast.arg):
                a.annotation = None
        self.generic_visit(node.args)
        return self.run(node)

    def visit_Expr(self, node: ast.Expr) -> Any:
        call = node.value
        if isinstance(call, ast.Call) and self._is(call.func, require):
            return self._check(call)
        node.value = self.visit(call)
        return None if isinstance(node.value, ast.Constant) else node

    def visit_Raise(self, node: ast.Raise) -> Any:
        if isinstance(node.exc, ast.Call) and self._is(node.exc.func, Problem):
            return ast.Raise(self._message(node.exc.args[0], node.exc.keywords), None)
        self.generic_visit(node)
        return node

    def _check(self, call: ast.Call) -> ast.stmt | None:
        """`require(condition, CODE, facts)` as an if that raises."""
        condition = self.visit(call.args[0])
        if _constant(condition) is True:
            return None
        error = self._message(call.args[1], call.keywords)
        return ast.If(ast.UnaryOp(ast.Not(), condition), [ast.Raise(error, None)], [])

    def _message(self, code: ast.expr, facts: list[ast.keyword]) -> ast.expr:
        known = self._known(code)
        if not isinstance(known, Code):
            raise NoSource("an error without a code")
        text: ast.expr = ast.Constant(f"{known.id}: {known.message}")
        kept = [ast.keyword(k.arg, self.visit(k.value)) for k in facts if k.arg and k.arg != "notes"]
        text = ast.Call(ast.Attribute(text, "format", ast.Load()), [], kept) if kept else text
        return ast.Call(ast.Name("ValueError", ast.Load()), [text], [])

    def _is(self, node: ast.expr, value: Any) -> bool:
        try:
            return self._known(node) is value
        except Unknown:
            return False

    # ------------------------------------------------------------------ expressions
    def visit_IfExp(self, node: ast.IfExp) -> Any:
        try:
            return self.visit(node.body if self._known(node.test) else node.orelse)
        except Unknown:
            self.generic_visit(node)
        taken = _constant(node.test)
        return node if taken is None else node.body if taken else node.orelse

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        """Decide what is known: `True and x` is x, `False and x` is False."""
        deciding = isinstance(node.op, ast.Or)
        kept: list[ast.expr] = []
        for i, operand in enumerate(node.values):
            try:
                truth = bool(self._known(operand))
            except Unknown:
                kept.append(self.visit(operand))
                continue
            if truth == deciding:
                kept.append(self._literal(self._known(operand)) or ast.Constant(truth))
                break
            if i == len(node.values) - 1 and not kept:
                return self._literal(self._known(operand)) or ast.Constant(truth)
        if len(kept) == 1:
            return kept[0]
        return ast.BoolOp(node.op, kept)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        truth = _constant(node.operand)
        return ast.Constant(not truth) if isinstance(node.op, ast.Not) and truth is not None else node

    def visit_Name(self, node: ast.Name) -> Any:
        if not isinstance(node.ctx, ast.Load):
            return node
        try:
            value = self.static.value(node.id)
        except Unknown:
            return node
        if node.id in self.static.values:
            made = self._literal(value)
            if made is not None:
                return made
            if not callable(value):
                text = f"{node.id} ({type(value).__name__}) is used as a value in {self._where()}"
                raise NeedsStatement(node.id, text) if node.id in self.once else NoSource(text)
        text = self.library.use(node.id, value, self._owner(value), self.static.local)
        return ast.parse(text, mode="eval").body

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        try:
            value = self._known(node)
        except Unknown:
            self.generic_visit(node)
            return node
        if isinstance(value, types.ModuleType):
            return ast.parse(self.library.module(value), mode="eval").body
        if isinstance(value, types.FunctionType) and value.__module__.startswith("irc."):
            return ast.Name(
                self.library.function(value, {}, value.__name__.strip("_<>"), avoid=self.static.local), ast.Load()
            )
        if isinstance(value, types.MethodType):
            return ast.Name(self._method(value, {}), ast.Load())
        known = self.library.known_object(value)
        if known is not None:
            return ast.parse(known, mode="eval").body
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        try:
            callee = self._callee(node.func)
        except Unknown:
            return self._plain_call(node)
        if isinstance(callee, staticmethod):
            callee = callee.__func__
        if isinstance(callee, types.MethodType) and callee.__func__.__module__.startswith("irc."):
            return self._own_call(callee.__func__, node, callee.__self__)
        if isinstance(callee, types.FunctionType) and callee.__module__.startswith("irc."):
            return self._own_call(callee, node, None)
        known = self.library.known_object(callee) if callable(callee) else None
        if known is not None:
            node.func = ast.parse(known, mode="eval").body
            return self._arguments(node)
        return self._plain_call(node)

    def _callee(self, func: ast.expr) -> Any:
        """The function called; also super().method."""
        inner = func.value if isinstance(func, ast.Attribute) else None
        if (
            isinstance(inner, ast.Call)
            and isinstance(inner.func, ast.Name)
            and inner.func.id == "super"
            and not inner.args
        ):
            assert isinstance(func, ast.Attribute)
            parent = cast("Any", super(self.static.outer["__class__"], self.static.value("self")))
            return getattr(parent, func.attr)
        return self._known(func)

    def _plain_call(self, node: ast.Call) -> ast.Call:
        node.func = self.visit(node.func)
        return self._arguments(node)

    def _arguments(self, node: ast.Call) -> ast.Call:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        node.args = [self.visit(a) for a in node.args]
        node.keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        if name in _TYPED_CALLS:
            node.args = [_plain_dtype(a) for a in node.args]
        node.keywords = [
            ast.keyword(k.arg, _plain_dtype(k.value) if k.arg == "dtype" else k.value) for k in node.keywords
        ]
        return node

    def _own_call(self, function: types.FunctionType, node: ast.Call, owner: Any) -> ast.Call:
        """A call of one of irc's functions; arguments without a literal are built into it."""
        parameters = inspect.signature(function).parameters
        names = [n for n, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        known: dict[str, Any] = {}
        args: list[ast.expr] = []
        position = 0
        if owner is not None:
            known[names[0]], position = owner, 1
        for i, arg in enumerate(node.args):
            fixed = self._fixed(arg)
            parameter = names[position + i] if position + i < len(names) else None
            if (
                fixed is not None
                and parameter is not None
                and not any(isinstance(a, ast.Starred) for a in node.args[:i])
            ):
                known[parameter] = fixed[0]
            else:
                args.append(self.visit(arg))
        keywords: list[ast.keyword] = []
        for k in node.keywords:
            fixed = self._fixed(k.value)
            if fixed is not None and k.arg is not None and k.arg in names:
                known[k.arg] = fixed[0]
            else:
                keywords.append(ast.keyword(k.arg, self.visit(k.value)))
        hint = self._hint(function, owner)
        name = self.library.function(function, known, hint, avoid=self.static.local)
        return ast.Call(ast.Name(name, ast.Load()), args, keywords)

    def _fixed(self, node: ast.expr) -> tuple[Any] | None:
        """The value of an argument that is known but has no literal."""
        try:
            value = self._known(node)
        except Unknown:
            return None
        if literal(value) is not None or isinstance(value, types.ModuleType):
            return None
        return (value,) if not isinstance(value, np.ndarray) else None

    def _method(self, method: types.MethodType, known: dict[str, Any]) -> str:
        function = method.__func__
        first = next(iter(inspect.signature(function).parameters))
        hint = self._hint(function, method.__self__)
        return self.library.function(function, {first: method.__self__, **known}, hint, avoid=self.static.local)

    def _hint(self, function: types.FunctionType, owner: Any) -> str:
        name = function.__name__.strip("_") if function.__name__ != "<lambda>" else "function"
        holder = function.__qualname__.split(".")[-2:-1]
        return f"{snake(holder[0])}_{name}" if owner is not None and holder and holder[0] != "<locals>" else snake(name)

    def _owner(self, value: Any) -> str:
        """The module whose global the name is: where it was defined, for what was imported from there."""
        return getattr(value, "__module__", None) or self.owner

    def _where(self) -> str:
        return self.function.__qualname__ if self.function else self.owner


def _is_load(node: ast.expr) -> bool:
    return isinstance(getattr(node, "ctx", ast.Load()), ast.Load) and not isinstance(node, ast.Starred)


def _constant(node: ast.expr) -> bool | None:
    return bool(node.value) if isinstance(node, ast.Constant) else None


def _plain_dtype(node: ast.expr) -> ast.expr:
    """np.dtype(np.float32) as an argument is np.float32."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "dtype":
        inner = node.args[0] if node.args else None
        if isinstance(inner, ast.Attribute | ast.Name) and isinstance(node.func.value, ast.Name):
            return inner
    return node
