"""`Builder`: adds operations to a graph, inferring types as it goes.

y = b.Mul(x, 6.0)                    scalars and lists become constants of the operands' type
y = b.ReduceMax(x, [1], keepdims=True)
values, places = b.add_all(TopK(axis=1), x, k)

`b.Name(…)` is for operations with one result, so that its type is `Value` without a stub for each operation and
without an import of each family by every other.  What pyright cannot see then, that there is such an operation with
such attributes and one result, tests/opdef/test_builder.py checks for every call in irc.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import numpy as np

from irc.arrays import Array
from irc.diagnostics import NOWHERE, Loc
from irc.ir.dim import Dim
from irc.ir.graph import Constant, Graph, Node, Origin, Value, symbols_of
from irc.ir.literal import AttributeValue
from irc.ir.types import DType, TensorType, Type, dynamic, i64
from irc.opdef.contents import set_contents
from irc.opdef.extent import require_possible
from irc.opdef.forms import Results
from irc.opdef.reference import as_list, run_reference
from irc.opdef.registry import find_op

if TYPE_CHECKING:
    from irc.opdef.base import Op

Operand = Value | int | float | bool | Sequence[int] | Array | None
"""What a Builder takes for an operand; None: absent."""


class Add(Protocol):
    """Add one operation, with its attributes by name.  Returns its result.  Raises Problem."""

    def __call__(self, *operands: Operand, **attributes: object) -> Value: ...


class Builder:
    """Adds nodes to `graph`; each gets `loc`, `origin`, `layers` and a name that starts with `hint`.

    `label` is how messages call the operation that is being read.
    """

    def __init__(
        self,
        graph: Graph,
        hint: str = "",
        loc: Loc = NOWHERE,
        origin: Origin | None = None,
        label: str = "",
        layers: tuple[str, ...] | None = None,
    ) -> None:
        self.graph, self.hint, self.loc, self.origin, self.label = graph, hint, loc, origin, label
        self.layers = layers

    def __getattr__(self, name: str) -> Add:
        """`b.Name(*operands, **attributes)` adds the canonical operation of that name, which has one result."""
        if not name[0].isupper():
            raise AttributeError(name)
        return self.operation(name)

    def operation(self, name: str) -> Add:
        """The function that adds the canonical operation of that name, which has one result."""
        cls = find_op(name)

        def add(*operands: Operand, **attributes: object) -> Value:
            return self.add(cls(**attributes), *operands)

        return add

    def add(self, op: Op, *operands: Operand) -> Value:
        """Add `op`, which has one result.  Returns it.  Raises Problem."""
        (value,) = self.add_all(op, *operands)
        return value

    def add_all(self, op: Op, *operands: Operand) -> tuple[Value, ...]:
        """Add `op`.  Returns all its results.  Raises Problem."""
        first = next((v for v in operands if isinstance(v, Value)), None)
        inputs = [self._value(v, op, i, first) for i, v in enumerate(operands)]
        while inputs and inputs[-1] is None:
            inputs.pop()
        types = possible_types(op, inputs)
        hint = f"{self.hint}/{op.name}" if self.hint else op.name
        outputs = [self.graph.new_value(hint if i == 0 else f"{hint}.{i}", t) for i, t in enumerate(types)]
        node = self.graph.add_node(op, inputs, outputs, hint, self.loc, self.layers)
        set_contents(node)
        if self.origin is not None:
            node.origin = self.origin
            self.origin.nodes.append(node)
        return node.outputs

    def const(self, data: object, dtype: DType = i64, name: str = "") -> Value:
        """A constant of that element type (floats round, integers wrap)."""
        array = np.asarray(data)
        with np.errstate(all="ignore"):
            array = array.astype(dtype.numpy)
        return self.graph.add_constant(Constant.of(array, dtype), name or f"{self.hint or 'const'}/const")

    def like(self, number: float, value: Value) -> Value:
        """A scalar constant of `value`'s element type."""
        return self.const(number, value.dtype)

    def dims(self, shape: Sequence[Dim | int]) -> Value:
        """A shape as an i64 vector: a constant, or computed from the symbols."""
        if all(Dim.of(d).is_const for d in shape):
            return self.const([int(Dim.of(d)) for d in shape])
        return self.DimVector(dims=tuple(Dim.of(d) for d in shape))

    def _value(self, operand: Operand, op: Op, index: int, first: Value | None) -> Value | None:
        if operand is None or isinstance(operand, Value):
            return operand
        param = op.sig.param(index)
        if param.type in op.sig.variables and first is not None and not isinstance(operand, np.ndarray):
            same = op.sig.inputs and op.sig.param(0).type == param.type
            return self.const(operand, first.dtype if same else i64)
        return self.const(operand, i64) if not isinstance(operand, np.ndarray) else self.graph.add_constant(operand)


