"""Search for keys: what LabelEncoder, CategoryMapper and OneHotEncoder are compiled to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irc.expr import Const, Expr, Tensor, select
from irc.ir.graph import Value
from irc.ir.types import ANY, DType, TensorType, i64, string
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.forms import Declined, write_only
from irc.opdef.signature import Sig


def position_of(b: Builder, x: Value, keys: Sequence[float | int | str], dtype: DType) -> Value:
    """Add the search for elements of x among keys.  Returns their positions, the number of keys where there is none.

    Of equal keys the last counts.
    """
    if not keys:
        return b.Expand(b.const(0), b.Shape(x))
    last = {(key != key, "" if key != key else key): k for k, key in enumerate(keys)}  # NaN differs from itself
    numbers = [last[key] for key in sorted(last)]
    found = b.FindKeys(b.Cast(x, to=dtype), b.const([keys[k] for k in numbers], dtype))
    return b.Gather(b.const([*numbers, len(keys)]), found, b.const(0))


def write_by_compare(b: Builder, op: FindKeys, x: Value, keys: Value) -> Value:
    """OpenVINO: compare with all keys, of which one at most is equal."""
    if x.dtype == string or keys.array is None:
        raise Declined
    rank, count = len(x.shape), keys.array.size
    wide = b.Unsqueeze(x, [rank])
    same = b.Equal(wide, keys)
    if x.dtype.is_float and np.isnan(keys.array).any():
        same = b.Or(same, b.And(b.IsNaN(wide), b.IsNaN(keys)))
    return b.ReduceMin(b.Where(same, b.const(np.arange(count)), b.const(count)), [rank], keepdims=False)


@op
class FindKeys(Op):
    """What LabelEncoder is compiled to: where elements stand among ascending keys, of which NaN is the last.

    The number of keys for those that are none.
    """

    sig = Sig("x: T, keys: T[1] -> y: i64", T=ANY)

    def infer(self, x: Value, keys: Value) -> TensorType:
        return x.tensor.with_dtype(i64)

    def reference(self, x: Array, keys: Array) -> Array:
        if x.dtype == object:
            places = {key: k for k, key in enumerate(keys)}
            return np.array([places.get(v, len(keys)) for v in x.ravel()], np.int64).reshape(x.shape)
        place = np.minimum(np.searchsorted(keys, x), len(keys) - 1)
        found = keys[place]
        return np.where((found == x) | ((found != found) & (x != x)), place, len(keys)).astype(np.int64)

    def loops(self, b: LoopBuilder, x: Tensor, keys: Tensor, y: Tensor) -> None:
        """Count the keys below each element, in steps of descending powers of two."""
        n = int(keys.shape[0])
        with b.nest(x.shape, "parallel") as i:
            wanted = b.let(x[i], "wanted")
            below = b.var(Const(0, i64), "below")
            for step in (1 << k for k in reversed(range(n.bit_length()))):
                inside = (below + step).le(n)
                key = keys[(below + step - 1).min(n - 1)]
                b.assign(below, select(inside.logical_and(key.lt(wanted)), below + step, below))
            last = Const(n - 1, i64)
            key = b.let(keys[below.min(last)], "key")
            found = below.lt(n).logical_and(key.eq(wanted))
            b.store(y, i, select(found, below, self._otherwise(wanted, keys, n)))

    def _otherwise(self, wanted: Expr, keys: Tensor, n: int) -> Expr:
        """The last key for NaN where it is NaN, else the number of keys."""
        if not wanted.dtype.is_float:
            return Const(n, i64)
        last = keys[n - 1]
        return select(wanted.ne(wanted).logical_and(last.ne(last)), Const(n - 1, i64), Const(n, i64))

    openvino = (write_only(write_by_compare),)
