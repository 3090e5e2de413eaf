"""Costs of kernels: the numbers behind every estimate of cycles.

`python bench/kernels.py costs` measures a row of `COSTS` on the machine at hand.  The other numbers are calibrated:
with them, estimates choose for convolutions of known networks what measurements of whole networks had settled on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from irc.ir.types import DType
from irc.kernels.core.isa import Isa
from irc.kernels.split_bf16.bf16_terms import Unit

DIRECT: Mapping[int, float] = {2: 0.85, 3: 0.841, 4: 0.84, 6: 0.839, 1: 0.838}
"""Of tiles of direct convolutions so many vectors wide, the part of the peak of multiply-adds that full ones reach."""


@dataclass(frozen=True)
class Costs:
    """The costs of one core with one instruction set.

    tiles: of register tiles, rows × vectors, the part of the peak of multiply-adds (`Isa.fma`) that a full one reaches;
    those that kernels choose from.  pack, pack_far: cycles to pack an f32 operand, an element, and how many more one
    takes that the second cache does not hold.  stream: bytes a cycle of operands that are in no cache.  winograd,
    winograd_stream: of the peak, what products between Winograd's transforms reach, and bytes a cycle of their weights,
    which are read in short runs; winograd_near: of those in the last cache, 0 where that is not known; winograd_hides:
    the part of the other work during which weights come, until half of them are there; winograd_again: how many weights
    are rather read again than an element that is transformed is stored and read.  direct: of the peak, what tiles
    of direct convolutions so many vectors wide reach.  blocks: of the peak, what full tiles reach that read A where it
    stands and meet B in blocks, 0 where that is not known.  dots, dot: of the peak, what tiles of dots reach, whose
    vectors lie along the sums, and cycles to add up the lanes of a sum.  stored: cycles that a vector of results takes
    besides its products.  abreast: of constant operands in panels of so many vectors, how many panels one row reads at
    once, which memory gives faster; where that is not known, it reads one after another.  in_place, several:
    of kernels that read A where it stands, further tiles, and what is left of what any tile reaches with several panels
    of columns that were packed long ago.  loads: operands that tiles of four rows or more load a cycle.  stored_apart:
    cycles to store a line of results panel by panel, not row by row.  copied: to pack an element of an operand whose
    rows are contiguous.  met: to come to a piece of such a row, as wide as a tile, that is in no cache and where it
    stands.
    """

    tiles: Mapping[tuple[int, int], float]
    pack: float
    stream: float
    pack_far: float = 0.0
    winograd: float = 0.72
    winograd_stream: float = 6.0
    winograd_near: float = 0.0
    winograd_hides: float = 0.0
    winograd_again: float = 4.0
    direct: Mapping[int, float] = field(default_factory=lambda: DIRECT)
    blocks: float = 0.0
    dots: float = 0.65
    dot: float = 3.5
    stored: float = 0.0
    abreast: Mapping[int, int] = field(default_factory=dict[int, int])
    in_place: Mapping[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])
    several: float = 1.0
    loads: float = 2.0
    stored_apart: float = 0.0
    copied: float = 0.12
    met: float = 10.0

    def tiles_for(self, *, in_place: bool) -> Mapping[tuple[int, int], float]:
        """Return the tiles of kernels that pack A, or read it in place, and what they reach."""
        return {**self.tiles, **self.in_place} if in_place else self.tiles


_AVX512 = Costs(
    {(14, 2): 0.85, (8, 3): 0.82, (24, 1): 0.72},
    pack=0.25,
    stream=11.0,
    winograd_stream=4.5,
    winograd_near=11.0,
    blocks=0.82,
    in_place={(6, 4): 0.89},
)
COSTS = {
    "avx512": _AVX512,
    "avx512 with tiles": replace(
        _AVX512,
        in_place={(6, 4): 0.89, (8, 3): 0.86},
        pack=0.45,
        dots=0.72,
        dot=6.0,
        several=0.9,
        loads=1.3,
        stored_apart=3.0,
        copied=0.4,
        met=2.0,
    ),
    "avx512 in halves": Costs(
        {(14, 2): 0.9, (8, 3): 0.93, (24, 1): 0.84},
        pack=0.4,
        stream=9.0,
        winograd=0.85,
        winograd_stream=9.0,
        winograd_near=18.0,
        winograd_again=math.inf,
        blocks=0.9,
        dots=0.9,
        abreast={1: 4, 2: 3, 3: 3, 4: 3},
    ),
    "avx2": Costs(
        {(6, 2): 0.95, (4, 3): 0.91, (12, 1): 0.8},
        pack=0.45,
        stream=11.0,
        winograd=0.85,
        winograd_stream=5.3,
        winograd_near=18.0,
        winograd_hides=0.3,
        direct={2: 0.88, 3: 0.88, 4: 0.84, 6: 0.839, 1: 0.82},
        pack_far=0.3,
        blocks=0.96,
        dots=0.92,
        dot=4.5,
        stored=1.5,
        abreast={1: 4, 2: 3, 3: 3, 4: 3},
    ),
    "neon": Costs({(12, 2): 0.85, (8, 3): 0.85}, pack=0.5, stream=6.0),
    "sse": Costs({(6, 2): 0.85, (12, 1): 0.72}, pack=0.5, stream=6.0),
    "plain": Costs({(4, 2): 0.85}, pack=1.0, stream=4.0, winograd_stream=4.0),
}
"""Costs by the names of `irc.kernels.core.isa`; with tiles: of AMX, on cores like Sapphire Rapids, with `dots` of
operands that a caller gives, which begin within a line of the cache; in halves: where it does one vector of 512 bits a
cycle, as Zen 4 does.  There tiles of one vector reach 0.99 while their operands are in the caches, but not in the
products of networks."""

SPLIT_PRODUCTS: Mapping[tuple[Unit, int], float] = {
    ("amx", 3): 200.0,
    ("amx", 2): 345.0,
    ("amx", 1): 230.0,
    ("dot", 1): 52.0,
}
"""Products of bf16 terms a cycle, by unit and number of terms: of AMX, whose peak is 512, as measured on Sapphire
Rapids together with what follows (docs/adr/0010-split-precision.md); of AVX512-BF16 as measured on Zen 5.

