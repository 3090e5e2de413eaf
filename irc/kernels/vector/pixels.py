"""Windows over channels-last activations: the columns under a tile of pixels, and C text.

A tile is some neighbouring pixels of an output row, of one vector of channels.  Its columns are those of the input that
some window of the tile holds, counted from the first column of the first window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from irc.ir.dim import Dim, DimLike
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.problem import Pair
from irc.kernels.core.text import fill

PIXELS = 8  # of a tile, at most
COLUMNS = 64  # under a tile, at most
STRIDES = ("batch", "pixel")  # of the slots of an epilogue: along images, and along pixels if a slot has them

BOUNDS = """
/* Which of the positions low, low + step, ... stand in [0, size): from *begin on; returns their end, at most count. */
IRC_INLINE int64_t ${S}_inside(int64_t low, int64_t size, int64_t step, int64_t count, int64_t *begin) {
    const int64_t end = size > low ? (size - low + step - 1) / step : 0;
    *begin = low < 0 ? (step - 1 - low) / step : 0;
    return end < count ? end : count;
}

IRC_HELPER uint64_t ${S}_below(int64_t n) {
    return n <= 0 ? 0 : n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
}

/* One bit for each column under a tile that starts at column `low`: whether it is in [0, size). */
IRC_INLINE uint64_t ${S}_columns(int64_t low, int64_t size) {
$bits}
"""

_FEW = """
/* Output rows y0 to y1 where there are fewer channels than a vector holds. */
static void ${S}_few(const ${S}_call *g, const ${S}_out *o, const $X *x, int64_t y0, int64_t y1) {
    for (int64_t oy = y0; oy < y1; oy++) {
        for (int64_t ox = 0; ox < g->ow; ox++) {
            int64_t ky, first;
            const int64_t top = oy * $SH - g->pad_h, bottom = ${S}_inside(top, g->ih, $DH, $KH, &ky);
            const int64_t left = ox * $SW - g->pad_w, end = ${S}_inside(left, g->iw, $DW, $KW, &first);
            $V acc = $none;
            for (; ky < bottom; ky++) {
                for (int64_t kx = first; kx < end; kx++) {
                    const $X *at = x + (top + ky * $DH) * g->x_row + (left + kx * $DW) * g->x_pixel;
$taken                }
            }
            acc = ${S}_epilogue(o, acc$divided, oy * g->ow + ox, 0, g->channels);
            ${SY}_part(o->c + (oy * g->ow + ox) * o->c_row, acc, g->channels);
        }
    }
}
"""

_SPARSE = """    static const int64_t at[] = {$places};
    uint64_t bits = 0;
    for (int i = 0; i < $count; i++) bits |= (uint64_t)(low + at[i] >= 0 && low + at[i] < size) << i;
    return bits;
"""


@dataclass(frozen=True)
class TileRow:
    """A row of the windows of a tile: how many pixels it has, and their taps, stride and dilation."""

    pixels: int
    taps: int
    stride: int
    dilation: int

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """The columns under a tile, in order."""
        return tuple(sorted({self._column(p, k) for p in range(self.pixels) for k in range(self.taps)}))

    def users(self, column: int) -> list[Pair]:
        """List the pixels of a tile and the taps of their windows that meet at a column."""
        return [(p, k) for p in range(self.pixels) for k in range(self.taps) if self._column(p, k) == column]

    def walk(self, visit: Callable[[int], str]) -> Iterator[str]:
        """Print what `visit` does at each column that is inside the input, and how `from` comes to the next."""
        for i, column in enumerate(self.columns):
            yield f"    if (inside || in >> {i} & 1) {{\n{visit(column)}    }}\n"
            if i + 1 < len(self.columns):
                gap = self.columns[i + 1] - column
                yield f"    from += {f'{gap} * ' if gap > 1 else ''}step;\n"

    def _column(self, pixel: int, tap: int) -> int:
        return pixel * self.stride + tap * self.dilation


def bounds(symbol: str, places: tuple[int, ...]) -> str:
    """Print `NAME_inside` and `NAME_columns`: what of a window and of a tile is inside the input."""
    if places == tuple(range(len(places))):
        bits = f"    return {symbol}_below(size - low) & ~{symbol}_below(-low);\n"
    else:
        bits = fill(_SPARSE, places=", ".join(map(str, places)), count=len(places))
    return fill(BOUNDS, S=symbol, bits=bits)


def few_channels(given: dict[str, object], none: str, taken: str, divided: str = "") -> str:
    """Print `NAME_few`, which computes the pixels whose channels are fewer than a vector holds.

    given: names in the templates.  none: what `acc` begins with.  taken: statements that take the element `at` into it.
    divided: by what it is divided in the end.
    """
    return fill(_FEW, **given, none=fill(none, **given), taken=fill(taken, **given), divided=divided)


def pixels_of(width: DimLike, taps: int, stride: int, dilation: int, registers: int) -> int:
    """Choose the pixels of a tile for rows of `width` outputs: tiles as equal as possible; 0 if no tile is possible.

    registers: how many vectors of sums they may take; two pixels are allowed always.
    """
    row, room = Dim.of(width), min(PIXELS, max(registers, 2))
    most = next((p for p in range(room, 0, -1) if len(TileRow(p, taps, stride, dilation).columns) <= COLUMNS), 0)
    if not most or not row.is_const or int(row) <= 0:
        return most
    tiles = -(-int(row) // most)
    return -(-int(row) // tiles)


def window_names(window: Pair, strides: Pair, dilations: Pair) -> dict[str, object]:
    """Return $KH, $KW, $SH, $SW, $DH and $DW of templates."""
    pairs = (("K", window), ("S", strides), ("D", dilations))
    return {letter + axis: n for letter, pair in pairs for axis, n in zip("HW", pair, strict=True)}


def slot_starts(epilogue: Epilogue, row: str = "pixel", first: str = "", call: str = "g", image: str = "image") -> str:
    """Print statements that point the slots of `o` at an image of a call, both given by their names in C.

    row: what the epilogue's rows are; first: adds the first column, of slots that have columns.
    """
    found: list[str] = []
    for i, axes in enumerate(epilogue.slots):
        column = first if axes in ("row", "full") else ""
        found.append(f"\n        o.s{i} = {call}->s{i} + {image} * {call}->s{i}_batch{column};")
        if axes in ("column", "full"):
            found.append(f"\n        o.s{i}_row = {call}->s{i}_{row};")
    return "".join(found)


def channel_slots(epilogue: Epilogue) -> str:
    """Print statements that point the slots of `o`, whose rows are channels, at `channel` of an image."""
    found: list[str] = []
    for i, axes in enumerate(epilogue.slots):
        found.append(f"\n        o.s{i} = g->s{i} + image * g->s{i}_batch")
        if axes in ("column", "full"):
            found.append(f" + channel * g->s{i}_channel;\n        o.s{i}_row = g->s{i}_channel")
        found.append(";")
    return "".join(found)
