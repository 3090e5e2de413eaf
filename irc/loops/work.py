"""Work of a program's functions in a run: floating-point operations, and bytes of the tensors they touch.

Both follow from the Loop IR, as sizes over the program's symbols; None where only running tells.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from irc.expr import Bin, Call, Expr, Load, Un, dim_of
from irc.ir.dim import Dim
from irc.loops.ir import (
    Assign,
    Buffer,
    For,
    Function,
    If,
    KernelCall,
    Let,
    Stmt,
    Store,
    bodies,
    expressions,
    walk,
    written_in,
)
from irc.traversal import walk as walk_expression

COUNTED = {"add", "sub", "mul", "div", "floordiv", "mod", "min", "max", "pow", "neg"}
"""Operators that count as an operation if the type is a float; every function does."""


@dataclass(frozen=True)
class KernelWork:
    """A call of a kernel: operations of its definition, and how many the processor executes for each."""

    symbol: str
    flops: Dim | None
    executed: float


@dataclass
class Work:
    """Work of a function.

    flops: with those of the kernels; both sides of every branch count. read, written: bytes of the tensors, each once;
    of a tensor that loops read, no more than they load.
    """

    flops: Dim | None
    read: Dim
    written: Dim
    kernels: list[KernelWork] = field(default_factory=list[KernelWork])


def work_of(function: Function) -> Work:
    """Count the work of one call of a function."""
    counter = _Counter()
    try:
        flops: Dim | None = counter.block(function.body, Dim.of(1))
    except _Unknown:
        flops = None
    kernels = [_kernel(s) for s in walk(function.body) if isinstance(s, KernelCall)]
    for k in kernels:
        flops = None if flops is None or k.flops is None else flops + k.flops
    whole = {b.root for s in walk(function.body) if isinstance(s, KernelCall) for b in s.reads}
    read, written = Dim.of(0), Dim.of(0)
    for b in _tensors(function.reads):
        loaded = counter.loads.get(b)
        partly = loaded is not None and flops is not None and b not in whole
        read = read + (b.bytes.minimum(loaded * b.dtype.itemsize) if partly and loaded is not None else b.bytes)
    for b in _tensors(function.writes):
        written = written + b.bytes
    return Work(flops, read, written, kernels)


def _tensors(buffers: tuple[Buffer, ...]) -> list[Buffer]:
    return list(dict.fromkeys(b.root for b in buffers))


def _kernel(call: KernelCall) -> KernelWork:
    kernel = call.kernel
    if call.flops is not None:
        return KernelWork(kernel.symbol, call.flops, kernel.executed)
    try:
        sizes = {n: _dim(e) for n, e in zip(kernel.sizes, call.sizes, strict=True)}
        return KernelWork(kernel.symbol, kernel.flops(sizes), kernel.executed)
    except _Unknown:
        return KernelWork(kernel.symbol, None, kernel.executed)


class _Unknown(Exception):
    """A size that is known only at run time."""


def _dim(e: Expr) -> Dim:
    found = dim_of(e)
    if found is None:
        raise _Unknown
    return found


def evaluations(stmts: list[Stmt]) -> Dim | None:
    """Count the operations that statements evaluate, also those of indices; None if it is unknown, as of kernels."""
    try:
        return _evaluations(stmts)
    except _Unknown:
        return None


def written_again(loop: For, behind: list[Stmt]) -> Dim:
    """Count the operations that serial loops behind another evaluate to write what it has written; 0 if unknown."""
    serial = (s for s in behind if isinstance(s, For) and s.kind == "serial")
    work = evaluations([s for s in serial if written_in([s]) & written_in([loop])])
    return Dim.of(0) if work is None else work


def _evaluations(stmts: list[Stmt]) -> Dim:
    total = Dim.of(0)
    for s in stmts:
        if isinstance(s, KernelCall):
            raise _Unknown
        if isinstance(s, For):
            total = total + _evaluations(s.body) * _dim(s.extent)
        else:
            total = total + sum(1 for e in expressions(s) for _ in walk_expression(e))
            total = sum((_evaluations(body) for body in bodies(s)), total)
    return total


MANY = 1 << 40
"""Iterations of a loop that only a run knows: what it reads, it may read whole."""


class _Counter:
    """Counts operations of statements, and loads of each tensor."""

    def __init__(self) -> None:
        self.loads: dict[Buffer, Dim] = {}

    def block(self, stmts: list[Stmt], times: Dim) -> Dim:
        total = Dim.of(0)
        for s in stmts:
            match s:
                case For():
                    extent = dim_of(s.extent)
                    inner = self.block(s.body, times * (MANY if extent is None else extent))
                    if extent is None and inner != 0:
                        raise _Unknown
                    total = total + inner
                case If():
                    total = total + self.block(s.then, times) + self.block(s.orelse, times)
                    self._count(s.cond, times)
                case Store() | Let() | Assign():
                    total = total + self._count(s.value, times)
                    for e in s.index if isinstance(s, Store) else ():
                        self._count(e, times)
                case _:
                    pass
        return total

    def _count(self, e: Expr, times: Dim) -> Dim:
        operations, loaded = self._of(e)
        for b in loaded:
            self.loads[b] = self.loads.get(b, Dim.of(0)) + times
        return times * operations

    def _of(self, e: Expr) -> tuple[int, tuple[Buffer, ...]]:
        """Count the operations of one evaluation, and list the tensors it loads, one entry for each load.

        What occurs several times counts once.
        """
        parts = list(walk_expression(e))
        counted = [x for x in parts if isinstance(x, Call) or (isinstance(x, Bin | Un) and x.op in COUNTED)]
        return sum(x.dtype.is_float for x in counted), tuple(x.buffer.root for x in parts if isinstance(x, Load))
