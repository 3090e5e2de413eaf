"""Saving: what to write for the options given, weights compressed or not, nothing written on a finding."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irc.border import WriteOptions, write_model
from irc.border.losses import conversion_losses
from irc.border.support import NEWEST_OPENVINO_OPSET, bodies_of, newest_onnx_opset
from irc.border.target import OLD
from irc.diagnostics import NOWHERE, ConversionError, Diagnostic, Loc, Problem, Sink
from irc.diagnostics.codes import command, conversion, runtime_io as codes
from irc.editing import precision, validity
from irc.formats.document import RawGraph, RawModel, RawNode, RawValue
from irc.ir.graph import Graph, Model
from irc.ir.types import MapType, OptionalType, SequenceType, TensorType
from irc.passes import idioms, infinite_extremes, list_sequences, pack_sequences, settle_ranks, state as states

if TYPE_CHECKING:
    import onnx

DEFAULT_OPSET = 21
PACKED_TYPES = (SequenceType, OptionalType, MapType)

OPENVINO_RELEASES = (
    ((2020, 1), 1),
    ((2020, 2), 2),
    ((2020, 3), 2),
    ((2020, 4), 3),
    ((2021, 1), 4),
    ((2021, 2), 5),
    ((2021, 3), 6),
    ((2021, 4), 7),
    ((2022, 1), 8),
    ((2022, 2), 9),
    ((2022, 3), 10),
    ((2023, 0), 11),
    ((2023, 1), 12),
    ((2023, 2), 13),
    ((2024, 0), 14),
    ((2024, 5), 15),
    ((2025, 0), 16),
)
"""OpenVINO release → the newest operation set it reads (documentation of the releases; 16 was first seen in 2025)."""


OPTIONS = {
    ".onnx": ("opset", "compress_fp16", "to"),
    ".xml": ("ir_version", "max_opset", "for_openvino", "compress_fp16", "to"),
}
"""The fields of SaveOptions that say something about a file, by its ending."""


@dataclass(frozen=True)
class SaveOptions:
    """The options of `irc.save`."""

    opset: int | None = None
    ir_version: int | None = None
    max_opset: str | int | None = None
    for_openvino: str | None = None
    compress_fp16: bool = False
    to: str | None = None

    def check(self, path: str | Path) -> None:
        """ConversionError with every option that has no such value (IRC6350) or is of the other format (IRC6353)."""
        sink = Sink()
        ending = ending_of(path)
        if ending not in OPTIONS:
            expected = "a name that ends in .onnx or .xml"
            sink.report(codes.BAD_OPTION, option="path", value=os.fspath(path), expected=expected)
            raise ConversionError(sink.diagnostics)
        self.check_for(ending)

    def check_for(self, ending: str) -> None:
        """ConversionError with every option that has no such value or says nothing about files of that ending."""
        sink = Sink()
        for option in (f.name for f in fields(self)):
            value = getattr(self, option)
            if value is None or value is False:
                continue
            if option not in OPTIONS[ending]:
                other = next(e for e, names in OPTIONS.items() if option in names)
                sink.report(codes.OPTION_OF_OTHER_FORMAT, option=option, value=value, ending=ending, other=other)
            elif expected := self._expected(option, value):
                sink.report(codes.BAD_OPTION, option=option, value=value, expected=expected)
        sink.stop_on_errors(ConversionError)

    def _expected(self, option: str, value: Any) -> str:
        """What the option could be, where `value` is wrong; else nothing."""
        if option == "opset":
            newest = newest_onnx_opset()
            return "" if _is_number(value, 1, newest) else f"a number from 1 to {newest}"
        if option == "max_opset":
            right = _is_number(_opset_number(value), 1, NEWEST_OPENVINO_OPSET)
            return "" if right else f"opset1 to opset{NEWEST_OPENVINO_OPSET}"
        if option == "for_openvino":
            return "" if _release(value) >= OPENVINO_RELEASES[0][0] else "a release from 2020.1 on, like 2021.4"
        if option == "to":
            return "" if value in precision.TYPES else " or ".join(precision.TYPES)
        if option == "compress_fp16" and self.to is not None:
            return f"False, because to={self.to!r} stores the weights so"
        if option != "ir_version":
            return ""
        if not _is_number(value, 10, 11):
            return "10 or 11"
        if self.for_openvino is not None and value > _newest_ir(self.for_openvino):
            return f"10, because OpenVINO {self.for_openvino} does not read newer ones"
        return ""


def ending_of(path: str | Path) -> str:
    """The ending of a file's name, which decides its format."""
    return os.path.splitext(str(os.fspath(path)))[1].lower()


