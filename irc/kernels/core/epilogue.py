"""What a kernel does to its accumulators before it stores them.

An epilogue is an expression over `ACC`, the accumulator, and `slot(0)`, `slot(1)`, … its operands.  Each slot is
described by which tile axes it varies along:

    scalar  the same for all elements
    row     varies along N (columns): a bias of a matrix product
    column  varies along M (rows): a bias of a convolution in NCHW
    full    varies along both: a residual; unit stride along N

Slots vary along the batch axes as their strides say (0: they do not).  Numbers: arithmetic in the accumulator's
type, products and sums may be contracted; min and max propagate NaN; functions as `irc.kernels.vector.vecmath` states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from irc.expr import Bin, Call, Cast, Const, Expr, Select, Un, Var, transform
from irc.ir.types import DType, boolean, f32
from irc.kernels.core.isa import C_TYPES
from irc.kernels.vector.vecmath import FUNCTIONS

Axes = Literal["scalar", "row", "column", "full"]
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "and": "&", "or": "|"}


def acc(dtype: DType = f32) -> Var:
    """The accumulator."""
    return Var("acc", dtype)


def slot(number: int, dtype: DType = f32) -> Var:
    """Operand `number`."""
    return Var(f"slot{number}", dtype)


@dataclass(frozen=True)
class Epilogue:
    """An expression over the accumulator and operand slots.

    halves: the slots whose operands are stored as bf16 (`irc.kernels.vector.bf16_io`), of an f32 expression.
    """

    expr: Expr
    slots: tuple[Axes, ...] = ()
    halves: frozenset[int] = frozenset()

    @property
    def dtype(self) -> DType:
        return self.expr.dtype

    def is_residual(self, slot: int) -> bool:
        """Whether there is such a slot, and it varies along both axes."""
        return 0 <= slot < len(self.slots) and self.slots[slot] == "full"

    def key(self) -> str:
        """Equal for equal epilogues; part of a kernel's signature."""
        if isinstance(self.expr, Var) and not self.slots:
            return ""
        return f"{self.expr!r}{self.slots!r}" + (f"{sorted(self.halves)}" if self.halves else "")

    def functions(self) -> tuple[str, ...]:
        """Names of the mathematical functions it calls, each once."""
        return tuple(dict.fromkeys(e.fn for e in walk(recognised(self.expr)) if isinstance(e, Call)))

    def pointers(self, scalar: str) -> tuple[tuple[str, str], ...]:
        """Name and C type of the operands, as a kernel takes them."""
        return tuple((f"s{i}", f"const {'uint16_t' if i in self.halves else scalar} *") for i in range(len(self.slots)))

    def strides(self, *names: str) -> list[tuple[int, str]]:
        """(slot, name) of every stride that a kernel takes of the operands; the last of `names` is the stride along the
        tile's rows, which only slots have that vary along them."""
        return [(i, n) for i, a in enumerate(self.slots) for n in (names if a in ("column", "full") else names[:-1])]

    def fields(self, scalar: str, *names: str) -> str:
        """The operands and their `strides`, as members of a struct of arguments in C."""
        pointers = "".join(f"\n    {kind}{name};" for name, kind in self.pointers(scalar))
        return pointers + "".join(f"\n    int64_t s{i}_{n};" for i, n in self.strides(*names))

    def vector(self, v: str) -> str:
        """The expression in C, over vectors of the type named `v`."""
        return _vector(recognised(self.expr), v)


def plain(dtype: DType = f32) -> Epilogue:
    """The epilogue that stores the accumulator."""
    return Epilogue(acc(dtype))


def supported(expr: Expr, slots: int, dtype: DType) -> bool:
    """Whether `expr` can be an epilogue of a kernel that accumulates in `dtype` and has that many slots."""
    names = {"acc", *(f"slot{i}" for i in range(slots))}
    return dtype.name in C_TYPES and expr.dtype == dtype and all(_supported(e, names, dtype) for e in walk(expr))


