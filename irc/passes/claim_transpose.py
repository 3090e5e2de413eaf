"""Transpose between kernels as a kernel: where nobody can read through it, it is a copy by squares of registers."""

from __future__ import annotations

from irc.ir.graph import Node
from irc.kernels import acc, select_transpose, transposed
from irc.passes.access import ZERO, Space, find, row_major
from irc.passes.claim import Claim, Claimer
from irc.passes.claim_matmul import order_of
from irc.passes.epilogues import Tail

NARROWEST = 8  # rows and columns that change places, at least


def claim(claimer: Claimer, node: Node) -> Claim | None:
    """A kernel for a Transpose whose operand is stored and whose result only kernels read; None where loops do it.

    Call when all other kernels are in the graph: they read through rearrangements.
    """
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    order = order_of(node, len(x.shape))
    if order is None or any(reader.op.name != "KernelOp" for reader in y.uses):
        return None
    sizes, rows = transposed(x.shape, [a % len(x.shape) for a in order]), row_major(x.shape)
    if sizes is None or sizes["y_row"] != 1 or any(sizes[n].bounds()[0] < NARROWEST for n in ("rows", "cols")):
        return None
    space = Space(x.shape)
    for source in find(claimer.elements, space, x, space.at):
        stored = source.value.producer is None or source.value.producer.op.name == "KernelOp"
        if stored and source.strides == rows:
            kernel = select_transpose(claimer.isa, y.dtype)
            return Claim(kernel, [(source.value, source.offset)], sizes, ZERO, y, Tail(y, acc(y.dtype)))
    return None
