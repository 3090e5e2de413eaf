"""Depthwise convolutions of bytes, with the channels last: every channel has a window of its own.

What one instruction multiplies and adds up are neighbouring pixels of a channel: four bytes, or two words.  Rows of the
input are rearranged once, as they are reached, into a ring of as many as a window spans: a vector holds such groups of
neighbours, of as many channels as it has sums.  Where windows stand side by side, a group serves two of them, with the
weights of the second one shifted by a pixel; what lies beside a window has weights of 0.  Zero points stand around the
image.  Vectors end with the last channel, so that none is partly filled: the last two may overlap.

Threads split bands of rows of the output, each with a ring of its own, and the vectors of few bands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from irc.expr import Expr
from irc.ir.dim import Dim
from irc.ir.types import DType, f32, i8, i32
from irc.kernels.core.base import Array, Packed
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import Pair
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile
from irc.kernels.integer.problem import BYTES, SETS, STEP, IntegerConvProblem, Unit, fills_sums
from irc.kernels.integer.results import FINISH
from irc.kernels.integer.tile import BytesTile
from irc.kernels.integer.vectors import FOURS, QUARTERS
from irc.kernels.integer.windows import WindowsOfBytes

PIXELS = 8
"""Pixels of a tile."""
BANDS, LEAST = 8, 4
"""Bands of an image at most, and the rows of each at least, for several threads; their number is a power of two."""
TASKS, SEVERAL = 4, 4
"""Tasks of an image for several threads, about, and the vectors of channels in each at least."""
WORTHWHILE = 50_000
"""Products below which one thread does all."""
MIXED = 5.0
"""Cycles to rearrange a vector of neighbours."""

_MIX = {
    ("fours", 64): """\
    const __m128i first = _mm_unpacklo_epi8(x[0], x[1]), second = _mm_unpackhi_epi8(x[0], x[1]);
    const __m128i third = _mm_unpacklo_epi8(x[2], x[3]), fourth = _mm_unpackhi_epi8(x[2], x[3]);
    _mm_storeu_si128(to, _mm_unpacklo_epi16(first, third));
    _mm_storeu_si128(to + 1, _mm_unpackhi_epi16(first, third));
    _mm_storeu_si128(to + 2, _mm_unpacklo_epi16(second, fourth));
    _mm_storeu_si128(to + 3, _mm_unpackhi_epi16(second, fourth));""",
    ("fours", 32): """\
    const __m128i first = _mm_unpacklo_epi8(x[0], x[1]), third = _mm_unpacklo_epi8(x[2], x[3]);
    _mm_storeu_si128(to, _mm_unpacklo_epi16(first, third));
    _mm_storeu_si128(to + 1, _mm_unpackhi_epi16(first, third));""",
    ("pairs", 64): """\
    _mm256_storeu_si256((__m256i *)to, _mm256_cvtep${sign}8_epi16(_mm_unpacklo_epi8(x[0], x[1])));
    _mm256_storeu_si256((__m256i *)to + 1, _mm256_cvtep${sign}8_epi16(_mm_unpackhi_epi8(x[0], x[1])));""",
    ("pairs", 32): """\
    _mm256_storeu_si256((__m256i *)to, _mm256_cvtep${sign}8_epi16(_mm_unpacklo_epi8(x[0], x[1])));""",
}
"""How pixels become groups of neighbours, by unit and bytes of a vector."""
_TWO = """
            for (; v + 2 <= last && (v + 2) * $L <= channels; v += 2) { /* two vectors are halves of what is loaded */
                const __m128i x = _mm_loadu_si128((const __m128i *)(from[0] + v * $L));
                const __m128i y = _mm_loadu_si128((const __m128i *)(from[1] + v * $L));
                uint8_t *const at = to + v * hop;
                _mm256_storeu_si256((__m256i *)at, _mm256_cvtep${sign}8_epi16(_mm_unpacklo_epi8(x, y)));
                _mm256_storeu_si256((__m256i *)(at + hop), _mm256_cvtep${sign}8_epi16(_mm_unpackhi_epi8(x, y)));
            }
