"""What selects boxes by their scores and by how much they overlap: the core of non-maximum suppression.

Sources: ONNX NonMaxSuppression; OpenVINO specification, NonMaxSuppression-9, MulticlassNms-9, NMSRotated-13;
Soft-NMS (arXiv:1704.04503).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.expr import Bin, Const, Expr, Tensor, Var, call, index, select
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import TensorType, boolean, f32, i32, i64
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_i64, as_type
from irc.opdef.forms import write_only
from irc.opdef.signature import Sig
from irc.ops.rotated_boxes import rotated_corners, rotated_intersection, shared_area_of_rotated
from irc.ops.score_order import ScoreOrder
from irc.ops.select_boxes_onnx import ADAPTS_ABOVE, write_by_loop

TOGETHER = 64
"""Boxes with which another one is compared before the next of them."""
OPERANDS = "boxes: f32[3], scores: f32[3], most?: i64[one], overlap?: f32[one], least?: f32[one]"


def check_boxes(name: str, boxes: Value, scores: Value, numbers: int = 4) -> None:
    """Require a score of every class for every box of that many numbers."""
    for axis, size in ((0, scores.shape[0]), (1, scores.shape[2]), (2, Dim.of(numbers))):
        what = f"axis {axis} of the boxes"
        fits = same(boxes.shape[axis], size)
        require(fits, codes.SIZE_RANGE, op=name, what=what, value=boxes.shape[axis], expected=f"{size}")


def suppressed(
    b: Builder,
    boxes: Value,
    scores: Value,
    most: Value | None,
    overlap: Value | None,
    least: Value | None,
    sigma: Value | None = None,
    **attributes: object,
) -> tuple[Value, Value]:
    """Select boxes, by ONNX's operation where it can say how.  Returns rows (batch, class, box) and their scores."""
    boxes, scores = as_type(b, boxes, f32), as_type(b, scores, f32)
    most = None if most is None else as_i64(b, most)
    overlap, least = (None if v is None else as_type(b, v, f32) for v in (overlap, least))
    if sigma is None and set(attributes) <= {"centered"}:
        rows = b.NonMaxSuppression(boxes, scores, most, overlap, least, **attributes)
        return rows, b.GatherND(scores, rows)
    limits = None if sigma is None else as_type(b, sigma, f32)
    chosen = SelectBoxes(**attributes, room=room(most))  # pyright: ignore[reportArgumentType]
    rows, values, count = b.add_all(chosen, boxes, scores, most, overlap, least, limits)
    return b.Slice(rows, [0], count, [0]), b.Slice(values, [0], count, [0])


def room(most: Value | None) -> int | None:
    """Tell how many boxes of a class are selected at most, where that is known."""
    known = [0] if most is None else most.ints()
    return None if known is None else max(known[0], 0)


