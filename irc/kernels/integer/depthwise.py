"""Depthwise convolutions of bytes, with the channels last: every channel has a window of its own.

A register tile is one vector of channels, in 32 bits, of few neighbouring pixels of an output row.  Bytes are widened
as they are loaded, and multiplied by `madd`, whose second words are zeros.  The input is copied once, with zero points
around it.  Threads split the copy, then rows of the output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from irc.ir.dim import Dim, product
from irc.ir.types import DType, f32, i8, i32
from irc.kernels.conv.reference import convolve
from irc.kernels.core.base import Array, Kernel, Packed, Sizes
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, epilogue_of, names, prelude
from irc.kernels.integer import text
from irc.kernels.integer.convolution import COPIED, FINISH
from irc.kernels.integer.finish import C_NAMES, stores
from irc.kernels.integer.problem import SETS, IntegerConvProblem
from irc.kernels.integer.vectors import MEMORY, NARROW
from irc.kernels.vector.pixels import slot_starts

PIXELS = {"avx512": 8, "avx2": 6}
"""Pixels of a tile."""
WORTHWHILE = 50_000
"""Products below which one thread does all."""
TAP = 1.0
"""Cycles of a tap of a vector."""

_PART = """
/* Tasks: a row of an image's result. */
static void ${S}_part(void *given, int64_t begin, int64_t end) {
    const ${S}_work *w = given;
    const ${S}_args *g = w->g;
    const int64_t size = 4 * $L * (2 + g->kh * g->kw), channels = g->groups;
    int32_t sums[$P * $L];
    for (; begin < end; begin++) {
        const int64_t image = begin / g->oh, line = begin % g->oh;
        const $B *const a = w->a + image * w->image + line * w->down;
        ${S}_out o = {.c = g->y + image * g->y_batch, .c_row = g->y_pixel};
        (void)o.n;$slot_starts
        for (int64_t c = 0; c < channels; c += $L) {
            const int8_t *const panel = g->w + c / $L * size;
            const $M shift = ${mm}_mullo_epi32($load(panel), ${mm}_set1_epi32(w->zero));
            const $M start = ${mm}_sub_epi32($load(panel + 4 * $L), shift);
            for (int64_t x = 0; x < g->ow; x += $P) {
                const int64_t n = g->ow - x < $P ? g->ow - x : $P;
                const $B *at[$P];
                $M acc[$P];
                for (int p = 0; p < $P; p++) at[p] = a + (x + (p < n ? p : n - 1)) * w->across + c;
                IRC_FULL_UNROLL
                for (int p = 0; p < $P; p++) acc[p] = start;
                const int8_t *tap = panel + 8 * $L;
                for (int64_t r = 0; r < g->kh; r++) {
                    for (int64_t s = 0; s < g->kw; s++, tap += 4 * $L) {
                        const $M weights = $load(tap);
                        const int64_t there = r * w->walk.row + s * w->walk.column;
                        IRC_FULL_UNROLL
                        for (int p = 0; p < $P; p++) {
                            const $M bytes = ${mm}_$widen($half((const __m128i *)(at[p] + there)));
                            acc[p] = ${mm}_add_epi32(acc[p], ${mm}_madd_epi16(bytes, weights));
                        }
                    }
                }
                IRC_FULL_UNROLL
                for (int p = 0; p < $P; p++) $store(sums + p * $L, acc[p]);
                ${S}_finish(&o, sums, n, line * g->ow + x, c, channels - c);
            }
        }
    }
}

