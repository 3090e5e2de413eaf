"""Matrix products as a problem: C[i, j] = epilogue(A[i, j] · B[i, j]) over up to two batch axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from irc.ir.dim import Dim, DimLike, product
from irc.kernels.core.base import Array
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.problem import Problem, likely
from irc.kernels.core.reference import apply, strided

STREAMED = 1 << 17
"""Elements of B that no longer fit the second cache: a product with few rows waits for them."""


@dataclass(frozen=True)
class Narrow:
    """How a file stores a constant B: whole numbers of `bits` bits, less a zero point, times a scale, or floats.

    block: how many that follow one another along k have the same scale and the same zero point.  zeros: whether each
    block has a zero point of its own; else it is half the range.  floats: "f16" or "bf16", which have none of these.
    """

    bits: int
    block: int = 1
    zeros: bool = False
    floats: str = ""

    @property
    def most(self) -> int:
        """The largest of the stored numbers, the least of which is 0."""
        return (1 << self.bits) - 1

    @property
    def middle(self) -> int:
        """Half the range: the zero point of blocks that have none of their own."""
        return 1 << (self.bits - 1)


@dataclass(frozen=True)
class GemmProblem(Problem):
    """C[i, j, m, n] = epilogue(Σ A[i, j, m, k] · B[i, j, k, n]).

    batch: extents of i and j.  a, b: strides along i, j, rows and columns; c: along i, j and rows, its columns stand
    side by side.  matrices: of a constant B, how many there are, its strides along i and j then in matrices, [k, n]
    each; 0: B is an operand of the run.  slots: strides of the epilogue's operands along i, j and rows (m); rows and
    columns of the epilogue are m and n.  narrow: how the file stores a single constant B, if not as floats.  distant:
    whether the model has so many constants that B is not in the caches of a core when it is read.
    """

    epilogue: Epilogue
    m: Dim
    n: Dim
    k: Dim
    batch: tuple[Dim, Dim]
    a: tuple[Dim, Dim, Dim, Dim]
    b: tuple[Dim, Dim, Dim, Dim]
    c: tuple[Dim, Dim, Dim]
    matrices: int
    slots: tuple[tuple[Dim, Dim, Dim], ...]
    narrow: Narrow | None = None
    distant: bool = False

    @classmethod
    def contiguous(
        cls, epilogue: Epilogue, m: DimLike, n: DimLike, k: DimLike, constant: bool, precision: str = "highest"
    ) -> GemmProblem:
        """State one product of matrices without gaps, and epilogue operands without gaps, of the epilogue's type."""
        zero, one, (rows, columns, depth) = Dim.of(0), Dim.of(1), map(Dim.of, (m, n, k))
        slots = tuple((zero, zero, columns if axes == "full" else one) for axes in epilogue.slots)
        return cls(
            epilogue.dtype,
            precision,
            epilogue,
            rows,
            columns,
            depth,
            batch=(one, one),
            a=(zero, zero, depth, one),
            b=(zero, zero, columns, one),
            c=(zero, zero, columns),
            matrices=int(constant),
            slots=slots,
        )

    @property
    def work(self) -> str | None:
        if not (self.m.is_const and self.n.is_const and self.k.is_const):
            return None
        what = "weights" if self.matrices else "operands"
        if self.narrow is not None:
            what = f"weights of {self.narrow.bits} bits {self.narrow.floats or f'in blocks of {self.narrow.block}'}"
        return f"product {self.precision} {self.dtype.name} {self.m}x{self.n}x{self.k} {what}"

    @property
    def streamed(self) -> int:
        """The elements of a B that does not stay in the second cache; 0 for one that does."""
        elements = likely(self.n) * likely(self.k)
        return elements if elements >= STREAMED else 0

    @property
    def count(self) -> Dim:
        """The number of products."""
        return product(self.batch)

    def arguments(self, unit: Dim) -> dict[str, Dim]:
        """Return the sizes of a call by name; unit: elements of a packed matrix B, if B is constant."""
        sizes = {"m": self.m, "n": self.n, "k": self.k, "batch0": self.batch[0], "batch1": self.batch[1]}
        steps = (self.b[0] * unit, self.b[1] * unit) if self.matrices else self.b[:2]
        for name, batch in (("a", self.a[:2]), ("b", steps), ("c", self.c[:2])):
            sizes |= {f"{name}_batch0": batch[0], f"{name}_batch1": batch[1]}
        sizes |= {"a_row": self.a[2], "a_col": self.a[3], "c_row": self.c[2]}
        if not self.matrices:
            sizes |= {"b_row": self.b[2], "b_col": self.b[3]}
        for i, (axes, strides) in enumerate(zip(self.epilogue.slots, self.slots, strict=True)):
            sizes |= {f"s{i}_batch0": strides[0], f"s{i}_batch1": strides[1]}
            if axes in ("column", "full"):
                sizes[f"s{i}_row"] = strides[2]
        return sizes


def sizes_of(epilogue: Epilogue, b_constant: bool) -> tuple[str, ...]:
    """Name the sizes that a product takes: of matrices, strides of a B that is not constant, of operands behind it."""
    slots = [f"s{i}_{f}" for i, f in epilogue.strides("batch0", "batch1", "row")]
    b = "" if b_constant else "b_row b_col"
    matrices = f"m n k a_batch0 a_batch1 a_row a_col b_batch0 b_batch1 {b} c_batch0 c_batch1 c_row batch0 batch1"
    return (*matrices.split(), *slots)


def multiply(
    b: Array, epilogue: Epilogue, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]
) -> None:
    """Compute C in NumPy: `b` is [batch0, batch1, k, n], the other operands as the kernels' pointers have them."""
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    a = matrices(reads[0], (m, k), (sizes["a_row"], sizes["a_col"]), sizes, "a")
    c = matrices(writes[0], (m, n), (sizes["c_row"], 1), sizes, "c")
    c[...] = apply(epilogue, np.matmul(a, b), slots_of(epilogue, reads[2:], sizes))


def slots_of(epilogue: Epilogue, operands: Sequence[Array], sizes: Mapping[str, int]) -> list[Array]:
    """View the operands of an epilogue: [batch0, batch1, m, n] each."""
    shape = sizes["m"], sizes["n"]
    return [
        matrices(flat, shape, (sizes.get(f"s{i}_row", 0), int(axes in ("row", "full"))), sizes, f"s{i}")
        for i, (flat, axes) in enumerate(zip(operands, epilogue.slots, strict=True))
    ]


def matrices(
    flat: Array, shape: Sequence[int], steps: Sequence[int], sizes: Mapping[str, int], name: str = "b"
) -> Array:
    """View an operand of a call by these strides within a matrix: [batch0, batch1, *shape].

    name: what its sizes begin with, "a", "b", "c", "s0".
    """
    lead, strides = (sizes["batch0"], sizes["batch1"]), (sizes[f"{name}_batch0"], sizes[f"{name}_batch1"])
    return strided(flat, (*lead, *shape), (*strides, *steps))
