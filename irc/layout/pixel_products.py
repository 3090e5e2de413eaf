"""Convolutions of single pixels to few output channels, with the channels first, as products of the weights with them.

A tile of output channels × pixels reads short pieces of all channels, each in another page, and of few output channels
leaves most of its rows empty.  As a product of few rows, W[oc, ic] · X[ic, pixels], the input may be read in order.
"""

from __future__ import annotations

from irc.ir.dim import Dim, product
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import f32, f64
from irc.kernels import Isa
from irc.kernels.conv.pointwise_nchw import FEW
from irc.kernels.core.costs import costs_of
from irc.kernels.core.epilogue import Epilogue, acc
from irc.kernels.gemm.problem import GemmProblem
from irc.opdef.builder import Builder
from irc.opdef.window import spatial, window_padding
from irc.ops.conv import Conv
from irc.passes.replace import replace_value
from irc.selection.layouts import cycles_in, cycles_of_product


def run(graph: Graph, isa: Isa, precision: str = "highest") -> int:
    """Rewrite those with constant weights for which the kernels of products cost less. Returns how many.

    isa, precision: of the kernels that are compared.
    """
    done = 0
    for node in graph.nodes:
        if isinstance(node.op, Conv) and _is_of_pixels(node) and _is_product_cheaper(node, isa, precision):
            done += replace_value(graph, node.outputs[0], _rewritten(graph, node))
    graph.prune()
    return done


def _is_of_pixels(node: Node) -> bool:
    """Tell whether a Conv has windows of one tap that stand at every pixel, one group and few output channels."""
    op, (x, w, *_) = node.op, node.inputs
    assert isinstance(op, Conv) and x is not None and w is not None
    if w.const is None or not w.tensor.is_static or x.dtype not in (f32, f64) or op.group != 1:
        return False
    outputs, _, *window = (int(d) for d in w.shape)
    steps = spatial("Conv", "strides", op.strides, len(window), 1)
    begin, end = window_padding(op, x.shape[2:], w.shape[2:])
    single = all(n == 1 for n in (*window, *steps)) and all(p == 0 for p in (*begin, *end))
    return single and outputs <= FEW and all(d.is_const for d in x.shape[1:])


def _is_product_cheaper(node: Node, isa: Isa, precision: str) -> bool:
    """Tell whether a product costs less; a convolution waits for its input, too, which its kernels do not count."""
    x, w, *_ = node.operands
    pixels, epilogue = product(x.shape[2:]), Epilogue(acc(x.dtype))
    problem = GemmProblem.contiguous(epilogue, w.shape[0], pixels, x.shape[1], False, precision)
    found = cycles_of_product(problem, isa)
    waiting = problem.streamed * x.dtype.itemsize / costs_of(isa).stream
    images = int(x.shape[0]) if x.shape[0].is_const else 1
    convolution = cycles_in("nchw", node, isa, precision)
    return convolution is not None and found < convolution / images + waiting


def _rewritten(graph: Graph, node: Node) -> Value:
    """Multiply the weights, [oc, ic], by the pixels, [n, ic, pixels], and add the bias to each row."""
    x, w, *rest = node.inputs
    assert x is not None and w is not None and w.const is not None
    (outputs, inputs), (batch, _, *space) = w.const.shape[:2], x.shape
    matrix = w.const.derived((outputs, inputs), lambda a: a.reshape(outputs, inputs))
    b = Builder(graph, node.name or node.op.name, node.loc)
    flat = x if len(space) == 1 else b.Reshape(x, b.dims((batch, Dim.of(inputs), product(space))), special_zero=False)
    y = b.MatMul(graph.add_constant(matrix, w.name), flat)
    if rest and rest[0] is not None:
        y = b.Add(y, b.Unsqueeze(rest[0], [1]))
    whole = (batch, Dim.of(outputs), *space)
    return y if len(space) == 1 else b.Reshape(y, b.dims(whole), special_zero=False)
