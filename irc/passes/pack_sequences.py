"""Sequences, optional values and maps become tensors, for C (docs/adr/0022-regions-and-sequences.md, 0026-maps.md).

A sequence is two tensors: the shapes of its elements, a row each, and their items, one after the other.  A value
that may be absent is a boolean, whether it is there, and the tensors of the value.  A map is its keys and their values;
so is a sequence of maps with equal keys, with a row of values for each.  What operations on sequences do is
arithmetic on these, whose sizes the run tells like others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from irc.diagnostics import Problem, Sink
from irc.diagnostics.codes import lowering as codes
from irc.ir.dim import Dim
from irc.ir.graph import Constant, Graph, Node, Value
from irc.ir.types import DType, MapType, OptionalType, SequenceType, TensorType, Type, UnknownRank, boolean, i64
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_i64, as_scalar, as_vector
from irc.opdef.regions import MADE
from irc.opdef.run_sizes import TO_THE_END
from irc.ops.control import If, Loop
from irc.ops.layout import Identity, normal_axis
from irc.ops.maps import CastMap, DictVectorizer, ZipMap
from irc.ops.optional import Optional, OptionalGetElement, OptionalHasElement
from irc.ops.sequence import (
    ConcatFromSequence,
    SequenceAt,
    SequenceConstruct,
    SequenceEmpty,
    SequenceErase,
    SequenceInsert,
    SequenceLength,
    SplitToSequence,
    element_of,
)
from irc.passes.list_sequences import known_parts

PACKED = "packed values"
"""Key in a graph's extras: the inputs and the outputs that the model has, each with the tensors that stand for it."""
Packed = tuple[Value, list[Value]]


def run(graph: Graph, sink: Sink) -> None:
    """Replace, in place, every sequence, optional value and map by tensors, in regions too."""
    if not any(_concerns(n) for each in graph.nested() for n in each.nodes) and not any(map(_is_packed, graph.inputs)):
        return
    packer = _Packer(graph, sink)
    given: list[Packed] = []
    for value in graph.inputs:
        with sink.catching(value.loc):
            given.append((value, packer.unpacked_input(value)))
    if sink.errors:
        return
    packer.nodes()
    made: list[Packed] = []
    for value in graph.outputs:
        with sink.catching(value.loc):
            made.append((value, packer.parts(value)))
    graph.inputs = [v for _, parts in given for v in parts]
    graph.outputs = [v for _, parts in made for v in parts]
    graph.extras[PACKED] = (given, made)
    graph.prune()


def _is_packed(value: Value) -> bool:
    return isinstance(value.type, SequenceType | OptionalType | MapType)


def _concerns(node: Node) -> bool:
    """Tell whether a node takes or makes what is to be packed, or asks whether its operand is there."""
    packed = any(_is_packed(v) for v in (*node.operands, *node.outputs))
    return packed or isinstance(node.op, OptionalHasElement | OptionalGetElement)


def _rank(type: SequenceType) -> int:
    """Find the rank of a sequence's elements, 0 if there are none and nothing says it.  Raises Problem."""
    element = type.element
    assert isinstance(element, TensorType)
    if element.shape is None and not type.empty:
        raise UnknownRank(element)
    return len(element.shape or ())


def _is_empty(type: Type | None) -> bool:
    """Tell whether a type is that of an empty sequence, which may be absent."""
    inner = type.element if isinstance(type, OptionalType) else type
    return isinstance(inner, SequenceType) and inner.empty


