"""Which operations of a module may meet data they are not defined for, although nothing was wrong when compiling."""

from __future__ import annotations

from collections.abc import Container

from irc.ir.graph import Graph, Node, Value, symbols_of
from irc.ir.types import TensorType, string


def sizes_of_inputs(graph: Graph) -> frozenset[str]:
    """Collect the symbols that the shapes of the inputs define, which are checked before the model runs."""
    return frozenset(symbols_of(graph.inputs))


def data_decide(node: Node, sizes: Container[str]) -> bool:
    """Tell whether only the run's data show that an operation's operands fit.

    They do where an operand has sizes other than those of inputs, where it is a text to be read, and where it says
    what is to be done (axes, a shape, indices, counts) and has another element type than the results.
    """
    if node.op.regions:
        return True
    values = [*node.operands, *node.outputs]
    if any(not _sized(v, sizes) or v.dtype == string for v in values):
        return True
    if node.op.elementwise:
        return False
    results = {p.type for p in node.op.sig.outputs}
    for i, value in enumerate(node.inputs):
        unknown = value is not None and value.const is None and value.contents is None
        if unknown and node.op.sig.param(i).type not in results:
            return True
    return False


def _sized(value: Value, sizes: Container[str]) -> bool:
    if not isinstance(value.type, TensorType) or value.type.shape is None or value.type.dtype.kind == "?":
        return False
    return all(name in sizes for name in symbols_of([value]))
