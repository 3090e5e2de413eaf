"""Random numbers: uniform, normal, of two values, of several classes.

Words of 32 bits come from Philox4x32-10 (`irc.ops.random_words`), whose key is the seed; where OpenVINO asks for
PyTorch's numbers, from the Mersenne Twister.  The same seed gives the same numbers in every run and in both backends;
without a seed a variable of the model counts its runs, and they differ.  Sources: ONNX RandomUniform, RandomNormal,
…Like, Bernoulli, Multinomial; OpenVINO specification, RandomUniform-8, Multinomial-13; Box and Muller, "A Note on the
Generation of Random Normal Deviates" (1958); Efraimidis and Spirakis, "Weighted random sampling with a reservoir"
(2006).
"""

from __future__ import annotations

import dataclasses
import math
import secrets
from collections.abc import Sequence

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation, shape as codes
from irc.formats.document import Attr
from irc.ir.graph import Value
from irc.ir.relation import at_most
from irc.ir.types import (
    FLOATS,
    FLOATS_BF16,
    INTEGERS,
    DType,
    bf16,
    boolean,
    f8e4m3fn,
    f8e5m2,
    f16,
    f32,
    f64,
    i32,
    i64,
    u32,
    u64,
)
from irc.opdef.base import Op, op, op_base
from irc.opdef.builder import Builder
from irc.opdef.codecs import AsInput, Bool, Codec, DTypeAttr, Enum, Float, Int, Reading
from irc.opdef.conversions import as_i64, as_scalar, as_type, as_vector
from irc.opdef.forms import PREV, Attributes, Declined, Form, Results, write_only
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX, ONNX_ALL
from irc.ops.loop_forms import repeated
from irc.ops.random_words import seeded_state, sequence_state
from irc.ops.sort import TopK

WORD = 1 << 32
FRACTION = {
    "philox": {f16: 10, bf16: 7, f32: 23, f64: 52},
    "mersenne": {f16: 11, bf16: 8, f32: 24, f64: 53},
    "numpy": {f64: 53},
}
"""Random bits of a number below 1, by generator and element type: those of TensorFlow, PyTorch and NumPy."""


# ------------------------------------------------------------------------------ seeds
@dataclasses.dataclass(frozen=True)
class SingleSeed(Codec):
    """ONNX's seed, a number: the key is its bits as an f32; NaN is none."""

    def decode(self, raw: Attr, r: Reading) -> int | None:
        number = Float().decode(raw, r)
        return None if math.isnan(number) else int(np.float32(number).view(np.uint32))

    def encode(self, value: int, format: str) -> float:
        if not 0 <= value < WORD or math.isnan(number := float(np.uint32(value).view(np.float32))):
            raise ValueError(f"{value} is no number of 32 bits")
        return number


@dataclasses.dataclass(frozen=True)
class WholeSeed(Int):
    """One of OpenVINO's two seeds, which both are 0 where there is none."""

    def value(self, attribute: str, op: Op, operands: Sequence[Value | None]) -> int:
        assert isinstance(op, Random)
        return 0 if op.seed is None else int(getattr(op, self.field(attribute)))


@dataclasses.dataclass(frozen=True)
class TypeOfOperand(DTypeAttr):
    """OpenVINO's element type of the result, which is that of the second operand."""

    def value(self, attribute: str, op: Op, operands: Sequence[Value | None]) -> DType | None:
        return None if operands[1] is None else operands[1].dtype


FIELDS = {"global_seed": "seed", "op_seed": "stream"}


MOST_WRITTEN = 1 << 20
"""Numbers up to which a file gets them, where it cannot say how they are made."""


def seeds(a: Attributes) -> dict[str, int | None]:
    """The fields of an operation that OpenVINO's two seeds are."""
    return {"seed": a.seed % 2**64, "stream": a.stream % 2**64} if a.seed or a.stream else {}


def has_seeds(op: Random, *operands: Value) -> bool:
    """Whether OpenVINO's seeds can say it: two that are 0 are none."""
    return op.seed is None or (op.seed, op.stream) != (0, 0)


@op_base
class Random(Op):
    """An operation whose result is random; without a seed it is another one in each run."""

    seed: int | None = None
    stream: int = 1
    effect = True

    def uniform(self, b: Builder, shape: Value, dtype: DType, generator: str = "philox") -> Value:
        """Draw numbers from 0 to 1, without 1."""
        fields = {"seed": self.seed, "stream": self.stream, "generator": generator}
        return b.RandomRange(shape, b.const(0.0, dtype), b.const(1.0, dtype), **fields)

    def result(self, dtype: DType | None, x: Value | None = None) -> DType:
        """The element type of the result, which is said or else x's: a float."""
        found = dtype or (x.dtype if x is not None else f32)
        names = ", ".join(t.name for t in (f16, f32, f64, bf16))
        require(found in FLOATS_BF16, operation.TYPE_NOT_ALLOWED, op=self.name, operand="y", dtype=found, allowed=names)
        return found


