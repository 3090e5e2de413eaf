"""The path of a matrix product with one row and a constant B: several panels of B are read at once.

One row meets each element of B once, so it takes as long as its memory.  Processors fetch ahead on their own, for each
stream of addresses up to the end of a page of 4 KB: of several streams, others go on where one begins a new page.  What
code fetches ahead takes the places of what is fetched that way, so here it fetches nothing.
"""

from irc.kernels.core.costs import LATENCY
from irc.kernels.core.isa import Isa

VECTOR = {1: 0.7, 2: 0.71, 3: 0.68}
"""Cycles that a vector of B takes, at least, by the vectors of a panel: from memory wide panels come faster."""

ABREAST = """
/* G panels of B from column col on. */
IRC_INLINE void ${S}_panels(const int G, const ${S}_args *g, const ${S}_out *o, const $T *a, const $T *b, int64_t col) {
    const int U = $abreast * $NV < 8 ? 2 : 1; /* few sums: twice as many hide the latency of additions */
    const int64_t next = g->k * $NR, a_col = g->a_col;
    const int64_t blocks = g->k > 0 ? (g->k + $sum - 1) / $sum : 1, step = (g->k + blocks - 1) / blocks;
    _Alignas(64) $T sums[$abreast * $NR];
    EACH(i < G * $NV) ${V}_store(sums + i * $L, ($V){0});
    for (int64_t k = g->k; k > 0;) { /* sums of blocks lose less than one long sum */
        int64_t some = k < step ? k : step;
        $V acc[$abreast][$NV], odd[$abreast][$NV];
        EACH(p < G, w < $NV) acc[p][w] = odd[p][w] = ${V}_zeros();
        k -= some;
        for (; some >= U; some -= U, a += U * a_col, b += U * $NR) {
            const $V x = ${V}_all(a[0]), y = ${V}_all(a[(U - 1) * a_col]);
            EACH(p < G, w < $NV) acc[p][w] += x * ${V}_load(b + p * next + w * $L);
            if (U == 1) continue;
            EACH(p < G, w < $NV) odd[p][w] += y * ${V}_load(b + p * next + $NR + w * $L);
        }
        if (some > 0) {
            const $V x = ${V}_all(a[0]);
            EACH(p < G, w < $NV) acc[p][w] += x * ${V}_load(b + p * next + w * $L);
            a += a_col;
            b += $NR;
        }
        IRC_FULL_UNROLL
        for (int p = 0; p < G; p++) {
            IRC_FULL_UNROLL
            for (int w = 0; w < $NV; w++) {
                $T *const to = sums + (p * $NV + w) * $L;
                ${V}_store(to, ${V}_load(to) + (acc[p][w] + odd[p][w]));
            }
        }
    }
    for (int64_t i = 0; i < G * $NR && col + i < o->n; i += $L) {
        const int64_t part = o->n - col - i;
        const $V x = ${V}_load(sums + i);
        if (part < $L) ${V}_store_part(o->c + col + i, ${S}_epilogue(o, x, 0, col + i, part), part);
        else ${V}_store(o->c + col + i, ${S}_epilogue(o, x, 0, col + i, $L));
    }
}

/* One row: columns col to col1 of one matrix. */
static void ${S}_row(const ${S}_args *g, const ${S}_out *o, const $T *a, const $T *b, int64_t col, int64_t col1) {
    for (; col + ($abreast - 1) * $NR < col1; col += $abreast * $NR)
        ${S}_panels($abreast, g, o, a, b + col * g->k, col);
    for (; col + $NR < col1; col += 2 * $NR) ${S}_panels(2, g, o, a, b + col * g->k, col);
    if (col < col1) ${S}_panels(1, g, o, a, b + col * g->k, col);
}
"""

ONE_ROW = """
static void ${S}_range(const ${S}_args *g, const ${S}_out *o, const $T *a, const $T *b, char *own, int64_t t0,
                       int64_t t1, int64_t col0, int64_t col1) {
    (void)own, (void)t0, (void)t1;
    ${S}_row(g, o, a, b, col0, col1);
}
"""
"""What `NAME_range` is where there is never another row."""


def row_cycles(isa: Isa, abreast: int, vectors: int, panels: int) -> float:
    """Estimate the cycles of each step of a sum over k in one row of so many panels; those left over go in pairs."""
    groups, rest = divmod(panels, abreast)
    pairs, last = divmod(rest, 2)
    panel, waits = vectors * max(VECTOR[vectors], 1 / isa.fma), LATENCY / (2 if abreast * vectors < 8 else 1)
    return sum(count * max(some * panel, waits) for some, count in ((abreast, groups), (2, pairs), (1, last)))
