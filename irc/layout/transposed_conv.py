"""ConvTranspose as Conv: the results of each remainder by the stride are a convolution of their own.

With stride s and kernel k, result o = s·q + r − pad is Σ x[q − t] · w[s·t + r] over t < ceil(k / s).  So one Conv of
stride 1 computes all remainders as channels, and a rearrangement puts them beside each other.  Elementwise operations
that follow go before the rearrangement: they become the convolution's, and work on whole vectors.

Where o + pad is no multiple of s, q starts and ends at another place for each remainder, and that Conv computes more
than is kept.  On small planes that is much, so that each remainder is a Conv of its own there.  Of one pixel a matrix
product is left.  Of stride 1, where there is one remainder, the window may be dilated.  Where none of this is cheaper
than the kernel of the ConvTranspose itself (irc/kernels/conv/transposed_nchw.py), it stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from irc.expr import Const, Expr, IndexFunction, Tensor
from irc.ir.dim import Dim, product
from irc.ir.graph import Constant, Graph, Node, Value
from irc.ir.types import TensorType, f32, f64, i64
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import likely
from irc.kernels.core.registry import candidates
from irc.opdef.base import Array, Op
from irc.opdef.builder import Builder
from irc.opdef.signature import Sig
from irc.opdef.window import spatial
from irc.ops.conv import Conv, ConvTranspose
from irc.ops.layout import reshaped
from irc.ops.matmul import MatMul
from irc.ops.slice import Slice
from irc.passes.replace import replace_value
from irc.selection.conv_transpose import problem_of
from irc.selection.layouts import LAYOUTS, cycles_in

CLEARLY, CLEARLY_LAST = 1.03, 1.2
"""How many times the cycles of what it is rewritten to the kernel of a ConvTranspose may be estimated to take: that
reads and stores parts, of which estimates leave out what comes between them; and the same among layers with the
channels last."""
MOVED, INTERLEAVED, INTERLEAVED_FAR = 2.0, 0.5, 2.0
"""Cycles to rearrange an element: into another layout, or between the results of remainders; and for the latter with
the channels first, in rows that loops cut as they go, in a cache and in memory."""
FAR = 4 << 20
"""Elements of a result that caches are taken not to hold."""


@dataclass(frozen=True)
class Interleave(Op):
    """[n, group · Πs · c, *q] as [n, group · c, *(q · s)]: channel (g, r, c) at q is channel (g, c) at s · q + r."""

    strides: tuple[int, ...]
    group: int
    sig: ClassVar[Sig] = Sig("x: any -> y: any")

    def infer(self, x: Value) -> TensorType:
        n, channels, *space = x.shape
        whole = [q * s for q, s in zip(space, self.strides, strict=True)]
        return TensorType(x.dtype, (n, channels // math.prod(self.strides), *whole))

    def reference(self, x: Array) -> Array:
        n, channels, *space = x.shape
        rank = len(space)
        split = x.reshape(n, self.group, *self.strides, -1, *space)
        order = [0, 1, 2 + rank, *(k for axis in range(rank) for k in (3 + rank + axis, 2 + axis))]
        whole = [q * s for q, s in zip(space, self.strides, strict=True)]
        return split.transpose(order).reshape(n, channels // math.prod(self.strides), *whole)

    def compute(self, out: TensorType, x: Tensor) -> IndexFunction:  # pyright: ignore[reportIncompatibleVariableOverride]
        per = int(out.dims()[1]) // self.group

        def element(n: Expr, channel: Expr, *o: Expr) -> Expr:
            remainder: Expr = Const(0, i64)
            for i, s in zip(o, self.strides, strict=True):
                remainder = remainder * s + i % s
            if self.group == 1:
                source = remainder * per + channel
            else:
                source = (channel // per * math.prod(self.strides) + remainder) * per + channel % per
            return x[(n, source, *(i // s for i, s in zip(o, self.strides, strict=True)))]

        return element


@dataclass(frozen=True)
class Weights:
    """Constant weights [in, out / group, *k]; integers where there are scales, one or one for each output."""

    name: str
    constant: Constant
    scales: Array | None = None

    def derived(
        self, b: Builder, shape: Sequence[Dim | int], made: Callable[[Array], Array], of: Callable[[Array], Array]
    ) -> Value:
        """Rearrange them; `of` repeats the scales for the outputs, which are along axis 0, or 1 of a matrix."""
        constant = self.constant.derived(tuple(int(d) for d in shape), made)
        w = b.graph.add_constant(constant, f"{self.name}/transposed")
        if self.scales is None:
            return w
        scales = self.scales.reshape(()) if self.scales.size == 1 else of(self.scales)
        return b.DequantizeLinear(w, b.const(scales, f32), axis=1 if len(shape) == 2 else 0)


def run(graph: Graph, isa: Isa | None = None, precision: str = "highest") -> int:
    """Rewrite those with constant weights, explicit padding, and no dilation or no stride. Returns how many.

    isa: those for which it has a kernel of their own that is cheaper are left.  precision: the least that f32 products
    must have.
    """
    done = 0
    last = sum(isinstance(node.op, Conv | ConvTranspose) for node in graph.nodes) > 1
    for node in graph.nodes:
        if isinstance(node.op, ConvTranspose):
            after = followers(graph, node.outputs[0])
            value = (after or [node])[-1].outputs[0]
            w = node.inputs[1]
            made = None if w is None or w.const is None else rewritten(graph, node, after, Weights(w.name, w.const))
            if made is None or made.type != value.type:
                continue
            if isa is None or not _is_kernel_cheaper(node, made, isa, precision, last):
                done += replace_value(graph, value, made)
    graph.prune()
    return done


def _is_kernel_cheaper(node: Node, made: Value, isa: Isa, precision: str, last: bool) -> bool:
    """Tell whether the kernel for a ConvTranspose costs less than the rewritten one, `made`."""
    clearly = CLEARLY_LAST if last else CLEARLY
    return _kernel_cycles(node, isa, precision, last) < clearly * _cycles(node, made, isa, precision, last)


def _kernel_cycles(node: Node, isa: Isa, precision: str, last: bool) -> float:
    """Estimate the cycles of the kernel for a ConvTranspose; infinity if there is none.

    last: the channels stand last before and behind, so that its input and its result are transposed.
    """
    problem = problem_of(node, precision)
    found = [] if problem is None else list(candidates(problem, isa).values())
    if problem is None or not found:
        return math.inf
    x, *_ = node.operands
    moved = [likely(product(v.shape)) for v in (x, node.outputs[0])] if last else []
    return found[0].cycles(problem) + MOVED * sum(moved)


def _cycles(node: Node, made: Value, isa: Isa, precision: str, last: bool) -> float:
    """Estimate the cycles of what computes a value from the input of a ConvTranspose, less what follows elementwise."""
    total, seen, waiting = 0.0, {*node.operands}, [made]
    while waiting:
        value = waiting.pop()
        source = value.producer
        if value in seen or source is None:
            continue
        seen.add(value)
        waiting += source.operands
        if isinstance(source.op, MatMul):
            return 0.0
        if isinstance(source.op, Interleave) or (last and isinstance(source.op, Slice)):
            elements = likely(product(value.shape))
            total += (MOVED if last else INTERLEAVED if elements < FAR else INTERLEAVED_FAR) * elements
        if isinstance(source.op, Conv):
            x, *_ = source.operands
            moved = MOVED * (likely(product(x.shape)) + likely(product(value.shape)))
            first, turned = (cycles_in(layout, source, isa, precision) or math.inf for layout in LAYOUTS)
            total += turned if last else min(turned + moved, first)
    return total


def followers(graph: Graph, value: Value) -> list[Node]:
    """Find the chain of elementwise operations behind a value that treat all elements alike."""
    found: list[Node] = []
    while (node := graph.only_use(value)) is not None:
        others = [v for v in node.operands if v is not value]
        if not node.op.elementwise or len(node.outputs) != 1 or node.outputs[0].type != value.type:
            break
        if any(v.const is None or any(d != 1 for d in v.shape) for v in others):
            break
        found.append(node)
        value = node.outputs[0]
    return found


def rewritten(graph: Graph, node: Node, after: list[Node], weights: Weights) -> Value | None:
    """Compute the results of a node and of the operations `after` it by convolutions or a product, if possible."""
    op = node.op
    assert isinstance(op, ConvTranspose)
    x, w, *rest = node.inputs
    assert x is not None and w is not None
    rank = len(x.shape) - 2
    dilations = spatial("ConvTranspose", "dilations", op.dilations, rank, 1)
    strides = spatial("ConvTranspose", "strides", op.strides, rank, 1)
    dilated, dense = set(dilations) != {1}, set(strides) == {1}
    if not _is_stated(node) or (dilated and not dense):
        return None
    begin = spatial("ConvTranspose", "pads_begin", op.pads_begin, rank, 0)
    taps = [-(-int(k) // s) for k, s in zip(w.shape[2:], strides, strict=True)]
    around = tuple((t - 1) * d for t, d in zip(taps, dilations, strict=True))
    out = node.outputs[0].shape
    ready = [(n + a) * s for n, a, s in zip(x.shape[2:], around, strides, strict=True)]
    if any(p < 0 or (o + p).at_most(r) is not True for p, o, r in zip(begin, out[2:], ready, strict=True)):
        return None
    b = Builder(graph, node.name or node.op.name, node.loc, layers=node.layers)
    bias = rest[0] if rest else None
    if bias is not None and bias.const is None:
        return None
    small = _OfSmallPlanes(b, node, after, weights, strides, begin)
    if small.is_product() and not dilated:
        return small.product()
    pads = _pads(x, out, begin, around) if dense else {}
    if dilated and not pads:
        return None
    if not pads and small.worth(taps):
        return small.remainders()
    kernels, times = _of_all(b, weights, op.group, strides, taps), int(np.prod(strides))
    if bias is not None and bias.const is not None:
        bias = b.const(_spread(bias.const.array, op.group, times), bias.dtype)
    if pads:
        y = b.Conv(x, kernels, bias, **pads, dilations=dilations, group=op.group)
        return _followed(b, node, after, y)
    y = b.Conv(x, kernels, bias, pads_begin=around, pads_end=around, group=op.group)
    y = _followed(b, node, after, y)
    if times > 1:
        y = b.add(Interleave(strides, op.group), y)
    for axis, (p, o, r) in enumerate(zip(begin, out[2:], ready, strict=True), 2):
        if p or o != r:
            y = b.Slice(y, b.dims([p]), b.dims([o + p]), b.dims([axis]))
    return y


def _is_stated(node: Node) -> bool:
    """Tell whether a ConvTranspose of floats says its padding, and has constant channels and no operand but a bias."""
    x, _, *rest = node.operands
    op = node.op
    assert isinstance(op, ConvTranspose)
    explicit = op.auto_pad == "explicit" and not op.output_shape
    return explicit and x.dtype in (f32, f64) and len(rest) <= 1 and x.shape[1].is_const


def _pads(x: Value, out: Sequence[Dim], begin: Sequence[int], around: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Find the padding with which a Conv of stride 1 has just the results of a ConvTranspose; empty if there is none.

    begin: the padding of that one.  around: each axis of the window, less 1.
    """
    ahead = tuple(a - p for a, p in zip(around, begin, strict=True))
    behind = [o - n + a - b for o, n, a, b in zip(out[2:], x.shape[2:], around, ahead, strict=True)]
    if min(ahead, default=0) < 0 or not all(d.is_const and int(d) >= 0 for d in behind):
        return {}
    return {"pads_begin": ahead, "pads_end": tuple(int(d) for d in behind)}


