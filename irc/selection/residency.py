"""How much a run reads of a model's constants: in which cache it finds them."""

import math

from irc.ir.graph import Graph
from irc.kernels.core.isa import Isa

LAST_CACHE = 3 << 20
"""Bytes of a model's constants of which the last cache of a processor holds four times as many."""
PACKED = 4
"""Times as many bytes that Winograd's algorithm makes of weights."""


def constant_bytes(graph: Graph) -> int:
    """Count the bytes of all constants that a run reads, without tables of which it reads a few rows."""
    read = [v for v in graph.constants() if any(node.op.name != "Gather" for node in v.uses)]
    return sum(math.prod(map(int, v.shape)) * v.dtype.itemsize for v in read)


def residency(weights: int | None, isa: Isa) -> dict[str, bool]:
    """Say of a `ConvProblem` in which cache a run finds as many bytes of a model's constants; in none if unknown."""
    if weights is None:
        return {}
    return {"resident": weights <= isa.l2, "near": weights <= LAST_CACHE, "cached": weights <= PACKED * LAST_CACHE}
