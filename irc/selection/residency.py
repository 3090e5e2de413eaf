"""How much a run reads of a model's constants: in which cache it finds them."""

import math

from irc.ir.graph import Graph


def constant_bytes(graph: Graph) -> int:
    """Count the bytes of all constants that a run reads, without tables of which it reads a few rows."""
    read = [v for v in graph.constants() if any(node.op.name != "Gather" for node in v.uses)]
    return sum(math.prod(map(int, v.shape)) * v.dtype.itemsize for v in read)
