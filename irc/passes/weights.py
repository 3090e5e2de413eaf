"""Transposition of constant operands of products, for contiguous columns."""

from __future__ import annotations

from irc.ir.graph import Graph, Node, Value
from irc.opdef.builder import with_fields
from irc.ops.matmul import MatMul


def run(graph: Graph) -> int:
    """Store transposed constant right operands of MatMul untransposed. Returns how many.

    A product of one row keeps its operand: it streams the transposed matrix once.
    """
    done = 0
    for node in graph.nodes:
        b = node.inputs[1] if isinstance(node.op, MatMul) else None
        if (
            b is not None
            and b.const is not None
            and getattr(node.op, "transpose_b", False)
            and b.rank == 2
            and not _one_row(node)
        ):
            done += _untranspose(graph, node, b)
    return done


def _one_row(node: Node) -> bool:
    out = node.outputs[0].shape
    return all(d == 1 for d in out[:-1])


def _untranspose(graph: Graph, node: Node, b: Value) -> bool:
    constant = b.const
    assert constant is not None
    swapped = constant.derived(constant.shape[::-1], lambda x: x.T)
    graph.set_op(node, with_fields(node.op, transpose_b=False), [node.inputs[0], graph.add_constant(swapped, b.name)])
    return True
