"""f32 values as sums of bf16 terms, and products of tiles of such terms, for kernels on AMX.

A value x is h + m + l: h is x rounded to bf16, m what is left rounded again, l the rest, which bf16 holds exactly.
One term gives a relative error of up to 2^-8 a value, two 2^-17, three none.  Of the products of two sums those are
computed that matter to the last term: 1 of 1, 3 of 4, 6 of 9; f32 accumulates.

Tiles: 16 rows of 32 terms of A, rows of k; 16 pairs of k × 16 columns of B, the two terms of a pair beside each other.
Four accumulators are two row tiles × two column tiles.  A is stored [chunk of 32 k][term][row tile][row][32], B
[panel of 32 columns][chunk][term][column tile][16 pairs][16 columns][2].

Not as in f32: AMX takes denormal terms and gives denormal sums as zero, so values below about 2^-108 lose terms.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from irc.kernels.core.text import Part, Piece, fill, piece
from irc.kernels.split_bf16 import dots

CHUNK = 32  # products that one tile instruction sums
TILE_ROWS = 16  # of a tile
PANEL = 32  # columns of two tiles
TERMS = {"highest": 3, "high": 2, "medium": 1}
Unit = Literal["amx", "dot"]  # what multiplies: AMX, or for one term the vectors of `irc.kernels.split_bf16.dots`
FEATURES: dict[Unit, frozenset[str]] = {
    "amx": frozenset(("amx_tile", "amx_bf16", "avx512_bf16")),
    "dot": frozenset(("avx512_bf16",)),
}
"""What the processor must have beyond 512-bit vectors, in the names of /proc/cpuinfo."""
BEGIN: dict[Unit, str] = {"amx": "    irc_tiles_begin({rows});\n", "dot": ""}
END: dict[Unit, str] = {"amx": "    _tile_release();\n", "dot": ""}
"""C statements before and after products of tiles with this many rows."""
POINTS: dict[Unit, int] = {"amx": 4, "dot": 1}  # with each chunk, places where lines that are far ahead are fetched
SPLITS = 4  # with each chunk, places where rows of the next panel of B are split


@dataclass(frozen=True)
class Meanwhile:
    """What vectors do between the products of a block.

    name: of products with it, in C; arguments: their further ones; statement: what stands at so many `places` of a
    chunk.  fetched: whether tiles of the next chunk are fetched, too.
    """

    name: str
    arguments: str
    statement: str
    places: int
    fetched: bool = True


SPLIT_MEANWHILE = Meanwhile(
    "splitting", ", irc_splitting *meanwhile, int64_t pairs", "irc_split_pairs(meanwhile, pairs);", SPLITS
)
"""Another panel of B becomes three terms."""


def split_rows_meanwhile(terms: int) -> Meanwhile:
    """Describe that another panel of a B that is no constant becomes terms."""
    arguments, statement = (
        ", irc_rows_splitting *meanwhile, int64_t pairs",
        f"irc_split_rows_{terms}(meanwhile, pairs);",
    )
    return Meanwhile("splitting_rows", arguments, statement, SPLITS)


TYPES = Piece(
    "IRC_TERMS",
    """typedef uint32_t irc_u32x16 __attribute__((vector_size(64)));
typedef uint16_t irc_u16x32 __attribute__((vector_size(64)));
typedef irc_u32x16 irc_u32x16_memory __attribute__((aligned(4), may_alias));
""",
)

TILES = Piece(
    "IRC_TILES",
    """/* Compilers do not know that tile instructions read memory: what is written before this stays before it. */
#define IRC_TILES_READ(p) __asm__ volatile("" : : "r"(p) : "memory")

/* 1 KiB into the first cache. */
IRC_HELPER void irc_fetch_tile(const char *p) {
    IRC_FULL_UNROLL
    for (int i = 0; i < 1024; i += 64) __builtin_prefetch(p + i);
}

/* An addition of floats.  After about 2000 cycles without any, Sapphire Rapids stores tiles 1000 cycles later. */
IRC_HELPER void irc_stay_awake(void) {
    float x = 0;
    __asm__ volatile("" : "+x"(x));
    x += x;
    __asm__ volatile("" : : "x"(x));
}

