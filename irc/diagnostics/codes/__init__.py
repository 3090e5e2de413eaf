"""Every code, one file per range; `find` looks one up, `all_codes` lists them in order.

1xxx container, 2xxx operation attribute and type, 3xxx shapes, 4xxx conversion, 5xxx lowering,
6xxx toolchain and run time, 9xxx our own bugs.
"""

from __future__ import annotations

import importlib
import pkgutil

from irc.diagnostics.code import Code


def all_codes() -> dict[str, Code]:
    found: dict[str, Code] = {}
    for info in pkgutil.iter_modules(__path__):
        for value in vars(importlib.import_module(f"{__name__}.{info.name}")).values():
            if isinstance(value, Code):
                assert found.setdefault(value.id, value) is value, f"{value.id} is declared twice"
    return dict(sorted(found.items()))


def find(code: str) -> Code | None:
    """The code of that id (`IRC3104`, `irc3104` or `3104`), or None."""
    text = code.upper().strip()
    return all_codes().get(text if text.startswith("IRC") else f"IRC{text}")
