"""Where the source of a Python function is, and what its names mean."""

from __future__ import annotations

import ast
import builtins
import inspect
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from irc.backends.numpy.literals import literal, parsed
from irc.backends.numpy.tidy import MUTATORS, WRITERS

FunctionNode = ast.FunctionDef | ast.Lambda


class NoSource(Exception):
    """A function or value that cannot be written into a standalone module."""


class NeedsStatement(NoSource):
    """A local variable whose value is known but has no literal, and is needed as a value."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        super().__init__(text)


@dataclass
class Source:
    """A parsed function: read by everybody, changed by nobody."""

    module: str
    body: list[ast.stmt]
    parameters: list[str]
    rest: str  # the name of *parameter
    local: set[str]
    once: set[str]  # names with one binding
    mutated: set[str]  # names of lists and arrays that are written into
    writes: bool  # whether any array is written into
    outer: dict[str, Any]  # what other names mean
    given: Mapping[str, Any]  # defaults

    @staticmethod
    def of(function: types.FunctionType) -> Source:
        """Parse a Python function, once. Raises NoSource if its source is not available."""
        found = _SOURCES.get(function)
        if found is None:
            found = _SOURCES[function] = _read(function)
        return found

    def defaults(self, parameters: Sequence[str]) -> dict[str, ast.expr]:
        """Write the defaults of the parameters."""
        found: dict[str, ast.expr] = {}
        for name in parameters:
            if name in self.given:
                text = literal(self.given[name])
                if text is None:
                    raise NoSource(f"the default of {name} has no source")
                found[name] = parsed(text)
        return found


_SOURCES: WeakKeyDictionary[types.FunctionType, Source] = WeakKeyDictionary()


def _read(function: types.FunctionType) -> Source:
    node = function_node(function)
    body: list[ast.stmt] = [ast.Return(node.body)] if isinstance(node, ast.Lambda) else node.body
    if not isinstance(node, ast.Lambda) and ast.get_docstring(node, clean=False) is not None:
        body = body[1:]  # irc's, about the original
    imported = import_values(node)
    parameters = parameters_of(function)
    rest = [n for n, p in parameters.items() if p.kind == p.VAR_POSITIONAL]
    mutated = mutated_names(node)
    return Source(
        function.__module__,
        body,
        list(parameters),
        rest[0] if rest else "",
        bound_names(node) - set(imported),
        assigned_once(node),
        mutated,
        bool(mutated) or any(isinstance(n, ast.AugAssign) for n in ast.walk(node)),
        {**scope(function), **imported},
        {n: p.default for n, p in parameters.items() if p.default is not p.empty},
    )


@cache
def parameters_of(function: types.FunctionType) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def mutated_names(node: ast.AST) -> set[str]:
    """Collect the names of lists and arrays that are written into."""
    found: set[str] = set()

    def note(place: ast.AST | None) -> None:
        while isinstance(place, ast.Subscript | ast.Attribute):
            place = place.value
        if isinstance(place, ast.Name):
            found.add(place.id)

    for n in ast.walk(node):
        if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store | ast.Del):
            note(n)
        elif isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Subscript):
            note(n.target)
        elif isinstance(n, ast.Call):
            for k in n.keywords:
                if k.arg == "out":
                    note(k.value)
            if isinstance(n.func, ast.Attribute) and n.func.attr in MUTATORS:
                note(n.func.value)
            elif isinstance(n.func, ast.Attribute) and n.func.attr in WRITERS and n.args:
                note(n.args[0])
    return found


@cache
def module_tree(name: str) -> ast.Module:
    """Parse the source of an imported module."""
    import importlib

    return ast.parse(inspect.getsource(importlib.import_module(name)))


@cache
def _definitions(module: str) -> dict[tuple[str, int], ast.FunctionDef]:
    """Index the functions of a module by name and first line, decorators included."""
    return {
        (n.name, min([n.lineno, *(d.lineno for d in n.decorator_list)])): n
        for n in ast.walk(module_tree(module))
        if isinstance(n, ast.FunctionDef)
    }


@cache
def _lambdas(module: str) -> list[ast.Lambda]:
    return [n for n in ast.walk(module_tree(module)) if isinstance(n, ast.Lambda)]


def function_node(function: types.FunctionType) -> FunctionNode:
    """Find the definition of a Python function. Raises NoSource if there is none."""
    code = function.__code__
    if code.co_name != "<lambda>":
        found = _definitions(function.__module__).get((code.co_name, code.co_firstlineno))
        if found is None:
            raise NoSource(f"the source of {function.__qualname__} is not available")
        return found
    spots = [p for p in code.co_positions() if p[0] is not None and p[2] is not None]
    best: FunctionNode | None = None
    for node in _lambdas(function.__module__):
        if _contains(node, spots) and (best is None or _contains(best, [_span(node)])):
            best = node
    if best is None:
        raise NoSource(f"the source of {function.__qualname__} is not available")
    return best


def _span(node: ast.expr) -> tuple[int | None, ...]:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _contains(node: FunctionNode, spots: list[tuple[int | None, ...]]) -> bool:
    """Tell whether the lambda's body holds all these positions of its code."""
    start, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    inner = [p for p in spots if p[3]]  # RESUME stands at column 0
    return bool(inner) and all(start <= (p[0], p[2]) and (p[1], p[3]) <= end for p in inner)  # type: ignore[operator]


