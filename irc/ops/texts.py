"""Operations on strings: StringConcat, StringNormalizer, StringSplit, RegexFullMatch.

In C, `irc.layout.texts` puts functions over UTF-8 in their place (docs/adr/0023-strings.md).
Source: ONNX.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from irc.diagnostics import Problem, require
from irc.diagnostics.codes import operation as codes, shape as shape_codes
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import TensorType, boolean, i64, string
from irc.opdef.base import Array, Op, op
from irc.opdef.broadcasting import broadcast_shapes
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Enum, Int, Str, Strs
from irc.opdef.forms import Form
from irc.opdef.signature import Sig
from irc.ops.automaton import automaton
from irc.ops.find_keys import position_of


def strings(parts: Iterable[str], shape: tuple[int, ...]) -> Array:
    """Make an object array of strings."""
    y = np.empty(shape, object)
    y.reshape(-1)[:] = list(parts)
    return y


@op
class StringConcat(Op):
    """x with y behind it; the two broadcast."""

    sig = Sig("x: string, y: string -> z: string")

    def infer(self, x: Value, y: Value) -> TensorType:
        return TensorType(string, broadcast_shapes("StringConcat", [x.shape, y.shape]))

    def reference(self, x: Array, y: Array) -> Array:
        return np.asarray(np.asarray(x, object) + np.asarray(y, object), object)

    onnx = (Form("StringConcat", 20),)


def change_case(word: str, upper: bool) -> str:
    """Change letters of Latin, Greek and Cyrillic whose other case is one letter as long in UTF-8; leave all others."""
    found: list[str] = []
    for letter in word:
        other = letter.upper() if upper else letter.lower()
        same = len(other) == 1 and len(other.encode("utf-8", "replace")) == len(letter.encode("utf-8", "replace"))
        found.append(other if same and ord(letter) < 0x530 else letter)
    return "".join(found)


@op
class ChangeCase(Op):
    """What StringNormalizer is compiled to: words in upper or lower case, as far as `change_case` goes."""

    upper: bool
    sig = Sig("x: string -> y: string")

    def infer(self, x: Value) -> TensorType:
        return x.tensor

    def reference(self, x: Array) -> Array:
        return strings([change_case(word, self.upper) for word in x.reshape(-1)], x.shape)


@op
class StringNormalizer(Op):
    """The words that are none of the stopwords, in another case; one empty word if none is left.

    x: [words] or [1, words].
    """

    case_change_action: str = "NONE"
    is_case_sensitive: bool = False
    locale: str = ""
    stopwords: tuple[str, ...] = ()
    sig = Sig("x: string[1..2] -> y: string")

    def decompose(self, b: Builder, x: Value) -> Value:
        matrix = len(x.shape) == 2
        if matrix:
            facts = {"what": "axis 0 of a matrix of words", "value": x.shape[0], "expected": "1"}
            require(x.shape[0] == 1, shape_codes.SIZE_RANGE, op="StringNormalizer", **facts)
        words = b.Reshape(x, [-1]) if matrix else x
        upper = self.case_change_action == "UPPER"
        changed = words if self.case_change_action == "NONE" else b.ChangeCase(words, upper=upper)
        kept = self._kept(b, words, changed) if self.stopwords else changed
        y = self._at_least_one(b, kept)
        return b.Unsqueeze(y, [0]) if matrix else y

    def _kept(self, b: Builder, words: Value, changed: Value) -> Value:
        stopwords = list(self.stopwords)
        if not self.is_case_sensitive:
            upper = self.case_change_action == "UPPER"
            words = changed if self.case_change_action != "NONE" else b.ChangeCase(words, upper=False)
            stopwords = [change_case(w, upper) for w in stopwords]
        place = position_of(b, words, stopwords, string)
        kept = b.NonZero(b.Equal(place, b.const(len(stopwords))))
        return b.Gather(changed, b.Reshape(kept, [-1]), b.const(0))

    def _at_least_one(self, b: Builder, words: Value) -> Value:
        one = b.const([""], string)
        if words.shape[0].is_const:
            return words if int(words.shape[0]) else one
        count = b.Max(b.Shape(words), b.const([1]))
        return b.Slice(b.Concat(words, one, axis=0), [0], count, [0])

    onnx = (
        Form(
            "StringNormalizer",
            10,
            attrs={
                "case_change_action": Enum(("NONE", "LOWER", "UPPER"), "NONE"),
                "is_case_sensitive": Bool(False),
                "locale": Str(""),
                "stopwords": Strs(()),
            },
        ),
    )


SPACES = " \t\n\v\f\r"
"""What parts a string where no delimiter is given."""


def parts_of(word: str, delimiter: str, most: int | None) -> list[str]:
    """Split one string at most so many times."""
    if delimiter:
        return word.split(delimiter, -1 if most is None else most)
    found, rest = list[str](), word.lstrip(SPACES)
    while rest:
        if most is not None and len(found) >= most:
            return [*found, rest.rstrip(SPACES)]
        end = next((k for k, letter in enumerate(rest) if letter in SPACES), len(rest))
        found.append(rest[:end])
        rest = rest[end:].lstrip(SPACES)
    return found


@op
class StringSplit(Op):
    """The parts of strings between delimiters, with empty strings behind the last, and the numbers of parts.

    delimiter: empty stands for any run of ASCII's white space. maxsplit: how often a string is split at most.
    """

    delimiter: str = ""
    maxsplit: int | None = None
    sig = Sig("x: string -> y: string, counts: i64")

    def infer(self, x: Value) -> list[TensorType]:
        return [TensorType(string, (*x.shape, Dim.fresh("split"))), x.tensor.with_dtype(i64)]

    def reference(self, x: Array) -> tuple[Array, Array]:
        parts = [parts_of(word, self.delimiter, self.maxsplit) for word in x.reshape(-1)]
        most = max((len(p) for p in parts), default=0)
        y = strings([word for p in parts for word in [*p, *([""] * (most - len(p)))]], (*x.shape, most))
        return y, np.array([len(p) for p in parts], np.int64).reshape(x.shape)

    onnx = (Form("StringSplit", 20, attrs={"delimiter": Str(""), "maxsplit": Int(None, lo=0)}),)


@op
class RegexFullMatch(Op):
    """Whether the pattern, a regular expression of RE2, matches all of a string."""

    pattern: str = ""
    sig = Sig("x: string -> y: bool")

    def decompose(self, b: Builder, x: Value) -> Value:
        try:
            found = automaton(self.pattern)
        except (re.error, RecursionError, OverflowError, ValueError) as e:
            expected = "a regular expression that RE2 and Python's `re` read alike"
            facts = {"attribute": "pattern", "value": f"{self.pattern!r} ({e})", "expected": expected}
            raise Problem(codes.ATTRIBUTE_RANGE, op=self.name, **facts) from None
        parts = (found.bounds, found.steps, found.accepts)
        return b.RunAutomaton(x, *(b.graph.add_constant(part) for part in parts))

    onnx = (Form("RegexFullMatch", 20, attrs={"pattern": Str("")}),)


@op
class RunAutomaton(Op):
    """What RegexFullMatch is compiled to: whether an automaton (`irc.ops.automaton`) accepts each string."""

    sig = Sig("x: string, bounds: i32[1], steps: i32[2], accepts: bool[1] -> y: bool")

    def infer(self, x: Value, bounds: Value, steps: Value, accepts: Value) -> TensorType:
        return x.tensor.with_dtype(boolean)

    def reference(self, x: Array, bounds: Array, steps: Array, accepts: Array) -> Array:
        found: list[bool] = []
        for word in x.reshape(-1):
            state = 0
            for letter in word:
                state = steps[state, np.searchsorted(bounds, ord(letter), side="right") - 1]
            found.append(accepts[state])
        return np.array(found, bool).reshape(x.shape)
