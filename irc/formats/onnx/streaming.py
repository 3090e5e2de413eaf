"""Writes a ModelProto whose weights are read one after the other, each when its place in the file has come.

The bytes are those of `SerializeToString(deterministic=True)` of the message with all weights in it: the fields of a
message in ascending order, a nested message behind its length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import IO

import onnx
from google.protobuf.message import Message

from irc.formats.document import RawTensor
from irc.formats.onnx.apart import GRAPH, INITIALIZER, RAW_DATA, head
from irc.formats.onnx.packing import packed_size
from irc.formats.onnx.tensors import raw_bytes


def write_message(proto: onnx.ModelProto, weights: Mapping[int, RawTensor], file: IO[bytes]) -> None:
    """Write the message; `weights` are the contents of initializers that have none yet, by position."""
    first, last = _around(proto, GRAPH)
    nodes, rest = _around(proto.graph, INITIALIZER)
    tensors = [_around(t, RAW_DATA) if i in weights else _whole(t) for i, t in enumerate(proto.graph.initializer)]
    sizes = {i: packed_size(t.dtype, math.prod(t.shape)) for i, t in weights.items()}
    fields = {i: head(RAW_DATA, size) for i, size in sizes.items()}
    lengths = [len(a) + len(fields.get(i, b"")) + sizes.get(i, 0) + len(b) for i, (a, b) in enumerate(tensors)]
    heads = [head(INITIALIZER, length) for length in lengths]
    file.write(first)
    file.write(head(GRAPH, len(nodes) + sum(map(len, heads)) + sum(lengths) + len(rest)))
    file.write(nodes)
    for i, (before, after) in enumerate(tensors):
        file.write(heads[i] + before + fields.get(i, b""))
        if i in weights:
            file.write(raw_bytes(weights[i]).data)
        file.write(after)
    file.write(rest + last)


def _around(message: Message, number: int) -> tuple[bytes, bytes]:
    """The fields before that number, and those after it with what no field is known for."""
    before, after = type(message)(), type(message)()
    for part in (before, after):
        part.CopyFrom(message)
    before.DiscardUnknownFields()
    for field in message.DESCRIPTOR.fields:
        if field.number >= number:
            before.ClearField(field.name)
        if field.number <= number:
            after.ClearField(field.name)
    return before.SerializeToString(deterministic=True), after.SerializeToString(deterministic=True)


def _whole(message: Message) -> tuple[bytes, bytes]:
    return message.SerializeToString(deterministic=True), b""
