"""Bytes are moved, not the floats that are made of them.

What only moves elements (Transpose, Concat, Split, a Pad that reflects and others) is done before DequantizeLinear: a
quarter of the memory, and products behind it find their bytes.  So is a MaxPool, for floats grow with the bytes.  A
Concat that is quantized becomes one of what is quantized, so that each operand is where it is computed; so does a
Transpose, or an Expand, which would read floats far apart, or repeat them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, f32
from irc.kernels.core.isa import Isa
from irc.kernels.integer.problem import BYTES, SETS
from irc.layout.integer_operands import all_bytes, dequantized, is_one
from irc.opdef.builder import Builder
from irc.opdef.reference import run_reference
from irc.opdef.window import spatial, window_padding
from irc.ops.concat import Concat, Split
from irc.ops.gather import Gather
from irc.ops.layout import Flatten, Reshape, Squeeze, Transpose, Unsqueeze
from irc.ops.pad import Pad, PadEach
from irc.ops.pool import GlobalAveragePool, MaxPool
from irc.ops.quantize import DequantizeLinear, QuantizeLinear
from irc.ops.reduce import Reduction
from irc.ops.shape import Expand
from irc.ops.slice import Slice, StridedSlice
from irc.ops.space_to_depth import DepthToSpace, ShuffleChannels, SpaceToDepth
from irc.passes.replace import replace_value

VIEWS = Reshape | Flatten | Squeeze | Unsqueeze
"""Operations that change the shape alone."""
MOVES = VIEWS | Transpose | Slice | StridedSlice | Split | Gather | DepthToSpace | SpaceToDepth | ShuffleChannels
"""Operations whose results are elements of their first operand, and of no other."""
GATHERED = VIEWS | Transpose | Expand
"""Operations that read each element once, or more often."""
REDUCTIONS = Reduction | GlobalAveragePool


def run(graph: Graph, isa: Isa) -> int:
    """Rewrite a graph, in place, for an instruction set with kernels of bytes.  Returns how many operations."""
    if isa.name not in SETS:
        return 0
    done = 0
    for node in graph.nodes:
        if isinstance(node.op, QuantizeLinear):
            done += _quantized_before(graph, node)
    for node in graph.nodes:
        if isinstance(node.op, MaxPool) and not _keeps_order(graph, node, node.op):
            continue
        if sources(node) and not _is_read_through(node):
            done += _moved(graph, node)
    if done:
        graph.prune()
    return done


def sources(node: Node) -> list[Value]:
    """List the operands whose elements the results of such an operation are; none for others."""
    if isinstance(node.op, Concat):
        return list(node.operands)
    if isinstance(node.op, Pad | PadEach):
        return [] if node.op.mode == "constant" else [next(node.operands)]
    return [next(node.operands)] if isinstance(node.op, MOVES | MaxPool) else []


def _is_read_through(node: Node) -> bool:
    """Tell whether nothing but reductions reads a Transpose: they read what it does, and nothing is moved."""
    users = node.outputs[0].uses
    return isinstance(node.op, Transpose) and bool(users) and all(isinstance(n.op, REDUCTIONS) for n in users)


def _quantized_before(graph: Graph, last: Node, gone: Node | None = None) -> int:
    """Put a QuantizeLinear to bytes in front of a Concat, or moves of all elements, that nothing else reads.

    gone: what read them too, and has no use any more.  Returns how many operations move bytes then.
    """
    x, *parameters = last.operands
    node = x.producer
    if node is None or not isinstance(node.op, Concat | GATHERED) or graph.keeps(x) or set(x.uses) - {gone} != {last}:
        return 0
    if last.outputs[0].dtype not in BYTES or not all(map(is_one, parameters)):
        return 0
    count = len(node.inputs) if isinstance(node.op, Concat) else 1
    given = [v for v in node.inputs[:count] if v is not None]
    made = {v: Builder(graph, last.name, last.loc).add(last.op, v, *parameters) for v in dict.fromkeys(given)}
    moved = Builder(graph, node.name, node.loc).add(node.op, *(made[v] for v in given), *node.inputs[count:])
    moved.type = TensorType(moved.dtype, x.shape)  # with the names of sizes that only the run tells
    if not replace_value(graph, last.outputs[0], moved):
        return 0
    return 1 + sum(_quantized_before(graph, v.producer, node) for v in made.values() if v.producer is not None)


def _moved(graph: Graph, node: Node) -> bool:
    """Do in bytes what a node does with dequantized ones."""
    if isinstance(node.op, Split) and _by_channel(node.inputs[0]) is not None:
        return _split(graph, node)
    moved = sources(node)
    found = [n for v in moved if (n := dequantized(v)) is not None]
    if len(found) < len(moved) or len({next(n.operands).dtype for n in found}) != 1:
        return False
    if any(v.rank is None for v in node.outputs):
        return False
    first, b = found[0], Builder(graph, node.name, node.loc)
    bytes_, parameters = [next(n.operands) for n in found], list(first.operands)[1:]
    op = first.op
    if not all(_is_alike(first, other) for other in found):
        assert isinstance(node.op, Concat) and isinstance(op, DequantizeLinear)
        sizes = [v.shape[node.op.axis] for v in moved]
        if not all(size.is_const for size in sizes) or any(n.op != op for n in found):
            return False
        op = replace(op, axis=node.op.axis % len(node.outputs[0].shape))
        parameters = _repeated(b, found, [int(size) for size in sizes])
    inputs = [*bytes_, *_others(node)]
    for old, new in zip(node.outputs, b.add_all(node.op, *inputs), strict=True):
        new.type = TensorType(new.dtype, old.shape)  # with the names of sizes that only the run tells
        if new.dtype in BYTES:  # not an index
            new = Builder(graph, first.name, first.loc).add(op, new, *parameters)
        replace_value(graph, old, new)
    return True


def _others(node: Node) -> list[Value | None]:
    """List what else an operation reads: where to move what; not the value of a Pad, which such ones do not read."""
    fill = 2 if isinstance(node.op, Pad) else 3 if isinstance(node.op, PadEach) else None
    return [None if k == fill else v for k, v in enumerate(node.inputs)][len(sources(node)) :]


def _repeated(b: Builder, found: list[Node], sizes: list[int]) -> list[Value]:
    """Write the scales and zero points of several DequantizeLinear for each of so many elements along an axis."""
    kind = next(found[0].operands).dtype
    parameters = [[v.array.reshape(()) for v in list(n.operands)[1:] if v.array is not None] for n in found]
    scales = [np.full(size, p[0], np.float32) for p, size in zip(parameters, sizes, strict=True)]
    zeros = [np.full(size, p[1] if len(p) > 1 else 0, kind.numpy) for p, size in zip(parameters, sizes, strict=True)]
    return [b.const(np.concatenate(scales), f32), b.const(np.concatenate(zeros), kind)]


def _by_channel(v: Value | None) -> Node | None:
    """Find the DequantizeLinear that makes floats of bytes by constants for each element along an axis."""
    node = None if v is None else v.producer
    if node is None or not isinstance(node.op, DequantizeLinear) or node.op.block_size:
        return None
    x, *parameters = node.operands
    fits = x.const is None and x.dtype in BYTES and all(p.array is not None for p in parameters)
    return node if fits and x.rank and any(p.array is not None and p.array.size > 1 for p in parameters) else None


def _split(graph: Graph, node: Node) -> bool:
    """Split bytes, and the scales and zero points of each part if they differ along the axis."""
    op, source = node.op, _by_channel(node.inputs[0])
    assert isinstance(op, Split) and source is not None and isinstance(source.op, DequantizeLinear)
    (x, *parameters), (_, axis, *lengths) = source.operands, node.inputs
    at = None if axis is None else axis.ints()
    sizes = None if axis is None else op.lengths(x, axis, lengths[0] if lengths else None)
    if not at or sizes is None or not all(size.is_const for size in sizes):
        return False
    same = at[0] % len(x.shape) == source.op.axis % len(x.shape)
    b, start = Builder(graph, node.name, node.loc), 0
    for old, part in zip(node.outputs, b.add_all(op, x, *node.inputs[1:]), strict=True):
        end = start + int(part.shape[at[0]])
        own = [
            p if p.array is None or not same or p.array.size == 1 else b.const(p.array[start:end], p.dtype)
            for p in parameters
        ]
        replace_value(graph, old, Builder(graph, source.name, source.loc).add(source.op, part, *own))
        start = end
    return True


def _is_alike(one: Node, other: Node) -> bool:
    """Tell whether two DequantizeLinear make the same floats of the same bytes."""
    (x, *ours), (y, *theirs) = one.operands, other.operands
    alike = x.dtype == y.dtype and one.op == other.op and len(ours) == len(theirs)
    return alike and all(
        a.array is not None and b.array is not None and a.array.reshape(()) == b.array.reshape(())
        for a, b in zip(ours, theirs, strict=True)
    )


def _keeps_order(graph: Graph, node: Node, op: MaxPool) -> bool:
    """Tell whether the largest float of each window is that of the largest byte, and none of them is padding alone."""
    source = dequantized(node.inputs[0])
    pads, ones = [*op.pads_begin, *op.pads_end], set(op.dilations) <= {1}
    inside = all(p < k for p, k in zip(pads, op.kernel * 2, strict=False))
    if source is None or not ones or not inside or any(v.uses for v in node.outputs[1:]):
        return False
    if op.rounding == "ceil" and not _begin_inside(op, next(source.operands), node.outputs[0]):
        return False
    x, *parameters = source.operands
    floats = run_reference(source, [np.sort(all_bytes(x.dtype)), *(p.array.reshape(()) for p in parameters)])[0]  # pyright: ignore
    return bool(np.all(np.diff(floats) > 0)) and not any(graph.keeps(v) for v in node.outputs[1:])


def _begin_inside(op: MaxPool, x: Value, y: Value) -> bool:
    """Tell whether no window begins in the padding behind the input."""
    sizes = x.shape[2:]
    strides, (begin, _) = spatial(op.name, "strides", op.strides, len(sizes), 1), window_padding(op, sizes, op.kernel)
    starts = [(o - 1) * s - p for o, s, p in zip(y.shape[2:], strides, begin, strict=True)]
    return all((start + 1).at_most(size) is True for start, size in zip(starts, sizes, strict=True))
