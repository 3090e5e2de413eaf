"""Findings as text, JSON, SARIF 2.1.0 and GitHub annotations.

Every renderer takes findings and returns a string without a final newline; the same findings give the
same string.  Only text has colour, and only where the caller asks for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from irc.diagnostics.codes import find
from irc.diagnostics.finding import Diagnostic, Line, in_order, plain
from irc.diagnostics.json_text import JsonText
from irc.diagnostics.terminal import TerminalText, visible

_LINK = re.compile(r"\[(?=[^\[\]]*\]\()")
"""Where a link begins that viewers of SARIF would make of plain text."""


# ------------------------------------------------------------------------------- text
ALIKE, PLACES = 3, 3
"""Findings that say the same are folded from so many on; then so many further places are named."""
_FACT = re.compile(r'"[^"]*"|\b\d+\b')
_QUOTED = re.compile(r'"[^"]*"')


def render_text(found: Iterable[Diagnostic], color: bool = False, width: int | None = None) -> TerminalText:
    """The form for people: a headline, the place, the facts, a way out.

    Findings that differ in nothing but the place and what it is called are folded into the first of them, with their
    count; of warnings and notes, also those that differ in numbers.  Lines are broken between words where a width is
    given.
    """
    lines: list[Line] = []
    for group in _alike(found):
        first, *others = group
        places = ", ".join(d.location.where or d.place() for d in others[:PLACES])
        more = (f"{len(others)} more like this: {places}{', …' if len(others) > PLACES else ''}",) if others else ()
        lines += first.lines(more)
    if width is not None:
        lines = [part for line in lines for part in _broken(line, width)]
    if color:
        return TerminalText.styled(lines)
    return plain(lines)


def _alike(found: Iterable[Diagnostic]) -> list[list[Diagnostic]]:
    """The findings, those to be folded together, by their first places."""
    groups: dict[tuple[str, ...], list[Diagnostic]] = {}
    for d in found:
        facts = _QUOTED if d.severity == "error" else _FACT
        groups.setdefault((d.code, d.severity, d.location.file, facts.sub("", d.message)), []).append(d)
    shown = [g for group in groups.values() for g in ([group] if len(group) >= ALIKE else [[d] for d in group])]
    return sorted(shown, key=_order([group[0] for group in shown]))


def _order(firsts: list[Diagnostic]) -> Callable[[list[Diagnostic]], int]:
    places = {id(d): n for n, d in enumerate(in_order(firsts))}
    return lambda group: places[id(group[0])]


def _broken(line: Line, width: int) -> list[Line]:
    """A line in parts that fit, broken between words; later parts are indented.  Excerpts fit as they are."""
    if sum(len(text) for text, _ in line) <= width:
        return [line]
    parts: list[Line] = [[]]
    used = 0
    for text, style in line:
        for word in re.findall(r"\s*\S+|\s+$", text):
            if used + len(word) > width and used > len(_INDENT) and word[:1].isspace():
                parts.append([(_INDENT, "")])
                used, word = len(_INDENT), word.lstrip()
            parts[-1].append((word, style))
            used += len(word)
    return parts


_INDENT = "     "


def summary(found: Sequence[Diagnostic]) -> str:
    """`2 errors, 1 warning`; `no findings` if there is none."""
    counts = Counter(d.severity for d in found)
    said = [f"{counts[s]} {s}{'s' if counts[s] > 1 else ''}" for s in ("error", "warning", "note") if counts[s]]
    return ", ".join(said) or "no findings"


# ------------------------------------------------------------------------------- JSON
LONGEST_SOURCE = 1000
"""Characters of a line of the file that go into JSON and SARIF."""


def as_dict(d: Diagnostic) -> dict[str, Any]:
    """A finding as `schemas/diagnostics.schema.json` describes it."""
    spot = d.location.spot()
    line, column = (None, None) if spot is None else (spot.line, spot.column)
    place = {"file": d.location.file, "line": line, "column": column, "where": d.location.where}
    place["source"] = "" if spot is None else spot.text.strip()[:LONGEST_SOURCE]
    return {
        "code": d.code,
        "severity": d.severity,
        "message": d.message,
        "location": place,
        "notes": list(d.notes),
        "help": d.help,
    }


def render_json(found: Iterable[Diagnostic]) -> JsonText:
    return JsonText({"schema": 1, "diagnostics": [as_dict(d) for d in found]}, indent=2)


# ------------------------------------------------------------------------------ SARIF
_SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render_sarif(found: Iterable[Diagnostic]) -> JsonText:
    """SARIF 2.1.0: one run, a rule for each code that occurs."""
    results = list(found)
    ids = sorted({d.code for d in results})
    run = {
        "tool": {"driver": {"name": "irc", "version": _version(), "rules": [_rule(code) for code in ids]}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(d, ids.index(d.code)) for d in results],
    }
    return JsonText({"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule(id: str) -> dict[str, Any]:
    code = find(id)
    if code is None:
        return {"id": id}
    return {
        "id": id,
        "name": re.sub(r"[^A-Za-z0-9]", "", code.title.title()),
        "shortDescription": {"text": code.title},
        "fullDescription": {"text": code.why},
        "helpUri": _page(id),
        "help": {"text": code.fix},
        "defaultConfiguration": {"level": code.severity},
    }


def _result(d: Diagnostic, rule: int) -> dict[str, Any]:
    text = "\n".join(map(visible, [d.message, *d.notes, *([f"help: {d.help}"] if d.help else [])]))
    text = _LINK.sub(r"\\[", text)
    result: dict[str, Any] = {"ruleId": d.code, "ruleIndex": rule, "level": d.severity, "message": {"text": text}}
    location: dict[str, Any] = {}
    if d.location.file:
        physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(d.location.file)}}
        spot = d.location.spot()
        if spot is not None and spot.line:
            region: dict[str, Any] = {"startLine": spot.line}
            if spot.column:
                region |= {"startColumn": spot.column, "endColumn": spot.column + spot.width}
            if spot.text:
                region["snippet"] = {"text": visible(spot.text.strip()[:LONGEST_SOURCE])}
            physical["region"] = region
        location["physicalLocation"] = physical
    if d.location.where:
        location["logicalLocations"] = [{"fullyQualifiedName": d.location.where}]
    if location:
        result["locations"] = [location]
    return result


def _uri(file: str) -> str:
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix(), errors="surrogatepass")


@cache
def _pages() -> str:
    """The address of docs/diagnostics.md, where the distribution names one."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        urls = [entry.partition(", ") for entry in metadata("irc-compiler").get_all("Project-URL") or []]
    except PackageNotFoundError:
        return ""
    return next((url for label, _, url in urls if label == "Diagnostics"), "")


def _page(id: str) -> str:
    """The address of what `irc explain` prints; a name of it where the distribution has no address."""
    return f"{_pages()}#{id.lower()}" if _pages() else f"urn:irc-compiler:{id}"


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("irc-compiler")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "0"


# ----------------------------------------------------------------------------- GitHub
def render_github(found: Iterable[Diagnostic]) -> TerminalText:
    """Workflow commands: one line a finding, shown at its place in a pull request."""
    return TerminalText.lines(_annotation(d) for d in found)


def _annotation(d: Diagnostic) -> str:
    line, column = d.location.resolve()
    fields = {"file": d.location.file, "line": line, "col": column if line else None, "title": d.code}
    properties = ",".join(f"{k}={_property(str(v))}" for k, v in fields.items() if v)
    where = [f"at {d.location.where}"] if d.location.where else []
    text = "\n".join(map(visible, [d.message, *where, *d.notes, *([f"help: {d.help}"] if d.help else [])]))
    kind = "notice" if d.severity == "note" else d.severity
    return f"::{kind} {properties}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


RENDERERS: dict[str, Callable[[Iterable[Diagnostic]], TerminalText]] = {
    "text": render_text,
    "json": render_json,
    "sarif": render_sarif,
    "github": render_github,
}
