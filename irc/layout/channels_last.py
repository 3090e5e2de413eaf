"""Convolutional regions with the channels last: [batch, *space, channels] in memory, not [batch, channels, *space].

Channels last, a convolution's output channels fill vectors whatever the size of a plane, a 1 × 1 convolution is a
matrix product, and what stands between convolutions (activations, pools, residual sums, concatenations) reads and
writes whole vectors.  In a graph with several, every Conv that is worth a kernel is rewritten; what it feeds is
rewritten too, as long as it has an operand that is channels last.  Transposes are left where a region begins and
ends, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import networkx as nx

from irc.ir.dim import Dim, product
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, f32, f64, i32
from irc.kernels import Isa
from irc.kernels.integer.problem import SETS
from irc.layout import stacked_planes
from irc.layout.byte_tables import Lookup
from irc.layout.channels_last_op import ChannelsLast, first_of, last_of, permuted_type, shape_last
from irc.layout.integer_operands import bytes_of, fits_bytes
from irc.layout.transposed_conv import Interleave
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.opdef.run_sizes import TO_THE_END
from irc.opdef.window import spatial, window_padding
from irc.ops.concat import Concat
from irc.ops.conv import Conv
from irc.ops.gather import Gather
from irc.ops.layout import Reshape, Squeeze, Transpose, Unsqueeze
from irc.ops.pad import Pad
from irc.ops.pool import AveragePool, MaxPool
from irc.ops.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceSum, Reduction
from irc.ops.resize import Resize
from irc.ops.slice import Slice, StridedSlice
from irc.passes import simplify
from irc.passes.replace import replace_value
from irc.selection.layouts import channels_first_pays, channels_last_pays, product_pays, strided_product_pays
from irc.selection.residency import constant_bytes
from irc.selection.selector import worthwhile

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
OF_GROUPS = Concat | Slice | StridedSlice | Gather | ReduceMean | ReduceSum | ReduceMax | ReduceMin
"""Those of them that can work with channels in groups, which take several axes."""
REGROUPS = Transpose | Reshape | Squeeze | Unsqueeze
"""Those that may rearrange nothing but channels."""
RANKS = range(3, 7)
"""Ranks of what may have its channels last: a signal's to an image's whose channels take three axes, or a volume's."""
FEWEST = 2
"""Convolutions in a region for which rearranging its inputs and outputs pays in any case; of a single one, the kernels
of both layouts and the way in and out are compared."""


