"""Narrow weights stay what the file has: floats of 16 bits, or whole numbers in blocks with a scale and a zero point.

Constants are folded, so products see floats.  A product of few rows waits for its weights, however, and reads a
fraction of the bytes where they are as narrow as in the file.  Here such a constant of floats remembers its numbers;
the kernel that is selected (`irc.kernels.gemm.weight_only`, or another) decides which of the two the artefact stores.

Where a file multiplies numbers and scales in f16 the products are not rounded to f16, as in OpenVINO.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from irc.arrays import Array
from irc.ir.graph import Constant, Graph, Node, Value
from irc.ir.types import bf16, f16, f32
from irc.kernels.core.isa import Isa
from irc.kernels.gemm.problem import STREAMED, Narrow
from irc.opdef.builder import with_fields
from irc.opdef.reference import run_reference
from irc.ops.arithmetic import Mul, Sub
from irc.ops.cast import Cast
from irc.ops.layout import Flatten, Reshape, Squeeze, Transpose, Unsqueeze, normal_axis
from irc.ops.matmul import Gemm, MatMul
from irc.ops.quantize import DequantizeLinear
from irc.ops.slice import Slice
from irc.passes.fold import is_reasonable

MOVES = Reshape | Transpose | Unsqueeze | Squeeze | Flatten | Slice
"""Operations that move elements, or leave some out."""
WIDTHS = (2, 4, 8)
"""Bits of numbers that are narrow enough."""
DEEPEST = 32
"""Operations between constants and a product; the numbers of packed bytes are behind a dozen."""
LONGEST, SHORTEST = 256, 16
"""Numbers of a block: products are added up in one accumulator, and a block costs as much as a few of them."""


class NarrowConstant(Constant):
    """Floats [k, n] that remember the whole numbers they are.

    rows: reads [n, k + blocks (+ blocks)]: of each column the numbers from 0 on, the scales, the zero points; of floats
    only these.
    """

    __slots__ = ("narrow", "rows")

    def __init__(self, shape: tuple[int, int], load: Callable[[], Array], narrow: Narrow, rows: Callable[[], Array]):
        super().__init__(f32, shape, load)
        self.narrow, self.rows = narrow, rows


@dataclass(frozen=True)
class _Numbers:
    """(numbers - zero) · scale, of arrays that broadcast; low, bits: the range of the numbers."""

    numbers: Array
    low: int
    bits: int
    zero: Array
    scale: Array

    @property
    def is_scaled(self) -> bool:
        return self.scale.size != 1 or float(self.scale.reshape(-1)[0]) != 1.0


def run(graph: Graph, isa: Isa) -> int:
    """Replace such weights of products of f32, in place, for an instruction set with vectors.  Returns how many."""
    done = 0
    for node in graph.nodes if isa.has_vectors else ():
        if isinstance(node.op, MatMul | Gemm) and node.outputs[0].dtype == f32:
            done += _of_product(graph, node, node.op)
    graph.prune()
    return done


def _of_product(graph: Graph, node: Node, op: MatMul | Gemm) -> bool:
    a, b, *rest = node.inputs
    if b is None or b.const is not None or b.producer is None or b.type is None or b.rank != 2:
        return False
    if not b.tensor.is_static or int(b.tensor.elements()) < STREAMED:
        return False
    turned = bool(op.transB) if isinstance(op, Gemm) else op.transpose_b
    reader = _Reader()
    found = reader.numbers(b)
    constant = None if found is None else _narrow(found, tuple(map(int, b.shape)), turned)
    if constant is None:
        constant = _half(b, reader, turned)
    if constant is None:
        return False
    fields = {"transB": 0} if isinstance(op, Gemm) else {"transpose_b": False}
    graph.set_op(node, with_fields(op, **fields), [a, graph.add_constant(constant, b.name), *rest])
    return True


class _Reader:
    """Reads what constants make of weights: each value once, and none behind more operations than files need."""

    def __init__(self) -> None:
        self._found: dict[Value, _Numbers | None] = {}
        self._arrays: dict[Value, Array | None] = {}

    def numbers(self, v: Value, depth: int = 0) -> _Numbers | None:
        """Find the whole numbers of constants that a value is made of."""
        if v not in self._found and depth < DEEPEST:
            self._found[v] = self._numbers(v, depth + 1)
        return self._found.get(v)

    def array(self, v: Value | None, depth: int = 0) -> Array | None:
        """Compute what depends on constants only; None where that is not known before a run."""
        if v is None or v.const is not None:
            return None if v is None or v.const is None else v.const.read()
        if v not in self._arrays and depth < DEEPEST:
            self._arrays[v] = self._computed(v, depth + 1)
        return self._arrays.get(v)

    def _numbers(self, v: Value, depth: int) -> _Numbers | None:
        if v.type is None or v.dtype.kind in "iu":
            whole = self.array(v, depth)
            return None if whole is None else _whole(whole)
        node = v.producer
        first = None if node is None or not node.inputs else node.inputs[0]
        if node is None or first is None or v.dtype.kind != "f":
            return None
        op = node.op
        if isinstance(op, DequantizeLinear):
            return self._dequantized(node, op, depth)
        if isinstance(op, Cast):
            return self.numbers(first, depth)
        if isinstance(op, Sub | Mul):
            return self._shifted(node, depth)
        if isinstance(op, MOVES):
            found = self.numbers(first, depth)
            return None if found is None else _moved(found, node)
        return None

    def _computed(self, v: Value, depth: int) -> Array | None:
        node = v.producer
        if node is None or node.op.effect or node.op.draws or node.op.at_run_only or node.op.regions or not node.inputs:
            return None
        operands = [self.array(x, depth) for x in node.inputs]
        if any(a is None and x is not None for a, x in zip(operands, node.inputs, strict=True)):
            return None
        if not is_reasonable(node):
            return None
        return run_reference(node, operands)[v.index]

    def _shifted(self, node: Node, depth: int) -> _Numbers | None:
        """Find the numbers of a difference or a product with a constant."""
        for i, value in enumerate(node.inputs[: 2 if isinstance(node.op, Mul) else 1]):
            found = None if value is None else self.numbers(value, depth)
            other = None if found is None else self.array(node.inputs[1 - i], depth)
            if found is None or other is None or value is None or node.outputs[0].shape != value.shape:
                continue
            other = other.astype(np.float32)
            if isinstance(node.op, Mul):
                return replace(found, scale=found.scale * other)
            return None if found.is_scaled else replace(found, zero=found.zero + other)
        return None

    def _dequantized(self, node: Node, op: DequantizeLinear, depth: int) -> _Numbers | None:
        x, scale, zero = (*node.inputs, None)[:3]
        if x is None or scale is None:
            return None
        rank, parts = len(x.shape), [self.array(v, depth) for v in (scale, zero)]
        found = (
            self.numbers(x, depth) if rank and parts[0] is not None and (zero is None or parts[1] is not None) else None
        )
        if found is None:
            return None
        axis = normal_axis(op.name, op.axis, rank)

        def spread(part: Array) -> Array:
            array = part.astype(np.float32)
            if op.block_size and array.size > 1:
                return np.take(array, np.arange(int(x.shape[axis])) // op.block_size, axis)
            return array.reshape((-1,) + (1,) * (rank - axis - 1)) if array.size > 1 else array.reshape(())

        scales, zeros = (None if p is None else spread(p) for p in parts)
        assert scales is not None
        return replace(found, scale=scales, zero=found.zero if zeros is None else zeros)


def _whole(array: Array) -> _Numbers | None:
    """State whole numbers, of as few bits as hold them."""
    low, high = int(array.min(initial=0)), int(array.max(initial=0))
    for bits in WIDTHS:
        least = -(1 << bits - 1) if low < 0 else 0
        if least <= low and high < least + (1 << bits):
            none, one = np.zeros((), np.float32), np.ones((), np.float32)
            return _Numbers(array.astype(np.int16), least, bits, none, one)
    return None


def _moved(found: _Numbers, node: Node) -> _Numbers:
    """Move the numbers, and with them scales and zero points that are not one for all."""
    operands = [None if v is None else v.array for v in node.inputs[1:]]

    def moved(array: Array) -> Array:
        return run_reference(node, [array, *operands])[0]

    shape = found.numbers.shape
    parts = [p if p.size == 1 else moved(np.broadcast_to(p, shape)) for p in (found.zero, found.scale)]
    zero, scale = (p.reshape(()) if p.size == 1 else p for p in parts)
    return replace(found, numbers=moved(found.numbers), zero=zero, scale=scale)


def _narrow(found: _Numbers, shape: tuple[int, ...], turned: bool) -> NarrowConstant | None:
    """Make the constant [k, n] of numbers of that shape, [n, k] if `turned`; None where no kernel could read it."""

    def columns(part: Array) -> Array:
        whole = np.broadcast_to(part, shape)
        return whole if turned else whole.T

    numbers, scale, zero = columns(found.numbers) - found.low, columns(found.scale), columns(found.zero) - found.low
    block = _block((scale, zero), 32 // found.bits)
    most = (1 << found.bits) - 1
    if block is None or np.any(zero != np.rint(zero)) or np.any(zero < 0) or np.any(zero > most):
        return None
    small, scales, zeros = numbers.astype(np.uint8), scale[:, ::block].copy(), zero[:, ::block].astype(np.uint8)
    own = bool(np.any(zeros != (most + 1) // 2))
    parts = (small, scales, zeros) if own else (small, scales)

    def floats() -> Array:
        wide, unit = (np.repeat(part, block, axis=1)[:, : small.shape[1]] for part in (zeros.astype(np.int16), scales))
        made = (small.astype(np.int16) - wide).astype(np.float32) * unit
        return np.ascontiguousarray(made.T)

    def rows() -> Array:
        return np.concatenate([p.astype(np.float32) for p in parts], axis=1)

    return NarrowConstant(small.shape[::-1], floats, Narrow(found.bits, block, own), rows)


def _half(v: Value, reader: _Reader, turned: bool) -> NarrowConstant | None:
    """Make the constant of floats of 16 bits that are widened, [n, k] if `turned`."""
    node = v.producer
    while node is not None and isinstance(node.op, MOVES) and node.inputs[0] is not None:
        node = node.inputs[0].producer
    source = node.inputs[0] if node is not None and isinstance(node.op, Cast) else None
    if source is None or source.type is None or source.dtype not in (f16, bf16):
        return None
    whole = reader.array(v)
    if whole is None:
        return None
    small = np.ascontiguousarray(whole if turned else whole.T).astype(source.dtype.numpy)

    def rows() -> Array:
        return small.astype(np.float32)

    return NarrowConstant(
        small.shape[::-1], lambda: np.ascontiguousarray(rows().T), Narrow(16, floats=source.dtype.name), rows
    )


def _block(parts: tuple[Array, ...], per: int) -> int | None:
    """Find how many numbers that follow one another share what is in `parts`, in whole words of `per`."""
    k = parts[0].shape[1]
    changes = np.unique([i + 1 for p in parts for i in np.nonzero(np.any(p[:, 1:] != p[:, :-1], axis=0))[0]])
    if not changes.size:
        return min(LONGEST, -(-k // per) * per)
    block = math.gcd(*map(int, changes))
    fits = [d for d in range(min(LONGEST, block), SHORTEST - 1, -1) if block % d == 0 and d % per == 0]
    return fits[0] if fits else None