class _Packer:
    """Packs the values of one graph."""

    def __init__(self, graph: Graph, sink: Sink) -> None:
        self.graph, self.sink = graph, sink
        self.known: dict[Value, list[Value]] = {}

    def unpacked_input(self, value: Value) -> list[Value]:
        """Make the inputs of a graph that stand for one of it.  Raises Problem."""
        if not _is_packed(value):
            return [value]
        self.known[value] = self._fresh(value.name, value.type)
        return self.known[value]

    def _fresh(self, name: str, type: Type | None) -> list[Value]:
        """Make values, of sizes of their own, that stand for one of that type."""
        if isinstance(type, OptionalType):
            return [
                self.graph.new_value(f"{name}/present", TensorType.of(boolean, ())),
                *self._fresh(name, type.element),
            ]
        if isinstance(type, MapType) and isinstance(type.value, TensorType):
            size = Dim.fresh("keys")
            kinds = {"keys": type.key, "values": type.value.dtype}
            return [self.graph.new_value(f"{name}/{part}", TensorType.of(t, (size,))) for part, t in kinds.items()]
        if isinstance(type, MapType):
            raise Problem(codes.UNSUPPORTED_TYPE, value=name, type=type)
        if isinstance(type, SequenceType):
            element = type.element
            if not isinstance(element, TensorType):
                raise Problem(codes.UNSUPPORTED_TYPE, value=name, type=type)
            shapes = TensorType.of(i64, (Dim.fresh("elements"), _rank(type)))
            data = TensorType.of(element.dtype, (Dim.fresh("items"),))
            return [self.graph.new_value(f"{name}/shapes", shapes), self.graph.new_value(f"{name}/data", data)]
        return [self.graph.new_value(name, type)]

    def parts(self, value: Value, wanted: Type | None = None) -> list[Value]:
        """Find the tensors that stand for a value; an empty sequence is of the wanted rank."""
        found = self.known.get(value, [value])
        if value.type is None or not _is_empty(value.type):
            return found
        nothing = self._nothing(wanted or value.type)
        return [found[0], *nothing[1:]] if isinstance(value.type, OptionalType) else nothing

    def _nothing(self, type: Type) -> list[Value]:
        """Make the parts of an empty sequence, or of a value that is absent."""
        b = Builder(self.graph, "nothing")
        if isinstance(type, OptionalType):
            return [b.const(False, boolean), *self._nothing(type.element)]
        if isinstance(type, SequenceType):
            assert isinstance(type.element, TensorType)
            shapes = np.zeros((0, _rank(type)), np.int64)
            return [b.const(shapes), self._zeros(b, type.element.dtype, (0,))]
        assert isinstance(type, TensorType)
        return [self._zeros(b, type.dtype, tuple(d.const or 0 for d in type.dims()))]

    def _zeros(self, b: Builder, dtype: DType, shape: tuple[int, ...]) -> Value:
        return self.graph.add_constant(Constant.of(np.zeros(shape, dtype.numpy), dtype), "nothing")

    def nodes(self) -> None:
        """Replace the nodes that have such values, in their order."""
        for node in self.graph.nodes:
            inside = (n for region in node.op.regions for each in region.nested() for n in each.nodes)
            if not _concerns(node) and not any(map(_concerns, inside)):
                continue
            with self.sink.catching(node.loc):
                results = self._node(node)
                for old, parts in zip(node.outputs, results, strict=True):
                    if _is_packed(old):
                        self.known[old] = parts
                    else:
                        parts[0].name, parts[0].names, parts[0].extras = old.name, old.names, old.extras
                        self.graph.replace_uses(old, parts[0])

    def _node(self, node: Node) -> list[list[Value]]:
        """Make what stands for the results of a node.  Raises Problem."""
        b = Builder(self.graph, node.name or node.op.name, node.loc, layers=node.layers)
        if isinstance(node.op, If):
            return self._if(b, node, node.op)
        if isinstance(node.op, Loop):
            return self._loop(b, node, node.op)
        rule = RULES.get(type(node.op))
        if rule is None:
            found = next(v for v in (*node.operands, *node.outputs) if _is_packed(v))
            raise Problem(codes.UNSUPPORTED_TYPE, value=found.name, type=found.type)
        return [rule(self, b, node)]

    # ------------------------------------------------------------------- regions
    def _inside(self, region: Graph, results: Sequence[Type]) -> tuple[_Packer, list[list[Value]]]:
        """Pack a region in place.  Returns its packer and the values that stand for each of its inputs."""
        inner = _Packer(region, self.sink)
        inputs = [inner.unpacked_input(v) for v in region.inputs]
        inner.nodes()
        outputs = [inner.parts(v, type) for v, type in zip(region.outputs, results, strict=True)]
        region.inputs = [v for parts in inputs for v in parts]
        region.outputs = [v for parts in outputs for v in parts]
        region.prune()
        return inner, inputs

    def _if(self, b: Builder, node: Node, op: If) -> list[list[Value]]:
        condition, *captures = node.operands
        types = [v.type for v in node.outputs]
        for region in op.regions:
            self._inside(region, types)  # type: ignore[arg-type]
        given = [part for v in captures for part in self.parts(v)]
        return self._grouped(b.add_all(If(op.then, op.otherwise), condition, *given), types)

    def _loop(self, b: Builder, node: Node, op: Loop) -> list[list[Value]]:
        count, condition = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
        operands = [v for v in node.inputs[2:] if v is not None]
        types = [v.type for v in node.outputs]
        carried = types[: op.carried]
        stacked = [v.type for v in op.body.outputs[1 + op.carried :]]
        _, inputs = self._inside(op.body, [TensorType.of(boolean, ()), *carried, *stacked])  # type: ignore[list-item]
        op.body.extras.pop(MADE, None)
        wanted = [*carried, *(v.type for v in operands[op.carried :])]
        given = [part for v, type in zip(operands, wanted, strict=True) for part in self.parts(v, type)]
        n = sum(len(parts) for parts in inputs[2 : 2 + op.carried])
        return self._grouped(b.add_all(replace(op, carried=n), count, condition, *given), types)

    def _grouped(self, values: Sequence[Value], types: Sequence[Type | None]) -> list[list[Value]]:
        """Divide results among the values that they stand for."""
        left = list(values)
        found: list[list[Value]] = []
        for type in types:
            n = _count(type)
            found.append(left[:n])
            del left[:n]
        return found

    # ---------------------------------------------------------------- sequences
    def construct(self, b: Builder, node: Node) -> list[Value]:
        return _construct(b, list(node.operands))

    def insert(self, b: Builder, node: Node) -> list[Value]:
        sequence, x, position = (*node.inputs, None)[:3]
        assert sequence is not None and x is not None
        shapes, data = self.parts(sequence, SequenceType(x.tensor))
        row, items = _construct(b, [x])
        length, place = b.Concat(shapes, row, axis=0), b.Concat(data, items, axis=0)
        if position is None:
            return [length, place]
        p = _from_start(b, position, shapes)
        start = b.Gather(_starts(b, shapes), p, b.const(0))
        rows = _moved(b, p, b.const([1]), _size(b, shapes))
        elements = _moved(b, start, _size(b, items), _size(b, data))
        return [b.Gather(length, rows, b.const(0)), b.Gather(place, elements, b.const(0))]

    def erase(self, b: Builder, node: Node) -> list[Value]:
        sequence, position = (*node.inputs, None)[:2]
        assert sequence is not None
        shapes, data = self.parts(sequence)
        p = _from_start(b, b.const(-1) if position is None else position, shapes)
        starts = _starts(b, shapes)
        ends = b.Add(p, b.const(1))
        return [
            _without(b, shapes, p, ends),
            _without(b, data, b.Gather(starts, p, b.const(0)), b.Gather(starts, ends, b.const(0))),
        ]

    def at(self, b: Builder, node: Node) -> list[Value]:
        sequence, position = node.operands
        shapes, data = self.parts(sequence)
        return [_element(b, shapes, data, _from_start(b, position, shapes), node.outputs[0].shape)]

    def length(self, b: Builder, node: Node) -> list[Value]:
        (sequence,) = node.operands
        if isinstance(sequence.type, SequenceType) and sequence.type.empty:
            return [b.const(0)]
        return [b.Reshape(_size(b, self.parts(sequence)[0]), [])]

    def concat(self, b: Builder, node: Node) -> list[Value]:
        assert isinstance(node.op, ConcatFromSequence)
        (sequence,) = node.operands
        shapes, data = self.parts(sequence)
        rank = len(element_of("ConcatFromSequence", sequence).dims())
        axis = normal_axis("ConcatFromSequence", node.op.axis, rank + node.op.new_axis)
        first = b.Gather(shapes, b.const([0]), b.const(0))  # a row
        if node.op.new_axis:
            sizes = b.Concat(_size(b, shapes), b.Reshape(first, [-1]), axis=0)
            whole = b.Reshape(data, sizes, special_zero=False)
            order = [*range(1, axis + 1), 0, *range(axis + 1, rank + 1)]
            return [b.Transpose(whole, order) if axis else whole]
        total = as_vector(b, b.ReduceSum(b.Slice(shapes, [axis], [axis + 1], [1]), [0, 1], keepdims=False))
        before = b.Slice(b.Reshape(first, [-1]), [0], [axis], [0])
        behind = b.Slice(b.Reshape(first, [-1]), [axis + 1], [TO_THE_END], [0])
        sizes = b.Concat(before, total, behind, axis=0)
        if axis == 0:
            return [b.Reshape(data, sizes, special_zero=False)]
        return [b.Reshape(b.Gather(data, _interleaved(b, shapes, data, axis), b.const(0)), sizes, special_zero=False)]

    def split(self, b: Builder, node: Node) -> list[Value]:
        assert isinstance(node.op, SplitToSequence)
        x, split = (*node.inputs, None)[:2]
        assert x is not None
        parts = known_parts(b, node.op, x, split)
        if parts is not None:
            return _construct(b, parts) if parts else self._nothing(node.outputs[0].type or x.tensor)
        axis = normal_axis("SplitToSequence", node.op.axis, len(x.shape))
        parts_of_axis = _split_rows(b, split, _size(b, x, axis))
        keep = node.op.keepdims or split is not None
        columns: list[Value] = []
        for k in range(len(x.shape)):
            if k == axis and keep:
                columns.append(b.Unsqueeze(parts_of_axis, [1]))
            elif k != axis:
                columns.append(
                    b.Expand(b.Unsqueeze(_size(b, x, k), [1]), b.Concat(b.Shape(parts_of_axis), b.const([1]), axis=0))
                )
        shapes = b.Concat(*columns, axis=1) if columns else _without_axes(b, parts_of_axis)
        items = b.Reshape(x, [-1])
        if axis == 0:
            return [shapes, items]
        inner = b.ReduceProd(b.Slice(b.Shape(x), [axis + 1], [TO_THE_END], [0]), [0], keepdims=True)
        whole = b.Mul(inner, _size(b, x, axis))
        return [shapes, b.Gather(items, _divided(b, shapes, items, parts_of_axis, whole, inner), b.const(0))]

    # ------------------------------------------------------------------ optionals
    def optional(self, b: Builder, node: Node) -> list[Value]:
        x = node.inputs[0] if node.inputs else None
        kind = node.outputs[0].type
        assert isinstance(kind, OptionalType)
        return self._nothing(kind) if x is None else [b.const(True, boolean), *self.parts(x, kind.element)]

    def has(self, b: Builder, node: Node) -> list[Value]:
        x = node.inputs[0] if node.inputs else None
        if x is not None and isinstance(x.type, OptionalType):
            return [b.Identity(self.parts(x)[0])]
        return [b.const(x is not None, boolean)]

    def get(self, b: Builder, node: Node) -> list[Value]:
        (x,) = node.operands
        parts = self.parts(x)
        parts = parts[1:] if isinstance(x.type, OptionalType) else parts
        return [b.Identity(parts[0])] if len(parts) == 1 else parts

    # ----------------------------------------------------------------------- maps
    def of_map(self, b: Builder, node: Node) -> list[Value]:
        assert isinstance(node.op, ZipMap | CastMap | DictVectorizer)
        return node.op.packed(b, *self.parts(next(node.operands)))

    def same(self, b: Builder, node: Node) -> list[Value]:
        return self.parts(next(node.operands))

    def empty(self, b: Builder, node: Node) -> list[Value]:
        return []  # made where its rank is known