def run(graph: Graph, isa: Isa, precision: str = "highest") -> int:
    """Rewrite regions of the graph in place. Returns how many nodes compute with the channels last now.

    isa, precision: of the kernels that a single convolution is worth rearranging for, or not.
    """
    region = _Region(graph)
    nodes = graph.nodes
    weights = constant_bytes(graph)
    taken = [node for node in nodes if isinstance(node.op, Conv) and _kernel_takes(node)]
    taken = [node for node in taken if not _is_of_volumes(node) or _alone_pays(node, isa, precision, weights)]
    integers = {node for node in nodes if isa.name in SETS and _is_of_bytes(node)}
    region.integers, region.taken = integers, {*taken}
    alone = (x for x in _standing_alone(graph, taken, integers) if not _is_of_volumes(x))  # volumes that are taken pay
    region.left = {x for x in alone if not _alone_pays(x, isa, precision, weights)}
    region.first = {x for x in taken if channels_first_pays(x, isa, precision, weights)}
    region.strided = {x for x in taken if _is_product_of_some(x) and strided_product_pays(x, isa, precision, weights)}
    if not integers and len(region.left) == len(taken):
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
        self.taken: set[Node] = set()  # convolutions that kernels take with the channels last
        self.left: set[Node] = set()  # convolutions for which rearranging their inputs and outputs does not pay
        self.first: set[Node] = set()  # those for which it pays to have the channels first among others
        self.strided: set[Node] = set()  # those that are products of the pixels that their strides leave
        self._last: dict[tuple[Value, int], Value] = {}  # value, axes of its channels → the same with these last
        self._inside: dict[Value, int] = {}  # the values that were computed so → axes of their channels

    def visit(self, node: Node) -> None:
        """Rewrite a node if it is a convolution, or follows one."""
        out = node.outputs[0] if node.outputs else None
        if out is None or not isinstance(out.type, TensorType) or out.type.rank not in RANKS:
            return
        if isinstance(node.op, Conv):
            x = node.inputs[0]
            near = x in self._inside or (x is not None and all(d == 1 for d in x.shape[2:]))
            if node in self.first or (node in self.left and not near):
                return
            if node in self.integers:
                self._put(node, [self._of_bytes(node)])
            elif node in self.taken or (near and _is_product(node)):
                self._put(node, [self._conv(node)])
        elif isinstance(node.op, REGROUPS):
            if not self._regroup(node, out):
                self._enter(node, out)
        elif any(v in self._inside for v in node.operands):
            self._follow(node, out)

    def _follow(self, node: Node, out: Value) -> None:
        """Rewrite what computes from values that have their channels last."""
        rank = len(out.shape)
        op = node.op
        axes = next((self._inside[v] for v in node.operands if v in self._inside and v.rank == rank), 1)
        if op.elementwise and len(node.outputs) == 1:
            self._put(node, [self._elementwise(node, rank, axes)], axes)
        elif isinstance(op, Reduction) and not op.keepdims:
            self._reduce_groups(node, out)
        elif not all(isinstance(v.type, TensorType) and v.rank == rank for v in node.outputs):
            return
        elif isinstance(op, Concat) and axes > 1 and op.axis % rank == 1:
            self._put(node, [self._stacked(node, out, axes)], axes)
        elif isinstance(op, MaxPool | AveragePool) and _is_of_volumes(node):  # they become pools of planes
            return
        elif isinstance(op, FOLLOWS if axes == 1 else OF_GROUPS) and not _of_planes(node):
            operands = tuple(k for k, v in enumerate(node.inputs) if v is not None and v.rank == rank)
            self._put(node, self._wrapped(node, rank, operands, axes), axes)

    def _regroup(self, node: Node, out: Value) -> bool:
        """Rewrite what rearranges nothing but channels, as nodes of a shuffle do. Returns whether it does so."""
        x = node.inputs[0]
        axes = self._inside.get(x) if x is not None else None
        if x is None or axes is None:
            return False
        space = x.shape[1 + axes :]
        last = self.last(x, axes)
        b = Builder(self.graph, out.name, node.loc, layers=node.layers)
        if isinstance(node.op, Transpose):
            order = simplify.order_of(node)
            if order is None or axes == 1 or any(a != k for k, a in enumerate(order) if not 1 <= k <= axes):
                return False
            made = b.Transpose(last, [0, *range(1, 1 + len(space)), *(len(space) + a for a in order[1 : 1 + axes])])
        else:
            axes = len(out.shape) - 1 - len(space)
            if axes < 1 or not space or (out.shape[0], *out.shape[1 + axes :]) != (x.shape[0], *space):
                return False
            made = b.Reshape(last, b.dims(shape_last(out, axes)), special_zero=False)
        self._put(node, [made], axes)
        return True

    def _reduce_groups(self, node: Node, out: Value) -> None:
        """Rewrite a reduction without keepdims of axes of channels in groups, if some of these axes stay."""
        x, *rest = node.inputs
        axes = self._inside.get(x) if x is not None else None
        gone = rest[0].ints() if rest and rest[0] is not None else None
        if x is None or axes is None or not gone or not isinstance(node.op, Reduction):
            return
        rank = len(x.shape)
        places = {a % rank for a in gone}
        if len(places) >= axes or not places <= set(range(1, 1 + axes)):
            return
        b = Builder(self.graph, out.name, node.loc, layers=node.layers)
        whole = b.add(ChannelsLast(replace(node.op, keepdims=True), rank, (0,), axes), self.last(x, axes), *rest)
        axes -= len(places)
        self._put(node, [b.Reshape(whole, b.dims(shape_last(out, axes)), special_zero=False)], axes)

    def _stacked(self, node: Node, out: Value, axes: int) -> Value:
        """Concatenate along the first axis of the channels, as rows of all channels: kernels can store into these."""
        b = Builder(self.graph, node.name or node.op.name, node.loc)
        rows: list[Value] = []
        for v in node.operands:
            dims = (*shape_last(v, axes)[:-axes], product(v.shape[1 : 1 + axes]))
            rows.append(b.Reshape(self.last(v, axes), b.dims(dims), special_zero=False))
        y = b.Concat(*rows, axis=-1)
        return b.Reshape(y, b.dims(shape_last(out, axes)), special_zero=False)

    def _enter(self, node: Node, out: Value) -> None:
        """Note a tensor that the model itself stores channels last, such as a linear layer over pixels."""
        x, layers = node.inputs[0], node.layers
        if isinstance(node.op, Reshape) and x is not None and len(out.shape) > 3 and x.shape[:2] == out.shape[:2]:
            node, shape = x.producer or node, shape_last(out)
        else:
            shape = None
        source = node.inputs[0]
        order = simplify.order_of(node) if isinstance(node.op, Transpose) else None
        if source is None or order is None or tuple(order) != first_of(len(order)):
            return
        if shape is not None:
            b = Builder(self.graph, out.name, node.loc, layers=layers)
            source = b.Reshape(source, b.dims(shape), special_zero=False)
        elif len(order) == 3:  # tokens: attention and linear layers do not profit
            return
        self._last[out, 1] = source
        self._inside[out] = 1

    def last(self, value: Value, axes: int = 1) -> Value:
        """Return a value with its channels last, which take this many axes: computed so, or transposed here."""
        found = self._last.get((value, axes))
        if found is None:
            found = self._last[value, axes] = self._transposed(value, axes)
        return found

    def _transposed(self, value: Value, axes: int) -> Value:
        order = last_of(len(value.shape), axes)
        constant = value.const
        if constant is not None:
            moved = constant.derived(tuple(constant.shape[k] for k in order), lambda x: x.transpose(order))
            return self.graph.add_constant(moved, value.name)
        b = Builder(self.graph, value.name, layers=())
        if _keeps_places(value, axes):
            return b.Reshape(value, b.dims(shape_last(value, axes)), special_zero=False)
        return b.Transpose(value, list(order))

    def _put(self, node: Node, made: Sequence[Value], axes: int = 1) -> None:
        """Replace the results of a node by views of the new ones, whose channels take this many axes."""
        b = Builder(self.graph, node.name or node.op.name, node.loc)
        for old, new in zip(node.outputs, made, strict=True):
            if not old.uses and not self.graph.keeps(old):
                continue
            if _keeps_places(old, axes):
                view = b.Reshape(new, b.dims(old.shape), special_zero=False)
            else:
                view = b.Transpose(new, list(first_of(len(old.shape), axes)))
            view.type = old.type
            replace_value(self.graph, old, view)
            assert view.producer is not None
            view.producer.layers = ()
            self._last[view, axes] = new
            self._inside[view] = axes
        self.done += 1

    def _elementwise(self, node: Node, rank: int, axes: int) -> Value:
        inputs = [None if v is None else self._lifted(v, rank, axes) for v in node.inputs]
        return self._add(node, node.op, inputs, axes)[0]

    def _lifted(self, value: Value, rank: int, axes: int) -> Value:
        """Give an operand that is broadcast all axes, channels last."""
        if len(value.shape) == rank:
            return self.last(value, axes)
        if all(d == 1 for d in value.shape):
            return value
        ones = (Dim.of(1),) * (rank - len(value.shape))
        constant = value.const
        if constant is not None:
            whole = constant.derived((*(1 for _ in ones), *constant.shape), lambda x: x)
            return self.last(self.graph.add_constant(whole, value.name), axes)
        b = Builder(self.graph, value.name, layers=())
        return self.last(b.Reshape(value, b.dims((*ones, *value.shape)), special_zero=False), axes)

    def _wrapped(self, node: Node, rank: int, operands: tuple[int, ...], axes: int = 1) -> list[Value]:
        inputs = [self.last(v, axes) if v is not None and k in operands else v for k, v in enumerate(node.inputs)]
        return self._add(node, ChannelsLast(node.op, rank, operands, axes), inputs, axes)

    def _add(self, node: Node, op: Op, inputs: Sequence[Value | None], axes: int = 1) -> list[Value]:
        order = last_of(len(node.outputs[0].shape), axes)
        made = [self.graph.new_value(v.name, permuted_type(v.tensor, order)) for v in node.outputs]
        self.graph.add_node(op, inputs, made, node.name, node.loc)
        return made

    def _conv(self, node: Node) -> Value:
        x, w, *rest = node.inputs
        assert x is not None and w is not None
        if not _is_product(node) and node not in self.strided:
            if _is_of_volumes(node):
                return stacked_planes.convolved(self.graph, node, self.last(x))
            return self._wrapped(node, len(x.shape), (0,))[0]
        assert w.const is not None
        outputs, inputs = w.const.shape[:2]
        matrix = w.const.derived((inputs, outputs), lambda x: x.reshape(outputs, inputs).T)
        b = Builder(self.graph, node.name or node.op.name, node.loc)
        pixels = self.last(x)
        if node in self.strided:
            pixels = self._seen(b, node, pixels)
        y = b.MatMul(pixels, self.graph.add_constant(matrix, w.name))
        if rest and rest[0] is not None:
            y = b.Add(y, rest[0])
        return y if node not in self.strided else b.Reshape(y, b.dims(shape_last(node.outputs[0])), special_zero=False)

    def _seen(self, b: Builder, node: Node, pixels: Value) -> Value:
        """Gather the pixels that the strides leave: [batch, pixels, channels]."""
        axes = list(range(1, len(pixels.shape) - 1))
        left = b.Slice(pixels, [0] * len(axes), [TO_THE_END] * len(axes), axes, _steps(node))
        batch, *space, channels = left.shape
        return b.Reshape(left, b.dims((batch, product(space), channels)), special_zero=False)

    def _of_bytes(self, node: Node) -> Value:
        """Rewrite a convolution of bytes, which the kernel reads without what makes 32-bit integers of them."""
        x = node.inputs[0]
        assert x is not None
        if (x, 1) not in self._last:
            found = bytes_of(x)
            assert found is not None
            b = Builder(self.graph, x.name, layers=())
            wide = b.Cast(self.last(found.value), to=i32)
            self._last[x, 1] = wide if found.zero is None else b.Sub(wide, found.zero)
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


