"""Shared parts of NumPy references: views of memory, epilogues, and operands stored as bf16."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from irc.expr import Bin, Call, Cast, Const, Expr, Select, Un, Var
from irc.ir.types import bf16
from irc.kernels.core.base import Array, Kernel
from irc.kernels.core.epilogue import Epilogue
from irc.traversal import fold

LARGEST = 3.3895313892515355e38
"""The largest finite bf16."""


def run(kernel: Kernel[Any], reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
    """Compute what a call of the kernel does, of operands and results that may be stored as bf16.

    Results are rounded to the nearest bf16, finite ones to finite ones.
    """
    memory = [x.astype(np.float32) if x.dtype == bf16.numpy else x for x in reads]
    results = [y.astype(np.float32) if y.dtype == bf16.numpy else y for y in writes]
    kernel.compute(memory, results, sizes)
    for stored, result in zip(writes, results, strict=True):
        if stored is not result:
            most = np.float32(LARGEST)
            stored[...] = np.where(np.isfinite(result), result.clip(-most, most), result).astype(stored.dtype)


def strided(flat: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """View memory by strides in elements; every element of the view must be inside."""
    last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    assert 0 in shape or 0 <= last < flat.size, f"{shape} by {strides} is outside {flat.size} elements"
    return np.lib.stride_tricks.as_strided(flat, shape, [s * flat.itemsize for s in strides])


def _erf(x: Array) -> Array:
    return np.array([math.erf(v) for v in x.reshape(-1)]).reshape(x.shape).astype(x.dtype)


_CALLS: dict[str, Callable[[Array], Array]] = {"erf": _erf, "sigmoid": lambda x: 1 / (1 + np.exp(-x))}
_UNARY: dict[str, Callable[[Any], Any]] = {"neg": np.negative, "abs": np.abs, "not": np.logical_not}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "min": np.minimum,
    "max": np.maximum,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "and": np.logical_and,
    "or": np.logical_or,
}


def apply(epilogue: Epilogue, accumulator: Array, slots: Sequence[Array]) -> Array:
    """Apply an epilogue to accumulators; slots broadcast."""
    narrow = epilogue.bf16_slots | dict(epilogue.byte_slots).keys()
    operands = (s.astype(epilogue.dtype.numpy) if i in narrow else s for i, s in enumerate(slots))
    known = {"acc": accumulator, **{f"slot{i}": s for i, s in enumerate(operands)}}

    def value(e: Expr, parts: tuple[Any, ...]) -> Any:
        match e:
            case Const():
                return e.type.numpy.type(e.value)
            case Var():
                return known[e.name]
            case Bin():
                return _BINARY[e.op](*parts)
            case Un():
                return _UNARY[e.op](*parts)
            case Call():
                return (_CALLS.get(e.fn) or getattr(np, e.fn))(*parts)
            case Select():
                return np.where(*parts)  # pyright: ignore
            case Cast():
                return np.asarray(parts[0]).astype(e.type.numpy)
            case _:
                raise NotImplementedError(type(e).__name__)

    with np.errstate(all="ignore"):
        result: Array = fold(epilogue.expr, value)
        return result
