"""LSTM and GRU as kernels: their steps, behind the product of the whole input with its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from irc.expr import index
from irc.fusion.access import Access, Space, find, row_major
from irc.fusion.origins import layers_between
from irc.ir.dim import Dim
from irc.ir.graph import Node, Value
from irc.ir.types import TensorType, i32, i64, u8
from irc.kernels.core.base import Kernel
from irc.kernels.core.registry import select
from irc.kernels.recurrent.problem import RecurrentProblem
from irc.loops.builder import LoopBuilder, Place
from irc.loops.ir import Buffer, KernelCall
from irc.opdef.signature import Sig
from irc.ops.recurrent_steps import Activation
from irc.passes.replace import replace_value
from irc.selection.select import DTYPES, KernelOp, Selector, worthwhile

USUAL = {"LSTMSteps": ("Sigmoid", "Tanh", "Tanh"), "GRUSteps": ("Sigmoid", "Tanh")}
C_LENGTHS = {i32: "int32_t", i64: "int64_t"}


@dataclass(frozen=True)
class RecurrentOp(KernelOp):
    """A kernel with several results; `starts` are the operands', then the results'."""

    reads: int = 0
    sig: ClassVar[Sig] = Sig("*xs: any -> *ys: any")

    def loops(self, b: LoopBuilder, *operands: Place) -> None:
        buffers = [x.buffer for x in operands]
        scratch = Buffer(f"packed{len(b.scratch)}", u8, (self.scratch,), "arena", origin=b.origin)
        b.scratch.append(scratch)
        reads, writes = tuple(buffers[: self.reads]), tuple(buffers[self.reads :])
        b.add(KernelCall(self.kernel, reads, writes, self.sizes, (scratch,), self.starts))  # type: ignore[arg-type]


def select_kernel(selector: Selector, node: Node) -> bool:
    """Put a kernel in the place of the steps of a layer; False, and nothing done, where loops do them."""
    op: Any = node.op
    x, weights, h, lengths, *more = (*node.inputs, *[None] * (6 - len(node.inputs)))
    assert x is not None and weights is not None
    c = more[0] if op.name == "LSTMSteps" else None
    bias = more[0] if op.name == "GRUSteps" else None
    if not _usual(op) or (op.name == "LSTMSteps" and more[1] is not None) or x.dtype not in DTYPES:
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
    cell = "lstm" if op.name == "LSTMSteps" else "gru_linear" if op.linear_before_reset else "gru"
    y, to = _result(selector, node.outputs[0])
    problem = RecurrentProblem(
        x.dtype,
        selector.precision,
        cell,
        op.direction,
        h is not None,
        c is not None,
        "" if lengths is None else C_LENGTHS[lengths.dtype],
        bias is not None,
        steps,
        batch,
        int(hidden),
        x=(source.strides[0], source.strides[1], source.strides[2]),
        y=(to[0], to[1], to[2]),
    )
    kernel = select(problem, selector.isa)
    if kernel is None:
        return False
    reads = [
        source.value,
        _packed(selector, kernel, problem, weights),
        *(v for v in (h, c, lengths, bias) if v is not None),
    ]
    results = [y, *node.outputs[1:]]
    starts = (index(source.offset), *[index(0)] * (len(reads) + len(results) - 1))
    sizes = kernel.order(**kernel.arguments_for(problem))
    made_op = RecurrentOp(kernel, sizes, starts, kernel.scratch(problem), len(reads))
    made = [selector.graph.new_value(v.name, v.type) for v in results]
    layers = layers_between(selector.elements, reads, *results)
    selector.graph.add_node(made_op, reads, made, node.name, node.loc, layers)
    for old, new in zip(results, made, strict=True):
        replace_value(selector.graph, old, new)
    return True


def _usual(op: Any) -> bool:
    """Whether the functions are those that the kernel has, and nothing is clipped."""
    kinds: tuple[tuple[Activation, ...], ...] = op.activations
    names = {tuple(name for name, _, _ in one) for one in kinds}
    return names == {USUAL[op.name]} and not op.clip and not getattr(op, "input_forget", False)


def _projected(selector: Selector, x: Value) -> Access | None:
    """How x is read over (step, sequence, direction, gate and unit), the last one contiguous."""
    space = Space(x.shape)
    ways = find(selector.elements, space, x, space.at)
    return next((a for a in ways if a.strides[3] == 1), None)


def _result(selector: Selector, y: Value) -> tuple[Value, tuple[Dim, ...]]:
    """What is stored, with its strides over y's axes: y, or a Transpose behind it that keeps the units last."""
    plain = row_major(y.shape)
    if len(y.uses) != 1 or y in selector.graph.outputs:
        return y, plain
    after = next(iter(y.uses))
    given = after.inputs[1] if len(after.inputs) > 1 else None
    order = given.ints() if given is not None else None
    out = after.outputs[0]
    if after.op.name != "Transpose" or not order or order[-1] != 3 or not isinstance(out.type, TensorType):
        return y, plain
    there = row_major(out.shape)
    return out, tuple(there[order.index(axis)] for axis in range(4))


def _packed(selector: Selector, kernel: Kernel[RecurrentProblem], problem: RecurrentProblem, weights: Value) -> Value:
    """Add the weights in the kernel's packing, made when they are written."""
    source, packed = weights.const, kernel.packed(problem)
    assert source is not None and packed is not None
    return selector.constant(packed, lambda: source.array, (weights,), weights.name)
