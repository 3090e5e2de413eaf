"""Overlap of arrays given for outputs with inputs or with each other: the same rules for every backend.

Two outputs that overlap are refused: the one written last would spoil the other.  An input that overlaps an output is
copied before the model runs, as its elements may be read after the output's have been written.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from irc.diagnostics.codes import runtime_io as codes
from irc.runtime.errors import InputValueError, failure
from irc.runtime.ports import Array, Port


def require_apart(ports: Sequence[Port], given: Sequence[Array]) -> None:
    """Check that no two of the arrays for outputs, all C-contiguous, overlap. Raises InputValueError."""
    for (port, a), (other, b) in combinations(zip(ports, given, strict=True), 2):
        if np.may_share_memory(a, b):  # compares where they begin and end
            raise failure(codes.OUTPUTS_OVERLAP, InputValueError, first=port.name, second=other.name)


def apart(inputs: Sequence[Array], outputs: Sequence[Array]) -> list[Array]:
    """Copy the inputs that share memory with an output. Returns all inputs."""
    return [np.array(x, order="C") if any(np.may_share_memory(x, y) for y in outputs) else x for x in inputs]
