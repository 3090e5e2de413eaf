"""What `irc compare --layers` says: the first tensor out of tolerance and the layers that compute it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from irc.cli import console
from irc.diagnostics.terminal import TerminalText

if TYPE_CHECKING:
    from irc.comparison.layers import Found, Verdict
    from irc.comparison.matching import Tensor
    from irc.comparison.side import Side

OPERANDS = 4
"""Operands that a line names."""


def said_of(found: Found, a: Side, b: Side) -> dict[str, Any]:
    """The facts by name, for JSON and `text`; None stands for what no number says."""
    counts = {"matched": found.matched, "compared": found.seen, "runs": found.runs}
    counts |= {"outputs_agree": found.outputs_agree}
    if found.first is None or found.verdict is None:
        return counts | {"first": None}
    names = {"name": found.first.a.name, "operands_that_agree": list(found.operands)}
    sides = {"a": _layer(found.first.a, a), "b": _layer(found.first.b, b)}
    return counts | {"first": names | _figures(found.verdict) | sides}


def _figures(verdict: Verdict) -> dict[str, Any]:
    apart = verdict.distance
    return {
        "type": verdict.type,
        "reason": verdict.reason,
        "tolerance": verdict.allowed,
        "relative": _finite(apart.relative),
        "absolute": _finite(apart.absolute),
        "at": list(apart.at),
        "ulp": apart.ulp,
        "cosine": apart.cosine,
        "different": apart.different,
        "elements": apart.elements,
    }


def _finite(value: float) -> float | None:
    return value if value != float("inf") else None


def _layer(tensor: Tensor, side: Side) -> dict[str, str]:
    layer = tensor.layer
    place = tensor.value.loc if layer is None else layer.loc
    said = {"tensor": tensor.name, "type": "input", "layer": tensor.name}
    if layer is not None:
        said |= {"type": layer.type, "layer": layer.name}
    return said | {"file": place.file or side.file, "where": place.where}


def text(said: dict[str, Any], names: list[str]) -> TerminalText:
    """The same for people."""
    lines = [f"A: {names[0]}", f"B: {names[1]}"]
    if said["random_inputs"]:
        lines.append(f"random inputs: {', '.join(said['random_inputs'])}")
    looked = f"compared {said['compared']} of {console.count(said['matched'], 'matched tensor')}"
    lines.append(f"{looked} in {console.count(said['runs'], 'run')} of each")
    first = said["first"]
    if first is None:
        return TerminalText.lines([*lines, "same       outputs and samples of what leads to them agree"])
    lines.append(f"DIFFERENT  {first['name']}  {first['type']}: the first tensor out of tolerance")
    lines.append(f"  {first['reason'] or _measured(first)}")
    for side in ("a", "b"):
        layer = first[side]
        lines.append(f'  {side.upper()}: {layer["type"]} "{layer["layer"]}" ({layer["file"]}: {layer["where"]})')
    agreeing = first["operands_that_agree"]
    if agreeing:
        more = f" and {len(agreeing) - OPERANDS} more" if len(agreeing) > OPERANDS else ""
        lines.append(f"  what it is computed from agrees: {', '.join(agreeing[:OPERANDS])}{more}")
    if said["outputs_agree"]:
        lines.append("  the outputs agree all the same")
    return TerminalText.lines(lines)


def _measured(first: dict[str, Any]) -> str:
    parts = [f"relative {_number(first['relative'])} of {first['tolerance']:g} allowed"]
    parts.append(f"absolute {_number(first['absolute'])} at [{','.join(map(str, first['at']))}]")
    if first["ulp"] is not None:
        parts.append(f"{first['ulp']:.0f} ULP there")
    if first["cosine"] is not None:
        parts.append(f"cosine {first['cosine']:.6f}")
    return ", ".join([*parts, f"{first['different']} of {first['elements']} elements differ"])


def _number(value: float | None) -> str:
    return "infinite" if value is None else f"{value:.3g}"
