"""Pooling, channels last: the largest element or the mean of every window, and of all pixels of an image.

Vectors run over channels.  A register tile is one vector of channels of several neighbouring pixels of an output row:
the rows of each column of the input under it are folded once, and serve all pixels whose windows hold the column.
Tiles that reach over the input skip the columns and rows outside; the others have no conditions.  Nothing outside the
input is read.  Padding counts as -inf for the maximum and is left out of the sum.

Threads split images, output rows and vectors of channels; of whole images, runs of pixels, as those do who compute the
pixels, and who multiply them by what becomes of their means.  On Zen 4 a line that another thread has read takes ten
times as long to write again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self, TypeVar

from irc.ir.dim import Dim, product
from irc.ir.types import f32, f64
from irc.kernels.core.base import Array, Kernel, Sizes
from irc.kernels.core.costs import LATENCY, LOADS, PART
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import Pair, Problem, likely, likely_extent
from irc.kernels.core.reference import apply, strided
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, epilogue_of, names, prelude
from irc.kernels.pool.problem import Counted, GlobalPoolProblem, Mode, PoolProblem
from irc.kernels.pool.reference import pooled
from irc.kernels.vector import bf16_io
from irc.kernels.vector.pixels import STRIDES, TileRow, bounds, few_channels, pixels_of, slot_starts, window_names

P = TypeVar("P", bound=Problem)

STRIP = 512 << 10  # bytes of the input rows of a strip
WORTHWHILE = 50_000  # elements below which one thread does all
RUNS = 16  # of pixels of a whole image that are folded apart, at most
DIVIDED = 1 << 14  # elements of a whole image from which on there are several
RUN_PIXELS = 256  # pixels in one run of partial sums of a whole image
RESERVED = 4  # registers that hold no sums of pixels
UNROLLED = 3  # rows of a window up to which they are unrolled

_CALL = """
typedef struct {$fields
    int64_t strip; /* the plan: rows of a strip */
} ${S}_call;
"""

_TILE = """
/* The n rows of a column of windows, folded; n > 0. */
IRC_INLINE $V ${S}_column(const $X *from, int64_t down, const int whole, int64_t n) {
    $V acc = $LX(from);
    if (whole) {$unroll
        for (int k = 1; k < $KH; k++) {
            const $V next = $LX(from + k * down);
            acc = $fold;
        }
    } else {
        for (int64_t k = 1; k < n; k++) {
            const $V next = $LX(from + k * down);
            acc = $fold;
        }
    }
    return acc;
}

/* The columns under a tile: `from` stands on the first row of the first column; without `inside` only the columns in
   `in` exist, and n rows of the window. */
IRC_INLINE void ${S}_fold($V *sum, const int inside, const $X *from, int64_t step, int64_t down, int64_t n,
                          uint64_t in) {
    $V acc, next;
    (void)in;
$columns}

/* Output rows y0 to y1 of a vector of channels, which starts at x. */
static void ${S}_rows(const ${S}_call *g, const ${S}_out *o, const $X *x, int64_t y0, int64_t y1, int64_t channel) {
    const int64_t last = g->ow > $P ? g->ow - $P : 0, n = g->ow < $P ? g->ow : $P;
    const int64_t step = g->x_pixel, down = $DH * g->x_row;
    for (int64_t oy = y0; oy < y1; oy++) {
        int64_t first;
        const int64_t top = oy * $SH - g->pad_h, rows = ${S}_inside(top, g->ih, $DH, $KH, &first) - first;
        const int tall = rows == $KH && n == $P;
        for (int64_t ox = 0;; ox += $P) {
            if (ox > last) ox = last;
            const int64_t left = ox * $SW - g->pad_w, pixel = oy * g->ow + ox;
            const $X *at = x + (top + first * $DH) * g->x_row + left * step;
            $Y *to = o->c + pixel * o->c_row + channel;
            $V acc[$P];
            EACH(p < $P) acc[p] = ${V}_all($empty);
            if (tall && left >= 0 && left + $span <= g->iw) {
                ${S}_fold(acc, 1, at, step, down, $KH, 0);
                IRC_FULL_UNROLL
                for (int p = 0; p < $P; p++, to += o->c_row)
                    $SY(to, ${S}_epilogue(o, acc[p]$whole, pixel + p, channel, $L));
            } else {
                if (rows > 0) ${S}_fold(acc, 0, at, step, down, rows, ${S}_columns(left, g->iw));
                IRC_FULL_UNROLL
                for (int p = 0; p < $P; p++, to += o->c_row) {
                    if (p >= n) break;
                    $SY(to, ${S}_epilogue(o, acc[p]$edge, pixel + p, channel, $L));
                }
            }
            if (ox == last) break;
        }
    }
}
"""
_FOLDED = """\
                    const $V next = ${LX}_part(at, g->channels);
                    acc = $fold;
