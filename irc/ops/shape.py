"""Shapes as data, and tensors made from shapes: Shape, Size, Expand, Tile, Eye.

Their results are what dynamic shapes are computed from, so they carry symbolic contents.
Sources: ONNX operator pages; OpenVINO specification, "Shape manipulation", "Movement", "Generation".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from irc.diagnostics import Facts, require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import Const, Expr, IndexFunction, Tensor, index, select
from irc.formats.document import Attr, RawTensor
from irc.ir.dim import Dim, DimLike, product
from irc.ir.graph import Constant, Value
from irc.ir.literal import AttributeValue
from irc.ir.relation import at_most, stretches_to
from irc.ir.types import ANY, FLOATS, INTEGERS, DType, TensorType, bf16, boolean, f32, i64, wrapped
from irc.opdef.base import Array, Op, op
from irc.opdef.broadcasting import broadcast_shapes
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Codec, DTypeAttr, Enum, Int, Reading
from irc.opdef.contents import Contents
from irc.opdef.conversions import as_i64, as_scalar
from irc.opdef.forms import PREV, Attributes, Declined, Form, write_only
from irc.opdef.run_sizes import each
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX, ONNX_ALL, ONNX_NUMBERS, OV_ANY, onnx_all, onnx_rows
from irc.ops.layout import constant_ints, dims_array, moved_contents, normal_axes, pick


# ------------------------------------------------------------------------------ Shape and Size
def write_shape(b: Builder, op: Shape, x: Value) -> Value:
    """A part of the shape is sliced out of it, another element type is converted to."""
    found = b.Shape(x)
    if op.start or op.end is not None:
        found = b.Slice(found, [op.start], [op.end if op.end is not None else np.iinfo(np.int32).max], [0])
    return found if op.output_type == i64 else b.Cast(found, to=op.output_type)


@op
class Shape(Op):
    """The shape of x, or the part [start:end] of it, which are clamped to its length as Python's are."""

    start: int = 0
    end: int | None = None
    output_type: DType = i64
    sig = Sig("x: T -> y: i64", T=ANY)
    carries_contents = modular = True
    reads_type_only = True

    def infer(self, x: Value) -> TensorType:
        if x.rank is None:
            return TensorType.of(self.output_type, [Dim.fresh("rank")])
        return TensorType.of(self.output_type, [len(range(x.rank)[self.start : self.end])])

    def reference(self, x: Array) -> Array:
        return np.array(x.shape[self.start : self.end], np.int64).astype(self.output_type.numpy)

    def contents(self, x: Value) -> Contents:
        return dims_array(x.shape[self.start : self.end])

    def compute(self, out: TensorType, x: Tensor) -> IndexFunction:
        def element(i: Expr) -> Expr:
            return pick(x.shape[self.start : self.end], i).cast(self.output_type)

        return element

    onnx = (
        *onnx_rows("Shape", 1, 13, write=write_shape),
        Form("Shape", 15, attrs={"start": Int(0), "end": Int(None)}),
        *onnx_rows("Shape", 19, 21, 23, 24, 25),
    )
    openvino = (Form("ShapeOf", 1, T=OV_ANY, write=write_shape), Form("ShapeOf", 3, attrs={"output_type": DTypeAttr()}))


@op
class Size(Op):
    """The number of elements of x, as a scalar."""

    sig = Sig("x: T -> y: i64", T=ANY)
    carries_contents = modular = True
    reads_type_only = True

    def infer(self, x: Value) -> TensorType:
        return TensorType(i64, ())

    def reference(self, x: Array) -> Array:
        return np.array(x.size, np.int64)

    def contents(self, x: Value | Array) -> Contents:
        return None if isinstance(x, Value) and x.rank is None else dims_array([product(x.shape)]).reshape(())

    def decompose(self, b: Builder, x: Value) -> Value:
        return b.ReduceProd(b.Shape(x), [0], keepdims=False)

    onnx = onnx_rows("Size", 1, 13, 19, 21, 23, 24, 25)


