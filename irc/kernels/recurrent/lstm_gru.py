"""Recurrent layers: all steps of LSTM and GRU behind the product of their input with its weights.

The recurrent weights are packed in panels of one vector of hidden units, [direction][panel][hidden][gate][lanes], zero
padded: a panel gives all gates of its units in one pass over the state, `rows` sequences of the batch at once.  Every
second step goes through the panels backwards, so that it begins with what the second cache still holds of weights that
are larger than it.  The gates' functions and the new state follow vector by vector.

Threads split directions and ranges of the batch, each of which goes through its steps on its own.  Where that makes one
task, they split the panels of every step that is long enough for it: the state stands in two places in turn, so that
nobody writes what somebody else reads, and all meet at the end of a step, those of a GRU also where the products of the
reset state begin.  Results do not depend on either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from irc.ir.dim import Dim, DimLike
from irc.kernels.core.base import Array, Kernel, Packed, Sizes
from irc.kernels.core.costs import LOADS
from irc.kernels.core.epilogue import plain
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.reference import strided
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, heights_of, names, prelude
from irc.kernels.gemm.tasks import WORTHWHILE
from irc.kernels.recurrent.problem import GATES, Cell, Direction, RecurrentProblem
from irc.kernels.vector.vecmath import definitions

PASSES: dict[Cell, tuple[tuple[int, ...], ...]] = {
    "lstm": ((0, 1, 2, 3),),
    "gru": ((0, 1), (2,)),
    "gru_linear": ((0, 1, 2),),
}
"""The gates of each pass over the weights; one needs the results of the one before."""
SPLIT_PASS = 60_000  # products of a pass, on average, below which one thread does all of a step
CHAINS = 8  # sums that are added to independently, at least: two additions a cycle, of four cycles each

_CALL = """
/* Of one sequence in scratch: the state behind an even number of steps, behind an odd one, the cell (LSTM) or the state
 * after the reset (GRU), then the sums of gates. */
IRC_INLINE int64_t ${S}_wide(int64_t hidden) { return (hidden + $L - 1) / $L * $L; }
IRC_INLINE int64_t ${S}_pitch(int64_t hidden) { return $parts * ${S}_wide(hidden) + $L; }

IRC_INLINE $V ${S}_load(const $T *p, int64_t part) {
    return part < $L ? ${V}_load_part(p, part) : ${V}_load(p);
}

/* Step t of `height` sequences; x is 0 of those that have ended. */
typedef struct {
    int64_t hidden, height, t;
    const $T *w, *bias;
    $T *rows;
    const $T *x[$MR];
    $T *y[$MR];
} ${S}_step;
"""

_KEEP = """
/* The same value, in a register: gcc would read what several rows need from memory for each of them. */
IRC_INLINE $V ${S}_keep($V x) {
#if defined(__AVX512F__) || (defined(__AVX__) && $bytes <= 32)
    __asm__("" : "+v"(x));
#endif
    return x;
}
"""

_PASS = """
/* Panels begin to end of a step: sums of $count gates, then what is made of them. */
static void ${S}_pass$index(void *given, int64_t begin, int64_t end) {
    const ${S}_step *s = given;
    const int64_t hidden = s->hidden, wide = ${S}_wide(hidden), pitch = ${S}_pitch(hidden);
    const $T *const h = s->rows + $state * wide;
    $T *const sums = s->rows + $first * wide;
    for (int64_t i = begin; i < end; i++) {
        const int64_t p = s->t & 1 ? begin + end - 1 - i : i;
        const $T *const from = s->w + ($before * wide + p * $count * $L) * hidden;
        $T *const to = sums + p * $L;
$choose    }
    for (int64_t r = 0; r < s->height; r++)
        if (s->x[r]) ${S}_$then(s, r, begin * $L, end * $L);
}
"""

_ROW = """    const int64_t hidden = s->hidden, wide = ${S}_wide(hidden);
    $T *const row = s->rows + r * ${S}_pitch(hidden);
    const $T *const x = s->x[r];
    $T *const sums = row + 3 * wide;
"""
_NEXT = """    $T *const next = row + ((s->t + 1) & 1) * wide, *const y = s->y[r];
"""
_STORE = """        ${V}_store(next + j, out);
        if (part < $L) ${V}_store_part(y + j, out, part);
        else ${V}_store(y + j, out);
