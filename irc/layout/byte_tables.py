"""Steps from bytes to bytes as tables of 256 bytes.

What stands between a DequantizeLinear of one scale and a QuantizeLinear of one scale makes a byte of each byte, so that
256 of them say all: a GELU, a sigmoid, whatever it takes to compute.  Where each byte becomes itself, nothing is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from irc.expr import IndexFunction, Tensor
from irc.ir.dim import Dim, product
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType
from irc.kernels.core.isa import Isa
from irc.kernels.integer.problem import SETS
from irc.layout.integer_operands import all_bytes, dequantized, is_one, rewrite_quantized
from irc.layout.moved_bytes import VIEWS
from irc.opdef.base import Array, Op
from irc.opdef.builder import Builder
from irc.opdef.reference import run_reference
from irc.opdef.signature import Sig
from irc.ops.activation import Relu
from irc.ops.arithmetic import Add, Mul, Sub
from irc.ops.clip import Clip
from irc.ops.gather import wrapped
from irc.ops.variadic import Max, Min
from irc.passes.replace import replace_value

QUICK = Add | Sub | Mul | Max | Min | Relu | Clip
"""Operations that loops compute in vectors faster than every processor looks bytes up."""
LONGEST = 32
"""Operations between bytes and bytes, at most."""


@dataclass(frozen=True)
class Lookup(Op):
    """The byte that a table of 256 has for each byte; the table is in the order of unsigned bytes."""

    sig: ClassVar[Sig] = Sig("x: any, table: any -> y: any")

    def infer(self, x: Value, table: Value) -> TensorType:
        return TensorType(table.dtype, x.tensor.shape)

    def reference(self, x: Array, table: Array) -> Array:
        return table[x.view(np.uint8)]

    def compute(self, out: TensorType, x: Tensor, table: Tensor) -> IndexFunction:  # pyright: ignore
        return lambda *at: table[(wrapped(x[at], Dim.of(256)),)]


def run(graph: Graph, isa: Isa) -> int:
    """Rewrite such steps, in place, for an instruction set with kernels of bytes.  Returns how many."""
    return rewrite_quantized(graph, _looked_up) if isa.name in SETS else 0


def _looked_up(graph: Graph, node: Node) -> bool:
    """Put a table in the place of a QuantizeLinear and what it reads."""
    steps = _steps(graph, node)
    if steps is None:
        return False
    source, between = steps
    x, out = next(source.operands), node.outputs[0]
    if any(product(v.shape) != product(x.shape) for step in (*between, node) for v in step.outputs):
        return False
    table = _table(source, between, node)
    b = Builder(graph, node.name or node.op.name, node.loc)
    if x.dtype != out.dtype or not np.array_equal(table, all_bytes(x.dtype)):
        if all(isinstance(step.op, QUICK | VIEWS) for step in between):
            return False
        x = b.add(Lookup(), x, b.const(table, out.dtype))
    made = x if x.shape == out.shape else b.Reshape(x, b.dims(out.shape), special_zero=False)
    return replace_value(graph, out, made)


def _steps(graph: Graph, last: Node) -> tuple[Node, list[Node]] | None:
    """Find the DequantizeLinear that all a QuantizeLinear reads is computed from, and the elementwise steps between.

    They are in order, and nothing else reads their results.
    """
    if not all(is_one(p) for p in list(last.operands)[1:]):
        return None
    sources, found = set[Node](), dict[Node, None]()
    waiting = [last.inputs[0]]
    while waiting:
        v = waiting.pop()
        if v is None or v.const is not None:
            if v is not None and not is_one(v):
                return None
            continue
        node, source = v.producer, dequantized(v)
        if source is not None:
            sources.add(source)
        elif node is None or not _is_step(node) or len(found) == LONGEST:
            return None
        elif node not in found:
            found[node] = None
            waiting += node.inputs[:1] if isinstance(node.op, VIEWS) else node.inputs
    inside = {last, *found}
    if len(sources) != 1 or any(graph.keeps(v) or not inside.issuperset(v.uses) for v in _results(found)):
        return None
    order = {node: k for k, node in enumerate(graph.nodes)}
    return sources.pop(), sorted(found, key=order.__getitem__)


def _is_step(node: Node) -> bool:
    """Tell whether a node computes one tensor of known rank, each element from those at its place."""
    made = [v.type for v in node.outputs]
    shaped = len(made) == 1 and isinstance(made[0], TensorType) and made[0].shape is not None
    return shaped and (node.op.elementwise or isinstance(node.op, VIEWS))


def _results(nodes: dict[Node, None]) -> Iterator[Value]:
    return (v for node in nodes for v in node.outputs)


def _table(source: Node, between: list[Node], last: Node) -> Array:
    """Compute what becomes of every byte."""
    x = next(source.operands)
    known: dict[Value, Array] = {x: all_bytes(x.dtype)}
    for node in (source, *between, last):
        if isinstance(node.op, VIEWS) and node.inputs[0] is not None:
            known[node.outputs[0]] = known[node.inputs[0]]
            continue
        arrays = [None if v is None else known.get(v, v.array) for v in node.inputs]
        known[node.outputs[0]] = run_reference(node, arrays)[0]
    return known[last.outputs[0]].reshape(256)  # constants of one element may have more axes