# ------------------------------------------------------------------------------ Expand
@dataclass(frozen=True)
class OneElement(Codec):
    """A tensor attribute of one element: (element type, array)."""

    def decode(self, raw: Attr, r: Reading) -> tuple[DType, Array]:
        if not isinstance(raw, RawTensor) or math.prod(raw.shape) != 1:
            raise r.bad(raw, "a tensor of one element")
        return raw.dtype, np.asarray(raw.load()).reshape(())

    def encode(self, value: AttributeValue, format: str) -> Attr:
        raise ValueError("written as Expand")


def read_constant_of_shape(b: Builder, a: Attributes, shape: Value) -> Value:
    """ConstantOfShape is one element, expanded."""
    dtype, array = a.value or (f32, np.zeros((), np.float32))
    element = b.graph.add_constant(Constant.of(array, dtype), f"{b.hint}/value")
    return b.Expand(element, shape)


def read_broadcast(b: Builder, a: Attributes, x: Value, shape: Value, axes: Value | None = None) -> Value:
    """OpenVINO's Broadcast: in mode explicit the operand's axes are first put where `axes_mapping` says."""
    if a.mode != "explicit":
        return b.Expand(x, shape, mode=a.mode)
    require(axes is not None, operation.MISSING_OPERAND, op="Broadcast", operand="axes_mapping", index=2)
    assert axes is not None
    rank = len(shape.dims() or ()) if shape.dims() is not None else shape.shape[0].const
    require(rank is not None, operation.NEEDS_CONSTANT, op="Broadcast", operand="target_shape")
    mapping = normal_axes("Broadcast", constant_ints("Broadcast", "axes_mapping", axes), rank or 0)
    facts: Facts = {"op": "Broadcast", "attribute": "axes_mapping", "value": list(mapping)}
    require(list(mapping) == sorted(mapping), operation.ATTRIBUTE_RANGE, **facts, expected="in ascending order")
    if x.rank == 0 and len(mapping) == 1:  # a scalar may be mapped like a vector of one element
        return b.Expand(x, shape, mode="numpy")
    fits = len(mapping) == len(x.shape)
    facts = {"op": "Broadcast", "attribute": "axes_mapping", "given": len(mapping), "needed": x.rank}
    require(fits, operation.ATTRIBUTE_LENGTH, **facts)
    new = [k for k in range(rank or 0) if k not in mapping]
    return b.Expand(b.Unsqueeze(x, new) if new else x, shape, mode="numpy")


def write_expand(b: Builder, op: Expand, x: Value, shape: Value) -> Value:
    """In the other mode, where both mean the same."""
    if op.mode == "numpy":
        return b.Expand(x, shape)
    out = op.infer(x, shape)
    require(out.is_static, operation.NEEDS_CONSTANT, op="Broadcast", operand="target_shape")
    return b.Expand(x, b.dims(out.dims()), mode="numpy")


BROADCAST_1 = {"mode": Enum({"numpy": "numpy", "none": "explicit", "explicit": "explicit"}, "numpy")}
BROADCAST_3 = {"mode": Enum({"numpy": "numpy", "explicit": "explicit", "bidirectional": "bidirectional"}, "numpy")}
BROADCAST_SIG = Sig("x: T, shape: I[1], axes?: J[0..1] -> y: T", T=OV_ANY, I=INTEGERS, J=INTEGERS)


