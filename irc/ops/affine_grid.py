"""Sampling grids of affine transformations: AffineGrid.

Sources: ONNX AffineGrid; for an axis of one element, PyTorch's affine_grid, which ONNX refers to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from irc.diagnostics import Facts, require
from irc.diagnostics.codes import operation, shape as codes
from irc.expr import Expr, IndexFunction, Tensor, index, select, wrap
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import at_most, same
from irc.ir.types import FLOATS_BF16, DType, TensorType
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool
from irc.opdef.forms import Form, write_only
from irc.opdef.precision import narrowed, rounded, wide, widened
from irc.opdef.run_sizes import each
from irc.opdef.signature import Sig


def places(size: int, align: bool) -> Array:
    """The normalised places of the elements of an axis, in f64."""
    counted = np.arange(size, dtype=np.float64)
    if not align:
        return (2 * counted + 1) / size - 1
    return counted * 2 / (size - 1) - 1 if size > 1 else counted


def place(i: Expr, size: Dim, align: bool, kind: DType) -> Expr:
    """`places` of one element, for a size that may be symbolic."""
    n = index(size)
    if not align:
        return (i * 2 + 1).cast(kind) / n.cast(kind) - 1.0
    return select(n.eq(1), wrap(0.0, kind), (i * 2).cast(kind) / (n - 1).max(1).cast(kind) - 1.0)


def homogeneous(size: Sequence[int], align: bool) -> Array:
    """The places of all elements of a plane or volume, (elements, axes + 1): the last axis first, then 1."""
    grids = np.meshgrid(*[places(n, align) for n in size], indexing="ij")
    return np.stack([*[g.reshape(-1) for g in grids[::-1]], np.ones(int(np.prod(size)))], axis=1)


def write_grid(b: Builder, op: AffineGrid, theta: Value, size: Value) -> Value:
    """As a product with a grid, which is constant where the size is."""
    out, known = op.infer(theta, size), size.ints()
    if known is None:
        grid, shape = computed_grid(b, size, op.align_corners, theta.dtype.compute)
    else:
        grid = b.const(homogeneous(known[2:], op.align_corners), theta.dtype.compute)
        shape = b.dims(out.dims())
    product = b.MatMul(grid, b.Transpose(widened(b, theta), [0, 2, 1]))
    return narrowed(b, b.Reshape(product, shape, special_zero=False), theta)


def computed_grid(b: Builder, size: Value, align: bool, dtype: DType) -> tuple[Value, Value]:
    """Compute what `homogeneous` finds of a size that the run knows.  Returns it, and the shape of AffineGrid's result.

    Places that are aligned with corners are 2 i / (n - 1) - 1, but 0 of a single element.
    """
    rank = int(size.shape[0])
    shape, columns = b.Slice(size, [2], [rank], [0]), list[Value]()
    for axis in range(2, rank):
        count = b.Gather(size, b.const(axis), b.const(0))
        twice = b.Mul(b.Range(b.const(0), count, b.const(1)), b.const(2))
        shift = b.Neg(b.Min(b.Sub(count, b.const(1)), b.const(1))) if align else b.const(1)
        parts = b.Max(b.Sub(count, b.const(1)), b.const(1)) if align else count
        along = b.Div(b.Cast(twice if align else b.Add(twice, shift), to=dtype), b.Cast(parts, to=dtype))
        along = b.Add(along, b.Cast(shift, to=dtype)) if align else b.Sub(along, b.like(1, along))
        plane = b.Expand(b.Reshape(along, [1] * (axis - 2) + [-1] + [1] * (rank - axis - 1)), shape)
        columns.append(b.Reshape(plane, [-1, 1]))
    ones = b.Expand(b.const(1, dtype), b.Shape(columns[0]))
    grid = b.Concat(*columns[::-1], ones, axis=1)
    return grid, b.Concat(b.Slice(size, [0], [1], [0]), shape, b.const([rank - 2]), axis=0)


@op
class AffineGrid(Op):
    """grid (n, [depth,] height, width, axes): theta · (x, y[, z], 1) for the normalised place of each element.

    theta: (n, axes, axes + 1); size: (n, c, [depth,] height, width).
    """

    align_corners: bool = False
    sig = Sig("theta: T[3], size: i64[1] -> grid: T", T=FLOATS_BF16)

    def infer(self, theta: Value, size: Value) -> TensorType:
        count, known = size.shape[0].const, size.dims()
        facts: Facts = {"op": self.name, "attribute": "size", "given": size.shape[0], "needed": "4 or 5"}
        require(count in (4, 5), operation.ATTRIBUTE_LENGTH, **facts)
        axes = (count or 4) - 2
        for axis, needed in ((1, axes), (2, axes + 1)):
            facts = {"op": self.name, "what": f"axis {axis} of theta", "value": theta.shape[axis]}
            require(same(theta.shape[axis], needed), codes.SIZE_RANGE, **facts, expected=needed)
        sizes = [Dim.fresh("batch", theta.shape[0]), *(Dim.fresh("grid") for _ in range(axes + 1))]
        sizes = sizes if known is None else list(known)
        what, (batch, a) = "batch sizes of theta and size", (sizes[0], theta.shape[0])
        require(same(a, batch), codes.SIZES_DIFFER, op=self.name, what=what, a=a, b=batch)
        for n in sizes[2:]:
            require(at_most(0, n), codes.SIZE_RANGE, op=self.name, what="a size", value=n, expected="0 or more")
        return TensorType.of(theta.dtype, [batch, *sizes[2:], axes])

    def run_sizes(self, b: Builder, out: TensorType, theta: Value, size: Value) -> Iterable[tuple[Dim, Value]]:
        for (dim, value), k in zip(each(b, [*out.dims()[:1], *out.dims()], size), range(len(out.dims())), strict=False):
            if k != 1:
                yield dim, value

    def reference(self, theta: Array, size: Array) -> Array:
        sizes = [int(n) for n in size[2:]]
        grid = homogeneous(sizes, self.align_corners).astype(wide(theta).dtype)
        found = np.matmul(grid, wide(theta).transpose(0, 2, 1))
        return rounded(found.reshape(theta.shape[0], *sizes, len(sizes)), theta)

    def compute(self, out: TensorType, theta: Tensor, size: Tensor) -> IndexFunction:
        kind, sizes = theta.dtype.compute, out.dims()[1:-1]

        def element(n: Expr, *rest: Expr) -> Expr:
            *at, row = rest
            found = theta[n, row, len(sizes)].cast(kind)
            for k, (i, length) in enumerate(zip(at[::-1], sizes[::-1], strict=True)):
                found = found + theta[n, row, k].cast(kind) * place(i, length, self.align_corners, kind)
            return found.cast(out.dtype)

        return element

    onnx = (
        write_only(write_grid, since=7),
        Form("AffineGrid", 20, attrs={"align_corners": Bool(False)}, T={"T": FLOATS_BF16}),
    )
    openvino = (write_only(write_grid),)
