"""Writing the .bin: one blob per constant, byte-identical blobs once, at the offset of the first."""

from __future__ import annotations

import hashlib
from typing import IO

from irc.formats.document import RawTensor
from irc.formats.openvino.packing import pack, stored_size
from irc.formats.openvino.weights import Blob
from irc.ir.types import string


class BlobWriter:
    """Appends constants to an open file and remembers where each content lies."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._end = file, 0
        self._known: dict[tuple[int, bytes], int] = {}

    def add(self, tensor: RawTensor) -> tuple[int, int]:
        """(offset, size) of the tensor's bytes."""
        content = _content(tensor)
        key = len(content), hashlib.blake2b(content, digest_size=20).digest()
        if key not in self._known:
            self._known[key] = self._end
            self._file.write(content)
            self._end += len(content)
        return self._known[key], len(content)


def _content(tensor: RawTensor) -> memoryview:
    """The packed bytes; those of an unchanged constant of another IR are taken as they are."""
    elements = 1
    for d in tensor.shape:
        elements *= d
    load = tensor.load
    if elements and isinstance(load, Blob) and load.dtype == tensor.dtype:
        raw = load.raw()
        return (raw if tensor.dtype == string else raw[: stored_size(tensor.dtype, elements)]).data
    return memoryview(pack(tensor.dtype, load()))
