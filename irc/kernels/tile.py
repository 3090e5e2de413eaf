"""The register tile that all contractions share: rows × vectors of accumulators over packed operands.

One body, `NAME_tile`, is instantiated by constant arguments: rows R, vectors W, and whether the last columns are
partial.  Operand A holds k × R values (one tile's rows side by side), operand B k × panel values.  What the tile
writes to, and its epilogue's operands, are in a struct `NAME_out`; `first` starts from zero instead of the partial
sums in C, `last` applies the epilogue.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from irc.ir.types import DType
from irc.kernels.epilogue import Epilogue
from irc.kernels.isa import C_TYPES, HEAD, Isa, vector_name, vector_type
from irc.kernels.text import fill
from irc.kernels.vecmath import definitions

_TILE = """
typedef struct {
    $T *c;
    int64_t c_row, n;$slot_fields
} ${S}_out;

IRC_INLINE $V ${S}_epilogue(const ${S}_out *o, $V acc, int64_t row, int64_t col, int64_t part) {
    (void)o, (void)row, (void)col, (void)part;$slot_loads
    return $epilogue;
}

IRC_INLINE void ${S}_tile(const ${S}_out *o, const int R, const int W, const int partial, int64_t row, int64_t col,
                          int64_t k, const $T *restrict a, const $T *restrict b, int first, int last) {
    $V acc[$MR][$NV], odd[$MR][$NV];
    const int U = R <= $half ? 2 : 1;
    $T *c = o->c + row * o->c_row + col;
    IRC_FULL_UNROLL
    for (int i = 0; i < R; i++) {
        IRC_FULL_UNROLL
        for (int w = 0; w < W; w++) {
            const int64_t part = partial ? o->n - col - w * $L : $L;
            acc[i][w] = odd[i][w] = ($V){0};
            if (!first) acc[i][w] = partial ? ${V}_load_part(c + i * o->c_row + w * $L, part) : ${V}_load(c + i * o->c_row + w * $L);
        }
    }
    for (; k >= U; k -= U, a += U * R, b += U * $NR) {
        $V bv[$NV];
        IRC_FULL_UNROLL
        for (int w = 0; w < W; w++) bv[w] = ${V}_load(b + w * $L);
        __builtin_prefetch(b + $ahead);
        if ($NR * sizeof($T) > 64) __builtin_prefetch(b + $ahead + 64 / sizeof($T));
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
            const int64_t part = partial ? o->n - col - w * $L : $L;
            if (partial && part <= 0) continue;
            if (U == 2) {
                if (k) acc[i][w] += a[i] * ${V}_load(b + w * $L);
                acc[i][w] += odd[i][w];
            }
            $V x = acc[i][w];
            if (last) x = ${S}_epilogue(o, x, row + i, col + w * $L, part);
            if (partial && part < $L) ${V}_store_part(c + i * o->c_row + w * $L, x, part);
            else ${V}_store(c + i * o->c_row + w * $L, x);
        }
    }
}
"""

_INSTANCE = """
static void ${S}_${R}x${W}$suffix(const ${S}_out *o, int64_t row, int64_t col, int64_t k, const $T *a, const $T *b,
                          int first, int last) {
    ${S}_tile(o, $R, $W, $partial, row, col, k, a, b, first, last);
}
"""

_RUN = """
/* The tile of `rows` rows at (row, col), as many columns as the panel has. */
static void ${S}_block(const ${S}_out *o, int rows, int64_t row, int64_t col, int64_t k, const $T *a, const $T *b,
                       int first, int last) {
    typedef void run(const ${S}_out *, int64_t, int64_t, int64_t, const $T *, const $T *, int, int);
    static run *const whole[] = {$whole};
    static run *const narrow[] = {$narrow};
    static run *const wide[] = {$wide};
    run *const *const table = o->n - col >= $NR ? whole : o->n - col <= $L ? narrow : wide;
    table[rows - 1](o, row, col, k, a, b, first, last);
}
"""


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
        return f"{self.dtype.name}_{self.isa.name}_{self.rows}x{self.vectors}"


def names(tile: Tile) -> dict[str, object]:
    """What templates of kernels over this tile refer to."""
    return {
        "T": C_TYPES[tile.dtype.name][0], "V": vector_name(tile.lanes, tile.dtype), "L": tile.lanes,
        "MR": tile.rows, "NV": tile.vectors, "NR": tile.panel, "size": tile.dtype.itemsize,
    }


def prelude(tile: Tile, epilogue: Epilogue) -> str:
    """Vector types and functions that the kernel uses; guarded, so that it may be repeated in a file."""
    return HEAD + vector_type(tile.lanes, tile.dtype) + definitions(epilogue.functions(), tile.lanes, tile.dtype)


def definitions_of(symbol: str, tile: Tile, epilogue: Epilogue, heights: Iterable[int]) -> str:
    """The tile's struct, body and instances for tiles of the given heights, and `NAME_block` that chooses one."""
    given = names(tile) | {"S": symbol}
    parts = [fill(_TILE, **given, half=3, ahead=16 * tile.panel, slot_fields=_fields(epilogue, given),
                  slot_loads=_loads(epilogue, given), epilogue=epilogue.vector(str(given["V"])))]
    have = sorted(set(heights))
    variants = [("whole", tile.vectors, 0, ""), ("narrow", 1, 1, "p"), ("wide", tile.vectors, 1, "p")]
    tables: dict[str, str] = {}
    for kind, vectors, partial, suffix in variants:
        entries = ["0"] * tile.rows
        for r in have:
            entries[r - 1] = f"{symbol}_{r}x{vectors}{suffix}"
            if kind != "wide" or tile.vectors > 1:
                parts.append(fill(_INSTANCE, **given, R=r, W=vectors, partial=partial, suffix=suffix))
        tables[kind] = ", ".join(entries)
    parts.append(fill(_RUN, **given, **tables))
    return "".join(parts)


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
