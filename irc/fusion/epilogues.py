"""Epilogues: the elementwise operations behind a contraction that a kernel applies before it stores the result.

From the contraction's result on, consumers are taken in while exactly one of the values is used elsewhere. Operations
that read the result twice, such as GELU, are taken in as a whole.

Starting from the contraction's result, consumers are taken in as long as exactly one value is needed by anyone
else; GELU, which reads its operand twice, is taken in as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from irc.expr import Expr, Load
from irc.fusion.access import Access, Space, find
from irc.fusion.elements import Elements, Flat, Inliner, value_of
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import boolean, i8, u8
from irc.kernels.core.epilogue import Axes, Epilogue, acc, slot, supported
from irc.traversal import replaced

MOST_NODES = 24
MOST_SLOTS = 6

Fits = Callable[[Access], bool]


@dataclass
class FusedEpilogue:
    """The operations taken in: the kernel stores `value`, which is `expr` in terms of `acc` and slots."""

    value: Value
    expr: Expr
    slots: list[Access] = field(default_factory=list[Access])

    @classmethod
    def plain(cls, value: Value) -> FusedEpilogue:
        """Make the epilogue that stores a result as it is."""
        return cls(value, acc(value.dtype))

    def along(self, axes: Sequence[Axes]) -> Epilogue:
        """State what a kernel computes, whose operands vary along these axes."""
        kinds = ((k, s.value.dtype) for k, s in enumerate(self.slots))
        return Epilogue(self.expr, tuple(axes), byte_slots=tuple((k, kind) for k, kind in kinds if kind in (u8, i8)))


class Collector:
    """Grows epilogues; `fits` says which operands a kernel can read."""

    def __init__(self, graph: Graph, elements: Elements) -> None:
        self.graph, self.elements = graph, elements
        self._place = {n: i for i, n in enumerate(graph.nodes)}

    def epilogue_of(self, root: Value, bias: Sequence[Access], fits: Fits, calls: bool = True) -> FusedEpilogue:
        """Find the longest epilogue of `root`.

        bias: operands that are added to the accumulator first.  calls: whether it may call mathematical functions.
        """
        kind = root.dtype
        start: Expr = acc(kind)
        for k in range(len(bias)):
            start = start + slot(k, kind)
        best = FusedEpilogue(root, start, list(bias))
        inside: dict[Value, None] = {root: None}
        nodes: list[Node] = []
        while len(nodes) < MOST_NODES:
            node = self._next(inside, nodes)
            if node is None:
                break
            nodes.append(node)
            inside[node.outputs[0]] = None
            ends = [v for v in inside if self._leaves(v, nodes)]
            if len(ends) == 1 and ends[0] is node.outputs[0]:
                made = self._expression(root, ends[0], set(inside), start, bias, fits)
                if made is None or (not calls and Epilogue(made[0]).functions()):
                    break
                best = FusedEpilogue(ends[0], *made)
        return best

    def _next(self, inside: dict[Value, None], nodes: list[Node]) -> Node | None:
        """Find the first consumer, in the graph's order, that can be taken in."""
        waiting = {n for v in inside for n in v.uses} - set(nodes)
        for node in sorted(waiting, key=lambda n: self._place.get(n, 1 << 30)):
            first = next(iter(inside))
            if (
                node.op.elementwise
                and node.op.compute is not None
                and len(node.outputs) == 1
                and node.outputs[0].shape == first.shape
                and node.outputs[0].dtype in (first.dtype, boolean)
            ):
                return node
            return None
        return None

    def _leaves(self, value: Value, nodes: list[Node]) -> bool:
        return self.graph.keeps(value) or not value.uses or any(n not in nodes for n in value.uses)

    def _expression(
        self, root: Value, end: Value, inside: set[Value], start: Expr, bias: Sequence[Access], fits: Fits
    ) -> tuple[Expr, list[Access]] | None:
        """Express `end` by the accumulator and slots; None if the kernel cannot compute it."""
        space = Space(root.shape)
        inliner = Inliner(self.elements, lambda v: v not in inside or v is root, space.ranges)
        e = inliner.at(end, space.at)
        slots = list(bias)
        failed = False

        def visit(x: Expr) -> Expr:
            nonlocal failed
            if not isinstance(x, Load):
                return x
            value = value_of(x)
            if value is root:
                failed = failed or isinstance(x.buffer, Flat) or x.index != space.at
                return start
            access = self._slot(space, x, value, fits) if value.dtype == root.dtype else None
            if access is None:
                failed = True
                return x
            if access not in slots:
                slots.append(access)
            return slot(slots.index(access), value.dtype)

        made = _transform_loads(e, visit)
        if failed or len(slots) > MOST_SLOTS or not supported(made, len(slots), root.dtype):
            return None
        return made, slots

    def _slot(self, space: Space, x: Load, value: Value, fits: Fits) -> Access | None:
        if isinstance(x.buffer, Flat):
            line = space.linear(space.ranges.dim(x.index[0]))
            found = [Access(value, *line)] if line is not None else []
        else:
            found = find(self.elements, space, value, x.index)
        return next((a for a in found if fits(a)), None)


def _transform_loads(e: Expr, visit: Callable[[Expr], Expr]) -> Expr:
    """Rewrite the loads of an expression, but not those in their indices."""
    return replaced(e, lambda x: visit(x) if isinstance(x, Load) else None)


def merged(extents: Sequence[Dim], *strides: Sequence[Dim]) -> list[tuple[Dim, ...]]:
    """Drop the axes of size 1 and merge neighbours where all strides allow it. Returns axes (extent, stride…)."""
    axes: list[tuple[Dim, ...]] = []
    for k, extent in enumerate(extents):
        if extent == 1:
            continue
        here = (extent, *(s[k] for s in strides))
        if axes and all(outer == extent * inner for outer, inner in zip(axes[-1][1:], here[1:], strict=True)):
            axes[-1] = (axes[-1][0] * extent, *here[1:])
        else:
            axes.append(here)
    return axes