/* Tiles 0 to 3: sums, 4 and 5: A, both `rows` high; 6 and 7: B. */
IRC_HELPER void irc_tiles_begin(int64_t rows) {
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.bytes[i] = 64;
        config.rows[i] = i < 6 ? (uint8_t)rows : 16;
    }
    IRC_TILES_READ(&config);
    _tile_loadconfig(&config);
}
""",
)

_HEAD = """#include <immintrin.h>
/* Rounded to the eight digits of a bf16, ties away from zero; what is left is exact in f32.  A NaN may become a
 * number: then what is left is the NaN. */
IRC_HELPER irc_f32x16 irc_bf16_round(irc_f32x16 x) { return (irc_f32x16)(((irc_u32x16)x + 0x8000) & 0xffff0000); }
/* The upper halves of 32 floats. */
IRC_HELPER irc_u16x32 irc_bf16_halves(irc_f32x16 x, irc_f32x16 y) {
    return __builtin_shufflevector((irc_u16x32)x, (irc_u16x32)y, $odd);
}
/* 32 floats as bf16, nearest even; a NaN stays one. */
IRC_HELPER irc_u16x32 irc_bf16_nearest(irc_f32x16 x, irc_f32x16 y) {
    return (irc_u16x32)_mm512_cvtne2ps_pbh((__m512)y, (__m512)x);
}
/* Whether a lane is NaN. */
IRC_HELPER int irc_any_nan(irc_f32x16 x) {
    const irc_f32x16_mask bad = x != x;
    uint64_t words[8], any = 0;
    __builtin_memcpy(words, &bad, sizeof words);
    for (int i = 0; i < 8; i++) any |= words[i];
    return any != 0;
}
/* `poison`, NaN also where x is; else zeros.  Of bits, because each sum would wait for the one before. */
IRC_HELPER irc_f32x16 irc_note(irc_f32x16 poison, irc_f32x16 x) {
    return (irc_f32x16)((irc_u32x16)poison | (irc_u32x16)x);
}
IRC_HELPER void irc_bf16_store(uint16_t *p, irc_u16x32 x) { *(irc_u32x16_memory *)p = (irc_u32x16)x; }
/* 16 floats as bf16, nearest even. */
IRC_HELPER void irc_bf16_store_16(uint16_t *p, irc_f32x16 x) {
    const __m256bh y = _mm512_cvtneps_pbh((__m512)x);
    __builtin_memcpy(p, &y, sizeof y);
}
"""

_SPLIT = """/* Neighbours in k, 32 of them, as $T terms `step` elements apart. */
IRC_INLINE void irc_split_$T(irc_f32x16 x, irc_f32x16 y, uint16_t *to, int64_t step) {
    (void)step;
$statements}
"""

_TERM = """    const irc_f32x16 x$t = irc_bf16_round(x), y$t = irc_bf16_round(y);
    irc_bf16_store(to, irc_bf16_halves(x$t, y$t));
    x -= x$t;
    y -= y$t;
    to += step;
"""

_PAIR = """/* 16 columns of two rows, neighbours in k, as $T terms `step` elements apart in the order of tiles. */
IRC_INLINE void irc_pair_$T(irc_f32x16 x, irc_f32x16 y, uint16_t *to, int64_t step) {
    (void)step;
$statements}
"""

_PAIR_TERM = """    const irc_f32x16 x$t = irc_bf16_round(x), y$t = irc_bf16_round(y);
    irc_bf16_store(to, (irc_u16x32)((irc_u32x16)x$t >> 16 | (irc_u32x16)y$t));
    x -= x$t;
    y -= y$t;
    to += step;
"""
_PAIR_REST = "(irc_u16x32)((irc_u32x16)x >> 16 | ((irc_u32x16)y & 0xffff0000))"  # exactly what is left
_PAIR_NEAREST = "__builtin_shufflevector(irc_bf16_nearest(x, y), (irc_u16x32){{0}}, {order})"

SPLIT_PANEL = Piece(
    "IRC_AMX_SPLIT_PANEL",
    """/* B[k][32], chunks whole: rows from 32 * chunk0 on are to become three terms, in the order of tiles. */
typedef struct {
    const float *b;
    int64_t at, end; /* rows that are left */
    uint16_t *to;    /* the chunk of row `at` */
} irc_splitting;

IRC_HELPER irc_splitting irc_split_later(const float *b, int64_t chunk0, int64_t chunk1, uint16_t *to) {
    return (irc_splitting){b, 32 * chunk0, 32 * chunk1, to};
}

