"""How a product is divided into tasks: ranges of tiles of rows by ranges of columns, of every matrix."""

from __future__ import annotations

from collections.abc import Sequence

from irc.kernels.core.tile import Tile
from irc.kernels.gemm.problem import GemmProblem

TILES_PER_TASK = 4
COLUMNS_PER_TASK = 32
FEW_TASKS = 8
"""Tasks so many of which threads share evenly enough, whatever their number."""
WORTHWHILE = 100_000
"""Products below which one thread does all."""

PARTS = """
/* Tasks: ranges of rows x ranges of columns of every matrix, in an order in which neighbours, which are done together,
 * share more. */
typedef struct {
    int64_t tiles, columns, down, across, inner, outer;
} ${S}_plan;

IRC_INLINE ${S}_plan ${S}_tasks(const ${S}_args *g) {
    const int64_t tiles = ${S}_split($rows).tiles, columns = $columns, whole = columns / $NT;
    /* A few columns behind several ranges are the last one's. */
    const int64_t across = whole + (columns % $NT > 0 && (whole < 2 || columns % $NT * 4 > $NT));
    int64_t down = (tiles + $TT - 1) / $TT;
    const int64_t tasks = g->batch0 * g->batch1 * down * across;
    /* Threads have equal shares of an even number of tasks, and nearly equal ones of many. */
    if (tasks % 2 && tasks < $few_tasks) down = 2 * down < tiles ? 2 * down : tiles;
    const int wide = $wide;
    return (${S}_plan){tiles, columns, down, across, wide ? down : across, wide ? across : down};
}

static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const ${S}_plan plan = ${S}_tasks(g);
    while (begin < end) {
        const int64_t first = begin % plan.inner, line = begin / plan.inner % plan.outer;
        const int64_t image = begin / plan.inner / plan.outer, left = end - begin;
        int64_t run = plan.inner - first < left ? plan.inner - first : left, lines = 1;
        if (run == plan.inner) lines = left / run < plan.outer - line ? left / run : plan.outer - line;
        const int wide = $wide;
        const int64_t row0 = wide ? first : line, row1 = row0 + (wide ? run : lines);
        const int64_t at0 = wide ? line : first, at1 = at0 + (wide ? lines : run);
        const int64_t i = image / g->batch1, j = image % g->batch1;
        ${S}_out o = {.c = g->c + i * g->c_batch0 + j * g->c_batch1, .c_row = g->c_row, .n = g->n};$slot_starts
        const $T *b = $packed_b;
        ${S}_range(g, &o, g->a + i * g->a_batch0 + j * g->a_batch1, b, own, plan.tiles * row0 / plan.down,
                   plan.tiles * row1 / plan.down, at0 * $NT, at1 < plan.across ? at1 * $NT : plan.columns);
        begin += run * lines;
    }
}
"""
"""Tasks of `rows` of A, cut into tiles, and `columns` of B, which call `NAME_range`; wide: whether those in a column,
and not those in a row, follow one another."""
WIDE = "g->n > g->m"


def columns(tile: Tile) -> int:
    """Count the columns of a task, whole panels."""
    return -(-COLUMNS_PER_TASK // tile.panel) * tile.panel


def names(of_task: int) -> dict[str, object]:
    """Return the names in `PARTS` of the extents of a task with so many columns."""
    return {"TT": TILES_PER_TASK, "NT": of_task, "few_tasks": FEW_TASKS}


def ranges(m: int, n: int, count: int, tile: Tile) -> tuple[int, int]:
    """Count the ranges of rows and of columns of each of so many products, as `PARTS` does."""
    tiles, size = -(-m // tile.rows), columns(tile)
    across = n // size + (n % size > 0 and (n // size < 2 or n % size * 4 > size))
    down = -(-tiles // TILES_PER_TASK)
    tasks = count * down * across
    return (min(2 * down, tiles) if tasks % 2 and tasks < FEW_TASKS else down), across


def imbalance(problem: GemmProblem, tile: Tile, narrow: bool) -> float:
    """Estimate how many times as long as half of a product of known sizes the longer share of two threads takes.

    Two have the first and the second half of the tasks.  narrow: whether columns left over may take one vector.
    """
    m, n, k, count = (d.const for d in (problem.m, problem.n, problem.k, problem.count))
    if not m or not n or not k or not count or count * m * n * k < WORTHWHILE:
        return 1.0
    tiles, size = -(-m // tile.rows), columns(tile)
    down, across = ranges(m, n, count, tile)
    widths = [size] * (across - 1) + [n - size * (across - 1)]
    heights = [tiles * (i + 1) // down - tiles * i // down for i in range(down)]
    vectors = [_vectors(width, tile, narrow) for width in widths]
    of_one = [h * v for v in vectors for h in heights] if n > m else [h * v for h in heights for v in vectors]
    return longer_share(of_one, count)


def longer_share(work: Sequence[float], count: int) -> float:
    """Return the larger half of tasks that are repeated `count` times, in order, as a multiple of half of the work."""
    if count * len(work) > 4 * FEW_TASKS:
        return 1.0
    tasks = [*work] * count
    middle = -(-len(tasks) // 2)
    return 2 * max(sum(tasks[:middle]), sum(tasks[middle:])) / sum(tasks)


def _vectors(width: int, tile: Tile, narrow: bool) -> int:
    """Count the vectors that so many columns take: whole panels, and one that may be narrow."""
    whole, rest = divmod(width, tile.panel)
    return whole * tile.vectors + (0 if not rest else 1 if narrow and rest <= tile.lanes else tile.vectors)
