"""Checks of manifests: the type of every field that is read when an artefact is opened or run.

A manifest comes with code and is trusted like it, but files get damaged, copied in halves and written by other tools:
what is not as irc writes it is refused as such, before anything is done with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

Check = Callable[[Any], bool]

LONGEST = 1 << 20
"""Characters of a text."""
MOST = 1_000_000
"""Entries of a list."""
LARGEST = 1 << 62
RANK = 64
KINDS = ("tensor", "sequence", "optional", "map")


def text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST


def natural(value: Any) -> bool:
    """Tell whether a value is a number of elements or bytes."""
    return type(value) is int and 0 <= value <= LARGEST


def number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= LARGEST


def size(value: Any) -> bool:
    """Tell whether a value is a size or an expression, which `irc.runtime.ports.size_code` reads."""
    return natural(value) or text(value)


def among(*values: str) -> Check:
    return lambda value: isinstance(value, str) and value in values


def optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def several(check: Check, most: int = MOST) -> Check:
    """Check a list of at most `most` entries."""

    def are(value: Any) -> bool:
        return isinstance(value, list) and len(cast("list[Any]", value)) <= most and all(map(check, value))  # pyright: ignore

    return are


def row(required: dict[str, Check], may: dict[str, Check] | None = None) -> Check:
    """Check a table that has the `required` fields and may have the others; fields beyond these are not read."""

    def fits(value: Any) -> bool:
        return isinstance(value, dict) and not _wrong(cast("dict[str, Any]", value), required, may or {})

    return fits


def _wrong(value: dict[str, Any], required: dict[str, Check], may: dict[str, Check]) -> list[str]:
    """List the fields that are missing or of another type."""
    missing = [name for name in required if name not in value]
    return missing + [n for n, check in (required | may).items() if n in value and not check(value[n])]


_SIZES = optional(several(size, RANK))
_PORT = row(
    {"name": text, "dtype": text, "type": text, "kind": among(*KINDS)},
    {"shape": _SIZES, "sizes": _SIZES, "max_sizes": _SIZES, "names": several(text), "layer": text},
)
_KERNEL = row({"symbol": text, "flops": optional(size), "executed": number})
_STEP = row(
    {"function": text, "layers": several(text), "kernels": several(_KERNEL)},
    {
        **{name: optional(size) for name in ("flops", "read", "written")},
        "operands": several(text),
        "results": several(text),
    },
)
_TENSOR = row({"name": text, "bytes": size, "at": size, "first": natural, "last": natural})
_REQUIRED: dict[str, Check] = {
    "name": text,
    "backend": among("c", "numpy"),
    "inputs": several(_PORT),
    "outputs": several(_PORT),
}
_MAY: dict[str, Check] = {
    "prefix": text,
    "irc": text,
    "library": optional(text),
    "pool": optional(text),
    "weights": text,
    "precision": text,
    "symbols": several(row({"name": text}, {"lo": natural, "hi": optional(natural)})),
    "limits": several(text),
    "states": several(text),
    "arena_bytes": size,
    "stack_bytes": natural,
    "memory": row({"arena": row({"bytes": size, "tensors": several(_TENSOR)})}),
    "profile": several(_STEP),
    "source_sha256": optional(text),
}
_TARGET = row({"name": text, "machine": text, "features": several(text)})


def wrong_fields(manifest: dict[str, Any]) -> list[str]:
    """List the fields that are missing or not as irc writes them."""
    found = _wrong(manifest, _REQUIRED, _MAY)
    if manifest.get("backend") == "c":
        found += _wrong(manifest, {"prefix": text, "target": _TARGET}, {})
    return found
