"""`Op`: what an operation is, and `op`, which makes a class one.

An operation is a frozen dataclass: its fields are its attributes.  Its body says everything else,
read top-down like its specification page:

    @op
    class HardSwish(Op):
        '''x · clip(x/6 + 1/2, 0, 1)'''
        sig = Sig("x: T -> y: T", T=FLOATS)
        def infer(self, x): return x.tensor
        def reference(self, x): ...            # NumPy, the definition of truth
        def decompose(self, b, x): ...         # or compute, or loops: exactly one
        onnx = (Form("HardSwish", 14),)
        openvino = (Form("HSwish", 4),)

Elementwise operations are one row each: see `irc.opdef.elementwise`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform

from irc.arrays import Array
from irc.ir.dim import Dim, DimLike
from irc.ir.graph import Graph, Value
from irc.ir.types import DTYPES, TensorType, Type, UnknownRank, dynamic
from irc.opdef.builder import evaluate_decomposed, trace
from irc.opdef.contents import Contents
from irc.opdef.forms import Form, Results, resolve
from irc.opdef.reference import as_list
from irc.opdef.registry import FORMS, OPS, load_all
from irc.opdef.signature import Sig

__all__ = ["Array", "Op", "load_all", "op", "op_base"]


@cache
def _fields(cls: type[Op]) -> tuple[str, ...]:
    """List the names of an operation's attributes."""
    return tuple(f.name for f in dataclasses.fields(cls))


class _Unchangeable:
    """What operations without attributes have of a frozen dataclass; those with some have it of their own."""

    def __setattr__(self, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Op(_Unchangeable):
    """Base of all operations."""

    sig: ClassVar[Sig]
    onnx: ClassVar[tuple[Form, ...]] = ()
    openvino: ClassVar[tuple[Form, ...]] = ()
    carries_contents: ClassVar[bool] = False
    """`reference` also works on object arrays of Dims, so shape arithmetic stays symbolic."""
    modular: ClassVar[bool] = False
    """Of integers that are known modulo 2ⁿ, `contents` gives the result modulo 2ⁿ: sums, products and moves."""
    whole_floats: ClassVar[bool] = False
    """`contents` holds for floats too, where they are whole numbers."""
    reads_type_only: ClassVar[bool] = False
    """Reads its operand's type, not its elements (Shape, Size); `contents` then gets the Value itself."""
    elementwise: ClassVar[bool] = False
    """Each result element depends on the operands' elements at the same (broadcast) place only."""
    commutative: ClassVar[bool] = False
    effect: ClassVar[bool] = False
    """Must not be removed, duplicated or folded although nobody uses it, or its result varies (state, random)."""
    widens: ClassVar[Literal["same kind", "any", "none"]] = "same kind"
    """What may be computed in a wider element type, with a cast behind it, where a format lacks the own one: floats
    in floats and integers in integers; integers in floats too, because elements are compared or moved only; nothing."""
    draws: ClassVar[bool] = False
    """Makes random numbers of a seed: a file says how, rather than which these are."""
    at_run_only: ClassVar[bool] = False
    """Is computed in C only: it has no reference, so that nothing computes it at compile time."""
    part_of: ClassVar[int | None] = None
    """The operand in whose memory the result stands: the result is that operand with a part of it written."""

    # ------------------------------------------------ what each operation defines
    def infer(self, *args: Any) -> Type | Sequence[Type]:
        """The result types from the operands (Values; None where absent).  Raises Problem.

        The default traces `decompose`.
        """
        return [v.tensor for v in trace(self, args)[1]]

    def reference(self, *args: Any) -> Any:
        """The result arrays from the operand arrays, in plain NumPy: the definition of truth.

        The default evaluates `decompose`.  Integers wrap; every result has its declared element type.
        """
        return evaluate_decomposed(self, args)

    def with_sizes(self, sizes: Mapping[str, DimLike]) -> Op:
        """Put other sizes in the place of symbols, if the operation states sizes beside those of its operands."""
        return self

    decompose: ClassVar[Callable[..., Any] | None] = None
    """decompose(self, b, *operands) → value(s): the operation in terms of others (`b` is a Builder)."""
    compute: ClassVar[Callable[..., Any] | None] = None
    """compute(self, out, *tensors) → index function(s): see `irc.expr`."""
    loops: ClassVar[Callable[..., Any] | None] = None
    """loops(self, b, *operands, *results): emits Loop IR for what no index function expresses.

    `b` is a `irc.loops.builder.LoopBuilder`; operands and results are `irc.expr.Tensor`s, absent operands None
    (also those left out at the end).  `x[i, j]` reads, `b.store(y, (i, j), value)` writes a result;
    `with b.for_(n) as i`, `with b.nest(shape) as ix`, `b.if_(cond)`, `b.else_()`, `b.let(value)`,
    `v = b.var(start)`, `b.assign(v, value)`, `b.alloc(dtype, shape)` do what their names say.
    """

    run_sizes: ClassVar[Callable[..., Iterable[tuple[Dim, Value]]] | None] = None
    """run_sizes(self, b, out, *operands): compute the sizes that `infer` leaves to the run, out of the operands.

    `out` is the type of the result (a list of several).  Each is a pair: the symbol in `out`, and the value that it
    is, of one integer.  `b` is a Builder.
    """

    resolve: ClassVar[Callable[..., Results | None] | None] = None
    """resolve(self, b, *operands): say the operation in terms of others if an operand that decides more than sizes,
    such as axes, is known only when the model runs.

    None: it can be compiled as it is.  `b` is a Builder.
    """

    def result_count(self, *operands: Any) -> int:
        """How many results a variadic one stands for, where the rank of an operand is unknown."""
        return 1

    def contents(self, *args: Array | Value | None) -> Contents:
        """Symbolic contents of the result from operands' contents (object arrays of Dims), as if integers had no end.

        None where they are unknown.  `irc.opdef.contents` sees to element types, and to operands that are all numbers.
        """
        return self.reference(*args)

    # ------------------------------------------------------------------ derived
    @property
    def name(self) -> str:
        return type(self).__name__

    def attributes(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _fields(type(self))}

    def __eq__(self, other: object) -> bool:
        """Tell whether an operation is of the same kind, with equal attributes."""
        if not isinstance(other, Op) or type(self) is not type(other):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def _values(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in _fields(type(self))])

    @property
    def regions(self) -> tuple[Graph, ...]:
        """The graphs that the operation runs, each over its own inputs (see `irc.opdef.regions`)."""
        return tuple(value for value in self.attributes().values() if isinstance(value, Graph))

    def with_regions(self, regions: Sequence[Graph]) -> Op:
        """Make the same operation with other graphs in the place of its own."""
        names = [name for name, value in self.attributes().items() if isinstance(value, Graph)]
        return dataclasses.replace(self, **dict(zip(names, regions, strict=True))) if names else self

    def __str__(self) -> str:
        """Write the operation with the attributes that differ from their defaults."""
        shown = [
            f"{f.name}={getattr(self, f.name)!r}"
            for f in dataclasses.fields(self)
            if f.default is dataclasses.MISSING or getattr(self, f.name) != f.default
        ]
        return self.name + (f"({', '.join(shown)})" if shown else "")

    def __repr__(self) -> str:
        """Write the operation as the call that makes it."""
        return str(self) if str(self).endswith(")") else f"{self}()"

    def check(self, inputs: Sequence[Value | None]) -> None:
        """Check the operands against the signature; raises Problem IRC2101..2105."""
        self.sig.check(self.name, inputs)

    @property
    def infers(self) -> bool:
        """Tell whether the operation says what types its results have."""
        return type(self).infer is not Op.infer or self.decompose is not None

    def result_types(self, inputs: Sequence[Value | None]) -> list[Type]:
        """`infer`, as a list, after the signature check.

        An operand of unknown element type or rank makes every result unknown, unless `infer` can tell.
        """
        self.check(inputs)
        types = [v.type for v in inputs if v is not None and isinstance(v.type, TensorType)]
        if type(self).infer is Op.infer and any(t.dtype == dynamic for t in types):  # nothing can be made of it
            return [TensorType(t, None) for t in self._result_dtypes(inputs)]
        try:
            return as_list(self.infer(*inputs))
        except UnknownRank:
            if all(t.shape is not None for t in types):
                raise
            return [TensorType(t, None) for t in self._result_dtypes(inputs)]

    def _result_dtypes(self, inputs: Sequence[Value | None]) -> Iterable[Any]:
        """Element types of the results where the shapes cannot be inferred."""
        bound = self.sig.check(self.name, inputs)
        for result in self.sig.outputs:
            dtype = bound.get(result.type) or DTYPES.get(result.type) or dynamic
            yield from [dtype] * (self.result_count(*inputs) if result.variadic else 1)


