"""Random single layers that no kernel computes: elementwise, rows, movements, gathers."""

from __future__ import annotations

import numpy as np
from layers import PLANES, Draft

UNARY = ("Sigmoid", "Tanh", "Exp", "Sqrt", "Abs", "Erf", "Softplus", "Sin", "Relu", "HardSwish", "Mish", "Floor", "Neg")
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow")


def elementwise(d: Draft) -> str:
    depth, shape = d.pick(1, 2, 4, 8), (d.pick(1, 3, 32, 200), d.pick(7, 28, 56, 130), d.pick(5, 7, 56, 224))
    d.text = f"{depth} deep {'x'.join(map(str, shape))}"
    y = d.x(1, *shape)
    for _ in range(depth):
        kind = d.pick(*UNARY, *BINARY)
        if kind in UNARY:
            y = d.node(kind, [d.node("Abs", [y]) if kind == "Sqrt" else y])
            continue
        other = tuple(d.pick(n, n, 1) for n in shape)
        right = d.given((np.abs(d.random.standard_normal((1, *other))) + 0.5).astype(np.float32))
        y = d.node(kind, [d.node("Abs", [y]) if kind == "Pow" else y, right])
    return y


def norm(d: Draft) -> str:
    kind = d.pick(
        "Softmax",
        "LogSoftmax",
        "LayerNormalization",
        "InstanceNormalization",
        "GroupNormalization",
        "rms",
        "l2",
        "Hardmax",
    )
    if kind in ("InstanceNormalization", "GroupNormalization"):
        channels, side = d.pick(16, 64, 320), d.pick(*PLANES[2:12])
        d.text, x = f"{kind} {channels}x{side}x{side}", d.x(1, channels, side, side)
        fields = {"num_groups": d.pick(4, 16)} if kind == "GroupNormalization" else {}
        return d.node(kind, [x, d.small_weight(channels), d.small_weight(channels)], **fields)
    rows, width = d.pick(1, 16, 128, 512), d.pick(20, 64, 100, 384, 768, 1000, 3072)
    d.text, x = f"{kind} {rows}x{width}", d.x(1, rows, width)
    if kind == "LayerNormalization":
        return d.node(kind, [x, d.small_weight(width), d.small_weight(width)], axis=-1)
    if kind == "rms":
        mean = d.node("ReduceMean", [d.node("Mul", [x, x]), d.ints(-1)], keepdims=1)
        return d.node(
            "Mul",
            [
                d.node("Div", [x, d.node("Sqrt", [d.node("Add", [mean, d.constant(np.float32(1e-6))])])]),
                d.small_weight(width),
            ],
        )
    if kind == "l2":
        return d.node("Div", [x, d.node("ReduceL2", [x, d.ints(-1)], keepdims=1)])
    return d.node(kind, [x], axis=d.pick(-1, -1, 1))


def reduction(d: Draft) -> str:
    shape = d.pick((8, 100, 300), (2, 3, 200, 224), (1, 512, 7, 7), (4, 1000), (16, 20, 16, 30))
    kind = d.pick("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL1", "ReduceLogSumExp", "ArgMax", "CumSum", "TopK")
    axis = int(d.random.integers(len(shape)))
    d.text, x = f"{kind} {shape} over {axis}", d.x(*shape)
    if kind == "CumSum":
        return d.node(kind, [x, d.constant(np.int64(axis))])
    if kind == "ArgMax":
        return d.node(kind, [x], axis=axis)
    if kind == "TopK":
        d.node(kind, [x, d.ints(min(5, shape[axis]))], "best", axis=axis)
        d.nodes[-1].output.append("places")
        return "best"
    axes = sorted({axis, int(d.random.integers(len(shape)))})
    d.text = f"{kind} {shape} over {axes}"
    return d.node(kind, [x, d.ints(*axes)], keepdims=d.pick(0, 1))