# ------------------------------------------------------------------------------ uniform
def read_range(b: Builder, a: Attributes, shape: Value, low: Value, high: Value) -> Results:
    """OpenVINO says the element type twice."""
    kinds = {"op": b.label, "operand": "min_val", "dtype": low.dtype, "other": "output_type", "first": a.dtype}
    require(a.dtype == low.dtype, operation.TYPE_MISMATCH, **kinds)
    return b.RandomRange(shape, low, high, **seeds(a), generator=a.generator)


def write_range(b: Builder, op: RandomRange, shape: Value, low: Value, high: Value) -> Value:
    """ONNX has floats of Philox only; bounds that are no constants of 32 bits are applied behind it."""
    if op.generator != "philox" or low.dtype.is_integer:
        raise Declined
    fields = {"seed": op.seed, "stream": op.stream, "dtype": low.dtype}
    bounds = [v.array for v in (low, high)]
    numbers = [float(v.reshape(-1)[0]) for v in bounds if v is not None]
    exact = len(numbers) == 2 and all(float(np.float32(v)) == v for v in numbers)
    if exact:
        fields |= {"low": numbers[0], "high": numbers[1]}
    if shape.array is not None:
        y = b.RandomUniform(shape, **fields)
    else:
        y = b.RandomUniformLike(b.Expand(b.const(0.0, f32), as_i64(b, shape)), **fields)
    if exact:
        return y
    low, high = as_scalar(b, low), as_scalar(b, high)
    return b.Add(b.Mul(y, b.Sub(high, low)), low)


def write_numbers(b: Builder, op: RandomRange, shape: Value, low: Value, high: Value) -> Value:
    """Where a format does not have the generator: the numbers themselves, which a seed makes the same in every run."""
    sizes, bounds = shape.array, [v.array for v in (low, high)]
    if op.seed is None or sizes is None or any(v is None for v in bounds) or np.prod(sizes) > MOST_WRITTEN:
        raise Declined
    return b.const(op.reference(sizes, *bounds), low.dtype)


