"""LSTM of weights of bytes, which quantizes its states as it runs: all steps behind the product with the input.

Before each step the states of a batch of a direction become u8, with the range of what is quantized and 0.  They are
multiplied in the register tile of `irc.kernels.integer.text`, with panels of weights of one gate each; then gates and
cells follow vector by vector.  Nothing is contracted that the operator rounds apart: as states are rounded to 256
values, another last bit is soon another result.  Threads split directions, whose batches share a range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from irc.ir.dim import Dim
from irc.ir.types import f32, i8
from irc.kernels.core.base import Array, Kernel, Packed, Sizes
from irc.kernels.core.epilogue import plain
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.reference import strided
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, names, prelude
from irc.kernels.gemm.tasks import WORTHWHILE
from irc.kernels.integer import text
from irc.kernels.integer.problem import SETS, STEP, Unit
from irc.kernels.integer.tile import BytesTile
from irc.kernels.integer.vectors import FOURS, MEMORY, NARROW
from irc.kernels.recurrent.problem import Direction, RecurrentProblem
from irc.kernels.vector.vecmath import definitions
from irc.ops.rational import SIGMOID, SIGMOID_END, TANH, TANH_END, rational_sigmoid, rational_tanh

GATES = 4
TILES = {"avx512": (4, 4), "avx2": (4, 2)}
"""Rows and vectors of the register tile."""


@dataclass(frozen=True)
class QuantizedLstmProblem(RecurrentProblem):
    """The steps of a layer of QuantizedLSTMSteps, whose weights less their zero points fit into signed bytes."""


_TEXT = """
typedef struct { const ${S}_args *g; int64_t hidden, wide, per, step, batch; } ${S}_work;

/* The same value, rounded: what follows is not contracted with what was before. */
IRC_INLINE $V ${S}_rounded($V x) {
    __asm__("" : "+v"(x));
    return x;
}

IRC_INLINE $V ${S}_load(const float *p, int64_t part) {
    return part < $L ? ${V}_load_part(p, part) : ${V}_load(p);
}

$functions
/* A row of states in units, as whole groups. */
static void ${S}_quantize(const float *h, $E *restrict u, int64_t wide, float unit, float middle) {
    for (int64_t j = 0; j < wide; j += $L) {
        const $V w = ${V}_round(${V}_load(h + j) / ${V}_all(unit)) + ${V}_all(middle);
        const $V x = ${V}_at_least(${V}_all(0), ${V}_at_most(${V}_all(255), w));
        $narrow
    }
}

/* One step of a sequence: gates i, o, f, c, of sums that are `per` panels a gate, `gap` apart. */
static void ${S}_cell(const ${S}_args *g, const ${S}_work *w, int64_t d, const int32_t *sums, int64_t gap, float unit,
                      const float *x, float *h, float *c, float *y) {
    const int64_t hidden = g->hidden;
    const float *scale = g->scale + d * $gates * hidden;$bias
    for (int64_t j = 0; j < hidden; j += $L) {
        const int64_t part = hidden - j;
        $V gate[$gates];
        for (int64_t k = 0; k < $gates; k++) {
            const int32_t *sum = sums + (k * w->per + j / $NR) * gap + j % $NR;
            const $V factor = ${V}_all(unit) * ${S}_load(scale + k * hidden + j, part);
            const $V product = ${S}_rounded(($V)$to_f32($load(sum)) * factor);
            gate[k] = ${S}_load(x + k * hidden + j, part) + product;$add_bias
        }
        const $V i = ${S}_sigmoid(gate[0]), o = ${S}_sigmoid(gate[1]), f = ${S}_sigmoid(gate[2]);
        const $V kept = ${S}_rounded(f * ${V}_load(c + j)), added = ${S}_rounded(i * ${S}_tanh(gate[3]));
        const $V fresh = kept + added, out = o * ${S}_tanh(fresh);
        ${V}_store(c + j, fresh);
        ${V}_store(h + j, out);
        if (part < $L) ${V}_store_part(y + j, out, part); /* the rest is zeros, and stays so */
        else ${V}_store(y + j, out);
    }
}

