"""Pooling, NCHW, by tables of lanes: the rows under a vector of windows are folded, then columns picked.

Two vectors hold the columns under a vector of neighbouring windows; they begin where all of their columns are inside
the row, so that only rows shorter than a vector are loaded through masks.  Which lanes are a tap of the windows, and
which windows have it inside the input, is the same for all rows of all planes: tables, made once.  AVX-512 picks lanes
out of both vectors at once, AVX2 out of each of them, and blends what it picked.

A maximum that keeps NaN is three instructions, one that does not is one: planes are computed by that first, and sums
of what is loaded tell whether it has to be done again.

Threads split planes (images × channels).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self

from irc.kernels.core.costs import LOADS, PERMUTED, PERMUTED_APART, PICKED_ROW, PICKED_ROW_APART, in_halves, is_half
from irc.kernels.core.epilogue import plain
from irc.kernels.core.isa import C_TYPES, Isa
from irc.kernels.core.problem import likely, likely_extent
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill
from irc.kernels.core.tile import prelude
from irc.kernels.pool.nchw import CALL, PlanePool
from irc.kernels.pool.problem import PoolProblem

LARGEST = 8192
"""Bytes of tables at most: they stay in the first cache, beside the rows."""

_BODY = """
/* A vector of columns of n rows `step` apart, folded: the first `part` of each, if not all are there.$adds */
IRC_INLINE $V ${S}_rows(${sums_taken}const $T *x, int64_t step, int64_t n, const int whole, int64_t part) {
    $V acc = whole ? ${V}_load(x) : ${V}_load_part(x, part)$first;
    $unroll_rows
    for (int64_t k = 1; k < n; k++) {
        x += step;
        const $V next = whole ? ${V}_load(x) : ${V}_load_part(x, part);
        acc = $fold;$add
    }$added
    return acc;
}

/* The lanes of a and of b behind it; those that are not in the mask are 0. */
IRC_INLINE $V ${S}_pick($V a, $V b, const $I *lanes, const $M *mask) {
    $V y = ${V}_load((const $T *)lanes);
    $pick
    return y;
}

/* Notes a bit of each lane. */
IRC_INLINE void ${S}_note(uint${L}_t bits, $M *mask) {
    $note
}

/* Tables of `count` vectors of $KW taps of `step` windows: the lanes, and a bit of each window that has the tap. */
static void ${S}_tables(const ${S}_args *g, int64_t step, int64_t count, $I *lanes, $M *masks) {
    for (int64_t p = 0; p < count; p++) {
        const int64_t first = p * step * $SW - g->pad_w, last = g->iw - 2 * $L;
        const int64_t held = first < last ? first : last, a = held < 0 ? 0 : held;
        const int64_t b = g->iw < $L ? a : a + $L < g->iw - $L ? a + $L : g->iw - $L;
        uint${L}_t any = 0;
        for (int64_t k = 0; k < $KW; k++) {
            uint${L}_t mask = 0;
            for (int64_t i = 0; i < $L; i++) {
                int64_t at = first + i * $SW + k * $DW;
                if (i < step && at >= 0 && at < g->iw) mask |= (uint${L}_t)(1u << i);$near
                at = at < a ? a : at < g->iw ? at : g->iw - 1; /* lanes of other windows hold anything */
                lanes[(p * $KW + k) * $L + i] = ($I)((at < a + $L ? at - a : (at - b + $L) | $second) & $index);
            }
            ${S}_note(mask, masks + (p * $KW + k) * $MS);
            any |= mask;
        }$keep
    }
}

/* A row of outputs, of n rows of the input; y has room for `left` of them.  `held`: two vectors hold the rows, or one
   that is not `whole`. */
