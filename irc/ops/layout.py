"""Rearrangement without arithmetic: Identity, Reshape, Squeeze, Unsqueeze, Flatten, Transpose.

Sources: ONNX operator pages; OpenVINO specification, "Shape manipulation" and "Movement".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import Expr, IndexFunction, Tensor, flatten_index, unflatten_index
from irc.ir.dim import Dim, product
from irc.ir.graph import Value
from irc.ir.types import ANY, INTEGERS, TensorType, i32, i64
from irc.ops.base import Array, Op, op
from irc.ops.codecs import AsInput, Bool, Choice, Ignored
from irc.ops.forms import Form
from irc.ops.signature import Sig

INDEX = frozenset({i32, i64})


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


@op
class Identity(Op):
    """y = x."""

    sig = Sig("x: any -> y: any")
    carries_contents = True

    def infer(self, x: Value) -> Any:
        return x.type

    def reference(self, x: Array) -> Array:
        return x

    def compute(self, out: TensorType, x: Tensor) -> IndexFunction:
        return lambda *i: x[i]

    onnx = (Form("Identity", 1), *(Form("Identity", n) for n in (13, 14, 16, 19, 21, 23, 24, 25, 28)))
    openvino = (Form("Identity", 16),)


ZERO_COPIES = Choice(True, to="special_zero", yes=False, no=True)
"""ONNX's allowzero, which says the opposite."""


def read_reshape(b: Any, a: Any, x: Value, shape: Value) -> Value:
    """Where no size can be 0, how a 0 would be taken does not matter: the default, which every version can say."""
    sizes = shape.dims()
    positive = sizes is not None and all(s == -1 or (s.bounds()[0] > 0) for s in sizes)
    return b.Reshape(x, shape, special_zero=a.special_zero or positive)


@op
class Reshape(Op):
    """The same elements, row-major, under another shape.

    One size of `shape` may be -1: what is left over.  With `special_zero` a 0 copies the size of that axis.
    """

    special_zero: bool = True
    sig = Sig("x: T, shape: I -> y: T", T=ANY, I=INDEX)
    carries_contents = True

    def infer(self, x: Value, shape: Value) -> TensorType:
        sizes = shape.dims()
        if sizes is None:
            rank = shape.shape[0].const if shape.rank == 1 else None
            return TensorType.of(x.dtype, None if rank is None else [Dim.fresh("reshape") for _ in range(rank)])
        result: list[Dim] = []
        hole = None
        for i, size in enumerate(sizes):
            if size == 0 and self.special_zero:
                require(i < len(x.shape), codes.AXIS_RANGE, op="Reshape", axis=i, rank=len(x.shape), lo=0, hi=len(x.shape) - 1)
                size = x.shape[i]
            if size == -1:
                require(hole is None, operation.ATTRIBUTE_RANGE, op="Reshape", attribute="shape", value=[str(s) for s in sizes], expected="a shape with at most one -1")
                hole = i
                size = Dim.of(1)
            result.append(size)
        have, want = x.tensor.elements(), product(result)
        text = "[" + ",".join(map(str, sizes)) + "]"
        facts = {"op": "Reshape", "source": x.tensor, "have": have, "target": text, "want": want}
        if hole is not None:
            require((have % want).equals(0) if want != 0 else True, codes.RESHAPE_COUNT, **facts)
            result[hole] = have // want if want != 0 else Dim.of(0)
        else:
            require(have.equals(want), codes.RESHAPE_COUNT, **facts)
        return TensorType(x.dtype, tuple(result))

    def reference(self, x: Array, shape: Array) -> Array:
        sizes = [int(s) for s in np.asarray(shape).reshape(-1)]
        sizes = [x.shape[i] if s == 0 and self.special_zero else s for i, s in enumerate(sizes)]
        return x.reshape(sizes)

    def compute(self, out: TensorType, x: Tensor, shape: Tensor) -> IndexFunction:
        return lambda *i: x[unflatten_index(flatten_index(i, out.dims()), x.shape)]

    onnx = (
        Form("Reshape", 1, attrs={"shape": AsInput(index=1, dtype=i64), "consumed_inputs": Ignored()}),
        Form("Reshape", 5, attrs={}),
        Form("Reshape", 13),
        Form("Reshape", 14, attrs={"allowzero": ZERO_COPIES}, read=read_reshape, direct=True),
    )
    openvino = (Form("Reshape", 1, attrs={"special_zero": Bool()}, read=read_reshape, direct=True),)


@op
class Transpose(Op):
    """Permute the axes: y.shape[i] = x.shape[perm[i]]; an absent or empty `perm` reverses them."""

    sig = Sig("x: T, perm?: I -> y: T", T=ANY, I=INTEGERS)
    carries_contents = True

    def _perm(self, rank: int, perm: Any) -> list[int]:
        given = [] if perm is None else [int(p) for p in perm]
        return given or list(range(rank))[::-1]

    def infer(self, x: Value, perm: Value | None = None) -> TensorType:
        order = self._perm(len(x.shape), None if perm is None else constant_ints("Transpose", "perm", perm))
        right = sorted(order) == list(range(len(x.shape)))
        require(right, operation.ATTRIBUTE_RANGE, op="Transpose", attribute="perm", value=order, expected=f"a permutation of 0..{len(x.shape) - 1}")
        return TensorType(x.dtype, tuple(x.shape[p] for p in order))

    def reference(self, x: Array, perm: Array | None = None) -> Array:
        return np.transpose(x, None if perm is None or len(perm) == 0 else [int(p) for p in perm])

    def compute(self, out: TensorType, x: Tensor, perm: Tensor | None = None) -> IndexFunction:
        order = self._perm(x.rank, None if perm is None else perm.ints())
        return lambda *i: x[tuple(i[order.index(k)] for k in range(len(order)))]

    onnx = tuple(Form("Transpose", n, attrs={"perm": AsInput(default=None, index=1, dtype=i64)}) for n in (1, 13, 21, 23, 24, 25))
    openvino = (Form("Transpose", 1),)