/* All steps of a direction. */
static void ${S}_direction(const ${S}_work *w, int64_t d) {
    static void (*const tiles_of[])(const $E *, const int64_t *, const irc_bytes_walk *, const int8_t *, int64_t,
                                    int32_t, int32_t *) = {$table};
    const ${S}_args *g = w->g;
    const int64_t hidden = g->hidden, wide = w->wide, batch = g->batch, panels = $gates * w->per;
    const int64_t groups = w->step / $step, size = 4 * $NR * (2 + groups);
    const irc_bytes_walk walk = {1, 0, 1, 0, groups};
    char *const own = (char *)g->scratch + d * w->batch;
    float *const h = (float *)own, *const c = h + batch * wide;
    int32_t *const sums = (int32_t *)(c + batch * wide);
    int64_t *const counts = (int64_t *)(sums + $MR * panels * $NR);
    $E *const u = ($E *)(counts + batch);
    const int8_t *const panel = g->w + d * panels * size;
    const int reverse = $reverse;
    for (int64_t n = 0; n < batch; n++) {
        counts[n] = g->steps;$clamp
        for (int64_t j = 0; j < wide; j++) h[n * wide + j] = c[n * wide + j] = 0;
$start    }
    for (int64_t j = 0; j < batch * w->step; j++) u[j] = 0;
    for (int64_t t = 0; t < g->steps; t++) {
        $V least = ${V}_all(0), largest = ${V}_all(0);
        for (int64_t n = 0; n < batch; n++) {
            if (t > counts[n]) continue;
            for (int64_t j = 0; j < wide; j += $L) {
                const $V x = ${V}_load(h + n * wide + j);
                least = ${V}_select((${V}_mask)(x < least), x, least);
                largest = ${V}_select((${V}_mask)(x > largest), x, largest);
            }
        }
        float low[$L], high[$L];
        ${V}_store(low, least);
        ${V}_store(high, largest);
        for (int i = 1; i < $L; i++) {
            low[0] = low[i] < low[0] ? low[i] : low[0];
            high[0] = high[i] > high[0] ? high[i] : high[0];
        }
        const float unit = high[0] > low[0] ? (high[0] - low[0]) / 255.0f : 1.0f, raw = rintf(-low[0] / unit);
        const float middle = raw < 0 ? 0 : raw > 255 ? 255 : raw;
        for (int64_t n = 0; n < batch;) {
            int64_t at[$MR], which[$MR], rows = 0;
            for (; n < batch && rows < $MR; n++) {
                if (t >= counts[n]) continue;
                ${S}_quantize(h + n * wide, u + n * w->step, wide, unit, middle);
                at[rows] = n * w->step;
                which[rows++] = n;
            }
            if (!rows) break;
            for (int64_t k = 0; k < panels; k++) {
                const int64_t p = t & 1 ? panels - 1 - k : k;
                tiles_of[rows - 1](u, at, &walk, panel + p * size, 0, (int32_t)middle, sums + p * $MR * $NR);
            }
            for (int64_t r = 0; r < rows; r++) {
                const int64_t m = which[r], place = reverse ? counts[m] - 1 - t : t;
                ${S}_cell(g, w, d, sums + r * $NR, $MR * $NR, unit,
                          g->x + place * g->x_step + m * g->x_batch + d * g->x_direction, h + m * wide, c + m * wide,
                          g->y + place * g->y_step + m * g->y_batch + d * g->y_direction);
            }
        }
    }
    for (int64_t n = 0; n < batch; n++) {
        for (int64_t t = counts[n]; t < g->steps; t++) {
            float *const to = g->y + t * g->y_step + n * g->y_batch + d * g->y_direction;
            for (int64_t j = 0; j < hidden; j++) to[j] = 0;
        }
        for (int64_t j = 0; j < hidden; j++) {
            g->y_h[(d * batch + n) * hidden + j] = h[n * wide + j];
            g->y_c[(d * batch + n) * hidden + j] = c[n * wide + j];
        }
    }
}

