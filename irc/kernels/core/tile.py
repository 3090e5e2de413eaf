"""The register tile that all contractions share: rows × vectors of accumulators over packed operands.

One body, instantiated for each height (rows) and width (vectors) that a kernel needs, adds A · B over k to zero or
to what stands in C.  Operand A holds k × rows values (one tile's rows side by side), operand B k × panel values.
Bodies know nothing of the kernel that calls them: kernels in one file share them.  The
epilogue is applied by `NAME_block`, the kernel's own, as soon as a tile is complete: it is still in the first cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from irc.ir.dim import Dim, DimLike
from irc.ir.types import DType, f32
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import C_TYPES, FETCH_ROWS, HEAD, ISAS, Isa, vector_name, vector_type
from irc.kernels.core.text import Part, fill, piece, tile_body
from irc.kernels.vector.vecmath import definitions

FETCHED, MOST_STEPS = 256, 4
"""Bytes of B in the steps that fetch together: of the tiles that share the next panel each fetches a line of as many,
where they are four or more; and the steps, at most."""
ADD_AND_STORE = """\
    if (from) {
        IRC_FULL_UNROLL
        for (int i = 0; i < R; i++, from += from_row) {
            EACH(w < W) acc[i][w] += ${V}_load(from + w * $L);
        }
    }
    IRC_FULL_UNROLL
    for (int i = 0; i < R; i++, to += to_row) {
        EACH(w < W) ${V}_store(to + w * $L, acc[i][w]);
    }
}
"""
"""The end of a tile's body: the sums of before are added, if there are any, and all are stored."""
_TILE = (
    """\
typedef void ${tile}_run(int64_t k, const $T *a, const $T *b, const $T *from, int64_t from_row, $T *to, int64_t to_row,
                         const $T *ahead, int64_t hop);
/* to[R][W vectors] = from + A[k][R] * B[k][$NR], from NULL: 0; fetches from `ahead` on `hop` elements for each k. */
IRC_INLINE void ${tile}(const int R, const int W, int64_t k, const $T *restrict a, const $T *restrict b,
                        const $T *from, int64_t from_row, $T *to, int64_t to_row, const $T *ahead, int64_t hop) {
    $V acc[$MR][$NV], odd[$MR][$NV], bv[$NV];
    const int U = R <= 3 && R * W < 8 ? 2 : 1; /* few sums: twice as many hide the latency of the additions */
    IRC_FULL_UNROLL
    for (int i = 0; i < R; i++) {
        IRC_FULL_UNROLL
        for (int w = 0; w < W; w++) {
            odd[i][w] = ${V}_zeros();
            acc[i][w] = odd[i][w]; /* the sum so far is added last: sums of blocks lose less than one long sum */
        }
    }
    /* Of one row each vector has one product, which may as well load it. */
    for (; U == 1 && k >= $steps; k -= $steps) { /* that share what they fetch: lines fetched twice would cost time */
        __builtin_prefetch(ahead);
        if ($steps * hop * $size > 64) {
            IRC_FULL_UNROLL
            for (int line = 64; line < $steps * $NR * $size; line += 64) __builtin_prefetch(ahead + line / $size);
        }
        ahead += $steps * hop;
        IRC_FULL_UNROLL
        for (int step = 0; step < $steps; step++, a += R, b += $NR) {
            EACH(w < W) bv[w] = R > 1 ? ${V}_load_kept(b + w * $L) : ${V}_load(b + w * $L);
            EACH(i < R, w < W) ${V}_add_product(&acc[i][w], a[i], bv[w]);
        }
    }
    for (; k >= U; k -= U, a += U * R, b += U * $NR) {
        EACH(w < W) bv[w] = R > 1 ? ${V}_load_kept(b + w * $L) : ${V}_load(b + w * $L);
        IRC_FULL_UNROLL
        for (int line = 0; line < U * $NR * $size; line += 64) __builtin_prefetch(ahead + line / $size);
        ahead += U * hop;
        EACH(i < R, w < W) ${V}_add_product(&acc[i][w], a[i], bv[w]);
        if (U == 1) continue;
        EACH(w < W) bv[w] = R > 1 ? ${V}_load_kept(b + $NR + w * $L) : ${V}_load(b + $NR + w * $L);
        EACH(i < R, w < W) ${V}_add_product(&odd[i][w], a[R + i], bv[w]);
    }
    if (U == 2) {
        IRC_FULL_UNROLL
        for (int i = 0; i < R; i++) {
            IRC_FULL_UNROLL
            for (int w = 0; w < W; w++) {
                if (k) acc[i][w] += a[i] * ${V}_load(b + w * $L);
                acc[i][w] += odd[i][w];
            }
        }
    }
"""
    + ADD_AND_STORE
)

_INSTANCE = """\
static void ${tile}_$instance(int64_t k, const $T *a, const $T *b, const $T *from, int64_t from_row, $T *to,
                              int64_t to_row, const $T *ahead, int64_t hop) {
    $tile($R, $W, k, a, b, from, from_row, to, to_row, ahead, hop);
}
"""