RULES: dict[type, Callable[[_Packer, Builder, Node], list[Value]]] = {
    SequenceEmpty: _Packer.empty,
    SequenceConstruct: _Packer.construct,
    SequenceInsert: _Packer.insert,
    SequenceErase: _Packer.erase,
    SequenceAt: _Packer.at,
    SequenceLength: _Packer.length,
    ConcatFromSequence: _Packer.concat,
    SplitToSequence: _Packer.split,
    Optional: _Packer.optional,
    OptionalHasElement: _Packer.has,
    OptionalGetElement: _Packer.get,
    Identity: _Packer.same,
    ZipMap: _Packer.of_map,
    CastMap: _Packer.of_map,
    DictVectorizer: _Packer.of_map,
}


def _count(type: Type | None) -> int:
    """Count the tensors that stand for a value of that type."""
    if isinstance(type, OptionalType):
        return 1 + _count(type.element)
    return 2 if isinstance(type, SequenceType | MapType) else 1


def _construct(b: Builder, xs: Sequence[Value]) -> list[Value]:
    rows = [b.Unsqueeze(b.Shape(x), [0]) for x in xs]
    items = [b.Reshape(x, [-1]) for x in xs]
    if len(xs) == 1:
        return [rows[0], items[0]]
    return [b.Concat(*rows, axis=0), b.Concat(*items, axis=0)]


