"""Opens files that a caller or a model names, and replaces files whole.  docs/adr/0017-files.md gives the reasons.

Only regular files are read: opening a FIFO would wait, and opening a device may act.  A file that a *model* names
(external data, the .bin of an IR) is looked for beside the model; its real path must lie in the folder the model was
asked for in, in the folder the model's file really is in, or in one of $IRC_DATA_FOLDERS.  It is opened once, without
following a link on the way, and read into memory: a mapping ends the process where another one cuts the file short.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import stat
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from irc.diagnostics.codes import container_weights as codes
from irc.diagnostics.core import Problem

Bytes = np.ndarray[Any, Any]  # of uint8

LARGEST_TEXT = 1 << 30
"""Bytes of an .xml: larger ones are refused before they are read."""
KEPT_WHOLE = 64 << 20
"""Data files up to this size are read at once, so that constants which share bytes share memory."""
KEPT_OPEN = 64
"""Data files of a model that stay open; others are opened again, and must be the same."""

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a link"),
)
_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", os.O_RDONLY)  # which need not be readable
_IN_FOLDERS = os.open in os.supports_dir_fd and os.stat in os.supports_dir_fd


class Outside(Exception):
    """A file that a model names lies where the model may not look; the text says how."""


# ------------------------------------------------------------------------------- opening
def open_regular(path: str | Path, folder: int | None = None, follow: bool = True) -> int:
    """Open a regular file for reading, without waiting; its descriptor.  OSError where it is anything else.

    `folder`: the descriptor that a relative path starts from.  follow: whether the path may be a link.
    """
    given = os.fspath(path)
    _require_regular(os.stat(given, dir_fd=folder, follow_symlinks=follow), given)
    fd = os.open(given, _FLAGS | (0 if follow else _NO_LINK), dir_fd=folder)
    try:
        _require_regular(os.fstat(fd), given)  # nobody has put something else in its place
    except OSError:
        os.close(fd)
        raise
    return fd


def _require_regular(status: os.stat_result, path: str) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    kind = next((name for test, name in _KINDS if test(status.st_mode)), "something else")
    raise OSError(errno.EINVAL, f"not a regular file but {kind}", path)


def read_regular(path: str | Path, most: int) -> bytes:
    """The content of a regular file of at most that many bytes.  OSError."""
    with os.fdopen(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(min(size, most) + 1)  # not the limit: a buffer of that size would be made
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", os.fspath(path))
    return data


def open_beneath(root: str, relative: str) -> int:
    """Open a regular file below a folder, following no link from there on; its descriptor.  OSError."""
    if not _IN_FOLDERS:
        return open_regular(os.path.join(root, relative), follow=False)
    *folders, name = relative.split(os.sep)
    at = os.open(root, _FOLDER)
    try:
        for folder in folders:
            below = os.open(folder, _FOLDER | _NO_LINK, dir_fd=at)
            os.close(at)
            at = below
        return open_regular(name, at, follow=False)
    finally:
        os.close(at)


# ------------------------------------------------------------------------------ data files
class DataFolder:
    """Where files that a model names may be."""

    def __init__(self, model: str | Path) -> None:
        """Of a model's file; a link to one is a model both where the link is and where the file is."""
        path = os.path.abspath(model)
        self.models = list(dict.fromkeys([path, os.path.realpath(path)]))
        allowed = os.environ.get("IRC_DATA_FOLDERS", "").split(os.pathsep)
        self.roots = [os.path.realpath(f) for f in (*map(os.path.dirname, self.models), *allowed) if f]
        self._open: dict[str, DataFile] = {}

    def file(self, location: str) -> DataFile:
        """The file that the model calls by that name, opened at most once.  Outside, OSError."""
        reason = _no_name_beside(location)
        if reason:
            raise Outside(reason)
        return self._file(location, [os.path.join(os.path.dirname(m), location) for m in self.models])

    def with_ending(self, ending: str) -> DataFile:
        """The file called like the model but for its ending (".bin"), opened at most once.  Outside, OSError."""
        tried = [os.path.splitext(m)[0] + ending for m in self.models]
        return self._file(os.path.basename(tried[0]), tried)

    def _file(self, name: str, tried: Sequence[str]) -> DataFile:
        if name not in self._open:
            path = os.path.realpath(next((p for p in tried if os.path.lexists(p)), tried[0]))
            root = next((r for r in self.roots if path.startswith(os.path.join(r, ""))), None)
            if root is None and path not in self.roots:
                raise Outside("a symbolic link leads out")
            root = root or path
            keep = len(self._open) < KEPT_OPEN
            self._open[name] = DataFile(root, os.path.relpath(path, root), name, keep)
        return self._open[name]