def movement(d: Draft) -> str:
    kind = d.pick("Transpose", "Concat", "Slice", "Pad", "Tile", "Split", "DepthToSpace", "Expand", "Reverse", "Gather")
    n, side = d.pick(8, 20, 64, 128), d.pick(14, 28, 40, 56)
    d.text, x = f"{kind} {n}x{side}x{side}", d.x(1, n, side, side)
    if kind == "Transpose":
        order = [int(v) for v in d.random.permutation(4)]
        d.text += f" {order}"
        return d.node(kind, [x], perm=order)
    if kind == "Concat":
        axis = d.pick(1, 3)
        d.text += f" axis {axis}"
        return d.node(kind, [x, d.x(1, n, side, side)], axis=axis)
    if kind in ("Slice", "Reverse"):
        starts, ends, axes, steps = {
            "Slice": ((1, 0), (side - 1, side), (2, 3), (1, d.pick(1, 2))),
            "Reverse": ((-1,), (-(1 << 40),), (d.pick(1, 3),), (-1,)),
        }[kind]
        return d.node("Slice", [x, d.ints(*starts), d.ints(*ends), d.ints(*axes), d.ints(*steps)])
    if kind == "Pad":
        mode = d.pick("constant", "edge", "reflect")
        d.text += f" {mode}"
        return d.node(kind, [x, d.ints(0, 0, 1, 2, 0, 0, 1, 3)], mode=mode)
    if kind == "Tile":
        return d.node(kind, [x, d.ints(1, d.pick(1, 2), d.pick(1, 3), d.pick(1, 2))])
    if kind == "Split":
        d.node(kind, [x], "left", axis=d.pick(1, 3), num_outputs=2)
        d.nodes[-1].output.append("right")
        return d.node("Mul", ["left", d.node("Sigmoid", ["right"])])
    if kind == "Expand":
        return d.node("Add", [d.node("Expand", [d.x(1, n, 1, 1), d.ints(1, n, side, side)]), x])
    if kind == "Gather":
        return d.node(kind, [x, d.x(d.pick(5, 50), dtype=np.int64, below=side)], axis=d.pick(2, 3))
    return d.node(kind, [x], blocksize=2, mode=d.pick("DCR", "CRD"))


def sampling(d: Draft) -> str:
    """Interpolation at the points of a grid, or of another size."""
    n, side = d.pick(3, 16, 64), d.pick(14, 28, 40, 64)
    x = d.x(1, n, side, side)
    if d.pick(True, False):
        rows, mode = d.pick(10, 32), d.pick("linear", "linear", "nearest")
        d.text = f"GridSample {n}x{side}x{side} at {rows}x{rows} {mode}"
        grid = d.given(d.random.uniform(-1.1, 1.1, (1, rows, rows, 2)).astype(np.float32))
        return d.node("GridSample", [x, grid], mode=mode, padding_mode=d.pick("zeros", "border"))
    mode, factor = d.pick("linear", "linear", "cubic", "nearest"), d.pick(2.0, 0.5, 1.5)
    d.text = f"Resize {n}x{side}x{side} {mode} {factor}"
    how = "half_pixel" if mode == "cubic" else d.pick("half_pixel", "asymmetric", "align_corners")
    fields = {"mode": mode, "coordinate_transformation_mode": how, "nearest_mode": "floor"}
    return d.node("Resize", [x, "", d.floats(1, 1, factor, factor)], **fields)


def scatter(d: Draft) -> str:
    """Rows that are added, or written, to places of a table."""
    rows, width, count = d.pick(100, 1000), d.pick(1, 16, 100), d.pick(10, 300)
    how = d.pick("add", "add", "none", "max")
    kind = d.pick("ScatterND", "ScatterElements")
    d.text = f"{kind} {how} {count} into {rows}x{width}"
    places = d.random.permutation(rows)[:count] if how == "none" else d.random.integers(0, rows, count)
    table = d.x(rows, width)
    if kind == "ScatterND":
        at = d.given(places.astype(np.int64)[:, None])
        return d.node(kind, [table, at, d.x(len(places), width)], reduction=how)
    at = d.given(np.repeat(places.astype(np.int64)[:, None], width, 1))
    return d.node(kind, [table, at, d.x(len(places), width)], axis=0, reduction=how)


def dynamic_batch(d: Draft) -> str:
    """Layers whose number of rows only the call knows."""
    rows, k, n = d.pick(1, 3, 17, 64), d.pick(32, 100, 768), d.pick(10, 64, 1000)
    kind = d.pick("dense", "softmax", "norm", "conv")
    d.text = f"{kind} of {rows} rows, {k} -> {n}"
    if kind == "conv":
        d.text = f"conv of {rows} images, 16x14x14 -> {n}"
        x = d.x(rows, 16, 14, 14, sizes=("rows", 16, 14, 14))
        return d.activated(d.node("Conv", [x, d.small_weight(n, 16, 3, 3), d.small_weight(n)], pads=[1] * 4))
    x = d.x(rows, k, sizes=("rows", k))
    if kind == "dense":
        return d.activated(d.linear(x, k, n))
    return d.node("Softmax", [x], axis=-1) if kind == "softmax" else d.norm(x, k)


def table(d: Draft) -> str:
    """Rows of an embedding table, looked up or as a product with a one-hot matrix."""
    words, width, count = d.pick(100, 5000), d.pick(16, 300), d.pick(1, 32, 256)
    d.text = f"{count} rows of {words}x{width}"
    weights, at = d.small_weight(words, width), d.x(count, dtype=np.int64, below=words)
    if d.pick(True, True, False) or words > 1000:
        return d.node("Gather", [weights, at], axis=0)
    d.text += " by one-hot"
    return d.node("MatMul", [d.node("OneHot", [at, d.constant(np.int64(words)), d.floats(0, 1)]), weights])