void $S($parameters) {
    if (g->batch <= 0 || g->oh <= 0 || g->ow <= 0) return;
    const int joined = 0;
    ${S}_work w = {.g = g};
    w.zero = $zero;
$layout
    w.walk = (irc_bytes_walk){g->kh, g->dilation_h * w.row, g->kw, g->dilation_w * w.pixel, 0};
    w.down = g->stride_h * w.row;
    w.across = g->stride_w * w.pixel;
    const int64_t rows = g->batch * g->oh;
    if (!pool || (double)rows * (double)g->ow * (double)(g->groups * g->kh * g->kw) < $worthwhile) {
        ${S}_copy(&w, 0, g->batch * w.tall);
        ${S}_part(&w, 0, rows);
    } else {
        pool->parallel_for(pool->self, g->batch * w.tall, ${S}_copy, &w);
        pool->parallel_for(pool->self, rows, ${S}_part, &w);
    }
}
"""


@kernel
class IntegerDepthwiseKernel(Kernel[IntegerConvProblem]):
    """A generated depthwise convolution of bytes; window, strides and dilations are sizes of the call."""

    isa: Isa
    signed: bool
    zeroed: bool
    stored: DType
    epilogue: Epilogue

    problem = IntegerConvProblem

    @classmethod
    def candidates(cls, problem: IntegerConvProblem, isa: Isa) -> Iterator[Self]:
        if isa.name in SETS and problem.is_depthwise and not problem.is_volume and problem.channels > 1:
            yield cls(isa, problem.signed, problem.zeroed, problem.stored, problem.epilogue)

    def cycles(self, problem: IntegerConvProblem) -> float:
        vectors = problem.images * problem.pixels * -(-problem.channels // self.lanes)
        return vectors * (problem.taps * TAP + FINISH[self.stored] + self.lanes * COPIED)

    @property
    def lanes(self) -> int:
        return self.isa.vector // 4

    @property
    def label(self) -> str:
        return "depthwise bytes"

    def arguments_for(self, problem: IntegerConvProblem) -> dict[str, Dim]:
        (kh, kw), (sh, sw), (dh, dw) = problem.geometry
        geometry = {"kh": kh, "kw": kw, "stride_h": sh, "stride_w": sw, "dilation_h": dh, "dilation_w": dw}
        sizes = {n: Dim.of(v) for n, v in (geometry | {"groups": problem.groups}).items()}
        return problem.arguments() | problem.channel_arguments() | sizes

    def scratch(self, problem: IntegerConvProblem) -> Dim:
        sides = zip(problem.result, problem.window, problem.strides, problem.dilations, strict=True)
        tall, wide = ((o - 1) * s + (k - 1) * d + 1 for o, k, s, d in sides)
        return problem.batch * tall * (wide * problem.channels + self.lanes)

    def packed(self, problem: IntegerConvProblem) -> Packed:
        """Describe vectors of channels: sums of weights, what is added to the sums, then the taps."""
        vectors, window = -(-problem.channels // self.lanes), problem.window

        def pack(rows: Array) -> Array:
            taps = rows[:, 1:].astype(np.int32)
            whole = np.zeros((vectors * self.lanes, 2 + taps.shape[1]), np.int32)
            whole[: len(rows), 0] = taps.sum(1)
            whole[: len(rows), 1] = rows[:, 0]
            whole[: len(rows), 2:] = taps & 0xFFFF  # the low words; products of the others are zeros
            turned = whole.reshape(vectors, self.lanes, -1).transpose(0, 2, 1)
            return np.ascontiguousarray(turned).view(np.int8).reshape(-1)

        return Packed(("depthwise bytes", self.lanes, window), i8, vectors * self.lanes * 4 * (2 + problem.taps), pack)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        channels, kh, kw = sizes["groups"], sizes["kh"], sizes["kw"]
        vectors = -(-channels // self.lanes)
        flat = np.ascontiguousarray(reads[1][: vectors * self.lanes * 4 * (2 + kh * kw)]).view(np.int32)
        rows = flat.reshape(vectors, -1, self.lanes).transpose(0, 2, 1).reshape(vectors * self.lanes, -1)[:channels]
        w = rows[:, 2:].astype(np.int16).astype(np.int64).reshape(channels, 1, kh, kw)
        x = reads[0].astype(np.int64) - (int(reads[2][0]) if self.zeroed else 0)
        operands = [x, reads[1], *reads[3 if self.zeroed else 2 :]]
        geometry = ((sizes["stride_h"], sizes["stride_w"]), (sizes["dilation_h"], sizes["dilation_w"]))
        convolve("nhwc", w, channels, *geometry, self.epilogue, operands, writes, sizes, own=rows[:, 1])

    # ---------------------------------------------------------------------------------- C
    @cached_property
    def symbol(self) -> str:
        sign, zero = "signed" if self.signed else "unsigned", "zero" if self.zeroed else "plain"
        key = "" if self.stored == i32 else f"{self.epilogue.key()} "
        return symbol("bytes_depthwise", self.isa.name, sign, zero, self.stored.name, key)

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        read = (("x", "const int8_t *" if self.signed else "const uint8_t *"), ("w", "const int8_t *"))
        zero = (("zero", "const int32_t *"),) if self.zeroed else ()
        result = (("y", f"{C_NAMES[self.stored]} *"), ("scratch", "uint8_t *"))
        return (*read, *zero, *self.epilogue.pointers("float"), *result)

    @property
    def sizes(self) -> tuple[str, ...]:
        extents = "batch groups ic oc ih iw oh ow pad_h pad_w x_batch x_row x_pixel y_batch y_pixel"
        geometry = "kh kw stride_h stride_w dilation_h dilation_w"
        slots = (f"s{i}_{f}" for i, f in self.epilogue.strides("batch", "pixel"))
        return (*extents.split(), *geometry.split(), *slots)

    def flops(self, sizes: Sizes) -> Dim:
        return product(sizes[n] for n in ("batch", "groups", "oh", "ow", "kh", "kw")) * 2

    @property
    def summary(self) -> str:
        return "Depthwise convolution of bytes, NHWC, of a copy with its padding."

    def parts(self) -> list[Part]:
        bits = self.isa.vector * 8
        tile, mm = Tile(self.isa, f32, PIXELS[self.isa.name], 1), f"_mm{bits}"
        byte = "int8_t" if self.signed else "uint8_t"
        given: dict[str, Any] = names(tile) | {
            "S": self.symbol,
            "B": byte,
            "E": byte,
            "M": f"__m{bits}i",
            "mm": mm,
            "P": PIXELS[self.isa.name],
            "NR": tile.lanes,
            "step": 1,
            "slack": tile.lanes,
            "widened": "source[c]",
            "joined": "from[j]",
            "stored": C_NAMES[self.stored],
            "load": f"irc_bytes_load_{bits}",
            "store": f"irc_bytes_store_{bits}",
            "to_f32": f"{mm}_cvtepi32_ps",
            "widen": f"cvtep{'i' if self.signed else 'u'}8_epi32",
            "half": "_mm_loadu_si128" if bits == 512 else "_mm_loadl_epi64",
            "zero": "*g->zero" if self.zeroed else "0",
            "worthwhile": f"{WORTHWHILE:.0f}.0",
            "slot_starts": slot_starts(self.epilogue),
            **self.interface,
        }
        given["layout"] = fill(text.IN_A_COPY, **given)
        given["store_row"] = stores(self.stored, given, bits)
        plain = self.stored == i32
        out = fill("typedef struct { int32_t *c; int64_t c_row, n; } ${S}_out;\n", **given)
        return [
            prelude(tile, self.epilogue),
            MEMORY[bits],
            *([] if self.stored in (i32, f32) else [NARROW[bits]]),
            text.WALK,
            fill(text.WORK, **given),
            fill(text.COPY, **given),
            out if plain else epilogue_of(self.symbol, tile, self.epilogue, C_NAMES[self.stored]),
            fill(text.FINISH, **given),
            fill(_PART, **given),
        ]
