"""Products of bf16 pairs by the instructions of AVX512-BF16, for one term.

They do what `irc.kernels.split_bf16.bf16_terms` does with tiles, on operands that are stored as for tiles.

A block of rows is multiplied with both column tiles of a panel at a time: each pair of A is spread over a vector, and
its products with 16 pairs of B are added to 16 sums.

Unlike in f32, pairs are rounded as tiles round them, and denormal terms and sums are zero.
"""

from __future__ import annotations

from irc.kernels.core.text import Part, Piece, fill, piece

HEIGHTS = (14, 8, 7, 4, 2, 1)  # rows of the blocks: 14 × 2 sums and three operands take 31 registers of 32
LATENCY = 6  # rows that keep the processor busy: two products a cycle, of which each waits for the one before
MOST_ROWS = 32  # at most, of two tiles

_HEAD = """/* One pair of k more. */
IRC_INLINE void ${name}_pair(const int N, const uint16_t *a, int64_t row, const uint16_t *b,
                             irc_f32x16 (*const sums)[$W]) {
    irc_u32x16 pairs[$W];
    EACH(w < $W) pairs[w] = *(const irc_u32x16_memory *)(b + w * 512);
    IRC_FULL_UNROLL
    for (int r = 0; r < N; r++) {
        const irc_u32x16 x = *(const irc_pair_memory *)(a + r * row) - (irc_u32x16){0};
        for (int w = 0; w < $W; w++) sums[r][w] = irc_dot(sums[r][w], x, pairs[w]);
    }
}

/* N rows x $W columns of 16, $what: sums over k, of `tail` elements (an even number) in the last chunk and 32 in the
 * others.  Rows of A stand `row` elements apart, their chunk c at + offsets[c], or without offsets at + c * step.  With
 * each chunk, `lines` cache lines from `ahead` on are fetched. */
IRC_INLINE void $name(const int N, int64_t chunks, int64_t tail, const uint16_t *a, int64_t row, int64_t step,
                      const int64_t *offsets, const uint16_t *b, $result, const char *ahead, int64_t lines) {
    irc_f32x16 sums[$most][$W];
    IRC_FULL_UNROLL
    for (int r = 0; r < N; r++)
        for (int w = 0; w < $W; w++) sums[r][w] = (irc_f32x16){0};
    for (int64_t c = 0; c < chunks; c++, b += 1024) {
        const uint16_t *const from = a + (offsets ? offsets[c] : c * step);
        for (int64_t i = 0; i < lines; i++, ahead += 64) __builtin_prefetch(ahead, 0, 2);
        if (c + 1 < chunks || tail == 32) /* the compiler then knows how many rounds */
            for (int64_t k = 0; k < 32; k += 2) ${name}_pair(N, from + k, row, b + k * 16, sums);
        else
            for (int64_t k = 0; k < tail; k += 2) ${name}_pair(N, from + k, row, b + k * 16, sums);
    }
    IRC_FULL_UNROLL
    for (int r = 0; r < N; r++) {
        IRC_FULL_UNROLL
        for (int w = 0; w < $W; w++) $finish
    }
}

/* The same of 1 to $rows rows, in blocks of equal height: where they do not come out even, some are computed twice. */
static void ${name}_rows(int64_t rows, int64_t chunks, int64_t tail, const uint16_t *a, int64_t row, int64_t step,
                         const int64_t *offsets, const uint16_t *b, $result, const char *ahead, int64_t lines) {
    static const uint8_t heights[] = {$heights};
    const int64_t n = heights[rows];
    for (int64_t r = 0; r < rows; r += n, lines = 0) {
        if (r > rows - n) r = rows - n;
        const uint16_t *const from = a + r * row;
$calls    }
}
"""

_FINISH = """{
            const irc_f32x16 x = sums[r][w];
            *poison = irc_note(*poison, x * 0.0f);
            $SY(o->c + (at + r) * o->c_row + col + 16 * w, ${S}_epilogue(o, x, at + r, col + 16 * w, 16));
        }"""

_TYPES = Piece(
    "IRC_DOTS",
    """typedef uint32_t irc_pair_memory __attribute__((aligned(2), may_alias));
IRC_HELPER irc_f32x16 irc_dot(irc_f32x16 sum, irc_u32x16 a, irc_u32x16 b) {
    return (irc_f32x16)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
""",
)

