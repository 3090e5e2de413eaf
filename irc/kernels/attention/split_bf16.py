"""Attention on AMX: O = softmax(scale · Q Kᵀ + mask) V, both products from bf16 terms.

See `irc.kernels.split_bf16.bf16_terms`.

A task is a range of query rows of one key-value head.  It goes through the keys in parts that stay in the second
cache: K and V of a part are packed as terms; then items of 32 rows by up to 256 keys get their scores, exponentials,
which are split into terms as they are made, and the products with V.  Tiles and vectors take about as long, so they
work side by side: between the products of an item before with V and of a later one with K stand steps of the work on
exponentials.  Sums stand in O from item to item.

Infinities and NaN come out as in f32: terms of an infinity cancel to NaN, in the sum of exponentials or in O, and rows
with one are computed again by the kernel in f32, which also does calls with few rows or keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

from irc.ir.dim import Dim
from irc.kernels.attention.problem import AttentionProblem
from irc.kernels.attention.split_bf16_text import BLOCK, CALL, ENTRY, PACK, WORK
from irc.kernels.attention.vector import AttentionKernel
from irc.kernels.core.base import Array, Kernel, Sizes, call
from irc.kernels.core.costs import (
    ATTENDED_HEAD,
    ATTENDED_PRODUCTS,
    ATTENDING,
    PACKED_KEY,
    SCORE,
    SPLIT_PRODUCTS,
    unit_of,
)
from irc.kernels.core.isa import HEAD, Isa, vector_type
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, Piece, fill, flat, symbol
from irc.kernels.core.workspace import DIVIDE, aligned
from irc.kernels.gemm.tasks import WORTHWHILE
from irc.kernels.split_bf16 import bf16_terms
from irc.kernels.split_bf16.bf16_terms import CHUNK, TILE_ROWS, Meanwhile
from irc.kernels.vector.lanes import exp_below, folds, square

KEYS = 2048  # that are packed at a time, at most
ROOM = 384 << 10  # bytes of packed K or V
PANELS = 8  # of 32 keys, of a block, at most
WIDEST = 256  # elements of a row of Q or V, at most
BLOCKS = 32  # of 32 rows, of a task
SHARED = 1.12  # times as long with three terms, in the mean of moments with and without a busy hyperthread
TASKS = 8  # into which all rows are divided for several threads, if there are as many blocks
STEPS = 8  # with each chunk of products, places where steps of the other work may be
FEW_ROWS, FEW_KEYS = 16, 32  # fewer are computed in f32


@kernel
class SplitAttentionKernel(Kernel[AttentionProblem]):
    """An attention from bf16 terms, called like `plain`, the same in f32."""

    plain: AttentionKernel
    terms: int
    unit: bf16_terms.Unit = "amx"

    problem = AttentionProblem

    @classmethod
    def candidates(cls, problem: AttentionProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variants unless too few rows or keys for tiles are known."""
        terms, rows = bf16_terms.TERMS[problem.precision], problem.rows
        unit = unit_of(isa, terms)
        if unit is None or likely(rows) < FEW_ROWS or likely(problem.n) < FEW_KEYS:
            return
        for plain in AttentionKernel.candidates(problem, isa):
            if TILE_ROWS <= plain.width <= WIDEST:
                yield cls(plain, terms, unit)

    def cycles(self, problem: AttentionProblem) -> float:
        n, wide, t = -(-likely(problem.n) // CHUNK) * CHUNK, self._wide, self.terms
        rows = -(-likely(problem.rows) // TILE_ROWS) * TILE_ROWS
        products = 2 * rows * n * wide * self.executed / (SPLIT_PRODUCTS[self.unit, t] * ATTENDED_PRODUCTS[t])
        each = products + rows * n * SCORE[t] + 2 * n * wide * PACKED_KEY[t] + rows * wide * ATTENDING[t]
        return problem.count * (each + ATTENDED_HEAD) * (SHARED if t == 3 else 1)

    @property
    def label(self) -> str:
        return "split bf16"

    def arguments_for(self, problem: AttentionProblem) -> dict[str, Dim]:
        return problem.arguments()

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        packed = -(-min(sizes["n"], self.keys) // CHUNK) * CHUNK * self._wide * self.terms * 2
        return self._rows_bytes + max(self._block_bytes + 2 * packed, self.plain.own_bytes(sizes))

    @property
    def _rows_bytes(self) -> int:
        """The bytes of what is known of the rows of a task."""
        return aligned(BLOCKS * 32 * 8)

    @property
    def _block_bytes(self) -> int:
        """The bytes of two blocks of rows: terms of queries and exponentials, scores; and of a block of sums."""
        return 2 * ((self._wide + PANELS * 32) * 32 * self.terms * 2 + 32 * self._stride * 4) + 4096

    @property
    def _stride(self) -> int:
        """Elements from one row of scores to the next."""
        return PANELS * 32 + 16

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        """Compute the same in f32."""
        self.plain.compute(reads, writes, sizes)

    @cached_property
    def symbol(self) -> str:
        return symbol(f"attention_{self.unit}", self.terms, self.plain.symbol)

    @property
    def features(self) -> frozenset[str]:
        return bf16_terms.FEATURES[self.unit]

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        return self.plain.pointers

    @property
    def sizes(self) -> tuple[str, ...]:
        return self.plain.sizes

    @property
    def keys(self) -> int:
        """Keys that are packed at a time."""
        return max(CHUNK, min(KEYS, ROOM // (self._wide * self.terms * 2) // CHUNK * CHUNK))

    @property
    def executed(self) -> float:
        return float(len(bf16_terms.ORDER[self.terms]))

    def flops(self, sizes: Sizes) -> Dim:
        return self.plain.flops(sizes)

    def parts(self) -> list[Part]:
        t, plain = self.terms, self.plain
        inner = f"{self.symbol}_f32"
        begin, again, end = call(inner, "0", {n: self._again(n) for n, _ in self.arguments})
        given = self.interface | {
            "S": self.symbol,
            "T": t,
            "chunk": t * 1024,
            "KB": self.keys,
            "KP": PANELS,
            "AS": self._stride,
            "wide": self._wide,
            "rows": self._rows_bytes,
            "scale": f"{float(plain.scale).hex()}f",
            "iota": ", ".join(map(str, range(16))),
            "blocks": BLOCKS,
            "begin": bf16_terms.BEGIN[self.unit].format(rows="16"),
            "end": bf16_terms.END[self.unit],
            "one": self._products(1)[0],
            "two": self._products(2)[0],
            "work": ", work, more" if self.unit == "amx" else "",
            "places": STEPS,
            "tasks": TASKS,
            "few_rows": FEW_ROWS,
            "few_keys": FEW_KEYS,
            "worthwhile": WORTHWHILE,
            "reach": self._reach,
            "mask_at": self._mask_at,
            **self._masking,
            "empty": "1.0f / sum" if plain.empty == "nan" else "sum > 0 || sum != sum ? 1.0f / sum : 0.0f",
            "again": f"{begin}{', '.join(again)}{end}",
        }
        shared = (
            HEAD,
            DIVIDE,
            vector_type(16, plain.tile.dtype),
            folds(16, plain.tile.dtype),
            square(16, plain.tile.dtype),
            exp_below(16, plain.tile.dtype),
            bf16_terms.TYPES,
            bf16_terms.head(self.unit),
            bf16_terms.pair(t),
        )
        exact: list[Part] = [
            part if isinstance(part, Piece) else part.replace(plain.symbol, inner)
            for part in flat([f"typedef {self.symbol}_args {inner}_args;\n", plain.parts()])
        ]
        before, behind = ([fill(x, **given) for x in some] for some in ((CALL, PACK, WORK), (BLOCK, ENTRY)))
        return [*shared, exact, *before, self._products(1)[1], self._products(2)[1], *behind]

    def _products(self, rows: int) -> tuple[str, list[Part]]:
        """Name products of so many row tiles in C, and print them; beside tiles there are steps of the other work."""
        if self.unit == "dot":
            name = bf16_terms.products_name(self.terms, rows, 2, self.unit)
            return f"irc_products_{name}", bf16_terms.products(self.terms, rows, 2, self.unit)
        s = self.symbol
        step = f"if ((work->due += more) >= 256) {s}_steps(work);"
        work = Meanwhile("work", f", {s}_work *work, int64_t more", step, STEPS, fetched=False)
        name = bf16_terms.products_name(self.terms, rows, 2, self.unit, work)
        printed = bf16_terms.products(self.terms, rows, 2, self.unit, work)
        own = [p if isinstance(p, str) else p.code for p in flat(printed)]
        return f"{s}_{name}", [text.replace(f"irc_products_{name}", f"{s}_{name}") for text in own]

    @property
    def summary(self) -> str:
        return f"{self.plain.summary[:-1]}; on AMX, bf16 terms of a value: {self.terms}, {self.keys} keys at a time."

    @property
    def _wide(self) -> int:
        return -(-self.plain.width // CHUNK) * CHUNK

    def _again(self, name: str) -> str:
        """Print the argument for row r alone."""
        one = {"batch": "1", "heads": "1", "group": "1", "m": "1", "k": "at->k", "v": "at->v", "own": "own"}
        if name in one:
            return one[name]
        if name == "o":
            return f"{self.symbol}_output(g, at, r)"
        if name in ("q", "mask"):
            return f"g->{name} + at->batch * g->{name}_batch + head * g->{name}_head + i * g->{name}_row"
        return "g->shift + i" if name == "shift" else f"g->{name}"

    @property
    def _reach(self) -> str:
        if not self.plain.causal:
            return "(void)i;\n    return g->n;"
        return "const int64_t end = i + g->shift + 1;\n    return end < 0 ? 0 : end < g->n ? end : g->n;"

    @property
    def _mask_at(self) -> str:
        if self.plain.mask == "none":
            return "(void)at;"
        kind = "float" if self.plain.mask == "add" else "uint8_t"
        place = "at->batch * g->mask_batch + (at->head + r / g->m) * g->mask_head + i * g->mask_row"
        return f"const {kind} *const mask = g->mask + {place} + k0 * g->mask_col;"

    @property
    def _masking(self) -> dict[str, str]:
        """C that adds the mask to scores x from j on: to whole vectors if possible, and to `part` of one."""
        if self.plain.mask == "none":
            return {"whole": "1", "added": "", "masked": ""}
        seen = " ? 0.0f : -INFINITY" if self.plain.mask == "bool" else ""
        part = f"""float lanes[16] = {{0}};
        if (g->mask_col == 1 && part >= 16)
            for (int l = 0; l < 16; l++) lanes[l] = mask[j + l]{seen};
        else
            for (int l = 0; l < 16 && l < part; l++) lanes[l] = mask[(j + l) * g->mask_col]{seen};
        x += irc_f32x16_load(lanes);"""
        if self.plain.mask == "bool":
            return {"whole": "0", "added": "", "masked": part}
        added = """
            x += irc_f32x16_load(mask + j + 16 * u);
            irc_f32x16_store(scores + j + 16 * u, x);"""
        return {"whole": "g->mask_col == 1", "added": added, "masked": part}
