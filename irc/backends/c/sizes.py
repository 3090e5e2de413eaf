"""Sizes as C expressions, and the checks that keep their arithmetic within 64 bits.

A size is printed as plain arithmetic on `int64_t`.  Where no values of its symbols can make it, or any part of it,
leave the range (`magnitude`), that is all.  Every other size that generated code computes is compared once, in
P_check, by a sum of products in `double`, which cannot wrap: the absolute value of every term is added, and a factor
of 0 counts as 1, so that partial products are within the limit too, in whatever order they are computed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from irc.backends.c.expr import integer
from irc.backends.c.names import Names
from irc.backends.c.text import CName
from irc.diagnostics import require
from irc.diagnostics.codes import lowering
from irc.ir.dim import INF, LOCAL, Atom, Dim, Func, Monomial, Symbol

LARGEST_SIZE = 0x7FFFFFFF
"""Largest value of a symbol whose bound the model does not declare."""
LIMIT = 1 << 62
"""Largest size, number of bytes and offset, and largest partial result of computing one."""
EMPTY = 1 << 32
"""What the symbolic sizes of a tensor without elements may multiply to, the 0 as 1: loops count to them for nothing."""
_CACHED = 1 << 12
"""Sizes of which factors and bounds are remembered: many are printed and compared in several functions."""
_BELOW_LIMIT = "0x1.fffffffp61"
"""What sums in double are compared with for `LIMIT`: less by more than their rounding; none beyond it passes."""


# -------------------------------------------------------------------- text
def dim_text(dim: Dim, symbol: Callable[[str], str], helper: Callable[[str], str]) -> str:
    """Print a size as a C expression over its symbols."""
    text = _product([_sum(d, lambda a: _atom_text(a, symbol, helper), _integer) for d in factors(dim)])
    (monomial, c), *more = dim.terms
    alone = not more and len(monomial) == c == 1
    return text[1:-1] if alone and text.startswith("(") else text


def _integer(c: int) -> str:
    return integer(c, "i64")[0]


def _product(texts: Sequence[str]) -> str:
    """Print a product, of which sums stand in parentheses."""
    return texts[0] if len(texts) == 1 else " * ".join(f"({t})" if " + " in t or " - " in t else t for t in texts)


def _sum(dim: Dim, atom: Callable[[Atom], str], number: Callable[[int], str]) -> str:
    """Print the terms of a size, constants last."""
    parts: list[str] = []
    for monomial, c in sorted(dim.terms, key=lambda t: -len(t[0])):
        product = [number(abs(c))] * (abs(c) != 1 or not monomial) + [atom(a) for a in monomial]
        sign = ("-" if c < 0 else "") if not parts else ("- " if c < 0 else "+ ")
        parts.append(sign + " * ".join(product))
    return " ".join(parts)


@lru_cache(_CACHED)
def factors(dim: Dim) -> Sequence[Dim]:
    """Write a size as a product of sums with fewer symbols and functions in all, where one is seen; else as it is.

    Multiplied out, no two of their terms are of one kind.  So what bounds the sum of the absolute values of all terms
    of the size bounds the product, and the product of some of them, too.
    """
    if len(dim.terms) == 1:
        return [dim]
    common = Counter(dim.terms[0][0])
    for monomial, _ in dim.terms:
        common &= Counter(monomial)
    alone = Dim({tuple(sorted(common.elements(), key=str)): math.gcd(*(c for _, c in dim.terms))})
    left = dim.exact_div(alone)
    assert left is not None
    found = [alone] * (alone != 1)
    while pair := _without_factor(left):
        found, left = [*found, pair[0]], pair[1]
    found += [left] * (left != 1)
    return found if sum(map(_atoms, found)) < _atoms(dim) else [dim]


def _atoms(dim: Dim) -> int:
    return sum(len(monomial) for monomial, _ in dim.terms)


def _without_factor(dim: Dim) -> tuple[Dim, Dim] | None:
    """Write a size as n a + k, a symbol or a function times a number and another number, times what is without a."""
    for atom in dict.fromkeys(a for monomial, _ in dim.terms for a in monomial):
        having = {tuple(a for a in m if a != atom): c for m, c in dim.terms if m.count(atom) == 1}
        others = {m: c for m, c in dim.terms if atom not in m}
        if having.keys() != others.keys() or len(having) + len(others) != len(dim.terms):
            continue
        n, k = next((having[m], c) for m, c in others.items())
        n, k = n // math.gcd(n, k), k // math.gcd(n, k)
        if all(having[m] * k == c * n for m, c in others.items()):
            return Dim({(atom,): n, (): k}), Dim({m: c // n for m, c in having.items()})
    return None


def _atom_text(atom: Atom, symbol: Callable[[str], str], helper: Callable[[str], str]) -> str:
    if isinstance(atom, Symbol):
        return symbol(atom.name)
    a, b = (dim_text(x, symbol, helper) for x in atom.args)
    if atom.op in ("floordiv", "mod") and atom.args[0].bounds()[0] >= 0 and atom.args[1].bounds()[0] > 0:
        left = a if len(atom.args[0].terms) == 1 else f"({a})"
        right = b if b.isidentifier() or b.isdigit() else f"({b})"
        return f"({left} {'/' if atom.op == 'floordiv' else '%'} {right})"
    name = "ceildiv" if atom.op == "ceildiv" else f"{atom.op}_i64"
    return f"{helper(name)}({a}, {b})"


# -------------------------------------------------------------------- bounds
def power(limit: int) -> str:
    """Spell a power of two for a reader."""
    return f"2^{limit.bit_length() - 1}"


def largest(symbol: Symbol) -> int:
    """Return the largest value that P_check accepts for a symbol."""
    return max(LARGEST_SIZE, symbol.lo) if symbol.hi is None else min(symbol.hi, LIMIT)


@lru_cache(_CACHED)
def magnitude(dim: Dim) -> int:
    """Bound the absolute value of every partial result of computing a size whose atoms are known."""
    return sum(math.prod(map(_atom_magnitude, monomial), start=abs(c)) for monomial, c in dim.terms)


def _atom_magnitude(atom: Atom) -> int:
    """Bound an atom's absolute value, by at least 1; the operands of a function have been checked."""
    if isinstance(atom, Symbol):
        return max(abs(atom.lo), largest(atom), 1)
    a, b = (min(magnitude(x), LIMIT) for x in atom.args)
    divisor = atom.args[1].const
    if atom.op in ("floordiv", "ceildiv"):
        return a // abs(divisor) + 1 if divisor else a + 1
    found = b if atom.op == "mod" else max(a, b)
    lo, hi = atom.bounds()
    return int(max(min(found, max(-lo, hi)), 1))


