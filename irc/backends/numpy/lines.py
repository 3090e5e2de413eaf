"""Lines of generated Python: at most 120 columns, without the parentheses that `ast.unparse` adds."""

from __future__ import annotations

import re

WIDTH = 120
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[][(){},]""")
"""Strings, brackets and commas."""
_COMMENT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|#""")
"""Strings, and the sign that begins a comment outside of them."""
_OPENING, _CLOSING = "([{", ")]}"
_TUPLE = re.compile(r"(\s*(?:return|[\w, *\[\].:]+ =)) \(")
_BEHIND = (" if ", " else ", " and ", " or ", " + ", " - ", " * ", " / ", " @ ")


def wrapped(text: str, indent: str = "") -> str:
    """Indent statements, and break long ones into several lines.

    Lines with comments or docstrings stay as they are: what a model calls its layers may look like code.
    """
    return "\n".join(part for line in text.split("\n") for part in _wrapped(line, indent))


def _wrapped(line: str, indent: str) -> list[str]:
    if line.lstrip().startswith('"""') or any(token[0] == "#" for token in _COMMENT.finditer(line)):
        return [(indent + line).rstrip()]
    return _line((indent + _plain(line)).rstrip())


def pairs(line: str) -> list[tuple[int, int]]:
    """Match brackets. Returns the places where they open and close, in the order they open.

    One that closes what an earlier line opened has no partner here.
    """
    found: dict[int, int] = {}
    waiting: list[int] = []
    for token in _TOKEN.finditer(line):
        if token[0] in _OPENING:
            waiting.append(token.start())
            found[token.start()] = -1
        elif token[0] in _CLOSING and waiting:
            found[waiting.pop()] = token.start()
    return list(found.items())


def split(text: str) -> list[str]:
    """Split what stands in brackets at its own commas, which the parts keep."""
    found: list[str] = []
    start = depth = 0
    for token in _TOKEN.finditer(text):
        if token[0] == "," and not depth:
            found.append(text[start : token.end()].strip())
            start = token.end()
        depth += (token[0] in _OPENING) - (token[0] in _CLOSING)
    rest = text[start:].strip()
    return [*found, rest] if rest else found


def _plain(line: str) -> str:
    """Remove parentheses around a tuple that is returned or assigned, and around a generator that is an argument."""
    if "(" not in line:
        return line
    head = _TUPLE.match(line)
    if head:
        start = head.end() - 1
        end = dict(pairs(line)).get(start)
        inner = line[start + 1 : end]
        if end == len(line) - 1 and len(split(inner)) > 1:
            line = line[:start] + inner
    if "((" in line:
        closed = dict(pairs(line))
        for start, end in reversed(pairs(line)):
            around = line[start - 1 : start] == "(" and closed.get(start - 1) == end + 1
            called = start > 1 and (line[start - 2].isalnum() or line[start - 2] == "_")
            if around and called and _loop_at(line[start + 1 : end]) is not None:
                return _plain(line[:start] + line[start + 1 : end] + line[end + 1 :])
    return line


def _line(line: str) -> list[str]:
    if len(line) <= WIDTH:
        return [line]
    margin = line[: len(line) - len(line.lstrip())]
    outer: list[tuple[int, int]] = []
    for start, end in pairs(line):
        if end > start + 1 and (not outer or start > outer[-1][1]):
            outer.append((start, end))
    for start, end in reversed(outer):
        if start < WIDTH and len(line) - end + len(margin) < WIDTH and end - start > len(line) // 3:
            return _broken(line, start, end, margin)
    if outer:
        start, end = max(outer, key=lambda p: p[1] - p[0])
        if end - start > len(line) // 4 and start < WIDTH:
            return _broken(line, start, end, margin)
    return _parenthesised(line, margin)


def _broken(line: str, start: int, end: int, margin: str) -> list[str]:
    """Put what stands in the brackets on lines of its own: one, if it fits, or one for each part."""
    inner = line[start + 1 : end]
    deeper = margin + "    "
    if len(deeper + inner) <= WIDTH:
        middle = [deeper + inner]
    elif _loop_at(inner) is not None:
        middle = _comprehension(inner, deeper)
    else:
        parts = split(inner)
        if len(parts) > 1:
            parts[-1] = parts[-1].rstrip(",") + ("" if parts[-1].startswith("**") else ",")
        middle = _filled(parts, deeper) if _short(parts) else [x for p in parts for x in _line(deeper + p)]
    return [line[: start + 1], *middle, *_line(margin + line[end:])]


def _short(parts: list[str]) -> bool:
    return len(parts) > 4 and all(len(p) < 30 for p in parts)


def _filled(parts: list[str], margin: str) -> list[str]:
    lines = [margin]
    for part in parts:
        if len(lines[-1]) + 1 + len(part) > WIDTH and lines[-1].strip():
            lines.append(margin)
        lines[-1] += part if not lines[-1].strip() else f" {part}"
    return lines


def _comprehension(text: str, margin: str) -> list[str]:
    """Break a comprehension in front of its `for`."""
    at = _loop_at(text) or 0
    return [*_line(margin + text[:at]), *_line(margin + text[at + 1 :])]


def _loop_at(text: str) -> int | None:
    """Find the `for` of a comprehension that is not itself inside brackets."""
    closed = dict(pairs(text))
    at = 0
    while at < len(text):
        if at in closed:
            at = closed[at]
        elif text.startswith(" for ", at):
            return at
        at += 1
    return None


def _parenthesised(line: str, margin: str) -> list[str]:
    """Parenthesise a value without brackets of its own, and break it at its operators."""
    head = re.match(r"\s*(return |[\w, ]+ [-+*/|&]?= )", line)
    if head is None:
        return [line]
    closed = dict(pairs(line))
    lines, start, at = [line[: head.end()] + "("], head.end(), head.end()
    deeper = margin + "    "
    while at < len(line):
        if at in closed:
            at = closed[at]
        word = next((w for w in _BEHIND if line.startswith(w, at)), None)
        if word and at > start and (word in (" if ", " else ") or at - start > 60):
            lines += _line(deeper + line[start:at].strip())
            start = at
        at += 1
    return [*lines, *_line(deeper + line[start:].strip()), f"{margin})"]
