"""Calls with arrays like those of the call before take a short way; it gives what the long way gives."""

import numpy as np
import onnx
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


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> irc.CompiledModel:
    """Compile a model whose results are as long as the run tells: the elements above 0, and a range below `count`."""
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["above"]),
        helper.make_node("Compress", ["x", "above"], ["chosen"]),
        helper.make_node("Range", ["start", "count", "step"], ["places"]),
        helper.make_node("Neg", ["x"], ["turned"]),
    ]
    floats = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [40]), ("turned", [40]))]
    count = helper.make_tensor_value_info("count", TensorProto.INT64, [])
    results = [
        helper.make_tensor_value_info("chosen", TensorProto.FLOAT, ["k"]),
        floats[1],
        helper.make_tensor_value_info("places", TensorProto.INT64, ["c"]),
    ]
    constants = [
        helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0]),
        helper.make_tensor("start", TensorProto.INT64, [], [0]),
        helper.make_tensor("step", TensorProto.INT64, [], [1]),
    ]
    graph = helper.make_graph(nodes, "chosen", [floats[0], count], results, constants)
    path = tmp_path_factory.mktemp("chosen") / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString())
    return irc.compile(path)


def check_chosen(model: irc.CompiledModel, x: np.ndarray, count: int, short: bool) -> list[np.ndarray]:
    """Compare the results of a call, and of the short way alone where that is to be taken."""
    x, given = np.asarray(x, np.float32), np.array(count)
    found = [model(x, given)]
    if short:
        found.append(model._repeated.run((x, given)))
    for chosen, turned, places in found:
        assert np.array_equal(chosen, x[x > 0]) and np.array_equal(turned, -x)
        assert np.array_equal(places, np.arange(count))
    return found[-1]


def test_sizes_that_the_run_decides(chosen):
    x = np.random.default_rng(0).standard_normal(40)
    check_chosen(chosen, x, 7, short=False)
    kept = check_chosen(chosen, x, 9, short=True)
    check_chosen(chosen, np.full(40, -1.0), 0, short=True)  # nothing
    check_chosen(chosen, np.full(40, 1.0), 256, short=True)  # all there is room for
    assert np.array_equal(kept[2], np.arange(9)) and np.array_equal(kept[0], x.astype(np.float32)[x > 0])


def test_sizes_beyond_what_is_planned_take_the_long_way(chosen):
    x = np.ones(40, np.float32)
    check_chosen(chosen, x, 7, short=True)
    room = chosen._engine._limits[0]
    assert chosen._repeated.run((x, np.array(room + 1))) is None
    check_chosen(chosen, x, 20000, short=True)
    check_chosen(chosen, x, 3, short=True)
    with pytest.raises(irc.IrcError):
        chosen(x, np.array(1 << 40))
    check_chosen(chosen, x, 5, short=True)


RESHAPED = """<ir_version: 8, opset_import: ["" : 18]>
g (float[n] x, int64[2] shape) => (float[k] above, float[r, c] shaped, float[n] turned) {
    places = NonZero (x)  flat = Constant <value_ints = [-1]> ()  list = Reshape (places, flat)
    above = Gather (x, list)  shaped = Reshape (above, shape)  turned = Neg (x)
}"""


def test_results_of_several_sizes_that_the_run_decides():
    """Memory is for as many elements as there can be, along one axis; the run tells two sizes."""
    model = irc.compile(onnx.parser.parse_model(RESHAPED), backend="c")
    x = np.array([0, 1, 2, 3, 0, 4], np.float32)
    for shape in ([2, 2], [2, 2], [4, 1], [1, -1]):
        for above, shaped, turned in (model(x, np.array(shape)), model._repeated.run((x, np.array(shape)))):
            assert np.array_equal(above, x[x > 0]) and np.array_equal(turned, -x)
            assert np.array_equal(shaped, x[x > 0].reshape(shape))
