"""Graphs in notebooks: a picture of a small one, and a table of its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString

from irc.diagnostics.html_text import HtmlText
from irc.ir.graph_text import FIRST, LAST, value_text
from irc.ir.pictures.picture import of_graph
from irc.ir.pictures.svg import svg

if TYPE_CHECKING:
    from irc.ir.graph import Graph, Node

DRAWN = 80
"""Nodes that a picture has at most."""


def html(graph: Graph) -> HtmlText:
    """Write the picture, and a row for each input, node and output; of many nodes the first and the last."""
    nodes = graph.nodes
    shown = nodes if len(nodes) <= FIRST + LAST else [*nodes[:FIRST], *nodes[-LAST:]]
    rows = [("input", "", "", value_text(v)) for v in graph.inputs]
    rows += map(_row, shown)
    rows += [("output", "", "", value_text(v)) for v in graph.outputs]
    title = HtmlText.element("p", HtmlText.element("b", graph.name), f": {len(nodes)} nodes")
    picture = [svg(of_graph(graph))] if 0 < len(nodes) <= DRAWN else []
    head = _cells("th", ("node", "operation", "operands", "results"))
    table = HtmlText.element("table", head, *(_cells("td", row) for row in rows))
    return HtmlText.element("div", title, *picture, table)


def _row(node: Node) -> tuple[str, str, str, str]:
    operands = ", ".join("" if v is None else f"%{v.name}" for v in node.inputs)
    return node.name, str(node.op), operands, ", ".join(map(value_text, node.outputs))


def _cells(tag: LiteralString, row: tuple[str, str, str, str]) -> HtmlText:
    return HtmlText.element("tr", *(HtmlText.element(tag, text, style="text-align:left") for text in row))
