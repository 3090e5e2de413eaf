"""Einsum: products of tensors by named axes, summed over the axes that the result does not name.

Source: ONNX Einsum; OpenVINO specification, Einsum-7; numpy.einsum.
"""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation, shape as codes
from irc.formats.document import Attr
from irc.ir.dim import Dim, product
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import FLOATS, INTEGERS, NUMERIC, TensorType, bf16
from irc.opdef.base import Array, Op, op
from irc.opdef.broadcasting import broadcast_shapes
from irc.opdef.builder import Builder
from irc.opdef.codecs import Str
from irc.opdef.forms import PREV, Form
from irc.opdef.precision import wide
from irc.opdef.signature import Sig
from irc.ops.arithmetic import OV_NUMERIC
from irc.ops.layout import reshaped

Labels = tuple[str, ...]
"""The name of each axis: a letter, or "…k" for the axis that is k-th from the end of what an ellipsis stands for."""


class Equation(Str):
    """An equation; OpenVINO refuses one with spaces, which mean nothing.

    What an ellipsis of one operand stands for is written as letters: beside operands that have none, the CPU plugin
    multiplies other axes.
    """

    def value(self, attribute: str, op: Einsum, operands: Sequence[Value | None]) -> str:
        equation: str = op.equation
        ranks = [v.rank for v in operands if v is not None and v.rank is not None]
        if "..." not in equation or len(ranks) < len(operands):
            return equation
        terms, result = labels_of(equation, ranks)
        stood_for = [label for labels in terms for label in labels if label[0] == "…"]
        letters = [c for c in string.ascii_letters if c not in equation]
        if len(set(stood_for)) < len(stood_for) or len(stood_for) > len(letters):
            return equation
        spelled = dict(zip(stood_for, letters, strict=False))
        return "->".join(",".join("".join(spelled.get(c, c) for c in t) for t in side) for side in (terms, [result]))

    def encode(self, value: str, format: str) -> Attr:
        return value.replace(" ", "") if format == "openvino" else value