/* The next pairs of rows, at most so many.  A call between products would cost more than what it does. */
IRC_INLINE void irc_split_pairs(irc_splitting *s, int64_t pairs) {
    const int64_t left = (s->end - s->at) / 2, end = s->at + 2 * (pairs < left ? pairs : left);
    const float *b = s->b + s->at * 32;
    uint16_t *to = s->to + s->at % 32 * 16;
    for (int64_t at = s->at; at < end; at += 2, b += 64) {
        IRC_FULL_UNROLL
        for (int w = 0; w < 2; w++) {
            irc_f32x16 x = irc_f32x16_load(b + w * 16), y = irc_f32x16_load(b + 32 + w * 16);
            IRC_FULL_UNROLL
            for (int t = 0; t < 3; t++) {
                const irc_f32x16 x1 = t < 2 ? irc_bf16_round(x) : x, y1 = t < 2 ? irc_bf16_round(y) : y;
                const irc_u32x16 words = (irc_u32x16)x1 >> 16 | ((irc_u32x16)y1 & 0xffff0000);
                irc_bf16_store(to + t * 1024 + w * 512, (irc_u16x32)words);
                x -= x1;
                y -= y1;
            }
        }
        to += 32;
        if (at % 32 == 30) to = s->to += 3072;
    }
    s->at = end;
}
""",
)

ROWS_SPLITTING = Piece(
    "IRC_AMX_ROWS_SPLITTING",
    """/* Of a B that is no constant. */
typedef struct {
    const float *b;
    int64_t step, at, end, have;
    uint16_t *to; /* the chunk of row `at` */
    __mmask16 columns[2];
} irc_rows_splitting;

IRC_HELPER irc_rows_splitting irc_split_rows_later(const float *b, int64_t step, int64_t columns, int64_t have,
                                                   int64_t all, uint16_t *to) {
    const uint32_t real = columns < 32 ? (1u << columns) - 1 : 0xffffffff;
    return (irc_rows_splitting){b, step, 0, all, have, to, {(__mmask16)real, (__mmask16)(real >> 16)}};
}
""",
)

_SPLIT_ROWS = """\
/* Rows `at` to `end` of 32 columns, `step` elements apart, are to become $T terms, in the order of tiles; from row
 * `have` on they are zeros. */
IRC_INLINE void irc_split_rows_$T(irc_rows_splitting *s, int64_t pairs) {
    const int64_t left = (s->end - s->at) / 2, end = s->at + 2 * (pairs < left ? pairs : left), step = s->step;
    const float *b = s->b + s->at * step;
    uint16_t *to = s->to + s->at % 32 * 16;
    for (int64_t at = s->at; at < end; at += 2, b += 2 * step) {
        const __mmask16 even = at < s->have ? 0xffff : 0, odd = at + 1 < s->have ? 0xffff : 0;
        IRC_FULL_UNROLL
        for (int w = 0; w < 2; w++) {
            const irc_f32x16 x = (irc_f32x16)_mm512_maskz_loadu_ps(even & s->columns[w], b + w * 16);
            const irc_f32x16 y = (irc_f32x16)_mm512_maskz_loadu_ps(odd & s->columns[w], b + step + w * 16);
            /* Into the second cache: rows are often a power of two apart, and displace each other in the first. */
            __builtin_prefetch(b + 16 * step + w * 16, 0, 2);
            __builtin_prefetch(b + 17 * step + w * 16, 0, 2);
            irc_pair_$T(x, y, to + w * 512, 1024);
        }
        to += 32;
        if (at % 32 == 30) to = s->to += $T * 1024;
    }
    s->at = end;
}
"""

_PRODUCTS = """\
/* A block of $R x $W tiles, each `height` rows: out[row][column] = sum over k, rows `out_row` elements apart.  Between
 * products the tiles of the next chunk are fetched, and at $points places `lines` cache lines from `ahead` on. */
