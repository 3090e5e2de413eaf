"""External data: found inside the model's folder, mapped, and written beside the model."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import onnx

from irc.diagnostics import Loc, Sink
from irc.diagnostics.codes import container_onnx as codes
from irc.formats.onnx.packing import unpack
from irc.ir.types import DType

Array = np.ndarray[Any, Any]
SMALLEST = 1024  # bytes; smaller tensors stay in the protobuf
ALIGNMENT = 4096  # of offsets, so that other tools can map them too (onnx.proto: SHOULD be the page size)


@dataclass(frozen=True, eq=False)
class External:
    """Elements in a file of their own, in the form of raw_data; called, it maps them."""

    path: str
    offset: int
    length: int
    dtype: DType
    shape: tuple[int, ...]

    def packed(self) -> Array:
        """The bytes, mapped read-only."""
        if not self.length:
            return np.empty(0, np.uint8)
        return np.memmap(self.path, np.uint8, "r", self.offset, (self.length,))

    def __call__(self) -> Array:
        return unpack(self.packed(), self.dtype, self.shape)


def locate(
    proto: onnx.TensorProto, dtype: DType, shape: tuple[int, ...], needed: int, folder: str | None, sink: Sink, loc: Loc
) -> External | None:
    """Where a tensor's external data are, or None with an error reported."""
    entries = {e.key: e.value for e in proto.external_data}
    name, location = proto.name, entries.get("location", "")
    if not location:
        return sink.report(
            codes.EXTERNAL_ENTRY, loc, name=name, key="location", value="missing, the name of the data file"
        )
    if folder is None:
        return sink.report(codes.EXTERNAL_NO_FOLDER, loc, name=name, location=location)
    for key in ("offset", "length"):
        text = entries.get(key, "0")
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            value = f'"{text}", not a number from 0 up'
            return sink.report(codes.EXTERNAL_ENTRY, loc, name=name, key=key, value=value)
    if dtype.kind == "s":
        return sink.report(codes.TENSOR_FIELD, loc, name=name, type=dtype, field="external data",
                           reason="strings have no raw form")  # fmt: skip
    path = _confined(name, location, folder, sink, loc)
    if path is None:
        return None
    size, offset = os.path.getsize(path), int(entries.get("offset", "0"))
    length = int(entries.get("length", needed))
    reason = ""
    if length != needed:
        reason = "the length is not that of the tensor"
    elif offset + length > size:
        reason = "the file is too short"
    if reason:
        return sink.report(codes.EXTERNAL_RANGE, loc, name=name, type=dtype, dims=list(shape), needed=needed,
                           offset=offset, length=length, location=location, size=size, reason=reason)  # fmt: skip
    return External(path, offset, length, dtype, shape)


def _confined(name: str, location: str, folder: str, sink: Sink, loc: Loc) -> str | None:
    """The real path of `location`, inside the real path of `folder`."""
    parts = location.replace("\\", "/").split("/")
    reason = ""
    if "\0" in location:
        reason = "it holds a NUL character"
    elif os.path.isabs(location) or location.startswith(("/", "\\")) or (len(parts[0]) > 1 and parts[0][1] == ":"):
        reason = "an absolute path"
    elif ".." in parts:
        reason = "it goes up with .."
    root = os.path.realpath(folder)
    path = "" if reason else os.path.realpath(os.path.join(root, location))
    if not reason and os.path.commonpath([root, path]) != root:
        reason = "a symbolic link leads out"
    if reason:
        return sink.report(codes.EXTERNAL_ESCAPE, loc, name=name, location=location, reason=reason)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return sink.report(codes.EXTERNAL_MISSING, loc, name=name, location=location, reason="not a regular file")
        with open(path, "rb"):
            pass
    except OSError as error:
        return sink.report(
            codes.EXTERNAL_MISSING, loc, name=name, location=location, reason=error.strerror or "unreadable"
        )
    return path


class Store:
    """Writes external data one after the other into one open file."""

    def __init__(self, file: BinaryIO, location: str) -> None:
        self.file, self.location = file, location

    def add(self, proto: onnx.TensorProto, data: Array) -> None:
        """Append the bytes, and point the tensor at them."""
        position = self.file.tell()
        offset = -(-position // ALIGNMENT) * ALIGNMENT
        self.file.write(b"\0" * (offset - position))
        self.file.write(data.data)
        proto.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", self.location), ("offset", str(offset)), ("length", str(data.size))):
            proto.external_data.add(key=key, value=value)
