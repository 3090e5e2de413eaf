"""Reductions over axes, the index of the largest or smallest element, and running sums.

Narrow floats are reduced in f32 and rounded once; integers wrap, and divide towards zero.
Sources: ONNX Reduce*, ArgMax, ArgMin, CumSum; OpenVINO specification, "Reduction operations", CumSum-3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from irc.arrays import NumpyType
from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes
from irc.expr import Const, Expr, IndexFunction, Tensor, Un, call, index, reduce
from irc.ir.dim import Dim, product
from irc.ir.graph import Value
from irc.ir.types import FLOATS, INTEGERS, NUMERIC, TensorType, bf16, boolean, f32, i8, i32, i64, u8, u64
from irc.opdef.base import Array, Op, op, op_base
from irc.opdef.builder import Builder
from irc.opdef.codecs import AsInput, Bool
from irc.opdef.contents import Contents
from irc.opdef.forms import Attributes, Declined, Form, Read, Results, Types, Write, write_only
from irc.opdef.precision import narrowed, rounded, wide, widened
from irc.opdef.run_sizes import each, kept, named
from irc.opdef.signature import Sig
from irc.ops.arithmetic import OV_NUMERIC, WIDE_INTS
from irc.ops.layout import normal_axes
from irc.ops.reduce_openvino import (
    noop_known,
    openvino_when,
    write_counted,
    write_no_axes,
    write_of_nothing,
    write_run_axes,
)
from irc.ops.reduce_run import reduce_by_axis, reduce_extreme

ONNX_REDUCED = FLOATS | WIDE_INTS


def chosen_axes(rank: int, axes: Array | None, noop: bool) -> tuple[int, ...]:
    """The axes to reduce, counted from 0: all where none are given, unless `noop`."""
    given = [] if axes is None else [int(a) for a in np.asarray(axes).reshape(-1)]
    if not given:
        return () if noop else tuple(range(rank))
    return tuple(a % rank for a in given)


Body = Callable[..., Expr]
"""at(*indices): an element of what is reduced."""


@op_base
class Reduction(Op):
    """What reductions share.  `axes` empty or absent: all axes, or none with noop_with_empty_axes."""

    keepdims: bool = True
    noop_with_empty_axes: bool = False

    def over(self, x: Array, axes: Array | None) -> tuple[int, ...]:
        """The axes of x to reduce, counted from 0."""
        return chosen_axes(x.ndim, axes, self.noop_with_empty_axes)

    def infer(self, x: Value, axes: Value | None = None) -> TensorType:
        return TensorType(x.dtype, self._shape(x, axes))

    def _shape(self, x: Value, axes: Value | None) -> tuple[Dim, ...]:
        rank = len(x.shape)
        given = [] if axes is None else axes.ints()
        if given is None:
            return self._unknown_shape(x, axes)
        normal = normal_axes(self.name, given, rank)
        gone = chosen_axes(rank, np.array(normal, np.int64), self.noop_with_empty_axes)
        if self.keepdims:
            return tuple(Dim.of(1) if i in gone else d for i, d in enumerate(x.shape))
        return tuple(d for i, d in enumerate(x.shape) if i not in gone)

    def _unknown_shape(self, x: Value, axes: Value | None) -> tuple[Dim, ...]:
        """Axes that are known only when the model runs: the rank follows from how many there are."""
        if self.keepdims:
            return tuple(Dim.fresh("reduced", d.maximum(1)) for d in x.shape)
        count = None if axes is None or axes.rank is None else axes.tensor.elements()
        known = count is not None and count.is_const
        require(known, codes.NEEDS_CONSTANT, op=self.name, operand="axes")
        left = max(len(x.shape) - int(count), 0) if count is not None else 0
        return tuple(Dim.fresh("reduced") for _ in range(left))

    def run_sizes(self, b: Builder, out: TensorType, x: Value, axes: Value) -> Iterable[tuple[Dim, Value]]:
        """Compute sizes of 1 at the axes, with keepdims."""
        _, counts = named(b, axes, len(x.shape))
        stays = b.Equal(counts, b.const(0))
        if not self.noop_with_empty_axes:  # no axes mean all of them
            stays = b.And(stays, b.Less(b.const(0), b.ReduceSum(counts, [0])))
        return each(b, out.dims(), b.Where(stays, b.Shape(x), b.const(1)))

    def resolve(self, b: Builder, x: Value, axes: Value | None = None) -> Value | None:
        if axes is None or axes.ints() is not None or self.keepdims or not x.shape:
            return None
        whole = b.operation(self.name)(x, axes, keepdims=True, noop_with_empty_axes=self.noop_with_empty_axes)
        left = len(x.shape) - int(axes.tensor.elements())
        _, counts = named(b, axes, len(x.shape))
        return b.Reshape(whole, kept(b, counts, b.Shape(x), left), special_zero=False)

    def compute(self, out: TensorType, x: Tensor, axes: Tensor | None = None) -> IndexFunction:
        given = [] if axes is None else axes.ints()
        if given is None:
            return self._over_run_axes(out, x)
        gone = chosen_axes(x.rank, np.array(given, np.int64), self.noop_with_empty_axes)
        extents = [x.shape[a] for a in gone]

        def element(*i: Expr) -> Expr:
            kept = [e for k, e in enumerate(i) if k not in gone] if self.keepdims else list(i)

            def at(*r: Expr) -> Expr:
                rest = iter(kept)
                return x[tuple(r[gone.index(k)] if k in gone else next(rest) for k in range(x.rank))]

            return self.total(at, extents)

        return element

    def _over_run_axes(self, out: TensorType, x: Tensor) -> IndexFunction:
        """Reduce, with keepdims, over axes that only the run knows: where the result has size 1, over all of x."""
        extents = [n // m.maximum(1) for n, m in zip(x.shape, out.dims(), strict=True)]

        def element(*i: Expr) -> Expr:
            def at(*r: Expr) -> Expr:
                return x[tuple(start + step for start, step in zip(i, r, strict=True))]

            return self.total(at, extents)

        return element

    total: ClassVar[Callable[..., Expr]]
    """total(self, at, extents): the reduction over the box `extents` (sizes) of the operand `at(*indices)`."""

    def _over(self, kind: str, extents: Sequence[Dim], body: Body) -> Expr:
        return reduce(kind, extents, body) if extents else body()


def axes_vector(b: Builder, axes: Value) -> Value:
    """OpenVINO's axes may be one number; here they are a vector."""
    return axes if axes.rank != 0 else b.Reshape(axes, [1])


