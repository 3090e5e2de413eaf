"""Lowering of If and Loop: their regions become blocks of steps of the same program.

A region's inputs are buffers of the graph around it, so that nothing is passed.  Its results are written where the
node's results stand, if it computes them; what it merely passes on is copied.  Sizes that differ from run to run of a
region are checked against their bounds before anything is copied, and change when everything has been copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from irc.fusion import group
from irc.ir.graph import Graph, Node, Value, layers_of
from irc.ir.types import boolean, i64
from irc.loops.ir import Block, Branch, Buffer, Function, Guard, Program, Repeat, RunSize, Step, all_steps, touched_by
from irc.ops.control import If, Loop

if TYPE_CHECKING:
    from irc.loops.lower import Lowering


def lower_regions(outer: Lowering, node: Node) -> list[Step]:
    """Lower a node with regions to steps.  Raises Problem."""
    if isinstance(node.op, If):
        return [_lower_if(outer, node, node.op)]
    assert isinstance(node.op, Loop), f"{node.op.name} has regions that are no steps"
    return _lower_loop(outer, node, node.op)


class Delivery:
    """The way of a region's results to the buffers of the node's results."""

    def __init__(
        self,
        outer: Lowering,
        inner: Lowering,
        results: Sequence[Value],
        targets: Sequence[Value],
        skipped: int | None = None,
    ) -> None:
        self.inner = inner
        symbols = outer.run_symbols() if outer.graph.sizes else {}
        by_value = {outer.graph.sizes[name]: s for name, s in symbols.items()}
        pairs = [(r, t) for k, (r, t) in enumerate(zip(results, targets, strict=True)) if k != skipped]
        self.pairs = [(r, outer.buffer(t)) for r, t in pairs]
        self.sizes = {k: by_value[t] for k, (_, t) in enumerate(pairs) if t in by_value}

    def in_place(self) -> None:
        """Let the region write results that it computes itself where they belong."""
        results = [r for r, _ in self.pairs]
        for value, target in self.pairs:
            if stored(self.inner, value) and results.count(value) == 1 and value.shape == target.shape:
                self.inner.buffers[value] = target

    def steps(self, apart: bool = False) -> list[Step]:
        """Copy what is not in its place.  apart: targets are read by the region, so what reads them is copied first."""
        left = [(k, r, t) for k, (r, t) in enumerate(self.pairs) if self.inner.buffer(r) is not t]
        guards: list[Step] = [
            Guard(RunSize(self.sizes[k], self.inner.buffer(r), r.name)) for k, r, _ in left if k in self.sizes
        ]
        first: list[Step] = []
        if apart:
            roots = {t.root for _, t in self.pairs}
            for _, value, target in left:
                source = self.inner.buffer(value)
                if source.root in roots and source.root is not target.root:
                    twin = self.inner.scratch(source.dtype, source.shape, value.name)
                    first.append(self.inner.copy(value, twin))
                    self.inner.buffers[value] = twin
        tensors: list[Step] = [self.inner.copy(r, t) for k, r, t in left if k not in self.sizes]
        sizes: list[Step] = [self.inner.copy(r, t) for k, r, t in left if k in self.sizes]
        return [*guards, *first, *tensors, *sizes]


def _inner(outer: Lowering, region: Graph, given: Sequence[Buffer]) -> Lowering:
    """Start lowering a region whose inputs stand in these buffers."""
    inner = outer.inside(region, group.run(region))
    inner.buffers.update(zip(region.inputs, given, strict=True))
    inner.check_values()
    return inner


def stored(inner: Lowering, value: Value) -> bool:
    """Tell whether a function of the region writes a value, in a place that is not decided yet."""
    return value.producer is not None and value not in inner.grouping.views and value not in inner.buffers


def _lower_if(outer: Lowering, node: Node, op: If) -> Branch:
    condition, *captures = node.operands
    given = [outer.buffer(v) for v in captures]
    blocks: list[Block] = []
    for region in op.regions:
        inner = _inner(outer, region, given)
        delivery = Delivery(outer, inner, region.outputs, node.outputs)
        delivery.in_place()
        steps = inner.steps() + delivery.steps()
        inner.find_sizes()
        blocks.append(Block(steps, inner.constraints()))
    return Branch(outer.buffer(condition), blocks[0], blocks[1], layers_of([node]))


def _lower_loop(outer: Lowering, node: Node, op: Loop) -> list[Step]:
    n, body = op.carried, op.body
    count, condition = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    operands = [v for v in node.inputs[2:] if v is not None]
    number = outer.scratch(i64, (), "number")
    always = Buffer(outer.name("always"), boolean, (), "constant", np.array(True))
    going = None if op.never_ends_early(condition) else outer.scratch(boolean, (), "going")
    targets = [outer.buffer(v) for v in node.outputs[:n]]
    given = [number, going or always, *targets, *(outer.buffer(v) for v in operands[n:])]
    inner = _inner(outer, body, given)
    before = Delivery(outer, outer, operands[:n], node.outputs[:n], op.counted).steps()
    if going is not None:
        before.append(outer.copied(always if condition is None else outer.buffer(condition), going, node))
    stacked = [outer.buffer(v) for v in node.outputs[n:]]
    late = _place_rows(inner, stacked, body, n, number)
    delivery = Delivery(outer, inner, body.outputs[1 : 1 + n], node.outputs[:n], op.counted)
    steps = inner.steps() + [inner.copy(value, row) for value, row in late]
    if going is not None and not op.goes_on():
        steps.append(inner.copy(body.outputs[0], going))
    steps += delivery.steps(apart=True)
    inner.find_sizes()
    block = Block(steps, inner.constraints())
    limit = None if count is None else outer.buffer(count)
    ran = None if op.counted is None else targets[op.counted]
    return [*before, Repeat(number, limit, going, block, ran, tuple(stacked), layers_of([node]))]


def _place_rows(
    inner: Lowering, stacked: Sequence[Buffer], body: Graph, carried: int, number: Buffer
) -> list[tuple[Value, Buffer]]:
    """Let the body write its part of each stacked result in place.  Returns what is to be copied there instead."""
    late: list[tuple[Value, Buffer]] = []
    values = body.outputs[1 + carried :]
    for value, whole in zip(values, stacked, strict=True):
        row = Buffer(inner.name(value.name), value.dtype, value.shape, "row", row=(whole, number))
        if stored(inner, value) and body.outputs.count(value) == 1:
            inner.buffers[value] = row
        else:
            late.append((value, row))
    return late


def without_unused(program: Program) -> None:
    """Remove, in place, functions whose results nobody reads: of conditions that stay, and of numbers of runs."""
    while any(isinstance(step, Branch | Repeat) for step in program.steps):
        read = {s.buffer.root for s in program.sizes} | {b.root for s in program.states for b in s[1:3]}
        for step in all_steps(program.steps):
            touched = (*step.reads, *step.scratch) if isinstance(step, Function) else touched_by(step)
            read.update(b.root for b in touched)
        unused = [f for f in program.functions if not any(_is_read(b.root, read) for b in f.writes)]
        if not unused:
            return
        _remove(program.steps, unused)


def _is_read(root: Buffer, read: set[Buffer]) -> bool:
    return root in read or root.where != "arena"


def _remove(steps: list[Step], unused: Sequence[Function]) -> None:
    steps[:] = [s for s in steps if not any(s is f for f in unused)]
    for step in steps:
        if isinstance(step, Branch):
            _remove(step.then.steps, unused)
            _remove(step.otherwise.steps, unused)
        elif isinstance(step, Repeat):
            _remove(step.body.steps, unused)
