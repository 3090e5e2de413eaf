"""Convolutions of few output channels, with the taps of a row as channels of their own.

Channels fill vectors, so that a Conv to 3 channels, as image networks end in, wastes 13 lanes of 16.  With a window of
kh × kw it is computed as one of kh × 1 to kw times as many channels, a group for each tap of a row, whose results are
then added where they meet: Y[c, x] = Σ over t of P[t · oc + c, x + t · dilation].
"""

from __future__ import annotations

import numpy as np

from irc.ir.graph import Graph, Node, Value
from irc.ir.types import DType, f32, f64, i32
from irc.kernels import Isa
from irc.kernels.core.costs import in_halves
from irc.kernels.integer.problem import SETS
from irc.layout.integer_operands import bytes_of, fits_bytes
from irc.opdef.builder import Builder
from irc.opdef.window import spatial, taps_inside, window_padding
from irc.ops.conv import Conv
from irc.passes.replace import replace_value

ADDING = 7
"""Vector multiply-adds that the addition of one tap's result costs."""
LEAST_SAVED = 1 / 12
"""Part of the vectors that is to be saved: tiles of the folded channels do not reach more of the peak."""
FOURS = 4
"""Bytes whose products one of those adds up."""


def run(graph: Graph, isa: Isa) -> int:
    """Rewrite convolutions with constant weights, one group and no stride along the rows. Returns how many."""
    done = 0
    for node in graph.nodes:
        if isinstance(node.op, Conv):
            made = _rewritten(graph, node, isa)
            if made is not None and made.type == node.outputs[0].type:
                done += replace_value(graph, node.outputs[0], made)
    graph.prune()
    return done


def _rewritten(graph: Graph, node: Node, isa: Isa) -> Value | None:
    op = node.op
    assert isinstance(op, Conv)
    x, w, *rest = node.inputs
    assert x is not None and w is not None
    rank = len(x.shape) - 2
    of_bytes = x.dtype == i32 and isa.name in SETS and bytes_of(x) is not None and fits_bytes(w)
    if w.const is None or not (x.dtype in (f32, f64) or of_bytes) or op.group != 1 or rank not in (1, 2):
        return None
    outputs, inputs, *window = (int(d) for d in w.shape)
    strides = spatial("Conv", "strides", op.strides, rank, 1)
    dilations = spatial("Conv", "dilations", op.dilations, rank, 1)
    begin, end = window_padding(op, x.shape[2:], window)
    products = -(-inputs // FOURS) if of_bytes else inputs
    out = node.outputs[0].shape
    if strides[-1] != 1 or not all(p.is_const and int(p) >= 0 for p in (*begin, *end)):
        return None
    known = x.shape[-1].is_const and out[-1].is_const and not of_bytes
    row = (int(x.shape[-1]), int(out[-1]), dilations[-1], int(begin[-1])) if known else None
    half = isa.lanes(x.dtype) // 2
    plain = x.dtype == f32 and {*strides, *dilations} == {1}
    if plain and in_halves(isa) and window == [3, 3] and outputs >= half:
        return None  # Winograd's algorithm, of half vectors, makes a quarter of the products
    if not _worth(outputs, products, window, (isa, x.dtype), row):
        return None
    b, taps = Builder(graph, node.name or node.op.name, node.loc), window[-1]
    parts = b.Conv(
        x,
        _weights(graph, w, window),
        None,
        strides=strides,
        dilations=(*dilations[:-1], 1),
        pads_begin=tuple(map(int, begin)),
        pads_end=tuple(map(int, end)),
    )
    first, last, axes = [t * outputs for t in range(taps + 1)], [t * dilations[-1] for t in range(taps)], [1, rank + 1]
    y: Value | None = None
    for t in range(taps):
        ends = b.dims([first[t + 1], out[-1] + last[t]])
        part = b.Slice(parts, b.dims([first[t], last[t]]), ends, b.dims(axes))
        y = part if y is None else b.Add(y, part)
    if y is not None and rest and rest[0] is not None:
        y = b.Add(y, b.Unsqueeze(rest[0], list(range(1, rank + 1))))
    return y


def _worth(
    outputs: int, products: int, window: list[int], lanes: tuple[Isa, DType], row: tuple[int, int, int, int] | None
) -> bool:
    """Tell whether the saved vectors outweigh the additions.

    products: those of a tap that follow one another.  row: where they are known, the width of X and of the result,
    the dilation and the padding along it: products with padding are made by neither.
    """
    taps, met, pixels = window[-1], float(window[-1]), 1.0
    if row:
        width, result, dilation, padding = row
        met = taps_inside(width, result, taps, 1, dilation, padding) / max(result, 1)
        pixels = width / max(result, 1)
    direct = met * _vectors(outputs, *lanes)
    saved = direct - pixels * _vectors(outputs * taps, *lanes)
    if taps == 1 or saved < LEAST_SAVED * direct:
        return False
    return saved * products * int(np.prod(window[:-1])) >= ADDING * outputs * taps


def _vectors(channels: int, isa: Isa, dtype: DType) -> float:
    """Count the vectors that channels fill: of floats in halves, where a core does one as two and they fill a half."""
    half = isa.lanes(dtype) // 2
    if in_halves(isa) and dtype != i32 and channels >= half:
        return -(-channels // half) / 2
    return -(-channels // isa.lanes(dtype))


def _weights(graph: Graph, w: Value, window: list[int]) -> Value:
    """Rearrange weights [out, in, …, kw] to [kw · out, in, …, 1]."""
    source = w.const
    assert source is not None
    outputs, inputs = int(w.shape[0]), int(w.shape[1])
    shape = (window[-1] * outputs, inputs, *window[:-1], 1)
    made = source.derived(shape, lambda x: np.moveaxis(x, -1, 0))
    return graph.add_constant(made, f"{w.name}/taps")
