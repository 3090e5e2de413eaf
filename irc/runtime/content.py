"""Hashes of models, for the cache: of their files, their bytes or their graph."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np

from irc.arrays import Array
from irc.diagnostics.core import Problem
from irc.files import DataFile, DataFolder, Outside, data_file
from irc.runtime import cache

LARGEST_MODEL = 1 << 31
"""Bytes of an .onnx or .xml; no reader takes a larger one."""
ENDLESS = (1 << 63) - 1


def source_hash(source: Any) -> str | None:
    """Compute the sha256 of a path's content (weights files too), bytes, a ModelProto or a Model; None: impossible."""
    if isinstance(source, str | os.PathLike):
        try:
            return path_hash(Path(os.fspath(source)))
        except (OSError, ValueError, Outside, Problem):
            return None  # reading the model will report what is wrong with it
    if isinstance(source, bytes | bytearray | memoryview):
        return hashlib.sha256(cast("bytes | bytearray | memoryview[Any]", source)).hexdigest()
    if hasattr(source, "SerializeToString"):
        return hashlib.sha256(source.SerializeToString(deterministic=True)).hexdigest()
    return model_hash(source)


def path_hash(path: Path) -> str:
    """Hash the model file and every file of its weights. Raises OSError, Outside, Problem."""
    digest = hashlib.sha256()
    file = data_file(path)
    if file.size > LARGEST_MODEL:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), os.fspath(path))
    main = cache.content_hash(file)
    digest.update(main.encode())
    folder = DataFolder(path)
    if path.suffix.lower() == ".xml":
        with suppress(FileNotFoundError):
            _add(digest, folder.with_ending(".bin"), None)
        return digest.hexdigest()
    for location, ranges in _external_data(file, main).items():
        _add(digest, folder.file(location), [(b, e - b) for b, e in ranges])
    return digest.hexdigest()


def _add(digest: Any, file: DataFile, ranges: list[tuple[int, int]] | None) -> None:
    line = f"\n{file.name}:{cache.content_hash(file, ranges)}"
    digest.update(line.encode("utf-8", "surrogateescape"))  # a file's name is not always text


def _external_data(file: DataFile, main: str) -> dict[str, list[tuple[int, int]]]:
    """Find the parts [begin, end) of files with an ONNX model's weights, by location; kept by the model's hash."""
    key = f"external data:{main}"
    known = cache.remembered(key)
    if not isinstance(known, dict):
        data = file.read(0, file.size).tobytes()
        known = _ranges(data) if b"location" in data else {}
        cache.remember(key, known)
    return {name: [(b, e) for b, e in parts] for name, parts in cast("dict[str, Any]", known).items()}


def _ranges(data: bytes) -> dict[str, list[tuple[int, int]]]:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.ModelProto.FromString(data)
    except (DecodeError, ValueError):
        return {}
    found: dict[str, list[tuple[int, int]]] = {}
    for tensor in _tensors(model):
        entries = {e.key: e.value for e in tensor.external_data}
        numbers = [entries.get("offset", "0"), entries.get("length", str(ENDLESS))]
        begin, length = (int(n) if n.isascii() and n.isdigit() and len(n) < 20 else 0 for n in numbers)
        if "location" in entries:
            found.setdefault(entries["location"], []).append((begin, min(begin + length, ENDLESS)))
    return {name: _united(parts) for name, parts in sorted(found.items())}


def _united(parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge ranges to ordered ones that do not overlap."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(parts):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def _tensors(model: Any) -> Iterator[Any]:
    """Yield every TensorProto of a model that may have external data: of graphs, their bodies and functions."""
    graphs: list[Any] = [model.graph]
    nodes: list[Any] = [n for f in model.functions for n in f.node]
    attributes = [a for f in model.functions for a in f.attribute_proto]
    while graphs or nodes:
        for graph in graphs:
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
            nodes += graph.node
        graphs = []
        for attribute in (*attributes, *(a for n in nodes for a in n.attribute)):
            yield from (attribute.t, *attribute.tensors)
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)
            graphs += [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]
        nodes, attributes = [], []


def model_hash(model: Any) -> str | None:
    """Hash a Model in memory: its operations, their wiring, types and constants."""
    digest = hashlib.sha256()
    try:
        _feed(model.graph, digest)
    except (RecursionError, Problem):  # a weights file has changed: reading it reports that
        return None
    return digest.hexdigest()


def _feed(item: Any, digest: Any) -> None:
    from irc.ir.graph import Graph

    if isinstance(item, Graph):
        _feed_graph(item, digest)
    elif isinstance(item, np.ndarray):
        array = cast("Array", item)
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
        digest.update(f":{v.extras.get('layer_name')}".encode())  # callers may name an input so
    for name, symbol in symbols_of(graph.inputs).items():  # a type prints only the names of symbols
        digest.update(f"\n{name} in {symbol.bounds()}".encode())
    for node in graph.nodes:
        digest.update(f"\n{node.name}".encode())
        _feed(node.op, digest)
        for v in (*node.inputs, *node.outputs):
            value(v)
    for v in graph.outputs:
        value(v)
