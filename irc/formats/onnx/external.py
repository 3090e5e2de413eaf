"""External data: found inside the model's folder (`irc.files`), and written beside the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

import onnx

from irc.arrays import Array
from irc.diagnostics import Loc, Sink
from irc.diagnostics.codes import container_onnx as codes
from irc.files import DataFile, DataFolder, Outside
from irc.formats.onnx.packing import unpack
from irc.ir.types import DType

SMALLEST = 1024  # bytes; smaller tensors stay in the protobuf
ALIGNMENT = 4096  # of offsets, so that other tools can map them too (onnx.proto: SHOULD be the page size)


@dataclass(frozen=True, eq=False)
class External:
    """Elements in a file of their own, in the form of raw_data; called, it reads them."""

    file: DataFile
    offset: int
    length: int
    dtype: DType
    shape: tuple[int, ...]

    def packed(self) -> Array:
        """The bytes, read-only.  Problem IRC1085 where the file has changed."""
        return self.file.read(self.offset, self.length)

    def __call__(self) -> Array:
        return unpack(self.packed(), self.dtype, self.shape)


def locate(
    proto: onnx.TensorProto,
    dtype: DType,
    shape: tuple[int, ...],
    needed: int,
    folder: DataFolder | None,
    sink: Sink,
    loc: Loc,
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
        return sink.report(
            codes.TENSOR_FIELD, loc, name=name, type=dtype, field="external data", reason="strings have no raw form"
        )
    file = _opened(name, location, folder, sink, loc)
    if file is None:
        return None
    size, offset = file.size, int(entries.get("offset", "0"))
    length = int(entries.get("length", needed))
    reason = ""
    if length != needed:
        reason = "the length is not that of the tensor"
    elif offset + length > size:
        reason = "the file is too short"
    if reason:
        return sink.report(
            codes.EXTERNAL_RANGE,
            loc,
            name=name,
            type=dtype,
            dims=list(shape),
            needed=needed,
            offset=offset,
            length=length,
            location=location,
            size=size,
            reason=reason,
        )
    return External(file, offset, length, dtype, shape)


def _opened(name: str, location: str, folder: DataFolder, sink: Sink, loc: Loc) -> DataFile | None:
    try:
        return folder.file(location)
    except Outside as e:
        return sink.report(codes.EXTERNAL_ESCAPE, loc, name=name, location=location, reason=e)
    except OSError as e:
        reason = e.strerror or "unreadable"
        return sink.report(codes.EXTERNAL_MISSING, loc, name=name, location=location, reason=reason)


class Store:
    """Writes external data one after the other into one open file."""

    def __init__(self, file: IO[bytes], location: str) -> None:
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
