"""Convolution of stride 1, NHWC, of three, five or seven taps along an axis, by Winograd's minimal filtering.

A tile of 2 × 2 outputs of a window 3 × 3 comes of 4 × 4 inputs by 16 products instead of 36, one of 4 × 4, or of 2 × 2
of a window 5 × 5, of 6 × 6 by 36 instead of 144 and 100; windows of a line have lines for tiles
(`irc.kernels.conv.winograd_transforms`).  Some tiles at a time, which may be of several images, are transformed into
scratch, [position][block of ic][tile][channel of the block]; then each panel of output channels is as many matrix
products over ic as there are positions, whose sums are transformed back and pass through the epilogue.  Weights are
transformed when compiling, in f64: [panel of oc][position][ic][panel], one group of channels after the other.  Nothing
outside the input is read.

Of a dilated window the pixels of a tile, of inputs as of outputs, are the dilation apart: tiles of each remainder by it
stand beside those of the next one.

Threads split groups, tiles and panels, never the sum: results do not depend on them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from irc.ir.dim import Dim, DimLike, product
from irc.ir.types import DType, f32, f64
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.conv.reference import convolve
from irc.kernels.conv.winograd_transforms import Filtering, filterings_of
from irc.kernels.core import costs
from irc.kernels.core.base import Array, Kernel, Packed, Sizes
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import likely_extent
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol, tile_body
from irc.kernels.core.tile import Tile, epilogue_of, heights_of, names, prelude
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.gemm.tasks import WORTHWHILE
from irc.kernels.gemm.tiled import LONGEST_SUM
from irc.kernels.vector.pixels import STRIDES, slot_starts

UNROLL = 4  # products of a sum in one round of the loop
NEAR = 32  # products ahead whose weights are fetched to the first cache
MOST_ROWS = 8  # tiles of the register tile's height that are transformed at a time
FEW_TASKS = 16  # for threads; with fewer, output channels are split too

_TILE = """/* C[$MR][$NR] (+)= sum over `blocks` blocks of $L channels of X[block][row][channel] * W[channel][$NR].  Of
   what comes next it fetches `hop` elements for $U channels. */
static void ${body}(int64_t blocks, const $T *restrict x, int64_t x_block, const $T *restrict w, $T *restrict c,
                    int first, const $T *ahead, int64_t hop) {
    $V acc[$MR][$NV], bv[$NV];
    IRC_FULL_UNROLL
    for (int i = 0; i < $MR; i++) {
        IRC_FULL_UNROLL
        for (int v = 0; v < $NV; v++) acc[i][v] = ${V}_zeros();
    }
    for (; blocks > 0; blocks--, x += x_block) {
        for (int j = 0; j < $L; j += $U, w += $U * $NR, ahead += hop) {
            __builtin_prefetch(ahead, 0, 2);
            if (hop * $size > 64) __builtin_prefetch(ahead + 64 / $size, 0, 2);
            if (hop * $size > 128) {
                IRC_FULL_UNROLL
                for (int at = 128; at < $U * $NR * $size; at += 64) __builtin_prefetch(ahead + at / $size, 0, 2);
            }
            IRC_FULL_UNROLL
            for (int u = 0; u < $U; u++) {
                IRC_FULL_UNROLL
                for (int v = 0; v < $NV; v++) bv[v] = ${V}_load_kept(w + u * $NR + v * $L);
                IRC_FULL_UNROLL
                for (int v = 0; v < $NV; v++)
                    if ((u * $NR + v * $L) * $size % 64 == 0) __builtin_prefetch(w + $near + u * $NR + v * $L);
                IRC_FULL_UNROLL
                for (int i = 0; i < $MR; i++) {
                    IRC_FULL_UNROLL
                    for (int v = 0; v < $NV; v++) ${V}_add_product(&acc[i][v], x[i * $L + j + u], bv[v]);
                }
            }
        }
    }
    IRC_FULL_UNROLL
    for (int i = 0; i < $MR; i++) {
        IRC_FULL_UNROLL
        for (int v = 0; v < $NV; v++) {
            if (!first) acc[i][v] += ${V}_load(c + i * $NR + v * $L);
            ${V}_store(c + i * $NR + v * $L, acc[i][v]);
        }
    }
}
"""

_CALL = """
typedef struct {$fields
    /* Blocks and panels of a group's channels; tiles of all images; `heights` of register tiles, up to `most` of them
       transformed at a time, in `chunks`; `parts` of the panels are tasks of their own.  Of `wide` panels each position
       is multiplied before the next one. */
    int64_t blocks, panels, tiles, heights, chunks, parts;
} ${S}_call;