_EPILOGUE = """
typedef struct {
    $stored *c;
    int64_t c_row, n;$slot_fields
} ${S}_out;

IRC_INLINE $V ${S}_epilogue(const ${S}_out *o, $V acc, int64_t row, int64_t col, int64_t part) {
    (void)o, (void)row, (void)col, (void)part;$slot_loads
    return $epilogue;
}
"""

FETCH = """
/* Fetches the lines of the output that a tile will be written to, if all its columns are there. */
IRC_INLINE void ${S}_fetch(const ${S}_out *o, int rows, int64_t row, int64_t col) {
    if (o->n - col < $NR) return;
    for (int i = 0; i < rows; i++) {
        IRC_FULL_UNROLL
        for (int j = 0; j < $NR; j += 64 / (int)sizeof *o->c)
            __builtin_prefetch(o->c + (row + i) * o->c_row + col + j, 1, 2);
    }
}
"""
WHOLE_COLUMNS = """\
        for (int i = 0; i < rows; i++) {
            IRC_FULL_UNROLL
            for (int w = 0; w < $NV; w++)
                ${V}_store(c + i * o->c_row + w * $L,
                           ${S}_epilogue(o, ${V}_load(sums + i * $NR + w * $L), row + i, col + w * $L, $L));
        }
        return;
"""
"""The end of a block where all its columns are there: `sums` go to C through the epilogue."""
LAST_COLUMNS = """\
    const int64_t whole_vectors = left / $L * $L;
    for (int64_t at = 0; at < whole_vectors; at += $L) {
        for (int i = 0; i < rows; i++) {
            $V x = ${V}_load(sums + i * $NR + at);
            if (done) x = ${S}_epilogue(o, x, row + i, col + at, $L);
            ${V}_store(c + i * o->c_row + at, x);
        }
    }
    if (whole_vectors == left) return;
    for (int i = 0; i < rows; i++) {
        const int64_t at = whole_vectors, part = left - at;
        $V x = ${V}_load(sums + i * $NR + at);
        if (done) x = ${S}_epilogue(o, x, row + i, col + at, part);
        ${V}_store_part(c + i * o->c_row + at, x, part);
    }
}
"""
"""The end of a block at the last columns: from `sums` whole vectors of all rows first, then what is left of them."""
_BLOCK = (
    FETCH
    + """
/* k more products of the tile of `rows` rows at (row, col).  Its sums are in `sums`; before the `first` products they
 * are in the output if `begun`, else 0; after the `last` they go to the output, through the epilogue if `done`. */
static void ${S}_block(const ${S}_out *o, int rows, int64_t row, int64_t col, int64_t k, const $T *a, const $T *b,
                       $T *sums, int first, int last, int begun, int done, const $T *ahead, int64_t hop) {
    static ${tile}_run *const whole[] = {$whole};$narrow_table
    $T *c = o->c + row * o->c_row + col;
    const int64_t left = o->n - col;
    const int direct = left >= $NR;
    const $T *from = first ? begun ? c : 0 : sums;
    if (from == c && !direct) {
        for (int i = 0; i < rows; i++)
            for (int w = 0; w < $NV; w++)
                ${V}_store(sums + i * $NR + w * $L, ${V}_load_part(c + i * o->c_row + w * $L, left - w * $L));
        from = sums;
    }
    const int64_t from_row = from == c ? o->c_row : $NR;
    if (first && rows > 1) ${S}_fetch(o, rows, row, col); /* nothing fetches rows far apart: stores would wait */
    if (last && direct && (!done || $plain)) {
        whole[rows - 1](k, a, b, from, from_row, c, o->c_row, ahead, hop);
        return;
    }
    ${choose}(k, a, b, from, from_row, sums, $NR, ahead, hop);
    if (!last) return;
    if (direct) {
"""
    + WHOLE_COLUMNS
    + """\
    }
"""
    + LAST_COLUMNS
)


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
        """The columns of a tile."""
        return self.lanes * self.vectors

    @property
    def is_wide(self) -> bool:
        """Whether vectors hold 16 lanes of f32: kernels of such tiles have variants that store bf16."""
        return self.lanes == 16 and self.dtype == f32

    @property
    def name(self) -> str:
        """The C name of its bodies."""
        return f"irc_tile_{self.registers}_{self.rows}x{self.vectors}"

    @property
    def registers(self) -> str:
        """The part of C names for its registers: the type, the set, and the lanes where half of them are used."""
        lanes = f"_{self.lanes}_lanes" * (self.isa.vector < ISAS[self.isa.name].vector)
        return f"{self.dtype.name}_{self.isa.name}{lanes}"


