"""Runs the references of operations on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from irc.ir.graph import Node
from irc.ir.types import TensorType, Type


def as_list(found: Any) -> list[Any]:
    """What a function of an operation returned, a single result or a list or tuple of them, as a list."""
    return list(cast("Sequence[Any]", found)) if isinstance(found, list | tuple) else [found]


def run_reference(node: Node, args: Sequence[Any]) -> list[Any]:
    """One node's reference on arrays; results as a list, each of its declared element type."""
    with np.errstate(all="ignore"):
        found = node.op.reference(*args)
    results = as_list(found) if len(node.op.sig.outputs) + _variadic(node) > 1 else [found]
    return [_typed(a, v.type) for a, v in zip(results, node.outputs, strict=False)]


def _variadic(node: Node) -> int:
    return sum(1 for p in node.op.sig.outputs if p.variadic)


def _typed(array: Any, type: Type | None) -> Any:
    if not isinstance(type, TensorType) or array is None:
        return array
    array = np.asarray(array)
    return array if array.dtype == type.dtype.numpy or type.dtype.kind == "?" else array.astype(type.dtype.numpy)
