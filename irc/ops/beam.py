"""Beam search: GatherTree.

Source: OpenVINO specification, GatherTree-1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.expr import Const, Tensor, index
from irc.ir.graph import Value
from irc.ir.relation import every, same
from irc.ir.types import NUMERIC, TensorType, boolean, i64
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_scalar
from irc.opdef.forms import Form, write_only
from irc.opdef.signature import Sig
from irc.ops.embedding_bag import counted
from irc.ops.loop_forms import laid, repeated


def write_backwards(b: Builder, op: GatherTree, steps: Value, parents: Value, lengths: Value, end: Value) -> Value:
    """A loop from the last step to the first that carries where each sequence is."""
    times, batches, beams = steps.shape
    length, width = as_scalar(b, b.dims([times])), as_scalar(b, b.dims([beams]))
    there = b.Less(b.Unsqueeze(counted(b, length), [1, 2]), b.Unsqueeze(b.Cast(lengths, to=i64), [1]))
    start = b.Expand(counted(b, width), b.dims([batches, beams]))
    captured = (steps, parents, there, as_scalar(b, end), width, b.Sub(length, b.const(1)))

    def step(
        b: Builder, number: Value, carried: Sequence[Value], captured: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        (place,), (*slices, end, width, last) = carried, captured
        tokens, before, there = (b.Gather(v, b.Sub(last, number), b.const(0)) for v in slices)
        known = b.And(there, b.And(b.GreaterOrEqual(place, b.const(0)), b.Less(place, width)))
        safe = b.Where(known, place, b.const(0))
        found = b.Where(known, b.GatherElements(tokens, safe, axis=1), end)
        return [b.Where(known, b.Cast(b.GatherElements(before, safe, axis=1), to=i64), place)], [found]

    _, rows = repeated(b, length, [start], captured, step)
    y = laid(b, rows, 0, True)
    over = b.Greater(b.CumSum(b.Cast(b.Equal(y, captured[3]), to=i64), b.const(0)), b.const(0))
    return b.Where(over, captured[3], y)


@op
class GatherTree(Op):
    """The whole sequence of each beam [time, batch, beam]: from its last step back along `parents`.

    Behind the first `end`, and behind the length of the batch's sequences, there is `end` only.  A parent that is no
    beam ends the way back.
    """

    sig = Sig("steps: T[3], parents: T[3], lengths: T[1], end: T[one] -> y: T", T=NUMERIC)

    def infer(self, steps: Value, parents: Value, lengths: Value, end: Value) -> TensorType:
        equal = every(*map(same, steps.shape, parents.shape))
        require(equal, codes.SHAPES_DIFFER, op=self.name, first=steps.tensor, second=parents.tensor)
        p, q = steps.shape[1], lengths.shape[0]
        require(same(p, q), codes.SIZES_DIFFER, op=self.name, what="batches and lengths", a=p, b=q)
        return steps.tensor

    def reference(self, steps: Array, parents: Array, lengths: Array, end: Array) -> Array:
        times, batches, beams = steps.shape
        last = end.reshape(-1)[0]
        y = np.full(steps.shape, last, steps.dtype)
        for batch in range(batches):
            length = int(min(max(lengths[batch].astype(np.int64), 0), times))
            for beam in range(beams):
                place = beam
                for time in reversed(range(length)):
                    if not 0 <= place < beams:
                        break
                    y[time, batch, beam] = steps[time, batch, place]
                    place = int(parents[time, batch, place].astype(np.int64))
                ends = np.flatnonzero(y[:, batch, beam] == last)
                if len(ends):
                    y[ends[0] :, batch, beam] = last
        return y

    def loops(self, b: LoopBuilder, steps: Tensor, parents: Tensor, lengths: Tensor, end: Tensor, y: Tensor) -> None:
        times, beams = index(steps.shape[0]), index(steps.shape[2])
        last = end[(0,) * end.rank]
        with b.nest(steps.shape[1:], "parallel") as (batch, beam):
            length = b.let(lengths[batch].cast(i64).max(0).min(times), "length")
            place = b.var(beam, "place")
            with b.for_(times) as k:
                time = b.let(times - 1 - k, "time")
                b.store(y, (time, batch, beam), last)
                known = time.lt(length).logical_and(place.ge(0)).logical_and(place.lt(beams))
                with b.if_(known):
                    b.store(y, (time, batch, beam), steps[time, batch, place])
                    b.assign(place, parents[time, batch, place].cast(i64))
            over = b.var(Const(False, boolean), "over")
            with b.for_(times) as time:
                b.assign(over, over.logical_or(y[time, batch, beam].eq(last)))
                with b.if_(over):
                    b.store(y, (time, batch, beam), last)

    onnx = (write_only(write_backwards, since=11),)
    openvino = (Form("GatherTree", 1, T=NUMERIC),)