@op
class Expand(Op):
    """x broadcast to `shape` by NumPy's rule.

    mode "bidirectional": sizes of 1 in `shape` give way to those of x too; "numpy": the result has that shape.
    """

    mode: str = "bidirectional"
    sig = Sig("x: T, shape: I[1] -> y: T", T=ANY, I=INTEGERS)
    carries_contents = modular = True
    whole_floats = True

    def infer(self, x: Value, shape: Value) -> TensorType:
        target = shape.dims()
        if target is None:
            rank = shape.shape[0].const if shape.rank == 1 else None
            if rank is None or x.rank is None:
                return TensorType(x.dtype, None)
            rank = max(rank, x.rank) if self.mode == "bidirectional" else rank
            dims = Dim.fresh_shape("expand", rank)
            require(
                stretches_to(x.shape, dims),
                codes.NOT_BROADCASTABLE,
                op="Expand",
                shapes=f"{x.tensor} to {dims}",
                axis="of the operand",
            )
            return TensorType.of(x.dtype, dims)
        for size in target:
            facts = {"op": "Expand", "what": "a size", "value": size, "expected": "0 or more"}
            require(at_most(0, size), codes.SIZE_RANGE, **facts)
        if x.rank is None and self.mode == "numpy":
            return TensorType(x.dtype, tuple(target))
        found = broadcast_shapes("Expand", [x.shape, tuple(target)])
        if self.mode == "numpy":
            grown = len(found) != len(target) or any(a.equals(b) is False for a, b in zip(found, target, strict=True))
            text = f"{x.tensor} to [{','.join(map(str, target))}]"
            require(not grown, codes.NOT_BROADCASTABLE, op="Broadcast", shapes=text, axis="of the operand")
            return TensorType(x.dtype, tuple(target))
        return TensorType(x.dtype, found)

    def run_sizes(self, b: Builder, out: TensorType, x: Value, shape: Value) -> Iterable[tuple[Dim, Value]]:
        wanted, rank = as_i64(b, shape), len(out.dims())
        if self.mode == "bidirectional":
            count = int(shape.shape[0])
            wanted = b.Concat(b.const([1] * (rank - count)), wanted, axis=0)
            sizes = b.dims([*[1] * (rank - len(x.shape)), *x.shape])
            wanted = b.Where(b.Equal(wanted, b.const(1)), sizes, wanted)
        return each(b, out.dims(), wanted)

    def reference(self, x: Array, shape: Array) -> Array:
        target = tuple(int(s) for s in np.asarray(shape).reshape(-1))
        return np.array(np.broadcast_to(x, np.broadcast_shapes(x.shape, target)))

    def contents(self, x: Array, shape: Array) -> Contents:
        return moved_contents(self, x, shape)

    def compute(self, out: TensorType, x: Tensor, shape: Tensor) -> IndexFunction:
        return lambda *i: x.broadcast(i, out.dims())

    onnx = (
        Form("Expand", 8, T={"T": ONNX_ALL, "I": {i64}}, write=write_expand),
        Form("Expand", 13, T={"T": onnx_all(13)}),
        *(
            Form(
                "ConstantOfShape",
                n,
                attrs={"value": OneElement(None)},
                T={"I": {i64}},
                direct=False,
                sig=Sig("shape: I[1] -> y: T", I={i64}),
                read=read_constant_of_shape,
            )
            for n in (9, 20, 21, 23, 24, 25)
        ),
    )
    openvino = (
        Form(
            "Broadcast",
            1,
            attrs=BROADCAST_1,
            T={"T": OV_ANY, "I": INTEGERS, "J": INTEGERS},
            sig=BROADCAST_SIG,
            read=read_broadcast,
            write=write_expand,
            direct=True,
        ),
        Form("Broadcast", 3, attrs=BROADCAST_3),
    )


# ------------------------------------------------------------------------------ Tile
def _difference(x: Value, repeats: Value) -> int | None:
    """How many more axes x has than there are repeats."""
    count = repeats.shape[0].const if repeats.rank == 1 else None
    return None if count is None or x.rank is None else x.rank - count


def once_per_axis(op: Tile, x: Value, repeats: Value) -> bool:
    """ONNX: one number for each axis."""
    return not _difference(x, repeats)


def write_once_per_axis(b: Builder, op: Tile, x: Value, repeats: Value) -> Value:
    """ONNX: ones in front of the shorter of shape and repeats."""
    more = _difference(x, repeats) or 0
    if more > 0:
        return b.Tile(x, b.Concat(b.const([1] * more, repeats.dtype), repeats, axis=0))
    return b.Tile(b.Unsqueeze(x, list(range(-more))), repeats)


def known_or_few(op: Tile, x: Value, repeats: Value) -> bool:
    """OpenVINO's processor plugin leaves memory unset where a run repeats three axes behind the first one."""
    known = repeats.array is not None or repeats.rank is None or not repeats.shape[0].is_const
    return known or x.rank is None or max(x.rank, int(repeats.shape[0])) < 4


