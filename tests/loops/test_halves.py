"""Loops over f16 convert whole tiles, and round where each operation does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import irc
from irc.driver import CompileOptions, sources
from irc.ir.graph import Graph, Model, Value
from irc.ir.types import TensorType, f16, f32, i8, i32
from irc.opdef.base import load_all
from irc.opdef.builder import Builder
from irc.toolchain.c_compiler import find_compiler

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
Make = Callable[[Builder, Value, Value], Value]
EXPRESSIONS: dict[str, Make] = {
    "sum": lambda b, x, y: b.Add(x, y),
    "chain": lambda b, x, y: b.Sub(b.Mul(b.Add(x, y), x), y),
    "quotient": lambda b, x, y: b.Div(b.Abs(x), b.const(3.0, f16)),
    "extremes": lambda b, x, y: b.Max(b.Min(x, y), b.Neg(y)),
    "limits": lambda b, x, y: b.Max(b.Min(b.Mul(x, x), b.const(2.0, f16)), b.const(-0.0, f16)),
    "choice": lambda b, x, y: b.Where(b.Less(x, y), b.Add(x, x), y),
    "slope": lambda b, x, y: b.PRelu(x, y),
    "to f32": lambda b, x, y: b.Cast(b.Mul(x, y), to=f32),
    "from i32": lambda b, x, y: b.Add(b.Cast(b.Cast(x, to=i32), to=f16), y),
    "to i8": lambda b, x, y: b.Cast(b.Min(x, b.const(100.0, f16)), to=i8),
}


def model(make: Make, shape: tuple[int, ...], other: tuple[int, ...]) -> Model:
    load_all()
    graph = Graph("halves")
    x, y = (graph.add_input(name, TensorType.of(f16, size)) for name, size in (("x", shape), ("y", other)))
    graph.outputs = [make(Builder(graph), x, y)]
    return Model(graph)


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize(
    ("shape", "other"), [((3, 700), (3, 700)), ((5, 37), (37,)), ((4, 1100), (4, 1)), ((7, 3), (3,))]
)
def test_every_rounding(name: str, shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    x, y = (rng.integers(0, 1 << 16, size, np.uint16).view(np.float16) for size in (shape, other))
    if name in ("from i32", "to i8"):
        x = (rng.standard_normal(shape) * 50).astype(np.float16)
    if len(other) == 2 and other[1] > 1:
        y[:, ::2] = (x[:, ::2] * np.float16(0.5)).astype(np.float16)
    made = model(EXPRESSIONS[name], shape, other)
    (found,) = irc.compile(made, backend="c", cache=False)({"x": x, "y": y})
    with np.errstate(all="ignore"):
        (wanted,) = irc.compile(made, backend="numpy")({"x": x, "y": y})
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("name", "form"), [("chain", "tile"), ("to i8", "run")])
def test_halves_are_converted_by_instructions(name: str, form: str) -> None:
    """In registers where all that is read or written is halves side by side."""
    options = CompileOptions(target="x86-64-v3", cache=False)
    files = sources(model(EXPRESSIONS[name], (3, 700), (3, 700)), options)
    code = "".join(text for name, text in files.files.items() if name.endswith(".c"))
    read, written = (2, 1) if name == "chain" else (1, 0)
    assert code.count(f"irc_f16_to_f32_{form}(") == read + 1  # and its definition
    assert code.count(f"irc_f16_from_f32_{form}(") == (written + 1 if written else 0)


ROWS: dict[str, tuple[tuple[int, ...], Callable[[Builder, Value], Value]]] = {
    "softmax": ((5, 700), lambda b, x: b.Softmax(x, axis=-1)),
    "softmax of the sum": ((5, 37), lambda b, x: b.Softmax(b.Add(x, x), axis=-1)),
    "residual sum": ((4, 100), lambda b, x: b.LayerNormalization(b.Sub(x, b.Abs(x)), b.const(np.full(100, 0.5), f16))),
    "planes": ((2, 3, 9, 7), lambda b, x: b.Sub(x, b.Cast(b.ReduceMean(b.Cast(x, to=f32), [2, 3]), to=f16))),
    "short": ((6, 9), lambda b, x: b.Softmax(x, axis=-1)),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_halves(name: str) -> None:
    """They become floats once, by instructions."""
    load_all()
    shape, make = ROWS[name]
    graph = Graph("rows")
    x = graph.add_input("x", TensorType.of(f16, shape))
    graph.outputs = [make(Builder(graph), x)]
    made = Model(graph)
    halves = (np.random.default_rng(7).standard_normal(shape) * 3).astype(np.float16)
    (found,) = irc.compile(made, backend="c", cache=False)({"x": halves})
    (wanted,) = irc.compile(made, backend="numpy")({"x": halves})
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=1e-4)
    files = sources(made, CompileOptions(target="x86-64-v3", cache=False)).files
    code = "".join(text for file, text in files.items() if file.endswith(".c"))
    if name == "softmax":
        assert code.count("irc_f16_to_f32(") == 2, "its definition, and in the portable form of a run"
