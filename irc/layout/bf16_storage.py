"""Activations between kernels of one bf16 term, stored as bf16: half the memory traffic, and nothing to round.

A kernel of one term rounds its input to bf16, whoever made it; so a value that only such kernels read may be rounded
when it is written.  Others that read it then see it rounded, which is what one term promises of any factor: Winograd's
convolution (which rounds transformed inputs), depthwise convolutions, residual sums in an epilogue, and a call with few
rows of a product whose number of rows is symbolic.  All of them add up in f32.  Maxima, and what only moves elements,
choose among the same values before or after rounding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from irc.expr import Const, Expr, Size
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, bf16, f32
from irc.kernels import (
    AmxConvKernel,
    AmxGemmKernel,
    DepthwiseLastKernel,
    DirectConvKernel,
    DotWinogradKernel,
    PoolLastKernel,
    RowsGemmKernel,
)
from irc.layout.channels_last import ChannelsLast
from irc.layout.destination import Room
from irc.selection.select import KernelOp

MOVES = frozenset(("Concat", "Interleave", "Part", "Reshape", "Slice", "Split", "Transpose"))
"""Operations whose results are elements of their operands."""
SLOTS = 2
"""Operands of a kernel before those of its epilogue: input and weights."""


def run(graph: Graph) -> int:
    """Rewrite in place; how many values are stored as bf16 now."""
    found = {v for v in graph.values() if v.producer is not None and v.uses and _is_f32(v)} - set(graph.outputs)
    while True:
        kept = {v for v in found if _written(v, found) and all(_read(v, node, found) for node in v.uses)}
        if kept == found:
            break
        found = kept
    for value in found:
        value.type = TensorType(bf16, value.shape)
    for node in graph.nodes:
        if isinstance(node.op, KernelOp):
            node.op = replace(node.op, kernel=_stored(node.op.kernel, node, found))
        elif isinstance(node.op, Room) and node.outputs[0] in found:
            node.op = replace(node.op, dtype=bf16)
    return len(found)


def _stored(kernel: Any, node: Node, found: set[Value]) -> Any:
    """The variant of a kernel for operands and a result that are stored as bf16 where they are in `found`."""
    halves = frozenset(i for i, v in enumerate(node.inputs[SLOTS:]) if v in found and _adds(kernel, i))
    changes: dict[str, Any] = {"x_half": node.inputs[0] in found, "y_half": node.outputs[0] in found}
    changes = {name: True for name, is_half in changes.items() if is_half}
    if halves:
        changes["epilogue"] = replace(kernel.epilogue, halves=halves)
    return replace(kernel, **changes) if changes else kernel


def _is_f32(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.shape is not None and v.dtype == f32


def _written(v: Value, found: set[Value]) -> bool:
    """Whether the producer of a value may write it as bf16."""
    node = v.producer
    assert node is not None
    if isinstance(node.op, Room):
        return True
    if not isinstance(node.op, KernelOp):
        return _is_move(node, found)
    kernel: Any = node.op.kernel
    if node.op.part_of is not None and node.inputs[node.op.part_of] not in found:
        return False
    if _is_maximum(kernel):
        return node.inputs[0] in found
    return _gives(kernel, dict(zip(kernel.sizes, node.op.sizes, strict=True)))


def _read(v: Value, node: Node, found: set[Value]) -> bool:
    """Whether a node may read a value as bf16."""
    if not isinstance(node.op, KernelOp):
        return _is_move(node, found)
    kernel: Any = node.op.kernel

    def may(place: int) -> bool:
        if place == node.op.part_of or _is_maximum(kernel):
            return node.outputs[0] in found
        return _takes(kernel) if place == 0 else _adds(kernel, place - SLOTS)

    return all(may(i) for i, x in enumerate(node.inputs) if x is v)


def _is_move(node: Node, found: set[Value]) -> bool:
    """Whether a node moves elements between values that are all to be stored as bf16."""
    op = node.op.op if isinstance(node.op, ChannelsLast) else node.op
    return op.name in MOVES and all(v in found for v in (*node.outputs, *node.operands) if v.dtype == f32)


def _is_maximum(kernel: object) -> bool:
    """Whether a kernel chooses among the elements of its input."""
    if not isinstance(kernel, PoolLastKernel):
        return False
    return kernel.mode == "max" and not kernel.epilogue.key() and _is_wide(kernel)


def _is_wide(kernel: DepthwiseLastKernel | DirectConvKernel | PoolLastKernel | RowsGemmKernel) -> bool:
    return kernel.tile.isa.vector == 64 and kernel.tile.dtype == f32


def _takes(kernel: object) -> bool:
    """Whether a kernel has a variant that reads its input as bf16, which it would round to that anyway."""
    if isinstance(kernel, AmxGemmKernel):
        return kernel.terms == 1 and bool(kernel.heights)
    if isinstance(kernel, AmxConvKernel):
        return kernel.terms == 1
    return isinstance(kernel, DotWinogradKernel) or (isinstance(kernel, DepthwiseLastKernel) and _is_wide(kernel))


def _adds(kernel: Any, slot: int) -> bool:
    """Whether a kernel has a variant that reads that operand of its epilogue as bf16: a residual."""
    able = _takes(kernel) or (isinstance(kernel, RowsGemmKernel) and _is_wide(kernel))
    return able and 0 <= slot < len(kernel.epilogue.slots) and kernel.epilogue.slots[slot] == "full"


def _gives(kernel: object, sizes: dict[str, Expr]) -> bool:
    """Whether a kernel has a variant that writes its result as bf16."""
    if isinstance(kernel, AmxGemmKernel):
        k = _number(sizes["k"])
        return kernel.terms == 1 and bool(kernel.heights) and k is not None and kernel.is_one_sum(k)
    if isinstance(kernel, AmxConvKernel | DirectConvKernel):
        ic = _number(sizes["ic"])
        able = kernel.terms == 1 if isinstance(kernel, AmxConvKernel) else _is_wide(kernel)
        return able and ic is not None and kernel.is_one_sum(ic)
    if isinstance(kernel, DepthwiseLastKernel | RowsGemmKernel):
        return _is_wide(kernel)
    return isinstance(kernel, DotWinogradKernel)


def _number(e: Expr) -> int | None:
    if isinstance(e, Const):
        return int(e.value)  # type: ignore[call-overload]
    return int(e.dim) if isinstance(e, Size) and e.dim.is_const else None
