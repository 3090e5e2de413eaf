"""A hash of what a model is, for the cache: of its files, its bytes or its graph."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from irc.runtime import cache


def source_hash(source: Any) -> str | None:
    """sha256 of a path's content (weights files too), of bytes, a ModelProto or a Model; None if it cannot be had."""
    if isinstance(source, str | os.PathLike):
        try:
            return path_hash(Path(os.fspath(source)))
        except OSError:
            return None  # reading the model says what is wrong with it
    if isinstance(source, bytes | bytearray | memoryview):
        return hashlib.sha256(cast("bytes | bytearray | memoryview[Any]", source)).hexdigest()
    if hasattr(source, "SerializeToString"):
        return hashlib.sha256(source.SerializeToString(deterministic=True)).hexdigest()
    return model_hash(source)


def path_hash(path: Path) -> str:
    """Of the model file and every file its weights are in."""
    digest = hashlib.sha256()
    main = cache.content_hash(path)
    digest.update(main.encode())
    for other in weight_files(path, main):
        line = f"\n{other}:{cache.content_hash(path.parent / other)}"
        digest.update(line.encode("utf-8", "surrogateescape"))  # a file's name is not always text
    return digest.hexdigest()


def weight_files(path: Path, main: str) -> list[str]:
    """The files beside a model that hold its weights, relative to its folder; remembered by the model's hash."""
    if path.suffix.lower() == ".xml":
        beside = path.with_suffix(".bin")
        return [beside.name] if beside.is_file() else []
    key = f"weights:{main}"
    known = cache.remembered(key)
    if known is None:
        data = path.read_bytes()
        known = _external_files(data) if b"location" in data else []
        cache.remember(key, known)
    return [n for n in known if (path.parent / n).is_file()]


def _external_files(data: bytes) -> list[str]:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.ModelProto.FromString(data)
    except (DecodeError, ValueError):
        return []
    found: set[str] = set()
    graphs = [model.graph]
    while graphs:
        graph = graphs.pop()
        tensors = list(graph.initializer)
        for node in graph.node:
            for a in node.attribute:
                tensors += [a.t, *a.tensors]
                graphs += [a.g, *a.graphs]
        found |= {e.value for t in tensors for e in t.external_data if e.key == "location"}
    return sorted(found)


def model_hash(model: Any) -> str | None:
    """Of a Model in memory: its operations, their wiring, types and constants."""
    digest = hashlib.sha256()
    try:
        _feed(model.graph, digest)
    except RecursionError:
        return None
    return digest.hexdigest()


def _feed(item: Any, digest: Any) -> None:
    from irc.ir.graph import Graph

    if isinstance(item, Graph):
        _feed_graph(item, digest)
    elif isinstance(item, np.ndarray):
        array = cast("np.ndarray[Any, Any]", item)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(repr(array.tolist()).encode() if array.dtype == object else np.ascontiguousarray(array).data)
    elif dataclasses.is_dataclass(item) and not isinstance(item, type):
        digest.update(type(item).__name__.encode())
        for f in dataclasses.fields(item):
            digest.update(f.name.encode())
            _feed(getattr(item, f.name), digest)
    elif isinstance(item, tuple | list):
        items = cast("Sequence[Any]", item)
        digest.update(f"({len(items)}".encode())
        for x in items:
            _feed(x, digest)
    else:
        digest.update(repr(item).encode())


def _feed_graph(graph: Any, digest: Any) -> None:
    from irc.ir.graph import symbols_of

    number: dict[Any, int] = {}

    def value(v: Any) -> None:
        if v is None:
            digest.update(b"-")
            return
        if v in number:
            digest.update(f"%{number[v]}".encode())
            return
        number[v] = len(number)
        digest.update(f"%{number[v]}={v.name}:{v.names}:{v.type}".encode())
        if v.const is not None:
            array = np.asarray(v.const.array)
            digest.update(
                repr(array.tolist()).encode()
                if array.dtype == object
                else np.ascontiguousarray(array).view(np.uint8).data
                if array.ndim
                else array.tobytes()
            )

    digest.update(graph.name.encode())
    for v in graph.inputs:
        value(v)
        digest.update(f":{v.extras.get('layer_name')}".encode())  # by which callers may name it
    for name, symbol in symbols_of(graph.inputs).items():  # a type prints only their names
        digest.update(f"\n{name} in {symbol.bounds()}".encode())
    for node in graph.nodes:
        digest.update(f"\n{node.name}".encode())
        _feed(node.op, digest)
        for v in (*node.inputs, *node.outputs):
            value(v)
    for v in graph.outputs:
        value(v)
