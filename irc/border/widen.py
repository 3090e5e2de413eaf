"""Element types that a version lacks: the operation in a wider type, between casts.

A wider type holds every value of the narrower one.  Floats are computed in f32 and rounded at the end, as irc
computes them itself; integers wrap when they are cast back, as their own arithmetic does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from irc.ir.graph import Constant, Value
from irc.ir.types import (
    F8,
    DType,
    TensorType,
    bf16,
    boolean,
    f16,
    f32,
    f64,
    i2,
    i4,
    i8,
    i16,
    i32,
    i64,
    u2,
    u4,
    u8,
    u16,
    u32,
    u64,
)
from irc.opdef.base import Op
from irc.opdef.builder import Builder, Rewrite
from irc.opdef.conversions import as_type
from irc.opdef.forms import Declined, Form
from irc.opdef.reference import as_list
from irc.opdef.signature import Sig

SAME_KIND: Mapping[DType, tuple[DType, ...]] = {
    **dict.fromkeys(F8, (f32, f16)),
    f16: (f32, f64),
    bf16: (f32, f64),
    boolean: (i32, u8, i64),
    **dict.fromkeys((i2, i4), (i32, i8, i64)),
    **dict.fromkeys((u2, u4), (i32, u8, i64)),
    i8: (i32, i64, i16),
    u8: (i32, i64, i16, u32, u64, u16),
    i16: (i32, i64),
    u16: (i32, i64, u32, u64),
    i32: (i64,),
    u32: (i64, u64),
}
"""The wider types, the one that engines compute best first."""
AS_FLOATS: Mapping[DType, tuple[DType, ...]] = {
    **dict.fromkeys((boolean, i8, u8, i16, u16), (f32, f64)),
    **dict.fromkeys((i32, u32), (f64,)),
}
"""The floats that hold all values of an integer type."""


def wider(op: Op, dtype: DType) -> tuple[DType, ...]:
    """The element types that the operation computes the same in, but for a cast of its results."""
    same = SAME_KIND.get(dtype, ())
    if op.modular and dtype == u64:
        same = (i64,)
    return {"none": (), "same kind": same, "any": same + AS_FLOATS.get(dtype, ())}[op.widens]


def widened_by(form: Form, op: Op, inputs: Sequence[Value | None]) -> dict[int, DType] | None:
    """The operands to cast, and to which types, so that this row accepts them; None where no cast does."""
    sig = form.sig or op.sig
    bound: dict[str, DType] = {}
    found: dict[int, DType] = {}
    for i, value, variable in _typed(form, sig, inputs):
        allowed, own = form.types.get(variable) or sig.variables[variable], value.dtype
        if variable not in bound:
            fits = own in allowed
            target = own if fits else next((d for d in wider(op, own) if d in allowed), None)
            if target is None:
                return None
            bound[variable] = target
        if bound[variable] != own:
            found[i] = bound[variable]
    return found or None


def _typed(form: Form, sig: Sig, inputs: Sequence[Value | None]) -> list[tuple[int, Value, str]]:
    """The operands whose types are type variables: position in the operation, value, variable."""
    as_inputs = form.as_inputs() if form.sig else {}
    places: list[int | None] = [i for i in range(len(inputs)) if i not in as_inputs]
    found: list[tuple[int, Value, str]] = []
    filed: list[int | None] = form.filed(places)
    for position, i in enumerate(filed):
        value: Value | None = None if i is None else inputs[i]
        fits = sig.max_inputs is None or position < sig.max_inputs
        if i is None or value is None or not fits or not isinstance(value.type, TensorType):
            continue
        variable = sig.param(position).type
        if variable in sig.variables:
            found.append((i, value, variable))
    return found


def retyped(inputs: Sequence[Value | None], types: Mapping[int, DType]) -> list[Value | None]:
    """The operands as they will be after the casts, to ask a row whether it takes them."""
    return [
        v if v is None or i not in types else Value(v.name, v.tensor.with_dtype(types[i]), const=v.const)
        for i, v in enumerate(inputs)
    ]


def in_types(form: Form, types: Mapping[int, DType]) -> Rewrite:
    """The rewrite that casts these operands, and the results back."""
    constant = form.as_inputs()

    def rewrite(b: Builder, op: Op, *operands: Value | None) -> list[Value]:
        wide = list(operands)
        for i, to in types.items():
            value = operands[i]
            assert value is not None
            wide[i] = _constant(b, value, to) if i in constant else as_type(b, value, to)
        declared = as_list(op.result_types(operands))
        results = b.add_all(op, *wide)
        if [t for t in declared if not isinstance(t, TensorType)]:
            raise Declined
        return [as_type(b, y, t.dtype) for y, t in zip(results, declared, strict=True)]

    return rewrite


def _constant(b: Builder, value: Value, to: DType) -> Value:
    """A constant in another type, where the row needs its numbers."""
    if value.array is None:
        raise Declined
    with np.errstate(all="ignore"):
        return b.graph.add_constant(Constant.of(value.array.astype(to.numpy), to), f"{value.name}_{to}")


CanSay = Callable[[Form, Sequence[Value | None]], bool]


def rewrites(rows: Sequence[Form], op: Op, inputs: Sequence[Value | None], can_say: CanSay) -> list[Rewrite]:
    """The rewrites into the rows that say the operation in wider types, the newest row's first."""
    found: list[Rewrite] = []
    for form in rows:
        types = widened_by(form, op, inputs) if form.direct and form.name else None
        if types and can_say(form, retyped(inputs, types)):
            found.append(in_types(form, types))
    return found


def bridge(dtype: DType, allowed: frozenset[DType]) -> DType | None:
    """The integer type an index of type `dtype` can be cast to without loss."""
    if not dtype.is_integer or not all(d.is_integer for d in allowed):
        return None
    wide = [d for d in allowed if d.bits >= dtype.bits and d.kind == "i"] or [d for d in allowed if d.kind == "i"]
    return max(wide, key=lambda d: d.bits, default=None)
