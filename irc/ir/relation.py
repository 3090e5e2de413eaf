"""Relations of sizes: what an operation demands of its operands' sizes, and the record of what only a run can tell.

`same`, `at_most`, `multiple`, `broadcasts`, `any_of` and `every` make them; `irc.diagnostics.require` takes them.
What is certain when a relation is made is left out, so that `decide()` of what is left depends on symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from irc.diagnostics.core import Code, Facts, Undecided, fill, recorder
from irc.ir.dim import Dim, DimLike, Symbol


@dataclass(frozen=True)
class Comparison:
    """a == b or a <= b."""

    op: Literal["==", "<="]
    a: Dim
    b: Dim

    def decide(self) -> bool | None:
        """Whether it holds; None where that depends on the symbols."""
        return self.a.equals(self.b) if self.op == "==" else self.a.at_most(self.b)

    def dims(self) -> Iterator[Dim]:
        """The sizes compared."""
        yield from (self.a, self.b)

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it holds for these values of all symbols."""
        try:
            a, b = self.a.evaluate(values), self.b.evaluate(values)
        except ZeroDivisionError:
            return False
        return a == b if self.op == "==" else a <= b

    def subs(self, values: Mapping[str, DimLike]) -> Comparison | Joined:
        """The relation with symbols replaced."""
        return _compared(self.op, self.a.subs(values), self.b.subs(values))

    def text(self, dim: Callable[[Dim], str], words: Mapping[str, str], negated: bool = False) -> str:
        """The relation, or its negation, in a language that has these `words` for `and` and `or`."""
        sign = {"==": "!=", "<=": ">"}[self.op] if negated else self.op
        return f"{dim(self.a)} {sign} {dim(self.b)}"


@dataclass(frozen=True)
class Joined:
    """All of the parts, or any of them; without parts, what always or never holds."""

    op: Literal["and", "or"]
    parts: tuple[Comparison | Joined, ...]

    def decide(self) -> bool | None:
        """Whether it holds; None where that depends on the symbols."""
        found = {p.decide() for p in self.parts}
        strong = self.op == "or"
        return strong if strong in found else None if None in found else not strong

    def dims(self) -> Iterator[Dim]:
        """The sizes compared."""
        for part in self.parts:
            yield from part.dims()

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it holds for these values of all symbols."""
        return (all if self.op == "and" else any)(p.holds(values) for p in self.parts)

    def subs(self, values: Mapping[str, DimLike]) -> Comparison | Joined:
        """The relation with symbols replaced."""
        return _joined(self.op, [p.subs(values) for p in self.parts])

    def text(self, dim: Callable[[Dim], str], words: Mapping[str, str], negated: bool = False) -> str:
        """The relation, or its negation, in a language that has these `words` for `and` and `or`."""
        word = words[{"and": "or", "or": "and"}[self.op] if negated else self.op]
        inner = [(p, p.text(dim, words, negated)) for p in self.parts]
        return f" {word} ".join(f"({t})" if isinstance(p, Joined) else t for p, t in inner)


# --------------------------------------------------------------------------------- making
def same(a: DimLike, b: DimLike) -> Comparison | Joined:
    """a == b"""
    return _compared("==", Dim.of(a), Dim.of(b))


def at_most(a: DimLike, b: DimLike) -> Comparison | Joined:
    """a <= b"""
    return _compared("<=", Dim.of(a), Dim.of(b))


def multiple(a: DimLike, n: DimLike) -> Comparison | Joined:
    """a is a multiple of n, which is not 0."""
    return every(at_most(1, n), same(Dim.of(a) % n, 0)) if Dim.of(n) != 0 else any_of()


def broadcasts(a: DimLike, b: DimLike) -> Comparison | Joined:
    """NumPy's rule: a == b, or one of them is 1.  A 0 beside a 1 that may be another size is refused: the size of the
    result is their maximum there."""
    a, b = Dim.of(a), Dim.of(b)
    if a.is_const or b.is_const:
        return any_of(same(a, b), same(a, 1), same(b, 1))
    return any_of(same(a, b), every(same(a, 1), at_most(1, b)), every(same(b, 1), at_most(1, a)))


def stretches(a: DimLike, full: DimLike) -> Comparison | Joined:
    """a == full, or a is 1: what broadcasts to `full`."""
    return any_of(same(a, full), same(a, 1))


def stretches_to(shape: Sequence[Dim], wanted: Sequence[Dim]) -> Comparison | Joined:
    """A shape broadcasts to another one, and not the other way round."""
    missing = len(wanted) - len(shape)
    return every(*map(stretches, shape, wanted[missing:])) if missing >= 0 else any_of()


def any_of(*parts: Comparison | Joined) -> Comparison | Joined:
    """At least one of the parts; without parts, what never holds."""
    return _joined("or", parts)


def every(*parts: Comparison | Joined) -> Comparison | Joined:
    """Every part; without parts, what always holds."""
    return _joined("and", parts)


def _compared(op: Literal["==", "<="], a: Dim, b: Dim) -> Comparison | Joined:
    found = Comparison(op, a, b)
    known = found.decide()
    return found if known is None else Joined("and" if known else "or", ())


def _joined(op: Literal["and", "or"], parts: Iterable[Comparison | Joined]) -> Comparison | Joined:
    """The parts without those that change nothing, those of the same kind taken apart."""
    strong, kept = op == "or", dict[Comparison | Joined, None]()
    for part in parts:
        known = part.decide()
        if known is strong:
            return Joined("or" if not strong else "and", ())
        if known is None:
            inner = part.parts if isinstance(part, Joined) and part.op == op else (part,)
            kept |= dict.fromkeys(inner)
    return next(iter(kept)) if len(kept) == 1 else Joined(op, tuple(kept))


# ------------------------------------------------------------------------------ recording
@dataclass(frozen=True)
class SizeConstraint:
    """A relation that must hold when the model runs: the code of its violation, the text with the symbols in the
    place of their values, and the operation's place in the model."""

    relation: Comparison | Joined
    code: Code
    message: str
    where: str = ""

    def symbols(self) -> list[Symbol]:
        """The symbols that decide it, in the order of their names."""
        return sorted({s for d in self.relation.dims() for s in d.symbols()})


@contextmanager
def recording() -> Iterator[list[SizeConstraint]]:
    """Collect what `require` cannot decide inside."""
    found: list[SizeConstraint] = []

    def note(relation: Undecided, code: Code, facts: Facts) -> None:
        assert isinstance(relation, Comparison | Joined)
        found.append(SizeConstraint(relation, code, fill(code.message, facts)))

    token = recorder.set(note)
    try:
        yield found
    finally:
        recorder.reset(token)
