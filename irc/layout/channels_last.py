"""Convolutional regions with the channels last: [batch, *space, channels] in memory, not [batch, channels, *space].

Channels last, a convolution's output channels fill vectors whatever the size of a plane, a 1 × 1 convolution is a
matrix product, and what stands between convolutions (activations, pools, residual sums, concatenations) reads and
writes whole vectors.  In a graph with several, every Conv that is worth a kernel is rewritten; what it feeds is
rewritten too, as long as it has an operand that is channels last.  Transposes are left where a region begins and
ends, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from irc.expr import Expr, IndexFunction, Tensor
from irc.ir.dim import Dim
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, Type, f32, f64, i32
from irc.kernels import Isa
from irc.kernels.integer.problem import SETS
from irc.layout.byte_tables import Lookup
from irc.layout.integer_operands import bytes_of, fits_bytes
from irc.layout.transposed_conv import Interleave
from irc.opdef.base import Array, Op
from irc.opdef.builder import Builder
from irc.opdef.reference import as_list
from irc.opdef.signature import Sig
from irc.opdef.window import spatial, window_padding
from irc.ops.concat import Concat
from irc.ops.conv import Conv
from irc.ops.gather import Gather
from irc.ops.layout import Reshape, Transpose
from irc.ops.pad import Pad
from irc.ops.pool import AveragePool, MaxPool
from irc.ops.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceSum, Reduction
from irc.ops.resize import Resize
from irc.ops.slice import Slice, StridedSlice
from irc.passes import simplify
from irc.passes.replace import replace_value
from irc.selection.layouts import channels_last_pays
from irc.selection.residency import constant_bytes
from irc.selection.selector import worthwhile

T = TypeVar("T")
FOLLOWS = (
    MaxPool
    | AveragePool
    | Concat
    | Slice
    | StridedSlice
    | Pad
    | Resize
    | Interleave
    | Gather
    | Lookup
    | ReduceMean
    | ReduceSum
    | ReduceMax
    | ReduceMin
)
"""Operations, besides the elementwise ones, that are as fast with the channels last."""
FEWEST = 2
"""Convolutions in a graph for which rearranging its inputs and outputs pays in any case; of a single one, the kernels
of both layouts and the way in and out are compared."""


@dataclass(frozen=True)
class ChannelsLast(Op):
    """`op` with the channels last, of these `operands` and of the results that have this `rank`."""

    op: Op
    rank: int
    operands: tuple[int, ...]
    sig: ClassVar[Sig] = Sig("*xs: any -> *ys: any")

    def infer(self, *xs: Value | None) -> list[Type]:
        first = [
            Value(x.name, permuted_type(x.tensor, first_of(self.rank))) if x is not None and k in self.operands else x
            for k, x in enumerate(xs)
        ]
        return [self._last(t) for t in self.op.result_types(first)]

    def reference(self, *xs: Array | None) -> Any:
        first = [
            x.transpose(first_of(self.rank)) if x is not None and k in self.operands else x for k, x in enumerate(xs)
        ]
        results = as_list(self.op.reference(*first))
        return [y.transpose(last_of(self.rank)) if y.ndim == self.rank else y for y in results]

    def compute(self, out: Any, *xs: Tensor | None) -> list[IndexFunction]:  # pyright: ignore
        assert self.op.compute is not None
        outs = [permuted_type(t, first_of(self.rank)) for t in as_list(out)]
        first = [self._first(x) if x is not None and k in self.operands else x for k, x in enumerate(xs)]
        found = self.op.compute(outs[0] if len(outs) == 1 else outs, *first)
        return [self._moved(f) for f in as_list(found)]

    def _moved(self, f: IndexFunction) -> IndexFunction:
        """Convert a result of `op` to an index function with the channels last."""
        order = first_of(self.rank)
        return lambda *at: f(*permuted(at, order))

    def _first(self, x: Tensor) -> Tensor:
        """Convert an operand with the channels last to what `op` expects."""
        order = last_of(self.rank)

        def at(i: tuple[Expr, ...]) -> Expr:
            return x.at(permuted(i, order))

        return Tensor(permuted_type(x.type, first_of(self.rank)), at)

    def _last(self, t: Type) -> Type:
        return permuted_type(t, last_of(self.rank)) if isinstance(t, TensorType) and t.rank == self.rank else t

    def __str__(self) -> str:
        return f"{self.op} channels last"


def last_of(rank: int) -> tuple[int, ...]:
    """Return the permutation that puts the channels last."""
    return (0, *range(2, rank), 1)


def first_of(rank: int) -> tuple[int, ...]:
    """Return the permutation that puts the channels back to axis 1."""
    return (0, rank - 1, *range(1, rank - 1))


def permuted(items: Sequence[T], order: Sequence[int]) -> tuple[T, ...]:
    return tuple(items[k] for k in order)


def permuted_type(t: TensorType, order: Sequence[int]) -> TensorType:
    return TensorType(t.dtype, permuted(t.dims(), order))


def run(graph: Graph, isa: Isa, precision: str = "highest") -> int:
    """Rewrite regions of the graph in place. Returns how many nodes compute with the channels last now.

    isa, precision: of the kernels that a single convolution is worth rearranging for, or not.
    """
    region = _Region(graph)
    nodes = graph.nodes
    taken = [node for node in nodes if isinstance(node.op, Conv) and _kernel_takes(node)]
    integers = {node for node in nodes if isa.name in SETS and _is_of_bytes(node)}
    region.integers = integers
    if not integers and len(taken) < FEWEST:
        resident = constant_bytes(graph) <= isa.l2
        if not any(_alone_pays(node, isa, precision, resident) for node in taken):
            return 0
    for node in nodes:
        region.visit(node)
    graph.prune()
    if region.done:
        simplify.run(graph)
    return region.done


class _Region:
    """What is known to have its channels last, while nodes are visited in order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.done = 0
        self.integers: set[Node] = set()
        self._last: dict[Value, Value] = {}  # value → the same with its channels last
        self._inside: set[Value] = set()  # the values that were computed so

    def visit(self, node: Node) -> None:
        """Rewrite a node if it is a convolution, or follows one."""
        out = node.outputs[0] if node.outputs else None
        if out is None or not isinstance(out.type, TensorType) or out.type.rank not in (3, 4, 5):
            return
        if isinstance(node.op, Conv):
            x = node.inputs[0]
            near = x in self._inside or (x is not None and all(d == 1 for d in x.shape[2:]))
            if node in self.integers:
                self._put(node, [self._of_bytes(node)])
            elif _kernel_takes(node) or (near and _is_product(node)):
                self._put(node, [self._conv(node)])
        elif isinstance(node.op, Transpose | Reshape):
            self._enter(node, out)
        elif any(v in self._inside for v in node.operands):
            rank = len(out.shape)
            if node.op.elementwise and len(node.outputs) == 1:
                self._put(node, [self._elementwise(node, rank)])
            elif (
                isinstance(node.op, FOLLOWS)
                and not _of_planes(node)
                and all(isinstance(v.type, TensorType) and v.rank == rank for v in node.outputs)
            ):
                operands = tuple(k for k, v in enumerate(node.inputs) if v is not None and v.rank == rank)
                self._put(node, self._wrapped(node, rank, operands))

    def _enter(self, node: Node, out: Value) -> None:
        """Note a tensor that the model itself stores channels last, such as a linear layer over pixels."""
        x, layers = node.inputs[0], node.layers
        if isinstance(node.op, Reshape) and x is not None and len(out.shape) > 3 and x.shape[:2] == out.shape[:2]:
            node, shape = x.producer or node, permuted(out.shape, last_of(len(out.shape)))
        else:
            shape = None
        source = node.inputs[0]
        order = node.inputs[1].ints() if isinstance(node.op, Transpose) and node.inputs[1] is not None else None
        if source is None or order is None or tuple(order) != first_of(len(order)):
            return
        if shape is not None:
            b = Builder(self.graph, out.name, node.loc, layers=layers)
            source = b.Reshape(source, b.dims(shape), special_zero=False)
        elif len(order) == 3:  # tokens: attention and linear layers do not profit
            return
        self._last[out] = source
        self._inside.add(out)

    def last(self, value: Value) -> Value:
        """Return a value with its channels last: computed so, or transposed here."""
        found = self._last.get(value)
        if found is None:
            rank = len(value.shape)
            found = self._last[value] = self._transposed(value, rank)
        return found

    def _transposed(self, value: Value, rank: int) -> Value:
        order = last_of(rank)
        constant = value.const
        if constant is not None:
            moved = constant.derived(permuted(constant.shape, order), lambda x: x.transpose(order))
            return self.graph.add_constant(moved, value.name)
        b = Builder(self.graph, value.name, layers=())
        if all(d == 1 for d in value.shape[2:]) or value.shape[1] == 1:
            return b.Reshape(value, b.dims(permuted(value.shape, order)), special_zero=False)
        return b.Transpose(value, list(order))

    def _put(self, node: Node, made: Sequence[Value]) -> None:
        """Replace the results of a node by views of the new ones."""
        b = Builder(self.graph, node.name or node.op.name, node.loc)
        for old, new in zip(node.outputs, made, strict=True):
            if not old.uses and not self.graph.keeps(old):
                continue
            if all(d == 1 for d in old.shape[2:]) or old.shape[1] == 1:
                view = b.Reshape(new, b.dims(old.shape), special_zero=False)
            else:
                view = b.Transpose(new, list(first_of(len(old.shape))))
            view.type = old.type
            replace_value(self.graph, old, view)
            assert view.producer is not None
            view.producer.layers = ()
            self._last[view] = new
            self._inside.add(view)
        self.done += 1

    def _elementwise(self, node: Node, rank: int) -> Value:
        inputs = [None if v is None else self._lifted(v, rank) for v in node.inputs]
        return self._add(node, node.op, inputs)[0]

    def _lifted(self, value: Value, rank: int) -> Value:
        """Give an operand that is broadcast all axes, channels last."""
        if len(value.shape) == rank:
            return self.last(value)
        if all(d == 1 for d in value.shape):
            return value
        ones = (Dim.of(1),) * (rank - len(value.shape))
        constant = value.const
        if constant is not None:
            whole = constant.derived((*(1 for _ in ones), *constant.shape), lambda x: x)
            return self.last(self.graph.add_constant(whole, value.name))
        b = Builder(self.graph, value.name, layers=())
        return self.last(b.Reshape(value, b.dims((*ones, *value.shape)), special_zero=False))

    def _wrapped(self, node: Node, rank: int, operands: tuple[int, ...]) -> list[Value]:
        inputs = [self.last(v) if v is not None and k in operands else v for k, v in enumerate(node.inputs)]
        return self._add(node, ChannelsLast(node.op, rank, operands), inputs)

    def _add(self, node: Node, op: Op, inputs: Sequence[Value | None]) -> list[Value]:
        order = last_of(len(node.outputs[0].shape))
        made = [self.graph.new_value(v.name, permuted_type(v.tensor, order)) for v in node.outputs]
        self.graph.add_node(op, inputs, made, node.name, node.loc)
        return made

    def _conv(self, node: Node) -> Value:
        x, w, *rest = node.inputs
        assert x is not None and w is not None
        if not _is_product(node):
            return self._wrapped(node, len(x.shape), (0,))[0]
        assert w.const is not None
        outputs, inputs = w.const.shape[:2]
        matrix = w.const.derived((inputs, outputs), lambda x: x.reshape(outputs, inputs).T)
        b = Builder(self.graph, node.name or node.op.name, node.loc)
        y = b.MatMul(self.last(x), self.graph.add_constant(matrix, w.name))
        return y if not rest or rest[0] is None else b.Add(y, rest[0])

    def _of_bytes(self, node: Node) -> Value:
        """Rewrite a convolution of bytes, which the kernel reads without what makes 32-bit integers of them."""
        x = node.inputs[0]
        assert x is not None
        if x not in self._last:
            found = bytes_of(x)
            assert found is not None
            b = Builder(self.graph, x.name, layers=())
            wide = b.Cast(self.last(found.value), to=i32)
            self._last[x] = wide if found.zero is None else b.Sub(wide, found.zero)
        return self._wrapped(node, len(x.shape), (0,))[0]


