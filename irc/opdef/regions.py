"""Regions: the graphs that operations like If and Loop run, as attributes of these operations.

A region uses nothing but its own inputs and constants: what an ONNX body takes from the graph around it is an operand
of the operation, and an input of the region.  So a region is a graph like any other for every pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from irc.diagnostics import Problem
from irc.diagnostics.codes import operation as codes
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Value
from irc.ir.types import OptionalType, SequenceType, TensorType, Type, dynamic
from irc.opdef.builder import Builder, evaluate, infer_node, keep

MADE = "sizes of its own"
"""Key in a region's extras: names of symbols that stand for sizes which differ from run to run of the region."""


class Body(Protocol):
    """A graph in a node of a file, from which a row's `read` makes a region (`irc.border.bodies`).

    `captures` are the values of the graph around it that it uses; `inputs` and `outputs` are what it declares.
    """

    captures: list[Value]

    @property
    def inputs(self) -> Sequence[object]: ...
    @property
    def outputs(self) -> Sequence[object]: ...
    @property
    def may_be_left_out(self) -> bool:
        """Whether what was read is wrong, and one beside it may do instead."""
        ...

    def leave_out(self) -> None:
        """Read the node without it."""
        ...

    def read(self, types: Sequence[Type], captured: Sequence[Value]) -> Graph:
        """Read it, with inputs of these types, then one for each captured value.  Raises Problem."""
        ...


def infer_region(region: Graph) -> list[Type]:
    """Infer the types in a region from those of its inputs.  Returns its outputs' types.  Raises Problem."""
    for node in region.nodes:
        before = [v.type for v in node.outputs]
        infer_node(node)
        for value, known in zip(node.outputs, before, strict=False):
            keep(value, known)
    return [v.type or TensorType(dynamic, None) for v in region.outputs]


def capture(inputs: Sequence[Value], operands: Sequence[Value | None]) -> None:
    """Give inputs of a region the types and contents of the values that they stand for."""
    for inner, outer in zip(inputs, operands, strict=True):
        if outer is not None:
            inner.type, inner.contents, inner.assumed = outer.type, outer.contents, outer.assumed


def join(op: str, a: Type, b: Type, hint: str, made: set[str] | None = None) -> Type:
    """Find the type that values of both types have; sizes that differ are new symbols.  Raises Problem.

    made: the names of symbols that stand for any size; new ones, which nothing bounds then, are added.
    """
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        dtype = b.dtype if a.dtype == dynamic else a.dtype
        if b.dtype not in (dtype, dynamic):
            raise Problem(codes.REGION_TYPES_DIFFER, op=op, first=a, second=b)
        if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
            return TensorType(dtype, None)
        return TensorType(dtype, tuple(_size(x, y, hint, made) for x, y in zip(a.shape, b.shape, strict=True)))
    if isinstance(a, SequenceType) and isinstance(b, SequenceType):
        if a.empty or b.empty:
            return b if a.empty else a
        return SequenceType(join(op, a.element, b.element, hint, made))
    if isinstance(a, OptionalType) or isinstance(b, OptionalType):
        inner = [t.element if isinstance(t, OptionalType) else t for t in (a, b)]
        return OptionalType(join(op, inner[0], inner[1], hint, made))
    raise Problem(codes.REGION_TYPES_DIFFER, op=op, first=a, second=b)


def _size(a: Dim, b: Dim, hint: str, made: set[str] | None) -> Dim:
    if a == b:
        return a
    if made is None:
        return Dim.fresh(hint, a.maximum(b))
    symbol = a.symbol_alone()
    if symbol is not None and symbol.name in made:
        return a
    new = Dim.fresh(hint)
    made.update(s.name for s in new.symbols())
    return new


def run_region(region: Graph, arguments: Sequence[Any]) -> list[Any]:
    """Run a region by the references of its operations.  Returns its outputs."""
    return evaluate(region, dict(zip(region.inputs, arguments, strict=True)))


def splice(b: Builder, region: Graph, operands: Sequence[Value]) -> list[Value]:
    """Add a region's nodes to a builder's graph, over these operands.  Returns what its outputs are there.

    The nodes keep their names and places; the region must not be used after that.
    """
    twins: dict[Value, Value] = dict(zip(region.inputs, operands, strict=True))

    def of(value: Value) -> Value:
        if value not in twins:
            if value.const is not None:
                twins[value] = b.graph.add_constant(value.const, value.name, loc=value.loc)
            else:
                twins[value] = b.graph.new_value(
                    value.name, value.type, contents=value.contents, assumed=value.assumed, loc=value.loc
                )
        return twins[value]

    for node in region.nodes:
        inputs = [None if v is None else of(v) for v in node.inputs]
        made = b.graph.add_node(
            node.op, inputs, [of(v) for v in node.outputs], node.name, node.loc, b.layers if b.layers else node.layers
        )
        if b.origin is not None:
            made.origin = b.origin
            b.origin.nodes.append(made)
    return [of(v) for v in region.outputs]