def openvino_read(name: str) -> Read:
    """`read` of OpenVINO's reductions: without axes nothing is reduced."""

    def read(b: Builder, a: Attributes, x: Value, axes: Value) -> Results:
        noop = not noop_known(axes)
        return b.operation(name)(x, axes_vector(b, axes), keepdims=a.keepdims, noop_with_empty_axes=noop)

    return read


AXES = Sig("x: T, axes: I[0..1] -> y: T", T=NUMERIC, I=INTEGERS)


def openvino_rows(name: str, canonical: str, since: int = 1, T: Types = OV_NUMERIC) -> tuple[Form, ...]:
    return (
        Form(
            name,
            since,
            attrs={"keep_dims": Bool(False, to="keepdims")},
            T={"T": T, "I": INTEGERS},
            sig=AXES,
            read=openvino_read(canonical),
            direct=True,
            judges=("noop_with_empty_axes",),
            when=openvino_when,
            write=write_no_axes,
        ),
        write_only(write_run_axes, since),
        *([write_only(write_of_nothing)] if name in ("ReduceMax", "ReduceMin") else []),
        *([write_only(write_counted)] if {boolean} == T else []),
    )


def noop_judged(op: Reduction, x: Value, axes: Value | None = None) -> bool:
    """ONNX before `noop_with_empty_axes`: only where it makes no difference."""
    return not op.noop_with_empty_axes or (axes is not None and noop_known(axes))


def write_noop(b: Builder, op: Reduction, x: Value, axes: Value | None = None) -> Results:
    """ONNX before `noop_with_empty_axes`: a reduction of one element is that of an axis of size 1."""
    if not op.noop_with_empty_axes or (axes is not None and not axes.tensor.elements().equals(0)):
        raise Declined  # the axes are known only when the model runs
    column = b.Unsqueeze(x, [0])
    return b.operation(op.name)(column, [0], keepdims=False)


ATTRIBUTE_AXES = {"axes": AsInput(None, index=1, dtype=i64), "keepdims": Bool(True)}
OPERAND_AXES = {"keepdims": Bool(True), "noop_with_empty_axes": Bool(False)}


def onnx_rows(name: str, steps: Mapping[int, Types], operand: int) -> tuple[Form, ...]:
    """ONNX rows: opset → types; the axes are an operand from opset `operand` on."""
    rows: list[Form] = []
    for opset, types in steps.items():
        if opset < operand:
            early: dict[str, Any] = {"judges": ("noop_with_empty_axes",), "when": noop_judged, "write": write_noop}
            early = {} if rows else early
            rows.append(Form(name, opset, attrs=ATTRIBUTE_AXES, T={"T": types}, **early))
        else:
            rows.append(Form(name, opset, attrs=OPERAND_AXES, T={"T": types, "I": {i64}}, judges=(), when=None))
    extreme = [write_only(reduce_extreme)] if steps is EXTREME_STEPS else []
    return (*rows, *extreme, write_only(reduce_by_axis))