def least(dim: Dim) -> int:
    """Compute the magnitude of a size with all atoms at 1 (an atom at 0 counts as 1)."""
    return sum(abs(c) for _, c in dim.terms)


def upper_bound(dim: Dim) -> float:
    """Return the largest value of a size that has passed the checks."""
    hi = dim.bounds()[1]
    return hi if hi < INF else min(magnitude(dim), LIMIT)


@lru_cache(_CACHED)
def _depth(dim: Dim) -> int:
    """Count how deep functions are nested."""
    nested = (1 + max(map(_depth, a.args)) for m, _ in dim.terms for a in m if isinstance(a, Func))
    return max(nested, default=0)


def with_operands(dims: Iterable[Dim]) -> dict[Dim, None]:
    """Collect these sizes and all operands of functions within them, each once."""
    found: dict[Dim, None] = {}
    todo = list(dims)[::-1]
    while todo:
        dim = todo.pop()
        if dim not in found and not dim.is_const:
            found[dim] = None
            todo += [x for m, _ in dim.terms for a in m if isinstance(a, Func) for x in a.args]
    return found


# -------------------------------------------------------------------- printing in one function
class Sizes:
    """Sizes as C expressions in one function, after P_check.

    Quotients, remainders and extremes are computed once: in long sums of products they come back often, and compilers
    are slow to find that out.
    """

    def __init__(self, symbols: Mapping[str, CName], taken: Collection[str], helper: Callable[[str], str]) -> None:
        self.symbols, self.names, self.helper = symbols, Names(frozenset(taken)), helper
        self.lines: list[str] = []  # to be printed before what `text` returned
        self.found: dict[Func, Symbol] = {}
        self.written: list[tuple[Dim, str]] = []

    def text(self, dim: Dim) -> str:
        """Print a size as an expression, for use below `lines`."""
        return dim_text(self._plain(dim), self._name, self.helper)

    def next(self, dim: Dim, place: str) -> str:
        """Print what is stored at `place`: an earlier place and the difference, if that is shorter."""
        earlier = [(dim - d, at) for d, at in self.written[-8:]]
        growing = [(rest, at) for rest, at in earlier if all(c > 0 for _, c in rest.terms)]  # no more than `dim`
        best = min(growing, key=lambda b: len(b[0].terms), default=(dim, ""))
        self.written.append((dim, place))
        return self.text(dim) if len(best[0].terms) >= len(dim.terms) else f"{best[1]} + {self.text(best[0])}"

    def _plain(self, dim: Dim) -> Dim:
        """Replace functions in a size by symbols."""
        plain = Dim.of(0)
        for monomial, c in dim.terms:
            plain = plain + math.prod((Dim({(self._symbol(a),): 1}) for a in monomial), start=Dim.of(c))
        return plain

    def _symbol(self, atom: Atom) -> Symbol:
        if isinstance(atom, Symbol):
            return atom
        if atom not in self.found:
            plain = Dim({(Func(atom.op, tuple(map(self._plain, atom.args))),): 1})
            name, (lo, hi) = self.names.own("size", numbered=True), atom.bounds()
            text = dim_text(plain, self._name, self.helper)
            self.lines.append(f"    const int64_t {name} = {text};")
            self.found[atom] = Symbol(LOCAL + name, int(max(lo, -LARGEST_SIZE)), None if hi == INF else int(hi))
        return self.found[atom]

    def _name(self, symbol: str) -> CName:
        return CName(symbol.removeprefix(LOCAL)) if symbol.startswith(LOCAL) else self.symbols[symbol]


