"""If, Loop and TensorIterator of OpenVINO: read and written, held against OpenVINO and ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import openvino as ov
import pytest
from openvino import opset15 as opset

import irc
from tests.ops.test_regions import CASES, SEQUENCES, model_of

F = np.float32


def openvino_of(path: Path) -> Callable[..., list[Any]]:
    """Compile an IR in OpenVINO; what is returned runs it."""
    core = ov.Core()
    options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}
    compiled = core.compile_model(core.read_model(path), "CPU", options)
    request = compiled.create_infer_request()

    def run(*arrays: Any) -> list[Any]:
        for i, array in enumerate(arrays):
            request.set_input_tensor(i, ov.Tensor(array if array.ndim == 0 else np.ascontiguousarray(array)))
        request.infer()
        return [np.array(request.get_output_tensor(i).data) for i in range(len(compiled.outputs))]

    return run


def agree(got: Sequence[Any], want: Sequence[Any]) -> None:
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("name", [*CASES, *SEQUENCES])
def test_onnx_to_openvino_and_back(name: str, tmp_path: Path) -> None:
    text, feeds = {**CASES, **SEQUENCES}[name]
    source, xml, back = tmp_path / "model.onnx", tmp_path / "model.xml", tmp_path / "back.onnx"
    onnx.save(model_of(text), source)
    irc.convert(source, xml)
    irc.convert(xml, back)
    first = onnxruntime.InferenceSession(str(source), providers=["CPUExecutionProvider"])
    last = onnxruntime.InferenceSession(str(back), providers=["CPUExecutionProvider"])
    peer = openvino_of(xml)
    engines = [irc.compile(xml, backend=backend) for backend in ("numpy", "c")]
    for feed in feeds:
        want = first.run(None, dict(zip([i.name for i in first.get_inputs()], feed, strict=True)))
        agree(last.run(None, dict(zip([i.name for i in last.get_inputs()], feed, strict=True))), want)
        if any(0 in w.shape for w in want):  # without a run, OpenVINO leaves stacked results as they were
            continue
        agree(peer(*feed), want)
        for engine in engines:
            agree(engine(*feed), want)


# ------------------------------------------------------------ models that OpenVINO wrote
def iterator(axis: int, start: int, stride: int, size: int, end: int, last: str = "carried") -> ov.Model:
    """A TensorIterator over parts of x, which adds their sums up; its results are the last sum and all of them."""
    shape = [2, 3, 4]
    shape[axis] = 6
    part = list(shape)
    part[axis] = size
    state = list(shape)
    state[axis] = 1
    x, h = opset.parameter(shape, F, "x"), opset.parameter(state, F, "h")
    bx, bh = opset.parameter(part, F), opset.parameter(state, F)
    total = opset.add(opset.reduce_sum(bx, np.array([axis]), keep_dims=True), bh)
    twice = opset.multiply(bx, opset.constant(F(2)))
    results = [opset.result(total), opset.result(twice), opset.result(opset.negative(total))]
    body = ov.Model(results, [bx, bh], "body")
    loop = opset.tensor_iterator()
    loop.set_body(body)
    loop.set_sliced_input(bx, x.output(0), start, stride, size, end, axis)
    loop.set_merged_input(bh, h.output(0), results[0].output(0))
    final = loop.get_iter_value(results[0 if last == "carried" else 2].output(0), -1)
    rows = loop.get_concatenated_slices(results[1].output(0), start, stride, size, end, axis)
    return ov.Model([opset.result(final), opset.result(rows)], [x, h], "iterator")


def counted(dtype: Any, shape: list[int]) -> ov.Model:
    """A Loop that adds the number of the run, of this type, and ends when its sum is beyond ten."""
    x, most = opset.parameter([2], F, "x"), opset.parameter([], np.int32, "most")
    bx, number = opset.parameter([2], F), opset.parameter(shape, dtype)
    total = opset.add(opset.add(bx, opset.convert(number, "f32")), opset.constant(F(1)))
    sum_ = opset.reduce_sum(total, np.array([0]), keep_dims=False)
    results = [opset.result(opset.less(sum_, opset.constant(F(10)))), opset.result(total)]
    body = ov.Model(results, [bx, number], "body")
    loop = opset.loop(most, opset.constant(True))
    loop.set_function(body)
    loop.set_special_body_ports([1, 0])
    loop.set_merged_input(bx, x.output(0), results[1].output(0))
    final = loop.get_iter_value(results[1].output(0), -1)
    return ov.Model([opset.result(final)], [x, most], "counted")


MODELS: dict[str, tuple[Callable[[], ov.Model], list[list[Any]]]] = {}
for axis_, shape_ in ((0, (6, 3, 4)), (1, (2, 6, 4)), (2, (2, 3, 6))):
    state_ = tuple(1 if k == axis_ else n for k, n in enumerate(shape_))
    data = [np.arange(np.prod(shape_), dtype=F).reshape(shape_), np.ones(state_, F)]
    for size_ in (1, 2, 3):
        MODELS[f"axis {axis_} in parts of {size_}"] = lambda a=axis_, s=size_: iterator(a, 0, s, s, -1), [data]
        MODELS[f"axis {axis_} in parts of {size_}, backwards"] = (
            lambda a=axis_, s=size_: iterator(a, -1, -s, s, 0),
            [data],
        )
    MODELS[f"axis {axis_}, a last value that is not carried"] = (
        lambda a=axis_: iterator(a, 0, 1, 1, -1, "last"),
        [data],
    )
for dtype_ in (np.int32, np.int64):
    for rank_ in (0, 1):
        given = [[np.array([0.5, 1], F), np.array(n, np.int32)] for n in (5, 1, 0, -1)]
        MODELS[f"counted in {np.dtype(dtype_)} of rank {rank_}"] = (
            lambda d=dtype_, r=rank_: counted(d, [1] * r),
            given,
        )


@pytest.mark.parametrize("name", MODELS)
def test_openvino_models(name: str, tmp_path: Path) -> None:
    make, feeds = MODELS[name]
    xml, copy, target = tmp_path / "model.xml", tmp_path / "copy.xml", tmp_path / "model.onnx"
    ov.save_model(make(), xml, compress_to_fp16=False)
    irc.convert(xml, target)
    irc.convert(target, copy)
    session = onnxruntime.InferenceSession(str(target), providers=["CPUExecutionProvider"])
    first, last = openvino_of(xml), openvino_of(copy)
    engines = [irc.compile(xml, backend=backend) for backend in ("numpy", "c")]
    for feed in feeds:
        want = first(*feed)
        agree(last(*feed), want)
        agree(session.run(None, dict(zip([i.name for i in session.get_inputs()], feed, strict=True))), want)
        for engine in engines:
            agree(engine(*feed), want)


SCANNED = """
agraph (float[2] start, float[2, 4] x, float[4, 2] y, float[2] w) => (float[2] last, float[4, 2] sums) {
    last, sums = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [1, 0], body = add (
        float[2] before, float[2] a, float[2] b
    ) => (float[2] after, float[2] row) {
        c = Mul(a, w)
        d = Add(c, b)
        after = Add(before, d)
        row = Identity(after)
    }> (start, x, y)
}
"""


def test_a_loop_over_slices_is_written_as_a_scan(tmp_path: Path) -> None:
    source, xml, back = tmp_path / "model.onnx", tmp_path / "model.xml", tmp_path / "back.onnx"
    onnx.save(model_of(SCANNED), source)
    irc.convert(source, xml)
    irc.convert(xml, back)
    turn, node = onnx.load(back).graph.node
    assert (turn.op_type, node.op_type) == ("Transpose", "Scan")
    backwards = next(onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == "scan_input_directions")
    assert dict(zip(node.input[1:], backwards, strict=True)) == {turn.output[0]: 1, "y": 0}
    rng = np.random.default_rng(0)
    feeds = {n: rng.standard_normal(s).astype(F) for n, s in (("start", 2), ("x", (2, 4)), ("y", (4, 2)), ("w", 2))}
    want, got = (
        onnxruntime.InferenceSession(str(p), providers=["CPUExecutionProvider"]).run(None, feeds)
        for p in (source, back)
    )
    agree(got, want)


def test_a_loop_that_counts_stays_a_loop(tmp_path: Path) -> None:
    text = """
    agraph (float[2] start, float[4, 2] x) => (float[2] last) {
        n = Constant <value = int64 {4}> ()
        yes = Constant <value = bool {1}> ()
        last = Loop <body = add (int64 i, bool c, float[2] before) => (bool d, float[2] after) {
            d = Identity(c)
            zero = Constant <value = int64 {0}> ()
            row = Gather(x, i)
            number = Cast <to = 1> (i)
            sum = Add(before, row)
            after = Mul(sum, number)
        }> (n, yes, start)
    }
    """
    source, xml, back = tmp_path / "model.onnx", tmp_path / "model.xml", tmp_path / "back.onnx"
    onnx.save(model_of(text), source)
    irc.convert(source, xml)
    irc.convert(xml, back)
    assert [n.op_type for n in onnx.load(back).graph.node] == ["Loop"]


def test_what_bodies_do_not_use_is_no_operand(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[3] x, float[4] k, float[3] z, bool c, int64 n) => (float[3] y, float[3] w) {
      y = Loop(n, c, x) <body = b (int64 i, bool go, float[3] v) => (bool go2, float[3] u) {
            dead = Neg(k) u = Add(v, z) go2 = Identity(go) }>
      w = If(c) <then_branch = t () => (float[3] p) { dead2 = Neg(k) p = Add(x, z) },
                 else_branch = e () => (float[3] q) { dead3 = Abs(k) q = Sub(x, z) }> }"""
    model, path = irc.load(onnx.parser.parse_model(text)), tmp_path / "m.xml"
    assert all("k" in [v.name for v in node.inputs if v] for node in model.graph.nodes)
    irc.save(model, path)
    x, z = np.arange(3, dtype=F), np.full(3, 10, F)
    got = openvino_of(path)(x, np.ones(4, F), z, np.array(True), np.array(4))
    agree(got, [x + 4 * z, x + z])
