"""Forms: how each version of each format spells an operation, one row each.

A row inherits from the previous row of the same name and domain what it does not restate, so it
shows what that version changed.  The row with the greatest `since <= opset` applies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from irc.ir.graph import Value
from irc.ir.types import DType
from irc.opdef.codecs import AsInput, Codec, Named
from irc.opdef.signature import Sig

TypeSet = frozenset[DType]

MICROSOFT = "com.microsoft"
"""The domain of ONNX Runtime's own operators.  The standard has no schemas of it: `tests/opdef/test_microsoft_forms.py`
holds its rows against those of ONNX Runtime."""


class Previous:
    """`PREV | {...}`: the previous row's types and these."""

    def __init__(self, more: frozenset[DType] = frozenset()) -> None:
        self.more = more

    def __or__(self, more: set[DType] | frozenset[DType]) -> Previous:
        return Previous(self.more | more)


PREV = Previous()
Types = frozenset[DType] | set[DType] | Previous
INHERIT: Any = Named("INHERIT")

Results = Value | Sequence[Value]
"""What a function that builds nodes returns: a result, or several."""


class Attributes(SimpleNamespace):
    """The decoded attributes of one node of a file, by the names of the operation's fields.

    Each has the type that its codec decodes to; which there are is for the row to say.
    """

    outputs: int
    """The number of outputs that the node has."""
    opset: int
    """The opset that the node is of."""


Read = Callable[..., Results]
"""read(b, a, *operands): builds the canonical nodes for one node of the file.
`b` is a Builder, `a` its `Attributes`, operands are Values (None: absent)."""

Write = Callable[..., Results]
"""write(b, op, *operands): says the operation in other canonical operations that
this format can write; raises Declined (or Problem IRC4xxx, to say why) if it cannot."""


class Declined(Exception):
    """A `write` has no other words for this instance: the finding names the version that can say it, if any."""


@dataclass(frozen=True)
class Form:
    """One row.

    attrs: file attribute → codec.  T: types of the signature's variables in this version (a set means
    variable "T", or the only one).  sig: the file's operands where they differ from the operation's
    (with fewer or other optional ones).  read/write: functions for what codecs cannot say.
    order: the canonical position of each operand of the file, where they stand in another order.
    when(op, *operands): whether this row can express that instance at all (besides what follows
    from the codecs: a field without codec must have its default value).  judges: fields without codec
    that `when` decides on and `read` sets.  A row with an empty name only lends its `write`.
    """

    name: str
    since: int
    attrs: Mapping[str, Codec] = INHERIT
    T: Types | Mapping[str, Types] = INHERIT
    sig: Sig | None = INHERIT
    read: Read | None = INHERIT
    write: Write | None = INHERIT
    direct: bool = INHERIT
    order: tuple[int, ...] | None = INHERIT
    when: Callable[..., bool] | None = INHERIT
    judges: tuple[str, ...] = INHERIT
    domain: str = ""
    types: Mapping[str, TypeSet] = field(default_factory=dict[str, TypeSet])  # resolved T
    last: int | None = None  # last opset that has it (removed afterwards)

    def canonical(self, operands: Sequence[Any]) -> list[Any]:
        """The file's operands in the order of the operation's."""
        if self.order is None:
            return list(operands)
        found: list[Any] = [None] * (max(self.order[: len(operands)], default=-1) + 1)
        for position, operand in zip(self.order, operands, strict=False):
            found[position] = operand
        return found

    def filed(self, operands: Sequence[Any]) -> list[Any]:
        """The operation's operands in the order of the file's."""
        if self.order is None:
            return list(operands)
        found = [operands[k] if k < len(operands) else None for k in self.order]
        while found and found[-1] is None:
            found.pop()
        return found

    def as_inputs(self) -> dict[int, tuple[str, AsInput]]:
        """The attributes of this row that are constant operands of the canonical operation, by position."""
        return {c.index: (name, c) for name, c in self.attrs.items() if isinstance(c, AsInput)}


def _resolve_types(row: Form, before: Mapping[str, TypeSet], sig: Sig) -> dict[str, TypeSet]:
    if row.T is INHERIT:
        return dict(before)
    only = "T" if "T" in sig.variables or not sig.variables else next(iter(sig.variables))
    given = row.T if isinstance(row.T, Mapping) else {only: row.T}
    found = dict(before)
    for name, types in given.items():
        base: TypeSet = before.get(name, frozenset()) if isinstance(types, Previous) else frozenset()
        found[name] = base | (types.more if isinstance(types, Previous) else frozenset(types))
    return found


def write_only(write: Write, since: int = 1) -> Form:
    """A row for a format that has no such operation: says how to write it in others."""
    return Form("", since, direct=False, write=write)


def resolve(rows: Sequence[Form], sig: Sig) -> tuple[Form, ...]:
    """Fill every row with what it inherits; rows come back in the order given."""
    last: dict[tuple[str, str], Form] = {}
    found: list[Form] = []
    none: dict[str, Any] = {"sig": None, "read": None, "write": None, "order": None, "when": None, "judges": ()}
    blank = Form("", 0, attrs={}, T=frozenset(), direct=True, **none)
    for row in rows:
        before = last.get((row.domain, row.name), blank)
        ordered = row.since > before.since or before is blank or not row.name
        assert ordered, f"{row.name}-{row.since} is out of order"
        inherited = {
            key: getattr(before, key)
            for key in ("attrs", "sig", "read", "write", "order", "when", "judges")
            if getattr(row, key) is INHERIT
        }
        if row.direct is INHERIT:
            inherited["direct"] = before.direct if row.read is INHERIT else row.read is None
        full = replace(row, **inherited, types=_resolve_types(row, before.types, sig))
        last[row.domain, row.name] = full
        found.append(full)
    return tuple(found)