def _is_number(value: Any, lo: int, hi: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and lo <= value <= hi


def _opset_number(value: Any) -> int:
    """8 of "opset8" and of 8; 0 of anything else."""
    found = re.fullmatch(r"opset(\d+)", str(value), re.ASCII)
    return int(found[1]) if found else value if isinstance(value, int) else 0


def _release(value: Any) -> tuple[int, int]:
    """(2021, 4) of "2021.4" and "2021.4.2"; (0, 0) of anything else."""
    found = re.fullmatch(r"(20\d\d)\.(\d+)(\.\d+)*", str(value), re.ASCII)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def is_before_2022(release: Any) -> bool:
    """Whether a release of OpenVINO that has been checked is older than 2022.1."""
    return _release(release) < OLD


def _newest_ir(release: Any) -> int:
    return 10 if is_before_2022(release) else 11


def write_file(model: Model, path: str | Path, options: SaveOptions) -> list[Diagnostic]:
    """Write the model in the format of the path's suffix.  Returns the notes on it.

    Raises ConversionError with every finding, OSError.
    """
    options.check(path)
    sink = Sink()
    raw = raw_model(model, ending_of(path), options, sink)
    with _located(raw):
        if raw.format == "openvino":
            from irc.formats.openvino import writer as openvino

            old = options.for_openvino is not None and is_before_2022(options.for_openvino)
            openvino.write(raw, path, old)
        else:
            from irc.formats.onnx import writer as onnx

            onnx.write(raw, path)
    return sink.diagnostics


def onnx_proto(model: Model, options: SaveOptions, notes: Sink) -> onnx.ModelProto:
    """Make the message that `write_file` would write, all weights in it; ConversionError with every finding."""
    from irc.formats.onnx.writer import to_proto

    options.check_for(".onnx")
    raw = raw_model(model, ".onnx", options, notes)
    with _located(raw):
        return to_proto(raw)


def raw_model(model: Model, ending: str, options: SaveOptions, sink: Sink) -> RawModel:
    """The document that options which have been checked ask for; ConversionError with every finding."""
    validity.check(model, sink)
    sink.stop_on_errors(ConversionError)
    raw = to_openvino(model, options, sink) if ending == ".xml" else to_onnx(model, options, sink)
    sink.stop_on_errors(ConversionError)
    _report_losses(model, raw.format, options, sink)
    _report_sizes(model, options.for_openvino, sink)
    if options.compress_fp16:
        precision.compress(raw, sink)
    if options.to is not None:
        raw = precision.in_type(raw, options.to, sink)
    if raw.format == "onnx" and raw.version < 4:
        _list_initializers(raw.graph)
    return raw


def _report_losses(model: Model, format: str, options: SaveOptions, sink: Sink) -> None:
    """Note what the file of that format has no place for."""
    version, _ = openvino_target(options)
    if found := conversion_losses(model, format, version):
        name = "ONNX" if format == "onnx" else f"OpenVINO IR {version}" if version else "OpenVINO IR"
        sink.report(command.LEFT_BEHIND, Loc(model.file), format=name, what=", ".join(found))


def _report_sizes(model: Model, release: str | None, sink: Sink) -> None:
    """Warn of inputs whose sizes the release cannot leave to the run."""
    if release is None or not is_before_2022(release):
        return
    varying = [v.name for v in model.graph.inputs if isinstance(v.type, TensorType) and not v.type.is_static]
    if varying:
        what = ", ".join(varying[:3]) + (f" and {len(varying) - 3} more" if len(varying) > 3 else "")
        sink.report(command.RELEASE_FIXES_SIZES, Loc(model.file), release=release, inputs=what)


@contextmanager
def _located(raw: RawModel) -> Generator[None]:
    """Raise what a writer refuses as ConversionError, with the place in the source."""
    try:
        yield
    except Problem as p:
        sink = Sink()
        sink.report(p.code, _place(raw.graph, str(p.facts.get("name"))), p.notes, **p.facts)
        raise ConversionError(sink.diagnostics) from p


def _place(graph: RawGraph, name: str) -> Loc:
    """Where the source model has the value or constant that a writer calls by that name."""
    values = [*graph.inputs, *(v for n in graph.nodes for v in n.outputs), *graph.outputs]
    found = [v.loc for v in values if name == v.key or name in v.names]
    found += [t.loc for key, t in graph.constants.items() if name in (key, t.name)]
    found += [_place(body, name) for body in _bodies(graph)]
    return next((loc for loc in found if loc != NOWHERE), NOWHERE)


def _idiomatic(model: Model, format: str, sink: Sink) -> Model:
    """A model of the other format in the operations that tools of this one use; one of its own as it is."""
    if model.format == format:
        return model
    graph = model.graph.copy()
    with sink.catching(Loc(model.file)):  # weights that cannot be read
        idioms.run(graph, format)
    sink.stop_on_errors(ConversionError)
    return replace(model, graph=graph)


# --------------------------------------------------------------------------------- ONNX
def to_onnx(model: Model, options: SaveOptions, sink: Sink) -> RawModel:
    """The model as ONNX, at the opset asked for or by default the lowest that can say it (see `irc.save`)."""
    model = states.explicit(model, sink)
    sink.stop_on_errors(ConversionError)
    model = _idiomatic(model, "onnx", sink)
    if options.opset is not None:
        return _onnx_at(model, options.opset, sink)
    if model.format == "onnx":
        return _onnx_at(model, model.opsets.get("", 1), sink)
    first = own = Sink()
    raw = _onnx_at(model, DEFAULT_OPSET, own)
    for opset in range(DEFAULT_OPSET + 1, newest_onnx_opset() + 1):
        if not own.errors or any(d.code != conversion.NEEDS_NEWER_OPSET.id for d in own.errors):
            break
        own = Sink()
        raw = _onnx_at(model, opset, own)
    for found in (first if own.errors else own).diagnostics:
        sink.add(found)
    return raw


def _onnx_at(model: Model, opset: int, sink: Sink) -> RawModel:
    import onnx

    same = model.format == "onnx"
    opsets = {**(_domains() if not same else {}), **(model.opsets if same else {}), "": opset}
    raw = write_model(model, WriteOptions("onnx", opsets, version=0), sink)
    if not same:
        used = {n.domain for n in _nodes(raw.graph)} | {n.domain for f in raw.functions for n in f.nodes}
        raw.opsets = {d: v for d, v in sorted(opsets.items()) if d == "" or d in used}
    if same and raw.opsets == model.opsets:
        raw.version = model.version
    else:
        imports = [onnx.helper.make_opsetid(d, v) for d, v in raw.opsets.items() if d in ("", "ai.onnx.ml")]
        raw.version = max(onnx.helper.find_min_ir_version_for(imports, ignore_unknown=True), _needed(raw))
    return raw


def _list_initializers(graph: RawGraph) -> None:
    """Until IR version 3 an initializer is a graph input too."""
    listed = {v.key for v in graph.inputs}
    types = {k: TensorType.of(t.dtype, t.shape) for k, t in graph.constants.items() if k not in listed}
    graph.inputs += [RawValue(k, (k,), type) for k, type in types.items()]


def _domains() -> dict[str, int]:
    """The newest version of every other domain irc writes."""
    return {"ai.onnx.ml": _newest("ai.onnx.ml")}


def _newest(domain: str) -> int:
    import onnx

    versions = [s.since_version for s in onnx.defs.get_all_schemas() if s.domain == domain]
    return max(versions, default=1)


def _needed(raw: RawModel) -> int:
    """The lowest ir_version by what else the model has: local functions (8)."""
    return 8 if raw.functions else 3


# ----------------------------------------------------------------------------- OpenVINO
def to_openvino(model: Model, options: SaveOptions, sink: Sink) -> RawModel:
    """The model as OpenVINO IR, within the IR version and operation sets asked for."""
    version, newest = openvino_target(options)
    if version is None:
        version = model.version if model.format == "openvino" else 11
    graph = without_sequences(model.graph)
    if model.format != "openvino":
        graph = settle_ranks.run(graph, sink)
    model = _idiomatic(replace(model, graph=graph), "openvino", sink)
    if model.format != "openvino":
        model = infinite_extremes.test_each_element(model)
    release = None if options.for_openvino is None else _release(options.for_openvino)
    return write_model(model, WriteOptions("openvino", max_opset=newest, version=version, release=release), sink)


def without_sequences(graph: Graph) -> Graph:
    """A graph between tensors with tensors in the place of sequences, which OpenVINO lacks; else as it was."""
    inside = [v for each in graph.nested() for node in each.nodes for v in node.outputs]
    if not any(isinstance(v.type, PACKED_TYPES) for v in inside):
        return graph
    if any(isinstance(v.type, PACKED_TYPES) for v in (*graph.inputs, *graph.outputs)):
        return graph
    twin, sink = graph.copy(), Sink()
    list_sequences.run(twin, sink)
    pack_sequences.run(twin, sink)
    return graph if sink.errors else twin


def openvino_target(options: SaveOptions) -> tuple[int | None, int]:
    """(IR version or None, newest operation set) of options that have been checked."""
    version, newest = options.ir_version, NEWEST_OPENVINO_OPSET
    if options.for_openvino is not None:
        newest = [n for first, n in OPENVINO_RELEASES if first <= _release(options.for_openvino)][-1]
        version = version or _newest_ir(options.for_openvino)
    if options.max_opset is not None:
        newest = min(newest, _opset_number(options.max_opset))
    return version, newest


def _nodes(graph: RawGraph) -> Iterator[RawNode]:
    for node in graph.nodes:
        yield node
        for body in bodies_of(node):
            yield from _nodes(body)


def _bodies(graph: RawGraph) -> Iterator[RawGraph]:
    for node in graph.nodes:
        yield from bodies_of(node)
