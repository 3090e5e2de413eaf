"""Generated C of expressions: conversions, arithmetic and functions against NumPy and ml_dtypes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.backends.c.expr import MATH
from irc.expr import Bin, Const, Expr, Load, Un, Var, call, select
from irc.functions import function_of
from irc.ir import types as t
from irc.ir.types import DType, boolean, f16, f32, f64, i8, i32, i64
from irc.loops.ir import Program
from irc.toolchain.c_compiler import find_compiler
from tests.support.c_program import Library, buffer, elementwise, evaluate

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
NARROW = [t.f16, t.bf16, t.f8e4m3fn, t.f8e4m3fnuz, t.f8e5m2, t.f8e5m2fnuz, t.f8e8m0, t.f6e2m3, t.f6e3m2, t.f4e2m1]
INTS = [t.i8, t.u8, t.i16, t.u16, t.i32, t.u32, t.i64, t.u64]
SUB_BYTE = [t.i4, t.u4, t.i2, t.u2]


def patterns(dtype: DType) -> np.ndarray[Any, Any]:
    """Every value of a narrow type."""
    kind = np.uint8 if dtype.itemsize == 1 else np.uint16
    return np.arange(1 << dtype.bits, dtype=np.int64).astype(kind).view(dtype.numpy)


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], what: str = "") -> None:
    """Equal values, zeros with their signs, NaN equal to NaN."""
    assert a.dtype == b.dtype and a.shape == b.shape
    x, y = a.view(np.uint8).reshape(a.size, -1), b.view(np.uint8).reshape(b.size, -1)
    differ = (x != y).any(axis=1)
    if a.dtype.kind not in "iub":
        with np.errstate(all="ignore"):
            differ &= ~(np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))).reshape(-1)
    where = np.flatnonzero(differ)[:5]
    assert not len(where), f"{what}: at {where}: {a.reshape(-1)[where]} and {b.reshape(-1)[where]}"


def hard_floats(dtype: DType) -> np.ndarray[Any, Any]:
    """f32 values around every rounding boundary of a narrow type, and random bit patterns."""
    with np.errstate(all="ignore"):
        exact = patterns(dtype).astype(np.float32)
    exact = np.unique(exact[np.isfinite(exact)])
    middle = ((exact[1:].astype(np.float64) + exact[:-1]) / 2).astype(np.float32)
    base = np.concatenate([exact, middle, exact * 2, exact / 2])
    near = [np.nextafter(base, np.float32(s) * np.inf) for s in (-1, 1)]
    noise = np.random.default_rng(1).integers(0, 1 << 32, 50000, np.uint32).view(np.float32)
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
    return np.concatenate([base, *near, noise, special])


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_narrow_float_conversions(dtype: DType, tmp_path: Path) -> None:
    with np.errstate(all="ignore"):
        bits = patterns(dtype)
        widened, copied = evaluate(tmp_path, [bits], [dtype], [(f32, lambda x: x.cast(f32)), (dtype, lambda x: x)])
        same(widened, bits.astype(np.float32), "widened")
        assert copied.tobytes() == bits.tobytes()
        x = hard_floats(dtype)
        (rounded,) = evaluate(tmp_path, [x], [f32], [(dtype, lambda x: x.cast(dtype))])
        same(rounded, x.astype(dtype.numpy), "rounded")


def test_f64_to_f16_rounds_once(tmp_path: Path) -> None:
    half = patterns(f16).astype(np.float64)
    half = np.sort(half[np.isfinite(half)])
    middle = (half[1:] + half[:-1]) / 2
    x = np.concatenate(
        [half, middle, *(middle * (1 + s * 2.0**-40) for s in (-1, 1)), [np.nan, np.inf, 1e300, -1e-300]]
    )
    with np.errstate(all="ignore"):
        expected = x.astype(np.float16)
    direct, inner = evaluate(
        tmp_path, [x], [f64], [(f16, lambda x: x.cast(f16)), (f32, lambda x: x.cast(f16).cast(f32))]
    )
    same(direct, expected)
    same(inner, expected.astype(np.float32))


def operands(dtype: DType) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    every = patterns(dtype) if dtype.bits <= 8 else patterns(dtype)[::257]
    a, b = np.meshgrid(every, every)
    return a.reshape(-1).copy(), b.reshape(-1).copy()


@pytest.mark.parametrize("dtype", [t.f16, t.bf16, t.f8e4m3fn, t.f8e5m2, t.f8e4m3fnuz], ids=str)
def test_narrow_float_arithmetic(dtype: DType, tmp_path: Path) -> None:
    """Every operation is computed in f32 and rounded."""
    a, b = operands(dtype)
    with np.errstate(all="ignore"):
        x, y = a.astype(np.float32), b.astype(np.float32)
        expected = [x + y, x * y, x - y, x / y, (x + y).astype(dtype.numpy).astype(np.float32) * y, np.sqrt(x)]
        results = evaluate(
            tmp_path,
            [a, b],
            [dtype, dtype],
            [
                (dtype, lambda x, y: x + y),
                (dtype, lambda x, y: x * y),
                (dtype, lambda x, y: x - y),
                (dtype, lambda x, y: x / y),
                (dtype, lambda x, y: (x + y) * y),
                (dtype, lambda x, y: call("sqrt", x)),
            ],
        )
        for k, (found, want) in enumerate(zip(results, expected, strict=True)):
            same(found, want.astype(dtype.numpy), f"result {k}")


@pytest.mark.parametrize("source", [f32, f64], ids=str)
def test_float_to_integer_is_numpys(source: DType, tmp_path: Path) -> None:
    base = np.array(
        [
            0,
            0.5,
            1.5,
            127.9,
            128,
            255.9,
            256,
            32767.5,
            65536.5,
            2.0**31,
            2.0**31 - 0.5,
            2.0**32,
            2.0**53,
            2.0**63,
            2.0**64,
            1e10,
            1e20,
            np.inf,
            np.nan,
            3e9,
            1e-30,
        ],
        source.numpy,
    )
    x = np.concatenate(
        [base, -base, np.nextafter(base, source.numpy.type(0)), -np.nextafter(base, source.numpy.type(0))]
    )
    to = [*INTS, *SUB_BYTE, boolean]
    results = evaluate(tmp_path, [x], [source], [(d, lambda x, d=d: x.cast(d)) for d in to])
    for d, found in zip(to, results, strict=True):
        with np.errstate(all="ignore"):
            fits = np.abs(x) < 2.0**30 if d in SUB_BYTE else np.full(x.shape, True)
            same(found[fits], x.astype(d.numpy)[fits], str(d))


@pytest.mark.parametrize(("least", "largest", "guarded"), [(0.0, 255.0, 0), (-3e9, 255.0, 1)])
def test_limited_floats_are_converted_without_guards(
    least: float, largest: float, guarded: int, tmp_path: Path
) -> None:
    x = np.array([-1, 0, 0.5, 254.9, 255, 1e10, np.inf, -np.inf, np.nan], np.float32)

    def limited(x: Expr) -> Expr:
        low, high = Const(least, f32), Const(largest, f32)
        return select(Bin("lt", low, x), Bin("min", x, high), low).cast(i32)

    (found,) = evaluate(tmp_path, [x], [f32], [(i32, limited)])
    with np.errstate(all="ignore"):
        same(
            found, np.fmin(np.fmax(np.where(np.isnan(x), least, x), least), largest).astype(np.float32).astype(np.int32)
        )
    text = "".join(f.read_text() for f in tmp_path.rglob("*.c"))
    assert text and bool(guarded) == ("irc_f32_to_i32" in text)


def integers(dtype: DType) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    if dtype.bits <= 8:
        every = (
            np.arange(256).astype(np.uint8).view(dtype.numpy)
            if dtype.bits == 8
            else np.unique(np.arange(1 << dtype.bits).astype(dtype.numpy).astype(np.int64)).astype(dtype.numpy)
        )
    else:
        info = np.iinfo(dtype.numpy)
        noise = np.random.default_rng(2).integers(info.min, info.max, 20, dtype.numpy, endpoint=True)
        small = np.arange(0, 9).astype(dtype.numpy)
        every = np.concatenate([small, (0 - small).astype(dtype.numpy), [info.min, info.max, info.max - 1], noise])
        every = every.astype(dtype.numpy)
    a, b = np.meshgrid(every, every)
    return a.reshape(-1).copy(), b.reshape(-1).copy()


def quotient(a: int, b: int) -> int:
    """a / b towards zero."""
    return 0 if b == 0 else abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)


# The definitions, in Python's integers, before wrapping; shifts are guarded by the width where they are used.
EXACT: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": quotient,
    "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "bitxor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b if 0 <= b < 64 else 0,
    "shr": lambda a, b: a >> b if b >= 0 else -1 if a < 0 else 0,
}
EXACT_CALLS: dict[str, Any] = {
    "pow": lambda a, b: pow(a, b, 1 << 64) if b >= 0 else {1: 1, -1: -1 if b % 2 else 1}.get(a, 0),
    "fmod": lambda a, b: a - b * quotient(a, b) if b else 0,
}


@pytest.mark.parametrize("dtype", [*INTS, *SUB_BYTE], ids=str)
def test_integer_arithmetic(dtype: DType, tmp_path: Path) -> None:
    a, b = integers(dtype)
    results: list[tuple[DType, Any]] = [(dtype, lambda x, y, op=op: Bin(op, x, y)) for op in EXACT]
    results += [(dtype, lambda x, y, fn=fn: call(fn, x, y)) for fn in EXACT_CALLS]
    results += [(dtype, lambda x, y: -x), (dtype, lambda x, y: Un("abs", x)), (dtype, lambda x, y: Un("bitnot", x))]
    results += [(dtype, lambda x, y: call("sign", x)), (boolean, lambda x, y: x.lt(y)), (boolean, lambda x, y: x.eq(y))]
    found = evaluate(tmp_path, [a, b], [dtype, dtype], results)
    pairs = list(zip(a.astype(object).tolist(), b.astype(object).tolist(), strict=True))
    pairs = [(int(x), int(y)) for x, y in pairs]
    for (op, f), got in zip((EXACT | EXACT_CALLS).items(), found, strict=False):
        want = [wrap(f(x, y), dtype) for x, y in pairs]
        assert [int(v) for v in got.tolist()] == want, op
    rest = found[len(EXACT) + len(EXACT_CALLS) :]
    for got, f in zip(rest, (lambda x: -x, abs, lambda x: ~x, lambda x: (x > 0) - (x < 0)), strict=False):
        assert [int(v) for v in got.tolist()] == [wrap(f(x), dtype) for x, _ in pairs]
    assert rest[4].tolist() == [x < y for x, y in pairs] and rest[5].tolist() == [x == y for x, y in pairs]


def wrap(value: int, dtype: DType) -> int:
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.kind == "i" and value >> (dtype.bits - 1) else value


def test_integer_conversions(tmp_path: Path) -> None:
    for source in (t.i64, t.u64, t.i32, t.u8, t.i4, t.u4):
        a, _ = integers(source)
        a = np.unique(a.astype(np.int64 if source.kind == "i" else np.uint64)).astype(source.numpy)
        to = [d for d in [*INTS, *SUB_BYTE, f32, f64] if d != source]
        results = evaluate(tmp_path, [a], [source], [(d, lambda x, d=d: x.cast(d)) for d in to])
        for d, found in zip(to, results, strict=True):
            same(found, a.astype(np.int64 if source != t.u64 else np.uint64).astype(d.numpy), f"{source} to {d}")


FLOAT_PAIRS = {
    "min": np.minimum,
    "max": np.maximum,
    "mod": np.remainder,
    "floordiv": np.floor_divide,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


@pytest.mark.parametrize("dtype", [f32, f64, f16], ids=str)
def test_float_operators(dtype: DType, tmp_path: Path) -> None:
    special = [0.0, -0.0, 1, -1, 0.5, -2.5, 3, 7, -7, 1e-7, 60000, np.inf, -np.inf, np.nan]
    every = np.concatenate([special, np.random.default_rng(3).normal(0, 10, 40)]).astype(dtype.numpy)
    a, b = (x.reshape(-1).copy() for x in np.meshgrid(every, every))
    results: list[tuple[DType, Any]] = [
        (boolean if op in ("lt", "le", "eq", "ne") else dtype, lambda x, y, op=op: Bin(op, x, y)) for op in FLOAT_PAIRS
    ]
    results += [
        (dtype, lambda x, y: call("fmod", x, y)),
        (dtype, lambda x, y: call("sign", x)),
        (dtype, lambda x, y: -x),
    ]
    results += [(boolean, lambda x, y, f=f: call(f, x)) for f in ("isnan", "isinf", "isfinite")]
    found = evaluate(tmp_path, [a, b], [dtype, dtype], results)
    with np.errstate(all="ignore"):
        expected = [f(a, b) for f in FLOAT_PAIRS.values()]
        expected += [np.fmod(a, b), np.sign(a), -a, np.isnan(a), np.isinf(a), np.isfinite(a)]
    for k, (got, want) in enumerate(zip(found, expected, strict=True)):
        same(got, want, f"result {k}")


NUMPY_MATH = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "cbrt": np.cbrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "round_away": lambda x: np.trunc(x + np.copysign(0.5, x)),
    "abs": np.abs,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
NUMPY_MATH_2 = {
    "pow": np.power,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "fmod": np.fmod,
    "copysign": np.copysign,
    "fmin": np.fmin,
    "fmax": np.fmax,
}


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_mathematical_functions(dtype: DType, tmp_path: Path) -> None:
    import math

    rest = {"erf": math.erf, "erfc": math.erfc, "lgamma": math.lgamma, "tgamma": math.gamma}
    assert {*NUMPY_MATH, *NUMPY_MATH_2, *rest, "fma"} == {*MATH, "rsqrt"}
    a, b = (np.random.default_rng(4).uniform(0.05, 0.95, (2, 200)) * [[1], [3]]).astype(dtype.numpy)
    results: list[tuple[DType, Any]] = [(dtype, lambda x, y, f=f: call(f, x)) for f in [*NUMPY_MATH, *rest]]
    results += [(dtype, lambda x, y, f=f: call(f, x, y)) for f in NUMPY_MATH_2]
    found = evaluate(tmp_path, [a, b], [dtype, dtype], results)
    with np.errstate(all="ignore"):
        expected = [f(a) for f in NUMPY_MATH.values()]
        expected += [np.array([f(float(x)) for x in a], dtype.numpy) for f in rest.values()]
        expected += [f(a, b) for f in NUMPY_MATH_2.values()]
    for name, got, want in zip([*NUMPY_MATH, *rest, *NUMPY_MATH_2], found, expected, strict=True):
        np.testing.assert_allclose(
            got, want, rtol=6 * np.finfo(dtype.numpy).eps, atol=4 * np.finfo(dtype.numpy).eps, err_msg=name
        )


def test_select_evaluates_one_side(tmp_path: Path) -> None:
    """A load behind its bounds check never happens outside; the sanitizer would tell."""
    x = np.arange(8, dtype=np.float32)
    source = buffer("x", f32, (8,), "input")
    y = buffer("y", f32, (12,), "output")

    def value(i: Var) -> Expr:
        inside = Const(2, i64).le(i).logical_and(i.lt(Const(10, i64)))
        return select(inside, Load(source, (i - 2,)), -1.0)

    library = Library(Program("m", [source], [y], [], [elementwise("pad", y, value, [source])], []), tmp_path)
    (found,) = library.run(library.context(), [x], [(12,)])
    assert found.tolist() == [-1, -1, *range(8), -1, -1]


def test_constants_are_exact(tmp_path: Path) -> None:
    values: list[tuple[DType, Any]] = [
        (f32, 0.1),
        (f32, 1e-45),
        (f32, 3.4028235e38),
        (f32, -0.0),
        (f32, np.inf),
        (f32, -np.inf),
        (f32, np.nan),
        (f64, 0.1),
        (f64, 5e-324),
        (f64, 1e300),
        (i64, -(2**63)),
        (i64, 2**63 - 1),
        (i32, -(2**31)),
        (i8, -128),
        (t.u64, 2**64 - 1),
        (t.u32, 2**32 - 1),
        (f16, 0.1),
        (t.bf16, 3.14159),
        (t.f8e4m3fn, 448.0),
        (t.i4, -8),
        (boolean, True),
        (t.nf4, 0.25),
    ]
    results: list[tuple[DType, Any]] = [(d, lambda x, d=d, v=v: Const(v, d)) for d, v in values]
    found = evaluate(tmp_path, [np.zeros(3, np.float32)], [f32], results)
    for (d, v), got in zip(values, found, strict=True):
        same(got, np.full(3, v).astype(d.numpy), f"{d} {v}")


def test_a_gelu_in_any_order_of_its_factors_is_one_function() -> None:
    x = Var("x", f32)
    inside = call("erf", x / 1.4142135) + 1.0
    for gelu in (x * 0.5 * inside, x * inside * 0.5, inside * (x * 0.5), 0.5 * inside * x):
        assert function_of(gelu) == ("gelu_f32", x)
    assert function_of(x * 0.25 * inside) is None
