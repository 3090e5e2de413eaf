# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownLambdaType=false
"""Names, sizes, types and attribute values in the text form of graphs."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from irc.arrays import Array
from irc.ir.dim import Dim, Func, Symbol
from irc.ir.graph import Graph
from irc.ir.types import DTYPES, DType, MapType, OptionalType, SequenceType, TensorType, Type, dtype

_PLAIN = re.compile(r"[A-Za-z0-9_./?$|<>@!+*-]+\Z")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def name_text(name: str) -> str:
    """A value's name, quoted where it needs to be."""
    return name if _PLAIN.match(name) and name != "_" else json.dumps(name)


def unquote(text: str) -> str:
    return json.loads(text) if text.startswith('"') else text


# --------------------------------------------------------------------------- sizes
def dim_text(d: Dim) -> str:
    """A size, without precedence puzzles: functions are calls."""
    parts: list[str] = []
    for monomial, c in d.terms:
        factors = [*([] if c == 1 and monomial else [str(c)]), *map(_atom_text, monomial)]
        parts.append("*".join(factors))
    return " + ".join(parts)


def _atom_text(atom: Symbol | Func) -> str:
    if isinstance(atom, Symbol):
        return atom.name if _IDENTIFIER.match(atom.name) and atom.name not in _FUNCTIONS else json.dumps(atom.name)
    return f"{atom.op}({', '.join(map(dim_text, atom.args))})"


_FUNCTIONS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "floordiv": lambda a, b: a // b,
    "ceildiv": lambda a, b: a.ceildiv(b),
    "mod": lambda a, b: a % b,
    "min": lambda a, b: a.minimum(b),
    "max": lambda a, b: a.maximum(b),
}


def parse_dim(node: ast.expr, symbols: Mapping[str, Symbol]) -> Dim:
    """A size from the syntax tree of its text."""
    match node:
        case ast.Constant(value=int() as number):
            return Dim.of(number)
        case ast.Constant(value=str() as name) | ast.Name(id=name):
            return Dim({(symbols.get(name, Symbol(name)),): 1})
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -parse_dim(inner, symbols)
        case ast.BinOp(left=a, op=ast.Add(), right=b):
            return parse_dim(a, symbols) + parse_dim(b, symbols)
        case ast.BinOp(left=a, op=ast.Mult(), right=b):
            return parse_dim(a, symbols) * parse_dim(b, symbols)
        case ast.Call(func=ast.Name(id=fn), args=[a, b]) if fn in _FUNCTIONS:
            return _FUNCTIONS[fn](parse_dim(a, symbols), parse_dim(b, symbols))
        case _:
            raise ValueError(f"no size: {ast.unparse(node)}")


# --------------------------------------------------------------------------- types
def type_text(kind: Type | None) -> str:
    """A type; `?` where it is unknown."""
    match kind:
        case None:
            return "?"
        case TensorType(shape=None):
            return f"{kind.dtype}[...]"
        case TensorType():
            return f"{kind.dtype}[{', '.join(map(dim_text, kind.dims()))}]"
        case SequenceType():
            return f"seq({type_text(kind.element)})"
        case OptionalType():
            return f"optional({type_text(kind.element)})"
        case MapType():
            return f"map({kind.key}, {type_text(kind.value)})"


def parse_type(text: str, symbols: Mapping[str, Symbol]) -> Type | None:
    """A type from its text."""
    if text == "?":
        return None
    return _type_of(ast.parse(text.replace("[]", "[()]"), mode="eval").body, symbols)


def _type_of(node: ast.expr, symbols: Mapping[str, Symbol]) -> Type:
    match node:
        case ast.Subscript(value=ast.Name(id=name), slice=inner):
            if isinstance(inner, ast.Constant) and inner.value is ...:
                return TensorType(dtype(name), None)
            dims = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            return TensorType(dtype(name), tuple(parse_dim(d, symbols) for d in dims))
        case ast.Call(func=ast.Name(id="seq"), args=[element]):
            return SequenceType(_type_of(element, symbols))
        case ast.Call(func=ast.Name(id="optional"), args=[element]):
            return OptionalType(_type_of(element, symbols))
        case ast.Call(func=ast.Name(id="map"), args=[ast.Name(id=key), value]):
            return MapType(dtype(key), _type_of(value, symbols))
        case _:
            raise ValueError(f"no type: {ast.unparse(node)}")


# ---------------------------------------------------------------------- attributes
Single = bool | int | float | complex | str | bytes | Dim | DType | Type | Graph | Array | None
AttributeValue: TypeAlias = "Single | Sequence[AttributeValue]"
"""What a field of an operation may hold."""


def literal(value: AttributeValue, graph_text: Callable[[Graph], str]) -> str:
    """An attribute's value."""
    if isinstance(value, DType):
        return value.name
    if isinstance(value, Dim):
        return f"dim({dim_text(value)})"
    if isinstance(value, TensorType | SequenceType | OptionalType | MapType):
        return f"type({json.dumps(type_text(value))})"
    if isinstance(value, Graph):
        return f"graph({json.dumps(graph_text(value))})"
    if isinstance(value, np.ndarray):
        numbers = literal(value.reshape(-1).tolist(), graph_text)
        return f"array({json.dumps(str(value.dtype))}, {literal(value.shape, graph_text)}, {numbers})"
    if isinstance(value, tuple):
        inner = [literal(x, graph_text) for x in value]
        return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(literal(x, graph_text) for x in value)}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    return repr(value)


def parse_literal(text: str, symbols: Mapping[str, Symbol], parse_graph: Callable[[str], Graph]) -> AttributeValue:
    """An attribute's value from its text.  Only literals: nothing is executed."""
    return _value_of(ast.parse(text, mode="eval").body, symbols, parse_graph)


def parse_fields(
    text: str, symbols: Mapping[str, Symbol], parse_graph: Callable[[str], Graph]
) -> dict[str, AttributeValue]:
    """The attributes in `name=value, …`."""
    call = ast.parse(f"dict({text})", mode="eval").body
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError(f"attributes were expected: {text}")
    return {p.arg: _value_of(p.value, symbols, parse_graph) for p in call.keywords if p.arg is not None}


def _value_of(node: ast.expr, symbols: Mapping[str, Symbol], parse_graph: Callable[[str], Graph]) -> AttributeValue:
    def of(x: ast.expr) -> AttributeValue:
        return _value_of(x, symbols, parse_graph)

    match node:
        case ast.Tuple(elts=items):
            return tuple(map(of, items))
        case ast.List(elts=items):
            return [of(x) for x in items]
        case ast.Call(func=ast.Name(id="dim"), args=[inner]):
            return parse_dim(inner, symbols)
        case ast.Call(func=ast.Name(id="type"), args=[ast.Constant(value=str() as inner)]):
            return parse_type(inner, symbols)
        case ast.Call(func=ast.Name(id="graph"), args=[ast.Constant(value=str() as inner)]):
            return parse_graph(inner)
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str() as inner)]):
            return float(inner)
        case ast.Call(func=ast.Name(id="array"), args=[ast.Constant(value=str() as kind), shape, data]):
            return np.array(of(data), np.dtype(kind)).reshape(ast.literal_eval(shape))
        case ast.Name(id=name) if name in DTYPES:
            return DTYPES[name]
        case _:
            return ast.literal_eval(node)