def write_spread(b: Builder, op: Tile, x: Value, repeats: Value) -> Value:
    """OpenVINO: an axis in front of every axis, spread to as many as that is repeated."""
    if known_or_few(op, x, repeats):
        raise Declined
    more = _difference(x, repeats) or 0
    x = b.Unsqueeze(x, list(range(-more))) if more < 0 else x
    times, rank = b.Concat(b.const([1] * max(more, 0)), as_i64(b, repeats), axis=0), len(x.shape)
    shape = b.Shape(x)
    pairs = b.Concat(b.Unsqueeze(times, [1]), b.Unsqueeze(shape, [1]), axis=1)
    apart = b.Unsqueeze(x, list(range(0, 2 * rank, 2)))
    return b.Reshape(b.Expand(apart, b.Reshape(pairs, [2 * rank])), b.Mul(times, shape), special_zero=False)


def read_tile_1(b: Builder, a: Attributes, x: Value, tiles: Value, axis: Value) -> Value:
    """Tile-1 repeats one axis; count and axis are operands of the data's type."""
    require(tiles.array is not None, operation.NEEDS_CONSTANT, op="Tile", operand="tiles")
    require(axis.array is not None, operation.NEEDS_CONSTANT, op="Tile", operand="axis")
    repeats = [1] * len(x.shape)
    repeats[int(np.asarray(axis.array).item())] = int(np.asarray(tiles.array).item())
    return b.Tile(x, repeats)


@op
class Tile(Op):
    """x repeated along every axis; where x and `repeats` differ in length, the shorter starts with ones."""

    sig = Sig("x: T, repeats: I[1] -> y: T", T=ANY, I=INTEGERS)
    carries_contents = modular = True

    def infer(self, x: Value, repeats: Value) -> TensorType:
        times = repeats.dims()
        if times is None:
            count = repeats.shape[0].const if repeats.rank == 1 else None
            rank = None if count is None else max(count, len(x.shape))
            return TensorType.of(x.dtype, None if rank is None else Dim.fresh_shape("tile", rank))
        rank = max(len(times), len(x.shape))
        sizes = [*[Dim.of(1)] * (rank - len(x.shape)), *x.shape]
        times = [*[Dim.of(1)] * (rank - len(times)), *times]
        return TensorType(x.dtype, tuple(s * t for s, t in zip(sizes, times, strict=True)))

    def run_sizes(self, b: Builder, out: TensorType, x: Value, repeats: Value) -> Iterable[tuple[Dim, Value]]:
        rank, times = len(out.dims()), as_i64(b, repeats)
        times = b.Concat(b.const([1] * (rank - int(repeats.shape[0]))), times, axis=0)
        return each(b, out.dims(), b.Mul(times, b.dims([*[1] * (rank - len(x.shape)), *x.shape])))

    def reference(self, x: Array, repeats: Array) -> Array:
        return np.tile(x, [int(r) for r in np.asarray(repeats).reshape(-1)])

    def contents(self, x: Array, repeats: Array) -> Contents:
        return moved_contents(self, x, repeats)

    def compute(self, out: TensorType, x: Tensor, repeats: Tensor) -> IndexFunction:
        skip = len(out.dims()) - x.rank
        same = [a == b for a, b in zip(out.dims()[skip:], x.shape, strict=True)]
        return lambda *i: x[tuple(e if s else e % index(d) for e, s, d in zip(i[skip:], same, x.shape, strict=True))]

    onnx = (
        Form(
            "Tile",
            1,
            T={"T": FLOATS, "I": {i64}},
            read=read_tile_1,
            direct=False,
            sig=Sig("x: T, tiles: T[one], axis: T[one] -> y: T", T=FLOATS),
        ),
        Form("Tile", 6, T={"T": ONNX_ALL}, sig=None, read=None, when=once_per_axis, write=write_once_per_axis),
        Form("Tile", 13, T={"T": onnx_all(13)}),
    )
    openvino = (Form("Tile", 1, T={"T": OV_ANY, "I": INTEGERS}, when=known_or_few, write=write_spread),)


# ------------------------------------------------------------------------------ Eye and Trilu
def eye_like_type(b: Builder, a: Attributes, x: Value) -> Value:
    return b.EyeLike(x, k=a.k, dtype=a.dtype or x.dtype)