static void irc_products_$name(int64_t chunks, const uint16_t *a, int64_t height, const uint16_t *b, float *out,
                               int64_t out_row, const char *ahead, int64_t lines$meanwhile) {
    const int64_t tile = height * 32, term = tile * $R, step = term * $T;
    (void)term;
    IRC_TILES_READ(a);
    IRC_TILES_READ(b);
$zero    for (; chunks > 0; chunks--, a += step, b += $T * 1024) {
        const char *const a_next = (const char *)(a + step), *const b_next = (const char *)(b + $T * 1024);
        (void)a_next, (void)b_next;
$body    }
$store}
"""

_TAPS = """\
/* The same of A read where it is: row tiles a0 and a1, their rows `row` bytes apart, chunk c at + offsets[c] and its
 * terms `term` elements apart. */
static void irc_taps_$name(int64_t chunks, const uint16_t *a0, const uint16_t *a1, const int64_t *offsets, int64_t term,
                           int64_t row, int64_t height, const uint16_t *b, float *out, int64_t out_row,
                           const char *ahead, int64_t lines$meanwhile) {
    (void)a1, (void)height, (void)term;
    IRC_TILES_READ(a0);
    IRC_TILES_READ(b);
$zero    for (int64_t c = 0; c < chunks; c++, b += $T * 1024) {
        const int64_t at = offsets[c];
        const char *const b_next = (const char *)(b + $T * 1024);
$body    }
$store}
"""

# Pairs (term of A, term of B) in an order in which every pair shares a term, and so its tiles, with the one before.
ORDER = {1: ((0, 0),), 2: ((1, 0), (0, 0), (0, 1)), 3: ((2, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 0))}


def head(unit: Unit) -> list[Part]:
    """Print helpers; needs `TYPES` and the vector type of 16 floats."""
    common = piece("IRC_AMX", _HEAD, odd=", ".join(str(2 * i + 1) for i in range(32)))
    return [common, TILES] if unit == "amx" else [common]


def split(terms: int) -> Piece:
    """Print `irc_split_TERMS`."""
    last = "irc_bf16_halves(x, y)" if terms == 3 else "irc_bf16_nearest(x, y)"  # of three terms nothing is left
    lines = "".join(fill(_TERM, t=t) for t in range(terms - 1)) + f"    irc_bf16_store(to, {last});\n"
    return piece("IRC_AMX_SPLIT_$T", _SPLIT, T=terms, statements=lines)


def pair(terms: int) -> Piece:
    """Print `irc_pair_TERMS`."""
    order = ", ".join(f"{i}, {16 + i}" for i in range(16))
    last = _PAIR_REST if terms == 3 else _PAIR_NEAREST.format(order=order)
    lines = "".join(fill(_PAIR_TERM, t=t) for t in range(terms - 1)) + f"    irc_bf16_store(to, {last});\n"
    return piece("IRC_AMX_PAIR_$T", _PAIR, T=terms, statements=lines)


def split_rows(terms: int) -> list[Part]:
    """Print `irc_split_rows_TERMS`."""
    return [pair(terms), ROWS_SPLITTING, piece("IRC_AMX_SPLIT_ROWS_$T", _SPLIT_ROWS, T=terms)]


def products_name(terms: int, rows: int, columns: int, unit: Unit, work: Meanwhile | None = None) -> str:
    """Name a block of rows × columns tiles in C; work: what vectors do meanwhile."""
    meanwhile = f"_{work.name}" if work else ""
    return f"{terms}_{rows}x{columns}{meanwhile}" if unit == "amx" else f"dot_{rows}x{columns}"


def products(terms: int, rows: int, columns: int, unit: Unit, work: Meanwhile | None = None) -> list[Part]:
    """Print `irc_products_NAME`: A packed."""
    if unit == "dot":
        return dots.products(rows, columns, products_name(terms, rows, columns, unit))
    place = "a + $term * term + $r * tile, 64"
    return [_products("IRC_AMX_PRODUCTS_$name", _PRODUCTS, terms, rows, columns, place, terms * rows, work)]


def taps(terms: int, rows: int, columns: int, unit: Unit, work: Meanwhile | None = None) -> list[Part]:
    """Print `irc_taps_NAME`: A in place."""
    if unit == "dot":
        return dots.taps(rows, columns, products_name(terms, rows, columns, unit))
    place = "a${r} + at + $term * term, row"
    return [_products("IRC_AMX_TAPS_$name", _TAPS, terms, rows, columns, place, 0, work)]


def further(work: Meanwhile | None) -> str:
    """Print the further parameters of products with such work."""
    return work.arguments if work else ""


def more(work: Meanwhile | None) -> str:
    """Print the further arguments of calls of such products."""
    return ", meanwhile, pairs" if work else ""


def table(function: str, terms: int, variants: Collection[tuple[int, int]], work: Meanwhile | None) -> str:
    """Print the functions on AMX by whether their blocks have two row tiles and two column tiles; 0 for no variants."""
    blocks = [(r, w) for r in (1, 2) for w in (1, 2)]
    names = (f"{function}_{products_name(terms, r, w, 'amx', work)}" for r, w in blocks)
    return ", ".join(name if block in variants else "0" for name, block in zip(names, blocks, strict=True))


def splitting_names(work: Meanwhile | None, blocks: str) -> dict[str, str]:
    """Return the names in templates around calls that split B; blocks: how many multiply one panel, in C."""
    given = {"meanwhile": further(work).removesuffix(", int64_t pairs"), "split": ", &split"}
    given["pairs"] = (
        f"\n    const int64_t splits = {SPLITS} * ({blocks}); /* of {CHUNK // 2} pairs of rows in a chunk */"
    )
    given["pairs"] += f"\n    const int64_t pairs = ({CHUNK // 2} + splits - 1) / splits;"
    return given if work else dict.fromkeys(given, "")


def _meanwhile(terms: int, rows: int, columns: int, fetched: int, work: Meanwhile | None) -> dict[int, list[str]]:
    """Schedule the vectors' work and the loads between the products of a chunk, by the product that they follow.

    The tiles of the next chunk come into the first cache: tiles load faster than the second cache answers, and few
    loads are under way at a time.  fetched: tiles of A, one after the other from `a_next` on.  Those of B: of both
    columns, or the first of each term.  The lines `ahead` are fetched a few at a time, because they keep what waits
    for the first cache from its few places.
    """
    places = [fill("a_next + $at", at=1024 * i) for i in range(fetched)]
    places += [fill("b_next + $at", at=1024 * (2 * t + w)) for t in range(terms) for w in range(columns)]
    ahead = "for (int64_t i = 0; i < lines; i++, ahead += 64) __builtin_prefetch(ahead, 0, 2);"
    works = [[f"irc_fetch_tile({place});" for place in places]] if work is None or work.fetched else []
    works.append([ahead] * POINTS["amx"])
    works += [[work.statement] * work.places] if work else []
    products, found = len(ORDER[terms]) * rows * columns, dict[int, list[str]]()
    for statements in works:
        for i, statement in enumerate(statements):
            found.setdefault(products * i // len(statements), []).append(statement)
    return found


def _products(
    guard: str, text: str, terms: int, rows: int, columns: int, place: str, fetched: int, work: Meanwhile | None
) -> Piece:
    """Fill the text with its loads and products; place: of tile `term`, row tile `r`, with its stride."""
    accumulators = [(r, w, 2 * r + w) for r in range(rows) for w in range(columns)]
    meanwhile = _meanwhile(terms, rows, columns, fetched, work)
    lines = ["irc_stay_awake();"]
    here, number = (-1, -1), 0
    for a, b in ORDER[terms]:
        loaded: set[str] = set()
        for r, w, sums in accumulators:
            load_a = f"_tile_loadd({4 + r}, {fill(place, term=a, r=r)});"
            load_b = fill("_tile_loadd($to, b + $at, 64);", to=6 + w, at=(b * 2 + w) * 512)
            for name, load in ((f"a{r}", load_a), (f"b{w}", load_b)):
                if name not in loaded and (a != here[0] if name[0] == "a" else b != here[1]):
                    lines.append(load)
                loaded.add(name)
            lines += [f"_tile_dpbf16ps({sums}, {4 + r}, {6 + w});", *meanwhile.get(number, [])]
            number += 1
        here = (a, b)
    return piece(
        guard,
        text,
        name=products_name(terms, rows, columns, "amx", work),
        points=POINTS["amx"],
        meanwhile=further(work),
        T=terms,
        R=rows,
        W=columns,
        zero="".join(f"    _tile_zero({s});\n" for *_, s in accumulators),
        body="".join(f"        {line}\n" for line in lines),
        store="".join(
            fill("    _tile_stored($s, out + $r * height * out_row + $col, 4 * out_row);\n", s=s, r=r, col=16 * w)
            for r, w, s in accumulators
        ),
    )
