"""Partial evaluation: which expressions of a reference are known when compiling, and their values."""

from __future__ import annotations

import ast
import types
from dataclasses import dataclass
from typing import Any

import numpy as np

from irc.ir.types import DType
from irc.opdef.base import Op


class Unknown(Exception):
    """The expression depends on the operands."""


PURE: frozenset[Any] = frozenset(
    {
        abs,
        all,
        any,
        bool,
        dict,
        divmod,
        enumerate,
        float,
        frozenset,
        getattr,
        hasattr,
        int,
        isinstance,
        issubclass,
        len,
        list,
        map,
        max,
        min,
        pow,
        range,
        repr,
        reversed,
        round,
        set,
        sorted,
        str,
        sum,
        tuple,
        type,
        zip,
        np.dtype,
        np.iinfo,
        np.finfo,
        np.issubdtype,
        np.float32,
        np.float64,
        np.int64,
        np.int32,
    }
)
_SAFE_SELF = (str, bytes, tuple, frozenset, int, float, DType, np.dtype)
_EXPRESSIONS = (
    ast.Constant,
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Slice,
    ast.Call,
    ast.keyword,
    ast.Starred,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.Tuple,
    ast.List,
    ast.Dict,
    ast.Set,
    ast.GeneratorExp,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.comprehension,
    ast.JoinedStr,
    ast.FormattedValue,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
)


@dataclass
class Static:
    """What is known: `outer` names (globals, closure), fixed `values` of parameters and locals."""

    outer: dict[str, Any]
    values: dict[str, Any]
    local: set[str]

    def value(self, name: str) -> Any:
        """What a name is known to be; Unknown for operands and computed locals."""
        if name in self.values:
            return self.values[name]
        if name in self.local or name not in self.outer:
            raise Unknown(name)
        return self.outer[name]


def evaluate(node: ast.expr, static: Static) -> Any:
    """The value of an expression that uses only what is known and nothing that has effects.

    Raises Unknown otherwise.
    """
    inner = {
        n.id
        for c in ast.walk(node)
        if isinstance(c, ast.comprehension)
        for n in ast.walk(c.target)
        if isinstance(n, ast.Name)
    }
    space: dict[str, Any] = {}
    for child in ast.walk(node):
        if not isinstance(child, _EXPRESSIONS):
            raise Unknown(type(child).__name__)
        if isinstance(child, ast.Name) and child.id not in inner:
            space[child.id] = static.value(child.id)
    for child in ast.walk(node):
        if isinstance(child, ast.Call) and not _is_pure(child.func, static, inner):
            raise Unknown("call")
    try:
        text = ast.Expression(ast.fix_missing_locations(node))
        return eval(compile(text, "<known>", "eval"), {"__builtins__": {}, **space})
    except Exception as e:  # whatever it raises, it raises when the model runs
        raise Unknown(str(e)) from e


def _is_pure(func: ast.expr, static: Static, inner: set[str]) -> bool:
    names = {n.id for n in ast.walk(func) if isinstance(n, ast.Name)}
    if names & inner:
        return isinstance(func, ast.Attribute)  # a method of an element of something known
    try:
        value = evaluate(func, static)
    except Unknown:
        return False
    return is_pure(value)


def is_pure(value: Any) -> bool:
    """Whether calling it with known arguments may be done when compiling."""
    try:
        if value in PURE:
            return True
    except TypeError:
        pass
    if isinstance(value, type):
        return issubclass(value, Op)
    owner = getattr(value, "__self__", None)
    if isinstance(value, types.BuiltinMethodType | types.MethodWrapperType) and isinstance(owner, _SAFE_SELF):
        return True
    if isinstance(value, types.BuiltinFunctionType) and getattr(value, "__module__", "") == "math":
        return True
    if isinstance(value, types.MethodType):
        return str(value.__func__.__module__).startswith("irc.")
    return isinstance(value, types.FunctionType) and value.__module__.startswith("irc.")