def eye_by_compare(
    b: Builder, op: Eye, rows: Value, columns: Value, diagonal: Value, batch: Value | None = None
) -> Value:
    """Eye for ONNX: row numbers, moved by the diagonal, compared with column numbers."""

    height, width, offset = (as_scalar(b, as_i64(b, v)) for v in (rows, columns, diagonal))
    down = b.Add(b.Range(b.const(0), height, b.const(1)), offset)
    across = b.Range(b.const(0), width, b.const(1))
    found = b.Cast(b.Equal(b.Unsqueeze(down, [1]), b.Unsqueeze(across, [0])), to=op.output_type)
    if batch is None:
        return found
    return b.Expand(found, b.Concat(as_i64(b, batch), b.Shape(found), axis=0))


@op
class Eye(Op):
    """Ones where column = row + `diagonal`, zeros elsewhere, for every index of `batch`."""

    output_type: DType
    sig = Sig(
        "rows: R[one], columns: C[one], diagonal: D[one], batch?: B[1] -> y: any", R=INDEX, C=INDEX, D=INDEX, B=INDEX
    )

    def infer(self, rows: Value, columns: Value, diagonal: Value, batch: Value | None = None) -> TensorType:
        lead = [] if batch is None else batch.dims()
        if lead is None:
            count = batch.shape[0].const if batch is not None and batch.rank == 1 else None
            if count is None:
                return TensorType(self.output_type, None)
            lead = Dim.fresh_shape("batch", count)
        sizes = [(v.dims() or [Dim.fresh("eye")])[0] for v in (rows, columns)]
        return TensorType(self.output_type, (*lead, *sizes))

    def run_sizes(
        self, b: Builder, out: TensorType, rows: Value, columns: Value, diagonal: Value, batch: Value | None = None
    ) -> Iterable[tuple[Dim, Value]]:
        lead = out.dims()[:-2]
        if batch is not None and lead:
            yield from each(b, lead, as_i64(b, batch))
        yield from zip(out.dims()[-2:], (rows, columns), strict=True)

    def reference(self, rows: Array, columns: Array, diagonal: Array, batch: Array | None = None) -> Array:
        found = np.eye(int(rows.item()), int(columns.item()), int(diagonal.item()))
        lead = () if batch is None else tuple(int(n) for n in batch)
        return np.array(np.broadcast_to(found, (*lead, *found.shape))).astype(self.output_type.numpy)

    def compute(
        self, out: TensorType, rows: Tensor, columns: Tensor, diagonal: Tensor, batch: Tensor | None = None
    ) -> IndexFunction:
        def element(*i: Expr) -> Expr:
            on = (i[-2] + diagonal[(0,) * diagonal.rank].cast(i64)).eq(i[-1])
            return select(on, one(out.dtype), zero(out.dtype))

        return element

    onnx = (write_only(eye_by_compare),)
    openvino = (Form("Eye", 9, attrs={"output_type": DTypeAttr()}),)


def zero(dtype: DType) -> Const:
    """0 of that element type."""
    return Const(False if dtype.kind == "b" else 0.0 if dtype.is_float else 0, dtype)


def one(dtype: DType) -> Const:
    """1 of that element type."""
    return Const(True if dtype.kind == "b" else 1.0 if dtype.is_float else 1, dtype)


def eye_by_shape(b: Builder, op: EyeLike, x: Value) -> Value:
    """EyeLike for OpenVINO: Eye of the operand's sizes."""
    shape = b.Shape(x)
    rows, columns = (b.Gather(shape, b.const(k), b.const(0)) for k in (0, 1))
    return b.Eye(rows, columns, b.const(op.k), output_type=op.dtype)