With three terms 420 are reached on a core of one's own.  In other moments, it seems beside a busy hyperthread, products
of tiles take 2.2 times as long and do not overlap their loads, while networks in vectors take 1.3 to 1.7 times as long.
At 200, tiles are chosen where they lose up to a fifth in such moments and win more than that in others.  With fewer
terms they win in either case."""
BYTE_CALL, BYTE_BLOCK, BYTE_TILE, BYTE_ROW = 250.0, 160.0, 22.0, 1.5
"""Cycles of a call of products of bytes on AMX; of a block of them, and a product of two tiles with the loads of its
operands in it; and of a row of its results besides those that storing a vector takes."""
BYTES_COPIED, BYTES_COPIED_ALONE = 0.04, 6.0
"""Cycles to copy a byte of the input of such products, and to copy a pixel by itself."""
NUMBERS_TILE, WIDENED, WIDENED_BYTES, SUMS_SCALED = 18.0, 200.0, 400.0, 8.0
"""Cycles, with weights of few bits on AMX, of a product of two tiles, however few rows there are; at least, to widen a
chunk of 64 columns, of fewer bits and of bytes; and to multiply a row of sums by the scales of their columns."""
SPLITTING = {3: 0.68, 2: 0.45, 1: 0.22}
"""Cycles to split an element of A into bf16 terms, by their number."""
SPLITTING_B = {3: 0.55, 2: 0.05, 1: 0.0}
"""The same of B, where its terms are not stored: it is done between products, but what it stores displaces what they
load from the first cache."""
SPLITTING_ROWS_OF_B, TURNED = {3: 0.6, 2: 0.4, 1: 0.25}, 0.4
"""The same of a B that is no constant; and to copy an element of it, or of A, first, where it stands the other way."""
WINOGRAD_SPLIT = 0.9
"""Of `SPLIT_PRODUCTS`, what products between Winograd's transforms reach."""
TRANSFORM: Mapping[int, float] = {4: 6.0, 6: 10.0, 8: 16.0, 16: 80.0, 36: 200.0}
TRANSFORM_BACK: Mapping[tuple[int, int], float] = {
    (4, 2): 20.0,
    (6, 2): 20.0,
    (6, 4): 35.0,
    (8, 2): 25.0,
    (8, 4): 40.0,
    (16, 4): 150.0,
    (36, 4): 200.0,
    (36, 8): 270.0,
    (36, 16): 400.0,
}
"""Cycles to transform a vector of channels of one tile of Winograd's algorithm, and one of its results with the
epilogue, by the inputs and the results of a tile, where a core does two vectors a cycle."""
PARTIAL, PARTIAL_MASKED = 3.0, 1.3
"""How many times as long the latter takes of a vector that is not full; and where a mask stores it."""
TRANSFORM_SPLIT, TRANSFORM_SPLIT_BACK = 30.0, 62.0
"""The same for tiles of 2 × 2 in Winograd's algorithm from bf16 terms."""
WORDS_ENTER, WORDS_LEAVE = 30.0, 30.0
"""The same of words, from bytes: of a vector of channels, and of one of sums without what stores them."""
GATHERED, GATHERED_ROW = 3.0, 20.0
"""Cycles to store a vector of products of a transposed convolution and to add it where it belongs, and those that a row
of its outputs costs besides."""
SCORE: Mapping[int, float] = {0: 0.6, 3: 1.0, 2: 0.8, 1: 0.65}
PACKED_KEY: Mapping[int, float] = {3: 0.9, 2: 0.65, 1: 0.4}
ATTENDING: Mapping[int, float] = {0: 1.0, 3: 2.6, 2: 2.1, 1: 1.6}
ATTENDED_HEAD = 1000.0
"""Cycles of attention besides its products, by the bf16 terms of a value, 0 where it stays f32: of a score, until it is
an exponential; to pack an element of K or V; of an element of Q and of O; and of a head of keys.  With three terms and
in f32 as measured on Sapphire Rapids: what stands between products costs them as if it stood before them."""
ATTENDED_PRODUCTS: Mapping[int, float] = {3: 1.2, 2: 1.0, 1: 1.0}
"""How many times as many products attention is charged for a cycle as `SPLIT_PRODUCTS` says: a sixth that it loses
beside a busy hyperthread is less than what it wins on a core of one's own, a third."""
FIRST_CACHE_HOLDS = 32 << 10
"""Bytes, on the processors with the smallest ones."""
SECOND_CACHE = 48.0
"""Bytes a cycle of operands that are in the second cache."""
LAST_CACHE = 40.0
"""The same in the last cache, from which constants come ahead of their use (Zen 4)."""
LOADS = 2.0
"""Vectors loaded a cycle, and folded on the way."""
WIDENED_FLOATS = 1 << 18
"""Bytes of a pool's input that are widened to floats: with what else there is, the second cache holds them."""
TAPS_OF_BYTES = 4
"""Windows over so many bytes for each byte of the input are those of floats in any case."""
PLACED = 2.5
"""Cycles to compare a vector with the best so far and to keep the better ones and their places."""
LATENCY, PART = 4.0, 4.0
"""Cycles that an addition takes, for which the next one to the same sum waits; and to load a part of a vector."""
ROW_ENDED = 6.0
"""Cycles to store the last vector of a row of products where it is not full."""
LANES_FOLDED = 3.0
"""Cycles to fold half the lanes of a vector into the other half: a shuffle, and what it waits for."""
PERMUTED, PERMUTED_APART = 1.0, 1.5
"""Cycles to take neighbouring lanes out of two vectors and fold them, and to take lanes apart from one another, for
which only AVX-512 has one instruction."""
MASKED_TAP, FOLDED_PLANE = 1.0, 12.0
"""Cycles to load a vector at another place, blend out what is masked and fold it; and what a plane of a pool takes
beside its vectors, where several are folded before they are read again."""
STORED_ROW, CUT_ROW, BLENDED_ROW = 20.0, 4.0, 12.0
"""Cycles until a short row that was stored can be loaded at other places; to load the ends of a row, of which lanes lie
beside it; and the same where no register holds masks."""
KEPT_IN_HALVES = 1.9
"""Cycles of a maximum of two vectors that keeps NaN, three instructions, where each of them is done in halves."""
LONG_ROW_IN_HALVES = 0.43
"""Of the time of pools whose rows stay in registers, where each of two vectors is done in halves: rows that are longer
than two, without a stride.  Eight such pools took 1.2 to 1.4 times as long as estimated, other kernels 2.3 to 4."""
PICKED_ROW, PICKED_ROW_APART = 1.0, 5.0
"""Cycles that a row of a pool takes beside its vectors, where tables know the columns of windows; and where lanes are
picked out of two vectors apart."""
FUNCTION = 10.0
"""Cycles to compute a mathematical function of a vector."""
HALF_FUNCTION = 0.8
"""Of the time of a function of a whole vector that of a half one, whose instructions are as many (Zen 4: 0.77)."""
AGAIN, AGAIN_FAR, APART = 12.0, 22.0, 4000.0
"""Cycles that loops over a stored result take longer, a vector, from the second cache and from further off: it is
stored and loaded, and their functions are longer; and those that a group of loops costs besides."""
MOVED = 1.5
"""Cycles to move an element from one layout of a tensor to another."""
TRANSPOSED = 0.35
"""The same of images whose channels change places with their pixels, which a kernel does from cache to cache."""
SPAN, SPAN_STRIDED = (7.0, 0.06), (8.0, 0.32)
"""Cycles to gather pixels of a row and a channel, side by side or with a stride: of a run of them, and of each one."""
WAYS, WAY = 8, 4096
"""Lines that the first cache holds of places a multiple of so many bytes apart."""
CONFIGURE: Mapping[Unit, float] = {"amx": 2000.0, "dot": 500.0}
"""Cycles of a call besides: to configure the units' tiles, and until they run at full rate."""
BLOCK, BLOCK_OF_TILES, BLOCK_APART = 180.0, 1000.0, 600.0
"""Cycles to hand a block of 32 × 32 results to the epilogue; from tiles, whose products wait where its stores do (450
on a core of one's own, see SPLIT_PRODUCTS); and of a convolution on AMX, whose pixels stand apart."""
STRIP_BEGUN = 270.0
"""Cycles that a strip of a convolution on AMX costs besides."""
ONE_COLUMN, HOPPING = 0.75, 1.13
"""Times that products of AMX take with one column of tiles, beside those with two; and with a stride between pixels."""
SPLITTING_ROWS = 2.9
"""How many times as long splitting takes where few channels are copied as rows."""


