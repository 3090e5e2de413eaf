"""`Kernel`, the base of kernels, and how one is called.

One kernel is one class in one file: which problem it solves (`problem`), its variants for a problem (`candidates`) and
what each costs (`cycles`), the sizes of a call (`arguments`), how constants are packed (`packed`), what it computes in
NumPy (`compute`), which operands may be stored as bf16, and its C (`source`).  `irc.kernels.core.registry` finds the
classes by importing the folder, and selects the cheapest candidate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from irc.arrays import Array
from irc.expr import Expr, Operand, index
from irc.ir.dim import Dim
from irc.ir.types import DType
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import Problem
from irc.kernels.core.text import Part, standalone
from irc.kernels.core.workspace import FIELDS, UNKNOWN

Sizes = Mapping[str, Dim]
"""The values of a kernel's sizes in a call, by name."""
Call = tuple[str, Sequence[str], str]
"""A call in C: its beginning, what stands between commas, and its end."""
P = TypeVar("P", bound=Problem)
RESIDUALS = 2
"""Operands of a kernel before those of its epilogue: input and weights."""
RESULT_STRIDES = frozenset(("c_batch0", "c_batch1", "c_row", "y_batch", "y_pixel"))


@dataclass(frozen=True)
class Packed:
    """A constant operand in a kernel's packing.

    key: equal for equal packings of the same constant.  elements: of the packed array, of type `dtype`.
    pack: takes the constant in the shape that the problem states, gives the packed one, flat.
    """

    key: tuple[object, ...]
    dtype: DType
    elements: int
    pack: Callable[[Array], Array]


