"""Artefacts on disk: a folder with manifest.json, the generated code, weights and shared library.

manifest.json (format 1): name, backend ("c" or "numpy"), prefix of the C symbols, irc version, target,
precision, sha256 of the source model, inputs and outputs (`irc.runtime.ports.Port`), symbols, demands
(`irc.runtime.ports.SizeConstraint`), states, arena bytes, and size and sha256 of every file.  The sha256 guard
against damage, not malice: an artefact is code, so load only what you trust.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from irc.diagnostics.codes import runtime_io as codes
from irc.diagnostics.core import RunError
from irc.diagnostics.progress import step
from irc.files import open_regular, read_regular
from irc.runtime.errors import failure

FORMAT = 1
MANIFEST = "manifest.json"
WEIGHTS = "weights.bin"
LARGEST_MANIFEST = 64 << 20
MOST_FILES = 10_000
BLOCK = 2 << 20
"""Bytes that are written at once, from a multiple of them on: a file system that keeps them together in memory maps
them as one page, and weights behind pages of 4 KiB cost a decoder a twentieth of its time or more."""
_SHA256 = re.compile("[0-9a-f]{64}")
Content = str | bytes | Iterable[bytes | memoryview]


@dataclass
class Artifact:
    """An artefact's folder and its manifest."""

    folder: Path
    manifest: dict[str, Any]
    state: str | None = None  # state of the files when they were compared with the manifest (`irc.runtime.cache`)

    def path(self, name: str) -> Path:
        return self.folder / name

    @property
    def files(self) -> dict[str, dict[str, Any]]:
        return self.manifest["files"]


@dataclass
class Draft:
    """An artefact to be written: files and manifest; `finish(folder)` makes further files and returns their names.

    close: ends what was begun for `finish`, which may not have been called.
    """

    files: dict[str, Content]
    manifest: dict[str, Any]
    finish: Callable[[Path], list[str]] | None = None
    close: Callable[[], None] | None = None


def write_artifact(folder: str | Path, draft: Draft, mode: int = 0o777) -> Artifact:
    """Write an artefact; it appears under its name only when complete, and replaces one that was there.

    Files of the same names in an existing folder are replaced, others are left alone.  mode: the folder's permissions,
    less those of the umask.  Raises OSError.
    """
    target = Path(folder)
    with ExitStack() as at_the_end:
        if draft.close is not None:
            at_the_end.callback(draft.close)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = new_folder(target.parent, mode)
        at_the_end.callback(shutil.rmtree, temporary, ignore_errors=True)
        step("packing and writing weights")
        texts = [name for name, content in draft.files.items() if isinstance(content, str)]
        for name in texts:
            write_file(temporary / name, draft.files[name])
        data = {name: content for name, content in draft.files.items() if name not in texts}
        with ThreadPoolExecutor(max_workers=1) as beside:  # `finish` needs none of the data
            sums = beside.submit(copy_context().run, _write_all, temporary, data)
            step("finishing")
            more = draft.finish(temporary) if draft.finish else []
            step("packing and writing weights")  # what is left of it
            known = sums.result()
        step("finishing")
        made = seal(temporary, [*draft.files, *more], draft.manifest, known)
        publish(temporary, target)
        return Artifact(target, made)


def new_folder(parent: Path, mode: int = 0o777) -> Path:
    """Make a folder with an unpredictable name. Raises OSError."""
    made = parent / f".irc-{secrets.token_hex(8)}"
    made.mkdir(mode)
    return made


def _write_all(folder: Path, files: Mapping[str, Content]) -> dict[str, str]:
    """Write files.  Returns their sha256."""
    return {name: write_file(folder / name, content) for name, content in files.items()}


def write_file(path: Path, content: Content) -> str:
    """Write text, bytes or pieces of bytes.  Returns their sha256."""
    chunks = [content.encode()] if isinstance(content, str) else [content] if isinstance(content, bytes) else content
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        for block in _blocks(chunks):
            file.write(block)
            digest.update(block)
    return digest.hexdigest()


