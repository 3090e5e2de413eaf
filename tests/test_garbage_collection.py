"""Python's collector of garbage while models are read and compiled."""

from __future__ import annotations

import gc
from threading import Event, Thread
from weakref import ref

from irc.garbage_collection import collect_youngest, collecting_rarely


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
            circle = _circle()
            collect_youngest()
            assert circle() is not None
    finally:
        gc.set_threshold(*before)


def test_circles_are_collected_before_the_end_of_the_block() -> None:
    with collecting_rarely():
        circle = _circle()
        assert circle() is not None
        collect_youngest()
        assert circle() is None


def _circle() -> ref[Event]:
    """Make an object that only it itself refers to."""
    one = Event()
    one.__dict__["itself"] = one
    return ref(one)
