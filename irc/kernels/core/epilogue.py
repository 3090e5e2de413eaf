"""Epilogues: what a kernel does to its accumulators before it stores them.

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

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np

from irc.expr import Bin, Bits, Call, Cast, Const, Expr, Select, Un, Var, rebuilt
from irc.functions import exponent_beside_one, multiple_of_gelu
from irc.ir.dim import Dim
from irc.ir.types import DType, boolean, f32
from irc.kernels.core.isa import C_NAMES, C_TYPES
from irc.kernels.vector.vecmath import FUNCTIONS
from irc.traversal import fold, rewrite, walk

Axes = Literal["scalar", "row", "column", "full"]
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_LONG = 72
"""Characters of an intermediate value from which on it has a name."""
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "and": "&", "or": "|"}
_JUMPING = ("floor", "ceil", "trunc", "round")
"""Functions that jump from one number to another."""


def acc(dtype: DType = f32) -> Var:
    """Make the accumulator."""
    return Var("acc", dtype)


def slot(number: int, dtype: DType = f32) -> Var:
    """Make operand `number`."""
    return Var(f"slot{number}", dtype)


@dataclass(frozen=True)
class Epilogue:
    """An expression over the accumulator and operand slots.

    bf16_slots: the slots whose operands are stored as bf16 (`irc.kernels.vector.bf16_io`), of an f32 expression.
    byte_slots: the slots whose operands are bytes, and their types (`irc.kernels.integer`), of an f32 expression.
    bounds: the slots with bounds of clamps, which are numbers: a comparison with them keeps a NaN.
    """

    expr: Expr
    slots: tuple[Axes, ...] = ()
    bf16_slots: frozenset[int] = frozenset()
    byte_slots: tuple[tuple[int, DType], ...] = ()
    bounds: frozenset[int] = frozenset()

    @property
    def dtype(self) -> DType:
        return self.expr.dtype

    def is_residual(self, slot: int) -> bool:
        """Tell whether there is such a slot, and it varies along both axes."""
        return 0 <= slot < len(self.slots) and self.slots[slot] == "full"

    def key(self) -> str:
        """Return a text that is equal for equal epilogues; part of a kernel's signature."""
        if isinstance(self.expr, Var) and not self.slots:
            return ""
        expr = "; ".join(steps(self.expr))
        narrow = [*sorted(self.bf16_slots), *(f"{i}:{kind}" for i, kind in self.byte_slots)]
        narrow += [f"bound {i}" for i in sorted(self.bounds)]
        return f"{expr}{self.slots!r}" + (f"{narrow}" if narrow else "")

    def functions(self) -> tuple[str, ...]:
        """Name the mathematical functions that it calls, each once."""
        return tuple(dict.fromkeys(e.fn for e in walk(recognised(self.expr)) if isinstance(e, Call)))

    def pointers(self, scalar: str) -> tuple[tuple[str, str], ...]:
        """Return name and C type of the operands, as a kernel takes them."""
        narrow = dict.fromkeys(self.bf16_slots, "uint16_t") | {i: C_NAMES[kind] for i, kind in self.byte_slots}
        return tuple((f"s{i}", f"const {narrow.get(i, scalar)} *") for i in range(len(self.slots)))

    def strides(self, *names: str) -> list[tuple[int, str]]:
        """List (slot, name) of every stride that a kernel takes of the operands.

        The last of `names` is the stride along the tile's rows, which only slots have that vary along them.
        """
        return [(i, n) for i, a in enumerate(self.slots) for n in (names if a in ("column", "full") else names[:-1])]

    def vector(self, v: str) -> tuple[list[str], str]:
        """Spell the expression in C, over vectors of type `v`: declarations of intermediate values, and the result."""
        values: list[str] = []
        bounds = {f"slot{i}" for i in self.bounds}

        def name(e: Expr, text: str) -> str:
            values.append(f"const {v}{'_mask' if e.dtype == boolean else ''} t{len(values)} = {text};")
            return f"t{len(values) - 1}"

        return values, _spelled(recognised(self.expr), lambda e, parts: _vector(e, parts, v, bounds), name)

    def described(self) -> list[str]:
        """Describe the formula, and what its operands vary along, for a reader; empty if accumulators are stored."""
        if not self.key():
            return []
        along = {"scalar": "one number", "row": "one for each column", "column": "one for each row", "full": "one each"}
        slots = [f"slot{i}: {along[axes]}" for i, axes in enumerate(self.slots)]
        *steps, result = self.formula()
        if len(result) > 2 and result[0] == "(" and result[-1] == ")" and result.count("(") == 1:
            result = result[1:-1]
        return [f"Epilogue: {'; '.join([*steps, result])}" + (f" ({', '.join(slots)})" if slots else "") + "."]

    def formula(self) -> list[str]:
        """Spell the expression in lines of text, the last of which is what is stored: equal for equal expressions."""
        lines: list[str] = []

        def name(_: Expr, text: str) -> str:
            lines.append(f"t{len(lines)} = {text}")
            return f"t{len(lines) - 1}"

        return [*lines, _spelled(recognised(self.expr), _formula, name)]


