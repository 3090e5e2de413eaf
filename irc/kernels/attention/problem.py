"""Attention as a problem: O = softmax(scale · Q Kᵀ + mask) V for every batch and head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from irc.ir.dim import Dim, DimLike, product
from irc.ir.types import f32
from irc.kernels.core.base import Array
from irc.kernels.core.problem import Problem, likely
from irc.kernels.core.reference import strided

Mask = Literal["none", "add", "bool"]
Empty = Literal["nan", "zero"]


@dataclass(frozen=True)
class AttentionProblem(Problem):
    """O = softmax(scale · Q Kᵀ + mask) V, f32.

    mask: "add" is f32 and added to the scaled scores, "bool" is one byte an element, 0 where a query must not see a
    key.  causal: query i sees the keys up to i + shift.  empty: a row that sees no key is NaN, as softmax gives it, or
    0.  heads: of the queries; group: of them to each head of K and V.  m queries, n keys, d elements in a row of Q and
    K, dv in a row of V and O.  q, v, o: strides along batch, head and row, whose elements stand side by side; k: along
    batch, head, key and the elements of a key; added: those of the mask along batch, head, query and key.
    """

    scale: float
    mask: Mask
    causal: bool
    empty: Empty
    batch: Dim
    heads: Dim
    group: Dim
    m: Dim
    n: Dim
    d: Dim
    dv: Dim
    q: tuple[Dim, Dim, Dim]
    k: tuple[Dim, Dim, Dim, Dim]
    v: tuple[Dim, Dim, Dim]
    o: tuple[Dim, Dim, Dim]
    added: tuple[Dim, Dim, Dim, Dim]
    shift: Dim

    @classmethod
    def contiguous(
        cls,
        m: DimLike,
        n: DimLike,
        width: DimLike,
        scale: float,
        mask: Mask = "none",
        causal: bool = False,
        empty: Empty = "nan",
        precision: str = "highest",
    ) -> AttentionProblem:
        """State the attention of one head without gaps, rows of Q and V equally wide."""
        zero, one, (rows, keys, wide) = Dim.of(0), Dim.of(1), map(Dim.of, (m, n, width))
        each = (zero, zero, wide)
        shape = (one, one, one, rows, keys, wide, wide)
        added = (zero, zero, keys, one)
        return cls(f32, precision, scale, mask, causal, empty, *shape, each, (*each, one), each, each, added, zero)

    @property
    def work(self) -> str | None:
        sizes = (self.batch, self.heads, self.group, self.m, self.n, self.d, self.dv)
        if not all(s.is_const for s in sizes):
            return None
        kind = f"{self.mask}{' causal' if self.causal else ''}"
        return f"attention {self.precision} {'x'.join(map(str, sizes))} mask {kind}"

    @property
    def rows(self) -> Dim:
        """The number of queries that meet the same keys."""
        return self.m * self.group

    @property
    def width(self) -> Dim:
        """The wider of Q's rows and V's."""
        return self.d if self.dv.at_most(self.d) else self.dv

    @property
    def count(self) -> int:
        """The estimated number of heads of keys."""
        return max(likely(product((self.batch, self.heads))) // likely(self.group), 1)

    def arguments(self) -> dict[str, Dim]:
        """Return the sizes of a call by name."""
        sizes = {n: getattr(self, n) for n in ("batch", "heads", "group", "m", "n", "d", "dv")}
        operands: dict[str, Sequence[Dim]] = {"q": self.q, "k": self.k, "v": self.v, "o": self.o}
        if self.mask != "none":
            operands["mask"] = self.added
        for name, strides in operands.items():
            sizes |= {f"{name}_{axis}": s for axis, s in zip(("batch", "head", "row", "col"), strides, strict=False)}
        return sizes | ({"shift": self.shift} if self.causal else {})


def attend(
    scale: float,
    mask: Mask,
    causal: bool,
    empty: Empty,
    reads: Sequence[Array],
    writes: Sequence[Array],
    sizes: Mapping[str, int],
) -> None:
    """Compute O in NumPy, of operands as the kernels' pointers have them."""
    batch, heads, m, n = sizes["batch"], sizes["heads"], sizes["m"], sizes["n"]

    def at(which: str, flat: Array, shape: Sequence[int], steps: Sequence[int], count: int = heads) -> Array:
        return strided(flat, (batch, count, *shape), (sizes[f"{which}_batch"], sizes[f"{which}_head"], *steps))

    shared = heads // sizes["group"]
    q = at("q", reads[0], (m, sizes["d"]), (sizes["q_row"], 1))
    k = at("k", reads[1], (n, sizes["d"]), (sizes["k_row"], sizes["k_col"]), shared).repeat(sizes["group"], 1)
    v = at("v", reads[2], (n, sizes["dv"]), (sizes["v_row"], 1), shared).repeat(sizes["group"], 1)
    scores = np.matmul(q, k.swapaxes(-1, -2)) * np.float32(scale)
    if mask != "none":
        added = at("mask", reads[3], (m, n), (sizes["mask_row"], sizes["mask_col"]))
        scores = scores + (added if mask == "add" else np.where(added != 0, 0, -np.inf).astype(np.float32))
    if causal:
        scores = np.where(np.arange(n) <= np.arange(m)[:, None] + sizes["shift"], scores, np.float32(-np.inf))
    with np.errstate(all="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
        weights = weights / weights.sum(-1, keepdims=True)
    if empty == "zero":
        weights = np.where(np.isneginf(scores).all(-1, keepdims=True), np.float32(0), weights)
    at("o", writes[0], (m, sizes["dv"]), (sizes["o_row"], 1))[...] = np.matmul(weights, v)