IRC_INLINE void ${S}_row(${sums_taken}const int held, const int whole, int64_t iw, int64_t ow, int64_t pad,
                         const $I *lanes, const $M *masks, const $T *x, int64_t n, $T *y, int64_t left$shares) {
    const int64_t step = held ? $L : $P;
    $V a = ($V){0}, b = a;
    if (held) {
        a = ${S}_rows(${sums_given}x, $DH * iw, n, whole, iw);
        b = whole ? ${S}_rows(${sums_given}x + iw - $L, $DH * iw, n, 1, 0) : a;
    }
    for (int64_t j = 0; j < ow; j += step, lanes += $KW * $L, masks += $KW * $MS$next) {
        if (!held) {
            int64_t at = j * $SW - pad;
            at = at < iw - 2 * $L ? at : iw - 2 * $L;
            at = at < 0 ? 0 : at;
            a = ${S}_rows(${sums_given}x + at, $DH * iw, n, 1, 0);
            b = ${S}_rows(${sums_given}x + at + $L, $DH * iw, n, 1, 0);
        }
        $V acc = ${S}_pick(a, b, lanes, masks);
        $unroll
        for (int k = 1; k < $KW; k++) {
            const $V next = ${S}_pick(a, b, lanes + k * $L, masks + k * $MS);
            acc = $fold;
        }$finish
        if (left - j >= $L) ${V}_store(y + j, acc); /* what is too much is written over */
        else ${V}_store_part(y + j, acc, ow - j < step ? ow - j : step);
    }
}

$some
IRC_INLINE void ${S}_plane(const ${S}_args *g, ${sums_taken}const int held, const int whole, const $I *lanes,
                           const $M *masks$tables, const $T *x, $T *y) {
    const int64_t ih = g->ih, iw = g->iw, oh = g->oh, ow = g->ow, high = g->pad_h, wide = g->pad_w;
    for (int64_t oy = 0, left = oh * ow; oy < oh; oy++, y += ow, left -= ow) {
        int64_t first;
        const int64_t top = oy * $SH - high, n = ${S}_taps(top, 0, ih, $KH, $DH, &first);
        const $T *from = x + (top + first * $DH) * iw;$share
        if (n == $KH) ${S}_row(${sums_given}held, whole, iw, ow, wide, lanes, masks, from, $KH, y, left$given);
        else if (n) ${S}_row(${sums_given}held, whole, iw, ow, wide, lanes, masks, from, n, y, left$given);
        else for (int64_t j = 0; j < ow; j++) y[j] = $nothing;
    }
}

