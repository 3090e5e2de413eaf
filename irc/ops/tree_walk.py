"""Decision trees as irc compiles them: tables (`irc.ops.tree_tables`) and the walk over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.expr import Bin, Const, Expr, Tensor, index, select
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import at_most
from irc.ir.types import TensorType, f32, f64, i32, i64, u8
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.forms import write_only
from irc.opdef.signature import Sig
from irc.ops.tree_gathers import write_gathers
from irc.ops.tree_tables import EQUAL, MISSING, Nodes, flatten, votes

BLOCK = 128
"""Rows that walk down a tree together: their loads do not wait for each other, and the tree is read once for all."""
FEW = 8
"""Fewer rows than this walk one by one, down up to `TOGETHER` trees at once, a multiple of `LANES`."""
TOGETHER = 64
LANES = 16
"""Trees whose steps a vector of the widest processors takes together."""
Walk = tuple[LoopBuilder, Tensor, tuple[Tensor, Tensor, Tensor | None], Tensor]
"""What a walk reads: the rows, the tables of the nodes, where each walk has come to."""
Entries = Mapping[int, Sequence[tuple[int, float]]]


def tree_scores(
    b: Builder, x: Value, nodes: Nodes, roots: Sequence[int], entries: Entries, targets: int, aggregate: str
) -> Value:
    """Add the nodes that walk rows of x [n, features] down trees.  Returns the scores [n, targets].

    entries: the votes of each leaf, (target, weight).
    """
    kind = x.dtype.numpy.type
    tables = flatten(nodes, roots, kind)
    used = int(tables.features.max(initial=-1))
    facts = {"what": "axis 1 of the features", "value": x.shape[1], "expected": f"{used + 1} or more"}
    require(at_most(used + 1, x.shape[1]), codes.SIZE_RANGE, op=nodes.op, **facts)
    found = votes(tables.origins, entries, kind)
    single = bool((np.diff(found.begin) <= 1).all())
    op = WalkTrees(targets=targets, aggregate=aggregate, single=single)
    steps = tables.features.astype(np.int64) << 32 | tables.first
    parts = (steps, tables.values, tables.roots, tables.depths)
    constants = [b.graph.add_constant(part) for part in parts]
    if single:  # one vote for each node, of weight 0 where it has none
        per_node = _one_each(found.begin, found.targets, found.weights)
        counted = [None if targets == 1 and aggregate in ("SUM", "AVERAGE") else b.graph.add_constant(per_node[0])]
        counted = [None, *counted, b.graph.add_constant(per_node[1])]
    else:
        counted = [b.graph.add_constant(a) for a in (found.begin, found.targets, found.weights)]
    return b.add(op, x, *constants, *counted, None if tables.kinds is None else b.graph.add_constant(tables.kinds))


def _one_each(begin: Array, targets: Array, weights: Array) -> tuple[Array, Array]:
    """The target (-1: none) and the weight of each node, from votes of which no node has two."""
    some = np.diff(begin) > 0
    target, weight = np.full(len(some), -1, np.int32), np.zeros(len(some), weights.dtype)
    target[some], weight[some] = targets, weights
    return target, weight


@op
class WalkTrees(Op):
    """What ensembles of decision trees are compiled to: the aggregated votes of the leaves that rows come to.

    A step leads from node k to the node in the low 32 bits of steps[k], or the one behind it where the row's feature
    in the high 32 bits is at most values[k] (is equal to it, is NaN: by the bits of kinds[k]).  Votes of node k:
    begin[k] to begin[k + 1] of targets and weights; `single`: number k, with a target of -1 if it has none.  A target
    that gets no vote is 0.
    """

    targets: int
    aggregate: str = "SUM"
    single: bool = True
    sig = Sig(
        "x: T[2], steps: i64[1], values: T[1], roots: i32[1], depths: i32[1], "
        "begin?: i32[1], voted?: i32[1], weights: T[1], kinds?: u8[1] -> y: T",
        T={f32, f64},
    )

    def infer(
        self,
        x: Value,
        steps: Value,
        values: Value,
        roots: Value,
        depths: Value,
        begin: Value | None,
        voted: Value | None,
        weights: Value,
        kinds: Value | None = None,
    ) -> TensorType:
        return TensorType.of(x.dtype, [x.shape[0], self.targets])

    @property
    def extreme(self) -> float | None:
        """What minima and maxima start from."""
        return {"MIN": np.inf, "MAX": -np.inf}.get(self.aggregate)

    def reference(
        self,
        x: Array,
        steps: Array,
        values: Array,
        roots: Array,
        depths: Array,
        begin: Array | None,
        voted: Array | None,
        weights: Array,
        kinds: Array | None = None,
    ) -> Array:
        rows = np.arange(len(x))
        start = 0 if self.extreme is None else self.extreme
        y = np.full((len(x), self.targets), start, x.dtype)
        for root, depth in zip(roots, depths):
            node = np.full(len(x), root, np.int64)
            for _ in range(depth):
                given = x[rows, steps[node] >> 32]
                holds = given <= values[node]
                if kinds is not None:
                    kind = kinds[node]
                    holds = np.where(kind & 1, given == values[node], holds) | ((given != given) & (kind > 1))
                node = (steps[node] & 0xFFFFFFFF) + holds
            self.count(y, node, begin, voted, weights)
        if self.aggregate == "AVERAGE":
            y /= x.dtype.type(max(len(roots), 1))
        return y if self.extreme is None else np.where(y == self.extreme, x.dtype.type(0), y)

    def count(self, y: Array, node: Array, begin: Array | None, voted: Array | None, weights: Array) -> None:
        """Add the votes of one node for each row."""
        ends = np.arange(len(weights) + 1) if begin is None else begin
        ufunc = {"MIN": np.minimum, "MAX": np.maximum}.get(self.aggregate, np.add)
        for k in range(int(np.diff(ends).max(initial=0))):
            place = ends[node] + k
            rows = np.nonzero(place < ends[node + 1])[0]
            target = np.zeros(len(rows), np.int64) if voted is None else voted[place[rows]]
            rows, target = rows[target >= 0], target[target >= 0]
            ufunc.at(y, (rows, target), weights[ends[node[rows]] + k])

    def loops(
        self,
        b: LoopBuilder,
        x: Tensor,
        steps: Tensor,
        values: Tensor,
        roots: Tensor,
        depths: Tensor,
        begin: Tensor | None,
        voted: Tensor | None,
        weights: Tensor,
        kinds: Tensor | None,
        y: Tensor,
    ) -> None:
        n = index(x.shape[0])

        def vote(row: Expr, at: Expr) -> None:
            self._count(b, y, row, at.cast(i64), begin, voted, weights)

        with b.for_(x.shape[0].ceildiv(Dim.of(BLOCK)), "parallel") as block:
            node = b.alloc(i32, [BLOCK], "node")
            base = b.let(block * BLOCK, "base")
            there = b.let((n - base).min(BLOCK), "there")
            with b.nest([BLOCK, self.targets]) as (r, target), b.if_(r.lt(there)):
                b.store(y, (base + r, target), Const(0.0 if self.extreme is None else self.extreme, x.dtype))
            walk = (b, x, (steps, values, kinds), node)
            with b.if_(there.ge(FEW)):
                self._rows(walk, (base, there), (roots, depths), lambda r, at: vote(base + r, at))
            with b.else_(), b.for_(there) as r:
                row = b.let(base + r, "row")
                self._row(walk, row, (roots, depths), lambda at, row=row: vote(row, at))
            self._finish(b, y, base, there, roots.shape[0])

    def _rows(
        self, walk: Walk, rows: tuple[Expr, Expr], trees: tuple[Tensor, Tensor], vote: Callable[[Expr, Expr], None]
    ) -> None:
        """Walk a block of rows (the first, how many) down one tree after the other."""
        b, (base, there), (roots, depths), node = walk[0], rows, trees, walk[-1]
        with b.for_(roots.shape[0]) as tree:
            with b.for_(there, "simd") as r:
                b.store(node, (r,), roots[tree])
            with b.for_(depths[tree].cast(i64)), b.for_(there, "simd") as r:
                self._step(walk, base + r, r)
            with b.for_(there) as r:
                vote(r, node[r])

    def _row(self, walk: Walk, row: Expr, trees: tuple[Tensor, Tensor], vote: Callable[[Expr], None]) -> None:
        """Walk one row down blocks of trees."""
        b, (roots, depths), node = walk[0], trees, walk[-1]
        count = index(roots.shape[0])
        blocks = -(-int(roots.shape[0]) // TOGETHER)
        together = -(-int(roots.shape[0]) // max(blocks * LANES, 1)) * LANES
        with b.for_(blocks) as part:
            low = b.let(part * together, "low")
            deepest = b.var(Const(0, i32), "deepest")
            with b.for_(together) as k:
                tree = (low + k).min(count - 1)
                b.store(node, (k,), roots[tree])
                b.assign(deepest, deepest.max(depths[tree]))
            with b.for_(deepest.cast(i64)), b.for_(together, "simd") as k:
                self._step(walk, row, k)
            with b.for_((count - low).min(together)) as k:
                vote(node[k])

    def _step(self, walk: Walk, row: Expr, k: Expr) -> None:
        """Go from node[k] to the next one by the features of a row."""
        b, x, (steps, values, kinds), node = walk
        at = node[k].cast(i64)
        step = steps[at]
        given = x[row, Bin("shr", step, Const(32, i64))]
        holds = given.le(values[at])
        if kinds is not None:
            holds = self._asked(kinds[at], given, values[at], holds)
        b.store(node, (k,), step.cast(i32) + holds.cast(i32))

    def _asked(self, kind: Expr, given: Expr, value: Expr, holds: Expr) -> Expr:
        """The condition of a node of one of the rarer kinds."""
        equal = Bin("bitand", kind, Const(EQUAL, u8)).ne(0)
        missing = Bin("bitand", kind, Const(MISSING, u8)).ne(0)
        return select(given.ne(given), missing, select(equal, given.eq(value), holds))

    def _count(
        self,
        b: LoopBuilder,
        y: Tensor,
        row: Expr,
        at: Expr,
        begin: Tensor | None,
        voted: Tensor | None,
        weights: Tensor,
    ) -> None:
        """Add the votes of a node to a row's scores."""
        if begin is None:
            if voted is None:
                self._vote(b, y, row, Const(0, i64), weights[at])
            else:
                target = b.let(voted[at].cast(i64), "target")
                with b.if_(target.ge(0)):
                    self._vote(b, y, row, target, weights[at])
            return
        assert voted is not None
        low = b.let(begin[at].cast(i64), "low")
        with b.for_(begin[at + 1].cast(i64) - low) as k:
            place = b.let(low + k, "place")
            self._vote(b, y, row, b.let(voted[place].cast(i64), "target"), weights[place])

    def _vote(self, b: LoopBuilder, y: Tensor, row: Expr, target: Expr, weight: Expr) -> None:
        before = y[row, target]
        combined = {"MIN": before.min, "MAX": before.max}.get(self.aggregate, before.__add__)(weight)
        b.store(y, (row, target), combined)

    def _finish(self, b: LoopBuilder, y: Tensor, base: Expr, there: Expr, trees: Dim) -> None:
        """Divide sums that are averages; make targets without votes 0."""
        if self.extreme is None and self.aggregate != "AVERAGE":
            return
        with b.for_(there) as r, b.for_(self.targets) as target:
            found = y[base + r, target]
            if self.extreme is None:
                b.store(y, (base + r, target), found / float(max(int(trees), 1)))
            else:
                b.store(y, (base + r, target), select(found.eq(self.extreme), Const(0.0, y.dtype), found))

    openvino = (write_only(write_gathers),)
