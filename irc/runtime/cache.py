"""The cache of artefacts, by content, in a folder that only its owner can write; least recently used ones are removed.

The folder is $IRC_CACHE_DIR, else $XDG_CACHE_HOME/irc, else ~/.cache/irc.  It is created with mode 0700 and
refused if it, or a folder in it, belongs to somebody else or others may write it: artefacts are code.  An entry is
written under a temporary name and renamed.  What is loaded is compared with the sha256 in its manifest, in full unless
it was before and nothing has changed since (device, inode, size, times).  $IRC_CACHE_SIZE caps the size (bytes, or
with K, M, G; default 10G).
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from irc.diagnostics.codes import runtime_io as codes
from irc.diagnostics.core import RunError, fill
from irc.files import DataFile, identity, read_regular, replacing
from irc.runtime.artifact import MANIFEST, Artifact, Draft, damaged, read_artifact, write_artifact

_MEMO = "hashes.json"
_MEMO_LIMIT = 4096
_SETTLED = 2e9
"""Nanoseconds: a change this long after another leaves another time, however coarse the file system's clock is."""
_LARGEST_MEMO = 64 << 20
_ABANDONED = 86_400
"""Seconds after which an unfinished folder counts as left behind by a process that ended."""
_ENTRIES = ("artefacts", "unpacked")
_FOLDERS = (*_ENTRIES, "tuned", "runtime")
_SUFFIXES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def location() -> Path:
    """Return the path of the cache, which may not exist yet."""
    given = os.environ.get("IRC_CACHE_DIR")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "irc"


_failed: dict[Path, str] = {}
"""Cache folders that could not be written, and why; this process does not use them."""


def root(warn: bool = True) -> Path | None:
    """Return the cache folder, made if missing; None, with a warning if `warn`, if it must not be used."""
    path = location()
    reason = _failed.get(path, "")
    try:
        if not path.exists():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        reason = reason or foreign(path.stat())
        if not reason and not os.access(path, os.W_OK | os.X_OK):
            reason = "it cannot be written"
        for name in _FOLDERS if not reason else ():
            with suppress(FileNotFoundError):
                reason = reason or foreign((path / name).lstat(), f"{name} in it")
    except OSError as e:
        reason = e.strerror or str(e)
    if reason:
        if warn:
            _warn(str(path), reason)
        return None
    return path


def foreign(status: os.stat_result, what: str = "it") -> str:
    """Say why a folder may hold what others put there; empty if it is the user's own."""
    if not stat.S_ISDIR(status.st_mode):
        return f"{what} is no folder"
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        return f"{what} belongs to another user"
    if os.name == "posix" and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write {what}" if what == "it" else f"others may write to {what}"
    return ""


@cache
def _warn(path: str, reason: str) -> None:
    text = fill(codes.CACHE_REFUSED.message, {"path": path, "reason": reason})
    warnings.warn(f"{codes.CACHE_REFUSED.id}: {text}", RuntimeWarning, stacklevel=4)


# --------------------------------------------------------------------------- artefacts
def lookup(key: str) -> Artifact | None:
    """Find the artefact of a key; None if there is none, or a damaged one, which is removed."""
    base = root()
    folder = base / "artefacts" / key if base else None
    if folder is None or not os.path.lexists(folder):
        return None
    try:
        if foreign(folder.lstat()):
            return None
        found = open_folder(folder)
        os.utime(folder)  # the time of last use
    except (RunError, OSError):
        shutil.rmtree(folder, ignore_errors=True)
        return None
    return found


def give_up(error: OSError) -> bool:
    """Do without the cache from now on. Returns whether there was one that can be at fault."""
    path = root(warn=False)
    if path is None:
        return False
    _failed[path] = error.strerror or str(error)
    root()
    return True


def store(key: str, draft: Draft) -> Artifact:
    """Keep an artefact under a key, without a cache in a folder of this process. Raises OSError."""
    base = root()
    if base is None:
        return keep_for_process(draft)
    folder = base / "artefacts" / key
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    found = write_artifact(folder, draft, 0o700)
    shrink(base, keep=folder)
    return found


def keep_for_process(draft: Draft) -> Artifact:
    """Keep an artefact in a temporary folder that is removed when the process ends."""
    return write_artifact(temporary_folder(), draft)


def temporary_folder() -> Path:
    """Make a path inside this process's temporary folder."""
    return Path(tempfile.mkdtemp(dir=_process_folder(os.getpid()))) / "artefact"


@cache
def _process_folder(pid: int) -> str:
    path = tempfile.mkdtemp(prefix="irc-")
    atexit.register(lambda: os.getpid() == pid and shutil.rmtree(path, ignore_errors=True))
    return path


def unpacked_folder(digest: str) -> Path:
    """Return the folder for the copy of a pickled artefact with this digest."""
    base = root()
    if base is None:
        return Path(_process_folder(os.getpid())) / digest
    (base / "unpacked").mkdir(mode=0o700, exist_ok=True)
    return base / "unpacked" / digest


def shared_folder(name: str) -> Path:
    """Make a folder of the cache for what all artefacts use; without a cache one of this process."""
    base = root()
    path = (base or Path(_process_folder(os.getpid()))) / name
    path.mkdir(mode=0o700, exist_ok=True)
    return path


# ------------------------------------------------------------------- what is loaded
def open_folder(folder: str | Path) -> Artifact:
    """Open the artefact of a folder, comparing each file with the sha256 in its manifest. Raises RunError.

    Files that were found right before, and have not changed since (device, inode, size, times), are not read again.
    """
    found = read_artifact(folder, verify=False)
    try:
        key, newest = _files_key(found)
    except OSError:  # a file is missing
        return read_artifact(folder)
    if not remembered(key):
        found = read_artifact(folder)
        if newest < time.time_ns() - _SETTLED:
            remember(key, True)
    found.state = key
    return found


