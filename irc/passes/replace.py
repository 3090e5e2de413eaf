"""Putting one value in the place of another, where the graph's outputs keep the names that users know."""

from __future__ import annotations

from irc.ir.graph import Graph, Value


def replace_value(graph: Graph, old: Value, new: Value) -> bool:
    """Use `new` instead of `old` everywhere. Returns False, and does nothing, if an output would lose its name.

    An output that is replaced by what another node computes hands its name on.
    """
    if old in graph.outputs and (new in graph.outputs or new in graph.inputs or new.producer is None):
        return False
    put_in_place(graph, old, new)
    return True


def put_in_place(graph: Graph, old: Value, new: Value) -> None:
    """Use `new` instead of `old` everywhere; in the place of an output it takes over the output's names."""
    if old in graph.outputs:
        new.name, new.names, new.extras, new.loc = old.name, old.names, old.extras, old.loc
    graph.replace_uses(old, new)