class Kernel(Generic[P]):
    """Base of kernels: a C function of the thread pool and a struct of arguments, pointers and then int64_t sizes."""

    problem: ClassVar[type[Problem]]

    # -------------------------------------------------------------------------- selection
    @classmethod
    def candidates(cls, problem: P, isa: Isa) -> Iterable[Self]:
        """Yield the variants that solve the problem on an instruction set; none if the kernel cannot."""
        raise NotImplementedError

    def cycles(self, problem: P) -> float:
        """Estimate the cycles of one core for a call, by `irc.kernels.core.costs`, unknown sizes by `likely`."""
        raise NotImplementedError

    def imbalance(self, problem: P) -> float:
        """Estimate how many times as long as half of the work the longer share of two threads takes: 1 to 2."""
        return 1.0

    @classmethod
    def best(cls, problem: P, isa: Isa) -> Self | None:
        """Select the cheapest variant of this kernel; None if there is none."""
        return min(cls.candidates(problem, isa), key=lambda k: k.cycles(problem), default=None)

    @property
    def label(self) -> str:
        """The name of the variant among the candidates of a problem; the same in every run."""
        raise NotImplementedError

    def joined(self, other: Kernel[Any]) -> Self | None:
        """Make the kernel that does what this one and another do, for little more code than one; None if none does.

        It takes the same operands, sizes and memory, and computes the same bits.
        """
        return None

    # ------------------------------------------------------------------------------- call
    def arguments_for(self, problem: P) -> dict[str, Dim]:
        """Return the sizes of the call by name; `order` has defaults for those left out."""
        raise NotImplementedError

    def scratch(self, problem: P) -> Dim:
        """Count the bytes of scratch memory of the call."""
        return Dim.of(0)

    def own_bytes(self, sizes: Mapping[str, int]) -> int:
        """Count the bytes that each of the parts of a call needs for itself which threads run beside each other.

        See `irc.kernels.core.workspace`.  sizes: of the call, `UNKNOWN` where they are known only in a run.
        """
        return 0

    @property
    def has_workspaces(self) -> bool:
        """Whether parts of a call need any memory for themselves."""
        return self.own_bytes(defaultdict(lambda: UNKNOWN)) > 0

    def packed(self, problem: P) -> Packed | None:
        """Describe the packing of the constant operand; None for a kernel or a problem without one."""
        return None

    @property
    def takes_narrow(self) -> bool:
        """Whether that packing is made of the numbers, scales and zero points of the file, not of floats."""
        return False

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        """Compute in NumPy what a call does: the oracle of interpreted programs and tests.

        Arrays are flat and start where the kernel's pointers point.
        """
        raise NotImplementedError

    # ---------------------------------------------------------------------------- storage
    def overwrites(self, sizes: Mapping[str, Expr]) -> frozenset[int]:
        """List the operands, in the order of the call, in whose memory the result of a call with these sizes may be.

        Of such an operand each element is read once, before the result's is written there.
        """
        return frozenset()

    @property
    def keeps_elements(self) -> bool:
        """Whether results are elements of the input, so that both are stored alike."""
        return False

    def reads_bf16(self, operand: int) -> bool:
        """Tell whether a variant reads this operand, of those in the order of the call, stored as bf16."""
        return False

    def writes_bf16(self, sizes: Mapping[str, Expr]) -> bool:
        """Tell whether a variant stores the result of a call with these sizes as bf16."""
        return False

    def with_bf16(self, operands: frozenset[int], result: bool) -> Self:
        """Make the variant that reads these operands, and writes the result if `result`, stored as bf16.

        A kernel with such variants has the fields `x_bf16` and `y_bf16`; its epilogue has `bf16_slots` for residuals.
        """
        changes: dict[str, Any] = {"x_bf16": True} if 0 in operands else {}
        if result:
            changes["y_bf16"] = True
        if residuals := frozenset(i - RESIDUALS for i in operands if i):
            epilogue: Any = vars(self)["epilogue"]
            changes["epilogue"] = replace(epilogue, bf16_slots=residuals)
        return replace(cast("Any", self), **changes) if changes else self

    # ---------------------------------------------------------------------------------- C
    @property
    def symbol(self) -> str:
        """The C name: equal for equal text."""
        raise NotImplementedError

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        """Name and C type of the pointers in the order of the call: read, written, scratch."""
        raise NotImplementedError

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the int64_t arguments, in order; strides of memory are in elements."""
        raise NotImplementedError

    @property
    def result_strides(self) -> tuple[str, ...]:
        """The sizes that are strides of the result, if all are of rows of its last axis; else none."""
        return tuple(n for n in self.sizes if n in RESULT_STRIDES) if {"c_row", "y_pixel"} & {*self.sizes} else ()

    def flops(self, sizes: Sizes) -> Dim:
        """Count the floating-point operations of a call as the definition has them, without epilogue."""
        raise NotImplementedError

    @property
    def executed(self) -> float:
        """Operations that the processor executes for each of `flops`."""
        return 1.0

    def parts(self) -> list[Part]:
        """Print its definitions, and list the pieces that it shares with other kernels; needs the type irc_pool."""
        raise NotImplementedError

    @property
    def summary(self) -> str:
        """What it computes, in one line for the reader of the generated code."""
        raise NotImplementedError

    @property
    def description(self) -> list[str]:
        """Lines for the reader of the generated code: the summary, and the formula of the epilogue if there is one."""
        epilogue: Epilogue | None = getattr(self, "epilogue", None)
        return [self.summary, *([] if epilogue is None else epilogue.described())]

    def source(self) -> str:
        """Print its declaration and all of its definitions; they need the type irc_pool.

        They may share a file with other kernels' sources.
        """
        return self.declaration() + standalone(self.parts())

    @property
    def features(self) -> frozenset[str]:
        """What the processor must have beyond the vectors it is made for, in the names of /proc/cpuinfo."""
        return frozenset()

    @property
    def arguments(self) -> tuple[tuple[str, str], ...]:
        """Name and C type of every argument, the fields of `SYMBOL_args` in order."""
        own = FIELDS if self.has_workspaces else ()
        return (*self.pointers, *((n, "int64_t ") for n in self.sizes), *own)

    @property
    def interface(self) -> dict[str, str]:
        """Give what templates of entry functions refer to.

        parameters: those of the function; a NULL pool means one thread.  fields: of `SYMBOL_args`, also for a struct
        that has more of them.  assigned: initialisers of such a struct.
        """
        return {
            "parameters": f"const irc_pool *pool, const {self.symbol}_args *g",
            "fields": "".join(f"\n    {line}" for line in _fields(self.arguments)),
            "assigned": ", ".join(f".{n} = g->{n}" for n, _ in self.arguments),
        }

    def call(self, values: Sequence[str], pool: str = "pool") -> Call:
        """Print the C call with these pointers and sizes, for the threads of a pool."""
        return call(self.symbol, pool, dict(zip((n for n, _ in self.arguments), values, strict=True)))

    def declaration(self) -> str:
        """Print the struct of arguments and the prototype."""
        s, text = self.symbol, self.interface
        return f"typedef struct {{{text['fields']}\n}} {s}_args;\nvoid {s}({text['parameters']});\n"

    def order(self, **values: Operand) -> tuple[Expr, ...]:
        """Order the sizes as a `KernelCall` takes them; batch strides default to 0, batch counts to 1.

        KeyError: a size is missing, or there is no such size.
        """
        unknown = set(values) - set(self.sizes)
        if unknown:
            raise KeyError(f"{self.symbol} has no size {sorted(unknown)}")
        return tuple(index(_value(name, values)) for name in self.sizes)


def call(function: str, pool: str, arguments: Mapping[str, str]) -> Call:
    """Print the C call of a kernel's function: `NAME_args` with designated initialisers."""
    given = [f".{name} = {value}" for name, value in arguments.items()]
    return f"{function}({pool}, &(const {function}_args){{", given, "})"


def _fields(arguments: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield declarations of members, those of one type that follow one another in one."""
    for kind, group in groupby(arguments, key=lambda argument: argument[1]):
        scalar, star = (kind[:-1], "*") if kind.endswith("*") else (kind, "")
        yield f"{scalar}{', '.join(star + name for name, _ in group)};"


def _value(name: str, values: Mapping[str, Operand]) -> Operand:
    if name in values:
        return values[name]
    if name in ("batch0", "batch1", "batch", "groups"):
        return 1
    if "_batch" in name:
        return 0
    raise KeyError(f"size {name} is missing")
