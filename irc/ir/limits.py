"""How much a model may ask for: limits that are checked before work is done, in one place.

A file of a few bytes can describe more than any machine holds.  What is beyond a limit is a finding (IRC3301) at the
node that asks for it; what irc does to make a model faster, as folding constants, just stops there.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from irc.diagnostics import Problem
from irc.diagnostics.codes import shape as codes


@dataclass(frozen=True)
class Limit:
    """The largest number of something, what it is called in findings, and why it is that large."""

    what: str
    most: int
    why: str

    def check(self, value: int, op: str = "irc") -> None:
        """Raise Problem IRC3301 for a value beyond the limit."""
        if value > self.most:
            raise Problem(codes.BEYOND_LIMIT, op=op, what=self.what, value=short(value), limit=self.most)


RANK = Limit("the number of axes", 64, "NumPy arrays have no more")
RESULTS = Limit("the number of results", 1 << 16, "far more than operations of known models have")
ELEMENTS = Limit(
    "the number of elements of an operand that says axes, sizes or positions",
    1 << 20,
    "each becomes a Python number; models list the axes of a tensor there, or the parts of a Split",
)
SIZE_PARTS = Limit(
    "the number of symbols and functions in the formula of a size",
    2048,
    "a size is printed, compared and computed whole; sizes of models have a few dozen",
)
SIZE_PRODUCTS = Limit(
    "the number of products that multiplying two sizes takes", 1 << 14, "beyond, the result could not stay small"
)
SIZE_DEPTH = Limit(
    "the number of functions inside each other in the formula of a size",
    48,
    "they are walked by recursion; rounding divisions of divisions become one",
)
SIZE_BITS = Limit(
    "the number of bits of a number in the formula of a size", 64 * RANK.most, "the elements of a tensor of most axes"
)
EXPANSION = Limit(
    "the number of nodes that calls of functions expand to",
    20_000,
    "the largest exported networks have a few thousand nodes; see also EXPANSION_FACTOR",
)
DERIVATIVES = Limit(
    "the number of nodes that gradients bring a graph to",
    30_000,
    "a gradient has a few nodes for each that it differentiates; gradients of gradients of … grow exponentially",
)
TAPS = Limit(
    "the number of elements that an antialiasing kernel reaches along an axis",
    1 << 14,
    "each is added by an expression of its own; images shrink to a hundredth",
)
CALLS = Limit("the number of functions that call each other", 64, "calls are expanded by recursion")
EXPANSION_FACTOR = 4
"""A model of more nodes may also expand to this many times as many as it has."""
LARGEST_SIZE = 1 << 62
"""No axis of an array in memory is longer: what follows from that is taken for certain."""

CONSTANT_MEMORY = 1 << 28
"""Bytes of the constants that irc makes when compiling where small ones grow, unless `max_memory` says otherwise."""
RUN_MEMORY = 1 << 36
"""Bytes of a run whose sizes are known when compiling, unless `max_memory` says otherwise."""
_memory: ContextVar[int | None] = ContextVar("memory", default=None)


def constant_memory() -> int:
    """Bytes of the constants that may be made."""
    most = _memory.get()
    return CONSTANT_MEMORY if most is None else most


def run_memory() -> int:
    """Bytes that a run may take."""
    most = _memory.get()
    return RUN_MEMORY if most is None else most


@contextmanager
def max_memory(most: int | None) -> Generator[None]:
    """Inside, that many bytes are the limit of both; None: what they are without it."""
    token = _memory.set(most)
    try:
        yield
    finally:
        _memory.reset(token)


def short(number: int) -> str:
    """A number for a message: long ones as a power of two."""
    return str(number) if number.bit_length() <= 64 else f"about 2^{number.bit_length() - 1}"
