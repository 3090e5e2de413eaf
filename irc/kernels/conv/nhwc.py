"""Convolution, NHWC: Y[pixels, oc] = epilogue(sum over window and ic of X[pixel + tap, ic] · W[oc, ic, tap]).

Rows of the register tile are output pixels beside each other, columns are output channels.  For a strip of output rows
the input it needs is copied to the stack once, as [block of ic][row][column][channel of the block], zeros standing for
the padding: the operands of a tile then are a constant distance apart, and no product is skipped or tested.  Weights
are packed at compile time, [group][panel of oc][block of ic][kh][kw][channel of the block][panel]; some of their rows
meet all tiles of a strip while they are in the first caches.  Nothing outside the input is read.

Threads split images, groups, strips and panels of channels, never the sum: results do not depend on them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from irc.expr import Expr, constant_of
from irc.ir.dim import Dim, product
from irc.ir.types import f32, f64
from irc.kernels.conv import nhwc_text
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.conv.reference import convolve, unpacked
from irc.kernels.core.base import Array, Kernel, Packed, Sizes
from irc.kernels.core.costs import costs_of, lengths_for
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa, vector_name, vector_type
from irc.kernels.core.problem import likely, likely_extent
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, Piece, fill, piece, symbol, tile_body
from irc.kernels.core.tile import Tile, epilogue_of, heights_of, names, prelude
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.gemm.tasks import WORTHWHILE
from irc.kernels.vector import bf16_io
from irc.kernels.vector.pixels import STRIDES, slot_starts

BLOCK_CHANNELS = 16  # channels of a block of the input, if there are as many
STRIP = 16  # tiles of a strip for which weights are worth reading
FEW_TASKS = 16  # with fewer strips than this, output channels are split too
CHANNEL_PARTS = 8
OVERLAP = 8  # rows of the output, for each that two strips copy, that a strip has at least where more are wanted
LONGEST_SUM = 288  # products added up in one accumulator: longer sums are sums of such sums, which lose less
UNROLL = 4  # products of a sum in one round of the loop, at most
ROUND = 90  # products of all sums of a tile in one round, at most: more run no faster, and take longer to compile
NEAR = 16  # products ahead whose weights are fetched
SEGMENTS = 4  # rows of output pixels in one tile, at most
STEP = 2  # a larger one from pixel to pixel is an argument of tiles, so that layers that hop differently share them
LADDER = (1, 2, 4, 8, 16)  # heights of tiles where the width of the output is unknown; more take long to compile
EXTENTS = "batch groups ic oc ih iw oh ow pad_h pad_w x_batch x_row x_pixel"  # what strips depend on
DENSE = 6  # with a larger dilation, rows that no tap meets are left out


@kernel
class NhwcConvKernel(Kernel[ConvProblem]):
    """A generated convolution of NHWC tensors.

    tile: `segments` rows of output pixels × vectors of output channels; with more than one segment, a segment is a
    whole row, and the width of the output must be `heights[0]`.  heights: of segments, those that a row is cut into.
    widths: vectors of the tiles that there are, the last panel of channels included.  block: input channels that are
    copied side by side.  y_bf16: y is bf16 (`irc.kernels.vector.bf16_io`), for 16 lanes of f32; only where
    `is_one_sum`, because partial sums stand in it.  apart: the columns under each tap are copied by themselves, as if
    all taps stood in one column of the window: what no tap meets is not copied, whatever the dilation, and what several
    meet is copied for each.
    """

    tile: Tile
    segments: int
    window: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    block: int
    epilogue: Epilogue
    heights: tuple[int, ...]
    widths: tuple[int, ...]
    y_bf16: bool = False
    apart: bool = False

    problem = ConvProblem

    @classmethod
    def candidates(cls, problem: ConvProblem, isa: Isa) -> Iterator[Self]:
        """Yield variants for each width of the register tile; none if the input under a tile is too large."""
        p = problem
        if p.layout != "nhwc" or p.dtype not in (f32, f64):
            return
        ow = p.result[1]
        for length, vectors in itertools.product(lengths_for(isa, p.dtype, p.oc), costs_of(isa).direct):
            reach, lanes = (isa.registers - 1 - vectors) // vectors, length.lanes(p.dtype)
            if reach < 1 or -(-p.oc // lanes) < vectors:
                continue
            heights = heights_for(ow, reach)
            whole = ow.is_const and int(ow) <= reach  # a row of the output is one segment of a tile
            segments = max(1, min(reach // heights[-1], likely(p.result[0]), SEGMENTS)) if whole else 1
            tile, widths = Tile(length, p.dtype, segments * heights[-1], vectors), _widths(p.oc, lanes, vectors)
            one = cls(tile, segments, *p.geometry, block_of(p.ic), p.epilogue, heights, tuple(sorted(widths)))
            variants = (one, replace(one, apart=True)) if p.window[1] > 1 else (one,)
            yield from (k for k in variants if k._copied(segments, heights[-1]) <= k._room)

    def cycles(self, problem: ConvProblem) -> float:
        p, t = problem, self.tile
        width = likely(p.result[1])
        products = (
            self._row_cycles(width, p.oc) * p.pixels / max(width, 1) * p.ic * p.taps / costs_of(t.isa).direct[t.vectors]
        )
        products *= p.seen(t.rows) if self.apart or p.window[0] > 1 else 1
        weights = p.waiting(t.isa, p.outputs * p.ic * p.taps * t.dtype.itemsize)
        return p.images * p.groups * (products + self._copying(p)) + weights

    def _copying(self, problem: ConvProblem) -> float:
        """Estimate the cycles to copy the input of one group, by the plan of strips as the kernel makes it."""
        oh, ow = (max(likely_extent(n), 1) for n in problem.result)
        blocks, segments, tiles = -(-problem.ic // self.block), min(oh, self.segments), -(-ow // self._reach)
        low, pixels, cols, rows = min(blocks, self._low), -(-ow // tiles), tiles, segments
        while cols > 1 and self._copied(rows, cols * pixels) * low > self._room:
            cols = (cols + 1) // 2
        while cols < tiles and oh <= segments and self._copied(rows, (cols + 1) * pixels) * low <= self._room:
            cols += 1
        while rows < oh:
            more = min(rows + segments, oh)
            deep = low if rows * cols < STRIP * segments else blocks
            if self._copied(more, cols * pixels) * deep > self._room:
                break
            rows = more
        strips = -(-oh // rows) * -(-tiles // cols)
        copied = strips * self._copied(rows, cols * pixels) * blocks * self.block
        return copied * costs_of(self.tile.isa).pack

    def _row_cycles(self, width: int, oc: int) -> float:
        """Estimate the cycles for one product of every sum in a row of outputs.

        Of multiply-adds, loads, the latency of an addition, and weights from the second cache.
        """
        reach = (self.tile.isa.registers - 1 - self.tile.vectors) // self.tile.vectors
        tiles, fma, segments = -(-width // reach), self.tile.isa.fma, self.segments
        heights = {width // tiles: tiles - width % tiles, width // tiles + 1: width % tiles} if tiles else {}
        return sum(
            panels * count * max(rows * vectors / fma, (rows + vectors) / 2, 4.0, vectors * 2.0) / segments
            for vectors, panels in _widths(oc, self.tile.lanes, self.tile.vectors).items()
            for rows, count in ((segments * height, count) for height, count in heights.items())
        )

    @property
    def label(self) -> str:
        apart = ", taps apart" if self.apart else ""
        return f"direct, {self.tile.vectors} vectors of {self.tile.lanes}{apart}"

    def arguments_for(self, problem: ConvProblem) -> dict[str, Dim]:
        return problem.arguments() | problem.channel_arguments() | {"groups": Dim.of(problem.groups)}

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        blocks = -(-sizes["ic"] // self.block)
        copied = min(self._room, self._copied(sizes["oh"], sizes["ow"]) * blocks)
        return copied * self.block * self.tile.dtype.itemsize

    def packed(self, problem: ConvProblem) -> Packed:
        groups, elements = problem.groups, self.packed_elements(problem.oc, problem.ic, problem.groups)
        key = ("panels of taps", self.tile.panel, self.block, groups)
        return Packed(key, self.tile.dtype, elements, lambda w: self.pack_weights(w, groups))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        groups = sizes["groups"]
        shape = (groups * sizes["oc"], sizes["ic"], *self.window)
        w = unpacked(reads[1], shape, self.tile.dtype, lambda w: self.pack_weights(w, groups))
        convolve("nhwc", w, groups, self.strides, self.dilations, self.epilogue, reads, writes, sizes)

    def writes_bf16(self, sizes: Mapping[str, Expr]) -> bool:
        ic = constant_of(sizes["ic"])
        return self.tile.is_wide and ic is not None and self.is_one_sum(ic)

    @cached_property
    def symbol(self) -> str:
        words = f"{self._shape}{self._window_name}"
        key = f"{self.epilogue.key()}{self.heights}{self.widths}{bf16_io.key(False, self.y_bf16)}"
        return symbol("direct_conv", words, key)

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        t = str(names(self.tile)["T"])
        y = "uint16_t" if self.y_bf16 else t
        return (("x", f"const {t} *"), ("w", f"const {t} *"), *self.epilogue.pointers(t), ("y", f"{y} *"))

    def is_one_sum(self, ic: int) -> bool:
        """Tell whether the sums of ic input channels are finished at once."""
        return ic <= self.block and self.window[0] * self.window[1] * self.block <= LONGEST_SUM

    @property
    def sizes(self) -> tuple[str, ...]:
        return (*EXTENTS.split(), "y_batch", "y_pixel", *(f"s{i}_{f}" for i, f in self.epilogue.strides(*STRIDES)))

    def packed_elements(self, oc: int, ic: int, groups: int = 1) -> int:
        """Count the elements of packed weights: `oc` output and `ic` input channels of a group."""
        panels, blocks = -(-oc // self.tile.panel), -(-ic // self.block)
        return groups * panels * self.tile.panel * blocks * self.block * self.window[0] * self.window[1]

    def pack_weights(self, w: Array, groups: int = 1) -> Array:
        """Pack w[oc, ic, kh, kw] of all groups, flat; channels are filled up with zeros."""
        oc, ic, (kh, kw) = w.shape[0] // groups, w.shape[1], self.window
        panels, blocks = -(-oc // self.tile.panel), -(-ic // self.block)
        full = np.zeros((groups, panels * self.tile.panel, blocks * self.block, kh, kw), self.tile.dtype.numpy)
        full[:, :oc, :ic] = w.reshape(groups, oc, ic, kh, kw)
        split = full.reshape(groups, panels, self.tile.panel, blocks, self.block, kh, kw)
        return np.ascontiguousarray(split.transpose(0, 1, 3, 5, 6, 4, 2)).ravel()

    def flops(self, sizes: Sizes) -> Dim:
        extents = product(sizes[n] for n in ("batch", "groups", "oc", "ic", "oh", "ow"))
        return extents * (2 * self.window[0] * self.window[1])

    def parts(self) -> list[Part]:
        s, t = self.symbol, self.tile
        given = names(t) | self._constants() | {"S": s, "O": self._tiles, "body": self._body} | self.interface
        given |= bf16_io.names(False, self.y_bf16, t)
        given["light"] = int(not self.epilogue.functions())  # else its registers would displace the sums
        given["D"] = self._driver
        given["planned"] = ", ".join(f".{n} = g->{n}" for n in f"x w {EXTENTS}".split())
        given["window"] = ", ".join(f".{n} = {value}" for n, value in self._window().items())
        given["slot_starts"] = slot_starts(self.epilogue, first=" + channel", call="a")
        given["whole"] = self._whole(given)
        given["pieces"] = "".join(self._pieces())
        given["table"] = self._table()
        given["tiling"] = self._tiling(given)
        return [
            prelude(t, self.epilogue),
            DIVIDE,
            *(vector_type(n, t.dtype) for n in _lanes(t.lanes)),
            piece("IRC_DIRECT_ROWS", nhwc_text.ROWS),
            piece("IRC_DIRECT_WINDOW", nhwc_text.WINDOW),
            tile_body(self._body, nhwc_text.TILE, **given),
            Piece(
                f"IRC_{self._driver}",
                fill("".join((nhwc_text.CALL, nhwc_text.COPY, nhwc_text.STRIPS)), **given),
                stem=self._driver,
            ),
            bf16_io.text(self.y_bf16, self.epilogue.bf16_slots),
            Piece(f"IRC_{self._tiles}", self._tiles_code(given), stem=self._tiles),
            fill(nhwc_text.TASKS, **given),
        ]

    def _tiles_code(self, given: dict[str, Any]) -> str:
        """Print the tiles with their epilogue, and what chooses among them."""
        instances = (
            fill(nhwc_text.INSTANCE, **given, segments=n, height=r, width=v, instance=f"{n}x{r}x{v}")
            for n, r, v in self._instances()
        )
        outputs = epilogue_of(self._tiles, self.tile, self.epilogue, given["Y"])
        return "".join((outputs, *instances, fill(nhwc_text.BLOCK, **given)))

    def _tiling(self, given: dict[str, Any]) -> str:
        """Print how a row is cut into tiles: equal ones where its length is known, else the widest that fit."""
        if len(self.heights) <= 2:
            return fill(nhwc_text.EVEN, **given)
        *low, _ = self.heights
        widths = "".join(f"left >= {h} ? {h} : " for h in reversed(low[1:])) + str(low[0])
        return fill(nhwc_text.GREEDY, **given, widths=widths)

    def _whole(self, given: dict[str, Any]) -> str:
        """Print how a tile of whole vectors is stored to the output itself."""
        if given["light"]:
            return fill(nhwc_text.WHOLE, **given, epilogue="")
        return "" if self.y_bf16 else fill(nhwc_text.WHOLE, **given, epilogue=fill(nhwc_text.LATER, **given))

    @property
    def summary(self) -> str:
        (kh, kw), (sh, sw), t = self.window, self.strides, self.tile
        how = ", taps apart" if self.apart else ""
        return f"Convolution {kh}x{kw}/{sh}x{sw}, NHWC, {t.dtype}, tiles of {t.rows} pixels x {t.panel} channels{how}."

    @property
    def _body(self) -> str:
        """The C name of the tile's body, which holds all constants that it depends on.

        Those are distances of operands, which instructions then have: the window itself is an argument.
        """
        given = self._constants()
        segment = f"_s{given['SEGMENT']}" if self.segments > 1 else ""
        return f"irc_direct_{self._shape}_p{given['PIXEL']}{segment}_u{given['U']}"

    @cached_property
    def _tiles(self) -> str:
        """The C name of the tiles with their epilogue, which holds all that they depend on."""
        key = f"{self.epilogue.key()}{self.heights}{self.widths}{bf16_io.key(False, self.y_bf16)}"
        return symbol("tiles", self._body.removeprefix("irc_direct_"), key)

    @property
    def _driver(self) -> str:
        """The C name of what plans, copies and goes through tiles, which holds all constants that it depends on.

        The window, its strides and dilations, and the extents of the tile are arguments: networks have many of them.
        """
        greedy = "_" + "_".join(map(str, self.heights)) if len(self.heights) > 2 else ""
        return f"irc_strips_{self.tile.registers}_b{self.block}{greedy}"

    @property
    def _shape(self) -> str:
        t = self.tile
        return f"{t.registers}_{self.segments}x{self._reach}x{t.vectors}"

    @property
    def _window_name(self) -> str:
        (kh, kw), (sh, sw), (dh, dw) = self.window, self.strides, self.dilations
        return f"_k{kh}x{kw}_s{sh}x{sw}_d{dh}x{dw}_b{self.block}{'_apart' * self.apart}"

    @property
    def _room(self) -> int:
        """The pixels × blocks of the input that are copied at once, at most."""
        return self.tile.isa.packed // self.tile.dtype.itemsize // self.block

    @property
    def _low(self) -> int:
        """The blocks of channels for which one accumulator is enough."""
        return -(-LONGEST_SUM // (self.window[0] * self.window[1] * self.block))

    @property
    def _copied_window(self) -> tuple[int, int]:
        """The window as it stands in the copy: of one column if taps are apart."""
        kh, kw = self.window
        return (kh * kw, 1) if self.apart else (kh, kw)

    @property
    def _is_sparse(self) -> bool:
        """Whether rows that no tap meets are left out of the copy."""
        return self.apart or self.strides[0] > self.window[0] or self.dilations[0] > DENSE

    def _copied(self, rows: int, columns: int) -> int:
        """Count the pixels of the copy under so many rows and columns of the output."""
        (kh, kw), (sh, sw), (dh, dw) = self._copied_window, self.strides, self.dilations
        tall = rows * kh if self._is_sparse else (rows - 1) * sh + (kh - 1) * dh + 1
        return tall * (columns if kw == 1 else (columns - 1) * sw + (kw - 1) * dw + 1)

    @property
    def _reach(self) -> int:
        return self.tile.rows // self.segments

    def _constants(self) -> dict[str, Any]:
        """Return the constants of the geometry by their names in the templates."""
        kw, sw, dw, block = self._copied_window[1], self.strides[1], self.dilations[1], self.block
        column = sw if kw == 1 else 1  # one of every so many columns is copied
        segment = self._down * ((self._reach - 1) * (sw // column) + (kw - 1) * dw + 1) * block
        far = sw // column > STEP and self.tile.vectors > 1 and self.segments == 1
        return {
            "B": block,
            "S_": self.segments,
            "R": self._reach,
            "PIXEL": "pixel" if far else sw // column * block,
            "given": ", pixel = g->pixel" if far else "",
            "SEGMENT": segment if self.segments > 1 else 0,
            "U": self._round,
            "near": NEAR * self.tile.panel,
            "sum": LONGEST_SUM,
            "room": self._room,
            "strip": STRIP,
            "few": FEW_TASKS,
            "overlap": OVERLAP,
            "most_parts": CHANNEL_PARTS,
            "worthwhile": WORTHWHILE,
            "l2": self.tile.isa.l2,
        }

    @property
    def _runs(self) -> tuple[int, int]:
        """Into how many pieces a row of taps falls whose taps and channels are contiguous, and their elements."""
        kw = self._copied_window[1]
        return (1, kw * self.block) if self.dilations[1] == 1 or self.apart else (kw, self.block)

    @property
    def _round(self) -> int:
        """The products of a sum that are made in one round of the loop."""
        sums = self.tile.rows * self.tile.vectors
        return max(u for u in range(1, UNROLL + 1) if self._runs[1] % u == 0 and (u == 1 or u * sums <= ROUND))

    @property
    def _down(self) -> int:
        """The rows of the copy from one row of outputs to the next."""
        return self._copied_window[0] if self._is_sparse else self.strides[0]

    def _window(self) -> dict[str, int]:
        """Return the members of `irc_direct_window`."""
        (kh, kw), (sh, sw), (dh, dw) = self._copied_window, self.strides, self.dilations
        sparse, column = self._is_sparse, sw if kw == 1 else 1
        runs, run = self._runs
        return {
            "kh": kh,
            "kw": kw,
            "sh": sh,
            "sw": sw,
            "dh": dh,
            "dw": dw,
            "taps_step": 1 if sparse else dh,
            "down": self._down,
            "right": sw // column,
            "tall": kh if sparse else (kh - 1) * dh + 1,
            "wide": (kw - 1) * dw + 1,
            "every": kh if sparse else 1,
            "jump": sh if sparse else 1,
            "across": self.window[1] if self.apart else 1,
            "column": column,
            "row_taps": self.window[1] if self.apart else 1,
            "reach": self.window[0] * dh,
            "round": self._round,
            "low": self._low,
            "runs": runs,
            "run": run,
            "dx": dw * self.block,
            "segments": self.segments,
            "pixels": self._reach,
            "panel": self.tile.panel,
            "apart": int(self.apart),
            "columns": int(self.apart and self.window[0] == 1),
        }

    def _instances(self) -> Iterator[tuple[int, int, int]]:
        """Yield segments, height and vectors of the bodies."""
        for n in range(1, self.segments + 1):
            for r in self.heights:
                for v in self.widths:
                    yield n, r, v

    def _table(self) -> str:
        have = set(self._instances())

        def entry(*key: int) -> str:
            return f"{self._tiles}_{key[0]}x{key[1]}x{key[2]}" if key in have else "0"

        def row(n: int, r: int) -> str:
            return "{" + ", ".join(entry(n, r, v) for v in range(1, self.tile.vectors + 1)) + "}"

        def plane(n: int) -> str:
            return "{" + ", ".join(row(n, r) for r in range(1, self._reach + 1)) + "}"

        return ", ".join(plane(n) for n in range(1, self.segments + 1))

    def _pieces(self) -> Iterator[str]:
        """Print the copy of one block of channels."""
        at = 0
        for lanes in _lanes(self.tile.lanes):
            v = vector_name(lanes, self.tile.dtype)
            for _ in range((self.block - at) // lanes):
                yield fill("                ${V}_store(out + $at, ${V}_load(in + $at));\n", V=v, at=at)
                at += lanes
        for c in range(at, self.block):
            yield f"                out[{c}] = in[{c}];\n"


def heights_for(width: Dim, most: int) -> tuple[int, ...]:
    """Choose heights of tiles that cover a row, lowest first: of nearly equal tiles, or such that few of them are what
    is left of an unknown width."""
    return heights_of(width, most) if width.is_const else (*(h for h in LADDER if h < most), most)


def _widths(columns: int, lanes: int, vectors: int) -> dict[int, int]:
    """Count the panels of each width, in vectors, that cover the columns; the last one is as wide as it must be."""
    panels, rest = divmod(columns, lanes * vectors)
    widths = {vectors: panels} if panels else {}
    if rest:
        widths[-(-rest // lanes)] = widths.get(-(-rest // lanes), 0) + 1
    return widths


def _lanes(most: int) -> list[int]:
    found = [most]
    while found[-1] > 4:
        found.append(found[-1] // 2)
    return found


def block_of(ic: int) -> int:
    """Choose the channels of a block: as many as there are, or about `BLOCK_CHANNELS`, so that few are filled up."""
    return BLOCK_CHANNELS if ic % BLOCK_CHANNELS == 0 else -(-ic // max(1, round(ic / BLOCK_CHANNELS)))
