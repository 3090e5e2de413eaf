"""Putting one value in the place of another, so that the graph's outputs keep what users know them by."""

from __future__ import annotations

from irc.ir.graph import Graph, Value


def replace_value(graph: Graph, old: Value, new: Value) -> bool:
    """`new` for `old` everywhere; False, and nothing done, where an output would lose its name.

    An output that is replaced by what another node computes hands its name on.
    """
    if old in graph.outputs:
        if new in graph.outputs or new in graph.inputs or new.producer is None:
            return False
        new.name, new.names, new.extras, new.loc = old.name, old.names, old.extras, old.loc
    graph.replace_uses(old, new)
    return True
