"""Convolutions of dequantized tensors as convolutions of their integers, whose sums are exact.

(sx · (x - zx)) * (sw · (w - zw)) is sx · sw times a convolution in i32, where x has one scale, and w one or one for
each output.  The integers of the constant w fit into a signed byte when its zero point is taken from them.  A bias
that is dequantized from i32 with sx · sw is added to the sums; others are added in f32.  Where nothing but a
QuantizeLinear reads the result, perhaps behind a Relu, the sums are multiplied once, by sx · sw / sy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from irc.ir.graph import Graph, Node, Value
from irc.ir.types import TensorType, f32, i8, i32, u8, value_range
from irc.kernels.core.isa import Isa
from irc.kernels.integer.problem import SETS, fills_sums
from irc.opdef.base import Array
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_type
from irc.ops.activation import Relu
from irc.ops.clip import Clip
from irc.ops.conv import Conv
from irc.ops.quantize import DequantizeLinear, QuantizeLinear
from irc.passes.replace import replace_value

LONGEST = 1 << 15
"""Products of two differences of bytes whose sum fits into 32 bits."""
NEAR = 1e-4
"""Relative difference of a bias' scale from the product of the others, up to which it is that of the sums."""


@dataclass(frozen=True)
class Quantized:
    """The operands of a DequantizeLinear; axis: along which there are several scales."""

    x: Value
    scale: Array
    zero: Value | None
    axis: int = 0

    @property
    def point(self) -> int | None:
        """The only zero point, if there is one and it is known."""
        return _only(self.zero)


def run(graph: Graph, isa: Isa) -> int:
    """Rewrite such convolutions, in place, for an instruction set with a kernel for them.  Returns how many."""
    if isa.name not in SETS:
        return 0
    done = 0
    for node in graph.nodes:
        if isinstance(node.op, Conv) and node.outputs[0].dtype == f32:
            done += _has_kernel(node, isa) and _rewritten(graph, node)
    graph.prune()
    return done


def _has_kernel(node: Node, isa: Isa) -> bool:
    """Tell whether a convolution is not depthwise of fewer channels than a vector has sums: floats are faster then."""
    weights = node.inputs[1]
    assert isinstance(node.op, Conv) and weights is not None
    outputs, inputs = weights.shape[:2]
    depthwise = inputs == 1 and outputs == node.op.group
    return not depthwise or fills_sums(node.op.group, isa)


def _rewritten(graph: Graph, node: Node) -> bool:
    given, weights, *rest = node.inputs
    bias = rest[0] if rest else None
    assert given is not None and weights is not None
    x, w = quantized(given), quantized(weights)
    if x is None or w is None or x.x.dtype not in (u8, i8) or len(x.x.shape) not in (3, 4):
        return False
    integers = integers_of(w, weights)
    assert isinstance(node.op, Conv)
    if integers is None or w.axis != 0 or not _fits_input(x, integers, node.op.group):
        return False
    build, out = Builder(graph, node.name or node.op.name, node.loc), node.outputs[0]
    outputs, around = integers.shape[0], (1,) * (integers.ndim - 2)
    of_sums = (x.scale.reshape(-1) * w.scale.reshape(-1)).astype(np.float32)
    exact = None if bias is None else _of_sums(bias, of_sums, outputs)
    sums = build.add(node.op, _difference(build, x), graph.add_constant(integers, weights.name), exact)
    wide = build.Cast(sums, to=f32)
    added = None if bias is None or exact is not None else bias.array
    last = _quantizer(graph, out, outputs) if bias is None or exact is not None or added is not None else None
    if last is None:
        made = build.Mul(wide, build.const(of_sums.reshape(-1, *around), f32))
        if bias is not None and exact is None:
            made = build.Add(made, build.Reshape(bias, [outputs, *around]))
        return made.type == out.type and bool(replace_value(graph, out, made))

    def constant(array: Array) -> Value:
        quotients = (array.astype(np.float64) / last.scale).astype(np.float32).reshape(-1)
        return build.const(quotients.reshape(-1, *around) if np.ptp(quotients) else quotients[0], f32)

    made = build.Mul(wide, constant(of_sums))
    steps = [*([] if added is None else [_Step("Add", added)]), *last.steps()]
    for step in steps:
        made = getattr(build, step.name)(made, constant(step.array))
    one = build.const(np.float32(1.0), f32)
    operands = [made, one, *([] if last.zero is None else [build.const(last.zero, last.result.dtype)])]
    made = build.add(last.op, *operands)
    return made.type == last.result.type and bool(replace_value(graph, last.result, made))


def _fits_input(x: Quantized, weights: Array, group: int) -> bool:
    """Tell whether the input has one scale, or one for each channel of a depthwise convolution, and one zero point."""
    if x.scale.size == 1:
        return True
    depthwise = group == weights.shape[0] == x.scale.size and weights.shape[1] == 1
    return depthwise and x.axis == 1 and (x.zero is None or x.point is not None)


@dataclass(frozen=True)
class _Step:
    """Add, Max or Min of a result and constants: one, or one for each output."""

    name: str
    array: Array


