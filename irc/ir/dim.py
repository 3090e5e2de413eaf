"""Symbolic dimensions: canonical integer expressions over named sizes.

A `Dim` is a polynomial with integer coefficients over *atoms*; an atom is a symbol
(ONNX `dim_param`, OpenVINO `-1` or `2..8`) or an irreducible `floordiv`, `ceildiv`, `mod`,
`min` or `max` of Dims.  Equal Dims compare equal whatever way they were built, as far as
polynomial arithmetic and exact division can tell.  Formulas that grow beyond `irc.ir.limits` are Problem IRC3301.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, reduce
from typing import Any, Union

from irc.ir.limits import LARGEST_SIZE, RANK, SIZE_BITS, SIZE_DEPTH, SIZE_PARTS, SIZE_PRODUCTS

INF = float("inf")
DimLike = Union["Dim", int]
_fresh = itertools.count(1)
_taken: set[int] = set()  # numbers that names of models end with as those of `fresh` do
NUMBERED = re.compile(r"\?(\d{1,18})\Z", re.ASCII)  # the end of a name that `fresh` made up
_CACHED = 1 << 16  # results remembered of each operation
LARGEST_FACTOR = 4096  # of factors of a product of 0
LOCAL = "\ud800%"
"""Begins the names of symbols that are no sizes of a model: loop variables, and what is computed elsewhere.  No file
and no command line can hold it, so that no size of a model is taken for one of them."""


@dataclass(frozen=True)
class Factors:
    """Sizes whose product is known though none of them is, as those of a reshape: their number, and the product."""

    key: int
    count: int
    total: Dim = field(compare=False)


@dataclass(frozen=True)
class Symbol:
    """A named size, with the bounds the model declares for it (inclusive).

    Of one that the run computes, `most` is a bound over sizes that are known before, `among` the factors it is one of.
    """

    name: str
    lo: int = 0
    hi: int | None = None
    most: Dim | None = field(default=None, repr=False)
    among: Factors | None = field(default=None, compare=False, repr=False)

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: Symbol) -> bool:
        return (self.name, self.lo) < (other.name, other.lo)

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.lo, self.hi))

    def __str__(self) -> str:
        return self.name.replace(LOCAL, "%") if self.name.startswith(LOCAL) else self.name

    def is_made_up_like(self, other: Symbol) -> bool:
        """Tell whether both names were made up by `Dim.fresh`, from the same hint."""
        a, b = NUMBERED.split(self.name), NUMBERED.split(other.name)
        return len(a) == len(b) > 1 and a[0] == b[0]

    @property
    def parts(self) -> int:
        """How much of a formula it is; long names count more."""
        return 1 + len(self.name) // 64

    @property
    def depth(self) -> int:
        return 0

    def bounds(self, largest: float = INF) -> tuple[float, float]:
        return self.lo, max(largest, self.lo) if self.hi is None else self.hi


@dataclass(frozen=True)
class Func:
    """An irreducible integer function of Dims: floordiv, ceildiv, mod, min or max."""

    op: str
    args: tuple[Dim, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.op, self.args))

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        if self.op in ("floordiv", "mod"):
            a, b = (
                str(x) if x.is_const or (len(x.terms) == 1 and len(x.terms[0][0]) == 1) else f"({x})" for x in self.args
            )
            return f"{a}{'//' if self.op == 'floordiv' else '%'}{b}"
        return f"{self.op}({', '.join(map(str, self.args))})"

    @cached_property
    def parts(self) -> int:
        """The symbols and functions it is made of."""
        return 1 + sum(a.parts for a in self.args)

    @cached_property
    def depth(self) -> int:
        """How many functions stand inside each other."""
        return 1 + max(a.depth for a in self.args)

    def bounds(self, largest: float = INF) -> tuple[float, float]:
        (alo, ahi), (blo, bhi) = self.args[0].bounds(largest), self.args[1].bounds(largest)
        if self.op == "min":
            return min(alo, blo), min(ahi, bhi)
        if self.op == "max":
            return max(alo, blo), max(ahi, bhi)
        if self.op == "mod":
            return (0, bhi - 1) if blo > 0 else (-INF, INF)
        if blo <= 0:
            return -INF, INF
        corners = [_divide(a, b) for a in (alo, ahi) for b in (blo, bhi)]
        lo, hi = min(corners), max(corners)
        return (lo, hi + 1) if self.op == "ceildiv" else (lo, hi)


def _divide(a: float, b: float) -> float:
    if b == INF:
        return 0 if a >= 0 else -1
    return a if abs(a) == INF else a // b


Atom = Symbol | Func
Monomial = tuple[Atom, ...]


@lru_cache(_CACHED)
def _key(monomial: Monomial) -> tuple[int, str]:
    return len(monomial), "*".join(map(str, monomial))


class SizeUnknown(ValueError):
    """A number was asked of a size that only a run tells."""


class Dim:
    """An integer expression; immutable and hashable.  `int(d)` works when it is constant.

    Shapes are few and come back often: arithmetic, bounds and symbols are remembered.
    """

    __slots__ = ("_bounds", "_hash", "_symbols", "_text", "depth", "is_const", "parts", "terms")

    terms: tuple[tuple[Monomial, int], ...]
    is_const: bool
    parts: int  # symbols and functions, those of arguments too
    depth: int  # of functions inside each other

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        kept = [t for t in terms.items() if t[1]]
        if len(kept) > 1:
            kept.sort(key=lambda t: _key(t[0]))
        self.terms = tuple(kept) or (((), 0),)
        self.is_const = len(self.terms) == 1 and not self.terms[0][0]
        self._hash = hash(self.terms[0][1] if self.is_const else self.terms)
        atoms = [a for m, _ in self.terms for a in m]
        self.parts = sum(a.parts for a in atoms) + len(self.terms)
        self.depth = max((a.depth for a in atoms), default=0)
        self._bounds: dict[float, tuple[float, float]] = {}
        self._symbols: frozenset[Symbol] | None = None
        self._text: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Dim, (dict(self.terms),)

    # ------------------------------------------------------------------ making
    @staticmethod
    def of(value: DimLike) -> Dim:
        return value if isinstance(value, Dim) else _number(int(value))

    @staticmethod
    def symbol(name: str, lo: int = 0, hi: int | None = None) -> Dim:
        """A named size; none that is made up later has its name."""
        if numbered := NUMBERED.search(name):
            _taken.add(int(numbered[1]))
        return Dim({(Symbol(name, lo, hi),): 1})

    @staticmethod
    def fresh(hint: str = "d", most: DimLike | None = None) -> Dim:
        """A size of which nothing is known yet, but perhaps an upper bound; its name is unique in this process."""
        return _made_up(hint, None if most is None else Dim.of(most), None)

    @staticmethod
    def fresh_factors(hint: str, rank: int, total: Dim) -> list[Dim]:
        """That many sizes of which nothing is known but their product; Problem IRC3301 like `fresh_shape`."""
        RANK.check(rank, hint)
        among = Factors(next(_fresh), rank, total)
        return [_made_up(hint, total.maximum(LARGEST_FACTOR), among) for _ in range(rank)]

    @staticmethod
    def fresh_shape(hint: str, rank: int) -> list[Dim]:
        """That many sizes nothing is known about; Problem IRC3301 for more than an array has axes."""
        RANK.check(rank, hint)
        return [Dim.fresh(hint) for _ in range(rank)]

    # --------------------------------------------------------------- inspecting
    @property
    def const(self) -> int | None:
        return self.terms[0][1] if self.is_const else None

    def __int__(self) -> int:
        if not self.is_const:
            raise SizeUnknown(f"dimension {self} is not constant")
        return self.terms[0][1]

    __index__ = __int__

    def symbol_alone(self) -> Symbol | None:
        """The symbol that this is, if it is no formula."""
        atom = self.terms[0][0][0] if len(self.terms) == len(self.terms[0][0]) == self.terms[0][1] == 1 else None
        return atom if isinstance(atom, Symbol) else None

    def symbols(self) -> frozenset[Symbol]:
        if self._symbols is None:
            self._symbols = self._all_symbols()
        return self._symbols

    def _all_symbols(self) -> frozenset[Symbol]:
        found: set[Symbol] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                found |= {atom} if isinstance(atom, Symbol) else {s for arg in atom.args for s in arg.symbols()}
        return frozenset(found)

    def bounds(self, largest: float = INF) -> tuple[float, float]:
        """Inclusive lower and upper bound where no symbol is above `largest`; infinite where unknown."""
        if self.is_const:
            return self.terms[0][1], self.terms[0][1]
        found = self._bounds.get(largest)
        if found is None:
            found = self._bounds[largest] = self._all_bounds(largest)
        return found

    def _all_bounds(self, largest: float) -> tuple[float, float]:
        lo: float = 0
        hi: float = 0
        for monomial, c in self.terms:
            mlo: float = 1
            mhi: float = 1
            for atom in monomial:
                alo, ahi = atom.bounds(largest)
                corners = [_scaled(x, y) for x in (mlo, mhi) for y in (alo, ahi)]
                mlo, mhi = min(corners), max(corners)
            a, b = _scaled(c, mlo), _scaled(c, mhi)
            lo, hi = lo + min(a, b), hi + max(a, b)
        return lo, hi

    def __str__(self) -> str:
        if self._text is None:
            self._text = self._written()
        return self._text

    def _written(self) -> str:
        parts: list[str] = []
        for monomial, c in self.terms:
            body = "*".join(f"({a})" if isinstance(a, Func) and len(monomial) > 1 else str(a) for a in monomial)
            text = str(abs(c)) if not monomial else body if abs(c) == 1 else f"{abs(c)}*{body}"
            sign = ("-" if c < 0 else "") if not parts else (" - " if c < 0 else " + ")
            parts.append(sign + text)
        return "".join(parts)

    def __repr__(self) -> str:
        return f"Dim({self})"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    # ---------------------------------------------------------------- comparing
    def __eq__(self, other: object) -> bool:
        if isinstance(other, Dim):
            return self is other or (self._hash == other._hash and self.terms == other.terms)
        return isinstance(other, int) and self.is_const and self.terms[0][1] == other

    def __hash__(self) -> int:
        return self._hash

    def __bool__(self) -> bool:
        return self != 0

    def equals(self, other: DimLike) -> bool | None:
        """True or False where that is certain, None where it depends on the symbols."""
        lo, hi = (self - other).bounds(LARGEST_SIZE)
        return True if lo == hi == 0 else False if lo > 0 or hi < 0 else None

    def at_most(self, other: DimLike) -> bool | None:
        """Whether self <= other; None where it depends on the symbols."""
        lo, hi = (self - other).bounds(LARGEST_SIZE)
        return True if hi <= 0 else False if lo > 0 else None

    def less_than(self, other: DimLike) -> bool | None:
        return (self + 1).at_most(other)

    # --------------------------------------------------------------- arithmetic
    def __add__(self, other: DimLike) -> Dim:
        b = Dim.of(other)
        return _number(self.terms[0][1] + b.terms[0][1]) if self.is_const and b.is_const else _sum(self, b)

    def __mul__(self, other: DimLike) -> Dim:
        b = Dim.of(other)
        return _number(self.terms[0][1] * b.terms[0][1]) if self.is_const and b.is_const else _times(self, b)

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: DimLike) -> Dim:
        return self + Dim.of(other) * -1

    def __rsub__(self, other: DimLike) -> Dim:
        return Dim.of(other) - self

    __radd__ = __add__
    __rmul__ = __mul__

    def exact_div(self, other: DimLike) -> Dim | None:
        """self / other where polynomial division leaves nothing over, else None."""
        return _exact(self, Dim.of(other))

    def _exact_div(self, other: Dim) -> Dim | None:
        if other == 0:
            return None
        if self == other:
            return Dim.of(1)
        if len(other.terms) != 1:
            factor, rest = divmod(self.terms[0][1], other.terms[0][1])
            return Dim.of(factor) if not rest and other * factor == self else None
        ((divisor, c),) = other.terms
        quotient: dict[Monomial, int] = {}
        for monomial, k in self.terms:
            left = list(monomial)
            for atom in divisor:
                if atom not in left:
                    return Dim.of(0) if self == 0 else None
                left.remove(atom)
            if k % c:
                return None
            quotient[tuple(left)] = k // c
        return Dim(quotient)

    def __floordiv__(self, other: DimLike) -> Dim:
        return _floordiv(self, Dim.of(other))

    def _floor_div(self, other: Dim) -> Dim:
        if self.is_const and other.is_const and other != 0:
            return Dim.of(int(self) // int(other))
        exact = self.exact_div(other)
        if exact is not None:
            return exact
        whole, rest = self._split(other)
        return whole + (_divided(rest, other, False) or _func("floordiv", rest, other))

    def __rfloordiv__(self, other: DimLike) -> Dim:
        return Dim.of(other) // self

    def ceildiv(self, other: DimLike) -> Dim:
        other = Dim.of(other)
        if self.is_const and other.is_const and other != 0:
            return Dim.of(-(-int(self) // int(other)))
        exact = self.exact_div(other)
        return exact if exact is not None else _divided(self, other, True) or _func("ceildiv", self, other)

    def __mod__(self, other: DimLike) -> Dim:
        return _mod(self, Dim.of(other))

    def _modulo(self, other: Dim) -> Dim:
        if self.is_const and other.is_const and other != 0:
            return Dim.of(int(self) % int(other))
        if self.exact_div(other) is not None:
            return Dim.of(0)
        return _func("mod", self._split(other)[1], other)

    def __rmod__(self, other: DimLike) -> Dim:
        return Dim.of(other) % self

    def _split(self, other: Dim) -> tuple[Dim, Dim]:
        """(q, r) with self = q * other + r, taking out every term that divides exactly."""
        whole, rest = Dim.of(0), Dim.of(0)
        for monomial, c in self.terms:
            term = Dim({monomial: c})
            exact = term.exact_div(other)
            if exact is None:
                rest = rest + term
            else:
                whole = whole + exact
        return whole, rest

    def minimum(self, other: DimLike) -> Dim:
        order = self.at_most(other)
        if order is not None:
            return self if order else Dim.of(other)
        return Dim.of(other) if Dim.of(other).at_most(self) else _extreme("min", self, Dim.of(other))

    def maximum(self, other: DimLike) -> Dim:
        order = self.at_most(other)
        if order is not None:
            return Dim.of(other) if order else self
        return self if Dim.of(other).at_most(self) else _extreme("max", self, Dim.of(other))

    # ------------------------------------------------------------- substituting
    def subs(self, values: Mapping[str, DimLike]) -> Dim:
        """Replace symbols by name; what is not named stays."""
        names = sorted({s.name for s in self.symbols() if s.name in values})
        return _replaced(self, tuple((n, Dim.of(values[n])) for n in names)) if names else self

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The number this is for the given symbol values; ValueError if one is missing."""
        return int(self.subs(values))


