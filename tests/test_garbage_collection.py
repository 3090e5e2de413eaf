"""Python's collector of garbage while models are read and compiled."""

from __future__ import annotations

import gc
from threading import Event, Thread

from irc.garbage_collection import collecting_rarely


def test_thresholds_are_those_of_before() -> None:
    """Also after blocks of other threads that end later."""
    before, begun, end = gc.get_threshold(), Event(), Event()

    def other() -> None:
        with collecting_rarely():
            begun.set()
            end.wait(60)

    thread = Thread(target=other)
    with collecting_rarely():
        thread.start()
        assert begun.wait(60) and gc.get_threshold()[0] > before[0]
    assert gc.get_threshold()[0] > before[0]
    end.set()
    thread.join()
    assert gc.get_threshold() == before


def test_collector_that_is_off_stays_off() -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(0)
        with collecting_rarely():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)
