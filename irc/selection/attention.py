"""Attention as one kernel: softmax(scale · Q Kᵀ + mask) V, found from its Softmax.

Scalar factors of Q, K and the scores become the scale.  What exporters write after the softmax for rows without any
key, Where(IsNaN(p), 0, p), is a property of the kernel.  Keys and values that were repeated for groups of query heads
are read where they stand once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from irc.fusion.access import ZERO, Access, Space, find
from irc.fusion.epilogues import FusedEpilogue, merged
from irc.ir.dim import Dim, product
from irc.ir.graph import Node, Value
from irc.ir.types import f32
from irc.kernels.attention.problem import AttentionProblem
from irc.kernels.core.registry import select
from irc.ops.arithmetic import Add, Div, Mul
from irc.ops.compare import IsNaN
from irc.ops.layout import Identity, Reshape, Squeeze, Transpose, Unsqueeze
from irc.ops.logic import Where
from irc.ops.matmul import MatMul
from irc.ops.shape import Expand
from irc.ops.softmax import Softmax
from irc.selection.matmul import Product, operand, product_of, result_of
from irc.selection.selector import Selection, Selector, worthwhile

ONE = Dim.of(1)
_MOVES = Transpose | Reshape | Unsqueeze | Squeeze | Identity | Expand
_CHAIN = 6  # operations between the product and the repetition, at most


@dataclass
class Pattern:
    """The nodes of an attention and their parameters."""

    scores: Node  # MatMul of Q and K
    values: Node  # MatMul of the probabilities and V
    scale: float
    mask: Value | None
    empty: Literal["nan", "zero"]


def select_kernel(selector: Selector, node: Node) -> Selection | None:
    """Select a kernel for the attention around a Softmax; None where there is none."""
    found = _matched(selector, node)
    if found is None or node.outputs[0].dtype != f32:
        return None
    p, o = product_of(found.scores, *_two(found.scores)), product_of(found.values, *_two(found.values))
    rows = len(node.outputs[0].shape)
    if not (p.rows and p.columns and o.columns) or len(p.lead) != rows - 2 or p.lead != o.lead:
        return None
    if not worthwhile(*p.space) or o.k != p.n:
        return None
    q, k = _two(found.scores)
    q, factor = _unscaled(q)
    k, other = _unscaled(k)
    found.scale *= factor * other
    return _arranged(selector, found, p, o, q, k)


def _two(node: Node) -> tuple[Value, Value]:
    a, b = node.inputs
    assert a is not None and b is not None
    return a, b


# ---------------------------------------------------------------------------- matching
def _matched(selector: Selector, softmax: Node) -> Pattern | None:
    out = softmax.outputs[0]
    assert isinstance(softmax.op, Softmax)
    if softmax.op.axis not in (-1, len(out.shape) - 1) or len(out.shape) < 3:
        return None
    empty: Literal["nan", "zero"] = "nan"
    probabilities = _cleaned(selector, out)
    if probabilities is not None:
        out, empty = probabilities, "zero"
    values = selector.only_use(out)
    if values is None or not isinstance(values.op, MatMul) or values.inputs[0] is not out:
        return None
    if values.op.transpose_a or values.inputs[1] is out:
        return None
    return _scores(selector, softmax, values, empty)


def _cleaned(selector: Selector, out: Value) -> Value | None:
    """Match Where(IsNaN(out), 0, out) if these are the only uses of `out`. Returns its result."""
    users = {type(n.op): n for n in out.uses}
    if len(out.uses) != 2 or set(users) != {IsNaN, Where} or selector.graph.keeps(out):
        return None
    test, where = users[IsNaN].outputs[0], users[Where]
    zero = where.inputs[1]
    right = where.inputs[0] is test and where.inputs[2] is out and zero is not None and _scalar(zero) == 0.0
    return where.outputs[0] if right and len(test.uses) == 1 else None


def _scores(selector: Selector, softmax: Node, values: Node, empty: Literal["nan", "zero"]) -> Pattern | None:
    """Follow the scores back through mask and scale to the product."""
    at, mask, scale = softmax.inputs[0], None, 1.0
    while True:
        node = at.producer if at is not None else None
        if at is None or node is None or selector.only_use(at) is None:
            return None
        if isinstance(node.op, MatMul):
            return Pattern(node, values, scale, mask, empty)
        if isinstance(node.op, Mul | Div):
            at, factor = _factor(node)
            if at is None:
                return None
            scale *= factor
        elif isinstance(node.op, Add) and mask is None and scale == 1.0:
            a, b = _two(node)
            main = [v for v in (a, b) if _leads_to_product(v) and v.shape == node.outputs[0].shape]
            if len(main) != 1 or a.dtype != b.dtype:
                return None
            at, mask = main[0], b if main[0] is a else a
        else:
            return None


def _leads_to_product(value: Value) -> bool:
    for _ in range(3):
        node = value.producer
        if node is None or not isinstance(node.op, Mul | Div | MatMul):
            return False
        if isinstance(node.op, MatMul):
            return True
        following = _factor(node)[0]
        if following is None:
            return False
        value = following
    return False


def _factor(node: Node) -> tuple[Value | None, float]:
    """Split a product with, or a quotient by, a scalar constant into the operand and the factor."""
    a, b = _two(node)
    out = node.outputs[0].shape
    number = _scalar(b)
    if number is not None and a.shape == out:
        return a, (1.0 / number if number else float("inf")) if isinstance(node.op, Div) else number
    number = _scalar(a)
    if number is not None and isinstance(node.op, Mul) and b.shape == out:
        return b, number
    return None, 1.0


def _unscaled(value: Value) -> tuple[Value, float]:
    """Split a value into one without scalar factor, and the factor."""
    node = value.producer
    if node is None or not isinstance(node.op, Mul | Div):
        return value, 1.0
    inner, factor = _factor(node)
    return (value, 1.0) if inner is None else (inner, factor)


def _scalar(value: Value) -> float | None:
    if value.const is None or value.dtype != f32 or value.const.array.size != 1:
        return None
    return float(value.const.array.reshape(-1)[0])


# -------------------------------------------------------------------------- arrangement
def _arranged(selector: Selector, found: Pattern, p: Product, o: Product, q: Value, k: Value) -> Selection | None:
    op, after = found.scores.op, found.values.op
    v = _two(found.values)[1]
    depth, shared = len(p.lead), _repeated(p, k)
    parts = (p.lead[-1].exact_div(shared) or ONE, shared) if shared != 1 else p.lead[-1:]
    lead = (*p.lead[:-1], *parts)
    left = operand(selector, Space(p.space), p, q, op.transpose_a, right=False)  # type: ignore[attr-defined]
    keys = operand(selector, Space((*lead, p.m, p.n, p.k)), p, k, op.transpose_b, True, shared)  # type: ignore[attr-defined]
    values = operand(selector, Space((*lead, o.m, o.n, o.k)), o, v, after.transpose_b, True, shared)  # type: ignore[attr-defined]
    if left is None or keys is None or values is None or left.strides[-1] not in (0, 1):
        return None
    mask = _mask(selector, p, found.mask)
    if found.mask is not None and mask is None:
        return None
    fused = FusedEpilogue.plain(found.values.outputs[0])
    result, to = result_of(selector, o, fused)

    def apart(strides: Sequence[Dim]) -> tuple[Dim, ...]:
        last = strides[depth - 1] if depth else ZERO
        return (*strides[: depth - 1], last * shared, last) if shared != 1 else tuple(strides[:depth])

    over = [apart(left.strides), keys.strides[:-3], values.strides[:-3], apart(to)]
    over += [apart(mask.strides)] if mask else []
    axes = merged(lead, *over)
    group = _share_heads(axes)
    if len(axes) > 2 or values.strides[-2] not in (0, 1):
        return None
    none = (ONE, *[ZERO] * len(over))
    heads, batch = (axes[-1] if axes else none), (axes[-2] if len(axes) > 1 else none)
    q_lead, k_lead, v_lead, o_lead, *mask_lead = zip(batch[1:], heads[1:], strict=True)
    problem = AttentionProblem(
        f32,
        selector.precision,
        found.scale,
        "none" if mask is None else "add",
        False,
        found.empty,
        batch[0],
        heads[0],
        group,
        p.m,
        p.n,
        p.k,
        o.n,
        q=(*q_lead, left.strides[depth]),
        k=(*k_lead, keys.strides[-2], keys.strides[-1]),
        v=(*v_lead, values.strides[-1]),
        o=(*o_lead, to[depth]),
        added=(*mask_lead[0], mask.strides[depth], mask.strides[depth + 1]) if mask else (ZERO, ZERO, ZERO, ZERO),
        shift=ZERO,
    )
    kernel = select(problem, selector.isa)
    if kernel is None:
        return None
    return Selection.of(kernel, problem, [left, keys, values, *([mask] if mask else [])], fused, result=result)


def _share_heads(axes: list[tuple[Dim, ...]]) -> Dim:
    """Join the last two axes if queries along the last one share a head of the keys.

    Returns how many queries share one, 1 if nothing was joined.
    """
    if len(axes) < 2 or not axes[-1][2] == axes[-1][3] == 0:
        return ONE
    joined = _joined(axes[-2], axes[-1])
    if joined is None:
        return ONE
    group = axes[-1][0]
    axes[-2:] = [joined]
    return group


def _repeated(p: Product, k: Value) -> Dim:
    """Count how often each head of K was repeated for the query heads, 1 if it was not.

    Exporters write grouped queries so.
    """
    value, heads = k, p.lead[-1] if p.lead else ONE
    for _ in range(_CHAIN):
        node = value.producer
        if node is None or node.inputs[0] is None or not isinstance(node.op, _MOVES):
            break
        before = node.inputs[0]
        if isinstance(node.op, Expand):
            ratio = product(value.shape).exact_div(product(before.shape))
            whole = ratio is not None and ratio.is_const and heads.is_const and int(heads) % int(ratio) == 0
            return ratio if ratio is not None and whole else ONE
        value = before
    return ONE


def _joined(heads: Sequence[Dim], queries: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """Join the axes of key heads and of the queries of each to one axis of query heads.

    Returns strides of Q, K, V, the output, the mask.
    """
    shared = (2, 3)  # K and V have no axis of queries
    for place, (outer, inner) in enumerate(zip(heads, queries, strict=True)):
        if place and (inner != 0 if place in shared else outer != queries[0] * inner):
            return None
    joined = [heads[k] if k in shared else queries[k] for k in range(1, len(heads))]
    return (heads[0] * queries[0], *joined)


def _mask(selector: Selector, p: Product, mask: Value | None) -> Access | None:
    """Find how the mask is read over (lead, m, n)."""
    if mask is None or mask.dtype != f32:
        return None
    shape = (*p.lead, p.m, p.n)
    skip = len(shape) - len(mask.shape)
    if skip < 0 or any(size not in (1, full) for size, full in zip(mask.shape, shape[skip:], strict=True)):
        return None
    space = Space(shape)
    zero = Space((ONE,)).at[0]
    at = tuple(zero if size == 1 else space.at[skip + n] for n, size in enumerate(mask.shape))
    return next(iter(find(selector.elements, space, mask, at)), None)