def _keeps_places(value: Value, axes: int) -> bool:
    """Tell whether a value is stored the same with its channels last, which take this many axes."""
    return all(d == 1 for d in value.shape[1 + axes :]) or all(d == 1 for d in value.shape[1 : 1 + axes])


def _of_planes(node: Node) -> bool:
    """Tell whether a reduction leaves one element of each plane: its result is the same in both layouts."""
    x, *rest = node.inputs
    axes = rest[0].ints() if rest and rest[0] is not None else None
    if not isinstance(node.op, Reduction) or axes is None or x is None:
        return False
    return sorted(a % len(x.shape) for a in axes) == list(range(2, len(x.shape)))


def _is_product(node: Node) -> bool:
    """Tell whether a Conv is a matrix product: one tap, no stride, no padding, no groups."""
    return _is_of_pixels(node) and all(step == 1 for step in _steps(node))


def _is_product_of_some(node: Node) -> bool:
    """Tell whether a Conv is a matrix product of the pixels that its strides leave."""
    return _is_of_pixels(node) and not _is_product(node) and not _is_of_volumes(node)


def _is_of_pixels(node: Node) -> bool:
    """Tell whether a Conv has windows of one tap, no padding and no groups."""
    op, (x, w, *_) = node.op, node.inputs
    assert isinstance(op, Conv) and x is not None and w is not None
    begin, end = window_padding(op, x.shape[2:], w.shape[2:])
    return op.group == 1 and all(t == 1 for t in w.shape[2:]) and all(p == 0 for p in [*begin, *end])