class CheckedSizes(Sizes):
    """Sizes of any values of the symbols.

    Each computation follows a check, which returns `refusal` beyond the limit.
    """

    def __init__(
        self, symbols: Mapping[str, CName], taken: Collection[str], helper: Callable[[str], str], refusal: str
    ) -> None:
        super().__init__(symbols, taken, helper)
        self.refusal = refusal
        self.passed: dict[Dim, int] = {}
        self.sums: list[tuple[int, dict[Monomial, int]]] = []  # what has been compared, and the limit

    def text(self, dim: Dim) -> str:
        self.check([dim])
        return super().text(dim)

    def check(self, dims: Iterable[Dim], limit: int = LIMIT) -> None:
        """Ensure that these are safe to compute and at most `limit`, a power of two.

        Large ones come first, as they speak for smaller ones.
        """
        asked = dict.fromkeys(dims)
        for dim in sorted(with_operands(asked), key=lambda d: (_depth(d), -magnitude(d))):
            most = limit if dim in asked else LIMIT
            if self.passed.get(dim, most + 1) > most:
                self.passed[dim] = most
                self._compare(dim, most)

    def check_empty(self, shapes: Iterable[tuple[Dim, ...]]) -> None:
        """Refuse tensors without elements that take long to go through."""
        symbolic = {tuple(sorted((d for d in shape if not d.is_const), key=str)) for shape in shapes}
        done: list[Counter[Dim]] = []
        for dims in sorted(symbolic, key=lambda dims: (-len(dims), list(map(str, dims)))):
            several = len(dims) > 1 and math.prod(map(magnitude, dims)) > EMPTY
            if several and min(d.bounds()[0] for d in dims) <= 0 and not any(Counter(dims) <= d for d in done):
                done.append(Counter(dims))
                sizes = ", ".join(map(self.text, dims))
                empty = f"{self.helper('idle')}({len(dims)}, (const int64_t[]){{{sizes}}})"
                self.lines.append(f"    if ({empty}) return {self.refusal};")

    def _compare(self, dim: Dim, limit: int) -> None:
        require(least(dim) <= limit, lowering.SIZE_LIMIT, what=f"the size {dim}", limit=power(limit))
        terms = {m: abs(c) for m, c in dim.terms}
        if magnitude(dim) <= limit or any(most <= limit and _covers(s, terms) for most, s in self.sums):
            return
        self.sums.append((limit, terms))
        most = _BELOW_LIMIT if limit == LIMIT else f"0x1p{limit.bit_length() - 1}"
        self.lines.append(f"    if ({self._sum(terms)} > {most}) return {self.refusal};")

    def _sum(self, terms: Mapping[Monomial, int]) -> str:
        """Add up all terms, in double."""
        return _product([_sum(d, self._factor, lambda c: repr(float(c))) for d in factors(Dim(terms))])

    def _factor(self, atom: Atom) -> str:
        return f"{self.helper('factor')}({self._name(self._symbol(atom).name)})"


def _covers(known: Mapping[Monomial, int], terms: Mapping[Monomial, int]) -> bool:
    """Tell whether a sum within the limit shows that another is: each term has one that is no smaller."""
    if all(known.get(m, 0) >= c for m, c in terms.items()):
        return True
    if len(terms) > 4:
        return False
    left = dict(known)
    for monomial, c in terms.items():
        needed = Counter(monomial)
        place = next((m for m, k in left.items() if k >= c and needed <= Counter(m)), None)
        if place is None:
            return False
        left[place] -= c
    return True
