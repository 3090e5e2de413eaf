"""The .bin: a raw concatenation of blobs, mapped once, checked before anything is read from it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from irc.diagnostics import Code
from irc.diagnostics.codes import container as codes
from irc.formats.openvino.packing import Array, Bytes, unpack
from irc.ir.types import DType

_LFS = b"version https://git-lfs.github.com/spec/"
_MARKUP = (b"<?xml", b"<net", b"<!DOCTYPE", b"<html")


class Weights:
    """`<stem>.bin` beside an .xml.  Opened at the first constant; `problem` says why it cannot be used."""

    def __init__(self, xml: str) -> None:
        self.path = str(Path(xml).with_suffix(".bin"))
        self.name = Path(self.path).name
        self._data: Bytes | None = None
        self._problem: tuple[Code, dict[str, Any]] | None = None
        self.reported = False

    def open(self) -> tuple[Bytes | None, tuple[Code, dict[str, Any]] | None]:
        """(bytes, None), or (None, the code and facts of what is wrong with the file)."""
        if self._data is None and self._problem is None:
            self._open()
        return self._data, self._problem

    def _open(self) -> None:
        try:
            size = os.stat(self.path).st_size
            with open(self.path, "rb") as f:
                head = f.read(64)
            self._data = np.memmap(self.path, np.uint8, "r").view(np.ndarray) if size else np.zeros(0, np.uint8)
        except FileNotFoundError:
            self._problem = codes.BIN_MISSING, {}
            return
        except (OSError, ValueError) as e:
            reason = os.strerror(e.errno) if isinstance(e, OSError) and e.errno else str(e)
            self._problem = codes.BIN_UNREADABLE, {"reason": reason}
            return
        if head.startswith(_LFS):
            self._problem, self._data = (codes.BIN_LFS, {}), None
        elif head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(_MARKUP):
            self._problem, self._data = (codes.BIN_IS_XML, {}), None


class Blob:
    """What `RawTensor.load` calls: a constant in a mapped file.  Arrays are read-only where they are not unpacked."""

    __slots__ = ("_data", "dtype", "offset", "shape", "size")

    def __init__(self, data: Bytes, offset: int, size: int, dtype: DType, shape: tuple[int, ...]) -> None:
        self._data, self.offset, self.size, self.dtype, self.shape = data, offset, size, dtype, shape

    def __call__(self) -> Array:
        return unpack(self.dtype, self._data[self.offset : self.offset + self.size], self.shape)

    def raw(self) -> Bytes:
        return self._data[self.offset : self.offset + self.size]