def corners(boxes: Array, centered: bool) -> Array:
    """The smaller and the larger coordinates of boxes [n, 4], as [2, n, 2]."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if centered:
        half = second / np.float32(2)
        first, second = first - half, first + half
    return np.stack([np.minimum(first, second), np.maximum(first, second)])


def shared_area(low: Array, high: Array, chosen: int) -> tuple[Array, Array]:
    """What each box shares with the chosen one, and the area of each."""
    sides = np.maximum(np.minimum(high, high[chosen]) - np.maximum(low, low[chosen]), np.float32(0))
    return sides[:, 0] * sides[:, 1], (high[:, 0] - low[:, 0]) * (high[:, 1] - low[:, 1])


def overlaps(boxes: Array, chosen: int, centered: bool, rotated: bool) -> Array:
    """Which part of their union each box shares with the chosen one; 0 where there is none."""
    if rotated:
        shared, area = shared_area_of_rotated(boxes, chosen)
    else:
        low, high = corners(boxes, centered)
        shared, area = shared_area(low, high, chosen)
    union = area + area[chosen] - shared
    there = (shared > 0) & (union > 0)
    return np.where(there, shared / np.where(there, union, np.float32(1)), np.float32(0))


@op
class SelectBoxes(Op):
    """What NonMaxSuppression is compiled to: rows among as many as there can be, their scores, how many are selected.

    The rows behind these are 0. room: the rows of a class, where `most` is known; absent: one for each box.
    sigma: what overlaps a selected box keeps exp(−overlap²/2σ) of its score, also beyond the limit unless `limited`.
    eta: factor of the limit after each selection, while it is above ½. rotated: boxes are x, y, width, height, angle.
    """

    centered: bool = False
    rotated: bool = False
    room: int | None = None
    eta: float = 1.0
    limited: bool = False
    sig = Sig(f"{OPERANDS}, sigma?: f32[one] -> rows: i64, values: f32, count: i64")

    def infer(
        self,
        boxes: Value,
        scores: Value,
        most: Value | None = None,
        overlap: Value | None = None,
        least: Value | None = None,
        sigma: Value | None = None,
    ) -> list[TensorType]:
        check_boxes("NonMaxSuppression", boxes, scores, 5 if self.rotated else 4)
        batch, classes, n = scores.shape
        size = batch * classes * (n if self.room is None else n.minimum(self.room))
        return [TensorType.of(i64, [size, 3]), TensorType.of(f32, [size]), TensorType.of(i64, [1])]

    def reference(
        self,
        boxes: Array,
        scores: Array,
        most: Array | None = None,
        overlap: Array | None = None,
        least: Array | None = None,
        sigma: Array | None = None,
    ) -> tuple[Array, Array, Array]:
        number = 0 if most is None else max(int(most.reshape(-1)[0]), 0)
        limit = np.float32(0) if overlap is None else overlap.reshape(-1)[0]
        lowest = None if least is None else least.reshape(-1)[0]
        width = np.float32(0) if sigma is None else sigma.reshape(-1)[0]
        found: list[tuple[int, int, int]] = []
        kept: list[Array] = []
        for batch in range(scores.shape[0]):
            for kind in range(scores.shape[1]):
                for box, score in self._of_class(boxes[batch], scores[batch, kind], number, limit, lowest, width):
                    found.append((batch, kind, box))
                    kept.append(score)
        batch, classes, n = scores.shape
        size = batch * classes * (n if self.room is None else min(n, self.room))
        rows, values = np.zeros((size, 3), np.int64), np.zeros(size, np.float32)
        if found:
            rows[: len(found)] = found
            values[: len(kept)] = kept
        return rows, values, np.array([len(found)], np.int64)

    def _of_class(
        self, boxes: Array, scores: Array, most: int, limit: Any, least: Any, sigma: Any
    ) -> list[tuple[int, Array]]:
        """Select boxes of one class, with the scores that they have then."""
        scores = scores.copy()
        found: list[tuple[int, Array]] = []
        left = (scores == scores) if least is None else scores >= least
        while len(found) < most and left.any():
            candidates = np.flatnonzero(left)
            box = int(candidates[np.argmax(scores[candidates])])
            found.append((box, scores[box]))
            left[box] = False
            if limit > 0.5:
                limit = limit * np.float32(self.eta)
            part = overlaps(boxes, box, self.centered, self.rotated)
            if sigma > 0:
                scores = scores * np.exp(np.float32(-0.5) / sigma * part * part)
                left &= True if least is None else scores >= least
            if self.limited or not sigma > 0:
                left &= ~(part > limit)
        return found

    def loops(
        self,
        b: LoopBuilder,
        boxes: Tensor,
        scores: Tensor,
        most: Tensor | None,
        overlap: Tensor | None,
        least: Tensor | None,
        sigma: Tensor | None,
        rows: Tensor,
        values: Tensor,
        count: Tensor,
    ) -> None:
        """Write the loops; where nothing changes scores and limits are cheap, by the order of the scores."""
        with b.for_(rows.shape[0]) as i:
            b.store(values, (i,), 0.0)
            with b.for_(3) as j:
                b.store(rows, (i, j), 0)
        total = b.var(Const(0, i64), "total")
        numbers = [None if v is None else v[(0,) * v.rank] for v in (most, overlap, least, sigma)]
        if sigma is None and not self.rotated:
            self._in_order(b, boxes, scores, numbers[:3], (rows, values), total)
        else:
            self._pass_by_pass(b, boxes, scores, numbers, (rows, values), total)
        b.store(count, (0,), total)

    def _in_order(
        self,
        b: LoopBuilder,
        boxes: Tensor,
        scores: Tensor,
        numbers: Sequence[Expr | None],
        results: tuple[Tensor, Tensor],
        total: Var,
    ) -> None:
        """Take boxes in the order of their scores, those that overlap none that was taken before."""
        (batches, classes, n), (most, overlap, least) = scores.shape, numbers
        amount = b.let(Const(0, i64) if most is None else most, "amount")
        order, kept = ScoreOrder(b, n), [b.alloc(f32, [n], "kept") for _ in range(4 if self.eta == 1.0 else 5)]
        with b.nest([batches, classes]) as (batch, kind):
            order.clear()
            with b.for_(n, name="j") as j:
                score = b.let(scores[batch, kind, j], "score")
                order.add(j, score, score.eq(score) if least is None else score.ge(least))
            order.sort()
            limit = b.var(Const(0.0, f32) if overlap is None else overlap, "limit")
            taken = b.var(Const(0, i64), "taken")
            with b.for_(order.count, name="k") as k, b.if_(taken.lt(amount)):
                box = b.let(order.order[k], "box")
                own = self._form(b, boxes, batch, box)
                with b.if_(self._free(b, own, kept, taken, limit)):
                    self._take(b, results, total, (batch, kind, box), scores[batch, kind, box], limit)
                    for place, value in zip(kept, (*own, limit), strict=False):
                        b.store(place, (taken,), value)
                    b.assign(taken, taken + 1)

    def _take(
        self,
        b: LoopBuilder,
        results: tuple[Tensor, Tensor],
        total: Var,
        box: tuple[Expr, Expr, Expr],
        score: Expr,
        limit: Var,
    ) -> None:
        """Add a box, by its batch, class and number, to the results, and lower the limit for those after it."""
        rows, values = results
        for axis, number in enumerate(box):
            b.store(rows, (total, axis), number)
        b.store(values, (total,), score)
        b.assign(total, total + 1)
        if self.eta != 1.0:
            with b.if_(limit.gt(ADAPTS_ABOVE)):
                b.assign(limit, limit * self.eta)

    def _free(self, b: LoopBuilder, box: list[Expr], kept: Sequence[Tensor], taken: Expr, limit: Expr) -> Expr:
        """Tell whether a box overlaps none of those that were kept, comparing with some of these at a time."""
        hit = b.var(Const(0, i32), "hit")
        with b.for_((taken + (TOGETHER - 1)) // TOGETHER, name="m") as m, b.if_(hit.eq(0)):
            first = b.let(m * TOGETHER, "first")
            with b.for_((taken - first).min(TOGETHER), name="s") as s:
                part = self._overlap(b, [v[first + s] for v in kept[:4]], box)
                most = limit if self.eta == 1.0 else kept[4][first + s]
                over = select(part.gt(most), Const(1, i32), Const(0, i32))
                b.assign(hit, Bin("bitor", hit, over))
        return hit.eq(0)

    def _pass_by_pass(
        self,
        b: LoopBuilder,
        boxes: Tensor,
        scores: Tensor,
        numbers: Sequence[Expr | None],
        results: tuple[Tensor, Tensor],
        total: Var,
    ) -> None:
        """Pass over the boxes once for each that is taken: it drops what overlaps the last one and finds the next."""
        (batches, classes, n), (most, *limits) = scores.shape, numbers
        left, current = b.alloc(boolean, [n], "left"), b.alloc(f32, [n], "current")
        amount = Const(0, i64) if most is None else most
        with b.nest([batches, classes]) as (batch, kind):
            with b.for_(n) as j:
                score = b.let(scores[batch, kind, j], "score")
                b.store(current, (j,), score)
                b.store(left, (j,), score.eq(score) if limits[1] is None else score.ge(limits[1]))
            last = b.var(Const(-1, i64), "last")
            limit = b.var(Const(0.0, f32) if limits[0] is None else limits[0], "limit")
            going = b.var(Const(True, boolean), "going")
            with b.for_(index(n).min(amount)), b.if_(going):
                best = self._next(b, boxes, batch, (left, current), last, [limit, *limits[1:]])
                b.assign(last, best)
                with b.if_(best.lt(0)):
                    b.assign(going, Const(False, boolean))
                with b.else_():
                    b.store(left, (best,), Const(False, boolean))
                    self._take(b, results, total, (batch, kind, best), current[best], limit)

    def _next(
        self,
        b: LoopBuilder,
        boxes: Tensor,
        batch: Expr,
        state: tuple[Tensor, Tensor],
        last: Var,
        limits: Sequence[Expr | None],
    ) -> Expr:
        """Find the best box that is left and does not overlap the last one.  Returns its index, or -1."""
        left, current = state
        limit, least, sigma = limits
        assert limit is not None
        best = b.var(Const(-1, i64), "best")
        top = b.var(Const(0.0, f32), "top")
        chosen = self._form(b, boxes, batch, last.max(0))
        with b.for_(boxes.shape[1]) as j, b.if_(left[j]):
            with b.if_(last.ge(0)):
                part = self._overlap(b, chosen, self._form(b, boxes, batch, j))
                dropped: Expr = part.gt(limit)
                if sigma is not None:
                    soft = sigma.gt(0.0)
                    with b.if_(soft):
                        weight = call("exp", Const(-0.5, f32) / sigma * part * part)
                        b.store(current, (j,), current[j] * weight)
                    dropped = dropped if self.limited else dropped.logical_and(soft.logical_not())
                    if least is not None:
                        dropped = dropped.logical_or(current[j].ge(least).logical_not())
                with b.if_(dropped):
                    b.store(left, (j,), Const(False, boolean))
            with b.if_(left[j].logical_and(best.lt(0).logical_or(current[j].gt(top)))):
                b.assign(best, j)
                b.assign(top, current[j])
        return best

    def _form(self, b: LoopBuilder, boxes: Tensor, batch: Expr, j: Expr) -> list[Expr]:
        """The two smaller and the two larger coordinates of a box; of a rotated one its numbers and its corners."""
        if self.rotated:
            return rotated_corners(b, [boxes[batch, j, k] for k in range(5)])
        first, second = ([boxes[batch, j, k] for k in half] for half in ((0, 1), (2, 3)))
        if self.centered:
            first, second = ([p - q / 2 for p, q in zip(first, second)], [p + q / 2 for p, q in zip(first, second)])
        found = [p.min(q) for p, q in zip(first, second)] + [p.max(q) for p, q in zip(first, second)]
        return [b.let(v, "corner") for v in found]

    def _overlap(self, b: LoopBuilder, one: Sequence[Expr], other: Sequence[Expr]) -> Expr:
        """Which part of their union two boxes share."""
        if self.rotated:
            shared, areas = rotated_intersection(b, one, other), one[2] * one[3] + other[2] * other[3]
        else:
            sides = [(one[k + 2].min(other[k + 2]) - one[k].max(other[k])).max(0) for k in (0, 1)]
            shared = b.let(sides[0] * sides[1], "shared")
            areas = area(one) + area(other)
        union = b.let(areas - shared, "union")
        both = shared.gt(0).logical_and(union.gt(0))
        return b.let(select(both, shared / select(both, union, Const(1.0, f32)), Const(0.0, f32)), "part")

    onnx = (write_only(write_by_loop, since=11),)


def area(box: Sequence[Expr]) -> Expr:
    """The area of a box of corners."""
    return (box[2] - box[0]) * (box[3] - box[1])
