# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownLambdaType=false
"""Python source of constant values: what the NumPy backend writes in place of attributes and tables."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from irc.arrays import NumpyType
from irc.ir.dim import Dim

ARRAY_LIMIT = 64
"""Arrays up to this many elements are written out in the source."""


def literal(value: Any) -> str | None:
    """Write an expression with this value, in terms of `np` and `ml_dtypes`. Returns None if there is none."""
    if value is Ellipsis:
        return "..."
    if value is None or isinstance(value, bool | int | str | bytes):
        return repr(value)
    if isinstance(value, range):
        return f"range({value.stop})" if value.start == 0 and value.step == 1 else repr(value)
    if isinstance(value, float) and not isinstance(value, np.generic):
        return _float(value)
    if isinstance(value, complex) and not isinstance(value, np.generic):
        return repr(value)
    if isinstance(value, Dim):
        return str(int(value)) if value.is_const else None
    if isinstance(value, np.dtype):
        return dtype_literal(value)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, type):
        return _class(value)
    if isinstance(value, np.ndarray):
        return array_literal(value) if value.size <= ARRAY_LIMIT else None  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, np.generic):
        scalar = _class(type(value))
        return None if scalar is None else f"{scalar}({literal(value.item())})"
    return _container(value)


def literal_node(value: Any, note: Callable[[str], None]) -> ast.expr | None:
    """Make the syntax tree of a value's literal; `note` gets the texts that may need an import."""
    kind = type(value)
    if value is None or kind in (bool, str, bytes) or value is Ellipsis or (kind is int and value >= 0):
        return ast.Constant(value)
    if kind is tuple or kind is list:
        made = [literal_node(x, note) for x in value]
        elements = [m for m in made if m is not None]
        if len(elements) < len(made):
            return None
        return ast.Tuple(elements, ast.Load()) if kind is tuple else ast.List(elements, ast.Load())
    text = literal(value)
    if text is None:
        return None
    note(text)
    return parsed(text)


@cache
def parsed(text: str) -> ast.expr:
    """Parse an expression. The tree is shared: nobody changes it."""
    return ast.parse(text, mode="eval").body


def _float(value: float) -> str:
    if math.isnan(value):
        return "np.nan"
    if math.isinf(value):
        return "np.inf" if value > 0 else "-np.inf"
    return repr(value)


def _container(value: Any) -> str | None:
    if isinstance(value, slice):
        parts = [literal(x) for x in (value.start, value.stop, value.step)]
        return None if None in parts else f"slice({', '.join(p for p in parts if p)})"
    if isinstance(value, dict):
        items = [(literal(k), literal(v)) for k, v in value.items()]  # pyright: ignore[reportUnknownVariableType]
        if any(k is None or v is None for k, v in items):
            return None
        return "{" + ", ".join(f"{k}: {v}" for k, v in items) + "}"
    kind = type(value)
    if kind not in (tuple, list, set, frozenset):
        return None
    texts = [literal(x) for x in value]
    if any(t is None for t in texts):
        return None
    if kind in (set, frozenset):
        texts.sort(key=str)
    body = ", ".join(t for t in texts if t is not None)
    if kind is tuple:
        return f"({body},)" if len(texts) == 1 else f"({body})"
    if kind is list:
        return f"[{body}]"
    braces = f"{{{body}}}" if texts else "set()"
    return f"frozenset({braces if texts else ''})" if kind is frozenset else braces


def _class(value: type) -> str | None:
    """Name a built-in type or a scalar type of NumPy or ml_dtypes. Returns None for other classes."""
    if value.__module__ == "builtins":
        return value.__name__
    name = value.__name__
    if issubclass(value, np.generic) and vars(np).get(name) is value:
        return f"np.{name}"
    if value.__module__.startswith("ml_dtypes"):
        return f"ml_dtypes.{name}"
    return None


def dtype_text(kind: NumpyType) -> str:
    """Write the dtype as an argument of astype and its like: np.float32, ml_dtypes.bfloat16, object."""
    if kind.kind == "O":
        return "object"
    name = kind.type.__name__
    return f"np.{name}" if vars(np).get(name) is kind.type else f"ml_dtypes.{name}"


def dtype_literal(kind: NumpyType) -> str:
    return f"np.dtype({dtype_text(kind)})"


def array_literal(array: np.ndarray[Any, Any]) -> str | None:
    """Write `np.array(…)` with every element; exact, because repr of a float is."""
    if array.dtype.kind == "c" or array.dtype.kind in "biuO":
        items = array.tolist()
    else:
        items = array.astype(np.float64).tolist()  # exact for every float type irc has
    body = _nested(items)
    if body is None:
        return None
    made = f"np.array({body}, {dtype_text(array.dtype)})"
    return f"{made}.reshape({array.shape})" if 0 in array.shape else made


def _nested(items: Any) -> str | None:
    if isinstance(items, list):
        parts = [_nested(x) for x in items]  # pyright: ignore[reportUnknownVariableType]
        return None if None in parts else "[" + ", ".join(p for p in parts if p is not None) + "]"
    return literal(items)
