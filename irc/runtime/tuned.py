"""Choices of kernels that were measured on this machine, kept in the cache folder: work → name of the candidate.

A table is of one processor, target, compiler, number of threads and version of irc.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from irc.files import read_regular, replacing
from irc.runtime import cache
from irc.toolchain import c_compiler
from irc.toolchain.processor import model_name
from irc.version import VERSION

FOLDER = "tuned"
LARGEST = 1 << 26
"""Bytes of a table."""


def table_name(target: c_compiler.Target, compiler: c_compiler.Compiler, threads: int) -> str:
    """Name the table for code of this target, run here by this many threads."""
    parts = (model_name(), target, compiler, threads, VERSION)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def read(name: str) -> dict[str, str]:
    """Read a table; empty if there is none."""
    path = cache.location() / FOLDER / f"{name}.json"
    if not path.parent.is_dir() or cache.root() is None:
        return {}
    try:
        found: Any = json.loads(read_regular(path, LARGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(k): str(v) for k, v in cast("dict[Any, Any]", found).items()}


def write(name: str, table: Mapping[str, str]) -> Path | None:
    """Write a table in place of the former one. Returns its path, None if there is no cache folder. Raises OSError."""
    if cache.root() is None:
        return None
    target = cache.shared_folder(FOLDER) / f"{name}.json"
    with replacing(target, private=True) as file:
        file.write(json.dumps(dict(sorted(table.items())), indent=1).encode())
    return target
