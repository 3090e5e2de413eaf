"""Selection for MatMul: constant right operands are packed at compile time, all others read by strides."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from irc.expr import index
from irc.fusion.access import ZERO, Access, Space, find, row_major
from irc.fusion.epilogues import FusedEpilogue, merged
from irc.ir.dim import Dim, product
from irc.ir.graph import Node, Value
from irc.kernels.core.base import Array, Kernel
from irc.kernels.core.costs import AGAIN, AGAIN_FAR, APART, FUNCTION
from irc.kernels.core.epilogue import Axes, Epilogue, axes_of
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import select
from irc.kernels.gemm.problem import GemmProblem, Narrow
from irc.layout.narrow_weights import NarrowConstant
from irc.ops.matmul import MatMul
from irc.selection.selector import Selection, Selector, worthwhile

ONE = Dim.of(1)
FEW_PRODUCTS, FEW_ROWS = 3, 4
"""Products of a sum and rows of a result that are few: loops have no fixed costs, but read B again for each row."""
DISTANT = 8 << 20
"""Bytes of a model's constants of which a run finds none in the caches of its cores."""


@dataclass
class Product:
    """C[lead, m, n] = A[lead, m, k] · B[lead, k, n]: sizes, and whether the result has axes for m and n.

    turned: these are Bᵀ and Aᵀ of the operation, and C its result transposed.
    """

    lead: tuple[Dim, ...]
    m: Dim
    n: Dim
    k: Dim
    rows: bool  # the result has an axis for m
    columns: bool  # and one for n
    turned: bool = False

    @property
    def space(self) -> tuple[Dim, ...]:
        return (*self.lead, self.m, self.n, self.k)

    def of_result(self, strides: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """Convert strides over the result's axes to strides over (lead, m, n)."""
        rest = list(strides[len(self.lead) :])
        first, second = (self.columns, self.rows) if self.turned else (self.rows, self.columns)
        one = rest.pop(0) if first else ZERO
        other = rest.pop(0) if second else ZERO
        return (*strides[: len(self.lead)], *((other, one) if self.turned else (one, other)))

    def turn(self) -> Product:
        """State a product of one column as one of a single row: then vectors hold results."""
        return Product(self.lead, self.n, self.m, self.k, self.columns, self.rows, not self.turned)


def select_kernel(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for a MatMul; None if loops compute it."""
    a, b = node.inputs
    assert a is not None and b is not None
    p = product_of(node, a, b)
    if not worthwhile(*p.space) or (p.n == 1 and p.m == 1):
        return None
    assert isinstance(node.op, MatMul)
    sides = [(a, node.op.transpose_a), (b, node.op.transpose_b)]
    if p.n == 1:
        p, sides = p.turn(), [(v, not swap) for v, swap in reversed(sides)]
    if _sums_little(p):
        return None
    space = Space(p.space)
    left, right = (operand(selector, space, p, *side, right=bool(at)) for at, side in enumerate(sides))
    if left is None or right is None:
        return None
    fused = selector.collector.epilogue_of(node.outputs[0], [], lambda access: fits(p, access))
    result, to = result_of(selector, p, fused)
    if result is fused.value and _functions_apart(selector, p, fused):
        fused = selector.collector.epilogue_of(node.outputs[0], [], lambda access: fits(p, access), calls=False)
        result, to = result_of(selector, p, fused)
    return _arranged(selector, p, left, right, fused, result, to)


def _sums_little(p: Product) -> bool:
    """Tell whether there is so little to add up that loops are faster than tiles: they read B as it stands.

    That is an outer product, or sums of few products in few rows; of few columns, tiles store results faster.
    """
    if not p.k.is_const or int(p.k) > FEW_PRODUCTS or (p.n.is_const and int(p.n) <= FEW_ROWS):
        return False
    return int(p.k) == 1 or (p.m.is_const and int(p.m) <= FEW_ROWS)


def product_of(node: Node, a: Value, b: Value) -> Product:
    out = node.outputs[0].shape
    op = node.op
    assert isinstance(op, MatMul)
    m, k = op.matrix(a.shape, op.transpose_a, 0)
    n = op.matrix(b.shape, op.transpose_b, 1)[1]
    rows, columns = len(a.shape) > 1, len(b.shape) > 1
    lead = out[: len(out) - rows - columns]
    return Product(lead, m if rows else ONE, n if columns else ONE, k, rows, columns)


def operand(
    selector: Selector, space: Space, p: Product, v: Value, swap: bool, right: bool, group: Dim = ONE
) -> Access | None:
    """Find how an operand is read over (lead, m, n, k).

    group > 1: the space has the last axis of lead as two, groups and the members of each.
    """
    depth = len(p.lead)
    place = space.at
    if group != 1:
        place = (*place[: depth - 1], place[depth - 1] * index(group) + place[depth], *place[depth + 1 :])
    i, j, k = place[depth:]
    inner = (k, j) if right else (i, k)
    if len(v.shape) == 1:
        at = [k]
        lead_shape: tuple[Dim, ...] = ()
    else:
        at = list(reversed(inner) if swap else inner)
        lead_shape = v.shape[:-2]
    skip = depth - len(lead_shape)
    if any(size not in (1, full) for size, full in zip(lead_shape, p.lead[skip:], strict=True)):
        return None
    zero = Space((ONE,)).at[0]
    lead = [zero if size == 1 else place[skip + n] for n, size in enumerate(lead_shape)]
    found = find(selector.elements, space, v, (*lead, *at))
    return found[0] if found else None


def fits(p: Product, access: Access) -> bool:
    """Tell whether an epilogue can read an operand: the stride along the columns is 0 or 1."""
    return p.of_result(access.strides)[-1] in (0, 1)


def _functions_apart(selector: Selector, p: Product, fused: FusedEpilogue) -> bool:
    """Tell whether loops compute the functions of an epilogue sooner: a kernel does whole vectors of each row."""
    functions = len(Epilogue(fused.expr).functions())
    if not functions or not p.n.is_const:
        return False
    isa, dtype, n = selector.isa, fused.value.dtype, int(p.n)
    rows = likely(product(p.lead)) * likely(p.m)
    vectors = n / isa.lanes(dtype)
    again = AGAIN if rows * n * dtype.itemsize <= isa.l2 else AGAIN_FAR
    saved = (math.ceil(vectors) - vectors) * functions * FUNCTION - vectors * again
    return rows * saved > APART


def result_of(selector: Selector, p: Product, fused: FusedEpilogue) -> tuple[Value, tuple[Dim, ...]]:
    """Find the value to store and its strides over (lead, m, n).

    It is the fused one, or a Transpose of it that keeps columns.
    """
    if p.turned or not (p.rows and p.columns):
        return fused.value, p.of_result(row_major(fused.value.shape))
    value, strides = selector.stored(fused.value)
    return value, p.of_result(strides)


def _arranged(
    selector: Selector,
    p: Product,
    left: Access,
    right: Access,
    fused: FusedEpilogue,
    result: Value,
    to: tuple[Dim, ...],
) -> Selection | None:
    """Merge the batch axes, and select a kernel; None where more than two batch axes are left."""
    constant = _constant(p, right)
    problem = problem_of(selector, p, left, right, fused, to)
    kernel = None if problem is None else select(problem, selector.isa)
    if problem is None or kernel is None:
        return None
    packed = _pack(selector, kernel, problem, p, right) if constant else None
    operands = [left] if constant else [left, right]
    return Selection.of(kernel, problem, operands, fused, packed, result)


def problem_of(
    selector: Selector, p: Product, left: Access, right: Access, fused: FusedEpilogue, to: tuple[Dim, ...]
) -> GemmProblem | None:
    """State the product as a problem; None where more than two batch axes are left when neighbours are merged."""
    depth, constant = len(p.lead), _constant(p, right)
    slots = [p.of_result(s.strides) for s in fused.slots]
    steps = _packed_lead(p, right) if constant else right.strides[:depth]
    over = [(*s[:depth], s[depth]) for s in (left.strides, to, *slots)]
    axes = merged((*p.lead, p.m), (*steps, ZERO), *over)
    none = (ONE, *[ZERO] * (len(slots) + 3))
    m = axes.pop() if axes and axes[-1][1] == 0 else none
    if len(axes) > 2:
        return None
    i, j = (*axes, none, none)[:2]
    kinds: list[Axes] = [axes_of(row, s[depth + 1]) for s, row in zip(slots, m[4:], strict=True)]
    return GemmProblem(
        fused.value.dtype,
        selector.precision,
        fused.along(kinds),
        m[0],
        p.n,
        p.k,
        batch=(i[0], j[0]),
        a=(i[2], j[2], m[2], left.strides[-1]),
        b=(i[1], j[1], right.strides[-1], right.strides[depth + 1]),
        c=(i[3], j[3], m[3]),
        matrices=math.prod(_lead_shape(p, right)) if constant else 0,
        slots=tuple(zip(i[4:], j[4:], m[4:], strict=True)),
        narrow=_narrow(p, right),
        distant=constant and selector.weights >= DISTANT,
    )


def _narrow(p: Product, right: Access) -> Narrow | None:
    """Tell how the file stores a constant that is read as it stands."""
    const = right.value.const
    whole = right.offset == 0 and right.strides == (*[ZERO] * len(p.lead), ZERO, ONE, p.n)
    return const.narrow if whole and isinstance(const, NarrowConstant) else None


def _constant(p: Product, right: Access) -> bool:
    return right.value.const is not None and p.n.is_const and p.k.is_const and right.offset.is_const


def _lead_shape(p: Product, right: Access) -> list[int]:
    """List the extents of the batch axes along which a constant varies, 1 elsewhere."""
    return [1 if s == 0 else int(size) for size, s in zip(p.lead, right.strides, strict=False)]


def _packed_lead(p: Product, right: Access) -> tuple[Dim, ...]:
    """Compute the strides of the batch axes of a packed constant, in packed matrices."""
    return row_major([Dim.of(n) for n in _lead_shape(p, right)])


def _pack(selector: Selector, kernel: Kernel[GemmProblem], problem: GemmProblem, p: Product, right: Access) -> Value:
    """Add the constant in the kernel's packing, which is made when it is written."""
    source, packed = right.value.const, kernel.packed(problem)
    assert source is not None and packed is not None
    lead, n, k = _lead_shape(p, right), int(p.n), int(p.k)
    strides = [int(s) if e != 1 else 0 for s, e in zip(right.strides, lead, strict=False)]
    steps = (*strides, int(right.strides[-1]), int(right.strides[-2]))

    def matrices() -> Array:
        flat = np.ascontiguousarray(source.array).reshape(-1)[int(right.offset) :]
        return np.lib.stride_tricks.as_strided(flat, (*lead, k, n), [s * flat.itemsize for s in steps])

    key = (right.value, right.offset, steps, tuple(lead), n, k)
    if kernel.takes_narrow and isinstance(source, NarrowConstant):
        return selector.constant(packed, source.rows, key, right.value.name)
    return selector.constant(packed, matrices, key, right.value.name)
