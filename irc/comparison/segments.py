"""A graph cut into segments that are run one after the other: an engine is given the weights of one at a time.

What a segment computes for later ones is kept for the next runs, so that a tensor asked for later costs the run of its
own segment only.  Nodes that depend on no input belong to every segment that needs them: an engine sees a weight that
is stored compressed beside the product that reads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from irc.arrays import is_array
from irc.border.support import bodies_of, captured_keys
from irc.editing.extraction import part_between
from irc.formats.document import RawGraph, RawNode, RawTensor
from irc.formats.onnx.structure import items_of
from irc.ir.types import DType, TensorType

BYTES = 32 << 20
"""A segment has weights of at least so many bytes, where the graph does."""
SHARE = 16
"""Of a larger graph, segments have this part of its weights."""
PASSED_ON = ("f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool")
"""Element types that every engine gives and takes."""

Run = Callable[[RawGraph, Sequence[Any]], list[Any]]
"""Loads an engine with a graph and runs it on arguments in the order of its inputs."""


@dataclass
class Segments:
    """The segments of a graph, and what is known of the values between them for some arguments.

    run: see `Run`.  keep: gives an array that takes no memory while it is not looked at.
    """

    graph: RawGraph
    run: Run
    keep: Callable[[Any], Any]
    of: dict[str, int] = field(default_factory=dict[str, int])  # by key of a value: the segment that computes it
    _needs: list[dict[str, None]] = field(default_factory=list[dict[str, None]])  # by segment: values from outside
    _given: list[Any] = field(default_factory=list[Any])
    _known: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        inputs = {v.key for v in self.graph.inputs}
        for number, nodes in enumerate(segments(self.graph)):
            self.of.update((v.key, number) for node in nodes for v in node.outputs if v.key)
            used = [k for node in nodes for k in used_by(node)]
            self._needs.append({k: None for k in used if k in inputs or self.of.get(k, number) != number})

    def __call__(self, tensors: Sequence[str], arguments: Sequence[Any]) -> list[Any]:
        """The values of these keys, for arguments in the order of the graph's inputs."""
        if len(self._needs) <= 1 or not all(k in self.of for k in tensors):
            return self.run(part_between(self.graph, [v.key for v in self.graph.inputs], tensors), arguments)
        if len(arguments) != len(self._given) or any(a is not b for a, b in zip(arguments, self._given, strict=True)):
            self._given = list(arguments)
            self._known = dict(zip((v.key for v in self.graph.inputs), arguments, strict=True))
        found: dict[str, Any] = {}
        asked = self._asked(tensors)
        for number in sorted(asked):
            wanted, needs = list(asked[number]), list(self._needs[number])
            part = part_between(self.graph, needs, wanted, {k: _shape(self._known[k]) for k in needs})
            results = dict(zip(wanted, self.run(part, [self._known[k] for k in needs]), strict=True))
            later = {k for needed in self._needs[number + 1 :] for k in needed}
            self._known.update((k, self.keep(v)) for k, v in results.items() if k in later)
            found.update((k, v) for k, v in results.items() if k in tensors)
        return [found[k] for k in tensors]

    def _asked(self, tensors: Iterable[str]) -> dict[int, dict[str, None]]:
        """By segment that has to run: what it is to give, these tensors and what others need of it."""
        asked: dict[int, dict[str, None]] = {}
        for key in tensors:
            asked.setdefault(self.of[key], {})[key] = None
        waiting = list(asked)
        while waiting:
            for key in self._needs[waiting.pop()]:
                if key not in self._known:
                    if self.of[key] not in asked:
                        waiting.append(self.of[key])
                    asked.setdefault(self.of[key], {})[key] = None
        return asked


def segments(graph: RawGraph) -> list[list[RawNode]]:
    """The nodes that depend on inputs, in order, cut where few weights and only plain tensors are on either side.

    A graph with variables is one segment: what assigns them belongs to what reads them.
    """
    weights = _Weights(graph)
    nodes = [node for node in graph.nodes if id(node) in weights.dependent]
    if any(node.type == "ReadValue" for node in nodes):
        return [nodes]
    limit = max(BYTES, weights.total() // SHARE)
    last = {key: i for i, node in enumerate(nodes) for key in used_by(node)}
    found: list[list[RawNode]] = [[]]
    have: dict[str, int] = {}
    barred: dict[str, int] = {}  # values that no cut may lie behind, and their last use
    for i, node in enumerate(nodes):
        own = weights.of(node)
        barred = {key: end for key, end in barred.items() if end >= i}
        if found[-1] and not barred and sum((have | own).values()) > limit:
            found.append([])
            have = {}
        found[-1].append(node)
        have |= own
        barred |= {v.key: last[v.key] for v in node.outputs if v.key in last and not _is_plain(v.type)}
    return found


def used_by(node: RawNode) -> Iterator[str]:
    """The keys of the values that a node reads, its bodies included."""
    yield from (k for k in (*node.inputs, *captured_keys(node)) if k)


class _Weights:
    """Bytes of the constants that a node reads, or has inside, also through nodes that depend on no input."""

    def __init__(self, graph: RawGraph) -> None:
        self.bytes = {key: _bytes(tensor.dtype, tensor.shape) for key, tensor in graph.constants.items()}
        self.dependent: set[int] = set()
        moving = {v.key for v in graph.inputs}
        self.behind: dict[str, dict[str, int]] = {key: {key: size} for key, size in self.bytes.items()}
        for node in graph.nodes:
            keys = [v.key for v in node.outputs if v.key]
            if node.type.startswith(("Random", "ReadValue")) or any(k in moving for k in used_by(node)):
                self.dependent.add(id(node))
                moving.update(keys)
            else:
                self.behind.update(dict.fromkeys(keys, self.of(node)))

    def of(self, node: RawNode) -> dict[str, int]:
        found = {f"in {id(node)}": sum(_inside(node))}
        for key in used_by(node):
            found |= self.behind.get(key, {})
        return found

    def total(self) -> int:
        return sum(self.bytes.values())


def _inside(node: RawNode) -> Iterator[int]:
    """Bytes of the tensors in a node's attributes and bodies."""
    for value in node.attrs.values():
        yield from (_bytes(v.dtype, v.shape) for v in items_of(value) if isinstance(v, RawTensor))
    for body in bodies_of(node):
        yield from (_bytes(t.dtype, t.shape) for t in body.constants.values())
        for inner in body.nodes:
            yield from _inside(inner)


def _bytes(dtype: DType, shape: Sequence[int]) -> int:
    return math.prod(shape) * dtype.numpy.itemsize


def _is_plain(type: Any) -> bool:
    return isinstance(type, TensorType) and type.dtype.name in PASSED_ON


def _shape(value: Any) -> tuple[int, ...] | None:
    return value.shape if is_array(value) else None
