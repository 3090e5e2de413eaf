"""What a long computation is doing, for whoever wants to be told."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


def tell(step: str) -> None:
    """Say what begins now."""
    listener = _listener.get()
    if listener is not None:
        listener(step)


@contextmanager
def told_to(listener: Callable[[str], None]) -> Generator[None]:
    """What is told inside the block goes to `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
