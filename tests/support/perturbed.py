"""Cases whose sizes are symbols, and other sizes for them: one axis at a time, or all axes of one size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from irc.diagnostics import Problem
from irc.ir.graph import Graph
from irc.opdef.builder import evaluate
from tests.ops.cases import Case
from tests.ops.test_ops import add_case, feeds

Array = np.ndarray[Any, Any]
Shapes = tuple[tuple[int, ...], ...]


@dataclass
class Symbolic:
    """A case as a graph whose inputs have symbols for sizes; `arrays` are those of the case itself."""

    case: Case
    graph: Graph
    arrays: list[Array]

    def resized(self, shapes: Shapes) -> list[Array]:
        """The case's arrays with other shapes: their elements over and over."""
        return [np.resize(a, s) if a.size or 0 in s else np.zeros(s, a.dtype) for a, s in zip(self.arrays, shapes)]

    def expected(self, arrays: list[Array]) -> list[Array] | Exception:
        """The results by the reference, or what it raises."""
        try:
            with np.errstate(all="ignore"):
                return evaluate(self.graph, dict(zip(self.graph.inputs, arrays, strict=True)))
        except Exception as e:
            return e


def symbolic(case: Case) -> Symbolic | None:
    """None where the operation needs to know sizes."""
    graph, arrays = Graph("case"), feeds(case)
    try:
        add_case(graph, case, symbolic=True)
    except Problem:
        return None
    return Symbolic(case, graph, arrays) if any(a.ndim for a in arrays) else None


def others(size: int) -> list[int]:
    """Sizes that an axis of this size is given instead."""
    return sorted({0, 1, size - 1, size + 1, 2 * size} - {size, -1})


def perturbed(case: Symbolic) -> Iterator[Shapes]:
    """Each axis with other sizes, and all axes of one size with another."""
    shapes = tuple(a.shape for a in case.arrays)
    found: dict[Shapes, None] = {}
    for i, shape in enumerate(shapes):
        for k, size in enumerate(shape):
            for other in others(size):
                changed = (*shape[:k], other, *shape[k + 1 :])
                found[(*shapes[:i], changed, *shapes[i + 1 :])] = None
    for size in {n for s in shapes for n in s}:
        for other in others(size):
            found[tuple(tuple(other if n == size else n for n in s) for s in shapes)] = None
    yield from (s for s in found if s != shapes)
