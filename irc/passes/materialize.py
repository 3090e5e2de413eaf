"""Integer values with symbolically known elements become constants, or vectors of sizes.

The Shape → Gather → Concat chains that computed them are then unused.
"""

from __future__ import annotations

from irc.ir.dim import Dim
from irc.ir.graph import Graph, Value, symbols_of
from irc.ir.types import i64
from irc.opdef.builder import Builder
from irc.passes.fold import contents_of
from irc.passes.replace import put_in_place


def run(graph: Graph) -> int:
    """Replace values in place. Returns how many were replaced.

    What has sizes that only the run of an operation tells stays: a vector of them would outlive the operation.
    """
    replaced = 0
    given = symbols_of([*graph.inputs, *(v for n in graph.nodes if n.op.effect for v in n.outputs)])
    for node in graph.nodes:
        for value in node.outputs:
            if value.contents is None or value.assumed or (not value.uses and not graph.keeps(value)):
                continue
            if contents_of(graph, value) is not None:
                replaced += 1
            elif node.inputs and all(s.name in given for d in value.contents.flat for s in Dim.of(d).symbols()):
                _sizes(graph, value)
                replaced += 1
    graph.prune()
    return replaced


def constants(graph: Graph) -> int:
    """Replace the values whose elements are all numbers, in place. Returns how many were replaced."""
    replaced = 0
    for node in graph.nodes:
        for value in node.outputs:
            replaced += contents_of(graph, value) is not None
    graph.prune()
    return replaced


def _sizes(graph: Graph, value: Value) -> None:
    """Replace a value by a DimVector, reshaped and cast to the value's type."""
    assert value.contents is not None and value.producer is not None
    b = Builder(graph, value.producer.name or value.producer.op.name, value.producer.loc)
    new = b.DimVector(dims=tuple(Dim.of(d) for d in value.contents.flat))
    if value.contents.ndim != 1:
        new = b.Reshape(new, list(value.contents.shape), special_zero=False)
    if value.dtype != i64:
        new = b.Cast(new, to=value.dtype)
    new.contents = value.contents
    put_in_place(graph, value, new)
