"""Values that a Loop carries and never changes are captured instead, or are constants of its body.

TensorFlow's loops carry whatever their bodies read, weights too.  As constants of the body these can be packed for a
kernel, and nothing is copied before the loop.
"""

from __future__ import annotations

from dataclasses import replace

from irc.ir.graph import Graph, Node, Value
from irc.ops.control import Loop
from irc.ops.layout import behind_identities
from irc.passes.replace import replace_value


def run(graph: Graph) -> int:
    """Take what stays as it is, and what nobody reads, out of the carried values of each Loop. Returns how many."""
    taken = 0
    for node in graph.nodes:
        if isinstance(node.op, Loop):
            taken += sum(_take(graph, node, k) for k in reversed(range(node.op.carried)))
    return taken


def _take(graph: Graph, node: Node, k: int) -> bool:
    """Take the carried value of that number out if it may be. Returns whether it was."""
    op = node.op
    assert isinstance(op, Loop)
    initial, inner, result = node.inputs[2 + k], op.body.inputs[2 + k], node.outputs[k]
    if initial is None or k == op.counted:
        return False
    stays = initial.type == inner.type and behind_identities(op.body.outputs[1 + k]) is inner
    unread = not (inner.uses or op.body.keeps(inner) or result.uses or graph.keeps(result))
    if not unread and not (stays and replace_value(graph, result, initial)):
        return False
    _drop(graph, node, op, k)
    if not unread:
        _give(graph, node, op.body, inner, initial)
    return True


def _drop(graph: Graph, node: Node, op: Loop, k: int) -> None:
    """Remove a carried value from a Loop: its operand, its place in the body and its result."""
    del op.body.inputs[2 + k], op.body.outputs[1 + k]
    counted = op.counted if op.counted is None or op.counted < k else op.counted - 1
    inputs = [*node.inputs[: 2 + k], *node.inputs[3 + k :]]
    graph.set_op(node, replace(op, carried=op.carried - 1, counted=counted), inputs)
    node.outputs = (*node.outputs[:k], *node.outputs[k + 1 :])
    for place, value in enumerate(node.outputs):
        value.index = place


def _give(graph: Graph, node: Node, body: Graph, inner: Value, outer: Value) -> None:
    """Let the body read a value of the graph around it where it reads `inner`, which is no input of it any more."""
    if outer.const is not None:
        body.replace_uses(inner, body.add_constant(outer.const, inner.name, loc=outer.loc))
    else:
        body.inputs.append(inner)
        inner.contents, inner.assumed = outer.contents, outer.assumed
        graph.set_op(node, node.op, [*node.inputs, outer])
