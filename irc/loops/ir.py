"""Loop IR: a model as loops over buffers.

Expressions are those of `irc.expr`, without `Reduce` (lowering turns it into loops) and with
`Load.buffer` a `Buffer`.  A `Program` is a list of `Function`s run in order; each is one fused group.
Extents are Dims: symbols are parameters of the generated code.  Every statement that comes from the
user's model carries the names of its source layers in `origin`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from irc.arrays import Array
from irc.expr import Expr, Var
from irc.ir.capacity import Capacity
from irc.ir.dim import Dim, Symbol, product
from irc.ir.relation import SizeConstraint
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
    data: Array | None = None
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

    kind: serial; parallel (iterations are independent and may run on different threads); simd (the innermost loop,
    iterations independent or a reduction into accumulators marked so); lanes (simd over accumulators of constant
    number, which stay in registers while the loop around it runs).
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


@dataclass(frozen=True)
class RunSize:
    """A size that the program computes: `symbol` is what stands in the first element of `buffer`."""

    symbol: Symbol
    buffer: Buffer
    value: str  # its name in the model


@dataclass
class Program:
    """A lowered model.

    `symbols` are the sizes of inputs, in the order of the `dims` array of the C interface; the bounds of those `sizes`
    that nothing in the model bounds follow there (`limits`).  `sizes` are what the functions compute, in the order in
    which they are known; `capacity` bounds what depends on them.  `buffers` are all buffers but the locals.
    `constraints` are what sizes must fulfil.  `states` are (variable, input buffer, output buffer, initial array or
    None).
    """

    name: str
    inputs: list[Buffer]
    outputs: list[Buffer]
    constants: list[Buffer]
    functions: list[Function]
    symbols: list[str]
    constraints: list[SizeConstraint] = field(default_factory=list[SizeConstraint])
    states: list[tuple[str, Buffer, Buffer, Array | None]] = field(default_factory=list[Any])
    sizes: list[RunSize] = field(default_factory=list[RunSize])
    limits: list[RunSize] = field(default_factory=list[RunSize])
    capacity: Capacity = field(default_factory=lambda: Capacity(()))

    def bytes(self, buffer: Buffer) -> Dim:
        """Bound the bytes of a buffer by what is known before a run."""
        return self.capacity.of(buffer.elements) * buffer.dtype.itemsize

    def known(self, size: Dim) -> bool:
        """Tell whether a size is known before a run."""
        return not any(s.name in self._computed for s in size.symbols())

    @property
    def _computed(self) -> set[str]:
        return {s.symbol.name for s in self.sizes}

    def buffers(self) -> list[Buffer]:
        """List the root buffers that the functions touch, each once, in order of first use."""
        seen: dict[Buffer, None] = dict.fromkeys([*self.inputs, *self.constants])
        for f in self.functions:
            seen.update(dict.fromkeys(b.root for b in (*f.reads, *f.scratch, *f.writes)))
        seen.update(dict.fromkeys(b.root for b in self.outputs))
        return list(seen)


def walk(stmts: list[Stmt]) -> Iterator[Stmt]:
    """Yield every statement, outermost first."""
    for s in stmts:
        yield s
        if isinstance(s, For):
            yield from walk(s.body)
        elif isinstance(s, If):
            yield from walk(s.then)
            yield from walk(s.orelse)
