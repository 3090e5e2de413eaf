"""The layout of a convolution that stands alone: what its kernels cost, and the way into a layout and out of it."""

from __future__ import annotations

import math
from dataclasses import replace

from irc.ir.dim import Dim, product
from irc.ir.graph import Node
from irc.kernels import Isa
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.core.costs import MOVED, TRANSPOSED
from irc.kernels.core.epilogue import Epilogue, acc
from irc.kernels.core.problem import Layout, likely
from irc.kernels.core.registry import candidates
from irc.kernels.gemm.problem import GemmProblem
from irc.layout.stacked_planes import VOLUME
from irc.ops.conv import Conv
from irc.selection.planes import planes_of
from irc.selection.residency import residency

RETURNED = 1.2
"""Cycles to move an element of a product's operand or result from or to where the pixels of a channel stand together:
fewer with one thread, but with two it is hardly faster."""
LAYOUTS: tuple[Layout, Layout] = ("nchw", "nhwc")


def channels_last_pays(node: Node, isa: Isa, precision: str, weights: int | None = None) -> bool:
    """Tell whether a Conv between tensors with the channels first is faster with them last, transposes included.

    weights: the bytes of all constants.  Only of dense convolutions: of depthwise ones either layout has kernels of its
    own.  The planes of a volume are copied as often as windows have planes.
    """
    op, (x, w, *_) = node.op, node.inputs
    assert isinstance(op, Conv) and x is not None and w is not None
    if op.group == int(x.shape[1]) or len(x.shape) > VOLUME:
        return False
    first, last = (cycles_in(layout, node, isa, precision, weights) for layout in LAYOUTS)
    moved = sum(likely(product(v.shape)) for v in (x, node.outputs[0]) if v.shape[1] != 1)
    if len(x.shape) == VOLUME:
        batch, _, depth, *_ = node.outputs[0].shape
        moved += likely(product((batch, depth, *x.shape[3:], x.shape[1], w.shape[2])))
    return last is not None and (first is None or last + moved * MOVED < first)


def product_pays(node: Node, isa: Isa, precision: str, weights: int | None = None) -> bool:
    """Tell whether a Conv of single pixels between tensors with the channels first is faster as a product of pixels.

    weights: the bytes of all constants.  The pixels of a small plane fill the last vector of a row badly, or all; as
    rows of a product they fill none, channels do.  The pixels of one image are read where they stand.
    """
    (x, w, *_), y = node.operands, node.outputs[0]
    rows, several, epilogue = product(x.shape[2:]), x.shape[0] != 1, Epilogue(acc(x.dtype))
    problem = GemmProblem.contiguous(epilogue, rows * x.shape[0], w.shape[0], w.shape[1], True, precision)
    if not several:
        problem = replace(problem, a=(*problem.a[:2], Dim.of(1), rows))
    moved = sum(likely(product(v.shape)) for v in ([x, y] if several else [y]))
    first = cycles_in("nchw", node, isa, precision, weights)
    return first is None or cycles_of_product(problem, isa) + moved * RETURNED < first


def channels_first_pays(node: Node, isa: Isa, precision: str, weights: int | None = None) -> bool:
    """Tell whether a Conv between tensors with the channels last is faster with them first, transposes included.

    weights: the bytes of all constants.  Only of groups of channels: few ones fill no vectors, pixels of a plane do.
    """
    op, (x, w, *_) = node.op, node.inputs
    assert isinstance(op, Conv) and x is not None and w is not None
    if op.group in (1, int(x.shape[1])) or len(x.shape) > 4 or int(w.shape[0]) // op.group >= isa.lanes(x.dtype):
        return False
    first, last = (cycles_in(layout, node, isa, precision, weights) for layout in LAYOUTS)
    moved = sum(likely(product(v.shape)) for v in (x, node.outputs[0]))
    return first is not None and (last is None or first + moved * TRANSPOSED < last)


def strided_product_pays(node: Node, isa: Isa, precision: str, weights: int | None = None) -> bool:
    """Tell whether a Conv of single pixels with the channels last is faster as a product of those that it sees.

    weights: the bytes of all constants.  These pixels are copied, so that the product's rows stand side by side.
    """
    x, w, *_ = node.operands
    batch, _, *space = node.outputs[0].shape
    rows, (outputs, inputs) = product((batch, *space)), w.shape[:2]
    found = cycles_of_product(
        GemmProblem.contiguous(Epilogue(acc(x.dtype)), rows, outputs, inputs, True, precision), isa
    )
    convolution = cycles_in("nhwc", node, isa, precision, weights)
    return convolution is not None and found + likely(rows) * int(inputs) * MOVED < convolution


def cycles_of_product(problem: GemmProblem, isa: Isa) -> float:
    """Estimate the cycles of the fastest kernel for a product; infinite if there is none."""
    return min((k.cycles(problem) for k in candidates(problem, isa).values()), default=math.inf)


def cycles_in(layout: Layout, node: Node, isa: Isa, precision: str, weights: int | None = None) -> float | None:
    """Estimate the cycles of the fastest kernel for a Conv in a layout, without its epilogue; None if there is none."""
    op, (x, w, *_), y = node.op, node.inputs, node.outputs[0]
    assert isinstance(op, Conv) and x is not None and w is not None
    planes = planes_of(op, "nchw", x, y, [int(d) for d in w.shape[2:]])
    if planes is None:
        return None
    if planes.is_volume and layout == "nhwc":
        planes = planes.with_planes_stacked()
    geometry = (planes.window, planes.strides, planes.dilations)
    channels, epilogue = (int(planes.channels), int(w.shape[0])), Epilogue(acc(x.dtype))
    whole = ConvProblem.contiguous(layout, epilogue, *channels, planes.result, *geometry, op.group, precision)
    problem = replace(
        whole,
        batch=planes.batch,
        size=planes.size,
        padding=planes.before,
        depth=planes.depth,
        **residency(weights, isa),
    )
    found = candidates(problem, isa)
    return min((k.cycles(problem) for k in found.values()), default=None)
