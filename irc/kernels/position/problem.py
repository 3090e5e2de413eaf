"""Positions of largest or smallest elements as a problem: along the middle axis of a dense x[outer, n, inner], f32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from irc.ir.dim import Dim, DimLike, product
from irc.ir.types import i64
from irc.kernels.core.base import Array, Kernel, Sizes
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import Problem
from irc.kernels.core.text import fill, symbol


@dataclass(frozen=True)
class PositionProblem(Problem):
    """y[outer, inner] = where the largest (`smallest`: the smallest) of x[outer, :, inner] stands.

    Of equal ones the first counts, with `last` the last.  NaN counts as both.
    """

    smallest: bool
    last: bool
    outer: Dim
    n: Dim
    inner: Dim

    @classmethod
    def contiguous(
        cls, outer: DimLike, n: DimLike, inner: DimLike = 1, smallest: bool = False, last: bool = False
    ) -> PositionProblem:
        """State one by its sizes."""
        return cls(i64, "highest", smallest, last, Dim.of(outer), Dim.of(n), Dim.of(inner))


def positions(
    smallest: bool, last: bool, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]
) -> None:
    """Compute what a kernel of this family does: the oracle of its calls."""
    shape = sizes["outer"], sizes["n"], sizes.get("inner", 1)
    if 0 in shape:
        return
    x = reads[0][: shape[0] * shape[1] * shape[2]].reshape(shape)
    x = np.flip(x, 1) if last else x
    found = np.argmin(x, 1) if smallest else np.argmax(x, 1)
    writes[0][: found.size] = (shape[1] - 1 - found if last else found).reshape(-1)


@dataclass(frozen=True)
class PositionKernel(Kernel[PositionProblem]):
    """What kernels of positions share; `label` says of what they are: rows, short rows or columns."""

    isa: Isa
    smallest: bool
    last: bool

    problem = PositionProblem

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        return (("x", "const float *"), ("y", "int64_t *"))

    @cached_property
    def symbol(self) -> str:
        words = (
            "smallest" if self.smallest else "largest",
            "last" if self.last else "first",
            self.label[:-1].replace(" ", "_"),
            "places",
        )
        return symbol("_".join(words), self.isa.name, "")

    @property
    def summary(self) -> str:
        which = "last" if self.last else "first"
        return f"Where the {which} {'smallest' if self.smallest else 'largest'} elements of {self.label} stand."

    def arguments_for(self, problem: PositionProblem) -> dict[str, Dim]:
        return {name: getattr(problem, name) for name in self.sizes}

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        positions(self.smallest, self.last, reads, writes, sizes)

    def flops(self, sizes: Sizes) -> Dim:
        return product(sizes[name] for name in self.sizes)


_ALONE = """
/* The place of the $which of n elements, `step` apart, of which one may be NaN. */
IRC_APART int64_t ${S}_alone(const float *x, int64_t n, int64_t step) {
    int64_t at = $first;
    for (int64_t i = $next) {
        const float best = ${sign}x[at * step], v = ${sign}x[i * step];
        if (best != best) break;
        if (!(v <= best)) at = i;
    }
    return at;
}
"""


def alone(symbol: str, smallest: bool, last: bool) -> str:
    """Print `symbol_alone`, which looks at one element after another."""
    words = {
        "which": f"{'last' if last else 'first'} {'smallest' if smallest else 'largest'}",
        "first": "n - 1" if last else "0",
        "next": "n - 2; i >= 0; i--" if last else "1; i < n; i++",
    }
    return fill(_ALONE, S=symbol, sign=sign(smallest), **words)


def sign(smallest: bool) -> str:
    """Print what stands in front of elements, the largest of which is looked for."""
    return "-" if smallest else ""
