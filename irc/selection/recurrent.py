"""Selection for LSTM and GRU: their steps, behind the product of the whole input with its weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from irc.expr import index
from irc.fusion.access import Access, Space, find
from irc.fusion.origins import layers_between
from irc.ir.dim import Dim
from irc.ir.graph import Node, Value
from irc.ir.types import i32, i64
from irc.kernels.core.base import Kernel
from irc.kernels.core.registry import select
from irc.kernels.integer.lstm import QuantizedLstmProblem
from irc.kernels.recurrent.problem import Cell, Direction, RecurrentProblem
from irc.opdef.signature import Sig
from irc.ops.recurrent_quantized import QuantizedLSTMSteps
from irc.ops.recurrent_steps import RATIONAL, Activation, GRUSteps, LSTMSteps, Steps
from irc.passes.replace import replace_value
from irc.selection.selector import DTYPES, KernelOp, Selector, worthwhile

USUAL: dict[type[Steps], tuple[str, ...]] = {LSTMSteps: ("Sigmoid", "Tanh", "Tanh"), GRUSteps: ("Sigmoid", "Tanh")}
C_LENGTHS = {i32: "int32_t", i64: "int64_t"}


@dataclass(frozen=True)
class RecurrentOp(KernelOp):
    """A kernel with several results."""

    sig: ClassVar[Sig] = Sig("*xs: any -> *ys: any")


P = TypeVar("P", bound=RecurrentProblem)


def select_kernel(selector: Selector, node: Node) -> bool:
    """Replace the steps of a layer by a kernel. Returns False, and does nothing, if loops compute them."""
    op = node.op
    assert isinstance(op, LSTMSteps | GRUSteps)
    x, weights, h, lengths, *more = (*node.inputs, *[None] * (6 - len(node.inputs)))
    assert x is not None and weights is not None
    c = more[0] if isinstance(op, LSTMSteps) else None
    bias = more[0] if isinstance(op, GRUSteps) else None
    if not _usual(op) or (isinstance(op, LSTMSteps) and more[1] is not None) or x.dtype not in DTYPES:
        return False
    steps, batch, *_ = x.shape
    hidden = weights.shape[1]
    if weights.const is None or not hidden.is_const or not int(hidden) or not worthwhile(steps, batch, hidden, hidden):
        return False
    if lengths is not None and lengths.dtype not in C_LENGTHS:
        return False
    source = _projected(selector, x)
    if source is None:
        return False
    cell = "lstm" if isinstance(op, LSTMSteps) else "gru_linear" if op.linear_before_reset else "gru"
    y, to = selector.stored(node.outputs[0])
    problem = _problem(
        RecurrentProblem, selector, cell, op.direction, (x, h, lengths, c, bias), int(hidden), source, to
    )
    kernel = select(problem, selector.isa)
    if kernel is None:
        return False
    reads = [
        source.value,
        _packed(selector, kernel, problem, weights),
        *(v for v in (h, c, lengths, bias) if v is not None),
    ]
    _put(selector, node, kernel, problem, source, reads, y)
    return True


def _problem(
    kind: type[P],
    selector: Selector,
    cell: Cell,
    direction: Direction,
    operands: tuple[Value, Value | None, Value | None, Value | None, Value | None],
    hidden: int,
    source: Access,
    to: Sequence[Dim],
) -> P:
    """State the problem; operands: the projected input, h, lengths, c, bias."""
    x, h, lengths, c, bias = operands
    steps, batch, *_ = x.shape
    return kind(
        x.dtype,
        selector.precision,
        cell,
        direction,
        h is not None,
        c is not None,
        "" if lengths is None else C_LENGTHS[lengths.dtype],
        bias is not None,
        steps,
        batch,
        hidden,
        x=(source.strides[0], source.strides[1], source.strides[2]),
        y=(to[0], to[1], to[2]),
    )


def select_quantized(selector: Selector, node: Node) -> bool:
    """Replace the steps of a quantized LSTM by a kernel. Returns False, and does nothing, if loops compute them."""
    op = node.op
    assert isinstance(op, QuantizedLSTMSteps)
    x, weights, scale, zero, h, lengths, c, peephole, bias = (*node.inputs, *[None] * (9 - len(node.inputs)))
    assert x is not None and weights is not None and scale is not None and zero is not None
    names = {tuple(name for name, _, _ in one) for one in op.activations}
    steps, batch, *_ = x.shape
    hidden = weights.shape[1]
    if names != {tuple(RATIONAL[n] for n in USUAL[LSTMSteps])} or op.clip or op.input_forget or peephole is not None:
        return False
    if not hidden.is_const or not worthwhile(steps, batch, hidden, hidden):
        return False
    if weights.array is None or zero.array is None or (lengths is not None and lengths.dtype not in C_LENGTHS):
        return False
    source, centred = _projected(selector, x), weights.array.astype(np.int32) - zero.array[:, None]
    if source is None or centred.size == 0 or centred.min() < -128 or centred.max() > 127:
        return False
    y, to = selector.stored(node.outputs[0])
    problem = _problem(
        QuantizedLstmProblem, selector, "lstm", op.direction, (x, h, lengths, c, bias), int(hidden), source, to
    )
    kernel = select(problem, selector.isa)
    if kernel is None:
        return False
    packing = kernel.packed(problem)
    assert packing is not None
    packed = selector.constant(packing, lambda: centred, (weights, zero), weights.name)
    reads = [source.value, packed, scale, *(v for v in (h, c, lengths, bias) if v is not None)]
    _put(selector, node, kernel, problem, source, reads, y)
    return True


def _put(
    selector: Selector,
    node: Node,
    kernel: Kernel[Any],
    problem: RecurrentProblem,
    source: Access,
    reads: list[Value],
    y: Value,
) -> None:
    """Put a kernel in the place of a node; `y` is stored instead of its first result."""
    results = [y, *node.outputs[1:]]
    starts = (index(source.offset), *[index(0)] * (len(reads) + len(results) - 1))
    sizes = kernel.order(**kernel.arguments_for(problem))
    made_op = RecurrentOp(kernel, sizes, starts, kernel.scratch(problem), len(results))
    made = [selector.graph.new_value(v.name, v.type) for v in results]
    layers = layers_between(selector.elements, reads, *results)
    selector.graph.add_node(made_op, reads, made, node.name, node.loc, layers)
    for old, new in zip(results, made, strict=True):
        replace_value(selector.graph, old, new)


def _usual(op: Steps) -> bool:
    """Tell whether the functions are those that the kernel has, and nothing is clipped."""
    kinds: tuple[tuple[Activation, ...], ...] = op.activations
    names = {tuple(name for name, _, _ in one) for one in kinds}
    return names == {USUAL[type(op)]} and not op.clip and not getattr(op, "input_forget", False)


def _projected(selector: Selector, x: Value) -> Access | None:
    """Find how x is read over (step, sequence, direction, gate and unit), the last one contiguous."""
    space = Space(x.shape)
    ways = find(selector.elements, space, x, space.at)
    return next((a for a in ways if a.strides[3] == 1), None)


def _packed(selector: Selector, kernel: Kernel[RecurrentProblem], problem: RecurrentProblem, weights: Value) -> Value:
    """Add the weights in the kernel's packing, which is made when they are written."""
    source, packed = weights.const, kernel.packed(problem)
    assert source is not None and packed is not None
    return selector.constant(packed, lambda: source.array, (weights,), weights.name)