def possible_types(op: Op, inputs: Sequence[Value | None]) -> list[Type]:
    """The types of an operation's results.  Raises Problem, also where no memory could hold one."""
    types = op.result_types(inputs)
    for found in types:
        require_possible(op.name, found)
    return types


def infer_node(node: Node) -> dict[str, Dim]:
    """Set the types and contents of a node's results.  Raises Problem; then nothing is changed.

    Sizes that only a run tells keep the names that they had.  Returns what stands for the names inference made up.
    A kernel that has been selected says nothing of types: they stay.
    """
    if not node.op.infers:
        return {}
    types = possible_types(node.op, node.inputs)
    given = symbols_of(v for v in node.inputs if v is not None)
    known = {k: d for k, d in known_by([v.type for v in node.outputs], types).items() if k not in given}
    for value, found in zip(node.outputs, types, strict=False):
        value.type = found.with_shape(d.subs(known) for d in found.dims()) if known and _has_shape(found) else found
    set_contents(node)
    return known


def known_by(before: Sequence[Type | None], after: Sequence[Type | None]) -> dict[str, Dim]:
    """Pair the sizes that only a run tells, which inference names anew each time, with the names that they had."""
    found: dict[str, Dim] = {}
    for old, new in zip(before, after, strict=False):
        if not _has_shape(old) or not _has_shape(new) or len(old.dims()) != len(new.dims()):
            continue
        for a, b in zip(old.dims(), new.dims(), strict=True):
            was, now = a.symbol_alone(), b.symbol_alone()
            if was and now and was.name != now.name and was.is_made_up_like(now):
                bounds = [s.hi for s in (was, now) if s.hi is not None]  # --bound may have given the first
                among = (
                    None
                    if now.among is None or was.among is None
                    else dataclasses.replace(now.among, key=was.among.key)
                )
                symbol = dataclasses.replace(now, name=was.name, hi=min(bounds, default=None), among=among)
                found.setdefault(now.name, Dim({(symbol,): 1}))
    return found


def keep(value: Value, before: Type | None) -> None:
    """Keep what was known of a value's type where inferring it again found nothing."""
    found = value.type
    if not isinstance(before, TensorType) or not isinstance(found, TensorType):
        return
    if found.shape is None and before.shape is not None:
        value.type = TensorType(before.dtype if found.dtype == dynamic else found.dtype, before.shape)
    elif found.dtype == dynamic and before.dtype != dynamic:
        value.type = found.with_dtype(before.dtype)


def _has_shape(type: Type | None) -> TypeGuard[TensorType]:
    return isinstance(type, TensorType) and type.shape is not None


# ------------------------------------------------------------------- decomposition
Rewrite = Callable[..., Results]
"""rewrite(b, op, *operands): says the operation in others."""


def trace(
    op: Op, operands: Sequence[Value | None], rewrite: Rewrite | None = None, builder: type[Builder] = Builder
) -> tuple[Graph, tuple[Value, ...], list[Value]]:
    """`op.decompose` (or `rewrite(b, op, *operands)`) run on fresh inputs.

    The graph, its results and its inputs: one for each operand that is present and not constant.
    """
    assert rewrite or op.decompose is not None, f"{op} cannot be decomposed"
    graph = Graph(op.name)
    twins: list[Value | None] = []
    for value in operands:
        if value is None or value.const is not None:
            twins.append(None if value is None else graph.add_constant(value.const, value.name))  # type: ignore[arg-type]
        else:
            twins.append(graph.add_input(value.name, value.type, contents=value.contents, assumed=value.assumed))
    b = builder(graph)
    found = rewrite(b, op, *twins) if rewrite else op.decompose(b, *twins)  # type: ignore[misc]
    results = tuple(as_list(found))
    graph.outputs = list(results)
    return graph, results, graph.inputs


def evaluate(graph: Graph, feeds: dict[Value, Any]) -> list[Any]:
    """Run a graph by its operations' references; the arrays of its outputs."""
    known: dict[Value, Any] = dict(feeds)

    def of(value: Value | None) -> Any:
        if value is None:
            return None
        return value.const.array if value.const is not None else known[value]

    for node in graph.nodes:
        known.update(zip(node.outputs, run_reference(node, [of(v) for v in node.inputs]), strict=False))
    return [of(v) for v in graph.outputs]


def evaluate_decomposed(op: Op, args: Sequence[Array | None]) -> Any:
    """The reference of an operation that is only decomposed."""
    graph = Graph()
    operands = [None if a is None else graph.add_constant(Constant.of(np.asarray(a))) for a in args]
    traced, results, _ = trace(op, operands)
    arrays = evaluate(traced, {})
    return arrays[0] if len(results) == 1 else tuple(arrays)


def with_fields(op: Op, **changes: AttributeValue) -> Op:
    """The same operation with other attributes."""
    return dataclasses.replace(op, **changes)
