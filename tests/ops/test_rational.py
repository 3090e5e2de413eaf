"""The activations of networks that are quantized as they run, against ONNX Runtime to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto as T, helper as h, numpy_helper

import irc
from irc.ops.rational import rational_sigmoid, rational_tanh
from irc.toolchain import c_compiler
from tests.support.instruction_sets import largest_weight

ort = pytest.importorskip("onnxruntime")


def has_fma() -> bool:
    """Tell whether ONNX Runtime's kernels, and what is compiled here, are those of a processor with FMA."""
    compiler = c_compiler.find_compiler()
    return compiler is not None and "fma" in c_compiler.resolve_target("native", compiler).features


pytestmark = pytest.mark.skipif(not has_fma(), reason="ONNX Runtime rounds otherwise where there is no FMA")


@pytest.mark.parametrize(("op", "function"), [("Sigmoid", rational_sigmoid), ("Tanh", rational_tanh)])
def test_every_bit(op, function):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal(50000) * 4, np.linspace(-30, 30, 4001)]).astype(np.float32)
    one = h.make_tensor_value_info("x", T.FLOAT, ["n"])
    graph = h.make_graph([h.make_node(op, ["x"], ["y"])], "g", [one], [h.make_tensor_value_info("y", T.FLOAT, ["n"])])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
    (wanted,) = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(function(x), wanted)


@pytest.mark.parametrize("backend", ["c", "numpy"])
def test_a_quantized_lstm_of_many_steps(backend):
    """An error of one bit in a state would be one of 1/255 of its range soon."""
    rng = np.random.default_rng(1)
    size, hidden, steps, most = 24, 40, 50, largest_weight()
    weights = {
        "w": rng.integers(-most, most + 1, (2, size, 4 * hidden)).astype(np.int8),
        "r": rng.integers(-most, most + 1, (2, hidden, 4 * hidden)).astype(np.int8),
        "b": rng.standard_normal((2, 8 * hidden)).astype(np.float32),
        "ws": np.array([0.01, 0.012], np.float32),
        "wz": np.zeros(2, np.int8),
        "rs": np.array([0.009, 0.011], np.float32),
        "rz": np.zeros(2, np.int8),
    }
    names = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    node = h.make_node(
        "DynamicQuantizeLSTM", names, ["y"], domain="com.microsoft", hidden_size=hidden, direction="bidirectional"
    )
    x = rng.standard_normal((steps, 3, size)).astype(np.float32)
    inputs = [h.make_tensor_value_info("x", T.FLOAT, x.shape)]
    outputs = [h.make_tensor_value_info("y", T.FLOAT, [steps, 2, 3, hidden])]
    initial = [numpy_helper.from_array(v, n) for n, v in weights.items()]
    opsets = [h.make_opsetid("", 17), h.make_opsetid("com.microsoft", 1)]
    model = h.make_model(h.make_graph([node], "g", inputs, outputs, initial), opset_imports=opsets, ir_version=9)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # several divide the batch, and quantize the states of each part for itself
    (wanted,) = ort.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    np.testing.assert_array_equal(irc.compile(model, backend=backend)(x)[0], wanted)