def _no_name_beside(location: str) -> str:
    """Why a location cannot name a file inside a folder; empty if it can."""
    parts = location.replace("\\", "/").split("/")
    if "\0" in location:
        return "it holds a NUL character"
    if os.path.isabs(location) or location.startswith(("/", "\\")) or (len(parts[0]) > 1 and parts[0][1] == ":"):
        return "an absolute path"
    return "it goes up with .." if ".." in parts else ""


class DataFile:
    """A file of weights: opened once, and read only as long as it stays what it was then.

    `name`: what the model calls it; `size` in bytes; `newest`: the time of its latest change, in nanoseconds.
    """

    def __init__(self, root: str, relative: str, name: str, keep: bool = True) -> None:
        """Raises OSError."""
        self.root, self.relative, self.name = root, relative, name
        fd = open_beneath(root, relative)
        status = os.fstat(fd)
        self.size = status.st_size
        self.identity, self.newest = identity(status), max(status.st_mtime_ns, status.st_ctime_ns)
        self._state = _state(status)
        self._whole: Bytes | None = None
        self._fd: int | None = fd if keep else None
        if keep:
            weakref.finalize(self, os.close, fd)
        else:
            os.close(fd)

    def read(self, offset: int, length: int) -> Bytes:
        """That part of the file, read-only.  Problem IRC1085 where the file is no longer what it was."""
        if self.size > KEPT_WHOLE:
            return self._read(offset, length)
        if self._whole is None:
            self._whole = self._read(0, self.size)
        return self._whole[offset : offset + length]

    def head(self, length: int) -> bytes:
        """The first bytes of the file, or all it has.  Problem."""
        return self._read(0, min(length, self.size)).tobytes()

    def _read(self, offset: int, length: int) -> Bytes:
        with self._descriptor() as fd:
            self._check(fd)
            array = np.empty(length, np.uint8)
            read_into(fd, array, offset, self._changed)
            self._check(fd)
        array.flags.writeable = False
        return array

    @contextmanager
    def _descriptor(self) -> Generator[int]:
        if self._fd is not None:
            yield self._fd
            return
        try:
            fd = open_beneath(self.root, self.relative)
        except OSError as e:
            raise self._changed(e.strerror or "it cannot be opened again") from e
        try:
            yield fd
        finally:
            os.close(fd)

    def _check(self, fd: int) -> None:
        if _state(os.fstat(fd)) != self._state:
            raise self._changed("it has been written to, or is another file")

    def _changed(self, reason: str) -> Problem:
        return Problem(codes.DATA_CHANGED, file=self.name, reason=reason)

    def digest(self, ranges: Sequence[tuple[int, int]] | None = None) -> str:
        """sha256 of these parts of the file (offset, length), in their order; by default of all of it.  Problem.

        What the file system has never stored (holes) is not read.
        """
        found = hashlib.sha256()
        with self._descriptor() as fd:
            self._check(fd)
            for offset, length in ranges if ranges is not None else [(0, self.size)]:
                for begin, end in _stored(fd, offset, min(offset + length, self.size)):
                    found.update(f"{begin}:{end}\n".encode())
                    for at in range(begin, end, 1 << 20):
                        block = np.empty(min(1 << 20, end - at), np.uint8)
                        read_into(fd, block, at, self._changed)
                        found.update(block.data)
            self._check(fd)
        return found.hexdigest()