typedef struct {
    int64_t image, y, x; /* of the result: where a tile begins */
} ${S}_corner;

$runs
static ${S}_corner ${S}_corner_of(const ${S}_call *g, int64_t tile) {
    const int64_t across = $across, down = $down, all = down * across, i = tile % all / across, j = tile % across;
    return (${S}_corner){tile / all, $row, $column};
}

IRC_INLINE void ${S}_advance(const ${S}_call *g, ${S}_corner *at) {
    at->x += $next_column;
    if (at->x < g->ow) return;
    at->x = 0;
    at->y += $next_row;
    if (at->y < g->oh) return;
    at->y = 0, at->image++;
}

/* For threads, chunks of an even number, and parts of the panels where these are few. */
static void ${S}_plan(${S}_call *g, int alone) {
    g->blocks = (g->ic + $L - 1) / $L;
    g->panels = (g->oc + $NR - 1) / $NR;
    const int64_t down = $down, across = $across;
    g->tiles = g->batch * down * across;
    g->heights = (g->tiles + $MR - 1) / $MR;
    g->chunks = (g->heights + g->most - 1) / g->most;
    g->parts = 1;
    if (alone || g->groups * g->chunks >= $few) return;
    const int64_t small = $P * g->panels * g->blocks * ($L * $NR * $size) <= $cached, many = small ? 4 : 2;
    const int64_t round = g->heights < many ? 2 : many, even = (g->chunks + round - 1) / round * round;
    if (g->wide == 1 && g->groups % 2 && even <= g->heights) g->chunks = even; /* else each thread reads all weights */
    const int64_t parts = ($few + g->groups * g->chunks - 1) / (g->groups * g->chunks);
    g->parts = parts < g->panels ? parts : g->panels;
}

/* Tiles t0 to t1 of a group, transformed; the rest of the last register tile is zero. */
static void ${S}_enter(const ${S}_call *g, int64_t group, int64_t t0, int64_t t1, $T *to, int64_t step) {
    const int64_t rows = (t1 - t0 + $MR - 1) / $MR * $MR;
    ${S}_corner corner = ${S}_corner_of(g, t0);
    for (int64_t t = t0; t < t0 + rows; t++, ${S}_advance(g, &corner), to += $L) {
        const int64_t y = corner.y - g->pad_h, x = corner.x - g->pad_w;
        uint64_t inside = 0;
        for (int k = 0; k < $P && t < t1; k++)
            inside |= (uint64_t)($at_y >= 0 && $at_y < g->ih && $at_x >= 0 && $at_x < g->iw) << k;
        const $T *from = g->x + corner.image * g->x_batch + group * g->ic + y * g->x_row + x * g->x_pixel;
        for (int64_t b = 0; b < g->blocks; b++) {
            const int64_t left = g->ic - b * $L;
            $T *at = to + b * (g->most * $MR * $L);
            if (inside == $every && left >= $L)
                irc_winograd_${tile}_enter_whole_$V(from + b * $L, $x_row, $x_pixel, at, step);
            else
                irc_winograd_${tile}_enter_edge_$V(inside, from + b * $L, $x_row, $x_pixel, left, at, step);
        }
    }
}

