"""What a program keeps in memory and when: the arena by tensor, and a picture of it over time."""

from __future__ import annotations

from html import escape
from typing import Any

from irc.ir.dim import Dim
from irc.loops.ir import Function, Program, all_steps
from irc.loops.memory import MemoryPlan, lives

WIDTH, HEIGHT, MARGIN = 960, 480, 64
"""Of the picture, in pixels."""


def _number(size: Dim) -> int | str:
    return int(size) if size.is_const else str(size)


def arena(program: Program, plan: MemoryPlan) -> dict[str, Any]:
    """Describe the arena: its bytes; tensors with their place and the first and last step that they live at; steps
    with their layers and the bytes of the weights that they read, and the bytes alive at each, where sizes are known.
    """
    found = lives(program)
    tensors = [
        {
            "name": b.name,
            "bytes": _number(program.bytes(b)),
            "at": _number(offset),
            "first": found[b].first,
            "last": found[b].last,
        }
        for b, offset in plan.offsets.items()
    ]
    steps = [
        {"function": f.name, "layers": list(f.origin), "weights_bytes": _weights(program, f)}
        for f in all_steps(program.steps)
        if isinstance(f, Function)
    ]
    return {"bytes": _number(plan.size), "tensors": tensors, "steps": steps}


def _weights(program: Program, function: Function) -> int:
    """Add up the constants that a function reads."""
    read = {b if b.base is None else b.base for b in function.reads}
    return sum(int(program.bytes(b)) for b in read if b.where == "constant")


def picture(arena: dict[str, Any], title: str) -> str:
    """Draw the arena over time as SVG: each tensor is a box from its first to its last step, at its place.

    ValueError where sizes are symbolic.
    """
    tensors = arena["tensors"]
    if not isinstance(arena["bytes"], int):
        raise ValueError("the arena's size depends on sizes of inputs")
    ends = [t["last"] + 1 for t in tensors]
    across, down = WIDTH / max([1, *ends]), HEIGHT / max(arena["bytes"], 1)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 2 * MARGIN}" height="{HEIGHT + 2 * MARGIN}"'
    lines = [
        f'{head} font-family="sans-serif" font-size="11">',
        f'<text x="{MARGIN}" y="32" font-size="14">{escape(title)}: arena of {arena["bytes"]:,} bytes</text>',
        f'<rect x="{MARGIN}" y="{MARGIN}" width="{WIDTH}" height="{HEIGHT}" fill="#f4f4f4" stroke="#888"/>',
    ]
    for k, t in enumerate(tensors):
        x, y = MARGIN + t["first"] * across, MARGIN + HEIGHT - (t["at"] + t["bytes"]) * down
        w, h = (t["last"] - t["first"] + 1) * across, t["bytes"] * down
        said = f"{t['name']}: {t['bytes']:,} bytes at {t['at']:,}, steps {t['first']} to {t['last']}"
        lines.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="hsl({k * 47 % 360},55%,72%)"'
            f' stroke="#555" aria-label="{escape(said)}"><title>{escape(said)}</title></rect>'
        )
        if w > 40 and h > 12:
            text = escape(t["name"][: max(3, int(w / 7))])
            lines.append(f'<text x="{x + 3:.1f}" y="{y + min(h, 14) - 2:.1f}" pointer-events="none">{text}</text>')
    lines.append(f'<text x="{MARGIN}" y="{MARGIN + HEIGHT + 20}">step 0 (the run begins)</text>')
    last = max([0, *ends]) - 1
    lines.append(f'<text x="{MARGIN + WIDTH}" y="{MARGIN + HEIGHT + 20}" text-anchor="end">step {last}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"
