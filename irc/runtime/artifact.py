"""What is on disk: a folder with manifest.json, the generated code, weights and shared library.

manifest.json (format 1): name, backend ("c" or "numpy"), prefix of the C symbols, irc version, target,
precision, sha256 of the source model, inputs and outputs (`irc.runtime.ports.Port`), symbols, demands
(`irc.runtime.ports.Demand`), states, arena bytes, and size and sha256 of every file.  The sha256 guard
against damage, not malice: an artefact is code, so load only what you trust.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from irc.diagnostics.codes import runtime_io as codes
from irc.diagnostics.core import RunError
from irc.runtime.errors import failure

FORMAT = 1
MANIFEST = "manifest.json"
Content = str | bytes | Iterable[bytes | memoryview]


@dataclass
class Artifact:
    """An artefact's folder and its manifest."""

    folder: Path
    manifest: dict[str, Any]

    def path(self, name: str) -> Path:
        return self.folder / name

    @property
    def files(self) -> dict[str, dict[str, Any]]:
        return self.manifest["files"]


@dataclass
class Draft:
    """An artefact to be: its files and manifest; `finish(folder)` makes further files and returns their names."""

    files: dict[str, Content]
    manifest: dict[str, Any]
    finish: Callable[[Path], list[str]] | None = None


def write_artifact(folder: str | Path, draft: Draft) -> Artifact:
    """Write an artefact; it appears under its name only when complete, in place of one that was there.

    Files of the same names in an existing folder are replaced, others are left alone.  Raises OSError.
    """
    target = Path(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        for name, content in draft.files.items():
            write_file(temporary / name, content)
        more = draft.finish(temporary) if draft.finish else []
        made = seal(temporary, [*draft.files, *more], draft.manifest)
        publish(temporary, target)
        return Artifact(target, made)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_file(path: Path, content: Content) -> None:
    """Write text, bytes or pieces of bytes."""
    chunks = [content.encode()] if isinstance(content, str) else [content] if isinstance(content, bytes) else content
    with open(path, "wb") as file:
        for chunk in chunks:
            file.write(chunk)


def seal(folder: Path, names: Iterable[str], manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Write manifest.json with size and sha256 of the named files."""
    rows = {n: {"bytes": (folder / n).stat().st_size, "sha256": file_hash(folder / n)} for n in sorted(names)}
    made = {"format": FORMAT, **manifest, "files": rows}
    write_file(folder / MANIFEST, json.dumps(made, indent=1) + "\n")
    return made


def publish(source: Path, target: Path) -> None:
    """Move a complete folder to its name."""
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(source, 0o777 & ~mask)
    if not target.exists():
        os.rename(source, target)
        return
    entries = sorted(os.listdir(source), key=lambda n: n == MANIFEST)  # the manifest last
    for name in entries:
        os.replace(source / name, target / name)


def remove_former(folder: Path, keep: Iterable[str]) -> None:
    """Remove the files of an artefact that is about to be replaced, but for those that the new one has too.

    Only what is still as its manifest says: who changed a file keeps it.
    """
    try:
        former = read_artifact(folder, verify=False)
        for name in {*former.files}.difference(keep):
            path = folder / name
            if path.parent == folder and path.is_file() and file_hash(path) == former.files[name]["sha256"]:
                path.unlink()
    except (RunError, OSError, KeyError, TypeError, AttributeError):
        return  # no artefact of ours: nothing of it is


def read_artifact(folder: str | Path, verify: bool = True) -> Artifact:
    """Open an artefact.  RunError IRC6320..6322 where it is none, of another format, or damaged."""
    path = Path(folder)
    try:
        manifest = json.loads((path / MANIFEST).read_text("utf-8"))
    except FileNotFoundError:
        reason = "it has no manifest.json" if path.is_dir() else "there is no such folder"
        raise failure(codes.NO_ARTEFACT, path=path, reason=reason) from None
    except NotADirectoryError:
        raise failure(codes.NO_ARTEFACT, path=path, reason="it is a file, not a folder") from None
    except (OSError, ValueError) as e:
        raise failure(codes.NO_ARTEFACT, path=path, reason=e) from e
    if not isinstance(manifest, dict) or "files" not in manifest:
        raise failure(codes.NO_ARTEFACT, path=path, reason="its manifest.json is not one of irc's")
    manifest = cast("dict[str, Any]", manifest)
    if manifest.get("format") != FORMAT:
        raise failure(codes.ARTEFACT_FORMAT, path=path, found=manifest.get("format"), wanted=FORMAT)
    found = Artifact(path, manifest)
    if verify:
        try:
            check_files(found)
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise malformed(path, e) from e
    return found


def malformed(folder: Path, error: Exception) -> Exception:
    """The RunError for a manifest that lacks something or has something else in its place."""
    reason = f"its manifest.json is not as irc writes it ({type(error).__name__}: {error})"
    return failure(codes.NO_ARTEFACT, path=folder, reason=reason)


def check_files(artifact: Artifact) -> None:
    """Compare size and sha256 of every file with the manifest; RunError IRC6322."""
    for name, row in artifact.files.items():
        path = artifact.path(name)
        if not path.is_file():
            raise failure(codes.ARTEFACT_DAMAGED, path=artifact.folder, what=f"{name} is missing")
        size = path.stat().st_size
        if size != row["bytes"]:
            what = f"{name} has {size} bytes instead of {row['bytes']}"
            raise failure(codes.ARTEFACT_DAMAGED, path=artifact.folder, what=what)
        if file_hash(path) != row["sha256"]:
            raise failure(codes.ARTEFACT_DAMAGED, path=artifact.folder, what=f"the sha256 of {name} differs")


def file_hash(path: Path) -> str:
    """sha256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpack(files: Mapping[str, bytes], folder: Path) -> Artifact:
    """Write the files of a pickled artefact into a folder that is shared by all copies of one artefact."""
    if not (folder / MANIFEST).exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            for name, content in files.items():
                write_file(temporary / name, content)
            publish(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return read_artifact(folder)