"""
"""Two vectors of pairs in 256 bits."""

_TEXT = """
/* joint: the windows that groups serve; units: such windows in a row; groups: of neighbours under them. */
typedef struct {
    const ${S}_args *g;
    int64_t joint, units, groups, vectors, span, row, own, beyond, bands, parts;
    int32_t zero;
    $B pad;$rounding_field
} ${S}_work;

IRC_INLINE void ${S}_mix(const $B *const *from, int64_t c, __m128i *to) {
    __m128i x[$step];
    IRC_FULL_UNROLL
    for (int t = 0; t < $step; t++) x[t] = $widened;
$mix
}

/* Rearranges some vectors of a row of the input, which may be one beyond the image. */
static void ${S}_row(const ${S}_work *w, const $B *image, int64_t line, const $B *beyond, uint8_t *to, int64_t first,
                     int64_t last) {
    const ${S}_args *g = w->g;
    const int64_t channels = g->groups, taps = g->kw + w->joint - 1, hop = w->units * w->groups * $bytes;
    const int inside = line >= 0 && line < g->ih;
    for (int64_t u = 0; u < w->units; u++) {
        for (int64_t j = 0; j < w->groups; j++, to += $bytes) {
            const $B *from[$step];
            const int64_t x = u * w->joint * g->stride_w + j * $step * g->dilation_w - g->pad_w;
            if (inside && x >= 0 && x + ($step - 1) * g->dilation_w < g->iw) { /* behind the taps weights are 0 */
                const $B *const at = image + line * g->x_row + x * g->x_pixel;
                for (int t = 0; t < $step; t++) from[t] = at + t * (g->dilation_w * g->x_pixel);
            } else {
                for (int t = 0; t < $step; t++) {
                    const int64_t tap = j * $step + t, there = x + t * g->dilation_w;
                    const int seen = inside && tap < taps && there >= 0 && there < g->iw;
                    from[t] = seen ? image + line * g->x_row + there * g->x_pixel : beyond;
                }
            }
            int64_t v = first;
$two            for (; v < last; v++)
                ${S}_mix(from, v * $L < channels - $L ? v * $L : channels - $L, (__m128i *)(to + v * hop));
        }
    }
}

$ends
/* N units of U windows each, of a vector of channels; `at` is where the first row of theirs is in the ring. */
IRC_INLINE void ${S}_tile(const int N, const int U, const ${S}_work *w, const ${S}_out *o, const uint8_t *ring,
                          int64_t at, const int8_t *panel, $M start, int64_t pixel, int64_t c, int64_t count) {
    const ${S}_args *g = w->g;
    $M acc[$P];
    IRC_FULL_UNROLL
    for (int p = 0; p < N * U; p++) acc[p] = start;
    for (int64_t r = 0; r < g->kh; r++) {
        const uint8_t *a = ring + at * w->row;
        for (int64_t j = 0; j < w->groups; j++, a += $bytes, panel += U * $bytes) {
            $M b[2];
            IRC_FULL_UNROLL
            for (int k = 0; k < U; k++) b[k] = $load(panel + k * $bytes);
            IRC_FULL_UNROLL
            for (int n = 0; n < N; n++) {
                const $M x = $load(a + n * w->groups * $bytes);
                IRC_FULL_UNROLL
                for (int k = 0; k < U; k++) $dot;
            }
        }
        at += g->dilation_h;
        if (at >= w->span) at -= w->span;
    }
    ${S}_finish(N * U, w, o, acc, pixel, c, count);
}

