"""Decision trees as flat tables, which a walk without branches reads.

A step from node k goes to first[k], or to first[k] + 1 where its condition holds: the two nodes below a node stand
side by side.  A leaf leads to itself, because no feature is at most NaN, so that a walk may take as many steps as the
deepest leaf needs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from irc.arrays import Array
from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes

NAN = float("nan")
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
"""What a node asks of its feature, in the order of TreeEnsemble-5's numbers."""
LEAF = "LEAF"
EQUAL, MISSING = 1, 2
"""Bits of `kinds`: the condition is equality (else: at most); it holds for NaN too."""


@dataclass(frozen=True)
class Nodes:
    """The nodes of a file, by their positions there: `yes` and `no` are positions too."""

    op: str
    modes: Sequence[str]
    features: Sequence[int]
    values: Sequence[float]
    yes: Sequence[int]
    no: Sequence[int]
    missing: Sequence[int]
    members: Mapping[int, Sequence[float]] = field(default_factory=dict[int, Sequence[float]])
    """The set of each node of mode BRANCH_MEMBER."""


@dataclass(frozen=True)
class Tables:
    """What `walk` reads of each node, the first node and the depth of each tree, and which file's node each is."""

    features: Array
    values: Array
    first: Array
    kinds: Array | None
    roots: Array
    depths: Array
    origins: Sequence[int]


class Flattened:
    """Tables under construction, in the order of breadth-first walks."""

    def __init__(self, nodes: Nodes, kind: type[np.floating]) -> None:
        self.nodes, self.kind = nodes, kind
        self.features = list[int]()
        self.values = list[float]()
        self.first = list[int]()
        self.kinds = list[int]()
        self.origins = list[int]()
        self.seen = set[int]()

    def place(self) -> int:
        """Append a node that leads to itself.  Returns its number."""
        k = len(self.first)
        self.features.append(0)
        self.values.append(NAN)
        self.first.append(k)
        self.kinds.append(0)
        self.origins.append(-1)
        return k

    def ask(self, k: int, node: int, value: float, kind: int) -> int:
        """Make node k a condition, with two new nodes below it.  Returns the first."""
        below = self.place()
        self.place()
        self.features[k], self.values[k], self.first[k], self.kinds[k] = self.nodes.features[node], value, below, kind
        return below

    def tree(self, root: int) -> tuple[int, int]:
        """Append the tree below a node of the file.  Returns its first node and its depth."""
        start, deepest = self.place(), 0
        waiting = deque([(start, root, 0)])
        while waiting:
            k, node, depth = waiting.popleft()
            self._require(0 <= node < len(self.nodes.modes), node, "nodes that there are")
            deepest = max(deepest, depth)
            if self.nodes.modes[node] == LEAF:
                self.origins[k] = node
                continue
            self._require(node not in self.seen, node, "nodes that form trees")
            self.seen.add(node)
            no, yes, steps = self._split(k, node)
            waiting.append((no, self.nodes.no[node], depth + steps))
            waiting.append((yes, self.nodes.yes[node], depth + steps))
        return start, deepest

    def _split(self, k: int, node: int) -> tuple[int, int, int]:
        """Make node k ask what the file's node asks.  Returns where to go if not and if so, and in how many steps."""
        mode, value = self.nodes.modes[node], float(self.nodes.values[node])
        missing = MISSING if node < len(self.nodes.missing) and self.nodes.missing[node] else 0
        self._require(self.nodes.features[node] >= 0, self.nodes.features[node], "features counted from 0")
        self._require(mode in MODES, mode, f"one of {', '.join(MODES)}")
        if mode == "BRANCH_MEMBER":
            return self._member(k, node, missing)
        if mode in ("BRANCH_EQ", "BRANCH_NEQ"):
            swapped = mode == "BRANCH_NEQ"  # NaN differs from every number
            below = self.ask(k, node, value, EQUAL | (0 if swapped else missing))
        else:
            swapped = mode in ("BRANCH_GTE", "BRANCH_GT") and value == value  # no number compares with NaN
            if mode in ("BRANCH_LT", "BRANCH_GTE"):
                value = self._before(value)
            below = self.ask(k, node, value, missing ^ MISSING if swapped else missing)
        return (below + 1, below, 1) if swapped else (below, below + 1, 1)

    def _before(self, value: float) -> float:
        """The number before this one; NaN, which nothing is at most, before the first."""
        with np.errstate(all="ignore"):
            return NAN if value == -np.inf else float(np.nextafter(self.kind(value), self.kind(-np.inf)))

    def _member(self, k: int, node: int, missing: int) -> tuple[int, int, int]:
        """Ask for one member of the set after the other; all but the last lead on to where the last leads."""
        members = list(self.nodes.members.get(node, ())) or [NAN]
        found = list[int]()
        at = k
        for value in members:
            at = self.ask(at, node, value, EQUAL | missing)
            found.append(at + 1)
        for early in found[:-1]:
            self.first[early] = found[-1]
        return at, found[-1], len(members)

    def _require(self, holds: bool, value: object, expected: str) -> None:
        require(holds, codes.ATTRIBUTE_RANGE, op=self.nodes.op, attribute="nodes", value=value, expected=expected)


def flatten(nodes: Nodes, roots: Iterable[int], kind: type[np.floating]) -> Tables:
    """Lay trees out as tables, whose thresholds are floats of `kind`.  Raises Problem for what is no tree."""
    made = Flattened(nodes, kind)
    trees = [made.tree(root) for root in roots]
    kinds = np.array(made.kinds, np.uint8)
    with np.errstate(all="ignore"):
        values = np.array(made.values, np.float64).astype(kind)
    return Tables(
        np.array(made.features, np.int32),
        values,
        np.array(made.first, np.int32),
        kinds if kinds.any() else None,
        np.array([start for start, _ in trees], np.int32),
        np.array([depth for _, depth in trees], np.int32),
        made.origins,
    )


@dataclass(frozen=True)
class Votes:
    """What each node of the tables adds: votes begin[k] to begin[k + 1], of a weight each, for targets."""

    begin: Array
    targets: Array
    weights: Array


def votes(origins: Sequence[int], entries: Mapping[int, Sequence[tuple[int, float]]], kind: type[np.floating]) -> Votes:
    """Collect the votes of nodes of the file, (target, weight) each, for the nodes of the tables."""
    begin, targets, weights = [0], list[int](), list[float]()
    for origin in origins:
        for target, weight in entries.get(origin, ()):
            targets.append(target)
            weights.append(weight)
        begin.append(len(targets))
    with np.errstate(all="ignore"):
        return Votes(np.array(begin, np.int32), np.array(targets, np.int32), np.array(weights, np.float64).astype(kind))
