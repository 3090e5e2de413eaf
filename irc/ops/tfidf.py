"""Counts of n-grams: TfIdfVectorizer.

Source: ONNX TfIdfVectorizer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes
from irc.expr import Const, Tensor
from irc.ir.graph import Value
from irc.ir.types import TensorType, boolean, dynamic, f32, i32, i64, string
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Enum, Floats, Int, Ints, Strs
from irc.opdef.forms import Declined, Form, write_only
from irc.opdef.run_sizes import TO_THE_END
from irc.opdef.signature import Sig
from irc.ops.find_keys import position_of


@op
class TfIdfVectorizer(Op):
    """How often each n-gram of the pool occurs in each row, with up to max_skip_count items left out between its own.

    x: [items] or [rows, items].  mode: TF counts; IDF gives the weight of what occurs; TFIDF count times weight.
    """

    max_gram_length: int
    max_skip_count: int
    min_gram_length: int
    mode: str
    ngram_counts: tuple[int, ...]
    ngram_indexes: tuple[int, ...]
    pool_int64s: tuple[int, ...] = ()
    pool_strings: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    sig = Sig("x: T[1..2] -> y: f32", T={string, i32, i64})

    def grams(self, pool: Sequence[int] | Sequence[str]) -> list[tuple[int, Sequence[int] | Sequence[str]]]:
        """The n-grams of the pool in their order, each with its length."""
        ends = [*self.ngram_counts[1:], len(pool)]
        found: list[tuple[int, Sequence[int] | Sequence[str]]] = []
        for length, (start, end) in enumerate(zip(self.ngram_counts, ends, strict=True), 1):
            fits = 0 <= start <= end <= len(pool) and (end - start) % length == 0
            facts = {"attribute": "ngram_counts", "value": start, "expected": "where whole n-grams of the pool start"}
            require(fits, codes.ATTRIBUTE_RANGE, op=self.name, **facts)
            found += [(length, pool[k : k + length]) for k in range(start, end, length)]
        facts = {"attribute": "ngram_indexes", "given": len(self.ngram_indexes), "needed": len(found)}
        require(len(found) == len(self.ngram_indexes), codes.ATTRIBUTE_LENGTH, op=self.name, **facts)
        return found

    def decompose(self, b: Builder, x: Value) -> Value:
        kind = string if x.dtype == string or (x.dtype == dynamic and self.pool_strings) else i64
        pool: Sequence[int] | Sequence[str] = self.pool_strings if kind == string else self.pool_int64s
        items = list(dict.fromkeys(pool))
        number = {item: k for k, item in enumerate(items)}
        width = max(self.ngram_indexes, default=-1) + 1
        given = zip(self.grams(pool), self.ngram_indexes, strict=True)
        used = [(g, i) for (n, g), i in given if self.min_gram_length <= n <= self.max_gram_length]
        table = np.full((len(used), max(self.max_gram_length, 1)), -1, np.int64)
        for row, (gram, _) in zip(table, used, strict=True):
            row[: len(gram)] = [number[item] for item in gram]
        ids = position_of(b, x, items, kind)
        rows = b.Unsqueeze(ids, [0]) if len(x.shape) == 1 else ids
        places = b.const([i for _, i in used])
        counts = b.CountGrams(rows, b.const(table), places, skips=self.max_skip_count, width=width)
        found = self._weighted(b, counts, width)
        return b.Squeeze(found, [0]) if len(x.shape) == 1 else found

    def _weighted(self, b: Builder, counts: Value, width: int) -> Value:
        if self.mode == "TF":
            return counts
        weights = np.ones(width, np.float32)
        if self.weights:
            facts = {"attribute": "weights", "given": len(self.weights), "needed": len(self.ngram_indexes)}
            require(len(self.weights) == len(self.ngram_indexes), codes.ATTRIBUTE_LENGTH, op=self.name, **facts)
            weights[list(self.ngram_indexes)] = self.weights
        seen = counts if self.mode == "TFIDF" else b.Cast(b.Cast(counts, to=boolean), to=f32)
        return b.Mul(seen, b.const(weights, f32))

    onnx = (
        Form(
            "TfIdfVectorizer",
            9,
            attrs={
                "max_gram_length": Int(lo=1, hi=64),
                "max_skip_count": Int(lo=0),
                "min_gram_length": Int(lo=1),
                "mode": Enum(("TF", "IDF", "TFIDF")),
                "ngram_counts": Ints(lo=0),
                "ngram_indexes": Ints(lo=0),
                "pool_int64s": Ints(()),
                "pool_strings": Strs(()),
                "weights": Floats(()),
            },
            T={string, i32, i64},
        ),
    )


def write_grams(b: Builder, op: CountGrams, x: Value, grams: Value, places: Value) -> Value:
    """OpenVINO: compare the items of every start with those of all grams of a length, and add up what is equal."""
    table, where = grams.array, places.array
    if table is None or where is None or not op.width:
        raise Declined
    lengths = (table >= 0).sum(axis=1)
    counts: list[Value] = []
    for length in sorted(set(lengths.tolist())):
        chosen = table[lengths == length]
        counts.append(_occurrences(b, x, chosen[:, :length], op.skips if length > 1 else 0))
    counts.append(b.const([[0.0]], f32))
    rows = b.Concat(b.Shape(x, end=1), b.const([1]), axis=0)
    columns = b.Concat(*[b.Expand(count, rows) for count in counts], axis=1)
    order = where[np.argsort(lengths, kind="stable")]  # the place of each column
    found: Value | None = None
    left = np.arange(len(order))
    while found is None or left.size:
        layer = np.full(op.width, len(order), np.int64)
        _, first = np.unique(order[left], return_index=True)
        layer[order[left[first]]] = left[first]
        part = b.Gather(columns, b.const(layer), b.const(1))
        found = part if found is None else b.Add(found, part)
        left = np.delete(left, first)
    return found


def _occurrences(b: Builder, x: Value, grams: Array, skips: int) -> Value:
    """Count each gram, of one length, in each row of x: f32[rows, grams]."""
    length, items = grams.shape[1], x.shape[1].const
    total = b.const(np.zeros((1, len(grams))), f32)
    for distance in range(1, skips + 2):
        if items is not None and (length - 1) * distance >= items:
            break  # the plugin's sums of nothing are what its memory held
        same: Value | None = None
        for k in range(length):
            end = TO_THE_END if k == length - 1 else (k + 1 - length) * distance
            item = b.Unsqueeze(b.Slice(x, [k * distance], [end], [1]), [2])
            equal = b.Equal(item, b.const(grams[:, k].reshape(1, 1, -1)))
            same = equal if same is None else b.And(same, equal)
        assert same is not None
        total = b.Add(total, b.ReduceSum(b.Cast(same, to=f32), [1], keepdims=False))
    return total


@op
class CountGrams(Op):
    """What TfIdfVectorizer is compiled to: how often the items of each row of `grams` stand in each row of x, all at
    one distance of up to `skips` + 1, added up at the gram's place. A gram ends where an item is -1.
    """

    skips: int
    width: int
    sig = Sig("x: i64[2], grams: i64[2], places: i64[1] -> y: f32")

    def infer(self, x: Value, grams: Value, places: Value) -> TensorType:
        return TensorType.of(f32, [x.shape[0], self.width])

    def reference(self, x: Array, grams: Array, places: Array) -> Array:
        y = np.zeros((x.shape[0], self.width), np.float32)
        for gram, place in zip(grams, places):
            length = int((gram >= 0).sum())
            for distance in range(1, (self.skips if length > 1 else 0) + 2):
                starts = x.shape[1] - (length - 1) * distance
                if starts <= 0:
                    break
                parts = [x[:, k * distance : k * distance + starts] == gram[k] for k in range(length)]
                y[:, place] += np.logical_and.reduce(parts).sum(axis=1)
        return y

    def loops(self, b: LoopBuilder, x: Tensor, grams: Tensor, places: Tensor, y: Tensor) -> None:
        count = x.shape[1]
        with b.for_(x.shape[0], "parallel") as row:
            with b.for_(self.width) as k:
                b.store(y, (row, k), 0.0)
            with b.for_(grams.shape[0]) as gram:
                length = b.var(Const(0, i64), "length")
                with b.for_(grams.shape[1]) as k:
                    b.assign(length, length + grams[gram, k].ge(0).cast(i64))
                distances = length.min(2) - 1
                with b.for_(distances * self.skips + 1) as far, b.for_(count) as start:
                    last = start + (length - 1) * (far + 1)
                    found = b.var(last.lt(count), "found")
                    with b.if_(found):
                        with b.for_(length) as k:
                            same = x[row, start + k * (far + 1)].eq(grams[gram, k])
                            b.assign(found, found.logical_and(same))
                        with b.if_(found):
                            place = places[gram]
                            b.store(y, (row, place), y[row, place] + 1.0)

    openvino = (write_only(write_grams),)
