"""Kernels that differ in constants of their epilogues, or in sizes that one of them can do as well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.ir.types import f32
from irc.loops import interp
from irc.loops.ir import Program
from irc.opdef.builder import evaluate
from tests.selection.test_select import kernels, selected
from tests.support.c_program import Library
from tests.support.instruction_sets import isa_under_test
from tests.support.lowering import graph_of, random

Layer = Callable[[Any, Any, int], Any]
W = random(64, 64) / 8


def dense(b: Any, x: Any, k: int) -> Any:
    """Scale and shift behind a product; the bounds of the clamp are those of every layer."""
    y = b.Clip(b.MatMul(x, random(64, 64, seed=k) / 8), -3.0, 6.0)
    return b.Add(b.Mul(y, 0.5 + k), 1.5 - k)


def divided(b: Any, x: Any, k: int) -> Any:
    """A residual that stays where it is among the operands."""
    return b.Div(b.Add(b.MatMul(x, random(64, 64, seed=k) / 8), x), 1.5 + k)


def depthwise(b: Any, x: Any, k: int) -> Any:
    same = {"pads_begin": (1, 1), "pads_end": (1, 1)}
    return b.Mul(b.Conv(x, random(64, 1, 3, 3, seed=k), random(64, seed=k), group=64, **same), 0.25 * (k + 1))


def clamped(b: Any, x: Any, k: int) -> Any:
    return b.Clip(b.MatMul(x, W), -1.0 - k, 1.0 + k)


def bounded(b: Any, x: Any, k: int) -> Any:
    """Not at all, from below, and from both sides."""
    y = b.MatMul(x, W)
    return (y, b.Relu(y), b.Clip(y, 0.0, 6.0))[k]


def within(b: Any, x: Any, k: int) -> Any:
    """Clamps that something else follows have their bounds in their instructions."""
    return b.Add(b.Clip(b.MatMul(x, W), -1.0 - k, 1.0 + k), 0.5)


def crossed(b: Any, x: Any, k: int) -> Any:
    """Of bounds that leave nothing between them, the last one is the result."""
    y = b.MatMul(x, W)
    return (y, b.Max(b.Min(y, b.const(-1.0, f32)), b.const(1.0, f32)), b.Relu(y))[k]


def few_products(b: Any, x: Any, k: int) -> Any:
    """Beside one product, a comparison is not for nothing."""
    same = {"pads_begin": (1, 1), "pads_end": (1, 1)}
    return b.Clip(b.Conv(x, random(64, 1, 3, 3, seed=k), random(64, seed=k), group=64, **same), -1.0 - k, 1.0 + k)


CASES: dict[str, tuple[Layer, tuple[int, ...], int]] = {
    "dense": (dense, (40, 64), 1),
    "divided": (divided, (40, 64), 1),
    "depthwise": (depthwise, (1, 64, 9, 11), 1),
    "clamped": (clamped, (40, 64), 1),
    "bounded": (bounded, (40, 64), 1),
    "within": (within, (40, 64), 3),
    "crossed": (crossed, (40, 64), 2),
    "few products": (few_products, (1, 64, 9, 11), 3),
}


def symbols(program: Program) -> tuple[int, int]:
    """Count the calls of kernels that have epilogues, and these kernels."""
    found = [k.symbol for k in kernels(program.functions) if hasattr(k, "epilogue")]
    return len(found), len({*found})


@pytest.mark.compiler
@pytest.mark.parametrize("name", CASES)
def test_layers_share_a_kernel(name: str, tmp_path: Path) -> None:
    layer, shape, count = CASES[name]

    def build(b: Any, x: Any) -> Any:
        for k in range(3):
            x = layer(b, x, k)
        return x

    feeds = [random(*shape)]
    graph = graph_of(build, *feeds)
    (wanted,) = evaluate(graph, dict(zip(graph.inputs, feeds, strict=True)))
    program = selected(graph)
    assert symbols(program) == (3, count)
    np.testing.assert_allclose(interp.run(program, feeds)[0], wanted, rtol=3e-5, atol=3e-5)
    library = Library(program, tmp_path)
    (got,) = library.run(library.context(), feeds, [wanted.shape])
    np.testing.assert_allclose(got, wanted, rtol=3e-5, atol=3e-5)


@pytest.mark.compiler
def test_bounds_that_are_read_keep_what_is_no_number(tmp_path: Path) -> None:
    def build(b: Any, x: Any) -> Any:
        return b.Concat(*(bounded(b, x, k) for k in range(3)), axis=0)

    x = random(40, 64)
    x[3], x[5, 7], x[6, 7], x[7] = np.nan, np.inf, -np.inf, -0.0
    graph = graph_of(build, x)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    assert np.isnan(wanted).any() and np.isinf(wanted).any()
    program = selected(graph)
    assert symbols(program) == (3, 1)
    library = Library(program, tmp_path)
    (got,) = library.run(library.context(), [x], [wanted.shape])
    np.testing.assert_allclose(got, wanted, rtol=3e-5, atol=3e-5)


# sizes of products one after the other, and how many kernels these are
PRODUCTS = {
    "depths and last columns": ((64, 48, 300, 80), 40, 1),
    "few and many last columns": ((700, 900, 944), 40, 1),
}


@pytest.mark.compiler
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_share_a_kernel(name: str, tmp_path: Path) -> None:
    """That has the bodies of all: B small and packed as it is read, or A packed, too."""
    (first, *widths), rows, count = PRODUCTS[name]

    def build(b: Any, x: Any) -> Any:
        for k, n in zip((first, *widths), widths, strict=False):
            x = b.MatMul(x, random(k, n, seed=n) / 16)
        return x

    feeds = [random(rows, first)]
    graph = graph_of(build, *feeds)
    (wanted,) = evaluate(graph, dict(zip(graph.inputs, feeds, strict=True)))
    program = selected(graph, replace(isa_under_test(), tiles=False))  # matrix units have kernels of their own
    assert symbols(program) == (len(widths), count)
    library = Library(program, tmp_path)
    (got,) = library.run(library.context(), feeds, [wanted.shape])
    np.testing.assert_allclose(got, wanted, rtol=3e-5, atol=3e-4)
