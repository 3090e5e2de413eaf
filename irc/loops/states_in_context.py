"""Variables of a program: inputs and outputs that stay in its context from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from irc.diagnostics import require
from irc.diagnostics.codes import runtime_io as codes
from irc.ir.graph import Value
from irc.loops.ir import Program


def keep(program: Program, states: Sequence[tuple[Value, Value, Any]]) -> None:
    """Make the last inputs and outputs, which stand for variables, state of the context.  Raises Problem."""
    if not states:
        return
    count = len(states)
    entries, results = program.inputs[-count:], program.outputs[-count:]
    del program.inputs[-count:], program.outputs[-count:]
    known = {s.name for b in program.inputs for d in b.shape for s in d.symbols()}
    for (value, _, initial), entry, result in zip(states, entries, results, strict=True):
        varying = next((s.name for d in entry.shape for s in d.symbols() if s.name not in known), None)
        require(varying is None, codes.VARYING_STATE, variable=value.name, shape=value.type, size=varying)
        entry.where = result.where = "state"
        program.states.append((value.name, entry, result, initial))
