"""Write `exceptions.txt` anew, from the root of the project.

python -m tests.conformance.rewrite            runs the whole suite
python -m tests.conformance.rewrite listed     runs what is listed, after operators were added
"""

from __future__ import annotations

import sys

from irc import backend as backends
from tests.conformance.listing import HEADER, LIST, rows
from tests.conformance.suite import outcome, suite


def main(arguments: list[str]) -> None:
    before = rows() if LIST.exists() else []
    known = {(what, case): reason for _, what, case, reason in before if what != "refused"}
    names = {case for _, _, case, _ in before}
    lines: list[str] = []
    for case in suite():
        if "listed" in arguments and case.name not in names:
            continue
        found = {name: outcome(case, getattr(backends, name)) for name in ("numpy", "c")}
        if found["numpy"][0] == found["c"][0]:
            found = {"both": found["c"]}
        for backend, (what, said) in found.items():
            if what:
                reason = known.get((what, case.name)) or said or "not looked into yet"
                lines.append(f"{backend} {what} {case.name} {reason}")
    LIST.write_text(HEADER + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
