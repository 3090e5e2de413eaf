"""Scalar expressions over loop indices, and tensors as index functions.

`Op.compute(out, *tensors)` returns a function from an index to an `Expr`; a `Tensor` operand is
called with an index the same way (`x[i, j]`).  Fusing a producer into its consumer is therefore
substitution.  The same `Expr` classes are the expressions of Loop IR (`irc.loops.ir`).

Every expression has an element type.  A `Bin`, `Un` or `Call` of a narrow float type (f16, bf16, f8) is
computed in f32 and rounded to that type at once; cast to f32 first where one rounding at the end is
meant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace as changed
from typing import TYPE_CHECKING, Any, Literal

from irc.ir.dim import Dim, DimLike, product
from irc.ir.limits import LARGEST_SIZE
from irc.ir.types import DType, TensorType, boolean, i64


@dataclass(frozen=True)
class Expr:
    """Base.  Python operators build `Bin`; comparisons are the methods `eq lt le` (a == b stays structural)."""

    if TYPE_CHECKING:  # every subclass has it, as a field or a property

        @property
        def dtype(self) -> DType: ...

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The expressions of which it directly consists."""
        return ()

    def __add__(self, other: Operand) -> Expr:
        return _arith("add", self, other)

    def __radd__(self, other: Operand) -> Expr:
        return _arith("add", wrap(other, self.dtype), self)

    def __sub__(self, other: Operand) -> Expr:
        return _arith("sub", self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return _arith("sub", wrap(other, self.dtype), self)

    def __mul__(self, other: Operand) -> Expr:
        return _arith("mul", self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return _arith("mul", wrap(other, self.dtype), self)

    def __truediv__(self, other: Operand) -> Expr:
        return _arith("div", self, other)

    def __rtruediv__(self, other: Operand) -> Expr:
        return _arith("div", wrap(other, self.dtype), self)

    def __floordiv__(self, other: Operand) -> Expr:
        return _arith("floordiv", self, other)

    def __mod__(self, other: Operand) -> Expr:
        return _arith("mod", self, other)

    def __neg__(self) -> Expr:
        return Un("neg", self)

    def min(self, other: Operand) -> Expr:
        return _arith("min", self, other)

    def max(self, other: Operand) -> Expr:
        return _arith("max", self, other)

    def eq(self, other: Operand) -> Expr:
        return _compare("eq", self, other)

    def ne(self, other: Operand) -> Expr:
        return _compare("ne", self, other)

    def lt(self, other: Operand) -> Expr:
        return _compare("lt", self, other)

    def le(self, other: Operand) -> Expr:
        return _compare("le", self, other)

    def gt(self, other: Operand) -> Expr:
        return _compare("lt", wrap(other, self.dtype), self)

    def ge(self, other: Operand) -> Expr:
        return _compare("le", wrap(other, self.dtype), self)

    def logical_and(self, other: Expr) -> Expr:
        return _logical("and", self, other)

    def logical_or(self, other: Expr) -> Expr:
        return _logical("or", self, other)

    def logical_not(self) -> Expr:
        return Const(not self.value, boolean) if isinstance(self, Const) else Un("not", self)

    def cast(self, dtype: DType) -> Expr:
        """Conversion as C and NumPy do it (floats to integers truncate)."""
        return self if self.dtype == dtype else Cast(self, dtype)


Operand = Expr | int | float | bool | Dim


@dataclass(frozen=True)
class Const(Expr):
    value: Any
    type: DType

    @property
    def dtype(self) -> DType:
        return self.type


@dataclass(frozen=True)
class Var(Expr):
    """A loop index, or a `Let`-bound scalar."""

    name: str
    type: DType = i64

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def dtype(self) -> DType:
        return self.type


@dataclass(frozen=True)
class Size(Expr):
    """A symbolic dimension as an i64 expression: a parameter of the generated code."""

    dim: Dim

    @property
    def dtype(self) -> DType:
        return i64


@dataclass(frozen=True)
class Bin(Expr):
    """op: add sub mul div floordiv mod min max pow and or bitand bitor bitxor shl shr eq ne lt le.

    Integer `div` truncates, `floordiv` rounds down, `mod` has the divisor's sign; division by zero gives 0.
    min and max propagate NaN.  Integers wrap modulo 2ⁿ.
    """

    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:
        return boolean if self.op in ("eq", "ne", "lt", "le", "and", "or") else self.a.dtype

    @property
    def parts(self) -> tuple[Expr, ...]:
        return self.a, self.b


@dataclass(frozen=True)
class Un(Expr):
    """op: neg not bitnot abs."""

    op: Literal["neg", "not", "bitnot", "abs"]
    a: Expr

    @property
    def dtype(self) -> DType:
        return self.a.dtype

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (self.a,)


@dataclass(frozen=True)
class Call(Expr):
    """A mathematical function: exp log sqrt tanh erf sin … pow fmod; `irc.backends.c.expr.MATH` is the list.

    isnan, isinf and isfinite give a boolean.
    """

    fn: str
    args: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        return boolean if self.fn in ("isnan", "isinf", "isfinite") else self.args[0].dtype

    @property
    def parts(self) -> tuple[Expr, ...]:
        return self.args


@dataclass(frozen=True)
class Select(Expr):
    """cond ? a : b; only the chosen side is evaluated (a Load guarded by its bounds is safe)."""

    cond: Expr
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:
        return self.a.dtype

    @property
    def parts(self) -> tuple[Expr, ...]:
        return self.cond, self.a, self.b


@dataclass(frozen=True)
class Cast(Expr):
    a: Expr
    type: DType

    @property
    def dtype(self) -> DType:
        return self.type

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (self.a,)


@dataclass(frozen=True)
class Bits(Expr):
    """The bit pattern of a float as an unsigned integer of its width, or of such an integer as a float."""

    a: Expr
    type: DType

    @property
    def dtype(self) -> DType:
        return self.type

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (self.a,)


@dataclass(frozen=True)
class Load(Expr):
    """An element of a buffer, by logical index."""

    buffer: Any
    index: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    @property
    def parts(self) -> tuple[Expr, ...]:
        return self.index


@dataclass(frozen=True)
class Reduce(Expr):
    """A reduction over a box: op of `body` for every `vars` in `extents`, row-major order.

    op: sum prod min max any all.  sum and prod of narrow floats accumulate in f32, integers wrap.
    Of an empty box: the operation's identity (min/max: the type's largest/smallest, floats ±inf).
    """

    op: str
    vars: tuple[Var, ...]
    extents: tuple[Dim, ...]
    body: Expr

    @property
    def dtype(self) -> DType:
        return self.body.dtype

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (self.body,)


def _compare_shared(cls: type[Expr]) -> None:
    """Expressions share parts, so hashing and comparing each path to one would take exponential time."""
    plain = cls.__hash__

    def cached(self: Expr) -> int:
        value = self.__dict__.get("_hash")
        if value is None:
            value = self.__dict__["_hash"] = plain(self)
        return value

    cls.__hash__ = cached
    cls.__eq__ = _equal


def _equal(self: Expr, other: object) -> bool:
    """Whether two expressions are of the same kind, with equal fields and parts."""
    if not isinstance(other, Expr):
        return NotImplemented
    seen: set[tuple[int, int]] = set()
    stack = [(self, other)]
    while stack:
        a, b = stack.pop()
        if a is b or (id(a), id(b)) in seen:
            continue
        parts = a.parts
        if type(a) is not type(b) or hash(a) != hash(b) or not (_alike(a, b) if parts else _same_leaf(a, b)):
            return False
        others = b.parts
        if len(parts) != len(others):
            return False
        seen.add((id(a), id(b)))
        stack += zip(parts, others, strict=True)
    return True


def _same_leaf(a: Expr, b: Expr) -> bool:
    """Whether two expressions of one kind without parts are equal."""
    return all(getattr(a, f.name) == getattr(b, f.name) for f in fields(a))


def _alike(a: Expr, b: Expr) -> bool:
    """Whether two expressions of one kind differ in nothing but their parts."""
    match a, b:
        case (Bin(), Bin()) | (Un(), Un()):
            return a.op == b.op
        case Call(), Call():
            return a.fn == b.fn
        case (Cast(), Cast()) | (Bits(), Bits()):
            return a.type == b.type
        case Load(), Load():
            return a.buffer == b.buffer
        case Reduce(), Reduce():
            return (a.op, a.vars, a.extents) == (b.op, b.vars, b.extents)
        case _:
            return True


for _cls in (Bin, Un, Call, Select, Cast, Bits, Load, Reduce):
    _compare_shared(_cls)


def wrap(value: Operand, dtype: DType) -> Expr:
    """A Python number or Dim as an expression of that type."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, Dim):
        return Const(int(value), i64) if value.is_const else Size(value)
    return Const(value, dtype)


def dim_of(e: Expr) -> Dim | None:
    """Give the size that an index expression is; None where it is more than a number or a size."""
    if isinstance(e, Const):
        return Dim.of(int(e.value))
    return e.dim if isinstance(e, Size) else None


def constant_of(e: Expr) -> int | None:
    """Give the number that an index expression is; None where it is none."""
    if isinstance(e, Const):
        return int(e.value)
    return int(e.dim) if isinstance(e, Size) and e.dim.is_const else None


def size_data(dim: Dim) -> Expr:
    """A size as data: modulo 2⁶⁴, as the operations that it replaces compute it."""
    lo, hi = dim.bounds(LARGEST_SIZE)
    if lo >= -(1 << 63) and hi < 1 << 63:
        return index(dim)
    total: Expr = Const(0, i64)
    for monomial, c in dim.terms:
        term: Expr = Const((c + (1 << 63)) % (1 << 64) - (1 << 63), i64)
        for atom in monomial:
            term = Bin("mul", term, Size(Dim({(atom,): 1})))
        total = Bin("add", total, term)
    return total


def index(value: Operand) -> Expr:
    """As an i64 index expression."""
    return wrap(value, i64)


_FOLD: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}


def _arith(op: str, a: Expr, b: Operand) -> Expr:
    """Bin, with index arithmetic (i64) folded; floating point is never re-associated."""
    b = wrap(b, a.dtype)
    if a.dtype == i64 and b.dtype == i64:
        if isinstance(a, Const) and isinstance(b, Const) and op in _FOLD:
            return Const(_FOLD[op](int(a.value), int(b.value)), i64)
        if isinstance(b, Const):
            if (op in ("add", "sub") and b.value == 0) or (op in ("mul", "floordiv") and b.value == 1):
                return a
            if op == "mul" and b.value == 0:
                return b
            if op == "mod" and b.value == 1:
                return Const(0, i64)
        if isinstance(a, Const):
            if op == "add" and a.value == 0:
                return b
            if op == "mul" and a.value == 1:
                return b
            if op in ("mul", "floordiv", "mod") and a.value == 0:
                return a
    return Bin(op, a, b)


def _compare(op: str, a: Expr, b: Operand) -> Expr:
    b = wrap(b, a.dtype)
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(bool(_FOLD[op](a.value, b.value)), boolean)
    return Bin(op, a, b)


def _logical(op: str, a: Expr, b: Expr) -> Expr:
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Const):
            neutral = bool(x.value) == (op == "and")
            return y if neutral else x
    return Bin(op, a, b)


def select(cond: Expr, a: Expr, b: Operand) -> Expr:
    b = wrap(b, a.dtype)
    if isinstance(cond, Const):
        return a if cond.value else b
    return Select(cond, a, b)


def call(fn: str, *args: Expr) -> Expr:
    return Call(fn, args)


def all_of(conditions: Iterable[Expr]) -> Expr:
    found: Expr = Const(True, boolean)
    for condition in conditions:
        found = found.logical_and(condition)
    return found


# ---------------------------------------------------------------------------- tensors
Index = tuple[Expr, ...]
IndexFunction = Callable[..., Expr]


@dataclass(frozen=True)
class Tensor:
    """A tensor operand of `compute`: its type and its elements as an index function.

    `array` is its data where that is constant (attributes given as operands).
    """

    type: TensorType
    at: Callable[[Index], Expr]
    array: Any = None

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.type.dims()

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    def __getitem__(self, at: Operand | tuple[Operand, ...]) -> Expr:
        items = at if isinstance(at, tuple) else (at,)
        assert len(items) == self.rank, f"{len(items)} indices for rank {self.rank}"
        return self.at(tuple(index(i) for i in items))

    def __call__(self, *at: Operand) -> Expr:
        return self[tuple(at)]

    def broadcast(self, at: Sequence[Expr], shape: Sequence[Dim]) -> Expr:
        """The element that stands at index `at` of the broadcast `shape` (NumPy's rule)."""
        skip = len(at) - self.rank
        return self[tuple(_clamp(i, d, full) for i, d, full in zip(at[skip:], self.shape, shape[skip:], strict=True))]

    def ints(self) -> list[int] | None:
        return None if self.array is None else [int(x) for x in self.array.reshape(-1)]


def _clamp(i: Expr, size: Dim, full: Dim) -> Expr:
    if size == full:
        return i
    if size == 1:
        return Const(0, i64)
    if size.bounds()[0] > 1:
        return i  # then it must equal the full size: a constraint checked on entry
    return select(index(size).eq(1), Const(0, i64), i)


_numbers = iter(range(1 << 62))


def reduce(op: str, extents: Sequence[DimLike], body: Callable[..., Expr]) -> Expr:
    """`Reduce` with fresh index variables: `reduce("sum", [k], lambda i: a[m, i] * b[i, n])`."""
    dims = tuple(Dim.of(d) for d in extents)
    names = tuple(Var(f"r{next(_numbers)}") for _ in dims)
    return Reduce(op, names, dims, body(*names))


def inside(i: Expr, size: DimLike) -> Expr:
    """0 <= i < size."""
    return Const(0, i64).le(i).logical_and(i.lt(index(Dim.of(size))))


def flatten_index(at: Sequence[Expr], shape: Sequence[Dim]) -> Expr:
    """Row-major position of an index."""
    found: Expr = Const(0, i64)
    for i, size in zip(at, shape, strict=True):
        found = found * index(size) + i
    return found


def unflatten_index(position: Expr, shape: Sequence[Dim]) -> Index:
    """The index of a row-major position."""
    found: list[Expr] = []
    for k in range(len(shape)):
        rest = math.prod([Dim.of(d) for d in shape[k + 1 :]], start=Dim.of(1))
        i = position // index(rest)
        found.append(i % index(shape[k]) if k else i)
    return tuple(found)


def reshaped_index(at: Sequence[Expr], shape: Sequence[Dim], to: Sequence[Dim]) -> Index:
    """The index under shape `to` of the element at index `at` of `shape`, the same row-major position.

    Axes whose products are equal are dealt with on their own, so that no symbolic size of others divides.
    """
    found: list[Expr] = []
    a = b = 0
    while b < len(to):
        ends = ((i, j) for i in range(a + 1, len(shape) + 1) for j in range(b + 1, len(to) + 1))
        i, j = next((e for e in ends if product(shape[a : e[0]]) == product(to[b : e[1]])), (len(shape), len(to)))
        found += unflatten_index(flatten_index(at[a:i], shape[a:i]), to[b:j])
        a, b = i, j
    return tuple(found)


# ---------------------------------------------------------------------------- parts
def rebuilt(e: Expr, parts: tuple[Expr, ...]) -> Expr:
    """The same kind of expression from other parts."""
    if all(a is b for a, b in zip(e.parts, parts, strict=True)):
        return e
    match e:
        case Bin():
            return Bin(e.op, *parts)
        case Un():
            return Un(e.op, *parts)
        case Cast():
            return Cast(parts[0], e.type)
        case Bits():
            return Bits(parts[0], e.type)
        case Call():
            return Call(e.fn, parts)
        case Select():
            return Select(*parts)
        case Load():
            return Load(e.buffer, parts)
        case Reduce():
            return changed(e, body=parts[0])
        case _:
            return e
