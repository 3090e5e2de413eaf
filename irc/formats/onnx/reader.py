"""Reads an ONNX model into a RawModel.

Nothing in the file makes this raise: findings go to the sink, and the caller stops at the end of
the stage.  The result is None where no graph could be read at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx

from irc.diagnostics import Loc, Sink
from irc.diagnostics.codes import container_onnx as codes
from irc.files import DataFolder
from irc.formats.document import RawFunction, RawModel
from irc.formats.onnx.apart import Places
from irc.formats.onnx.graphs import GraphReader, canonical_domain
from irc.formats.onnx.residue import residue
from irc.formats.onnx.source import open_model
from irc.formats.onnx.structure import check_function, check_graph, check_recursion
from irc.formats.onnx.tensors import TensorReader
from irc.formats.onnx.text import pairs, text
from irc.formats.onnx.type_protos import TypeReader, dim_params
from irc.ir.types import Extras

MODEL_SCALARS = ("producer_name", "producer_version", "domain", "model_version", "doc_string")
_MODEL = frozenset(("ir_version", "opset_import", "graph", "metadata_props", "functions", *MODEL_SCALARS))


def read(source: str | Path | bytes | onnx.ModelProto, sink: Sink) -> RawModel | None:
    """The model's content, with `format` "onnx" and `version` its ir_version.

    `extras`: producer_name, producer_version, domain, model_version, doc_string where the file has
    them, `opset_spelling` (of the domain "": "ai.onnx" where it is spelled out, None where the field is
    absent), `opset_assumed` (there is no opset_import), and `rest`.
    """
    opened = open_model(source, sink)
    if opened is None:
        return None
    proto, file, folder, weights = opened
    loc = Loc(file)
    try:
        return _read(proto, file, folder, weights, sink)
    except RecursionError:
        return sink.report(codes.TOO_DEEP, loc, what="the model", limit="Python's recursion")


def _read(proto: onnx.ModelProto, file: str, folder: DataFolder | None, weights: Places, sink: Sink) -> RawModel:
    loc = Loc(file)
    version = _ir_version(proto, sink, loc)
    extras: Extras = {name: getattr(proto, name) for name in MODEL_SCALARS if getattr(proto, name)}
    extras = {name: v if isinstance(v, int) else text(v, name, loc, sink) for name, v in extras.items()}
    rest = residue(proto, _MODEL)
    if rest is not None:
        extras["rest"] = rest
    opsets = _opsets(proto.opset_import, extras, sink, loc)
    if not opsets:
        sink.report(codes.OPSET_MISSING, Loc(file, "graph main"), domain="ai.onnx")
        extras["opset_assumed"] = True
        opsets = {"": 1}
    tensors, types = TensorReader(sink, folder), TypeReader(sink, dim_params(proto))
    graph = GraphReader(file, opsets, sink, tensors, types).graph(proto.graph, "graph main", places=weights)
    places: dict[int, Loc] = {}
    functions: list[RawFunction] = []
    for function in proto.functions:
        path = f"function {function.domain or 'ai.onnx'}::{function.name}"
        path += f":{function.overload}" if function.overload else ""
        spelled: dict[str, Any] = {}
        own = _opsets(function.opset_import, spelled, sink, Loc(file, path))
        decoded = GraphReader(file, own, sink, tensors, types).function(function, path)
        decoded.opsets = own
        decoded.extras |= spelled
        places[id(decoded)] = Loc(file, path)
        functions.append(decoded)
    check_graph(graph, sink)
    for function in functions:
        check_function(function, sink, places[id(function)])
    check_recursion(functions, lambda f: places[id(f)], sink)
    metadata = pairs(proto.metadata_props, loc, sink)
    return RawModel("onnx", version, graph, opsets, functions, metadata, extras, file)


def _ir_version(proto: onnx.ModelProto, sink: Sink, loc: Loc) -> int:
    if not proto.ir_version:
        assumed = 3 if proto.opset_import else 1
        sink.report(codes.IR_VERSION_MISSING, loc, assumed=assumed)
        return assumed
    if proto.ir_version > onnx.IR_VERSION:
        sink.report(
            codes.IR_VERSION_NEWER, loc, version=proto.ir_version, package=onnx.__version__, known=int(onnx.IR_VERSION)
        )
    return proto.ir_version


def _opsets(imports: Iterable[onnx.OperatorSetIdProto], extras: Extras, sink: Sink, loc: Loc) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry in imports:
        domain = canonical_domain(text(entry.domain, "an imported domain", loc, sink))
        if not domain and (entry.domain or not entry.HasField("domain")):
            extras["opset_spelling"] = entry.domain or None
        if entry.version < 1:
            sink.report(codes.OPSET_INVALID, loc, domain=domain or "ai.onnx", version=entry.version)
            found.setdefault(domain, 1)
        elif found.setdefault(domain, entry.version) != entry.version:
            sink.report(
                codes.OPSET_CONFLICT, loc, domain=domain or "ai.onnx", first=found[domain], second=entry.version
            )
    return found
