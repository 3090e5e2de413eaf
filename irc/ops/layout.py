"""Rearrangement without arithmetic: Identity, Reshape, Flatten, Transpose, Squeeze, Unsqueeze.

Sources: ONNX operator pages; OpenVINO specification, "Shape manipulation" and "Movement".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from irc.diagnostics import Facts, require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import (
    Const,
    Expr,
    IndexFunction,
    Tensor,
    flatten_index,
    reshaped_index,
    select,
    size_data,
    unflatten_index,
)
from irc.ir.dim import Dim, product
from irc.ir.graph import Value
from irc.ir.relation import multiple, same
from irc.ir.types import ANY, FLOATS, INTEGERS, OptionalType, TensorType, Type, dynamic, i64
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import AsInput, Bool, Choice, Ignored, Int
from irc.opdef.contents import Contents
from irc.opdef.conversions import as_i64
from irc.opdef.forms import Attributes, Declined, Form, write_only
from irc.opdef.run_sizes import each, kept, named, with_ones
from irc.opdef.signature import Sig
from irc.opdef.typesets import OV_ANY, onnx_all, onnx_rows


def normal_axis(op: str, axis: int, rank: int) -> int:
    """The axis counted from 0; Problem IRC3106 where the operand has no such axis."""
    ok = -rank <= axis < rank
    require(ok, codes.AXIS_RANGE, op=op, axis=axis, rank=rank, lo=-rank, hi=rank - 1)
    return axis % rank if rank else 0


def normal_axes(op: str, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """The axes counted from 0; a repeated one is Problem IRC2207."""
    found = tuple(normal_axis(op, a, rank) for a in axes)
    distinct = len(set(found)) == len(found)
    require(distinct, operation.ATTRIBUTE_RANGE, op=op, attribute="axes", value=list(axes), expected="distinct")
    return found


def constant_ints(op: str, operand: str, value: Value) -> list[int]:
    """The operand's integers; Problem IRC2301 where they are not known before running."""
    found = value.ints()
    require(found is not None, operation.NEEDS_CONSTANT, op=op, operand=operand)
    return found or []


def constant_int(op: str, operand: str, value: Value) -> int:
    """The operand's only element; Problems IRC2301 and IRC2208."""
    found = constant_ints(op, operand, value)
    require(len(found) == 1, operation.ATTRIBUTE_LENGTH, op=op, attribute=operand, given=len(found), needed=1)
    return found[0]


def moved_contents(op: Op, x: Array, *operands: Array | None) -> Contents:
    """`contents` of an operation that moves the elements of `x`: None where the other operands are not numbers."""
    for operand in operands:
        if operand is not None and not all(Dim.of(d).is_const for d in operand.flat):
            return None
    return op.reference(x, *operands)


def dims_array(dims: Sequence[Dim | int]) -> Array:
    """Dims as a one-dimensional object array."""
    found = np.empty(len(dims), dtype=object)
    found[:] = [Dim.of(d) for d in dims]
    return found


def pick(dims: Sequence[Dim], i: Expr) -> Expr:
    """dims[i] as an i64 expression."""
    found: Expr = Const(0, i64)
    for k in reversed(range(len(dims))):
        found = size_data(dims[k]) if k == len(dims) - 1 else select(i.eq(k), size_data(dims[k]), found)
    return found


def identity_of(opset: int) -> Callable[..., bool]:
    """Whether ONNX's Identity of that opset takes the operand: sequences came with 14, optional values with 16."""

    def when(op: Identity, x: Value) -> bool:
        if isinstance(x.type, TensorType):
            return x.dtype == dynamic or x.dtype in onnx_all(opset)
        return opset >= (16 if isinstance(x.type, OptionalType) else 14)

    return when


def of_tensor(op: Op, x: Value) -> bool:
    return isinstance(x.type, TensorType)


def write_identity(b: Builder, op: Identity, x: Value) -> Value:
    """OpenVINO before opset16."""
    if not isinstance(x.type, TensorType):
        raise Declined
    return b.Cast(x, to=x.dtype)


