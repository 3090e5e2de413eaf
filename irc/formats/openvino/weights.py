"""The .bin: a raw concatenation of blobs, opened once (`irc.files`), checked before anything is read from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from irc.diagnostics import Code, Problem
from irc.diagnostics.codes import container_weights as codes
from irc.files import DataFile, DataFolder, Outside
from irc.formats.openvino.packing import Array, Bytes, unpack
from irc.ir.types import DType

_LFS = b"version https://git-lfs.github.com/spec/"
_MARKUP = (b"<?xml", b"<net", b"<!DOCTYPE", b"<html")


class Weights:
    """`<stem>.bin` beside an .xml.  Opened at the first constant; `problem` says why it cannot be used."""

    def __init__(self, xml: str) -> None:
        self.xml = xml
        self.name = Path(xml).with_suffix(".bin").name
        self._file: DataFile | None = None
        self._problem: tuple[Code, dict[str, Any]] | None = None
        self.reported = False

    def open(self) -> tuple[DataFile | None, tuple[Code, dict[str, Any]] | None]:
        """(file, None), or (None, the code and facts of what is wrong with the file)."""
        if self._file is None and self._problem is None:
            self._open()
        return self._file, self._problem

    def _open(self) -> None:
        try:
            file = DataFolder(self.xml).with_ending(".bin")
            head = file.head(64)
        except Outside as e:
            self._problem = codes.BIN_OUTSIDE, {"reason": e}
        except FileNotFoundError:
            self._problem = codes.BIN_MISSING, {}
        except OSError as e:
            self._problem = codes.BIN_UNREADABLE, {"reason": e.strerror or e}
        except Problem as e:
            self._problem = e.code, e.facts
        else:
            if head.startswith(_LFS):
                self._problem = codes.BIN_LFS, {}
            elif head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(_MARKUP):
                self._problem = codes.BIN_IS_XML, {}
            else:
                self._file = file


class Blob:
    """What `RawTensor.load` calls: a constant in a file.  Arrays are read-only where they are not unpacked."""

    __slots__ = ("_file", "dtype", "offset", "shape", "size")

    def __init__(self, file: DataFile, offset: int, size: int, dtype: DType, shape: tuple[int, ...]) -> None:
        self._file, self.offset, self.size, self.dtype, self.shape = file, offset, size, dtype, shape

    def __call__(self) -> Array:
        return unpack(self.dtype, self.raw(), self.shape)

    def raw(self) -> Bytes:
        """The bytes.  Problem IRC1085 where the file has changed."""
        return self._file.read(self.offset, self.size)
