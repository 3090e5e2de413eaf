"""Convolutions and matrix products with what stands around them: biases, scales, transposes."""

from __future__ import annotations

import numpy as np

from irc.ir.graph import Graph, Node, Value
from irc.ir.types import FLOATS
from irc.opdef.builder import Builder
from irc.ops.conv import Conv, ConvTranspose, GroupedConv, GroupedConvTranspose
from irc.ops.layout import Reshape, Transpose, Unsqueeze
from irc.ops.matmul import Gemm, MatMul
from irc.passes.channel_scales import rescaled, shifted
from irc.passes.recompose import alone
from irc.passes.simplify import is_all, order_of


def groups(graph: Graph, node: Node) -> Value | None:
    """Write a grouped convolution as the one that has the number of groups as an attribute."""
    x, w = node.inputs
    assert isinstance(node.op, GroupedConv | GroupedConvTranspose)
    if x is None or w is None or not all(d.is_const for d in w.shape[:3]):
        return None
    return node.op.decompose(Builder(graph, node.name, node.loc), x, w)


def bias_of_convolution(graph: Graph, node: Node) -> Value | None:
    """Take a sum with one number a channel into the convolution before it."""
    for i, given in enumerate(node.operands):
        made, added = given.producer, node.inputs[1 - i]
        if made is None or added is None or not isinstance(made.op, Conv | ConvTranspose) or not alone(graph, made):
            continue
        channels = given.shape[1].const
        if len(made.inputs) != 2 or not channels or given.type != node.outputs[0].type:
            continue
        b = Builder(graph, node.name, node.loc)
        bias = _channel_vector(b, added, channels, len(given.shape))
        if bias is not None:
            return b.add(made.op, *made.inputs, bias)
    return None


def _channel_vector(b: Builder, added: Value, channels: int, rank: int) -> Value | None:
    """Return a summand of shape [1, channels, 1 …] as a vector."""
    if added.rank is None or added.rank > rank or not added.tensor.is_static:
        return None
    padded = (1,) * (rank - added.rank) + tuple(int(d) for d in added.shape)
    if padded != (1, channels, *(1,) * (rank - 2)):
        return None
    if added.const is not None:
        return b.graph.add_constant(added.const.derived((channels,), lambda a: a), added.name)
    made = added.producer
    source = made.inputs[0] if made is not None and isinstance(made.op, Reshape | Unsqueeze) else None
    return source if source is not None and source.rank == 1 else None


def negated_convolution(graph: Graph, node: Node) -> Value | None:
    """Take a sign into the weights of the convolution before it."""
    given = node.inputs[0]
    if given is None or given.rank is None or given.rank < 3 or not given.shape[1].const:
        return None
    minus = np.full(given.shape[1].const, -1.0)
    return rescaled(graph, Builder(graph, node.name, node.loc), given, minus, np.zeros_like(minus))


def needless_bias(graph: Graph, node: Node) -> Value | None:
    """Leave out a bias of zeros, of either sign."""
    x, w, bias = (*node.inputs, None)[:3]
    if bias is None or not (is_all(bias, 0.0) or is_all(bias, -0.0)):
        return None
    return Builder(graph, node.name, node.loc).add(node.op, x, w)


def needless_sum(graph: Graph, node: Node) -> Value | None:
    """Leave out zeros that are added to a product: sums that begin at 0 are never -0, which they would change."""
    for i, given in enumerate(node.operands):
        made, added = given.producer, node.inputs[1 - i]
        if made is None or added is None or given.type != node.outputs[0].type:
            continue
        if isinstance(made.op, Conv | GroupedConv | MatMul | Gemm) and is_all(added, 0.0):
            return given
    return None


def shift_of_convolution(graph: Graph, node: Node) -> Value | None:
    """Take a sum with one number a channel into the bias that the convolution before it has."""
    has_bias = any(v.producer is not None and len(v.producer.inputs) == 3 for v in node.operands)
    return shifted(graph, node) if has_bias else None


def bias_of_product(graph: Graph, node: Node) -> Value | None:
    """Recognise Gemm as a product of matrices and a constant that is added."""
    for i, given in enumerate(node.operands):
        made, added = given.producer, node.inputs[1 - i]
        if made is None or added is None or added.const is None or not alone(graph, made):
            continue
        a, m = _gemm(made)
        if a is None or len(made.inputs) != 2 or given.type != node.outputs[0].type or len(added.shape) > 2:
            continue
        shape = tuple(int(d) for d in added.shape)
        if len(shape) == 2 and shape[0] == 1:
            constant = added.const
            added = graph.add_constant(constant.derived(shape[1:], lambda a: a), added.name)
        return Builder(graph, node.name, node.loc).add(m, *made.inputs, added)
    return None


def transposed_matrices(graph: Graph, node: Node) -> Value | None:
    """Recognise Gemm as a product of transposed matrices."""
    assert isinstance(node.op, MatMul)
    a, op = _gemm(node)
    if a is None or not (node.op.transpose_a or node.op.transpose_b):
        return None
    return Builder(graph, node.name, node.loc).add(op, *node.inputs)


def _gemm(node: Node) -> tuple[Value | None, Gemm]:
    """Return (first operand, operation) of a product of two matrices of floats; else no operand."""
    a, b = (*node.inputs, None)[:2]
    if isinstance(node.op, Gemm):
        return a, node.op
    if not isinstance(node.op, MatMul) or a is None or b is None or a.rank != 2 or b.rank != 2:
        return None, Gemm()
    op = Gemm(transA=int(node.op.transpose_a), transB=int(node.op.transpose_b))
    return (a if a.dtype in FLOATS else None), op


def product_of_transposed(graph: Graph, node: Node) -> Value | None:
    """Take transposes of matrices into the product that alone reads them."""
    assert isinstance(node.op, MatMul)
    operands, turned = list(node.operands), [node.op.transpose_a, node.op.transpose_b]
    for i, given in enumerate(operands):
        made = given.producer
        order = order_of(made) if made is not None and isinstance(made.op, Transpose) and alone(graph, made) else None
        if made is None or order is None or len(order) < 2 or made.inputs[0] is None:
            continue
        if order == [*range(len(order) - 2), len(order) - 1, len(order) - 2]:
            operands[i], turned[i] = made.inputs[0], not turned[i]
    if turned == [node.op.transpose_a, node.op.transpose_b]:
        return None
    b = Builder(graph, node.name, node.loc)
    return b.MatMul(*operands, transpose_a=turned[0], transpose_b=turned[1])


def transposed_stacks(graph: Graph, node: Node) -> Value | None:
    """Transpose what ONNX's MatMul cannot: constants are then stored so, and other permutations take it in."""
    assert isinstance(node.op, MatMul)
    b, operands = Builder(graph, node.name, node.loc), list(node.operands)
    if not (node.op.transpose_a or node.op.transpose_b) or any(v.rank is None or v.rank < 2 for v in operands):
        return None
    for i, wanted in enumerate((node.op.transpose_a, node.op.transpose_b)):
        if wanted:
            rank = len(operands[i].shape)
            operands[i] = b.Transpose(operands[i], [*range(rank - 2), rank - 1, rank - 2])
    return b.MatMul(*operands)