def _size(b: Builder, x: Value, axis: int = 0) -> Value:
    """Compute a size of a tensor, as a vector of one element.

    Not from the symbols in its type: those of what enters a region change with the graph around it.
    """
    return b.Slice(b.Shape(x), [axis], [axis + 1], [0])


def _from_start(b: Builder, position: Value, shapes: Value) -> Value:
    """Count a position of an element from the start, as a scalar."""
    p = as_scalar(b, as_i64(b, position))
    return b.Where(b.Less(p, b.const(0)), b.Add(p, as_scalar(b, _size(b, shapes))), p)


def _starts(b: Builder, shapes: Value) -> Value:
    """Compute where each element starts, and behind them where the last one ends."""
    ends = b.CumSum(b.ReduceProd(shapes, [1], keepdims=False), b.const(0))
    return b.Concat(b.const([0]), ends, axis=0)


def _iota(b: Builder, size: Value) -> Value:
    """Count from 0 to a size, which is a vector of one element."""
    return b.Sub(b.CumSum(b.Expand(b.const([1]), size), b.const(0)), b.const(1))


def _moved(b: Builder, place: Value, count: Value, end: Value) -> Value:
    """Compute the indices that put `count` items, which start at `end`, at a place in front of others."""
    j = _iota(b, b.Add(end, count))
    there = b.Add(end, b.Sub(j, place))
    inside = b.Less(j, b.Add(place, count))
    return b.Where(b.Less(j, place), j, b.Where(inside, there, b.Sub(j, count)))


