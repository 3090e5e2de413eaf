"""A graph in the operations that tools of the format it is written in use: layers that the source's format spells out.

One function per rule, in lists by format and by the operation that a pattern ends in; as in `irc.passes.recompose`,
results differ from the pattern's by roundings.  What an operation set does not have is decomposed when it is written.
"""

from __future__ import annotations

from collections.abc import Sequence

from irc.diagnostics import Problem
from irc.ir.graph import Graph, Node
from irc.opdef.base import Op
from irc.opdef.known import fold_constants
from irc.ops.activation import PRelu
from irc.ops.arithmetic import Add, Div, Mul, Neg
from irc.ops.cast import Cast
from irc.ops.concat import Concat
from irc.ops.conv import Conv, GroupedConv, GroupedConvTranspose
from irc.ops.fake_quantize import FakeQuantize
from irc.ops.gather import Gather
from irc.ops.layout import Reshape, Transpose, Unsqueeze
from irc.ops.matmul import MatMul
from irc.ops.norm import BatchNormalization, MeanVarianceNormalization
from irc.ops.quantize import DequantizeLinear
from irc.ops.reduce import ReduceMean
from irc.ops.shape import Shape
from irc.passes import channel_scales, cse, materialize, recompose, simplify
from irc.passes.idioms import (
    activations,
    blocks,
    dynamic_quantization,
    moves,
    normalization,
    pooling,
    products,
    quantization,
    spelled_out,
)
from irc.passes.replace import put_in_place
from irc.passes.simplify import Rule

ONNX: dict[type[Op], tuple[Rule, ...]] = {
    Add: (products.bias_of_convolution, products.bias_of_product, normalization.bias, quantization.shifted),
    Cast: (dynamic_quantization.quantized_by_range, blocks.widened),
    FakeQuantize: (quantization.quantized_and_back,),
    Conv: (dynamic_quantization.convolution_of_bytes,),
    GroupedConv: (dynamic_quantization.convolution_of_bytes, products.groups),
    GroupedConvTranspose: (products.groups,),
    MatMul: (
        dynamic_quantization.product_of_bytes,
        blocks.product,
        products.transposed_matrices,
        products.transposed_stacks,
    ),
    Reshape: (blocks.compressed,),
    MeanVarianceNormalization: (normalization.instance_norm, normalization.layer_norm),
    Div: (activations.hard_swish,),
    Mul: (activations.gelu, activations.hard_swish, normalization.scale, quantization.compressed),
    PRelu: (activations.leaky_relu,),
    ReduceMean: (pooling.global_mean,),
}
OPENVINO: dict[type[Op], tuple[Rule, ...]] = {
    BatchNormalization: (normalization.batch_norm,),
    Div: (activations.hard_swish, normalization.standardised),
    DequantizeLinear: (quantization.fake_quantize, quantization.decompressed),
    Add: (products.shift_of_convolution, products.needless_sum),
    Mul: (
        *(activations.gelu, activations.hard_swish, channel_scales.scaled),
        *(quantization.in_blocks, quantization.in_few_bits),
    ),
    MatMul: (products.product_of_transposed,),
    Neg: (products.negated_convolution,),
    Conv: (products.needless_bias,),
    Shape: (moves.part_of_shape,),
    Gather: (moves.size_of_axis,),
    Unsqueeze: (moves.vector_of_gathered,),
}
SIMPLER: dict[type[Op], tuple[Rule, ...]] = {
    op: tuple(moves.reshape_of_reshape if r is simplify.reshape_of_reshape else r for r in rules)
    for op, rules in simplify.RULES.items()
}
SIMPLER[Reshape] = (*SIMPLER[Reshape], moves.constant_shape)
SIMPLER[Transpose] = (*SIMPLER[Transpose], moves.reshape_of_reshape)
SIMPLER[Concat] = (moves.without_empty_parts,)
"""What leaves out nodes, and asks for no sizes that only the run knows, which files compute at length."""
SIMPLER_STILL = {"onnx": SIMPLER, "openvino": {**SIMPLER, Transpose: (*SIMPLER[Transpose], moves.transpose_of_ones)}}
RULES = {"onnx": ONNX, "openvino": OPENVINO}


def run(graph: Graph, format: str) -> None:
    """Rewrite the graph and its regions in place for a file of that format."""
    for each in graph.nested():
        materialize.constants(each)
        fold_constants(each)
        simplify.run(each, SIMPLER_STILL[format])
        recompose.run(each)
        spelled_out.run(each, format)
        fold_constants(each)
        simplify.run(each, SIMPLER_STILL[format])
        for node in each.nodes:
            _apply(each, node, RULES[format].get(type(node.op), ()))
        each.prune()
        simplify.run(each, SIMPLER_STILL[format])
        cse.run(each)
        fold_constants(each)
        if format == "openvino":
            quantization.narrow_zero_points(each)
        cse.share_constants(each)


def _apply(graph: Graph, node: Node, rules: Sequence[Rule]) -> None:
    """Apply the first rule that finds its pattern; what is made takes over the names."""
    for rule in rules:
        old = node.outputs[0]
        try:
            found = rule(graph, node)
        except Problem:  # the operation refuses these operands: they stay as the source has them
            continue
        if found is not None and found.type == old.type:
            if found.producer is not None:
                found.name, found.names, found.producer.name = old.name, old.names, node.name
            put_in_place(graph, old, found)
            graph.prune_back(node)
            return
