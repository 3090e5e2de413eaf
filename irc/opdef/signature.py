"""Signatures: an operation's operands and results with their type variables.

    Sig("x: T, axes?: i64[0..1] -> y: T", T=NUMERIC)
    Sig("*xs: T[r>=1] -> y: T", T=ANY)                any number of operands, of one rank
    Sig("x: T, split?: I[1] -> *ys: T", T=ANY, I={i32, i64})

`name?` may be absent, `*name` repeats.  A type is a type variable (a set, bound to one element type
per call), an element type's irc name, or `any` for values that need not be tensors.  Ranks that an
operand may have stand behind it: `[1]`, `[0..1]`, `[>=2]`; `[one]` is a scalar or a vector of one
element.  Ranks of one name, `[r]`, `[r>=1]` or `[r=3..4]`, are equal.  What is not known passes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from irc.diagnostics import Facts, Problem, require
from irc.diagnostics.codes import operation as codes, shape as shape_codes
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import DTYPES, DType, TensorType, dynamic

TypeSet = frozenset[DType]


@dataclass(frozen=True)
class Rank:
    """The ranks an operand may have: `lo` to `hi` (None: any from there), and the variable that stands for it.

    single: with one element.
    """

    lo: int = 0
    hi: int | None = None
    variable: str = ""
    single: bool = False

    def __contains__(self, rank: int) -> bool:
        return self.lo <= rank and (self.hi is None or rank <= self.hi)

    def __str__(self) -> str:
        if self.single:
            return "0, or 1 with one element"
        if self.hi is None:
            return f"at least {self.lo}"
        between = " or " if self.hi == self.lo + 1 else ".."
        return str(self.lo) if self.lo == self.hi else f"{self.lo}{between}{self.hi}"


@dataclass(frozen=True)
class Param:
    """One operand or result of a signature."""

    name: str
    type: str
    optional: bool = False
    variadic: bool = False
    rank: Rank = Rank()


_PARAM = re.compile(
    r"(?P<variadic>\*?)(?P<name>\w+)(?P<optional>\??): (?P<type>\w+)"
    r"(?:\[(?:(?P<single>one)|(?P<variable>[a-z]?)=?(?:(?P<lo>\d+)(?:\.\.(?P<hi>\d+))?|>=(?P<least>\d+))?)\])?"
)


def _params(text: str) -> tuple[Param, ...]:
    found: list[Param] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        m = _PARAM.fullmatch(part)
        assert m is not None, f"{part!r} is no operand"
        hi = "1" if m["single"] else m["hi"] or m["lo"]
        lo, single = int(m["lo"] or m["least"] or 0), bool(m["single"])
        rank = Rank(lo, None if hi is None else int(hi), m["variable"] or "", single)
        found.append(Param(m["name"], m["type"], bool(m["optional"]), bool(m["variadic"]), rank))
    return tuple(found)


class Sig:
    """Operands, results, and what each type variable may be."""

    def __init__(self, text: str, **variables: frozenset[DType] | set[DType]) -> None:
        self.text = text
        ins, _, outs = text.partition("->")
        self.inputs, self.outputs = _params(ins), _params(outs)
        self.variables: dict[str, TypeSet] = {k: frozenset(v) for k, v in variables.items()}

    def __repr__(self) -> str:
        return f"Sig({self.text!r})"

    @cached_property
    def min_inputs(self) -> int:
        return len([p for p in self.inputs if not p.optional and not p.variadic])

    @cached_property
    def max_inputs(self) -> int | None:
        return None if any(p.variadic for p in self.inputs) else len(self.inputs)

    @cached_property
    def operands(self) -> str:
        """The operands' names as messages list them: `x, y, bias (optional)`."""
        return ", ".join(p.name + " (optional)" * p.optional + " (any number)" * p.variadic for p in self.inputs)

    def param(self, index: int) -> Param:
        """The parameter that operand `index` belongs to; a variadic one takes the rest."""
        return self.inputs[min(index, len(self.inputs) - 1)]

    def allowed(self, param: Param, variables: Mapping[str, TypeSet] | None = None) -> TypeSet | None:
        """The element types a parameter may have; None: anything."""
        if param.type == "any":
            return None
        if param.type in DTYPES:
            return frozenset({DTYPES[param.type]})
        return (variables or {}).get(param.type) or self.variables.get(param.type)

    def check(
        self, op: str, inputs: Sequence[Value | None], variables: Mapping[str, TypeSet] | None = None
    ) -> dict[str, DType]:
        """Check number, element types and ranks of operands; the binding of each type variable.

        Raises Problem IRC2101..2105, IRC3105, IRC3111.  `variables` narrows type variables (a form's own types).
        """
        given, least, most = len(inputs), self.min_inputs, self.max_inputs
        if given < least:
            raise Problem(codes.TOO_FEW_INPUTS, op=op, given=given, operands=self.operands, needed=least)
        if most is not None and given > most:
            raise Problem(codes.TOO_MANY_INPUTS, op=op, given=given, operands=self.operands, most=most)
        bound: dict[str, tuple[DType, str]] = {}  # and the operand that bound it
        ranks: dict[str, tuple[Value, str]] = {}
        for i, value in enumerate(inputs):
            param = self.param(i)
            if value is None:
                require(param.optional, codes.MISSING_OPERAND, op=op, operand=param.name, index=i)
            elif isinstance(value.type, TensorType):
                if value.dtype != dynamic:
                    self._check_one(op, param, value, bound, variables)
                _check_rank(op, param, value, ranks)
            else:
                tensor = param.type == "any"
                require(tensor, codes.TYPE_NOT_ALLOWED, op=op, operand=param.name, dtype=value.type, allowed="tensors")
        return {name: dtype for name, (dtype, _) in bound.items()}

    def _check_one(
        self,
        op: str,
        param: Param,
        value: Value,
        bound: dict[str, tuple[DType, str]],
        variables: Mapping[str, TypeSet] | None,
    ) -> None:
        allowed = self.allowed(param, variables)
        if allowed is not None and value.dtype not in allowed:
            names = ", ".join(d.name for d in DTYPES.values() if d in allowed)
            raise Problem(codes.TYPE_NOT_ALLOWED, op=op, operand=param.name, dtype=value.dtype, allowed=names)
        if param.type in self.variables:
            first, other = bound.setdefault(param.type, (value.dtype, param.name))
            require(
                first == value.dtype,
                codes.TYPE_MISMATCH,
                op=op,
                operand=param.name,
                dtype=value.dtype,
                other=other,
                first=first,
            )


def _check_rank(op: str, param: Param, value: Value, ranks: dict[str, tuple[Value, str]]) -> None:
    """Check an operand's rank by itself, and against that of the first one with the same variable."""
    allowed, rank = param.rank, value.rank
    if rank is None:
        return
    if rank not in allowed or allowed.single:
        facts: Facts = {"op": op, "operand": param.name, "type": value.type, "expected": str(allowed)}
        require(rank in allowed, shape_codes.WRONG_RANK, **facts)
        require(same(value.tensor.elements(), 1), shape_codes.WRONG_RANK, **facts)
    if allowed.variable:
        first, other = ranks.setdefault(allowed.variable, (value, param.name))
        require(
            first.rank == rank,
            shape_codes.RANKS_DIFFER,
            op=op,
            operand=param.name,
            type=value.type,
            other=other,
            first=first.type,
        )
