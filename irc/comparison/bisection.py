"""The first of many tensors that is out of tolerance, of which only a few are looked at in each run.

A tensor is a number here, its place in topological order.  An error is expected to reach what is computed from it, so
that what leads to a tensor within the tolerance need not be looked at; where that was wrong (a Relu may hide an error),
the operands of the tensor that was found show it, and the search goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

OUTPUTS_A_RUN = 8
"""So many tensors are outputs of one run."""
SAMPLES = 32
"""So many tensors are looked at where the outputs agree."""


@dataclass
class Search:
    """Look for a tensor out of tolerance whose operands are within it.

    operands: of each tensor the nearest tensors that it is computed from, all of smaller numbers.  differ: runs both
    models and says of each tensor given whether it is out of tolerance.  known: what has been found so far.
    """

    operands: Sequence[Iterable[int]]
    differ: Callable[[Sequence[int]], Sequence[bool]]
    at_once: int = OUTPUTS_A_RUN
    samples: int = SAMPLES
    known: dict[int, bool] = field(default_factory=dict[int, bool])
    runs: int = 0

    def __post_init__(self) -> None:
        # Sets of tensors as bits of numbers: a model of thousands of layers has as many sets of them.
        self._leading: list[int] = []
        for near in self.operands:
            bits = 0
            for i in near:
                bits |= self._leading[i] | 1 << i
            self._leading.append(bits)

    def first_of(self, outputs: Iterable[int]) -> int | None:
        """Find the origin of what differs in these tensors, or else in samples of all; None if nothing does."""
        self._look_at(sorted(set(outputs)))
        found = self._first_wrong(self.known)
        if found is None:  # an error may fade out before it reaches them
            self._look_at(_spread([i for i in range(len(self.operands)) if i not in self.known], self.samples))
            found = self._first_wrong(self.known)
        while found is not None:
            found = self._narrowed(found)
            near = sorted(set(self.operands[found]))
            self._look_at([i for i in near if i not in self.known])
            earlier = self._first_wrong(near)
            if earlier is None:
                return found
            found = earlier
        return None

    def _narrowed(self, found: int) -> int:
        """Move to the earliest tensor out of tolerance that leads there, as far as samples of the way tell."""
        while waiting := self._undecided(found):
            samples = _spread(waiting, self.at_once)
            self._look_at(samples)
            earlier = self._first_wrong(samples)
            found = found if earlier is None else earlier
        return found

    def _undecided(self, found: int) -> list[int]:
        """The tensors leading to this one that nothing is known of: those behind it which lead to none in tolerance."""
        wrong = sum(1 << i for i, differs in self.known.items() if differs)
        settled = 0
        for i, differs in self.known.items():
            settled |= 1 << i
            if not differs and not self._leading[i] & wrong:
                settled |= self._leading[i]
        left = self._leading[found] & ~settled
        return [i for i in range(found) if left >> i & 1]

    def _first_wrong(self, tensors: Iterable[int]) -> int | None:
        return min((i for i in tensors if self.known[i]), default=None)

    def _look_at(self, tensors: Sequence[int]) -> None:
        for start in range(0, len(tensors), self.at_once):
            part = tensors[start : start + self.at_once]
            self.known.update(zip(part, self.differ(part), strict=True))
            self.runs += 1


def _spread(tensors: Sequence[int], count: int) -> list[int]:
    """So many of the tensors, at equal distances and none of the ends, if there are more."""
    if len(tensors) <= count:
        return list(tensors)
    return sorted({tensors[len(tensors) * (k + 1) // (count + 1)] for k in range(count)})
