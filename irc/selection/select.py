"""Kernel selection: the nodes large enough for a kernel, with the elementwise operations behind them."""

from __future__ import annotations

from irc.fusion.rows import row_groups
from irc.ir.graph import Graph, Node
from irc.ir.types import i8, i32, i64, u8
from irc.kernels.core import choices
from irc.kernels.core.isa import Isa
from irc.kernels.integer.problem import BYTES
from irc.layout.byte_tables import Lookup
from irc.layout.channels_last_op import ChannelsLast
from irc.layout.dynamic_quantization import Extremes
from irc.layout.quantized_sums import SumOfBytes
from irc.layout.softmax_of_bytes import SoftmaxOfBytes
from irc.opdef.base import Op
from irc.ops.argmax import ArgMax, ArgMin
from irc.ops.arithmetic import Add
from irc.ops.conv import Conv, ConvTranspose
from irc.ops.layout import Transpose
from irc.ops.matmul import MatMul
from irc.ops.pool import AveragePool, MaxPool
from irc.ops.recurrent_quantized import QuantizedLSTMSteps
from irc.ops.recurrent_steps import GRUSteps, LSTMSteps
from irc.ops.reduce import ReduceL1, ReduceL2, ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from irc.ops.softmax import Hardmax, LogSoftmax, Softmax
from irc.selection import (
    attention,
    conv,
    conv_transpose,
    global_pool,
    integer,
    integer_operands,
    interpolation,
    matmul,
    pool,
    position,
    recurrent,
    row_reduction,
    softmax,
    transpose,
)
from irc.selection.alike import share_kernels
from irc.selection.selector import Family, Selection, Selector

WINDOWS: dict[type[Op], Family] = {
    Conv: conv.select_kernel,
    MaxPool: pool.select_kernel,
    AveragePool: pool.select_kernel,
}
"""Operations whose kernels also work with the channels last."""


def _reduction(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for a reduction: of rows, else of planes with the channels last."""
    return row_reduction.select_kernel(selector, node) or global_pool.select_kernel(selector, node)


REDUCTIONS: dict[type[Op], Family] = {
    **dict.fromkeys((ReduceMean, ReduceMax), _reduction),
    **dict.fromkeys((ReduceSum, ReduceMin, ReduceProd, ReduceL1, ReduceL2), row_reduction.select_kernel),
}


def run(graph: Graph, isa: Isa, early: bool = False, precision: str = "highest") -> int:
    """Select kernels in place. Returns how many nodes became kernels.

    early: before composite operations are decomposed, those of which a kernel takes the whole.
    precision: the least that f32 products must have.
    """
    selector = Selector(graph, isa, precision)
    done = 0
    for node in [n for n in graph.nodes if isinstance(n.op, LSTMSteps | GRUSteps)]:
        done += recurrent.select_kernel(selector, node)
    for node in [n for n in graph.nodes if isinstance(n.op, QuantizedLSTMSteps)]:
        done += recurrent.select_quantized(selector, node)
    graph.prune()
    if early:
        done += selector.take({Softmax: attention.select_kernel})
        rows: dict[type[Op], Family] = {Softmax: softmax.select_kernel, LogSoftmax: softmax.select_kernel}
        done += selector.take({SoftmaxOfBytes: softmax.select_softmax_of_bytes}, dtypes=BYTES)
        return done + selector.take({**rows, Hardmax: softmax.select_hardmax})
    integers: dict[type[Op], Family] = {MatMul: _product_of_integers, ChannelsLast: integer.select_conv}
    bytewise: dict[type[Op], Family] = {Lookup: integer.select_lookup, ChannelsLast: integer.select_lookup}
    bytewise[SumOfBytes] = integer.select_sum
    done += selector.take(integers, dtypes=(i32,))
    done += selector.take(bytewise, dtypes=(i8, u8))  # after kernels have taken what sums of bytes they can
    transposed: dict[type[Op], Family] = {ConvTranspose: conv_transpose.select_kernel}
    done += selector.take({MatMul: matmul.select_kernel, **transposed, **WINDOWS, ChannelsLast: _channels_last})
    done += selector.take({Add: interpolation.select_kernel, Extremes: row_reduction.select_extremes})
    if any(type(node.op) in REDUCTIONS for node in graph.nodes):
        # after contractions have got their epilogues, so that the row groups are those of fusion
        done += selector.take(REDUCTIONS, but=row_groups(graph))
    done += selector.take({ArgMax: position.select_kernel, ArgMin: position.select_kernel}, dtypes=(i64,))
    done += selector.take({Transpose: transpose.select_kernel})  # last: the other kernels read through it
    done += selector.take({Transpose: transpose.select_elements}, dtypes=transpose.ELEMENTS)
    if choices.current().share:
        share_kernels(graph)
    return done


def _product_of_integers(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for a MatMul of i32.  None where loops compute it."""
    _, b = node.operands
    return (integer_operands if b.const is None else integer).select_matmul(selector, node)


def _channels_last(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for an operation with the channels last.  None where loops compute it."""
    assert isinstance(node.op, ChannelsLast)
    family = WINDOWS.get(type(node.op.op))
    return family(selector, node) if family else None
