# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
"""What NumPy's functions give: the element type and rank of a result from those of the operands.

Element types are asked of NumPy itself, which computes the function on arrays of one element.  What no rule names
gives an unknown result, for which nothing is folded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from irc.backends.numpy.facts import BOOL, FLOAT, INT, OTHER, Array, Fact, Items, Known, Scalar, common, parts, widened

Facts = Sequence[Fact]
Rule = Callable[[Facts, Mapping[str, Fact]], Fact]

_sampled: dict[Any, np.dtype[Any] | None] = {}


def computed(function: Callable[..., Any], operands: Facts) -> Fact:
    """Compute the fact of an elementwise function's result, with NumPy's promotion and broadcasting."""
    known = [widened(f) for f in operands]
    if not any(isinstance(f, Array) for f in known):
        return _number(function, known)
    ranks = [f.rank if isinstance(f, Array) else 0 if isinstance(f, Scalar) else None for f in known]
    rank = None if None in ranks else max(r for r in ranks if r is not None)
    if not all(isinstance(f, Scalar) or (isinstance(f, Array) and f.dtype is not None) for f in known):
        return Array(None, rank)
    at = (function, *known_types(known))
    if at not in _sampled:
        _sampled[at] = _sample(function, known)
    return Array(_sampled[at], rank)


def known_types(facts: Facts) -> list[Any]:
    return [f.dtype if isinstance(f, Array) else f.kind for f in facts if isinstance(f, Array | Scalar)]


def _number(function: Callable[..., Any], known: Facts) -> Fact:
    kinds = [f.kind for f in known if isinstance(f, Scalar)]
    if len(kinds) < len(known) or isinstance(function, np.ufunc):
        return Array(None, 0) if isinstance(function, np.ufunc) and len(kinds) == len(known) else OTHER
    try:
        made = function(*[k(1) for k in kinds])
    except TypeError:
        return OTHER
    return Scalar(type(made)) if type(made) in (int, float, bool) else OTHER


def _sample(function: Callable[..., Any], known: Facts) -> np.dtype[Any] | None:
    ones = [np.ones(1, f.dtype) if isinstance(f, Array) else f.kind(1) for f in known if isinstance(f, Array | Scalar)]
    try:
        with np.errstate(all="ignore"):
            return np.asarray(function(*ones)).dtype
    except (TypeError, ValueError):
        return None


def attribute(x: Array, name: str) -> Fact:
    """Find what is known of an attribute of an array."""
    if name == "dtype" and x.dtype is not None:
        return Known(x.dtype)
    if name == "ndim":
        return INT if x.rank is None else Known(x.rank)
    if name == "itemsize" and x.dtype is not None:
        return Known(x.dtype.itemsize)
    if name == "shape":
        return OTHER if x.rank is None else Items((INT,) * x.rank)
    if name == "T":
        return x
    return INT if name == "size" else OTHER


def item(x: Array, index: Fact, slices: int | None) -> Fact:
    """Find what is known of x[index].

    slices: the axes that the index keeps, where its text shows them and no part of it is an array.
    """
    if slices is not None and x.rank is not None:
        return Array(x.dtype, slices)
    if isinstance(widened(index), Scalar) and x.rank is not None:
        return Array(x.dtype, x.rank - 1)
    if isinstance(index, Array) and index.dtype is not None and index.dtype.kind in "iu":
        return Array(x.dtype, None if x.rank is None or index.rank is None else x.rank - 1 + index.rank)
    return Array(x.dtype)


def _dtype(fact: Fact | None) -> np.dtype[Any] | None:
    try:
        return np.dtype(fact.value) if isinstance(fact, Known) and fact.value is not None else None
    except TypeError:
        return None


def _length(shape: Fact) -> int | None:
    """Find the rank of arrays of this shape."""
    found = parts(shape)
    if found is not None:
        return len(found)
    return 1 if isinstance(widened(shape), Scalar) else None


def _shape_arguments(args: Facts) -> int | None:
    """Find the rank that `reshape(*args)` gives."""
    if len(args) == 1:
        return _length(args[0])
    return len(args) if args and not any(isinstance(a, Items) for a in args) else None


def _same(args: Facts, _: Mapping[str, Fact]) -> Fact:
    return args[0] if args and isinstance(args[0], Array) else OTHER


def _rank_free(args: Facts, _: Mapping[str, Fact]) -> Fact:
    return Array(args[0].dtype) if args and isinstance(args[0], Array) else OTHER


def _flat(args: Facts, _: Mapping[str, Fact]) -> Fact:
    return Array(args[0].dtype, 1) if isinstance(args[0], Array) else OTHER


def _reshaped(args: Facts, _: Mapping[str, Fact]) -> Fact:
    return Array(args[0].dtype, _shape_arguments(args[1:])) if isinstance(args[0], Array) else OTHER


def _broadcast(args: Facts, _: Mapping[str, Fact]) -> Fact:
    return Array(args[0].dtype, _length(args[1])) if isinstance(args[0], Array) and len(args) > 1 else OTHER


def _cast(args: Facts, named: Mapping[str, Fact]) -> Fact:
    wanted = _dtype(args[1] if len(args) > 1 else named.get("dtype"))
    return Array(wanted, args[0].rank) if isinstance(args[0], Array) else OTHER


def _array(args: Facts, named: Mapping[str, Fact]) -> Fact:
    x, given = args[0], args[1] if len(args) > 1 else named.get("dtype")
    wanted = _dtype(given)
    if isinstance(x, Known | Items | Scalar):
        x = _array_of(x)
    rank = x.rank if isinstance(x, Array) else None
    found = x.dtype if isinstance(x, Array) and given is None else None
    return Array(wanted or found, rank)


def _array_of(x: Known | Items | Scalar) -> Fact:
    if isinstance(x, Known) and isinstance(x.value, np.ndarray | np.generic | int | float | tuple | list):
        try:
            made = np.asarray(x.value)
        except (ValueError, OverflowError):
            return OTHER
        return Array(made.dtype, made.ndim)
    if isinstance(x, Scalar):
        return Array(np.asarray(x.kind(1)).dtype, 0)
    found = parts(x)
    if found and all(isinstance(widened(f), Scalar) for f in found):
        return Array(None, 1)
    return OTHER


def _made(position: int, default: type | None) -> Rule:
    """Make the rule of zeros, ones, empty and full: a shape, and the element type at `position` or named."""

    def rule(args: Facts, named: Mapping[str, Fact]) -> Fact:
        given = args[position] if len(args) > position else named.get("dtype")
        wanted = _dtype(given)
        if given is None:
            wanted = None if default is None else np.dtype(default)
        return Array(wanted, _length(args[0]))

    return rule


def _arange(args: Facts, named: Mapping[str, Fact]) -> Fact:
    if "dtype" in named:
        return Array(_dtype(named["dtype"]), 1)
    whole = all(isinstance(f := widened(a), Scalar) and f.kind is int for a in args)
    return Array(np.dtype(np.int64) if whole and len(args) < 4 else None, 1)


def _reduced(function: Callable[..., Any] | None) -> Rule:
    """Make the rule of a reduction over `axis`, the second operand; function None: the result holds indices."""

    def rule(args: Facts, named: Mapping[str, Fact]) -> Fact:
        x, axis = args[0], args[1] if len(args) > 1 else named.get("axis", Known(None))
        if not isinstance(x, Array):
            return OTHER
        types = Array(np.dtype(np.int64)) if function is None else computed(function, [Array(x.dtype, 0)])
        found = types.dtype if isinstance(types, Array) else None
        if "dtype" in named:
            found = _dtype(named["dtype"])
        rank = _reduced_rank(x.rank, axis, named.get("keepdims", Known(False)))
        return OTHER if "out" in named or "initial" in named else Array(found, rank)

    return rule


def _reduced_rank(rank: int | None, axis: Fact, kept: Fact) -> int | None:
    if rank is None or not isinstance(kept, Known):
        return None
    if kept.value:
        return rank
    if isinstance(axis, Known) and axis.value is None:
        return 0
    gone = parts(axis)
    if gone is not None:
        return rank - len(gone)
    return rank - 1 if isinstance(widened(axis), Scalar) else None


def _taken(args: Facts, named: Mapping[str, Fact]) -> Fact:
    x, places = args[0], args[1]
    if not isinstance(x, Array) or (len(args) < 3 and "axis" not in named):
        return OTHER
    if isinstance(widened(places), Scalar):
        count: int | None = 0
    else:
        count = places.rank if isinstance(places, Array) else None
    return Array(x.dtype, None if x.rank is None or count is None else x.rank - 1 + count)


def _joined_arrays(more: int) -> Rule:
    def rule(args: Facts, named: Mapping[str, Fact]) -> Fact:
        found = common(parts(args[0]) or [])
        if not isinstance(found, Array) or "dtype" in named:
            return Array()
        return Array(found.dtype, None if found.rank is None else found.rank + more)

    return rule


def _more(count: int) -> Rule:
    def rule(args: Facts, _: Mapping[str, Fact]) -> Fact:
        x = args[0]
        return Array(x.dtype, None if x.rank is None else x.rank + count) if isinstance(x, Array) else OTHER

    return rule


def _expanded(args: Facts, named: Mapping[str, Fact]) -> Fact:
    axis = args[1] if len(args) > 1 else named.get("axis", OTHER)
    found = parts(axis)
    if found is None and not isinstance(widened(axis), Scalar):
        return _rank_free(args, named)
    return _more(1 if found is None else len(found))(args, named)


def _product(args: Facts, _: Mapping[str, Fact]) -> Fact:
    a, b = args[:2]
    if not (isinstance(a, Array) and isinstance(b, Array)):
        return OTHER
    made = computed(np.multiply, [Array(a.dtype, 0), Array(b.dtype, 0)])
    wide = a.rank is not None and b.rank is not None and min(a.rank, b.rank) >= 2
    return Array(made.dtype if isinstance(made, Array) else None, max(a.rank or 0, b.rank or 0) if wide else None)


def _where(args: Facts, _: Mapping[str, Fact]) -> Fact:
    if len(args) != 3:
        return OTHER
    made = computed(_choose, args[1:])
    rank = computed(_choose, args)
    return Array(made.dtype if isinstance(made, Array) else None, rank.rank if isinstance(rank, Array) else None)


def _choose(*operands: Any) -> Any:
    return np.where(True, *operands[-2:])


def _clipped(args: Facts, named: Mapping[str, Fact]) -> Fact:
    return computed(np.clip, args) if len(args) == 3 and not named else OTHER


def _einsum(args: Facts, _: Mapping[str, Fact]) -> Fact:
    types = {a.dtype if isinstance(a, Array) else None for a in args[1:]}
    return Array(types.pop() if len(types) == 1 else None)


def _windows(args: Facts, named: Mapping[str, Fact]) -> Fact:
    size = _length(args[1])
    return _rank_free(args, named) if size is None else _more(size)(args, named)


_RULES: dict[Any, Rule] = {
    **dict.fromkeys((np.flip, np.sort, np.roll, np.transpose, np.ascontiguousarray, np.moveaxis, np.swapaxes), _same),
    **dict.fromkeys((np.copy, np.pad, np.take_along_axis, np.triu, np.tril), _same),
    **dict.fromkeys((np.squeeze, np.repeat, np.tile, np.diagonal), _rank_free),
    np.reshape: _reshaped,
    np.broadcast_to: _broadcast,
    np.asarray: _array,
    np.array: _array,
    np.zeros: _made(1, float),
    np.ones: _made(1, float),
    np.empty: _made(1, float),
    np.full: _made(2, None),
    np.arange: _arange,
    np.take: _taken,
    np.concatenate: _joined_arrays(0),
    np.stack: _joined_arrays(1),
    np.expand_dims: _expanded,
    np.matmul: _product,
    np.einsum: _einsum,
    np.where: _where,
    np.clip: _clipped,
    np.argsort: lambda args, named: Array(np.dtype(np.int64), args[0].rank) if isinstance(args[0], Array) else OTHER,
    np.argmax: _reduced(None),
    np.argmin: _reduced(None),
    np.lib.stride_tricks.sliding_window_view: _windows,
    **{f: _reduced(f) for f in (np.sum, np.mean, np.max, np.min, np.prod, np.any, np.all, np.var, np.std)},
    len: lambda args, named: INT,
    int: lambda args, named: INT,
    float: lambda args, named: FLOAT,
    bool: lambda args, named: BOOL,
}
_METHODS: dict[str, Rule] = {
    **dict.fromkeys(("transpose", "swapaxes", "copy"), _same),
    **dict.fromkeys(("squeeze", "repeat", "diagonal"), _rank_free),
    **dict.fromkeys(("ravel", "flatten"), _flat),
    "reshape": _reshaped,
    "astype": _cast,
    "take": _taken,
    "clip": _clipped,
    **{name: _reduced(getattr(np, name)) for name in ("sum", "mean", "max", "min", "prod", "any", "all")},
    **dict.fromkeys(("argmax", "argmin"), _reduced(None)),
}


def call(function: Any, args: Facts, named: Mapping[str, Fact]) -> Fact:
    """Find what is known of the result of a call of NumPy's or a built-in function."""
    if isinstance(function, np.ufunc) and function is not np.matmul:
        plain = function.nout == 1 and not named
        return computed(function, args) if plain else OTHER
    if isinstance(function, type) and issubclass(function, np.generic):
        return Array(np.dtype(function), 0) if args and isinstance(widened(args[0]), Scalar) else OTHER
    try:
        rule = _RULES.get(function)
    except TypeError:
        return OTHER
    return rule(args, named) if rule is not None and args else OTHER


def method(x: Array, name: str, args: Facts, named: Mapping[str, Fact]) -> Fact:
    """Find what is known of the result of an array's method."""
    rule = _METHODS.get(name)
    return rule([x, *args], named) if rule is not None else OTHER