WIDE_STEPS: dict[int, Types] = {1: ONNX_REDUCED, 11: ONNX_REDUCED, 13: ONNX_REDUCED | {bf16}, 18: ONNX_REDUCED | {bf16}}
EXTREME = ONNX_REDUCED | {i8, u8}
EXTREME_STEPS: dict[int, Types] = {
    1: ONNX_REDUCED,
    11: ONNX_REDUCED,
    12: EXTREME,
    13: EXTREME | {bf16},
    18: EXTREME | {bf16},
    20: EXTREME | {bf16, boolean},
}


def of_sizes(function: Callable[..., Array], op: Reduction, x: Array, axes: Array | None) -> Contents:
    """np.sum or np.prod of sizes, for shapes that are computed; None where the axes are not numbers."""
    if axes is not None and not all(Dim.of(a).is_const for a in axes.flat):
        return None
    given = None if axes is None else np.array([int(a) for a in axes.reshape(-1)], np.int64)
    found = function(x, axis=chosen_axes(x.ndim, given, op.noop_with_empty_axes), keepdims=op.keepdims)
    return np.vectorize(Dim.of, otypes=[object])(found)


SIG = Sig("x: T, axes?: I[0..1] -> y: T", T=NUMERIC, I=INTEGERS)
SIG_BOOL = Sig("x: T, axes?: I[0..1] -> y: T", T=NUMERIC | {boolean}, I=INTEGERS)


@op
class ReduceSum(Reduction):
    """The sum over the axes; 0 of nothing."""

    sig = SIG

    def reference(self, x: Array, axes: Array | None = None) -> Array:
        over = self.over(x, axes)
        return rounded(np.sum(wide(x), axis=over, dtype=wide(x).dtype, keepdims=self.keepdims), x)

    carries_contents = modular = True

    def contents(self, x: Array, axes: Array | None = None) -> Contents:
        return of_sizes(np.sum, self, x, axes)

    def total(self, at: Body, extents: Sequence[Dim]) -> Expr:
        return self._over("sum", extents, at)

    onnx = onnx_rows("ReduceSum", {k: v for k, v in WIDE_STEPS.items() if k < 18}, 13)
    openvino = openvino_rows("ReduceSum", "ReduceSum")


def quotient(total: Array, count: int) -> Array:
    """total / count; integers truncate."""
    if total.dtype.kind in "iu":
        down = total // max(count, 1)
        return (down + ((down * max(count, 1) != total) & (total < 0))).astype(total.dtype)
    return total / total.dtype.type(count)


@op
class ReduceMean(Reduction):
    """The mean over the axes; integers are summed in 64 bits and truncate, NaN of no floats."""

    sig = SIG

    def reference(self, x: Array, axes: Array | None = None) -> Array:
        over = self.over(x, axes)
        count = 1
        for a in over:
            count = count * x.shape[a]
        kind = {"i": np.dtype(np.int64), "u": np.dtype(np.uint64)}.get(x.dtype.kind, wide(x).dtype)
        return rounded(quotient(np.sum(wide(x), axis=over, dtype=kind, keepdims=self.keepdims), count), x)

    def total(self, at: Body, extents: Sequence[Dim]) -> Expr:
        if not extents:
            return at()

        def term(*r: Expr) -> Expr:
            x = at(*r)
            return x.cast({"i": i64, "u": u64}.get(x.dtype.kind, x.dtype.compute))

        total = reduce("sum", extents, term)
        kind = at(*[Const(0, i64) for _ in extents]).dtype
        return (total / index(product(extents)).cast(total.dtype)).cast(kind)

    onnx = onnx_rows("ReduceMean", WIDE_STEPS, 18)
    openvino = openvino_rows("ReduceMean", "ReduceMean")


def lowest(kind: NumpyType) -> float:
    """The identity of max: the smallest value of an element type."""
    if kind.kind == "b":
        return False
    return np.iinfo(kind).min if kind.kind in "iu" else kind.type("-inf")


def highest(kind: NumpyType) -> float:
    """The identity of min: the largest value of an element type."""
    if kind.kind == "b":
        return True
    return np.iinfo(kind).max if kind.kind in "iu" else kind.type("inf")


