"""Problems: what a kernel is asked to compute, one class for each family of kernels.

A problem says all that kernels of a family need to know of a call: extents, strides of memory in elements, element
types, the epilogue, and the precision that products must have.  Whoever selects a kernel builds the problem once; the
candidates, their cycles, the sizes of the call, the packing of constants and the scratch memory follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from irc.ir.dim import Dim
from irc.ir.types import DType

Layout = Literal["nchw", "nhwc"]
"""What is contiguous in memory: the pixels of a channel, or the channels of a pixel."""
Pair = tuple[int, int]
"""Two numbers, for the height and the width."""
UNKNOWN = 4096
"""Assumed value of a symbolic size."""
TYPICAL = 224
"""Assumed value of each symbol of a height or a width."""


@dataclass(frozen=True)
class Problem:
    """Base of problems.

    dtype: of the result.  precision: the least that f32 products must have, "highest", "high" or "medium".
    """

    dtype: DType
    precision: str

    @property
    def work(self) -> str | None:
        """A line that describes the problem, by which measured choices are kept; None if a size is symbolic."""
        return None


def likely(size: Dim) -> int:
    """Estimate a size: itself if it is known, else `UNKNOWN`."""
    return int(size) if size.is_const else UNKNOWN


def likely_extent(extent: Dim) -> int:
    """Estimate a height or a width as it is in an image of `TYPICAL` size: deep in a network planes are small."""
    sizes = {s.name: int(min(max(TYPICAL, s.lo), TYPICAL if s.hi is None else s.hi)) for s in extent.symbols()}
    return extent.evaluate(sizes)
