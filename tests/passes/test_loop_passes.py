"""What Loops carry without change, and products of an input's steps: held against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import irc
from irc.ir.graph import Graph, Node
from irc.ir.verify import problems
from irc.ops.control import Loop
from irc.passes import fold, invariant_states, products_before_loops, simplify


def recurrent(steps: str, place: str, x: str = "x", carried: str = "w") -> str:
    """A Loop over steps of a sequence that carries its weights, as TensorFlow writes it."""
    return f"""g (float[5, 2, 3] x, float[3, 4] w, int64 k) => (float[2, 4] y, float[t, 2, 4] s) {{
        yes = Constant <value = bool {{1}}> ()
        zero = Constant <value = float[2, 4] {{0, 0, 0, 0, 0, 0, 0, 0}}> ()
        u = Constant <value = float[3, 4] {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}> ()
        one = Constant <value = int64 {{1}}> ()
        table = Constant <value = float[5, 2, 3] {{{", ".join(map(str, range(30)))}}}> ()
        begin = Constant <value = int64 {{0}}> ()
        y, at, last, unused, s = Loop (k, yes, zero, begin, {carried}, zero) <
            body = b (int64 i, bool go, float[2, 4] h, int64 t, float[3, 4] v, float[2, 4] n)
                => (bool go2, float[2, 4] h2, int64 t2, float[3, 4] v2, float[2, 4] n2, float[2, 4] o) {{
            go2 = Identity (go)  v1 = Identity (v)  v2 = Identity (v1)  t2 = Add (t, one)  n2 = Neg (h)
            {place}
            step = Gather <axis = 0> ({x}, p)  m = MatMul ({steps}, v)  a = Add (m, h)  h2 = Tanh (a)  o = Neg (h2) }}>
    }}"""


AT_NUMBER, AT_COUNTER = "p = Identity (i)", "p = Identity (t)"
FROM_THE_END = "four = Constant <value = int64 {4}> ()  p = Sub (four, t)"
ALWAYS_THE_SAME = "p = Sub (i, i)"
# name: (model, carried values that are left, products that are left in the body)
CASES: dict[str, tuple[str, int, int]] = {
    "weights that an input gives": (recurrent("step", AT_NUMBER), 2, 1),
    "weights that are constant": (recurrent("step", AT_NUMBER, carried="u"), 2, 0),
    "steps by a counter": (recurrent("step", AT_COUNTER, carried="u"), 2, 0),
    "steps from the end": (recurrent("step", FROM_THE_END, carried="u"), 2, 0),
    "the same step in each turn": (recurrent("step", ALWAYS_THE_SAME, carried="u"), 2, 1),
    "a table that is constant": (recurrent("step", AT_NUMBER, "table", "u"), 2, 1),
    "an operation between": (recurrent("e", AT_NUMBER, carried="u").replace("m = ", "e = Exp (step) m = "), 2, 1),
}


def settled(path: Path) -> Graph:
    graph = irc.load(path).graph
    invariant_states.run(graph)
    for each in graph.nested():
        fold.run(each)
        simplify.run(each)
    products_before_loops.run(graph)
    return graph


def the_loop(graph: Graph) -> tuple[Node, Loop]:
    (node,) = [n for n in graph.nodes if isinstance(n.op, Loop)]
    assert isinstance(node.op, Loop)
    return node, node.op


@pytest.mark.parametrize("name", CASES)
def test_what_a_loop_carries_and_multiplies(name: str, tmp_path: Path) -> None:
    text, carried, left = CASES[name]
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}'), path)
    graph = settled(path)
    node, loop = the_loop(graph)
    assert loop.carried == carried and len(node.outputs) == carried + 1
    assert [n.op.name for n in loop.body.nodes].count("MatMul") == left
    assert [n.op.name for n in graph.nodes].count("MatMul") == 1 - left
    assert not problems(graph)
    rng = np.random.default_rng(1)
    session = onnxruntime.InferenceSession(path)
    compiled = [irc.compile(path), irc.compile(path, backend="numpy")]
    for turns in (0, 1, 5):
        feeds: dict[str, Any] = {
            "x": rng.standard_normal((5, 2, 3), np.float32) / 8,
            "w": rng.standard_normal((3, 4), np.float32),
            "k": np.array(turns),
        }
        wanted = session.run(None, feeds)
        for run in compiled:
            for result, array in zip(run(feeds), wanted, strict=True):
                np.testing.assert_allclose(result, array, rtol=1e-5, atol=1e-6)


def test_a_carried_value_that_is_an_output_keeps_its_name(tmp_path: Path) -> None:
    """What the Loop hands on of an input stands under the name of the Loop's result."""
    path = tmp_path / "m.onnx"
    text = """g (float[2] x, int64 k) => (float[2] y, float[2] same) {
        yes = Constant <value = bool {1}> ()
        y, same = Loop (k, yes, x, x) <body = b (int64 i, bool go, float[2] a, float[2] c)
            => (bool go2, float[2] a2, float[2] c2) { go2 = Identity (go) a2 = Add (a, c) c2 = Identity (c) }>
    }"""
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}'), path)
    for backend in ("c", "numpy"):
        found = irc.compile(path, backend=backend)({"x": np.array([1, 2], np.float32), "k": np.array(3)})
        np.testing.assert_array_equal(found[0], [4, 8])
        np.testing.assert_array_equal(found[1], [1, 2])


def test_a_value_that_nested_loops_carry(tmp_path: Path) -> None:
    """It becomes a constant of both bodies."""
    path = tmp_path / "m.onnx"
    text = """g (float[2] x, int64 k) => (float[2] y) {
        w = Constant <value = float[2] {3, 4}> ()
        y, w1 = Loop (k, , x, w) <body = b (int64 i, bool go, float[2] a, float[2] c)
            => (bool go2, float[2] a2, float[2] c2) { go2 = Identity (go)
                a2, c2 = Loop (k, , a, c) <body = d (int64 j, bool on, float[2] e, float[2] f)
                    => (bool on2, float[2] e2, float[2] f2) { on2 = Identity (on) e2 = Add (e, f) f2 = Identity (f) }>
            }>
    }"""
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}'), path)
    feeds = {"x": np.array([1, 2], np.float32), "k": np.array(2)}
    (wanted,) = onnxruntime.InferenceSession(path).run(None, feeds)
    for backend in ("c", "numpy"):
        np.testing.assert_array_equal(irc.compile(path, backend=backend)(feeds)[0], wanted)
