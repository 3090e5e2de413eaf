"""A graph as boxes and lines: operations, inputs and outputs, without constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from irc.ir.pictures.placement import place

if TYPE_CHECKING:
    from irc.ir.graph import Graph, Node, Value
from irc.ir.graph_text import node_line

CHARACTER, MARGIN, NARROWEST, WIDEST = 7.2, 20, 60, 260
"""Units of a character of a label, and around it; the narrowest and widest box."""
LAYER = 64
"""Units from the top of one layer of boxes to that of the next."""


@dataclass(frozen=True)
class Box:
    """label: the operation, or "input"; name: of node or value; text: a line that says all; layers: of the model."""

    label: str
    name: str
    text: str = ""
    layers: tuple[str, ...] = ()

    @property
    def width(self) -> float:
        """Units that the label and the name need, up to a limit."""
        longest = max(len(self.label), len(shortened(self.name)))
        return min(max(longest * CHARACTER + MARGIN, NARROWEST), WIDEST)


@dataclass(frozen=True)
class Line:
    """From one box to another, with the type of what flows there; bends: x in each layer between."""

    start: int
    end: int
    label: str
    bends: tuple[float, ...] = ()


@dataclass
class Picture:
    """Boxes with the middle of each (x) and its layer, and lines."""

    boxes: list[Box] = field(default_factory=list[Box])
    lines: list[Line] = field(default_factory=list[Line])
    x: list[float] = field(default_factory=list[float])
    layer: list[int] = field(default_factory=list[int])


def shortened(name: str, most: int = 32) -> str:
    """Keep the end of a name that is too long for a box."""
    return name if len(name) <= most else f"…{name[1 - most :]}"


def placed(boxes: list[Box], lines: Iterable[tuple[int, int, str]]) -> Picture:
    """Make a picture of boxes in an order in which lines lead forward."""
    found = dict.fromkeys(lines)
    inputs = [k for k, box in enumerate(boxes) if box.label == "input"]
    result = place([b.width for b in boxes], [(a, b) for a, b, _ in found], inputs)
    drawn = [Line(a, b, label, tuple(bends)) for (a, b, label), bends in zip(found, result.bends, strict=True)]
    return Picture(boxes, drawn, result.x, result.layer)


def operation_of(node: Node) -> str:
    """Name the operation of a node."""
    return node.op.name


def of_graph(
    graph: Graph, label: Callable[[Node], str] = operation_of, text: Callable[[Node], str] = node_line
) -> Picture:
    """Make the picture of a graph; the nodes of regions stand among the others, above the node that runs them."""
    boxes: list[Box] = []
    lines: list[tuple[int, int, str]] = []
    made: dict[Value, int] = {}

    def enter(inner: Graph, title: str) -> list[int]:
        for value in inner.inputs:
            made[value] = len(boxes)
            boxes.append(Box(f"input{title}", value.name, f"{value.name}: {value.type}", value.names))
        for node in inner.nodes:
            add(node, title)
        ends: list[int] = []
        for value in inner.outputs:
            ends.append(len(boxes))
            boxes.append(Box(f"output{title}", value.name, f"{value.name}: {value.type}"))
            join(value, ends[-1])
        return ends

    def join(value: Value, box: int) -> None:
        if value in made:
            lines.append((made[value], box, str(value.type or "")))

    def add(node: Node, title: str) -> None:
        ends = [end for region in node.op.regions for end in enter(region, f" of {node.op.name}")]
        box = len(boxes)
        boxes.append(Box(label(node), node.name, text(node), node.layers or ()))
        for value in node.operands:
            join(value, box)
        lines.extend((end, box, "") for end in ends)
        made.update(dict.fromkeys(node.outputs, box))

    enter(graph, "")
    return placed(boxes, lines)
