"""Graphs as text: one line per value or node, and back.

    graph "main" {
      symbol N in 1..64
      input %x: f32[N,3]
      const %w: f32[3,2] = #9f86d081884c
      const %axes: i64[1] = [0]
      %y: f32[N,2] = MatMul(transpose_b=True) %x, %w  # "layer/MatMul"
      output %y
    }

A node that computes other layers than the one of its name says so: `# "conv1" of "conv1", "relu1"`.
Large constants are written as a digest of their data and read back without it.  Absent operands are `_`.
`print_graph(parse_graph(t)) == t` for every t that `print_graph` wrote.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping

import numpy as np

from irc.arrays import Array
from irc.ir.dim import Dim, Symbol
from irc.ir.graph import Constant, Graph, Node, Value
from irc.ir.literal import dim_text, literal, name_text, parse_fields, parse_literal, parse_type, type_text, unquote
from irc.ir.types import TensorType, Type
from irc.opdef.base import Op
from irc.opdef.registry import find_op

INLINE = 16
"""Constants of up to this many elements are written out."""


# ------------------------------------------------------------------------ printing
def print_graph(graph: Graph) -> str:
    """The graph as text, nodes in dependency order."""
    lines = [f"graph {json.dumps(graph.name)} {{"]
    lines += [f"  {_symbol_line(s)}" for s in _symbols(graph)]
    lines += [f"  input {_declared(v)}" for v in graph.inputs]
    lines += [f"  const {_declared(v)} = {_data(graph, v)}" for v in graph.constants() if v not in graph.inputs]
    lines += [f"  {node_text(n)}" for n in graph.nodes]
    lines += [f"  output {_value(v)}" for v in graph.outputs]
    lines += [f"  keep {json.dumps(n.name)}" for n in graph.sinks]
    return "\n".join([*lines, "}"]) + "\n"


def node_text(node: Node) -> str:
    """A node as one line; attributes that have their default are left out."""
    results = ", ".join(map(_declared, node.outputs))
    operands = ", ".join("_" if v is None else _value(v) for v in node.inputs)
    text = f"{results} = {_op(node.op)}{' ' if operands else ''}{operands}"
    others = node.layers if node.layers and node.layers != (node.name,) else ()
    layers = f" of {', '.join(map(json.dumps, others))}" if others else ""
    return text + (f"  # {json.dumps(node.name)}{layers}" if node.name or others else "")


def _op(op: Op) -> str:
    spelled = getattr(op, "spelled", None)
    if spelled is not None:  # made by a pass of compiling, and not to be read again
        return str(spelled())
    default = {f.name: f.default for f in dataclasses.fields(op)}
    shown = [
        f"{k}={literal(v, print_graph)}"
        for k, v in op.attributes().items()
        if default[k] is dataclasses.MISSING or default[k] != v
    ]
    return f"{type(op).__name__}({', '.join(shown)})" if shown else type(op).__name__


def _value(value: Value) -> str:
    return f"%{name_text(value.name)}"


def _declared(value: Value) -> str:
    return f"{_value(value)}: {type_text(value.type)}"


def _symbols(graph: Graph) -> list[Symbol]:
    found: dict[Symbol, None] = {}
    for value in graph.values():
        if isinstance(value.type, TensorType) and value.type.shape is not None:
            for d in value.type.shape:
                found.update(dict.fromkeys(sorted(d.symbols())))
    return list(found)


def _symbol_line(s: Symbol) -> str:
    return f"symbol {dim_text(Dim({(s,): 1}))} in {s.lo}..{'' if s.hi is None else s.hi}"


def _data(graph: Graph, value: Value) -> str:
    assert value.const is not None
    known: dict[str, str] = graph.extras.get("digests", {})
    if value.name in known:
        return known[value.name]
    array = value.const.array
    if array.size <= INLINE:
        return literal(array.reshape(-1).tolist() if array.dtype == object else _numbers(array), print_graph)
    raw = repr(array.reshape(-1).tolist()).encode() if array.dtype == object else np.ascontiguousarray(array).tobytes()
    return f"#{hashlib.sha256(raw).hexdigest()[:12]}"


def _numbers(array: Array) -> list[bool] | list[int] | list[float] | list[complex]:
    kind = array.dtype.kind
    if kind == "b":
        return [bool(x) for x in array.reshape(-1)]
    if kind in "iu" or "int" in array.dtype.name:
        return [int(x) for x in array.reshape(-1)]
    return [complex(x) for x in array.reshape(-1)] if kind == "c" else [float(x) for x in array.reshape(-1)]


# ------------------------------------------------------------------------- parsing
_NAME = r'%(?:"(?:[^"\\]|\\.)*"|[^\s,:="]+)'
_OPERAND = re.compile(rf"{_NAME}|_")
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_COMMENT = re.compile(rf"\s\s# ({_QUOTED})(?: of ({_QUOTED}(?:, {_QUOTED})*))?$")


def parse_graph(text: str, data: Mapping[str, Array] | None = None) -> Graph:
    """The graph that a text describes.  `data` gives large constants by name; without it they cannot be read.

    ValueError with the line number where the text is not understood.
    """
    return _Parser(data or {}).parse(text)


class _Parser:
    def __init__(self, data: Mapping[str, Array]) -> None:
        self.data = data
        self.graph = Graph()
        self.values: dict[str, Value] = {}
        self.symbols: dict[str, Symbol] = {}

    def parse(self, text: str) -> Graph:
        for number, line in enumerate(text.splitlines(), start=1):
            try:
                self._line(line.strip())
            except (ValueError, KeyError, SyntaxError, AttributeError) as e:
                raise ValueError(f"line {number}: {e}: {line.strip()}") from e
        return self.graph

    def _line(self, line: str) -> None:
        word = line.split(" ", 1)[0]
        if not line or line == "}":
            return
        if word == "graph":
            self.graph.name = json.loads(line[len("graph ") : -len(" {")])
        elif word == "symbol":
            self._symbol(line)
        elif word == "input":
            name, kind = self._declaration(line[len("input ") :])
            self.values[name] = self.graph.add_input(name, kind)
        elif word == "const":
            self._constant(line[len("const ") :])
        elif word == "output":
            self.graph.outputs.append(self.values[unquote(line[len("output %") :])])
        elif word == "keep":
            name = json.loads(line[len("keep ") :])
            self.graph.sinks.append(next(n for n in self.graph.nodes if n.name == name))
        else:
            self._node(line)

    def _symbol(self, line: str) -> None:
        name, _, bounds = line[len("symbol ") :].rpartition(" in ")
        low, _, high = bounds.partition("..")
        found = Symbol(unquote(name), int(low), int(high) if high else None)
        self.symbols[found.name] = found

    def _declaration(self, text: str) -> tuple[str, Type | None]:
        match = re.match(_NAME, text)
        if match is None:
            raise ValueError("a value name (%x) was expected")
        return unquote(match.group()[1:]), parse_type(text[match.end() + 2 :], self.symbols)

    def _constant(self, text: str) -> None:
        declared, _, data = text.partition(" = ")
        name, kind = self._declaration(declared)
        if not isinstance(kind, TensorType):
            raise ValueError("a constant is a tensor")
        shape = kind.static_shape()
        if data.startswith("#"):
            array = self.data.get(name)
            self.graph.extras.setdefault("digests", {})[name] = data
            const = Constant(kind.dtype, shape, lambda: _missing(name) if array is None else array)
            value = self.graph.new_value(name, kind, const=const)
        else:
            numbers = parse_literal(data, self.symbols, parse_graph)
            array = np.array(numbers, object).astype(kind.dtype.numpy).reshape(shape)
            value = self.graph.add_constant(Constant.of(array, kind.dtype), name)
        self.values[name] = value

    def _node(self, line: str) -> None:
        comment = _COMMENT.search(line)
        name = json.loads(comment.group(1)) if comment else ""
        line = line[: comment.start()] if comment else line
        results, call, operands = _split_node(line)
        op_name, _, attributes = call.partition("(")
        fields = parse_fields(attributes.removesuffix(")"), self.symbols, parse_graph)
        op = find_op(op_name)(**fields)
        outputs: list[Value] = []
        for declared in results:
            label, kind = self._declaration(declared)
            self.values[label] = self.graph.new_value(label, kind)
            outputs.append(self.values[label])
        inputs = [None if o == "_" else self.values[unquote(o[1:])] for o in _OPERAND.findall(operands)]
        layers = tuple(json.loads(f"[{comment.group(2)}]")) if comment and comment.group(2) else None
        self.graph.add_node(op, inputs, outputs, name, layers=layers)


def _missing(name: str) -> Array:
    raise ValueError(f"the data of constant %{name} is not part of the text")


def _split_node(line: str) -> tuple[list[str], str, str]:
    """(declared results, operation with attributes, operands)."""
    results, rest = _until(line, " = ")
    call, operands = _until(rest, " ")
    declared = [m.group(0) for m in re.finditer(rf"{_NAME}: (?:(?!, %).)+", results)]
    return declared, call, operands


def _until(text: str, mark: str) -> tuple[str, str]:
    """The text before and after the first `mark` that is in no brackets and no string."""
    depth, quoted, k = 0, "", 0
    while k < len(text):
        c = text[k]
        if quoted:
            if c == "\\":
                k += 1
            elif c == quoted:
                quoted = ""
        elif c in "\"'":
            quoted = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif depth == 0 and text.startswith(mark, k):
            return text[:k], text[k + len(mark) :]
        k += 1
    return text, ""