@op
class RandomRange(Random):
    """Numbers from `low` to `high`, without that, for a tensor of that shape.

    Floats have 10 (f16), 7 (bf16), 23 or 52 random bits; integers are a word modulo their number.
    generator "mersenne": the words are PyTorch's, floats have one bit more, and i64 with bounds beyond a word are two;
    "numpy": f64 as `RandomState` makes it; "sequence": f32 of C++'s `std::mt19937` after a sequence of both seeds,
    which may be 1.
    """

    generator: str = "philox"
    sig = Sig("shape: I[1], low: T[one], high: T[one] -> y: T", I=INDEX, T=FLOATS_BF16 | {i32, i64})

    def decompose(self, b: Builder, shape: Value, low: Value, high: Value) -> Value:
        chosen = self if self.seed is not None else dataclasses.replace(self, seed=secrets.randbits(64))
        return chosen.drawn(b, shape, low, high, None)

    def drawn(self, b: Builder, shape: Value, low: Value, high: Value, draw: Value | None) -> Value:
        """The numbers of the run that `draw` counts."""
        low, high, dtype = as_scalar(b, low), as_scalar(b, high), low.dtype
        each = self._words_of_one(low, high)
        if self.generator != "philox" and draw is None:
            words = b.MersenneWords(shape, self._state(b), each=each)
        else:
            words = b.PhiloxWords(shape, draw, key=self.seed or 0, stream=self.stream, each=each)
        if each > 1:
            words = b.Reshape(words, [-1, each])
        y = self._integers(b, words, low, high) if dtype.is_integer else self._floats(b, words, low, high)
        sizes = as_i64(b, shape)
        if sizes.dims() is None:  # a size of -1 is no request to Reshape, but wrong
            sizes = b.Where(b.Less(sizes, b.const(0)), b.const(-2), sizes)
        return b.Reshape(y, sizes, special_zero=False)

    def _state(self, b: Builder) -> Value:
        seed = self.seed or 0
        both = [seed % WORD, self.stream % WORD]
        return b.const(sequence_state(both) if self.generator == "sequence" else seeded_state(seed), u32)

    def _words_of_one(self, low: Value, high: Value) -> int:
        if self.generator != "mersenne" or low.dtype != i64:
            return 2 if low.dtype == f64 else 1
        bounds = [v.array for v in (low, high)]
        require(
            all(v is not None for v in bounds), operation.NEEDS_CONSTANT, op="RandomUniform", operand="min_val, max_val"
        )
        return 1 if all(int(v.reshape(-1)[0]) < WORD for v in bounds if v is not None) else 2

    def _floats(self, b: Builder, words: Value, low: Value, high: Value) -> Value:
        dtype = low.dtype
        if self.generator == "sequence":
            unit = b.Mul(b.Cast(words, to=dtype), b.const(2.0**-32, dtype))
        elif self.generator == "numpy":
            parts = b.Cast(b.BitShift(words, b.const([5, 6], u32), direction="RIGHT"), to=f64)
            unit = b.ReduceSum(b.Mul(parts, b.const([2.0**-27, 2.0**-53], f64)), [1], keepdims=False)
        elif (bits := FRACTION[self.generator][dtype]) > 32:
            mask, scale = [(1 << bits - 32) - 1, WORD - 1], [2.0 ** (32 - bits), 2.0**-bits]
            parts = b.Cast(b.BitwiseAnd(words, b.const(mask, u32)), to=f64)
            unit = b.ReduceSum(b.Mul(parts, b.const(scale, f64)), [1], keepdims=False)
        else:
            unit = b.Cast(b.BitwiseAnd(words, b.const((1 << bits) - 1, u32)), to=dtype)
            unit = b.Mul(unit, b.const(2.0**-bits, dtype))
        return b.Add(b.Mul(unit, b.Sub(high, low)), low)

    def _integers(self, b: Builder, words: Value, low: Value, high: Value) -> Value:
        wide = u64 if low.dtype == i64 else u32
        words = as_type(b, words, wide)
        if words.rank == 2:
            words = b.ReduceSum(b.Mul(words, b.const([WORD, 1], wide)), [1], keepdims=False)
        first, last = as_type(b, low, wide), as_type(b, high, wide)
        return b.Cast(b.Add(b.Mod(words, b.Sub(last, first)), first), to=low.dtype)

    onnx = (write_only(write_range), write_only(write_numbers))
    openvino = (
        Form(
            "RandomUniform",
            8,
            attrs={
                "output_type": TypeOfOperand(to="dtype"),
                **{name: WholeSeed(assumed=0, to=field) for name, field in FIELDS.items()},
                "alignment": Enum({"tensorflow": "philox", "pytorch": "mersenne"}, "philox", to="generator"),
            },
            T={"I": INDEX, "T": FLOATS_BF16 | {i32, i64}},
            read=read_range,
            direct=True,
            when=has_seeds,
        ),
        write_only(write_numbers),
    )


UNIFORM: dict[str, Codec] = {"low": Float(0.0), "high": Float(1.0), "seed": SingleSeed(None)}
NORMAL: dict[str, Codec] = {"mean": Float(0.0), "scale": Float(1.0), "seed": SingleSeed(None)}


def shaped_rows(name: str, attrs: dict[str, Codec]) -> tuple[Form, ...]:
    """ONNX rows of what has its shape as an attribute."""
    shape: dict[str, Codec] = {"shape": AsInput(index=0, dtype=i64), "dtype": DTypeAttr(f32)}
    first = Form(name, 1, attrs={**shape, **attrs}, T={"T": FLOATS}, sig=Sig("-> y: T", T=FLOATS_BF16))
    return first, Form(name, 22, T={"T": PREV | {bf16}})


def like_rows(name: str, attrs: dict[str, Codec]) -> tuple[Form, ...]:
    """ONNX rows of what has the shape of an operand."""
    first = Form(name, 1, attrs={"dtype": DTypeAttr(None), **attrs}, T={"T1": ONNX_ALL, "T2": FLOATS})
    return first, Form(name, 22, T={"T1": PREV | {bf16}, "T2": PREV | {bf16}})


SHAPED = Sig("shape: i64[1] -> y: T", T=FLOATS_BF16)
LIKE = Sig("x: T1 -> y: T2", T1=ONNX_ALL | {bf16}, T2=FLOATS_BF16)


@op_base
class Uniform(Random):
    """Numbers from `low` to `high`, without that."""

    low: float = 0.0
    high: float = 1.0

    def between(self, b: Builder, shape: Value, dtype: DType) -> Value:
        bounds = (b.const(v, dtype) for v in (self.low, self.high))
        return b.RandomRange(shape, *bounds, seed=self.seed, stream=self.stream)


