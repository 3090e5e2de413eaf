"""The little languages inside attributes: numbers, tensor names, shapes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from irc.ir.dim import Dim, Symbol
from irc.ir.types import Shape

U64 = 2**64 - 1
I64 = 2**63 - 1
_INT = re.compile(r"\s*([+-]?[0-9]{1,40})\s*")
_LEADING_INT = re.compile(r"\s*([+-]?[0-9]{1,40})")


def integer(text: str | None) -> int | None:
    """The number a whole string spells, or None."""
    found = _INT.fullmatch(text) if text else None
    return int(found[1]) if found else None


def unsigned(text: str | None, limit: int = U64) -> int | None:
    value = int(text) if text and len(text) < 20 and text.isascii() and text.isdigit() else integer(text)
    return value if value is not None and 0 <= value <= limit else None


def leading_integer(text: str) -> int | None:
    """The number a string starts with, or None."""
    found = _LEADING_INT.match(text)
    return int(found[1]) if found else None


@lru_cache(maxsize=4096)
def fixed(size: int) -> Dim:
    return Dim.of(size)


def split_names(text: str) -> tuple[str, ...]:
    r"""The names of `names=`: comma separated, `\,` is a comma inside a name, other backslashes are literal."""
    if "\\," not in text:
        return tuple(dict.fromkeys(n for n in text.split(",") if n))
    parts = re.split(r"(?<!\\),", text)
    return tuple(dict.fromkeys(p.replace("\\,", ",") for p in parts if p))


def join_names(names: tuple[str, ...]) -> str:
    return ",".join(n.replace(",", "\\,") for n in names)


@dataclass
class ShapeText:
    """A Parameter's shape as parsed; `problem` where it cannot be, `reversed` the ranges that are empty.

    `bounds` holds (lo, hi) per axis, hi None for no bound; None is unknown rank.
    """

    bounds: list[tuple[int, int | None]] | None = None
    problem: str | None = None
    reversed: list[str] = field(default_factory=list[str])


def parse_shape(text: str) -> ShapeText:
    """`2,?,1..5`, `...` (any rank), the empty string (scalar); brackets and spaces are tolerated."""
    body = text.strip()
    if body.startswith("[") and body.endswith("]"):
        body = body[1:-1].strip()
    if body == "...":
        return ShapeText()
    parsed = ShapeText([])
    assert parsed.bounds is not None
    for item in body.split(",") if body else []:
        bounds = _bounds(item.strip())
        if bounds is None:
            parsed.problem = (
                f'"{item.strip()}" is neither a size, nor ?, nor a range' if item.strip() else "an entry is empty"
            )
            return parsed
        lo, hi = bounds
        if hi is not None and hi < lo:
            parsed.reversed.append(item.strip())
            lo, hi = 0, None
        parsed.bounds.append((lo, hi))
    return parsed


def _bounds(item: str) -> tuple[int, int | None] | None:
    if item in ("?", "-1"):
        return 0, None
    if ".." in item:
        low, _, high = item.partition("..")
        lo = unsigned(low, I64) if low.strip() else 0
        hi = unsigned(high, I64) if high.strip() else None
        if lo is None or (hi is None and high.strip()) or not item.strip("."):
            return None
        return lo, hi
    size = unsigned(item, I64)
    return None if size is None else (size, size)


def format_shape(shape: Shape | None, old: bool = False) -> str:
    """A Parameter's shape as OpenVINO writes it: `2,?,1..5`, `...`, or nothing for a scalar.

    old: as releases before 2022.1 read it, which know no bounds: `2,-1,-1`.
    """
    if old and shape is not None:
        return ",".join("-1" if d.const is None else str(d.const) for d in shape)
    return "..." if shape is None else ",".join(map(_format_dim, shape))


def _format_dim(dim: Dim) -> str:
    if dim.const is not None:
        return str(dim.const)
    single = len(dim.terms) == 1 and dim.terms[0][1] == 1 and len(dim.terms[0][0]) == 1
    atom = dim.terms[0][0][0] if single else None
    lo, hi = atom.bounds() if isinstance(atom, Symbol) else dim.bounds()
    low = int(lo) if 0 < lo < float("inf") else 0
    high = None if hi == float("inf") else int(hi)
    if high is None:
        return f"{low}.." if low else "?"
    return f"{low}..{high}" if low else f"..{high}"


def port_dim(dim: Dim, old: bool = False) -> str:
    """A `<dim>`: the size, or -1; releases before 2022.1 take no negative one, infer all sizes and want 0."""
    unknown = "0" if old else "-1"
    return unknown if dim.const is None else str(dim.const)
