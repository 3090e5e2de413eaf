"""Random numbers: known streams, the same in both backends, and the distributions they have."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as opset

import irc
from irc.ir.graph import Graph, Model, Value
from irc.ir.types import TensorType, boolean, f32, f64, i64
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.ops.dropout import Dropout
from irc.ops.random import Bernoulli, Multinomial, RandomNormal, RandomUniform
from irc.ops.random_words import MersenneWords, PhiloxWords, seeded_state, sequence_state

BACKENDS = ["c", "numpy"]
COUNT = 40_000
CLASSES = np.log([0.1, 0.2, 0.7])


def compiled(build: Callable[[Builder], list[Value]], backend: str) -> Any:
    """A model without inputs."""
    graph = Graph("random")
    graph.outputs = build(Builder(graph, "random"))
    return irc.compile(Model(graph, "onnx", 10, {"": 22}), backend=backend)


def drawn(op: Op, *operands: Any, backend: str = "c") -> Any:
    """What an operation of constant operands makes."""
    (found,) = compiled(lambda b: [b.add(op, *operands)], backend)([])
    return found


@pytest.mark.parametrize(
    ("key", "stream", "block", "answer"),
    [(0, 0, 0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]), (0xDEADBEEF12345678, 0x0123456789ABCDEF, 5, None)],
)
def test_philox(key: int, stream: int, block: int, answer: list[int] | None) -> None:
    """The answer that the authors' library checks itself against, and the paper's rounds in Python's integers."""
    counter, keys = [block % 2**32, block >> 32, stream % 2**32, stream >> 32], [key % 2**32, key >> 32]
    for _ in range(10):
        p, q = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = [(q >> 32) ^ counter[1] ^ keys[0], q % 2**32, (p >> 32) ^ counter[3] ^ keys[1], p % 2**32]
        keys = [(keys[0] + 0x9E3779B9) % 2**32, (keys[1] + 0xBB67AE85) % 2**32]
    assert answer is None or counter == answer
    assert PhiloxWords(key, stream).reference(np.array([4 * block + 4]))[-4:].tolist() == counter


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("count", [0, 1, 4, 1001])
@pytest.mark.parametrize("op", [PhiloxWords(2**63 + 12345, 2**40 + 7), PhiloxWords(0)], ids=str)
def test_words_are_those_of_the_reference(op: Op, count: int, backend: str) -> None:
    np.testing.assert_array_equal(drawn(op, [count], backend=backend), op.reference(np.array([count])))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("count", [0, 1, 4, 1001])
@pytest.mark.parametrize("seed", [0, 5])
def test_words_of_the_mersenne_twister_are_those_of_numpy(seed: int, count: int, backend: str) -> None:
    words = drawn(MersenneWords(), [count], seeded_state(seed), backend=backend)
    np.testing.assert_array_equal(words, np.random.RandomState(seed).randint(0, 2**32, count, np.uint32))


@pytest.mark.parametrize(
    ("seeds", "first"),
    [
        ((11, 5), [2451637736, 3390891522, 167335933, 1930216498]),
        ((1, 2, 3), [1710881851, 703781052, 629188492, 3870567717]),
    ],
)
def test_a_sequence_of_seeds_gives_the_words_of_the_standard_library(seeds: tuple[int, ...], first: list[int]) -> None:
    """libstdc++'s `std::mt19937` of a `std::seed_seq` printed the words."""
    assert drawn(MersenneWords(), [4], sequence_state(seeds)).tolist() == first


# ------------------------------------------------------------------------------ seeds
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_seed_gives_the_same_numbers(backend: str) -> None:
    model = compiled(lambda b: [b.RandomNormal([100], seed=7), b.RandomNormal([100], seed=8)], backend)
    first, again = model([]), model([])
    np.testing.assert_array_equal(first[0], again[0])
    assert not np.array_equal(first[0], first[1])


def test_without_a_seed_every_run_and_every_node_has_numbers_of_its_own() -> None:
    """They are the same in both backends."""
    models = [compiled(lambda b: [b.RandomUniform([9]), b.RandomUniform([9])], backend) for backend in BACKENDS]
    runs = [np.concatenate([np.concatenate(model([])) for _ in range(3)]) for model in models]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert len(set(runs[0].tolist())) == len(runs[0])


def test_dropout_without_a_seed() -> None:
    x = np.ones(COUNT, np.float32)
    graph = Graph("dropout")
    b = Builder(graph, "dropout")
    value = graph.add_input("x", TensorType.of(f32, [COUNT]))
    graph.outputs = list(b.add_all(Dropout(), value, b.const(0.2, f32), b.const(True, boolean)))
    model = irc.compile(Model(graph, "onnx", 10, {"": 22}), backend="c")
    (y, mask), (_, other) = model([x]), model([x])
    np.testing.assert_allclose(y, mask / 0.8, rtol=1e-6)
    assert abs(mask.mean() - 0.8) < 4 * math.sqrt(0.16 / COUNT)
    assert not np.array_equal(mask, other)


