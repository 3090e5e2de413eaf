"""A process that work is done in, so that whoever asks survives its crash."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


class Died(Exception):
    """The process ended before it answered."""


class OwnProcess:
    """A process that does one call after the other; it is started anew for the first call after it died."""

    def __init__(self) -> None:
        self._answers: Connection | None = None

    def call(self, function: Callable[..., Any], *given: Any) -> Any:
        """Do this there and return what came out.  Died; exceptions are written to stderr, and the process ends."""
        if self._answers is None:
            context = multiprocessing.get_context("spawn")  # a fork has the threads' locks without the threads
            self._answers, theirs = context.Pipe()
            context.Process(target=_serve, args=(theirs,), daemon=True).start()
            theirs.close()
        try:
            self._answers.send((function, given))
            return self._answers.recv()
        except (EOFError, OSError):
            self._answers.close()
            self._answers = None
            raise Died from None


def _serve(asked: Connection) -> None:
    """Do what is asked for until nobody is there to ask."""
    while True:
        try:
            function, given = asked.recv()
        except EOFError:
            return
        asked.send(function(*given))
