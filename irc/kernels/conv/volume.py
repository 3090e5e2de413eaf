"""Convolution of planes and volumes, channels first, from the taps that are inside: no product is with padding.

A tile is some pixels of a row of the result × vectors of output channels.  Its sums stay in registers over all planes,
rows and columns of taps that are inside the input: planes and rows are loops; which columns of which pixels are, is
known, because the width is, so that there is a body for the left end of rows, one for the right, one between them.

Dense: an element of X is multiplied with vectors of weights, so that X is read where it stands, whatever the strides.
Depthwise: vectors of X are as many channels, which are put side by side for some rows of as many planes as a window
holds.  Sums of some rows are turned round before they are stored: pixels of a channel side by side.

Threads split images, groups, channels and rows, or the tiles of an only row, never the sum: results do not depend on
them.  The sums of an only row are made for so many tiles at a time as there is room for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from irc.ir.dim import Dim, product
from irc.ir.types import f32, f64
from irc.kernels.conv import volume_text
from irc.kernels.conv.channels_first import ChannelsFirstKernel
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.conv.reference import convolve, unpacked
from irc.kernels.conv.volume_row import RowOfTiles
from irc.kernels.core.base import Array, Packed, Sizes
from irc.kernels.core.costs import LATENCY, LOADS, costs_of, in_halves, is_half, lengths_for
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, symbol
from irc.kernels.core.tile import Tile, epilogue_of, names, prelude
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.gemm import tasks
from irc.kernels.vector.lanes import square
from irc.kernels.vector.pixels import channel_slots
from irc.opdef.window import taps_inside

WEIGHTS = 8192  # elements of a panel's weights that are added up at a time: they stay in the first cache
SUMS = 4  # part of the stack for sums: 1 / SUMS
FEW_TASKS = 4  # with fewer, rows are split further: tasks that read all weights for a row each wait for them
REACHED = {2: 0.95, 3: 0.93, 4: 0.9, 6: 0.9, 1: 0.88}  # part of the peak of tiles so many vectors wide
REACHED_IN_HALVES = {2: 0.93, 3: 0.86, 4: 0.78, 6: 0.72, 1: 0.88}
CROWDED, TAPS_OF_CROWDED = 1.15, 5
"""Times as long as estimated that tiles take whose sums leave a register for each operand, from so many taps on."""
LONE, LONE_ROWS, LONE_TAPS = 0.83, 9, 5
"""Times as long as estimated that tiles of one vector take on cores with AMX, in planes, from so many pixels, and taps
of a row, on (Emerald Rapids, 60 layers).  It seems that loading a number for all lanes is no load of a vector there."""
FEWEST_SUMS = 8  # with fewer in a tile, the channels are added up two at a time
TILES, RUNS = 64, 8  # of a row at most, or runs of equal ones: each kind is a function
AHEAD, WIDE = 4, 3  # channels that X is fetched ahead, in tiles of so many vectors at most: wider ones meet less of it
ROW, ROW_IN_HALVES = 2.0, 1.0  # cycles for a row of taps besides its products
ROW_OF_FEW = 4.0  # the same in halves of a tile of few pixels
ROW_OF_FEW_TAPS_IN_HALVES = 2.0  # of one tap of a plane; of more pixels none
ROW_OF_FEWEST_IN_HALVES = 6.0  # and of fewer still, in volumes, whose rows and planes are loops of few rounds
ROW_OF_ONE_TAP_IN_HALVES = 11.0  # of a channel of a volume that meets one tap
ROW_OF_FEWEST = 8.0  # and in whole vectors of fewer still, in planes: their products are over before the next row's
FEW, FEWEST = 8, 6
HELD, FAR = 8, 3.0  # of an input that is larger than so many second caches, bytes that windows of one tap read a cycle
TURN = 0.5  # cycles to turn round and store a sum


@kernel
class VolumeConvKernel(ChannelsFirstKernel[ConvProblem]):
    """A generated convolution of planes or volumes whose width is known.

    tile: pixels of a row × vectors of output channels.  row: of X and of the result the width, the window's, stride,
    dilation and padding along it.  single: windows have one row of taps.  depthwise: groups of one input channel,
    whose output channels stand side by side in memory and vectors, in one "group" of the call.  last: tiles of the last
    panel of channels, where fewer vectors hold it.
    """

    tile: Tile
    row: tuple[int, int, int, int, int, int]
    single: bool
    depthwise: bool
    epilogue: Epilogue
    last: Tile | None = None

    problem = ConvProblem
    extents = (
        "batch groups multiplier ic oc id ih od oh kd kh stride_d stride_h dilation_d dilation_h pad_d pad_h"
        " x_batch x_channel y_batch y_channel"
    )

    @classmethod
    def candidates(cls, problem: ConvProblem, isa: Isa) -> Iterator[Self]:
        """Yield variants for each length of vectors and width of the tile."""
        p = problem
        if p.layout != "nchw" or p.dtype not in (f32, f64):
            return
        known = (*p.size, *p.result, *p.padding, p.depth.size, p.depth.result, p.depth.padding)
        if not all(d.is_const for d in known) or int(p.result[1]) < 1:
            return
        row = (int(p.size[1]), int(p.result[1]), p.window[1], p.strides[1], p.dilations[1], int(p.padding[1]))
        single = p.depth.window == p.window[0] == 1
        depthwise = p.ic == 1 and p.groups > 1
        if depthwise and not p.is_volume:  # planes of such channels have kernels of their own
            return
        outputs = p.outputs if depthwise else p.oc
        narrow = [isa]
        while narrow[-1] != isa.filled_by(p.dtype, outputs):
            narrow.append(narrow[-1].halved())
        if len(narrow) == 1:
            narrow = [*lengths_for(isa, p.dtype, outputs)]
        for each in reversed(narrow):  # of equal cost the shorter vectors: some processors do more of them at a time
            for vectors in (1,) if depthwise else REACHED:
                lanes = each.lanes(p.dtype)
                cut = RowOfTiles.fitting(each, p.dtype, vectors, row)
                if cut is None or (vectors - 1) * lanes >= outputs:
                    continue
                rest = -(-(outputs % (vectors * lanes)) // lanes)
                narrower = rest < vectors and rest in REACHED
                last = RowOfTiles.fitting(each, p.dtype, rest, row) if narrower else None
                one = cls(cut.tile, row, single, depthwise, p.epilogue, last.tile if last else None)
                if all(len(c.starts) <= TILES or len(c.runs) <= RUNS for c in one._cuts) and one._fits(p):
                    yield one

    def _fits(self, problem: ConvProblem) -> bool:
        """Tell whether a row of the result, if there are several, has room on the stack, and depthwise the input."""
        p, lanes, width = problem, self.tile.lanes, self.row[0]
        only = not self.depthwise and p.depth.result == p.result[0] == 1
        if not only and self.row[1] * self.tile.panel > self._room:
            return False
        planes, rows = (p.depth.window - 1) * p.depth.dilation + 1, (p.window[0] - 1) * p.dilations[0] + 1
        return not self.depthwise or planes * rows * width * lanes <= self._ring

    def cycles(self, problem: ConvProblem) -> float:
        p, t = problem, self.tile
        outputs, groups = (p.outputs, 1) if self.depthwise else (p.oc, p.groups)
        costs, panels = costs_of(t.isa), -(-outputs // t.panel)
        d = p.depth
        extents = (int(d.size), int(d.result), d.window, d.stride, d.dilation, int(d.padding))
        tall = (int(p.size[0]), int(p.result[0]), p.window[0], p.strides[0], p.dilations[0], int(p.padding[0]))
        rows = taps_inside(*extents) * taps_inside(*tall)
        cuts = self._cuts
        each = [self._row_cycles(cut, p) for cut in cuts]
        products = rows * (each[0] * (panels - len(cuts) + 1) + sum(each[1:])) * p.ic
        turned = TURN * p.pixels * outputs + (p.pixels * p.channels * costs.pack if self.depthwise else 0)
        size = groups * self._padded(outputs) * p.ic * p.taps * t.dtype.itemsize
        if p.taps == 1:
            products += panels * self._read_from_far(p)
        return p.images * (groups * (products + turned)) + p.waiting(t.isa, size) * self._readings(p, size)

    def _read_from_far(self, problem: ConvProblem) -> float:
        """Estimate the cycles to read a group's input in short pieces of all channels' planes, if no cache holds it."""
        size = likely(problem.depth.size * problem.size[0] * problem.size[1]) * problem.ic * self.tile.dtype.itemsize
        return size / FAR if size > HELD * self.tile.isa.l2 else 0.0

    def _row_cycles(self, cut: RowOfTiles, problem: ConvProblem) -> float:
        """Estimate the cycles of a row of taps of one channel, for a row of the result and a panel."""
        p, t = problem, cut.tile
        step = (LATENCY + self.depthwise) / (1 if t.rows * t.vectors >= FEWEST_SUMS or p.ic == 1 else 2)
        taps, before = 0.0, 0
        for (_, ranges), end in cut.runs:
            for low, high in ranges:
                loads = t.vectors + (high - low)
                each = max((high - low) * t.vectors / t.isa.fma, loads / LOADS, step if high > low else 0)
                taps += (end - before) * each
            before = end
        plane = not (self.depthwise or p.is_volume) and likely(p.result[0]) > 1
        lone = t.isa.tiles and t.vectors == 1 and plane
        if lone and t.rows >= LONE_ROWS and p.window[1] >= LONE_TAPS:
            taps *= LONE
        if t.rows * t.vectors + 2 == t.isa.registers and p.window[1] >= TAPS_OF_CROWDED:
            taps *= CROWDED
        few = t.rows < FEWEST and t.isa.vector == 64 and t.vectors > 1 and not p.is_volume
        reached, row = REACHED, ROW_OF_FEWEST if few else ROW
        if in_halves(t.isa):
            reached, row = REACHED_IN_HALVES, ROW_OF_FEW if t.rows < FEW else ROW_IN_HALVES
            row = ROW_OF_FEWEST_IN_HALVES if t.rows < FEWEST and p.is_volume else row
            if plane and p.window[1] == 1 and t.rows >= FEWEST:
                row = 0.0 if t.rows >= FEW else ROW_OF_FEW_TAPS_IN_HALVES
        if p.is_volume and p.taps == 1 and (in_halves(t.isa) or is_half(t.isa)):
            row = ROW_OF_ONE_TAP_IN_HALVES
        return taps / reached[t.vectors] + row * len(cut.starts)

    def _readings(self, problem: ConvProblem, size: int) -> int:
        """Count how often weights of this size come from far: with each image, unless those of a panel stay near."""
        p, t = problem, self.tile
        if self.depthwise or size <= t.isa.l2:
            return 1
        image = likely(p.depth.size * p.size[0] * p.size[1]) * p.channels
        panel = p.ic * p.taps * t.panel * t.dtype.itemsize
        return 1 if size > image * t.dtype.itemsize and panel <= t.isa.l2 else p.images

    def imbalance(self, problem: ConvProblem) -> float:
        p, panel = problem, self.tile.panel
        work = p.images * p.pixels * p.outputs * p.ic * p.taps
        if self.depthwise or not p.batch.is_const or work < tasks.WORTHWHILE:
            return 1.0
        rows, panels, groups = int(p.depth.result) * int(p.result[0]), -(-p.oc // panel), int(p.batch) * p.groups
        blocks = self._blocks(rows, groups * panels)
        divided = rows if rows > 1 else len(self._cuts[0].starts)
        heights = [divided * (i + 1) // blocks - divided * i // blocks for i in range(blocks)]
        widths = [self.tile.vectors] * (panels - 1) + [(self.last or self.tile).vectors]
        return tasks.longer_share([h * w for w in widths for h in heights], groups)

    def _blocks(self, rows: int, panels: int) -> int:
        """Count the blocks of rows, or of an only row's tiles, of each of all panels, as the C does."""
        least, tiles = FEW_TASKS // panels + 1, len(self._cuts[0].starts)
        if rows == 1:
            blocks = min(max(-(-tiles // self._fitting), least), tiles)
        else:
            most = min(self._room // (self.row[1] * self.tile.panel), -(-rows // least))
            blocks = -(-rows // most)
        odd = panels * blocks % 2 and panels * blocks < tasks.FEW_TASKS
        return blocks + 1 if odd and blocks < (tiles if rows == 1 else rows) else blocks

    @property
    def label(self) -> str:
        how = "depthwise" if self.depthwise else "direct"
        return f"inside, {how}, {self.tile.rows} x {self.tile.vectors} vectors of {self.tile.lanes}"

    def arguments_for(self, problem: ConvProblem) -> dict[str, Dim]:
        p, d = problem, problem.depth
        ic, oc, groups = (1, p.outputs, 1) if self.depthwise else (p.ic, p.oc, p.groups)
        counts = {"ic": ic, "oc": oc, "groups": groups, "multiplier": p.outputs // p.channels if self.depthwise else 1}
        counts |= {"kd": d.window, "kh": p.window[0], "stride_d": d.stride, "stride_h": p.strides[0]}
        counts |= {"dilation_d": d.dilation, "dilation_h": p.dilations[0]}
        sizes = problem.arguments() | {"id": d.size, "od": d.result, "pad_d": d.padding}
        sizes |= {name: Dim.of(n) for name, n in counts.items()}
        return {name: sizes[name] for name in self.sizes}

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        t, (iw, ow, *_) = self.tile, self.row
        if not self.depthwise:
            rows = sizes["od"] * sizes["oh"]
            pieces = -(-len(self._cuts[0].starts) // self._fitting)  # of an only row, at least
            piece = max(-(-len(c.starts) // pieces) * c.tile.rows * c.tile.panel for c in self._cuts)
            sums = piece if rows == 1 else max(piece, min(self._room, rows * ow * t.panel))
            return (sums + t.lanes * t.panel) * t.dtype.itemsize
        slots = (sizes["kd"] - 1) * sizes["dilation_d"] + 1
        ring = min(self._ring, slots * sizes["ih"] * iw * t.lanes) + t.lanes * t.lanes
        sums = min(self._most, sizes["oh"]) * ow * t.panel + t.lanes * t.panel
        return (ring + sums) * t.dtype.itemsize

    def packed(self, problem: ConvProblem) -> Packed:
        groups = 1 if self.depthwise else problem.groups
        elements = groups * self._padded(problem.outputs // groups) * problem.ic * problem.taps
        key = ("panels of channels", self.tile.panel, self._spared, groups)
        return Packed(key, self.tile.dtype, elements, lambda w: self.pack_weights(w, groups))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        iw, ow, kw, sw, dw, pw = self.row
        groups, oc = sizes["groups"], sizes["oc"]
        shape = (groups * oc, sizes["ic"], sizes["kd"], sizes["kh"], kw)
        w = unpacked(reads[1], shape, self.tile.dtype, lambda w: self.pack_weights(w, groups))
        strides = (sizes["stride_d"], sizes["stride_h"], sw)
        dilations = (sizes["dilation_d"], sizes["dilation_h"], dw)
        groups = oc // sizes["multiplier"] if self.depthwise else groups
        known = {**sizes, "iw": iw, "ow": ow, "pad_w": pw}
        convolve("nchw", w, groups, strides, dilations, self.epilogue, reads, writes, known)

    @cached_property
    def symbol(self) -> str:
        iw, ow, kw, sw, dw, pw = self.row
        t = self.tile
        window = f"{iw}_{ow}_k{'1x' * self.single}{kw}_s{sw}_d{dw}_p{pw}"
        words = f"{window}_{t.dtype.name}_{t.isa.name}_{t.rows}x{t.vectors}x{t.lanes}"
        words += f"_{self.last.rows}x{self.last.vectors}" if self.last else ""
        return symbol(f"volume{'_depthwise' * self.depthwise}", words, self.epilogue.key())

    def pack_weights(self, w: Array, groups: int = 1) -> Array:
        """Pack w[oc, ic, kd, kh, kw] of all groups, flat, as [group][panel][ic][taps][channel of the panel]."""
        per, panel = w.shape[0] // groups, self.tile.panel
        taps = int(np.prod(w.shape[2:]))  # pyright: ignore
        full = np.zeros((groups, self._padded(per), w.shape[1], taps), self.tile.dtype.numpy)
        full[:, :per] = w.reshape(groups, per, w.shape[1], taps)
        whole = full.shape[1] // panel * panel
        parts = [full[:, :whole].reshape(groups, -1, panel, *full.shape[2:]), full[:, None, whole:]]
        return np.concatenate([x.transpose(0, 1, 3, 4, 2).reshape(groups, -1) for x in parts], axis=1).ravel()

    def _padded(self, outputs: int) -> int:
        """Count the channels of all panels of a group."""
        return -(-outputs // self.tile.panel) * self.tile.panel - self._spared

    @property
    def _spared(self) -> int:
        """The channels that the last panel has fewer than others."""
        return self.tile.panel - self.last.panel if self.last else 0

    def flops(self, sizes: Sizes) -> Dim:
        extents = product(sizes[n] for n in ("batch", "groups", "oc", "ic", "od", "oh", "kd", "kh"))
        return extents * (2 * self.row[1] * self.row[2])

    @property
    def summary(self) -> str:
        how = "Depthwise convolution" if self.depthwise else "Convolution"
        t = self.tile
        tiles = f"tiles of {t.rows} pixels x {t.panel} channels"
        return f"{how} of the taps inside, NCHW, {t.dtype}, {tiles}, rows of {self.row[1]}."

    def parts(self) -> list[Part]:
        t = self.tile
        given = names(t) | self._constants() | self.interface
        given["slot_starts"] = channel_slots(self.epilogue)
        s = self.symbol
        given["block"] = f"(panel + 1 < g->panels ? {s}_block : {s}_last_block)" if self.last else f"{s}_block"
        body = volume_text.DEPTHWISE if self.depthwise else volume_text.DENSE_PART
        return [
            prelude(t, self.epilogue),
            DIVIDE,
            square(t.lanes, t.dtype),
            epilogue_of(s, t, self.epilogue),
            fill(volume_text.CALL, **given),
            *(self._tiles(cut, prefix) for cut, prefix in zip(self._cuts, (s, f"{s}_last"), strict=False)),
            *(fill(text, **given) for text in (body, volume_text.ENTRY)),
        ]

    def _tiles(self, cut: RowOfTiles, prefix: str) -> str:
        """Print the tiles of a row, and what goes through them for the panels of their width."""
        t = cut.tile
        given = names(t) | self._constants() | {"S": self.symbol, "P": prefix, "tiles": len(cut.starts)}
        kinds = list(dict.fromkeys(kind for kind, _ in cut.runs))
        runs = (f"{{{prefix}_tile_{kinds.index(kind)}, {end}}}" for kind, end in cut.runs)
        given |= {"R": t.rows, "U": self._abreast(t), "runs": ", ".join(runs)}
        channels = volume_text.ONE_ROW if self.single else volume_text.ROWS
        windows = [
            fill(
                volume_text.WINDOW,
                **given,
                kind=i,
                begin=begin,
                fetch="" if self.depthwise or t.vectors > WIDE else "".join(cut.fetched(ranges, AHEAD)),
                taps="".join(cut.taps(ranges, prefix)),
                channels=fill(channels, **given, kind=i),
            )
            for i, (begin, ranges) in enumerate(kinds)
        ]
        block = "" if self.depthwise else volume_text.DENSE
        one = volume_text.ADD_PLANES if self.depthwise else volume_text.ADD_THREE if t.vectors == 3 else volume_text.ADD
        given["add"] = fill(one, **given)
        return "".join((fill(volume_text.TAP, **given), *windows, fill(volume_text.FINISH + block, **given)))

    def _constants(self) -> dict[str, Any]:
        """Return the constants of the geometry by their names in the templates."""
        t, (iw, ow, kw, sw, dw, pw) = self.tile, self.row
        step = t.lanes if self.depthwise else 1
        at = f"x + r * {sw * step}"
        return {
            "S": self.symbol,
            "P": self.symbol,
            "U": self._abreast(t),
            "IW": iw,
            "OW": ow,
            "KW": kw,
            "tiles": len(self._cuts[0].starts),
            "fitting": self._fitting,
            "SW": sw,
            "PW": pw,
            "DW": dw,
            "XS": step,
            "at": at,
            "where": "(front + d0 * g->dilation_d) % ((g->kd - 1) * g->dilation_d + 1) * o->plane"
            if self.depthwise
            else f"(front + d0 * g->dilation_d) * (g->ih * {iw})",
            "wrap": "\n        if (where >= o->ring) where -= o->ring;" if self.depthwise else "",
            "l2": t.isa.l2 // t.dtype.itemsize,
            "spared": self._spared,
            "room": self._room,
            "ring": self._ring,
            "most": self._most,
            "weights": WEIGHTS,
            "few": FEW_TASKS,
            "even": tasks.FEW_TASKS,
            "worthwhile": tasks.WORTHWHILE,
        }

    def _abreast(self, tile: Tile) -> int:
        """Choose how many channels a tile adds up at a time, in sums of their own."""
        return 1 if self.depthwise or tile.rows * tile.vectors >= FEWEST_SUMS else 2

    @cached_property
    def _cuts(self) -> tuple[RowOfTiles, ...]:
        """A row of the result as tiles, and as those of the last panel where it is narrower."""
        step = self.tile.lanes if self.depthwise else 1
        return tuple(RowOfTiles(t, self.row, step) for t in (self.tile, self.last) if t)

    @property
    def _room(self) -> int:
        """The sums that are made at once, at most."""
        return self.tile.isa.packed // self.tile.dtype.itemsize // SUMS

    @property
    def _fitting(self) -> int:
        """The tiles of an only row whose sums are made at once."""
        return max(1, self._room // (self.tile.rows * self.tile.panel))

    @property
    def _ring(self) -> int:
        """The elements of the input that stand in the ring of a depthwise convolution, at most."""
        return self.tile.isa.packed // self.tile.dtype.itemsize

    @property
    def _most(self) -> int:
        """The rows of a plane whose sums a depthwise convolution makes at once."""
        return max(1, self._room // (self.row[1] * self.tile.panel))
