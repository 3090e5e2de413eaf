"""MaxPool and AveragePool as kernels: NCHW over two axes, channels last over one or two."""

from __future__ import annotations

from typing import cast

from irc.fusion.access import Access
from irc.fusion.epilogues import Tail
from irc.ir.dim import Dim
from irc.ir.graph import Node
from irc.kernels.core.epilogue import Epilogue, acc
from irc.kernels.core.registry import select
from irc.kernels.pool.problem import Counted, PoolProblem
from irc.layout.channels_last import ChannelsLast
from irc.ops.pool import AveragePool, MaxPool
from irc.selection.planes import Planes, input_of, planes_of
from irc.selection.select import Claim, Claimer, worthwhile


def claim(claimer: Claimer, node: Node) -> Claim | None:
    """Select a pool kernel if the indices are unused and padding is known; None where loops compute the pool."""
    last = isinstance(node.op, ChannelsLast)
    op = node.op.op if isinstance(node.op, ChannelsLast) else node.op
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None and isinstance(op, MaxPool | AveragePool)
    planes = planes_of(op, "nhwc" if last else "nchw", x, y, op.kernel)
    if planes is None or (planes.flat and not last) or not worthwhile(*y.shape, *map(Dim.of, op.kernel)):
        return None
    if any(v.uses or v in claimer.graph.outputs for v in node.outputs[1:]):
        return None
    padding = (*planes.before, *planes.after)
    if any(not d.is_const or int(d) < 0 for d in padding):
        return None
    beside = any(int(p) >= w for p, w in zip(padding, planes.window * 2, strict=True))
    if beside and (last or isinstance(op, MaxPool)):  # a window may lie wholly in padding
        return None
    tail = claimer.collector.tail(y, [], planes.fits) if last else Tail(y, acc(y.dtype))
    source = input_of(claimer, planes, x)
    problem = _problem(claimer, op, planes, source, tail)
    kernel = select(problem, claimer.isa)
    if kernel is None:
        return None
    operands = [(source.value, source.offset), *((s.value, s.offset) for s in tail.slots)]
    return Claim(kernel, operands, kernel.arguments_for(problem), kernel.scratch(problem), tail.value, tail)


def _problem(claimer: Claimer, op: MaxPool | AveragePool, planes: Planes, source: Access, tail: Tail) -> PoolProblem:
    """State the pool as a problem."""
    return PoolProblem(
        tail.value.dtype,
        claimer.precision,
        Epilogue(tail.expr, tuple(planes.axes(s) for s in tail.slots)),
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
        y=planes.y_strides(tail.value.shape),
        slots=tuple((s.strides[0], planes.row_and_column(s.strides)[0]) for s in tail.slots),
    )
