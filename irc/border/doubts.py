"""Values whose types may be wrong because of an earlier finding, so that what follows from it is no error of its own.

A node that cannot be read has results of the types that the file declares for them; checking goes on from these.
Whether they are what was meant shows where a later result is inferred as it is declared: doubt ends there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from irc.diagnostics import Code, Diagnostic, Problem
from irc.diagnostics.codes import operation as codes
from irc.formats.document import RawNode, RawValue
from irc.ir.graph import Value
from irc.ir.types import TensorType, Type

OF_OPERANDS = frozenset(
    code.id
    for code in (
        codes.TYPE_NOT_ALLOWED,
        codes.TYPE_MISMATCH,
        codes.REGION_TYPES_DIFFER,
        codes.NOT_A_SEQUENCE,
        codes.NEEDS_CONSTANT,
    )
)
"""Codes, besides those of shapes, of findings that other operands might not have."""


class Doubts:
    """The finding that the type of a value rests on, by value."""

    def __init__(self) -> None:
        self._causes: dict[Value, Diagnostic] = {}

    def cause(self, inputs: Iterable[Value | None]) -> Diagnostic | None:
        """The finding that one of these operands rests on."""
        return next((self._causes[v] for v in inputs if v is not None and v in self._causes), None)

    def operands(self, inputs: Sequence[Value | None], raw: RawNode) -> list[Value | None]:
        """The operands that are in doubt at this node: not those of which its own ports say the same."""
        said = [*raw.input_types, *[None] * (len(inputs) - len(raw.input_types))]
        return [v for v, type in zip(inputs, said, strict=False) if v is not None and not _agree(type, v.type)]

    def mark(self, values: Iterable[Value], cause: Diagnostic) -> None:
        """Doubt these results."""
        for value in values:
            self._causes[value] = cause

    def spread(self, results: Iterable[tuple[RawValue, Value]], cause: Diagnostic) -> None:
        """Doubt results of doubtful operands, except those that are inferred as they are declared."""
        self.mark((value for declared, value in results if not _agree(declared.type, value.type)), cause)


def _agree(said: Type | None, known: Type | None) -> bool:
    """Whether a declaration says the same, and says it of every size."""
    if not isinstance(said, TensorType) or not isinstance(known, TensorType):
        return False
    if said.dtype != known.dtype or said.shape is None or known.shape is None or len(said.shape) != len(known.shape):
        return False
    return all(a.is_const and a.equals(b) for a, b in zip(said.shape, known.shape, strict=True)) or said == known


def follows(found: Diagnostic, cause: Diagnostic) -> Diagnostic:
    """The finding as one that an earlier one may have caused: a warning that says so."""
    where = f"{cause.location.where}: " if cause.location.where else ""
    note = f"may follow from {cause.code} at {where}{cause.message}"
    return replace(found, severity="warning", notes=(*found.notes, note))


def may_follow(problem: Problem) -> bool:
    """Whether other types of operands might not have had this problem."""
    return _of_operands(problem.code) and "attribute" not in problem.facts


def _of_operands(code: Code) -> bool:
    return code.id.startswith("IRC31") or code.id in OF_OPERANDS
