"""Upper bounds of sizes that a model computes while it runs, over the sizes that are known before.

Memory is planned with them.  Sizes are sums of products of symbols and of quotients, remainders and extremes of such
sums, so that bounds of the parts give a bound of the whole.  Better bounds are known of what reshapes make: a product
with a quotient by the other factors, as in [n, e // n], is at most the dividend, and factors (`Symbol.among`) have
their product.  A run makes sure that each is within its bound, and each product of factors, those that are 0 left out.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from irc.ir.dim import INF, LARGEST_FACTOR, Atom, Dim, Func, Monomial, Symbol


class Capacity:
    """Bounds over the sizes that `known` names.

    `free` are the symbols met that nothing bounds, by name: each stands for its own bound, which whoever plans the
    memory has to give.
    """

    def __init__(self, known: Collection[str]) -> None:
        self.known = frozenset(known)
        self.free: dict[str, Symbol] = {}
        self._bounds: dict[Dim, Dim] = {}

    def of(self, size: Dim) -> Dim:
        """Bound a size, which is 0 or more."""
        if all(s.name in self.known for s in size.symbols()):
            return size
        if size not in self._bounds:
            total = Dim.of(0)
            for monomial, c in size.terms:
                total = total + (self._product(monomial) * c if c > 0 else Dim.of(_least(monomial) * c))
            self._bounds[size] = total
        return self._bounds[size]

    def magnitude(self, size: Dim) -> Dim:
        """Bound the absolute values of all terms of a size together: of every partial result of computing it."""
        if all(s.name in self.known for s in size.symbols()):
            return size
        return sum((self._product(monomial) * abs(c) for monomial, c in size.terms), start=Dim.of(0))

    def _product(self, monomial: Monomial) -> Dim:
        """Bound a product of sizes from 0 on."""
        for among in dict.fromkeys(a.among for a in monomial if isinstance(a, Symbol) and a.among is not None):
            rest = tuple(a for a in monomial if not isinstance(a, Symbol) or a.among != among)
            there = len(monomial) - len(rest)
            if there > 1 and there == len({a for a in monomial if a not in rest}):
                bound = self.of(among.total)
                return (bound if there == among.count else bound.maximum(LARGEST_FACTOR)) * self._product(rest)
        for k, atom in enumerate(monomial):
            if isinstance(atom, Func) and atom.op == "floordiv":
                rest = Dim({monomial[:k] + monomial[k + 1 :]: 1}).exact_div(_positive(atom.args[1]))
                if rest is not None:
                    return self.of(atom.args[0]) * self.of(rest)
        return prod((self._atom(a) for a in monomial), start=Dim.of(1))

    def _atom(self, atom: Atom) -> Dim:
        if isinstance(atom, Symbol):
            return self._symbol(atom)
        a, b = atom.args
        if atom.op == "min":
            bounds = [self.of(x) for x in (a, b) if not self._has_free(x)] or [self.of(a), self.of(b)]
            return bounds[0] if len(bounds) == 1 else bounds[0].minimum(bounds[1])
        if atom.op == "max":
            return self.of(a).maximum(self.of(b))
        divisor = max(int(b.bounds()[0]), 1) if b.bounds()[0] > -INF else 1
        if atom.op == "mod":
            return self.of(b) - 1 if divisor > 1 else self.of(b)
        return self.of(a) // divisor if atom.op == "floordiv" else self.of(a).ceildiv(divisor)

    def _symbol(self, symbol: Symbol) -> Dim:
        if symbol.name in self.known:
            return Dim({(symbol,): 1})
        if symbol.most is not None:
            most = self.of(symbol.most)
            return most if symbol.hi is None else most.minimum(symbol.hi)
        if symbol.hi is not None:
            return Dim.of(symbol.hi)
        self.free.setdefault(symbol.name, symbol)
        return Dim({(symbol,): 1})

    def _has_free(self, size: Dim) -> bool:
        """Whether a bound of the size needs a symbol that nothing bounds."""
        return any(
            s.name not in self.known and (s.hi is None if s.most is None else self._has_free(s.most))
            for s in size.symbols()
        )


def _positive(divisor: Dim) -> Dim:
    """The divisor d where it is written as max(d, 1)."""
    if len(divisor.terms) == 1 and divisor.terms[0][1] == 1 and len(divisor.terms[0][0]) == 1:
        (atom,) = divisor.terms[0][0]
        if isinstance(atom, Func) and atom.op == "max" and 1 in atom.args:
            return atom.args[0] if atom.args[1] == 1 else atom.args[1]
    return divisor


def _least(monomial: Monomial) -> int:
    """The least value of a product of sizes."""
    return prod((max(int(lo), 0) if (lo := a.bounds()[0]) > -INF else 0 for a in monomial), start=1)