IRC_INLINE void ${S}_planes(const ${S}_args *g, const int held, const int whole, const $I *lanes,
                            const $M *masks$tables, int64_t begin, int64_t end) {
    for (; begin < end; begin++) {
        const int64_t image = begin / g->channels, channel = begin % g->channels;
        const $T *x = g->x + image * g->x_batch + channel * g->x_channel;
        $T *y = g->y + image * g->y_batch + channel * g->y_channel;
        $plain${S}_plane(g, ${again}held, whole, lanes, masks$passed, x, y);
    }
}
"""

_SOME = """
/* Whether a lane is NaN. */
IRC_INLINE int ${S}_some($V x) {
    $T sum = 0;
    for (int i = 0; i < $L; i++) sum += x[i];
    return sum != sum;
}
"""

_PLAIN = """$V sums = {0}; /* NaN if an element is, or infinities of both signs are there */
        ${S}_plane(g, &sums, held, whole, lanes, masks, x, y);
        if (${S}_some(sums)) """

_PART = """
/* Planes begin to end: images, then channels. */
static void ${S}_part(void *given, char *own, int64_t begin, int64_t end) {
    const ${S}_args *g = given;
    const int64_t step = g->iw <= 2 * $L ? $L : $P, count = (g->ow + step - 1) / step;
    $I *const lanes = ($I *)own;
    $room
    ${S}_tables(g, step, count, lanes, masks);$count
    if (g->iw < $L) ${S}_planes(g, 1, 0, lanes, masks$passed, begin, end);
    else if (g->iw <= 2 * $L) ${S}_planes(g, 1, 1, lanes, masks$passed, begin, end);
    else ${S}_planes(g, 0, 1, lanes, masks$passed, begin, end);
}
"""

_SHARE = """
        int64_t ignored;
        const int64_t taps = ${S}_taps(top, $low_h, $high_h, $KH, $DH, &ignored);
        const $T *const shares = table + taps * pitch;"""

_COUNT = """
    const int64_t pitch = count * $L;
    for (int64_t taps = 0; taps <= $KH; taps++) {
        for (int64_t p = 0; p < count; p++) {
            for (int64_t i = 0; i < $L; i++) {
                const int64_t at = (p * step + i) * $SW - g->pad_w;
                const int64_t wide = ${S}_taps(at, $low_w, $high_w, $KW, $DW, &(int64_t){0});
                table[taps * pitch + p * $L + i] = 1 / ($T)(taps * wide);
            }
        }
    }"""

_PICK_APART = """\
$V first, second;
    __asm__("vpermps %1, %2, %0" : "=x"(first) : "x"(a), "x"(y));
    __asm__("vpermps %1, %2, %0" : "=x"(second) : "x"(b), "x"(y));
    __asm__("vblendvps %3, %2, %1, %0" : "=x"(y) : "x"(first), "x"(second), "x"(y));"""

_MASKED = """
    y = ($V)((${V}_mask)y & (${V}_mask)${V}_load((const $T *)mask));"""

_NEAR = """
                for (int64_t t = 0; t < $KW && (at < 0 || at >= g->iw); t++) /* another tap counts twice */
                    at = first + i * $SW + t * $DW;"""


@kernel
class NchwPickedPoolKernel(PlanePool):
    """A generated pool of planes of which two vectors hold the columns under some windows, by tables of lanes."""

    @classmethod
    def candidates(cls, problem: PoolProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant, and that of half vectors where a core does a vector in two halves anyway."""
        yield from super().candidates(problem, isa)
        if in_halves(isa) and isa.lanes(problem.dtype) == 16:
            yield from super().candidates(problem, isa.halved())

    def fits(self, problem: PoolProblem) -> bool:
        known = problem.input[1].is_const and problem.result[1].is_const
        picks = self.tile.isa.name in ("avx512", "avx2") and self.tile.lanes * self.tile.dtype.itemsize >= 32
        if not known or self._pixels <= 1 or not picks:
            return False
        if self.tile.isa.name == "avx2" and self.tile.dtype.itemsize != 4:
            return False
        sizes = {"iw": int(problem.input[1]), "ow": int(problem.result[1])}
        return sizes["iw"] > 0 and self.own_bytes(sizes) <= LARGEST

    def cycles(self, problem: PoolProblem) -> float:
        oh, iw, ow = likely_extent(problem.result[0]), int(problem.input[1]), int(problem.result[1])
        lanes, vectors = self.tile.lanes, self._vectors(iw, ow)
        loaded = (1 if iw < lanes else 2) * (1 if iw <= 2 * lanes else vectors) * self.window[0]
        if self.tile.isa.name == "avx512":  # vectors of 64 bytes anywhere lie across two lines, which are two loads
            half = self.tile.isa.vector / 64
            row = (loaded + vectors * self.window[1] * PERMUTED) * half + PICKED_ROW
        else:
            row = loaded / LOADS + vectors * self.window[1] * PERMUTED_APART + PICKED_ROW_APART
        return likely(problem.batch) * likely(problem.channels) * oh * row

    @property
    def label(self) -> str:
        return "picked" + "_halves" * is_half(self.tile.isa)

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        vectors = self._vectors(sizes["iw"], sizes["ow"])
        tables = vectors * (self.window[1] + (self.window[0] + 1) * self.counts)
        vector, masks = self.tile.lanes * self.tile.dtype.itemsize, vectors * self.window[1]
        bits = masks * self.tile.lanes // 8 if self.tile.isa.name == "avx512" else masks * vector
        return tables * vector + -(-bits // 64) * 64

    def _vectors(self, iw: int, ow: int) -> int:
        return -(-ow // (self.tile.lanes if iw <= 2 * self.tile.lanes else self._pixels))

    @property
    def _pixels(self) -> int:
        """Windows of a vector, where two do not hold the whole row."""
        return max(0, min(self.tile.lanes, (2 * self.tile.lanes - self.span) // self.strides[1] + 1))

    def parts(self) -> list[Part]:
        given = self.given | self.bounds | self._picking() | {"P": self._pixels}
        text = dict.fromkeys(("shares", "next", "tables", "share", "given", "count", "passed"), "")
        text |= {"nothing": str(given["empty"]), "room": "$M *const masks = ($M *)(lanes + count * $KW * $L);"}
        if self.counts:
            text = {
                "shares": f", const {given['T']} *shares",
                "next": fill(", shares += $L", **given),
                "tables": f", const {given['T']} *table, int64_t pitch",
                "share": fill(_SHARE, **given),
                "given": ", shares",
                "nothing": "0 * shares[j]",
                "room": "$T *const table = ($T *)(lanes + count * $KW * $L);\n"
                "    $M *const masks = ($M *)(table + count * $L * ($KH + 1));",
                "count": fill(_COUNT, **given),
                "passed": ", table, pitch",
            }
            given["finish"] = fill("\n        acc *= ${V}_load(shares);", **given)
        elif self.mode == "average":
            given["finish"] = f"\n        acc *= ({given['T']})1 / {self.window[0] * self.window[1]};"
        text["room"] = fill(text["room"], **given)
        text |= dict.fromkeys(("sums_taken", "sums_given", "again", "some", "plain"), "")
        text |= dict.fromkeys(("adds", "first", "add", "added"), "")
        if self.mode == "max":
            given["fold"] = fill("sums ? ${V}_at_least(acc, next) : ${V}_max(acc, next)", **given)
            text |= {"sums_taken": fill("$V *const sums, ", **given), "sums_given": "sums, ", "again": "0, "}
            text |= {"first": ", sum = acc", "add": "\n        sum += next;", "added": "\n    if (sums) *sums += sum;"}
            text |= {"some": fill(_SOME, **given), "plain": fill(_PLAIN, **given)}
            text["adds"] = "\n   All are added to `sums`, if it is given: then the maximum need not keep NaN."
        given |= {
            name: "IRC_FULL_UNROLL" if n <= 16 else ""
            for name, n in zip(("unroll_rows", "unroll"), self.window, strict=True)
        }
        return [
            prelude(self.tile, plain(self.tile.dtype)),
            fill(CALL, **given),
            fill(_BODY, **given, **text),
            *self.division(part=fill(_PART, **given, **text)),
        ]

    def _picking(self) -> dict[str, object]:
        """Return what differs between instruction sets: masks, bits or lanes, and what picks by them."""
        given, largest = self.given, self.mode == "max"
        letter = "s" if self.tile.dtype.itemsize == 4 else "d"
        if self.tile.isa.name == "avx512":
            found = {"M": "uint${L}_t", "MS": "1", "second": "0", "index": "(2 * $L - 1)", "note": "*mask = bits;"}
            zeroed, mask = ("", "") if largest else ("%{%3%}%{z%}", ', "Yk"(*mask)')
            pick = f'__asm__("vpermi2p{letter} %2, %1, %0{zeroed}" : "+v"(y) : "v"(a), "v"(b){mask});'
            kept = f'__asm__("vmovap{letter} %1, %0%{{%2%}}" : "+v"(some) : "v"(acc), "Yk"(*masks));'
            finish = f"$V some = ${{V}}_all(-INFINITY);\n        {kept}\n        acc = some;"
        else:
            second, index = "(int64_t)0x80000000", "(int64_t)0x80000007"  # blending looks at the sign alone
            note = "for (int i = 0; i < $L; i++) mask[i] = -(bits >> i & 1);"
            found = {"M": "$I", "MS": "$L", "second": second, "index": index, "note": note}
            pick = _PICK_APART if largest else _PICK_APART + _MASKED
            finish = "acc = ${V}_select((${V}_mask)${V}_load((const $T *)masks), acc, ${V}_all(-INFINITY));"
        keep = "${S}_note(any, masks + p * $KW * $MS);" if largest else "(void)any;"
        unused = "(void)mask;\n    " if largest else ""
        found |= {
            "pick": unused + pick,
            "finish": f"\n        {finish}" if largest else "",
            "keep": f"\n        {keep}",
        }
        found["near"] = _NEAR if largest else ""
        integer = C_TYPES[self.tile.dtype.name][1]
        given |= {"I": integer, "MS": fill(found["MS"], **given), "M": fill(found["M"], **given, I=integer)}
        return {"I": integer, **{name: fill(text, **given) for name, text in found.items()}}

    @property
    def summary(self) -> str:
        (kh, kw), (sh, sw) = self.window, self.strides
        return f"Pool by tables, NCHW, {self.tile.dtype}: {self.mode} of {kh} x {kw} windows, strides {sh} and {sw}."
