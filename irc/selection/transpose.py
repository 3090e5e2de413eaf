"""Selection for Transpose: where no kernel can read through it, it is a copy by squares of registers.

So is one from a kernel's result to a part of a concatenation, and one of what a Resize or a GridSample looks up.
"""

from __future__ import annotations

from dataclasses import replace

from irc.fusion.access import ZERO, Access, Space, find, row_major
from irc.fusion.epilogues import FusedEpilogue
from irc.ir.dim import product
from irc.ir.graph import Node, Value
from irc.ir.types import TensorType, bf16, f16, i8, i16, i32, i64, u8, u16, u32, u64
from irc.kernels.core.base import Kernel
from irc.kernels.core.problem import likely, likely_extent
from irc.kernels.core.registry import select
from irc.kernels.movement.problem import TransposeProblem
from irc.layout.channels_last_op import ChannelsLast
from irc.layout.destination import DestinationPart
from irc.layout.transposed_conv import Interleave
from irc.opdef.base import Op
from irc.ops.gather import Gather
from irc.ops.grid_sample import WeightedRows
from irc.ops.layout import Reshape, before_reshapes
from irc.ops.slice import Slice
from irc.passes.simplify import order_of
from irc.selection.selector import KernelOp, Selection, Selector, worthwhile

MUCH, LONG = 1 << 15, 64
"""Elements, and those of a row, from which a copy is faster than loops that read elements far apart."""
FEW = 4  # columns that vectors take apart into long rows, at least
NARROWEST = 8  # rows and columns that change places, at least; a symbolic number counts as one of images


def select_kernel(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for a Transpose whose result kernels read, that moves much, or whose result is concatenated.

    Returns None where loops read through it.  Call when all other kernels are in the graph, which read through it, too.
    """
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    order = order_of(node)
    result = _part(selector, y)
    looked_up = _looked_up(x) or _holds_samples(x) or _is_read_by(y, WeightedRows)
    read = all(type(reader.op) is KernelOp for reader in y.uses)
    problem, rows = None if order is None else TransposeProblem.reordering(y.dtype, x.shape, order), row_major(x.shape)
    if problem is None or problem.rows[2] != 1:
        return None
    much = likely(product(x.shape)) >= MUCH and likely_extent(problem.rows[0]) >= LONG and not _is_read_by(y, Gather)
    if result is None and not read and not looked_up and not much:
        return None
    kernel = select(problem, selector.isa)
    woven = problem.rows[0] == problem.cols[1] == FEW  # rows that vectors weave into one
    apart = likely_extent(problem.cols[0]) >= FEW and likely_extent(problem.rows[0]) >= LONG
    if kernel is None or (_is_narrow(problem) and not woven and not apart):
        return None
    space = Space(x.shape)
    sources = [Access(x, ZERO, rows)] if looked_up else find(selector.elements, space, x, space.at)
    for source in sources:
        stored = source.value.producer is None or type(source.value.producer.op) is KernelOp
        if looked_up or (stored and source.strides == rows):
            return _with_epilogue(selector, kernel, problem, source, y, result)
    if much and x.producer is not None and (x.producer.op.elementwise or _interleaves(x.producer)):
        return _with_epilogue(selector, kernel, problem, Access(x, ZERO, rows), y, result)
    return None


def _with_epilogue(
    selector: Selector,
    kernel: Kernel[TransposeProblem],
    problem: TransposeProblem,
    source: Access,
    y: Value,
    result: Value | None,
) -> Selection:
    """State the call of a copy to y, or of one that computes what follows of operands which stand in memory.

    result: what the copy is stored as, under another shape; then nothing follows.
    """
    dense, one = row_major(y.shape), (ZERO,) * len(y.shape)

    def fits(access: Access) -> bool:
        return access.strides == one or (access.strides == dense and selector.stands(access.value))

    fused = FusedEpilogue.plain(y) if result is not None else selector.collector.epilogue_of(y, [], fits, calls=False)
    if fused.value is not y:
        epilogue = fused.along(["scalar" if slot.strides == one else "full" for slot in fused.slots])
        with_epilogue = replace(problem, epilogue=epilogue)
        found = None if epilogue.byte_slots else select(with_epilogue, selector.isa)
        if found is not None:
            return Selection.of(found, with_epilogue, [source], fused)
    return Selection.of(kernel, problem, [source], FusedEpilogue.plain(y), result=result)


ELEMENTS = (i8, u8, i16, u16, f16, bf16, i32, u32, i64, u64)
"""Types that no kernel reads through a Transpose."""


def select_elements(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for a Transpose of other elements, which loops would read one by one."""
    x, y, order = node.inputs[0], node.outputs[0], order_of(node)
    if x is None or order is None or not worthwhile(*x.shape):
        return None
    problem = TransposeProblem.reordering(y.dtype, x.shape, order)
    kernel = None if problem is None else select(problem, selector.isa)
    if problem is None or kernel is None:
        return None
    if y.dtype.itemsize > 1 and _is_narrow(problem):
        return None
    return Selection.of(kernel, problem, [Access(x, ZERO, row_major(x.shape))], FusedEpilogue.plain(y))


def _is_narrow(problem: TransposeProblem) -> bool:
    """Tell whether too few rows or columns change places for squares of registers."""
    return any(likely_extent(n) < NARROWEST for n in (problem.rows[0], problem.cols[0]))


def _interleaves(node: Node) -> bool:
    """Tell whether channels of pixels move together, to between those of others: loops copy them as they stand.

    Through the rearrangement they would read each element of a result from far away.
    """
    op = node.op.op if isinstance(node.op, ChannelsLast) else node.op
    if isinstance(op, Slice):
        x = node.inputs[0]
        return (
            isinstance(node.op, ChannelsLast) and x is not None and x.producer is not None and _interleaves(x.producer)
        )
    return isinstance(op, Interleave)


def _is_read_by(value: Value, kind: type[Op]) -> bool:
    """Tell whether an operation of this kind reads a value, under any shape.

    A Gather may not read all elements; for WeightedRows they are stored.
    """
    return any(
        isinstance(user.op, kind) or (isinstance(user.op, Reshape) and _is_read_by(user.outputs[0], kind))
        for user in value.uses
    )


def _looked_up(value: Value) -> bool:
    """Tell whether a value is computed from elements that a table names, as in a Resize.

    Those are best computed row by row as they stand, not in the order of a rearrangement that follows.
    """
    waiting, seen = [value], {value}
    while waiting:
        here = waiting.pop()
        node = here.producer
        if node is None or not isinstance(here.type, TensorType):
            continue
        inner = node.op.op if isinstance(node.op, ChannelsLast) else node.op
        if isinstance(inner, Gather):
            if isinstance(node.op, ChannelsLast):
                return True
        elif inner.elementwise and len(node.outputs) == 1:
            more = {v for v in node.operands if v.rank == here.rank and v.const is None} - seen
            waiting += more
            seen |= more
    return False


def _holds_samples(value: Value) -> bool:
    """Tell whether a value is samples of all channels of a place, under any shape: they are stored side by side."""
    node = before_reshapes(value).producer
    return node is not None and isinstance(node.op, WeightedRows)


def _part(selector: Selector, y: Value) -> Value | None:
    """Find the value, under another shape, that is written to a part of a concatenation and read nowhere else."""
    while (reader := selector.only_use(y)) is not None:
        if isinstance(reader.op, DestinationPart):
            return y
        if not isinstance(reader.op, Reshape) or y is not reader.inputs[0]:
            return None
        y = reader.outputs[0]
    return None
