"""How far apart two results are: relative, absolute, in units in the last place, by direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from irc.arrays import Array, NumpyType, is_array

RELATIVE = 1e-4
"""Largest difference allowed, relative to the largest magnitude of the tensor."""
NARROW = 2e-2
"""The same for tensors of 16 bits and fewer."""
STEPS = "steps"
"""What models round to that quantize as they run: where sums end on the other side of a half, a result moves a step."""
ROUNDED = {"f16": 2e-2, "bf16": 1e-1, STEPS: 2e-2}
"""The same where weights, or all floats, of one model were rounded to such a type."""
SMALLEST = 1e-6
"""A largest magnitude below counts as this one."""


@dataclass(frozen=True)
class Distance:
    """How far two arrays of one shape are apart.

    relative: to the largest magnitude of the first; inf where types, or what no number tells, differ.  absolute: the
    largest, which is at `at`.  ulp: there, in steps of the narrower floating-point type; None of other types.
    cosine: of the angle between both as vectors of their finite elements; None where one of them is zero.
    """

    relative: float
    absolute: float = 0.0
    at: tuple[int, ...] = ()
    different: int = 0
    elements: int = 0
    ulp: float | None = None
    cosine: float | None = None


def allowed(a: Any, precision: str | None = None) -> float:
    """The largest relative difference that rounding explains in a result like this.

    precision: the type that floats of one of the models were rounded to.
    """
    own = NARROW if is_array(a) and a.dtype.itemsize <= 2 else RELATIVE
    return max(own, ROUNDED.get(precision or "", 0.0))


def as_float(value: Any, like: Any) -> Any:
    """An array of floats in another float type, that of an array or a type; anything else as it is."""
    target: Any = like.dtype if is_array(like) else like
    return value.astype(target) if is_array(value) and _is_float(value.dtype) and _is_float(target) else value


def for_both(value: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Give an argument to two models whose inputs are of the types a and b: the same numbers, if both are floats.

    They are rounded to the narrower type, so that a difference of the results is not one of the arguments.
    """
    if a == b or not _is_float(a) or not _is_float(b):
        return value, value
    rounded = as_float(value, min(a, b, key=lambda t: t.itemsize))
    return as_float(rounded, a), as_float(rounded, b)


def _is_float(type: Any) -> bool:
    name = getattr(type, "name", "")
    return name.startswith(("float", "bfloat"))


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def difference(a: Any, b: Any, exact_integers: bool = True) -> float:
    """The largest difference relative to the largest magnitude; inf where types, shapes or kinds differ.

    exact_integers: any difference of integers is infinite.
    """
    if _is_list(a) and _is_list(b) and len(a) == len(b):
        return max((difference(x, y, exact_integers) for x, y in zip(a, b, strict=True)), default=0.0)
    if not is_array(a) or not is_array(b):
        return 0.0 if a == b else float("inf")
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if a.dtype.kind in "OUSb":
        return 0.0 if np.array_equal(a, b) else float("inf")
    x, y = _wide(a), _wide(b)
    alike = (x == y) | (np.isnan(x) & np.isnan(y))
    if alike.all():
        return 0.0
    if (exact_integers and a.dtype.kind in "iu") or not np.isfinite(np.stack([x[~alike], y[~alike]])).all():
        return float("inf")
    return float(np.abs(x - y)[~alike].max() / max(np.abs(x[np.isfinite(x)]).max(), SMALLEST))


def measure(a: Array, b: Array, exact_integers: bool = True, narrow: NumpyType | None = None) -> Distance:
    """Everything that is said of two arrays of one shape and type; ulp in the type `narrow`, by default theirs."""
    relative = difference(a, b, exact_integers)
    if a.dtype.kind in "OUS" or not a.size:
        return Distance(relative, different=int((a != b).sum()) if a.size else 0, elements=int(a.size))
    x, y = _wide(a), _wide(b)
    with np.errstate(invalid="ignore"):
        apart = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
    apart = np.where(np.isnan(apart), np.inf, apart)
    place = tuple(int(i) for i in np.unravel_index(int(apart.argmax()), apart.shape))
    largest, different = float(apart.max()), int((apart > 0).sum())
    steps = _steps(*(v[place].astype(narrow or a.dtype) for v in (a, b)))
    return Distance(relative, largest, place, different, int(a.size), steps, _cosine(x, y))


def _wide(a: Array) -> Array:
    return a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)


def _steps(a: Any, b: Any) -> float | None:
    """Representable numbers between two of one floating-point type; None for other types and where one is no number."""
    if a.dtype.kind in "iubcOUS" or not (np.isfinite(a) and np.isfinite(b)):
        return None
    signed = np.dtype(f"i{a.dtype.itemsize}")
    first, second = (int(np.asarray(v).view(signed)) for v in (a, b))
    lowest = int(np.iinfo(signed).min)
    first, second = (lowest - i if i < 0 else i for i in (first, second))
    return float(abs(first - second))


def _cosine(x: Array, y: Array) -> float | None:
    finite = np.isfinite(x) & np.isfinite(y)
    u, v = x[finite], y[finite]
    lengths = float(np.linalg.norm(u)), float(np.linalg.norm(v))
    if not all(lengths):
        return 1.0 if lengths == (0.0, 0.0) else None
    return (
        float(abs(np.vdot(u / lengths[0], v / lengths[1])))
        if x.dtype.kind == "c"
        else float(np.dot(u / lengths[0], v / lengths[1]))
    )
