"""Axes of size 1 that are dropped behind a convolution or a product: after the elementwise operations, not before.

Exporters write a convolution along one axis as one of two, a Squeeze, then the bias and the activation, and slices of
all there is between them.  These are the kernel's epilogue where they stand in front, and nothing is moved behind it.
So are activations behind a Reshape and a Transpose that make tokens of a convolution's pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from irc.ir.dim import Dim
from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType
from irc.opdef.builder import Builder
from irc.ops.conv import Conv, ConvTranspose
from irc.ops.layout import Reshape, Squeeze, Transpose
from irc.ops.matmul import MatMul
from irc.ops.slice import Slice
from irc.passes.replace import replace_value

PRODUCERS = Conv | ConvTranspose | MatMul


@dataclass(frozen=True)
class _Narrow:
    """A value that is part of another: `path` makes it of `whole`; `axes` of that are dropped.

    None: the elements are rearranged, so that only what is the same for all of them can be done before.
    """

    whole: Value
    axes: tuple[int, ...] | None = ()
    path: tuple[Node, ...] = ()

    @property
    def of_conv(self) -> bool:
        return self.whole.producer is not None and isinstance(self.whole.producer.op, Conv)


def run(graph: Graph) -> int:
    """Move elementwise operations on squeezed results, whose other operands are constants, in front of the Squeeze.

    Returns how many.
    """
    known: dict[Value, _Narrow] = {}
    done = 0
    for node in graph.nodes:
        if isinstance(node.op, Squeeze | Reshape | Slice | Transpose):
            _note(graph, node, known)
        elif node.op.elementwise and len(node.outputs) == 1:
            done += _move(graph, node, known)
    graph.prune()
    return done


def _note(graph: Graph, node: Node, known: dict[Value, _Narrow]) -> None:
    """Add the result of a node that drops axes, or no place of those that are known, if nothing else reads it whole."""
    x, y = node.inputs[0], node.outputs[0]
    if x is None or x.producer is None or len(x.uses) != 1 or graph.keeps(x) or not (_shaped(x) and _shaped(y)):
        return
    if x not in known and not isinstance(x.producer.op, PRODUCERS):
        return
    narrow = known.get(x, _Narrow(x))
    if isinstance(node.op, Slice):
        if all(a == b or not b.is_const for a, b in zip(x.shape, y.shape, strict=True)):
            known[y] = _Narrow(narrow.whole, narrow.axes, (*narrow.path, node))
    elif not isinstance(node.op, Transpose) and narrow.axes == () and (axes := dropped(x.shape, y.shape)):
        known[y] = _Narrow(narrow.whole, axes, (*narrow.path, node))
    elif narrow.of_conv and not isinstance(node.op, Squeeze):
        known[y] = _Narrow(narrow.whole, None, (*narrow.path, node))


def _shaped(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.shape is not None


def dropped(before: Sequence[Dim], after: Sequence[Dim]) -> tuple[int, ...]:
    """List the axes of size 1 that `before` has and `after` lacks; empty unless they are all that differs."""
    axes: list[int] = []
    left = list(after)
    for axis, size in enumerate(before):
        if left and left[0] == size:
            left.pop(0)
        elif size == 1:
            axes.append(axis)
        else:
            return ()
    return () if left else tuple(axes)


def _move(graph: Graph, node: Node, known: dict[Value, _Narrow]) -> bool:
    out = node.outputs[0]
    first = next((v for v in node.inputs if v in known), None)
    if first is None or not _shaped(out) or out.shape != first.shape:
        return False
    narrow = known[first]
    b = Builder(graph, node.name or node.op.name, node.loc, layers=node.layers)
    operands: list[Value] = []
    for v in node.inputs:
        here = None if v is None else known.get(v)
        if here is not None and (here.axes, here.path) == (narrow.axes, narrow.path):
            operands.append(here.whole)
            continue
        shape = None if v is None or v.const is None else _widened(v.const.array.shape, out.shape, narrow)
        if v is None or v.const is None or shape is None:
            return False
        operands.append(b.const(v.const.array.reshape(shape), v.dtype))
    made = b.add(node.op, *operands)
    made.type = TensorType(out.dtype, narrow.whole.shape)
    last = made
    for step in narrow.path:
        last = b.add(step.op, last, *step.inputs[1:])
    last.type = out.type
    if not replace_value(graph, out, last):
        return False
    known[last] = _Narrow(made, narrow.axes, narrow.path)
    return True


def _widened(shape: Sequence[int], of: Sequence[Dim], narrow: _Narrow) -> list[int] | None:
    """Return the shape of a constant beside the whole value; None if it varies along an axis that is cut or moved."""
    sizes = [1] * (len(of) - len(shape)) + list(shape)
    if narrow.axes is None:
        return [1] * len(narrow.whole.shape) if all(size == 1 for size in sizes) else None
    if any(size != 1 and dim != size for size, dim in zip(sizes, of, strict=True)):
        return None
    for axis in narrow.axes:
        sizes.insert(axis, 1)
    whole = narrow.whole.shape
    return sizes if all(size == 1 or dim == size for size, dim in zip(sizes, whole, strict=True)) else None