class AxesOp(Op):
    """Squeeze and Unsqueeze share the reading of their axes."""

    def reference(self, x: Array, axes: Array | None = None) -> Array:
        raise NotImplementedError

    def compute(self, out: TensorType, x: Tensor, axes: Tensor | None = None) -> IndexFunction:
        """Both keep the row-major position; sizes of 1 take index 0."""
        if len(out.dims()) < x.rank:
            kept = self._kept(x.shape, None if axes is None else axes.ints())
            return lambda *i: x[tuple(i[kept.index(k)] if k in kept else 0 for k in range(x.rank))]
        new = {a % len(out.dims()) for a in (axes.ints() or [] if axes else [])}
        return lambda *i: x[tuple(e for k, e in enumerate(i) if k not in new)]

    def _kept(self, shape: Sequence[Any], axes: list[int] | None) -> list[int]:
        if not axes:
            return [k for k, d in enumerate(shape) if d != 1]
        gone = {a % len(shape) for a in axes}
        return [k for k in range(len(shape)) if k not in gone]


@op
class Squeeze(AxesOp):
    """Remove the given axes of size 1, or all of them where no axes are given."""

    sig = Sig("x: T, axes?: I -> y: T", T=ANY, I=INTEGERS)
    carries_contents = True

    def infer(self, x: Value, axes: Value | None = None) -> TensorType:
        rank = len(x.shape)
        gone = normal_axes("Squeeze", [] if axes is None else constant_ints("Squeeze", "axes", axes), rank)
        for a in gone:
            require(x.shape[a].equals(1), codes.SIZE_RANGE, op="Squeeze", what=f"axis {a} of {x.tensor}", value=x.shape[a], expected="1")
        if not gone:
            require(all(d.equals(1) is not None for d in x.shape), operation.NEEDS_CONSTANT, op="Squeeze", operand="axes")
        return TensorType(x.dtype, tuple(x.shape[k] for k in self._kept(x.shape, list(gone))))

    def reference(self, x: Array, axes: Array | None = None) -> Array:
        return np.squeeze(x, None if axes is None or len(np.atleast_1d(axes)) == 0 else tuple(int(a) for a in np.atleast_1d(axes)))

    onnx = (
        Form("Squeeze", 1, attrs={"axes": AsInput(default=None, index=1, dtype=i64)}),
        Form("Squeeze", 11),
        *(Form("Squeeze", n, attrs={}) for n in (13, 21, 23, 24, 25)),
    )
    openvino = (Form("Squeeze", 1), Form("Squeeze", 15, attrs={"allow_axis_skip": Bool(False)}, direct=True, read=lambda b, a, x, axes=None: b.Squeeze(x, axes)))


@op
class Unsqueeze(AxesOp):
    """Insert axes of size 1; `axes` counts in the result."""

    sig = Sig("x: T, axes: I -> y: T", T=ANY, I=INTEGERS)
    carries_contents = True

    def infer(self, x: Value, axes: Value) -> TensorType:
        given = constant_ints("Unsqueeze", "axes", axes)
        rank = len(x.shape) + len(given)
        new = normal_axes("Unsqueeze", given, rank)
        rest = iter(x.shape)
        return TensorType(x.dtype, tuple(Dim.of(1) if k in new else next(rest) for k in range(rank)))

    def reference(self, x: Array, axes: Array) -> Array:
        return np.expand_dims(x, tuple(int(a) for a in np.atleast_1d(axes)))

    onnx = (
        Form("Unsqueeze", 1, attrs={"axes": AsInput(index=1, dtype=i64)}),
        Form("Unsqueeze", 11),
        *(Form("Unsqueeze", n, attrs={}) for n in (13, 21, 23, 24, 25)),
    )
    openvino = (Form("Unsqueeze", 1),)


@op
class DimVector(Op):
    """Sizes known symbolically when compiling, as an i64 vector: what Shape arithmetic becomes."""

    dims: tuple[Dim, ...]
    sig = Sig(" -> y: i64")
    carries_contents = True

    def infer(self) -> TensorType:
        return TensorType.of(i64, (len(self.dims),))

    def reference(self) -> Array:
        return np.array([int(d) for d in self.dims], np.int64)

    def contents(self) -> Any:
        return np.array([*self.dims, None], dtype=object)[:-1]

    def compute(self, out: TensorType) -> IndexFunction:
        from irc.expr import Const, index, select

        def element(i: Expr) -> Expr:
            found: Expr = Const(0, i64)
            for k in reversed(range(len(self.dims))):
                found = select(i.eq(k), index(self.dims[k]), found)
            return found

        return element


