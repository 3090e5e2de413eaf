"""Putting one value in the place of another, so that the graph's outputs keep what users know them by."""

from __future__ import annotations

from irc.ir.graph import Graph, Value


def replace_value(graph: Graph, old: Value, new: Value) -> bool:
    """`new` for `old` everywhere; False, and nothing done, where an output would lose its name.

    An output that is replaced by what another node computes hands its name on.
    """
    if old in graph.outputs and (new in graph.outputs or new in graph.inputs or new.producer is None):
        return False
    put_in_place(graph, old, new)
    return True


def put_in_place(graph: Graph, old: Value, new: Value) -> None:
    """`new` for `old` everywhere; in the place of an output it gets what users know that by."""
    if old in graph.outputs:
        new.name, new.names, new.extras, new.loc = old.name, old.names, old.extras, old.loc
    graph.replace_uses(old, new)
