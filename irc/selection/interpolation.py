"""Selection for interpolations, as Resize has them: sums of what a Gather reads of constant places, by weights.

Along the last axis loops would gather single elements.  Along the one before they read rows; a kernel does both where
one follows the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from irc.fusion.access import ZERO, Access, row_major
from irc.fusion.epilogues import FusedEpilogue
from irc.ir.dim import product
from irc.ir.graph import Node, Value
from irc.ir.types import f32
from irc.kernels.core.registry import select
from irc.kernels.resize.interpolation import InterpolationKernel, table
from irc.kernels.resize.problem import InterpolationProblem, Taps
from irc.ops.arithmetic import Add, Mul
from irc.ops.gather import Gather
from irc.selection.selector import Selection, Selector

FEWEST, MOST = 2, 8
"""Terms of a sum."""
LEAST = 1 << 12
"""Elements of a result for which loops are as fast."""


@dataclass(frozen=True)
class _Sum:
    """The sum of some elements of `x` along `axis`, by weights."""

    x: Value
    axis: int
    taps: Taps


def select_kernel(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for the last Add of a sum along the last axis; None where loops compute it."""
    y = node.outputs[0]
    columns = _sum(selector, y)
    if columns is None or columns.axis != len(y.shape) - 1 or y.dtype != f32 or len(y.shape) < 2:
        return None
    after = selector.only_use(y)
    if after is not None and isinstance(after.op, Add) and _is_part(selector, after.outputs[0], columns):
        return None
    rows = _sum(selector, columns.x)
    if rows is not None and (rows.axis != columns.axis - 1 or not _is_read_by_sum_only(columns)):
        rows = None
    x = rows.x if rows else columns.x
    planes, whole = (v.shape for v in (x, y))
    if not all(d.is_const for d in (*planes[-2:], *whole[-2:])) or not selector.stands(x):
        return None
    ih, iw, oh, ow = (int(d) for d in (*planes[-2:], *whole[-2:]))
    if all(d.is_const for d in whole) and int(product(whole)) < LEAST:
        return None
    terms = columns.taps.count, rows.taps.count if rows else 0
    problem = InterpolationProblem(f32, selector.precision, product(whole[:-2]), (ih, iw), (oh, ow), *terms)
    kernel = select(problem, selector.isa)
    if not isinstance(kernel, InterpolationKernel):
        return None
    tables = kernel.columns_of(columns.taps, iw)
    if tables is None or (rows and rows.taps.places.max() >= ih):  # what a Gather rejects when it is run
        return None
    arrays = [*tables]
    if rows:
        arrays = [rows.taps.places.astype(np.int32), rows.taps.weights.astype(np.float32), *arrays]
    constants = [Access(_constant(selector, a, y.name), ZERO, ()) for a in arrays]
    operands = [Access(x, ZERO, row_major(x.shape)), *constants]
    return Selection.of(kernel, problem, operands, FusedEpilogue.plain(y))


def _constant(selector: Selector, array: np.ndarray, name: str) -> Value:
    """Add a table to the graph, equal ones once."""
    key = (array.tobytes(), array.shape)
    return selector.constant(table(array, str(array.dtype)), lambda: array, key, name)


def _sum(selector: Selector, y: Value) -> _Sum | None:
    """Match a sum of products of a Gather at constant places of one axis and constant weights along it."""
    terms = _terms(selector, y)
    found = [_term(selector, term, y) for term in terms]
    if not FEWEST <= len(found) <= MOST or any(f is None for f in found):
        return None
    parts = [f for f in found if f is not None]
    if any(f.x is not parts[0].x or f.axis != parts[0].axis for f in parts):
        return None
    places, weights = (np.concatenate([getattr(f.taps, n) for f in parts], axis=1) for n in ("places", "weights"))
    return _Sum(parts[0].x, parts[0].axis, Taps(places, weights))


def _terms(selector: Selector, y: Value) -> list[Value]:
    """List what a chain of Adds adds up, in order; nothing else reads the sums between them."""
    node, terms = y.producer, list[Value]()
    while node is not None and isinstance(node.op, Add) and len(terms) < MOST:
        first, last = node.inputs
        assert first is not None and last is not None
        terms.append(last)
        inner = first.producer
        if inner is None or not isinstance(inner.op, Add) or selector.only_use(first) is not node:
            return [first, *reversed(terms)]
        node = inner
    return []


def _term(selector: Selector, value: Value, y: Value) -> _Sum | None:
    """Match a Gather times weights that are the same but along its axis."""
    node = value.producer
    if node is None or not isinstance(node.op, Mul) or selector.only_use(value) is None or value.shape != y.shape:
        return None
    read, by = node.inputs
    gather = None if read is None else read.producer
    if gather is None or not isinstance(gather.op, Gather) or by is None or by.const is None:
        return None
    x, at, axis = gather.inputs
    if x is None or at is None or at.const is None or axis is None or selector.only_use(gather.outputs[0]) is None:
        return None
    (number,) = axis.ints() or (None,)
    if number is None or len(at.const.shape) != 1 or x.tensor.shape is None or gather.op.batch_dims:
        return None
    number %= len(x.shape)
    along = [1] * len(y.shape)
    along[number] = at.const.shape[0]
    weights = by.const.array
    if [1] * (len(along) - weights.ndim) + [*weights.shape] != along:
        return None
    places = at.const.array.astype(np.int64).reshape(-1, 1)
    if not places.size or (places < 0).any():
        return None
    return _Sum(x, number, Taps(places, weights.reshape(-1, 1)))


def _is_part(selector: Selector, y: Value, of: _Sum) -> bool:
    """Tell whether y is a longer sum of the same."""
    whole = _sum(selector, y)
    return whole is not None and whole.x is of.x and whole.axis == of.axis


def _is_read_by_sum_only(found: _Sum) -> bool:
    """Tell whether nothing but the terms of a sum reads its input."""
    return len(found.x.uses) == found.taps.count and all(isinstance(user.op, Gather) for user in found.x.uses)
