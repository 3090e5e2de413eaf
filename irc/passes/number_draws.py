"""Random numbers become computations: of a seed, or without one of a variable that counts the model's runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import count

from irc.diagnostics import Sink
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, i64
from irc.opdef.builder import Builder
from irc.ops.control import If, Loop
from irc.ops.dropout import Dropout
from irc.ops.random import Random, RandomRange
from irc.passes.inline import decompose_where
from irc.passes.layers import layer_name
from irc.passes.replace import put_in_place

VARIABLE = "irc.random.runs"
MIXING = -7046029254386353131
"""An odd number (2⁶⁴ over the golden ratio), by which the number of a run is multiplied before that of a turn in it."""
Draw = Callable[[], Value]
"""Get the value that tells one run of a graph from another, an i64 vector of one element; it is made when asked for."""


def run(graph: Graph, sink: Sink) -> None:
    """Replace what is random, in place, also in regions; Problems become findings.

    Nodes without a seed have keys of their own, so that they differ; the first run counts 0.
    """
    _run(graph, sink, cache(lambda: _runs(graph)), count(1))


def _run(graph: Graph, sink: Sink, draw: Draw, keys: Iterator[int]) -> None:
    for node in graph.nodes:
        if isinstance(node.op, Random | Dropout):
            node.name = layer_name(node)
    decompose_where(graph, _is_made_of_uniform, sink)
    for node in graph.nodes:
        if isinstance(node.op, RandomRange):
            with sink.catching(node.loc):
                _replace(graph, node, node.op, draw, keys)
        elif isinstance(node.op, Loop):
            _run(node.op.body, sink, cache(partial(_in_loop, graph, node, draw)), keys)
        elif isinstance(node.op, If):
            inner = cache(partial(_in_branches, graph, node, draw))
            for region in node.op.regions:
                _run(region, sink, partial(_of_region, inner, region), keys)


def _is_made_of_uniform(node: Node) -> bool:
    """Tell whether it is random, and not one of the uniform numbers that all others are made of."""
    if isinstance(node.op, Dropout):
        return not node.op.is_identity(*node.inputs)  # type: ignore[arg-type]
    return isinstance(node.op, Random) and not isinstance(node.op, RandomRange)


def _runs(graph: Graph) -> Value:
    """Add the variable.  Returns its value in this run."""
    b = Builder(graph, VARIABLE)
    runs = b.ReadValue(b.const([0]), variable_id=VARIABLE, type=i64, shape=b.const([0]).shape)
    assign = b.Assign(b.Add(runs, b.const([1])), variable_id=VARIABLE).producer
    assert assign is not None
    graph.sinks.append(assign)
    return runs


def _in_branches(graph: Graph, node: Node, draw: Draw) -> dict[Graph, Value]:
    """Give every region of a node the value too."""
    graph.set_op(node, node.op, [*node.inputs, draw()])
    return {region: _captured(region) for region in node.op.regions}


def _of_region(inner: Callable[[], dict[Graph, Value]], region: Graph) -> Value:
    return inner()[region]


def _captured(region: Graph) -> Value:
    return region.add_input(region.fresh_name(VARIABLE), TensorType.of(i64, [1]))


def _in_loop(graph: Graph, node: Node, draw: Draw) -> Value:
    """Give the body of a Loop the value, mixed with the number of the turn."""
    graph.set_op(node, node.op, [*[*node.inputs, None, None][: max(len(node.inputs), 2)], draw()])
    (body,) = node.op.regions
    inner = _captured(body)
    b = Builder(body, VARIABLE)
    return b.Add(b.Mul(inner, b.const([MIXING])), b.Reshape(body.inputs[0], [1]))


def _replace(graph: Graph, node: Node, op: RandomRange, draw: Draw, keys: Iterator[int]) -> None:
    """Put the numbers in the node's place.  Raises Problem."""
    shape, low, high = node.inputs
    assert shape is not None and low is not None and high is not None
    seeded = op if op.seed is not None else dataclasses.replace(op, seed=next(keys), stream=0)
    b = Builder(graph, node.name, node.loc, layers=node.layers)
    made = seeded.drawn(b, shape, low, high, None if op.seed is not None else draw())
    made.type = node.outputs[0].type  # whose names of sizes that only a run tells are in use already
    put_in_place(graph, node.outputs[0], made)
    graph.remove(node)
