"""Memory that callers give: outputs over inputs, over each other, and more than there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import irc
from irc.runtime.errors import InputValueError, OutOfMemory

BACKENDS = pytest.mark.parametrize("backend", ["c", "numpy"])


def compiled(backend: str, nodes: list[Any], shape: list[Any], outputs: int = 1) -> Any:
    """A model of x; its outputs are y0, y1, …"""
    value = helper.make_tensor_value_info
    outs = [value(f"y{k}", TensorProto.FLOAT, None) for k in range(outputs)]
    graph = helper.make_graph(nodes, "overlap", [value("x", TensorProto.FLOAT, shape)], outs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return irc.compile(made.SerializeToString(), backend=backend, cache=False)


def symmetric(backend: str) -> Any:
    """x + xᵀ: writes elements before it has read all that it needs."""
    nodes = [helper.make_node("Transpose", ["x"], ["t"]), helper.make_node("Add", ["t", "x"], ["y0"])]
    return compiled(backend, nodes, [4, 4])


def both(backend: str) -> Any:
    """-x and |x|."""
    nodes = [helper.make_node("Neg", ["x"], ["y0"]), helper.make_node("Abs", ["x"], ["y1"])]
    return compiled(backend, nodes, ["N"], 2)


def matrices(offset: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Two 4 × 4 matrices that begin so many elements from each other in one memory, and the first one's contents."""
    memory = np.arange(48, dtype=np.float32)
    x, y = memory[16:32].reshape(4, 4), memory[16 + offset : 32 + offset].reshape(4, 4)
    return x, y, x.copy()


@BACKENDS
@pytest.mark.parametrize("offset", [0, 1, 5, -3, 15, 16, -16])
def test_an_output_over_an_input(backend: str, offset: int) -> None:
    model = symmetric(backend)
    x, y, given = matrices(offset)
    (result,) = model(x, out=[y])
    assert result is y
    np.testing.assert_array_equal(y, given + given.T)
    x, y, given = matrices(offset)
    call = model.bind([x], [y])
    (result,) = call()
    assert result is y
    np.testing.assert_array_equal(y, given + given.T)
    again = x.copy()
    call()
    np.testing.assert_array_equal(y, again + again.T)
    x[:] = given
    call()
    np.testing.assert_array_equal(y, given + given.T)


@BACKENDS
def test_one_array_for_two_outputs(backend: str) -> None:
    model, x = both(backend), np.arange(4, dtype=np.float32)
    memory = np.zeros(8, np.float32)
    for first, second in ((memory[:4], memory[:4]), (memory[:4], memory[3:7]), (memory[2:6], memory[:4])):
        for refused in (
            lambda a=first, b=second: model(x, out=[a, b]),
            lambda a=first, b=second: model.bind([x], [a, b]),
        ):
            with pytest.raises(InputValueError, match=r"IRC6315.*'y0' and 'y1'"):
                refused()
    y, z = model(x, out=[memory[:4], memory[4:]])
    assert y.tolist() == [0, -1, -2, -3] and z.tolist() == [0, 1, 2, 3]


@BACKENDS
def test_arrays_without_elements_do_not_overlap(backend: str) -> None:
    model, nothing = both(backend), np.zeros(4, np.float32)[:0]
    assert [y.shape for y in model(nothing, out=[nothing, nothing])] == [(0,), (0,)]


@BACKENDS
def test_memory_that_cannot_be_had(backend: str) -> None:
    """Both an irc.RunError and a MemoryError; the model goes on working."""
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axis"], ["row"]),
        helper.make_node("Transpose", ["row"], ["column"]),
        helper.make_node("Add", ["row", "column"], ["y0"]),
    ]
    nodes.insert(0, helper.make_node("Constant", [], ["axis"], value_ints=[0]))
    model = compiled(backend, nodes, ["N"])
    for _ in range(2):
        with pytest.raises(OutOfMemory, match="IRC6314"):
            model(np.zeros(1 << 26, np.float32))
        assert model(np.float32([1, 2]))[0].tolist() == [[2, 3], [3, 4]]


def test_a_context_that_cannot_be_had() -> None:
    """CumSum twice needs the first's result in the context; row by row, no count is beyond what indices may be."""
    nodes = [
        helper.make_node("Constant", [], ["axis"], value_ints=[0]),
        helper.make_node("Constant", [], ["one"], value_int=1),
        helper.make_node("Unsqueeze", ["x", "axis"], ["row"]),
        helper.make_node("Transpose", ["row"], ["column"]),
        helper.make_node("Add", ["row", "column"], ["sum"]),
        helper.make_node("CumSum", ["sum", "one"], ["once"]),
        helper.make_node("CumSum", ["once", "one"], ["twice"]),
        helper.make_node("ReduceMax", ["twice"], ["rows"], axes=[1]),
        helper.make_node("ReduceMax", ["rows"], ["y0"]),
    ]
    model = compiled("c", nodes, ["N"])
    with pytest.raises(OutOfMemory, match=r"IRC6314.*bytes for the tensors"):
        model(np.zeros(1 << 26, np.float32))
    assert model(np.float32([1, 2]))[0].tolist() == [[10]]
