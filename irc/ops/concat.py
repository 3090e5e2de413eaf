"""Joining and splitting along an axis: Concat, Split, VariadicSplit.

Sources: ONNX Concat, Split; OpenVINO specification, Concat-1, Split-1, VariadicSplit-1.
"""

from __future__ import annotations

import numpy as np

from irc.diagnostics import Facts, require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import Expr, IndexFunction, Tensor, index, select
from irc.ir.dim import Dim, total
from irc.ir.graph import Value
from irc.ir.limits import RESULTS
from irc.ir.relation import multiple, same
from irc.ir.types import ANY, FLOATS, INTEGERS, TensorType, i64
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import AsInput, Int, Ints
from irc.opdef.contents import Contents
from irc.opdef.conversions import as_i64
from irc.opdef.forms import Attributes, Form, Results
from irc.opdef.signature import Sig
from irc.opdef.typesets import ONNX_ALL, OV_ANY, onnx_all
from irc.ops.layout import constant_int, moved_contents, normal_axis


def read_concat_1(b: Builder, a: Attributes, *xs: Value) -> Value:
    """Concat-1: without an axis, 1."""
    return b.Concat(*xs, axis=1 if a.axis is None else a.axis)


@op
class Concat(Op):
    """The operands one after the other along `axis`; their other sizes agree."""

    axis: int
    sig = Sig("*xs: T[r>=1] -> y: T", T=ANY)
    carries_contents = modular = True
    whole_floats = True

    def infer(self, *xs: Value) -> TensorType:
        require(len(xs) > 0, operation.TOO_FEW_INPUTS, op="Concat", given=0, needed=1, operands=self.sig.operands)
        if any(x.rank is None for x in xs):
            return TensorType(xs[0].dtype, None)
        rank = len(xs[0].shape)
        axis = normal_axis("Concat", self.axis, rank)
        result = list(xs[0].shape)
        for n, x in enumerate(xs[1:], start=1):
            require(len(x.shape) == rank, codes.WRONG_RANK, op="Concat", operand=n, type=x.tensor, expected=rank)
            for k in range(rank):
                if k == axis:
                    continue
                what = f"axis {k} of inputs 0 and {n}"
                a, b = result[k], x.shape[k]
                require(same(a, b), codes.SIZES_DIFFER, op="Concat", what=what, a=a, b=b)
                result[k] = b if b.is_const else a
        result[axis] = total(x.shape[axis] for x in xs)
        return TensorType(xs[0].dtype, tuple(result))

    def reference(self, *xs: Array) -> Array:
        return np.concatenate(xs, axis=self.axis)

    def compute(self, out: TensorType, *xs: Tensor) -> IndexFunction:
        axis = self.axis % len(out.dims())
        parts: list[tuple[Dim, Tensor]] = []
        offset = Dim.of(0)
        for x in xs:
            if x.shape[axis] != 0:
                parts.append((offset, x))
                offset = offset + x.shape[axis]
        parts = parts or [(Dim.of(0), xs[0])]

        def element(*i: Expr) -> Expr:
            found: Expr | None = None
            for begin, x in reversed(parts):
                here = x[(*i[:axis], i[axis] - index(begin), *i[axis + 1 :])]
                found = here if found is None else select(i[axis].lt(index(begin + x.shape[axis])), here, found)
            assert found is not None
            return found

        return element

    onnx = (
        Form("Concat", 1, attrs={"axis": Int(None)}, T=FLOATS, read=read_concat_1, direct=True),
        Form("Concat", 4, attrs={"axis": Int()}, T=ONNX_ALL, read=None),
        Form("Concat", 11),
        Form("Concat", 13, T=onnx_all(13)),
    )
    openvino = (Form("Concat", 1, attrs={"axis": Int(assumed=0)}, T=OV_ANY),)


# ------------------------------------------------------------------------------ Split
def read_split_1(b: Builder, a: Attributes, x: Value, lengths: Value | None = None) -> Results:
    """Split-1: the lengths are an attribute, or an operand of the data's type."""
    found = None if a.split is None else b.const(list(a.split))
    if lengths is not None:
        require(lengths.array is not None, operation.NEEDS_CONSTANT, op="Split", operand="split")
        found = b.const(np.asarray(lengths.array).astype(np.int64))
    return b.add_all(Split(num=None if found is not None else a.outputs), x, b.const(a.axis or 0), found)


