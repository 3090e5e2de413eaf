"""Models that are compiled for the shapes of each call, because ranks depend on these."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto as T, helper as h

import irc
from irc.runtime.specializing import SpecializingModel
from irc.toolchain.c_compiler import find_compiler

BACKENDS = [pytest.param("c", marks=pytest.mark.skipif(find_compiler() is None, reason="no C compiler")), "numpy"]


def model(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[str], weights: Sequence[Any] = ()) -> Any:
    results = [h.make_empty_tensor_value_info(name) for name in outputs]
    graph = h.make_graph(nodes, "g", inputs, results, list(weights))
    return h.make_model(graph, ir_version=10, opset_imports=[h.make_opsetid("", 21)])


def f32(name: str, shape: Sequence[Any] | None) -> Any:
    return h.make_tensor_value_info(name, T.FLOAT, shape)


def squeezed_if_one() -> Any:
    """`x.squeeze(1)` as PyTorch exports it, then what needs the rank: a convolution over the last axis."""
    axis = h.make_tensor("axis", T.INT64, [1], [1])
    one = h.make_tensor("one", T.INT64, [1], [1])
    then = h.make_graph([h.make_node("Squeeze", ["x", "axis"], ["a"])], "t", [], [h.make_empty_tensor_value_info("a")])
    other = h.make_graph([h.make_node("Identity", ["x"], ["b"])], "e", [], [h.make_empty_tensor_value_info("b")])
    nodes = [
        h.make_node("Shape", ["x"], ["shape"]),
        h.make_node("Gather", ["shape", "axis"], ["size"]),
        h.make_node("Equal", ["size", "one"], ["is_one"]),
        h.make_node("If", ["is_one"], ["s"], then_branch=then, else_branch=other),
        h.make_node("GlobalAveragePool", ["s"], ["y"]),
    ]
    return model(nodes, [f32("x", ["n", "c", 2, 6])], ["y"], [axis, one])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_branch_on_a_size_is_taken_when_the_size_is_known(backend: str) -> None:
    compiled = irc.compile(squeezed_if_one(), backend=backend)
    assert isinstance(compiled, SpecializingModel)
    assert compiled.inputs[0].shape == ("n", "c", 2, 6)
    rng = np.random.default_rng(0)
    for channels in (1, 3, 1):
        x = rng.random((2, channels, 2, 6), np.float32)
        (y,) = compiled(x)
        squeezed = x[:, 0] if channels == 1 else x
        wanted = squeezed.mean(axis=tuple(range(2, squeezed.ndim)), keepdims=True)
        np.testing.assert_allclose(y, wanted, rtol=1e-6)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(compiled))(x)[0], y)
        np.testing.assert_array_equal(compiled.bind([x])()[0], y)
    with pytest.raises(ValueError, match="IRC6304"):
        compiled(np.zeros((2, 1, 3, 6), np.float32))


def test_there_is_no_artefact_without_shapes(tmp_path: Path) -> None:
    with pytest.raises(irc.CompileError, match="IRC5010"):
        irc.compile(squeezed_if_one(), backend="numpy").save(tmp_path)
    fixed = irc.compile(squeezed_if_one(), backend="numpy", shapes={"x": (2, 1, 2, 6)})
    assert not isinstance(fixed, SpecializingModel)
    fixed.save(tmp_path)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_branch_that_sizes_do_not_allow_ends_the_run(backend: str) -> None:
    """Beside it, the other branch runs."""
    weight = h.make_tensor("w", T.FLOAT, [3, 2], [1.0] * 6)
    matmul = h.make_node("MatMul", ["x", "w"], ["a"], name="product")
    then = h.make_graph([matmul], "t", [], [h.make_empty_tensor_value_info("a")])
    total = h.make_node("ReduceSum", ["x", "last"], ["b"], keepdims=1)
    other = h.make_graph([total], "e", [], [h.make_empty_tensor_value_info("b")])
    nodes = [h.make_node("If", ["choose"], ["y"], then_branch=then, else_branch=other)]
    last = h.make_tensor("last", T.INT64, [1], [1])
    inputs = [f32("x", ["n", "k"]), h.make_tensor_value_info("choose", T.BOOL, [])]
    made = irc.compile(model(nodes, inputs, ["y"], [weight, last]), backend=backend, shapes={"x": (4, 5)})
    x = np.ones((4, 5), np.float32)
    np.testing.assert_array_equal(made(x, np.array(False))[0], np.full((4, 1), 5))
    with pytest.raises(irc.RunError, match="IRC3"):
        made(x, np.array(True))


@pytest.mark.parametrize("backend", BACKENDS)
def test_sequences_of_unknown_rank(backend: str) -> None:
    kind = h.make_sequence_type_proto(h.make_tensor_type_proto(T.FLOAT, None))
    nodes = [h.make_node("SequenceInsert", ["s", "x"], ["y"])]
    made = irc.compile(model(nodes, [h.make_value_info("s", kind), f32("x", None)], ["y"]), backend=backend)
    for given in ([], [np.ones((2, 3), np.float32)], [np.ones((1, 2), np.float32), np.zeros((5, 1), np.float32)]):
        x = np.full((4, 2), 7, np.float32)
        (found,) = made(given, x)
        assert len(found) == len(given) + 1
        for a, b in zip(found, [*given, x], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("backend", BACKENDS)
def test_ranks_that_values_decide(backend: str) -> None:
    nodes = [h.make_node("Expand", ["x", "shape"], ["e"]), h.make_node("Squeeze", ["e"], ["s"])]
    nodes += [h.make_node("Softmax", ["s"], ["y"], axis=-1)]
    inputs = [f32("x", [1, 3]), h.make_tensor_value_info("shape", T.INT64, [3])]
    made = irc.compile(model(nodes, inputs, ["y"]), backend=backend)
    x = np.arange(3, dtype=np.float32)[None]
    for shape in ((1, 1, 3), (2, 1, 3), (2, 4, 3)):
        (y,) = made(x, np.array(shape))
        e = np.exp(np.broadcast_to(x, shape).squeeze())
        np.testing.assert_allclose(y, e / e.sum(axis=-1, keepdims=True), rtol=1e-6)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_a_model_that_nothing_helps_is_refused_at_the_call() -> None:
    """The rank depends on what the model computes."""
    nodes = [h.make_node("NonZero", ["x"], ["z"]), h.make_node("Squeeze", ["z"], ["s"])]
    nodes += [h.make_node("Cast", ["s"], ["f"], to=T.FLOAT), h.make_node("Softmax", ["f"], ["y"], axis=-1)]
    made = irc.compile(model(nodes, [f32("x", ["n"])], ["y"]), backend="c")
    with pytest.raises(irc.CompileError, match="IRC5010"):
        made(np.ones(3, np.float32))
