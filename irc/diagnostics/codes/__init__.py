"""Every code, one file per range; `find` looks one up, `all_codes` lists them in order.

1xxx container, 2xxx operation attribute and type, 3xxx shapes, 4xxx conversion, 5xxx lowering,
6xxx toolchain and run time, 9xxx our own bugs.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache

from irc.diagnostics.code import Code


def all_codes() -> dict[str, Code]:
    found: dict[str, Code] = {}
    for _, code in _declared():
        assert found.setdefault(code.id, code) is code, f"{code.id} is declared twice"
    return dict(sorted(found.items()))


@cache
def name_of(code: Code) -> str:
    """Give the name that a code is declared by."""
    return next(name for name, declared in _declared() if declared is code)


def _declared() -> Iterator[tuple[str, Code]]:
    for info in pkgutil.iter_modules(__path__):
        declared = vars(importlib.import_module(f"{__name__}.{info.name}"))
        yield from ((name, value) for name, value in declared.items() if isinstance(value, Code))


def find(code: str) -> Code | None:
    """The code of that id (`IRC3104`, `irc3104` or `3104`), or None."""
    text = code.upper().strip()
    return all_codes().get(text if text.startswith("IRC") else f"IRC{text}")