def recognised(expr: Expr) -> Expr:
    """The expression with GELUs, products x/2 · (1 + erf(x/√2)) in any order, as calls of one function."""

    def visit(e: Expr) -> Expr:
        x = _gelu(e)
        return e if x is None else Call("gelu", (x,))

    return transform(expr, visit)


def _gelu(expr: Expr) -> Expr | None:
    """The operand of the GELU that an f32 expression is, if it is one."""
    scale, factors = _product(expr)
    if scale != 0.5 or len(factors) != 2 or expr.dtype != f32:
        return None
    for x, phi in (factors, factors[::-1]):
        match phi:
            case Bin("add", Const(1.0), Call("erf", (inner,))) | Bin("add", Call("erf", (inner,)), Const(1.0)):
                root, rest = _product(inner)
                if rest == _product(x)[1] == [x] and abs(root - 0.5**0.5) < 1e-7:
                    return x
            case _:
                pass
    return None


def _product(e: Expr) -> tuple[float, list[Expr]]:
    """The constant and the other factors of a product."""
    match e:
        case Const(value) if e.dtype == f32:
            return float(value), []  # type: ignore[arg-type]
        case Bin("mul", a, b):
            (p, left), (q, right) = _product(a), _product(b)
            return p * q, [*left, *right]
        case Bin("div", a, Const(value)) if e.dtype == f32 and value:
            p, left = _product(a)
            return p / float(value), left  # type: ignore[arg-type]
        case _:
            return 1.0, [e]


def walk(expr: Expr) -> Iterator[Expr]:
    """Every subexpression, outermost first."""
    yield expr
    for child in _children(expr):
        yield from walk(child)


def _children(e: Expr) -> tuple[Expr, ...]:
    match e:
        case Bin():
            return (e.a, e.b)
        case Un() | Cast():
            return (e.a,)
        case Call():
            return e.args
        case Select():
            return (e.cond, e.a, e.b)
        case _:
            return ()


def _supported(e: Expr, names: set[str], dtype: DType) -> bool:
    if e.dtype not in (dtype, boolean):
        return False
    match e:
        case Const():
            return True
        case Var():
            return e.name in names
        case Bin():
            return e.op in _ARITHMETIC or e.op in _COMPARE or e.op in ("min", "max")
        case Un():
            return e.op in ("neg", "abs", "not")
        case Call():
            return e.fn in FUNCTIONS and len(e.args) == 1
        case Select():
            return True
        case _:
            return False


def _constant(value: object, v: str, dtype: DType) -> str:
    if dtype == boolean:
        return f"(({v}_mask){{0}} - {int(bool(value))})"
    number = float(value)  # type: ignore[arg-type]
    if number != number:
        return f"{v}_all(NAN)"
    if number in (float("inf"), float("-inf")):
        return f"{v}_all({'-' if number < 0 else ''}INFINITY)"
    return f"{v}_all({number.hex()}{'f' if dtype == f32 else ''})"


def _vector(e: Expr, v: str) -> str:
    match e:
        case Const():
            return _constant(e.value, v, e.type)
        case Var():
            return e.name
        case Bin(op, a, b):
            if op in _ARITHMETIC:
                return f"({_vector(a, v)} {_ARITHMETIC[op]} {_vector(b, v)})"
            if op in _COMPARE:
                return f"(({v}_mask)({_vector(a, v)} {_COMPARE[op]} {_vector(b, v)}))"
            bound, x = (a, b) if isinstance(a, Const) else (b, a)
            if isinstance(bound, Const) and bound.value == bound.value:
                return f"{v}_at_{'most' if op == 'min' else 'least'}({_vector(bound, v)}, {_vector(x, v)})"
            return f"{v}_{op}({_vector(a, v)}, {_vector(b, v)})"
        case Un(op, a):
            return f"{v}_abs({_vector(a, v)})" if op == "abs" else f"({'~' if op == 'not' else '-'}{_vector(a, v)})"
        case Call(fn, args):
            return f"{v}_{fn}({_vector(args[0], v)})"
        case Select(cond, a, b):
            return f"{v}_select({_vector(cond, v)}, {_vector(a, v)}, {_vector(b, v)})"
        case _:
            raise TypeError(f"not an epilogue: {e!r}")
