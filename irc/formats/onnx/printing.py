"""A node as text, as ONNX's own text form has it: what findings show of a file that has no lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

from irc.diagnostics.finding import Spot
from irc.formats.document import Attr, RawGraph, RawNode, RawTensor

LISTED, LONGEST = 8, 60
"""Elements of a list, and characters of a text, that are shown."""


class Printed:
    """The position of a node: it has no line, but a text."""

    __slots__ = ("node",)

    def __init__(self, node: RawNode) -> None:
        self.node = node

    def __call__(self) -> None:
        return None

    def spot(self, part: str) -> Spot:
        """The node's text; `part` is an attribute, else the operation is meant."""
        return printed(self.node, part)


def printed(node: RawNode, part: str = "") -> Spot:
    """`y = Conv <kernel_shape = [3, 3]> (x, w)`, and where an attribute stands in it."""
    head = ", ".join(v.key for v in node.outputs) + " = " if node.outputs else ""
    title = f"{node.domain}.{node.type}" if node.domain else node.type
    start, width = len(head), len(title)
    text = head + title
    names = [n for n in (part, "axes" if part == "axis" else "") if n in node.attrs]
    if node.attrs:
        text += " <"
        for i, (name, value) in enumerate(node.attrs.items()):
            text += ", " if i else ""
            said = f"{name} = {_value(value)}"
            if names and name == names[0]:
                start, width = len(text), len(said)
            text += said
        text += ">"
    return Spot(None, None, f"{text} ({', '.join(k or '(absent)' for k in node.inputs)})", start, width)


def _value(value: Attr) -> str:
    if isinstance(value, str):
        return json.dumps(value[:LONGEST] + "…" * (len(value) > LONGEST), ensure_ascii=False)
    if isinstance(value, RawTensor):
        return f"{value.dtype}[{','.join(map(str, value.shape))}] {{…}}"
    if isinstance(value, RawGraph):
        return "{…}"
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        items = cast("Sequence[Attr]", value)
        shown = [_value(v) for v in items[:LISTED]] + ["…"] * (len(items) > LISTED)
        return f"[{', '.join(shown)}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
