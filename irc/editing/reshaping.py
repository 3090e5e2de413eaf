"""Other input shapes for a model that is written: sizes bound, named or changed, and all types inferred anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from irc.border.again import document_of, model_of, without_shapes
from irc.diagnostics import ConversionError, Facts, Sink
from irc.diagnostics.codes import runtime_io as codes
from irc.editing.branches import take_known, take_possible
from irc.formats.document import RawValue
from irc.ir.dim import Dim, DimLike
from irc.ir.graph import Model
from irc.ir.types import TensorType
from irc.passes.bind import entries_of, size_of


def reshape(model: Model, shapes: Mapping[str, Sequence[int | str | None]], notes: Sink) -> Model:
    """Make the model whose inputs have these shapes; the given one stays.

    An entry is a number, the name of a symbolic size, or None or -1 for "as it is".  A symbolic size becomes what is
    given for it in every input.  An If whose condition these sizes decide becomes the branch that runs; one of whose
    branches can run at these sizes and one cannot becomes the one that can, with a note.  A node whose operands do not
    fit any more is a finding, as is a shape that cannot be.  Raises ConversionError.
    """
    if not shapes:
        return model
    sink, raw = Sink(), document_of(model)
    graph = raw.graph = without_shapes(raw.graph)
    known: dict[str, DimLike] = {}
    inputs = list(graph.inputs)
    for name, given in shapes.items():
        at = next((i for i, v in enumerate(inputs) if name in (v.key, *v.names, v.extras.get("layer_name"))), None)
        if at is None:
            names = ", ".join(v.names[0] if v.names else v.key for v in inputs)
            sink.report(codes.UNKNOWN_INPUT, name=name, names=names)
        else:
            inputs[at] = _shaped(inputs[at], name, given, known, sink)
    sink.stop_on_errors(ConversionError)
    graph.inputs = [_renamed(v, known) for v in inputs]
    raw.functions = [replace(f, values={}) for f in raw.functions]
    try:
        return model_of(take_known(raw))
    except ConversionError:
        possible = take_possible(raw, notes)
        if possible is raw:
            raise
        return model_of(take_known(possible))


def _shaped(value: RawValue, name: str, given: Any, known: dict[str, DimLike], sink: Sink) -> RawValue:
    """Give an input that shape, and record in `known` what its symbols are."""
    facts: Facts = {"name": name, "type": value.type, "given": given}
    entries = entries_of(given)
    if entries is None or not isinstance(value.type, TensorType):
        reason = "it is no tensor" if entries is not None else "an entry is a number from 0 on, a name, or None or -1"
        sink.report(codes.BAD_SHAPE_OPTION, value.loc, reason=reason, **facts)
        return value
    before = value.type.shape
    if before is None:
        return replace(value, type=value.type.with_shape(size_of(e, f"{name}_{i}") for i, e in enumerate(entries)))
    if len(entries) != len(before):
        sink.report(codes.BAD_SHAPE_OPTION, value.loc, reason="the rank differs", **facts)
        return value
    shape = list(before)
    for axis, (size, entry) in enumerate(zip(before, entries, strict=True)):
        if entry is None:
            continue
        shape[axis] = wanted = size_of(entry, "")
        symbol = size.symbol_alone()
        if symbol is None:
            continue
        lo, hi = symbol.bounds()
        if wanted.is_const and not lo <= int(wanted) <= hi:
            sink.report(codes.BAD_SHAPE_OPTION, value.loc, reason=f"{size} is bounded to {lo}..{hi}", **facts)
        elif known.setdefault(symbol.name, wanted) != wanted:
            reason = f"{size} was given as {known[symbol.name]}"
            sink.report(codes.BAD_SHAPE_OPTION, value.loc, reason=reason, **facts)
    return replace(value, type=value.type.with_shape(shape))


def _renamed(value: RawValue, known: Mapping[str, DimLike]) -> RawValue:
    """Put the sizes that are known in the place of symbols that no entry was given for."""
    if not isinstance(value.type, TensorType) or value.type.shape is None:
        return value
    given = {Dim.of(d) for d in known.values()}
    return replace(value, type=value.type.with_shape([d if d in given else d.subs(known) for d in value.type.shape]))
