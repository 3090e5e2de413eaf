"""What may be computed when compiling."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from irc.backends.numpy.facts import Known
from irc.ir.types import DType
from irc.opdef.base import Op

_PURE: frozenset[Any] = frozenset(
    {
        *(abs, all, any, bool, dict, divmod, enumerate, float, frozenset, getattr, hasattr, int, isinstance),
        *(issubclass, len, list, map, max, min, pow, range, repr, reversed, round, set, slice, sorted, str, sum),
        *(tuple, type, zip),
        *(np.dtype, np.iinfo, np.finfo, np.issubdtype, np.prod),
    }
)
_SAFE_SELF = (str, bytes, tuple, frozenset, int, float, DType, np.dtype)
_ITERATORS = (zip, enumerate, map, reversed, types.GeneratorType)


def is_pure(value: Any) -> bool:
    """Tell whether a function may be called at compile time when its arguments are known."""
    try:
        if value in _PURE:
            return True
    except TypeError:
        pass
    if isinstance(value, type):
        return issubclass(value, Op | np.generic)
    owner = getattr(value, "__self__", None)
    if isinstance(value, types.BuiltinMethodType | types.MethodWrapperType) and isinstance(owner, _SAFE_SELF):
        return True
    if isinstance(value, types.BuiltinFunctionType) and getattr(value, "__module__", "") == "math":
        return True
    function = value.__func__ if isinstance(value, types.MethodType) else value
    return isinstance(function, types.FunctionType) and str(function.__module__).startswith("irc.")


def safely(compute: Callable[[], Any]) -> Known | None:
    """Evaluate at compile time. Returns None where that raises: it raises when the model runs, too."""
    try:
        found = compute()
    except Exception:
        return None
    return Known(list(found) if isinstance(found, _ITERATORS) else found)  # pyright: ignore
