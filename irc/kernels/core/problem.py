"""Problems: what a kernel is asked to compute, one class for each family of kernels.

A problem says all that kernels of a family need to know of a call: extents, strides of memory in elements, element
types, the epilogue, and the precision that products must have.  Whoever selects a kernel builds the problem once; the
candidates, their cycles, the sizes of the call, the packing of constants and the scratch memory follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from irc.ir.dim import Dim, SizeUnknown, Symbol
from irc.ir.types import DType

Layout = Literal["nchw", "nhwc"]
"""What is contiguous in memory: the pixels of a channel, or the channels of a pixel."""
Pair = tuple[int, int]
"""Two numbers, for the height and the width."""
UNKNOWN = 4096
"""Assumed value of a symbolic size."""
IMAGES = 2
"""Assumed number of images where a model takes any: most runs have one, some many."""
POSITIONS = 32
"""Pixels of an image, at least: a size that is so many times a symbol counts those of an unknown number of images."""
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
    """Estimate a size: itself if it is known, as it is of `IMAGES` if it counts their pixels, else `UNKNOWN`."""
    if size.is_const:
        return int(size)
    if len(size.symbols()) == 1 and _assume(size, 1) >= POSITIONS:
        return likely_images(size)
    return UNKNOWN


def likely_images(size: Dim) -> int:
    """Estimate a number of images, or a size that counts their pixels, as it is of `IMAGES`."""
    return _assume(size, IMAGES)


def fewest(size: Dim) -> float:
    """Bound a size from below, unless it is 0: pixels of any number of images are none or those of one at least."""
    low = size.bounds()[0]
    if len(size.terms) != 1:
        return low
    symbols, count = size.terms[0]
    return max(low, count) if all(isinstance(s, Symbol) for s in symbols) else low


def likely_extent(extent: Dim) -> int:
    """Estimate a height or a width as it is in an image of `TYPICAL` size: deep in a network planes are small."""
    return _assume(extent, TYPICAL)


def _assume(size: Dim, value: int) -> int:
    """Evaluate a size with this value of each symbol, or the nearest that its bounds allow: 1 at least."""
    if size.is_const:
        return int(size)
    bounded = {s.name: max(value, s.lo) if s.hi is None else min(max(value, s.lo), s.hi) for s in size.symbols()}
    try:
        return max(1, size.evaluate({name: int(n) for name, n in bounded.items()}))
    except SizeUnknown:  # it would divide by zero
        return UNKNOWN
