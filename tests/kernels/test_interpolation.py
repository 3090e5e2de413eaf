"""Interpolation along rows against its definition; which sums of gathered elements of a model it computes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import irc
from irc.ir.dim import Dim
from irc.ir.types import TensorType, f32
from irc.kernels import ISAS
from irc.kernels.resize.interpolation import InterpolationKernel
from irc.kernels.resize.problem import InterpolationProblem, Taps, apply_taps
from tests.kernels.test_kernels import Pool, build, compilers, guarded, invoke, noise
from tests.selection.test_select import kernels, selected
from tests.support.lowering import graph_of, random

COMPILED = pytest.mark.skipif(not compilers(), reason="no C compiler")
RANDOM = np.random.default_rng(3)
SIZES = [(1, 1), (7, 15), (16, 16), (17, 16), (5, 33), (28, 42), (31, 100), (40, 32), (100, 101)]


def taps(width: int, results: int, terms: int) -> Taps:
    """Neighbours of places that are spread over an axis, those at the ends as often as Resize takes them."""
    middle = (np.arange(results) * width // results)[:, None]
    places = np.clip(middle + np.arange(terms) - terms // 2, 0, width - 1)
    return Taps(places, RANDOM.standard_normal((results, terms)).astype(np.float32))


def kernel_of(isa: str, columns: int, rows: int) -> InterpolationKernel:
    problem = InterpolationProblem(f32, "highest", Dim.of(3), (9, 28), (14, 42), columns, rows)
    found = InterpolationKernel.best(problem, ISAS[isa])
    assert found is not None
    return found


@COMPILED
@pytest.mark.parametrize("isa", ["avx512", "avx2"])
@pytest.mark.parametrize(("columns", "rows"), [(2, 0), (4, 0), (2, 2), (4, 4), (3, 5)])
def test_every_size(tmp_path: Path, isa: str, columns: int, rows: int) -> None:
    """Nothing behind the planes is read, nothing beside the result written."""
    kernel = kernel_of(isa, columns, rows)
    lib = build(tmp_path, [kernel])
    for (iw, ow), (ih, oh), pool in itertools.product(SIZES, [(1, 1), (9, 14), (20, 35)], (None, Pool(1))):
        oh = oh if rows else ih
        x, along, across = guarded(3, ih, iw), taps(iw, ow, columns), taps(ih, oh, max(rows, 1))
        tables = kernel.columns_of(along, iw)
        assert tables is not None
        wanted = x.astype(np.float64)
        given = [x]
        if rows:
            wanted = apply_taps(wanted, across, 1)
            given += [across.places.astype(np.int32), across.weights]
        wanted = apply_taps(wanted, along, 2)
        whole = np.full(wanted.size + 64, 77, np.float32)
        invoke(lib, kernel, *given, *tables, whole[32:], 3, oh, ow, ih, iw, pool=pool)
        np.testing.assert_allclose(whole[32:-32].reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-5)
        assert (whole[:32] == 77).all() and (whole[-32:] == 77).all()


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_tables(isa: str) -> None:
    """They name the same neighbours again; there are none where a vector's are too far apart."""
    kernel = kernel_of(isa, 4, 0)
    lanes = kernel.tile.lanes
    for width, results in SIZES:
        found = kernel.columns_of(taps(width, results, 4), width)
        assert found is not None
        again = kernel.columns_from(*found, results)
        assert np.array_equal(again.places, taps(width, results, 4).places)
    assert kernel.columns_of(taps(6 * lanes, 2 * lanes, 4), 6 * lanes) is None
    assert kernel.columns_of(replace(taps(5, 9, 4), places=np.full((9, 4), 5)), 5) is None


def resize(scale: float, mode: str, **fields: Any) -> Callable[[Any, Any], Any]:
    def made(b: Any, x: Any) -> Any:
        scales = b.const(np.array([1, 1, scale, scale], np.float32), f32)
        return b.Resize(x, None, scales, mode=mode, **fields)

    return made


def activated(b: Any, x: Any) -> Any:
    """Loops before it and behind it."""
    return b.Relu(resize(2, "linear")(b, b.Mul(x, b.const(2.0, f32))))


