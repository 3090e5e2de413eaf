"""Sequences, optional values and maps of a call as the tensors that stand for them in C, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from irc.arrays import Array
from irc.diagnostics.codes import runtime_io as codes
from irc.runtime.element_types import numpy_dtype
from irc.runtime.errors import InputValueError, failure
from irc.runtime.ports import Port

Structure = list[Any]
"""["tensor", sizes], ["sequence", rank], ["optional", Structure], ["map", keys' type, values' type], or ["maps"]."""


@dataclass(frozen=True)
class Packing:
    """The inputs and outputs of a model, some of which several tensors of the artefact stand for."""

    inputs: list[Port]
    outputs: list[Port]
    given: list[Structure]
    made: list[Structure]

    @staticmethod
    def of(rows: dict[str, Any] | None) -> Packing | None:
        """Read the manifest's `packed`, None if there is nothing to pack."""
        if rows is None:
            return None
        parts = [[Port.of(row) for row in rows[part]] for part in ("inputs", "outputs")]
        kinds = [[_checked(row["structure"]) for row in rows[part]] for part in ("inputs", "outputs")]
        return Packing(parts[0], parts[1], kinds[0], kinds[1])

    def pack(self, values: Sequence[Any]) -> list[Array]:
        """Make the artefact's inputs of a call's.  Raises ValueError for a sequence whose elements do not fit."""
        rows = zip(self.inputs, self.given, values, strict=True)
        return [array for port, kind, value in rows for array in _packed(port, kind, value)]

    def unpack(self, arrays: Sequence[Array]) -> list[Any]:
        """Make the results of a call of the artefact's outputs."""
        left = iter(arrays)
        return [_unpacked(kind, left) for kind in self.made]


def _checked(kind: Structure) -> Structure:
    """Check what a manifest says.  Raises ValueError."""
    if kind[0] == "optional":
        return [kind[0], _checked(kind[1])]
    if kind[0] in ("map", "maps"):
        if len(kind) != (3 if kind[0] == "map" else 1):
            raise ValueError(f"{kind} is no structure")
        return [kind[0], *map(numpy_dtype, kind[1:])]
    sizes = [kind[1]] if kind[0] == "sequence" else kind[1]
    if kind[0] not in ("tensor", "sequence") or not all(type(n) is int and n >= 0 for n in sizes):
        raise ValueError(f"{kind} is no structure")
    return kind


def _packed(port: Port, kind: Structure, value: Any) -> list[Array]:
    if kind[0] == "optional":
        inner = _packed(port, kind[1], _absent(port, kind[1]) if value is None else value)
        return [np.array(value is not None), *inner]
    if kind[0] == "tensor":
        return [value]
    if kind[0] == "map":
        keys = sorted(value)
        return [np.array(keys, kind[1]), np.array([value[k] for k in keys], kind[2])]
    rank, elements = kind[1], [np.asarray(x) for x in value]
    for x in elements:
        if x.ndim != rank:
            given, wanted = str(list(x.shape)), f"{rank} axes for each element"
            raise failure(codes.INPUT_SHAPE, InputValueError, role="input", name=port.name, wanted=wanted, given=given)
    shapes = np.array([x.shape for x in elements], np.int64).reshape(len(elements), rank)
    items = [x.reshape(-1) for x in elements]
    return [shapes, np.concatenate(items) if items else np.empty(0, port.dtype)]


def _absent(port: Port, kind: Structure) -> Any:
    """Make what stands in the place of a value that is absent."""
    if kind[0] == "optional":
        return None
    return [] if kind[0] == "sequence" else np.zeros(kind[1], port.dtype)


def _unpacked(kind: Structure, left: Iterator[Array]) -> Any:
    if kind[0] == "optional":
        present = bool(next(left))
        found = _unpacked(kind[1], left)
        return found if present else None
    if kind[0] == "tensor":
        return next(left)
    if kind[0] in ("map", "maps"):
        keys, values = next(left).tolist(), next(left).tolist()
        if kind[0] == "map":
            return dict(zip(keys, values, strict=True))
        return [dict(zip(keys, row, strict=True)) for row in values]
    shapes, items = next(left), next(left)
    ends = np.cumsum(np.prod(shapes, axis=1, dtype=np.int64))
    pieces = np.split(items[: int(ends[-1]) if len(ends) else 0], ends[:-1]) if len(ends) else []
    return [piece.reshape(shape).copy() for piece, shape in zip(pieces, shapes.tolist(), strict=True)]
