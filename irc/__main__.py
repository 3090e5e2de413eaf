"""The command `irc`, also `python -m irc`: quiet when interrupted, even while it is still importing."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> int:
    """Run the command line of this process; the exit status."""
    try:
        from irc import cli

        return cli.main()
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
