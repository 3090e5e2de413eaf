"""Matrix product on AMX: C[m, n] = epilogue(A[m, k] · B[k, n]), f32, with up to two batch axes.

Three terms a value ("highest") have the accuracy of f32, two ("high") an error of about 2^-16 a product, one
("medium") that of bf16; see `irc.kernels.split_bf16.bf16_terms`.  A constant B is stored once, in panels of 32 columns:
as f32 for three terms, which are made of a panel when it is needed, for all rows at once; else as the terms themselves,
4 or 2 bytes a weight.  Of any other B the terms of a panel are made in the same way from what is there.  A is split
while it is packed: a group of rows × a block of k at a time, at most about 1 MiB, by each thread that multiplies them.

Infinities, NaN and sums that overflow come out as in f32: a block of C with a sum that is not finite is computed
again in f32.  Few rows are computed in f32 in the first place, from the same B.

Threads split the output, never k: results do not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from irc.expr import Expr, constant_of
from irc.ir.dim import Dim, DimLike, product
from irc.ir.types import DType, f32, u16
from irc.kernels.core.base import RESIDUALS, Array, Kernel, Packed, Sizes
from irc.kernels.core.costs import (
    BLOCK,
    BLOCK_OF_TILES,
    CONFIGURE,
    SPLIT_PRODUCTS,
    SPLITTING,
    SPLITTING_B,
    SPLITTING_ROWS_OF_B,
    TURNED,
    costs_of,
    unit_of,
)
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import AVX512, Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import kernel
from irc.kernels.core.text import Part, fill, shared, symbol
from irc.kernels.core.tile import Tile, epilogue_of, prelude
from irc.kernels.core.workspace import DIVIDE
from irc.kernels.gemm.problem import GemmProblem, matrices, multiply, sizes_of
from irc.kernels.split_bf16 import bf16_terms, dots, text
from irc.kernels.split_bf16.bf16_terms import CHUNK, PANEL, TILE_ROWS
from irc.kernels.vector import bf16_io
from irc.kernels.vector.lanes import square

VECTOR = Tile(AVX512, f32, 4, 2)
LONGEST_SUM = 128  # products added up in one accumulator of the f32 path; even
PANEL_TILES = 72  # row tiles × terms of a chunk, so that a panel of B, split, takes 144 KiB of the stack or the cache
STRIPE = 1024  # tiles of A packed at a time (1 MiB), unless that is fewer than
LEAST_BLOCKS = 8  # blocks of 32 rows: B is read, and split, once for each group
TASKS = 12  # pieces of a product
GROUP_BLOCKS = 6  # blocks of 32 rows for which threads split B again, if there are some such groups
HALVES = 4  # columns for each row up to which two threads take half the rows each, instead of half the columns
IMAGES = 4  # matrices of a batch of which each thread does its own
WORTHWHILE = 5_000_000  # tile products below which one thread does all
SKINNY_WORTHWHILE = 100_000  # the same of products in f32
SHORT = 8  # chunks of a sum up to which vectors apply the epilogue in registers; it is nothing beside longer ones
FAR = 4096  # elements ahead that are fetched: whole chunks
FEW = 0.5  # of the peak, with few rows
FEWEST_ROWS = {3: 24, 2: 12, 1: 8}  # rows, by terms, below which f32 is as fast


@kernel
class SplitGemmKernel(Kernel[GemmProblem]):
    """A matrix product from bf16 terms.

    `heights`: numbers of row tiles it has blocks of; none: all its rows are few.  `skinny`: whether they may be few.
    `widths`: column tiles it has blocks of.  `b_constant`: B is packed at compile time.  `x_bf16`, `y_bf16`: A and C
    are bf16 (`irc.kernels.vector.bf16_io`), of one term; C only where `is_one_sum`, because partial sums stand in it.
    """

    terms: int
    epilogue: Epilogue
    heights: tuple[int, ...]
    widths: tuple[int, ...]
    skinny: bool
    unit: bf16_terms.Unit = "amx"
    b_constant: bool = True
    x_bf16: bool = False
    y_bf16: bool = False

    problem = GemmProblem

    @classmethod
    def candidates(cls, problem: GemmProblem, isa: Isa) -> Iterator[Self]:
        """Yield the variant; for few rows, if weights are stored as bf16 and waited for."""
        terms, m, n, k = bf16_terms.TERMS[problem.precision], problem.m, problem.n, problem.k
        if not (n.is_const and k.is_const) or 0 in (n, k):
            return
        if problem.dtype != f32 or isa.vector != 64:
            return
        unit, constant = unit_of(isa, terms), bool(problem.matrices)
        if likely(m) < FEWEST_ROWS[terms]:
            if terms == 1 and problem.streamed and constant:
                yield cls(terms, problem.epilogue, (), (), True)
        elif unit is not None and (constant or (m.is_const and unit == "amx")):
            yield cls(terms, problem.epilogue, blocks_of(m), widths_of(n), not m.is_const, unit, constant)

    def cycles(self, problem: GemmProblem) -> float:
        m, n, k = likely(problem.m), int(problem.n), int(problem.k)
        if not self.heights:
            costs = costs_of(AVX512)
            return likely(problem.count) * n * k * (m / (VECTOR.lanes * AVX512.fma * FEW) + 2 / costs.stream)
        covered = m * (-(-n // TILE_ROWS) * TILE_ROWS) * (-(-k // CHUNK) * CHUNK)
        cycles = covered * self.executed / SPLIT_PRODUCTS[self.unit, self.terms]
        cycles += m * k * (SPLITTING[self.terms] + (TURNED if problem.a[3] != 1 else 0))
        cycles += n * k * self._splitting_b(problem) * -(-m // 256)
        cycles += problem.streamed * problem.dtype.itemsize / costs_of(AVX512).stream
        if not self.b_constant:
            cycles += k * PANEL * self._splitting_b(problem)  # of the first panel, during which nothing is multiplied
        block = BLOCK_OF_TILES if self.unit == "amx" else BLOCK
        return likely(problem.count) * (cycles + CONFIGURE[self.unit] + block * -(-m // 32) * -(-n // PANEL))

    def _splitting_b(self, problem: GemmProblem) -> float:
        """Estimate the cycles to split an element of B."""
        if self.b_constant:
            return SPLITTING_B[self.terms]
        return SPLITTING_ROWS_OF_B[self.terms] + (TURNED if problem.b[3] != 1 else 0)

    @property
    def label(self) -> str:
        return "split bf16"

    def arguments_for(self, problem: GemmProblem) -> dict[str, Dim]:
        return problem.arguments(self.packed_b_elements(problem.n, problem.k))

    def packed(self, problem: GemmProblem) -> Packed | None:
        if not problem.matrices:
            return None
        elements = int(self.packed_b_elements(problem.n, problem.k)) * problem.matrices
        return Packed(("bf16 terms", self.terms), self.b_dtype, elements, lambda b: self.pack_b(b).reshape(-1))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        """Multiply A as it is by B, the sum of its stored terms."""
        n, k = sizes["n"], sizes["k"]
        if not self.b_constant:
            b = matrices(reads[1], (k, n), (sizes["b_row"], sizes["b_col"]), sizes)
            multiply(b, self.epilogue, reads, writes, sizes)
            return
        stored = matrices(reads[1], (int(self.packed_b_elements(n, k)),), (1,), sizes)
        b = np.array([[self.unpack_b(x, n, k) for x in row] for row in stored])
        multiply(b.reshape(*stored.shape[:2], k, n), self.epilogue, reads, writes, sizes)

    def reads_bf16(self, operand: int) -> bool:
        able = self.terms == 1 and bool(self.heights)
        return able and (operand == 0 or self.epilogue.is_residual(operand - RESIDUALS))

    def writes_bf16(self, sizes: Mapping[str, Expr]) -> bool:
        k = constant_of(sizes["k"])
        return self.reads_bf16(0) and k is not None and self.is_one_sum(k)

    @cached_property
    def symbol(self) -> str:
        key = f"{self.epilogue.key()}{self.heights}{self.widths}{self.skinny} {bf16_io.key(self.x_bf16, self.y_bf16)}"
        return symbol(f"{'gemm' if self.b_constant else 'matmul'}_{self.unit}", self.terms, key)

    @property
    def b_dtype(self) -> DType:
        """The element type of packed B."""
        return f32 if self.terms == 3 else u16

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        """Name and C type of the pointers: read, written."""
        slots = self.epilogue.pointers("float")
        a, c = "uint16_t" if self.x_bf16 else "float", "uint16_t" if self.y_bf16 else "float"
        return (("a", f"const {a} *"), ("b", f"const {self._b} *"), *slots, ("c", f"{c} *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        return sizes_of(self.epilogue, self.b_constant)

    @property
    def _b(self) -> str:
        return "float" if self.terms == 3 or not self.b_constant else "uint16_t"

    @property
    def _work(self) -> bf16_terms.Meanwhile | None:
        """What vectors do between products: where the terms of B are not stored, they make those of another panel."""
        if not self.b_constant:
            return bf16_terms.split_rows_meanwhile(self.terms)
        return bf16_terms.SPLIT_MEANWHILE if self.terms == 3 else None

    @property
    def _most_chunks(self) -> int:
        return PANEL_TILES // self.terms

    def is_one_sum(self, k: int) -> bool:
        """Tell whether sums of k products are finished at once."""
        return k <= self._most_chunks * CHUNK

    def packed_b_elements(self, n: DimLike, k: DimLike) -> Dim:
        """Count the elements (`b_dtype`) of one packed matrix B[k, n]: also the batch stride of packed constants."""
        stored = 1 if self.terms == 3 else self.terms
        return Dim.of(n).ceildiv(PANEL) * Dim.of(k).ceildiv(CHUNK) * (PANEL * CHUNK * stored)

    def _packed_bytes(self, m: int, chunks: int) -> int:
        """Count the bytes of the terms of a group of rows, and as many chunks of it."""
        blocks = -(-m // (2 * TILE_ROWS))
        most = max(STRIPE // (chunks * self.terms) // 2, LEAST_BLOCKS)
        return -(-blocks // -(-blocks // most)) * 2 * chunks * self.terms * TILE_ROWS * CHUNK * 2 if m else 0

    def pack_b(self, b: Array) -> Array:
        """Pack B[…, k, n], zero padded, C-contiguous.

        Three terms: f32 […, n / 32, k rounded up to whole chunks, 32]; else uint16, bf16 terms
        […, n / 32, k / 32, term, 2, 16 pairs, 16, 2].
        """
        (k, n), lead = b.shape[-2:], b.shape[:-2]
        count, chunks = -(-n // PANEL), -(-k // CHUNK)
        full = np.zeros((*lead, chunks * CHUNK, count * PANEL), np.float32)
        full[..., :k, :n] = b
        if self.terms == 3:
            return np.ascontiguousarray(np.moveaxis(full.reshape(*lead, -1, count, PANEL), -2, -3))
        split = np.stack(terms_of(full, self.terms), axis=-1)
        split = split.reshape(*lead, chunks, CHUNK // 2, 2, count, 2, PANEL // 2, self.terms)
        d = len(lead)  # lead, chunk, pair, which of it, panel, column tile, column, term
        order = (*range(d), d + 3, d, d + 6, d + 4, d + 1, d + 5, d + 2)
        return np.ascontiguousarray(split.transpose(order))

    def unpack_b(self, packed: Array, n: int, k: int) -> Array:
        """Unpack B[k, n], f32, from what `pack_b` made, flat; terms are added up."""
        count, chunks = -(-n // PANEL), -(-k // CHUNK)
        if self.terms == 3:
            return packed.reshape(count, -1, PANEL).transpose(1, 0, 2).reshape(chunks * CHUNK, -1)[:k, :n]
        bf16s = packed.reshape(count, chunks, self.terms, 2, CHUNK // 2, PANEL // 2, 2)
        values = (bf16s.astype(np.uint32) << 16).view(np.float32).sum(axis=2, dtype=np.float32)
        return values.transpose(1, 3, 5, 0, 2, 4).reshape(chunks * CHUNK, -1)[:k, :n]

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        if not self.heights:
            return 0
        chunks = -(-sizes["k"] // CHUNK)
        step = -(-chunks // max(-(-chunks // self._most_chunks), 1))
        split = self.terms * (self._work is not None)
        turned = 0 if self.b_constant else step * CHUNK * PANEL * 4
        return 64 + own_bytes_of(split, step) + turned + self._packed_bytes(sizes["m"], step)

    @property
    def executed(self) -> float:
        return float(len(bf16_terms.ORDER[self.terms]))

    def flops(self, sizes: Sizes) -> Dim:
        return 2 * product(sizes[n] for n in ("batch0", "batch1", "m", "n", "k"))

    def parts(self) -> list[Part]:
        given = self._names()
        load = fill(text.LOAD_F32 if self.terms == 3 else text.LOAD_TERMS, S=given["C"], T=self.terms)
        rows = fill(text.ROWS, **given, load_b=load) if self.b_constant else fill(text.ROWS_AS_GIVEN, **given)
        tiles = self._with_tiles(given) if self.heights else []
        parts: list[Part] = [
            prelude(VECTOR, self.epilogue),
            DIVIDE,
            bf16_terms.TYPES,
            bf16_terms.head(self.unit),
            bf16_io.text(self.x_bf16, self.y_bf16, self.epilogue.bf16_slots),
            [square(VECTOR.lanes, f32), *self._splits()] if self.heights else [],
            self._shared("", fill(text.CALL, **given), rows, fill(text.EXACT, **given)),
            epilogue_of(self.symbol, VECTOR, self.epilogue, given["Y"]),
            *tiles,
            fill(text.FINISH, **given),
        ]
        if self.skinny:
            parts.append(fill(text.SKINNY, **given))
        if self.heights:
            parts.append(fill(text.IMAGES, **given, table=self._table()))
        return [*parts, self._entry(given)]

    def _splits(self) -> list[Part]:
        """Print what makes terms of B."""
        if self.b_constant:
            return [bf16_terms.SPLIT_PANEL] if self.terms == 3 else []
        return bf16_terms.split_rows(self.terms)

    def _shared(self, what: str, *texts: str) -> Part:
        """Make what all kernels of these terms share; products of vectors are the kernel's own, as they end in it."""
        return "".join(texts) if self.unit == "dot" else shared(self._stem, what, "".join(texts))

    @property
    def _stem(self) -> str:
        """What the names in it begin with."""
        if self.unit == "dot":
            return self.symbol
        given = "_as_given" * (not self.b_constant)
        return f"irc_split_gemm_{self.terms}{given}" + "_bf16" * self.x_bf16 + "_skinny" * (not self.heights)

    def _with_tiles(self, given: dict[str, object]) -> list[Part]:
        t, work = self.terms, self._work
        if self.unit == "dot":
            calls, products = self._dots(), [dots.core(w) for w in self.widths]
            if self._finishes_in_registers:
                products.append(dots.finished(self.symbol, 2, bf16_io.names(self.x_bf16, self.y_bf16)))
        else:
            arguments = f"chunks, packed, g->height, b, out, 32, ahead, fetched{bf16_terms.more(work)}"
            calls = [f"        g->products[2 * two + (g->n - col > 16)]({arguments});"]
            products = [bf16_terms.products(t, r, w, self.unit, work) for r, w in self._variants]
        if work:
            operand, first = text.SPLIT_OPERAND, text.SPLIT_FIRST
            split = text.SPLIT if self.b_constant else text.SPLIT_AS_GIVEN
        else:
            operand, first, split = (
                f"                const uint16_t *const b = stored + at.chunk0 * {t * 1024};",
                "",
                "",
            )
        return [
            "" if self.x_bf16 else bf16_terms.split(t),
            *products,
            self._shared(
                "_tiles",
                fill(text.PACK_BF16 if self.x_bf16 else text.PACK, **given),
                fill(split, **given),
                fill(
                    text.PRODUCTS,
                    **given,
                    **bf16_terms.splitting_names(work, "end"),
                    points=bf16_terms.POINTS[self.unit],
                    choose="\n".join(calls),
                    first=fill(first, **given),
                    operand=fill(operand, **given),
                    next=self._next(given),
                ),
                fill(text.MATRIX, **given),
            ),
        ]

    def _next(self, given: dict[str, object]) -> str:
        """Print which panel is fetched meanwhile; rows of a B that is no constant are fetched when others are split."""
        if not self.b_constant:
            return "0 ? g->b"
        return fill(text.SPLIT_NEXT if self._work else text.NEXT, **given)

    @property
    def _variants(self) -> list[tuple[int, int]]:
        """The row × column tiles of its blocks."""
        return [(r, w) for r in self.heights for w in self.widths]

    @property
    def _finishes_in_registers(self) -> bool:
        """Whether a variant of `irc_dots` has the epilogue; functions would displace its sums from registers."""
        return 2 in self.widths and not self.epilogue.functions()

    @property
    def _direct(self) -> bool:
        """Whether A may be read in place."""
        return self.x_bf16 and self.unit == "dot"

    def _dots(self) -> list[str]:
        """Print the products row by row.

        Of the last chunk only what there is, and rows without packing if they need none.
        """
        found = [
            "        const int64_t tail = last ? (g->k - (at->chunk1 - 1) * 32 + 1) / 2 * 2 : 32;",
            "        const uint16_t *from = packed;",
            "        int64_t apart = 32, step = high * 32;",
        ]
        if self._direct:
            found += [
                "        if (g->direct) {",
                "            from = g->a + row * g->a_row + at->chunk0 * 32;",
                "            apart = g->a_row;",
                "            step = 32;",
                "            if (col == 0 && block + 1 < end) /* the next rows come nearer */",
                "                for (int64_t r = 0; r < high && row + high + r < g->m; r++)",
                "                    for (int64_t c = 0; c < chunks; c++)",
                "                        __builtin_prefetch(from + (high + r) * apart + c * 32, 0, 2);",
                "        }",
            ]
        rows = "(real, chunks, tail, from, apart, step, 0, b, {}, ahead, fetched);"
        if self._finishes_in_registers:
            found += [
                f"        if (first && last && chunks <= {SHORT} && g->n - col >= 32) {{",
                f"            const {self.symbol}_out *const o = g->out;",
                "            irc_f32x16 poison = {0};",
                f"            {self.symbol}_dots_2_rows{rows.format('o, row, col, &poison')}",
                f"            if (irc_any_nan(poison)) {self.symbol}_exact(g, o, g->a, stored, row, row + real, col);",
                "            continue;",
                "        }",
            ]
        for i, w in enumerate(self.widths):
            test = "if (g->n - col > 16) " if i + 1 < len(self.widths) else "else " if i else ""
            found.append(f"        {test}irc_dots_{w}_rows{rows.format('out, 32')}")
        return found

    def _entry(self, given: dict[str, object]) -> str:
        only = f"    if (g->m < {FEWEST_ROWS[self.terms]}) {{\n" if self.heights else ""
        skinny = fill(text.ENTRY_SKINNY, **given, only="") if self.skinny else ""
        if only and skinny:
            lines = skinny.splitlines(keepends=True)
            skinny = only + "".join("    " + line for line in lines) + "        return;\n    }\n"
        return fill(text.ENTRY, **given, body=skinny + (fill(text.ENTRY_MATRIX, **given) if self.heights else ""))

    def _further(self) -> Iterator[str]:
        """Yield more of what a call of the shared functions is given."""
        if self._direct:
            yield ", .direct = g->a_col == 1 && g->k % 2 == 0"
        if self.unit == "amx":
            yield ", .products = products"
        if not self.y_bf16:  # which has no sums over a part of k
            yield ", .c = o.c, .c_row = o.c_row"
        if not self.b_constant:
            yield ", .b_row = g->b_row, .b_col = g->b_col"

    def _more(self) -> dict[str, str]:
        """Return the names in the template of what such a call has more of."""
        if self.heights and self.unit == "amx":
            types = fill(text.PRODUCTS_TYPE, C=self._stem, meanwhile=bf16_terms.further(self._work))
            b = "" if self.b_constant else "\n    int64_t b_row, b_col;"
            return {"types": types, "more": fill(text.PRODUCTS_FIELD, C=self._stem) + b}
        return {"types": "", "more": text.DIRECT if self._direct else ""}

    def _table(self) -> str:
        """Print the products of its blocks, by whether they have two row tiles and two column tiles."""
        if self.unit == "dot":
            return ""
        names = bf16_terms.table("irc_products", self.terms, self._variants, self._work)
        return f"    static {self._stem}_products *const products[] = {{{names}}};\n"

    def _names(self) -> dict[str, object]:
        """Return the names in the templates."""
        t, slots = self.terms, list(enumerate(self.epilogue.slots))
        panel = f"(g->k + 31) / 32 * {1024 if t == 3 else t * 1024}" if self.b_constant else "32 * g->b_col"
        step = "(g->chunks + g->cuts - 1) / g->cuts"
        turned_at = f"4160 + {step} * {4 * t * 1024}" if self._work else "4160"
        rows = {i: f"\n    o.s{i}_row = g->s{i}_row;" if axes in ("column", "full") else "" for i, axes in slots}
        starts = (f"\n    o.s{i} = g->s{i} + i * g->s{i}_batch0 + j * g->s{i}_batch1;{rows[i]}" for i, _ in slots)
        return {
            **bf16_io.names(self.x_bf16, self.y_bf16),
            **self.interface,
            **self._more(),
            "packed": "if (!g->direct) " if self._direct else "",
            "further": "".join(self._further()),
            "S": self.symbol,
            "C": self._stem,
            "B": self._b,
            "T": t,
            "sum": LONGEST_SUM,
            "slot_starts": "".join(starts),
            "panel_elements": panel,
            "turned_at": turned_at,
            "packed_at": turned_at if self.b_constant else f"{turned_at} + {step} * {CHUNK * PANEL * 4}",
            "splitting": "irc_splitting" if self.b_constant else "irc_rows_splitting",
            "split_now": "irc_split_pairs" if self.b_constant else f"irc_split_rows_{t}",
            "split_a": round(100 * SPLITTING[t]),
            "split_b": round(100 * (SPLITTING_B if self.b_constant else SPLITTING_ROWS_OF_B)[t]) or 1,
            "images": IMAGES,
            "halves": HALVES,
            "chunk": 1024 if t == 3 else t * 1024,
            "pair": 64 if t == 3 else 32,
            "far": 2 * FAR if t == 3 else FAR * t,
            "lines": 4 if t == 3 else 2 * t,  # of a pair of rows
            "line": 16 if t == 3 else 512,
            "panel_lines": 64 if t == 3 else 32 * t,
            "chunk_start": f"at.chunk0 * {1024 if t == 3 else t * 1024}",
            "most_chunks": self._most_chunks,
            "stripe": STRIPE,
            "least_blocks": LEAST_BLOCKS,
            "tasks": TASKS,
            "group_blocks": GROUP_BLOCKS,
            "passes": len(bf16_terms.ORDER[t]),
            "begin": bf16_terms.BEGIN[self.unit].format(rows="g->height"),
            "end": bf16_terms.END[self.unit],
            "worthwhile": WORTHWHILE,
            "skinny_worthwhile": SKINNY_WORTHWHILE,
        }

    @property
    def features(self) -> frozenset[str]:
        return bf16_terms.FEATURES[self.unit] if self.heights else frozenset()

    @property
    def summary(self) -> str:
        how = "f32 from three bf16 terms, six products" if self.terms == 3 else f"{self.terms} bf16 terms"
        return f"C = epilogue(A B) on AMX, {how}; B packed {'at compile time' if self.b_constant else 'when called'}."


