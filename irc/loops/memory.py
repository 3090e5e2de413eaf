"""Where the arena's buffers lie: offsets and the arena's size, as expressions of the sizes."""

from __future__ import annotations

from dataclasses import dataclass, field

from irc.ir.dim import Dim
from irc.loops.ir import Buffer, Program

ALIGNMENT = 64


@dataclass
class MemoryPlan:
    """Bytes from the start of the arena for every arena root buffer, and the arena's bytes."""

    offsets: dict[Buffer, Dim] = field(default_factory=dict[Buffer, Dim])
    size: Dim = field(default_factory=lambda: Dim.of(0))


def aligned(size: Dim) -> Dim:
    """Rounded up to the alignment."""
    return size if size.exact_div(ALIGNMENT) is not None else size.ceildiv(ALIGNMENT) * ALIGNMENT


def plan(program: Program) -> MemoryPlan:
    """One buffer after the other, nothing shared."""
    found = MemoryPlan()
    for buffer in program.buffers():
        if buffer.where == "arena":
            found.offsets[buffer] = found.size
            found.size = found.size + aligned(buffer.bytes)
    return found