/* Tasks: some vectors of a band of rows of an image's result. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_work *w = given;
    const ${S}_args *g = w->g;
    const int64_t size = $bytes * (2 + g->kh * w->groups * w->joint), channels = g->groups;
    for (; begin < end; begin++) {
        const int64_t image = begin / w->parts / w->bands, band = begin / w->parts % w->bands;
        const int64_t first = w->vectors * (begin % w->parts) / w->parts;
        const int64_t last = w->vectors * (begin % w->parts + 1) / w->parts;
        const $B *const beyond = ($B *)g->scratch;
        uint8_t *const ring = g->scratch + w->beyond + begin / w->parts * w->own;
        ${S}_out o = {.c = g->y + image * g->y_batch, .c_row = g->y_pixel};
        (void)o.n;$slot_starts
        int64_t next = 0;
        for (int64_t line = g->oh * band / w->bands; line < g->oh * (band + 1) / w->bands; line++) {
            const int64_t top = line * g->stride_h, at = top % w->span;
            for (next = next > top ? next : top; next < top + w->span; next++)
                ${S}_row(w, g->x + image * g->x_batch, next - g->pad_h, beyond, ring + next % w->span * w->row,
                         first, last);
            for (int64_t v = first; v < last; v++) {
                const int64_t c = v * $L < channels - $L ? v * $L : channels - $L;
                const int8_t *const own = g->w + v * size, *const panel = own + 2 * $bytes;
                const $M shift = ${mm}_mullo_epi32($load(own), ${mm}_set1_epi32(w->zero));
                const $M start = ${mm}_sub_epi32($load(own + $bytes), shift);
                int64_t u = 0;
                const int joint = w->joint == 2;
$tiles
            }
        }
    }
}

void $S($parameters) {
    if (g->batch <= 0 || g->oh <= 0 || g->ow <= 0) return;
    ${S}_work w = {.g = g};
    w.zero = $zero;$rounding
    w.pad = ($B)$point;
    w.joint = g->stride_w == 1 && g->dilation_w == 1 ? 2 : 1;
    w.units = (g->ow + w.joint - 1) / w.joint;
    w.groups = (g->kw + w.joint - 1 + $step - 1) / $step;
    w.vectors = (g->groups + $L - 1) / $L;
    w.span = (g->kh - 1) * g->dilation_h + 1;
    w.row = w.vectors * w.units * w.groups * $bytes;
    w.own = w.span * w.row;
    w.beyond = (g->groups + 63) / 64 * 64;
    w.bands = w.parts = 1;
    __builtin_memset(g->scratch, w.pad, (size_t)g->groups);
    if (!pool || (double)(g->batch * g->oh * g->ow) * (double)(g->groups * g->kh * g->kw) < $worthwhile) {
        ${S}_part(&w, 0, g->batch);
    } else {
        while (w.bands < $most && 2 * w.bands * $least <= g->oh) w.bands *= 2;
        const int64_t wanted = ($tasks + w.bands - 1) / w.bands, most = w.vectors / $several;
        w.parts = most < 1 ? 1 : wanted < most ? wanted : most;
        pool->parallel_for(pool->self, g->batch * w.bands * w.parts, ${S}_part, &w);
    }
}
"""

_TILES = """\
                for (; $condition && g->ow / $U - u >= $N; u += $N)
                    ${S}_tile($N, $U, w, &o, ring + (v * w->units + u) * w->groups * $bytes, at, panel, start,
                              line * g->ow + u * $U, c, $N * $U);"""
_LAST = """
                if (u < w->units) /* the first of two windows */
                    ${S}_tile(1, 2, w, &o, ring + (v * w->units + u) * w->groups * $bytes, at, panel, start,
                              line * g->ow + 2 * u, c, 1);"""

_STORE_ONE = """
IRC_INLINE void ${S}_finish(const int n, const ${S}_work *w, const ${S}_out *o, const $M *acc, int64_t pixel, int64_t c,
                            int64_t count) {
    (void)w;
    $stored *to = o->c + pixel * o->c_row + c;
    IRC_FULL_UNROLL
    for (int p = 0; p < n; p++, to += o->c_row) {
        if (p < count) $store_one;
    }
}
"""

_STORE_BYTES = """
IRC_INLINE void ${S}_finish(const int n, const ${S}_work *w, const ${S}_out *o, const $M *acc, int64_t pixel, int64_t c,
                            int64_t count) {
    $stored *to = o->c + pixel * o->c_row + c;
    $M y[$P] = {{0}};
    IRC_FULL_UNROLL
    for (int p = 0; p < n; p++)
        y[p] = $round((__m$bits)${S}_epilogue(o, ($V)$to_f32(acc[p]), pixel + (p < count ? p : 0), c, $L));
    IRC_FULL_UNROLL
    for (int p = 0; p < n; p += 4, to += 4 * o->c_row)
        irc_bytes_quarters_$bits(to, o->c_row, irc_bytes_${kind}_$bits(w->y_zero, y[p], y[p + 1], y[p + 2], y[p + 3]),
                                 (count < n ? count : n) - p);
}
"""


@kernel
class IntegerDepthwiseKernel(WindowsOfBytes):
    """A generated depthwise convolution of bytes."""

    isa: Isa
    unit: Unit
    signed: bool
    zeroed: bool
    stored: DType
    fits: bool
    epilogue: Epilogue

    @classmethod
    def candidates(cls, problem: IntegerConvProblem, isa: Isa) -> Iterator[Self]:
        fits = problem.is_depthwise and not problem.is_volume and fills_sums(problem.channels, isa)
        if isa.name in SETS and fits:
            unit: Unit = "fours" if isa.fours else "pairs"
            given = (problem.signed, problem.zeroed, problem.stored, problem.rounding.fits, problem.epilogue)
            yield cls(isa, unit, *given)

    def cycles(self, problem: IntegerConvProblem) -> float:
        """Estimate a vector of products a cycle, and the rearrangement of each row of the input."""
        (kh, kw), (sh, _), _ = problem.geometry
        joint, groups = self._joint(problem.strides, problem.dilations), self._groups(kw, problem)
        vectors = problem.images * problem.pixels * -(-problem.channels // self.lanes)
        dots = kh * groups * (1 if self.unit == "fours" else 2)
        return vectors * (dots + FINISH[self.stored] + MIXED * groups * sh / joint)

    @property
    def lanes(self) -> int:
        return self.isa.vector // 4

    @property
    def label(self) -> str:
        return f"depthwise {self.unit}"

    @staticmethod
    def _joint(strides: Pair, dilations: Pair) -> int:
        """Count the windows that a group of neighbours serves."""
        return 2 if strides[1] == dilations[1] == 1 else 1

    def _groups(self, kw: int, problem: IntegerConvProblem) -> int:
        """Count the groups of neighbours under a row of the windows that they serve."""
        return -(-(kw + self._joint(problem.strides, problem.dilations) - 1) // STEP[self.unit])

    def _vectors(self, channels: int) -> list[int]:
        """List the first channels of the vectors."""
        return [min(c, channels - self.lanes) for c in range(0, channels, self.lanes)]

    def scratch(self, problem: IntegerConvProblem) -> Dim:
        (kh, kw), _, (dh, _) = problem.geometry
        joint, vectors = self._joint(problem.strides, problem.dilations), len(self._vectors(problem.channels))
        row = problem.result[1].ceildiv(joint) * (self._groups(kw, problem) * vectors * self.isa.vector)
        beyond = -(-problem.channels // 64) * 64
        return problem.batch * BANDS * (row * ((kh - 1) * dh + 1)) + beyond

    def packed(self, problem: IntegerConvProblem) -> Packed:
        """Describe vectors of channels: sums of weights, what is added to the sums, then weights of groups."""
        joint, (kh, kw) = self._joint(problem.strides, problem.dilations), problem.window
        groups, starts, step = self._groups(kw, problem), self._vectors(problem.channels), STEP[self.unit]
        word = BytesTile(self.isa, self.unit, 1, 1).word

        def pack(rows: Array) -> Array:
            taps = rows[:, 1:].reshape(len(rows), kh, kw)
            whole = np.zeros((len(rows), kh, joint, groups * step), word)
            for k in range(joint):
                whole[:, :, k, k : k + kw] = taps
            body = whole.reshape(len(rows), kh, joint, groups, step).transpose(0, 1, 3, 2, 4)
            head = np.stack([taps.sum((1, 2)), rows[:, 0]], 1).astype(np.int32)
            both = [head.view(np.int8), np.ascontiguousarray(body).view(np.int8).reshape(len(rows), -1)]
            fours = np.concatenate(both, 1).reshape(len(rows), -1, 4)
            vectors = [fours[c : c + self.lanes].transpose(1, 0, 2) for c in starts]
            return np.ascontiguousarray(np.stack(vectors)).reshape(-1)

        elements = len(starts) * self.isa.vector * (2 + kh * groups * joint)
        return Packed(("depthwise bytes", self.lanes, self.unit, problem.window, joint), i8, elements, pack)

    def overwrites(self, sizes: Mapping[str, Expr]) -> frozenset[int]:
        return frozenset()  # channels of vectors that overlap are computed twice

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        channels, kh, kw = sizes["groups"], sizes["kh"], sizes["kw"]
        strides, dilations = (sizes["stride_h"], sizes["stride_w"]), (sizes["dilation_h"], sizes["dilation_w"])
        joint, step, starts = self._joint(strides, dilations), STEP[self.unit], self._vectors(channels)
        groups = -(-(kw + joint - 1) // step)
        per = 2 + kh * groups * joint
        vectors = reads[1][: len(starts) * per * self.isa.vector].reshape(len(starts), per, self.lanes, 4)
        rows = np.zeros((channels, per, 4), np.int8)
        for c, vector in zip(starts, vectors, strict=True):
            rows[c : c + self.lanes] = vector.transpose(1, 0, 2)
        word = BytesTile(self.isa, self.unit, 1, 1).word
        body = np.ascontiguousarray(rows[:, 2:]).view(word).reshape(channels, kh, groups, joint, step)
        w = body[:, :, :, 0].reshape(channels, 1, kh, groups * step)[..., :kw]
        own = np.ascontiguousarray(rows[:, 1]).view(np.int32).reshape(-1)
        self.convolve(w, own, reads, writes, sizes)

    # ---------------------------------------------------------------------------------- C
    @cached_property
    def symbol(self) -> str:
        return symbol("bytes_depthwise", self.isa.name, self.unit, *self.words, self.key)

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        return (*self.read, ("scratch", "uint8_t *"))

    @property
    def features(self) -> frozenset[str]:
        return BytesTile(self.isa, self.unit, 1, 1).features

    @property
    def summary(self) -> str:
        return "Depthwise convolution of bytes, NHWC, of rows whose neighbouring pixels stand side by side."

    def parts(self) -> list[Part]:
        bits, fours = self.isa.vector * 8, self.unit == "fours"
        tile, mm = Tile(self.isa, f32, PIXELS, 1), f"_mm{bits}"
        loaded = f"_mm_load{'u_si128' if bits == 512 else 'l_epi64'}((const __m128i *)(from[t] + c))"
        turned = f"_mm_xor_si128({loaded}, _mm_set1_epi8((char)0x80))"
        sums = "acc[n * U + k]"
        given: dict[str, Any] = self.given(tile) | {
            "P": PIXELS,
            "step": STEP[self.unit],
            "bytes": self.isa.vector,
            "widened": turned if fours and self.signed else loaded,
            "dot": f"irc_fours_{bits}(&{sums}, x, b[k])"
            if fours
            else f"{sums} = {mm}_add_epi32({sums}, {mm}_madd_epi16(x, b[k]))",
            "point": "*g->zero" if self.zeroed else "0",
            "zero": f"{'*g->zero' if self.zeroed else '0'}{' + 128' if fours and self.signed else ''}",
            "worthwhile": f"{WORTHWHILE:.0f}.0",
            "least": LEAST,
            "most": BANDS,
            "tasks": TASKS,
            "several": SEVERAL,
        }
        sign = "i" if self.signed else "u"
        given["mix"] = fill(_MIX[self.unit, self.isa.vector], sign=sign)
        both = (self.unit, self.isa.vector) == ("pairs", 32)
        given["two"] = fill(_TWO, L=self.lanes, sign=sign).lstrip("\n") if both else ""
        one = (
            "$store(to, acc[p])"
            if self.stored == i32
            else "${V}_store(to, ${S}_epilogue(o, ($V)$to_f32(acc[p]), pixel + p, c, $L))"
        )
        given["store_one"] = fill(one, **given)
        given["ends"] = fill(_STORE_BYTES if self.stored in BYTES else _STORE_ONE, **given)
        shapes = [(n // u, u) for u in (2, 1) for n in (PIXELS, PIXELS // 2, PIXELS // 4, PIXELS // 8) if n >= u]
        conditions = {2: "joint", 1: "!joint"}
        tiles = "\n".join(fill(_TILES, **given, N=n, U=u, condition=conditions[u]) for n, u in shapes)
        given["tiles"] = tiles + fill(_LAST, **given)
        return [
            *self.shared(tile),
            *([FOURS[bits]] if fours else []),
            *([QUARTERS[bits]] if self.stored in BYTES else []),
            self.out(tile, given),
            fill(_TEXT, **given),
        ]