def own_bytes_of(terms: int, chunks: int) -> int:
    """Count the bytes that a task needs for itself: a block of sums, and so many terms of two panels of B."""
    return 4 * (2 * TILE_ROWS * PANEL) + 2 * chunks * terms * CHUNK * PANEL * 2


def terms_of(x: Array, count: int) -> list[Array]:
    """Split finite f32 values into `count` bf16 terms (uint16), rounded to nearest.

    Infinities and NaN are the first alone.
    """
    found: list[Array] = []
    finite = np.isfinite(x)
    left = np.where(finite, x, np.float32(0))
    cut = np.zeros(x.shape, bool)
    for number in range(count):
        bits = left.view(np.uint32)
        nearest = bits + 0x7FFF + (bits >> 16 & 1)
        cut = cut | (nearest & 0x7F800000 == 0x7F800000)  # the largest floats: neither terms nor sum may overflow
        nearest = np.where(cut, bits, nearest)
        half = (nearest >> 16).astype(np.uint16)
        left = left - (half.astype(np.uint32) << 16).view(np.float32)
        if not number and not finite.all():
            special = np.where(np.isnan(x), np.uint16(0x7FC0), (x.view(np.uint32) >> 16).astype(np.uint16))
            half = np.where(finite, half, special)
        found.append(half)
    return found


def blocks_of(m: DimLike) -> tuple[int, ...]:
    """Choose the row tiles of the blocks that m rows are cut into: two, and one if the number of tiles is odd."""
    rows = Dim.of(m)
    if not rows.is_const:
        return 2, 1
    tiles = -(-int(rows) // TILE_ROWS)
    tiles = -(-int(rows) // -(-int(rows) // tiles)) if tiles else 1
    return (1,) if tiles == 1 else (2, 1) if tiles % 2 else (2,)


def widths_of(n: DimLike) -> tuple[int, ...]:
    """Choose the column tiles of the panels of n columns."""
    columns = Dim.of(n)
    if not columns.is_const:
        return 2, 1
    rest = int(columns) % PANEL
    last = 1 if 0 < rest <= PANEL // 2 else 2
    return (last,) if int(columns) <= PANEL else (2, 1) if last == 1 else (2,)
