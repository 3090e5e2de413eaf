"""Selection for ConvTranspose: one or two spatial axes of known sizes, constant weights, any groups and dilations."""

from __future__ import annotations

from collections.abc import Sequence

from irc.fusion.access import Access, row_major
from irc.fusion.epilogues import FusedEpilogue
from irc.ir.dim import Dim
from irc.ir.graph import Node
from irc.kernels.conv.problem import ConvTransposeProblem
from irc.kernels.core.problem import Pair
from irc.opdef.window import spatial
from irc.ops.conv import ConvTranspose
from irc.selection.constant_weights import by_weights, with_bias
from irc.selection.planes import Planes, input_of
from irc.selection.selector import Selection, Selector, worthwhile

ZERO, ONE = Dim.of(0), Dim.of(1)


def select_kernel(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for a ConvTranspose; None if loops compute it."""
    op, planes = node.op, planes_of(node)
    assert isinstance(op, ConvTranspose)
    x, weights, *rest = node.inputs
    assert x is not None and weights is not None
    if planes is None or weights.const is None:
        return None
    out = node.outputs[0]
    fused = with_bias(selector, planes, out, rest)
    source = input_of(selector, planes, x)
    problem = planes.problem(ConvTransposeProblem, selector.precision, int(out.shape[1]), op.group, source, fused)
    return by_weights(selector, problem, weights, (problem.channels, problem.oc, *problem.window), source, fused)


def problem_of(node: Node, precision: str) -> ConvTransposeProblem | None:
    """State a ConvTranspose of an input and for a result without gaps, without an epilogue; None where no kernel can.

    precision: the least that f32 products must have.
    """
    op, planes, x = node.op, planes_of(node), node.inputs[0]
    assert isinstance(op, ConvTranspose) and x is not None
    if planes is None:
        return None
    out, source = node.outputs[0], Access(x, ZERO, row_major(x.shape))
    return planes.problem(
        ConvTransposeProblem, precision, int(out.shape[1]), op.group, source, FusedEpilogue.plain(out)
    )


def planes_of(node: Node) -> Planes | None:
    """Read the geometry off a ConvTranspose; None where no kernel computes it."""
    op = node.op
    assert isinstance(op, ConvTranspose)
    x, w, out = node.inputs[0], node.inputs[1], node.outputs[0]
    assert x is not None and w is not None
    rank = len(x.shape) - 2
    if rank not in (1, 2) or w.const is None or not w.tensor.is_static or not x.shape[1].is_const:
        return None
    before, after = op.padding(x.shape[2:], w.shape[2:])
    known = (*x.shape[2:], *out.shape[2:], *before)
    if not all(d.is_const and int(d) >= 0 for d in known) or not worthwhile(*x.shape, *w.shape[1:]):
        return None

    def dims(values: Sequence[Dim], one: Dim) -> tuple[Dim, Dim]:
        return (one, values[0]) if rank == 1 else (values[0], values[1])

    def pair(values: Sequence[Dim | int]) -> Pair:
        found = tuple(int(v) for v in values)
        return (1, found[0]) if rank == 1 else (found[0], found[1])

    return Planes(
        "nchw",
        out.shape[0],
        x.shape[1],
        dims(x.shape[2:], ONE),
        dims(out.shape[2:], ONE),
        pair(w.shape[2:]),
        pair(spatial(op.name, "strides", op.strides, rank, 1)),
        pair(spatial(op.name, "dilations", op.dilations, rank, 1)),
        dims(before, ZERO),
        dims(after, ZERO),
        rank == 1,
    )