@op
class Identity(Op):
    """y = x."""

    sig = Sig("x: any -> y: any")
    carries_contents = modular = True
    whole_floats = True

    def infer(self, x: Value) -> Type:
        assert x.type is not None
        return x.type

    def reference(self, x: Array) -> Array:
        return x

    def compute(self, out: TensorType, x: Tensor) -> IndexFunction:
        return lambda *i: x[i]

    onnx = tuple(Form("Identity", n, when=identity_of(n)) for n in (1, 13, 14, 16, 19, 21, 23, 24, 25))
    openvino = (Form("Identity", 16, when=of_tensor), write_only(write_identity))


def behind_identities(value: Value) -> Value:
    """Find the value that Identities, if there are any, pass on as this one."""
    while value.producer is not None and isinstance(value.producer.op, Identity):
        (value,) = value.producer.operands
    return value


ZERO_COPIES = Choice(True, to="special_zero", yes=False, no=True)
"""ONNX's allowzero, which says the opposite."""


def read_reshape(b: Builder, a: Attributes, x: Value, shape: Value) -> Value:
    """Where no size can be 0, or a 0 is copied from a 0, how it is taken does not matter: the default, which every
    version can say."""
    sizes = shape.dims()
    return b.Reshape(x, shape, special_zero=a.special_zero or (sizes is not None and zeros_are_copies(x, sizes)))


def zeros_are_copies(x: Value, sizes: Sequence[Dim]) -> bool:
    """Whether each size that may be 0 stands where the operand has the same one."""
    same = [*(x.shape if x.rank is not None else ()), *[None] * len(sizes)]
    return all(size == -1 or size.bounds()[0] > 0 or size == old for size, old in zip(sizes, same, strict=False))


def reshaped(b: Builder, x: Value, sizes: Sequence[Dim | int]) -> Value:
    """x under these sizes, of which one that is 0, if only in a run, is meant so."""
    dims = [Dim.of(d) for d in sizes]
    return b.Reshape(x, b.dims(dims), special_zero=zeros_are_copies(x, dims))


def before_reshapes(value: Value) -> Value:
    """Find the value that this one is under another shape: itself, if no Reshape makes it."""
    while value.producer is not None and isinstance(value.producer.op, Reshape):
        value = next(value.producer.operands)
    return value


def channels_second(b: Builder, x: Value) -> Value:
    """Transpose batch, sizes, channels to batch, channels, sizes."""
    last = len(x.shape) - 1
    return b.Transpose(x, [0, last, *range(1, last)])


def channels_last(b: Builder, x: Value) -> Value:
    """Transpose batch, channels, sizes to batch, sizes, channels."""
    return b.Transpose(x, [0, *range(2, len(x.shape)), 1])


def write_zeros(b: Builder, op: Reshape, x: Value, shape: Value) -> Value:
    """ONNX before `allowzero`, where a 0 is no size: no matter for what has elements; none are cut off of some."""
    known = shape.ints()
    if op.special_zero or x.dtype.kind == "s":
        raise Declined
    if x.tensor.elements().bounds()[0] > 0 or (known is not None and 0 not in known):
        return b.Reshape(x, shape)
    if known is None:
        hole = b.Equal(shape, b.const(-1))
        others = b.Max(b.ReduceProd(b.Where(hole, b.const(1), shape), [0]), b.const(1))
        shape = b.Where(hole, b.Div(b.dims([x.tensor.elements()]), others), shape)
    some = b.Max(shape, b.const(1))
    lacking = b.Sub(b.ReduceProd(some, [0]), b.dims([x.tensor.elements()]))
    flat = b.Concat(b.Reshape(x, [-1]), b.Expand(b.like(0, x), lacking), axis=0)
    axes = list(range(int(shape.shape[0])))
    return b.Slice(b.Reshape(flat, some), b.const([0] * len(axes)), shape, axes)


