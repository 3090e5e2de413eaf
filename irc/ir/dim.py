"""Symbolic dimensions: canonical integer expressions over named sizes.

A `Dim` is a polynomial with integer coefficients over *atoms*; an atom is a symbol
(ONNX `dim_param`, OpenVINO `-1` or `2..8`) or an irreducible `floordiv`, `ceildiv`, `mod`,
`min` or `max` of Dims.  Equal Dims compare equal whatever way they were built, as far as
polynomial arithmetic and exact division can tell.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import Any, Union

INF = float("inf")
DimLike = Union["Dim", int]
_fresh = itertools.count(1)
_taken: set[int] = set()  # numbers that names of models end with as those of `fresh` do
_NUMBERED = re.compile(r"\?(\d{1,18})\Z", re.ASCII)
_CACHED = 1 << 16  # results remembered of each operation
LOCAL = "\ud800%"
"""Begins the names of symbols that are no sizes of a model: loop variables, and what is computed elsewhere.  No file
and no command line can hold it, so that no size of a model is taken for one of them."""


@dataclass(frozen=True, order=True)
class Symbol:
    """A named size, with the bounds the model declares for it (inclusive)."""

    name: str
    lo: int = 0
    hi: int | None = None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.lo, self.hi))

    def __str__(self) -> str:
        return self.name.replace(LOCAL, "%") if self.name.startswith(LOCAL) else self.name

    def bounds(self) -> tuple[float, float]:
        return self.lo, INF if self.hi is None else self.hi


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

    def bounds(self) -> tuple[float, float]:
        return self._bounds

    @cached_property
    def _bounds(self) -> tuple[float, float]:
        (alo, ahi), (blo, bhi) = self.args[0].bounds(), self.args[1].bounds()
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


class Dim:
    """An integer expression; immutable and hashable.  `int(d)` works when it is constant.

    Shapes are few and come back often: arithmetic, bounds and symbols are remembered.
    """

    __slots__ = ("_bounds", "_hash", "_symbols", "_text", "is_const", "terms")

    terms: tuple[tuple[Monomial, int], ...]
    is_const: bool

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        kept = [t for t in terms.items() if t[1]]
        if len(kept) > 1:
            kept.sort(key=lambda t: _key(t[0]))
        self.terms = tuple(kept) or (((), 0),)
        self.is_const = len(self.terms) == 1 and not self.terms[0][0]
        self._hash = hash(self.terms[0][1] if self.is_const else self.terms)
        self._bounds: tuple[float, float] | None = None
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
        if numbered := _NUMBERED.search(name):
            _taken.add(int(numbered[1]))
        return Dim({(Symbol(name, lo, hi),): 1})

    @staticmethod
    def fresh(hint: str = "d", hi: int | None = None) -> Dim:
        """A size nothing is known about yet; its name is unique in this process."""
        number = next(n for n in _fresh if n not in _taken)
        return Dim({(Symbol(f"{hint}?{number}", 0, hi),): 1})

    # --------------------------------------------------------------- inspecting
    @property
    def const(self) -> int | None:
        return self.terms[0][1] if self.is_const else None

    def __int__(self) -> int:
        if not self.is_const:
            raise ValueError(f"dimension {self} is not constant")
        return self.terms[0][1]

    __index__ = __int__

    def symbols(self) -> frozenset[Symbol]:
        if self._symbols is None:
            self._symbols = self._all_symbols()
        return self._symbols

    def _all_symbols(self) -> frozenset[Symbol]:
        found: set[Symbol] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                if isinstance(atom, Symbol):
                    found.add(atom)
                else:
                    for arg in atom.args:
                        found |= arg.symbols()
        return frozenset(found)

    def bounds(self) -> tuple[float, float]:
        """Inclusive lower and upper bound; infinite where unknown."""
        if self._bounds is None:
            self._bounds = self._all_bounds()
        return self._bounds

    def _all_bounds(self) -> tuple[float, float]:
        lo = hi = 0.0
        for monomial, c in self.terms:
            mlo, mhi = 1.0, 1.0
            for atom in monomial:
                alo, ahi = atom.bounds()
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
        lo, hi = (self - other).bounds()
        return True if lo == hi == 0 else False if lo > 0 or hi < 0 else None

    def at_most(self, other: DimLike) -> bool | None:
        """Whether self <= other; None where it depends on the symbols."""
        lo, hi = (self - other).bounds()
        return True if hi <= 0 else False if lo > 0 else None

    def less_than(self, other: DimLike) -> bool | None:
        return (self + 1).at_most(other)

    # --------------------------------------------------------------- arithmetic
    def __add__(self, other: DimLike) -> Dim:
        if isinstance(other, int) and not other:
            return self
        return _sum(self, Dim.of(other))

    def __mul__(self, other: DimLike) -> Dim:
        return _times(self, Dim.of(other))

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
            factor = self.terms[0][1] / other.terms[0][1]
            return Dim.of(int(factor)) if factor == int(factor) and other * int(factor) == self else None
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
        return whole + _func("floordiv", rest, other)

    def __rfloordiv__(self, other: DimLike) -> Dim:
        return Dim.of(other) // self

    def ceildiv(self, other: DimLike) -> Dim:
        other = Dim.of(other)
        if self.is_const and other.is_const and other != 0:
            return Dim.of(-(-int(self) // int(other)))
        exact = self.exact_div(other)
        return exact if exact is not None else _func("ceildiv", self, other)

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


def _scaled(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


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
    total: dict[Monomial, int] = {}
    for (ma, ca), (mb, cb) in itertools.product(a.terms, b.terms):
        monomial = tuple(sorted(ma + mb, key=str))
        total[monomial] = total.get(monomial, 0) + ca * cb
    return Dim(total)


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


def _func(op: str, a: Dim, b: Dim) -> Dim:
    if op in ("min", "max") and str(b) < str(a):
        a, b = b, a
    if op in ("floordiv", "ceildiv", "mod") and (a == 0 or (a.is_const and b.is_const and b != 0)):
        return Dim.of(0) if a == 0 else _REBUILD[op](a, b)
    return Dim({(Func(op, (a, b)),): 1})


def _extreme(op: str, a: Dim, b: Dim) -> Dim:
    """min or max of two Dims; what already stands inside the other adds nothing, and max(min(a, b), b) is b."""
    opposite = "max" if op == "min" else "min"
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


def product(dims: Iterable[DimLike]) -> Dim:
    """The number of elements of a shape."""
    return reduce(lambda a, b: a * b, map(Dim.of, dims), Dim.of(1))
