"""What kernels share whose tiles read A where it stands: the bodies of a tile, and how its sums come to C.

Between the blocks of k that a kernel takes one after the other, the sums stand in C.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from irc.kernels.core.costs import WAY
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.text import Piece, fill, piece
from irc.kernels.core.tile import (
    FETCH,
    LAST_COLUMNS,
    WHOLE_COLUMNS,
    Tile,
    Variants,
    body_of,
    epilogue_of,
    names,
    table_of,
)
from irc.kernels.gemm.problem import GemmProblem

FAR = 4 << 20
"""Bytes of C from which on lines of it are fetched before they are written: stores wait for lines from memory."""

_FAR_RESULTS = (
    FETCH
    + """
/* Whether the output is so large that it is in no cache. */
IRC_INLINE int ${S}_is_far(const ${S}_args *g) { return g->batch0 * g->batch1 * g->m * g->n > $far_outputs; }
"""
)

_INSTANCE = """\
static void ${body}_$instance(int64_t k, const $T *a, int64_t a_row, $b_parameters, const $T *from, int64_t from_row,
                              $T *to, int64_t to_row, $fetch_parameters) {
    $body($R, $W, k, a, a_row, $b, from, from_row, to, to_row, $fetch);
}
"""

_BLOCK = (
    """
/* The same as NAME_block, below, where sums wait for the epilogue or the tile is not full. */
static void ${S}_sums(const ${S}_out *o, int rows, int64_t row, int64_t col, int64_t k, const $T *a, int64_t a_row,
                      $b_parameters, $fetch_parameters, int begun, int done) {
    static ${body}_run *const whole[] = {$whole};$narrow_table
    _Alignas(64) $T sums[$MR * $NR];
    $T *c = o->c + row * o->c_row + col;
    const int64_t left = o->n - col;
    if (left >= $NR) {
        whole[rows - 1](k, a, a_row, $b, begun ? c : 0, o->c_row, sums, $NR, $fetch);
"""
    + WHOLE_COLUMNS
    + """\
    }
    sums[0] = 0; /* compilers do not see that nothing is read of it unless it is begun */
    if (begun) {
        for (int i = 0; i < rows; i++)
            for (int w = 0; w * $L < left; w++)
                ${V}_store(sums + i * $NR + w * $L, ${V}_load_part(c + i * o->c_row + w * $L, left - w * $L));
    }
    ${choose}(k, a, a_row, $b, begun ? sums : 0, $NR, sums, $NR, $fetch);
"""
    + LAST_COLUMNS
    + """
/* k more products of the tile of `rows` rows at (row, col); those before are in the output if `begun`.  After the last
 * ones, `done`, the epilogue is applied.  far: the output's lines are fetched before they are written. */
IRC_INLINE void ${S}_block(const ${S}_out *o, int rows, int64_t row, int64_t col, int64_t k, const $T *a, int64_t a_row,
                           $b_parameters, $fetch_parameters, int begun, int done, int far) {
    static ${body}_run *const whole[] = {$whole};
    $T *c = o->c + row * o->c_row + col;
    if (far && !begun) ${S}_fetch(o, rows, row, col);
    if (o->n - col >= $NR && (!done || $plain))
        whole[rows - 1](k, a, a_row, $b, begun ? c : 0, o->c_row, c, o->c_row, $fetch);
    else ${S}_sums(o, rows, row, col, k, a, a_row, $b, $fetch, begun, done);
}
"""
)


def _operands(tile: Tile, body: str, b: Mapping[str, str], fetch: Mapping[str, str]) -> dict[str, object]:
    """Name a tile's operands in templates: their C types by name, of B and of what is fetched meanwhile."""

    def parameters(of: Mapping[str, str]) -> str:
        return ", ".join(fill(f"{kind}{name}", **names(tile)) for name, kind in of.items())

    return names(tile) | {
        "body": body,
        "b": ", ".join(b),
        "b_parameters": parameters(b),
        "fetch": ", ".join(fetch),
        "fetch_parameters": parameters(fetch),
    }


def instances(
    tile: Tile, body: str, variants: Variants, b: Mapping[str, str], fetch: Mapping[str, str]
) -> Iterator[Piece]:
    """Print the functions `body_ROWSxVECTORS`, each a body of the tile with these operands."""
    given = _operands(tile, body, b, fetch)
    for width in (1, tile.vectors) if variants.narrow else (tile.vectors,):
        for r in variants.heights:
            instance = variants.instance(r, width)
            yield piece("IRC_TILE_${body}_$instance", _INSTANCE, **given, R=r, W=width, instance=instance)


def block(
    symbol: str,
    tile: Tile,
    body: str,
    epilogue: Epilogue,
    variants: Variants,
    b: Mapping[str, str],
    fetch: Mapping[str, str],
) -> str:
    """Print `NAME_block`, which computes a block of one tile, and what it needs."""
    narrow = f"\n    static {body}_run *const narrow[] = {{{table_of(body, variants, 1)}}};" if variants.narrow else ""
    return (
        epilogue_of(symbol, tile, epilogue)
        + far_results(symbol, tile)
        + fill(
            _BLOCK,
            **_operands(tile, body, b, fetch),
            S=symbol,
            whole=table_of(body, variants, tile.vectors),
            narrow_table=narrow,
            choose=body_of(tile, variants.narrow, "rows"),
            plain=int(not epilogue.key()),
        )
    )


def far_results(symbol: str, tile: Tile) -> str:
    """Print `NAME_is_far` and `NAME_fetch`, which fetches lines of C, if it is far, before a tile writes them."""
    return fill(_FAR_RESULTS, **names(tile), S=symbol, far_outputs=FAR // tile.dtype.itemsize)


def rows_conflict(problem: GemmProblem) -> bool:
    """Tell whether rows of A are a multiple of WAY apart, so that the first cache holds WAYS lines of them at most."""
    return problem.a[2] % (WAY // problem.dtype.itemsize) == 0