class Extreme(Reduction):
    """What ReduceMax and ReduceMin share."""

    widens = "none"  # the extreme of nothing is another in another type

    function: ClassVar[staticmethod[..., Array]]
    identity: ClassVar[staticmethod[[NumpyType], float]]
    kinds: ClassVar[tuple[str, str]]
    """The reduction of numbers, and of booleans."""
    sig = SIG_BOOL

    def reference(self, x: Array, axes: Array | None = None) -> Array:
        w = wide(x)
        over = self.over(x, axes)
        return rounded(self.function(w, axis=over, keepdims=self.keepdims, initial=self.identity(w.dtype)), x)

    def total(self, at: Body, extents: Sequence[Dim]) -> Expr:
        of_booleans = at(*[Const(0, i64)] * len(extents)).dtype == boolean
        return self._over(self.kinds[of_booleans], extents, at)  # pyright: ignore


@op
class ReduceMax(Extreme):
    """The largest element over the axes; NaN where one is NaN; the type's smallest value of nothing."""

    function, identity, kinds = staticmethod(np.max), staticmethod(lowest), ("max", "any")
    onnx = onnx_rows("ReduceMax", EXTREME_STEPS, 18)
    openvino = openvino_rows("ReduceMax", "ReduceMax")


@op
class ReduceMin(Extreme):
    """The smallest element over the axes; NaN where one is NaN; the type's largest value of nothing."""

    function, identity, kinds = staticmethod(np.min), staticmethod(highest), ("min", "all")
    onnx = onnx_rows("ReduceMin", EXTREME_STEPS, 18)
    openvino = openvino_rows("ReduceMin", "ReduceMin")


@op
class ReduceProd(Reduction):
    """The product over the axes; 1 of nothing."""

    sig = SIG

    def reference(self, x: Array, axes: Array | None = None) -> Array:
        over = self.over(x, axes)
        return rounded(np.prod(wide(x), axis=over, dtype=wide(x).dtype, keepdims=self.keepdims), x)

    carries_contents = modular = True

    def contents(self, x: Array, axes: Array | None = None) -> Contents:
        return of_sizes(np.prod, self, x, axes)

    def total(self, at: Body, extents: Sequence[Dim]) -> Expr:
        return self._over("prod", extents, at)

    onnx = onnx_rows("ReduceProd", WIDE_STEPS, 18)
    openvino = openvino_rows("ReduceProd", "ReduceProd")


def magnitude(x: Expr) -> Expr:
    return Un("abs", x) if x.dtype.is_signed else x


@op
class ReduceL1(Reduction):
    """The sum of |x| over the axes."""

    sig = SIG

    def reference(self, x: Array, axes: Array | None = None) -> Array:
        over = self.over(x, axes)
        w = np.abs(wide(x))
        return rounded(np.sum(w, axis=over, dtype=w.dtype, keepdims=self.keepdims), x)

    def total(self, at: Body, extents: Sequence[Dim]) -> Expr:
        def term(*r: Expr) -> Expr:
            return magnitude(at(*r))

        return self._over("sum", extents, term)

    onnx = onnx_rows("ReduceL1", WIDE_STEPS, 18)
    openvino = openvino_rows("ReduceL1", "ReduceL1", 4)


@op
class ReduceL2(Reduction):
    """The square root of the sum of x² over the axes; integers are computed in f32 and truncated."""

    sig = SIG

    def reference(self, x: Array, axes: Array | None = None) -> Array:
        over = self.over(x, axes)
        w = x.astype(np.float32) if x.dtype.kind in "iu" else wide(x)
        return rounded(np.sqrt(np.sum(w * w, axis=over, keepdims=self.keepdims)), x)

    def total(self, at: Body, extents: Sequence[Dim]) -> Expr:
        kind = at(*[Const(0, i64)] * len(extents)).dtype
        work = f32 if kind.is_integer else kind.compute

        def square(*r: Expr) -> Expr:
            x = at(*r).cast(work)
            return x * x

        return call("sqrt", self._over("sum", extents, square)).cast(kind)

    onnx = onnx_rows("ReduceL2", WIDE_STEPS, 18)
    openvino = openvino_rows("ReduceL2", "ReduceL2", 4)


# --------------------------------------------------------------------------- compositions (ONNX only)
LOG_STEPS: dict[int, Types] = {**WIDE_STEPS, 28: FLOATS | {bf16}}


def as_float(b: Builder, x: Value) -> Value:
    """Floats widened, integers as f32."""
    return b.Cast(x, to=f32) if x.dtype.is_integer else widened(b, x)


