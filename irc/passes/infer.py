"""Inference of the types and symbolic contents of every value, from the types of the inputs."""

from __future__ import annotations

from irc.diagnostics import Sink
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, Type, dynamic
from irc.opdef.builder import infer_node


def run(graph: Graph, sink: Sink) -> None:
    """Infer every node again, in dependency order, and report what does not fit at its node.

    Where inference knows nothing (a variable without a declared shape), what the file says stays.
    """
    for node in graph.nodes:
        infer_at(node, sink)


def infer_at(node: Node, sink: Sink) -> dict[str, Dim]:
    """Infer one node again.  Returns what stands for the sizes that inference made up (`infer_node`)."""
    before = [(v, v.type) for v in node.outputs]
    renamed: dict[str, Dim] = {}
    with sink.catching(node.loc):
        renamed = infer_node(node)
    for value, type in before:
        keep(value, type)
    return renamed


def keep(value: Value, before: Type | None) -> None:
    """Keep what was known of a value's type where inferring it again found nothing."""
    found = value.type
    if not isinstance(before, TensorType) or not isinstance(found, TensorType):
        return
    if found.shape is None and before.shape is not None:
        value.type = TensorType(before.dtype if found.dtype == dynamic else found.dtype, before.shape)
    elif found.dtype == dynamic and before.dtype != dynamic:
        value.type = found.with_dtype(before.dtype)
