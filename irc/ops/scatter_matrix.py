"""Scattering for ONNX versions that do not, or only replace: every update is compared with every place."""

from __future__ import annotations

import numpy as np

from irc.arrays import NumpyType
from irc.ir.dim import product
from irc.ir.graph import Value
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.opdef.forms import Declined
from irc.ops.flat_places import along, element_places, row_places
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
    """`write` of ScatterND."""
    reduction = _reduction(op)
    depth = int(indices.shape[-1])
    rows, inner = (b.dims([product(d)]) for d in (data.shape[:depth], data.shape[depth:]))
    flat = [b.Reshape(v, b.Concat(n, inner, axis=0)) for v, n in ((data, rows), (updates, b.const([-1])))]
    place = b.Reshape(row_places(b, data, indices), [-1])
    return b.Reshape(_joined(b, reduction, flat[0], place, flat[1], rows), b.Shape(data))


def write_elements_by_matrix(b: Builder, op: Op, data: Value, indices: Value, updates: Value, axis: Value) -> Value:
    """`write` of ScatterElements."""
    reduction = _reduction(op)
    if not op.attributes()["use_init"]:
        raise Declined
    at = normal_axis(op.name, constant_int(op.name, "axis", axis), len(data.shape))
    flat, new = (b.Reshape(v, [-1, 1]) for v in (data, updates))
    place = b.Reshape(element_places(b, data, indices, at), [-1])
    rows = b.dims([data.tensor.elements()])
    return b.Reshape(_joined(b, reduction, flat, place, new, rows), b.Shape(data))


def _reduction(op: Op) -> str:
    reduction = str(op.attributes()["reduction"])
    if reduction not in REDUCED and reduction != "none":
        raise Declined
    return reduction


def _joined(b: Builder, reduction: str, data: Value, place: Value, updates: Value, rows: Value) -> Value:
    """Rows of data (rows, inner) joined with those of updates (count, inner) that have their place."""
    hit = b.Equal(along(b, rows, 0, 2), b.Unsqueeze(place, [0]))
    if reduction == "none":  # the last one stays
        numbers = along(b, b.Shape(place), 1, 2)
        last = b.ReduceMax(b.Where(hit, numbers, b.const(-1)), [1], keepdims=False)
        some = b.Concat(updates, b.Expand(b.like(0, updates), b.dims([1, *updates.shape[1:]])), axis=0)
        nowhere = b.Less(last, b.const(0))
        chosen = b.Gather(some, b.Where(nowhere, b.const(0), last), b.const(0))
        return b.Where(b.Unsqueeze(nowhere, [1]), data, chosen)
    nothing = b.const(neutral(reduction, data.dtype.numpy), data.dtype)
    terms = b.Where(b.Unsqueeze(hit, [2]), b.Unsqueeze(updates, [0]), nothing)
    total = b.operation(REDUCED[reduction])(terms, [1], keepdims=False)
    return b.operation(JOINED[reduction])(data, total)
