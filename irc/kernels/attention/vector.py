"""Attention: O = softmax(scale · Q Kᵀ + mask) V for every batch and head, f32.

A task is a range of query rows of one key-value head; with grouped queries the rows of all query heads that share
the head follow one another.  It goes through the keys in blocks, packs K and V of a block on the stack, and for each
tile of rows computes the scores, their exponentials and the products with V: scores never leave the first cache.
Rows whose keys are one block (`keys`, up to 512) get the exact two-pass softmax; longer ones carry
the maximum and the sum from block to block.  With few rows (decoding) K and V are read in place instead.

Nothing outside the operands is read or written.  Threads split tasks: results do not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

from irc.ir.dim import Dim
from irc.ir.types import f32
from irc.kernels.attention.problem import AttentionProblem, Empty, Mask, attend
from irc.kernels.attention.text import CALL, DECODE, ENTRY, INSTANCE, PACK, SOFTMAX, TILE, TILES
from irc.kernels.core.base import Array, Kernel, Sizes
from irc.kernels.core.costs import ATTENDED_HEAD, ATTENDING, SCORE, costs_of
from irc.kernels.core.isa import HEAD, Isa, vector_type
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, piece, symbol, tile_body
from irc.kernels.core.tile import Tile, body_of, heights_of, names
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.gemm.tasks import WORTHWHILE
from irc.kernels.vector.lanes import dots, exp_below, folds, square

WIDEST = 512  # elements of a row of Q or V, at most
KEYS = 512  # keys of a block, at most
TILES_PER_TASK = 32
FEW_TILES = 4
FEW_TASKS = 8
DECODE_ROWS = 4  # query rows of a key-value head up to which K and V are not packed


@kernel
class AttentionKernel(Kernel[AttentionProblem]):
    """A generated attention.

    width: of a row of Q, K and V, at most.  mask, causal: as problems state them; a mask broadcasts by strides of 0.
    A row that sees no key is what softmax gives, NaN, or 0 where `empty` is "zero" (no keys at all: 0).
    heights: rows of the tiles it has bodies for.
    """

    tile: Tile
    width: int
    scale: float
    mask: Mask
    causal: bool
    empty: Empty
    heights: tuple[int, ...]

    problem = AttentionProblem

    @classmethod
    def candidates(cls, problem: AttentionProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant if rows of Q and V fit `WIDEST` elements, and those of K or Kᵀ are contiguous."""
        p, rows, width = problem, problem.rows, problem.width
        if not (width.is_const and 0 < int(width) <= WIDEST and p.d.at_most(width) and p.dv.at_most(width)):
            return
        if 1 not in p.k[2:]:
            return
        tile = Tile(isa, f32, isa.rows, isa.vectors)
        heights = heights_of(rows, tile.rows) if rows.is_const else (*range(2, tile.rows, 2), tile.rows)
        yield cls(tile, int(width), p.scale, p.mask, p.causal, p.empty, heights)

    def cycles(self, problem: AttentionProblem) -> float:
        m, n, t = likely(problem.rows), likely(problem.n), self.tile
        costs = costs_of(t.isa)
        products = 2 * m * n * self.width / (t.isa.fma * t.lanes * costs.tiles[t.rows, t.vectors])
        besides = m * n * SCORE[0] + m * self.width * ATTENDING[0] + ATTENDED_HEAD
        return problem.count * (products + 2 * n * self.width * costs.pack + besides)

    @property
    def label(self) -> str:
        return "f32"

    def arguments_for(self, problem: AttentionProblem) -> dict[str, Dim]:
        return problem.arguments()

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        t, wide = self.tile, self._padded
        packed = -(-min(sizes["n"], self.keys) // t.panel) * t.panel * wide
        rows = 3 * max(self.heights) * (self._stride + TILES_PER_TASK) + 2 * packed
        decode = 2 * DECODE_ROWS * wide + self.keys + t.lanes
        return 4 * max(rows, decode)

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        attend(self.scale, self.mask, self.causal, self.empty, reads, writes, sizes)

    @cached_property
    def symbol(self) -> str:
        words = self.tile.name.removeprefix("irc_tile_")
        which = f"{self.mask}{'_causal' if self.causal else ''}"
        rest = f"{float(self.scale).hex()}{self.empty}{self.heights}{self.keys}"
        return symbol("attention", words, which, rest)

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        masks = {"none": (), "add": (("mask", "const float *"),), "bool": (("mask", "const uint8_t *"),)}
        f = "const float *"
        return (("q", f), ("k", f), ("v", f), *masks[self.mask], ("o", "float *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the int64_t arguments, in order.

        heads: of the queries; group: of them to each head of K and V.  m queries, n keys, d elements in a row of Q
        and K, dv in a row of V and O.  Rows of Q, V and O are contiguous; K may be stored either way (k_row from key
        to key, k_col along it, one of them 1).  shift: see `causal`.
        """
        fixed = (
            "batch heads group m n d dv q_batch q_head q_row k_batch k_head k_row k_col "
            "v_batch v_head v_row o_batch o_head o_row"
        )
        mask = () if self.mask == "none" else ("mask_batch", "mask_head", "mask_row", "mask_col")
        return (*fixed.split(), *mask, *(("shift",) if self.causal else ()))

    @property
    def keys(self) -> int:
        """Keys of a block."""
        panel = self.tile.panel
        return max(panel, min(KEYS, self._room // -(-self.width // panel) // panel // panel * panel))

    @property
    def _room(self) -> int:
        """Elements of a packed block of K or V."""
        return self.tile.isa.packed // 4

    @property
    def _padded(self) -> int:
        """Elements of a row in whole panels."""
        return -(-self.width // self.tile.panel) * self.tile.panel

    @property
    def _stride(self) -> int:
        """Elements from one row of a tile's queries, scores and sums to the next."""
        return max(self.keys, self._padded) + self.tile.lanes

    def flops(self, sizes: Sizes) -> Dim:
        m, n = sizes["m"], sizes["n"]
        pairs = m * n
        if self.causal:  # query i sees the keys up to i + shift
            pairs = pairs.minimum(m * (sizes["shift"] + 1) + (m * (m - 1)) // 2)
        return 2 * sizes["batch"] * sizes["heads"] * pairs * (sizes["d"] + sizes["dv"])

    def parts(self) -> list[Part]:
        s, t = self.symbol, self.tile
        body = f"irc_strided_{t.name.removeprefix('irc_')}_{self._stride}"
        count = min(8, t.lanes)
        given = names(t) | {
            "S": s,
            "body": body,
            "AS": self._stride,
            "KB": self.keys,
            "wide": self._padded,
            "scale": f"{float(self.scale).hex()}f",
            "H0": max(self.heights),
            "G": count,
            "some": -(-max(*self.heights, DECODE_ROWS) // t.lanes) * t.lanes,
            "dots": dots(count, t.lanes, f32),
            "tiles": TILES_PER_TASK,
            "few_tiles": FEW_TILES,
            "few": FEW_TASKS,
            "decode": DECODE_ROWS,
            "worthwhile": WORTHWHILE,
            "iota": ", ".join(map(str, range(t.lanes))),
        }
        widths = sorted({1, t.vectors})
        instances = [
            piece("IRC_TILE_${body}_${R}x$W", INSTANCE, **given, R=r, W=w) for r in self.heights for w in widths
        ]
        return [
            HEAD,
            vector_type(t.lanes, f32),
            folds(t.lanes, f32),
            square(t.lanes, f32),
            exp_below(t.lanes, f32),
            DIVIDE,
            tile_body(body, TILE, **given),
            instances,
            fill(CALL, **given, reach=self._reach),
            fill(PACK, **given),
            fill(SOFTMAX, **given, mask_at=self._mask_at, **self._masking, empty=self._inverse),
            fill(TILES, **given, tables=self._tables(body), pick=body_of(t, t.vectors > 1, "rows")),
            fill(DECODE, **given, empty=self._inverse),
            fill(ENTRY, **given, **self.interface),
        ]

    @property
    def summary(self) -> str:
        masks = {"none": "no mask", "add": "an added mask", "bool": "a boolean mask"}
        order = "causal, " if self.causal else ""
        return f"Attention, f32, {order}{masks[self.mask]}, blocks of {self.keys} keys."

    @property
    def _reach(self) -> str:
        """C for the number of keys that query i sees."""
        if not self.causal:
            return "(void)i;\n    return g->n;"
        return "const int64_t end = i + g->shift + 1;\n    return end < 0 ? 0 : end < g->n ? end : g->n;"

    @property
    def _mask_at(self) -> str:
        if self.mask == "none":
            return "(void)at;"
        kind = "float" if self.mask == "add" else "uint8_t"
        at = (
            "g->mask + at->batch * g->mask_batch"
            f" + (at->head + {self.symbol}_head(g, r)) * g->mask_head + i * g->mask_row"
        )
        return f"const {kind} *const mask = {at};"

    @property
    def _masking(self) -> dict[str, str]:
        """C that adds the mask to scores x from j on: to whole vectors if possible, and to `part` of one."""
        v, lanes = names(self.tile)["V"], self.tile.lanes
        if self.mask == "none":
            return {"whole": "1", "added": "", "masked": ""}
        seen = " ? 0.0f : -INFINITY" if self.mask == "bool" else ""
        part = f"""float lanes[{lanes}] = {{0}};
        if (g->mask_col == 1 && part >= {lanes})
            for (int l = 0; l < {lanes}; l++) lanes[l] = mask[k0 + j + l]{seen};
        else
            for (int l = 0; l < {lanes} && l < part; l++) lanes[l] = mask[(k0 + j + l) * g->mask_col]{seen};
        x += {v}_load(lanes);"""
        if self.mask == "bool":
            return {"whole": "0", "added": "", "masked": part}
        at = f"scores + j + u * {lanes}"
        added = f"""
            x += {v}_load(mask + k0 + j + u * {lanes});
            {v}_store({at}, x);"""
        return {"whole": "g->mask_col == 1", "added": added, "masked": part}

    @property
    def _inverse(self) -> str:
        """C for the factor of a row whose exponentials add up to `sum`."""
        return "1.0f / sum" if self.empty == "nan" else "(sum > 0 || sum != sum ? 1.0f / sum : 0.0f)"

    def _tables(self, body: str) -> str:
        """Print tables of bodies by the number of rows: the lowest that has as many."""
        rows = range(1, max(self.heights) + 1)
        fit = [min(h for h in self.heights if h >= r) for r in rows]
        return "".join(
            f"\n    static {body}_run *const {name}[] = {{{', '.join(f'{body}_{h}x{w}' for h in fit)}}};"
            for name, w in (("whole", self.tile.vectors), ("narrow", 1))
            if name == "whole" or self.tile.vectors > 1
        )