"""

_COUNT = """
/* By how much the sum of the window at (top, left) is divided. */
IRC_INLINE $V ${S}_count(const ${S}_call *g, int64_t top, int64_t left) {
    int64_t y, x;
    const int64_t rows = ${S}_inside(top$low_h, g->ih$size_h, $DH, $KH, &y) - y;
    const int64_t cols = ${S}_inside(left$low_w, g->iw$size_w, $DW, $KW, &x) - x;
    return ${V}_all(($T)((rows > 0 ? rows : 0) * (cols > 0 ? cols : 0)));
}
"""

_BODY = """
/* Pieces begin to end: images, then strips, then vectors of channels.  Where the last vector would not be full, it
   overlaps the one before, in the same piece. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_call *g = given;
    const int64_t vectors = g->channels < $L ? 1 : g->channels / $L, strips = (g->oh + g->strip - 1) / g->strip;
    for (; begin < end; begin++) {
        const int64_t vector = begin % vectors, channel = vector * $L, last = g->channels - $L;
        const int64_t image = begin / vectors / strips, y0 = begin / vectors % strips * g->strip;
        const int64_t y1 = g->oh - y0 < g->strip ? g->oh : y0 + g->strip;
        ${S}_out o = {.c = g->y + image * g->y_batch, .c_row = g->y_pixel, .n = g->channels};$slot_starts
        const $X *x = g->x + image * g->x_batch;
        if (last < 0) ${S}_few(g, &o, x, y0, y1);
        else ${S}_rows(g, &o, x + channel, y0, y1, channel);
        if (vector == vectors - 1 && channel < last) ${S}_rows(g, &o, x + last, y0, y1, last);
    }
}

void $S($parameters) {
    ${S}_call call = {$assigned, .strip = g->oh};
    if (g->batch <= 0 || g->channels <= 0 || g->oh <= 0 || g->ow <= 0) return;
    const int64_t bytes = g->iw * g->channels * $size * $SH, most = bytes > 0 && bytes < $strip ? $strip / bytes : 1;
    if (most < g->oh) call.strip = (g->oh + (g->oh + most - 1) / most - 1) / ((g->oh + most - 1) / most);
    const int64_t strips = (g->oh + call.strip - 1) / call.strip, vectors = g->channels < $L ? 1 : g->channels / $L;
    const int64_t pieces = g->batch * strips * vectors;
    const double work = (double)g->batch * (double)g->channels * (double)(g->oh * g->ow) * ($KH + $KW);
    if (!pool || pieces < 2 || work < $worthwhile) ${S}_part(&call, 0, pieces);
    else pool->parallel_for(pool->self, pieces, ${S}_part, &call);
}
"""

_WHOLE = """
/* Folds n pixels of W vectors of channels from `channel` on: short runs of partial sums, so that long sums keep their
   digits. They go through the epilogue of `o` if there is one. */
