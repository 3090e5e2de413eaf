"""Scattering with a reduction for ONNX versions that only replace: every update is compared with every place."""

from __future__ import annotations

import numpy as np

from irc.arrays import NumpyType
from irc.ir.dim import product
from irc.ir.graph import Value
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_i64
from irc.opdef.forms import Declined
from irc.ops.layout import constant_int, normal_axis

REDUCED = {"add": "ReduceSum", "mul": "ReduceProd", "min": "ReduceMin", "max": "ReduceMax"}
JOINED = {"add": "Add", "mul": "Mul", "min": "Min", "max": "Max"}


def neutral(reduction: str, kind: NumpyType) -> float:
    """The value that a reduction starts from, where the data's own does not count."""
    if reduction in ("add", "sub", "mean"):
        return kind.type(0)
    if reduction == "mul":
        return kind.type(1)
    if kind.kind in "iu":
        return np.iinfo(kind).max if reduction == "min" else np.iinfo(kind).min
    return kind.type(np.inf if reduction == "min" else -np.inf)


def write_slices(b: Builder, op: Op, data: Value, indices: Value, updates: Value) -> Value:
    """`write` of ScatterND with a reduction."""
    reduction = _reduction(op)
    depth = int(indices.shape[-1])
    sizes = b.Shape(data)
    places = as_i64(b, indices)
    place = b.const([0])
    for k in range(depth):
        size = b.Slice(sizes, [k], [k + 1], [0])
        own = b.Reshape(b.Slice(places, [k], [k + 1], [-1]), [-1])
        place = b.Add(b.Mul(place, size), _from_the_start(b, own, size))
    rows, inner = (b.dims([product(d)]) for d in (data.shape[:depth], data.shape[depth:]))
    flat = [b.Reshape(v, b.Concat(n, inner, axis=0)) for v, n in ((data, rows), (updates, b.const([-1])))]
    return b.Reshape(_joined(b, reduction, flat[0], place, flat[1], rows), sizes)


def write_elements_by_matrix(b: Builder, op: Op, data: Value, indices: Value, updates: Value, axis: Value) -> Value:
    """`write` of ScatterElements with a reduction."""
    reduction, rank = _reduction(op), len(data.shape)
    if not op.attributes()["use_init"]:
        raise Declined
    at = normal_axis(op.name, constant_int(op.name, "axis", axis), rank)
    sizes, count = b.Shape(data), b.Shape(indices)
    place = b.const(np.zeros((1,) * rank, np.int64))
    for k in range(rank):
        size = b.Slice(sizes, [k], [k + 1], [0])
        if k == at:
            own = _from_the_start(b, as_i64(b, indices), size)
        else:
            numbers = b.Range(b.const(0), b.Gather(count, b.const(k), b.const(0)), b.const(1))
            own = b.Reshape(numbers, [-1 if j == k else 1 for j in range(rank)])
        place = b.Add(b.Mul(place, size), own)
    flat, new = (b.Reshape(v, [-1, 1]) for v in (data, updates))
    rows = b.dims([data.tensor.elements()])
    return b.Reshape(_joined(b, reduction, flat, b.Reshape(place, [-1]), new, rows), sizes)


def _reduction(op: Op) -> str:
    reduction = str(op.attributes()["reduction"])
    if reduction not in REDUCED:
        raise Declined
    return reduction


def _from_the_start(b: Builder, indices: Value, size: Value) -> Value:
    return b.Where(b.Less(indices, b.const(0)), b.Add(indices, size), indices)


def _joined(b: Builder, reduction: str, data: Value, place: Value, updates: Value, rows: Value) -> Value:
    """Rows of data (rows, inner) joined with those of updates (count, inner) that have their place."""
    numbers = b.Range(b.const(0), b.Reshape(rows, []), b.const(1))
    hit = b.Equal(b.Unsqueeze(numbers, [1]), b.Unsqueeze(place, [0]))
    nothing = b.const(neutral(reduction, data.dtype.numpy), data.dtype)
    terms = b.Where(b.Unsqueeze(hit, [2]), b.Unsqueeze(updates, [0]), nothing)
    total = b.operation(REDUCED[reduction])(terms, [1], keepdims=False)
    return b.operation(JOINED[reduction])(data, total)
