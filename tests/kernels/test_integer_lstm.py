"""LSTMs of bytes: the kernel, its interpreted call and ONNX Runtime, to the last bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

import irc
from irc.ir.dim import Dim
from irc.ir.types import f32
from irc.kernels.core.isa import AVX2, AVX512
from irc.kernels.core.registry import select
from irc.kernels.integer.lstm import QuantizedLstmProblem
from irc.ops.recurrent_quantized import QuantizedLSTMSteps
from irc.toolchain.c_compiler import find_compiler
from irc.toolchain.processor import cpu_features
from tests.support.instruction_sets import largest_weight

STEPS, BATCH, SIZE, HIDDEN = 6, 5, 7, 19
Arrays = dict[str, np.ndarray[Any, Any]]


def layer(direction: str, lengths: Sequence[int] | None) -> tuple[onnx.ModelProto, Arrays]:
    """Write a DynamicQuantizeLSTM with initial states, and its operands."""
    helper, random = onnx.helper, np.random.default_rng(2)
    d = 2 if direction == "bidirectional" else 1
    most = largest_weight()
    weights = {
        n: random.integers(-most, most + 1, (d, k, 4 * HIDDEN)).astype(np.int8) for n, k in (("w", SIZE), ("r", HIDDEN))
    }
    constants: Arrays = {
        **weights,
        "b": random.uniform(-1, 1, (d, 8 * HIDDEN)).astype(np.float32),
        **{n: random.uniform(0.002, 0.01, d).astype(np.float32) for n in ("ws", "rs")},
        **{n: np.zeros(d, np.int8) for n in ("wz", "rz")},
    }
    given: Arrays = {
        "x": random.standard_normal((STEPS, BATCH, SIZE)).astype(np.float32),
        "h": random.uniform(-1, 1, (d, BATCH, HIDDEN)).astype(np.float32),
        "c": random.uniform(-1, 1, (d, BATCH, HIDDEN)).astype(np.float32),
    }
    if lengths is not None:
        given["n"] = np.array(lengths, np.int32)
    operands = ["x", "w", "r", "b", "n" if lengths is not None else "", "h", "c", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        operands,
        ["y", "y_h", "y_c"],
        domain="com.microsoft",
        hidden_size=HIDDEN,
        direction=direction,
    )
    kinds = {np.dtype(np.float32): onnx.TensorProto.FLOAT, np.dtype(np.int32): onnx.TensorProto.INT32}
    inputs = [helper.make_tensor_value_info(n, kinds[v.dtype], v.shape) for n, v in given.items()]
    outputs = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in ("y", "y_h", "y_c")]
    tensors = [onnx.numpy_helper.from_array(v, n) for n, v in constants.items()]
    graph = helper.make_graph([node], "layer", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), given


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.skipif(not {"avx2"} <= cpu_features(), reason="needs AVX2")
@pytest.mark.parametrize(
    ("target", "direction", "lengths"), [("native", "bidirectional", None), ("x86-64-v3", "reverse", (6, 3, 5, 1, 2))]
)
def test_results_are_those_of_onnx_runtime(target: str, direction: str, lengths: Sequence[int] | None) -> None:
    ort = pytest.importorskip("onnxruntime")
    model, given = layer(direction, lengths)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # each thread has a range of its own for its part of a batch
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    compiled = irc.compile(model, backend="c", target=target, threads=2)
    for got, wanted in zip(compiled(given), session.run(None, given), strict=True):
        np.testing.assert_allclose(got, wanted, atol=2e-6)


@pytest.mark.parametrize("isa", [replace(AVX512, fours=True), AVX2], ids=str)
@pytest.mark.parametrize("lengths", [None, (6, 3, 5, 0, 2)])
def test_the_interpreted_call_is_the_reference(isa: Any, lengths: Sequence[int] | None) -> None:
    random, counts = np.random.default_rng(4), None if lengths is None else np.array(lengths, np.int32)
    kind = "" if lengths is None else "int32_t"
    problem = QuantizedLstmProblem.contiguous(
        f32, "lstm", "bidirectional", STEPS, BATCH, HIDDEN, True, True, kind, True
    )
    kernel = select(problem, isa)
    assert kernel is not None
    packed = kernel.packed(problem)
    assert packed is not None
    x = random.standard_normal((STEPS, BATCH, 2, 4 * HIDDEN)).astype(np.float32)
    w = random.integers(-128, 128, (2, HIDDEN, 4 * HIDDEN))
    scale, bias = (random.uniform(0.001, 0.01, (2, 4 * HIDDEN)).astype(np.float32) for _ in range(2))
    h, c = (random.uniform(-1, 1, (2, BATCH, HIDDEN)).astype(np.float32) for _ in range(2))
    functions = (("RationalSigmoid", 0.0, 0.0), ("RationalTanh", 0.0, 0.0), ("RationalTanh", 0.0, 0.0))
    op = QuantizedLSTMSteps("bidirectional", (functions, functions))
    zero = np.zeros((2, 4 * HIDDEN), np.int32)
    wanted = op.reference(x, w.astype(np.int8), scale, zero, h, counts, c, None, bias)
    results = [np.empty(v.size, np.float32) for v in wanted]
    reads = [x, packed.pack(w), scale, h, c, *([] if counts is None else [counts]), bias]
    sizes = {name: int(d) for name, d in kernel.arguments_for(problem).items()}
    kernel.compute([v.reshape(-1) for v in reads], results, sizes)
    for got, right in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(got.reshape(right.shape), right)


def test_vectors_are_filled_for_any_number_of_hidden_units() -> None:
    problem = QuantizedLstmProblem.contiguous(f32, "lstm", "forward", 3, Dim.symbol("n"), 5)
    for isa in (AVX512, AVX2):
        kernel = select(problem, isa)
        assert kernel is not None
        packed = kernel.packed(problem)
        assert packed is not None and packed.pack(np.ones((1, 5, 20))).size == packed.elements
