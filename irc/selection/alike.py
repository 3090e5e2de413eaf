"""Kernels that differ in little become one: compiling kernels is most of the time of compiling a model.

Constants of epilogues that differ are read from memory: scales of quantized tensors and factors of learnt affine layers
differ from layer to layer, and as literals would make a kernel of its own of every layer.  So are bounds of clamps
that stand last, where sums are long enough: results that are not clamped, a ReLU and a ReLU6 are one kernel.  And where
one kernel can do what another does as well (`Kernel.joined`), there is only that one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from irc.expr import Bin, Const, Expr, constant_of, index
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import DType, boolean, f32
from irc.kernels.core.base import Kernel
from irc.kernels.core.epilogue import Axes, Epilogue, acc, slot, steps
from irc.selection.selector import KernelOp
from irc.traversal import replaced, walk

Shared = dict[tuple[str, DType], Value]
"""The values of constants that are read, each once."""
LONG = 8
"""Products of a sum, beside which a comparison with infinity takes nothing."""


@dataclass(frozen=True)
class Clamped:
    """What an epilogue computes, `base`, and the bounds that it is clamped to; None: there is none."""

    base: Expr
    low: Const | None = None
    high: Const | None = None


def share_kernels(graph: Graph) -> int:
    """Make kernels equal that differ in constants of their epilogues, or that one kernel stands for.

    Returns how many nodes were changed.
    """
    alike: dict[tuple[str, ...], list[_Alike]] = {}
    for node in graph.nodes:
        epilogue = _epilogue(node)
        if epilogue is not None:
            kernel = _with(_kernel(node), replace(epilogue, expr=acc(epilogue.dtype)))
            _add(alike.setdefault(_form(node, epilogue), []), kernel, node)
    made: Shared = {}
    groups = [group for found in alike.values() for group in found]
    return sum(_join(graph, group) + _unite(graph, group.nodes, made) for group in groups)


@dataclass
class _Alike:
    """Nodes whose kernels differ in constants at most from the one, with no epilogue here, that stands for all."""

    kernel: Kernel[Any]
    nodes: list[Node]


def _add(groups: list[_Alike], kernel: Kernel[Any], node: Node) -> None:
    """Add a node to the first group whose kernel can stand for its own, too."""
    for group in groups:
        joined = kernel if group.kernel == kernel else group.kernel.joined(kernel)
        if joined is not None:
            group.kernel = joined
            group.nodes.append(node)
            return
    groups.append(_Alike(kernel, [node]))


def _join(graph: Graph, group: _Alike) -> int:
    """Let nodes call the kernel that stands for all, each with its own epilogue.  Returns how many were changed."""
    done = 0
    for node in group.nodes:
        epilogue = _epilogue(node)
        assert epilogue is not None
        kernel = _with(group.kernel, epilogue)
        if kernel != _kernel(node):
            graph.set_op(node, replace(cast("KernelOp", node.op), kernel=kernel))
            done += 1
    return done


def _kernel(node: Node) -> Kernel[Any]:
    return cast("KernelOp", node.op).kernel


def _epilogue(node: Node) -> Epilogue | None:
    found = getattr(node.op.kernel, "epilogue", None) if isinstance(node.op, KernelOp) else None
    return found if isinstance(found, Epilogue) else None


def _with(kernel: Kernel[Any], epilogue: Epilogue) -> Kernel[Any]:
    return replace(cast("Any", kernel), epilogue=epilogue)


def _key(c: Const) -> tuple[str, DType]:
    """Return what tells constants apart, zeros of both signs too."""
    return repr(c.value), c.type


def _constants(expr: Expr) -> dict[int, Const]:
    """Find the constants that may be read from memory, by `id`: not those of clamps, which have instructions."""
    bounds = {id(x) for e in walk(expr) if isinstance(e, Bin) and e.op in ("min", "max") for x in e.parts}
    return {id(e): e for e in walk(expr) if isinstance(e, Const) and e.dtype != boolean and id(e) not in bounds}


def _distinct(expr: Expr) -> dict[tuple[str, DType], Const]:
    return {_key(c): c for c in _constants(expr).values()}


def _form(node: Node, epilogue: Epilogue) -> tuple[str, ...]:
    """Describe an epilogue without the values of its `_constants`, and without a clamp that may be read."""
    expr = _clamped(node, epilogue).base
    places = {key: f"constant {k}" for k, key in enumerate(_distinct(expr))}
    within = _constants(expr)
    form = steps(expr, lambda c: places[_key(c)] if id(c) in within else repr(c))
    return ("clamped", *form) if _has_long_sums(node, epilogue) else tuple(form)


def _has_long_sums(node: Node, epilogue: Epilogue) -> bool:
    """Tell whether each result is a sum of many products of f32."""
    op = cast("KernelOp", node.op)
    sizes = dict(zip(op.kernel.sizes, map(constant_of, op.sizes), strict=True))
    return epilogue.dtype == f32 and (sizes.get("k", sizes.get("ic")) or 0) >= LONG


def _clamped(node: Node, epilogue: Epilogue) -> Clamped:
    """Take an epilogue's last clamp apart, where its bounds may be read."""
    found = Clamped(epilogue.expr)
    if not _has_long_sums(node, epilogue):
        return found
    while isinstance(found.base, Bin) and found.base.op in ("min", "max"):
        a, b = found.base.parts
        bound, base = (a, b) if isinstance(a, Const) else (b, a)
        name = "low" if found.base.op == "max" else "high"
        if not isinstance(bound, Const) or float(bound.value) != bound.value or getattr(found, name) is not None:
            break
        more = replace(found, base=base, **{name: bound})
        if more.low is not None and more.high is not None and float(more.low.value) > float(more.high.value):
            break  # which of them comes first decides
        found = more
    return found


