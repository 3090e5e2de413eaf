"""Connectionist temporal classification: CTCGreedyDecoder, CTCGreedyDecoderSeqLen, CTCLoss.

Sources: OpenVINO specification, CTCGreedyDecoder-1, CTCGreedyDecoderSeqLen-6, CTCLoss-4; Graves et al., "Connectionist
Temporal Classification", 2006.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.expr import Const, Expr, Tensor, Var, call, index, select
from irc.ir.graph import Value
from irc.ir.relation import at_most, same
from irc.ir.types import FLOATS_BF16, INTEGERS, DType, TensorType, boolean, f64, i32, i64
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, DTypeAttr
from irc.opdef.conversions import as_i64, as_scalar, as_type
from irc.opdef.forms import Form, write_only
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX
from irc.ops.embedding_bag import counted
from irc.ops.loop_forms import repeated


def check_classes(op: Op, data: Value, *batches: tuple[Value, int]) -> None:
    """Check that there is a class, and as many of each operand as there are batches.  Raises Problem."""
    classes = data.shape[2]
    facts = {"op": op.name, "what": "number of classes", "value": classes, "expected": "1 or more"}
    require(at_most(1, classes), codes.SIZE_RANGE, **facts)
    for value, axis in batches:
        p, q = data.shape[axis], value.shape[0]
        require(same(p, q), codes.SIZES_DIFFER, op=op.name, what=f"axis {axis} of the data and lengths", a=p, b=q)


def best_path(b: Builder, data: Value, lengths: Value, blank: Value, merge: bool) -> tuple[Value, Value]:
    """Decode the best class of each step of data [n, t, c].  Returns classes [n, t], filled up with -1, and counts."""
    n, steps, _ = data.shape
    classes = b.ArgMax(data, axis=2, keepdims=False)
    there = b.Less(counted(b, as_scalar(b, b.dims([steps]))), b.Unsqueeze(lengths, [1]))
    kept = b.And(there, b.Not(b.Equal(classes, blank)))
    none = b.Expand(b.const([[-1]]), b.dims([n, 1]))
    if merge:
        before = b.Slice(b.Concat(none, classes, axis=1), [0], b.dims([steps]), [1])
        kept = b.And(kept, b.Not(b.Equal(classes, before)))
    ones = b.Cast(kept, to=i64)
    last = b.dims([steps])
    places = b.Where(kept, b.Sub(b.CumSum(ones, b.const(1)), b.const(1)), last)  # what is dropped goes behind the end
    path = b.ScatterElements(b.Expand(b.const(-1), b.dims([n, steps + 1])), places, classes, b.const(1))
    return b.Slice(path, [0], last, [1]), b.ReduceSum(ones, [1], keepdims=False)


@op
class CTCGreedyDecoder(Op):
    """The best class of each step of data [t, n, c] without blanks, the last class, as [n, t, 1, 1]; -1 behind the end.

    A sequence ends before the first 0 of its mask [t, n].
    """

    ctc_merge_repeated: bool = True
    sig = Sig("data: T[3], mask: T[2] -> y: T", T=FLOATS_BF16)

    def decompose(self, b: Builder, data: Value, mask: Value) -> Value:
        steps, n, classes = data.shape
        for axis in (0, 1):
            p, q = data.shape[axis], mask.shape[axis]
            what = f"axis {axis} of the data and of the mask"
            require(same(p, q), codes.SIZES_DIFFER, op=self.name, what=what, a=p, b=q)
        check_classes(self, data)
        end = as_scalar(b, b.dims([steps]))
        places = b.Where(b.Equal(mask, b.like(0, mask)), b.Unsqueeze(counted(b, end), [1]), end)
        lengths = b.ReduceMin(b.Concat(places, b.Expand(end, b.dims([1, n])), axis=0), [0], keepdims=False)
        blank = b.dims([classes - 1])
        path, _ = best_path(b, b.Transpose(data, [1, 0, 2]), lengths, blank, self.ctc_merge_repeated)
        return b.Reshape(b.Cast(path, to=data.dtype), b.dims([n, steps, 1, 1]), special_zero=False)

    openvino = (Form("CTCGreedyDecoder", 1, attrs={"ctc_merge_repeated": Bool(True)}, T=FLOATS_BF16),)


@op
class CTCGreedyDecoderSeqLen(Op):
    """The best class of each step of data [n, t, c] without blanks, and how many these are; -1 behind the last.

    blank: the class that stands for none, without it the last one.
    """

    merge_repeated: bool = True
    classes_index_type: DType = i32
    sequence_length_type: DType = i32
    sig = Sig("data: T[3], lengths: I[1], blank?: I[one] -> path: any, counts: any", T=FLOATS_BF16, I=INDEX)

    def decompose(self, b: Builder, data: Value, lengths: Value, blank: Value | None = None) -> tuple[Value, Value]:
        check_classes(self, data, (lengths, 0))
        none = b.dims([data.shape[2] - 1]) if blank is None else as_scalar(b, as_i64(b, blank))
        path, counts = best_path(b, data, as_i64(b, lengths), none, self.merge_repeated)
        return as_type(b, path, self.classes_index_type), as_type(b, counts, self.sequence_length_type)

    openvino = (
        Form(
            "CTCGreedyDecoderSeqLen",
            6,
            attrs={
                "merge_repeated": Bool(True),
                "classes_index_type": DTypeAttr(i32),
                "sequence_length_type": DTypeAttr(i32),
            },
            T={"T": FLOATS_BF16, "I": INDEX},
        ),
    )


@op
class CTCLoss(Op):
    """-ln of the probability that classes drawn by logits [n, t, c] decode to the labels of each sequence.

    Decoding merges repeated classes (`ctc_merge_repeated`) and drops blanks, by default the last class.  Of the labels,
    repeated ones are merged (`preprocess_collapse_repeated`), or all that occurred before (`unique`).
    """

    preprocess_collapse_repeated: bool = False
    ctc_merge_repeated: bool = True
    unique: bool = False
    sig = Sig(
        "logits: T[3], logit_length: I[1], labels: L[2], label_length: I[1], blank?: L[one] -> loss: T",
        T=FLOATS_BF16,
        I=INTEGERS,
        L=INTEGERS,
    )

    def decompose(
        self,
        b: Builder,
        logits: Value,
        logit_length: Value,
        labels: Value,
        label_length: Value,
        blank: Value | None = None,
    ) -> Value:
        check_classes(self, logits, (logit_length, 0), (labels, 0), (label_length, 0))
        none = b.dims([logits.shape[2] - 1]) if blank is None else b.Reshape(as_i64(b, blank), [1])
        lengths = (as_i64(b, logit_length), as_i64(b, labels), as_i64(b, label_length))
        likely = b.LogSoftmax(as_type(b, logits, f64), axis=2)
        merge = {"collapse": self.preprocess_collapse_repeated, "unique": self.unique}
        loss = b.AlignedPaths(likely, *lengths, none, merge_repeated=self.ctc_merge_repeated, **merge)
        return as_type(b, loss, logits.dtype)

    openvino = (
        Form(
            "CTCLoss",
            4,
            attrs={
                "preprocess_collapse_repeated": Bool(False),
                "ctc_merge_repeated": Bool(True),
                "unique": Bool(False),
            },
            T={"T": FLOATS_BF16, "I": INTEGERS, "L": INTEGERS},
        ),
    )


def kept_labels(b: Builder, op: AlignedPaths, labels: Value, counts: Value, room: Value) -> tuple[Value, Value]:
    """Move the labels [n, l] that count to the front.  Returns them [n, l + 1], `room` being that, and how many."""
    most = as_scalar(b, b.dims([labels.shape[1]]))
    place = counted(b, most)
    kept = b.Less(b.Unsqueeze(place, [0]), b.Unsqueeze(counts, [1]))
    if op.collapse:
        before = b.Concat(b.Slice(labels, [0], [1], [1]), b.Slice(labels, [0], [-1], [1]), axis=1)
        kept = b.And(kept, b.Not(b.And(b.Equal(labels, before), b.Greater(place, b.const(0)))))
    if op.unique:
        alike = b.Equal(b.Unsqueeze(labels, [2]), b.Unsqueeze(labels, [1]))
        earlier = b.And(alike, b.Less(b.Unsqueeze(place, [0]), b.Unsqueeze(place, [1])))
        kept = b.And(kept, b.Equal(b.ReduceMax(b.Cast(earlier, to=i64), [2], keepdims=False), b.const(0)))
    ones = b.Cast(kept, to=i64)
    places = b.Where(kept, b.Sub(b.CumSum(ones, b.const(1)), b.const(1)), most)
    target = b.ScatterElements(b.Expand(b.const(0), room), places, labels, b.const(1))
    return target, b.ReduceSum(ones, [1], keepdims=True)


def log_sum(b: Builder, never: Value, *terms: Value) -> Value:
    """The logarithm of a sum of probabilities, of their logarithms."""
    top = b.Max(*terms)
    total = b.Sum(*(b.Exp(b.Sub(v, top)) for v in terms))
    return b.Where(b.Equal(top, never), never, b.Add(top, b.Log(total)))


def write_by_steps(
    b: Builder, op: AlignedPaths, likely: Value, lengths: Value, labels: Value, counts: Value, blank: Value
) -> Value:
    """A loop over the steps that carries the paths to every state."""
    (n, steps, classes), most = likely.shape, labels.shape[1]
    target, known = kept_labels(b, op, labels, counts, b.dims([n, most + 1]))
    state = counted(b, as_scalar(b, b.dims([most * 2 + 1])))
    inside = b.Equal(b.Mod(state, b.const(2)), b.const(1))
    states = b.Where(inside, b.Gather(target, b.Div(state, b.const(2)), b.const(1)), blank)
    exists = b.And(b.GreaterOrEqual(states, b.const(0)), b.Less(states, b.dims([classes])))
    safe = b.Unsqueeze(b.Where(exists, states, b.const(0)), [1])
    likely = b.GatherElements(likely, b.Expand(safe, b.dims([n, steps, most * 2 + 1])), axis=2)
    never, zero = b.const(-np.inf, f64), b.const(0)
    likely = b.Where(b.Unsqueeze(exists, [1]), likely, never)
    skips = b.And(inside, b.Greater(state, b.const(2)))
    if op.merge_repeated:
        before = b.Concat(b.Slice(states, [0], [2], [1]), b.Slice(states, [0], [-2], [1]), axis=1)
        skips = b.And(skips, b.Not(b.Equal(states, before)))
    time = as_scalar(b, b.dims([steps]))
    there = b.Less(b.Unsqueeze(counted(b, time), [1, 2]), b.Unsqueeze(lengths, [1]))
    nobody = b.Expand(never, b.dims([n, 1]))
    # Before the first step, all paths are at the first blank, as if there were one more step.
    start = b.Where(b.Equal(state, zero), b.const(0.0, f64), b.Expand(never, b.dims([n, most * 2 + 1])))

    def step(
        b: Builder, number: Value, carried: Sequence[Value], captured: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        (paths,), (likely, there, inside, skips, nobody) = carried, captured
        never = b.const(-np.inf, f64)
        one = b.Concat(nobody, b.Slice(paths, [0], [-1], [1]), axis=1)
        two = b.Concat(nobody, b.Slice(one, [0], [-1], [1]), axis=1)
        own = paths if op.merge_repeated else b.Where(inside, never, paths)
        found = b.Add(log_sum(b, never, own, one, b.Where(skips, two, never)), b.Gather(likely, number, b.const(1)))
        return [b.Where(b.Gather(there, number, b.const(0)), found, paths)], []

    (paths,) = repeated(b, time, [start], (likely, there, inside, skips, nobody), step)
    last = b.Mul(known, b.const(2))
    other = b.GatherElements(paths, b.Max(b.Sub(last, b.const(1)), zero), axis=1)
    some = b.Greater(known, zero)
    found = log_sum(b, never, b.GatherElements(paths, last, axis=1), b.Where(some, other, never))
    nothing = b.Where(some, never, b.const(0.0, f64))
    return b.Neg(b.Squeeze(b.Where(b.Greater(b.Unsqueeze(lengths, [1]), zero), found, nothing), [1]))


@op
class AlignedPaths(Op):
    """What CTCLoss is compiled to: -ln of the sum of the probabilities of all paths that decode to the labels.

    A path is at a label or at one of the blanks around the labels: at state 2k + 1 of label k, or at an even state.
    """

    merge_repeated: bool
    collapse: bool
    unique: bool
    sig = Sig("likely: f64[3], lengths: i64[1], labels: i64[2], counts: i64[1], blank: i64[1] -> loss: f64")

    def infer(self, likely: Value, *operands: Value) -> TensorType:
        return TensorType(f64, likely.shape[:1])

    def reference(self, likely: Array, lengths: Array, labels: Array, counts: Array, blank: Array) -> Array:
        loss = np.zeros(len(likely))
        for i, rows in enumerate(likely):
            target = self._target(labels[i, : max(int(counts[i]), 0)])
            states = np.full(2 * len(target) + 1, blank[0], np.int64)
            states[1::2] = target
            known = (states >= 0) & (states < rows.shape[1])
            skips = np.zeros(len(states), bool)
            skips[3::2] = True if not self.merge_repeated else states[3::2] != states[1:-2:2]
            stays = np.arange(len(states)) % 2 == 0 if not self.merge_repeated else np.ones(len(states), bool)
            paths = np.full(len(states), -np.inf)
            with np.errstate(all="ignore"):
                for t, row in enumerate(rows[: max(int(lengths[i]), 0)]):
                    step = np.where(known, row[np.clip(states, 0, len(row) - 1)], -np.inf)
                    if t == 0:
                        before = np.where(np.arange(len(states)) < 2, 0.0, -np.inf)
                    else:
                        one = np.concatenate([[-np.inf], paths[:-1]])
                        two = np.concatenate([[-np.inf] * min(2, len(paths)), paths[:-2]])
                        own = np.where(stays, paths, -np.inf)
                        before = _sum(own, one, np.where(skips, two, -np.inf))
                    paths = before + step
                ends = paths[-1] if len(paths) == 1 else _sum(paths[-1], paths[-2], np.array(-np.inf))
            if lengths[i] <= 0:
                ends = 0.0 if len(target) == 0 else -np.inf
            loss[i] = -ends
        return loss

    def _target(self, labels: Array) -> list[int]:
        found: list[int] = []
        for k, label in enumerate(labels.tolist()):
            repeated = self.collapse and k > 0 and label == labels[k - 1]
            if not repeated and not (self.unique and label in found):
                found.append(label)
        return found

    def loops(
        self,
        b: LoopBuilder,
        likely: Tensor,
        lengths: Tensor,
        labels: Tensor,
        counts: Tensor,
        blank: Tensor,
        loss: Tensor,
    ) -> None:
        batches, steps, classes = likely.shape
        most = labels.shape[1]
        target = b.alloc(i64, [most + 1], "target")
        paths, after = (b.alloc(f64, [most * 2 + 1], name) for name in ("paths", "after"))
        with b.for_(batches) as i:
            length = b.let(lengths[i].max(0).min(index(steps)), "length")
            count = b.let(counts[i].max(0).min(index(most)), "count")
            known = self._keep_labels(b, labels, target, i, count)
            states = b.let(known * 2 + 1, "states")
            with b.for_(states) as s:
                b.store(paths, (s,), NEVER)
            with b.for_(length) as t:
                with b.for_(states) as s:
                    inside = b.let((s % 2).eq(1), "inside")
                    label = b.let(select(inside, target[s // 2], blank[0]), "label")
                    exists = label.ge(0).logical_and(label.lt(index(classes)))
                    place = label.max(0).min(index(classes) - 1)
                    step = b.let(select(exists, likely[i, t, place], NEVER), "step")
                    begins = b.let(select(s.lt(2), Const(0.0, f64), NEVER), "begins")
                    before = b.var(begins, "before")
                    with b.if_(t.gt(0)):
                        b.assign(before, self._arrive(b, target, paths, s, inside))
                    b.store(after, (s,), before + step)
                with b.for_(states) as s:
                    b.store(paths, (s,), after[s])
            end = b.let(paths[states - 1], "end")
            other = b.var(NEVER, "other")
            with b.if_(known.gt(0)):
                b.assign(other, paths[(states - 2).max(0)])
            nothing = select(known.eq(0), Const(0.0, f64), NEVER)
            found = _summed(b, end, other, NEVER)
            b.store(loss, (i,), -select(length.gt(0), found, nothing))

    def _keep_labels(self, b: LoopBuilder, labels: Tensor, target: Tensor, i: Var, count: Expr) -> Var:
        """Fill in the labels that count.  Returns how many these are."""
        known = b.var(Const(0, i64), "known")
        with b.for_(count) as k:
            label = b.let(labels[i, k], "label")
            kept = b.var(Const(True, boolean), "kept")
            if self.collapse:
                with b.if_(k.gt(0)):
                    b.assign(kept, label.ne(labels[i, (k - 1).max(0)]))
            if self.unique:
                with b.for_(known) as j, b.if_(target[j].eq(label)):
                    b.assign(kept, Const(False, boolean))
            with b.if_(kept):
                b.store(target, (known,), label)
                b.assign(known, known + 1)
        return known

    def _arrive(self, b: LoopBuilder, target: Tensor, paths: Tensor, s: Var, inside: Expr) -> Expr:
        """Sum up the paths that go on to a state."""
        own = b.let(paths[s] if self.merge_repeated else select(inside, NEVER, paths[s]), "own")
        one = b.let(select(s.ge(1), paths[(s - 1).max(0)], NEVER), "one")
        skips = inside.logical_and(s.ge(2))
        if self.merge_repeated:
            skips = skips.logical_and(target[s // 2].ne(target[(s // 2 - 1).max(0)]))
        two = b.let(select(skips, paths[(s - 2).max(0)], NEVER), "two")
        return _summed(b, own, one, two)

    onnx = (write_only(write_by_steps, since=11),)


NEVER = Const(float("-inf"), f64)
"""The logarithm of no probability."""


def _sum(a: Array, b: Array, c: Array) -> Array:
    """The logarithm of the sum of three probabilities, of their logarithms."""
    top = np.maximum(np.maximum(a, b), c)
    return np.where(top == -np.inf, top, top + np.log(np.exp(a - top) + np.exp(b - top) + np.exp(c - top)))


def _summed(b: LoopBuilder, one: Expr, two: Expr, three: Expr) -> Expr:
    """`_sum` of expressions."""
    top = b.let(one.max(two).max(three), "top")
    total = call("exp", one - top) + call("exp", two - top) + call("exp", three - top)
    return b.let(select(top.eq(NEVER), top, top + call("log", total)), "sum")