def module_value(module: str, name: str) -> ast.expr | None:
    """Find the expression that a module assigns to a global name. Returns None unless there is exactly one."""
    found = [
        node.value
        for node in module_tree(module).body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id == name
    ]
    return found[0] if len(found) == 1 else None


def bound_names(node: ast.AST) -> set[str]:
    """Collect every name bound anywhere inside: parameters, assignments, loops, comprehensions, inner functions."""
    names: set[str] = set()
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store | ast.Del):
            names.add(child.id)
        elif isinstance(child, ast.arg):
            names.add(child.arg)
        elif (isinstance(child, ast.FunctionDef) and child is not node) or (
            isinstance(child, ast.ExceptHandler) and child.name
        ):
            names.add(child.name or "")
        elif isinstance(child, ast.Import | ast.ImportFrom):
            names |= {(a.asname or a.name).split(".")[0] for a in child.names}
    return names


def assigned_once(node: ast.AST) -> set[str]:
    """Collect the names with one binding inside."""
    counts: dict[str, int] = {}
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            counts[child.id] = counts.get(child.id, 0) + 1
        elif isinstance(child, ast.arg):
            counts[child.arg] = counts.get(child.arg, 0) + 1
    return {name for name, n in counts.items() if n == 1}


def import_values(node: ast.AST) -> dict[str, Any]:
    """Evaluate the import statements inside a function. Returns what they bind."""
    import importlib

    found: dict[str, Any] = {}
    for statement in (n for n in ast.walk(node) if isinstance(n, ast.Import | ast.ImportFrom)):
        for alias in statement.names:
            name = alias.asname or alias.name
            if isinstance(statement, ast.ImportFrom):
                module = importlib.import_module(statement.module or "")
                found[name] = getattr(module, alias.name, None) or importlib.import_module(
                    f"{statement.module}.{alias.name}"
                )
            else:
                top = importlib.import_module(alias.name)
                found[name if alias.asname else name.split(".")[0]] = (
                    top if alias.asname else importlib.import_module(alias.name.split(".")[0])
                )
    return found


def scope(function: types.FunctionType) -> dict[str, Any]:
    """Collect what names free in a function mean: built-ins, its module's globals, its closure."""
    cells: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            cells[name] = cell.cell_contents
        except ValueError:  # not yet bound
            continue
    return {**vars(builtins), **function.__globals__, **cells}
