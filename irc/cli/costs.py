"""What a graph holds and costs: weights by element type, and multiply-accumulates by operation.

Multiply-accumulates are read off the operations' own definitions: a sum over products counts one for each
product, whatever the operation is called.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from irc.diagnostics import Problem
from irc.expr import Bin, Bits, Call, Cast, Expr, Load, Reduce, Select, Tensor, Un, Var
from irc.ir.dim import Dim, product
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType
from irc.opdef.base import Op

OPERAND_LIMIT = 4096
"""Constants up to this many elements are given to `compute` with their data (axes, sizes, paddings)."""


def graphs_of(graph: Graph) -> Iterator[Graph]:
    """The graph and every body inside it."""
    yield graph
    for node in graph.nodes:
        for body in bodies_of(node.op):
            yield from graphs_of(body)


def bodies_of(op: Op) -> list[Graph]:
    return [v for v in op.attributes().values() if isinstance(v, Graph)]


def weights(graph: Graph) -> tuple[int, dict[str, int]]:
    """(elements of all constants, bytes by element type as a weights file packs them)."""
    elements, bits = 0, Counter[str]()
    for part in graphs_of(graph):
        for const in {id(v.const): v.const for v in part.constants()}.values():
            assert const is not None
            count = math.prod(const.shape)
            elements += count
            bits[const.dtype.name] += count * const.dtype.bits
    return elements, {name: -(-n // 8) for name, n in sorted(bits.items())}


def multiply_accumulates(graph: Graph) -> tuple[Dim, list[str]]:
    """The total, an expression where sizes are symbolic, and the operations that could not be counted."""
    total, unknown = Dim.of(0), dict[str, None]()
    for node in graph.nodes:
        found = _of_node(node)
        if found is None:
            unknown[node.op.name] = None
        else:
            total += found
    return total, sorted(unknown)


def _of_node(node: Node) -> Dim | None:
    try:
        return _of_op(node.op, node.inputs, node.outputs)
    except (Problem, ValueError, AssertionError):  # a rank or numbers are not known, or it does not compile
        return None


def _of_op(op: Op, inputs: Sequence[Value | None], outputs: Sequence[Value]) -> Dim | None:
    from irc.opdef.builder import trace

    if op.elementwise:
        return Dim.of(0)
    if op.decompose is not None:
        total, unknown = multiply_accumulates(trace(op, inputs)[0])
        return None if unknown else total
    if op.compute is None:
        return None if op.loops is None or bodies_of(op) else Dim.of(0)
    types = [v.tensor for v in outputs]
    made: Any = op.compute(types[0] if len(types) == 1 else types, *[None if v is None else _tensor(v) for v in inputs])
    functions: list[Any] = list(cast("Iterable[Any]", made)) if isinstance(made, tuple | list) else [made]
    total = Dim.of(0)
    for type, function in zip(types, functions, strict=True):
        element = function(*[Var(f"i{k}") for k in range(len(type.dims()))])
        total += _products(element) * type.elements()
    return total


def _tensor(value: Value) -> Tensor:
    known = value.const is None or math.prod(value.const.shape) <= OPERAND_LIMIT
    assert isinstance(value.type, TensorType)
    return Tensor(value.type, lambda at: Load(value, at), value.array if known else None)


def _products(e: Expr) -> Dim:
    """Multiplications summed up for one element of a result."""
    total, left = Dim.of(0), [(e, Dim.of(1))]  # expressions, and how often each is evaluated: Concat nests thousands
    while left:
        part, times = left.pop()
        if isinstance(part, Reduce):
            times = times * product(part.extents)
            if part.op == "sum" and _is_product(part.body):
                total += times
            left.append((part.body, times))
        else:
            left += [(inner, times) for inner in _parts(part)]
    return total


def _is_product(e: Expr) -> bool:
    if isinstance(e, Select):
        return _is_product(e.a) or _is_product(e.b)
    if isinstance(e, Cast):
        return _is_product(e.a)
    return isinstance(e, Bin) and e.op == "mul"


def _parts(e: Expr) -> list[Expr]:
    if isinstance(e, Bin | Un | Select | Cast | Bits | Call):
        fields: list[Any] = [getattr(e, f.name) for f in dataclasses.fields(e)]
        flat = [x for f in fields for x in cast("tuple[Any, ...]", f if isinstance(f, tuple) else (f,))]
        return [x for x in flat if isinstance(x, Expr)]
    return []