def is_half(isa: Isa) -> bool:
    """Tell whether vectors of a set are halves of those of 512 bits."""
    return isa.name == "avx512" and isa.vector == 32


def in_halves(isa: Isa) -> bool:
    """Tell whether a core does vectors of 512 bits as two halves: it multiplies, adds and stores half as many."""
    return isa.vector == 64 and isa.fma < 2


def costs_of(isa: Isa) -> Costs:
    """Return the costs of a core: those of its instruction set, and of how many vectors it does a cycle."""
    if in_halves(isa) or is_half(isa):  # tiles of halves reach as much as whole vectors there
        return COSTS[f"{isa.name} in halves"]
    return COSTS[f"{isa.name} with tiles" if isa.tiles else isa.name]


def halving_functions(isa: Isa, n: float, lanes: int, functions: int) -> float:
    """Estimate the cycles that functions of n neighbouring results take more in half vectors than in whole ones."""
    if not is_half(isa):
        return 0.0
    return functions * FUNCTION * (HALF_FUNCTION * math.ceil(n / lanes) - math.ceil(n / (2 * lanes)))


def lengths_for(isa: Isa, dtype: DType, n: int) -> tuple[Isa, ...]:
    """List the sets, with whole vectors and perhaps with halves, that tiles over n columns are best made of.

    Where a core does a vector in two halves anyway, halves leave out the empty one behind the last column.
    """
    left = n % isa.lanes(dtype)
    return (isa, isa.halved()) if in_halves(isa) and 0 < left <= isa.lanes(dtype) // 2 else (isa,)


