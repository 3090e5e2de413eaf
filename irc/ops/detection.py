"""Detection of objects: NonMaxSuppression.

Source: ONNX NonMaxSuppression.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.expr import Const, Expr, Tensor, index, select
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import TensorType, boolean, f32, i64
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool
from irc.opdef.forms import Form
from irc.opdef.signature import Sig

OPERANDS = "boxes: f32[3], scores: f32[3], most?: i64[one], overlap?: f32[one], least?: f32[one]"


def check_boxes(name: str, boxes: Value, scores: Value) -> None:
    """Require a score of every class for every box of four numbers."""
    for axis, size in ((0, scores.shape[0]), (1, scores.shape[2]), (2, Dim.of(4))):
        what = f"axis {axis} of the boxes"
        fits = same(boxes.shape[axis], size)
        require(fits, codes.SIZE_RANGE, op=name, what=what, value=boxes.shape[axis], expected=f"{size}")


@op
class NonMaxSuppression(Op):
    """The boxes that overlap none of a better score of their class by more than `overlap`.

    Each row is (batch, class, box), of every class by descending score, of equal ones the first first. most: how many
    of a class at most, 0 where absent. A score below `least`, or NaN, is left out.
    boxes: [batch, n, 4], two opposite corners (y, x, y, x), or `centered` (x, y, width, height).
    """

    centered: bool = False
    sig = Sig(f"{OPERANDS} -> rows: i64")

    def decompose(
        self,
        b: Builder,
        boxes: Value,
        scores: Value,
        most: Value | None = None,
        overlap: Value | None = None,
        least: Value | None = None,
    ) -> Value:
        known = [0] if most is None else most.ints()
        select_boxes = SelectBoxes(centered=self.centered, room=None if known is None else max(known[0], 0))
        rows, count = b.add_all(select_boxes, boxes, scores, most, overlap, least)
        return b.Slice(rows, [0], count, [0])

    onnx = (
        Form("NonMaxSuppression", 10, attrs={"center_point_box": Bool(False, to="centered")}),
        Form("NonMaxSuppression", 11),
    )


def corners(boxes: Array, centered: bool) -> Array:
    """The smaller and the larger coordinates of boxes [n, 4], as [2, n, 2]."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if centered:
        half = second / np.float32(2)
        first, second = first - half, first + half
    return np.stack([np.minimum(first, second), np.maximum(first, second)])


def overlapping(low: Array, high: Array, chosen: int, limit: np.float32) -> Array:
    """Which boxes share more than `limit` of their union with the chosen one."""
    sides = np.maximum(np.minimum(high, high[chosen]) - np.maximum(low, low[chosen]), np.float32(0))
    shared = sides[:, 0] * sides[:, 1]
    area = (high[:, 0] - low[:, 0]) * (high[:, 1] - low[:, 1])
    union = area + area[chosen] - shared
    there = (shared > 0) & (union > 0)
    return there & (shared / np.where(there, union, np.float32(1)) > limit)


