"""A row of a convolution of the taps inside, cut into tiles: which taps each pixel of a tile meets is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import Self

from irc.ir.types import DType
from irc.kernels.core.isa import Isa
from irc.kernels.core.tile import Tile

PIXELS = 16  # of a tile, at most
WRITTEN_OUT = 16  # taps that meet the same pixels, and lines fetched, at most: more are a loop


@dataclass(frozen=True)
class RowOfTiles:
    """The tiles of a row, as equal as possible.

    tile: pixels × vectors of output channels.  row: of X and of the result the width, the window's, stride, dilation
    and padding along it.  step: elements from one pixel of X to the next.
    """

    tile: Tile
    row: tuple[int, int, int, int, int, int]
    step: int = 1

    @classmethod
    def fitting(cls, isa: Isa, dtype: DType, vectors: int, row: tuple[int, int, int, int, int, int]) -> Self | None:
        """Cut a row into tiles of so many vectors, as high as registers allow; None if they hold no pixel."""
        most = min((isa.registers - 1 - vectors) // vectors, PIXELS, row[1])
        return cls(Tile(isa, dtype, -(-row[1] // -(-row[1] // most)), vectors), row) if most >= 1 else None

    @property
    def starts(self) -> tuple[int, ...]:
        """The first pixels of the tiles; the last may overlap the one before, whose sums it leaves alone."""
        width, pixels = self.row[1], self.tile.rows
        return tuple(min(start, width - pixels) for start in range(0, width, pixels))

    @cached_property
    def runs(self) -> tuple[tuple[tuple[int, tuple[tuple[int, int], ...]], int], ...]:
        """The kinds of tiles that follow one another, each with the number of the first tile that is of another one."""
        kinds = [self.kind(start) for start in self.starts]
        ends = [i for i in range(1, len(kinds)) if kinds[i] != kinds[i - 1]] + [len(kinds)]
        return tuple((kinds[end - 1], end) for end in ends)

    def kind(self, start: int) -> tuple[int, tuple[tuple[int, int], ...]]:
        """Return what tells tiles apart: their first pixel, and the pixels of each tap."""
        return self._begin(start), self.ranges(start)

    def ranges(self, start: int) -> tuple[tuple[int, int], ...]:
        """Return for each tap of a row the pixels of the tile at `start` for which it is inside: from, to."""
        iw, _, kw, sw, dw, pw = self.row
        begin, end, first = self._begin(start), self.tile.rows, start * sw - pw
        if first >= 0 and first + (end - 1) * sw + (kw - 1) * dw < iw:
            return ((begin, end),) * kw
        lows = (max(begin, -((first + k * dw) // sw)) for k in range(kw))
        highs = (min(end, (iw - 1 - first - k * dw) // sw + 1) for k in range(kw))
        return tuple((low, high) if low < high else (0, 0) for low, high in zip(lows, highs, strict=True))

    def fetched(self, ranges: Sequence[tuple[int, int]], ahead: int) -> Iterator[str]:
        """Print the fetching of what taps see some channels ahead: the processor does not guess it of planes apart."""
        _, _, _, stride, dilation, _ = self.row
        seen = sorted({r * stride + k * dilation for k, pixels in enumerate(ranges) for r in range(*pixels)})
        line, places = 64 // self.tile.dtype.itemsize, list[int]()
        for at, after in pairwise((*seen, seen[-1] + line if seen else 0)):
            if not places or at - places[-1] >= line or (at > places[-1] and after - at >= line):
                places.append(at)
        apart = {b - a for a, b in pairwise(places[:-1])}
        if len(places) > WRITTEN_OUT and len(apart) == 1:
            yield f"                for (int at = {places[0]}; at <= {places[-2]}; at += {apart.pop()})\n"
            yield f"                    __builtin_prefetch(xu + {ahead} * o->x_channel + at);\n"
            places = places[-1:]
        for at in places:
            yield f"                __builtin_prefetch(xu + {ahead} * o->x_channel + {at});\n"

    def taps(self, ranges: Sequence[tuple[int, int]], prefix: str) -> Iterator[str]:
        """Print the taps of a row."""
        if not any(low < high for low, high in ranges):
            yield "                (void)acc, (void)xu, (void)wu; /* all that they see is padding */\n"
        step, panel, k = self.row[4] * self.step, self.tile.panel, 0
        for (low, high), run in groupby(ranges):
            begin, k = k, k + len([*run])
            if low < high and k - begin > WRITTEN_OUT:
                yield f"                for (int k = {begin}; k < {k}; k++)\n"
                yield f"                    {prefix}_tap(acc[u], {low}, {high}, xu + k * {step}, wu + k * {panel});\n"
            elif low < high:
                for i in range(begin, k):
                    yield f"                {prefix}_tap(acc[u], {low}, {high}, xu + {i * step}, wu + {i * panel});\n"

    def _begin(self, start: int) -> int:
        """Return the first pixel of the tile at `start` that is not of the tile before, too."""
        return -start % self.tile.rows