def unit_of(isa: Isa, terms: int) -> Unit | None:
    """Choose what multiplies bf16 terms; None if vectors of f32 are as fast.

    Vectors multiply bf16 at most twice as fast as f32, so they pay with one term only.
    """
    return "amx" if isa.tiles else "dot" if isa.dots and terms == 1 else None


def relative(isa: Isa) -> float:
    """Compare multiply-adds with a core that does two vectors a cycle: how many times as long they take."""
    return 2 / isa.fma


def packing_cycles(isa: Isa, elements: int, size: int) -> float:
    """Estimate the cycles of packing so many elements, of `size` bytes each, that a kernel finds in memory."""
    costs = costs_of(isa)
    return elements * (costs.pack + (costs.pack_far if elements * size > isa.l2 else 0.0))


def storing_cycles(isa: Isa, m: int, n: int, lanes: int) -> float:
    """Estimate what m × n results take besides their products."""
    return m * -(-n // lanes) * costs_of(isa).stored


def tile_cycles(
    isa: Isa, tile: tuple[int, int], lanes: int, m: int, n: int, *, in_place: bool = False, fresh: bool = False
) -> float:
    """Estimate the cycles of each step of a sum over k in tiles of rows × vectors that cover m × n results.

    Of a tile's height × width, edges included: its multiply-adds, its loads, and the latency of an addition, four
    cycles, which few rows hide with two sums; these wait for B, which is fetched ahead, a load more.  in_place: A is
    read where it stands; fresh: B has just been packed, so that several panels are in a core's own caches.
    """

    def step(height: int, width: int) -> float:
        waits = (height + 2 * width) / LOADS if height <= 3 else (height + width) / costs.loads
        return max(height * width / isa.fma, waits, 2 if height <= 3 else 4)

    costs, (rows, vectors) = costs_of(isa), tile
    panels, rest = divmod(n, lanes * vectors)
    widths = {vectors: panels}
    if rest:
        last = 1 if rest <= lanes else vectors
        widths[last] = widths.get(last, 0) + 1
    reached = costs.tiles_for(in_place=in_place)[tile]
    if in_place and not fresh and sum(widths.values()) > 1:
        reached *= costs.several
    tiles = -(-m // rows)
    heights = {m // tiles: tiles - m % tiles, m // tiles + 1: m % tiles} if m else {}
    return (
        sum(count * times * step(height, width) for width, times in widths.items() for height, count in heights.items())
        / reached
    )
