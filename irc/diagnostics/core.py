"""What operations and passes raise, and the sink that collects findings."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from itertools import islice
from typing import Protocol, cast

from irc.diagnostics.code import Code
from irc.diagnostics.codes import internal
from irc.diagnostics.finding import NOWHERE, Diagnostic, Loc, in_order
from irc.diagnostics.terminal import visible

Facts = dict[str, object]
"""Facts of a finding, by the names in its templates; any value that can be formatted."""

GUESSES, LONGEST_GUESS, GUESSED_AMONG = 20, 100, 5000
"""Findings of a stage that say what was probably meant, characters of a word, and words that it is compared with."""


class IrcError(Exception):
    """Something irc refuses to do; `.diagnostics` lists every finding."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        self.diagnostics = list(diagnostics)
        super().__init__(diagnostics)

    def __str__(self) -> str:
        errors = [d for d in self.diagnostics if d.severity == "error"] or self.diagnostics
        first = f"{errors[0].code}: {errors[0].message}" if errors else type(self).__name__
        where = f" ({errors[0].location.where})" if errors and errors[0].location.where else ""
        return visible(first + where) + (f" (and {len(errors) - 1} more)" if len(errors) > 1 else "")


class InvalidModel(IrcError):
    """The model is wrong, or cannot be read (1xxx, 2xxx, 3xxx)."""


class ConversionError(IrcError):
    """The target format, version or opset cannot express the model (4xxx)."""


class CompileError(IrcError):
    """The model cannot be compiled for this target (5xxx, 6xxx)."""


class RunError(IrcError):
    """A compiled model could not be loaded or run (6xxx)."""


class Problem(Exception):
    """What operation code raises: a code and its facts, no location.  The engine adds the place."""

    def __init__(self, code: Code, notes: tuple[str, ...] = (), /, **facts: object) -> None:
        self.code, self.notes, self.facts = code, notes, facts
        self.meant: object = None  # of an attribute that is misspelt: the value that was probably meant
        super().__init__(fill(code.message, facts))


_NUMBERED = re.compile(r'"[^"]*"|(?<![\w?])[\w.:/-]*\?\d{1,18}\b', re.ASCII)
"""Names that irc makes up for sizes which the file leaves open, and what stands in quotes, which is the user's."""


def fill(template: str, facts: Mapping[str, object]) -> str:
    """The template with the facts in it; a size that the file leaves open is `?`, as there."""
    text = template.format_map(_Missing({k: as_written(v) for k, v in facts.items()}))
    return open_sizes(text) if "?" in text else text


def open_sizes(text: str) -> str:
    """The text with `?` for every name that irc made up for a size."""
    return _NUMBERED.sub(lambda found: found[0] if found[0].startswith('"') else "?", text)


def as_written(fact: object) -> object:
    """A fact as findings show it: types and sizes as the file has them."""
    said = getattr(fact, "as_written", None)
    return said() if callable(said) else fact


class _Missing(dict[str, object]):
    def __missing__(self, key: str) -> str:
        return f"<{key}>"


class Undecided(Protocol):
    """What may depend on sizes that only a run tells: a relation of `irc.ir.relation`."""

    def decide(self) -> bool | None:
        """Whether it holds; None where only a run tells."""
        ...


recorder: ContextVar[Callable[[Undecided, Code, Facts], None] | None] = ContextVar("recorder", default=None)
"""What `require` hands a relation that cannot be decided; see `irc.ir.relation.recording`."""


def require(condition: bool | Undecided, code: Code, **facts: object) -> None:
    """Raise `Problem(code)` unless the condition holds.  What only a run can tell is recorded, to be checked then."""
    if condition is True:
        return
    relation = cast("Undecided | None", condition if hasattr(condition, "decide") else None)
    holds = bool(condition) if relation is None else relation.decide()
    if holds is False:
        raise Problem(code, **facts)
    if holds is None and relation is not None and (note := recorder.get()) is not None:
        note(relation, code, facts)


def made(code: Code, loc: Loc, notes: tuple[str, ...], facts: Mapping[str, object]) -> Diagnostic:
    """The finding of a code with these facts; the attribute that they name is what is meant at the place."""
    part = next((str(facts[k]) if k == "attribute" else k for k in ("attribute", "axis") if k in facts), "")
    if part and not loc.part:
        loc = replace(loc, part=part)
    return Diagnostic(code.id, code.severity, fill(code.message, facts), loc, notes, fill(code.help, facts))


class Sink:
    """Collects findings, so that a stage reports every mistake at once."""

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []
        self._seen: set[tuple[str, str, str, str]] = set()
        self._guesses = 0
        self.error_count = 0

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self.diagnostics)

    def report(self, code: Code, loc: Loc = NOWHERE, notes: tuple[str, ...] = (), /, **facts: object) -> None:
        self.add(made(code, loc, notes, facts))

    def add(self, found: Diagnostic) -> None:
        key = (found.code, found.message, found.location.file, found.location.where)
        if key not in self._seen:
            self._seen.add(key)
            self.diagnostics.append(found)
            self.error_count += found.severity == "error"

    def crash(self, error: Exception, loc: Loc = NOWHERE, notes: tuple[str, ...] = ()) -> None:
        """Report an exception nobody foresaw (IRC9002); IRC_TRACEBACK=1 prints where it happened."""
        if os.environ.get("IRC_TRACEBACK"):
            traceback.print_exception(error)
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        self.report(internal.CRASH, loc, notes, what=what)

    def nearest(self, word: str, words: Iterable[str]) -> str | None:
        """The word that was probably meant, for the first findings: each takes time, and one shows the mistake."""
        self._guesses += 1
        if self._guesses > GUESSES or len(word) > LONGEST_GUESS:
            return None
        import difflib

        alike = (w for w in words if abs(len(w) - len(word)) <= 0.5 * len(word) + 1)
        return next(iter(difflib.get_close_matches(word, islice(alike, GUESSED_AMONG), 1)), None)

    @contextmanager
    def catching(self, loc: Loc, notes: tuple[str, ...] = ()) -> Iterator[None]:
        """Report what is raised inside at `loc`, and go on: a Problem, or what nobody foresaw.

        Findings of an inner stage and errors of the system (a file that is gone) are raised on.
        """
        try:
            yield
        except Problem as p:
            self.report(p.code, loc, p.notes + notes, **p.facts)
        except (IrcError, OSError):
            raise
        except Exception as e:
            self.crash(e, loc, notes)

    @property
    def errors(self) -> list[Diagnostic]:
        return [d for d in self.diagnostics if d.severity == "error"]

    def stop_on_errors(self, error: type[IrcError] = InvalidModel) -> None:
        """The end of a stage: raise with everything found so far if any of it is an error."""
        if self.errors:
            raise error(in_order(self.diagnostics))
