"""Operations in which attributes of OpenVINO mean more than they say, held against its CPU plugin."""

from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset11 as opset

import irc
from irc.ir.graph import Graph, Model
from irc.ir.types import TensorType, f32
from irc.opdef.builder import Builder


def run_plugin(model: "ov.Model | Path", x: np.ndarray) -> np.ndarray:
    core = ov.Core()
    read = core.read_model(model) if isinstance(model, Path) else model
    return core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([x])[0]


def compare(node: ov.Node, parameter: ov.Node, x: np.ndarray, folder: Path) -> None:
    """The plugin's numbers from both of irc's backends."""
    model = ov.Model([node], [parameter])
    want = run_plugin(model, x)
    path = folder / "m.xml"
    ov.save_model(model, path, compress_to_fp16=False)
    for backend in ("numpy", "c"):
        (got,) = irc.compile(irc.load(path), backend=backend, cache=False)([x])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=backend)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("axes", [[1], [2, 3]], ids=str)
def test_window_of_lrn(axes: list[int], size: int, tmp_path: Path) -> None:
    """An even window has one element less, and is divided as if it had not."""
    x = np.random.default_rng(size).uniform(-2, 2, (2, 7, 5, 6)).astype(np.float32)
    parameter = opset.parameter(list(x.shape), np.float32)
    node = opset.lrn(parameter, opset.constant(np.array(axes)), alpha=2.0, beta=0.75, bias=1.0, size=size)
    compare(node, parameter, x, tmp_path)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize(
    ("shape", "axes"), [((2, 7, 5, 6), [1]), ((2, 7, 5), [1]), ((2, 7), [1]), ((2, 7, 5, 6), [2, 3])], ids=str
)
def test_even_windows_are_written_in_full(shape: tuple[int, ...], axes: list[int], size: int, tmp_path: Path) -> None:
    """ONNX's even window has its odd element behind the middle; OpenVINO's LRN cannot say so."""
    graph = Graph("lrn")
    b, x = Builder(graph), graph.add_input("x", TensorType.of(f32, shape))
    y = b.LRN(x, b.const(axes), size=size, alpha=2.0, bias=2.0)
    graph.outputs = [y]
    data = np.random.default_rng(size).uniform(-2, 2, shape).astype(np.float32)
    irc.save(Model(graph, "onnx", 10, {"": 22}), tmp_path / "m.xml")
    want = y.producer.op.reference(data, np.array(axes))
    np.testing.assert_allclose(run_plugin(tmp_path / "m.xml", data), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ((4, 8, 8), (8, 2, 2)),
        ((3, 8, 8), (5, 2, 2)),
        ((3, 8, 8), (5, 8, 2)),
        ((4, 8, 8), (4, 2, 2)),
        ((5, 6, 6), (8, 2, 7)),
    ],
    ids=str,
)
@pytest.mark.parametrize("where", ["half_pixel", "asymmetric"])
def test_antialiased_axes_that_grow(shape: tuple[int, ...], sizes: tuple[int, ...], where: str, tmp_path: Path) -> None:
    """An axis that shrinks makes those that grow sharper: the scale of each is the slope of its weights."""
    x = np.random.default_rng(1).uniform(-1, 1, (1, 2, *shape)).astype(np.float32)
    parameter = opset.parameter(list(x.shape), np.float32)
    node = opset.interpolate(
        parameter,
        opset.constant(np.array(sizes)),
        "linear",
        "sizes",
        axes=opset.constant(np.array([2, 3, 4])),
        antialias=True,
        coordinate_transformation_mode=where,
    )
    compare(node, parameter, x, tmp_path)


@pytest.mark.parametrize("equation", ["b...,b->b...", "b ..., b", "...b,b->b...", "...,...->..."])
def test_the_ellipsis_of_one_operand_is_spelled_out(equation: str, tmp_path: Path) -> None:
    """The plugin multiplies the last axes of an operand with an ellipsis by those of one without."""
    graph = Graph("einsum")
    x, scales = graph.add_input("x", TensorType.of(f32, (3, 3, 3))), np.arange(3, dtype=np.float32)
    if equation.count("...") == 3:
        scales = np.arange(9, dtype=np.float32).reshape(3, 3)
    y = Builder(graph).Einsum(x, scales, equation=equation)
    graph.outputs = [y]
    data = np.random.default_rng(0).uniform(-2, 2, (3, 3, 3)).astype(np.float32)
    irc.save(Model(graph, "onnx", 10, {"": 22}), tmp_path / "m.xml")
    want = y.producer.op.reference(data, scales)
    np.testing.assert_allclose(run_plugin(tmp_path / "m.xml", data), want, rtol=1e-5, atol=1e-5)
