"""Expressions of Loop IR as C text: precedence-aware, lazy where `Select` is, never undefined.

Texts of narrow floats are `float`s that hold an exact value of the type; `stored` gives what goes to memory.
Index arithmetic (loop variables, sizes, constants) is plain C on int64_t; arithmetic on data wraps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from irc.backends.c import quotients
from irc.backends.c.math import FUNCTIONS, OF_ANGLES, POWERS
from irc.backends.c.math_f64 import FUNCTIONS_F64
from irc.backends.c.near_loops import is_near, is_near_exponent
from irc.backends.c.text import CName
from irc.backends.c.types import arithmetic, is_narrow, is_sub_byte, register, storage
from irc.diagnostics import require
from irc.diagnostics.codes import lowering
from irc.expr import Bin, Bits, Call, Cast, Const, Expr, Load, Select, Size, Un, Var
from irc.functions import exponent_beside_one, function_of
from irc.ir.dim import INF, Dim
from irc.ir.types import DType

# name -> C function of the f32/f64 operands; a `$` takes the suffix f.  These are the functions `Call` may name.
# Those of `irc.backends.c.math` have a helper for f32, those of `irc.backends.c.math_f64` one for f64.
MATH: dict[str, str] = {
    "exp": "exp$",
    "exp2": "exp2$",
    "expm1": "expm1$",
    "log": "log$",
    "log2": "log2$",
    "log10": "log10$",
    "log1p": "log1p$",
    "sqrt": "sqrt$",
    "cbrt": "cbrt$",
    "pow": "pow$",
    "hypot": "hypot$",
    "sin": "sin$",
    "cos": "cos$",
    "tan": "tan$",
    "asin": "asin$",
    "acos": "acos$",
    "atan": "atan$",
    "atan2": "atan2$",
    "sinh": "sinh$",
    "cosh": "cosh$",
    "tanh": "tanh$",
    "asinh": "asinh$",
    "acosh": "acosh$",
    "atanh": "atanh$",
    "erf": "erf$",
    "erfc": "erfc$",
    "lgamma": "lgamma$",
    "tgamma": "tgamma$",
    "floor": "floor$",
    "ceil": "ceil$",
    "trunc": "trunc$",
    "round": "rint$",  # halves to even
    "round_away": "round$",  # halves away from zero
    "fmod": "fmod$",  # remainder with the sign of the dividend
    "abs": "fabs$",
    "copysign": "copysign$",
    "fmin": "fmin$",
    "fmax": "fmax$",
    "fma": "fma$",
}
# Functions with a text of their own: rsqrt, sign; on integers also abs, sign, pow, fmod; bool results: the next three.
PREDICATES = {"isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite"}
INTEGER_MATH = {"pow": "pow", "fmod": "rem"}
NEAREST_QUOTIENT = "nearest_quotient"
"""The whole number nearest to x / y that is within two others, the lower one of NaN: `irc.loops.nearest_quotients`."""
IDENTITY_ON_INTEGERS = ("floor", "ceil", "trunc", "round", "round_away")

PRIMARY, UNARY, TIMES, PLUS, SHIFT, LESS, EQUAL, BITAND, BITXOR, BITOR, AND, OR, TERNARY = range(15, 2, -1)
_BINARY = {
    "add": ("+", PLUS),
    "sub": ("-", PLUS),
    "mul": ("*", TIMES),
    "div": ("/", TIMES),
    "bitand": ("&", BITAND),
    "bitor": ("|", BITOR),
    "bitxor": ("^", BITXOR),
    "and": ("&&", AND),
    "or": ("||", OR),
    "eq": ("==", EQUAL),
    "ne": ("!=", EQUAL),
    "lt": ("<", LESS),
    "le": ("<=", LESS),
}
COMPARISONS = ("eq", "ne", "lt", "le")
_BOOLEAN = {"add": "bitor", "mul": "bitand", "max": "bitor", "min": "bitand", "sub": "bitxor"}
Range = tuple[float, float]
ANYTHING: Range = (-INF, INF)
_LARGEST_INDEX = 2.0**62


class Scope(Protocol):
    """What expressions need from the function they stand in."""

    def variable(self, var: Var) -> CName: ...
    def pointer(self, buffer: Any) -> CName: ...
    def size(self, dim: Dim) -> str: ...
    def size_range(self, dim: Dim) -> Range: ...
    def helper(self, name: str) -> str: ...
    def limit(self, value: Const, kind: str) -> str: ...
    def range_of(self, var: Var) -> Range: ...


class Printer:
    """Prints expressions for one scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.near = frozenset[tuple[Expr, ...]]()
        """Operands of functions that are known to be near."""

    def text(self, e: Expr, least: int = TERNARY) -> str:
        """Print the register value of `e`, in parentheses if it binds less than `least`."""
        return _wrap(self._print(e), least)

    def stored(self, e: Expr, dtype: DType) -> str:
        """Print `e` as an element of this type in memory; a plain copy moves the bit pattern."""
        raw = self._raw(e)
        if raw is not None:
            return raw[0]
        if is_narrow(dtype):
            return f"{self.scope.helper(f'{dtype.name}_from_f32')}({self._unrounded(e)})"
        if is_sub_byte(dtype) and dtype.kind == "i":
            return f"(uint8_t)({self.text(e, BITAND + 1)} & {(1 << dtype.bits) - 1})"
        return self.text(e)

    def _unrounded(self, e: Expr) -> str:
        """Print a narrow value before its rounding, if what follows rounds it."""
        if isinstance(e, Bin | Un | Call):
            return self._operation(e)[0]
        if isinstance(e, Cast) and not is_narrow(e.a.dtype) and e.a.dtype.name != "f64":
            return self._to_float(e.a)[0]
        return self.text(e)

    def _raw(self, e: Expr) -> tuple[str, int] | None:
        if not (is_narrow(e.dtype) or (is_sub_byte(e.dtype) and e.dtype.kind == "i")):
            return None
        if isinstance(e, Load):
            return self._element(e), PRIMARY
        if isinstance(e, Const):
            return hex(bits_of(e)), PRIMARY
        if isinstance(e, Bits):
            return self._print(e.a)
        if isinstance(e, Select):
            a, b = self._raw(e.a), self._raw(e.b)
            if a and b:
                return f"{self.text(e.cond, OR)} ? {_wrap(a, TERNARY + 1)} : {_wrap(b, TERNARY)}", TERNARY
        if isinstance(e, Cast) and e.type.name == "f16" and e.a.dtype.name == "f64":
            return f"{self.scope.helper('f16_from_f64')}({self.text(e.a)})", PRIMARY
        return None

    # ---------------------------------------------------------------- dispatch
    def _print(self, e: Expr) -> tuple[str, int]:
        match e:
            case Const():
                return constant(e.value, e.type)
            case Var():
                return self.scope.variable(e), PRIMARY
            case Size():
                return self.dim(e.dim)
            case Load():
                return self._load(e)
            case Select():
                return self._select(e)
            case Cast():
                return self.cast(e)
            case Bits():
                return self._bits(e)
            case Bin() | Un() | Call():
                found = self._operation(e)
                return self._round(found, e.dtype) if is_narrow(e.dtype) and not self._exact(e) else found
            case _:
                raise TypeError(f"not a Loop IR expression: {type(e).__name__}")

    @staticmethod
    def _exact(e: Expr) -> bool:
        """Tell whether a result needs no rounding to be a value of the operands' type."""
        name = e.op if isinstance(e, Bin | Un) else e.fn if isinstance(e, Call) else ""
        whole = (*IDENTITY_ON_INTEGERS, "min", "max", "abs", "neg", "copysign", "fmin", "fmax")
        plain = e.dtype.name in ("f16", "bf16", "f8e5m2")
        return name in ("min", "max") or (plain and name in whole)

    def _round(self, found: tuple[str, int], dtype: DType) -> tuple[str, int]:
        return f"{self.scope.helper(f'round_{dtype.name}')}({found[0]})", PRIMARY

    def _load(self, e: Load) -> tuple[str, int]:
        element, dtype = self._element(e), e.dtype
        if is_narrow(dtype):
            return f"{self.scope.helper(f'{dtype.name}_to_f32')}({element})", PRIMARY
        if is_sub_byte(dtype) and dtype.kind == "i":
            return f"{self.scope.helper(f'wrap_{dtype.name}')}({element})", PRIMARY
        return element, PRIMARY

    def _element(self, e: Load) -> str:
        return f"{self.scope.pointer(e.buffer)}[{self.position(e.buffer.shape, e.index)}]"

    def _select(self, e: Select) -> tuple[str, int]:
        a, b = self.text(e.a, TERNARY + 1), self.text(e.b, TERNARY)
        return f"{self.text(e.cond, OR)} ? {a} : {b}", TERNARY

    # ---------------------------------------------------------------- indices
    def position(self, shape: tuple[Dim, ...], at: tuple[Expr, ...]) -> str:
        """Print the row-major element offset of an index: a sum of variables times constant or hoisted strides."""
        terms: dict[Expr, Dim] = {}
        stride, strides = Dim.of(1), list[Dim]()
        for size in reversed(shape):
            strides.append(stride)
            stride = stride * size
        rest = Dim.of(0)
        for i, s in zip(at, reversed(strides), strict=True):
            rest = rest + self._collect(i, s, terms)
        parts = [self._term(e, c) for e, c in terms.items() if c != 0]
        if rest != 0 or not parts:
            low = rest.is_const and int(rest) < 0
            parts.append(("- " if low else "+ ") + self.text(Size(-rest if low else rest), TIMES))
        return " ".join(parts).removeprefix("+ ").replace("- ", "-", 1 if parts[0].startswith("- ") else 0)

    def _collect(self, e: Expr, scale: Dim, terms: dict[Expr, Dim]) -> Dim:
        """Add scale * e to the terms, if nothing can wrap. Returns the part that is a size."""
        if isinstance(e, Const):
            return scale * int(e.value)
        if isinstance(e, Size):
            return scale * e.dim
        if isinstance(e, Bin) and e.op in ("add", "sub", "mul") and self._fits(e):
            if e.op != "mul":
                return self._collect(e.a, scale, terms) + self._collect(e.b, scale if e.op == "add" else -scale, terms)
            for factor, other in ((e.a, e.b), (e.b, e.a)):
                if isinstance(factor, Const | Size):
                    by = Dim.of(int(factor.value)) if isinstance(factor, Const) else factor.dim
                    return self._collect(other, scale * by, terms)
        terms[e] = terms.get(e, Dim.of(0)) + scale
        return Dim.of(0)

    def _fits(self, e: Bin) -> bool:
        lo, hi = self.range(e)
        return max(-lo, hi) < _LARGEST_INDEX

    def _term(self, e: Expr, c: Dim) -> str:
        """Print one summand with its sign."""
        low = c.is_const and int(c) < 0
        size = -c if low else c
        text = self.text(e, TIMES) if size == 1 else f"{self.text(e, TIMES)} * {self.text(Size(size), TIMES + 1)}"
        return ("- " if low else "+ ") + text

    def dim(self, dim: Dim) -> tuple[str, int]:
        if dim.is_const:
            require(abs(int(dim)) <= _LARGEST_INDEX, lowering.SIZE_LIMIT, what=f"an offset of {dim}", limit="2^62")
            return integer(int(dim), "i64")
        return self.scope.size(dim), PRIMARY

    def range(self, e: Expr) -> Range:
        """Compute bounds of an index expression; infinite where data comes in."""
        match e:
            case Const():
                return float(e.value), float(e.value)
            case Var():
                return self.scope.range_of(e)
            case Size():
                return self.scope.size_range(e.dim)
            case Select():
                (a, b), (c, d) = self.range(e.a), self.range(e.b)
                return min(a, c), max(b, d)
            case Bin() if e.dtype.name == "i64":
                return _range(e.op, self.range(e.a), self.range(e.b))
            case _:
                return ANYTHING

    # ---------------------------------------------------------------- operations
    def _operation(self, e: Bin | Un | Call) -> tuple[str, int]:
        if isinstance(e, Bin):
            return self._bin(e)
        return self._un(e) if isinstance(e, Un) else self._call(e)

    def _bin(self, e: Bin) -> tuple[str, int]:
        kind, op = e.a.dtype.kind, e.op
        if kind == "b":
            op = _BOOLEAN.get(op, op)
            if op in _BINARY:
                return self._infix(op, e.a, e.b)
            return self._helper(f"{op}_u8", e.a, e.b)
        if op in COMPARISONS:
            return self._compare(e)
        if kind == "f":
            return self._real(op, e)
        return self._index(e) or self._whole(op, e)

    def _infix(self, op: str, a: Expr, b: Expr) -> tuple[str, int]:
        """Print an operator; operands are in parentheses where compilers warn about mixed operators."""
        sign, level = _BINARY[op]
        if level >= PLUS:
            return f"{self.text(a, level)} {sign} {self.text(b, level + 1)}", level
        least = PLUS if level in (LESS, EQUAL) else BITOR if level in (AND, OR) else UNARY
        return f"{self._operand(a, op, least)} {sign} {self._operand(b, op, least)}", level

    def _operand(self, e: Expr, op: str, least: int) -> str:
        chained = isinstance(e, Bin) and e.op == op and op not in COMPARISONS
        return self.text(e) if chained else self.text(e, least)

    def _compare(self, e: Bin) -> tuple[str, int]:
        decided = _decided(e)
        return (str(decided), PRIMARY) if decided is not None else self._infix(e.op, e.a, e.b)

    def _helper(self, name: str, *args: Expr) -> tuple[str, int]:
        return f"{self.scope.helper(name)}({', '.join(self.text(a) for a in args)})", PRIMARY

    def _real(self, op: str, e: Bin) -> tuple[str, int]:
        kind = arithmetic(e.a.dtype)
        if kind == "f32" and (known := function_of(e)) is not None and (Un("neg", known[1]),) not in self.near:
            return self._helper(*known)
        if kind == "f32" and (x := exponent_beside_one(e)) is not None and not self._is_near_exponent(x):
            return self._helper("one_plus_exp_f32", x)
        if op in ("add", "sub", "mul", "div"):
            return self._infix(op, e.a, e.b)
        if op == "pow":
            return self._function("pow", (e.a, e.b))
        if op == "mod" and (e.a, e.b) in self.near:
            return self._helper(f"mod_near_{kind}", e.a, e.b)
        if op in ("min", "max") and e.a.dtype.name == "f16":
            op += "z"
        elif op in ("min", "max") and isinstance(e.b, Const) and e.b.value == e.b.value:
            text = f"{self.scope.helper(f'{op}_known_{kind}')}({self.text(e.a)}, {self.scope.limit(e.b, kind)})"
            return text, PRIMARY
        return self._helper(f"{op}_{kind}", e.a, e.b)

    def _index(self, e: Bin) -> tuple[str, int] | None:
        """Print plain C if no wrapping, zero divisor or sign question can come up; else None."""
        if e.a.dtype.name != "i64":
            return None
        (alo, ahi), (blo, _) = self.range(e.a), self.range(e.b)
        if e.op in ("add", "sub", "mul"):
            return self._infix(e.op, e.a, e.b) if self._fits(e) else None
        if e.op in ("floordiv", "div", "mod") and alo >= 0 and blo > 0:
            if e.op == "mod" and ahi < blo:
                return self._print(e.a)
            sign = "%" if e.op == "mod" else "/"
            return f"{self.text(e.a, TIMES)} {sign} {self.text(e.b, TIMES + 1)}", TIMES
        return None

    def _whole(self, op: str, e: Bin) -> tuple[str, int]:
        dtype, kind = e.dtype, arithmetic(e.dtype)
        plain = (kind in ("u32", "u64") and op in ("add", "sub", "mul")) or op in ("bitand", "bitor", "bitxor")
        if plain and not (is_sub_byte(dtype) and op in ("add", "sub", "mul")):
            text, level = self._infix(op, e.a, e.b)
            return (text, level) if dtype.bits >= 32 or op != "sub" else (f"({storage(dtype)})({text})", UNARY)
        found = self._helper(f"{op}{self._form(op, e.a, e.b)}_{kind}", e.a, e.b)
        return self._narrowed(found, dtype) if op not in ("min", "max") else found

    def _form(self, op: str, a: Expr, b: Expr) -> str:
        """Name the form of a quotient's helper: for near numbers, for vectors, or neither of these."""
        if op not in quotients.OPERATIONS:
            return ""
        if (a, b) in self.near:
            return "_near"
        return "_vector" if 8 <= a.dtype.bits <= 32 and not isinstance(b, Const) else ""

    def _narrowed(self, found: tuple[str, int], dtype: DType) -> tuple[str, int]:
        """Wrap a whole number to a sub-byte width."""
        if not is_sub_byte(dtype):
            return found
        if dtype.kind == "i":
            return f"{self.scope.helper(f'wrap_{dtype.name}')}({found[0]})", PRIMARY
        return f"(uint8_t)({_wrap(found, SHIFT)} & {(1 << dtype.bits) - 1})", UNARY

    def _un(self, e: Un) -> tuple[str, int]:
        dtype = e.a.dtype
        if dtype.kind == "b" or e.op == "not":
            return (f"!{self.text(e.a, UNARY)}", UNARY) if e.op in ("not", "bitnot") else self._print(e.a)
        if e.op == "abs" and dtype.kind != "i":
            return self._print(e.a) if dtype.kind == "u" else self._function("abs", (e.a,))
        if e.op == "bitnot":
            text = f"~{self.text(e.a, UNARY)}", UNARY
            if dtype.bits >= 32:
                return text
            return self._narrowed(text, dtype) if is_sub_byte(dtype) else (f"({storage(dtype)}){text[0]}", UNARY)
        if dtype.kind == "f":
            inner = self.text(e.a, UNARY)
            return f"-({inner})" if inner.startswith("-") else f"-{inner}", UNARY
        return self._narrowed(self._helper(f"{e.op}_{arithmetic(dtype)}", e.a), dtype)

    def _call(self, e: Call) -> tuple[str, int]:
        dtype, fn = e.args[0].dtype, e.fn
        if fn in PREDICATES:
            if dtype.kind != "f":
                return str(int(fn == "isfinite")), PRIMARY
            return f"{PREDICATES[fn]}({self.text(e.args[0])}) != 0", EQUAL
        if fn == "abs":
            return self._un(Un("abs", e.args[0]))
        if fn == "sign" and dtype.kind != "u":
            return self._helper(f"sign_{arithmetic(dtype)}", *e.args)
        if dtype.kind in "iub":
            return self._integer_call(fn, e, dtype)
        if fn == "rsqrt":
            one = "1.0" if dtype.name == "f64" else "1.0f"
            return f"{one} / {self._function('sqrt', e.args)[0]}", TIMES
        if fn == NEAREST_QUOTIENT:
            return f"(float){self._nearest_quotient(*e.args)[0]}", UNARY
        if fn not in MATH:
            raise KeyError(f"no such function in C: {fn} (see MATH)")
        return self._function(fn, e.args)

    def _integer_call(self, fn: str, e: Call, dtype: DType) -> tuple[str, int]:
        if fn in IDENTITY_ON_INTEGERS:
            return self._print(e.args[0])
        if fn == "sign":
            return f"{self.text(e.args[0], EQUAL)} != 0", EQUAL
        if fn in INTEGER_MATH:
            name = INTEGER_MATH[fn]
            form = self._form(name, *e.args) if fn == "fmod" else ""
            return self._narrowed(self._helper(f"{name}{form}_{arithmetic(dtype)}", *e.args), dtype)
        raise KeyError(f"no such function of {dtype} in C: {fn} (see MATH)")

    def _nearest_quotient(self, x: Expr, y: Expr, low: Expr, high: Expr) -> tuple[str, int]:
        limits = [self.scope.limit(e, "f32") if isinstance(e, Const) else self.text(e) for e in (low, high)]
        alone = isinstance(y, Const) and y.value == 1
        name, operands = ("nearest_whole_f32", (x,)) if alone else ("nearest_quotient_f32", (x, y))
        return f"{self.scope.helper(name)}({', '.join([*map(self.text, operands), *limits])})", PRIMARY

    def _is_near_exponent(self, x: Expr) -> bool:
        return (x,) in self.near or is_near_exponent(x)

    def _function(self, fn: str, args: tuple[Expr, ...]) -> tuple[str, int]:
        if fn == "fmod" and args in self.near:
            return self._helper(f"fmod_near_{arithmetic(args[0].dtype)}", *args)
        if args[0].dtype.name == "f64":
            if fn in FUNCTIONS_F64:
                return self._helper(f"{fn}_f64", *args)
            return f"{MATH[fn].replace('$', '')}({', '.join(self.text(a) for a in args)})", PRIMARY
        if fn == "pow" and isinstance(args[1], Const):
            exponent = float(args[1].value)
            if exponent in POWERS or exponent == 0.5:
                return self._helper(POWERS[exponent][0] if exponent != 0.5 else "pow_half_f32", args[0])
        if fn in OF_ANGLES and (args in self.near or is_near(args[0])):
            return self._helper(f"{fn}_near_f32", *args)
        if fn == "exp" and self._is_near_exponent(*args):
            return self._helper("exp_near_f32", *args)
        if fn in FUNCTIONS:
            return self._helper(f"{fn}_f32", *args)
        return f"{MATH[fn].replace('$', 'f')}({', '.join(self.text(a) for a in args)})", PRIMARY

    # ---------------------------------------------------------------- conversions
    def cast(self, e: Cast) -> tuple[str, int]:
        source, to = e.a.dtype, e.type
        if source == to:
            return self._print(e.a)
        if is_narrow(to):
            if to.name == "f16" and source.name == "f64":
                bits = f"{self.scope.helper('f16_from_f64')}({self.text(e.a)})"
                return f"{self.scope.helper('f16_to_f32')}({bits})", PRIMARY
            return self._round(self._to_float(e.a), to)
        if to.kind == "b":
            return f"{self.text(e.a, EQUAL + 1)} != 0", EQUAL
        if to.kind == "f":
            return self._to_float(e.a, register(to))
        return self._to_integer(e.a, to)

    def _bits(self, e: Bits) -> tuple[str, int]:
        """Print a reinterpretation; a NaN of a narrow float keeps its bits between memory and memory only."""
        if is_narrow(e.a.dtype):
            return f"({storage(e.type)}){_wrap((self.stored(e.a, e.a.dtype), TERNARY), UNARY)}", UNARY
        if is_narrow(e.type):
            return self._helper(f"{e.type.name}_to_f32", e.a)
        return self._helper(f"{arithmetic(e.a.dtype)}_bits" if e.a.dtype.is_float else f"bits_{e.type.name}", e.a)

    def _to_float(self, a: Expr, c: str = "float") -> tuple[str, int]:
        return self._print(a) if register(a.dtype) == c else (f"({c}){self.text(a, UNARY)}", UNARY)

    def _to_integer(self, a: Expr, to: DType) -> tuple[str, int]:
        if isinstance(a, Call) and a.fn == NEAREST_QUOTIENT and to.name == "i32":
            return self._nearest_quotient(*a.args)
        found = self._print(a)
        if a.dtype.kind == "f":
            kind = arithmetic(a.dtype)
            wide = arithmetic(to) if to.bits >= 32 else "i32"
            if wide == "i32" and _is_within(a, -(2.0**31), 2.0**31 - 128):
                found = f"(int32_t){_wrap(found, UNARY)}", UNARY
            else:
                name = f"{kind}_to_{wide}" if to.bits >= 32 else f"{kind}_to_low"
                found = f"{self.scope.helper(name)}({found[0]})", PRIMARY
            if to.bits >= 32:
                return found
        if is_sub_byte(to):
            if a.dtype.bits > 32 and to.kind == "i" and a.dtype.kind != "f":
                found = f"(int32_t){_wrap(found, UNARY)}", UNARY
            return self._narrowed(found, to)
        return f"({storage(to)}){_wrap(found, UNARY)}", UNARY


