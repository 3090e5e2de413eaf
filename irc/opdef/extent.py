"""What the shape of any tensor must be: few axes, sizes from 0 on, and bytes that 64-bit offsets reach."""

from __future__ import annotations

import math

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.ir.limits import RANK
from irc.ir.types import TensorType, Type

LARGEST_TENSOR = 1 << 62
"""Bytes.  Sizes of 0 count as 1, as they do for NumPy: strides and partial products have to be small enough too."""


def require_possible(op: str, type: Type) -> None:
    """Raise Problem for a tensor that no values of its symbols make possible."""
    if not isinstance(type, TensorType) or type.shape is None:
        return
    RANK.check(len(type.shape), op)
    for axis, size in enumerate(type.shape):
        what = f"axis {axis} of the result"
        require(size.bounds()[1] >= 0, codes.SIZE_RANGE, op=op, what=what, value=size, expected="0 or more")
    least = math.prod((max(sum(abs(c) for _, c in d.terms), 1) for d in type.shape), start=max(type.dtype.bits // 8, 1))
    require(least <= LARGEST_TENSOR, codes.TENSOR_TOO_LARGE, op=op, type=type)
    type.elements()  # a formula: Problem where it is too large to compute with