@op
class EyeLike(Op):
    """A matrix of the shape of x with ones where column = row + k."""

    dtype: DType
    k: int = 0
    sig = Sig("x: T[2] -> y: any", T=ONNX_NUMBERS | {boolean, bf16})
    reads_type_only = True

    def infer(self, x: Value) -> TensorType:
        require(len(x.shape) == 2, codes.WRONG_RANK, op="EyeLike", operand="x", type=x.tensor, expected=2)
        return TensorType(self.dtype, x.shape)

    def reference(self, x: Array) -> Array:
        return np.eye(x.shape[0], x.shape[1], self.k).astype(self.dtype.numpy)

    def compute(self, out: TensorType, x: Tensor) -> IndexFunction:
        def element(row: Expr, column: Expr) -> Expr:
            return select((row + self.k).eq(column), one(out.dtype), zero(out.dtype))

        return element

    onnx = (
        Form(
            "EyeLike",
            9,
            attrs={"dtype": DTypeAttr(None), "k": Int(0)},
            T=ONNX_NUMBERS | {boolean},
            read=eye_like_type,
            direct=True,
        ),
        Form("EyeLike", 22, T=PREV | {bf16}),
    )
    openvino = (write_only(eye_by_shape, since=9),)


def trilu_by_mask(b: Builder, op: Trilu, x: Value, k: Value | None = None) -> Value:
    """Trilu for OpenVINO: a comparison of row and column numbers selects x or zeros."""
    shape = b.Shape(x)
    zero, one = b.const(0), b.const(1)
    rank = len(x.shape)
    rows, columns = (b.Range(zero, b.Gather(shape, b.const(rank - n), zero), one) for n in (2, 1))
    diagonal = b.Add(b.Unsqueeze(rows, [1]), zero if k is None else b.Reshape(k, []))
    columns = b.Unsqueeze(columns, [0])
    keep = b.GreaterOrEqual(columns, diagonal) if op.upper else b.LessOrEqual(columns, diagonal)
    return b.Where(keep, x, b.like(0, x))


@op
class Trilu(Op):
    """The upper (or lower) triangle of the matrices of x, zeros elsewhere; `k` moves the diagonal up."""

    upper: bool = True
    sig = Sig("x: T[>=2], k?: i64[one] -> y: T", T=ANY)

    def infer(self, x: Value, k: Value | None = None) -> TensorType:
        require(len(x.shape) >= 2, codes.WRONG_RANK, op="Trilu", operand="x", type=x.tensor, expected="2 or more")
        return x.tensor

    def reference(self, x: Array, k: Array | None = None) -> Array:
        diagonal = 0 if k is None else int(np.asarray(k).item())
        keep = np.tri(x.shape[-2], x.shape[-1], diagonal - 1 if self.upper else diagonal, dtype=bool)
        return np.where(~keep if self.upper else keep, x, x.dtype.type(0))

    def compute(self, out: TensorType, x: Tensor, k: Tensor | None = None) -> IndexFunction:
        def element(*i: Expr) -> Expr:
            edge = i[-2] if k is None else i[-2] + k[(0,) * k.rank]
            return select(i[-1].ge(edge) if self.upper else i[-1].le(edge), x[i], zero(out.dtype))

        return element

    onnx = (Form("Trilu", 14, attrs={"upper": Bool(True)}, T=onnx_all(13)), write_only(trilu_by_mask))
    openvino = (write_only(trilu_by_mask),)


def sizes_of(b: Builder, value: Value, axes: Sequence[int]) -> Value:
    """The sizes of these axes as an i64 vector: a constant, or computed from the value's shape."""
    if value.type.shape is not None and all(value.shape[a].is_const for a in axes):  # type: ignore[union-attr]
        return b.const([int(value.shape[a]) for a in axes])
    return b.Gather(b.Shape(value), b.const(list(axes)), b.const(0))


@op
class DimVector(Op):
    """Sizes known symbolically when compiling, as an i64 vector: what Shape arithmetic becomes."""

    dims: tuple[Dim, ...]
    sig = Sig(" -> y: i64")
    carries_contents = modular = True

    def with_sizes(self, sizes: Mapping[str, DimLike]) -> Op:
        stated = {s.name for d in self.dims for s in d.symbols()}
        return DimVector(dims=tuple(d.subs(sizes) for d in self.dims)) if stated & sizes.keys() else self

    def infer(self) -> TensorType:
        return TensorType.of(i64, (len(self.dims),))

    def reference(self) -> Array:
        return np.array([wrapped(int(d), i64) for d in self.dims], np.int64)

    def contents(self) -> Contents:
        return dims_array(self.dims)

    def compute(self, out: TensorType) -> IndexFunction:
        def element(i: Expr) -> Expr:
            return pick(self.dims, i)

        return element
