"""What a protobuf message says beyond the fields that irc's classes hold.

Writing starts from a copy of the residue, so that fields irc has no place for (device
configurations, annotations) and scalars set to their default (a name that is present but "")
come back as they were.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from google.protobuf.message import Message

M = TypeVar("M", bound=Message)
SCALAR = (str, bytes, int, float)


def residue(message: M, mapped: Collection[str]) -> M | None:
    """A copy of the fields that are not in `mapped`, and of mapped scalars that are set but empty."""
    kept = type(message)()
    for field, value in message.ListFields():
        if field.name in mapped and (value or not isinstance(value, SCALAR)):
            continue
        if isinstance(value, Message):
            getattr(kept, field.name).CopyFrom(value)
        elif isinstance(value, SCALAR):
            setattr(kept, field.name, value)
        else:
            getattr(kept, field.name).extend(value)
    return kept if kept.ListFields() else None


def restore(kind: type[M], kept: object) -> M:
    """A new message, starting from a residue where there is one."""
    message = kind()
    if isinstance(kept, kind):
        message.CopyFrom(kept)
    return message
