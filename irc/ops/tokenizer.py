# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false
"""Tokens of strings: ONNX Runtime's Tokenizer, as scikit-learn's converter writes it.

Source: ONNX Runtime, com.microsoft Tokenizer.
"""

from __future__ import annotations

import re
from re import _parser as syntax  # type: ignore[attr-defined]

import numpy as np

from irc.diagnostics import Problem, require
from irc.diagnostics.codes import operation as codes
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import TensorType, i64, string
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Int, Str, Strs
from irc.opdef.forms import MICROSOFT, Form
from irc.opdef.signature import Sig
from irc.ops.automaton import automaton
from irc.ops.texts import strings

NO, YES, NEVER = 0, 1, 2
"""What a state says: no match ends here, one does, none will."""


def width(pattern: str) -> tuple[int, int]:
    """Count the characters that a pattern matches, the fewest and the most."""
    least, most = syntax.parse(pattern, re.ASCII).getwidth()
    return int(least), int(most)


@op
class Tokenizer(Op):
    """The tokens of each string along a new last axis, with `pad_value` behind them.

    x: [strings] or [n, strings].  Tokens are the longest matches of `tokenexp`, or what stands between those of
    `separators`; a separator that is empty takes each character by itself.  Those of fewer than `mincharnum`
    characters are left out.
    """

    mincharnum: int
    pad_value: str
    mark: int = 0
    tokenexp: str = ""
    separators: tuple[str, ...] = ()
    sig = Sig("x: string[1..2] -> y: string")

    def decompose(self, b: Builder, x: Value) -> Value:
        facts = {"op": self.name, "attribute": "mark", "value": self.mark, "expected": "0 (no marks around the tokens)"}
        require(self.mark == 0, codes.ATTRIBUTE_RANGE, **facts)
        given = bool(self.tokenexp) + bool(self.separators)
        facts = {"op": self.name, "attribute": "separators", "given": len(self.separators)}
        require(given == 1, codes.ATTRIBUTE_LENGTH, **facts, needed="0 beside a tokenexp, 1 or more without one")
        if self.tokenexp in ("", ".") and self.separators in ((), ("",)):
            pattern, between = "(?s:.)", False
        else:
            pattern, between = self.tokenexp or "|".join(f"(?:{s})" for s in self.separators), bool(self.separators)
        tables = (b.graph.add_constant(part) for part in self._tables(pattern))
        pad = b.const([self.pad_value], string)
        return b.add_all(FindTokens(max(self.mincharnum, 0), between), x, *tables, pad)[0]

    def _tables(self, pattern: str) -> tuple[Array, Array, Array]:
        """Compile the pattern: the classes of characters, the next state by each, what a state says."""
        try:
            found = automaton(pattern, assertions=False)
            if len(self.separators) > 1 and any(width(s) != (1, 1) for s in self.separators):
                raise ValueError("of several separators, each must be one character")
        except (re.error, RecursionError, OverflowError, ValueError) as e:
            expected = "a regular expression without assertions that RE2 and Python's `re` read alike"
            facts = {"attribute": "tokenexp", "value": f"{pattern!r} ({e})", "expected": expected}
            raise Problem(codes.ATTRIBUTE_RANGE, op=self.name, **facts) from None
        stays = (found.steps == np.arange(len(found.steps))[:, None]).all(axis=1)
        says = np.where(found.accepts, YES, np.where(stays, NEVER, NO))
        return found.bounds, found.steps, says.astype(np.int32)

    onnx = (
        Form(
            "Tokenizer",
            1,
            attrs={"mark": Int(), "mincharnum": Int(), "pad_value": Str(), "tokenexp": Str(""), "separators": Strs(())},
            domain=MICROSOFT,
        ),
    )


@op
class FindTokens(Op):
    """What Tokenizer is compiled to: the longest matches of an automaton (`irc.ops.automaton`) in each string.

    between: what stands between them instead.  least: the fewest characters of a token.  says: of each state, whether a
    match ends there (1), or none will end from there on (2).  counts: the number of tokens of each string.
    """

    least: int
    between: bool = False
    sig = Sig("x: string, bounds: i32[1], steps: i32[2], says: i32[1], pad: string[1] -> y: string, counts: i64")

    def infer(self, x: Value, bounds: Value, steps: Value, says: Value, pad: Value) -> list[TensorType]:
        return [TensorType(string, (*x.shape, Dim.fresh("split"))), x.tensor.with_dtype(i64)]

    def reference(self, x: Array, bounds: Array, steps: Array, says: Array, pad: Array) -> tuple[Array, Array]:
        tokens = [self.tokens(word, bounds, steps, says) for word in x.reshape(-1)]
        most = max((len(t) for t in tokens), default=0)
        y = strings([word for t in tokens for word in [*t, *([pad[0]] * (most - len(t)))]], (*x.shape, most))
        return y, np.array([len(t) for t in tokens], np.int64).reshape(x.shape)

    def tokens(self, word: str, bounds: Array, steps: Array, says: Array) -> list[str]:
        """Find the tokens of one string."""
        found, at, start = list[str](), 0, 0
        while at < len(word):
            state, end = 0, at
            for k in range(at, len(word)):
                state = steps[state, np.searchsorted(bounds, ord(word[k]), side="right") - 1]
                if says[state] == 1:
                    end = k + 1
                elif says[state] == 2:
                    break
            if end > at:
                found.append(word[start:at] if self.between else word[at:end])
                start = end
            at = max(end, at + 1)
        if self.between:
            found.append(word[start:])
        return [token for token in found if len(token) >= max(self.least, 1)]
