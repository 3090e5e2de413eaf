"""Selection for ReduceMean and ReduceMax of whole planes with the channels last."""

from __future__ import annotations

from irc.fusion.access import ZERO, Access, Space, find
from irc.fusion.epilogues import FusedEpilogue, merged
from irc.ir.dim import Dim, product
from irc.ir.graph import Node
from irc.kernels.core.epilogue import plain
from irc.kernels.core.registry import select
from irc.kernels.pool.problem import GlobalPoolProblem, Mode
from irc.selection.selector import Selection, Selector, worthwhile

MODES: dict[str, Mode] = {"ReduceMean": "average", "ReduceMax": "max"}


def select_kernel(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for a reduction of [batch, channels, *space] over the space; None where loops compute it."""
    x, y = node.inputs[0], node.outputs[0]
    axes = node.inputs[1].ints() if len(node.inputs) > 1 and node.inputs[1] is not None else None
    if x is None or not axes:
        return None
    rank, kept = len(x.shape), len(x.shape) - len(axes)
    if kept != 2 or sorted(a % rank for a in axes) != list(range(kept, rank)) or not worthwhile(*x.shape):
        return None
    space = Space(x.shape)
    for source in find(selector.elements, space, x, space.at):
        problem = _problem(selector, node, source, kept)
        kernel = None if problem is None else select(problem, selector.isa)
        if problem is not None and kernel is not None:
            return Selection.of(kernel, problem, [source], FusedEpilogue.plain(y))
    return None


def _problem(selector: Selector, node: Node, source: Access, kept: int) -> GlobalPoolProblem | None:
    """State the reduction as a problem; None where the pixels of a plane, or images, are not at equal distances.

    kept: so many axes are not reduced.
    """
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    images = merged(x.shape[: kept - 1], source.strides[: kept - 1]) or [(Dim.of(1), ZERO)]
    pixels = merged(x.shape[kept:], source.strides[kept:]) or [(Dim.of(1), ZERO)]
    if len(images) > 1 or len(pixels) > 1:
        return None
    channels = x.shape[kept - 1]
    return GlobalPoolProblem(
        y.dtype,
        selector.precision,
        plain(y.dtype),
        MODES[node.op.name],
        images[0][0],
        channels,
        product(x.shape[kept:]),
        x=(images[0][1], source.strides[kept - 1], pixels[0][1]),
        y=(channels, Dim.of(1)),
        slots=(),
    )