def _wrap(found: tuple[str, int], least: int) -> str:
    return found[0] if found[1] >= least else f"({found[0]})"


def _is_within(e: Expr, low: float, high: float) -> bool:
    """Tell whether a float is what a choice limits to numbers between two, as QuantizeLinear does: NaN is not taken."""
    match e:
        case Select(Bin("lt", Const(least), x), Bin("min", y, Const(largest)), Const(other)):
            return x == y and all(low <= float(n) <= high for n in (least, largest, other))
        case Bin("min", Select(Bin("lt", Const(least), x), y, Const(other)), Const(largest)):
            return x == y and all(low <= float(n) <= high for n in (least, largest, other))
        case _:
            return False


def _decided(e: Bin) -> int | None:
    """Decide a comparison of an integer with a constant outside its type's range (compilers warn about those)."""
    if e.a.dtype.kind not in "iu":
        return None
    bits, signed = e.a.dtype.bits, e.a.dtype.kind == "i"
    lo, hi = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    if isinstance(e.b, Const):
        b = int(e.b.value)
        true = {"lt": hi < b, "le": hi <= b, "eq": False, "ne": not lo <= b <= hi}[e.op]
        false = {"lt": lo >= b, "le": lo > b, "eq": not lo <= b <= hi, "ne": False}[e.op]
    elif isinstance(e.a, Const):
        a = int(e.a.value)
        true = {"lt": a < lo, "le": a <= lo, "eq": False, "ne": not lo <= a <= hi}[e.op]
        false = {"lt": a >= hi, "le": a > hi, "eq": not lo <= a <= hi, "ne": False}[e.op]
    else:
        return None
    return 1 if true else 0 if false else None


