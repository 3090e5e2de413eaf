"""What Conv and ConvTranspose have in common: the bias in the epilogue, and weights that are a constant."""

from __future__ import annotations

from collections.abc import Sequence

from irc.fusion.access import Access, Space, find
from irc.fusion.epilogues import FusedEpilogue
from irc.ir.graph import Value
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.core.registry import select
from irc.selection.planes import Planes
from irc.selection.selector import Selection, Selector


def with_bias(selector: Selector, planes: Planes, out: Value, rest: Sequence[Value | None]) -> FusedEpilogue:
    """Collect the epilogue behind the sums of `out`: first the bias, if it is in the `rest` of the operands."""
    bias: list[Access] = []
    if rest and rest[0] is not None:
        space = Space(out.shape)
        bias = find(selector.elements, space, rest[0], (space.at[planes.channel_axis],))[-1:]
    return selector.collector.epilogue_of(out, bias, planes.fits)


def by_weights(
    selector: Selector, problem: ConvProblem, weights: Value, shape: Sequence[int], source: Access, fused: FusedEpilogue
) -> Selection | None:
    """Select a kernel for a problem that states its constant weights in this shape; None if none solves it."""
    kernel, constant = select(problem, selector.isa), weights.const
    if kernel is None or constant is None:
        return None
    packed = kernel.packed(problem)
    assert packed is not None
    filled = selector.constant(packed, lambda: constant.array.reshape(shape), (weights,), weights.name)
    return Selection.of(kernel, problem, [source], fused, filled)
