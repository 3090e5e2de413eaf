"""Loop IR: a model as loops over buffers.

Expressions are those of `irc.expr`, without `Reduce` (lowering turns it into loops) and with
`Load.buffer` a `Buffer`.  A `Program` is a list of `Function`s run in order; each is one fused group.
Extents are Dims: symbols are parameters of the generated code.  Every statement that comes from the
user's model carries the names of its source layers in `origin`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from irc.arrays import Array
from irc.expr import Expr, Var
from irc.ir.capacity import Capacity
from irc.ir.dim import Dim, Symbol, product
from irc.ir.relation import SizeConstraint
from irc.ir.types import DType
from irc.traversal import variables

Where = Literal["input", "output", "constant", "arena", "local", "state", "row"]


@dataclass(eq=False)
class Buffer:
    """Memory for one tensor, row-major, whole elements (`dtype.itemsize` bytes each).

    where: input/output are the caller's; constant lives in the weights (`data`); arena is planned by
    `irc.loops.memory`; local is a fixed-size scratch inside one function (static shape, small); state
    outlives a run; row is what one run of a loop gives: a part of the first buffer of `row`, at the number in the
    second.  A buffer with `base` is a view: the same memory as `base`, another shape.
    """

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    where: Where
    data: Array | None = None
    base: Buffer | None = None
    origin: tuple[str, ...] = ()
    row: tuple[Buffer, Buffer] | None = None
    strings: bool = False
    """Of an input or output: its last axis is a string, as a pointer and a number of bytes."""
    kept: bool = False
    """Of the arena: other memory points to it, so that it lasts to the end of the run."""

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

    kind: serial; parallel (iterations are independent and may run on different threads; outermost, or in another such
    loop); simd (the innermost loop, iterations independent or a reduction into accumulators marked so); lanes (simd
    over accumulators of constant number, which stay in registers while the loop around it runs).
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


@dataclass(frozen=True)
class Own:
    """Memory for each thread that runs a part of a loop or of a kernel's call, by `irc.loops.workspaces`.

    buffer: of the arena, `owners` pieces of `bytes` each.  at: where in a piece.
    """

    buffer: Buffer
    bytes: int
    owners: int
    at: int = 0


@dataclass
class Alloc(Stmt):
    """A local buffer, alive to the end of the enclosing block; on the stack, or in what the thread has of its own."""

    buffer: Buffer
    own: Own | None = None


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
    in elements (empty: all at the start).  alone: the thread that comes here does all of it, as in a parallel loop.
    flops: of all calls that this statement stands for, where sizes vary from one to the next.
    """

    kernel: Any
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    sizes: tuple[Expr, ...] = ()
    scratch: tuple[Buffer, ...] = ()
    offsets: tuple[Expr, ...] = ()
    own: Own | None = None
    alone: bool = False
    flops: Dim | None = None


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


@dataclass(frozen=True)
class Guard:
    """End the run if what stands in a buffer is more than the bound of a symbol, which becomes that later."""

    size: RunSize


@dataclass
class Block:
    """Steps that run together or not at all, and what sizes must fulfil if they do."""

    steps: list[Step] = field(default_factory=list["Step"])
    constraints: list[SizeConstraint] = field(default_factory=list[SizeConstraint])


@dataclass
class Branch:
    """Run `then` if the element of `condition` is true, else `otherwise`."""

    condition: Buffer
    then: Block
    otherwise: Block
    origin: tuple[str, ...] = ()


@dataclass
class Repeat:
    """Run `body` for each number from 0 on: below `count`, and as long as the element of `going` is true.

    `number` gets the number of the run that begins; `ran`, if any, how many there are then.
    """

    number: Buffer
    count: Buffer | None
    going: Buffer | None
    body: Block
    ran: Buffer | None = None
    stacked: tuple[Buffer, ...] = ()
    origin: tuple[str, ...] = ()

    @property
    def buffers(self) -> list[Buffer]:
        """List what a run of the loop itself reads and writes, beside its body, and what its rows are parts of."""
        return [b for b in (self.number, self.count, self.going, self.ran, *self.stacked) if b is not None]