def _steps(node: Node) -> list[int]:
    """Return the strides of a Conv along each axis of space."""
    op, x = node.op, next(iter(node.operands))
    assert isinstance(op, Conv)
    return list(spatial("Conv", "strides", op.strides, len(x.shape) - 2, 1))


def _standing_alone(graph: Graph, taken: Sequence[Node], integers: set[Node]) -> list[Node]:
    """List the convolutions whose regions have fewer than `FEWEST`, and no border where channels are last anyway.

    Those of the remainders of one ConvTranspose, which read one tensor and are interleaved, count as one.
    """
    if len(taken) < FEWEST:
        return [] if integers else list(taken)
    regions: nx.Graph[Value] = nx.Graph()
    joining = {*taken, *integers}
    for node in graph.nodes:
        if node in joining or node.op.elementwise or isinstance(node.op, FOLLOWS | REGROUPS):
            out, regroups = node.outputs[0], isinstance(node.op, REGROUPS | Reduction)
            varying = (v for v in node.operands if isinstance(v.type, TensorType) and v.const is None)
            joined = [v for v in varying if v.rank == out.rank or (regroups and _keeps_rows(v, out))]
            regions.add_edges_from((v, out) for v in (*joined, *node.outputs))
    found: list[Node] = []
    for values in nx.connected_components(regions):
        inside = [node for node in taken if node.outputs[0] in values]
        remainders = any(v.producer is not None and isinstance(v.producer.op, Interleave) for v in values)
        count = len({node.inputs[0] for node in inside}) if remainders else len(inside)
        if count < FEWEST and not any(v.producer in integers or _borders(v) for v in values):
            found += inside
    return found