@op
class RandomUniform(Uniform):
    """Numbers from `low` to `high`, without that, for a tensor of that shape."""

    dtype: DType = f32
    sig = SHAPED

    def decompose(self, b: Builder, shape: Value) -> Value:
        return self.between(b, shape, self.result(self.dtype))

    onnx = shaped_rows("RandomUniform", UNIFORM)


@op
class RandomUniformLike(Uniform):
    """Numbers from `low` to `high`, without that, for a tensor of x's shape and, unless said, element type."""

    dtype: DType | None = None
    sig = LIKE

    def decompose(self, b: Builder, x: Value) -> Value:
        return self.between(b, b.Shape(x), self.result(self.dtype, x))

    onnx = like_rows("RandomUniformLike", UNIFORM)


# ------------------------------------------------------------------------------ normal
@op_base
class Normal(Random):
    """Normally distributed numbers, of two uniform ones each (Box and Muller); narrow floats are computed in f32."""

    mean: float = 0.0
    scale: float = 1.0

    def around(self, b: Builder, shape: Value, dtype: DType) -> Value:
        """√(-2 log(1 - u)) · cos(2π v)."""
        wide = f64 if dtype == f64 else f32
        both = self.uniform(b, b.Concat(b.const([2]), as_i64(b, shape), axis=0), wide)
        u, v = (b.Gather(both, b.const(k), b.const(0)) for k in (0, 1))
        radius = b.Sqrt(b.Mul(b.Log(b.Sub(b.like(1.0, u), u)), b.like(-2.0, u)))
        z = b.Mul(radius, b.Cos(b.Mul(v, b.like(2 * math.pi, v))))
        return as_type(b, b.Add(b.Mul(z, b.like(self.scale, z)), b.like(self.mean, z)), dtype)


@op
class RandomNormal(Normal):
    """Normally distributed numbers for a tensor of that shape."""

    dtype: DType = f32
    sig = SHAPED

    def decompose(self, b: Builder, shape: Value) -> Value:
        return self.around(b, shape, self.result(self.dtype))

    onnx = shaped_rows("RandomNormal", NORMAL)


@op
class RandomNormalLike(Normal):
    """Normally distributed numbers for a tensor of x's shape and, unless said, element type."""

    dtype: DType | None = None
    sig = LIKE

    def decompose(self, b: Builder, x: Value) -> Value:
        return self.around(b, b.Shape(x), self.result(self.dtype, x))

    onnx = like_rows("RandomNormalLike", NORMAL)


# ------------------------------------------------------------------------------ choices
WHOLE = FLOATS | INTEGERS | {bf16, boolean}


@op
class Bernoulli(Random):
    """1 with the probability that x says, else 0."""

    dtype: DType | None = None
    sig = Sig("x: T1 -> y: T2", T1=FLOATS_BF16, T2=WHOLE)

    def decompose(self, b: Builder, x: Value) -> Value:
        wide = f64 if x.dtype == f64 else f32
        chosen = b.Less(self.uniform(b, b.Shape(x), wide), as_type(b, x, wide))
        return as_type(b, chosen, self.dtype or x.dtype)

    onnx = (
        Form(
            "Bernoulli", 15, attrs={"dtype": DTypeAttr(None), "seed": SingleSeed(None)}, T={"T1": FLOATS, "T2": WHOLE}
        ),
        Form("Bernoulli", 22, T={"T1": PREV | {bf16}}),
    )


PROBABILITIES = FLOATS_BF16 | {f8e4m3fn, f8e5m2}


def read_multinomial(b: Builder, a: Attributes, probabilities: Value, count: Value) -> Results:
    fields = {"dtype": a.dtype, "with_replacement": a.with_replacement, "log_probs": a.log_probs}
    fields["generator"] = "sequence"
    return b.Multinomial(probabilities, count, **fields, **seeds(a))


def lowest_class(b: Builder, shares: Value, u: Value) -> Value:
    """Find the first class whose cumulative share [batch, classes] is at least the number drawn [batch, n]."""
    below = b.Less(b.Unsqueeze(shares, [1]), as_type(b, b.Unsqueeze(u, [2]), shares.dtype))
    return b.ReduceSum(b.Cast(below, to=i64), [2], keepdims=False)


