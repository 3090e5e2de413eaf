"""What a long computation is doing, for whoever wants to be told, and how long each step of it takes."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


@dataclass
class Timings:
    """Seconds of the steps of a computation, in order; of a step that comes again, the sum.

    parts: of steps whose parts run at the same time, the seconds of each part.
    """

    steps: dict[str, float] = field(default_factory=dict[str, float])
    parts: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    _step: str | None = None
    _since: float = 0.0

    def begin(self, step: str | None) -> None:
        """End the step that is under way, and begin another."""
        now = perf_counter()
        if self._step is not None:
            self.steps[self._step] = self.steps.get(self._step, 0.0) + now - self._since
        self._step, self._since = step, now


_timings: ContextVar[Timings | None] = ContextVar("timings", default=None)


@contextmanager
def timed() -> Generator[Timings]:
    """Measure the steps that begin inside the block; they are complete at its end."""
    timings = Timings()
    token = _timings.set(timings)
    try:
        yield timings
    finally:
        timings.begin(None)
        _timings.reset(token)


def step(name: str) -> None:
    """Begin a step that is measured; `tell` does so too."""
    timings = _timings.get()
    if timings is not None:
        timings.begin(name)


def part_took(name: str, part: str, seconds: float) -> None:
    """Note how long a part of a step took."""
    timings = _timings.get()
    if timings is not None:
        timings.parts.setdefault(name, {})[part] = seconds


def tell(what: str, measure: str | None = None) -> None:
    """Say what begins now: a step that is measured under its text, or goes on measuring the step `measure`."""
    step(what if measure is None else measure)
    listener = _listener.get()
    if listener is not None:
        listener(what)


@contextmanager
def told_to(listener: Callable[[str], None]) -> Generator[None]:
    """What is told inside the block goes to `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
