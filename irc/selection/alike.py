"""Kernels that differ in little become one: compiling kernels is most of the time of compiling a model.

Constants of epilogues that differ are read from memory: scales of quantized tensors and factors of learnt affine layers
differ from layer to layer, and as literals would make a kernel of its own of every layer.  And where one kernel can do
what another does as well (`Kernel.joined`), there is only that one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from irc.expr import Bin, Const, Expr, index
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import DType, boolean
from irc.kernels.core.base import Kernel
from irc.kernels.core.epilogue import Axes, Epilogue, acc, slot, steps
from irc.selection.selector import KernelOp
from irc.traversal import replaced, walk

Shared = dict[tuple[str, DType], Value]
"""The values of constants that are read, each once."""


def share_kernels(graph: Graph) -> int:
    """Make kernels equal that differ in constants of their epilogues, or that one kernel stands for.

    Returns how many nodes were changed.
    """
    alike: dict[tuple[str, ...], list[_Alike]] = {}
    for node in graph.nodes:
        epilogue = _epilogue(node)
        if epilogue is not None:
            kernel = _with(_kernel(node), replace(epilogue, expr=acc(epilogue.dtype)))
            _add(alike.setdefault(_form(epilogue.expr), []), kernel, node)
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


def _form(expr: Expr) -> tuple[str, ...]:
    """Describe an expression without the values of its `_constants`."""
    places = {key: f"constant {k}" for k, key in enumerate(_distinct(expr))}
    within = _constants(expr)
    return tuple(steps(expr, lambda c: places[_key(c)] if id(c) in within else repr(c)))


def _unite(graph: Graph, nodes: Iterable[Node], made: Shared) -> int:
    """Let nodes whose kernels have equal forms read the constants in which these differ."""
    epilogues = [(node, epilogue) for node in nodes if (epilogue := _epilogue(node))]
    rows = [list(_distinct(epilogue.expr).values()) for _, epilogue in epilogues]
    differ = [k for k, values in enumerate(zip(*rows, strict=True)) if len({*map(_key, values)}) > 1]
    if not differ:
        return 0
    for (node, epilogue), constants in zip(epilogues, rows, strict=True):
        _read(graph, node, epilogue, [constants[k] for k in differ], made)
    return len(epilogues)


def _read(graph: Graph, node: Node, epilogue: Epilogue, constants: list[Const], made: Shared) -> None:
    """Replace constants of an epilogue by operands."""
    first, op = len(epilogue.slots), cast("KernelOp", node.op)
    slots, within = {_key(c): slot(first + k, c.type) for k, c in enumerate(constants)}, _constants(epilogue.expr)
    expr = replaced(epilogue.expr, lambda e: slots.get(_key(e)) if isinstance(e, Const) and id(e) in within else None)
    scalars: list[Axes] = ["scalar"] * len(constants)
    kernel = _with(op.kernel, replace(epilogue, expr=expr, slots=(*epilogue.slots, *scalars)))
    place = [name for name, _ in kernel.pointers].index(f"s{first}")
    sizes = dict.fromkeys(kernel.sizes, index(0)) | dict(zip(op.kernel.sizes, op.sizes, strict=True))
    values = [_value(graph, c, made) for c in constants]
    starts = [index(0)] * len(constants)
    changed = replace(
        op,
        kernel=kernel,
        sizes=kernel.order(**sizes),
        starts=(*op.starts[:place], *starts, *op.starts[place:]),
        part_of=None if op.part_of is None else op.part_of + len(constants),
    )
    graph.set_op(node, changed, [*node.inputs[:place], *values, *node.inputs[place:]])


def _value(graph: Graph, constant: Const, made: Shared) -> Value:
    key = _key(constant)
    if key not in made:
        made[key] = graph.add_constant(np.array([constant.value], constant.type.numpy), "epilogue")
    return made[key]