Step = Function | Guard | Branch | Repeat
"""What a program does one after the other."""


def functions_of(steps: Iterable[Step]) -> Iterator[Function]:
    """Yield the functions among steps, and inside of them, in the order in which they stand."""
    for step in steps:
        if isinstance(step, Function):
            yield step
        elif isinstance(step, Branch):
            yield from functions_of((*step.then.steps, *step.otherwise.steps))
        elif isinstance(step, Repeat):
            yield from functions_of(step.body.steps)


def touched_by(step: Step) -> list[Buffer]:
    """List the buffers that a step itself touches, not those of steps inside of it."""
    if isinstance(step, Function):
        return [*step.reads, *step.scratch, *step.writes]
    if isinstance(step, Guard):
        return [step.size.buffer]
    return [step.condition] if isinstance(step, Branch) else step.buffers


def all_steps(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield steps, each before those inside of it."""
    for step in steps:
        yield step
        if isinstance(step, Branch):
            yield from all_steps((*step.then.steps, *step.otherwise.steps))
        elif isinstance(step, Repeat):
            yield from all_steps(step.body.steps)


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
    steps: list[Step]
    symbols: list[str]
    constraints: list[SizeConstraint] = field(default_factory=list[SizeConstraint])
    states: list[tuple[str, Buffer, Buffer, Array | None]] = field(default_factory=list[Any])
    sizes: list[RunSize] = field(default_factory=list[RunSize])
    limits: list[RunSize] = field(default_factory=list[RunSize])
    capacity: Capacity = field(default_factory=lambda: Capacity(()))

    @property
    def functions(self) -> list[Function]:
        """All functions, also those of branches and loops, in the order in which they stand."""
        return list(functions_of(self.steps))

    def all_constraints(self) -> list[SizeConstraint]:
        """List the constraints, also those of branches and loops."""
        blocks: list[Block] = []
        for step in all_steps(self.steps):
            blocks += [step.then, step.otherwise] if isinstance(step, Branch) else ()
            blocks += [step.body] if isinstance(step, Repeat) else ()
        return [*self.constraints, *(c for block in blocks for c in block.constraints)]

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
        """List the root buffers that the steps touch, each once, in order of first use."""
        seen: dict[Buffer, None] = dict.fromkeys([*self.inputs, *self.constants])
        for step in all_steps(self.steps):
            seen.update(dict.fromkeys(b.root for b in touched_by(step)))
        seen.update(dict.fromkeys(b.root for b in self.outputs))
        return list(seen)


def bodies(s: Stmt) -> list[list[Stmt]]:
    """List the blocks of statements inside a statement."""
    return [s.body] if isinstance(s, For) else [s.then, s.orelse] if isinstance(s, If) else []


def walk(stmts: list[Stmt]) -> Iterator[Stmt]:
    """Yield every statement, outermost first."""
    for s in stmts:
        yield s
        for body in bodies(s):
            yield from walk(body)


def expressions(s: Stmt) -> tuple[Expr, ...]:
    """Return the expressions of a statement itself."""
    match s:
        case For():
            return (s.extent,)
        case Store():
            return (*s.index, s.value)
        case Let() | Assign():
            return (s.value,)
        case If():
            return (s.cond,)
        case KernelCall():
            return (*s.sizes, *s.offsets)
        case _:
            return ()


def written_in(stmts: list[Stmt]) -> set[Buffer]:
    """Collect the memory that statements, and those in them, store elements in."""
    return {s.buffer.root for s in walk(stmts) if isinstance(s, Store)}


def names_in(stmts: list[Stmt]) -> set[str]:
    """Collect the variables that statements read."""
    return {x.name for s in walk(stmts) for e in expressions(s) for x in variables(e)}
