"""Row groups: reductions over the same axes, and the elementwise operations between them.

Softmax is max, sub, exp, sum, div; all of them work on one row (the axes that are reduced) at a time, so one
loop over the other axes can hold them all.  A `Frame` is the full shape with the reduced axes; a member's value
is `full` (one element per element of the frame) or `reduced` (one per row, its reduced axes 1 or left out).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from irc.expr import Const, Expr, Load, Reduce, Var
from irc.fusion.elements import Element, Elements, Flat, value_of
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Node, Value
from irc.traversal import walk


@dataclass(frozen=True)
class Frame:
    """A full shape and which of its axes are reduced."""

    shape: tuple[Dim, ...]
    reduced: frozenset[int]

    def places(self, shape: tuple[Dim, ...]) -> tuple[int, ...] | None:
        """Return the frame axis of each axis of a member's shape; None if a value of that shape is no member."""
        if shape == self.shape or shape == self.row_shape():
            return tuple(range(len(shape)))
        outer = tuple(k for k in range(len(self.shape)) if k not in self.reduced)
        return outer if shape == tuple(self.shape[k] for k in outer) else None

    def row_shape(self) -> tuple[Dim, ...]:
        return tuple(Dim.of(1) if k in self.reduced else d for k, d in enumerate(self.shape))

    def is_full(self, shape: tuple[Dim, ...]) -> bool:
        return shape == self.shape


@dataclass(eq=False)
class Cluster:
    """Nodes that are computed row by row together."""

    frame: Frame
    nodes: dict[Node, None] = field(default_factory=dict[Node, None])


def row_frame(elements: Elements, value: Value) -> Frame | None:
    """Return the frame of a reduction that reads each element of one operand exactly once; else None."""
    element = elements.of(value)
    found = element.reduces
    if not found:
        return None
    frames = {_frame_of(element, value, r) for r in found}
    return frames.pop() if len(frames) == 1 else None


def _frame_of(element: Element, value: Value, reduce: Reduce) -> Frame | None:
    moving = {v for v, d in zip(element.vars, value.shape, strict=True) if d != 1}
    for load in walk(reduce.body):
        if not isinstance(load, Load) or isinstance(load.buffer, Flat):
            continue
        at = [i for i in load.index if isinstance(i, Var)]
        if len(set(at)) == len(at) and moving | set(reduce.vars) <= set(at):
            operand = value_of(load)
            reduced = frozenset(k for k, i in enumerate(load.index) if i in reduce.vars)
            frame = Frame(operand.shape, reduced)
            if frame.places(value.shape) is not None and not frame.is_full(value.shape):
                return frame if _aligned(frame, element, value, load) else None
    return None


def _aligned(frame: Frame, element: Element, value: Value, load: Load) -> bool:
    """Tell whether a load of a member stays in the row that is being computed."""
    operand = value_of(load)
    mine, theirs = frame.places(value.shape), frame.places(operand.shape)
    if mine is None or theirs is None or isinstance(load.buffer, Flat):
        return False
    at: dict[int, Expr] = dict(zip(mine, element.vars, strict=True))
    for axis, i in zip(theirs, load.index, strict=True):
        if frame.shape[axis] == 1 or (isinstance(i, Const) and i.value == 0 and operand.shape[theirs.index(axis)] == 1):
            continue
        if axis in frame.reduced and i not in element.vars and isinstance(i, Var):
            continue  # a reduction variable
        if at.get(axis) != i:
            return False
    return True


def row_groups(graph: Graph) -> set[Node]:
    """Find the nodes that are computed row by row with others, which no kernel may take out."""
    return {node for cluster in RowFinder(graph, Elements()).find() for node in cluster.nodes}