@op
class SelectBoxes(Op):
    """What NonMaxSuppression is compiled to: its rows among as many as there can be, and how many it has selected.

    The rows behind these are 0. room: the rows of a class, where `most` is known; absent: one for each box.
    """

    centered: bool = False
    room: int | None = None
    sig = Sig(f"{OPERANDS} -> rows: i64, count: i64")

    def infer(
        self,
        boxes: Value,
        scores: Value,
        most: Value | None = None,
        overlap: Value | None = None,
        least: Value | None = None,
    ) -> list[TensorType]:
        check_boxes("NonMaxSuppression", boxes, scores)
        batch, classes, n = scores.shape
        size = n if self.room is None else n.minimum(self.room)
        return [TensorType.of(i64, [batch * classes * size, 3]), TensorType.of(i64, [1])]

    def reference(
        self,
        boxes: Array,
        scores: Array,
        most: Array | None = None,
        overlap: Array | None = None,
        least: Array | None = None,
    ) -> tuple[Array, Array]:
        limit = 0 if most is None else max(int(most.reshape(-1)[0]), 0)
        shared = np.float32(0) if overlap is None else overlap.reshape(-1)[0]
        found: list[tuple[int, int, int]] = []
        for batch in range(scores.shape[0]):
            low, high = corners(boxes[batch], self.centered)
            for kind in range(scores.shape[1]):
                score = scores[batch, kind]
                left = score == score
                if least is not None:
                    left &= score >= least.reshape(-1)[0]
                taken = 0
                for box in np.argsort(-score, kind="stable"):
                    if taken < limit and left[box]:
                        found.append((batch, kind, int(box)))
                        left &= ~overlapping(low, high, box, shared)
                        taken += 1
        batch, classes, n = scores.shape
        rows = np.zeros((batch * classes * (n if self.room is None else min(n, self.room)), 3), np.int64)
        if found:
            rows[: len(found)] = found
        return rows, np.array([len(found)], np.int64)

    def loops(
        self,
        b: LoopBuilder,
        boxes: Tensor,
        scores: Tensor,
        most: Tensor | None,
        overlap: Tensor | None,
        least: Tensor | None,
        rows: Tensor,
        count: Tensor,
    ) -> None:
        """Pass over the boxes once for each that is taken: it drops what overlaps the last one and finds the next."""
        batches, classes, n = scores.shape
        with b.nest(rows.shape) as i:
            b.store(rows, i, 0)
        total = b.var(Const(0, i64), "total")
        left = b.alloc(boolean, [n], "left")
        limit = Const(0, i64) if most is None else most[(0,) * most.rank]
        shared = Const(0.0, f32) if overlap is None else overlap[(0,) * overlap.rank]
        with b.nest([batches, classes]) as (batch, kind):
            with b.for_(n) as j:
                score = scores[batch, kind, j]
                wanted = score.eq(score)
                if least is not None:
                    wanted = wanted.logical_and(score.ge(least[(0,) * least.rank]))
                b.store(left, (j,), wanted)
            last = b.var(Const(-1, i64), "last")
            going = b.var(Const(True, boolean), "going")
            with b.for_(index(n).min(limit)), b.if_(going):
                best = self._next(b, [boxes, scores], (batch, kind), left, last, shared)
                b.assign(last, best)
                with b.if_(best.lt(0)):
                    b.assign(going, Const(False, boolean))
                with b.else_():
                    b.store(left, (best,), Const(False, boolean))
                    for axis, number in enumerate((batch, kind, best)):
                        b.store(rows, (total, axis), number)
                    b.assign(total, total + 1)
        b.store(count, (0,), total)

    def _next(
        self, b: LoopBuilder, operands: Sequence[Tensor], at: tuple[Expr, Expr], left: Tensor, last: Expr, shared: Expr
    ) -> Expr:
        """Find the best box that is left and does not overlap the last one.  Returns its index, or -1."""
        boxes, scores = operands
        batch, kind = at
        best = b.var(Const(-1, i64), "best")
        top = b.var(Const(0.0, f32), "top")
        chosen = [b.let(v, "corner") for v in self._corners(boxes, batch, last.max(0))]
        with b.for_(scores.shape[2]) as j, b.if_(left[j]):
            box = [b.let(v, "corner") for v in self._corners(boxes, batch, j)]
            inner = b.let(self._shared(chosen, box), "shared")
            union = b.let(self._area(chosen) + self._area(box) - inner, "union")
            both = inner.gt(0).logical_and(union.gt(0)).logical_and(last.ge(0))
            with b.if_(both.logical_and((inner / select(both, union, Const(1.0, f32))).gt(shared))):
                b.store(left, (j,), Const(False, boolean))
            with b.else_():
                score = b.let(scores[batch, kind, j], "score")
                with b.if_(best.lt(0).logical_or(score.gt(top))):
                    b.assign(best, j)
                    b.assign(top, score)
        return best

    def _corners(self, boxes: Tensor, batch: Expr, j: Expr) -> list[Expr]:
        """The two smaller and the two larger coordinates of a box."""
        first, second = ([boxes[batch, j, k] for k in half] for half in ((0, 1), (2, 3)))
        if self.centered:
            first, second = ([p - q / 2 for p, q in zip(first, second)], [p + q / 2 for p, q in zip(first, second)])
        return [p.min(q) for p, q in zip(first, second)] + [p.max(q) for p, q in zip(first, second)]

    def _area(self, box: Sequence[Expr]) -> Expr:
        return (box[2] - box[0]) * (box[3] - box[1])

    def _shared(self, one: Sequence[Expr], other: Sequence[Expr]) -> Expr:
        sides = [(one[k + 2].min(other[k + 2]) - one[k].max(other[k])).max(0) for k in (0, 1)]
        return sides[0] * sides[1]