@dataclass(frozen=True)
class _Quantizer:
    """What alone reads a result: QuantizeLinear to bytes, perhaps behind a bias, a Relu and a Clip."""

    op: QuantizeLinear
    scale: Array
    zero: int | None
    result: Value
    before: tuple[_Step, ...]

    def steps(self) -> list[_Step]:
        """List the steps in front of it, without bounds at the end that its range implies."""
        ends = [k for k, step in enumerate(self.before) if step.name == "Add"]
        bounds = self.before[ends[-1] + 1 if ends else 0 :]
        lower, upper = ([s.array for s in bounds if s.name == name] for name in ("Max", "Min"))
        if not all(np.all(low <= high) for low in lower for high in upper):
            return list(self.before)
        kept = [step for step in bounds if not self._is_implied(step)]
        return [*self.before[: len(self.before) - len(bounds)], *kept]

    def _is_implied(self, step: _Step) -> bool:
        least, largest = value_range(self.result.dtype)
        bounds = np.rint(step.array / self.scale) + (self.zero or 0)
        return bool(np.all(bounds <= least if step.name == "Max" else bounds >= largest))


def quantized(v: Value) -> Quantized | None:
    """Find the integers that a value is made of, with constant scales: one, or one for each output."""
    node = v.producer
    if node is None or not isinstance(node.op, DequantizeLinear) or node.outputs[0].dtype != f32:
        return None
    x, scale, zero = (*node.inputs, None)[:3]
    if x is None or scale is None or not isinstance(x.type, TensorType) or scale.dtype != f32:
        return None
    scales = scale.array
    if scales is None or node.op.block_size or (scales.size != 1 and scales.ndim != 1):
        return None
    return Quantized(x, scales, zero, node.op.axis % max(len(x.shape), 1) if scales.size != 1 else 0)


def integers_of(w: Quantized, weights: Value) -> Array | None:
    """Compute constant weights less their zero points, if they fit into signed bytes."""
    array, zero = w.x.array, None if w.zero is None else w.zero.array
    if array is None or w.x.dtype not in (u8, i8) or array.ndim != len(weights.shape) or (w.zero and zero is None):
        return None
    kept = array.astype(np.int32)
    if zero is not None:
        kept = kept - zero.astype(np.int32).reshape(-1, *(1,) * (array.ndim - 1 - w.axis))
    fits = kept.size and kept.min() >= -128 and kept.max() <= 127 and kept[0].size <= LONGEST
    return kept if fits else None


def _of_sums(bias: Value, scales: Array, outputs: int) -> Value | None:
    """Find the i32 that a bias was dequantized from, if its scale is that of the sums."""
    found = quantized(bias)
    if found is None or found.x.dtype != i32 or found.x.array is None:
        return None
    zero = None if found.zero is None else found.zero.array
    if found.zero is not None and (zero is None or zero.any()):
        return None
    near = np.allclose(np.broadcast_to(found.scale, outputs), np.broadcast_to(scales, outputs), rtol=NEAR, atol=0)
    return found.x if near else None


def _quantizer(graph: Graph, v: Value, outputs: int) -> _Quantizer | None:
    """Find the QuantizeLinear that alone reads a result, behind steps with constants."""
    steps: list[_Step] = []
    while (user := graph.only_use(v)) is not None:
        if isinstance(user.op, QuantizeLinear):
            return _quantizer_at(user, tuple(steps), outputs)
        found = _steps_of(user, v, outputs)
        if found is None or user.outputs[0].shape != v.shape:
            return None
        steps += found
        v = user.outputs[0]
    return None


def _quantizer_at(node: Node, steps: tuple[_Step, ...], outputs: int) -> _Quantizer | None:
    op, result = node.op, node.outputs[0]
    assert isinstance(op, QuantizeLinear)
    _, scale, zero = (*node.inputs, None)[:3]
    scales, point = None if scale is None else scale.array, _only(zero)
    if op.block_size or result.dtype not in (u8, i8) or scales is None or scales.dtype != np.float32:
        return None
    if scales.size not in (1, outputs) or (scales.size != 1 and op.axis % len(result.shape) != 1):
        return None
    if not np.all(scales > 0) or (zero is not None and point is None):
        return None
    return _Quantizer(op, scales.reshape(-1), point, result, steps)


def _steps_of(node: Node, v: Value, outputs: int) -> list[_Step] | None:
    """State an operation on a result and constants as steps; None if it is another one."""
    if isinstance(node.op, Relu):
        return [_Step("Max", np.zeros(1, np.float32))]
    if isinstance(node.op, Clip):
        bounds = list(zip(("Max", "Min"), node.inputs[1:], strict=False))
    elif node.op.name == "Add":
        bounds = [("Add", other) for other in node.inputs if other is not v]
    else:
        return None
    steps: list[_Step] = []
    for name, operand in bounds:
        if operand is not None:
            array = None if operand.array is None else _by_output(operand.array, outputs, len(v.shape))
            if array is None:
                return None
            steps.append(_Step(name, array))
    return steps


def _by_output(array: Array, outputs: int, rank: int) -> Array | None:
    """Flatten what broadcasts to results if it differs at most along their outputs."""
    whole = array.reshape((1,) * (rank - array.ndim) + array.shape) if array.ndim <= rank else array
    if array.size == 1 or (whole.ndim == rank and whole.shape == (1, outputs, *(1,) * (rank - 2))):
        return array.reshape(-1)
    return None


def _only(zero: Value | None) -> int | None:
    """Find the zero point of all elements."""
    array = None if zero is None else zero.array
    return (
        int(array.reshape(-1)[0]) if array is not None and array.size and not np.ptp(array.astype(np.int64)) else None
    )


def _difference(b: Builder, q: Quantized) -> Value:
    x = as_type(b, q.x, i32)
    if q.zero is None:
        return x
    return b.Sub(x, as_type(b, q.zero, i32) if q.point is None else b.const(np.int32(q.point), i32))
