"""Places for the boxes of a graph: in layers from top to bottom, with few crossings.

The method of Sugiyama, Tagawa and Toda (1981): every node gets the layer below its operands, lines over several layers
get a bend in each, the order in the layers is improved by barycentres, and boxes move towards their neighbours as far
as the order allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

SWEEPS, RELAXATIONS = 6, 10
BEND = 12
"""Units that a line takes in a layer, beside boxes."""
GAP = 16
MOST_BENDS = 200_000
"""Of all lines: those over more layers than that leaves room for are straight."""


@dataclass(frozen=True)
class Placed:
    """x: the middle of each node; layer: its layer; bends: of each edge, x in the layers between its ends."""

    x: list[float]
    layer: list[int]
    bends: list[list[float]]


def place(widths: Sequence[float], edges: Sequence[tuple[int, int]], roots: Iterable[int] = ()) -> Placed:
    """Place nodes of these widths; edges lead from a node to one behind it; roots stand at the top."""
    layer = layers(len(widths), edges, roots)
    size, chains = list(widths), list[list[int]]()
    level, room = list(layer), MOST_BENDS
    above: list[list[int]] = [[] for _ in widths]
    below: list[list[int]] = [[] for _ in widths]
    for a, b in edges:
        between = range(layer[a] + 1, layer[b])
        bends = list(range(len(size), len(size) + len(between))) if len(between) <= room else []
        room -= len(bends)
        chains.append(bends)
        for at in between[: len(bends)]:
            size.append(BEND)
            level.append(at)
            above.append([])
            below.append([])
        path = [a, *bends, b]
        for u, v in pairwise(path):
            below[u].append(v)
            above[v].append(u)
    rows: list[list[int]] = [[] for _ in range(max(level, default=-1) + 1)]
    for node, at in enumerate(level):
        rows[at].append(node)
    _order(rows, above, below)
    x = _spread(rows, size, above, below)
    return Placed(x[: len(widths)], layer, [[x[k] for k in bends] for bends in chains])


def layers(count: int, edges: Sequence[tuple[int, int]], roots: Iterable[int] = ()) -> list[int]:
    """Give each node the layer below all that it reads; what depends on no root stands right above its readers."""
    layer, depends, readers = [0] * count, [False] * count, [list[int]() for _ in range(count)]
    for root in roots:
        depends[root] = True
    for a, b in sorted(edges, key=lambda e: e[1]):
        layer[b] = max(layer[b], layer[a] + 1)
        depends[b] = depends[b] or depends[a]
        readers[a].append(b)
    for node in reversed(range(count)):
        if readers[node] and not depends[node]:
            layer[node] = min(layer[b] for b in readers[node]) - 1
    return layer


def _order(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Sort each row by the mean place of its neighbours, down and up in turn."""
    position = {node: k for row in rows for k, node in enumerate(row)}
    for sweep in range(SWEEPS):
        side = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            means = {
                node: sum(position[n] for n in side[node]) / len(side[node]) if side[node] else position[node]
                for node in row
            }
            row.sort(key=means.__getitem__)
            position.update((node, k) for k, node in enumerate(row))


def _spread(rows: list[list[int]], size: list[float], above: list[list[int]], below: list[list[int]]) -> list[float]:
    """Give each node of each row an x near those of its neighbours, without overlaps."""
    x = [0.0] * len(size)
    for row in rows:
        at = -sum(size[n] + GAP for n in row) / 2
        for node in row:
            x[node] = at + size[node] / 2
            at += size[node] + GAP
    for step in range(RELAXATIONS):
        side = above if step % 2 == 0 else below
        for row in rows if step % 2 == 0 else reversed(rows):
            wanted = [sum(x[n] for n in side[k]) / len(side[k]) if side[k] else x[k] for k in row]
            for node, found in zip(row, _apart(wanted, [size[k] for k in row]), strict=True):
                x[node] = found
    return x


def _apart(wanted: list[float], size: list[float]) -> list[float]:
    """Find the places nearest to the wanted ones, in squares, that keep order and gaps (pool adjacent violators)."""
    offsets = [0.0]
    for left, right in pairwise(size):
        offsets.append(offsets[-1] + (left + right) / 2 + GAP)
    blocks: list[tuple[float, int]] = []  # mean, members
    for want, offset in zip(wanted, offsets, strict=True):
        mean, members = want - offset, 1
        while blocks and blocks[-1][0] > mean:
            before, count = blocks.pop()
            mean, members = (before * count + mean * members) / (count + members), count + members
        blocks.append((mean, members))
    shifts = [mean for mean, members in blocks for _ in range(members)]
    return [shift + offset for shift, offset in zip(shifts, offsets, strict=True)]