def _keeps_rows(before: Value, after: Value) -> bool:
    """Tell whether batch and last axis stay as long as they are, as where only channels are regrouped."""
    return bool(before.rank and after.rank) and all(before.shape[k] == after.shape[k] for k in (0, -1))


def _borders(value: Value) -> bool:
    """Tell whether a Transpose makes the value from one with its channels last, or makes such a one of it."""
    makers = [value.producer]
    if value.producer is not None and isinstance(value.producer.op, Reshape):
        makers += [v.producer for v in value.producer.operands]
    users = [*value.uses]
    users += [user for node in users if isinstance(node.op, Reshape) for user in node.outputs[0].uses]
    return any(_has_order(node, first_of) for node in makers) or any(_has_order(node, last_of) for node in users)


def _has_order(node: Node | None, order: Callable[[int], tuple[int, ...]]) -> bool:
    """Tell whether a node is a Transpose of that order for its rank."""
    found = simplify.order_of(node) if node is not None and isinstance(node.op, Transpose) else None
    return found is not None and tuple(found) == order(len(found))


def _alone_pays(node: Node, isa: Isa, precision: str, weights: int) -> bool:
    """Tell whether a Conv is worth rearranging its input and its output."""
    pays = product_pays if _is_product(node) else channels_last_pays
    return pays(node, isa, precision, weights)


def _is_of_volumes(node: Node) -> bool:
    """Tell whether a node computes from volumes, of which kernels with the channels last take the planes."""
    return next(iter(node.operands)).rank == stacked_planes.VOLUME


def _kernel_takes(node: Node) -> bool:
    """Tell whether a Conv is of a kind and a size for the kernels that work with the channels last."""
    op = node.op
    assert isinstance(op, Conv)
    x, w = node.inputs[0], node.inputs[1]
    assert x is not None and w is not None
    if x.dtype not in (f32, f64) or w.const is None or not w.tensor.is_static or not x.shape[1].is_const:
        return False
    outputs, per, *window = w.shape
    if _is_of_volumes(node) and (op.group == int(x.shape[1]) or not stacked_planes.has_known_padding(node)):
        return False
    if not worthwhile(*node.outputs[0].shape, per, *window):
        return False
    return op.group == 1 or int(outputs) == int(x.shape[1]) == op.group or int(per) >= 4