def read_split(b: Builder, a: Attributes, x: Value, axis: Value, lengths: Value | None = None) -> Results:
    """Without lengths, as many equal parts as the node has results."""
    num = getattr(a, "num", None)
    if lengths is not None and num is not None:
        facts = {"op": "Split", "attribute": "num_outputs", "value": num}
        require(False, operation.ATTRIBUTE_RANGE, **facts, expected="absent where the lengths are given")
    if lengths is None and a.opset < 18 and x.rank is not None:
        even(x.shape[normal_axis("Split", constant_int("Split", "axis", axis), x.rank)], a.outputs)
    if lengths is not None and (lengths.rank is None or not lengths.tensor.is_static):
        lengths = b.Reshape(lengths, [a.outputs], special_zero=False)  # the node says how many there are
    return b.add_all(Split(num=None if lengths is not None else num or a.outputs), x, axis, lengths)


def read_even_split(b: Builder, a: Attributes, x: Value, axis: Value) -> Results:
    """OpenVINO's Split: the parts must be equal."""
    rank = x.rank
    if rank is not None:
        even(x.shape[normal_axis("Split", constant_int("Split", "axis", axis), rank)], a.num)
    return b.add_all(Split(num=a.num), x, axis)


def even(size: Dim, num: int) -> None:
    facts: Facts = {"op": "Split", "what": "the size of the axis that is split", "value": size}
    require(multiple(size, max(num, 1)), codes.SIZE_RANGE, **facts, expected=f"a multiple of {num}")


def is_even(op: Split, x: Value, axis: Value, lengths: Value | None = None) -> bool:
    """Whether a row that knows no smaller last part can say it."""
    if lengths is not None:
        return -1 not in (lengths.ints() or ())
    size = x.shape[normal_axis("Split", constant_int("Split", "axis", axis), len(x.shape))]
    assert op.num is not None, "there are no lengths"
    return (size % op.num).equals(0) is not False


def whole_lengths(op: Split, x: Value, axis: Value, lengths: Value | None = None) -> bool:
    return lengths is None or -1 not in (lengths.ints() or ())


def equal_parts(op: Split, x: Value, axis: Value, lengths: Value | None = None) -> bool:
    return lengths is None and is_even(op, x, axis)


def has_lengths(op: Split, x: Value, axis: Value, lengths: Value | None = None) -> bool:
    return lengths is not None


def write_lengths(b: Builder, op: Split, x: Value, axis: Value, lengths: Value | None = None) -> Results:
    """With the lengths of all parts spelled out."""
    sizes = op.lengths(x, axis, lengths)
    return b.add_all(Split(), x, axis, b.dims(sizes))