def _unite(graph: Graph, nodes: Iterable[Node], made: Shared) -> int:
    """Let nodes whose kernels have equal forms read the constants, and the bounds, in which these differ."""
    found = [(node, _clamped(node, epilogue)) for node in nodes if (epilogue := _epilogue(node))]
    rows = [list(_distinct(clamped.base).values()) for _, clamped in found]
    differ = [k for k, values in enumerate(zip(*rows, strict=True)) if len({*map(_key, values)}) > 1]
    low, high = ({_bound(getattr(c, name)) for _, c in found} for name in ("low", "high"))
    if not differ and len(low) == len(high) == 1:
        return 0
    for (node, clamped), constants in zip(found, rows, strict=True):
        if len(low) > 1 and clamped.low is None:
            clamped = replace(clamped, low=Const(-math.inf, f32))
        if len(high) > 1 and clamped.high is None:
            clamped = replace(clamped, high=Const(math.inf, f32))
        _read(graph, node, clamped, [constants[k] for k in differ], (len(high) > 1, len(low) > 1), made)
    return len(found)


def _bound(c: Const | None) -> tuple[str, DType] | None:
    return None if c is None else _key(c)


def _read(
    graph: Graph, node: Node, clamped: Clamped, constants: list[Const], bounds_read: tuple[bool, bool], made: Shared
) -> None:
    """Replace constants of an epilogue, and its upper and lower bound if it reads them, by operands."""
    epilogue, op = _epilogue(node), cast("KernelOp", node.op)
    assert epilogue is not None
    first = len(epilogue.slots)
    slots, within = {_key(c): slot(first + k, c.type) for k, c in enumerate(constants)}, _constants(clamped.base)
    expr = replaced(clamped.base, lambda e: slots.get(_key(e)) if isinstance(e, Const) and id(e) in within else None)
    bounds: set[int] = set()
    for kind, bound, is_read in zip(("min", "max"), (clamped.high, clamped.low), bounds_read, strict=True):
        if bound is None:
            continue
        number = first + len(constants)
        expr = Bin(kind, expr, slot(number, bound.type) if is_read else bound)
        if is_read:
            bounds.add(number)
            constants = [*constants, bound]
    scalars: list[Axes] = ["scalar"] * len(constants)
    changed = replace(epilogue, expr=expr, slots=(*epilogue.slots, *scalars), bounds=frozenset(bounds))
    kernel = _with(op.kernel, changed)
    place = [name for name, _ in kernel.pointers].index(f"s{first}")
    sizes = dict.fromkeys(kernel.sizes, index(0)) | dict(zip(op.kernel.sizes, op.sizes, strict=True))
    values = [_value(graph, c, made) for c in constants]
    starts = [index(0)] * len(constants)
    part_of = None if op.part_of is None else op.part_of + len(constants)
    operands = (*op.starts[:place], *starts, *op.starts[place:])
    called = replace(op, kernel=kernel, sizes=kernel.order(**sizes), starts=operands, part_of=part_of)
    graph.set_op(node, called, [*node.inputs[:place], *values, *node.inputs[place:]])


def _value(graph: Graph, constant: Const, made: Shared) -> Value:
    key = _key(constant)
    if key not in made:
        made[key] = graph.add_constant(np.array([constant.value], constant.type.numpy), "epilogue")
    return made[key]
