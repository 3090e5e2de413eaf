"""Results are the caller's, and inputs may be any array: whoever writes into one changes nothing else."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import irc
from irc.ir.graph import Graph, Model
from irc.runtime.ownership import arrays_in, owner
from irc.toolchain.c_compiler import find_compiler
from tests.ops.test_ops import FAMILIES, NEWEST_ONNX, add_case, compiles_to_c, feeds

BACKENDS = ["numpy", pytest.param("c", marks=pytest.mark.skipif(find_compiler() is None, reason="no C compiler"))]
F = TensorProto.FLOAT


def model(nodes: list[Any], inputs: dict[str, Any], outputs: list[str], **weights: Any) -> bytes:
    ins = [helper.make_tensor_value_info(n, F, shape) for n, shape in inputs.items()]
    outs = [helper.make_tensor_value_info(n, F, None) for n in outputs]
    data = [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "g", ins, outs, data)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def scribble(values: Any) -> None:
    """Write something else into every array."""
    for array in arrays_in(values):
        if array.dtype == object:
            array[...] = "scribbled"
        else:
            array.view(np.uint8 if array.ndim else array.dtype)[...] = 99 if array.ndim else array.dtype.type(99)


def copies(values: Any) -> list[Any]:
    return [a.copy() for a in arrays_in(values)]


def alike(one: Any, other: Any) -> bool:
    """Whether the arrays are the same, bit by bit."""

    def content(a: np.ndarray) -> Any:
        return a.dtype, a.shape, a.tolist() if a.dtype == object else a.tobytes()

    return list(map(content, arrays_in(one))) == list(map(content, arrays_in(other)))


# ------------------------------------------------------------------------------- results
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_results_of_every_operation_are_the_callers(family: str) -> None:
    """All cases of a family as one model for NumPy: results are written over, and the model run again."""
    graph, arrays = Graph(family), list[Any]()
    for i, case in enumerate(FAMILIES[family]):
        add_case(graph, case, f"n{i}_")
        arrays += feeds(case)
    compiled = irc.compile(Model(graph, "onnx", 10, {"": NEWEST_ONNX}), backend="numpy")
    given = copies(arrays)
    first = compiled(arrays)
    wanted = copies(first)
    for array in arrays_in(first):
        assert array.flags.c_contiguous and array.flags.writeable and owner(array).nbytes == array.nbytes
    scribble(first)
    assert alike(arrays, given)
    assert alike(list(arrays_in(compiled(arrays))), wanted)


VIEWS = {
    "input": (node("Identity", "x", "y"), node("Identity", "x", "z")),
    "constant": (node("Identity", "w", "y"), node("Identity", "w", "z")),
    "reshaped": (node("Reshape", "x shape", "y"), node("Transpose", "x", "z")),
    "sliced": (node("Slice", "x zero one", "y"), node("Slice", "w zero one", "z")),
    "each other": (node("Neg", "x", "y"), node("Identity", "y", "z")),
    "parts": (node("Split", "x", "y z", num_outputs=2),),
    "broadcast": (node("Expand", "x wide", "y"), node("Expand", "w wide", "z")),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", list(VIEWS))
def test_no_two_results_share_memory(kind: str, backend: str) -> None:
    weights = {
        "w": np.arange(16, dtype=np.float32).reshape(4, 4),
        "shape": np.int64([2, 8]),
        "zero": np.int64([0]),
        "one": np.int64([1]),
        "wide": np.int64([3, 4, 4]),
    }
    compiled = irc.compile(model(list(VIEWS[kind]), {"x": [4, 4]}, ["y", "z"], **weights), backend=backend)
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    first = compiled(x)
    wanted = copies(first)
    assert not np.shares_memory(*first) and not any(np.shares_memory(r, x) for r in first)
    assert all(r.flags.c_contiguous and r.flags.writeable for r in first)
    scribble(first)
    assert alike(compiled(x), wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_inputs_of_one_memory(backend: str) -> None:
    compiled = irc.compile(model([node("Add", "a b", "y")], {"a": [4], "b": [4]}, ["y"]), backend=backend)
    memory = np.arange(5, dtype=np.float32)
    assert compiled(memory[:4], memory[1:])[0].tolist() == [1, 3, 5, 7]
    assert compiled(memory[:4], np.frombuffer(memory.data, np.float32)[1:])[0].tolist() == [1, 3, 5, 7]


def test_lists_are_new_too() -> None:
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(F, [2]))
    value = [helper.make_value_info(n, sequence) for n in ("x", "y")]
    graph = helper.make_graph([node("Identity", "x", "y")], "g", value[:1], value[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    compiled = irc.compile(made.SerializeToString(), backend="numpy")
    given = [np.float32([1, 2]), np.float32([3, 4])]
    (result,) = compiled([given])
    result[0][:] = 99
    result.pop()
    assert [a.tolist() for a in given] == [[1, 2], [3, 4]]


STATE = """<?xml version="1.0"?><net name="s" version="11"><layers>
<layer id="0" name="x" type="Parameter" version="opset1"><data shape="2" element_type="f32"/>
<output><port id="0" precision="FP32"><dim>2</dim></port></output></layer>
<layer id="1" name="c" type="Const" version="opset1"><data element_type="f32" shape="2" offset="0" size="8"/>
<output><port id="0" precision="FP32"><dim>2</dim></port></output></layer>
<layer id="2" name="r" type="ReadValue" version="opset6"><data variable_id="v" variable_type="f32" variable_shape="2"/>
<input><port id="0" precision="FP32"><dim>2</dim></port></input>
<output><port id="1" precision="FP32"><dim>2</dim></port></output></layer>
<layer id="3" name="a" type="Assign" version="opset6"><data variable_id="v"/>
<input><port id="0" precision="FP32"><dim>2</dim></port></input></layer>
<layer id="4" name="o" type="Result" version="opset1">
<input><port id="0" precision="FP32"><dim>2</dim></port></input></layer>
</layers><edges>
<edge from-layer="1" from-port="0" to-layer="2" to-port="0"/>
<edge from-layer="0" from-port="0" to-layer="3" to-port="0"/>
<edge from-layer="2" from-port="1" to-layer="4" to-port="0"/></edges></net>"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_variables_keep_their_values_whatever_callers_write(backend: str, tmp_path: Path) -> None:
    """Each run gives the input of the run before: neither array may be written by its caller's hand."""
    (tmp_path / "m.xml").write_text(STATE)
    (tmp_path / "m.bin").write_bytes(np.float32([5, 6]).tobytes())
    compiled = irc.compile(tmp_path / "m.xml", backend=backend)
    x = np.float32([1, 2])
    for wanted in ([5, 6], [1, 2], [1, 2]):
        (y,) = compiled(x)
        assert y.tolist() == wanted
        x[:], y[:] = 99, 77
        x = np.float32([1, 2])
    compiled.reset_state()
    assert compiled(x)[0].tolist() == [5, 6]
    assert pickle.loads(pickle.dumps(compiled))(x)[0].tolist() == [5, 6]


