"""Graphs for people: as lines of text, as a table and a picture in HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from irc.ir.graph import Graph, Node, Value

FIRST, LAST = 60, 20
"""Nodes that are shown of more."""
DRAWN = 80
"""Nodes that a picture has at most."""
WIDTH, HEIGHT, GAP = 150, 26, 18
"""Of a node in a picture, and between nodes, in pixels."""


def as_text(graph: Graph) -> str:
    """The inputs, a line for each node, the outputs."""
    nodes = graph.nodes
    lines = [f"graph {graph.name!r}: {len(nodes)} nodes"]
    lines += [f"  input  {_value(v)}" for v in graph.inputs]
    cut = len(nodes) > FIRST + LAST
    lines += map(_line, nodes[:FIRST] if cut else nodes)
    if cut:
        lines += [f"  … {len(nodes) - FIRST - LAST} more", *map(_line, nodes[-LAST:])]
    lines += [f"  output {_value(v)}" for v in graph.outputs]
    return _readable("\n".join(lines))


def _readable(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def _line(node: Node) -> str:
    operands = ", ".join("_" if v is None else f"%{v.name}" for v in node.inputs)
    return f"  {', '.join(map(_value, node.outputs))} = {node.op}{' ' if operands else ''}{operands}"


def _value(value: Value) -> str:
    return f"%{value.name}: {value.type}"


def as_html(graph: Graph) -> str:
    """A picture of a small graph, and a table of its nodes; nothing in it is taken for markup."""
    nodes = graph.nodes
    rows = [("input", "", "", _value(v)) for v in graph.inputs]
    for node in nodes if len(nodes) <= FIRST + LAST else [*nodes[:FIRST], *nodes[-LAST:]]:
        operands = ", ".join("" if v is None else f"%{v.name}" for v in node.inputs)
        rows.append((node.name, str(node.op), operands, ", ".join(map(_value, node.outputs))))
    rows += [("output", "", "", _value(v)) for v in graph.outputs]
    head = "".join(f"<th style='text-align:left'>{h}</th>" for h in ("node", "operation", "operands", "results"))
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    title = f"<p><b>{_safe(graph.name)}</b>: {len(nodes)} nodes</p>"
    picture = _picture(nodes) if 0 < len(nodes) <= DRAWN else ""
    return f"{title}{picture}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str) -> str:
    return f"<td style='text-align:left'>{_safe(text)}</td>"


def _safe(text: str) -> str:
    return html.escape(_readable(text.replace("\n", " ")))


def _picture(nodes: Sequence[Node]) -> str:
    """Nodes in rows, each below all that it needs, with lines between them."""
    rows: dict[Node, int] = {}
    for node in nodes:
        before = [rows[v.producer] for v in node.operands if v.producer in rows]
        rows[node] = max(before, default=-1) + 1
    placed: dict[Node, tuple[int, int]] = {}
    filled: dict[int, int] = {}
    for node, row in rows.items():
        column = filled.get(row, 0)
        filled[row] = column + 1
        placed[node] = (column * (WIDTH + GAP) + 2, row * (HEIGHT + GAP) + 2)
    parts: list[str] = []
    for node, (x, y) in placed.items():
        for value in node.operands:
            if value.producer in placed:
                a, b = placed[value.producer]
                ends = f"x1='{a + WIDTH // 2}' y1='{b + HEIGHT}' x2='{x + WIDTH // 2}' y2='{y}'"
                parts.append(f"<line {ends} stroke='#888'/>")
    for node, (x, y) in placed.items():
        label = _safe(node.op.name if len(node.op.name) < 20 else f"{node.op.name[:18]}…")
        title = f"<title>{_safe(_line(node).strip())}</title>"
        box = f"<rect x='{x}' y='{y}' width='{WIDTH}' height='{HEIGHT}' rx='4' fill='#eef2fb' stroke='#5b7bd5'/>"
        place = f"x='{x + WIDTH // 2}' y='{y + 17}' text-anchor='middle' font-size='12' font-family='sans-serif'"
        parts.append(f"<g>{title}{box}<text {place} fill='#222'>{label}</text></g>")
    width = max(filled.values()) * (WIDTH + GAP)
    height = (max(filled) + 1) * (HEIGHT + GAP)
    size = f"width='{width}' height='{height}' viewBox='0 0 {width} {height}'"
    return f"<svg xmlns='http://www.w3.org/2000/svg' {size}>{''.join(parts)}</svg>"