def _range(op: str, a: Range, b: Range) -> Range:
    def corners(f: Callable[[float, float], float]) -> Range:
        found = [f(x, y) for x in a for y in b]
        return min(found), max(found)

    if INF in (a[1], b[1]) or -INF in (a[0], b[0]):
        return (0, b[1] - 1) if op == "mod" and b[0] > 0 and b[1] < INF else ANYTHING
    if op == "add":
        return a[0] + b[0], a[1] + b[1]
    if op == "sub":
        return a[0] - b[1], a[1] - b[0]
    if op == "mul":
        return corners(lambda x, y: x * y)
    if op == "min":
        return min(a[0], b[0]), min(a[1], b[1])
    if op == "max":
        return max(a[0], b[0]), max(a[1], b[1])
    if op == "mod" and b[0] > 0:
        return 0, min(b[1] - 1, a[1]) if a[0] >= 0 else b[1] - 1
    if op in ("floordiv", "div") and b[0] > 0 and a[0] >= 0:
        return a[0] // b[1], a[1] // b[0]
    return ANYTHING


# -------------------------------------------------------------------- constants
def bits_of(e: Const) -> int:
    """Return the bit pattern of a constant whose memory form is one or two bytes."""
    array = np.asarray(e.value).astype(e.type.numpy).reshape(1)
    return int(array.view(np.uint16 if array.itemsize == 2 else np.uint8)[0])


