"""Opening a model: a path, bytes or a ModelProto to a parsed ModelProto, with clear refusals."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from irc.diagnostics import Loc, Problem, Sink
from irc.diagnostics.codes import container_onnx as codes
from irc.files import KEPT_WHOLE, DataFolder, data_file, open_regular
from irc.formats.onnx.apart import Places, read_around

PROTOBUF_LIMIT = 2**31 - 1
MODELS, TEXT = 5, 4096
"""Models of a folder that are named, and bytes that show whether a file is text."""
_OTHERS: tuple[tuple[bytes, str, str], ...] = (
    (b"<?xml", "an XML file", "OpenVINO models have the extension .xml; irc reads them under that name"),
    (b"<net", "an OpenVINO IR (XML)", "rename it to .xml"),
    (b"PK\x03\x04", "a ZIP archive (PyTorch's .pt and .pth are ones)", "export the model with torch.onnx.export"),
    (b"\x80\x02", "a Python pickle", "export the model with torch.onnx.export"),
    (b"\x80\x04", "a Python pickle", "export the model with torch.onnx.export"),
    (b"\x89HDF", "an HDF5 file", "convert the Keras model with tf2onnx"),
    (b"\x1f\x8b", "a gzip archive", "unpack it first"),
    (b"GGUF", "a GGUF file", "export the original model to ONNX"),
    (b"<!DOCTYPE", "a web page", "the download gave an error page: fetch the file again"),
    (b"<html", "a web page", "the download gave an error page: fetch the file again"),
    (b"ir_version:", "a protobuf text file", "write it in binary form with onnx.save"),
    (b"{", "a JSON file", "write it in binary form with onnx.save"),
)


def open_model(
    source: str | Path | bytes | onnx.ModelProto, sink: Sink
) -> tuple[onnx.ModelProto, str, DataFolder | None, Places] | None:
    """(proto, file, folder of external data, large weights that are not in proto), or None with an error reported."""
    if isinstance(source, onnx.ModelProto):
        return (source, "", None, {}) if _has_graph(source, "the ModelProto", sink, Loc()) else None
    if isinstance(source, bytes | bytearray | memoryview):
        proto = parse(bytes(source), "the bytes", sink, Loc())
        return None if proto is None else (proto, "", None, {})
    path = os.fspath(source)
    loc = Loc(path)
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > PROTOBUF_LIMIT:
                return sink.report(codes.FILE_TOO_BIG, loc, path=path, size=size)
            around = read_around(data_file(path)) if size > KEPT_WHOLE else None
            data, places = around or (file.read(size), {})  # not the limit: a buffer of that size would be made
    except Problem as p:  # somebody writes to the file meanwhile
        return sink.report(p.code, loc, p.notes, **p.facts)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return sink.report(codes.FILE_UNREADABLE, loc, path=path, reason=reason, advice=_instead(path))
    proto = parse(data, path, sink, loc)
    return None if proto is None else (proto, path, DataFolder(path), places)


def parse(data: bytes, path: str, sink: Sink, loc: Loc) -> onnx.ModelProto | None:
    """The ModelProto in these bytes, or None with an error reported."""
    if not data:
        return sink.report(codes.FILE_EMPTY, loc, path=path)
    start = data[:256].removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"version https://git-lfs"):
        return sink.report(codes.GIT_LFS_POINTER, loc, path=path)
    for magic, found, advice in _OTHERS:
        if start.startswith(magic):
            return sink.report(codes.NOT_ONNX, loc, path=path, found=found, advice=advice)
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, ValueError, RecursionError) as error:
        advice = "the file is probably truncated or damaged: fetch or export it again"
        found = _something_else(path, data)
        if found is not None:
            return sink.report(codes.NOT_ONNX, loc, path=path, found=found[0], advice=found[1])
        return sink.report(
            codes.PARSE_FAILED, loc, path=path, size=len(data), reason=str(error) or "damaged", advice=advice
        )
    return proto if _has_graph(proto, path, sink, loc) else None


def _instead(path: str) -> str:
    """What to do about a path that is no file."""
    if path == "-":
        return "irc reads no standard input, because weights lie beside a model: write the model to a file"
    if not os.path.isdir(path):
        return "check the path and its permissions"
    if os.path.exists(os.path.join(path, "manifest.json")):
        return f"it is a compiled folder, which has been checked already: irc info {path}"
    models = sorted(f for f in os.listdir(path) if f.lower().endswith((".onnx", ".xml")))[:MODELS]
    held = f"it holds {', '.join(models)}" if models else "it holds no .onnx and no .xml"
    return f"name the model's file; {held}"


def _something_else(path: str, data: bytes) -> tuple[str, str] | None:
    """What a file is that is no protobuf message, and what to do about it; None where it may be a damaged model."""
    root, ending = os.path.splitext(path)
    if ending.lower() == ".bin":
        beside = f"{root}.xml" if os.path.exists(f"{root}.xml") else "the .xml that it belongs to"
        return "a file of weights", f"name {beside}"
    try:
        start = data[:TEXT].decode("utf-8", "ignore" if len(data) > TEXT else "strict")
    except UnicodeDecodeError:
        return None
    if any(c in start for c in "\0\x08\x12\x1a") or not any(c.isspace() for c in start):
        return None
    return "a text file", "name the model's file, a .onnx or .xml"


def _has_graph(proto: onnx.ModelProto, path: str, sink: Sink, loc: Loc) -> bool:
    if not proto.HasField("graph"):
        sink.report(codes.NO_GRAPH, loc, path=path)
    return proto.HasField("graph")