def one_by_one(b: Builder, shares: Value, u: Value) -> Value:
    """Find as many classes as numbers [batch, n] were drawn: the class of each gives its share to the others."""

    def step(
        inner: Builder, number: Value, carried: Sequence[Value], given: Sequence[Value]
    ) -> tuple[Sequence[Value], Sequence[Value]]:
        (left,), (drawn,) = carried, given
        classes = inner.Gather(inner.Shape(left), inner.const(1), inner.const(0))
        found = lowest_class(inner, left, inner.Gather(drawn, inner.Unsqueeze(number, [0]), inner.const(1)))
        found = inner.Min(found, inner.Sub(classes, inner.const(1)))
        ends = inner.Concat(found, inner.Add(found, inner.const(1)), axis=1)
        upto = inner.GatherElements(inner.Pad(left, inner.const([0, 1, 0, 0])), ends, axis=1)
        share = inner.Sub(inner.Slice(upto, [1], [2], [1]), inner.Slice(upto, [0], [1], [1]))
        places = inner.Range(inner.const(0), classes, inner.const(1))
        after = inner.Cast(inner.GreaterOrEqual(places, found), to=left.dtype)
        rest = inner.Div(inner.Sub(left, inner.Mul(after, share)), inner.Sub(inner.const(1.0, left.dtype), share))
        return [rest], [inner.Squeeze(found, [1])]

    count = b.Gather(b.Shape(u), b.const(1), b.const(0))
    *_, rows = repeated(b, count, [shares], [u], step)
    return b.Transpose(rows, [1, 0])


def drawn_in_sequence(op: Multinomial, *operands: Value) -> bool:
    """Whether OpenVINO's operation draws these numbers; without a seed any will do."""
    return has_seeds(op) and (op.seed is None or op.generator == "sequence")


@op
class Multinomial(Random):
    """`count` classes for each row [batch, classes] of probabilities, which need not add up to 1, or their logarithms.

    without replacement: those with the least -log(u) / p of a uniform u each, the least first.
    generator "sequence": as OpenVINO's CPU plugin draws them, without replacement one after the other.
    """

    dtype: DType = i32
    with_replacement: bool = True
    log_probs: bool = True
    generator: str = "philox"
    sig = Sig("x: T1[2], count: I[one] -> y: T2", T1=PROBABILITIES, I=INTEGERS, T2=INDEX)

    def decompose(self, b: Builder, x: Value, count: Value) -> Value:
        batch, classes = x.shape
        facts = {"what": "number of classes", "value": classes, "expected": "1 or more"}
        require(at_most(1, classes), codes.SIZE_RANGE, op=self.name, **facts)
        p = as_type(b, x, f64 if x.dtype == f64 else f32)
        if self.log_probs:
            p = b.Exp(b.Sub(p, b.ReduceMax(p, [1])))
        count = as_vector(b, as_i64(b, count))
        sums = b.CumSum(p, b.const(1))
        shares = b.Div(sums, b.Slice(sums, [-1], b.dims([classes]), [1]))
        if self.generator == "sequence" and self.seed is not None:
            u = self.uniform(b, b.Concat(b.dims([batch]), count, axis=0), f32, "sequence")
            y = lowest_class(b, shares, u) if self.with_replacement else one_by_one(b, shares, u)
            return b.Cast(y, to=self.dtype)
        if self.with_replacement:
            u = self.uniform(b, b.Concat(b.dims([batch]), count, axis=0), p.dtype)
            below = b.LessOrEqual(b.Unsqueeze(shares, [1]), b.Unsqueeze(u, [2]))
            return b.Cast(b.ReduceSum(b.Cast(below, to=i64), [2], keepdims=False), to=self.dtype)
        u = self.uniform(b, b.dims([batch, classes]), p.dtype)
        waiting = b.Div(b.Neg(b.Log(b.Sub(b.like(1.0, u), u))), p)
        waiting = b.Where(b.Less(b.like(0.0, p), p), waiting, b.like(math.inf, p))
        _, places = b.add_all(TopK(axis=1, largest=False), waiting, count)
        return as_type(b, places, self.dtype)

    onnx = (
        Form(
            "Multinomial",
            7,
            attrs={
                "dtype": DTypeAttr(i32),
                "sample_size": AsInput(1, index=1, dtype=i64, scalar=True),
                "seed": SingleSeed(None),
            },
            T={"T1": FLOATS, "T2": INDEX},
            sig=Sig("x: T1[2] -> y: T2", T1=FLOATS_BF16, T2=INDEX),
        ),
        Form("Multinomial", 22, T={"T1": PREV | {bf16}}),
    )
    openvino = (
        Form(
            "Multinomial",
            13,
            attrs={
                "convert_type": DTypeAttr(to="dtype"),
                "with_replacement": Bool(assumed=False),
                "log_probs": Bool(assumed=False),
                **{name: WholeSeed(0, to=field) for name, field in FIELDS.items()},
            },
            T={"T1": PROBABILITIES, "I": INTEGERS, "T2": INDEX},
            read=read_multinomial,
            direct=True,
            when=drawn_in_sequence,
        ),
    )
