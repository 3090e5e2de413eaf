"""The values that stand in memory, and the nodes that are computed together.

A value that is not stored is substituted into its consumers (`irc.fusion.elements`), so fusion needs no
rewriting.  Stored are: graph outputs; operands and results of `loops` operations; what is used more than once
and not cheap; what a contraction would compute again for every result; and reductions, except where the only
consumer is an elementwise epilogue.  A rearrangement of a stored value that keeps row-major order is a view.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod

import networkx as nx

from irc.expr import Expr, Load, Reduce, Select, Size, Var
from irc.fusion.costs import cost, written
from irc.fusion.elements import Elements, Flat, Inliner, extents_of, identity_index, known_element, value_of
from irc.fusion.indexing import Ranges, irregular
from irc.fusion.rows import Cluster, Frame, RowFinder
from irc.ir.dim import Dim, product
from irc.ir.graph import Graph, Node, Value, symbols_of
from irc.ops.layout import Reshape
from irc.traversal import height, variables, walk

CHEAP = 4
"""A value of up to this cost is computed again by each of its consumers rather than stored."""
BETWEEN = 8
"""Values at most between one that is read several times and the one that all of that goes into."""
OFTEN = 16
"""Times from which on computing an element again for each of its places costs more than storing it; a symbolic size
counts as that many."""
LARGEST = 600
"""Distinct expressions that one element may consist of."""
LONGEST = 2000
"""Expressions of the sides of choices that C may have."""
HIGHEST = 64
"""Expressions that may stand inside each other: Python walks them by recursion, C compilers too (clang takes 256
brackets)."""


@dataclass(eq=False)
class Group:
    """What becomes one function: `stages`, computed in order; `results`, those that stand in memory afterwards.

    `frame` is set for row groups; their stages that are no results live only while a row is computed.
    """

    name: str
    stages: list[Value]
    results: list[Value]
    frame: Frame | None = None
    node: Node | None = None  # of a `loops` operation

    def __repr__(self) -> str:
        return f"<group {self.name}: {', '.join(v.name for v in self.results)}>"


@dataclass
class Grouping:
    """The groups in the order in which they run, the stored values, and the views (value → what it is a view of)."""

    elements: Elements
    groups: list[Group] = field(default_factory=list[Group])
    stored: set[Value] = field(default_factory=set[Value])
    views: dict[Value, Value] = field(default_factory=dict[Value, Value])

    def is_leaf(self, value: Value) -> bool:
        """Tell whether a value is read from memory."""
        return value.producer is None or value in self.stored or value in self.views


def run(graph: Graph) -> Grouping:
    """Decide the groups of a graph whose operations all have `compute` or `loops`."""
    return Grouper(graph).run()


class Grouper:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.elements = Elements()
        self.result = Grouping(self.elements)
        self.cluster_of: dict[Node, Cluster] = {}
        self.uses: dict[Value, list[tuple[Value | Node, Load | None]]] = {}
        self.cost: dict[Value, int] = {}
        self.height: dict[Value, int] = {}
        self.row_cost: dict[Value, int] = {}
        self.kept: set[Value] = set()  # members of row groups that stand in a row of their own
        self.reducing: set[Value] = set()
        self.taken: set[Value] = set()
        self.place: dict[Node, int] = {}
        self.inliners: dict[tuple[Cluster | None, tuple[tuple[str, Dim], ...]], Inliner] = {}

    def run(self) -> Grouping:
        clusters = RowFinder(self.graph, self.elements).find()
        self.cluster_of = {n: c for c in clusters for n in c.nodes}
        order = self._live(self.graph.nodes)
        self.place = {node: k for k, node in enumerate(order)}
        self._collect_uses(order)
        for node in order:
            for value in node.outputs:
                if node.op.compute is None or value in self.uses or self.graph.keeps(value):
                    self._decide(node, value)
        self.result.groups = self._ordered(list(self._groups(order, clusters)))
        return self.result

    def _live(self, order: list[Node]) -> list[Node]:
        """List the nodes whose elements are needed; an operand that `compute` ignores is not."""
        wanted: set[Value] = set(self.graph.results())
        live: set[Node] = set(self.graph.sinks)
        for node in reversed(order):
            if node in live or any(v in wanted for v in node.outputs):
                live.add(node)
                wanted.update(self.elements.operands(node))
        return [n for n in order if n in live]

    def _collect_uses(self, order: list[Node]) -> None:
        for node in order:
            if node.op.compute is None:
                for value in self.elements.operands(node):
                    self.uses.setdefault(value, []).append((node, None))
                continue
            for out in node.outputs:
                for load in self.elements.loads(out):
                    self.uses.setdefault(value_of(load), []).append((out, load))

    # ------------------------------------------------------------------ decisions
    def _decide(self, node: Node, value: Value) -> None:
        """Decide whether a value is stored, a view, or substituted; its operands are decided already."""
        stored = self.result.stored
        if node.op.compute is None:
            for operand in self.elements.operands(node):
                self._store(operand)
            self._write(node, value)
            return
        if node.op.part_of is not None:
            self._measure(value)
            self._write(node, value)
            return
        if self._try_view(value):
            return
        self._measure(value)
        if self.graph.keeps(value) or self._must_store(node, value):
            stored.add(value)

    def _write(self, node: Node, value: Value) -> None:
        """Note that a value stands in memory: its own, or that of the operand that it is a part of."""
        destination = None if node.op.part_of is None else node.inputs[node.op.part_of]
        if destination is None:
            self.result.stored.add(value)
        else:
            self.result.views[value] = destination

    def _try_view(self, value: Value) -> bool:
        """Make a value a view if its elements have the row-major positions of a stored operand.

        An output is one only of what this graph computes, which may then be computed where the output is wanted.  What
        says how large something is never is: groups are ordered by those that store it.
        """
        base = view_base(self.elements, value)
        if base is None or value in self.graph.sizes.values():
            return False
        if self.graph.keeps(value) and self._root(base) not in self.result.stored:
            return False
        if not self.result.is_leaf(base):
            if self._regular(value):
                return False
            self._store(base)
        self.result.views[value] = base
        return True

    def _root(self, value: Value) -> Value:
        """Return what a value is a view of, through other views; itself if it is none."""
        while value in self.result.views:
            value = self.result.views[value]
        return value

    def _store(self, value: Value) -> None:
        if value.producer is not None and not self.result.is_leaf(value):
            self.result.stored.add(value)
            self.inliners.clear()  # which may have substituted it

    def _inliner(self, ranges: Ranges, cluster: Cluster | None = None) -> Inliner:
        """Return the inliner of these ranges, in a row group or none, which knows what it was asked for other values.

        Else a value at the end of a chain would be substituted again for each value of the chain.
        """

        def is_leaf(v: Value) -> bool:
            return self.result.is_leaf(v) or (cluster is not None and self._stays(cluster, v))

        key = (cluster, tuple(ranges.extents.items()))
        return self.inliners.setdefault(key, Inliner(self.elements, is_leaf, ranges))

    def _inlined(self, value: Value) -> tuple[Inliner, Expr]:
        """Express an element by those that are read from memory, or from the row that is being computed."""
        element = self.elements.of(value)
        cluster = None if value.producer is None else self.cluster_of.get(value.producer)
        inliner = self._inliner(extents_of(element, value), cluster)
        return inliner, inliner.at(value, element.vars)

    def _regular(self, value: Value) -> bool:
        inliner, e = self._inlined(value)
        return not any(irregular(inliner.ranges.dim(i)) for x in walk(e) if isinstance(x, Load) for i in x.index)

    def _measure(self, value: Value) -> None:
        """Estimate the cost of one element; operands that must not be substituted are stored."""
        for load in self.elements.loads(value):
            operand = value_of(load)
            if not self.result.is_leaf(operand) and self._bad_substitution(value, load, operand):
                self._store(operand)
        self._measure_height(value)
        _, e = self._inlined(value)
        parts = list(walk(e))
        if len(parts) > LARGEST or written(e) > LONGEST:
            for operand in map(value_of, self.elements.loads(value)):
                self._cut(value, operand)
            parts = list(walk(self._inlined(value)[1]))
        self.cost[value] = cost(parts, self.elements.of(value).vars[-1:])
        if any(isinstance(x, Reduce) for x in parts):
            self.reducing.add(value)

    def _measure_height(self, value: Value) -> None:
        """Determine the height of one element; operands that would make it too high are stored."""
        own = height(self.elements.of(value).expr)
        operands = dict.fromkeys(map(value_of, self.elements.loads(value)))
        cluster = None if value.producer is None else self.cluster_of.get(value.producer)
        kept = {v for v in operands if cluster is not None and self._stays(cluster, v)}
        heights = {v: self.height[v] for v in operands if not (v in kept or self.result.is_leaf(v))}
        for operand, inner in heights.items():
            if own + inner > HIGHEST:
                self._cut(value, operand)
        self.height[value] = own + max((h for h in heights.values() if own + h <= HIGHEST), default=0)

    def _stays(self, cluster: Cluster, value: Value) -> bool:
        """Tell whether a value is kept while a row of a group is computed."""
        inside = value.producer is not None and self.cluster_of.get(value.producer) is cluster
        return inside and self._is_stage(cluster, value)

    def _cut(self, value: Value, operand: Value) -> None:
        """See to it that a value reads an operand, which in a row group stands nowhere but in the row."""
        cluster = None if operand.producer is None else self.cluster_of.get(operand.producer)
        if cluster is None or not self._same_cluster(cluster, value):
            self._store(operand)
        else:
            self.kept.add(operand)
            self.inliners.clear()

    def _bad_substitution(self, value: Value, load: Load, operand: Value) -> bool:
        if operand in self.reducing:
            return False  # a reduction stays unstored only for the consumer that takes it in
        if self._read_again(value, load) and (self.cost[operand] > 0 or not self._regular_at(value, load)):
            return True
        if view_base(self.elements, value) is not None:
            return False
        if self._regular_at(value, load):
            return self.cost[operand] > CHEAP and self._broadcast(value, load, operand)
        return self.cost[operand] > CHEAP or self._chooses(operand)

    def _broadcast(self, value: Value, load: Load, operand: Value) -> bool:
        """Tell whether an element of the operand is read at many places of the value; row groups need no test."""
        if operand.producer in self.cluster_of:
            return False
        moving = variables(load)
        axes = zip(self.elements.of(value).vars, value.shape, strict=True)
        return prod(d.const or OFTEN for v, d in axes if v not in moving) >= OFTEN

    def _chooses(self, value: Value) -> bool:
        """Tell whether an element comes from one of several places.

        With a regular index, loops choose once for many elements.
        """
        return any(isinstance(x, Select) for x in walk(self._inlined(value)[1]))

    def _regular_at(self, value: Value, load: Load) -> bool:
        element = self.elements.of(value)
        ranges = extents_of(element, value)
        for r in element.reduces:
            for var, extent in zip(r.vars, r.extents, strict=True):
                ranges.declare(var, extent)
        cluster = None if value.producer is None else self.cluster_of.get(value.producer)
        inliner = self._inliner(ranges, cluster)
        e = inliner.read(value_of(load), tuple(inliner.ranges.simplify(i) for i in load.index))
        return not any(irregular(inliner.ranges.dim(i)) for x in walk(e) if isinstance(x, Load) for i in x.index)

    def _read_again(self, value: Value, load: Load) -> bool:
        """Tell whether a reduction reads the same operand element for several results or steps."""
        element = self.elements.of(value)
        for r in element.reduces:
            if any(x is load or x == load for x in walk(r.body)):
                moving = {v for v, d in zip(element.vars, value.shape, strict=True) if d != 1}
                moving |= {v for v, d in zip(r.vars, r.extents, strict=True) if d != 1}
                return not moving <= {i for i in load.index if isinstance(i, Var)}
        return False

    def _must_store(self, node: Node, value: Value) -> bool:
        uses = self.uses.get(value, [])
        if not uses or any(load is None for _, load in uses):
            return True
        if len(node.outputs) > 1 and value in self.reducing:
            return True
        cluster = self.cluster_of.get(node)
        if cluster is not None:
            return any(not self._same_cluster(cluster, consumer) for consumer, _ in uses)
        if value in self.reducing:
            return not self._epilogue(value, uses)
        if len(uses) > 1 and self.cost[value] > 0 and self._gathered_often(value, uses):
            return True
        return len(uses) > 1 and self.cost[value] > CHEAP and not self._rejoins(value)

    def _gathered_often(self, value: Value, uses: list[tuple[Value | Node, Load | None]]) -> bool:
        """Tell whether consumers gather a value along its rows, and take twice as many elements as it has, at least.

        So do those of an image that is resized along a second axis: what was computed along the first one is computed
        once for each element, in order, and fewer places are gathered.
        """
        taken = 0
        for consumer, load in uses:
            if isinstance(consumer, Node) or load is None:
                return False
            if not load.index or not any(isinstance(x, Load) for x in walk(load.index[-1])):
                return False
            taken += prod(d.const or 0 for d in consumer.shape)
        return taken >= 2 * prod(d.const or 0 for d in value.shape) > 0

    def _rejoins(self, value: Value) -> bool:
        """Tell whether all that is made of an element goes into one element of one value, which computes it once."""
        inside, waiting = {value}, self._readers(value)
        for _ in range(BETWEEN):
            node = min(waiting, key=self.place.__getitem__, default=None)
            if node is None or not self._is_elementwise(node, inside):
                return False
            if len(waiting) == 1:
                return True
            out = node.outputs[0]
            if self.graph.keeps(out) or node in self.cluster_of:
                return False
            inside.add(out)
            waiting = (waiting - {node}) | self._readers(out)
        return False

    def _readers(self, value: Value) -> set[Node]:
        """Collect the nodes whose elements read those of a value."""
        consumers = (v if isinstance(v, Node) else v.producer for v, _ in self.uses.get(value, []))
        return {n for n in consumers if n is not None}

    def _is_elementwise(self, node: Node, inside: set[Value]) -> bool:
        """Tell whether an element of a node's only result needs elements of these values at its own place alone."""
        if node.op.compute is None or node.op.part_of is not None or len(node.outputs) != 1:
            return False
        out = node.outputs[0]
        element = self.elements.of(out)
        loads = [load for load in self.elements.loads(out) if value_of(load) in inside]
        placed = all(identity_index(element, load) and value_of(load).shape == out.shape for load in loads)
        return placed and not element.reduces

    def _same_cluster(self, cluster: Cluster, consumer: Value | Node) -> bool:
        node = consumer if isinstance(consumer, Node) else consumer.producer
        return node is not None and self.cluster_of.get(node) is cluster

    def _epilogue(self, value: Value, uses: list[tuple[Value | Node, Load | None]]) -> bool:
        """Tell whether the only consumer is elementwise and takes no other reduction in."""
        if len(uses) != 1:
            return False
        consumer, load = uses[0]
        if isinstance(consumer, Node) or load is None or consumer.producer in self.cluster_of:
            return False
        element = self.elements.of(consumer)
        if (
            consumer in self.taken
            or consumer.shape != value.shape
            or element.reduces
            or not identity_index(element, load)
        ):
            return False
        if (
            view_base(self.elements, consumer) is not None
            or len(consumer.producer.outputs if consumer.producer else ()) != 1
        ):
            return False
        self.taken.add(consumer)
        return True

    # --------------------------------------------------------------------- groups
    def _groups(self, order: list[Node], clusters: list[Cluster]) -> Iterable[Group]:
        done: set[Node] = set()
        for cluster in clusters:
            group = self._row_group(cluster, order)
            if group is not None:
                done |= set(cluster.nodes)
                yield group
        for node in order:
            if node in done:
                continue
            if node.op.compute is None:
                yield Group(node.name or node.op.name, list(node.outputs), list(node.outputs), node=node)
                continue
            for value in node.outputs:
                if value in self.result.stored or node.op.part_of is not None:
                    yield Group(node.name or node.op.name, [value], [value])

    def _row_group(self, cluster: Cluster, order: list[Node]) -> Group | None:
        live = set(order)
        values = [n.outputs[0] for n in cluster.nodes if n in live]
        values = [v for v in values if v not in self.result.views]
        results = [v for v in values if v in self.result.stored]
        if not results:
            return None
        inner = {v for v in values if v not in results and self._is_stage(cluster, v)}
        stages = [v for v in values if v in results or v in inner]
        name = results[-1].producer.name if results[-1].producer else results[-1].name
        return Group(name or results[-1].name, stages, results, cluster.frame)

    def _is_stage(self, cluster: Cluster, value: Value) -> bool:
        """Tell whether a member that is used only inside its cluster is kept while its row is computed."""
        uses = len(self.uses.get(value, []))
        if value in self.kept or not cluster.frame.is_full(value.shape):
            return uses > 0
        return uses > 1 and self._row_cost(cluster, value) > CHEAP

    def _row_cost(self, cluster: Cluster, value: Value) -> int:
        """Estimate the cost of one element whose row's reductions are known."""
        if value not in self.row_cost:
            total = cost(walk(self.elements.of(value).expr), ())
            for operand in dict.fromkeys(map(value_of, self.elements.loads(value))):
                if operand.producer is not None and self.cluster_of.get(operand.producer) is cluster:
                    total += self._row_cost(cluster, operand) if cluster.frame.is_full(operand.shape) else 0
                elif not self.result.is_leaf(operand):
                    total += self.cost[operand]
            self.row_cost[value] = total
        return self.row_cost[value]

    def _ordered(self, groups: list[Group]) -> list[Group]:
        home = {v: g for g in groups for v in g.results}
        needs: nx.DiGraph[Group] = nx.DiGraph()
        needs.add_nodes_from(groups)
        for group in groups:
            for value in self._needed(group):
                other = home.get(value)
                if other is not None and other is not group:
                    needs.add_edge(other, group)
        rank = {g: i for i, g in enumerate(groups)}
        place = {n: i for i, n in enumerate(self.graph.nodes)}

        def key(g: Group) -> tuple[int, int]:
            producer = g.results[-1].producer
            return (place[producer] if producer else 0, rank[g])

        return list(nx.lexicographical_topological_sort(needs, key=key))

    def _needed(self, group: Group) -> set[Value]:
        """Find the stored values that a group reads, and those that say what its sizes are."""
        read = self._substituted(self._read(group))
        found = {v for v in read if v in self.result.views or v in self.result.stored}
        if self.graph.sizes:
            names = {name for v in (*group.stages, *read) for name in self._symbols(v)}
            if group.node is not None:
                inside = (v for r in group.node.op.regions for graph in r.nested() for v in graph.values())
                names |= symbols_of(inside).keys()
            found |= {self.graph.sizes[name] for name in names & self.graph.sizes.keys()}
        return found

    def _symbols(self, value: Value) -> set[str]:
        """Name the symbols in the type of a value, and in its element."""
        found = set(symbols_of([value]))
        if value.contents is not None:
            found |= {s.name for d in value.contents.flat for s in Dim.of(d).symbols()}
        if value.producer is not None and value.producer.op.compute is not None:
            for x in walk(self.elements.of(value).expr):
                sizes = x.extents if isinstance(x, Reduce) else (x.dim,) if isinstance(x, Size) else ()
                found |= {s.name for d in sizes for s in d.symbols()}
        return found

    def _read(self, group: Group) -> list[Value]:
        """List the operands of a group's nodes that it reads elements of."""
        if group.node is not None:
            return self.elements.operands(group.node)
        return [value_of(load) for v in group.stages for load in self.elements.loads(v)]

    def _substituted(self, values: Iterable[Value]) -> set[Value]:
        """Collect these values and all that they are computed from in place, down to what is stored."""
        seen: set[Value] = set()
        stack = list(values)
        while stack:
            value = stack.pop()
            if value in seen:
                continue
            seen.add(value)
            if value in self.result.views:
                stack.append(self.result.views[value])
            elif value in self.result.stored:
                continue
            elif value.producer is not None and value.producer.op.compute is not None:
                stack.extend(map(value_of, self.elements.loads(value)))
        return seen


def view_base(elements: Elements, value: Value) -> Value | None:
    """Return the operand that a value is a view of: the same elements in row-major order, under another shape."""
    if value.producer is None or value.producer.op.compute is None:
        return None
    element = elements.of(value)
    load = element.expr
    if (
        not isinstance(load, Load)
        or isinstance(load.buffer, Flat)
        or known_element(load.buffer, load.index) is not None
    ):
        return None
    operand, own = load.buffer, product(value.shape)
    if own.at_most(product(operand.shape)) is False:
        return None
    if isinstance(value.producer.op, Reshape) and own == product(operand.shape):
        return operand  # with several symbols in the sizes, positions alone do not always show it
    ranges = extents_of(element, value)
    same = ranges.flat(load.index, operand.shape) == ranges.flat(element.vars, value.shape)
    return operand if same else None
