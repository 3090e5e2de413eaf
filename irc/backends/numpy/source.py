"""Where the source of a Python function is, and what its names mean."""

from __future__ import annotations

import ast
import builtins
import inspect
import types
from collections.abc import Iterator
from functools import cache
from typing import Any

FunctionNode = ast.FunctionDef | ast.Lambda


class NoSource(Exception):
    """A function or value that cannot be written into a standalone module."""


class NeedsStatement(NoSource):
    """A local variable whose value is known but has no literal, and is needed as a value."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        super().__init__(text)


@cache
def module_tree(name: str) -> ast.Module:
    """The parsed source of an imported module."""
    import importlib

    return ast.parse(inspect.getsource(importlib.import_module(name)))


def function_node(function: types.FunctionType) -> FunctionNode:
    """The definition of a Python function; NoSource where there is none."""
    code = function.__code__
    spots = [p for p in code.co_positions() if p[0] is not None and p[2] is not None]
    best: FunctionNode | None = None
    for node in ast.walk(module_tree(function.__module__)):
        if isinstance(node, ast.FunctionDef) and code.co_name == node.name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
        elif (
            isinstance(node, ast.Lambda)
            and code.co_name == "<lambda>"
            and _contains(node, spots)
            and (best is None or _contains(best, [_span(node)]))
        ):
            best = node
    if best is None:
        raise NoSource(f"the source of {function.__qualname__} is not available")
    return best


def _span(node: ast.expr) -> tuple[int | None, ...]:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _contains(node: FunctionNode, spots: list[tuple[int | None, ...]]) -> bool:
    """Whether the lambda's body holds all these positions of its code."""
    start, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    inner = [p for p in spots if p[3]]  # RESUME stands at column 0
    return bool(inner) and all(start <= (p[0], p[2]) and (p[1], p[3]) <= end for p in inner)  # type: ignore[operator]


def module_value(module: str, name: str) -> ast.expr | None:
    """The expression that a module assigns to a global name, if there is exactly one."""
    found = [
        node.value
        for node in module_tree(module).body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id == name
    ]
    return found[0] if len(found) == 1 else None


def bound_names(node: ast.AST) -> set[str]:
    """Every name bound anywhere inside: parameters, assignments, loops, comprehensions, inner functions."""
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
    """Names with one binding inside: a plain `name = value`."""
    counts: dict[str, int] = {}
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            counts[child.id] = counts.get(child.id, 0) + 1
        elif isinstance(child, ast.arg):
            counts[child.arg] = counts.get(child.arg, 0) + 1
    return {name for name, n in counts.items() if n == 1}


def local_imports(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for child in ast.walk(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child


def import_values(node: ast.AST) -> dict[str, Any]:
    """What the import statements inside a function bind."""
    import importlib

    found: dict[str, Any] = {}
    for statement in local_imports(node):
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
    """Names free in a function: built-ins, its module's globals, its closure."""
    cells: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            cells[name] = cell.cell_contents
        except ValueError:  # not yet bound
            continue
    return {**vars(builtins), **function.__globals__, **cells}
