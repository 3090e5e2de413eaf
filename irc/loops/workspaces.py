"""Memory of the arena for what threads need for themselves, so that little of it is on their stacks.

Kernels say how much a part of a call needs (`Kernel.own_bytes`).  Of the local buffers of loops, the largest are moved
here until the rest fits a small frame.
"""

from __future__ import annotations

from collections.abc import Iterator

from irc.expr import dim_of
from irc.ir.dim import Dim
from irc.ir.types import u8
from irc.kernels.core.choices import current
from irc.kernels.core.workspace import FRAME, MOST, UNKNOWN, aligned
from irc.loops.ir import Alloc, Buffer, For, Function, KernelCall, Own, Program, Stmt, bodies

LOCALS = FRAME // 2
"""Bytes of local buffers that a function may have on the stack, which has saved registers and spilled values too."""
ALONE = 50_000
"""Products below which a call of a kernel is not divided among threads."""


def allot(program: Program, threads: bool = True) -> None:
    """Give each function of a program the memory that its kernels and local buffers need; once for a program.

    threads: whether calls may be divided among threads, each of which needs its own.

    All pieces are as large as the largest, so that a thread finds its own at the same place in every function and in
    its caches: of pieces of other sizes, many lines would be in the caches of threads that had others there before.
    """
    most = current().parts if threads else 1
    needs = [_Needs(function, most) for function in program.functions]
    largest = max((bytes for n in needs for bytes, owners in n.shares() if owners > 1), default=0)
    for need in needs:
        need.allot(largest)


class _Needs:
    """What the calls of a function need, and the local buffers that are moved."""

    def __init__(self, function: Function, most: int) -> None:
        self.function = function
        within = list(_within(function.body))
        calls = [s for s, _ in within if isinstance(s, KernelCall) and s.kernel.has_workspaces]
        self.calls = [(call, *_of_call(call, most)) for call in calls if not call.alone]
        moved = _large([(s, extent) for s, extent in within if isinstance(s, Alloc)])
        self.moved = [s for s, _ in moved]
        self.inner = [call for call in calls if call.alone]  # one after another, behind the local buffers
        self.bytes = sum(aligned(int(s.buffer.bytes)) for s in self.moved)
        self.bytes += max((_of_call(call, 1)[0] for call in self.inner), default=0)
        extents = [n for _, n in moved] + [n for s, n in within if isinstance(s, KernelCall) and s.alone]
        self.owners = max((min(most, extent) for extent in extents), default=0)

    def shares(self) -> Iterator[tuple[int, int]]:
        """Yield the bytes of a piece, and how many there are."""
        yield from ((bytes, owners) for _, bytes, owners in self.calls)
        if self.bytes:
            yield self.bytes, self.owners

    def allot(self, largest: int) -> None:
        """Make the buffers: pieces that several threads may use as large as the program's largest."""
        for call, bytes, owners in self.calls:
            bytes = max(bytes, largest) if owners > 1 else bytes
            call.own = Own(_buffer(self.function, bytes * owners), bytes, owners)
        if not self.bytes:
            return
        bytes = max(self.bytes, largest) if self.owners > 1 else self.bytes
        buffer, at = _buffer(self.function, bytes * self.owners), 0
        for alloc in self.moved:
            alloc.own = Own(buffer, bytes, self.owners, at)
            at += aligned(int(alloc.buffer.bytes))
        for call in self.inner:
            call.own = Own(buffer, bytes, self.owners, at)


def _buffer(function: Function, bytes: int) -> Buffer:
    made = Buffer(f"own{len(function.scratch)}", u8, (Dim.of(bytes),), "arena", origin=function.origin)
    function.scratch = (*function.scratch, made)
    return made


def _of_call(call: KernelCall, most: int) -> tuple[int, int]:
    """Compute the bytes that each part of a call needs, and how many parts may run at the same time."""
    kernel = call.kernel
    sizes = {name: dim_of(e) for name, e in zip(kernel.sizes, call.sizes, strict=True)}
    bytes = kernel.own_bytes({n: UNKNOWN if d is None or not d.is_const else int(d) for n, d in sizes.items()})
    if all(d is not None for d in sizes.values()):
        work = kernel.flops(sizes)
        if work.is_const and int(work) < 2 * ALONE:
            most = 1
    return max(aligned(bytes), 0), most


def _within(stmts: list[Stmt], extent: int = 1) -> Iterator[tuple[Stmt, int]]:
    """Yield statements, with how many threads there may be in them: the iterations of parallel loops around them."""
    for s in stmts:
        yield s, extent
        inner = extent
        if isinstance(s, For) and s.kind == "parallel":
            found = dim_of(s.extent)
            inner = min(MOST, extent * int(found)) if found is not None and found.is_const else MOST
        for body in bodies(s):
            yield from _within(body, max(inner, 1))


def _large(allocs: list[tuple[Alloc, int]]) -> list[tuple[Alloc, int]]:
    """Choose what is moved: the largest, until the rest is at most LOCALS together."""
    left = sum(int(s.buffer.bytes) for s, _ in allocs)
    moved: list[tuple[Alloc, int]] = []
    for alloc, extent in sorted(allocs, key=lambda a: -int(a[0].buffer.bytes)):
        if left <= LOCALS:
            break
        moved.append((alloc, extent))
        left -= int(alloc.buffer.bytes)
    return moved
