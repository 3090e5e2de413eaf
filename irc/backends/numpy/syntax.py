"""Shapes of expressions, and their shorter forms."""

from __future__ import annotations

import ast

_BULKY = 32
"""Characters of a literal from which on a variable that has the value stays."""


def iterated(node: ast.expr) -> ast.expr:
    """Remove `list` from list(x) that is only iterated."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "list"
        and len(node.args) == 1
    ):
        return node.args[0]
    return node


def is_bulky(node: ast.expr) -> bool:
    return isinstance(node, ast.Call | ast.Dict | ast.List | ast.Tuple) and len(ast.unparse(node)) > _BULKY


def is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args


def gives_name(generator: ast.comprehension, name: ast.Name) -> bool:
    return isinstance(generator.target, ast.Name) and generator.target.id == name.id and not generator.ifs


def simplified(node: ast.BinOp) -> ast.expr:
    """Remove neutral elements from integer arithmetic: n + 0, n * 1, n // 1; (n - 1) + 1 is n."""
    left, right = node.left, node.right
    if isinstance(node.op, ast.Add | ast.Mult) and _whole(left) is not None and _whole(right) is None:
        left, right = (right, left) if _whole(left) == isinstance(node.op, ast.Mult) else (left, right)
    number = _whole(right)
    if number is None:
        return node
    if isinstance(node.op, ast.Mult | ast.FloorDiv) and number == 1:
        return left
    if not isinstance(node.op, ast.Add | ast.Sub):
        return node
    total = number if isinstance(node.op, ast.Add) else -number
    if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add | ast.Sub) and _whole(left.right) is not None:
        inner = _whole(left.right) or 0
        left, total = left.left, total + (inner if isinstance(left.op, ast.Add) else -inner)
    if not total:
        return left
    return ast.BinOp(left, ast.Add() if total > 0 else ast.Sub(), ast.Constant(abs(total)))


def _whole(node: ast.expr | None) -> int | None:
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def short_slices(index: ast.expr) -> ast.expr:
    """Write slice(a, b) in an index as `a:b`, and nothing for whole axes at its end, unless `...` counts from there."""
    if isinstance(index, ast.Tuple):
        made = [short_slices(n) for n in index.elts]
        from_the_end = any(isinstance(n, ast.Starred) or _is_ellipsis(n) for n in made)
        while (
            not from_the_end and len(made) > 1 and isinstance(made[-1], ast.Slice) and not any(vars(made[-1]).values())
        ):
            made.pop()
        return ast.Tuple(made, ast.Load())
    if not (isinstance(index, ast.Call) and isinstance(index.func, ast.Name) and index.func.id == "slice"):
        return index
    bounds = [None if isinstance(a, ast.Constant) and a.value is None else a for a in index.args]
    if len(bounds) == 3 and _whole(bounds[2]) == 1:
        bounds.pop()
    if len(bounds) == 1:
        return ast.Slice(None, bounds[0], None)
    return ast.Slice(*bounds, *[None] * (3 - len(bounds)))


def without_constants(test: ast.expr) -> ast.expr:
    """Remove `and True` and `or False` from a condition."""
    if not isinstance(test, ast.BoolOp):
        return test
    neutral = isinstance(test.op, ast.And)
    kept = [v for v in test.values if not (isinstance(v, ast.Constant) and bool(v.value) is neutral)]
    if not kept:
        return ast.Constant(neutral)
    return kept[0] if len(kept) == 1 else ast.BoolOp(test.op, kept)
