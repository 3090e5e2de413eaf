"""Loop IR: what a model is once its operations are loops over buffers.

Expressions are those of `irc.expr`, without `Reduce` (lowering turns it into loops) and with
`Load.buffer` a `Buffer`.  A `Program` is a list of `Function`s run in order; each is one fused group.
Extents are Dims: symbols are parameters of the generated code.  Every statement that comes from the
user's model carries the names of its source layers in `origin`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from irc.expr import Expr, Var
from irc.ir.dim import Dim, product
from irc.ir.relation import Demand
from irc.ir.types import DType

Where = Literal["input", "output", "constant", "arena", "local", "state"]


@dataclass(eq=False)
class Buffer:
    """Memory for one tensor, row-major, whole elements (`dtype.itemsize` bytes each).

    where: input/output are the caller's; constant lives in the weights (`data`); arena is planned by
    `irc.loops.memory`; local is a fixed-size scratch inside one function (static shape, small); state
    outlives a run.  A buffer with `base` is a view: the same memory as `base`, another shape.
    """

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    where: Where
    data: np.ndarray[Any, Any] | None = None
    base: Buffer | None = None
    origin: tuple[str, ...] = ()

    @property
    def elements(self) -> Dim:
        return product(self.shape)

    @property
    def bytes(self) -> Dim:
        return self.elements * self.dtype.itemsize

    @property
    def root(self) -> Buffer:
        return self if self.base is None else self.base.root


@dataclass
class Stmt:
    """Base of statements."""


@dataclass
class For(Stmt):
    """for (var = 0; var < extent; var++).

    kind: serial; parallel (iterations are independent and may run on different threads); simd (the
    innermost loop, iterations independent or a reduction into accumulators marked so); lanes (simd over
    accumulators of constant number, which stay in registers while the loop around it runs); unroll.
    """

    var: Var
    extent: Expr
    body: list[Stmt]
    kind: Literal["serial", "parallel", "simd", "lanes"] = "serial"
    origin: tuple[str, ...] = ()


@dataclass
class Store(Stmt):
    """buffer[index] = value; a value of a narrow float type is already rounded."""

    buffer: Buffer
    index: tuple[Expr, ...]
    value: Expr


@dataclass
class Let(Stmt):
    """A scalar: constant for the rest of its block, or a `mutable` accumulator that `Assign` updates."""

    var: Var
    value: Expr
    mutable: bool = False


@dataclass
class Assign(Stmt):
    """Update of a mutable `Let`."""

    var: Var
    value: Expr


@dataclass
class Alloc(Stmt):
    """A local buffer, alive to the end of the enclosing block."""

    buffer: Buffer


@dataclass
class If(Stmt):
    cond: Expr
    then: list[Stmt]
    orelse: list[Stmt] = field(default_factory=list[Stmt])


@dataclass
class KernelCall(Stmt):
    """A call of a generated kernel: extents, strides and pointers are run-time arguments.

    `kernel` is one of `irc.kernels.core.registry`; buffers are passed by pointer (`reads`, `writes`),
    sizes as expressions.  `offsets`: where in each of `reads`, then `writes` the kernel's operand starts,
    in elements (empty: all at the start).
    """

    kernel: Any
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    sizes: tuple[Expr, ...] = ()
    scratch: tuple[Buffer, ...] = ()
    offsets: tuple[Expr, ...] = ()


@dataclass
class Function:
    """One fused group: a C function of its own."""

    name: str
    body: list[Stmt]
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    origin: tuple[str, ...] = ()
    comment: str = ""
    scratch: tuple[Buffer, ...] = ()  # arena buffers alive only inside this function


@dataclass
class Program:
    """A lowered model.

    `symbols` are the parameters, in the order of the `dims` array of the C interface; each is a size of an
    input.  `buffers` are all buffers but the locals.  `demands` are what these sizes must fulfil.  `states` are
    (variable, input buffer, output buffer, initial array or None).
    """

    name: str
    inputs: list[Buffer]
    outputs: list[Buffer]
    constants: list[Buffer]
    functions: list[Function]
    symbols: list[str]
    demands: list[Demand] = field(default_factory=list[Demand])
    states: list[tuple[str, Buffer, Buffer, np.ndarray[Any, Any] | None]] = field(default_factory=list[Any])

    def buffers(self) -> list[Buffer]:
        """Every root buffer the functions touch, each once, in order of first use."""
        seen: dict[Buffer, None] = dict.fromkeys([*self.inputs, *self.constants])
        for f in self.functions:
            seen.update(dict.fromkeys(b.root for b in (*f.reads, *f.scratch, *f.writes)))
        seen.update(dict.fromkeys(b.root for b in self.outputs))
        return list(seen)


def walk(stmts: list[Stmt]) -> Iterator[Stmt]:
    """Every statement, outermost first."""
    for s in stmts:
        yield s
        if isinstance(s, For):
            yield from walk(s.body)
        elif isinstance(s, If):
            yield from walk(s.then)
            yield from walk(s.orelse)
