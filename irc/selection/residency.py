"""How much a run reads of a model's constants: in which cache it finds them."""

import math

from irc.ir.graph import Graph
from irc.kernels.core.isa import Isa

LAST_CACHE_HOLDS = 12 << 20
"""Bytes of a model's constants, at most, that the last cache of a processor holds."""
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
    held = {"cached": weights <= LAST_CACHE_HOLDS, "near": PACKED * weights <= LAST_CACHE_HOLDS}
    return held | {"resident": weights <= isa.l2}