def labels_of(equation: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """The axes of the operands and of the result; Problem IRC2207 where the equation is none for such operands."""
    given, arrow, wanted = equation.replace(" ", "").partition("->")
    terms = given.split(",")
    readable = len(terms) == len(ranks) and all(map(_is_term, [*terms, wanted]))
    operands: list[Labels] = []
    for term, rank in zip(terms, ranks, strict=False):
        dots = rank - len(term.replace("...", ""))
        readable = readable and (dots >= 0 if "..." in term else dots == 0)
        operands.append(_expanded(term, dots))
    most = max((sum(label[0] == "…" for label in labels) for labels in operands), default=0)
    used = [label for labels in operands for label in labels]
    if not arrow:
        wanted = "..." + "".join(sorted(c for c in set(used) if used.count(c) == 1 and c[0] != "…"))
    result = _expanded(wanted, most)
    readable = readable and len(set(result)) == len(result) and set(result) <= set(used)
    readable = readable and (most == 0 or "..." in wanted)
    expected = f"an equation for operands of rank {', '.join(map(str, ranks))}"
    require(readable, operation.ATTRIBUTE_RANGE, op="Einsum", attribute="equation", value=equation, expected=expected)
    return operands, result


def _is_term(term: str) -> bool:
    letters = term.replace("...", "", 1)
    return letters == "" or (letters.isascii() and letters.isalpha())


def _expanded(term: str, dots: int) -> Labels:
    before, found, after = term.partition("...")
    return (*before, *(f"…{k}" for k in reversed(range(dots)) if found), *after)


@op
class Einsum(Op):
    """Σ over the axes that the result lacks of the product of the operands; `equation` is like "bij,bjk->bik"."""

    equation: str
    sig = Sig("*xs: T -> y: T", T=NUMERIC)

    def infer(self, *xs: Value) -> TensorType:
        operands, result = labels_of(self.equation, [len(x.shape) for x in xs])
        sizes: dict[str, Dim] = {}
        for labels, x in zip(operands, xs, strict=True):
            for label, size in zip(labels, x.shape, strict=True):
                known = sizes.setdefault(label, size)
                if label[0] == "…":
                    sizes[label] = broadcast_shapes("Einsum", [(known,), (size,)])[0]
                else:
                    what = f"axes named {label} of {self.equation}"
                    require(same(size, known), codes.SIZES_DIFFER, op="Einsum", what=what, a=known, b=size)
        return TensorType(xs[0].dtype, tuple(sizes[label] for label in result))

    def reference(self, *xs: Array) -> Array:
        return np.einsum(self.equation, *[wide(x) for x in xs], optimize=len(xs) > 1).astype(xs[0].dtype)

    def decompose(self, b: Builder, *xs: Value) -> Value:
        operands, result = labels_of(self.equation, [len(x.shape) for x in xs])
        terms = [_diagonal(b, x, labels) for x, labels in zip(xs, operands, strict=True)]
        found, labels = terms.pop(0)
        while terms:
            other, others = terms.pop(0)
            needed = {*result, *(label for _, more in terms for label in more)}
            found, labels = _contracted(b, (found, labels), (other, others), needed)
        found, labels = _summed(b, found, labels, set(result))
        return _ordered(b, found, labels, result)

    onnx = (Form("Einsum", 12, attrs={"equation": Str()}, T=FLOATS | INTEGERS), Form("Einsum", 28, T=PREV | {bf16}))
    openvino = (Form("Einsum", 7, attrs={"equation": Equation()}, T=OV_NUMERIC),)


def _diagonal(b: Builder, x: Value, labels: Labels) -> tuple[Value, Labels]:
    """An operand whose axes all have different names: of two equal ones the diagonal is left, as the last axis."""
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is None:
        return x, labels
    first = labels.index(twice)
    second = labels.index(twice, first + 1)
    rest = [k for k in range(len(labels)) if k not in (first, second)]
    size = x.shape[first]
    flat = reshaped(b, b.Transpose(x, [*rest, first, second]), [*(x.shape[k] for k in rest), size * size])
    axis, step = b.dims([len(rest)]), b.dims([size + 1])
    made = b.Slice(flat, b.dims([0]), b.dims([size * size]), axis, step)
    return _diagonal(b, made, (*(labels[k] for k in rest), twice))


def _summed(b: Builder, x: Value, labels: Labels, needed: set[str]) -> tuple[Value, Labels]:
    """Without the axes that nobody needs."""
    axes = [k for k, label in enumerate(labels) if label not in needed]
    kept = tuple(label for label in labels if label in needed)
    return (b.ReduceSum(x, axes, keepdims=False) if axes else x), kept


def _ordered(b: Builder, x: Value, labels: Labels, wanted: Labels) -> Value:
    order = [labels.index(label) for label in wanted]
    return x if order == sorted(order) else b.Transpose(x, order)


def _stands_turned(vector: Labels, matrix: Labels, needed: set[str], left: bool = True) -> bool:
    """Tell whether a vector beside a matrix, in each of a batch, should be on the other side, for the matrix to stay.

    A matrix stays if its axes stand as in a product: what is summed over is last on the left and first on the right.
    """
    own = [label for label in matrix if label not in vector]
    inner = [label for label in matrix if label in vector and label not in needed]
    batch = [label for label in matrix if label in vector and label in needed]
    if not own or not inner or not set(vector) <= set(matrix):
        return False
    return list(matrix) == ([*batch, *own, *inner] if left else [*batch, *inner, *own])


def _in_the_middle(
    b: Builder, matrix: Value, labels: Labels, vector: Value, others: Labels
) -> tuple[Value, Labels] | None:
    """The product with a vector of axes that stand next to one another inside of all others; None if they do not."""
    n = len(others)
    at = labels.index(others[0]) if others and others[0] in labels else 0
    if at == 0 or at + n == len(labels) or labels[at : at + n] != others:
        return None
    shape = [product(part) for part in (matrix.shape[:at], vector.shape, matrix.shape[at + n :])]
    flat = b.Reshape(matrix, b.dims(shape), special_zero=False)
    row = b.Reshape(vector, b.dims([Dim.of(1), shape[1]]), special_zero=False)
    found = b.Reshape(b.MatMul(row, flat), b.dims([*matrix.shape[:at], *matrix.shape[at + n :]]), special_zero=False)
    return found, (*labels[:at], *labels[at + n :])


def _contracted(
    b: Builder, one: tuple[Value, Labels], two: tuple[Value, Labels], needed: set[str]
) -> tuple[Value, Labels]:
    """The product of two operands, summed over the axes of both that nobody else needs: a batch of matrix products."""
    x, left = _summed(b, *one, needed | set(two[1]))
    y, right = _summed(b, *two, needed | set(one[1]))
    for (matrix, labels), (vector, others) in (((x, left), (y, right)), ((y, right), (x, left))):
        if not needed & set(others) and (found := _in_the_middle(b, matrix, labels, vector, others)):
            return found
    if _stands_turned(left, right, needed) or _stands_turned(right, left, needed, left=False):
        (x, left), (y, right) = (y, right), (x, left)
    most = right if set(left) < set(right) else left  # a matrix beside a vector, which is the cheaper one to turn
    batch = tuple(label for label in most if label in left and label in right and label in needed)
    inner = tuple(label for label in most if label in left and label in right and label not in needed)
    rows = tuple(label for label in left if label not in right)
    columns = tuple(label for label in right if label not in left)
    x, y = _ordered(b, x, left, (*batch, *rows, *inner)), _ordered(b, y, right, (*batch, *inner, *columns))
    at, count = len(batch), len(batch) + len(inner)
    x_rows, y_columns = x.shape[at : at + len(rows)], y.shape[count:]
    depth = product(y.shape[at:count])
    x = b.Reshape(x, b.dims([*x.shape[:at], product(x_rows), depth]), special_zero=False)
    y = b.Reshape(y, b.dims([*y.shape[:at], depth, product(y_columns)]), special_zero=False)
    made = b.MatMul(x, y) if inner else b.Mul(x, y)
    shape = [*made.shape[:at], *x_rows, *y_columns]
    return b.Reshape(made, b.dims(shape), special_zero=False), (*batch, *rows, *columns)
