"""Chains of elementwise operations: which nodes become one NumPy function, and that function's source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from irc.backends.numpy.facts import OTHER, Array, Fact, Known
from irc.backends.numpy.functions import Library
from irc.backends.numpy.literals import dtype_text
from irc.backends.numpy.text import PyDocstring, PyName, snake
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType
from irc.opdef.elementwise import Elementwise

LONGEST = 32
"""Nodes in one function at most."""


@dataclass
class Group:
    """Nodes that run together; all but the last feed only each other."""

    nodes: list[Node]

    @property
    def root(self) -> Node:
        return self.nodes[-1]

    @property
    def operands(self) -> list[Value]:
        """What comes from outside, each once, in order of use."""
        inside = {v for n in self.nodes for v in n.outputs}
        return list(dict.fromkeys(v for n in self.nodes for v in n.operands if v not in inside))


def grouped(graph: Graph) -> list[Group]:
    """Group the graph's nodes. Returns the groups in execution order."""
    nodes = graph.nodes
    outputs = set(graph.outputs)
    group_of: dict[Node, list[Node]] = {}
    for node in nodes:
        members = [node]
        if is_elementwise(node):
            for value in dict.fromkeys(node.operands):
                feeder = value.producer
                if feeder is None or value in outputs or set(value.uses) != {node}:
                    continue
                chain = group_of.get(feeder)
                if chain and chain[-1] is feeder and is_elementwise(feeder) and len(chain) + len(members) <= LONGEST:
                    members = [*chain, *members]
        for member in members:
            group_of[member] = members
    return [Group(group_of[n]) for n in nodes if group_of[n][-1] is n]


def is_elementwise(node: Node) -> bool:
    """Tell whether a node is an elementwise operation with one tensor result of known type."""
    if not node.op.elementwise or len(node.outputs) != 1 or any(v is None for v in node.inputs):
        return False
    return all(isinstance(v.type, TensorType) and v.type.shape is not None for v in (*node.operands, *node.outputs))


def ufunc_of(node: Node) -> np.ufunc | None:
    """Find the ufunc that computes the whole operation with its declared element type. Returns None without one."""
    cls: Any = type(node.op)
    found = getattr(cls, "ufunc", None)
    if cls.reference is not Elementwise.reference or not isinstance(found, np.ufunc):
        return None
    if vars(np).get(found.__name__) is not found or found.nout != 1:
        return None
    try:
        with np.errstate(all="ignore"):
            made = found(*[np.ones(1, v.dtype.numpy) for v in node.operands])
    except TypeError:
        return None
    return found if made.dtype == node.outputs[0].dtype.numpy else None


class ChainWriter:
    """Writes fused functions; equal chains share one."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.known: dict[str, PyName] = {}

    def function(self, group: Group) -> PyName:
        """Write a group as a function over its operands, once. Returns the function's name."""
        body, formals, calls = self._body(group)
        doc = f"    {PyDocstring(' · '.join(n.op.name for n in group.nodes))}"
        key = f"({', '.join(formals)})\n{body}"
        if key not in self.known:
            hint = "_".join(dict.fromkeys(snake(n.op.name) for n in group.nodes))
            name = self.known[key] = self.library.fresh(hint if len(hint) <= 48 else f"chain_of_{len(group.nodes)}")
            self.library.text_function(name, f"def {name}({', '.join(formals)}):\n{doc}\n{body}", calls)
        return self.known[key]

    def _body(self, group: Group) -> tuple[str, list[str], list[PyName]]:
        operands = group.operands
        name: dict[Value, str] = {v: f"x{i}" for i, v in enumerate(operands)}
        last = {v: i for i, n in enumerate(group.nodes) for v in n.operands}
        lines: list[str] = []
        owned: list[Value] = []  # results of this function: their memory may be reused
        calls: list[PyName] = []
        temporaries = 0
        for i, node in enumerate(group.nodes):
            out = node.outputs[0]
            ufunc = ufunc_of(node)
            args = [name[v] for v in node.operands]
            room = next((v for v in owned if ufunc and last.get(v) == i and v in node.operands and fits(v, out)), None)
            if room is not None and ufunc is not None:
                name[out] = name[room]
                owned.remove(room)
                lines.append(f"np.{ufunc.__name__}({', '.join(args)}, out={name[out]})")
            else:
                name[out] = f"t{temporaries}"
                temporaries += 1
                made, callee = call(self.library, node, args)
                calls += [] if callee is None else [callee]
                lines.append(f"{name[out]} = {made}")
            if ufunc is not None and out.rank:  # a function's result may be a view of its operand
                owned.append(out)
        lines.append(f"return {name[group.root.outputs[0]]}")
        return "\n".join(f"    {line}" for line in lines), [name[v] for v in operands], calls


def fits(room: Value, value: Value) -> bool:
    """Tell whether the array of `room` can hold `value`."""
    return room.dtype.numpy == value.dtype.numpy and room.shape == value.shape and value.rank != 0


def fact_of(value: Value | None) -> Fact:
    """Find what is known of an operand: arrays have their declared element types."""
    if value is None:
        return Known(None)
    if not isinstance(value.type, TensorType):
        return OTHER
    kind = None if value.dtype.kind == "?" else value.dtype.numpy
    return Array(kind, None if value.type.shape is None else len(value.type.shape))


def typed(made: str, fact: Fact, value: Value) -> str:
    """Convert an expression to an array of the declared element type, unless it is one."""
    if not isinstance(value.type, TensorType) or value.dtype.kind == "?":
        return made
    kind = value.dtype.numpy
    if isinstance(fact, Array) and fact.dtype == kind and value.type.shape is not None and value.rank:
        return made
    return f"np.asarray({made}, {dtype_text(kind)})"


def call(library: Library, node: Node, args: Sequence[str]) -> tuple[str, PyName | None]:
    """Write an elementwise node as an expression of its declared type. Returns it with the function that it calls."""
    out = node.outputs[0]
    ufunc = ufunc_of(node)
    if ufunc is not None:
        made = f"np.{ufunc.__name__}({', '.join(args)})"
        return made if out.rank else f"np.asarray({made}, {dtype_text(out.dtype.numpy)})", None
    written = library.operation(node.op, [fact_of(v) for v in node.operands])
    made = f"{written.name}({', '.join(args[i] for i in written.operands)})"
    return typed(made, written.result, out), written.name