@op
class Reshape(Op):
    """The same elements, row-major, under another shape.

    One size of `shape` may be -1: what is left over.  With `special_zero` a 0 copies the size of that axis.
    """

    special_zero: bool = True
    sig = Sig("x: T, shape: I[0..1] -> y: T", T=ANY, I=INTEGERS)
    carries_contents = modular = True
    whole_floats = True

    def infer(self, x: Value, shape: Value) -> TensorType:
        sizes = shape.dims()
        if sizes is None:
            rank = shape.shape[0].const if shape.rank == 1 else None
            if rank is None or x.rank is None:
                return TensorType.of(x.dtype, None if rank is None else Dim.fresh_shape("reshape", rank))
            dims = Dim.fresh_factors("reshape", rank, x.tensor.elements())
            facts: Facts = {"source": x.tensor, "have": x.tensor.elements(), "target": TensorType.of(x.dtype, dims)}
            require(
                same(product(dims), x.tensor.elements()), codes.RESHAPE_COUNT, op="Reshape", **facts, want=product(dims)
            )
            return TensorType.of(x.dtype, dims)
        text = "[" + ",".join(map(str, sizes)) + "]"
        holes = [i for i, size in enumerate(sizes) if size == -1]
        facts: Facts = {"op": "Reshape", "attribute": "shape", "value": text}
        require(len(holes) <= 1, operation.ATTRIBUTE_RANGE, **facts, expected="a shape with at most one -1")
        if x.rank is None:
            copied = [s == -1 or (s == 0 and self.special_zero) for s in sizes]
            return TensorType.of(x.dtype, [Dim.fresh("d") if c else s for c, s in zip(copied, sizes, strict=True)])
        result = [self._copied(i, size, x) if i not in holes else Dim.of(1) for i, size in enumerate(sizes)]
        have, want = x.tensor.elements(), product(result)
        facts = {"op": "Reshape", "source": x.tensor, "have": have, "target": text, "want": want}
        if holes:
            require(want == 0 or multiple(have, want), codes.RESHAPE_COUNT, **facts)
            result[holes[0]] = have // want if want != 0 else Dim.of(0)
        else:
            require(same(have, want), codes.RESHAPE_COUNT, **facts)
        return TensorType(x.dtype, tuple(result))

    def run_sizes(self, b: Builder, out: TensorType, x: Value, shape: Value) -> Iterable[tuple[Dim, Value]]:
        sizes = as_i64(b, shape)
        if self.special_zero:
            old = b.dims([*x.shape, *[Dim.of(0)] * len(out.dims())][: len(out.dims())])
            sizes = b.Where(b.Equal(sizes, b.const(0)), old, sizes)
        hole = b.Equal(sizes, b.const(-1))
        others = b.ReduceProd(b.Where(hole, b.const(1), sizes), [0], keepdims=False)
        left = b.Div(b.dims([x.tensor.elements()]), b.Where(b.Equal(others, b.const(0)), b.const(1), others))
        return each(b, out.dims(), b.Where(hole, left, sizes))

    def _copied(self, i: int, size: Dim, x: Value) -> Dim:
        if size != 0 or not self.special_zero:
            return size
        rank = len(x.shape)
        require(i < rank, codes.AXIS_RANGE, op="Reshape", axis=i, rank=rank, lo=0, hi=rank - 1)
        return x.shape[i]

    def reference(self, x: Array, shape: Array) -> Array:
        sizes = [int(s) for s in np.asarray(shape).reshape(-1)]
        sizes = [x.shape[i] if s == 0 and self.special_zero else s for i, s in enumerate(sizes)]
        if min(sizes, default=0) < -1:
            raise ValueError(f"a size of {min(sizes)}")
        if -1 in sizes and 0 in sizes:  # NumPy cannot tell how many are left over of none
            sizes = [0 if s == -1 else s for s in sizes]
        return x.reshape(sizes)

    def contents(self, x: Array, shape: Array) -> Contents:
        return moved_contents(self, x, shape)

    def compute(self, out: TensorType, x: Tensor, shape: Tensor) -> IndexFunction:
        return lambda *i: x[reshaped_index(i, out.dims(), x.shape)]

    onnx = (
        Form(
            "Reshape",
            1,
            T={"T": FLOATS, "I": {i64}},
            attrs={"shape": AsInput((), index=1, dtype=i64), "consumed_inputs": Ignored()},
        ),
        Form("Reshape", 5, attrs={}, T={"T": onnx_all(5)}, write=write_zeros),
        Form("Reshape", 13, T={"T": onnx_all(13)}),
        Form("Reshape", 14, attrs={"allowzero": ZERO_COPIES}, read=read_reshape, direct=True),
        *(Form("Reshape", n, T={"T": onnx_all(n)}) for n in (19, 21, 23, 24, 25)),
    )
    openvino = (
        Form(
            "Reshape",
            1,
            attrs={"special_zero": Bool(assumed=False)},
            T={"T": OV_ANY, "I": INTEGERS},
            read=read_reshape,
            direct=True,
        ),
    )


