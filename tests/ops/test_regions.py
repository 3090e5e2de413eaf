"""If, Loop, Scan and sequences: shapes that change, captures, nesting, early ends; held against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T, helper as h, numpy_helper

import irc

F = np.float32


def arrays(*given: Any) -> list[Any]:
    """Make arrays: floats f32, whole numbers i64."""
    made = [np.asarray(x) for x in given]
    return [a.astype(F) if a.dtype == np.float64 else a for a in made]


CASES: dict[str, tuple[str, list[list[Any]]]] = {
    "branches of other sizes": (
        """g (bool c, float[n] x) => (float[m] y) {
            y = If (c) <then_branch = t () => (float[k] a) { a = Concat <axis = 0> (x, x) },
                        else_branch = e () => (float[l] b) { b = Neg (x) }>
        }""",
        [arrays(True, [1.0, 2.0]), arrays(False, [1.0, 2.0, 3.0])],
    ),
    "only the branch that runs has constraints": (
        """g (bool c, float[n] x) => (float[m] y) {
            s = Constant <value = int64[2] {2, -1}> ()
            f = Constant <value = int64[1] {-1}> ()
            y = If (c) <then_branch = t () => (float[k] a) {
                            r = Reshape (x, s)  q = ReduceSum <keepdims = 0> (r)  o = Reshape (q, f)
                            a = Concat <axis = 0> (o, x) },
                        else_branch = e () => (float[l] b) { b = Neg (x) }>
        }""",
        [arrays(True, [1.0, 2.0]), arrays(False, [1.0, 2.0, 3.0])],
    ),
    "both results of an If are its operands": (
        """g (bool c, float[n] x, float[n] z) => (float[n] y, float[n] w) {
            y, w = If (c) <then_branch = t () => (float[n] a, float[n] b) { a = Identity (x)  b = Identity (z) },
                           else_branch = e () => (float[n] d, float[n] f) { d = Identity (z)  f = Identity (x) }>
        }""",
        [arrays(True, [1.0, 2.0], [3.0, 4.0]), arrays(False, [1.0], [3.0])],
    ),
    "nested branches": (
        """g (bool c, bool d, float[n] x) => (float[m] y) {
            y = If (c) <then_branch = t () => (float[k] a) {
                            a = If (d) <then_branch = t2 () => (float[k2] p) { p = Concat <axis = 0> (x, x, x) },
                                        else_branch = e2 () => (float[l2] q) { q = Exp (x) }> },
                        else_branch = e () => (float[l] b) { b = Neg (x) }>
        }""",
        [arrays(True, True, [1.0, 2.0]), arrays(True, False, [1.0, 2.0]), arrays(False, True, [1.0])],
    ),
    "counted loop": (
        """g (int64 k, float[n] x) => (float[n] y, float[t, n] s) {
            y, s = Loop (k, , x) <body = b (int64 i, bool go, float[n] acc) => (bool go2, float[n] acc2, float[n] o) {
                go2 = Identity (go)  acc2 = Add (acc, x)  o = Mul (acc2, acc2) }>
        }""",
        [arrays(3, [1.0, 2.0]), arrays(0, [1.0, 2.0]), arrays(300, [0.5])],
    ),
    "known number of runs": (
        """g (float[2, 3] x) => (float[2, 3] y, float[4, 2, 3] s) {
            k = Constant <value = int64 {4}> ()
            y, s = Loop (k, , x) <body = b (int64 i, bool go, float[2, 3] acc)
                                       => (bool go2, float[2, 3] acc2, float[2, 3] o) {
                go2 = Identity (go)  f = Cast <to = 1> (i)  acc2 = Add (acc, f)  o = Neg (acc2) }>
        }""",
        [arrays(np.arange(6.0).reshape(2, 3))],
    ),
    "a loop that its condition ends": (
        """g (int64 k, bool c, float x) => (float y, float[t] s) {
            most = Constant <value = float {100.0}> ()
            two = Constant <value = float {2.0}> ()
            y, s = Loop (k, c, x) <body = b (int64 i, bool go, float acc) => (bool go2, float acc2, float o) {
                acc2 = Mul (acc, two)  go2 = Less (acc2, most)  o = Identity (acc) }>
        }""",
        [arrays(50, True, 3.0), arrays(2, True, 3.0), arrays(50, False, 3.0)],
    ),
    "a value that grows": (
        """g (int64 k, float[n] x) => (float[m] y) {
            y = Loop (k, , x) <body = b (int64 i, bool go, float[p] acc) => (bool go2, float[q] acc2) {
                go2 = Identity (go)  acc2 = Concat <axis = 0> (acc, x) }>
        }""",
        [arrays(3, [1.0, 2.0]), arrays(0, [1.0]), arrays(400, [1.0, 2.0, 3.0])],
    ),
    "a matrix that grows along its last axis": (
        """g (int64 k, float[r, n] x) => (float[r, m] y) {
            y = Loop (k, , x) <body = b (int64 i, bool go, float[r, p] acc) => (bool go2, float[r, q] acc2) {
                go2 = Identity (go)  acc2 = Concat <axis = 1> (x, acc) }>
        }""",
        [arrays(3, [[1.0, 2.0], [3.0, 4.0]]), arrays(0, [[1.0], [2.0]])],
    ),
    "values that change places": (
        """g (int64 k, float[n] x, float[n] z) => (float[n] y, float[n] w) {
            y, w = Loop (k, , x, z) <body = b (int64 i, bool go, float[n] p, float[n] q)
                                       => (bool go2, float[n] q2, float[n] p2) {
                go2 = Identity (go)  q2 = Identity (q)  p2 = Identity (p) }>
        }""",
        [arrays(3, [1.0, 2.0], [3.0, 4.0]), arrays(2, [1.0], [3.0])],
    ),
    "a loop in a loop, with captures of both": (
        """g (int64 k, float[n] x) => (float[n] y) {
            y = Loop (k, , x) <body = b (int64 i, bool go, float[n] acc) => (bool go2, float[n] acc2) {
                go2 = Identity (go)
                acc2 = Loop (i, , acc) <body = b2 (int64 j, bool h, float[n] u) => (bool h2, float[n] u2) {
                    h2 = Identity (h)  f = Cast <to = 1> (i)  v = Mul (u, f)  u2 = Add (v, x) }> }>
        }""",
        [arrays(4, [1.0, 2.0]), arrays(1, [1.0, 2.0])],
    ),
    "an If in a Loop": (
        """g (int64 k, float[n] x) => (float[m] y) {
            one = Constant <value = int64 {1}> ()
            two = Constant <value = int64 {2}> ()
            y = Loop (k, , x) <body = b (int64 i, bool go, float[p] acc) => (bool go2, float[q] acc2) {
                go2 = Identity (go)  r = Mod (i, two)  odd = Equal (r, one)
                acc2 = If (odd) <then_branch = t () => (float[k1] a) { a = Concat <axis = 0> (acc, x) },
                                 else_branch = e () => (float[k2] d) { d = Neg (acc) }> }>
        }""",
        [arrays(5, [1.0, 2.0]), arrays(0, [1.0, 2.0])],
    ),
    "rows whose size the run tells": (
        """g (int64 k, float[n] x) => (float[t, m] s) {
            zero = Constant <value = float {0.0}> ()
            f = Constant <value = int64[1] {-1}> ()
            big = Greater (x, zero)
            yes = Constant <value = bool {1}> ()
            s = Loop (k, yes) <body = b (int64 i, bool go) => (bool go2, float[m] o) {
                go2 = Identity (go)  c = Compress <axis = 0> (x, big)  f2 = Cast <to = 1> (i)  o = Add (c, f2) }>
        }""",
        [arrays(3, [1.0, -2.0, 3.0]), arrays(2, [-1.0])],
    ),
    "a scan, forward and back, along other axes": (
        """g (float[n] h, float[n, t] x, float[t, n] z) => (float[n] y, float[n, t] s) {
            y, s = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [1, 0],
                         scan_output_axes = [1], scan_output_directions = [1],
                         body = b (float[n] a, float[n] p, float[n] q) => (float[n] a2, float[n] o) {
                             d = Sub (p, q)  a2 = Add (a, d)  o = Mul (a2, p) }> (h, x, z)
        }""",
        [arrays([0.0, 1.0], [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])],
    ),
}


def model_of(text: str, opset: int = 18) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')


@pytest.mark.parametrize("backend", ["numpy", "c"])
@pytest.mark.parametrize("name", CASES)
def test_regions(name: str, backend: str, tmp_path: Path) -> None:
    text, feeds = CASES[name]
    check(text, feeds, backend, tmp_path)


def check(text: str, feeds: list[list[Any]], backend: str, folder: Path) -> None:
    """Hold a model against ONNX Runtime."""
    path = folder / "model.onnx"
    onnx.save(model_of(text), path)
    model = irc.compile(path, backend=backend, cache=False)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    for feed in feeds:
        wanted: Sequence[Any] = session.run(None, dict(zip(names, feed, strict=True)))
        for got, expected in zip(_run(model, feed), wanted, strict=True):
            if not expected.size:  # ONNX Runtime takes sizes that nothing has told for 0
                assert not got.size
                continue
            assert got.shape == expected.shape
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def _run(model: Any, feed: Sequence[Any]) -> list[Any]:
    found = model(*feed)
    return list(found) if isinstance(found, list | tuple) else [found]


SEQUENCES: dict[str, tuple[str, list[list[Any]]]] = {
    "insert, erase and take": (
        """g (float[2] x, float[2] z, int64 p, int64 q) => (float[n] y, int64 k) {
            s = SequenceConstruct (x, z)
            t = SequenceInsert (s, z, p)
            u = SequenceErase (t, q)
            y = SequenceAt (u, p)
            k = SequenceLength (u)
        }""",
        [arrays([1.0, 2.0], [3.0, 4.0], 0, -1), arrays([1.0, 2.0], [3.0, 4.0], -2, 1)],
    ),
    "elements of other sizes, concatenated": (
        """g (float[n] x, float[m] z) => (float[k] y) {
            s = SequenceConstruct (x, z, x)
            y = ConcatFromSequence <axis = 0> (s)
        }""",
        [arrays([1.0, 2.0], [3.0]), arrays([1.0], [3.0, 4.0, 5.0])],
    ),
    "concatenated along the last axis": (
        """g (float[2, n] x, float[2, m] z) => (float[2, k] y) {
            s = SequenceConstruct (x, z, x)
            y = ConcatFromSequence <axis = -1> (s)
        }""",
        [arrays([[1.0, 2.0], [3.0, 4.0]], [[5.0], [6.0]])],
    ),
    "stacked": (
        """g (float[2, n] x, float[2, n] z) => (float[2, k, n] y) {
            s = SequenceConstruct (x, z, x)
            y = ConcatFromSequence <axis = 1, new_axis = 1> (s)
        }""",
        [arrays([[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]])],
    ),
    "split into parts that the run tells, along the second axis": (
        """g (float[2, n] x, int64[k] l, int64 p) => (float[2, m] y, float[2, n] z) {
            s = SplitToSequence <axis = 1> (x, l)
            y = SequenceAt (s, p)
            z = ConcatFromSequence <axis = 1> (s)
        }""",
        [
            arrays([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [1, 2], 1),
            arrays([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [2, 0, 1], -1),
        ],
    ),
    "split into parts of one size": (
        """g (float[n, 2] x, int64 l, int64 p) => (float[m, 2] y, int64 k) {
            s = SplitToSequence <axis = 0> (x, l)
            y = SequenceAt (s, p)
            k = SequenceLength (s)
        }""",
        [arrays([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], 2, -1), arrays([[1.0, 2.0], [3.0, 4.0]], 5, 0)],
    ),
    "collected in a loop": (
        """g (int64 k, float[n] x) => (float[m] y) {
            e = SequenceEmpty <dtype = 1> ()
            one = Constant <value = int64 {1}> ()
            zero = Constant <value = int64[1] {0}> ()
            s = Loop (k, , e) <body = b (int64 i, bool go, seq(float[p]) t) => (bool go2, seq(float[q]) u) {
                go2 = Identity (go)  f = Cast <to = 1> (i)  v = Add (x, f)
                c = Add (i, one)  d = Unsqueeze (c, zero)  w = Slice (v, zero, d)  u = SequenceInsert (t, w) }>
            y = ConcatFromSequence <axis = 0> (s)
        }""",
        [arrays(3, [1.0, 2.0, 3.0]), arrays(1, [1.0])],
    ),
    "a branch's sequence": (
        """g (bool c, float[2] x) => (float[2] y) {
            zero = Constant <value = int64 {0}> ()
            s = If (c) <then_branch = t () => (seq(float[2]) a) { a = SequenceConstruct (x, x) },
                        else_branch = e () => (seq(float[2]) b) { n = Neg (x)  b = SequenceConstruct (n) }>
            y = SequenceAt (s, zero)
        }""",
        [arrays(True, [1.0, 2.0]), arrays(False, [1.0, 2.0])],
    ),
}


@pytest.mark.parametrize("backend", ["numpy", "c"])
@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences(name: str, backend: str, tmp_path: Path) -> None:
    text, feeds = SEQUENCES[name]
    check(text, feeds, backend, tmp_path)


@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_sequences_and_absent_values_of_a_call(backend: str, tmp_path: Path) -> None:
    """They go in and come out as lists and None."""
    text = """g (seq(float[n]) s, optional(float[2]) o, float[m] x) => (seq(float[k]) t, optional(float[2]) p, bool h) {
        t = SequenceInsert (s, x)  p = Identity (o)  h = OptionalHasElement (o) }"""
    path = tmp_path / "model.onnx"
    onnx.save(model_of(text), path)
    model = irc.compile(path, backend=backend, cache=False)
    x, z = arrays([1.0, 2.0, 3.0], [4.0, 5.0])
    for given, absent in (([x, z], None), ([], z)):
        t, p, h = model(given, absent, x)
        assert [a.tolist() for a in t] == [a.tolist() for a in (*given, x)]
        assert (p is None) == (absent is None) == (not h)
        if absent is not None:
            assert p.tolist() == absent.tolist()
    if backend == "c":
        with pytest.raises(ValueError, match="axes"):
            model([np.zeros((2, 2), F)], None, x)


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("name", [*CASES, *SEQUENCES])
def test_written_at_another_opset(name: str, opset: int, tmp_path: Path) -> None:
    text, feeds = {**CASES, **SEQUENCES}[name]
    source, target = tmp_path / "model.onnx", tmp_path / "written.onnx"
    onnx.save(model_of(text), source)
    irc.convert(source, target, opset=opset)
    written = onnx.load(target)
    assert [o.version for o in written.opset_import if not o.domain] == [opset]
    session = onnxruntime.InferenceSession(str(target), providers=["CPUExecutionProvider"])
    first = onnxruntime.InferenceSession(str(source), providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    for feed in feeds:
        fed = dict(zip(names, feed, strict=True))
        for got, expected in zip(session.run(None, fed), first.run(None, fed), strict=True):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("opset", [None, 13])
def test_a_constant_that_only_a_body_uses_is_written(opset: int | None) -> None:
    result = [h.make_tensor_value_info("o", T.FLOAT, [2, 4])]
    then = h.make_graph([h.make_node("Mul", ["x", "c"], ["o"])], "t", [], result)
    other = h.make_graph([h.make_node("Abs", ["x"], ["o"])], "e", [], result)
    nodes = [
        h.make_node("ReduceMax", ["x"], ["s"], keepdims=0),
        h.make_node("Cast", ["s"], ["w"], to=T.BOOL),
        h.make_node("If", ["w"], ["y"], then_branch=then, else_branch=other),
    ]
    x = h.make_tensor_value_info("x", T.FLOAT, [2, 4])
    y = h.make_tensor_value_info("y", T.FLOAT, None)
    constant = numpy_helper.from_array(np.full(1, 2, np.float32), "c")
    model = h.make_model(
        h.make_graph(nodes, "g", [x], [y], [constant]), opset_imports=[h.make_opsetid("", 17)], ir_version=8
    )
    written = irc.to_onnx(irc.load(model), opset=opset).SerializeToString()
    (found,) = onnxruntime.InferenceSession(written).run(None, {"x": np.ones((2, 4), np.float32)})
    np.testing.assert_array_equal(found, 2)