IRC_INLINE void ${S}_span(const int W, const ${S}_args *g, const ${S}_out *o, const $T *x, int64_t n, $T *to,
                          int64_t channel) {
    const int64_t step = g->x_pixel;
    x += channel;
    $V all[$G];
    EACH(w < W) all[w] = ${V}_all($empty);
    for (int64_t left = n; left > 0; left -= $block) {
        int64_t some = left < $block ? left : $block;
        $V acc[$U][$G], next;
        EACH(u < $U, w < W) acc[u][w] = ${V}_all($empty);
        for (; some >= $U; some -= $U) {
            IRC_FULL_UNROLL
            for (int u = 0; u < $U; u++, x += step) {
                IRC_FULL_UNROLL
                for (int w = 0; w < W; w++) {
                    next = ${V}_load(x + w * $L);
                    acc[u][w] = $one;
                }
            }
        }
        for (; some > 0; some--, x += step) {
            IRC_FULL_UNROLL
            for (int w = 0; w < W; w++) {
                next = ${V}_load(x + w * $L);
                acc[0][w] = $first;
            }
        }
        IRC_FULL_UNROLL
        for (int w = 0; w < W; w++) {
            IRC_FULL_UNROLL
            for (int u = 1; u < $U; u++) {
                next = acc[u][w];
                acc[0][w] = $first;
            }
            next = acc[0][w];
            all[w] = $total;
        }
    }
    if (o) {
        EACH(w < W) all[w] = ${S}_epilogue(o, all[w]$divide, 0, channel + w * $L, $L);
    }
    EACH(w < W) ${V}_store(to + channel + w * $L, all[w]);
}

/* The same of all channels, where there are fewer than a vector holds. */
static void ${S}_few(const ${S}_args *g, const ${S}_out *o, const $T *x, int64_t n, $T *to) {
    $V acc = ${V}_all($empty);
    for (int64_t begin = 0; begin < n; begin += $block) {
        const int64_t end = n - begin < $block ? n : begin + $block;
        $V next = ${V}_all($empty);
        for (int64_t i = begin; i < end; i++) {
            const $V sum = next;
            next = ${V}_load_part(x + i * g->x_pixel, g->channels);
            next = $sum;
        }
        acc = $fold;
    }
    if (o) acc = ${S}_epilogue(o, acc$divide, 0, 0, g->channels);
    ${V}_store_part(to, acc, g->channels);
}

/* Runs of pixels of an image: by its size alone, so that results do not depend on threads. */
static int64_t ${S}_runs(const ${S}_args *g) {
    if ((double)g->channels * (double)g->n < $worthwhile) return 1;
    return g->n >= 1024 ? $most : g->n >= 256 ? 8 : g->n >= 128 ? 4 : g->n >= 8 ? 2 : 1;
}

/* Folds what the runs of an image have left in scratch.  A last vector, if not full, overlaps the one before. */
static void ${S}_finish(const ${S}_args *g, int64_t image, int64_t runs) {
    const $T *const sums = g->scratch + image * runs * g->channels;
    ${S}_out o = {.c = g->y + image * g->y_batch, .n = g->channels};$slot_starts
    for (int64_t channel = 0; channel < g->channels; channel += $L) {
        const int64_t n = g->channels < $L ? g->channels : $L;
        if (channel + n > g->channels) channel = g->channels - n;
        $V acc = ${V}_all($empty);
        for (int64_t run = 0; run < runs; run++) {
            const $T *const from = sums + run * g->channels + channel;
            const $V next = n == $L ? ${V}_load(from) : ${V}_load_part(from, n);
            acc = $fold;
        }
        acc = ${S}_epilogue(&o, acc$divide, 0, channel, n);
        if (n == $L) ${V}_store(o.c + channel, acc);
        else ${V}_store_part(o.c + channel, acc, n);
    }
}