def _made_up(hint: str, most: Dim | None, among: Factors | None) -> Dim:
    """A symbol that no other has the name of."""
    high = INF if most is None else max(most.bounds()[1], 0)
    name = f"{hint}?{next(n for n in _fresh if n not in _taken)}"
    return Dim({(Symbol(name, 0, None if high == INF else int(high), most, among),): 1})


def _scaled(a: float, b: float) -> float:
    return 0 if a == 0 or b == 0 else a * b


@lru_cache(_CACHED)
def _sum(a: Dim, b: Dim) -> Dim:
    total = dict(a.terms)
    for monomial, c in b.terms:
        total[monomial] = total.get(monomial, 0) + c
    return Dim(total)


@lru_cache(_CACHED)
def _times(a: Dim, b: Dim) -> Dim:
    factor = b.const
    if factor is not None:
        return a if factor == 1 else Dim({m: c * factor for m, c in a.terms})
    SIZE_PRODUCTS.check(len(a.terms) * len(b.terms), "size")
    SIZE_PARTS.check(max(len(a.terms), a.parts) + max(len(b.terms), b.parts), "size")
    total: dict[Monomial, int] = {}
    for (ma, ca), (mb, cb) in itertools.product(a.terms, b.terms):
        monomial = tuple(sorted(ma + mb, key=str))
        total[monomial] = total.get(monomial, 0) + ca * cb
    return _checked(Dim(total))