C = TypeVar("C", bound=type[Any])


def _adds_nothing(cls: type[Any]) -> bool:
    """Tell whether a class has the attributes of its base: making a dataclass of it, for half a millisecond, changes
    nothing."""
    own = vars(cls)
    bases = [base for base in cls.__bases__ if dataclasses.is_dataclass(base)]
    return not own.get("__annotations__") and "__post_init__" not in own and len(bases) == 1


@dataclass_transform(frozen_default=True)
def op_base(cls: C) -> C:
    """Make a class what several operations inherit attributes of.

    Operations are compared by `Op` alone: a comparison that a base made of its own attributes would find operations
    equal whose other attributes differ.
    """
    return dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)


@dataclass_transform(frozen_default=True)
def op(cls: C) -> C:
    """Make a class an operation: a frozen dataclass, in the registry, its forms resolved."""
    made: Any = cls if _adds_nothing(cls) else op_base(cls)
    assert made.__eq__ is Op.__eq__, f"a base of {made.__name__} compares by its own attributes: make it an op_base"
    bodies = [k for k in ("decompose", "compute", "loops") if getattr(made, k) is not None]
    assert len(bodies) <= 1, f"{made.__name__} has {bodies}; exactly one is wanted"
    assert made.__name__ not in OPS, f"{made.__name__} is declared twice"
    OPS[made.__name__] = made
    for format in ("onnx", "openvino"):
        setattr(made, format, resolve(getattr(made, format), made.sig))
        named: list[Form] = [form for form in getattr(made, format) if form.name]  # one without is for writing only
        for form in named:
            rows = FORMS.setdefault((format, form.domain, form.name.lower()), [])
            rows.append((form, made))
            rows.sort(key=lambda row: row[0].since)
    return made