/* Sums of tiles t0 to t1, for channels from `col` on, transformed back and through the epilogue to the output. */
static void ${S}_leave(const ${S}_call *g, int64_t group, int64_t t0, int64_t t1, int64_t col, const $T *from,
                       int64_t step) {
    ${S}_corner corner = ${S}_corner_of(g, t0);
    for (int64_t t = t0; t < t1; t++, ${S}_advance(g, &corner), from += $NR) {
        const int64_t image = corner.image, oy = corner.y, ox = corner.x;
        ${S}_out o = {.c = g->y + image * g->y_batch + group * g->oc, .c_row = g->y_pixel, .n = g->oc};$slot_starts
        for (int64_t v = 0; v * $L < $NR && col + v * $L < g->oc; v++) {
            const int64_t at = col + v * $L, left = g->oc - at;
            $V y[$rows][$columns];
            irc_winograd_${tile}_leave_$V(from + v * $L, step, y);
            for (int k = 0; k < $outputs; k++) {
                if ($to_y >= g->oh || $to_x >= g->ow) continue;
                const int64_t pixel = ($to_y) * g->ow + $to_x;
                $T *const to = o.c + pixel * o.c_row + at;
                if (left >= $L) ${V}_store(to, ${S}_epilogue(&o, y[k / $columns][k % $columns], pixel, at, $L));
                else ${V}_store_part(to, ${S}_epilogue(&o, y[k / $columns][k % $columns], pixel, at, left), left);
            }
        }
    }
}
"""

_BODY = """
/* Tasks begin to end: groups, chunks of tiles, parts of the panels (these share the transform). */
static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_call *const g = given;
    const int64_t block = g->most * $MR * $L; /* between blocks of channels; positions are no power of two apart */
    const int64_t v_step = g->blocks * block + $L, m_panel = g->most * $MR * $NR;
    const int64_t m_step = g->wide * m_panel + $L;
    int64_t *const entered = (int64_t *)(void *)own; /* of which group and chunk the tiles stand in v */
    $T *const v = ($T *)(void *)(own + 64), *const m = v + $P * v_step;
    while (begin < end) {
        const int64_t part = begin % g->parts, chunk = begin / g->parts % g->chunks;
        const int64_t group = begin / g->parts / g->chunks;
        const int64_t run = g->parts - part < end - begin ? g->parts - part : end - begin;
        const int64_t t0 = g->heights * chunk / g->chunks * $MR, next = g->heights * (chunk + 1) / g->chunks * $MR;
        const int64_t t1 = next < g->tiles ? next : g->tiles;
        if (*entered != begin / g->parts) ${S}_enter(g, group, t0, t1, v, v_step);
        *entered = begin / g->parts;
        const int64_t rows = (t1 - t0 + $MR - 1) / $MR, hop = ($U * $NR + rows - 1) / rows; /* each fetches a share */
        const int64_t p1 = g->panels * (part + run) / g->parts, of = $L * $NR; /* weights of a block of a panel */
        for (int64_t p0 = g->panels * part / g->parts; p0 < p1; p0 += g->wide) {
            const int64_t end = p0 + g->wide < p1 ? p0 + g->wide : p1;
            for (int64_t k = 0; k < $P; k++) {
                for (int64_t p = p0; p < end; p++) {
                    const int64_t last = p + 1 == end, next = !last ? $P : k + 1 < $P ? 1 - (p - p0) * $P : 1;
                    const $T *w = g->w + ((group * g->panels + p) * $P + k) * g->blocks * of;
                    for (int64_t b = 0; b < g->blocks; b += $sum) {
                        const int64_t left = g->blocks - b, deep = left < $sum ? left : $sum;
                        const $T *ahead = w + (left > deep ? b + deep : next * g->blocks) * of;
                        $T *to = m + k * m_step + (p - p0) * m_panel;
                        const $T *from = v + k * v_step + b * block;
                        for (int64_t t = 0; t < t1 - t0; t += $MR, to += $MR * $NR, ahead += deep * ($L / $U) * hop)
                            ${body}(deep, from + t * $L, block, w + b * of, to, b == 0, ahead, hop);
                    }
                }
            }
            for (int64_t p = p0; p < end; p++) ${S}_leave(g, group, t0, t1, p * $NR, m + (p - p0) * m_panel, m_step);
        }
        begin += run;
    }
}
"""

# Tasks are divided among threads: `$pieces` whose tiles are transformed together, and parts of the panels.
ENTRY = """
void $S($parameters) {
    ${S}_call call = {$assigned};
    if (g->batch <= 0 || g->oh <= 0 || g->ow <= 0) return;
    const double work = (double)$images * (double)(g->oh * g->ow) * (double)g->oc * (double)(4 * g->ic);
    const int alone = !pool || work < $worthwhile;
    ${S}_plan(&call, alone);
    const int64_t tasks = $pieces * call.parts;
    irc_divide(alone ? 0 : pool, tasks, ${S}_part, &call, g->own, g->own_bytes, g->owners);
}
"""


_RUNS = """
/* Runs of `side` pixels that cover n in a row, their pixels `apart`: one of each remainder stands behind the other. */
IRC_INLINE int64_t ${S}_runs(int64_t n, int64_t side, int64_t apart) {
    const int64_t left = n % (side * apart);
    return n / (side * apart) * apart + (left < apart ? left : apart);
}
"""


@kernel
class WinogradKernel(Kernel[ConvProblem]):
    """A generated convolution of stride 1: a row of `tile` is a square or a line of outputs, as `filtering` says.

    dilated: the axes along which their pixels, of outputs as of inputs, are a dilation apart, which is an argument:
    networks have many.
    """

    tile: Tile
    epilogue: Epilogue
    filtering: Filtering
    dilated: tuple[bool, bool]

    problem = ConvProblem

    @classmethod
    def candidates(cls, problem: ConvProblem, isa: Isa) -> Iterator[Self]:
        p = problem
        if p.layout == "nhwc" and p.strides == (1, 1) and p.dtype in (f32, f64):
            filterings = filterings_of(p.window)
            down, across = (taps > 1 and apart > 1 for taps, apart in zip(p.window, p.dilations, strict=True))
            for length, filtering in itertools.product(costs.lengths_for(isa, p.dtype, p.oc), filterings):
                for vectors, most in _tiles(length, p.oc, p.dtype).items():
                    rows = heights_of(_tiles_of(p, filtering), most)[-1]
                    yield cls(Tile(length, p.dtype, rows, vectors), p.epilogue, filtering, (down, across))

    def cycles(self, problem: ConvProblem) -> float:
        """Estimate the matrix products over whole register tiles, the transforms, and the more of weights."""
        p, t, f = problem, self.tile, self.filtering
        tiles = p.images * likely_extent(p.runs(*f.sides))
        panels, blocks = -(-p.oc // t.panel), -(-p.ic // t.lanes)
        step = max(t.rows * t.vectors / t.isa.fma, (t.rows + t.vectors) / 2, 4.0)
        products = f.positions * -(-tiles // t.rows) * panels * blocks * t.lanes * step / self._reached
        vectors, partial = divmod(p.oc, t.lanes)
        part = costs.PARTIAL_MASKED if t.isa.vector == 64 else costs.PARTIAL
        back = costs.TRANSFORM_BACK[f.positions, f.outputs] * (vectors + (part if partial else 0))
        transforms = tiles * (blocks * costs.TRANSFORM[f.positions] + back) * costs.relative(t.isa)
        found = costs.costs_of(t.isa)
        far = found.winograd_near if p.near and found.winograd_near else found.winograd_stream
        weights = self._transformed(p) / (costs.SECOND_CACHE if self._resident(p) else far)
        work = p.groups * (products + transforms)
        return work + weights - min(weights / 2, found.winograd_hides * work)

    def _transformed(self, problem: ConvProblem) -> int:
        """Count the bytes of the transformed weights, without what fills panels."""
        return self.filtering.positions * problem.outputs * problem.ic * self.tile.dtype.itemsize

    def _resident(self, problem: ConvProblem) -> bool:
        """Say whether the second cache holds the weights when they are read: transformed, they are up to four times as
        many."""
        return problem.resident and self._transformed(problem) <= self.tile.isa.l2

    @property
    def _reached(self) -> float:
        """The part of the peak that is reached: by the set's own tile, and by others as they compare in products."""
        t = self.tile
        found = costs.costs_of(t.isa)
        parts = {vectors: part for (_, vectors), part in found.tiles.items()}
        return found.winograd * parts.get(t.vectors, parts[t.isa.vectors]) / parts[t.isa.vectors]

    @property
    def label(self) -> str:
        return f"winograd {self.filtering.name}, {self.tile.rows}x{self.tile.vectors} of {self.tile.lanes}"

    def arguments_for(self, problem: ConvProblem) -> dict[str, Dim]:
        tiles, resident = _tiles_of(problem, self.filtering), self._resident(problem)
        wide = 1 if resident else self.wide(problem.ic, problem.oc, tiles)
        most = tiles.ceildiv(self.tile.rows) if wide > 1 else Dim.of(self.most(problem.ic, tiles, resident))
        plan = {"groups": Dim.of(problem.groups), "most": most, "wide": Dim.of(wide)}
        apart = {f"dilation_{axis}": Dim.of(n) for axis, n in zip("hw", problem.dilations, strict=True)}
        found = problem.arguments() | problem.channel_arguments() | plan
        return found | {name: apart[name] for name in self._apart}

    def packed(self, problem: ConvProblem) -> Packed:
        groups, t = problem.groups, self.tile
        elements = self.packed_elements(problem.oc, problem.ic, groups)
        key = ("winograd", self.filtering.name, t.panel, t.lanes, groups)
        return Packed(key, t.dtype, elements, lambda w: self.pack_weights(w, groups))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        """Convolve with the weights that were transformed: their matrix has a left inverse."""
        groups, oc, ic, t, f = *(sizes[n] for n in ("groups", "oc", "ic")), self.tile, self.filtering
        panels, depth = -(-oc // t.panel), -(-ic // t.lanes) * t.lanes
        shape = groups, panels, f.positions, depth, t.panel
        u = reads[1][: np.prod(shape)].reshape(shape)
        g = np.einsum("ta,gpaio->gpoit", np.linalg.pinv(f.weights), u.astype(np.float64)).reshape(
            groups, -1, depth, f.taps
        )
        w = g[:, :oc, :ic].reshape(groups * oc, ic, *f.window).astype(t.dtype.numpy)
        dilations = sizes.get("dilation_h", 1), sizes.get("dilation_w", 1)
        convolve("nhwc", w, groups, (1, 1), dilations, self.epilogue, reads, writes, sizes)

    @cached_property
    def symbol(self) -> str:
        words = f"{self.filtering.name}_{self._body.removeprefix('irc_winograd_')}"
        if any(self.dilated):
            words += "_dilated_" + "".join(itertools.compress("hw", self.dilated))
        return symbol("winograd_conv", words, self.epilogue.key())

    @property
    def _body(self) -> str:
        t = self.tile
        return f"irc_winograd_{t.registers}_{t.rows}x{t.vectors}"

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        t = str(names(self.tile)["T"])
        read = (("x", f"const {t} *"), ("w", f"const {t} *"), *self.epilogue.pointers(t))
        return (*read, ("y", f"{t} *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        extents = "batch groups ic oc ih iw oh ow pad_h pad_w most wide x_batch x_row x_pixel y_batch y_pixel"
        return (*extents.split(), *self._apart, *(f"s{i}_{f}" for i, f in self.epilogue.strides(*STRIDES)))

    def most(self, ic: int, tiles: DimLike, resident: bool) -> int:
        """Choose `most` for this many tiles: what is transformed at a time takes the second cache.

        resident: whether the weights stand there, too: then it takes half.  Else all of them are read for each chunk.
        """
        t = self.tile
        at_once = (t.isa.l2 // 2 if resident else t.isa.l2) // (
            self.filtering.positions * t.rows * t.dtype.itemsize * (ic + t.panel)
        )
        return max(1, min(MOST_ROWS, at_once, Dim.of(tiles).ceildiv(t.rows).const or MOST_ROWS))

    def wide(self, ic: int, oc: int, tiles: DimLike) -> int:
        """Choose `wide` for this many tiles: 1, or all panels, where no weights are read twice then.

        That is where what is transformed, stored and read once more, is less than the weights that are read for each
        further chunk, and what a position has of it leaves them room in the second cache.
        """
        t, count, panels = self.tile, Dim.of(tiles), -(-oc // self.tile.panel)
        if not count.is_const:
            return 1
        heights = -(-int(count) // t.rows)
        again = (-(-heights // self.most(ic, count, False)) - 1) * ic * oc
        moved = heights * t.rows * (ic + panels * t.panel)
        worth = costs.costs_of(t.isa).winograd_again * moved <= again
        return panels if worth and moved * t.dtype.itemsize <= t.isa.l2 // 2 else 1

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        t = self.tile
        tiles, channels = sizes["most"] * t.rows, -(-sizes["ic"] // t.lanes) * t.lanes
        each = channels * tiles + tiles * t.panel * sizes["wide"] + 2 * t.lanes
        return 64 + self.filtering.positions * t.dtype.itemsize * each

    def packed_elements(self, oc: int, ic: int, groups: int = 1) -> int:
        """Count the elements of packed weights: `oc` output and `ic` input channels of a group."""
        t = self.tile
        return groups * self.filtering.positions * -(-oc // t.panel) * t.panel * -(-ic // t.lanes) * t.lanes

    def pack_weights(self, w: Array, groups: int = 1) -> Array:
        """Pack w[oc, ic, *window] of all groups, transformed, flat; channels are filled up with zeros."""
        t, (outputs, ic), f = self.tile, w.shape[:2], self.filtering
        made = f.weights @ w.reshape(outputs * ic, f.taps).T.astype(np.float64)
        oc, panels, depth = outputs // groups, -(-outputs // groups // t.panel), -(-ic // t.lanes) * t.lanes
        full = np.zeros((len(made), groups, panels * t.panel, depth), t.dtype.numpy)
        full[:, :, :oc, :ic] = made.reshape(-1, groups, oc, ic)
        split = full.reshape(len(made), groups, panels, t.panel, depth)
        return np.ascontiguousarray(split.transpose(1, 2, 0, 4, 3)).ravel()

    @property
    def executed(self) -> float:
        """Products of a tile instead of those of each output's taps."""
        return self.filtering.positions / (self.filtering.taps * self.filtering.outputs)

    def flops(self, sizes: Sizes) -> Dim:
        return 2 * self.filtering.taps * product(sizes[n] for n in ("batch", "groups", "oc", "ic", "oh", "ow"))

    @property
    def summary(self) -> str:
        window = "{}x{}".format(*self.filtering.window)
        dilated = ", dilated," if any(self.dilated) else ""
        return (
            f"Convolution {window}{dilated} by Winograd's F({self.filtering.name}, {window}), NHWC, {self.tile.dtype}, "
            f"{self.tile.rows} tiles x {self.tile.panel} channels."
        )

    def parts(self) -> list[Part]:
        s, t = self.symbol, self.tile
        given = names(t) | {"S": s, "body": self._body} | self.interface
        given |= {
            "U": min(UNROLL, t.lanes),
            "near": NEAR * t.panel,
            "few": FEW_TASKS,
            "cached": t.isa.l2 // 2,
            "worthwhile": WORTHWHILE,
        }
        f = self.filtering
        given |= {"P": f.positions, "every": (1 << f.positions) - 1, "outputs": f.outputs}
        given |= {"tile": f.name, "rows": f.sides[0], "columns": f.sides[1]} | self._places(given)
        given["sum"] = LONGEST_SUM // t.lanes
        given["slot_starts"] = slot_starts(self.epilogue, first=" + group * g->oc")
        return [
            prelude(t, self.epilogue),
            DIVIDE,
            tile_body(self._body, _TILE, **given),
            *f.parts(given),
            epilogue_of(s, t, self.epilogue),
            *(fill(text, **given) for text in (_CALL, _BODY)),
            fill(ENTRY, **given, images="(g->batch * g->groups)", pieces="g->groups * call.chunks"),
        ]

    @property
    def _apart(self) -> tuple[str, ...]:
        """The names of the dilations that are arguments."""
        return tuple(itertools.compress(("dilation_h", "dilation_w"), self.dilated))

    def _places(self, given: Mapping[str, object]) -> dict[str, str]:
        """Return the expressions of where tiles stand by their names in the templates.

        Of the i-th row and the j-th column of tiles the first pixel, how many there are, and how far the next is; of
        the k-th pixel of a tile its row and column.
        """
        f, found = self.filtering, dict[str, str]()
        axes = (("y", "row", "row", "down", "i", "h", "/"), ("x", "column", "pixel", "across", "j", "w", "%"))
        each = zip(axes, f.sides, self.dilated, strict=True)
        for (axis, line, stride, count, index, size, of), m, dilated in each:
            apart = f"g->dilation_{size}"
            step = f" * {apart}" if dilated else ""
            found[f"at_{axis}"] = f"{axis} + k {of} {f.inputs[1]}{step}"
            found[f"to_{axis}"] = f"o{axis} + k {of} {f.sides[1]}{step}"
            found[f"x_{stride}"] = f"g->x_{stride}{step}"
            found[count] = f"(g->o{size} + {m - 1}) / {m}" if m > 1 else f"g->o{size}"
            found[line], found[f"next_{line}"] = f"{index} * {m}", str(m)
            if dilated:
                found[count] = f"{self.symbol}_runs(g->o{size}, {m}, {apart})"
                found[line] = f"{index} / {apart} * {m} * {apart} + {index} % {apart}"
                next_one = f"(at->{axis} + 1) % ({m} * {apart}) < {apart} ? 1 : {m - 1} * {apart} + 1"
                found[f"next_{line}"] = next_one
        return found | {"runs": fill(_RUNS, **given) if any(self.dilated) else ""}


def _tiles_of(problem: ConvProblem, filtering: Filtering) -> Dim:
    """Count the tiles of all images; of one, for which register tiles are high enough, if their number is not known."""
    tiles = problem.runs(*filtering.sides)
    return tiles * problem.batch if problem.batch.is_const else tiles


def _tiles(isa: Isa, oc: int, dtype: DType) -> dict[int, int]:
    """List the widths of register tiles for so many channels, in vectors, and the rows that there are registers for."""
    wide, found = -(-oc // isa.lanes(dtype)), dict[int, int]()
    for rows, vectors in costs.costs_of(isa).tiles:
        width = min(vectors, wide)
        found[width] = max(rows, found.get(width, 0))
    return found
