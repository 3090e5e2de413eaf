"""Trains a small convolutional network on scikit-learn's handwritten digits, and writes it as ONNX and OpenVINO IR.

    python samples/digits/train.py        needs scikit-learn; about a minute on one core

The network: two 3 × 3 convolutions with ReLU, a 2 × 2 maximum pool, one dense layer.  Everything is plain NumPy
with a fixed seed.  The held-out images and their labels become heldout.npz, which the other samples run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
HERE = Path(__file__).resolve().parent
HELD_OUT, EPOCHS, BATCH, RATE = 360, 30, 32, 2e-3


def data() -> tuple[Array, Array, Array, Array]:
    """Images [n, 1, 8, 8] from 0 to 1 and their labels: for training, and held out."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    labels = digits.target.astype(np.int64)
    order = np.random.default_rng(7).permutation(len(labels))
    train, held = order[HELD_OUT:], order[:HELD_OUT]
    return images[train], labels[train], images[held], labels[held]


def patches(x: Array) -> Array:
    """The 3 × 3 surroundings of every pixel: [n, c, h, w] to [n, h, w, c · 9]."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    n, c, h, w = x.shape
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(n, h, w, c * 9)


def from_patches(g: Array, c: int) -> Array:
    """The gradient of `patches`: what each pixel's nine surroundings sum up to."""
    n, h, w, _ = g.shape
    parts = g.reshape(n, h, w, c, 3, 3).transpose(0, 3, 4, 5, 1, 2)
    total = np.zeros((n, c, h + 2, w + 2), g.dtype)
    for i in range(3):
        for j in range(3):
            total[:, :, i : i + h, j : j + w] += parts[:, :, i, j]
    return total[:, :, 1:-1, 1:-1]


def initial(rng: np.random.Generator) -> dict[str, Array]:
    """Weights in ONNX's layout, scaled for ReLU; biases 0."""

    def normal(*shape: int, fan: int) -> Array:
        return (rng.standard_normal(shape) * np.sqrt(2 / fan)).astype(np.float32)

    return {
        "conv1.weight": normal(8, 1, 3, 3, fan=9),
        "conv1.bias": np.zeros(8, np.float32),
        "conv2.weight": normal(16, 8, 3, 3, fan=72),
        "conv2.bias": np.zeros(16, np.float32),
        "dense.weight": normal(256, 10, fan=256),
        "dense.bias": np.zeros(10, np.float32),
    }


def forward(p: dict[str, Array], x: Array) -> tuple[Array, tuple[Array, ...]]:
    """The scores [n, 10], and what the gradient needs."""
    p1 = patches(x)
    h1 = np.maximum(p1 @ p["conv1.weight"].reshape(8, -1).T + p["conv1.bias"], 0)
    p2 = patches(h1.transpose(0, 3, 1, 2))
    h2 = np.maximum(p2 @ p["conv2.weight"].reshape(16, -1).T + p["conv2.bias"], 0)
    cells = h2.reshape(-1, 4, 2, 4, 2, 16).transpose(0, 5, 1, 3, 2, 4).reshape(-1, 16, 4, 4, 4)
    pooled = cells.max(-1)
    flat = pooled.reshape(len(x), -1)
    return flat @ p["dense.weight"] + p["dense.bias"], (p1, h1, p2, h2, cells, pooled, flat)


def gradient(p: dict[str, Array], kept: tuple[Array, ...], g: Array) -> dict[str, Array]:
    """The gradient of every weight from that of the scores."""
    p1, h1, p2, h2, cells, pooled, flat = kept
    found = {"dense.weight": flat.T @ g, "dense.bias": g.sum(0)}
    largest = cells == pooled[..., None]
    g = (g @ p["dense.weight"].T).reshape(pooled.shape)[..., None] * largest / largest.sum(-1, keepdims=True)
    g = g.reshape(-1, 16, 4, 4, 2, 2).transpose(0, 2, 4, 3, 5, 1).reshape(h2.shape) * (h2 > 0)
    found["conv2.weight"] = (g.reshape(-1, 16).T @ p2.reshape(-1, 72)).reshape(16, 8, 3, 3)
    found["conv2.bias"] = g.sum((0, 1, 2))
    g = from_patches(g @ p["conv2.weight"].reshape(16, -1), 8).transpose(0, 2, 3, 1) * (h1 > 0)
    found["conv1.weight"] = (g.reshape(-1, 8).T @ p1.reshape(-1, 9)).reshape(8, 1, 3, 3)
    found["conv1.bias"] = g.sum((0, 1, 2))
    return found


def train(images: Array, labels: Array) -> dict[str, Array]:
    """Adam on the cross entropy, with a rate that falls to 0."""
    rng = np.random.default_rng(7)
    p = initial(rng)
    mean, square = ({k: np.zeros_like(v) for k, v in p.items()} for _ in range(2))
    steps, step = EPOCHS * (len(images) // BATCH), 0
    for _ in range(EPOCHS):
        order = rng.permutation(len(images))
        for at in range(0, len(images) - BATCH + 1, BATCH):
            x, y = images[order[at : at + BATCH]], labels[order[at : at + BATCH]]
            scores, kept = forward(p, x)
            e = np.exp(scores - scores.max(1, keepdims=True))
            g = (e / e.sum(1, keepdims=True) - np.eye(10)[y]).astype(np.float32) / BATCH
            step += 1
            for name, found in gradient(p, kept, g).items():
                mean[name] = 0.9 * mean[name] + 0.1 * found
                square[name] = 0.999 * square[name] + 0.001 * found**2
                m, s = mean[name] / (1 - 0.9**step), square[name] / (1 - 0.999**step)
                p[name] = (p[name] - RATE * (1 - step / steps) * m / (np.sqrt(s) + 1e-8)).astype(np.float32)
    return p


def as_onnx(p: dict[str, Array]) -> onnx.ModelProto:
    """The network, with a symbolic batch size."""
    nodes = [
        helper.make_node("Conv", ["image", "conv1.weight", "conv1.bias"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "conv2.weight", "conv2.bias"], ["c2"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
        helper.make_node("MaxPool", ["r2"], ["m"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["m"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "dense.weight", "dense.bias"], ["scores"], "dense"),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 10])
    weights = [numpy_helper.from_array(w, name) for name, w in p.items()]
    graph = helper.make_graph(nodes, "digits", [image], [scores], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> None:
    import irc

    images, labels, held, wanted = data()
    p = train(images, labels)
    right = float((forward(p, held)[0].argmax(1) == wanted).mean())
    print(f"{right:.1%} of {len(held)} held-out images recognised")
    assert right >= 0.97, "the training has gone wrong"
    model = as_onnx(p)
    onnx.checker.check_model(model)
    (HERE / "digits.onnx").write_bytes(model.SerializeToString())
    irc.convert(str(HERE / "digits.onnx"), str(HERE / "digits.xml"))
    np.savez_compressed(HERE / "heldout.npz", image=held, label=wanted)


if __name__ == "__main__":
    main()
