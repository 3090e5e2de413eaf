"""Calls with arrays like those of the call before take a short way; it gives what the long way gives."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import irc


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> irc.CompiledModel:
    """Compile c = a - 2 b, of [n, 3] each."""
    two = helper.make_tensor("two", TensorProto.FLOAT, [], [2.0])
    nodes = [helper.make_node("Mul", ["b", "two"], ["t"]), helper.make_node("Sub", ["a", "t"], ["c"])]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 3]) for n in "abc"]
    graph = helper.make_graph(nodes, "short", ports[:2], ports[2:], [two])
    path = tmp_path_factory.mktemp("repeated") / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString())
    return irc.compile(path)


def arrays(n: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw the inputs."""
    random = np.random.default_rng(seed)
    return random.random((n, 3), np.float32), random.random((n, 3), np.float32)


def warm(model: irc.CompiledModel, n: int = 4) -> None:
    """Make the next call with n rows one like the call before."""
    model(*arrays(n))
    assert model._repeated is not None and model._repeated.run(arrays(n)) is not None


@pytest.mark.parametrize("how", ["positional", "list", "tuple", "dict", "other order"])
def test_ways_of_giving_arguments(model, how):
    warm(model)
    a, b = arrays(seed=1)
    given = {
        "positional": (a, b),
        "list": ([a, b],),
        "tuple": ((a, b),),
        "dict": ({"a": a, "b": b},),
        "other order": ({"b": b, "a": a},),
    }
    assert model._repeated.run(given[how]) is not None
    assert np.array_equal(model(*given[how])[0], a - 2 * b)


def test_results_are_the_callers(model):
    warm(model)
    a, b = arrays()
    first = model(a, b)[0]
    kept = first.copy()
    second = model(b, a)[0]
    assert not np.shares_memory(first, second) and np.array_equal(first, kept)


def test_other_arrays_take_the_long_way(model):
    a, b = arrays()
    unaligned = np.frombuffer(bytearray(1 + b.nbytes), np.uint8, b.nbytes, 1).view(np.float32).reshape(b.shape)
    unaligned[...] = b
    read_only = b.copy()
    read_only.flags.writeable = False
    for other in (np.asfortranarray(b), np.repeat(b, 2, 0)[::2], unaligned, read_only, b.tolist()):
        warm(model)
        if isinstance(other, list):
            with pytest.raises(TypeError):  # of f64
                model(a, other)
        else:
            assert model._repeated.run((a, other)) is None
            assert np.array_equal(model(a, other)[0], a - 2 * b)


@pytest.mark.parametrize("n", [1, 5, 0])
def test_another_size(model, n):
    warm(model)
    a, b = arrays(n)
    assert np.array_equal(model(a, b)[0], a - 2 * b)
    assert np.array_equal(model(a, b)[0], a - 2 * b)


def test_what_is_wrong_is_still_reported(model):
    a, b = arrays()
    for given, error in [
        ((a, b.astype(np.float64)), TypeError),
        ((a, b[:, :2].copy()), ValueError),
        ((a, b[:2].copy()), ValueError),
        ((a,), ValueError),
        (({"a": a},), ValueError),
        (({"a": a, "x": b},), ValueError),
        ((a, b.astype(">f4")), TypeError),
    ]:
        warm(model)
        with pytest.raises(error):
            model(*given)


def test_a_bound_call_of_another_size_between(model):
    warm(model)
    a, b = arrays(9)
    bound = model.bind([a, b])
    assert np.array_equal(bound()[0], a - 2 * b)
    c, d = arrays(4, seed=2)
    assert np.array_equal(model(c, d)[0], c - 2 * d)
    assert np.array_equal(bound()[0], a - 2 * b)
