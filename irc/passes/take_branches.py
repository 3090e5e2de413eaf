"""Takes the branches that are known: the region that runs comes in the place of an If whose condition is constant.

A condition on sizes (`Shape(x)[1] == 1`) may become constant when sizes are bound. If the run decides, and one of the
regions has operations that these sizes do not allow, that region ends the run with a status instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irc.diagnostics import Sink
from irc.diagnostics.codes import find
from irc.diagnostics.core import Diagnostic
from irc.ir.dim import Dim
from irc.ir.graph import Constant, Graph, Node, Value
from irc.ir.relation import SizeConstraint, any_of
from irc.ir.types import TensorType
from irc.opdef.builder import Builder
from irc.opdef.regions import capture, splice
from irc.ops.control import If, known_region
from irc.passes import infer
from irc.passes.size_constraints import IMPOSSIBLE


def run(graph: Graph, sink: Sink) -> None:
    """Infer every node again, in order, and put known branches in place as they are met.

    What follows an If thereby sees the types of the branch that runs, and conditions on these are known, too.
    """
    waiting = list(reversed(graph.nodes))
    while waiting:
        node = waiting.pop()
        if isinstance(node.op, If):
            condition, *captures = node.operands
            region = known_region(node.op, condition)
            if region is not None:
                waiting += reversed(_replace(graph, node, region, captures))
                continue
            _prepare(node.op, captures, sink)
        infer.infer_at(node, sink)


def take(graph: Graph, node: Node, index: int) -> None:
    """Put a region of an If, by its number, in the place of the node; types stay as they were."""
    _replace(graph, node, node.op.regions[index], list(node.operands)[1:])


def _prepare(op: If, captures: Sequence[Value], sink: Sink) -> None:
    """Take the known branches in both regions. A region that cannot run makes way if the other one can."""
    findings: list[Sink] = []
    for region in op.regions:
        capture(region.inputs, captures)
        findings.append(Sink())
        run(region, findings[-1])
    for region, other, found, fine in zip(op.regions, op.regions[::-1], findings, findings[::-1], strict=True):
        if found.errors and not fine.errors and _has_types(other):
            _refuse(region, other, found.errors[0], captures)
        else:
            sink.diagnostics += found.diagnostics


def _has_types(region: Graph) -> bool:
    return all(isinstance(v.type, TensorType) and v.type.shape is not None for v in region.outputs)


def _refuse(region: Graph, other: Graph, error: Diagnostic, captures: Sequence[Value]) -> None:
    """Make a region end the run: a constraint that never holds, and zeros of the other one's types for its outputs."""
    code = find(error.code)
    assert code is not None
    given = {
        s.name for v in captures if isinstance(v.type, TensorType) for d in v.type.shape or () for s in d.symbols()
    }
    for old, twin in zip(list(region.outputs), other.outputs, strict=True):
        shape = [d if all(s.name in given for s in d.symbols()) else Dim.of(0) for d in twin.shape]
        b = Builder(region, "impossible")
        zero = region.add_constant(Constant.of(np.zeros((), twin.dtype.numpy), twin.dtype), "impossible")
        region.replace_uses(old, b.Expand(zero, b.dims(shape)))
    region.prune()
    where = error.location.where
    region.extras[IMPOSSIBLE] = [SizeConstraint(any_of(), code, error.message, where)]


def _replace(graph: Graph, node: Node, region: Graph, captures: Sequence[Value]) -> list[Node]:
    """Put a region in the place of its If. Returns the region's nodes."""
    before = set(graph.nodes)
    results = splice(Builder(graph, node.name, node.loc), region, captures)
    for old, new in zip(node.outputs, results, strict=True):
        if old in graph.outputs and new.producer is not None and new.producer not in before:
            new.name, new.names, new.extras = old.name, old.names, old.extras
        graph.replace_uses(old, new)
    graph.remove(node)
    return [n for n in graph.nodes if n not in before]