# ------------------------------------------------------------------------------ distributions
def kolmogorov(sample: Any, cdf: Callable[[Any], Any]) -> float:
    """The largest difference to a distribution function, times √n: beyond 1.95 once in a thousand times."""
    x = np.sort(np.asarray(sample, np.float64).reshape(-1))
    steps = np.arange(len(x) + 1) / len(x)
    return float(max(np.max(steps[1:] - cdf(x)), np.max(cdf(x) - steps[:-1])) * math.sqrt(len(x)))


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_uniform_numbers(seed: int, dtype: Any) -> None:
    y = drawn(RandomUniform(seed, low=-1, high=3, dtype=dtype), [COUNT])
    assert y.min() >= -1 and y.max() < 3
    assert kolmogorov(y, lambda x: (x + 1) / 4) < 1.95
    assert abs(np.corrcoef(y[:-1], y[1:])[0, 1]) < 4 / math.sqrt(COUNT)


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_normal_numbers(seed: int, dtype: Any) -> None:
    y = drawn(RandomNormal(seed, mean=2, scale=0.5, dtype=dtype), [COUNT])
    erf = np.vectorize(math.erf)
    assert kolmogorov(y, lambda x: (1 + erf((x - 2) / 0.5 / math.sqrt(2))) / 2) < 1.95
    assert abs(np.corrcoef(y[:-1], y[1:])[0, 1]) < 4 / math.sqrt(COUNT)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_numbers_of_two_values(p: float) -> None:
    y = drawn(Bernoulli(3), np.full(COUNT, p, np.float32))
    assert set(y.tolist()) <= {0.0, 1.0}
    assert abs(y.mean() - p) <= 4 * math.sqrt(p * (1 - p) / COUNT)


def test_classes() -> None:
    y = drawn(Multinomial(3), np.array([CLASSES]), COUNT)
    shares = np.bincount(y.reshape(-1), minlength=3) / COUNT
    np.testing.assert_allclose(shares, [0.1, 0.2, 0.7], atol=4 * math.sqrt(0.25 / COUNT))


def test_classes_without_replacement() -> None:
    """A pair (i, j) has the probability p(i) · p(j) / (1 - p(i))."""
    y = drawn(Multinomial(3, with_replacement=False), np.tile(CLASSES, (COUNT, 1)), 2)
    p = np.exp(CLASSES)
    for i in range(3):
        for j in range(3):
            share = np.mean((y[:, 0] == i) & (y[:, 1] == j))
            assert abs(share - (p[i] * p[j] / (1 - p[i]) if i != j else 0)) <= 4 * math.sqrt(0.25 / COUNT)


@pytest.mark.parametrize("backend", BACKENDS)
def test_negative_numbers_of_samples_are_refused(backend: str) -> None:
    graph = Graph("samples")
    b, count = Builder(graph, "samples"), graph.add_input("count", TensorType.of(i64, [1]))
    graph.outputs = [b.Multinomial(b.const([CLASSES], f32), count, seed=1)]
    model = irc.compile(Model(graph, "onnx", 10, {"": 22}), backend=backend)
    assert model([np.array([2])])[0].shape == (1, 2)
    with pytest.raises(irc.RunError):
        model([np.array([-1])])


# ------------------------------------------------------------------------------ OpenVINO
@pytest.mark.parametrize("alignment", ["TENSORFLOW", "PYTORCH"])
@pytest.mark.parametrize("kind", ["f32", "i32", "i64"])
@pytest.mark.parametrize("seeds", [(150, 10), (80, 0), (0, 7), (2**33 + 1, 2**34 + 5)])
def test_openvino_draws_the_same(seeds: tuple[int, int], kind: str, alignment: str, tmp_path: Path) -> None:
    low, high = (
        opset.constant(np.array(v, {"f32": np.float32, "i32": np.int32, "i64": np.int64}[kind])) for v in (2, 90)
    )
    node = opset.random_uniform(opset.constant(np.array([3, 5])), low, high, kind, *seeds, alignment)
    model = ov.Model([node], [])
    want = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([])[0]
    ov.save_model(model, tmp_path / "m.xml", compress_to_fp16=False)
    for backend in BACKENDS:
        (got,) = irc.compile(irc.load(tmp_path / "m.xml"), backend=backend, cache=False)([])
        np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=backend)


# ------------------------------------------------------------------------------ regions
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_turn_of_a_loop_has_numbers_of_its_own(backend: str) -> None:
    """So has a branch in it, and every run of the model."""
    from onnx import TensorProto, helper

    def info(name: str, kind: int, *shape: int) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    def body(name: str, inputs: list[Any], outputs: list[Any], *nodes: Any) -> Any:
        return helper.make_graph(nodes, name, inputs, outputs)

    draw = helper.make_node("RandomUniform", [], ["u"], "u", shape=[4])
    branches = [
        body(f"b{k}", [], [info(f"u{k}", 1, 4)], helper.make_node("RandomUniform", [], [f"u{k}"], shape=[4]))
        for k in (0, 1)
    ]
    choose = helper.make_node("If", ["going"], ["v"], "choose", then_branch=branches[0], else_branch=branches[1])
    keep = helper.make_node("Identity", ["going"], ["on"])
    inside = body(
        "body",
        [info("i", TensorProto.INT64), info("going", TensorProto.BOOL)],
        [info("on", TensorProto.BOOL), info("u", 1, 4), info("v", 1, 4)],
        draw,
        choose,
        keep,
    )
    loop = helper.make_node("Loop", ["n", ""], ["us", "vs"], "loop", body=inside)
    outer = body("g", [info("n", TensorProto.INT64)], [info(n, 1, 3, 4) for n in ("us", "vs")], loop)
    model = helper.make_model(outer, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    run = irc.compile(model, backend=backend)
    numbers = np.concatenate([np.concatenate(run([np.array(3)])).reshape(-1) for _ in range(2)])
    assert len(set(numbers.tolist())) == 2 * 2 * 3 * 4