def sizes_product(b: Builder, shape: Value, begin: int, end: int) -> Value:
    """The product of shape[begin:end], as an i64 vector of one element."""
    picked = b.Slice(shape, [begin], [end], [0])
    return b.ReduceProd(picked, [0], keepdims=True)


def write_flatten(b: Builder, op: Flatten, x: Value) -> Value:
    """A Reshape that needs no sizes of the operand where that can be said."""
    rows, columns = op.infer(x).dims()
    if rows.is_const and columns.is_const:
        return b.Reshape(x, [int(rows), int(columns)], special_zero=False)
    if rows.is_const or columns.is_const:
        return b.Reshape(x, [int(rows) if rows.is_const else -1, int(columns) if columns.is_const else -1])
    axis, rank = op.axis % len(x.shape), len(x.shape)
    if axis == 1:
        return b.Reshape(x, [0, -1])
    shape = b.Shape(x)
    sizes = [sizes_product(b, shape, 0, axis), sizes_product(b, shape, axis, rank)]
    return b.Reshape(x, b.Concat(*sizes, axis=0), special_zero=False)


@op
class Flatten(Op):
    """A matrix: the axes before `axis` are its rows, the others its columns."""

    axis: int = 1
    sig = Sig("x: T -> y: T", T=ANY)

    def _axis(self, rank: int) -> int:
        ok = -rank <= self.axis <= rank
        require(ok, codes.AXIS_RANGE, op="Flatten", axis=self.axis, rank=rank, lo=-rank, hi=rank)
        return self.axis + rank if self.axis < 0 else self.axis

    def infer(self, x: Value) -> TensorType:
        if x.rank is None:
            return TensorType.of(x.dtype, [Dim.fresh("rows"), Dim.fresh("columns")])
        axis = self._axis(x.rank)
        return TensorType(x.dtype, (product(x.shape[:axis]), product(x.shape[axis:])))

    def reference(self, x: Array) -> Array:
        axis = self.axis + x.ndim if self.axis < 0 else self.axis
        rows = math.prod(x.shape[:axis])
        return x.reshape(rows, math.prod(x.shape[axis:]))

    def decompose(self, b: Builder, x: Value) -> Value:
        return b.Reshape(x, b.dims(self.infer(x).dims()), special_zero=False)

    onnx = (Form("Flatten", 1, attrs={"axis": Int(1)}, T=FLOATS), *onnx_rows("Flatten", 9, 11, 13, 21, 23, 24, 25))
    openvino = (write_only(write_flatten),)


def write_reversed(b: Builder, op: Transpose, x: Value, perm: Value | None = None) -> Value:
    """An empty permutation reverses the axes, which ONNX must be told, and OpenVINO of an absent one."""
    return b.Transpose(x, list(range(len(x.shape)))[::-1])


def has_order(op: Transpose, x: Value, perm: Value | None = None) -> bool:
    return perm is None or bool(perm.ints())


@op
class Transpose(Op):
    """Permute the axes: y.shape[i] = x.shape[perm[i]]; an absent or empty `perm` reverses them."""

    sig = Sig("x: T, perm?: I[1] -> y: T", T=ANY, I=INTEGERS)
    carries_contents = modular = True

    def _perm(self, rank: int, perm: Iterable[int] | None) -> list[int]:
        given = [] if perm is None else [int(p) for p in perm]
        return given or list(range(rank))[::-1]

    def infer(self, x: Value, perm: Value | None = None) -> TensorType:
        rank = len(x.shape)
        order = self._perm(rank, None if perm is None else constant_ints("Transpose", "perm", perm))
        facts = {"op": "Transpose", "attribute": "perm", "value": order}
        right = sorted(order) == list(range(rank))
        require(right, operation.ATTRIBUTE_RANGE, **facts, expected=f"a permutation of 0..{rank - 1}")
        return TensorType(x.dtype, tuple(x.shape[p] for p in order))

    def reference(self, x: Array, perm: Array | None = None) -> Array:
        return np.transpose(x, None if perm is None or len(perm) == 0 else [int(p) for p in perm])

    def contents(self, x: Array, perm: Array | None = None) -> Contents:
        return moved_contents(self, x, perm)

    def compute(self, out: TensorType, x: Tensor, perm: Tensor | None = None) -> IndexFunction:
        order = self._perm(x.rank, None if perm is None else perm.ints())
        return lambda *i: x[tuple(i[order.index(k)] for k in range(len(order)))]

    onnx = onnx_rows(
        "Transpose",
        1,
        13,
        21,
        23,
        24,
        25,
        attrs={"perm": AsInput(default=None, index=1, dtype=i64)},
        when=has_order,
        write=write_reversed,
    )
    openvino = (
        Form(
            "Transpose",
            1,
            T={"T": OV_ANY, "I": INTEGERS},
            sig=Sig("x: T, perm: I[1] -> y: T", T=OV_ANY, I=INTEGERS),
            write=write_reversed,
        ),
    )


