"""The register tile that all contractions share: rows × vectors of accumulators over packed operands.

One body, instantiated for each height (rows) and width (vectors) that a kernel needs, adds A · B over k to zero or
to what stands in C.  Operand A holds k × rows values (one tile's rows side by side), operand B k × panel values.
Bodies know nothing of the kernel that calls them: they are guarded, and kernels in one file share them.  The
epilogue is applied by `NAME_block`, the kernel's own, as soon as a tile is complete: it is still in the first cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from irc.ir.dim import Dim, DimLike
from irc.ir.types import DType
from irc.kernels.epilogue import Epilogue
from irc.kernels.isa import C_TYPES, HEAD, Isa, vector_name, vector_type
from irc.kernels.text import fill
from irc.kernels.vecmath import definitions

_TILE = """#ifndef IRC_TILE_$tile
#define IRC_TILE_$tile
typedef void ${tile}_run(int64_t k, const $T *a, const $T *b, $T *c, int64_t c_row, int first);
/* C[R][W vectors] (+)= A[k][R] * B[k][$NR]; `streamed`: A comes from memory, else B does, and is prefetched. */
IRC_INLINE void ${tile}(const int R, const int W, const int streamed, int64_t k, const $T *restrict a,
                        const $T *restrict b, $T *restrict c, int64_t c_row, int first) {
    $V acc[$MR][$NV], odd[$MR][$NV], bv[$NV];
    const int U = R <= 3 ? 2 : 1; /* few rows: two independent sums hide the latency of the additions */
    IRC_FULL_UNROLL
    for (int i = 0; i < R; i++) {
        IRC_FULL_UNROLL
        for (int w = 0; w < W; w++) {
            odd[i][w] = ($V){0};
            acc[i][w] = odd[i][w]; /* the sum so far is added last: sums of blocks lose less than one long sum */
        }
    }
    for (; k >= U; k -= U, a += U * R, b += U * $NR) {
        IRC_FULL_UNROLL
        for (int w = 0; w < W; w++) bv[w] = ${V}_load(b + w * $L);
        __builtin_prefetch(streamed ? a + $far : b + $ahead);
        if (!streamed && $NR * $size > 64) __builtin_prefetch(b + $ahead + 64 / $size);
        IRC_FULL_UNROLL
        for (int i = 0; i < R; i++) {
            IRC_FULL_UNROLL
            for (int w = 0; w < W; w++) acc[i][w] += a[i] * bv[w];
        }
        if (U == 1) continue;
        IRC_FULL_UNROLL
        for (int w = 0; w < W; w++) bv[w] = ${V}_load(b + $NR + w * $L);
        IRC_FULL_UNROLL
        for (int i = 0; i < R; i++) {
            IRC_FULL_UNROLL
            for (int w = 0; w < W; w++) odd[i][w] += a[R + i] * bv[w];
        }
    }
    IRC_FULL_UNROLL
    for (int i = 0; i < R; i++) {
        IRC_FULL_UNROLL
        for (int w = 0; w < W; w++) {
            if (U == 2 && k) acc[i][w] += a[i] * ${V}_load(b + w * $L);
            if (U == 2) acc[i][w] += odd[i][w];
            if (!first) acc[i][w] += ${V}_load(c + i * c_row + w * $L);
            ${V}_store(c + i * c_row + w * $L, acc[i][w]);
        }
    }
}
#endif
"""

_INSTANCE = """#ifndef IRC_TILE_${tile}_$instance
#define IRC_TILE_${tile}_$instance
static void ${tile}_$instance(int64_t k, const $T *a, const $T *b, $T *c, int64_t c_row, int first) {
    $tile($R, $W, $streamed, k, a, b, c, c_row, first);
}
#endif
"""

_EPILOGUE = """
typedef struct {
    $T *c;
    int64_t c_row, n;$slot_fields
} ${S}_out;