def require_unchanged(artifact: Artifact) -> None:
    """Check that the files of an artefact are still those that were compared when it was loaded. Raises RunError."""
    try:
        if artifact.state is None or _files_key(artifact)[0] == artifact.state:
            return
    except OSError as e:
        raise damaged(artifact, f"it changed while it was opened ({e.strerror})") from e
    raise damaged(artifact, "it changed while it was opened")


def remember_written(folder: str | Path, verified: bool = False) -> None:
    """Let `open_folder` know a folder that was just written, if its files match its manifest.

    verified: whether its files have been compared while they were written.
    """
    try:
        found = read_artifact(folder, verify=not verified)
        now = time.time_ns()  # finer than a file system's clock: any later change leaves another time
        for name in found.files:
            os.utime(found.path(name), ns=(now, now))
        if all(found.path(name).stat().st_mtime_ns == now for name in found.files):
            remember(_files_key(found)[0], True)
    except (RunError, OSError):
        return  # whoever opens the folder is told


def _files_key(artifact: Artifact) -> tuple[str, int]:
    """Make the key under which these files are remembered as verified, and the time of the latest change to one."""
    states = [artifact.path(name).stat() for name in (MANIFEST, *sorted(artifact.files))]
    text = "\n".join(map(identity, states))
    newest = max(max(s.st_mtime_ns, s.st_ctime_ns) for s in states)
    return f"checked:{hashlib.sha256(text.encode()).hexdigest()}", newest


# --------------------------------------------------------------------------- size
@dataclass(frozen=True)
class CacheInfo:
    """What `irc cache info` prints: the folder, the number of artefacts, their bytes and the cap."""

    path: Path
    entries: int
    bytes: int
    limit: int


def limit() -> int:
    """Return the cap in bytes."""
    text = os.environ.get("IRC_CACHE_SIZE", "10G").strip().upper()
    scale = _SUFFIXES.get(text[-1:], 1)
    try:
        return int(float(text[:-1] if scale > 1 else text) * scale)
    except ValueError:
        return 10 << 30


def info() -> CacheInfo:
    """Describe the state of the cache."""
    entries = _entries(location())
    return CacheInfo(location(), len(entries), sum(e[1] for e in entries), limit())


def clear() -> int:
    """Remove every artefact and all measurements of kernels. Returns how many artefacts there were."""
    path = location()
    entries = _entries(path)
    for name in (*_ENTRIES, "tuned"):
        shutil.rmtree(path / name, ignore_errors=True)
    (path / _MEMO).unlink(missing_ok=True)
    return len(entries)


def shrink(base: Path, keep: Path) -> None:
    """Remove what ended processes left unfinished, and the least recently used artefacts until the rest fit the cap."""
    for folder in (f for name in _ENTRIES for f in (base / name).glob(".*")):
        with suppress(OSError):
            if folder.lstat().st_mtime < time.time() - _ABANDONED:
                shutil.rmtree(folder, ignore_errors=True)
    entries = sorted(_entries(base))
    total = sum(e[1] for e in entries)
    for _, size, folder in entries:
        if total <= limit():
            return
        if folder != keep:
            shutil.rmtree(folder, ignore_errors=True)
            total -= size


def _entries(base: Path) -> list[tuple[float, int, Path]]:
    """List (time of last use, bytes, folder) of every artefact."""
    found: list[tuple[float, int, Path]] = []
    for name in _ENTRIES:
        try:
            folders = [f for f in (base / name).iterdir() if f.is_dir() and not f.name.startswith(".")]
        except OSError:
            continue
        for folder in folders:
            try:
                used = folder.stat().st_mtime
                found.append((used, sum(f.stat().st_size for f in folder.iterdir()), folder))
            except OSError:
                continue
    return found


# --------------------------------------------------------------------------- hashes
def content_hash(file: DataFile, ranges: Sequence[tuple[int, int]] | None = None) -> str:
    """Compute the sha256 of a file or of parts of it, remembered by device, inode, size and times. Problem IRC1085."""
    key = file.identity if ranges is None else f"{file.identity}:{hashlib.sha256(repr(ranges).encode()).hexdigest()}"
    known = remembered(key)
    if not isinstance(known, str):
        known = file.digest(ranges)
        if file.newest < time.time_ns() - _SETTLED:
            remember(key, known)
    return known


def remembered(key: str) -> Any:
    """Return a small fact kept with the hashes; None if it is not known."""
    return _read_memo().get(key)


def remember(key: str, value: Any) -> None:
    """Keep a small JSON value for later processes."""
    memo = _read_memo()
    if memo.get(key) != value:
        memo[key] = value
        _write_memo(memo)


def _read_memo() -> dict[str, Any]:
    base = root(warn=False)
    try:
        found: Any = json.loads(read_regular(base / _MEMO, _LARGEST_MEMO)) if base else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _write_memo(memo: dict[str, Any]) -> None:
    base = root(warn=False)
    if base is None:
        return
    kept = dict(list(memo.items())[-_MEMO_LIMIT:])
    try:
        with replacing(base / _MEMO, private=True) as file:
            file.write(json.dumps(kept).encode())
    except OSError:
        return  # only a cache of hashes: the next process computes them again


@cache
def generator_hash() -> str:
    """Hash irc's own source: other code may generate another artefact."""
    base = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for path in sorted(p for p in base.rglob("*") if p.suffix in (".py", ".c", ".h", ".toml")):
        status = path.stat()
        digest.update(f"{path.relative_to(base)}:{status.st_size}:{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