def as_float_array(x: Array) -> Array:
    return x.astype(np.float32) if x.dtype.kind in "iu" else wide(x)


class ComposedReduction(Reduction):
    """A reduction made of others."""

    compute: ClassVar[None] = None


@op
class ReduceSumSquare(ComposedReduction):
    """The sum of x² over the axes."""

    sig = SIG

    def reference(self, x: Array, axes: Array | None = None) -> Array:
        over = self.over(x, axes)
        w = wide(x)
        return rounded(np.sum(w * w, axis=over, dtype=w.dtype, keepdims=self.keepdims), x)

    def decompose(self, b: Builder, x: Value, axes: Value | None = None) -> Value:
        w = widened(b, x)
        return narrowed(b, b.ReduceSum(b.Mul(w, w), axes, **self.attributes()), x)

    onnx = onnx_rows("ReduceSumSquare", WIDE_STEPS, 18)


@op
class ReduceLogSum(ComposedReduction):
    """log of the sum over the axes; integers are computed in f32 and truncated."""

    sig = SIG

    def reference(self, x: Array, axes: Array | None = None) -> Array:
        over = self.over(x, axes)
        return rounded(np.log(np.sum(as_float_array(x), axis=over, keepdims=self.keepdims)), x)

    def decompose(self, b: Builder, x: Value, axes: Value | None = None) -> Value:
        return narrowed(b, b.Log(b.ReduceSum(as_float(b, x), axes, **self.attributes())), x)

    onnx = onnx_rows("ReduceLogSum", LOG_STEPS, 18)


@op
class ReduceLogSumExp(ComposedReduction):
    """log of the sum of e^x over the axes, computed relative to the largest x."""

    sig = SIG

    def reference(self, x: Array, axes: Array | None = None) -> Array:
        over = self.over(x, axes)
        w = as_float_array(x)
        top: Array = np.max(w, axis=over, keepdims=True, initial=lowest(w.dtype))
        top = np.where(np.abs(top) == np.inf, w.dtype.type(0), top)
        found: Array = np.log(np.sum(np.exp(w - top), axis=over, keepdims=True)) + top
        return rounded(found if self.keepdims else np.squeeze(found, axis=over), x)

    def decompose(self, b: Builder, x: Value, axes: Value | None = None) -> Value:
        w = as_float(b, x)
        keep = {**self.attributes(), "keepdims": True}
        top = b.ReduceMax(w, axes, **keep)
        top = b.Where(b.Equal(b.Abs(top), b.const(np.inf, w.dtype)), b.const(0.0, w.dtype), top)
        total = b.ReduceSum(b.Exp(b.Sub(w, top)), axes, **self.attributes())
        bare = top if self.keepdims else b.ReduceMax(top, axes, **self.attributes())
        return narrowed(b, b.Add(b.Log(total), bare), x)

    onnx = onnx_rows("ReduceLogSumExp", LOG_STEPS, 18)


# ---------------------------------------------------------------------------------- of booleans
def write_as_numbers(name: str) -> Write:
    """ONNX before opset 20 reduces no booleans: 0 and 1 as i32, which every opset reduces."""

    def write(b: Builder, op: Op, x: Value, axes: Value | None = None) -> Results:
        return b.Cast(b.operation(name)(b.Cast(x, to=i32), axes, **op.attributes()), to=boolean)

    return write


class LogicalReduction(Reduction):
    """What the reductions of booleans share."""

    function: ClassVar[staticmethod[..., Any]]
    kind: ClassVar[str]
    sig = Sig("x: bool, axes?: I[0..1] -> y: bool", I=INTEGERS)

    def reference(self, x: Array, axes: Array | None = None) -> Array:
        return self.function(x, axis=self.over(x, axes), keepdims=self.keepdims)

    def total(self, at: Body, extents: Sequence[Dim]) -> Expr:
        return self._over(self.kind, extents, at)


@op
class ReduceLogicalAnd(LogicalReduction):
    """Whether all elements over the axes are true; true of nothing."""

    function, kind = staticmethod(np.all), "all"
    onnx = (write_only(write_as_numbers("ReduceMin")),)
    openvino = openvino_rows("ReduceLogicalAnd", "ReduceLogicalAnd", T={boolean})


@op
class ReduceLogicalOr(LogicalReduction):
    """Whether any element over the axes is true; false of nothing."""

    function, kind = staticmethod(np.any), "any"
    onnx = (write_only(write_as_numbers("ReduceMax")),)
    openvino = openvino_rows("ReduceLogicalOr", "ReduceLogicalOr", T={boolean})
