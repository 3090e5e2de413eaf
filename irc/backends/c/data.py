"""Constant data of an artefact: weights.bin, or arrays in the C file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from irc.backends.c.expr import constant
from irc.backends.c.text import CName
from irc.backends.c.types import is_narrow, is_sub_byte, storage
from irc.ir.types import DType, dtype

Array = np.ndarray[Any, Any]
ALIGNMENT = 64
ELEMENTS = 8
"""The same where there are no vectors: of any element."""
_UNSIGNED = {1: np.uint8, 2: np.uint16}


class Weights:
    """The distinct arrays of a program, each once, aligned to 64 bytes, or fewer where there are no vectors."""

    def __init__(self, prefix: CName, embedded: bool, alignment: int = ALIGNMENT) -> None:
        self.alignment = alignment
        self.prefix, self.embedded = prefix, embedded
        self.size = 0
        self._chunks: list[tuple[Array, DType]] = []
        self._alike: dict[tuple[str, int, bytes], list[int]] = {}
        self._known: dict[tuple[int, str], tuple[Array, int]] = {}
        self._offsets: list[int] = []

    def pointer(self, array: Array, kind: DType) -> str:
        """Give data a place. Returns a C expression for its address."""
        k = self._add(array, kind)
        if self.embedded:
            return f"{self.prefix}_data{k}"
        return f"ctx->weights + {self._offsets[k]}" if self._offsets[k] else "ctx->weights"

    def _add(self, array: Array, kind: DType) -> int:
        """Add data to the chunk with equal bytes (when embedded: of equal type), or to a new one.

        Returns its number.
        """
        given = (id(array), kind.name)
        if given not in self._known:
            self._known[given] = (array, self._find(memory_form(array, kind), kind))  # kept alive: its id stays unique
        return self._known[given][1]

    def _find(self, array: Array, kind: DType) -> int:
        data = array.view(np.uint8)
        sample = data[:64].tobytes() + data[-64:].tobytes()
        alike = self._alike.setdefault((storage(kind) if self.embedded else "", array.nbytes, sample), [])
        for k in alike:
            if np.array_equal(self._chunks[k][0].view(np.uint8), data):
                return k
        alike.append(len(self._chunks))
        self._chunks.append((array, kind))
        self._offsets.append(self.size)
        self.size += -(-max(array.nbytes, 1) // self.alignment) * self.alignment
        return alike[-1]

    def pieces(self) -> list[bytes | memoryview]:
        """Return the contents of weights.bin, without a copy of the data."""
        found: list[bytes | memoryview] = []
        for array, _ in self._chunks:
            found += [array.view(np.uint8).data, bytes(-max(array.nbytes, 1) % self.alignment + (not array.nbytes))]
        return found

    def definitions(self) -> str:
        """Print the data as static arrays."""
        parts: list[str] = []
        for k, (array, kind) in enumerate(self._chunks):
            c = storage(kind)
            rows = "\n".join(_rows(list(_literals(array))))
            name = f"{self.prefix}_data{k}[{max(array.size, 1)}]"
            parts.append(f"_Alignas({self.alignment}) static const {c} {name} = {{\n{rows}\n}};\n")
        return "\n".join(parts)


def memory_form(array: Array, kind: DType) -> Array:
    """Convert an array to its form in C memory: whole elements, narrow floats and sub-byte integers as bit patterns."""
    if array.dtype != kind.numpy:
        raise ValueError(f"constant of {kind} holds {array.dtype}")
    array = np.ascontiguousarray(array).reshape(-1)
    narrow = is_narrow(kind) or is_sub_byte(kind)
    return array.view(_UNSIGNED[array.dtype.itemsize]) if narrow else array


def _literals(array: Array) -> Iterable[str]:
    if not array.size:
        return ("0",)
    if array.dtype.kind == "f":
        kind = dtype("f64" if array.dtype.itemsize == 8 else "f32")
        return (constant(x, kind)[0] for x in array)
    if array.dtype.kind == "b":
        return map(str, array.view(np.uint8).tolist())
    kind = dtype(f"{array.dtype.kind}{8 * array.dtype.itemsize}")
    return (constant(x, kind)[0] for x in array.tolist())


def _rows(items: list[str], width: int = 112) -> Iterable[str]:
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > width:
            yield line
            line = "   "
        line += f" {item},"
    yield line
