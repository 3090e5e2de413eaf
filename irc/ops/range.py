"""Numbers in equal steps: Range.

Sources: ONNX Range; OpenVINO specification, Range-4.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from irc.arrays import Array
from irc.diagnostics import require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import Expr, IndexFunction, Tensor
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import NUMERIC, DType, TensorType, bf16, f16, f32, f64, i16, i32, i64
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import DTypeAttr, Int
from irc.opdef.contents import Contents
from irc.opdef.conversions import as_i64, as_scalar, as_type, as_vector
from irc.opdef.forms import PREV, Form, write_only
from irc.opdef.signature import Sig
from irc.ops.early_onnx import write_range_by_count
from irc.ops.layout import dims_array


def range_length(start: Any, limit: Any, delta: Any) -> int:
    """How many numbers there are; Problem IRC2207 for a step of 0."""
    require(delta != 0, operation.ATTRIBUTE_RANGE, op="Range", attribute="step", value=0, expected="not 0")
    if isinstance(delta, int):
        return max(-((start - limit) // delta), 0)
    length = (limit - start) / delta
    finite = math.isfinite(length)
    require(finite, operation.ATTRIBUTE_RANGE, op="Range", attribute="length", value=length, expected="finite")
    return max(math.ceil(length), 0)


def range_of(b: Builder, to: DType, start: Value, stop: Value, step: Value) -> Value:
    """Range of operands of any types, converted to `to`."""

    def converted(v: Value) -> Value:
        return as_type(b, v, to) if v.array is None or v.dtype == to else b.const(v.array, to)

    return b.Range(*map(converted, (start, stop, step)))


def scalar_operands(op: Range, *operands: Value) -> bool:
    return all(v.rank == 0 for v in operands)


def write_range(b: Builder, op: Range, *operands: Value) -> Value:
    return b.Range(*(as_scalar(b, v) for v in operands))


def write_range_4(b: Builder, op: Range, start: Value, stop: Value, step: Value) -> Value:
    return b.RangeTo(*(as_scalar(b, v) for v in (start, stop, step)), output_type=start.dtype)


@op
class Range(Op):
    """start, start + step, … up to, not including, `limit`.  f16 and bf16 are computed in f32."""

    sig = Sig("start: T[one], limit: T[one], step: T[one] -> y: T", T=NUMERIC)
    carries_contents = True
    whole_floats = True

    def infer(self, start: Value, limit: Value, step: Value) -> TensorType:
        for name, v in (("start", start), ("limit", limit), ("step", step)):
            one = v.rank is None or same(v.tensor.elements(), 1)
            require(one, codes.WRONG_RANK, op="Range", operand=name, type=v.tensor, expected=0)
        arrays = [None if v.array is None else v.array.reshape(()) for v in (start, limit, step)]
        if all(a is not None for a in arrays):
            numbers = [int(a) if start.dtype.is_integer else float(a) for a in arrays if a is not None]
            return TensorType.of(start.dtype, [range_length(*numbers)])
        dims = [v.dims() for v in (start, limit, step)]
        if any(d is None for d in dims):
            return TensorType.of(start.dtype, [Dim.fresh("range")])
        (first,), (last,), (by,) = dims  # type: ignore[misc]
        require(by != 0, operation.ATTRIBUTE_RANGE, op="Range", attribute="step", value=0, expected="not 0")  # pyright: ignore
        return TensorType(start.dtype, ((last - first).ceildiv(by).maximum(0),))  # pyright: ignore

    def run_sizes(
        self, b: Builder, out: TensorType, start: Value, limit: Value, step: Value
    ) -> Iterable[tuple[Dim, Value]]:
        if start.dtype.is_integer:
            first, last, by = (as_vector(b, as_i64(b, v)) for v in (start, limit, step))
            beyond = b.Where(b.Less(b.const(0), by), b.const(-1), b.const(1))
            count = b.Div(b.Add(b.Add(b.Sub(last, first), by), beyond), by)
        else:
            first, last, by = (b.Cast(v, to=f64) for v in (start, limit, step))
            count = b.Cast(b.Ceil(b.Div(b.Sub(last, first), by)), to=i64)
        yield out.dims()[0], b.Max(count, b.const(0))

    def reference(self, start: Array, limit: Array, step: Array) -> Array:
        first, last, by = (np.asarray(v).reshape(()) for v in (start, limit, step))
        kind = first.dtype
        if kind.itemsize < 4 and kind.kind not in "iu":
            first, last, by = (v.astype(np.float32) for v in (first, last, by))
        if kind.kind in "iu":
            count = max(-((int(first) - int(last)) // int(by)), 0)
        else:
            count = max(int(np.ceil((last.astype(np.float64) - first) / by)), 0)
        return (first + np.arange(count).astype(first.dtype) * by).astype(kind)

    def contents(self, start: Array, limit: Array, step: Array) -> Contents:
        (first,), (last,), (by,) = (v.reshape(-1) for v in (start, limit, step))
        count = (last - first).ceildiv(by).maximum(0)
        return dims_array([first + by * k for k in range(int(count))]) if count.is_const else None

    def compute(self, out: TensorType, start: Tensor, limit: Tensor, step: Tensor) -> IndexFunction:
        wide = out.dtype.compute

        def element(i: Expr) -> Expr:
            first, by = (v[(0,) * v.rank].cast(wide) for v in (start, step))
            return (first + i.cast(wide) * by).cast(out.dtype)

        return element

    onnx = (
        Form("Range", 11, T={f32, f64, i16, i32, i64}, write=write_range, when=scalar_operands),
        Form("Range", 27, attrs={"stash_type": Int(1)}, T=PREV | {f16, bf16}),
        write_only(write_range_by_count),
    )
    openvino = (
        Form("Range", 1, T=NUMERIC, write=write_range, when=scalar_operands, last=3),
        write_only(write_range_4, since=4),
    )


@op
class RangeTo(Op):
    """OpenVINO's Range-4: operands of any numeric types, each converted to the result's."""

    output_type: DType
    sig = Sig("start: A[one], stop: B[one], step: C[one] -> y: any", A=NUMERIC, B=NUMERIC, C=NUMERIC)
    carries_contents = True
    whole_floats = True

    def contents(self, start: Array, stop: Array, step: Array) -> Contents:
        return Range().contents(start, stop, step)

    def decompose(self, b: Builder, start: Value, stop: Value, step: Value) -> Value:
        return range_of(b, self.output_type, start, stop, step)

    openvino = (Form("Range", 4, attrs={"output_type": DTypeAttr()}),)
