"""Conv as a kernel: one or two spatial axes, constant weights, any groups, strides, dilations and padding."""

from __future__ import annotations

from typing import Any

from irc.fusion.access import ZERO, Access, Space, find
from irc.fusion.epilogues import FusedEpilogue
from irc.ir.dim import Dim
from irc.ir.graph import Node
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.core.base import Array
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.problem import Layout
from irc.kernels.core.registry import select
from irc.layout.channels_last import ChannelsLast
from irc.selection.planes import Planes, input_of, planes_of
from irc.selection.select import Selection, Selector, worthwhile


def select_kernel(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for a Conv, with the channels first or last; None where loops do it."""
    op: Any = node.op.op if isinstance(node.op, ChannelsLast) else node.op
    x, weights, *rest = node.inputs
    assert x is not None and weights is not None
    if weights.const is None:
        return None
    layout: Layout = "nchw" if op is node.op else "nhwc"
    out, shape = node.outputs[0], tuple(int(d) for d in weights.shape)
    planes = planes_of(op, layout, x, out, shape[2:])
    if planes is None or not planes.channels.is_const or not worthwhile(*out.shape, *map(Dim.of, shape[1:])):
        return None
    bias: list[Access] = []
    if rest and rest[0] is not None:
        space = Space(out.shape)
        bias = find(selector.elements, space, rest[0], (space.at[planes.channel_axis],))[-1:]
    fused = selector.collector.epilogue_of(out, bias, planes.fits)
    source = input_of(selector, planes, x)
    problem = _problem(selector, planes, shape[0], op.group, source, fused)
    kernel = select(problem, selector.isa)
    if kernel is None:
        return None
    packed, constant = kernel.packed(problem), weights.const
    assert packed is not None

    def array() -> Array:
        return constant.array.reshape(problem.outputs, problem.ic, *problem.window)

    filled = selector.constant(packed, array, (weights,), weights.name)
    operands = [(source.value, source.offset), (filled, ZERO), *((s.value, s.offset) for s in fused.slots)]
    return Selection(kernel, operands, kernel.arguments_for(problem), kernel.scratch(problem), fused.value, fused)


def _problem(
    selector: Selector, planes: Planes, outputs: int, groups: int, source: Access, fused: FusedEpilogue
) -> ConvProblem:
    """State the convolution as a problem."""
    return ConvProblem(
        fused.value.dtype,
        selector.precision,
        planes.layout,
        Epilogue(fused.expr, tuple(planes.axes(s) for s in fused.slots)),
        planes.batch,
        int(planes.channels),
        outputs,
        groups,
        planes.size,
        planes.result,
        planes.window,
        planes.strides,
        planes.dilations,
        planes.before,
        x=planes.x_strides(source),
        y=planes.y_strides(fused.value.shape),
        slots=tuple((s.strides[0], planes.row_and_column(s.strides)[0]) for s in fused.slots),
    )