IRC_INLINE $V ${S}_epilogue(const ${S}_out *o, $V acc, int64_t row, int64_t col, int64_t part) {
    (void)o, (void)row, (void)col, (void)part;$slot_loads
    return $epilogue;
}
"""

_BLOCK = """
/* The tile of `rows` rows at (row, col): adds k products, and applies the epilogue when they are the last ones. */
static void ${S}_block(const ${S}_out *o, int rows, int64_t row, int64_t col, int64_t k, const $T *a, const $T *b,
                       int first, int last) {
    static ${tile}_run *const whole[] = {$whole};$narrow_table
    $T *c = o->c + row * o->c_row + col;
    const int64_t left = o->n - col;
    if (left >= $NR) {
        whole[rows - 1](k, a, b, c, o->c_row, first);$finish
        return;
    }
    $T part[$MR * $NR];
    for (int i = 0; i < rows && !first; i++)
        for (int w = 0; w < $NV; w++)
            ${V}_store(part + i * $NR + w * $L, ${V}_load_part(c + i * o->c_row + w * $L, left - w * $L));
    ${choose}(k, a, b, part, $NR, first);
    for (int i = 0; i < rows; i++) {
        for (int w = 0; w * $L < left; w++) {
            $V x = ${V}_load(part + i * $NR + w * $L);
            if (last) x = ${S}_epilogue(o, x, row + i, col + w * $L, left - w * $L);
            ${V}_store_part(c + i * o->c_row + w * $L, x, left - w * $L);
        }
    }
}
"""

_FINISH = """
        for (int i = 0; i < rows && last; i++) {
            IRC_FULL_UNROLL
            for (int w = 0; w < $NV; w++) {
                $T *at = c + i * o->c_row + w * $L;
                ${V}_store(at, ${S}_epilogue(o, ${V}_load(at), row + i, col + w * $L, $L));
            }
        }"""


@dataclass(frozen=True)
class Tile:
    """The constants of a register tile: `rows` × `vectors` accumulators of `dtype` on `isa`."""

    isa: Isa
    dtype: DType
    rows: int
    vectors: int

    @property
    def lanes(self) -> int:
        return self.isa.lanes(self.dtype)

    @property
    def panel(self) -> int:
        """Columns of a tile."""
        return self.lanes * self.vectors

    @property
    def name(self) -> str:
        """The C name of its bodies."""
        return f"irc_tile_{self.dtype.name}_{self.isa.name}_{self.rows}x{self.vectors}"


def heights_of(m: DimLike, rows: int) -> tuple[int, ...]:
    """Tile heights that m rows are cut into: tiles as equal as possible."""
    size = Dim.of(m)
    if not size.is_const:
        return tuple(range(1, rows + 1))
    total = int(size)
    tiles = max(1, -(-total // rows))
    return tuple(h for h in (total // tiles, -(-total // tiles)) if h)[:: 1 if total % tiles else 2] or (1,)


def names(tile: Tile) -> dict[str, object]:
    """What templates of kernels over this tile refer to."""
    return {
        "T": C_TYPES[tile.dtype.name][0],
        "V": vector_name(tile.lanes, tile.dtype),
        "L": tile.lanes,
        "MR": tile.rows,
        "NV": tile.vectors,
        "NR": tile.panel,
        "size": tile.dtype.itemsize,
        "tile": tile.name,
    }


def prelude(tile: Tile, epilogue: Epilogue) -> str:
    """Vector types and functions that the kernel uses; guarded, so that it may be repeated in a file."""
    types = [vector_type(lanes, tile.dtype) for lanes in sorted({4, tile.lanes})]
    return HEAD + "".join(types) + definitions(epilogue.functions(), tile.lanes, tile.dtype)


@dataclass(frozen=True)
class Variants:
    """The bodies that a kernel needs: tiles of these heights, full width and (`narrow`) one vector wide.

    `streamed`: A comes from memory and B from a cache; else B comes from memory.
    """

    heights: tuple[int, ...]
    narrow: bool
    streamed: bool

    def instance(self, rows: int, vectors: int) -> str:
        return f"{rows}x{vectors}{'s' if self.streamed else ''}"


def bodies(tile: Tile, variants: Variants) -> str:
    """The bodies of the variants, guarded."""
    given = names(tile) | {"streamed": int(variants.streamed)}
    widths = (1, tile.vectors) if variants.narrow and tile.vectors > 1 else (tile.vectors,)
    return fill(_TILE, **given, ahead=16 * tile.panel, far=64 * tile.rows) + "".join(
        fill(_INSTANCE, **given, R=r, W=w, instance=variants.instance(r, w)) for r in variants.heights for w in widths
    )


def block(symbol: str, tile: Tile, epilogue: Epilogue, variants: Variants) -> str:
    """`NAME_block`, which computes one tile, and what it needs: `epilogue_of`."""
    have, narrow = set(variants.heights), variants.narrow

    def table(width: int) -> str:
        rows = range(1, max(have) + 1)
        return ", ".join(f"{tile.name}_{variants.instance(r, width)}" if r in have else "0" for r in rows)

    given = names(tile) | {"S": symbol}
    one = f"\n    static {tile.name}_run *const narrow[] = {{{table(1)}}};" if narrow else ""
    return epilogue_of(symbol, tile, epilogue) + fill(
        _BLOCK,
        **given,
        whole=table(tile.vectors),
        narrow_table=one,
        choose=body_of(tile, narrow, "rows"),
        finish=fill(_FINISH, **given) if epilogue.key() else "\n        (void)last;",
    )


def body_of(tile: Tile, narrow: bool, rows: str) -> str:
    """The expression for the body of `rows` rows and `left` columns, out of the tables `whole` and `narrow`.

    Not `(left <= L ? narrow : whole)[rows - 1]`: gcc's -fsanitize=object-size reports that valid access.
    """
    return f"(left <= {tile.lanes} ? narrow[{rows} - 1] : whole[{rows} - 1])" if narrow else f"whole[{rows} - 1]"


def epilogue_of(symbol: str, tile: Tile, epilogue: Epilogue) -> str:
    """The struct `NAME_out` and `NAME_epilogue`, which turns a vector of accumulators into what is stored."""
    given = names(tile) | {"S": symbol}
    return fill(
        _EPILOGUE,
        **given,
        slot_fields=_fields(epilogue, given),
        slot_loads=_loads(epilogue, given),
        epilogue=epilogue.vector(str(given["V"])),
    )


def _fields(epilogue: Epilogue, given: dict[str, object]) -> str:
    return "".join(
        f"\n    const {given['T']} *s{i};" + (f"\n    int64_t s{i}_row;" if axes in ("column", "full") else "")
        for i, axes in enumerate(epilogue.slots)
    )


def _loads(epilogue: Epilogue, given: dict[str, object]) -> str:
    v, lanes = given["V"], given["L"]
    found: list[str] = []
    for i, axes in enumerate(epilogue.slots):
        at = f"o->s{i}" + (f" + row * o->s{i}_row" if axes in ("column", "full") else "")
        if axes in ("row", "full"):
            at += " + col"
            value = f"part < {lanes} ? {v}_load_part({at}, part) : {v}_load({at})"
        else:
            value = f"{v}_all(*({at}))"
        found.append(f"\n    const {v} slot{i} = {value};")
    return "".join(found)