def _without(b: Builder, x: Value, start: Value, end: Value) -> Value:
    """Leave out a part of a tensor along its first axis."""
    before = b.Slice(x, b.const([0]), as_vector(b, start), b.const([0]))
    return b.Concat(before, b.Slice(x, as_vector(b, end), b.const([TO_THE_END]), b.const([0])), axis=0)


def _element(b: Builder, shapes: Value, data: Value, place: Value, shape: Sequence[Dim]) -> Value:
    """Take an element out of a sequence; the sizes in `shape` that are numbers are known."""
    row = b.Gather(shapes, place, b.const(0))
    starts = _starts(b, shapes)
    start = b.Gather(starts, place, b.const(0))
    end = b.Gather(starts, b.Add(place, b.const(1)), b.const(0))
    items = b.Slice(data, as_vector(b, start), as_vector(b, end), b.const([0]))
    return b.Reshape(items, b.dims(shape) if all(d.is_const for d in shape) else row, special_zero=False)


def _interleaved(b: Builder, shapes: Value, data: Value, axis: int) -> Value:
    """Compute which items, in order, concatenate the elements along an axis that is not the first."""
    starts = _starts(b, shapes)
    inner = b.ReduceProd(b.Slice(shapes, [axis], [TO_THE_END], [1]), [1], keepdims=False)
    ends = b.CumSum(inner, b.const(0))
    whole = b.Max(b.ReduceSum(inner, [0], keepdims=True), b.const(1))
    j = _iota(b, _size(b, data))
    front = b.Div(j, whole)
    place = b.Sub(j, b.Mul(front, whole))
    owner = _owner(b, place, ends)
    local = b.Sub(place, _at(b, b.Sub(ends, inner), owner))
    return b.Add(_at(b, starts, owner), b.Add(b.Mul(front, _at(b, inner, owner)), local))


def _divided(b: Builder, shapes: Value, data: Value, lengths: Value, whole: Value, step: Value) -> Value:
    """Compute which items, in order, are those of the parts of an axis that is not the first.

    whole: the items of one position on the axes in front; step: of one on the axis.
    """
    sizes = b.ReduceProd(shapes, [1], keepdims=False)
    ends = b.CumSum(sizes, b.const(0))
    j = _iota(b, _size(b, data))
    owner = _owner(b, j, ends)
    local = b.Sub(j, _at(b, b.Sub(ends, sizes), owner))
    inner = b.Mul(lengths, step)
    first = b.Sub(b.CumSum(inner, b.const(0)), inner)
    width = b.Max(_at(b, inner, owner), b.const(1))
    front = b.Div(local, width)
    rest = b.Sub(local, b.Mul(front, width))
    return b.Add(b.Mul(front, whole), b.Add(_at(b, first, owner), rest))


def _without_axes(b: Builder, parts: Value) -> Value:
    """Make the shapes of so many scalars."""
    return b.Expand(b.const(np.zeros((1, 0), np.int64)), b.Concat(b.Shape(parts), b.const([0]), axis=0))


def _owner(b: Builder, places: Value, ends: Value) -> Value:
    """Find in which of the parts that end there each place lies."""
    passed = b.GreaterOrEqual(b.Unsqueeze(places, [1]), ends)
    return b.ReduceSum(b.Cast(passed, to=i64), [1], keepdims=False)


def _at(b: Builder, vector: Value, places: Value) -> Value:
    return b.Gather(vector, places, b.const(0))


def _split_rows(b: Builder, split: Value | None, whole: Value) -> Value:
    """Compute the sizes of the parts that an axis is split into."""
    if split is not None and split.rank:
        return as_i64(b, split)
    step = b.const([1]) if split is None else b.Max(b.Reshape(as_i64(b, split), [1]), b.const([1]))
    left = b.Sub(whole, b.Mul(_iota(b, whole), step))
    count = b.Div(b.Sub(b.Add(whole, step), b.const([1])), step)
    return b.Slice(b.Min(left, step), b.const([0]), count, b.const([0]))