def data_file(path: str | Path) -> DataFile:
    """A file that a caller names, links followed.  OSError."""
    real = os.path.realpath(path)
    return DataFile(os.path.dirname(real), os.path.basename(real), os.fspath(path))


def identity(status: os.stat_result) -> str:
    """What changes when a file's content does, also where somebody sets its times."""
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


def _state(status: os.stat_result) -> tuple[int, int, int, int]:
    """What stays as long as nobody writes to an open file; its name may go meanwhile, which changes `st_ctime`."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def read_into(fd: int, array: Bytes, offset: int, short: Callable[[str], Exception]) -> None:
    """Fill an array of bytes from a place of a file; raises `short(reason)` where the file ends before."""
    view, done = array.data, 0
    while done < len(array):
        if hasattr(os, "preadv"):
            count = os.preadv(fd, [view[done : done + (1 << 30)]], offset + done)
        else:  # one position for the whole process: only where there is nothing better
            os.lseek(fd, offset + done, os.SEEK_SET)
            part = os.read(fd, min(len(array) - done, 1 << 24))
            count = len(part)
            view[done : done + count] = part
        if not count:
            raise short("the file ends too early")
        done += count


def _stored(fd: int, begin: int, end: int) -> Generator[tuple[int, int]]:
    """The parts of [begin, end) that are no holes."""
    at = begin
    while at < end:
        try:
            data = os.lseek(fd, at, os.SEEK_DATA)
            hole = os.lseek(fd, data, os.SEEK_HOLE)
        except OSError as e:
            if e.errno == errno.ENXIO:  # only a hole is left
                return
            data, hole = at, end
        except AttributeError:  # no such system call here
            data, hole = at, end
        if data >= end:
            return
        yield data, min(hole, end)
        at = hole


# ------------------------------------------------------------------------------- replacing
@contextmanager
def replacing(path: str | Path, private: bool = False) -> Generator[IO[bytes]]:
    """A file to write to that takes that name when the block ends well: it appears whole or not at all.

    A link stays one; a device or a pipe takes what it gets.  `private`: readable by its owner only.  OSError.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        with open(target, "wb") as file:  # of a folder: IsADirectoryError
            yield file
        return
    with replacing_all([target], 0o600 if private else 0o666) as (file,):
        yield file


@contextmanager
def replacing_all(paths: Iterable[str | Path], mode: int = 0o666) -> Generator[list[IO[bytes]]]:
    """Several files to write to that take their names, one after the other, when the block ends well.  OSError.

    mode: the permissions, less those of the umask.
    """
    targets = [Path(os.path.realpath(p)) for p in paths]
    for target in targets:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    partials = [temporary_name(t) for t in targets]
    try:
        with ExitStack() as stack:
            yield [stack.enter_context(open(p, "xb", opener=lambda n, f: os.open(n, f, mode))) for p in partials]
        rename_all(list(zip(partials, targets, strict=True)))
    finally:
        for partial in partials:
            partial.unlink(missing_ok=True)


def rename_all(pairs: Sequence[tuple[Path, Path]]) -> None:
    """Give files their names, one after the other; where one cannot have it, all names stay as they were.  OSError."""
    kept: list[tuple[Path, Path | None]] = []
    try:
        for file, target in pairs:
            kept.append((target, _second_name(target)))
            os.replace(file, target)
    except OSError:
        for target, before in reversed(kept):
            if before is not None:
                os.replace(before, target)
            elif not target.is_dir():
                target.unlink(missing_ok=True)
        raise
    finally:
        for _, before in kept:
            if before is not None:
                before.unlink(missing_ok=True)


def _second_name(file: Path) -> Path | None:
    """A second name for a file that exists, or a copy where the file system knows no such names."""
    if not file.is_file():
        return None
    name = temporary_name(file)
    try:
        os.link(file, name)
    except OSError:
        shutil.copy2(file, name)
    return name


def temporary_name(target: Path) -> Path:
    """A new name beside a file that nobody can foresee."""
    return target.with_name(f".irc-{secrets.token_hex(8)}.tmp")
