"""The import name: another project on the package index, a client of Internet Relay Chat, is a package `irc` as well.

Where both are installed, the files of one stand among those of the other, and neither works.
"""

from __future__ import annotations

import os

THEIRS = ("client.py", "events.py", "modes.py")
"""Files of the other project that irc has none of."""


def require_own_folder() -> None:
    """Refuse a folder that holds the other project's files, too.  Raises ImportError, which says the way out."""
    folder = os.path.dirname(os.path.abspath(__file__))
    if found := [name for name in THEIRS if os.path.exists(os.path.join(folder, name))]:
        raise ImportError(
            f"{folder} holds files of two projects: irc-compiler, and the project called irc on the package index "
            f"({', '.join(found)}). They cannot be installed in one environment: make another, or "
            "`pip uninstall irc irc-compiler` and install the one that you need"
        )
