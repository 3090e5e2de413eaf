"""How much a run reads of a model's constants: in which cache it finds them."""

import math

from irc.ir.graph import Graph
from irc.kernels.core.isa import Isa


def constant_bytes(graph: Graph) -> int:
    """Count the bytes of all constants that a run reads, without tables of which it reads a few rows."""
    read = [v for v in graph.constants() if any(node.op.name != "Gather" for node in v.uses)]
    return sum(math.prod(map(int, v.shape)) * v.dtype.itemsize for v in read)


def is_resident(weights: int, isa: Isa) -> bool:
    """Tell whether a model has so few bytes of constants that a run finds them in the second cache."""
    return weights <= isa.l2
