"""Strings as bytes and back: StringTensorUnpack, StringTensorPack.

Source: OpenVINO specification, StringTensorPack-15, StringTensorUnpack-15.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import every, same
from irc.ir.types import TensorType, i32, i64, string, u8
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_i64
from irc.opdef.forms import Form
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX
from irc.ops.texts import strings


@op
class StringTensorUnpack(Op):
    """Where the bytes of each string begin and end among those of all, and these bytes, in UTF-8."""

    sig = Sig("x: string -> begins: i32, ends: i32, symbols: u8")

    def decompose(self, b: Builder, x: Value) -> tuple[Value, Value, Value]:
        lengths = b.Reshape(b.StringBytes(x), [-1])
        ends = b.CumSum(lengths, b.const(0))
        begins = b.Sub(ends, lengths)
        shape = b.dims(x.shape)
        first, last = (b.Cast(b.Reshape(v, shape, special_zero=False), to=i32) for v in (begins, ends))
        return first, last, b.StringSymbols(x, b.ReduceSum(lengths, [0], keepdims=True))

    openvino = (Form("StringTensorUnpack", 15),)


@op
class StringTensorPack(Op):
    """The strings whose bytes stand from `begins` to `ends` of `symbols`, in UTF-8."""

    sig = Sig("begins: I, ends: I, symbols: u8[1] -> x: string", I=INDEX)

    def decompose(self, b: Builder, begins: Value, ends: Value, symbols: Value) -> Value:
        equal = len(begins.shape) == len(ends.shape) and every(*map(same, begins.shape, ends.shape))
        require(equal, codes.SHAPES_DIFFER, op=self.name, first=begins.tensor, second=ends.tensor)
        return b.StringsOfSymbols(as_i64(b, begins), as_i64(b, ends), symbols)

    openvino = (Form("StringTensorPack", 15, T={"I": INDEX}),)


@op
class StringBytes(Op):
    """What StringTensorUnpack is compiled to: the number of bytes of each string."""

    sig = Sig("x: string -> y: i64")

    def infer(self, x: Value) -> TensorType:
        return x.tensor.with_dtype(i64)

    def reference(self, x: Array) -> Array:
        return np.array([len(encoded(word)) for word in x.reshape(-1)], np.int64).reshape(x.shape)


@op
class StringSymbols(Op):
    """What StringTensorUnpack is compiled to: the bytes of all strings, `total` of them."""

    sig = Sig("x: string, total: i64[1] -> y: u8")

    def infer(self, x: Value, total: Value) -> TensorType:
        known = total.dims()
        return TensorType(u8, (known[0] if known else Dim.fresh("symbols"),))

    def run_sizes(self, b: Builder, out: TensorType, x: Value, total: Value) -> Iterable[tuple[Dim, Value]]:
        yield out.dims()[0], total

    def reference(self, x: Array, total: Array) -> Array:
        return np.frombuffer(b"".join([encoded(word) for word in x.reshape(-1)]), np.uint8)


@op
class StringsOfSymbols(Op):
    """What StringTensorPack is compiled to.  A string that leaves the symbols is cut."""

    sig = Sig("begins: i64, ends: i64, symbols: u8[1] -> y: string")

    def infer(self, begins: Value, ends: Value, symbols: Value) -> TensorType:
        return TensorType(string, begins.shape)

    def reference(self, begins: Array, ends: Array, symbols: Array) -> Array:
        data, count = symbols.tobytes(), len(symbols)
        found: list[str] = []
        for first, last in zip(begins.reshape(-1).tolist(), ends.reshape(-1).tolist(), strict=True):
            start = min(max(first, 0), count)
            found.append(data[start : max(min(last, count), start)].decode("utf-8", "surrogateescape"))
        return strings(found, begins.shape)


def encoded(word: str) -> bytes:
    """The bytes of a string."""
    return word.encode("utf-8", "surrogateescape")
