"""ONNX's Constant node, which becomes a constant value when it is read.

Source: ONNX Constant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation
from irc.formats.document import Attr, RawTensor
from irc.ir.graph import Constant as Data, Value
from irc.ir.literal import AttributeValue
from irc.ir.types import FLOATS, DType, TensorType, f32, i64, string
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Codec, Float, Floats, Int, Ints, Reading
from irc.opdef.forms import Attributes, Form
from irc.opdef.signature import Sig
from irc.opdef.typesets import onnx_all


@dataclass(frozen=True)
class Tensor(Codec):
    """A tensor attribute (a sparse one arrives dense)."""

    def decode(self, raw: Attr, r: Reading) -> RawTensor:
        if not isinstance(raw, RawTensor):
            raise r.bad(raw, "a tensor")
        return raw

    def encode(self, value: AttributeValue, format: str) -> Attr:
        raise ValueError("constants are written as such")


@dataclass(frozen=True)
class Texts(Codec):
    """A string, or a list of them, as the file's bytes or text."""

    def decode(self, raw: Attr, r: Reading) -> str | list[str]:
        items = raw if isinstance(raw, list) else [raw]
        texts = [x.decode("utf-8", "replace") if isinstance(x, bytes) else str(x) for x in items]
        return texts if isinstance(raw, list) else texts[0]

    def encode(self, value: AttributeValue, format: str) -> Attr:
        raise ValueError("constants are written as such")


def read_constant(b: Builder, a: Attributes) -> Value:
    """The data of whichever attribute is given; there must be exactly one."""
    fields = vars(a)
    given = {k: v for k, v in fields.items() if k.startswith(("value", "sparse")) and v is not None}
    facts = {"op": "Constant", "attribute": "value", "given": len(given), "needed": 1}
    require(len(given) == 1, operation.ATTRIBUTE_LENGTH, **facts)
    ((name, found),) = given.items()
    hint = f"{b.hint or 'Constant'}/value"
    if name in ("value", "sparse_value"):
        return b.graph.add_constant(Data(found.dtype, found.shape, found.load), hint)
    dtype: DType = {"int": i64, "flo": f32, "str": string}[name.removeprefix("value_")[:3]]
    array = np.array(found, dtype.numpy)
    return b.graph.add_constant(Data.of(array, dtype), hint)


SIMPLE: dict[str, Codec] = {
    "value_int": Int(None),
    "value_ints": Ints(None),
    "value_float": Float(None),
    "value_floats": Floats(None),
    "value_string": Texts(None),
    "value_strings": Texts(None),
}


@op
class Constant(Op):
    """A constant.  No node of this kind stands in a graph: reading one makes a constant value."""

    sig = Sig(" -> y: T", T=onnx_all(25))

    def infer(self) -> TensorType:
        raise AssertionError("a Constant node is read as a constant value")

    onnx = (
        Form("Constant", 1, attrs={"value": Tensor()}, T=FLOATS, read=read_constant, direct=False),
        Form("Constant", 9, T=onnx_all(9)),
        Form("Constant", 11, attrs={"value": Tensor(None), "sparse_value": Tensor(None)}),
        Form("Constant", 12, attrs={"value": Tensor(None), "sparse_value": Tensor(None), **SIMPLE}),
        *(Form("Constant", n, T=onnx_all(n)) for n in (13, 19, 21, 23, 24, 25)),
    )