def constant(value: Any, dtype: DType) -> tuple[str, int]:
    """Print a literal that has exactly this value in this type."""
    if dtype.kind == "b":
        return str(int(bool(value))), PRIMARY
    if dtype.kind in "iu":
        return integer(int(value), dtype.name)
    if dtype.name == "f64":
        return _real(np.float64(value), "")
    if is_narrow(dtype):
        value = np.asarray(value).astype(dtype.numpy)
    return _real(np.float32(value), "f")


def integer(value: int, name: str) -> tuple[str, int]:
    """Print a literal of an integer type. Returns it and how tightly it binds."""
    if name == "u64" and value > 0x7FFFFFFF:
        return f"UINT64_C({value})", PRIMARY
    if name in ("u32", "u64"):
        return f"{value}u", PRIMARY
    if name == "i64" and value == -(1 << 63):
        return "INT64_MIN", PRIMARY
    if abs(value) > 0x7FFFFFFF:
        return f"INT64_C({value})", PRIMARY
    if value == -0x80000000:
        return "INT32_MIN", PRIMARY
    return str(value), UNARY if value < 0 else PRIMARY


def _real(x: np.float32 | np.float64, suffix: str) -> tuple[str, int]:
    """Print the shortest decimal that reads back as the same number."""
    level = UNARY if np.signbit(x) else PRIMARY
    sign = "-" if np.signbit(x) else ""
    if np.isnan(x):
        return f"{sign}NAN", level
    if np.isinf(x):
        return f"{sign}INFINITY", level
    a = abs(x)
    plain = a == 0 or 1e-4 <= a < 1e9
    text = np.format_float_positional(a, trim="0") if plain else np.format_float_scientific(a, trim="-")
    return sign + text + suffix, level