/* Pieces begin to end: images, then runs of pixels. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t runs = ${S}_runs(g), channels = g->channels;
    for (; begin < end; begin++) {
        const int64_t image = begin / runs, run = begin % runs;
        const int64_t first = run * g->n / runs, n = (run + 1) * g->n / runs - first;
        const $T *const x = g->x + image * g->x_batch + first * g->x_pixel;
        ${S}_out o = {.c = g->y + image * g->y_batch, .n = channels};$slot_starts
        const ${S}_out *const last = runs == 1 ? &o : 0;
        $T *const to = last ? o.c : g->scratch + begin * channels;
        int64_t channel = 0;
        if (channels < $L) {
            ${S}_few(g, last, x, n, to);
            continue;
        }
        for (; channel + $G * $L <= channels; channel += $G * $L) ${S}_span($G, g, last, x, n, to, channel);
        for (; channel + $L <= channels; channel += $L) ${S}_span(1, g, last, x, n, to, channel);
        if (channel < channels) ${S}_span(1, g, last, x, n, to, channels - $L);
    }
}

void $S($parameters) {
    if (g->batch <= 0 || g->channels <= 0) return;
    const int64_t runs = ${S}_runs(g), pieces = g->batch * runs;
    const double work = (double)g->batch * (double)g->channels * (double)g->n;
    if (!pool || pieces < 2 || work < $worthwhile) ${S}_part((void *)g, 0, pieces);
    else pool->parallel_for(pool->self, pieces, ${S}_part, (void *)g);
    for (int64_t image = 0; runs > 1 && image < g->batch; image++) ${S}_finish(g, image, runs);
}
"""


def _folding(v: object, mode: Mode, to: str) -> str:
    return f"{to} + next" if mode == "average" else f"{v}_max({to}, next)"


class _Pool(Kernel[P]):
    """Base of both pools: one operand, slots, no scratch."""

    tile: Tile
    mode: Mode
    epilogue: Epilogue
    x_bf16: bool
    y_bf16: bool
    extents: str

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        t = str(names(self.tile)["T"])
        x, y = "uint16_t" if self.x_bf16 else t, "uint16_t" if self.y_bf16 else t
        return (("x", f"const {x} *"), *self.epilogue.pointers(t), ("y", f"{y} *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        return (*self.extents.split(), *(f"s{i}_{f}" for i, f in self.epilogue.strides(*STRIDES)))

    @property
    def label(self) -> str:
        return "channels last"

    def _given(self) -> dict[str, object]:
        """Return the names in the templates of both."""
        given = names(self.tile)
        return (
            given
            | self.interface
            | {
                "S": self.symbol,
                "empty": "0" if self.mode == "average" else "-INFINITY",
                "fold": _folding(given["V"], self.mode, "acc"),
                "worthwhile": WORTHWHILE,
                "slot_starts": slot_starts(self.epilogue),
            }
        )


@kernel
class NhwcPoolKernel(_Pool[PoolProblem]):
    """A generated pool, channels last; tile.rows is the number of pixels of a register tile.

    x_bf16, y_bf16: x and y are bf16 (`irc.kernels.vector.bf16_io`), for 16 lanes of f32.
    """

    tile: Tile
    mode: Mode
    window: Pair
    strides: Pair
    dilations: Pair
    counted: Counted
    epilogue: Epilogue
    x_bf16: bool = False
    y_bf16: bool = False
    extents = "batch channels ih iw oh ow pad_h pad_w end_h end_w x_batch x_row x_pixel y_batch y_pixel"

    problem = PoolProblem

    @classmethod
    def candidates(cls, problem: PoolProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant unless windows are too wide."""
        p = problem
        if p.layout != "nhwc":
            return
        row = (p.window[1], p.strides[1], p.dilations[1])
        if p.dtype in (f32, f64) and p.channels.is_const:
            isa = isa.filled_by(p.dtype, int(p.channels))
        if pixels := pixels_of(p.result[1], *row, isa.registers - RESERVED):
            yield cls(Tile(isa, p.dtype, pixels, 1), p.mode, p.window, p.strides, p.dilations, p.counted, p.epilogue)

    def cycles(self, problem: PoolProblem) -> float:
        (oh, ow), t = map(likely_extent, problem.result), self.tile
        loads, folded = len(self._row.columns) * self.window[0] / LOADS, t.rows * self.window[1] / t.isa.fma
        tiles = likely(problem.batch) * oh * -(-ow // t.rows) * -(-likely(problem.channels) // t.lanes)
        return tiles * (loads + folded)

    def arguments_for(self, problem: PoolProblem) -> dict[str, Dim]:
        _, _, row, pixel = problem.x
        sizes = problem.arguments() | {"x_row": row, "x_pixel": pixel, "y_pixel": problem.y[2]}
        for i, (axes, strides) in enumerate(zip(self.epilogue.slots, problem.slots, strict=True)):
            sizes[f"s{i}_batch"] = strides[0]
            if axes in ("column", "full"):
                sizes[f"s{i}_pixel"] = strides[1]
        return sizes

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        ow, image = sizes["ow"], (sizes["batch"], sizes["channels"])
        shape, to = (*image, sizes["ih"], sizes["iw"]), (*image, sizes["oh"], ow)

        def view(flat: Array, name: str, pixel: int, channel: int) -> Array:
            return strided(flat, to, (sizes[f"{name}_batch"], channel, ow * pixel, pixel))

        x = strided(reads[0], shape, (sizes["x_batch"], 1, sizes["x_row"], sizes["x_pixel"]))
        slots = [
            view(flat, f"s{i}", sizes.get(f"s{i}_pixel", 0), int(axes in ("row", "full")))
            for i, (flat, axes) in enumerate(zip(reads[1:], self.epilogue.slots, strict=True))
        ]
        folded = pooled(self.mode, self.counted, self.window, self.strides, self.dilations, x, sizes)
        view(writes[0], "y", sizes["y_pixel"], 1)[...] = apply(self.epilogue, folded, slots)

    @property
    def keeps_elements(self) -> bool:
        return self.mode == "max" and not self.epilogue.key() and self.tile.is_wide

    @cached_property
    def symbol(self) -> str:
        shape = f"{self.window[0]}x{self.window[1]}_s{self.strides[0]}x{self.strides[1]}"
        gaps = f"d{self.dilations[0]}x{self.dilations[1]}"
        words = self.tile.name.removeprefix("irc_tile_")
        key = f"{self.epilogue.key()}{bf16_io.key(self.x_bf16, self.y_bf16)}"
        return symbol("pool_last", self.mode, shape, gaps, self.counted, words, key)

    def flops(self, sizes: Sizes) -> Dim:
        extents = product(sizes[n] for n in ("batch", "channels", "oh", "ow"))
        return extents * (self.window[0] * self.window[1])

    def parts(self) -> list[Part]:
        t = self.tile
        given = self._given() | window_names(self.window, self.strides, self.dilations)
        given |= bf16_io.names(self.x_bf16, self.y_bf16, t) | {
            "P": t.rows,
            "strip": STRIP,
            "span": self._row.columns[-1] + 1,
        }
        unroll = "\n        IRC_FULL_UNROLL" if self.window[0] <= UNROLLED else ""
        few, divided = self._divided(given)
        return [
            prelude(t, self.epilogue),
            bf16_io.text(self.x_bf16, self.y_bf16),
            epilogue_of(self.symbol, t, self.epilogue, given["Y"]),
            fill(_CALL, **given),
            bounds(self.symbol, self._row.columns),
            self._count(given),
            fill(_TILE, **given, **divided, columns="".join(self._row.walk(self._column)), unroll=unroll),
            few_channels(given, "${V}_all($empty)", _FOLDED, few),
            fill(_BODY, **given),
        ]

    @property
    def summary(self) -> str:
        (kh, kw), (sh, sw) = self.window, self.strides
        return f"Pool, channels last, {self.tile.dtype}: {self.mode} of {kh} x {kw} windows, strides {sh} and {sw}."

    @cached_property
    def _row(self) -> TileRow:
        return TileRow(self.tile.rows, self.window[1], self.strides[1], self.dilations[1])

    def _column(self, column: int) -> str:
        """Print a column under a tile: its rows are folded, and then into all pixels that hold it."""
        v = names(self.tile)["V"]
        folded = f"        next = {self.symbol}_column(from, down, inside, n);\n        {v}_keep(&next);\n"
        into = (
            f"        acc = sum[{p}];\n        sum[{p}] = {_folding(v, self.mode, 'acc')};\n"
            for p, _ in self._row.users(column)
        )
        return folded + "".join(into)

    def _divided(self, given: dict[str, object]) -> tuple[str, dict[str, str]]:
        """Print what the sums are divided by: if channels are few, and by name in tiles inside and at edges."""
        if self.mode == "max":
            return "", {"whole": "", "edge": ""}
        whole = f" / {given['V']}_all({self.window[0] * self.window[1]})"
        if self.counted == "window":
            return whole, {"whole": whole, "edge": whole}
        few = f" / {self.symbol}_count(g, top, left)"
        return few, {"whole": whole, "edge": few.replace("left", f"left + p * {self.strides[1]}")}

    def _count(self, given: dict[str, object]) -> str:
        if self.mode == "max" or self.counted == "window":
            return ""
        padded = self.counted == "padded"
        low = {f"low_{a}": f" + g->pad_{a}" if padded else "" for a in "hw"}
        size = {f"size_{a}": f" + g->pad_{a} + g->end_{a}" if padded else "" for a in "hw"}
        return fill(_COUNT, **given, **low, **size)


@kernel
class NhwcGlobalPoolKernel(_Pool[GlobalPoolProblem]):
    """The largest element or the mean of the n pixels of every channel of every image; equidistant pixels.

    The result is one pixel for each image; the epilogue's columns are channels.
    """

    tile: Tile
    mode: Mode
    epilogue: Epilogue
    x_bf16 = y_bf16 = False
    extents = "batch channels n x_batch x_pixel y_batch"

    problem = GlobalPoolProblem

    @classmethod
    def candidates(cls, problem: GlobalPoolProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant if channels are contiguous, and there are several pixels."""
        side_by_side = problem.channels == 1 or (problem.x[1] == 1 and problem.y[1] == 1)
        if side_by_side and problem.pixels != 1:
            yield cls(Tile(isa, problem.dtype, 4, 4 if isa.registers == 32 else 2), problem.mode, problem.epilogue)

    def cycles(self, problem: GlobalPoolProblem) -> float:
        channels, pixels = likely(problem.channels), likely(problem.pixels)
        if channels < self.tile.lanes:  # one sum, of parts of vectors
            return likely(problem.batch) * pixels * (LATENCY + PART)
        return likely(problem.batch) * -(-channels // self.tile.lanes) * (pixels + self.tile.rows) / LOADS

    def arguments_for(self, problem: GlobalPoolProblem) -> dict[str, Dim]:
        slots = {f"s{i}_batch": stride for i, stride in enumerate(problem.slots)}
        return problem.arguments() | {"x_pixel": problem.x[2]} | slots

    def scratch(self, problem: GlobalPoolProblem) -> Dim:
        return Dim.of(problem.batch) * problem.channels * (RUNS * self.tile.dtype.itemsize)

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        return (*super().pointers, ("scratch", f"{names(self.tile)['T']} *"))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        to = (sizes["batch"], sizes["channels"])
        x = strided(reads[0], (to[0], sizes["n"], to[1]), (sizes["x_batch"], sizes["x_pixel"], 1))
        slots = [
            strided(flat, to, (sizes[f"s{i}_batch"], int(axes in ("row", "full"))))
            for i, (flat, axes) in enumerate(zip(reads[1:], self.epilogue.slots, strict=True))
        ]
        folded = x.max(1) if self.mode == "max" else x.mean(1)
        strided(writes[0], to, (sizes["y_batch"], 1))[...] = apply(self.epilogue, folded, slots)

    @cached_property
    def symbol(self) -> str:
        words = self.tile.name.removeprefix("irc_tile_")
        return symbol("global_pool_last", self.mode, words, self.epilogue.key())

    def flops(self, sizes: Sizes) -> Dim:
        return product(sizes[n] for n in ("batch", "channels", "n"))

    @property
    def summary(self) -> str:
        return f"The {self.mode} of all pixels, channels last, {self.tile.dtype}."

    def parts(self) -> list[Part]:
        t, given = self.tile, self._given()
        v = given["V"]
        given |= {
            "G": t.vectors,
            "U": t.rows,
            "block": RUN_PIXELS,
            "most": RUNS,
            "worthwhile": DIVIDED,
            "one": _folding(v, self.mode, "acc[u][w]"),
            "first": _folding(v, self.mode, "acc[0][w]"),
            "total": _folding(v, self.mode, "all[w]"),
            "sum": _folding(v, self.mode, "sum"),
            "divide": f" / {v}_all(({given['T']})g->n)" if self.mode == "average" else "",
        }
        return [prelude(t, self.epilogue), epilogue_of(self.symbol, t, self.epilogue), fill(_WHOLE, **given)]
