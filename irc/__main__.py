"""The command `irc`, also `python -m irc`: quiet when interrupted, even while it is still importing."""

from __future__ import annotations

import signal
import sys
from importlib.machinery import ExtensionFileLoader
from types import FrameType

INTERRUPTED = 130
SOON = 0.01
"""Seconds until an interrupt is tried again."""


def main() -> int:
    """Run the command line of this process; the exit status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored
        signal.signal(signal.SIGINT, _interrupt)
        sys.unraisablehook = _unraisable
    try:
        from irc import cli

        return cli.main()
    except KeyboardInterrupt:
        return INTERRUPTED
    except RuntimeError as e:
        if isinstance(e.__cause__, KeyboardInterrupt):  # Python 3.11 makes this of it where a class is made
            return INTERRUPTED
        raise


def _interrupt(_: int, frame: FrameType | None) -> None:
    """KeyboardInterrupt; not while an extension module is loaded: NumPy's prints it and makes an ImportError of it."""
    if not (_loads_extension(frame) and _interrupt_soon()):
        raise KeyboardInterrupt


def _unraisable(what: sys.UnraisableHookArgs) -> None:
    """Report an exception that Python drops; an interrupt in a callback, as of an import's lock, is tried again."""
    if not (what.exc_type is KeyboardInterrupt and _interrupt_soon()):
        sys.__unraisablehook__(what)


def _interrupt_soon() -> bool:
    """Interrupt again in a moment; whether this system can."""
    if sys.platform == "win32":
        return False
    signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, SOON)
    return True


def _loads_extension(frame: FrameType | None) -> bool:
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), ExtensionFileLoader):
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    sys.exit(main())
