"""Memory planning: offsets of the arena's buffers and the arena's size, as expressions of the sizes.

Steps run in order, so a buffer lives from the first step that touches it to the last.  Buffers whose
lives do not overlap share memory.  Static buffers are packed first (largest first, each at the lowest gap that
fits); symbolic ones follow in slots, shared where one size is certainly not larger than the other.  A size that the
run computes counts with its upper bound.  What a kernel computes from an operand that nobody reads later stands in
that operand's place, if the kernel can do so: then it meets one buffer in the caches instead of two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from irc.expr import Expr, index
from irc.ir.dim import Dim
from irc.loops.ir import Branch, Buffer, KernelCall, Program, Repeat, Step, all_steps, touched_by

ALIGNMENT = 64


@dataclass
class MemoryPlan:
    """Bytes from the start of the arena for every arena root buffer, and the arena's bytes."""

    offsets: dict[Buffer, Dim] = field(default_factory=dict[Buffer, Dim])
    size: Dim = field(default_factory=lambda: Dim.of(0))


@dataclass
class Life:
    """The places of the first and the last step that touches a buffer."""

    first: int
    last: int

    def overlaps(self, other: Life) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass
class Slot:
    """Memory that symbolic buffers use one after the other."""

    size: Dim
    lives: list[Life]
    buffers: list[Buffer]


def aligned(size: Dim) -> Dim:
    """Round up to the alignment."""
    return size if size.exact_div(ALIGNMENT) is not None else size.ceildiv(ALIGNMENT) * ALIGNMENT


def lives(program: Program) -> dict[Buffer, Life]:
    """Determine the life of every arena root buffer.

    What a loop finds in memory, or leaves there for its next run, lives as long as the loop.
    """
    found: dict[Buffer, Life] = {}
    end = _note(program.steps, 0, found)
    for buffer in [b for b in found if b.kept]:
        _touch(buffer, end, found)
    return found


def _note(steps: Sequence[Step], place: int, found: dict[Buffer, Life]) -> int:
    """Note the lives of what steps touch, the first of which is at this place.  Returns the place behind them."""
    for step in steps:
        first = place
        for buffer in touched_by(step):
            _touch(buffer, place, found)
        place += 1
        if isinstance(step, Branch):
            place = _note(step.otherwise.steps, _note(step.then.steps, place, found), found)
        elif isinstance(step, Repeat):
            place = _note(step.body.steps, place, found)
            inside = {b.root for s in all_steps(step.body.steps) for b in touched_by(s)}
            lasting = [b for b in inside if b in found and found[b].first < first]
            for buffer in (*step.buffers, *lasting):
                _touch(buffer, first, found)
                _touch(buffer, place, found)
            place += 1
    return place


def _touch(buffer: Buffer, place: int, found: dict[Buffer, Life]) -> None:
    root = buffer.root
    if root.where == "arena":
        life = found.setdefault(root, Life(place, place))
        life.last = max(life.last, place)


def plan(program: Program) -> MemoryPlan:
    """Place all arena buffers at offsets that are multiples of 64."""
    alive = lives(program)
    places = _places_taken(program, alive)
    for heir, buffer in places.items():
        life = alive.pop(heir)
        alive[buffer] = Life(min(alive[buffer].first, life.first), max(alive[buffer].last, life.last))
    found = MemoryPlan()
    bytes = {b: program.bytes(b) for b in alive}
    static = {b: life for b, life in alive.items() if bytes[b].is_const}
    found.size = Dim.of(_pack(static, bytes, found.offsets))
    for slot in _slots({b: life for b, life in alive.items() if b not in static}, bytes):
        for buffer in slot.buffers:
            found.offsets[buffer] = found.size
        found.size = found.size + aligned(slot.size)
    found.offsets |= {heir: found.offsets[buffer] for heir, buffer in places.items()}
    return found


def _places_taken(program: Program, alive: Mapping[Buffer, Life]) -> dict[Buffer, Buffer]:
    """Find the results that stand where an operand of their kernel did, and the first buffer there."""
    found: dict[Buffer, Buffer] = {}
    for function in program.functions:
        match function.body:
            case [KernelCall(writes=(written,)) as call] if written in alive:
                operand = next((b for b in _replaced(call) if _ends_with(b, written, alive, program)), None)
                if operand is not None:
                    found[written] = found.get(operand, operand)
            case _:
                pass
    return found


def _replaced(call: KernelCall) -> Iterator[Buffer]:
    """Yield the buffers of the operands in whose place a kernel can put its result, from the first element on."""
    roots = [b.root for b in call.reads]
    replaced: frozenset[int] = call.kernel.overwrites(dict(zip(call.kernel.sizes, call.sizes, strict=True)))
    for k in sorted(replaced):
        starts: list[Expr] = [call.offsets[k], call.offsets[-1]] if call.offsets else []
        if roots.count(roots[k]) == 1 and all(start == index(0) for start in starts):
            yield roots[k]


def _ends_with(operand: Buffer, written: Buffer, alive: Mapping[Buffer, Life], program: Program) -> bool:
    """Tell whether the life of a buffer ends with the step with which that of another one of its size begins."""
    if operand not in alive or alive[operand].last != alive[written].first:
        return False
    return program.bytes(operand) == program.bytes(written)


def _pack(buffers: dict[Buffer, Life], bytes: dict[Buffer, Dim], offsets: dict[Buffer, Dim]) -> int:
    """Give each buffer the lowest offset that is free during its life, largest buffers first.

    Returns the total size.
    """
    placed: list[tuple[int, int, Life]] = []
    total = 0
    for buffer, life in sorted(buffers.items(), key=lambda item: -int(bytes[item[0]])):
        size = int(aligned(bytes[buffer]))
        start = 0
        for begin, end, _ in sorted((p for p in placed if p[2].overlaps(life)), key=lambda p: p[0]):
            if start + size <= begin:
                break
            start = max(start, end)
        placed.append((start, start + size, life))
        offsets[buffer] = Dim.of(start)
        total = max(total, start + size)
    return total


def _slots(buffers: dict[Buffer, Life], bytes: dict[Buffer, Dim]) -> list[Slot]:
    slots: list[Slot] = []
    for buffer, life in buffers.items():
        free = [s for s in slots if not any(life.overlaps(x) for x in s.lives)]
        slot = next((s for s in free if s.size == bytes[buffer]), None)
        if slot is None:
            slot = next((s for s in free if _larger(s.size, bytes[buffer]) is not None), None)
        if slot is None:
            slots.append(Slot(bytes[buffer], [life], [buffer]))
            continue
        slot.size = _larger(slot.size, bytes[buffer]) or slot.size
        slot.lives.append(life)
        slot.buffers.append(buffer)
    return slots


def _larger(a: Dim, b: Dim) -> Dim | None:
    """Return the larger of two sizes; None if that is not certain."""
    order = a.at_most(b)
    return b if order else a if order is False or b.at_most(a) else None
