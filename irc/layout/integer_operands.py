"""Operands that are bytes: those of products of integers, perhaps less a zero point, and dequantized ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from irc.ir.graph import Graph, Node, Value
from irc.ir.types import DType, TensorType, f32, i8, i32, u8
from irc.kernels.integer.problem import BYTES
from irc.opdef.base import Array
from irc.ops.arithmetic import Sub
from irc.ops.cast import Cast
from irc.ops.layout import before_reshapes
from irc.ops.quantize import DequantizeLinear, QuantizeLinear


@dataclass(frozen=True)
class Bytes:
    """An operand of 32-bit integers that are bytes, and the zero point that was taken from them, if any."""

    value: Value
    zero: Value | None


def bytes_of(v: Value) -> Bytes | None:
    """Find the bytes that an operand of i32 is, if it is some, perhaps under another shape."""
    v = before_reshapes(v)
    node, whole, zero = v.producer, v.shape, None
    if node is not None and isinstance(node.op, Sub):
        v, zero = node.operands
        if zero.dtype != i32 or not isinstance(zero.type, TensorType) or not _has_one(zero):
            return None
        if v.shape != whole:
            return None
        node = v.producer
    source = node.inputs[0] if node is not None and isinstance(node.op, Cast) else None
    return None if source is None or source.dtype not in (u8, i8) else Bytes(source, zero)


def fits_bytes(w: Value) -> bool:
    """Tell whether all elements of a constant fit into a signed byte."""
    array = w.array
    return array is not None and array.size > 0 and int(np.min(array)) >= -128 and int(np.max(array)) <= 127


def _has_one(v: Value) -> bool:
    return all(d.is_const and int(d) == 1 for d in v.shape)


def dequantized(v: Value | None) -> Node | None:
    """Find the DequantizeLinear that makes floats of bytes, not those of a constant, by one scale."""
    node = None if v is None else v.producer
    if node is None or not isinstance(node.op, DequantizeLinear) or node.outputs[0].dtype != f32:
        return None
    x, *parameters = node.operands
    given = isinstance(x.type, TensorType) and x.type.shape is not None and x.dtype in BYTES and x.const is None
    return node if given and all(is_one(p) for p in parameters) else None


def rewrite_quantized(graph: Graph, rewrite: Callable[[Graph, Node], bool]) -> int:
    """Rewrite each QuantizeLinear of bytes, in place, where `rewrite` says that it did.  Returns how many."""
    done = 0
    for node in graph.nodes:
        if isinstance(node.op, QuantizeLinear) and node.outputs[0].dtype in BYTES:
            done += rewrite(graph, node)
    if done:
        graph.prune()
    return done


def is_one(v: Value) -> bool:
    """Tell whether a value is a constant of one element."""
    return v.const is not None and v.array is not None and v.array.size == 1


def all_bytes(kind: DType) -> Array:
    """List all bytes, in the order of unsigned ones."""
    return np.arange(256, dtype=np.uint8).view(kind.numpy)
