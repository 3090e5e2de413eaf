"""Constants of templates: what they make of the text around them.

A number that a template is filled with stands between marks until the whole text is there.  Where it counts or decides
nothing (a factor 1, a summand 0, a condition that is known) what it belongs to is written without it; the template's
own numbers, and those of text that it is given, stay as they are.
"""

from __future__ import annotations

import re
from functools import lru_cache

_MARKED = re.compile("\x02(\\d+)\x03")
_ONE, _ZERO = (rf"(?<![\w.])\x02{n}\x03(?![\w.])" for n in "10")
_NUMBER = r"(?<![\w.])\x02(\d+)\x03(?![\w.])"
_ATOM = r"(?:\x02\d+\x03|(?:\w|->|\.|\[\w+\])+)"
_BEGIN = r"(?:(?<=[(!])|(?<=&& )|(?<=[^<>=!]= )|(?<=; ))"  # of a condition
_1, _0 = "\x021\x03", "\x020\x03"
_RULES = tuple(
    (needed, re.compile(pattern), instead)
    for needed, pattern, instead in (  # patterns take long to find nothing: first what each of them contains
        (f") / {_1}", rf"\((-?{_ATOM}) \+ {_ONE} - 1\) / {_ONE}", r"\1"),  # quotients by 1, rounded up
        (f") / {_1}", rf"\(([^()]*) \+ {_ONE} - 1\) / {_ONE}", r"(\1)"),
        (f") / {_1}", rf"\(([^()]*) - 1\) / {_ONE} \+ 1(?= :|[,;)])", r"\1"),
        (f" % {_1}", rf"(?<![\w>.\]])(?<![/%] ){_ATOM}(?: [*/%] {_ATOM})* % {_ONE}", _0),
        (_1, rf" [*/] {_ONE}", ""),
        (f"{_1} * ", rf"(?<![/%] ){_ONE} \* ", ""),
        (f"{_0} * ", rf"{_ZERO}(?: \* {_ATOM})+", _0),
        (f" * {_0}", rf"(?<![\w>.\]])(?<![/%] ){_ATOM}(?: \* {_ATOM})* \* {_ZERO}", _0),
        (_0, rf" [-+] {_ZERO}(?! [*/%])", ""),
        (f"{_0} + ", rf"(?<![*/%-] ){_ZERO} \+ ", ""),
        (f"!{_1}", rf"!{_ONE}", _0),
        (f"!{_0}", rf"!{_ZERO}", _1),
        (f" || {_1}", rf"\([^()]* \|\| {_ONE}\)", _1),
        (f" || {_0}", rf"\((!?\w+) \|\| {_ZERO}\)", r"\1"),
        (f"{_1} && ", rf"{_BEGIN}{_ONE} && ", ""),
        (f" && {_1}", rf" && {_ONE}(?= &&|\)|;)", ""),
        (f"{_1} ? ", rf"{_BEGIN}{_ONE} \? (.*?) : [^,;]*(?=[,;])", r"\1"),
        (f"{_0} ? ", rf"{_BEGIN}{_ZERO} \? .*? : ([^,;]*)(?=[,;])", r"\1"),
    )
)
_LAST = re.compile(r"(\[|: )\x02(\d+)\x03 - 1(?=\])")
_SUM = re.compile(rf"\((?<=[*/] \(){_NUMBER} \+ (?:{_NUMBER}|1)\)")
_DEAD = re.compile(
    rf"(?:^ *IRC_FULL_UNROLL\n)?^ *(?:if \({_ZERO}(?=\)| &&)|for \([^;]*; (?:{_ZERO} &&|\w+ < {_ZERO};))", re.M
)

_UNUSED = re.compile(r"^ *\(void\)\w+(?:, \(void\)\w+)*;\n", re.M)


def marked(value: object) -> str:
    """Spell a value that a template is filled with; a number between marks."""
    return f"\x02{int(value)}\x03" if isinstance(value, int) and value >= 0 else str(value)


@lru_cache(maxsize=1024)  # tiles of a size and what kernels share are printed for each kernel
def folded(text: str) -> str:
    """Write a text with marked numbers without those that change nothing, and without marks."""
    before = ""
    while text != before:
        before = text
        for needed, pattern, instead in _RULES:
            if needed in text:
                text = pattern.sub(instead, text)
        if "\x03 - 1]" in text:
            text = _LAST.sub(lambda found: found[1] + marked(int(found[2]) - 1), text)
        if "\x03 + " in text:
            text = _SUM.sub(_summed, text)
    while _0 in text and (dead := _DEAD.search(text)):
        text = text[: dead.start()] + text[_end_of_statement(text, text.index("(", dead.start())) :]
    plain = _MARKED.sub(r"\1", text)
    return _UNUSED.sub(lambda found: _unused(found, plain), plain)


def _unused(found: re.Match[str], text: str) -> str:
    """Rewrite a statement that says what is not used: only names stay that nothing else in the block reads."""
    indent = found[0][: len(found[0]) - len(found[0].lstrip())]
    block = text[found.end() :].partition(f"\n{indent[4:]}}}\n")[0]
    names = [name for name in re.findall(r"\(void\)(\w+)", found[0]) if not re.search(rf"\b{name}\b", block)]
    return f"{indent}{', '.join(f'(void){name}' for name in names)};\n" if names else ""


def _summed(found: re.Match[str]) -> str:
    """Add two numbers, the second of which may be the template's own 1."""
    return marked(int(found[1]) + int(found[2] or 1))


def _end_of_statement(text: str, condition: int) -> int:
    """Find the end of the line on which a statement ends whose condition begins there; it has no `else`."""
    depth, at = 0, condition
    while depth or at == condition or text[at] not in ";}":
        depth += (text[at] in "({") - (text[at] in ")}")
        at += 1
        if depth == 0 and text[at - 1] == "}":
            break
    return text.index("\n", at) + 1
