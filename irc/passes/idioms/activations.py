"""Activations that exporters spell out."""

from __future__ import annotations

import math

from irc.ir.graph import Graph, Node, Value
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.ops.arithmetic import Add, Div, Mul, Pow
from irc.ops.clip import Clip
from irc.ops.mathematics import Erf, Tanh
from irc.passes.recompose import alone

CLOSE = 1e-4
"""How far constants may be off, relatively: exporters round them to f32 or f16, or write few digits."""


def leaky_relu(graph: Graph, node: Node) -> Value | None:
    """Recognise LeakyRelu as a PRelu of one constant slope."""
    x, slope = node.inputs
    number = None if slope is None else number_of(slope)
    return None if number is None else Builder(graph, node.name, node.loc).LeakyRelu(x, alpha=number)


def gelu(graph: Graph, node: Node) -> Value | None:
    """Recognise x · 1/2 · (1 + erf(x / √2)), and its approximation by tanh, in any order of the factors."""
    factors = _factors(graph, node)
    if len(factors) != 3:
        return None
    half = next((v for v in factors if is_number(v, 0.5)), None)
    gates = [(v, found) for v in factors if (found := _gate(graph, v)) is not None]
    if half is None or len(gates) != 1:
        return None
    gate, (x, kind) = gates[0]
    if not any(v is x for v in factors if v is not half and v is not gate):
        return None
    return Builder(graph, node.name, node.loc).Gelu(x, approximate=kind)


def _factors(graph: Graph, node: Node) -> list[Value]:
    """List the factors of a product of three: those of the node, or of the product that one of them is."""
    first = list(node.operands)
    for i, value in enumerate(first):
        inner = value.producer
        if inner is not None and isinstance(inner.op, Mul) and alone(graph, inner):
            both = [*inner.operands, first[1 - i]]
            if any(is_number(v, 0.5) for v in both):
                return both
    return first


def _gate(graph: Graph, value: Value) -> tuple[Value, str] | None:
    """Return (x, kind) of 1 + erf(x / √2) or 1 + tanh(√(2/π) · (x + 0.044715 x³)) that is used once."""
    total = _made_by(graph, value, Add)
    inner = None if total is None else _other(total, 1.0)
    if inner is None:
        return None
    if (erf := _made_by(graph, inner, Erf)) is not None and erf.inputs[0] is not None:
        x = _scaled(graph, erf.inputs[0], math.sqrt(0.5))
        return None if x is None else (x, "none")
    if (tanh := _made_by(graph, inner, Tanh)) is not None and tanh.inputs[0] is not None:
        polynomial = _scaled(graph, tanh.inputs[0], math.sqrt(2 / math.pi))
        x = None if polynomial is None else _cubic(graph, polynomial)
        return None if x is None else (x, "tanh")
    return None


def _cubic(graph: Graph, value: Value) -> Value | None:
    """Return the x of x + 0.044715 x³."""
    total = _made_by(graph, value, Add)
    for x, term in ((a, b) for a, b in _pairs(total)):
        cube = _scaled(graph, term, 0.044715)
        if cube is not None and _is_cube(graph, cube, x):
            return x
    return None


def _is_cube(graph: Graph, value: Value, x: Value) -> bool:
    power = _made_by(graph, value, Pow)
    if power is not None:
        base, exponent = power.inputs
        return base is x and exponent is not None and is_number(exponent, 3.0)
    product = _made_by(graph, value, Mul)
    for a, b in _pairs(product):
        square = _made_by(graph, b, Mul)
        if a is x and square is not None and all(v is x for v in square.inputs):
            return True
    return False


def _scaled(graph: Graph, value: Value, factor: float) -> Value | None:
    """Return the x of x · factor, or of x / (1 / factor), that is used once."""
    node = value.producer
    return _times(node, factor) if node is not None and alone(graph, node) else None


def _times(node: Node, factor: float) -> Value | None:
    """Return the x of x · factor, or of x / (1 / factor)."""
    if isinstance(node.op, Mul):
        return _other(node, factor)
    if isinstance(node.op, Div):
        x, divisor = node.inputs
        return x if divisor is not None and is_number(divisor, 1 / factor) else None
    return None


def _other(node: Node, number: float) -> Value | None:
    """Return the operand that is not that number."""
    return next((a for a, b in _pairs(node) if is_number(b, number)), None)


def _pairs(node: Node | None) -> list[tuple[Value, Value]]:
    """List both orders of the two operands."""
    if node is None or node.inputs[0] is None or node.inputs[1] is None:
        return []
    a, b = node.inputs[0], node.inputs[1]
    return [(a, b), (b, a)]


def _made_by(graph: Graph, value: Value, op: type[Op]) -> Node | None:
    """Return the node that computes the value, if it is of that operation and only used once."""
    node = value.producer
    return node if node is not None and isinstance(node.op, op) and alone(graph, node) else None


def number_of(value: Value) -> float | None:
    """Return the number in a float constant of one element."""
    if value.const is None or not value.dtype.is_float or int(value.tensor.elements()) != 1:
        return None
    return float(value.const.array.reshape(-1)[0])


def is_number(value: Value, number: float) -> bool:
    """Tell whether a value is a constant of one element close to a number."""
    found = number_of(value)
    return found is not None and math.isclose(found, number, rel_tol=CLOSE)


def hard_swish(graph: Graph, node: Node) -> Value | None:
    """Recognise x · min(max(x + 3, 0), 6) / 6 in any order."""
    if isinstance(node.op, Mul):
        for x, gate in _pairs(node):
            six = _scaled(graph, gate, 1 / 6)
            if six is not None and _is_clipped(graph, six, x):
                return Builder(graph, node.name, node.loc).HardSwish(x)
    product = _times(node, 1 / 6)
    inner = None if product is None else _made_by(graph, product, Mul)
    for x, gate in _pairs(inner):
        if _is_clipped(graph, gate, x):
            return Builder(graph, node.name, node.loc).HardSwish(x)
    return None


def _is_clipped(graph: Graph, value: Value, x: Value) -> bool:
    """Tell whether a value is x + 3 from 0 to 6, used once."""
    clip = _made_by(graph, value, Clip)
    if clip is None or clip.inputs[0] is None or len(clip.inputs) != 3:
        return False
    low, high = clip.inputs[1:]
    total = _made_by(graph, clip.inputs[0], Add)
    bounded = low is not None and number_of(low) == 0.0 and high is not None and is_number(high, 6.0)
    return bounded and total is not None and _other(total, 3.0) is x
