"""Builds a small transformer encoder with symbolic batch and sequence length, as ONNX and OpenVINO IR.

    python samples/encoder/build.py

Two layers of two heads over 32 channels and a vocabulary of 64 tokens.  The weights are random with a fixed
seed: the sample is about shapes that only a run knows, not about language.  inputs.npz holds three sentences
of seven tokens, with a mask that hides the padding.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).resolve().parent
WIDTH, HEADS, LAYERS, TOKENS, LONGEST = 32, 2, 2, 64, 48
DEPTH = WIDTH // HEADS


class Builder:
    """Collects nodes and weights; every call returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(3)

    def node(self, op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        result = name or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [result], f"{op}_{len(self.nodes)}", **attributes))
        return result

    def weight(self, name: str, value: Any, kind: Any = np.float32) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(value, kind), name))
        return name

    def random(self, name: str, *shape: int) -> str:
        return self.weight(name, self.rng.standard_normal(shape) / np.sqrt(shape[0]))

    def dense(self, x: str, name: str, rows: int, columns: int) -> str:
        product = self.node("MatMul", x, self.random(f"{name}.weight", rows, columns))
        return self.node("Add", product, self.random(f"{name}.bias", columns))

    def norm(self, x: str, name: str) -> str:
        scale = self.weight(f"{name}.scale", 1 + 0.1 * self.rng.standard_normal(WIDTH))
        return self.node("LayerNormalization", x, scale, self.random(f"{name}.bias", WIDTH), axis=-1, epsilon=1e-5)

    def heads(self, x: str, shape: str, transposed: bool = False) -> str:
        """[batch, sequence, width] to [batch, head, sequence, depth] (transposed: the last two swapped)."""
        order = [0, 2, 3, 1] if transposed else [0, 2, 1, 3]
        return self.node("Transpose", self.node("Reshape", x, shape), perm=order)

    def attention(self, x: str, bias: str, name: str) -> str:
        q, k, v = (self.dense(x, f"{name}.{part}", WIDTH, WIDTH) for part in "qkv")
        product = self.node("MatMul", self.heads(q, "split"), self.heads(k, "split", transposed=True))
        scores = self.node("Add", self.node("Mul", product, "scale"), bias)
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), self.heads(v, "split"))
        joined = self.node("Reshape", self.node("Transpose", mixed, perm=[0, 2, 1, 3]), "join")
        return self.dense(joined, f"{name}.out", WIDTH, WIDTH)

    def gelu(self, x: str) -> str:
        """x / 2 · (1 + erf(x / √2)), spelt out as exporters do."""
        e = self.node("Erf", self.node("Div", x, "root2"))
        return self.node("Mul", self.node("Mul", x, self.node("Add", e, "one")), "half")


def build() -> onnx.ModelProto:
    b = Builder()
    for name, value in (("one", 1), ("half", 0.5), ("root2", np.sqrt(2)), ("scale", DEPTH**-0.5), ("low", -1e4)):
        b.weight(name, value)
    b.weight("split", [0, 0, HEADS, DEPTH], np.int64)
    b.weight("join", [0, 0, WIDTH], np.int64)
    b.weight("zero", [0], np.int64)
    b.weight("first", [1], np.int64)
    b.weight("second", [2], np.int64)
    b.weight("head_axes", [1, 2], np.int64)
    length = b.node("Slice", b.node("Shape", "tokens"), "first", "second")
    positions = b.node("Slice", b.random("positions", LONGEST, WIDTH), "zero", length, "zero")
    x = b.node("Add", b.node("Gather", b.random("embedding", TOKENS, WIDTH), "tokens"), positions)
    hidden = b.node("Sub", "one", b.node("Cast", "mask", to=TensorProto.FLOAT))
    bias = b.node("Unsqueeze", b.node("Mul", hidden, "low"), "head_axes")
    for i in range(LAYERS):
        x = b.node("Add", x, b.attention(b.norm(x, f"layer{i}.norm1"), bias, f"layer{i}.attention"))
        wide = b.gelu(b.dense(b.norm(x, f"layer{i}.norm2"), f"layer{i}.up", WIDTH, 2 * WIDTH))
        x = b.node("Add", x, b.dense(wide, f"layer{i}.down", 2 * WIDTH, WIDTH))
    scale = b.weight("final.scale", np.ones(WIDTH))
    b.node("LayerNormalization", x, scale, axis=-1, name="states")
    shape = ["batch", "sequence"]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in ("tokens", "mask")]
    states = helper.make_tensor_value_info("states", TensorProto.FLOAT, [*shape, WIDTH])
    graph = helper.make_graph(b.nodes, "encoder", inputs, [states], b.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> None:
    import irc

    model = build()
    onnx.checker.check_model(model, full_check=True)
    (HERE / "encoder.onnx").write_bytes(model.SerializeToString())
    irc.convert(str(HERE / "encoder.onnx"), str(HERE / "encoder.xml"))
    lengths = np.array([7, 4, 5])
    mask = (np.arange(7) < lengths[:, None]).astype(np.int64)
    tokens = np.random.default_rng(5).integers(1, TOKENS, mask.shape) * mask
    np.savez_compressed(HERE / "inputs.npz", tokens=tokens, mask=mask)


if __name__ == "__main__":
    main()