class AxesOp(Op):
    """Squeeze and Unsqueeze share their index map: the row-major position stays, sizes of 1 take index 0."""

    def contents(self, x: Array, axes: Array | None = None) -> Contents:
        return moved_contents(self, x, axes)

    def compute(self, out: TensorType, x: Tensor, axes: Tensor | None = None) -> IndexFunction:
        shape = out.dims()
        if axes is not None and axes.ints() is None:
            return lambda *i: x[unflatten_index(flatten_index(i, shape), x.shape)]
        if len(shape) < x.rank:
            kept = self.kept(x.shape, None if axes is None else axes.ints())
            return lambda *i: x[tuple(i[kept.index(k)] if k in kept else 0 for k in range(x.rank))]
        new = {a % len(shape) for a in (axes.ints() or [] if axes else [])} if len(shape) > x.rank else set[int]()
        return lambda *i: x[tuple(e for k, e in enumerate(i) if k not in new)]

    def kept(self, shape: Sequence[Dim], axes: list[int] | None) -> list[int]:
        """The axes of the operand that stay."""
        if not axes:
            return [k for k, d in enumerate(shape) if d != 1]
        gone = {a % len(shape) for a in axes}
        return [k for k in range(len(shape)) if k not in gone]


def write_squeeze(b: Builder, op: Squeeze, x: Value, axes: Value | None = None) -> Value:
    """Without `allow_axis_skip`: only the axes that are 1 are named."""
    if op.infer(x, axes).shape is None or (axes is not None and axes.ints() is None):
        return b.Squeeze(x, axes)
    gone = [k for k in range(len(x.shape)) if k not in op.kept(x.shape, axes and axes.ints())]
    return b.Squeeze(x, gone) if gone else b.Identity(x)


def write_vector_axes(b: Builder, op: Unsqueeze, x: Value, axes: Value) -> Value:
    numbers = axes.ints()
    return b.Unsqueeze(x, numbers if numbers is not None else b.Reshape(axes, [-1]))


def vector_axes(op: Squeeze | Unsqueeze, x: Value, axes: Value | None = None) -> bool:
    """ONNX has axes as a vector, also where it is one."""
    return axes is None or axes.rank == 1


def no_skip(op: Squeeze, x: Value, axes: Value | None = None) -> bool:
    return not op.allow_axis_skip