def _followed(b: Builder, node: Node, after: list[Node], y: Value) -> Value:
    """Apply the following elementwise operations to a part of the result."""
    before = node.outputs[0]
    for follower in after:
        y = b.add(follower.op, *(y if v is before else v for v in follower.inputs))
        if y.producer is not None:
            y.producer.layers = follower.layers
        before = follower.outputs[0]
    return y


WASTED = 1.2
"""Ratio of computed to kept positions from which on every remainder is a Conv of its own; of bytes, for which
no other kernel is as fast, the ratio of products, with those by zeros behind the window's end.
"""
SUMS = 16
"""Sums of products of bytes that a vector has: fewer outputs leave a part of it empty."""


class _OfSmallPlanes:
    """A ConvTranspose over a plane of known size, one group."""

    def __init__(
        self, b: Builder, node: Node, after: list[Node], weights: Weights, strides: Sequence[int], begin: Sequence[int]
    ) -> None:
        self.b, self.node, self.after, self.strides, self.begin = b, node, after, strides, begin
        self.weights = weights
        (x, self.w, *rest), self.out = node.operands, node.outputs[0].shape
        self.x, self.bias = x, rest[0] if rest else None
        self.window = [int(k) for k in self.w.shape[2:]]
        assert isinstance(node.op, ConvTranspose)
        op = node.op
        self.known = op.group == 1 and all(d.is_const for d in (*x.shape[2:], *self.out[2:]))

    def is_product(self) -> bool:
        """Tell whether the plane has one pixel, and the result is no larger than the window."""
        ends = zip(self.begin, self.out[2:], self.window, strict=True)
        return self.known and all(d == 1 for d in self.x.shape[2:]) and all(p + int(o) <= k for p, o, k in ends)

    def product(self) -> Value:
        """Compute the result as a product [n, in] · [in, taps · out], the channels last."""
        b, rank = self.b, len(self.window)
        spans = [slice(p, p + int(o)) for p, o in zip(self.begin, self.out[2:], strict=True)]
        shape = (*(int(o) for o in self.out[2:]), int(self.out[1]))

        def made(weights: Array) -> Array:
            kept = np.moveaxis(weights[(slice(None), slice(None), *spans)], 1, -1)
            return kept.reshape(len(weights), -1)

        rows, matrix = self._pixels(), (self.w.shape[0], math.prod(shape))
        y = b.MatMul(rows, self.weights.derived(b, matrix, made, lambda s: np.tile(s, math.prod(shape[:-1]))))
        y = reshaped(b, y, (self.out[0], *shape))
        if self.bias is not None:
            y = b.Add(y, self.bias)
        return b.Transpose(_followed(b, self.node, self.after, y), [0, rank + 1, *range(1, rank + 1)])

    def _pixels(self) -> Value:
        """Return the only pixel of each image as a row, of bytes that are then dequantized if weights are integers."""
        source = self.x.producer
        if self.weights.scales is None or source is None:
            return reshaped(self.b, self.x, self.x.shape[:2])
        given, *parameters = source.operands
        return self.b.add(source.op, reshaped(self.b, given, given.shape[:2]), *parameters)

    def worth(self, taps: Sequence[int]) -> bool:
        """Tell whether one Conv for all remainders, with this many taps, would compute much that is not kept."""
        if not self.known or any(int(o) % s for o, s in zip(self.out[2:], self.strides, strict=True)):
            return False
        if any(min(self._reach(axis, rho)) < 0 for axis, s in enumerate(self.strides) for rho in range(s)):
            return False
        computed = math.prod(int(n) + t - 1 for n, t in zip(self.x.shape[2:], taps, strict=True))
        times, kept = math.prod(self.strides), math.prod(map(int, self.out[2:]))
        if self.weights.scales is None:
            return computed * times >= WASTED * kept
        outputs, alone = int(self.out[1]), kept / times * math.prod(self.window)
        return computed * math.prod(taps) * -(-times * outputs // SUMS) >= WASTED * alone * -(-outputs // SUMS)

    def _reach(self, axis: int, rho: int) -> tuple[int, int, int]:
        """Count the taps for results s · q + rho of an axis, less one, and the padding before and after."""
        s = self.strides[axis]
        carry, r = divmod(rho + self.begin[axis], s)
        last = -(-(self.window[axis] - r) // s) - 1
        count = int(self.out[2 + axis]) // s
        return last, last - carry, count - int(self.x.shape[2 + axis]) + carry

    def remainders(self) -> Value:
        """Compute each remainder by a Conv of its own, and interleave the results."""
        parts: list[Value] = []
        for at in np.ndindex(*self.strides):
            reach = [self._reach(axis, rho) for axis, rho in enumerate(at)]
            first = [(rho + p) % s for rho, p, s in zip(at, self.begin, self.strides, strict=True)]
            y = self.b.Conv(
                self.x,
                self._taps(first, [last + 1 for last, *_ in reach]),
                self.bias,
                pads_begin=tuple(p for _, p, _ in reach),
                pads_end=tuple(p for *_, p in reach),
            )
            parts.append(_followed(self.b, self.node, self.after, y))
        return self.b.add(Interleave(tuple(self.strides), 1), self.b.Concat(*parts, axis=1))

    def _taps(self, first: Sequence[int], taps: Sequence[int]) -> Value:
        """Take every s-th tap from the first on, in reverse order: [out, in, *taps]."""
        spans = [slice(r, None, s) for r, s in zip(first, self.strides, strict=True)]
        axes = tuple(range(2, 2 + len(taps)))

        def made(weights: Array) -> Array:
            return np.flip(weights[(slice(None), slice(None), *spans)], axes).swapaxes(0, 1)

        return self.weights.derived(self.b, (self.w.shape[1], self.w.shape[0], *taps), made, lambda s: s)


def _spread(bias: Array, group: int, times: int) -> Array:
    """Repeat a bias for every remainder of every channel."""
    return np.repeat(bias.reshape(group, 1, -1), times, 1).reshape(-1)


def _of_all(b: Builder, w: Weights, group: int, strides: tuple[int, ...], taps: list[int]) -> Value:
    """Rearrange weights [in, out / group, *k] for the Conv: [group · Πs · out / group, in / group, *taps]."""
    inputs, per, *kernel = w.constant.shape
    rank = len(kernel)
    shape = (group * per * int(np.prod(strides)), inputs // group, *taps)

    def made(weights: Array) -> Array:
        full = np.zeros((inputs, per, *(t * s for t, s in zip(taps, strides, strict=True))), weights.dtype)
        full[(slice(None), slice(None), *(slice(0, k) for k in kernel))] = weights
        split = full.reshape(
            group, inputs // group, per, *(d for t, s in zip(taps, strides, strict=True) for d in (t, s))
        )
        at_taps, at_rest = [3 + 2 * k for k in range(rank)], [4 + 2 * k for k in range(rank)]
        moved = split.transpose(0, *at_rest, 2, 1, *at_taps)
        return np.flip(moved, tuple(range(-rank, 0)))

    return w.derived(b, shape, made, lambda s: _spread(s, group, int(np.prod(strides))))
