"""Products of pixels that channels are scaled in front of: their weights are scaled instead.

Squeeze-and-excitation multiplies each channel of an image by a number, in front of a convolution of single pixels.  By
itself that reads and writes the whole image once more.  (x · diag(s)) · W is x · (diag(s) · W), and W is small where
there are more pixels than results of each.  It is no constant then: kernels pack it when they are called.

Hu, Shen, Sun, "Squeeze-and-Excitation Networks" (CVPR 2018).
"""

from __future__ import annotations

from dataclasses import dataclass

from irc.ir.dim import Dim, product
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import f32, f64
from irc.kernels import Isa
from irc.kernels.core.costs import costs_of
from irc.kernels.core.epilogue import Epilogue, acc
from irc.kernels.core.problem import likely
from irc.kernels.gemm.problem import GemmProblem
from irc.layout.narrow_weights import NarrowConstant
from irc.opdef.builder import Builder
from irc.ops.arithmetic import Mul
from irc.ops.matmul import MatMul
from irc.passes.replace import replace_value
from irc.selection.layouts import cycles_of_product


@dataclass(frozen=True)
class _Scaled:
    """What a product reads: `x`, [images, …, k], whose last axis `by` multiplies by `scales`, [images, 1…, k]."""

    x: Value
    scales: Value
    images: Dim
    by: Node

    @property
    def rows(self) -> Dim:
        """The rows of a product for each image."""
        return product(self.x.shape[(0 if self.images == 1 else 1) : -1])


def run(graph: Graph, isa: Isa, precision: str = "highest") -> int:
    """Scale the weights of products whose operands are scaled by channels, where that costs less. Returns how many.

    isa, precision: of the kernels that are compared.
    """
    done = 0
    for node in graph.nodes:
        if isinstance(node.op, MatMul) and (found := _scaled(graph, node)) and _is_cheaper(node, found, isa, precision):
            done += replace_value(graph, node.outputs[0], _rewritten(graph, node, found))
    graph.prune()
    return done


def _scaled(graph: Graph, node: Node) -> _Scaled | None:
    """Match x · s in front of a product with one constant matrix, s the same for all rows of an image."""
    assert isinstance(node.op, MatMul)
    a, w = node.inputs
    if a is None or w is None or w.const is None or len(w.shape) != 2 or node.op.transpose_a:
        return None
    scale = a.producer
    if scale is None or not isinstance(scale.op, Mul) or graph.only_use(a) is not node or a.dtype not in (f32, f64):
        return None
    if a.tensor.shape is None or not a.shape[-1].is_const or isinstance(w.const, NarrowConstant):
        return None
    for x, s in (scale.inputs, scale.inputs[::-1]):
        if x is None or s is None or s.const is not None or x.shape != a.shape or len(s.shape) > len(a.shape):
            continue
        if x.producer is not None and graph.only_use(x) is not None:  # which scales its result without reading it again
            continue
        shape = (*(Dim.of(1),) * (len(a.shape) - len(s.shape)), *s.shape)
        if shape[-1] == a.shape[-1] and all(d == 1 for d in shape[1:-1]) and (shape[0] == 1 or shape[0].is_const):
            return _Scaled(x, s, shape[0], scale)
    return None


def _is_cheaper(node: Node, found: _Scaled, isa: Isa, precision: str) -> bool:
    """Tell whether less is saved by constant weights than by leaving the pixels as they are."""
    epilogue, sizes = Epilogue(acc(found.x.dtype)), (found.rows, node.outputs[0].shape[-1], found.x.shape[-1])
    rows, n, k = map(likely, sizes)
    operands, weights = (
        cycles_of_product(GemmProblem.contiguous(epilogue, *sizes, constant, precision), isa)
        for constant in (False, True)
    )
    moved = 2 * found.x.dtype.itemsize / costs_of(isa).stream
    return operands + moved * k * n < weights + moved * k * rows


def _rewritten(graph: Graph, node: Node, found: _Scaled) -> Value:
    """Multiply the rows of the weights, [k, n], by the scales of each image, then x by them."""
    assert isinstance(node.op, MatMul)
    x, y, (_, w) = found.x, node.outputs[0], node.operands
    k, one, own = x.shape[-1], Dim.of(1), () if found.images == 1 else (found.images,)
    b = Builder(graph, found.by.name or found.by.op.name, found.by.loc, layers=found.by.layers)
    of_rows = (*own, one, k) if node.op.transpose_b else (*own, k, one)
    scaled = b.Mul(w, b.Reshape(found.scales, b.dims(of_rows), special_zero=False))
    b = Builder(graph, node.name or node.op.name, node.loc, layers=node.layers)
    if not own:
        return b.add(node.op, x, scaled)
    flat = b.Reshape(x, b.dims((*own, found.rows, k)), special_zero=False)
    return b.Reshape(b.add(node.op, flat, scaled), b.dims(tuple(y.shape)), special_zero=False)