static void ${S}_part(void *given, int64_t begin, int64_t end) {
    for (; begin < end; begin++) ${S}_direction(given, begin);
}

void $S($parameters) {
    if (g->batch <= 0 || g->hidden <= 0) return;
    const int64_t wide = (g->hidden + $L - 1) / $L * $L, per = (g->hidden + $NR - 1) / $NR;
    const int64_t own = g->batch * (wide * 8 + 8 + wide * (int64_t)sizeof($E)) + $MR * $gates * per * $NR * 4;
    ${S}_work w = {g, g->hidden, wide, per, wide, own};
    const double work = (double)g->steps * (double)g->batch * (double)g->hidden * (double)g->hidden * $work;
    if (!pool || $directions < 2 || work < $worthwhile) ${S}_part(&w, 0, $directions);
    else pool->parallel_for(pool->self, $directions, ${S}_part, &w);
}
"""

_FMA = "    $sum = $fma(($M)$sum, ($M)s, ($M)${V}_all($x));\n"
_QUOTIENT = """
IRC_HELPER $V ${S}_$name($V x) {
    const $V t = ${V}_at_least(${V}_all(-$end), ${V}_at_most(${V}_all($end), x)), s = ${S}_rounded(t * t);
    $V above = ${V}_all($first), below = ${V}_all($under);
$terms    $result
}
"""


@kernel
class QuantizedLstmKernel(Kernel[QuantizedLstmProblem]):
    """Generated steps of an LSTM of bytes with its usual functions, as quotients of polynomials."""

    isa: Isa
    unit: Unit
    direction: Direction
    h: bool = False
    c: bool = False
    lengths: str = ""
    bias: bool = False

    problem = QuantizedLstmProblem

    @classmethod
    def candidates(cls, problem: QuantizedLstmProblem, isa: Isa) -> Iterator[Self]:
        if isa.name in SETS and problem.dtype == f32:
            unit: Unit = "fours" if isa.fours else "pairs"
            yield cls(isa, unit, problem.direction, problem.h, problem.c, problem.lengths, problem.bias)

    def cycles(self, problem: QuantizedLstmProblem) -> float:
        products = likely(problem.steps) * likely(problem.batch) * GATES * problem.hidden * problem.hidden
        return problem.directions * products / (self.isa.vector * (1 if self.unit == "fours" else 0.5))

    @property
    def label(self) -> str:
        return f"bytes, {self.unit}"

    @property
    def tile(self) -> BytesTile:
        return BytesTile(self.isa, self.unit, *TILES[self.isa.name])

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def arguments_for(self, problem: QuantizedLstmProblem) -> dict[str, Dim]:
        sizes = {"steps": problem.steps, "batch": problem.batch, "hidden": Dim.of(problem.hidden)}
        sizes |= {f"x_{n}": s for n, s in zip(("step", "batch", "direction"), problem.x, strict=True)}
        return sizes | {f"y_{n}": s for n, s in zip(("step", "direction", "batch"), problem.y, strict=True)}

    def scratch(self, problem: QuantizedLstmProblem) -> Dim:
        tile = self.tile
        wide, per = -(-problem.hidden // tile.lanes) * tile.lanes, -(-problem.hidden // tile.columns)
        each = wide * 8 + 8 + wide * (1 if self.unit == "fours" else 2)
        return (problem.batch * each + tile.rows * GATES * per * tile.columns * 4) * self.directions

    def packed(self, problem: QuantizedLstmProblem) -> Packed:
        """Describe panels of weights [directions, hidden, gates · hidden] less their zero points."""
        tile, hidden = self.tile, problem.hidden
        per, groups = -(-hidden // tile.columns), self._groups(hidden)
        elements = self.directions * GATES * per * tile.columns * 4 * (2 + groups)

        def pack(w: Array) -> Array:
            rows = w.reshape(-1, hidden, GATES, hidden).transpose(0, 2, 3, 1)
            whole = np.zeros((*rows.shape[:2], per * tile.columns, groups * STEP[self.unit]), tile.word)
            whole[:, :, :hidden, :hidden] = rows
            return tile.panels(whole.reshape(-1, tile.columns, whole.shape[-1]), None)

        return Packed(("quantized gates", tile.columns, self.unit), i8, elements, pack)

    def _groups(self, hidden: int) -> int:
        """Count fours or pairs of states, which fill vectors."""
        return -(-hidden // self.tile.lanes) * self.tile.lanes // STEP[self.unit]

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        from irc.ops.recurrent_quantized import quantized_range

        steps, batch, hidden, both = sizes["steps"], sizes["batch"], sizes["hidden"], self.directions
        x_strides, y_strides = ([sizes[f"{a}_{n}"] for n in ("step", "batch", "direction")] for a in "xy")
        operands = dict(zip((n for n, _ in self.pointers), reads, strict=False))
        x = strided(reads[0], (steps, batch, both, GATES * hidden), (*x_strides, 1))
        y = strided(writes[0], (steps, batch, both, hidden), (*y_strides, 1))
        per = -(-hidden // self.tile.columns)
        flat, _ = self.tile.unpanelled(reads[1], both * GATES * per, self._groups(hidden))
        w = flat.reshape(both, GATES, -1, flat.shape[-1])[:, :, :hidden, :hidden].reshape(both, GATES * hidden, hidden)
        counts = operands["lengths"][:batch].clip(0, steps) if self.lengths else np.full(batch, steps)
        scale = operands["scale"][: both * GATES * hidden].reshape(both, -1)
        bias = operands["bias"][: both * GATES * hidden].reshape(both, -1) if self.bias else None
        shape, size = (both, batch, hidden), both * batch * hidden
        states = [
            operands[n][:size].reshape(shape) if have else np.zeros(shape, np.float32) for n, have in self._states
        ]
        h, c = (s.astype(np.float32) for s in states)
        y[...] = 0
        for d, t in np.ndindex(both, steps):
            near = np.where((t <= counts)[:, None], h[d], np.float32(0))
            unit, middle = quantized_range(near.min(initial=np.float32(0)), near.max(initial=np.float32(0)))
            u = np.clip(np.round(near / unit) + middle, 0, 255) - middle
            products = (u.astype(np.int64) @ w[d].T.astype(np.int64)).astype(np.float32)
            for n in range(batch):
                if t < counts[n]:
                    place = counts[n] - 1 - t if self.direction == "reverse" or d else t
                    gates = x[place, n, d] + products[n] * (unit * scale[d])
                    i, o, f, g = np.split(gates if bias is None else gates + bias[d], GATES)
                    c[d, n] = rational_sigmoid(f) * c[d, n] + rational_sigmoid(i) * rational_tanh(g)
                    h[d, n] = rational_sigmoid(o) * rational_tanh(c[d, n])
                    y[place, n, d] = h[d, n]
        writes[1][:size], writes[2][:size] = h.reshape(-1), c.reshape(-1)

    @property
    def _states(self) -> tuple[tuple[str, bool], ...]:
        return ("h0", self.h), ("c0", self.c)

    # ---------------------------------------------------------------------------------- C
    @cached_property
    def symbol(self) -> str:
        rest = f"{self.h}{self.c}{self.lengths}{self.bias}"
        return symbol("quantized_lstm", self.isa.name, self.unit, self.direction, rest)

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        """Name and C type: x, the projected input; w, packed; scale of columns; what is given of h0, c0, lengths, bias.

        Shapes are those of `irc.kernels.recurrent.lstm_gru`; scale and bias are [directions, gates · hidden].
        """
        read, write = "const float *", "float *"
        optional = (
            *((n, read, have) for n, have in self._states),
            ("lengths", f"const {self.lengths} *", bool(self.lengths)),
            ("bias", read, self.bias),
        )
        given = tuple((n, kind) for n, kind, have in optional if have)
        results = (("y", write), ("y_h", write), ("y_c", write), ("scratch", "uint8_t *"))
        return (("x", read), ("w", "const int8_t *"), ("scale", read), *given, *results)

    @property
    def sizes(self) -> tuple[str, ...]:
        strides = ("x_step", "x_batch", "x_direction", "y_step", "y_batch", "y_direction")
        return ("steps", "batch", "hidden", *strides)

    def flops(self, sizes: Sizes) -> Dim:
        each = 2 * self.directions * GATES
        return each * sizes["steps"] * sizes["batch"] * sizes["hidden"] * sizes["hidden"]

    @property
    def features(self) -> frozenset[str]:
        return self.tile.features

    @property
    def summary(self) -> str:
        return f"LSTM of bytes, {self.direction}."

    def parts(self) -> list[Part]:
        tile, bits, fours = self.tile, self.isa.vector * 8, self.unit == "fours"
        whole = Tile(self.isa, f32, tile.rows, tile.vectors)
        clamp = "\n        const int64_t given = g->lengths[n];"
        clamp += "\n        if (given < counts[n]) counts[n] = given > 0 ? given : 0;"
        given: dict[str, Any] = (
            tile.names
            | names(whole)
            | {
                "NR": tile.columns,
                "S": self.symbol,
                "gates": GATES,
                "directions": self.directions,
                "work": f"{self.directions * GATES}.0",
                "worthwhile": WORTHWHILE,
                "reverse": {"forward": "0", "reverse": "1", "bidirectional": "d == 1"}[self.direction],
                "clamp": clamp if self.lengths else "",
                "to_f32": f"{tile.prefix}_cvtepi32_ps",
                "M": f"__m{bits}",
                "fma": f"({names(whole)['V']}){tile.prefix}_fmadd_ps",
                "table": tile.table(),
                "bias": f"\n    const float *bias = g->bias + d * {GATES} * hidden;" if self.bias else "",
            }
        )
        added = "\n            gate[k] = gate[k] + ${S}_load(bias + k * hidden + j, part);"
        given["add_bias"] = fill(added, S=self.symbol) if self.bias else ""
        copy = "        for (int64_t j = 0; j < hidden; j++) {} + j];\n"
        first = "[(d * batch + n) * hidden"
        given["start"] = copy.format(f"h[n * wide + j] = g->h0{first}") * self.h
        given["start"] += copy.format(f"c[n * wide + j] = g->c0{first}") * self.c
        narrow = f"irc_bytes_narrow_{bits}(u + j, (__m{bits})x, $L);"
        words = f"irc_words_narrow_{bits}(u + j, (__m{bits})x);"
        given["narrow"] = fill(narrow if fours else words, **given)
        given["functions"] = self._functions(given)
        return [
            prelude(whole, plain(f32)),
            *definitions(("round",), whole.lanes, f32),
            MEMORY[bits],
            *([FOURS[bits]] if fours else []),
            NARROW[bits],
            text.WALK,
            *tile.bodies(),
            fill(_TEXT, **given, **self.interface),
        ]

    def _functions(self, given: Mapping[str, Any]) -> str:
        """Print the sigmoid and the hyperbolic tangent, products and sums of their polynomials rounded once."""
        clamped = "return ${V}_at_least(${V}_all(0), ${V}_at_most(${V}_all(1), above * t / below + 0.5f));"
        texts: list[str] = []
        for name, end, (above, below), result in (
            ("sigmoid", SIGMOID_END, SIGMOID, clamped),
            ("tanh", TANH_END, TANH, "return above * t / below;"),
        ):
            terms = [fill(_FMA, **given, sum="above", x=_number(x)) for x in above[1:]]
            terms += [fill(_FMA, **given, sum="below", x=_number(x)) for x in below[1:]]
            places = {"end": _number(end), "first": _number(above[0]), "under": _number(below[0])}
            texts.append(
                fill(_QUOTIENT, **given, name=name, **places, terms="".join(terms), result=fill(result, **given))
            )
        return "".join(texts)


def _number(x: float) -> str:
    return f"{float(np.float32(x)).hex()}f"
