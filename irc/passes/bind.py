"""Fixes symbolic sizes of a graph's inputs (`--shape`) and bounds of data-dependent ones (`--bound`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, SupportsIndex, cast

import numpy as np

from irc.diagnostics import Facts, Sink
from irc.diagnostics.codes import runtime_io as codes
from irc.ir.dim import Dim, DimLike, Symbol
from irc.ir.graph import Constant, Graph, Value
from irc.ir.types import OptionalType, SequenceType, TensorType, Type
from irc.passes import infer, take_branches


def bind_shapes(
    graph: Graph, shapes: Mapping[str, Sequence[int | str | None] | None], bounds: Mapping[str, int], sink: Sink
) -> None:
    """Give the inputs these shapes, and infer every type again.

    An entry of a shape is a number, a name for a symbolic size, or None or -1 for "as it is".  A size that
    the model uses in several places becomes the number everywhere.  The shape of a sequence is that of its elements,
    and None if it has none; of an optional value that of the value, None if it is absent.  What does not fit is a
    finding.
    """
    if not shapes and not bounds:
        return
    known: dict[str, DimLike] = {}
    for name, shape in shapes.items():
        value = next((v for v in graph.inputs if name in (v.name, *v.names, v.extras.get("layer_name"))), None)
        if value is None:
            names = ", ".join(v.name for v in graph.inputs)
            sink.report(codes.UNKNOWN_INPUT, name=name, names=names)
        elif isinstance(value.type, SequenceType | OptionalType):
            value.type = _with_elements(value.type, shape)
            _forget_carried(graph)
        else:
            _fix(value, name, shape, known, sink)
    bounded = _bounded(graph, bounds, sink)
    known |= bounded
    infer.rename(graph, known)
    take_branches.run(graph, sink)


def bind_contents(graph: Graph, contents: Mapping[str, Sequence[int]]) -> None:
    """Put constants of these elements in the place of integer inputs of fixed shape, which stay unused inputs."""
    for value in graph.inputs:
        if value.name in contents and isinstance(value.type, TensorType) and value.type.is_static:
            elements = np.array(contents[value.name], value.dtype.numpy).reshape(value.type.static_shape())
            graph.replace_uses(value, graph.add_constant(Constant.of(elements, value.dtype), value.name))


def _fix(value: Value, name: str, given: Sequence[Any] | None, known: dict[str, DimLike], sink: Sink) -> None:
    """Record what a given shape says of the symbols of a value's sizes."""
    facts: Facts = {"name": name, "type": value.type, "given": given}
    shape = entries_of(given)
    if shape is None:
        sink.report(codes.BAD_SHAPE_OPTION, reason="an entry is a number from 0 on, a name, or None or -1", **facts)
        return
    if not isinstance(value.type, TensorType):
        sink.report(codes.BAD_SHAPE_OPTION, reason="it is no tensor", **facts)
        return
    if value.type.shape is None:
        value.type = value.type.with_shape(size_of(s, f"{name}_{i}") for i, s in enumerate(shape))
        return
    if len(shape) != len(value.type.shape):
        sink.report(codes.BAD_SHAPE_OPTION, reason="the rank differs", **facts)
        return
    for size, entry in zip(value.type.shape, shape, strict=True):
        if entry is None:
            continue
        wanted = size_of(entry, str(entry))
        symbols = list(size.symbols())
        if size.is_const or len(symbols) != 1 or size != Dim({(symbols[0],): 1}):
            if size.equals(wanted) is False:
                sink.report(codes.BAD_SHAPE_OPTION, reason=f"the model fixes {size}", **facts)
            continue
        lo, hi = symbols[0].bounds()
        if wanted.is_const and not lo <= int(wanted) <= hi:
            sink.report(codes.BAD_SHAPE_OPTION, reason=f"{size} is bounded to {lo}..{hi}", **facts)
        elif known.setdefault(symbols[0].name, wanted) != wanted:
            sink.report(codes.BAD_SHAPE_OPTION, reason=f"{size} was given as {known[symbols[0].name]}", **facts)


def entries_of(given: object) -> list[int | str | None] | None:
    """Read a shape that was given: numbers, names, and None for "as it is". Where it is no shape, return None."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        return None
    entries = [_entry(e) for e in cast("Sequence[Any]", given)]
    return None if _WRONG in entries else entries


def _with_elements(type: Type, shape: Sequence[Any] | None) -> Type:
    """Give the tensors in a sequence or an optional value a shape. Where there is one already, it stays."""
    if isinstance(type, OptionalType):
        return replace(type, element=_with_elements(type.element, shape))
    if isinstance(type, SequenceType):
        return replace(type, element=_with_elements(type.element, shape), empty=shape is None)
    if not isinstance(type, TensorType) or type.shape is not None or shape is None:
        return type
    return type.with_shape(size_of(_entry(s), f"element_{i}") for i, s in enumerate(shape))


def _forget_carried(graph: Graph) -> None:
    """Forget the types of sequences and optional values that loops carry, so that the initial values tell them."""
    for each in graph.nested():
        for region in (region for node in each.nodes for region in node.op.regions):
            for value in region.inputs:
                if isinstance(value.type, SequenceType | OptionalType):
                    value.type = None


_WRONG = -2


def _entry(given: Any) -> int | str | None:
    """Read an entry of a shape: a number as an int, -1 as None; `_WRONG` if it is no size."""
    if given is None or isinstance(given, str):
        return given
    number = int(given) if isinstance(given, SupportsIndex) and not isinstance(given, bool) else _WRONG
    return None if number == -1 else max(number, _WRONG)


def size_of(given: int | str | None, name: str) -> Dim:
    """Get the size that an entry says, for None a new symbol called like `name`."""
    if isinstance(given, str):
        return Dim.symbol(given)
    return Dim.fresh(name) if given is None else Dim.of(given)


def _bounded(graph: Graph, bounds: Mapping[str, int], sink: Sink) -> dict[str, DimLike]:
    """Find the symbols that `bounds` names, directly or by a value with them, and give them these upper bounds."""
    found: dict[str, DimLike] = {}
    symbols: dict[str, Symbol] = {}
    of_value: dict[str, set[Symbol]] = {}
    for value in graph.values():
        if isinstance(value.type, TensorType) and value.type.shape is not None:
            own = {s for d in value.type.shape for s in d.symbols()}
            symbols |= {s.name: s for s in own}
            for name in (value.name, *value.names):
                of_value[name] = own
    for name, most in bounds.items():
        picked = [symbols[name]] if name in symbols else sorted(of_value.get(name, ()))
        if not picked:
            sink.report(codes.UNKNOWN_BOUND, name=name)
        for symbol in picked:
            found[symbol.name] = Dim.symbol(symbol.name, symbol.lo, int(most))
    return found