def _checked(dim: Dim) -> Dim:
    """The Dim; Problem IRC3301 if its formula is too large.  Sums alone, as of memory, may have any length."""
    SIZE_PARTS.check(dim.parts, "size")
    SIZE_BITS.check(max(abs(c).bit_length() for _, c in dim.terms), "size")
    return dim


_exact = lru_cache(_CACHED)(Dim._exact_div)  # pyright: ignore[reportPrivateUsage]
_floordiv = lru_cache(_CACHED)(Dim._floor_div)  # pyright: ignore[reportPrivateUsage]
_mod = lru_cache(_CACHED)(Dim._modulo)  # pyright: ignore[reportPrivateUsage]


@lru_cache(_CACHED)
def _replaced(dim: Dim, values: tuple[tuple[str, Dim], ...]) -> Dim:
    known, total = dict(values), Dim.of(0)
    for monomial, c in dim.terms:
        term = Dim.of(c)
        for atom in monomial:
            term = term * _subs_atom(atom, known)
        total = total + term
    return total


_OF_NUMBERS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b,
    "ceildiv": lambda a, b: -(-a // b),
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}


def _func(op: str, a: Dim, b: Dim) -> Dim:
    if op in ("min", "max") and str(b) < str(a):
        a, b = b, a
    if op in ("floordiv", "ceildiv", "mod") and a == 0:
        return Dim.of(0)
    if a.is_const and b.is_const and (b != 0 or op in ("min", "max")):
        return _number(_OF_NUMBERS[op](int(a), int(b)))
    SIZE_DEPTH.check(1 + max(a.depth, b.depth), "size")
    return _checked(Dim({(Func(op, (a, b)),): 1}))