def axes_of(row: Dim, column: Dim) -> Axes:
    """Return the axes along which a slot with these strides varies."""
    if column == 0:
        return "scalar" if row == 0 else "column"
    return "row" if row == 0 else "full"


def plain(dtype: DType = f32) -> Epilogue:
    """Make the epilogue that stores the accumulator."""
    return Epilogue(acc(dtype))


def supported(expr: Expr, slots: int, dtype: DType) -> bool:
    """Tell whether `expr` can be an epilogue of a kernel that accumulates in `dtype` and has this many slots."""
    names = {"acc", *(f"slot{i}" for i in range(slots))}
    return dtype.name in C_TYPES and expr.dtype == dtype and all(_supported(e, names, dtype) for e in walk(expr))


def recognised(expr: Expr) -> Expr:
    """Replace GELUs, products x/2 · (1 + erf(x/√2)) in any order and times anything, and e^x in 1 + e^x, by calls.

    The latter, of sigmoids and SiLUs, need no results that would not show.  Quotients of f32 by a number are products
    with its reciprocal, at most 1.5 ULP off, if the expression is continuous: those of a HardSwish took the most time.
    """
    continuous = not any(e.dtype == boolean or (isinstance(e, Call) and e.fn in _JUMPING) for e in walk(expr))

    def step(e: Expr, state: None, go: Callable[[Expr, None], Expr]) -> Expr:
        if (x := exponent_beside_one(e)) is not None:
            return Bin("add", Const(1.0, e.dtype), Call("exp_added", (go(x, None),)))
        found = multiple_of_gelu(e)
        if found is None:
            made = rebuilt(e, tuple(go(c, state) for c in e.parts))
            return _multiplied(made) if continuous else made
        x, scale, others = found
        y: Expr = Call("gelu", (go(x, None),))
        for factor in others:
            y = y * go(factor, None)
        return y if scale == 1 else y * scale

    return rewrite(expr, step, None)


def _multiplied(e: Expr) -> Expr:
    """Replace a quotient by a number whose reciprocal is not denormal."""
    match e:
        case Bin("div", a, Const(value)) if e.dtype == f32 and 2.0**-126 <= abs(value) <= 2.0**126:
            return Bin("mul", a, Const(float(np.float32(1) / np.float32(value)), f32))
        case _:
            return e


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


def _literal(e: Const) -> str:
    return f"{e.value!r}:{e.type}"


