"""Reductions of rows against NumPy, at the edges of their vectors, wherever a NaN stands."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import irc
from irc.diagnostics import Sink
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Model, Value
from irc.ir.types import TensorType, f32, f64
from irc.kernels import ISAS
from irc.kernels.core.registry import select
from irc.kernels.reduction.extremes import PIECE, PIECES, ExtremesProblem
from irc.kernels.reduction.problem import Fold, RowReductionProblem
from irc.kernels.reduction.rows import FAR
from irc.opdef.base import load_all
from irc.opdef.builder import Builder
from irc.pipelines import compile_c
from irc.selection.selector import KernelOp
from tests.kernels.test_kernels import Pool, build, close, compilers, guarded, invoke

COMPILED = pytest.mark.skipif(not compilers(), reason="no C compiler")
LENGTHS = (7, 8, 15, 16, 17, 31, 49, 64, 100, 127, 128, 200, 1000)


def exact(fold: Fold, x: Any) -> Any:
    x = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        match fold:
            case "sum" | "mean":
                return x.sum(-1) if fold == "sum" else x.mean(-1)
            case "l1" | "l2":
                return np.abs(x).sum(-1) if fold == "l1" else np.sqrt((x * x).sum(-1))
            case _:
                return {"max": x.max, "min": x.min, "prod": x.prod}[fold](-1)


@COMPILED
@pytest.mark.parametrize("fold", get_args(Fold))
@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
def test_every_length(tmp_path: Path, isa: str, fold: Fold) -> None:
    kernels = {n: select(RowReductionProblem.contiguous(fold, 1, n), ISAS[isa]) for n in LENGTHS}
    lib = build(tmp_path, list({k.symbol: k for k in kernels.values() if k is not None}.values()))
    for (n, kernel), rows, pool in itertools.product(kernels.items(), (1, 8, 19, 33), (None, Pool(1))):
        assert kernel is not None
        x, whole = guarded(2, rows, n), np.full(2 * rows + 64, 77, np.float32)
        invoke(lib, kernel, x, whole[32:], 2, rows, 1, n, rows * n, n, 0, pool=pool)
        close(whole[32:-32].reshape(2, rows), exact(fold, x), n)
        assert (whole[:32] == 77).all() and (whole[-32:] == 77).all()


@COMPILED
@pytest.mark.parametrize("fold", ["sum", "max", "l2"])
@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
def test_halves_of_long_rows(tmp_path: Path, isa: str, fold: Fold) -> None:
    kernel = select(RowReductionProblem.contiguous(fold, 1, FAR), ISAS[isa])
    assert kernel is not None
    lib = build(tmp_path, [kernel])
    for n in (FAR - 1, FAR, FAR + 93):
        x, whole = guarded(1, 3, n), np.full(3 + 64, 77, np.float32)
        x[0, :, n - 1] = 9
        invoke(lib, kernel, x, whole[32:], 1, 3, 1, n, 3 * n, n, 0)
        np.testing.assert_allclose(whole[32:-32].reshape(1, 3), exact(fold, x), rtol=1e-4, atol=1e-2)
        assert (whole[:32] == 77).all() and (whole[-32:] == 77).all()


@COMPILED
@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
def test_extremes(tmp_path: Path, isa: str) -> None:
    """The least and the largest of all elements; NaN where one is, at any place; both infinities are numbers."""
    kernel = select(ExtremesProblem(f32, "highest", Dim.of(1)), ISAS[isa])
    assert kernel is not None
    lib = build(tmp_path, [kernel])
    scratch = np.full(2 * PIECES, np.nan, np.float32)
    for n, pool in itertools.product((0, 1, 7, 16, 64, 65, 1000, 2 * PIECE, 40 * PIECE + 13), (None, Pool(1))):
        x, y = guarded(n), np.full(3, 77, np.float32)
        cases: list[tuple[int, float]] = [(n - 1, -9), (n // 2, 9), (0, np.inf), (n - 1, -np.inf), (n // 3, np.nan)]
        for at, value in [(0, 0.0), *cases] if n else []:
            x[at] = value
            invoke(lib, kernel, x, y, scratch, n, pool=pool)
            np.testing.assert_array_equal(y, [x.min(), x.max(), 77])
        if not n:
            invoke(lib, kernel, x, y, scratch, n, pool=pool)
            assert list(y) == [np.inf, -np.inf, 77]


@COMPILED
@pytest.mark.parametrize("dtype", [f32, f64])
@pytest.mark.parametrize("fold", ["sum", "max"])
@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
def test_pieces(tmp_path: Path, isa: str, fold: Fold, dtype: Any) -> None:
    kernel = select(RowReductionProblem.contiguous(fold, 1, 21, dtype), ISAS[isa])
    assert kernel is not None
    lib = build(tmp_path, [kernel])
    x, y = guarded(3, 4, 20, 21).astype(dtype.numpy), np.zeros((4, 20), dtype.numpy)
    invoke(lib, kernel, x, y, 4, 20, 3, 21, 20 * 21, 21, 4 * 20 * 21)
    close(y, exact(fold, np.moveaxis(x, 0, 2).reshape(4, 20, -1)), 63)
    invoke(lib, kernel, x, y, 4, 20, 0, 21, 20 * 21, 21, 4 * 20 * 21)
    assert (y == (0 if fold == "sum" else -np.inf)).all()


@COMPILED
@pytest.mark.parametrize("fold", ["max", "min"])
@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
def test_nan_anywhere(tmp_path: Path, isa: str, fold: Fold) -> None:
    for n in (15, 47, 75, 150):
        kernel = select(RowReductionProblem.contiguous(fold, 1, n), ISAS[isa])
        assert kernel is not None
        folder = tmp_path / str(n)
        folder.mkdir()
        lib = build(folder, [kernel])
        x, y = guarded(n, n), np.zeros(n, np.float32)
        np.fill_diagonal(x, [np.nan if k % 2 else np.inf for k in range(n)])
        invoke(lib, kernel, x, y, 1, n, 1, n, 0, n, 0)
        np.testing.assert_array_equal(y, exact(fold, x).astype(np.float32))


def reduced(op: str, shape: tuple[int, ...], axes: list[int], before: str = "") -> tuple[Graph, Value]:
    load_all()
    graph = Graph("rows")
    x = graph.add_input("x", TensorType.of(f32, shape))
    b = Builder(graph)
    graph.outputs = [getattr(b, op)(getattr(b, before)(x) if before else x, axes, keepdims=True)]
    return graph, x


@pytest.mark.parametrize(
    ("shape", "axes", "taken"),
    [
        ((40, 60), [1], True),
        ((3, 4, 5, 60), [3], True),
        ((16, 20, 4, 30), [0, 3], True),
        ((16, 20, 4, 30), [1, 3], True),
        ((40, 60), [0], False),
        ((400, 6), [1], False),
        ((4, 5, 6, 7, 20), [1, 3], False),
        ((4, 5, 6, 7, 20), [0, 2, 4], False),
    ],
)
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMin", "ReduceL2"])
def test_which_rows(op: str, shape: tuple[int, ...], axes: list[int], taken: bool) -> None:
    """Kernels take rows of some length, with one more reduced axis and two loops around them at most."""
    graph, _ = reduced(op, shape, axes)
    for _, run in compile_c(ISAS["avx512"]):
        run(graph, Sink())
    assert any(isinstance(n.op, KernelOp) for n in graph.nodes) is taken


def test_what_loops_compute_on_the_way_is_not_stored() -> None:
    graph, _ = reduced("ReduceSum", (40, 60), [1], before="Exp")
    for _, run in compile_c(ISAS["avx512"]):
        run(graph, Sink())
    assert not any(isinstance(n.op, KernelOp) for n in graph.nodes)


@COMPILED
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMean", "ReduceProd", "ReduceL1"])
@pytest.mark.parametrize(("shape", "axes"), [((1, 74, 49), [2]), ((6, 20, 3, 30), [0, 3]), ((3, 5, 150), [2])])
def test_models(shape: tuple[int, ...], axes: list[int], op: str) -> None:
    graph, _ = reduced(op, shape, axes)
    compiled = irc.compile(Model(graph), backend="c", cache=False)
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    function = {"ReduceMax": np.max, "ReduceMean": np.mean, "ReduceProd": np.prod, "ReduceL1": np.sum}[op]
    given = np.abs(x) if op == "ReduceL1" else x
    wanted = function(given.astype(np.float64), axis=tuple(axes), keepdims=True)
    np.testing.assert_allclose(compiled({"x": x})[0], wanted, rtol=1e-4, atol=1e-6)