class RowFinder:
    """Grows the clusters of a graph in dependency order, so that no two groups need each other."""

    def __init__(self, graph: Graph, elements: Elements) -> None:
        self.graph, self.elements = graph, elements
        self.cluster_of: dict[Node, Cluster] = {}
        self._dag = graph.dag

    def find(self) -> list[Cluster]:
        order = self.graph.nodes
        for node in order:
            if node.op.compute is not None and node.op.part_of is None and len(node.outputs) == 1:
                self._place(node)
        self._absorb(order)
        return self._worthwhile()

    def _place(self, node: Node) -> None:
        value = node.outputs[0]
        element = self.elements.of(value)
        own = row_frame(self.elements, value)
        if own is None and element.reduces:
            return
        for operand in self.elements.operands(node):
            cluster = self.cluster_of.get(operand.producer) if operand.producer else None
            if cluster is not None and own in (None, cluster.frame) and self._fits(cluster, node):
                self._join(cluster, node)
                return
        if own is not None:
            self._join(Cluster(own), node)

    def _join(self, cluster: Cluster, node: Node) -> None:
        cluster.nodes[node] = None
        self.cluster_of[node] = cluster

    def _fits(self, cluster: Cluster, node: Node) -> bool:
        value = node.outputs[0]
        element = self.elements.of(value)
        if cluster.frame.places(value.shape) is None:
            return False
        for load in self.elements.loads(value):
            producer = value_of(load).producer
            if producer is None:
                continue
            if producer in cluster.nodes:
                if not _aligned(cluster.frame, element, value, load):
                    return False
            elif self._is_contraction(producer):
                return False
        return not self._would_cycle(cluster, node)

    def _is_contraction(self, node: Node) -> bool:
        """Tell whether a node is a reduction of another kind with one use. Its consumer should become its epilogue."""
        if node.op.compute is None or len(node.outputs) != 1 or node in self.cluster_of:
            return False
        value = node.outputs[0]
        return len(value.uses) == 1 and bool(self.elements.of(value).reduces)

    def _would_cycle(self, cluster: Cluster, node: Node) -> bool:
        """Tell whether `node` needs something outside the cluster that needs the cluster."""
        outside = {v.producer for v in node.operands if v.producer} - set(cluster.nodes)
        if not outside:
            return False
        return bool(outside & self._reached_from(cluster))

    def _reached_from(self, cluster: Cluster) -> set[Node]:
        seen: set[Node] = set(cluster.nodes)
        stack = list(cluster.nodes)
        while stack:
            for after in self._dag.successors(stack.pop()):
                group: Iterable[Node] = self.cluster_of[after].nodes if after in self.cluster_of else (after,)
                for n in group:
                    if n not in seen:
                        seen.add(n)
                        stack.append(n)
        return seen - set(cluster.nodes)

    def _absorb(self, order: list[Node]) -> None:
        """Take in elementwise producers all of whose consumers are in one cluster."""
        for node in reversed(order):
            if node in self.cluster_of or node.op.compute is None or len(node.outputs) != 1:
                continue
            value = node.outputs[0]
            if node.op.part_of is not None or self.graph.keeps(value) or not value.uses:
                continue
            if self.elements.of(value).reduces:
                continue
            homes = {self.cluster_of.get(n) for n in value.uses}
            home = homes.pop() if len(homes) == 1 else None
            if home is None or not home.frame.is_full(value.shape):
                continue
            if any(v.producer and self._is_contraction(v.producer) for v in node.operands):
                continue
            if all(
                _aligned(home.frame, self.elements.of(n.outputs[0]), n.outputs[0], load)
                for n in value.uses
                for load in self.elements.loads(n.outputs[0])
                if value_of(load) is value
            ):
                home.nodes = {node: None, **home.nodes}
                self.cluster_of[node] = home

    def _worthwhile(self) -> list[Cluster]:
        """Keep the clusters in which a row is used more than once; one reduction with an epilogue is no row group."""
        found: list[Cluster] = []
        position = {n: i for i, n in enumerate(self.graph.nodes)}
        for cluster in dict.fromkeys(self.cluster_of.values()):
            values = [n.outputs[0] for n in cluster.nodes]
            many = sum(bool(self.elements.of(v).reduces) for v in values) > 1
            if many or any(self._uses_row(cluster, v) for v in values):
                cluster.nodes = dict.fromkeys(sorted(cluster.nodes, key=position.__getitem__))
                found.append(cluster)
        return found

    def _uses_row(self, cluster: Cluster, value: Value) -> bool:
        """Tell whether a full member reads a reduced one."""
        if not cluster.frame.is_full(value.shape):
            return False
        for load in self.elements.loads(value):
            producer = value_of(load).producer
            if producer in cluster.nodes and not cluster.frame.is_full(value_of(load).shape):
                return True
        return False
