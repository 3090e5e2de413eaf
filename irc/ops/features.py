"""Preparation of features: extraction, scaling, imputation, encoding.


Source: ONNX ai.onnx.ml.
"""

from __future__ import annotations

from collections.abc import Sequence

from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes
from irc.ir.graph import Value
from irc.ir.types import DType, f32, f64, i32, i64, string
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Enum, Float, Floats, Int, Ints, Strs
from irc.opdef.forms import Form
from irc.opdef.signature import Sig
from irc.ops.find_keys import position_of

ML = "ai.onnx.ml"
FEATURES = frozenset({f32, f64, i64, i32})


def one_or_each(values: Sequence[float]) -> Sequence[float] | float:
    """Give the number for all features, or one for each."""
    return values[0] if len(values) == 1 else values


@op
class ArrayFeatureExtractor(Op):
    """The elements at these places of the last axis; of a vector, as a matrix of one row."""

    sig = Sig("x: T[>=1], places: i64 -> y: T", T=FEATURES | {string})

    def decompose(self, b: Builder, x: Value, places: Value) -> Value:
        x = b.Unsqueeze(x, [0]) if len(x.shape) == 1 else x
        return b.Gather(x, b.Reshape(places, [-1]), b.const(len(x.shape) - 1))

    onnx = (Form("ArrayFeatureExtractor", 1, T=FEATURES | {string}, domain=ML),)


@op
class Binarizer(Op):
    """1 where an element is above the threshold, else 0."""

    threshold: float = 0.0
    sig = Sig("x: T -> y: T", T=FEATURES)

    def decompose(self, b: Builder, x: Value) -> Value:
        wide = b.Cast(x, to=f64) if x.dtype.is_integer else x
        return b.Cast(b.Less(b.const(self.threshold, wide.dtype), wide), to=x.dtype)

    onnx = (Form("Binarizer", 1, attrs={"threshold": Float(0.0)}, T=FEATURES, domain=ML),)


@op
class FeatureVectorizer(Op):
    """The features of all operands side by side, as f32: of each as many as inputdimensions says, 0 behind its own."""

    inputdimensions: tuple[int, ...] = ()
    sig = Sig("*xs: T[1..2] -> y: f32", T=FEATURES)

    def decompose(self, b: Builder, *xs: Value) -> Value:
        widths = self.inputdimensions
        facts = {"op": "FeatureVectorizer", "attribute": "inputdimensions", "given": len(widths), "needed": len(xs)}
        require(len(widths) == len(xs), codes.ATTRIBUTE_LENGTH, **facts)
        return b.Concat(*(self._cut(b, x, width) for x, width in zip(xs, widths, strict=True)), axis=1)

    def _cut(self, b: Builder, x: Value, width: int) -> Value:
        """Cut the rows of an operand to a width, or fill them up with 0."""
        x = b.Cast(b.Unsqueeze(x, [1]) if len(x.shape) == 1 else x, to=f32)
        if x.shape[1] == width:
            return x
        filled = b.Concat(x, b.Expand(b.const([[0.0]], f32), b.dims([x.shape[0], width])), axis=1)
        return b.Slice(filled, [0], [width], [1])

    onnx = (Form("FeatureVectorizer", 1, attrs={"inputdimensions": Ints((), lo=0)}, T=FEATURES, domain=ML),)


@op
class Imputer(Op):
    """Another value, one for each feature or one for all, for elements that are a certain value, or NaN."""

    imputed_value_floats: tuple[float, ...] = ()
    imputed_value_int64s: tuple[int, ...] = ()
    replaced_value_float: float = 0.0
    replaced_value_int64: int = 0
    sig = Sig("x: T -> y: T", T=FEATURES)

    def decompose(self, b: Builder, x: Value) -> Value:
        values = self.imputed_value_floats if x.dtype.is_float else self.imputed_value_int64s
        replaced = self.replaced_value_float if x.dtype.is_float else self.replaced_value_int64
        name = "imputed_value_floats" if x.dtype.is_float else "imputed_value_int64s"
        facts = {"op": "Imputer", "attribute": name, "given": len(values), "needed": "1 or one for each feature"}
        require(len(values) >= 1, codes.ATTRIBUTE_LENGTH, **facts)
        missing = b.IsNaN(x) if replaced != replaced else b.Equal(x, b.const(replaced, x.dtype))
        return b.Where(missing, b.const(one_or_each(values), x.dtype), x)

    onnx = (
        Form(
            "Imputer",
            1,
            attrs={
                "imputed_value_floats": Floats(()),
                "imputed_value_int64s": Ints(()),
                "replaced_value_float": Float(0.0),
                "replaced_value_int64": Int(0),
            },
            T=FEATURES,
            domain=ML,
        ),
    )


def as_f32(b: Builder, x: Value) -> Value:
    """Make features f32, as results of ai.onnx.ml are."""
    return b.Cast(x, to=f32)


@op
class Normalizer(Op):
    """The elements over the norm of their row."""

    norm: str = "MAX"
    sig = Sig("x: T[>=1] -> y: f32", T=FEATURES)

    def decompose(self, b: Builder, x: Value) -> Value:
        x = as_f32(b, x)
        if self.norm == "L2":
            size = b.Sqrt(b.ReduceSum(b.Mul(x, x), [-1], keepdims=True))
        elif self.norm == "L1":
            size = b.ReduceSum(b.Abs(x), [-1], keepdims=True)
        else:
            size = b.ReduceMax(x, [-1], keepdims=True)
        return b.Div(x, b.Where(b.Equal(size, b.const(0, f32)), b.const(1, f32), size))

    onnx = (Form("Normalizer", 1, attrs={"norm": Enum(("MAX", "L1", "L2"), "MAX")}, T=FEATURES, domain=ML),)


@op
class OneHotEncoder(Op):
    """A row of 0 for each element, with 1 at the position of the category that it is."""

    cats_int64s: tuple[int, ...] = ()
    cats_strings: tuple[str, ...] = ()
    zeros: bool = True
    sig = Sig("x: T -> y: f32", T=FEATURES | {string})

    def decompose(self, b: Builder, x: Value) -> Value:
        words = x.dtype == string
        keys: tuple[int, ...] | tuple[str, ...] = self.cats_strings if words else self.cats_int64s
        name = "cats_strings" if words else "cats_int64s"
        facts = {"op": "OneHotEncoder", "attribute": name, "given": len(keys), "needed": "at least 1"}
        require(len(keys) > 0, codes.ATTRIBUTE_LENGTH, **facts)
        kind: DType = string if words else i64
        place = b.Unsqueeze(position_of(b, x, keys, kind), [-1])
        return b.Cast(b.Equal(place, b.const(list(range(len(keys))))), to=f32)

    onnx = (
        Form(
            "OneHotEncoder",
            1,
            attrs={"cats_int64s": Ints(()), "cats_strings": Strs(()), "zeros": Bool(True)},
            T=FEATURES | {string},
            domain=ML,
        ),
    )


@op
class Scaler(Op):
    """(x - offset) · scale, with a number for each feature or one for all, as f32."""

    offset: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    sig = Sig("x: T -> y: f32", T=FEATURES)

    def decompose(self, b: Builder, x: Value) -> Value:
        x = as_f32(b, x)
        if self.offset:
            x = b.Sub(x, b.const(one_or_each(self.offset), f32))
        return b.Mul(x, b.const(one_or_each(self.scale), f32)) if self.scale else x

    onnx = (Form("Scaler", 1, attrs={"offset": Floats(()), "scale": Floats(())}, T=FEATURES, domain=ML),)