def steps(expr: Expr, literal: Callable[[Const], str] = _literal) -> list[str]:
    """List every distinct expression in one, in terms of the numbers of others; `literal` spells constants."""
    numbers: dict[str, int] = {}

    def number(e: Expr, parts: tuple[int, ...]) -> int:
        match e:
            case Const():
                own = literal(e)
            case Var():
                own = f"{e.name}:{e.type}"
            case Bin() | Un():
                own = e.op
            case Call():
                own = e.fn
            case Cast():
                own = f"to {e.type}"
            case Bits():
                own = f"bits {e.type}"
            case _:
                own = type(e).__name__
        return numbers.setdefault(" ".join([own, *map(str, parts)]), len(numbers))

    fold(expr, number)
    return list(numbers)


def _spelled(expr: Expr, spell: Callable[[Expr, tuple[str, ...]], str], name: Callable[[Expr, str], str]) -> str:
    """Spell an expression from the text of its parts; parts that are long or read several times get a name first."""
    parts = [x for e in walk(expr) for x in e.parts]
    reads = Counter(map(id, parts))

    def text(e: Expr, operands: tuple[str, ...]) -> str:
        spelled = spell(e, operands)
        named = e.parts and (reads[id(e)] > 1 or len(spelled) > _LONG)
        return name(e, spelled) if named and e is not expr else spelled

    return fold(expr, text)


def _formula(e: Expr, parts: tuple[str, ...]) -> str:
    """Spell one step of the expression for a reader."""
    match e:
        case Const():
            return f"{e.value:.9g}" if isinstance(e.value, float) else str(e.value)
        case Var():
            return e.name
        case Bin(op):
            sign = _ARITHMETIC.get(op) or _COMPARE.get(op)
            return f"({parts[0]} {sign} {parts[1]})" if sign else f"{op}({parts[0]}, {parts[1]})"
        case Un("abs"):
            return f"|{parts[0]}|"
        case Un(op):
            return f"{'!' if op == 'not' else '-'}{parts[0]}"
        case Call(fn):
            return f"{fn}({parts[0]})"
        case Select():
            return f"({parts[0]} ? {parts[1]} : {parts[2]})"
        case _:
            raise TypeError(f"not an epilogue: {e!r}")


def _constant(value: object, v: str, dtype: DType) -> str:
    if dtype == boolean:
        return f"(({v}_mask){{0}} - {int(bool(value))})"
    number = float(value)  # type: ignore[arg-type]
    if number != number:
        return f"{v}_all(NAN)"
    if number in (float("inf"), float("-inf")):
        return f"{v}_all({'-' if number < 0 else ''}INFINITY)"
    return f"{v}_all({number.hex()}{'f' if dtype == f32 else ''})"


def _vector(e: Expr, parts: tuple[str, ...], v: str, bounds: Collection[str]) -> str:
    """Spell one step of the expression in C, from the text of its operands; bounds: variables that are numbers."""
    match e:
        case Const():
            return _constant(e.value, v, e.type)
        case Var():
            return e.name
        case Bin(op, a, b):
            if op in _ARITHMETIC:
                return f"({parts[0]} {_ARITHMETIC[op]} {parts[1]})"
            if op in _COMPARE:
                return f"(({v}_mask)({parts[0]} {_COMPARE[op]} {parts[1]}))"
            first = isinstance(a, Const) or (isinstance(a, Var) and a.name in bounds)
            bound, (limit, x) = (a, parts) if first else (b, parts[::-1])
            is_number = isinstance(bound, Const) and bound.value == bound.value
            if is_number or (isinstance(bound, Var) and bound.name in bounds):
                return f"{v}_at_{'most' if op == 'min' else 'least'}({limit}, {x})"
            return f"{v}_{op}({', '.join(parts)})"
        case Un(op):
            return f"{v}_abs({parts[0]})" if op == "abs" else f"({'~' if op == 'not' else '-'}{parts[0]})"
        case Call(fn):
            return f"{v}_{fn}({parts[0]})"
        case Select():
            return f"{v}_select({', '.join(parts)})"
        case _:
            raise TypeError(f"not an epilogue: {e!r}")