@op
class Split(Op):
    """x cut along `axis` into parts of the given lengths (one may be -1: the rest), or into `num` equal parts.

    Where `num` does not divide the size, the last part is smaller.
    """

    num: int | None = None
    sig = Sig("x: T[>=1], axis: A[one], lengths?: I[1] -> *ys: T", T=ANY, A=INTEGERS, I=INTEGERS)
    carries_contents = modular = True

    def lengths(self, x: Value, axis: Value, lengths: Value | None) -> list[Dim]:
        """The size of every part along the axis."""
        size = x.shape[normal_axis("Split", constant_int("Split", "axis", axis), len(x.shape))]
        if lengths is None:
            num = self.num or 1
            RESULTS.check(num, "Split")
            part = size.ceildiv(num)
            return [part] * (num - 1) + [size - part * (num - 1)]
        given = lengths.dims()
        if given is None:
            count = lengths.shape[0].const
            require(count is not None, operation.NEEDS_CONSTANT, op="Split", operand="lengths")
            RESULTS.check(count or 0, "Split")
            parts = [Dim.fresh("split", size) for _ in range(count or 0)]
            total = sum(parts, start=Dim.of(0))
            what = "sum of the lengths and the size of the axis"
            require(same(total, size), codes.SIZES_DIFFER, op="Split", what=what, a=total, b=size)
            return parts
        known = sum((d for d in given if d != -1), start=Dim.of(0))
        if all(d != -1 for d in given):
            what = "sum of the lengths and the size of the axis"
            require(same(known, size), codes.SIZES_DIFFER, op="Split", what=what, a=known, b=size)
        return [size - known if d == -1 else d for d in given]

    def infer(self, x: Value, axis: Value, lengths: Value | None = None) -> list[TensorType]:
        k = normal_axis("Split", constant_int("Split", "axis", axis), len(x.shape))
        return [x.tensor.with_dim(k, size) for size in self.lengths(x, axis, lengths)]

    def result_count(self, x: Value, axis: Value, lengths: Value | None = None) -> int:
        return (self.num or 1) if lengths is None else int(lengths.shape[0])

    def reference(self, x: Array, axis: Array, lengths: Array | None = None) -> list[Array]:
        k = int(np.asarray(axis).reshape(-1)[0])
        size = x.shape[k]
        if lengths is None:
            num = self.num or 1
            part = -(-size // num)
            sizes = [min(part, max(size - part * n, 0)) for n in range(num)]
        else:
            given = [int(n) for n in lengths]
            sizes = [size - sum(given) - 1 if n == -1 else n for n in given]
        if min(sizes, default=0) < 0 or sum(sizes) != size:
            raise ValueError(f"parts of {sizes} elements do not make up an axis of {size}")
        ends = np.cumsum(sizes)[:-1]
        return [np.ascontiguousarray(part) for part in np.split(x, ends, axis=k)]

    def contents(self, x: Array, *operands: Array | None) -> Contents:
        parts = moved_contents(self, x, *operands)
        return parts[0] if isinstance(parts, list | tuple) and len(parts) == 1 else parts

    def resolve(self, b: Builder, x: Value, axis: Value, lengths: Value | None = None) -> tuple[Value, ...] | None:
        if lengths is None or lengths.dims() is not None:
            return None
        k = normal_axis("Split", constant_int("Split", "axis", axis), len(x.shape))
        sizes = as_i64(b, lengths)
        rest = b.Equal(sizes, b.const(-1))
        known = b.ReduceSum(b.Where(rest, b.const(0), sizes), [0])
        sizes = b.Where(rest, b.Sub(b.dims([x.shape[k]]), known), sizes)
        ends = b.CumSum(sizes, b.const(0))
        starts = b.Sub(ends, sizes)
        count = range(int(lengths.shape[0]))
        bounds = [[b.Slice(v, [n], [n + 1], [0]) for v in (starts, ends)] for n in count]
        return tuple(b.Slice(x, first, end, [k]) for first, end in bounds)

    def decompose(self, b: Builder, x: Value, axis: Value, lengths: Value | None = None) -> tuple[Value, ...]:
        """A Slice for each part."""
        k = normal_axis("Split", constant_int("Split", "axis", axis), len(x.shape))
        at = Dim.of(0)
        parts: list[Value] = []
        for size in self.lengths(x, axis, lengths):
            parts.append(b.Slice(x, b.dims([at]), b.dims([at + size]), [k], [1]))
            at = at + size
        return tuple(parts)

    onnx = (
        Form(
            "Split",
            1,
            attrs={"axis": Int(None), "split": Ints(None)},
            T={"T": FLOATS, "I": {i64}, "A": {i64}},
            sig=Sig("x: T[>=1], split?: T[1] -> *ys: T", T=FLOATS),
            read=read_split_1,
            direct=False,
        ),
        Form(
            "Split",
            2,
            T={"T": ONNX_ALL},
            read=read_split,
            write=write_lengths,
            direct=True,
            when=is_even,
            sig=Sig("x: T[>=1] -> *ys: T", T=ONNX_ALL),
            attrs={"axis": AsInput(0, index=1, dtype=i64, scalar=True), "split": AsInput(None, index=2, dtype=i64)},
            judges=("num",),
        ),
        Form("Split", 11),
        Form("Split", 13, T={"T": onnx_all(13)}, sig=None, attrs={"axis": AsInput(0, index=1, dtype=i64, scalar=True)}),
        Form(
            "Split",
            18,
            when=whole_lengths,
            attrs={"axis": AsInput(0, index=1, dtype=i64, scalar=True), "num_outputs": Int(None, to="num", lo=1)},
        ),
    )
    openvino = (
        Form(
            "Split",
            1,
            T={"T": OV_ANY},
            attrs={"num_splits": Int(to="num", lo=1)},
            read=read_even_split,
            sig=Sig("x: T[>=1], axis: A[one] -> *ys: T", T=OV_ANY, A=INTEGERS),
            direct=True,
            when=equal_parts,
            write=write_lengths,
        ),
        Form(
            "VariadicSplit",
            1,
            T={"T": OV_ANY},
            when=has_lengths,
            sig=Sig("x: T[>=1], axis: A[one], lengths: I[1] -> *ys: T", T=OV_ANY, A=INTEGERS, I=INTEGERS),
        ),
    )