def model(shape: tuple[int, ...], scales: list[float], mode: str, coordinates: str) -> onnx.ModelProto:
    """One Resize by these scales."""
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode, coordinate_transformation_mode=coordinates)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    s = helper.make_tensor("s", TensorProto.FLOAT, [len(scales)], scales)
    graph = helper.make_graph([node], "resize", [x], [y], [s])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@COMPILED
@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize(
    ("shape", "scales", "mode"),
    [
        ((1, 5, 28, 28), [1, 1, 1.5, 1.5], "cubic"),
        ((2, 5, 30, 21), [1, 1, 2, 2], "linear"),
        ((1, 5, 40, 64), [1, 1, 0.5, 0.75], "linear"),
        ((2, 20, 110), [1, 1, 2], "linear"),
        ((1, 3, 64, 64), [1, 1, 0.5, 0.5], "cubic"),
    ],
)
def test_as_onnx_runtime(shape: tuple[int, ...], scales: list[float], mode: str, coordinates: str) -> None:
    """It computes places in f32, so that its weights are 1e-5 off."""
    ort = pytest.importorskip("onnxruntime")
    m, x = model(shape, scales, mode, coordinates), noise(*shape)
    session = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    (found,) = irc.compile(m.SerializeToString(), backend="c")({"x": x})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=5e-5)


@pytest.mark.parametrize(
    ("build", "x", "found"),
    [
        (resize(1.5, "cubic"), random(1, 8, 28, 28), 1),
        (resize(2, "linear"), random(2, 8, 20, 20), 1),
        (activated, random(2, 8, 20, 20), 1),
        (resize(2, "nearest"), random(2, 8, 20, 20), 0),
        (resize(0.25, "linear"), random(2, 8, 160, 160), 0),  # a vector's neighbours are too far apart
        (resize(2, "linear"), random(1, 1, 6, 6), 0),  # few elements
        (resize(2, "linear"), random(1, 1, 2, 9000), 0),  # rows for which parts would need much memory
        (resize(2, "linear"), random(2, 8, 20, 20).astype(np.float64), 0),
    ],
)
def test_selection(build: Callable[[Any, Any], Any], x: Any, found: int) -> None:
    g = graph_of(build, x)
    program = selected(g, ISAS["avx512"])
    assert sum(isinstance(k, InterpolationKernel) for k in kernels(program.functions)) == found


def test_rows_that_are_not_there() -> None:
    """What a Gather of the model rejects when it is run is left to it."""

    def build(b: Any, x: Any) -> Any:
        def blend(x: Any, axis: int, last: int) -> Any:
            weights = b.const(np.full((40, 1) if axis == 2 else 40, 0.5, np.float32), f32)
            at = (b.const(np.minimum(np.arange(40) // 2 + k, last)) for k in (0, 1))
            return b.Add(*(b.Mul(b.Gather(x, places, b.const(axis)), weights) for places in at))

        return blend(blend(x, 2, 20), 3, 19)

    graph = graph_of(build, random(2, 8, 20, 20), shapes=[(2, 8, 21, 20)])
    graph.inputs[0].type = TensorType.of(f32, (2, 8, 20, 20))
    found = kernels(selected(graph, ISAS["avx512"]).functions)
    assert not any(isinstance(k, InterpolationKernel) for k in found)


def test_a_sum_of_rows_that_others_read() -> None:
    """It is stored, and the kernel interpolates its rows."""

    def build(b: Any, x: Any) -> Any:
        at, weights = b.const(np.arange(40) // 2), b.const(np.full((40, 1), 0.5, np.float32), f32)
        half = b.const(np.full(40, 0.5, np.float32), f32)

        def blend(x: Any, axis: int, w: Any) -> Any:
            other = b.const(np.minimum(np.arange(40) // 2 + 1, 19))
            return b.Add(*(b.Mul(b.Gather(x, places, b.const(axis)), w) for places in (at, other)))

        rows = blend(x, 2, weights)
        return b.Add(blend(rows, 3, half), b.ReduceMax(rows, b.const([2, 3])))

    found = kernels(selected(graph_of(build, random(2, 8, 20, 20)), ISAS["avx512"]).functions)
    (kernel,) = (k for k in found if isinstance(k, InterpolationKernel))
    assert (kernel.columns, kernel.rows) == (2, 0)
