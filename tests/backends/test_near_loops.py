"""Loops of angles, quotients and remainders take shorter helpers where all are near, and are right where one is not."""

from __future__ import annotations

import numpy as np
import pytest

import irc
from irc.ir.graph import Graph, Model
from irc.ir.types import DType, TensorType, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from irc.opdef.base import load_all
from irc.opdef.builder import Builder


@pytest.mark.parametrize("name", ["Sin", "Cos", "Tan"])
@pytest.mark.parametrize("far", [None, 3e6, -1e30, np.nan])
def test_any_angles(name: str, far: float | None) -> None:
    load_all()
    graph = Graph("angles")
    x = graph.add_input("x", TensorType.of(f32, (3, 1000)))
    b = Builder(graph)
    graph.outputs = [b.Add(getattr(b, name)(b.Mul(x, x)), b.Cos(x))]
    compiled = irc.compile(Model(graph), backend="c", cache=False)
    given = np.random.default_rng(1).uniform(-1000, 1000, (3, 1000)).astype(np.float32)
    if far is not None:
        given[1, 17] = far
    (found,) = compiled({"x": given})
    with np.errstate(all="ignore"):
        function = {"Sin": np.sin, "Cos": np.cos, "Tan": np.tan}[name]
        wanted = function((given * given).astype(np.float64)) + np.cos(given.astype(np.float64))
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=3e-7)


@pytest.mark.parametrize("far", [None, 90.0, -100.0, -np.inf, np.inf, np.nan])
@pytest.mark.parametrize("form", ["exponential", "sigmoid", "SiLU", "softmax of halves", "with a sine"])
def test_any_exponents(form: str, far: float | None) -> None:
    load_all()
    graph = Graph("exponents")
    dtype = f16 if form == "softmax of halves" else f32
    x = graph.add_input("x", TensorType.of(dtype, (3, 2500)))
    b = Builder(graph)
    made = b.Softmax(x, axis=-1) if dtype == f16 else b.Sigmoid(x) if form in ("sigmoid", "SiLU") else b.Exp(x)
    if form == "SiLU":
        made = b.Mul(made, x)
    if form == "with a sine":
        made = b.Add(b.Sin(x), made)
    graph.outputs = [made]
    given = np.random.default_rng(1).uniform(-70, 3, (3, 2500)).astype(dtype.numpy)
    if far is not None:
        given[1, 17] = given[2, 2400] = far
    (found,) = irc.compile(Model(graph), backend="c", cache=False)({"x": given})
    with np.errstate(all="ignore"):
        (wanted,) = irc.compile(Model(graph), backend="numpy")({"x": given})
    np.testing.assert_allclose(found, wanted, rtol=2e-3 if dtype == f16 else 3e-6, atol=1e-4 if dtype == f16 else 1e-6)


def program(x: DType, *names: str, **attrs: bool) -> irc.CompiledModel:
    """Operations of two inputs, 3 x 1500 elements each."""
    load_all()
    graph = Graph("quotients")
    a, b = (graph.add_input(name, TensorType.of(x, (3, 1500))) for name in "ab")
    made = Builder(graph)
    graph.outputs = [getattr(made, name)(a, b, **attrs) for name in names]
    return irc.compile(Model(graph), backend="c", cache=False)


@pytest.mark.parametrize("dtype", [i8, u8, i16, u16, i32, u32, i64, u64], ids=str)
@pytest.mark.parametrize("far", [False, True])
def test_quotients_of_integers(dtype: DType, far: bool) -> None:
    rng, info = np.random.default_rng(2), np.iinfo(dtype.numpy)
    low, high = (info.min, info.max) if far or dtype.bits < 32 else (-(1 << 24) * (info.min < 0), 1 << 24)
    a, b = (rng.integers(low, high, (3, 1500), dtype=dtype.numpy, endpoint=True) for _ in range(2))
    b[:, ::3] = rng.integers(1, 10, (3, 500))
    edges = np.array([low, low + 1, -1 if low else 0, 0, 1, 2, high - 1, high], dtype.numpy)
    b[2, 1000:1064], a[2, 1000:1064] = np.tile(edges, 8), np.repeat(edges, 8)
    floored, rest = (program(dtype, name, **attrs) for name, attrs in (("Mod", {}), ("Mod", {"fmod": True})))
    numbers, by = a.astype(object), np.where(b == 0, 1, b).astype(object)
    sign = np.where((numbers < 0) != (by < 0), -1, 1)
    quotient = np.where(b == 0, 0, sign * (abs(numbers) // abs(by)))
    wrapped = np.array([int(q) & (1 << dtype.bits) - 1 for q in quotient.flat], f"u{dtype.itemsize}")
    (found,) = program(dtype, "Div")({"a": a, "b": b})
    np.testing.assert_array_equal(found, wrapped.view(dtype.numpy).reshape(a.shape))
    zero = np.zeros((), dtype.numpy)
    safe = np.where(b == 0, 1, b).astype(dtype.numpy)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(floored({"a": a, "b": b})[0], np.where(b == 0, zero, np.mod(a, safe)))
        np.testing.assert_array_equal(rest({"a": a, "b": b})[0], np.where(b == 0, zero, np.fmod(a, safe)))


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("fmod", [False, True])
@pytest.mark.parametrize("far", [False, True])
def test_remainders_of_floats(dtype: DType, fmod: bool, far: bool) -> None:
    rng = np.random.default_rng(3)
    a = (rng.standard_normal((3, 1500)) * 10 ** rng.uniform(-3, 3, (3, 1500))).astype(dtype.numpy)
    b = (rng.standard_normal((3, 1500)) + np.copysign(0.01, rng.standard_normal((3, 1500)))).astype(dtype.numpy)
    a[0, :500] = b[0, :500] * rng.integers(-50, 50, 500)
    a[0, 500:1000] = np.nextafter(b[0, 500:1000] * rng.integers(-50, 50, 500).astype(dtype.numpy), 0)
    a[1, :20], b[1, 5:15] = 0.0, -np.abs(b[1, 5:15])
    tiny = np.finfo(dtype.numpy).smallest_subnormal
    a[1, 20:40], b[1, 20:40] = np.arange(20) * tiny, 7 * tiny
    if far:
        hard = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30, 1.5, -2.0], dtype.numpy)
        a[2, 1100:1200], b[2, 1100:1200] = np.repeat(hard, 10), np.tile(hard, 10)
    (found,) = program(dtype, "Mod", fmod=fmod)({"a": a, "b": b})
    with np.errstate(all="ignore"):
        wanted = (np.fmod if fmod else np.mod)(a, b)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(
        np.signbit(found), np.signbit(wanted) & ~np.isnan(wanted) | np.isnan(wanted) & np.signbit(found)
    )