"""

_LSTM = """
/* Units `from` to `to` of a sequence's step.  Gates i, o, f, c. */
static void ${S}_cell(const ${S}_step *s, int64_t r, int64_t from, int64_t to) {
$row$next    $T *const cell = row + 2 * wide;
    for (int64_t j = from; j < to; j += $L) {
        const int64_t part = hidden - j;
        const $V i = ${V}_sigmoid(${V}_load(sums + j) + ${S}_load(x + j, part));
        const $V o = ${V}_sigmoid(${V}_load(sums + wide + j) + ${S}_load(x + hidden + j, part));
        const $V f = ${V}_sigmoid(${V}_load(sums + 2 * wide + j) + ${S}_load(x + 2 * hidden + j, part));
        const $V g = ${V}_tanh(${V}_load(sums + 3 * wide + j) + ${S}_load(x + 3 * hidden + j, part));
        const $V fresh = f * ${V}_load(cell + j) + i * g;
        const $V out = o * ${V}_tanh(fresh);
        ${V}_store(cell + j, fresh);
$store    }
}
"""

_GRU_RESET = """
/* The gates z, which takes the place of its sum, and r, of which r * h is kept. */
static void ${S}_reset(const ${S}_step *s, int64_t r, int64_t from, int64_t to) {
$row    const $T *const h = row + (s->t & 1) * wide;
    $T *const kept = row + 2 * wide;
    for (int64_t j = from; j < to; j += $L) {
        const int64_t part = hidden - j;
        const $V z = ${V}_sigmoid(${V}_load(sums + j) + ${S}_load(x + j, part));
        const $V reset = ${V}_sigmoid(${V}_load(sums + wide + j) + ${S}_load(x + hidden + j, part));
        ${V}_store(sums + j, z);
        ${V}_store(kept + j, reset * ${V}_load(h + j));
    }
}
"""

_GRU = """
/* Units `from` to `to` of a sequence's step.  Gates z, r, h. */
static void ${S}_cell(const ${S}_step *s, int64_t r, int64_t from, int64_t to) {
$row$next    const $T *const h = row + (s->t & 1) * wide;
    for (int64_t j = from; j < to; j += $L) {
        const int64_t part = hidden - j;
        const $V before = ${V}_load(h + j);
        $V inner = ${V}_load(sums + 2 * wide + j);
$functions        const $V fresh = ${V}_tanh(${S}_load(x + 2 * hidden + j, part) + inner);
        const $V out = (1 - z) * fresh + z * before;
$store    }
}
"""

_KEPT = """        const $V z = ${V}_load(sums + j);
"""

_LINEAR = """        const $V z = ${V}_sigmoid(${V}_load(sums + j) + ${S}_load(x + j, part));
        const $V reset = ${V}_sigmoid(${V}_load(sums + wide + j) + ${S}_load(x + hidden + j, part));
$inner        inner = reset * inner;
"""

_SEQUENCES = """
/* All steps of `height` sequences from the n-th on, in direction d; with a pool, its threads split each. */
static void ${S}_sequences(const ${S}_args *g, int64_t d, int64_t n, int64_t height, const irc_pool *pool) {
    const int64_t hidden = g->hidden, wide = ${S}_wide(hidden), pitch = ${S}_pitch(hidden);
    $T *const rows = g->scratch + (d * g->batch + n) * pitch;
    ${S}_step s = {hidden, height, 0, g->w + d * hidden * wide * $gates, $bias, rows, {0}, {0}};
    const int reverse = $reverse;
    int64_t counts[$MR], most = 0;
    for (int64_t r = 0; r < height; r++) {
        $T *const row = rows + r * pitch;
        counts[r] = g->steps;$clamp
        if (counts[r] > most) most = counts[r];
        for (int64_t j = 0; j < 3 * wide; j++) row[j] = 0;
$start    }
    for (int64_t t = s.t = 0; t < most; s.t = ++t) {
        for (int64_t r = 0; r < height; r++) {
            const int64_t at = reverse ? counts[r] - 1 - t : t;
            s.x[r] = t < counts[r] ? g->x + at * g->x_step + (n + r) * g->x_batch + d * g->x_direction : 0;
            s.y[r] = g->y + at * g->y_step + (n + r) * g->y_batch + d * g->y_direction;
        }
$step    }
    for (int64_t r = 0; r < height; r++) {
        const $T *const row = rows + r * pitch, *const h = row + (counts[r] & 1) * wide;
        const int64_t at = (d * g->batch + n + r) * hidden;
        for (int64_t t = counts[r]; t < g->steps; t++) {
            $T *const to = g->y + t * g->y_step + (n + r) * g->y_batch + d * g->y_direction;
            for (int64_t j = 0; j < hidden; j++) to[j] = 0;
        }
        for (int64_t j = 0; j < hidden; j++) g->y_h[at + j] = h[j];
$end    }
}

