"""`LoopBuilder`: writes Loop IR.  What `Op.loops` gets as `b`.

    def loops(self, b, x, axis, y):                    # operands, then results
        (rows, n) = x.shape
        with b.for_(rows, "parallel") as i:
            total = b.var(Const(0, x.dtype), "total")   # a mutable scalar
            with b.for_(n) as j:
                b.assign(total, total + x[i, j])
                b.store(y, (i, j), total)

Operands and results are `irc.expr.Tensor`s: `x[i, j]` reads an element (a result may be read too, once
it is written), `x.shape`, `x.dtype`, `x.array` (the data, where constant), `x.ints()`.  An absent operand is
None; operands that are left out at the end are passed as None too, so that positions never change.
Values are expressions of the result's element type (`.cast(dtype)` converts); a `Reduce` in them is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from irc.expr import Expr, Load, Operand, Tensor, Var, index, wrap
from irc.ir.dim import Dim, DimLike
from irc.ir.types import DType, TensorType, i64
from irc.loops.ir import Alloc, Assign, Buffer, For, If, Let, Stmt, Store

LOCAL_BYTES = 32768
"""Scratch up to this size stands on the stack; larger or symbolic scratch is planned in the arena."""

COPIES = 4
FEW_COPIES = 2
"""Where code should be small."""

Kind = Literal["serial", "parallel", "simd", "lanes"]


@dataclass(frozen=True)
class Place(Tensor):
    """A tensor that stands in a buffer of its own: a result, or scratch."""

    buffer: Buffer | None = None


def place(buffer: Buffer) -> Place:
    """Wrap a buffer as a tensor."""
    return Place(TensorType(buffer.dtype, buffer.shape), lambda at: Load(buffer, at), None, buffer)


def seen_as(tensor: Tensor, shape: Sequence[Dim]) -> Place:
    """Look at the memory of an operand or result as a tensor of another shape, of as many elements."""
    assert isinstance(tensor, Place), "what an operation's loops get stands in a buffer"
    buffer = tensor.buffer
    assert buffer is not None
    return place(Buffer(buffer.name, buffer.dtype, tuple(shape), buffer.where, base=buffer, origin=buffer.origin))


class LoopBuilder:
    """Appends statements to the innermost open block; `body` is the outermost one.

    copies: how often what a loop does may stand in it, for several results or several terms of a sum at a time.
    """

    def __init__(self, origin: tuple[str, ...] = (), copies: int = COPIES) -> None:
        self.copies = copies
        self.body: list[Stmt] = []
        self.scratch: list[Buffer] = []
        """The arena buffers that `alloc` made."""
        self.origin = origin
        self._open: list[list[Stmt]] = [self.body]
        self._count: dict[str, int] = {}

    # ---------------------------------------------------------------- scopes
    @contextmanager
    def for_(self, extent: Operand, kind: Kind = "serial", name: str = "i") -> Iterator[Var]:
        """Open a loop of `extent` (int, Dim or i64 expression) iterations, and yield its index, which counts from 0.

        kind: "parallel" promises that iterations are independent (of outermost loops, and of loops in such),
        "simd" that the innermost loop's are.
        """
        var = self.name(name)
        loop = For(var, index(extent), [], kind, self.origin)
        self.add(loop)
        with self.inside(loop.body):
            yield var

    @contextmanager
    def nest(self, extents: Sequence[DimLike], kind: Kind = "serial", name: str = "i") -> Iterator[tuple[Var, ...]]:
        """Open nested loops of a kind, outermost first, and yield their indices.

        Parallel ones are all independent of one another: the outermost may be a batch of one, or one direction.
        """
        depth, found = len(self._open), list[Var]()
        for extent in extents:
            loop = For(self.name(name), index(Dim.of(extent)), [], kind, self.origin)
            self.add(loop)
            self._open.append(loop.body)
            found.append(loop.var)
        yield tuple(found)
        del self._open[depth:]

    @contextmanager
    def if_(self, cond: Expr) -> Iterator[None]:
        """Open a block that runs where `cond` (a boolean) holds."""
        chosen = If(cond, [])
        self.add(chosen)
        with self.inside(chosen.then):
            yield

    @contextmanager
    def else_(self) -> Iterator[None]:
        """Open a block that runs where the condition of the `if_` just before does not hold."""
        last = self._open[-1][-1]
        assert isinstance(last, If) and not last.orelse, "else_ must follow if_"
        with self.inside(last.orelse):
            yield

    @contextmanager
    def inside(self, body: list[Stmt]) -> Iterator[None]:
        """Append statements to `body`."""
        self._open.append(body)
        yield
        self._open.pop()

    # ------------------------------------------------------------- statements
    def store(self, target: Tensor | Buffer, at: Operand | Sequence[Operand], value: Operand) -> None:
        """Store: target[at] = value. `target` is a result or scratch; `value` has its element type."""
        buffer = target if isinstance(target, Buffer) else getattr(target, "buffer", None)
        assert isinstance(buffer, Buffer), "only results and scratch can be written"
        items = tuple(at) if isinstance(at, tuple | list) else (at,)
        assert len(items) == len(buffer.shape), f"{len(items)} indices for {buffer.name} of rank {len(buffer.shape)}"
        value = wrap(value, buffer.dtype)
        assert value.dtype == buffer.dtype, f"{value.dtype} stored in {buffer.name} of {buffer.dtype}"
        self.add(Store(buffer, tuple(index(i) for i in items), value))  # pyright: ignore[reportArgumentType]

    def let(self, value: Operand, name: str = "t") -> Var:
        """Declare a scalar that holds `value` to the end of the block."""
        return self._scalar(value, name, mutable=False)

    def var(self, value: Operand, name: str = "v") -> Var:
        """Declare a scalar that starts as `value` and that `assign` changes."""
        return self._scalar(value, name, mutable=True)

    def assign(self, var: Var, value: Operand) -> None:
        """Change a scalar made by `var`."""
        value = wrap(value, var.dtype)
        assert value.dtype == var.dtype, f"{value.dtype} assigned to {var.name} of {var.dtype}"
        self.add(Assign(var, value))

    def alloc(self, dtype: DType, shape: Sequence[DimLike], name: str = "scratch") -> Place:
        """Allocate scratch of this shape, contents undefined, alive to the end of the block.

        Small static scratch is private to the iteration of every loop around it.  Large or symbolic scratch
        is one buffer for the whole operation: do not allocate it inside a parallel loop.
        """
        buffer = Buffer(self.name(name).name, dtype, tuple(Dim.of(d) for d in shape), "local", origin=self.origin)
        if buffer.bytes.is_const and int(buffer.bytes) <= LOCAL_BYTES:
            self.add(Alloc(buffer))
        else:
            buffer.where = "arena"
            self.scratch.append(buffer)
        return place(buffer)

    # ------------------------------------------------------------------ plain
    def add(self, stmt: Stmt) -> None:
        """Append a statement to the innermost open block."""
        self._open[-1].append(stmt)

    def name(self, hint: str, dtype: DType = i64) -> Var:
        """Make a variable whose name is unique in this function, without declaring it."""
        count = self._count.get(hint, 0)
        self._count[hint] = count + 1
        return Var(f"{hint}{count}", dtype)

    def _scalar(self, value: Operand, name: str, mutable: bool) -> Var:
        value = index(value)
        var = self.name(name, value.dtype)
        self.add(Let(var, value, mutable))
        return var
