"""What is known of small tensors' elements when compiling: numbers as the run computes them, sizes as Dims.

Numbers come from the references, on arrays of the declared element types: constants, what is folded and what is run
cannot differ.  Elements that depend on symbolic sizes are Dims, which are integers without end; element types are not:

- An element is *exact* where the bounds of its Dim lie inside the range of its element type.
- Sums, products and moves (`Op.modular`) of elements that are not are right modulo 2ⁿ, which is all that data need.
- Any other function of such elements holds only if nothing wrapped on the way.  The value is then `assumed`: shapes are
  computed from it, while its data are left to the operations that compute them when the model runs.
- Elements of 8 and 16 bits that may wrap are not known: shapes are not computed in such types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from irc.arrays import Array, Data
from irc.diagnostics import Problem
from irc.ir.dim import Dim
from irc.ir.graph import Node, Value, carries, whole_numbers
from irc.ir.limits import LARGEST_SIZE
from irc.ir.types import DType, TensorType, value_range, wrapped
from irc.opdef.reference import as_list, run_reference

SIZES_FROM = 32
"""Bits of the narrowest integers that shapes are computed in."""
MOST_WRAPPING = 48
"""Symbols and functions in a formula that is computed modulo 2ⁿ: it is printed as one expression."""
REFUSALS = (ArithmeticError, IndexError, ValueError)
"""What references raise for operands outside of their domain: what then happens is for the run to say."""


Elements: TypeAlias = "Data | Dim | int | Sequence[Dim | int]"


@dataclass(frozen=True)
class Assuming:
    """What `Op.contents` returns where it holds under conditions, as that no divisor is 0: good for shapes only."""

    elements: Elements


Contents: TypeAlias = "Elements | Assuming"
"""What `Op.contents` returns: None where it knows nothing."""


def set_contents(node: Node) -> None:
    """Set the contents of a node's results where they are small and those of its operands say enough."""
    if not node.op.carries_contents:
        return
    if not all(isinstance(out.type, TensorType) and carries(out.type) for out in node.outputs):
        return
    found = _numbers(node)
    assumed = False
    if found is None:
        found, assumed = _sizes(node)
    for out, elements in zip(node.outputs, found or (), strict=False):
        out.contents = np.asarray(elements, dtype=object).reshape(out.tensor.static_shape())
        out.assumed = assumed


# ------------------------------------------------------------------------- numbers
def _numbers(node: Node) -> list[Array] | None:
    """The results of the node's reference where all operands are numbers; None where they are not, or not whole."""
    args = [None if v is None else _array(v) for v in node.inputs]
    if not args or any(v is not None and a is None for v, a in zip(node.inputs, args, strict=True)):
        return None
    try:
        arrays = run_reference(node, args)
    except REFUSALS:
        return None
    if any(a.dtype.kind == "f" and not whole_numbers(a) for a in arrays):
        return None
    return [_dims(a) for a in arrays]


def _array(value: Value) -> Array | None:
    """The elements of a small tensor where they are numbers."""
    if not isinstance(value.type, TensorType) or not carries(value.type):
        return None
    return value.array


def _dims(array: Array) -> Array:
    """Whole numbers as Dims."""
    found = np.empty(array.shape, object)
    found.ravel()[:] = [Dim.of(int(x)) for x in array.ravel()]
    return found


# --------------------------------------------------------------------------- sizes
def _sizes(node: Node) -> tuple[list[Array] | None, bool]:
    """The results of `Op.contents` on Dims, None where unknown; and whether they hold only if nothing wraps."""
    op, args = node.op, list[Array | Value | None]()
    for value in node.inputs:
        known = value is None or value.contents is not None or (op.reads_type_only and value.type is not None)
        if not known:
            return None, False
        args.append(None if value is None else value if value.contents is None else value.contents)
    operands = [v for v in node.operands if v.contents is not None]
    if not _whole(node, operands):
        return None, False
    try:
        found = op.contents(*args)
    except (*REFUSALS, Problem):  # a Problem: an expression that is too large, which only shapes need to have
        return None, False
    if found is None:
        return None, False
    certain = all(_follows(op.modular, v, out) for v in operands for out in node.outputs)
    if isinstance(found, Assuming):
        found, certain = found.elements, False
    parts = as_list(found) if len(node.outputs) > 1 else [found]
    results: list[Array] = []
    for out, elements in zip(node.outputs, parts, strict=False):
        fitted = _fitted(np.asarray(elements, dtype=object), out.dtype, op.modular)
        if fitted is None:
            return None, False
        results.append(fitted)
        certain = certain and ((op.modular and out.dtype.is_integer) or _inside(fitted, out.dtype))
    return results, not certain


def _whole(node: Node, operands: Sequence[Value]) -> bool:
    """Whether Dims can stand for the floats among operands and results: they know no -0."""
    floats = [v for v in operands if v.dtype.is_float]
    if not floats and not any(out.dtype.is_float for out in node.outputs):
        return True
    return node.op.whole_floats and all(Dim.of(d).bounds()[0] >= 0 for v in floats for d in _flat(v.contents))


def _follows(modular: bool, operand: Value, out: Value) -> bool:
    """Whether what is known of the operand's elements is enough to know the result's."""
    if operand.assumed:
        return False
    enough = modular and out.dtype.is_integer and operand.dtype.is_integer and operand.dtype.bits >= out.dtype.bits
    return enough or _inside(operand.contents, operand.dtype)


def _flat(elements: Array | None) -> list[Dim | int]:
    return [] if elements is None else list(elements.reshape(-1))


def _fitted(elements: Array, dtype: DType, modular: bool) -> Array | None:
    """The elements, numbers among them wrapped into the range of the type; None where too little is known of one."""
    found = np.empty(elements.shape, object)
    flat = found.ravel()
    for i, element in enumerate(elements.ravel()):
        dim = Dim.of(element)
        if not _in_range(dim, dtype):
            if dim.const is not None and modular and dtype.is_integer:
                dim = Dim.of(wrapped(dim.const, dtype))
            elif dim.const is not None or dim.parts > MOST_WRAPPING or not _computes_shapes(dtype):
                return None
        flat[i] = dim
    return found


def _computes_shapes(dtype: DType) -> bool:
    return dtype.is_float or (dtype.is_integer and dtype.bits >= SIZES_FROM)


def _inside(elements: Array | None, dtype: DType) -> bool:
    """Whether no element can be outside of the range of the type."""
    return all(_in_range(Dim.of(d), dtype) for d in _flat(elements))


def _in_range(dim: Dim, dtype: DType) -> bool:
    least, most = value_range(dtype)
    lo, hi = dim.bounds(LARGEST_SIZE)
    return least <= lo and hi <= most
