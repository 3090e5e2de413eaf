"""Discrete Fourier transforms: DFT of ONNX, and OpenVINO's over several axes.

Pairs of f32 are transformed in f32, with NumPy's bits.  Real numbers, whose transform has zeros that single precision
would not keep, and other types are computed in f64 and rounded once.  A line of n elements, n = p₁ · p₂ …, takes
n · (p₁ + p₂ + …) steps (`irc.ops.fourier_stages`).
Sources: ONNX DFT; OpenVINO specification, DFT-7, IDFT-7, RDFT-9, IRDFT-9.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from irc.diagnostics import Facts, Problem, require
from irc.diagnostics.codes import conversion, operation, shape as codes
from irc.expr import Const, Tensor, Var, index, select
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import any_of, at_most, same
from irc.ir.types import FLOATS_BF16, TensorType, bf16, boolean, f16, f32, f64, i64
from irc.loops.builder import LOCAL_BYTES, LoopBuilder, Place
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import AsInput, Bool, Codec
from irc.opdef.conversions import as_i64, as_scalar, as_vector
from irc.opdef.forms import Attributes, Declined, Form, write_only
from irc.opdef.run_sizes import from_the_start
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX
from irc.ops.fourier_stages import radices, stage
from irc.ops.layout import constant_ints, normal_axis

OV_FLOATS = frozenset({f32, f16, bf16})
LONGEST_TABLE = 1 << 16
"""Of the tables of roots that are stored; longer ones are computed by the run."""
STAGES = 62
"""More than the prime factors of any length."""


# ------------------------------------------------------------------------------------ on NumPy arrays
def transformed(x: Array, axis: int, n: int, inverse: bool, onesided: bool) -> Array:
    """The transform of pairs or single numbers on the last axis, along another one, cut or padded to n elements."""
    if is_single(x.dtype == np.float32, x.shape[-1] == 2, onesided):
        z = np.ascontiguousarray(x).view(np.complex64)[..., 0]
        found = np.fft.ifft(z, n, axis) if inverse else np.fft.fft(z, n, axis)
        return np.stack([found.real, found.imag], -1).astype(x.dtype)
    z = x[..., 0].astype(np.complex128)
    if x.shape[-1] > 1:
        z = z + 1j * x[..., 1].astype(np.float64)
    if inverse and onesided:
        return np.fft.irfft(z, n, axis)[..., None].astype(x.dtype)
    found = np.fft.ifft(z, n, axis) if inverse else np.fft.fft(z, n, axis)
    if onesided:
        found = np.take(found, np.arange(n // 2 + 1), axis)
    return np.stack([found.real, found.imag], -1).astype(x.dtype)


def is_single(is_f32: bool, pairs: bool, onesided: bool) -> bool:
    """Tell whether a transform is computed in f32, rather than f64."""
    return is_f32 and pairs and not onesided


def full_length(size: int, inverse: bool, onesided: bool) -> int:
    """The number of elements that a transform has by itself."""
    return 2 * (size - 1) if inverse and onesided else size


# ------------------------------------------------------------------------------------ one axis
def roots(b: Builder, n: Value, inverse: bool) -> Value:
    """The n-th roots of 1, (n, 2), in the direction of the transform."""
    known = n.ints()
    sign = 1.0 if inverse else -1.0
    if known is not None and 0 < known[0] <= LONGEST_TABLE:
        turns = np.arange(known[0]) * (2 * math.pi / known[0])
        return b.const(np.stack([np.cos(turns), sign * np.sin(turns)], 1), f64)
    length = as_scalar(b, n)
    step = b.Div(b.const(2 * math.pi, f64), b.Cast(length, to=f64))
    turn = b.Mul(b.Cast(b.Range(b.const(0), length, b.const(1)), to=f64), step)
    parts = (b.Cos(turn), b.Mul(b.Sin(turn), b.const(sign, f64)))
    return b.Concat(*(b.Unsqueeze(p, [1]) for p in parts), axis=1)


@op
class TransformLines(Op):
    """What DFT is compiled to: the transform along `axis`, whose length is that of `table`, the roots of 1."""

    axis: int
    inverse: bool = False
    onesided: bool = False
    sig = Sig("x: T[>=2], table: f64[2] -> y: T", T=FLOATS_BF16)

    def infer(self, x: Value, table: Value) -> TensorType:
        n, last, real = table.shape[0], x.shape[-1], self.inverse and self.onesided
        for what, holds, value, expected in (
            ("size of the last axis", any_of(same(last, 1), same(last, 2)), last, "1 or 2"),
            ("length of the transform", at_most(1, n), n, "1 or more"),
        ):
            facts: Facts = {"op": "DFT", "what": what, "value": value}
            require(holds, codes.SIZE_RANGE, **facts, expected=expected)
        sizes = [*x.shape[:-1], Dim.of(1 if real else 2)]
        sizes[self.axis] = n // 2 + 1 if self.onesided and not real else n
        return TensorType(x.dtype, tuple(sizes))

    def reference(self, x: Array, table: Array) -> Array:
        return transformed(x, self.axis, table.shape[0], self.inverse, self.onesided)

    def loops(self, b: LoopBuilder, x: Tensor, table: Tensor, y: Tensor) -> None:
        n = table.shape[0]
        outer = [d for k, d in enumerate(x.shape[:-1]) if k != self.axis]
        work = f32 if is_single(x.dtype == f32, x.shape[-1] == 2, self.onesided) else f64
        private = n.is_const and int(n) * 16 <= LOCAL_BYTES
        if private:
            with b.nest(outer, "parallel") as at:
                self._line(b, x, table, y, at, [b.alloc(work, [2, n], "line") for _ in range(2)])
            return
        lines = [b.alloc(work, [2, n], "line") for _ in range(2)]
        with b.nest(outer) as at:
            self._line(b, x, table, y, at, lines)

    def _line(
        self, b: LoopBuilder, x: Tensor, table: Tensor, y: Tensor, at: tuple[Var, ...], lines: list[Place]
    ) -> None:
        """Transform one line."""
        n, size = index(table.shape[0]), index(x.shape[self.axis])
        first, axis, work = lines[0], self.axis, lines[0].dtype
        mirrored = self.inverse and self.onesided
        with b.for_(n) as k:
            source = b.let(k.min(n - k) if mirrored else k, "source")
            place = (*at[:axis], source.min((size - 1).max(0)), *at[axis:])
            there = source.lt(size)
            nothing = Const(0.0, work)
            b.store(first, (0, k), select(there, x[(*place, 0)].cast(work), nothing))
            pair = there.logical_and(index(x.shape[-1]).gt(1))
            second = b.let(select(pair, x[(*place, index(x.shape[-1] - 1))].cast(work), nothing), "imaginary")
            b.store(first, (1, k), select(source.lt(k), -second, second) if mirrored else second)
        done = self._stages(b, table, lines)
        part_of_each = b.let(Const(1.0, work) / n.cast(work), "scale")
        with b.for_(y.shape[axis]) as k:
            for part in range(1 if mirrored else 2):
                found = done[part, k]
                scaled = found * part_of_each if self.inverse else found
                b.store(y, (*at[:axis], k, *at[axis:], part), scaled.cast(y.dtype))

    def _stages(self, b: LoopBuilder, table: Tensor, lines: list[Place]) -> Place:
        """Transform by one prime factor of the length after the other.  Returns the line with the result."""
        n = table.shape[0]
        if n.is_const:
            first, second = lines
            done = 1
            for radix in radices(int(n)):
                stage(b, table, first, second, index(done), index(radix), self.inverse, first.dtype)
                first, second, done = second, first, done * radix
            return first
        done_so_far, radix = b.var(Const(1, i64), "done"), b.var(Const(2, i64), "radix")
        with b.for_(STAGES), b.if_(done_so_far.lt(index(n))):
            left = b.let(index(n) // done_so_far, "left")
            found = b.var(Const(False, boolean), "found")
            start = b.let(radix, "start")
            with b.for_(left) as k, b.if_(found.logical_not()):
                b.assign(radix, start + k)
                b.assign(found, (left % (start + k)).eq(0))
            stage(b, table, lines[0], lines[1], done_so_far, radix, self.inverse, lines[0].dtype)
            with b.nest([2, n]) as at:
                b.store(lines[0], at, lines[1][at])
            b.assign(done_so_far, done_so_far * radix)
        return lines[0]


# ------------------------------------------------------------------------------------ DFT
def write_transform(b: Builder, op: DFT, x: Value, length: Value | None = None, axis: Value | None = None) -> Value:
    """For OpenVINO, whose transforms of real numbers have no last axis of one element."""
    rank, number = len(x.shape), -2 if axis is None else (axis.ints() or [None])[0]
    if axis is not None and number is None:
        return op.along(b, x, length, axis)
    if number is None or not x.shape[-1].is_const or x.dtype == f64:
        reason = "its transforms have no f64, and an axis that is known, of numbers known to be real or complex"
        raise Problem(conversion.CANNOT_EXPRESS, op=str(op), types=str(x.type), target="OpenVINO", reason=reason)
    at = b.const([normal_axis("DFT", number, rank)])
    size = None if length is None else as_vector(b, as_i64(b, length))
    real = x.shape[-1] == 1
    if op.onesided and not op.inverse and real:
        return b.RealTransform(b.Squeeze(x, [rank - 1]), at, size)
    pairs = b.Concat(x, b.Sub(x, x), axis=rank - 1) if real else x
    if op.onesided and op.inverse:
        return b.Unsqueeze(b.InverseRealTransform(pairs, at, size), [rank - 1])
    return _of_pairs(b, op, pairs, at, size)


def _of_pairs(b: Builder, op: DFT, pairs: Value, at: Value, size: Value | None) -> Value:
    y = b.Transform(pairs, at, size, inverse=op.inverse)
    if not op.onesided:
        return y
    shape = b.Gather(b.Shape(y), at, b.const(0))
    return b.Slice(y, b.const([0]), b.Add(b.Div(shape, b.const([2])), b.const([1])), at)


def write_pairs(b: Builder, op: DFT, x: Value, length: Value | None = None, axis: Value | None = None) -> Value:
    """For OpenVINO before version 9, which has transforms of pairs only: the missing half mirrors the one there is."""
    rank, number = len(x.shape), -2 if axis is None else (axis.ints() or [None])[0]
    if number is None or not x.shape[-1].is_const or x.dtype == f64:
        raise Declined
    at = normal_axis("DFT", number, rank)
    if not (op.onesided and op.inverse):
        pairs = b.Concat(x, b.Sub(x, x), axis=rank - 1) if x.shape[-1] == 1 else x
        return _of_pairs(b, op, pairs, b.const([at]), None if length is None else as_vector(b, as_i64(b, length)))
    given = x.shape[at].const
    n = 2 * (given - 1) if given is not None and length is None else (length.ints() or [None])[0] if length else None
    if given is None or n is None:
        raise Declined
    half = n // 2 + 1
    y = b.Slice(x, [0], [half], [at])
    if half > given:
        y = b.Pad(y, b.const([0] * (rank + at) + [half - given] + [0] * (rank - at - 1)), b.like(0.0, x))
    y = b.Gather(y, b.const([*range(half), *range(n - half, 0, -1)]), b.const(at))
    shape = [n if k == at else 2 if k == rank - 1 else 1 for k in range(rank)]
    signs = np.repeat([[1.0, 1.0], [1.0, -1.0]], [half, n - half], axis=0).reshape(shape)
    z = b.Transform(b.Mul(y, b.const(signs, x.dtype)), b.const([at]), None, inverse=True)
    return b.Slice(z, [0], [1], [rank - 1])


ATTRIBUTES: dict[str, Codec] = {"inverse": Bool(False), "onesided": Bool(False)}


@op
class DFT(Op):
    """The discrete Fourier transform along `axis` (absent: the last but one), cut or padded with zeros to `length`.

    The last axis holds real and imaginary parts, or real parts only. onesided: the first length // 2 + 1 elements of
    the transform, or real elements out of them.
    """

    inverse: bool = False
    onesided: bool = False
    sig = Sig("x: T[>=2], length?: I[one], axis?: A[one] -> y: T", T=FLOATS_BF16, I=INDEX, A=INDEX)

    def reference(self, x: Array, length: Array | None = None, axis: Array | None = None) -> Array:
        at = x.ndim - 2 if axis is None else int(axis.reshape(())) % x.ndim
        n = full_length(x.shape[at], self.inverse, self.onesided) if length is None else int(length.reshape(()))
        return transformed(x, at, n, self.inverse, self.onesided)

    def decompose(self, b: Builder, x: Value, length: Value | None = None, axis: Value | None = None) -> Value:
        rank = len(x.shape)
        known = [rank - 2] if axis is None else axis.ints()
        if known is None:
            assert axis is not None
            return self.along(b, x, length, axis)
        at = normal_axis(self.name, known[0], rank)
        expected = "not the last axis"
        require(at < rank - 1, operation.ATTRIBUTE_RANGE, op=self.name, attribute="axis", value=at, expected=expected)
        if length is None:
            size = x.shape[at]
            length = b.dims([(size - 1) * 2 if self.inverse and self.onesided else size])
        table = roots(b, as_i64(b, length), self.inverse)
        return b.TransformLines(x, table, axis=at, inverse=self.inverse, onesided=self.onesided)

    def along(self, b: Builder, x: Value, length: Value | None, axis: Value) -> Value:
        """Along an axis that the run defines: the axes before it and those behind it as one each."""
        rank = len(x.shape)
        at, places = from_the_start(b, axis, rank), b.const(list(range(rank - 1)))
        sizes = b.dims(x.shape[:-1])
        chosen = b.Equal(places, at)
        parts = (
            b.ReduceProd(b.Where(b.Less(places, at), sizes, b.const(1)), [0], keepdims=True),
            b.ReduceSum(b.Where(chosen, sizes, b.const(0)), [0], keepdims=True),
            b.ReduceProd(b.Where(b.Greater(places, at), sizes, b.const(1)), [0], keepdims=True),
            b.dims(x.shape[-1:]),
        )
        real = self.inverse and self.onesided
        size = b.Mul(b.Sub(parts[1], b.const(1)), b.const(2)) if real else parts[1]
        size = size if length is None else as_vector(b, as_i64(b, length))
        planes, last = parts[:3], x.shape[-1]
        apart = b.Reshape(x, b.Concat(*(planes if last == 1 else parts), axis=0), special_zero=False)
        if last == 1:  # which is not seen in a computed shape, nor is 2
            apart = b.Unsqueeze(apart, [3])
        if last == 2:
            apart = b.Gather(apart, b.const([0, 1]), b.const(3))
        y = b.DFT(apart, as_scalar(b, size), b.const(1), inverse=self.inverse, onesided=self.onesided)
        here = b.Add(b.Div(size, b.const(2)), b.const(1)) if self.onesided and not real else size
        ends = b.const([1 if real else 2])
        return b.Reshape(y, b.Concat(b.Where(chosen, here, sizes), ends, axis=0), special_zero=False)

    onnx = (
        Form(
            "DFT",
            17,
            attrs=ATTRIBUTES | {"axis": AsInput(1, index=2, dtype=i64, scalar=True)},
            sig=Sig("x: T[>=2], length?: I[one] -> y: T"),
            T={"T": FLOATS_BF16, "I": INDEX, "A": {i64}},
        ),
        Form("DFT", 20, attrs=ATTRIBUTES, sig=None),
    )
    openvino = (write_only(write_transform, since=9), write_only(write_pairs, since=7))


# ------------------------------------------------------------------------------------ several axes
def each_axis(
    b: Builder, op: Op, rank: int, axes: Value, size: Value | None, own: Callable[[int], Dim]
) -> list[tuple[int, Value | None]]:
    """(axis, length) of every transform; the length is absent where it is that of the axis.

    own: the length that an axis has where `size` says -1.
    """
    numbers = [normal_axis(op.name, a, rank) for a in constant_ints(op.name, "axes", axes)]
    if size is None:
        return [(a, None) for a in numbers]
    facts: Facts = {"op": op.name, "attribute": "signal_size", "given": size.shape[0], "needed": len(numbers)}
    require(same(size.shape[0], len(numbers)), operation.ATTRIBUTE_LENGTH, **facts)
    lengths: list[tuple[int, Value | None]] = []
    given = size.ints()
    for k, axis in enumerate(numbers):
        length = b.Gather(as_i64(b, size), b.const(k), b.const(0)) if given is None else b.const(given[k])
        if given is None:
            length = b.Where(b.Equal(length, b.const(-1)), as_scalar(b, b.dims([own(axis)])), length)
        lengths.append((axis, None if given is not None and given[k] == -1 else length))
    return lengths


def forward(op: Transform, *operands: Value) -> bool:
    return not op.inverse


def backward(op: Transform, *operands: Value) -> bool:
    return op.inverse


def read_inverse(b: Builder, a: Attributes, *operands: Value) -> Value:
    return b.Transform(*operands, inverse=True)


OV_FORM: dict[str, Any] = {"T": {"T": OV_FLOATS, "I": INDEX, "J": INDEX}}


@op
class Transform(Op):
    """The discrete Fourier transform of pairs along some axes, cut or padded to sizes (absent, -1: as they are)."""

    inverse: bool = False
    sig = Sig("x: T[>=2], axes: I[1], size?: J[1] -> y: T", T=FLOATS_BF16, I=INDEX, J=INDEX)

    def decompose(self, b: Builder, x: Value, axes: Value, size: Value | None = None) -> Value:
        y = x
        for axis, length in each_axis(b, self, len(x.shape) - 1, axes, size, lambda k: x.shape[k]):
            y = b.DFT(y, length, b.const(axis), inverse=self.inverse)
        return y

    openvino = (
        Form("DFT", 7, **OV_FORM, when=forward, judges=("inverse",)),
        Form("IDFT", 7, **OV_FORM, read=read_inverse, direct=True, when=backward, judges=("inverse",)),
    )


@op
class RealTransform(Op):
    """The transform of real numbers along some axes: pairs on a new last axis, the first half of the last of `axes`."""

    sig = Sig("x: T[>=1], axes: I[1], size?: J[1] -> y: T", T=FLOATS_BF16, I=INDEX, J=INDEX)

    def decompose(self, b: Builder, x: Value, axes: Value, size: Value | None = None) -> Value:
        *others, (axis, length) = each_axis(b, self, len(x.shape), axes, size, lambda k: x.shape[k])
        y = b.DFT(b.Unsqueeze(x, [len(x.shape)]), length, b.const(axis), onesided=True)
        for axis, length in others:
            y = b.DFT(y, length, b.const(axis))
        return y

    openvino = (Form("RDFT", 9, **OV_FORM),)


@op
class InverseRealTransform(Op):
    """Real numbers out of the first half of their transform."""

    sig = Sig("x: T[>=2], axes: I[1], size?: J[1] -> y: T", T=FLOATS_BF16, I=INDEX, J=INDEX)

    def decompose(self, b: Builder, x: Value, axes: Value, size: Value | None = None) -> Value:
        rank = len(x.shape) - 1
        final = normal_axis(self.name, constant_ints(self.name, "axes", axes)[-1], rank)

        def own(axis: int) -> Dim:
            return (x.shape[axis] - 1) * 2 if axis == final else x.shape[axis]

        *others, (last, most) = each_axis(b, self, rank, axes, size, own)
        y = x
        for axis, length in others:
            y = b.DFT(y, length, b.const(axis), inverse=True)
        if most is not None and (known := most.ints()) is not None:
            # What the transform does not read goes first: ONNX Runtime computes something else where there is more.
            y = b.Slice(y, [0], [half := known[0] // 2 + 1], [last])
            behind = [half - y.shape[last] if k == last else Dim.of(0) for k in range(rank + 1)]
            y = y if behind[last] == 0 else b.Pad(y, b.dims([0] * (rank + 1) + behind))
        return b.Squeeze(b.DFT(y, most, b.const(last), inverse=True, onesided=True), [rank])

    openvino = (Form("IRDFT", 9, **OV_FORM),)
