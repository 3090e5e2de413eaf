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
    try:
        from irc import cli

        return cli.main()
    except KeyboardInterrupt:
        return INTERRUPTED


def _interrupt(_: int, frame: FrameType | None) -> None:
    """KeyboardInterrupt; not while an extension module is loaded: NumPy's prints it and makes an ImportError of it."""
    if sys.platform != "win32" and _loads_extension(frame):
        signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, SOON)
    else:
        raise KeyboardInterrupt


def _loads_extension(frame: FrameType | None) -> bool:
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), ExtensionFileLoader):
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    sys.exit(main())