def _blocks(chunks: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Cut bytes into whole blocks, the last one shorter; what fills some by itself is not copied."""
    begun = bytearray()
    for chunk in chunks:
        left = memoryview(chunk)
        while left:
            if begun or len(left) < BLOCK:
                fits = BLOCK - len(begun)
                begun += left[:fits]
                left = left[fits:]
                if len(begun) == BLOCK:
                    yield bytes(begun)
                    begun.clear()
            else:
                whole = len(left) // BLOCK * BLOCK
                yield left[:whole]
                left = left[whole:]
    yield bytes(begun)


def seal(folder: Path, names: Iterable[str], manifest: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
    """Write manifest.json with size and sha256 of the named files; known: of some of them."""
    hashes = {name: known.get(name) or file_hash(folder / name) for name in sorted(names)}
    rows = {name: {"bytes": (folder / name).stat().st_size, "sha256": found} for name, found in hashes.items()}
    made = {"format": FORMAT, **manifest, "files": rows}
    write_file(folder / MANIFEST, json.dumps(made, indent=1) + "\n")
    return made


def publish(source: Path, target: Path) -> None:
    """Move a complete folder to its name, or its files into the folder that is there, the manifest last."""
    if not target.exists():
        os.rename(source, target)
        return
    for name in sorted(os.listdir(source), key=lambda n: n == MANIFEST):
        os.replace(source / name, target / name)


def copy_verified(artifact: Artifact, source: Path, target: Path) -> None:
    """Copy a file of an artefact. Raises RunError IRC6322 if it is not what the manifest says, OSError."""
    digest = hashlib.sha256()
    with os.fdopen(open_regular(source), "rb") as old, open(target, "xb") as new:
        while block := old.read(1 << 20):
            digest.update(block)
            new.write(block)
    row = artifact.files.get(source.name)
    if row is not None and digest.hexdigest() != row["sha256"]:
        raise damaged(artifact, f"the sha256 of {source.name} differs")


def remove_former(folder: Path, keep: Iterable[str]) -> None:
    """Remove the files of an artefact that is about to be replaced, except those that the new one has too.

    Files that no longer match the manifest are kept: somebody changed them.

    Only what is still as its manifest says: who changed a file keeps it.
    """
    try:
        former = read_artifact(folder, verify=False)
        for name in {*former.files}.difference(keep):
            path = folder / name
            if path.parent == folder and path.is_file() and file_hash(path) == former.files[name]["sha256"]:
                path.unlink()
    except (RunError, OSError, KeyError, TypeError, AttributeError):
        return  # not an artefact of ours, so no file of it is


def read_artifact(folder: str | Path, verify: bool = True) -> Artifact:
    """Open an artefact. RunError IRC6320..6322, 6324: it is none, of another format, damaged, or leads outside."""
    path = Path(folder)
    try:
        manifest = json.loads(read_regular(path / MANIFEST, LARGEST_MANIFEST).decode())
    except FileNotFoundError:
        reason = "it has no manifest.json" if path.is_dir() else "there is no such folder"
        raise failure(codes.NO_ARTEFACT, path=path, reason=reason) from None
    except NotADirectoryError:
        raise failure(codes.NO_ARTEFACT, path=path, reason="it is a file, not a folder") from None
    except (OSError, ValueError, RecursionError) as e:
        raise failure(codes.NO_ARTEFACT, path=path, reason=e) from e
    if not isinstance(manifest, dict) or "files" not in manifest:
        raise failure(codes.NO_ARTEFACT, path=path, reason="its manifest.json is not one of irc's")
    manifest = cast("dict[str, Any]", manifest)
    if manifest.get("format") != FORMAT:
        raise failure(codes.ARTEFACT_FORMAT, path=path, found=manifest.get("format"), wanted=FORMAT)
    found = Artifact(path, manifest)
    try:
        _check_names(found)
        if verify:
            check_files(found)
    except OSError as e:
        raise damaged(found, str(e)) from e
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise malformed(path, e) from e
    return found


def malformed(folder: Path, error: BaseException | str) -> RunError:
    """Make the RunError for a manifest with missing or malformed fields."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return failure(codes.NO_ARTEFACT, path=folder, reason=f"its manifest.json is not as irc writes it ({text[:200]})")


def damaged(artifact: Artifact, what: str) -> RunError:
    """Make the RunError for a file that is not what the manifest says."""
    return failure(codes.ARTEFACT_DAMAGED, path=artifact.folder, what=what)


def _check_names(artifact: Artifact) -> None:
    """Check that the manifest's files are rows of plain names in the folder. Raises RunError."""
    rows: Any = artifact.manifest["files"]
    if not isinstance(rows, dict) or len(cast("dict[str, Any]", rows)) > MOST_FILES:
        raise malformed(artifact.folder, '"files" is no table')
    root = os.path.realpath(artifact.folder)
    for name, row in cast("dict[str, Any]", rows).items():
        if not name or name in (".", "..") or set(name) & set("/\\\0") or (os.name == "nt" and ":" in name):
            raise failure(codes.ARTEFACT_OUTSIDE, path=artifact.folder, name=name, reason="which is no plain name")
        size, digest = row["bytes"], row["sha256"]
        if type(size) is not int or size < 0 or not isinstance(digest, str) or not _SHA256.fullmatch(digest):
            raise malformed(artifact.folder, f"the row of {name!r} in its files")
        path = artifact.path(name)
        if path.is_symlink() and os.path.dirname(os.path.realpath(path)) != root:
            raise failure(codes.ARTEFACT_OUTSIDE, path=artifact.folder, name=name, reason="a link that leads out of it")


def check_files(artifact: Artifact) -> None:
    """Compare size and sha256 of every file with the manifest; RunError IRC6322."""
    for name, row in artifact.files.items():
        path = artifact.path(name)
        if not path.is_file():
            raise damaged(artifact, f"{name} is missing" if not path.exists() else f"{name} is no regular file")
        size = path.stat().st_size
        if size != row["bytes"]:
            raise damaged(artifact, f"{name} has {size} bytes instead of {row['bytes']}")
        if file_hash(path) != row["sha256"]:
            raise damaged(artifact, f"the sha256 of {name} differs")


def file_hash(path: Path) -> str:
    """Compute the sha256 of a regular file, in hexadecimal. Raises OSError."""
    with os.fdopen(open_regular(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpack(files: Mapping[str, bytes], folder: Path) -> Artifact:
    """Write the files of a pickled artefact into a folder that is shared by all copies of one artefact."""
    if not (folder / MANIFEST).exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = new_folder(folder.parent, 0o700)
        try:
            for name, content in files.items():
                write_file(temporary / Path(name).name, content)
            publish(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return read_artifact(folder)
