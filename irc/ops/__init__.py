"""Operations, one family per file.  Importing a family registers its operations; `irc.opdef.base.load_all`
imports them all.  `base` says what an operation is, `forms` what a version is, `codecs` what an attribute is.

`irc.ops.Name` is the operation of that name, whichever family it is in: `irc.ops.Relu()`, `irc.ops.Softmax(axis=1)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from irc.opdef.base import Op


def __getattr__(name: str) -> type[Op]:
    """The operation of that name.  Raises AttributeError."""
    if name[:1].isupper():
        from irc.opdef.registry import OPS, load_all

        load_all()
        if name in OPS:
            return OPS[name]
    raise AttributeError(f"module 'irc.ops' has no attribute {name!r}")


def __dir__() -> list[str]:
    from irc.opdef.registry import OPS, load_all

    load_all()
    return sorted(OPS)
