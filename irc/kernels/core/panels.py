"""Packing of a matrix whose rows are contiguous, but far from each other, into panels of columns."""

from __future__ import annotations

from irc.kernels.core.text import Piece, piece
from irc.kernels.core.tile import Tile, names

AHEAD = 8
"""Rows: how far their fetching is ahead where they are packed."""
FAR = 32
"""The same of rows that are a part of a panel, which take a few cycles each."""

_CODE = """\
/* k rows of `columns` columns, `row` elements apart, as panels of $NR columns, `step` rows apart; zeros behind the last
   column.  Of a row a long piece is read, as it may come from far. */
static void ${V}_panels_$NV(const $T *from, int64_t row, int64_t columns, int64_t k, int64_t step, $T *to) {
    const int64_t ahead = (columns < $NR ? $far : $ahead) * row;
    for (int64_t j = 0; j < k; j++, from += row, to += $NR) {
        int64_t col = 0;
        for (; col + $NR <= columns; col += $NR) {
            IRC_FULL_UNROLL
            for (int line = 0; line < $NR * $size; line += 64)
                __builtin_prefetch(from + ahead + col + line / $size);
            EACH(w < $NV) ${V}_store(to + col * step + w * $L, ${V}_load(from + col + w * $L));
        }
        for (int w = 0; col < columns && w < $NV; w++) {
            const int64_t part = columns - col - w * $L;
            if (part > 0) __builtin_prefetch(from + ahead + col + w * $L);
            ${V}_store(to + col * step + w * $L, part > 0 ? ${V}_load_part(from + col + w * $L, part) : ($V){0});
        }
    }
}
"""


def pack_panels(tile: Tile) -> Piece:
    """Print `V_panels_VECTORS`, which packs panels as wide as a tile; needs its vector type."""
    return piece("IRC_PANELS_${V}_$NV", _CODE, "${V}_panels_$NV", **names(tile), ahead=AHEAD, far=FAR)