def heights_of(m: DimLike, rows: int) -> tuple[int, ...]:
    """List the tile heights that m rows are cut into: tiles as equal as possible."""
    size = Dim.of(m)
    if not size.is_const:
        return tuple(range(1, rows + 1))
    total = int(size)
    tiles = max(1, -(-total // rows))
    return tuple(h for h in (total // tiles, -(-total // tiles)) if h)[:: 1 if total % tiles else 2] or (1,)


def names(tile: Tile) -> dict[str, object]:
    """Return the names in templates of kernels over this tile."""
    return {
        "T": C_TYPES[tile.dtype.name][0],
        "V": vector_name(tile.lanes, tile.dtype),
        "L": tile.lanes,
        "MR": tile.rows,
        "NV": tile.vectors,
        "NR": tile.panel,
        "size": tile.dtype.itemsize,
        "tile": tile.name,
        "steps": min(MOST_STEPS, max(1, FETCHED // (tile.panel * tile.dtype.itemsize))),
    }


def prelude(tile: Tile, epilogue: Epilogue) -> list[Part]:
    """List the vector types and functions that the kernel uses, and what fetches rows."""
    types = [vector_type(lanes, tile.dtype) for lanes in sorted({4, tile.lanes})]
    return [HEAD, FETCH_ROWS, *types, definitions(epilogue.functions(), tile.lanes, tile.dtype)]


@dataclass(frozen=True)
class Variants:
    """The bodies that a kernel needs: tiles of these heights, full width and (`narrow`) one vector wide."""

    heights: tuple[int, ...]
    narrow: bool

    def instance(self, rows: int, vectors: int) -> str:
        return f"{rows}x{vectors}"


def bodies(tile: Tile, variants: Variants) -> list[Part]:
    """Print the bodies of the variants."""
    given = names(tile)
    widths = (1, tile.vectors) if variants.narrow and tile.vectors > 1 else (tile.vectors,)
    instances = [(r, w, variants.instance(r, w)) for r in variants.heights for w in widths]
    return [
        tile_body(tile.name, _TILE, **given),
        *(piece("IRC_TILE_${tile}_$instance", _INSTANCE, **given, R=r, W=w, instance=i) for r, w, i in instances),
    ]


def block(symbol: str, tile: Tile, epilogue: Epilogue, variants: Variants) -> str:
    """Print `NAME_block`, which computes one tile, and what it needs: `epilogue_of`."""
    narrow = variants.narrow
    given = names(tile) | {"S": symbol}
    one = f"\n    static {tile.name}_run *const narrow[] = {{{table_of(tile.name, variants, 1)}}};" if narrow else ""
    return epilogue_of(symbol, tile, epilogue) + fill(
        _BLOCK,
        **given,
        whole=table_of(tile.name, variants, tile.vectors),
        narrow_table=one,
        choose=body_of(tile, narrow, "rows"),
        plain=int(not epilogue.key()),
    )


def table_of(body: str, variants: Variants, width: int) -> str:
    """Print the initialiser of a table of the bodies of a name, `width` vectors wide, by their rows less one."""
    have = set(variants.heights)
    return ", ".join(f"{body}_{variants.instance(r, width)}" if r in have else "0" for r in range(1, max(have) + 1))


def body_of(tile: Tile, narrow: bool, rows: str) -> str:
    """Print the expression for the body of `rows` rows and `left` columns, from the tables `whole` and `narrow`.

    Not `(left <= L ? narrow : whole)[rows - 1]`: gcc's -fsanitize=object-size reports that valid access.
    """
    return f"(left <= {tile.lanes} ? narrow[{rows} - 1] : whole[{rows} - 1])" if narrow else f"whole[{rows} - 1]"


def epilogue_of(symbol: str, tile: Tile, epilogue: Epilogue, stored: object = None) -> str:
    """Print the struct `NAME_out` and `NAME_epilogue`, which turns a vector of accumulators into what is stored.

    stored: the C type of the result's elements, if it is not the tile's.
    """
    given = names(tile) | {"S": symbol}
    given["stored"] = stored or given["T"]
    values, result = epilogue.vector(str(given["V"]))
    return fill(
        _EPILOGUE,
        **given,
        slot_fields=_fields(epilogue, given),
        slot_loads=_loads(epilogue, given) + "".join(f"\n    {line}" for line in values),
        epilogue=result,
    )


def _fields(epilogue: Epilogue, given: dict[str, object]) -> str:
    rows = {f"s{i}": f"\n    int64_t s{i}_row;" for i, axes in enumerate(epilogue.slots) if axes in ("column", "full")}
    return "".join(f"\n    {t}{n};{rows.get(n, '')}" for n, t in epilogue.pointers(str(given["T"])))


def _loads(epilogue: Epilogue, given: dict[str, object]) -> str:
    v, lanes = given["V"], given["L"]
    kinds, found = dict(epilogue.byte_slots), list[str]()
    for i, axes in enumerate(epilogue.slots):
        at = f"o->s{i}" + (f" + row * o->s{i}_row" if axes in ("column", "full") else "")
        half, byte = i in epilogue.bf16_slots, kinds.get(i)
        if axes in ("row", "full"):
            at, load = f"{at} + col", "irc_half_load" if half else f"{v}_of_{byte}" if byte else f"{v}_load"
            value = f"part < {lanes} ? {load}_part({at}, part) : {load}({at})"
        else:
            value = f"{v}_all(irc_half_value(*({at})))" if half else f"{v}_all(*({at}))"
        found.append(f"\n    const {v} slot{i} = {value};")
    return "".join(found)