IRC_INLINE int64_t ${S}_tiles(const ${S}_args *g) { return (g->batch + $MR - 1) / $MR; }

/* Tasks begin to end: a direction of a range of the batch each. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t tiles = ${S}_tiles(g), low = g->batch / tiles, extra = g->batch % tiles;
    for (; begin < end; begin++) {
        const int64_t i = begin % tiles;
        ${S}_sequences(g, begin / tiles, i * low + (i < extra ? i : extra), low + (i < extra), 0);
    }
}

void $S($parameters) {
    if (g->batch <= 0 || g->hidden <= 0) return;
    const int64_t tasks = ${S}_tiles(g) * $directions;
    const double step = (double)g->batch * (double)g->hidden * (double)g->hidden * $work;
    if (pool && tasks == 1 && step >= $split) ${S}_sequences(g, 0, 0, g->batch, pool);
    else if (!pool || tasks < 2 || (double)g->steps * step < $worthwhile) ${S}_part((void *)g, 0, tasks);
    else pool->parallel_for(pool->self, tasks, ${S}_part, (void *)g);
}
"""


@kernel
class RecurrentKernel(Kernel[RecurrentProblem]):
    """Generated steps of a recurrent layer with its usual functions, σ and tanh.

    tile: one vector wide, `rows` sequences high.  heights: how many sequences it has bodies for.  h, c, lengths, bias:
    as problems state them.
    """

    tile: Tile
    cell: Cell
    direction: Direction
    heights: tuple[int, ...]
    h: bool = False
    c: bool = False
    lengths: str = ""
    bias: bool = False

    problem = RecurrentProblem

    @classmethod
    def candidates(cls, problem: RecurrentProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant whose sums of all gates, one vector each, take all registers."""
        p, gates = problem, GATES[problem.cell]
        rows = max(1, (isa.registers - 1 - gates) // gates)
        heights = heights_of(p.batch, rows)
        yield cls(Tile(isa, p.dtype, rows, 1), p.cell, p.direction, heights, p.h, p.c, p.lengths, p.bias)

    def cycles(self, problem: RecurrentProblem) -> float:
        t, batch = self.tile, likely(problem.batch)
        vectors = GATES[self.cell] * problem.hidden * -(-problem.hidden // t.lanes)
        each = vectors * max(batch / t.isa.fma, -(-batch // t.rows) / LOADS)
        return likely(problem.steps) * self.directions * each

    @property
    def label(self) -> str:
        return "panels"

    def arguments_for(self, problem: RecurrentProblem) -> dict[str, Dim]:
        sizes = {"steps": problem.steps, "batch": problem.batch, "hidden": Dim.of(problem.hidden)}
        sizes |= {f"x_{n}": s for n, s in zip(("step", "batch", "direction"), problem.x, strict=True)}
        return sizes | {f"y_{n}": s for n, s in zip(("step", "direction", "batch"), problem.y, strict=True)}

    def scratch(self, problem: RecurrentProblem) -> Dim:
        return self.scratch_bytes(problem.batch, problem.hidden)

    def packed(self, problem: RecurrentProblem) -> Packed:
        elements = self.packed_elements(problem.hidden)
        return Packed(("gates", self.cell, self.tile.lanes), self.tile.dtype, elements, self.pack_weights)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        steps, batch, hidden = sizes["steps"], sizes["batch"], sizes["hidden"]
        x_strides, y_strides = ([sizes[f"{a}_{n}"] for n in ("step", "batch", "direction")] for a in "xy")
        operands = dict(zip((n for n, _ in self.pointers), reads, strict=False))
        shape = (steps, batch, self.directions)
        x = strided(reads[0], (*shape, GATES[self.cell] * hidden), (*x_strides, 1))
        y = strided(writes[0], (*shape, hidden), (*y_strides, 1))
        weights = self.unpack_weights(reads[1], hidden)
        counts = np.minimum(operands["lengths"][:batch], steps) if self.lengths else np.full(batch, steps)
        bias = operands["bias"].reshape(-1)[: self.directions * hidden] if self.bias else np.zeros(1, x.dtype)
        y[...] = 0
        for d, n in np.ndindex(self.directions, batch):
            at = slice((d * batch + n) * hidden, (d * batch + n + 1) * hidden)
            zero: Array = np.zeros(hidden, x.dtype)
            h, c = operands["h0"][at] if self.h else zero, operands["c0"][at] if self.c else zero
            back = self.direction == "reverse" or d == 1
            for t in range(int(counts[n])):
                place = counts[n] - 1 - t if back else t
                inner = bias[d * hidden : (d + 1) * hidden] if self.bias else zero
                h, c = self._step_of(x[place, n, d], h, c, weights[d], inner)
                y[place, n, d] = h
            for result, last in zip(writes[1:], (h, c), strict=False):
                result[at] = last

    def _step_of(self, x: Array, h: Array, c: Array, weights: Array, bias: Array) -> tuple[Array, Array]:
        """Compute the next state and the next cell of a sequence: gates i, o, f, c of the LSTM, z, r, h of the GRU."""
        gates, size = np.split(x, GATES[self.cell]), h.size
        sums = np.split(h @ weights, GATES[self.cell])
        if self.cell == "lstm":
            i, o, f = (_sigmoid(a + b) for a, b in zip(gates[:3], sums[:3], strict=True))
            fresh = f * c + i * np.tanh(gates[3] + sums[3])
            return o * np.tanh(fresh), fresh
        z, r = (_sigmoid(a + b) for a, b in zip(gates[:2], sums[:2], strict=True))
        inner = r * (sums[2] + bias) if self.cell == "gru_linear" else (r * h) @ weights[:, 2 * size :]
        return (1 - z) * np.tanh(gates[2] + inner) + z * h, c

    @cached_property
    def symbol(self) -> str:
        rest = f"{self.heights}{self.h}{self.c}{self.lengths}{self.bias}"
        return symbol(self.cell, self.tile.name.removeprefix("irc_tile_"), self.direction, rest)

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        """Name and C type: x, the projected input; w, packed; what is given of h0, c0, lengths, bias; results; scratch.

        x is [steps, batch, direction, gates · hidden], the last axis contiguous; y [steps, direction, batch, hidden] by
        strides; h0, c0, y_h, y_c [directions, batch, hidden] and bias [directions, hidden] contiguous.
        """
        t = str(names(self.tile)["T"])
        read, write = f"const {t} *", f"{t} *"
        given = (("h0", read, self.h), ("c0", read, self.c), ("lengths", f"const {self.lengths} *", bool(self.lengths)))
        optional = tuple((n, kind) for n, kind, have in (*given, ("bias", read, self.bias)) if have)
        last = (("y_h", write), ("y_c", write)) if self.cell == "lstm" else (("y_h", write),)
        return (("x", read), ("w", read), *optional, ("y", write), *last, ("scratch", write))

    @property
    def sizes(self) -> tuple[str, ...]:
        strides = ("x_step", "x_batch", "x_direction", "y_step", "y_batch", "y_direction")
        return ("steps", "batch", "hidden", *strides)

    def scratch_bytes(self, batch: DimLike, hidden: int) -> Dim:
        """Count the bytes of scratch for a call with these sizes."""
        wide, lanes = -(-hidden // self.tile.lanes) * self.tile.lanes, self.tile.lanes
        return Dim.of(batch) * (self.directions * ((3 + GATES[self.cell]) * wide + lanes) * self.tile.dtype.itemsize)

    def packed_elements(self, hidden: int) -> int:
        """Count the elements of the packed weights."""
        return self.directions * GATES[self.cell] * hidden * -(-hidden // self.tile.lanes) * self.tile.lanes

    def pack_weights(self, w: Array) -> Array:
        """Pack w[directions, hidden, gates · hidden], flat."""
        directions, hidden, _ = w.shape
        lanes, gates = self.tile.lanes, GATES[self.cell]
        panels = -(-hidden // lanes)
        full = np.zeros((directions, hidden, gates, panels * lanes), self.tile.dtype.numpy)
        full[..., :hidden] = w.reshape(directions, hidden, gates, hidden)
        # [direction, k, gate, panel, lane] -> [direction, panel, k, gate, lane]
        moved = full.reshape(directions, hidden, gates, panels, lanes).transpose(0, 3, 1, 2, 4)
        parts = [moved[:, :, :, list(gates)].reshape(directions, -1) for gates in PASSES[self.cell]]
        return np.ascontiguousarray(np.concatenate(parts, axis=1)).reshape(-1)

    def unpack_weights(self, packed: Array, hidden: int) -> Array:
        """Unpack w[directions, hidden, gates · hidden] from what `pack_weights` made."""
        lanes, wide = self.tile.lanes, -(-hidden // self.tile.lanes) * self.tile.lanes
        rows = packed[: self.packed_elements(hidden)].reshape(self.directions, -1)
        whole = np.empty((self.directions, hidden, GATES[self.cell], wide), packed.dtype)
        begin = 0
        for gates in PASSES[self.cell]:
            end = begin + hidden * len(gates) * wide
            # [direction, panel, k, gate, lane] -> [direction, k, gate, panel, lane]
            panels = rows[:, begin:end].reshape(self.directions, wide // lanes, hidden, len(gates), lanes)
            whole[:, :, list(gates)] = panels.transpose(0, 2, 3, 1, 4).reshape(self.directions, hidden, -1, wide)
            begin = end
        return whole[..., :hidden].reshape(self.directions, hidden, -1)

    def flops(self, sizes: Sizes) -> Dim:
        each = 2 * self.directions * GATES[self.cell]
        return each * sizes["steps"] * sizes["batch"] * sizes["hidden"] * sizes["hidden"]

    @property
    def summary(self) -> str:
        return f"{self.cell.upper()}, {self.direction}."

    def parts(self) -> list[Part]:
        s, t, passes = self.symbol, self.tile, PASSES[self.cell]
        clamp = "\n        const int64_t given = g->lengths[n + r];"
        clamp += "\n        if (given < counts[r]) counts[r] = given > 0 ? given : 0;"
        reverse = {"forward": "0", "reverse": "1", "bidirectional": "d == 1"}[self.direction]
        given = names(t) | {
            "S": s,
            "parts": 3 + GATES[self.cell],
            "gates": GATES[self.cell],
            "directions": self.directions,
            "work": f"{self.directions * GATES[self.cell]}.0",
            "worthwhile": WORTHWHILE,
            "split": SPLIT_PASS * len(passes),
            "reverse": reverse,
            "clamp": clamp if self.lengths else "",
        }
        copy = "        for (int64_t j = 0; j < hidden; j++) {};\n"
        first = "(d * g->batch + n + r) * hidden"
        start = copy.format(f"row[j] = g->h0[{first} + j]") * self.h
        start += copy.format(f"row[2 * wide + j] = g->c0[{first} + j]") * self.c
        end = copy.format("g->y_c[at + j] = row[2 * wide + j]") * (self.cell == "lstm")
        bias = "g->bias + d * hidden" if self.bias else "0"
        return [
            prelude(t, plain(t.dtype)),
            definitions(("sigmoid", "tanh"), t.lanes, t.dtype),
            fill(_CALL, **given),
            fill(_KEEP, **given, bytes=t.lanes * t.dtype.itemsize) if max(self.heights) > 1 else "",
            self._cell(given),
            *(self._pass(i, gates, given) for i, gates in enumerate(passes)),
            fill(_SEQUENCES, **given, start=start, end=end, step=self._step(), bias=bias, **self.interface),
        ]

    def _cell(self, given: dict[str, object]) -> str:
        texts = {"row": fill(_ROW, **given), "next": fill(_NEXT, **given), "store": fill(_STORE, **given)}
        if self.cell == "lstm":
            return fill(_LSTM, **given, **texts)
        if self.cell == "gru":
            functions = fill(_KEPT, **given)
            return fill(_GRU_RESET, **given, row=texts["row"]) + fill(_GRU, **given, **texts, functions=functions)
        inner = f"        inner += {self.symbol}_load(s->bias + j, part);\n" if self.bias else ""
        return fill(_GRU, **given, **texts, functions=fill(_LINEAR, **given, inner=inner))

    def _step(self) -> str:
        """Print a step of all rows: each pass over the weights, by all threads or by one."""
        lines: list[str] = []
        for i in range(len(PASSES[self.cell])):
            name = f"{self.symbol}_pass{i}"
            lines.append(f"if (pool) pool->parallel_for(pool->self, wide / {self.tile.lanes}, {name}, &s);")
            lines.append(f"else {name}(&s, 0, wide / {self.tile.lanes});")
        return "".join(f"        {line}\n" for line in lines)

    def _pass(self, index: int, gates: tuple[int, ...], given: dict[str, object]) -> str:
        """Print `S_products…` for each height, and `S_pass`, which calls them."""
        count, s, last = len(gates), self.symbol, index + 1 == len(PASSES[self.cell])
        run = "{0}_products{1}x{2}(h, pitch, hidden, from, to, wide);"
        calls = [run.format(s, r, count) for r in self.heights]
        choose = "".join(
            f"        {'if (s->height == ' + str(r) + ') ' if k + 1 < len(calls) else ''}{call}\n"
            + ("        else\n" if k + 1 < len(calls) else "")
            for k, (r, call) in enumerate(zip(self.heights, calls, strict=True))
        )
        products = "".join(_products(s, r, count, given) for r in self.heights)
        texts = {"then": "cell" if last else "reset", "state": "2" if index else "(s->t & 1)", "before": gates[0]}
        return products + fill(_PASS, **given, count=count, index=index, first=3 + gates[0], choose=choose, **texts)


def _sigmoid(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _products(s: str, rows: int, gates: int, given: dict[str, object]) -> str:
    """Print to[row][gate] = Σ_k h[row][k] · w[k][gate], one vector each, in several sums if there are few."""
    v, t, lanes = given["V"], given["T"], int(str(given["L"]))
    chains = max(1, CHAINS // (rows * gates))
    sums = [f"a{r}_{g}_{p}" for r in range(rows) for g in range(gates) for p in range(chains)]

    def terms(p: int, k: str) -> list[str]:
        load = "${V}_load(w + $at)" if rows == 1 else s + "_keep(${V}_load(w + $at))"
        loads = (fill(load, V=v, at=(p * gates + g) * lanes) for g in range(gates))
        lines = [f"const {v} w{g}_{p} = {text};" for g, text in enumerate(loads)]
        for r in range(rows):
            lines += [fill(f"a{r}_{g}_{p} += h[$r * pitch + {k}] * w{g}_{p};", r=r) for g in range(gates)]
        return lines

    body = [f"    {v} {', '.join(f'{x} = {{0}}' for x in sums)};", "    int64_t k = 0;"]
    body += [f"    for (; k + {chains} <= n; k += {chains}, w += {chains * gates * lanes}) {{"]
    body += [f"        {line}" for p in range(chains) for line in terms(p, fill("k + $p", p=p))]
    body += ["    }"]
    if chains > 1:
        body += [f"    for (; k < n; k++, w += {gates * lanes}) {{", *(f"        {x}" for x in terms(0, "k")), "    }"]
    for r in range(rows):
        for g in range(gates):
            total = [f"a{r}_{g}_{p}" for p in range(chains)]
            while len(total) > 1:
                total = [f"({a} + {b})" for a, b in zip(total[::2], total[1::2], strict=True)]
            body.append(fill(f"    {v}_store(to + $r * pitch + $g * wide, {total[0]});", r=r, g=g))
    head = (
        f"\nIRC_INLINE void {s}_products{rows}x{gates}(const {t} *h, int64_t pitch, int64_t n, const {t} *w, {t} *to,\n"
        "                      int64_t wide) {\n    (void)pitch;\n    (void)wide;\n"
    )
    return fill(head + "\n".join(body) + "\n}\n")
