"""Selection for reductions along rows: over the last axis in memory, and perhaps others."""

from __future__ import annotations

from collections.abc import Sequence

from irc.fusion.access import Access, Space, find
from irc.fusion.epilogues import FusedEpilogue, merged
from irc.ir.dim import Dim, product
from irc.ir.graph import Node, Value
from irc.kernels.core.registry import select
from irc.kernels.reduction.extremes import ExtremesProblem
from irc.kernels.reduction.problem import Fold, RowReductionProblem
from irc.ops.layout import Reshape, Transpose
from irc.selection.selector import Selection, Selector, worthwhile
from irc.selection.softmax import selected

FOLDS: dict[str, Fold] = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceL1": "l1",
    "ReduceL2": "l2",
}


def select_kernel(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for a reduction of rows; None where loops compute it."""
    x, y = node.inputs[0], node.outputs[0]
    axes = node.inputs[1].ints() if len(node.inputs) > 1 and node.inputs[1] is not None else None
    if x is None or not axes or x.dtype != y.dtype or not worthwhile(*x.shape):
        return None
    reduced = {a % len(x.shape) for a in axes}
    space = Space(x.shape)
    for source in find(selector.elements, space, x, space.at):
        problem = _problem(selector, node, source, reduced) if selector.stands(source.value) else None
        kernel = None if problem is None else select(problem, selector.isa)
        if problem is not None and kernel is not None:
            return Selection.of(kernel, problem, [source], FusedEpilogue.plain(y))
    return None


def select_extremes(selector: Selector, node: Node) -> Selection | None:
    """Select the kernel for the least and the largest element, whose order does not matter."""
    (x,), y = node.operands, node.outputs[0]
    while x.producer is not None and isinstance(x.producer.op, Reshape | Transpose):
        x = next(x.producer.operands)
    return selected(selector, ExtremesProblem(y.dtype, selector.precision, product(x.shape)), x, y)


def _problem(selector: Selector, node: Node, source: Access, reduced: set[int]) -> RowReductionProblem | None:
    """State the reduction as a problem; None where elements of rows stand apart, or loops are too many."""
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    order = range(len(x.shape))
    kept = _loops([a for a in order if a not in reduced], x, source)
    along = _loops(_as_in_memory([a for a in order if a in reduced], source), x, source)
    if len(kept) > 2 or not 1 <= len(along) <= 2 or along[-1][1] != 1:
        return None
    none = (Dim.of(1), Dim.of(0))
    outer, rows = [none, none, *kept][-2:]
    pieces, (n, _) = [none, *along][-2:]
    return RowReductionProblem(y.dtype, selector.precision, FOLDS[node.op.name], outer, rows, pieces, n)


def _as_in_memory(axes: list[int], source: Access) -> list[int]:
    """Order axes by their strides where these are known: elements may be folded in any order."""
    strides = {a: source.strides[a] for a in axes}
    if not all(s.is_const for s in strides.values()):
        return axes
    return sorted(axes, key=lambda a: -int(strides[a]))


def _loops(axes: Sequence[int], x: Value, source: Access) -> list[tuple[Dim, Dim]]:
    """List these axes as loops, extent and stride; neighbours that are one are one loop."""
    found = merged([x.shape[a] for a in axes], [source.strides[a] for a in axes])
    return [(extent, stride) for extent, stride in found]