_PRODUCTS = """\
/* A block of $R x $W tiles, each `height` rows: out[row][column] = sum over k, rows `out_row` elements apart. */
IRC_INLINE void irc_products_$name(int64_t chunks, const uint16_t *a, int64_t height, const uint16_t *b, float *out,
                                   int64_t out_row, const char *ahead, int64_t lines) {
    irc_dots_${W}_rows(height * $R, chunks, 32, a, 32, height * ($R * 32), 0, b, out, out_row, ahead, lines);
}
"""

_TAPS = """\
/* The same of A read where it is: row tiles a0 and a1, their rows `row` bytes apart, chunk c at + offsets[c]. */
IRC_INLINE void irc_taps_$name(int64_t chunks, const uint16_t *a0, const uint16_t *a1, const int64_t *offsets,
                               int64_t term, int64_t row, int64_t height, const uint16_t *b, float *out,
                               int64_t out_row, const char *ahead, int64_t lines) {
    (void)a1, (void)term;
    irc_dots_${W}_rows(height, chunks, 32, a0, row / 2, 0, offsets, b, out, out_row, ahead, lines);
$second}
"""
_SECOND = """    irc_dots_${W}_rows(height, chunks, 32, a1, row / 2, 0, offsets, b, out + height * out_row, out_row,
                       ahead, 0);
"""


def products(rows: int, columns: int, name: str) -> list[Part]:
    """Print `irc_products_NAME` for a block of rows × columns tiles of one term: A packed."""
    return [core(columns), piece("IRC_DOT_PRODUCTS_$name", _PRODUCTS, name=name, R=rows, W=columns)]


def taps(rows: int, columns: int, name: str) -> list[Part]:
    """Print `irc_taps_NAME`: A in place."""
    second = fill(_SECOND, W=columns) if rows == 2 else ""
    return [core(columns), piece("IRC_DOT_TAPS_$name", _TAPS, name=name, W=columns, second=second)]


def height_of(rows: int) -> int:
    """Choose the rows of the blocks that rows are cut into: the highest of those that take the least time."""
    return min((h for h in HEIGHTS if h <= rows), key=lambda h: -(-rows // h) * max(h, LATENCY))


def covered(rows: int) -> int:
    """Count the rows that are computed for this many."""
    height = height_of(rows)
    return -(-rows // height) * height


def core(columns: int) -> list[Part]:
    """Print `irc_dots_COLUMNS` and `irc_dots_COLUMNS_rows`: sums go to `out`, whose rows are `out_row` apart."""
    name = f"irc_dots_{columns}"
    code = _rows(
        name,
        columns,
        "to `out`",
        ("float *out", "int64_t out_row"),
        ("out + r * out_row", "out_row"),
        "irc_f32x16_store(out + r * out_row + 16 * w, sums[r][w]);",
    )
    return [_TYPES, Piece(f"IRC_{name.upper()}", code)]


def finished(symbol: str, columns: int, names: dict[str, object]) -> list[Part]:
    """Print `NAME_dots_COLUMNS` and its `_rows`: sums through the epilogue to C; `poison` is NaN if one is not finite.

    names: those of `irc.kernels.vector.bf16_io.names`.
    """
    code = _rows(
        f"{symbol}_dots_{columns}",
        columns,
        "through the epilogue",
        (f"const {symbol}_out *o", "int64_t at", "int64_t col", "irc_f32x16 *poison"),
        ("o", "at + r", "col", "poison"),
        fill(_FINISH, **names, S=symbol),
    )
    return [_TYPES, code]


def _rows(name: str, columns: int, what: str, result: tuple[str, ...], given: tuple[str, ...], finish: str) -> str:
    """Print both functions; result: parameters for where sums go, given: the same of the rows from r on."""
    call = f"{name}({{}}, chunks, tail, from, row, step, offsets, b, {', '.join(given)}, ahead, lines);\n"
    calls = "        else ".join(f"if (n == {h}) " * (h > 1) + call.format(h) for h in HEIGHTS)
    heights = ", ".join(str(height_of(rows) if rows else 0) for rows in range(MOST_ROWS + 1))
    return fill(
        _HEAD,
        name=name,
        W=columns,
        what=what,
        result=", ".join(result),
        finish=finish,
        most=HEIGHTS[0],
        rows=MOST_ROWS,
        heights=heights,
        calls=f"        {calls}",
    )
