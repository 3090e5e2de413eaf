"""Integer algebra of index expressions: polynomials (`Dim`) over loop variables and sizes.

A loop variable `i` becomes a symbol (`local_name`), so an index is a `Dim` that may also hold sizes; what is no
polynomial (a loaded index, a comparison) becomes an opaque symbol.  With the extents of the loop variables known,
divisions, remainders and comparisons that have only one possible outcome disappear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from irc.expr import Bin, Const, Expr, Size, Var, index
from irc.ir.dim import LOCAL, Dim, Func, Monomial, Symbol
from irc.ir.types import boolean, i64

WIDE = 1 << 62


def local_name(var: Var) -> str:
    """Name the symbol that stands for a loop variable."""
    return LOCAL + var.name


class Ranges:
    """The loop variables in scope with their extents, and the opaque parts of expressions."""

    def __init__(self, extents: Mapping[str, Dim] | None = None) -> None:
        self.extents: dict[str, Dim] = dict(extents or {})
        self._opaque: dict[str, Expr] = {}
        self._names: dict[Expr, str] = {}
        self._dims: dict[Expr, Dim] = {}

    def declare(self, var: Var, extent: Dim) -> None:
        """Declare that 0 <= var < extent."""
        self.extents[local_name(var)] = extent

    # ---------------------------------------------------------------- Expr → Dim
    def dim(self, e: Expr) -> Dim:
        """Convert an i64 expression to a polynomial."""
        found = self._dims.get(e)
        if found is None:
            found = self._dims[e] = self._convert(e)
        return found

    def _convert(self, e: Expr) -> Dim:
        if isinstance(e, Const):
            return Dim.of(int(e.value))
        if isinstance(e, Size):
            return e.dim
        if isinstance(e, Var):
            return self.symbol(e)
        if isinstance(e, Bin) and e.op in _COMBINE and e.dtype == i64:
            a, b = self.dim(e.a), self.dim(e.b)
            if e.op == "floordiv":
                return self.floordiv(a, b)
            if e.op == "mod":
                return self.mod(a, b)
            return _COMBINE[e.op](a, b)
        return self._opaque_dim(e)

    def symbol(self, var: Var) -> Dim:
        name = local_name(var)
        extent = self.extents.get(name)
        if extent is None:
            self._opaque.setdefault(name, var)
            return Dim({(Symbol(name, -WIDE, WIDE),): 1})
        return Dim({(Symbol(name, 0, int(extent) - 1 if extent.is_const and int(extent) > 0 else None),): 1})

    def _opaque_dim(self, e: Expr) -> Dim:
        name = self._names.get(e)
        if name is None:
            name = self._names[e] = f"{LOCAL}?{len(self._names)}"
            self._opaque[name] = e
        return Dim({(Symbol(name, -WIDE, WIDE),): 1})

    # ------------------------------------------------------------------- algebra
    def floordiv(self, a: Dim, c: Dim) -> Dim:
        if c == 0:
            return Dim.of(0)
        whole, rest = split(a, c)
        if rest == 0 or self.within(rest, c):
            return whole
        inner = _single(rest, "floordiv")
        if inner is not None and inner.args[1].bounds()[0] >= 0 and c.bounds()[0] >= 0:
            return whole + self.floordiv(inner.args[0], inner.args[1] * c)
        if c.is_const and int(c) > 0:
            smaller = self._coarser(rest, int(c))
            if smaller is not None:
                return whole + self.floordiv(*smaller)
        return whole + _call("floordiv", rest, c)

    def mod(self, a: Dim, c: Dim) -> Dim:
        if c == 0:
            return Dim.of(0)
        rest = split(a, c)[1]
        return rest if rest == 0 or self.within(rest, c) else _call("mod", rest, c)

    def _coarser(self, a: Dim, c: int) -> tuple[Dim, Dim] | None:
        """Find (a', c') with a // c == a' // c' and a smaller c', if a part of `a` is below a divisor of c."""
        for g in sorted({abs(k) for m, k in a.terms if m}, reverse=True):
            if g > 1 and c % g == 0:
                whole, rest = split(a, Dim.of(g))
                if self.within(rest, Dim.of(g)):
                    return whole, Dim.of(c // g)
        return None

    def within(self, a: Dim, size: Dim) -> bool:
        """Tell whether 0 <= a < size certainly holds."""
        return self.lower(a) >= 0 and self.upper(a - size) < 0

    def upper(self, a: Dim) -> float:
        """Return a number that `a` certainly does not exceed."""
        return self._extreme(a, up=True).bounds()[1]

    def lower(self, a: Dim) -> float:
        return self._extreme(a, up=False).bounds()[0]

    def _extreme(self, a: Dim, up: bool) -> Dim:
        """Put each loop variable of `a` at the end of its range that makes `a` largest (smallest)."""
        found = (s.name for m, _ in a.terms for s in m if isinstance(s, Symbol) and s.name in self.extents)
        for name in dict.fromkeys(found):
            slope = coefficient(a, name)
            if slope is None:
                continue
            low, high = slope.bounds()
            if low >= 0 or high <= 0:
                last = self.extents[name] - 1
                a = a.subs({name: last if (low >= 0) == up else 0})
        return a

    # --------------------------------------------------------------- comparisons
    def compare(self, op: str, a: Expr, b: Expr) -> bool | None:
        """Decide `a op b`; None if the outcome is not certain."""
        gap = self.dim(b) - self.dim(a)
        low, high = self.lower(gap), self.upper(gap)
        if op == "lt":
            return True if low > 0 else False if high <= 0 else None
        if op == "le":
            return True if low >= 0 else False if high < 0 else None
        same = True if low == high == 0 else False if low > 0 or high < 0 else None
        return same if op == "eq" or same is None else not same

    # ---------------------------------------------------------------- Dim → Expr
    def expr(self, d: Dim) -> Expr:
        """Convert a polynomial to an expression: loop variables first, then what is constant in the loops."""
        return self._new_expr(d) if self._opaque else _expression(d)

    def _new_expr(self, d: Dim) -> Expr:
        parts: dict[Monomial, dict[Monomial, int]] = {}
        for monomial, c in d.terms:
            moving = tuple(x for x in monomial if self._moves(x))
            sizes = tuple(x for x in monomial if not self._moves(x))
            group = parts.setdefault(moving, {})
            group[sizes] = group.get(sizes, 0) + c
        total: Expr = Const(0, i64)
        for moving in sorted(parts, key=lambda m: (not m, len(m), str(m))):
            total = total + self._term(moving, Dim(parts[moving]))
        return total

    def _term(self, moving: Monomial, factor: Dim) -> Expr:
        if not moving:
            return index(factor)
        term = self._atom(moving[0])
        for atom in moving[1:]:
            term = term * self._atom(atom)
        return term * index(factor)

    def _moves(self, atom: Symbol | Func) -> bool:
        if isinstance(atom, Symbol):
            return atom.name.startswith(LOCAL)
        return any(s.name.startswith(LOCAL) for arg in atom.args for s in arg.symbols())

    def _atom(self, atom: Symbol | Func) -> Expr:
        if isinstance(atom, Symbol):
            return self._opaque.get(atom.name) or Var(atom.name.removeprefix(LOCAL))
        a, b = (self.expr(x) for x in atom.args)
        if atom.op == "ceildiv":
            return (a + (b - 1)) // b
        return Bin(atom.op, a, b)

    def simplify(self, e: Expr) -> Expr:
        """Simplify an i64 expression, keeping its value."""
        if isinstance(e, Var):
            return _variable(e.name)
        return self.expr(self.dim(e))

    # ----------------------------------------------------------------- flattening
    def flat(self, at: tuple[Expr, ...], shape: tuple[Dim, ...]) -> Dim:
        """Compute the row-major position of an index; parts of one position that was split are joined again."""
        total, stride = Dim.of(0), Dim.of(1)
        for e, size in zip(reversed(at), reversed(shape), strict=True):
            total = total + self.dim(e) * stride
            stride = stride * size
        return self.rejoin(total)

    def rejoin(self, d: Dim) -> Dim:
        """Replace (x // c) · c + x % c by x wherever it occurs."""
        changed = True
        while changed:
            changed = False
            for monomial, _ in d.terms:
                for atom in monomial:
                    if isinstance(atom, Func) and atom.op == "mod":
                        joined = self._join(d, atom)
                        if joined is not None:
                            d, changed = joined, True
                            break
                if changed:
                    break
        return d

    def _join(self, d: Dim, rest: Func) -> Dim | None:
        a, c = rest.args
        factor = _factor(d, rest)
        quotient = self.floordiv(a, c)
        whole = _single(quotient, "floordiv")
        if factor is None or whole is None:
            return None
        other = _factor(d, whole)
        if other is None or other != factor * c:
            return None
        return d - Dim({(rest,): 1}) * factor - Dim({(whole,): 1}) * other + a * factor


@lru_cache(1 << 12)
def _variable(name: str) -> Var:
    """Return the one object for a loop variable: walks count objects, which are cheaper shared."""
    return Var(name)


@lru_cache(1 << 14)
def _expression(d: Dim) -> Expr:
    """Convert a polynomial without opaque parts, which is the same for all ranges."""
    return Ranges()._new_expr(d)  # pyright: ignore[reportPrivateUsage]


_COMBINE: dict[str, Callable[[Dim, Dim], Dim]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "min": lambda a, b: a.minimum(b),
    "max": lambda a, b: a.maximum(b),
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
}


def split(a: Dim, c: Dim) -> tuple[Dim, Dim]:
    """Find (q, r) with a = q · c + r, taking out every term, and every loop variable's factor, that divides exactly."""
    whole, rest = Dim.of(0), Dim.of(0)
    for monomial, k in a.terms:
        term = Dim({monomial: k})
        exact = term.exact_div(c)
        if exact is None and c.is_const and k // int(c) and not monomial:
            exact = Dim.of(k // int(c))
            rest = rest + k % int(c)
        elif exact is None:
            rest = rest + term
        whole = whole + (exact if exact is not None else 0)
    if len(c.terms) < 2:
        return whole, rest
    symbols = [x for m, _ in rest.terms for x in m if isinstance(x, Symbol)]
    for name in dict.fromkeys(x.name for x in symbols if x.name.startswith(LOCAL)):
        factor = coefficient(rest, name)
        exact = factor.exact_div(c) if factor is not None and factor != 0 else None
        if factor is not None and exact is not None:
            symbol = next(x for m, _ in rest.terms for x in m if isinstance(x, Symbol) and x.name == name)
            whole = whole + Dim({(symbol,): 1}) * exact
            rest = rest - Dim({(symbol,): 1}) * factor
    return whole, rest


def coefficient(d: Dim, name: str) -> Dim | None:
    """Return the factor of a symbol in a polynomial; None if the polynomial is not linear in it."""
    found: dict[Monomial, int] = {}
    for monomial, c in d.terms:
        mine = [x for x in monomial if isinstance(x, Symbol) and x.name == name]
        if any(isinstance(x, Func) and any(s.name == name for s in Dim({(x,): 1}).symbols()) for x in monomial):
            return None
        if len(mine) > 1:
            return None
        if mine:
            rest = tuple(x for x in monomial if x is not mine[0])
            found[rest] = found.get(rest, 0) + c
    return Dim(found)


def irregular(d: Dim) -> bool:
    """Tell whether a position contains a division, a remainder or an extreme of something that moves."""
    return any(
        isinstance(x, Func) and any(s.name.startswith(LOCAL) for s in Dim({(x,): 1}).symbols())
        for monomial, _ in d.terms
        for x in monomial
    )


def _factor(d: Dim, atom: Func) -> Dim | None:
    """Return the factor of an atom in a polynomial; None if the polynomial is not linear in it."""
    found: dict[Monomial, int] = {}
    for monomial, c in d.terms:
        if atom in monomial:
            rest = list(monomial)
            rest.remove(atom)
            if atom in rest:
                return None
            found[tuple(rest)] = found.get(tuple(rest), 0) + c
    return Dim(found)


def _single(d: Dim, op: str) -> Func | None:
    """Return the function of this name that `d` consists of, with factor 1; else None."""
    if len(d.terms) == 1 and d.terms[0][1] == 1 and len(d.terms[0][0]) == 1:
        atom = d.terms[0][0][0]
        if isinstance(atom, Func) and atom.op == op:
            return atom
    return None


def _call(op: str, a: Dim, b: Dim) -> Dim:
    return Dim({(Func(op, (a, b)),): 1})


def truth(value: bool) -> Const:
    return Const(value, boolean)
