"""What the results of a node probably are that cannot be read: as they would be if one thing of it were otherwise.

Checking goes on from these types where the file declares none, so that one mistake does not hide those behind it.
What is tried: an operand with another size or element type, then without an attribute or with one that is missing,
then an operand of which nothing is known.  Of what was tried with success only what all agree on is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from irc.formats.document import Attr, RawGraph, RawNode
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import TensorType, Type, dynamic
from irc.opdef.codecs import REQUIRED, AsInput
from irc.opdef.forms import Form

Types = tuple[Type | None, ...]
Operands = list[Value | None]
Trial = tuple[RawNode, Operands]
Read = Callable[[RawNode, Operands], Types]
"""The types of a node's results with these operands; none where it cannot be read."""
MISSING: tuple[tuple[Attr, Attr], ...] = ((1, 2), *(([1] * n, [2] * n) for n in (1, 2, 3)))
"""Pairs of values for a missing attribute: what it decides differs between them, and is not taken."""


def presumed(read: Read, raw: RawNode, form: Form, inputs: Operands) -> Types:
    """Find the types that the results of a node probably have; none where nothing can be told."""
    if not inputs or raw.bodies or any(isinstance(a, RawGraph) for a in raw.attrs.values()):
        return ()
    for trials in (_otherwise(raw, inputs), _without(raw, inputs), *_with(raw, form, inputs), _unknown(raw, inputs)):
        found = [types for node, operands in trials if (types := read(node, operands))]
        if found:
            return tuple(_agreed(types) for types in zip(*found, strict=True))
    return ()


def _otherwise(raw: RawNode, inputs: Operands) -> Iterator[Trial]:
    """Operands of another size or element type; not numbers that say which sizes or axes are meant."""
    for i, value in enumerate(inputs):
        if value is None or not isinstance(value.type, TensorType) or value.type.shape is None:
            continue
        type, shape = value.type, value.type.shape
        if value.const is not None and type.dtype.kind != "f" and len(shape) <= 1:
            continue
        for k in range(len(shape)):
            yield raw, _instead(inputs, i, TensorType(type.dtype, (*shape[:k], Dim.fresh(), *shape[k + 1 :])))
        yield raw, _instead(inputs, i, TensorType(dynamic, shape))


def _without(raw: RawNode, inputs: Operands) -> Iterator[Trial]:
    """One attribute left out."""
    for name in raw.attrs:
        yield replace(raw, attrs={k: v for k, v in raw.attrs.items() if k != name}), inputs


def _with(raw: RawNode, form: Form, inputs: Operands) -> Iterator[list[Trial]]:
    """A required attribute with some value."""
    for name, codec in form.attrs.items():
        if not isinstance(codec, AsInput) and codec.default is REQUIRED:
            for pair in MISSING:
                yield [(replace(raw, attrs={**raw.attrs, name: v}), inputs) for v in pair]


def _unknown(raw: RawNode, inputs: Operands) -> Iterator[Trial]:
    """An operand of which nothing is known."""
    return ((raw, _instead(inputs, i, TensorType(dynamic, None))) for i in range(len(inputs)))


def _instead(inputs: Operands, index: int, type: Type) -> Operands:
    value = inputs[index]
    return [*inputs[:index], Value("" if value is None else value.name, type), *inputs[index + 1 :]]


def _agreed(types: Sequence[Type | None]) -> Type | None:
    """What several types have in common; None where that is nothing."""
    first, *others = types
    for other in others:
        if not isinstance(first, TensorType) or not isinstance(other, TensorType):
            return first if all(t == first for t in types) else None
        dtype = first.dtype if first.dtype == other.dtype else dynamic
        if first.shape is None or other.shape is None or len(first.shape) != len(other.shape):
            first = TensorType(dtype, None)
        else:
            same = (a if a.equals(b) else Dim.fresh() for a, b in zip(first.shape, other.shape, strict=True))
            first = TensorType(dtype, tuple(same))
    return first