@op
class Squeeze(AxesOp):
    """Remove the given axes, which must have size 1, or all axes of size 1 where none are given.

    With `allow_axis_skip` a given axis of another size is left alone.
    """

    allow_axis_skip: bool = False
    sig = Sig("x: T, axes?: I[0..1] -> y: T", T=ANY, I=INTEGERS)
    carries_contents = modular = True
    whole_floats = True

    def infer(self, x: Value, axes: Value | None = None) -> TensorType:
        rank = len(x.shape)
        given = [] if axes is None else axes.ints()
        if given is None:
            count = axes.tensor.elements().const if axes is not None and axes.rank is not None else None
            known = count is not None and not self.allow_axis_skip
            return TensorType.of(x.dtype, Dim.fresh_shape("squeeze", rank - (count or 0)) if known else None)
        gone = {normal_axis("Squeeze", a, rank) for a in given}
        if not gone or self.allow_axis_skip:
            candidates = [x.shape[k] for k in gone] or list(x.shape)
            if any(d.equals(1) is None for d in candidates):
                return TensorType(x.dtype, None)  # how many are 1 shows when the model runs
        else:
            for a in gone:
                what = f"axis {a} of {x.tensor}"
                require(same(x.shape[a], 1), codes.SIZE_RANGE, op="Squeeze", what=what, value=x.shape[a], expected="1")
        return TensorType(x.dtype, tuple(x.shape[k] for k in self.kept(x.shape, sorted(gone))))

    def resolve(self, b: Builder, x: Value, axes: Value | None = None) -> Value | None:
        if axes is None or axes.ints() is not None or self.allow_axis_skip:
            return None
        rank = len(x.shape)
        left = rank - int(axes.tensor.elements())
        _, counts = named(b, axes, rank)
        return b.Reshape(x, kept(b, counts, b.Shape(x), left), special_zero=False)

    def kept(self, shape: Sequence[Dim], axes: list[int] | None) -> list[int]:
        if self.allow_axis_skip and axes:
            gone = {a % len(shape) for a in axes if shape[a] == 1}
            return [k for k in range(len(shape)) if k not in gone]
        return super().kept(shape, axes)

    def reference(self, x: Array, axes: Array | None = None) -> Array:
        given = [] if axes is None else [int(a) % x.ndim for a in np.asarray(axes).reshape(-1)]
        if self.allow_axis_skip and given:
            return np.squeeze(x, tuple({a for a in given if x.shape[a] == 1}))
        return np.squeeze(x, tuple(set(given)) if given else None)

    onnx = (
        Form(
            "Squeeze",
            1,
            attrs={"axes": AsInput(default=None, index=1, dtype=i64)},
            T={"T": onnx_all(1), "I": {i64}},
            write=write_squeeze,
        ),
        Form("Squeeze", 11),
        *onnx_rows("Squeeze", 13, 21, 23, 24, 25, attrs={}, when=vector_axes),
    )
    openvino = (
        Form("Squeeze", 1, T={"T": OV_ANY, "I": INTEGERS}, write=write_squeeze, when=no_skip),
        Form("Squeeze", 15, attrs={"allow_axis_skip": Bool(False)}, when=None),
    )


def some_axes(op: Unsqueeze, x: Value, axes: Value) -> bool:
    """OpenVINO refuses an Unsqueeze of no axis, and has no rank for one of axes that only a run tells."""
    if axes.array is not None:
        return axes.array.size > 0
    return axes.rank is None or not axes.tensor.elements().is_const


def write_known_axes(b: Builder, op: Unsqueeze, x: Value, axes: Value) -> Value:
    """OpenVINO: axes that are known, though computed, as a constant."""
    given = axes.ints()
    if given is None:
        raise Declined
    return b.Unsqueeze(x, given) if len(given) else b.Identity(x)


@op
class Unsqueeze(AxesOp):
    """Insert axes of size 1; `axes` counts in the result."""

    sig = Sig("x: T, axes: I[0..1] -> y: T", T=ANY, I=INTEGERS)
    carries_contents = modular = True
    whole_floats = True

    def infer(self, x: Value, axes: Value) -> TensorType:
        given = axes.ints()
        if given is None:  # only their number is known
            count = axes.tensor.elements().const if axes.rank is not None else None
            rank = None if count is None else len(x.shape) + count
            return TensorType.of(x.dtype, None if rank is None else Dim.fresh_shape("unsqueeze", rank))
        rank = len(x.shape) + len(given)
        new = normal_axes("Unsqueeze", given, rank)
        rest = iter(x.shape)
        return TensorType(x.dtype, tuple(Dim.of(1) if k in new else next(rest) for k in range(rank)))

    def resolve(self, b: Builder, x: Value, axes: Value) -> Value | None:
        if axes.ints() is not None:
            return None
        rank = len(x.shape) + int(axes.tensor.elements())
        if not x.shape:
            return b.Reshape(x, [1] * rank)
        _, counts = named(b, axes, rank)
        return b.Reshape(x, with_ones(b, counts, b.Shape(x), rank), special_zero=False)

    def reference(self, x: Array, axes: Array) -> Array:
        return np.expand_dims(x, tuple(int(a) for a in np.asarray(axes).reshape(-1)))

    onnx = (
        Form(
            "Unsqueeze",
            1,
            attrs={"axes": AsInput(index=1, dtype=i64)},
            T={"T": onnx_all(1), "I": {i64}},
            write=write_vector_axes,
        ),
        Form("Unsqueeze", 11),
        *onnx_rows("Unsqueeze", 13, 21, 23, 24, 25, attrs={}, when=vector_axes),
    )
    openvino = (Form("Unsqueeze", 1, T={"T": OV_ANY, "I": INTEGERS}, when=some_axes, write=write_known_axes),)