def _is_of_bytes(node: Node) -> bool:
    """Tell whether a node is a Conv for which there are kernels of bytes."""
    if not isinstance(node.op, Conv) or node.outputs[0].dtype != i32:
        return False
    x, w, *bias = node.inputs
    if x is None or w is None or w.const is None or not fits_bytes(w) or (x.rank or 0) > 4 or not x.shape[1].is_const:
        return False
    found = bytes_of(x)
    if found is None or found.value.shape != x.shape or any(b is not None and b.const is None for b in bias):
        return False
    return worthwhile(*node.outputs[0].shape, *w.shape[1:])


def _of_planes(node: Node) -> bool:
    """Tell whether a reduction leaves one element of each plane: its result is the same in both layouts."""
    x, *rest = node.inputs
    axes = rest[0].ints() if rest and rest[0] is not None else None
    if not isinstance(node.op, Reduction) or axes is None or x is None:
        return False
    return sorted(a % len(x.shape) for a in axes) == list(range(2, len(x.shape)))


def _is_product(node: Node) -> bool:
    """Tell whether a Conv is a matrix product: one tap, no stride, no padding, no groups."""
    op = node.op
    assert isinstance(op, Conv)
    x, w = node.inputs[0], node.inputs[1]
    assert x is not None and w is not None
    rank = len(x.shape) - 2
    begin, end = window_padding(op, x.shape[2:], w.shape[2:])
    taps = (*w.shape[2:], *spatial("Conv", "strides", op.strides, rank, 1))
    return op.group == 1 and all(t == 1 for t in taps) and all(p == 0 for p in [*begin, *end])


def _alone_pays(node: Node, isa: Isa, precision: str, resident: bool) -> bool:
    """Tell whether a Conv is worth rearranging its input and its output."""
    return not _is_product(node) and channels_last_pays(node, isa, precision, resident)


def _kernel_takes(node: Node) -> bool:
    """Tell whether a Conv is of a kind and a size for the kernels that work with the channels last."""
    op = node.op
    assert isinstance(op, Conv)
    x, w = node.inputs[0], node.inputs[1]
    assert x is not None and w is not None
    if x.dtype not in (f32, f64) or w.const is None or not w.tensor.is_static or not x.shape[1].is_const:
        return False
    if len(x.shape) == 5:  # kernels for volumes have the channels first
        return False
    outputs, per, *window = w.shape
    if not worthwhile(*node.outputs[0].shape, per, *window):
        return False
    return op.group == 1 or int(outputs) == int(x.shape[1]) == op.group or int(per) >= 4
