"""Selection for MaxPool and AveragePool: channels first over two axes, channels last over one or two."""

from __future__ import annotations

from typing import cast

from irc.fusion.access import Access
from irc.fusion.epilogues import FusedEpilogue
from irc.ir.dim import Dim
from irc.ir.graph import Node
from irc.kernels.core.registry import select
from irc.kernels.pool.problem import Counted, PoolProblem
from irc.layout.channels_last_op import ChannelsLast
from irc.ops.pool import AveragePool, MaxPool
from irc.selection.planes import Planes, input_of, planes_of
from irc.selection.selector import Selection, Selector, worthwhile


def select_kernel(selector: Selector, node: Node) -> Selection | None:
    """Select a pool kernel if the indices are unused and padding is known; None where loops compute the pool."""
    last = isinstance(node.op, ChannelsLast)
    op = node.op.op if isinstance(node.op, ChannelsLast) else node.op
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None and isinstance(op, MaxPool | AveragePool)
    planes = planes_of(op, "nhwc" if last else "nchw", x, y, op.kernel)
    if (
        planes is None
        or planes.is_volume
        or (planes.flat and not last)
        or not worthwhile(*y.shape, *map(Dim.of, op.kernel))
    ):
        return None
    if any(v.uses or selector.graph.keeps(v) for v in node.outputs[1:]):
        return None
    padding = (*planes.before, *planes.after)
    if any(not d.is_const or int(d) < 0 for d in padding):
        return None
    beside = any(int(p) >= w for p, w in zip(padding, planes.window * 2, strict=True))
    if beside and (last or isinstance(op, MaxPool)):  # a window may lie wholly in padding
        return None
    fused = selector.collector.epilogue_of(y, [], planes.fits) if last else FusedEpilogue.plain(y)
    source = input_of(selector, planes, x)
    problem = _problem(selector, op, planes, source, fused)
    kernel = select(problem, selector.isa)
    if kernel is None:
        return None
    return Selection.of(kernel, problem, [source], fused)


def _problem(
    selector: Selector, op: MaxPool | AveragePool, planes: Planes, source: Access, fused: FusedEpilogue
) -> PoolProblem:
    """State the pool as a problem."""
    return PoolProblem(
        fused.value.dtype,
        selector.precision,
        planes.epilogue(fused),
        planes.layout,
        "max" if isinstance(op, MaxPool) else "average",
        "inside" if isinstance(op, MaxPool) else cast("Counted", op.counted),
        planes.batch,
        planes.channels,
        planes.size,
        planes.result,
        planes.window,
        planes.strides,
        planes.dilations,
        (planes.before, planes.after),
        x=planes.x_strides(source),
        y=planes.y_strides(fused.value.shape),
        slots=planes.slots(fused),
    )
