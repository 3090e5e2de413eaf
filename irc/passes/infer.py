"""Types and symbolic contents of every value, from the inputs' types."""

from __future__ import annotations

from irc.diagnostics import Sink
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, Type, dynamic
from irc.opdef.builder import infer_node


def run(graph: Graph, sink: Sink) -> None:
    """Infer every node again, in dependency order; what does not fit is reported at its node.

    Where inference knows nothing (a variable without a declared shape), what the file says stays.
    """
    for node in graph.nodes:
        infer_at(node, sink)


def infer_at(node: Node, sink: Sink) -> None:
    """Infer one node again."""
    before = [(v, v.type) for v in node.outputs]
    with sink.catching(node.loc):
        infer_node(node)
    for value, type in before:
        keep(value, type)


def keep(value: Value, before: Type | None) -> None:
    """Give a value back what was known of its type, where inferring again knows nothing."""
    found = value.type
    if not isinstance(before, TensorType) or not isinstance(found, TensorType):
        return
    if found.shape is None and before.shape is not None:
        value.type = TensorType(before.dtype if found.dtype == dynamic else found.dtype, before.shape)
    elif found.dtype == dynamic and before.dtype != dynamic:
        value.type = found.with_dtype(before.dtype)