def _shifted(dim: Dim) -> tuple[Func, int] | None:
    """(f, k) where the Dim is f + k, a function and a number."""
    head = [t for t in dim.terms if t[0]]
    if len(head) != 1 or head[0][1] != 1 or len(head[0][0]) != 1:
        return None
    atom = head[0][0][0]
    return (atom, sum(c for m, c in dim.terms if not m)) if isinstance(atom, Func) else None


def _divided(dim: Dim, by: Dim, up: bool) -> Dim | None:
    """dim / by, rounded, where `by` is a positive number and a function inside can take the division in.

    Divisions of rounded divisions are one; an extreme of a number and something is the extreme of the quotients.
    """
    c = by.const
    if c is None or c <= 0:
        return None
    if c > LARGEST_SIZE:
        lo, hi = (_divide(x + (c - 1) * up, c) for x in dim.bounds(LARGEST_SIZE))
        if lo == hi:
            return Dim.of(int(lo))
    found = _shifted(dim)
    if found is None:
        return None
    (inner, k), op = found, found[0].op
    a, b = inner.args
    if op in ("floordiv", "ceildiv") and b.is_const and int(b) > 0:
        if up and op == "ceildiv":
            return (a + b * k).ceildiv(b * c)
        return (a + b * (k + (c - 1) * up) + (int(b) - 1) * (op == "ceildiv")) // (b * c)
    if op in ("min", "max") and (a.is_const or b.is_const):
        x, y = ((v + k).ceildiv(by) if up else (v + k) // by for v in (a, b))
        return x.minimum(y) if op == "min" else x.maximum(y)
    return None


def _extreme(op: str, a: Dim, b: Dim) -> Dim:
    """min or max of two Dims; what already stands inside the other adds nothing, and max(min(a, b), b) is b."""
    opposite = "max" if op == "min" else "min"
    for x, y in ((a, b), (b, a)):
        inner = _shifted(x)
        if inner is not None and inner[0].op == op and inner[1] and y.is_const:  # max(max(p, 3) + 1, 0) = max(p + 1, 4)
            p, q = (v + inner[1] for v in inner[0].args)
            if p.is_const or q.is_const:
                return p.maximum(q.maximum(y)) if op == "max" else p.minimum(q.minimum(y))
    for x, y in ((a, b), (b, a)):
        if any(part == y for part in _parts(op, x)):
            return x
        if any(part == y for part in _parts(opposite, x)):
            return y
    return _func(op, a, b)


def _parts(op: str, dim: Dim) -> list[Dim]:
    """The Dims whose min (or max) `dim` is, itself among them."""
    (monomial, c), *rest = dim.terms
    if rest or c != 1 or len(monomial) != 1 or not isinstance(monomial[0], Func) or monomial[0].op != op:
        return [dim]
    return [dim, *(part for arg in monomial[0].args for part in _parts(op, arg))]


_REBUILD: dict[str, Callable[[Dim, Dim], Dim]] = {
    "floordiv": lambda a, b: a // b,
    "ceildiv": lambda a, b: a.ceildiv(b),
    "mod": lambda a, b: a % b,
    "min": lambda a, b: a.minimum(b),
    "max": lambda a, b: a.maximum(b),
}


def _subs_atom(atom: Atom, values: Mapping[str, Dim]) -> Dim:
    if isinstance(atom, Symbol):
        return values[atom.name] if atom.name in values else Dim({(atom,): 1})
    a, b = (x.subs(values) for x in atom.args)
    return _REBUILD[atom.op](a, b)


@lru_cache(1 << 12)
def _number(value: int) -> Dim:
    return Dim({(): value})


def total(dims: Iterable[DimLike]) -> Dim:
    """The sum; Problem IRC3301 where its formula is too large."""
    found: dict[Monomial, int] = {}
    for dim in dims:
        for monomial, c in Dim.of(dim).terms:
            found[monomial] = found.get(monomial, 0) + c
        SIZE_PARTS.check(len(found), "size")
    return _checked(Dim(found))


def product(dims: Iterable[DimLike]) -> Dim:
    """The number of elements of a shape."""
    return reduce(lambda a, b: a * b, map(Dim.of, dims), Dim.of(1))
