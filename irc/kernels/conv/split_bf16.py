"""Convolution on AMX, NHWC: Y[pixels, oc] = epilogue(sum over window and ic of X[pixel + tap, ic] · W[oc, ic, tap]).

f32 from bf16 terms, see `irc.kernels.split_bf16.bf16_terms`; the numbers, and what becomes of infinities and NaN, are
those of `irc.kernels.gemm.split_bf16`.  For a strip of output rows the input under it is copied once, split into terms,
as planes [32 channels][term][row][column][channel], zeros standing for the padding: at most about 1 MiB, unless one row
needs more.  A tile of A is up to 16 pixels of a plane, of the strip's positions one after the other, the padding
between rows among them; with strides, rows and columns of a plane stand apart by their remainders, so that they are one
after the other, too.  A chunk of the sum is 32 channels of a tap.

With few channels the copy is one plane without gaps, [term][row][column][channel], and a chunk is 32 neighbours of it
in a row of the window, whose columns stay together; what stands beyond the window meets weights of zero.

Weights stand in the order of `irc.kernels.gemm.split_bf16`, k being [ic / 32][kh][kw][32], or [kh][kw · ic / 32][32].
Threads split images, groups, strips and panels of output channels, never the sum: results do not depend on them.  Each
copies the planes that it needs, because tiles are slow to load from another core's cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from irc.expr import Expr, constant_of
from irc.ir.dim import Dim, product
from irc.ir.types import DType, f32
from irc.kernels.conv import split_bf16_text
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.conv.reference import convolve
from irc.kernels.core import costs
from irc.kernels.core.base import RESIDUALS, Array, Kernel, Packed, Sizes
from irc.kernels.core.costs import CONFIGURE, SPLIT_PRODUCTS, SPLITTING, SPLITTING_B, unit_of
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, shared, symbol
from irc.kernels.core.tile import epilogue_of, prelude
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.gemm.split_bf16 import (
    PANEL_TILES,
    STRIPE,
    TASKS,
    VECTOR,
    WORTHWHILE,
    SplitGemmKernel,
    own_bytes_of,
    widths_of,
)
from irc.kernels.split_bf16 import bf16_terms, dots, text
from irc.kernels.split_bf16.bf16_terms import CHUNK, PANEL, TILE_ROWS
from irc.kernels.vector import bf16_io
from irc.kernels.vector.pixels import STRIDES, slot_starts

ROOM = STRIPE * TILE_ROWS * CHUNK * 2  # bytes of the planes under a strip, unless few pixels need more
NARROWEST = 64  # pixels of a row of a strip that is part of the row
LOWEST = 13  # rows of a tile below which its products wait for sums
LEAST = 192  # pixels of a strip for which threads split and read the weights anew


@kernel
class SplitConvKernel(Kernel[ConvProblem]):
    """A generated convolution of NHWC tensors; called like `irc.kernels.conv.nhwc.NhwcConvKernel`, with scratch.

    few: input channels of a group where chunks run along the rows of the window; 0: a chunk is channels of a tap.
    x_bf16, y_bf16: X and Y are bf16 (`irc.kernels.vector.bf16_io`), of one term; Y only where `is_one_sum`.
    """

    terms: int
    window: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    epilogue: Epilogue
    widths: tuple[int, ...]
    few: int = 0
    unit: bf16_terms.Unit = "amx"
    x_bf16: bool = False
    y_bf16: bool = False

    problem = ConvProblem

    @classmethod
    def candidates(cls, problem: ConvProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant for planes of known size, if something multiplies bf16 terms faster than f32."""
        p, terms = problem, bf16_terms.TERMS[problem.precision]
        unit = unit_of(isa, terms)
        if p.layout != "nhwc" or p.dtype != f32 or unit is None or not (p.has_known_planes and p.ic and p.oc):
            return
        yield cls(terms, *p.geometry, p.epilogue, widths_of(p.oc), few_of(p.ic, p.window, p.dilations), unit)

    def cycles(self, problem: ConvProblem) -> float:
        p, (oh, ow), depth = problem, map(int, problem.result), self.depth(problem.ic)
        down, along = self.strips(p.ic, oh, ow)
        strips, extents = down * along, (-(-oh // down), -(-ow // along))
        rows, panels = strips * self._covered(*extents), -(-p.oc // PANEL)
        columns, block = -(-p.oc // TILE_ROWS) * TILE_ROWS, costs.BLOCK
        if self.unit == "amx":
            block = costs.BLOCK_APART
            columns += TILE_ROWS * (2 * costs.ONE_COLUMN - 1) * (columns // TILE_ROWS % 2)
            rows *= costs.HOPPING if self.few and self._steps[1] > 1 else 1
        products = rows * columns * depth * self.executed / SPLIT_PRODUCTS[self.unit, self.terms]
        tall, wide = self._planes(*extents)
        copied = strips * tall * wide * (self.few or -(-p.ic // CHUNK) * CHUNK)
        splitting = copied * SPLITTING[self.terms] * (costs.SPLITTING_ROWS if self.few else 1)
        splitting += strips * panels * PANEL * depth * SPLITTING_B[self.terms]
        around = strips * costs.STRIP_BEGUN + block * -(-rows // 32) * panels
        weights = p.waiting(VECTOR.isa, p.outputs * p.ic * p.taps * self.w_dtype.itemsize)
        return p.images * p.groups * (products + splitting + around) + CONFIGURE[self.unit] + weights

    def _covered(self, rows: int, columns: int) -> int:
        """Count the rows of tiles for a strip of this size, with the padding that they run over from row to row."""
        across = -(-columns // TILE_ROWS)
        high, tiles = -(-columns // across), rows * across
        if self.unit != "amx":
            return tiles * dots.covered(high)
        if self._steps == self._apart:
            length = (rows - 1) * (self._planes(rows, columns)[1] // self._steps[1]) + columns
            flat = -(-length // TILE_ROWS)
            flat += flat % 2 if flat > 1 else 0  # two at a time, and one takes as long
            tiles, high = min((tiles, high), (flat, -(-length // flat)))
        return tiles * max(high, LOWEST)

    @property
    def label(self) -> str:
        return "split bf16"

    def arguments_for(self, problem: ConvProblem) -> dict[str, Dim]:
        given = problem.arguments() | problem.channel_arguments() | {"groups": Dim.of(problem.groups)}
        return given | self.window_arguments()

    def window_arguments(self) -> dict[str, Dim]:
        """Return the sizes of the call that say what its window is."""
        names = ("kh", "kw", "stride_h", "stride_w", "dilation_h", "dilation_w")
        return dict(zip(names, map(Dim.of, (*self.window, *self.strides, *self.dilations)), strict=True))

    def packed(self, problem: ConvProblem) -> Packed:
        groups, elements = problem.groups, self.packed_elements(problem.oc, problem.ic, problem.groups)
        key = ("bf16 terms of taps", self.terms, self.few, groups)
        return Packed(key, self.w_dtype, elements, lambda w: self.pack_weights(w, groups))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        """Convolve X as it is with the weights, the sums of their stored terms."""
        groups, ic, oc = sizes["groups"], sizes["ic"], sizes["oc"]
        stored = reads[1][: self.packed_elements(oc, ic, groups)].reshape(groups, -1)
        w = np.concatenate([self.unpack_weights(part, oc, ic) for part in stored])
        convolve("nhwc", w, groups, self.strides, self.dilations, self.epilogue, reads, writes, sizes)

    def reads_bf16(self, operand: int) -> bool:
        return self.terms == 1 and (operand == 0 or self.epilogue.is_residual(operand - RESIDUALS))

    def writes_bf16(self, sizes: Mapping[str, Expr]) -> bool:
        ic = constant_of(sizes["ic"])
        return self.terms == 1 and ic is not None and self.is_one_sum(ic)

    @cached_property
    def symbol(self) -> str:
        key = f"{self.epilogue.key()}{self.widths}{self._kind}{bf16_io.key(self.x_bf16, self.y_bf16)}"
        return symbol(f"conv_{self.unit}", self.terms, key)

    @property
    def features(self) -> frozenset[str]:
        return self._matrix.features

    @property
    def w_dtype(self) -> DType:
        """The element type of packed weights."""
        return self._matrix.b_dtype

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        slots = self.epilogue.pointers("float")
        w = "float" if self.terms == 3 else "uint16_t"
        x, y = "uint16_t" if self.x_bf16 else "float", "uint16_t" if self.y_bf16 else "float"
        return (("x", f"const {x} *"), ("w", f"const {w} *"), *slots, ("y", f"{y} *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        extents = "batch groups ic oc ih iw oh ow pad_h pad_w x_batch x_row x_pixel y_batch y_pixel"
        extents += " kh kw stride_h stride_w dilation_h dilation_w"
        return (*extents.split(), *(f"s{i}_{f}" for i, f in self.epilogue.strides(*STRIDES)))

    @property
    def _matrix(self) -> SplitGemmKernel:
        """The matrix product whose weights are stored in the same way."""
        return SplitGemmKernel(self.terms, self.epilogue, (2, 1), self.widths, False, self.unit)

    def is_one_sum(self, ic: int) -> bool:
        """Tell whether sums over this many channels are finished at once."""
        return self.depth(ic) <= PANEL_TILES // self.terms * CHUNK

    def packed_elements(self, oc: int, ic: int, groups: int = 1) -> int:
        """Count the elements (`w_dtype`) of packed weights: `oc` output and `ic` input channels of a group."""
        return groups * int(self._matrix.packed_b_elements(oc, self.depth(ic)))

    def pack_weights(self, w: Array, groups: int = 1) -> Array:
        """Pack w[oc, ic, kh, kw] of all groups, flat; channels are filled up with zeros."""
        oc, ic, (kh, kw) = w.shape[0] // groups, w.shape[1], self.window
        channels = -(-ic // CHUNK)
        if self.few:
            rows = w.reshape(groups, oc, ic, kh, kw).transpose(0, 3, 4, 2, 1).reshape(groups, kh, kw * ic, oc)
            full = np.zeros((groups, kh, self.depth(ic) // kh, oc), np.float32)
            full[:, :, : kw * ic] = rows
            return self._matrix.pack_b(full.reshape(groups, -1, oc)).ravel()
        full = np.zeros((groups, oc, channels * CHUNK, kh, kw), np.float32)
        full[:, :, :ic] = w.reshape(groups, oc, ic, kh, kw)
        split = full.reshape(groups, oc, channels, CHUNK, kh, kw).transpose(0, 2, 4, 5, 3, 1)
        return self._matrix.pack_b(split.reshape(groups, self.depth(ic), oc)).ravel()

    def unpack_weights(self, packed: Array, oc: int, ic: int) -> Array:
        """Unpack w[oc, ic, kh, kw] of one group, f32; terms are added up."""
        b, (kh, kw) = self._matrix.unpack_b(packed, oc, self.depth(ic)), self.window
        if self.few:
            return b.reshape(kh, -1, oc)[:, : kw * ic].reshape(kh, kw, ic, oc).transpose(3, 2, 0, 1)
        return b.reshape(-1, *self.window, CHUNK, oc).transpose(4, 0, 3, 1, 2).reshape(oc, -1, *self.window)[:, :ic]

    def strips(self, ic: int, oh: int, ow: int) -> tuple[int, int]:
        """Count the strips that an image is cut into, down and along its rows, where one thread does all of them."""
        (tall, broad), (down, right), pixel = self._met, self._steps, self._pixel_bytes(ic)
        fit = ROOM // (tall * pixel) - bool(self.few)
        most = 1 if fit < broad + right else (fit - broad) // right + 1
        along = max(min(-(-ow // most), ow // NARROWEST), 1)
        fit = ROOM // (self._planes(1, -(-ow // along))[1] * pixel)
        most = 1 if fit < tall + down else (fit - tall) // down + 1
        return max(-(-oh // most), 1), along

    def planes_bytes(self, ic: int, oh: int, ow: int) -> int:
        """Count the bytes of the planes under the largest strip, and of what a tile reads behind them."""
        down, along = self.strips(ic, oh, ow)
        tall, wide = self._planes(-(-oh // down), -(-ow // along))
        behind = TILE_ROWS * self._pixel * max(self._steps[1], 1) + CHUNK * self._across
        return tall * wide * self._pixel_bytes(ic) + 2 * behind

    def _planes(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the rows and the columns of the planes under a strip."""
        (tall, broad), (down, right) = self._met, self._steps
        by, along = self._apart
        along = 2 if self.few else along
        return -(-((rows - 1) * down + tall) // by) * by, -(-((columns - 1) * right + broad) // along) * along

    def _pixel_bytes(self, ic: int) -> int:
        """Count the bytes of all terms of a pixel."""
        return (self.few or -(-ic // CHUNK) * CHUNK) * self.terms * 2

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        chunks = self.depth(sizes["ic"]) // CHUNK
        step = -(-chunks // -(-chunks // (PANEL_TILES // self.terms)))
        planes = self.planes_bytes(sizes["ic"], sizes["oh"], sizes["ow"])
        return 64 + own_bytes_of(self.terms if self._work else 0, step) + planes

    @property
    def executed(self) -> float:
        return float(len(bf16_terms.ORDER[self.terms]))

    def flops(self, sizes: Sizes) -> Dim:
        extents = product(sizes[n] for n in ("batch", "groups", "oc", "ic", "oh", "ow"))
        return extents * (2 * self.window[0] * self.window[1])

    def parts(self) -> list[Part]:
        t, given, splitting = self.terms, self._names(), self._work is not None
        load = fill(split_bf16_text.LOAD_BF16 if self.x_bf16 else split_bf16_text.LOAD_F32, T=t)
        copy = fill(split_bf16_text.COPY_ROWS if self.few else split_bf16_text.COPY, **given, load=load)
        load_b = fill(text.LOAD_F32 if t == 3 else text.LOAD_TERMS, S=given["C"], T=t)
        stored = f"                const uint16_t *const b = stored + c0 * {t * 1024};"
        around = bf16_terms.splitting_names(self._work, "(end + 1) / 2") | {
            "points": bf16_terms.POINTS[self.unit],
            "first": split_bf16_text.SPLIT_FIRST if splitting else "",
            "operand": fill(split_bf16_text.SPLIT_OPERAND, **given) if splitting else stored,
            "next": split_bf16_text.SPLIT_NEXT if splitting else split_bf16_text.NEXT,
            "planes": "4160 + (chunks + cuts - 1) / cuts * 12288" if splitting else "4160",
            "choose": self._products(),
        }
        texts = [
            fill(split_bf16_text.CALL, **given),
            copy,
            fill(split_bf16_text.EXACT, **given, load_b=load_b),
            fill(split_bf16_text.PRODUCTS, **given, **around),
            fill(split_bf16_text.PLAN, **given),
        ]
        return [
            prelude(VECTOR, self.epilogue),
            DIVIDE,
            bf16_terms.TYPES,
            bf16_terms.head(self.unit),
            bf16_io.text(self.x_bf16, self.y_bf16, self.epilogue.bf16_slots),
            bf16_terms.split(t) if self.few or not self.x_bf16 else "",
            bf16_terms.SPLIT_PANEL if splitting else "",
            *(bf16_terms.taps(t, r, w, self.unit, self._work) for r, w in self._variants),
            "".join(texts) if self.unit == "dot" else shared(self._stem, "", "".join(texts)),
            epilogue_of(self.symbol, VECTOR, self.epilogue, given["Y"]),
            fill(split_bf16_text.FINISH, **given),
            fill(split_bf16_text.ENTRY, **given, table=self._table()),
        ]

    @property
    def _stem(self) -> str:
        """What the names begin with that kernels share; products of vectors are the kernel's own."""
        if self.unit == "dot":
            return self.symbol
        return f"irc_split_conv_{self.terms}" + self._kind

    @property
    def _kind(self) -> str:
        """What decides the text, apart from the number of terms and the unit."""
        return f"_few{self.few}" * bool(self.few) + "_bf16" * self.x_bf16

    @property
    def _variants(self) -> list[tuple[int, int]]:
        """The row × column tiles of its blocks."""
        return [(r, w) for r in (2, 1) for w in self.widths]

    @property
    def _work(self) -> bf16_terms.Meanwhile | None:
        """What vectors do between products."""
        return bf16_terms.SPLIT_MEANWHILE if self.terms == 3 else None

    def _products(self) -> str:
        """Print the products of a block."""
        arguments = (
            f"(chunks, s0.from, s1.from, offsets, g->plane, {2 * self._pixel} * g->right_hop, g->height, b, out, 32,"
            f" ahead, fetched{bf16_terms.more(self._work)});"
        )
        if self.unit == "amx":
            return f"        g->taps[2 * two + (g->oc - col > 16)]{arguments}"
        return "\n".join(
            f"        {variant_of(i, self._variants, 'g->oc - col')}"
            f"irc_taps_{bf16_terms.products_name(self.terms, r, w, self.unit)}{arguments}"
            for i, (r, w) in enumerate(self._variants)
        )

    def _table(self) -> str:
        """Print the products of its blocks, by whether they have two row tiles and two column tiles."""
        names = bf16_terms.table("irc_taps", self.terms, self._variants, self._work)
        return f"    static {self._stem}_taps *const taps[] = {{{names}}};\n" if self.unit == "amx" else ""

    @property
    def summary(self) -> str:
        rows = f", rows of windows of {self.few} channels" if self.few else ""
        return f"Convolution, NHWC, on AMX, bf16 terms of a value: {self.terms}{rows}."

    @property
    def _steps(self) -> tuple[int, int]:
        """Rows and columns of the planes between outputs: of a window of one, only those are copied that it meets."""
        (kh, kw), (sh, sw) = self.window, self.strides
        return 1 if kh == 1 else sh, 1 if kw == 1 else sw

    @property
    def _met(self) -> tuple[int, int]:
        """Rows and columns of the planes that a window meets, or stand between those."""
        (kh, kw), (dh, dw) = self.window, self.dilations
        return (kh - 1) * dh + 1, (kw - 1) * dw + 1

    @property
    def _pixel(self) -> int:
        """Elements of a pixel in a plane."""
        return self.few or CHUNK

    def _names(self) -> dict[str, Any]:
        """Return the names in the templates."""
        t, few, stem, tiles = self.terms, self.few, self._stem, self.unit == "amx"
        further = bf16_terms.further(self._work)
        return {
            **bf16_io.names(self.x_bf16, self.y_bf16),
            **self.interface,
            "S": self.symbol,
            "C": stem,
            "B": "float" if t == 3 else "uint16_t",
            "T": t,
            "flat": "g->flat &&" if tiles else "0 &&",
            "choose_flat": split_bf16_text.CHOOSE_FLAT if tiles else "",
            "PIXEL": self._pixel,
            "ROUND": 1 if few else 0,
            "apart": int(tiles and not few),
            "room": ROOM,
            "narrowest": NARROWEST,
            "least": LEAST,
            "find": fill(split_bf16_text.FIND, C=stem, PIXEL=self._pixel),
            "types": fill(split_bf16_text.TYPES, C=stem, meanwhile=further) if tiles else "",
            "products": fill(split_bf16_text.TAPS_FIELD, C=stem) if tiles else "",
            "element": fill(split_bf16_text.ELEMENT_OF_ROW if few else split_bf16_text.ELEMENT, few=few),
            "step": f"x * {CHUNK}" if few else split_bf16_text.COLUMN,
            "chunks_across": f"(g->kw * {few} + {CHUNK - 1}) / {CHUNK}" if few else "g->kw",
            "channels": 1 if few else f"(g->ic + {CHUNK - 1}) / {CHUNK}",
            "beyond": f"{CHUNK} * g->chunks_across" if few else 0,
            "slot_starts": slot_starts(self.epilogue, first=" + g->group * a->oc", call="a", image="g->image"),
            "further": ", .taps = taps" * tiles + ("" if self.y_bf16 else ", .y = g->y"),
            "most_chunks": PANEL_TILES // t,
            "panel_lines": 64 if t == 3 else 32 * t,
            "chunk": 1024 if t == 3 else t * 1024,
            "pair": 64 if t == 3 else 32,
            "tasks": TASKS,
            "passes": len(bf16_terms.ORDER[t]),
            "worthwhile": WORTHWHILE,
            "begin": bf16_terms.BEGIN[self.unit].format(rows="g->height").replace("    ", "        "),
            "end": bf16_terms.END[self.unit],
        }

    @property
    def _apart(self) -> tuple[int, int]:
        """Rows and columns that stand apart by their remainders; vectors need no high tiles."""
        return self._steps if self.unit == "amx" and not self.few else (1, 1)

    @property
    def _across(self) -> int:
        """Chunks of a row of the window, if they run along it."""
        return -(-self.window[1] * self.few // CHUNK)

    def depth(self, ic: int) -> int:
        """Compute the length of the sum over `ic` channels, chunks filled up."""
        kh, kw = self.window
        return CHUNK * kh * (self._across if self.few else -(-ic // CHUNK) * kw)


def few_of(ic: int, window: tuple[int, int], dilations: tuple[int, int]) -> int:
    """Choose `few` for this many channels: their number if chunks along the rows of the window are fewer, else 0."""
    kw = window[1]
    return ic if dilations[1] == 1 < kw and -(-kw * ic // CHUNK) < kw * -(-ic // CHUNK) else 0


def variant_of(number: int, variants: list[tuple[int, int]], left: str) -> str:
    """Print the `if` that picks a block of row × column tiles among several; left: the remaining columns, in C."""
    (rows, columns), last = variants[number], number + 1 == len(variants)
    tests = ["two" if rows == 2 else "!two"] if len({r for r, _ in variants}) > 1 else []
    tests += [f"{left} > 16" if columns == 2 else f"{left} <= 16"] if len({w for _, w in variants}) > 1 else []
    return ("else " if number else "") + ("" if last else f"if ({' && '.join(tests)}) ")
