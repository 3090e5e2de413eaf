"""Functions that expressions spell out, for which generated code has one of its own."""

from __future__ import annotations

from irc.expr import Bin, Call, Const, Expr, Un
from irc.ir.types import f32

_MOST_PARTS = 16
"""Steps into a product in the search for a GELU, which has fewer with the factors that it may be multiplied by."""


def function_of(e: Expr) -> tuple[str, Expr] | None:
    """Recognise a function that C has a helper of its own for. Returns the helper and the operand."""
    match e:
        case Bin("div", Const(1.0), Bin("add", Const(1.0), Call("exp", (Un("neg", x),)))):
            return "sigmoid_f32", x
        case Bin("add", Bin("max", x, Const(0.0)), Call("log1p", (Call("exp", (Bin("min", y, Un("neg", z)),)),))):
            return ("softplus_f32", x) if x == y == z else None
        case _:
            x = gelu_of(e)
            return None if x is None else ("gelu_f32", x)


def exponent_beside_one(e: Expr) -> Expr | None:
    """Return x where an expression is 1 + exp(x), as in a SiLU."""
    match e:
        case Bin("add", Const(1.0), Call("exp", (x,))) | Bin("add", Call("exp", (x,)), Const(1.0)):
            return x
        case _:
            return None


def gelu_of(expr: Expr) -> Expr | None:
    """Return the operand of the GELU that an f32 expression is, if it is one."""
    found = multiple_of_gelu(expr)
    return None if found is None or found[1] != 1 or found[2] else found[0]


def multiple_of_gelu(expr: Expr) -> tuple[Expr, float, list[Expr]] | None:
    """Return x, a number and other factors of the product with GELU(x) that an f32 expression is, if it is one."""
    scale, factors = _product(expr)
    if len(factors) < 2 or expr.dtype != f32:
        return None
    for k, phi in enumerate(factors):
        match phi:
            case Bin("add", Const(1.0), Call("erf", (inner,))) | Bin("add", Call("erf", (inner,)), Const(1.0)):
                root, rest = _product(inner)
                others = [*factors[:k], *factors[k + 1 :]]
                if len(rest) == 1 and rest[0] in others and abs(root - 0.5**0.5) < 1e-7:
                    others.remove(rest[0])
                    return rest[0], 2 * scale, others
            case _:
                pass
    return None


def _product(e: Expr) -> tuple[float, list[Expr]]:
    """Split a product of a few factors into the constant and the others."""
    scale, factors, stack = 1.0, list[Expr](), [e]
    for _ in range(_MOST_PARTS):
        if not stack:
            return scale, factors
        match x := stack.pop():
            case Const(value) if x.dtype == f32:
                scale *= float(value)  # type: ignore[arg-type]
            case Bin("mul", a, b):
                stack += (b, a)
            case Bin("div", a, Const(value)) if x.dtype == f32 and value:
                scale /= float(value)  # type: ignore[arg-type]
                stack.append(a)
            case _:
                factors.append(x)
    return 1.0, [e]
