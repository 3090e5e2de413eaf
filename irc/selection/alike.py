"""Kernels that differ in constants of their epilogues become one kernel, which reads these constants.

Scales of quantized tensors and factors of learnt affine layers differ from layer to layer: as literals they would make
a kernel of its own of every layer, and compiling kernels is most of the time of compiling a model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import numpy as np

from irc.expr import Bin, Const, Expr, children, index
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import DType, boolean
from irc.kernels.core.base import Kernel
from irc.kernels.core.epilogue import Axes, Epilogue, acc, slot, steps
from irc.selection.selector import KernelOp
from irc.traversal import replaced, walk

Shared = dict[tuple[str, DType], Value]
"""The values of constants that are read, each once."""


def share_kernels(graph: Graph) -> int:
    """Make kernels equal that differ in constants of their epilogues.  Returns how many nodes were changed."""
    alike: dict[object, list[Node]] = {}
    for node in graph.nodes:
        epilogue = _epilogue(node)
        if epilogue is not None and (form := _form(epilogue.expr)):
            kernel = _with(cast("KernelOp", node.op).kernel, replace(epilogue, expr=acc(epilogue.dtype)))
            alike.setdefault((kernel, form), []).append(node)
    made: Shared = {}
    return sum(_unite(graph, nodes, made) for nodes in alike.values())


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
    bounds = {id(x) for e in walk(expr) if isinstance(e, Bin) and e.op in ("min", "max") for x in children(e)}
    return {id(e): e for e in walk(expr) if isinstance(e, Const) and e.dtype != boolean and id(e) not in bounds}


def _distinct(expr: Expr) -> dict[tuple[str, DType], Const]:
    return {_key(c): c for c in _constants(expr).values()}


def _form(expr: Expr) -> tuple[str, ...]:
    """Describe an expression without the values of its `_constants`; nothing if it has none."""
    places = {key: f"constant {k}" for k, key in enumerate(_distinct(expr))}
    within = _constants(expr)
    return tuple(steps(expr, lambda c: places[_key(c)] if id(c) in within else repr(c))) if places else ()


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