@pytest.mark.parametrize("backend", BACKENDS)
def test_bound_calls_return_the_same_arrays_by_contract(backend: str) -> None:
    compiled = irc.compile(model([node("Identity", "x", "y")], {"x": [4]}, ["y"]), backend=backend)
    x = np.arange(4, dtype=np.float32)
    call = compiled.bind([x])
    (y,) = call()
    y[:] = 99
    assert x.tolist() == [0, 1, 2, 3] and call()[0] is y and y.tolist() == [0, 1, 2, 3]


# -------------------------------------------------------------------------------- inputs
def shifted(array: np.ndarray, by: int) -> np.ndarray:
    """The same elements so many bytes behind a multiple of 64."""
    memory = np.empty(array.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + by
    made = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def odd_arrays(array: np.ndarray, folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """The same elements in unusual arrays."""
    yield "one byte behind", shifted(array, 1)
    yield "one element behind", shifted(array, array.itemsize)
    yield "backwards", array[::-1].copy()[::-1]
    yield "columns first", np.asfortranarray(array)
    yield "every second", np.repeat(array, 2, axis=-1)[..., ::2]
    yield "a field", np.rec.fromarrays([np.zeros(array.shape, np.int8), array], names="a,b")["b"]
    read_only = array.copy()
    read_only.flags.writeable = False
    yield "read-only", read_only
    array.tofile(folder / "array")
    yield "mapped", np.memmap(folder / "array", array.dtype, "r", shape=array.shape)
    yield "matrix", array.view(np.matrix)  # whose * is a product of matrices
    yield "of bytes", np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)


@pytest.mark.parametrize("backend", BACKENDS)
def test_unusual_arrays(backend: str, tmp_path: Path) -> None:
    nodes = [node("Mul", "x x", "s"), node("MatMul", "s w", "y")]
    w = np.arange(42, dtype=np.float32).reshape(6, 7)
    compiled = irc.compile(model(nodes, {"x": ["n", 6]}, ["y"], w=w), backend=backend)
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for name, array in odd_arrays(x, tmp_path):
        (y,) = compiled(array)
        assert type(y) is np.ndarray and np.array_equal(y, (x * x) @ w), name
        if array.flags.c_contiguous and array.flags.aligned:
            assert np.array_equal(compiled.bind([array])()[0], (x * x) @ w), name
        else:
            with pytest.raises(ValueError, match="IRC6307"):
                compiled.bind([array])
        given = shifted(y, 1)
        with pytest.raises(ValueError, match="IRC6307"):
            compiled(x, out=[given])
    with pytest.raises(TypeError, match="IRC6303"):
        compiled(x.astype(">f4"))
    assert compiled(np.empty((0, 6), np.float32))[0].shape == (0, 7)
    assert compiled(shifted(np.empty((0, 6), np.float32), 3))[0].shape == (0, 7)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("family", ["arithmetic", "matmul", "pool"])
def test_inputs_need_no_more_than_their_elements_alignment(family: str) -> None:
    """Vectors of 64 bytes are read from wherever an array begins."""
    graph, arrays = Graph(family), list[Any]()
    for i, case in enumerate(FAMILIES[family]):
        if compiles_to_c(case):
            add_case(graph, case, f"n{i}_")
            arrays += feeds(case)
    compiled = irc.compile(Model(graph, "onnx", 10, {"": NEWEST_ONNX}), backend="c")
    wanted = compiled(arrays)
    assert alike(compiled([shifted(a, a.itemsize) for a in arrays]), wanted)
