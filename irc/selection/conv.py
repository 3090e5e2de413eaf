"""Selection for Conv: up to three spatial axes, constant weights, any groups, strides, dilations and padding."""

from __future__ import annotations

from irc.ir.dim import Dim
from irc.ir.graph import Node
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.core.problem import Layout
from irc.layout.channels_last_op import ChannelsLast
from irc.ops.conv import Conv
from irc.selection.constant_weights import by_weights, with_bias
from irc.selection.planes import input_of, planes_of
from irc.selection.residency import residency
from irc.selection.selector import Selection, Selector, worthwhile


def select_kernel(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for a Conv, with the channels first or last; None if loops compute it."""
    op = node.op.op if isinstance(node.op, ChannelsLast) else node.op
    assert isinstance(op, Conv)
    x, weights, *rest = node.inputs
    assert x is not None and weights is not None
    if weights.const is None:
        return None
    layout: Layout = "nchw" if op is node.op else "nhwc"
    out, shape = node.outputs[0], tuple(int(d) for d in weights.shape)
    planes = planes_of(op, layout, x, out, shape[2:])
    if planes is None or not planes.channels.is_const or not worthwhile(*out.shape, *map(Dim.of, shape[1:])):
        return None
    fused = with_bias(selector, planes, out, rest)
    source = input_of(selector, planes, x)
    more = {"depth": planes.depth, **residency(selector.weights, selector.isa)}
    problem = planes.problem(ConvProblem, selector.precision, shape[0], op.group, source, fused, **more)
    window = (problem.depth.window,) * problem.is_volume + problem.window
    return by_weights(selector, problem, weights, (problem.outputs, problem.ic, *window), source, fused)
