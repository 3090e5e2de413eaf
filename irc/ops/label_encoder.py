"""Maps from labels to labels: LabelEncoder, CategoryMapper.

Source: ONNX ai.onnx.ml.
"""

from __future__ import annotations

from collections.abc import Sequence

from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes
from irc.ir.graph import Value
from irc.ir.types import DTYPES, DType, f32, f64, i16, i32, i64, string
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Codec, Float, Floats, Int, Ints, Str, Strs, TypedNumbers
from irc.opdef.forms import PREV, Attributes, Form
from irc.opdef.signature import Sig
from irc.ops.find_keys import position_of

ML = "ai.onnx.ml"
Labels = Sequence[float | int | str]
TEXTS_AND_NUMBERS = {"T1": {string, i64}, "T2": {string, i64}}
UNUSED = "_Unused"

MORE = {f64, i32, i16}
ENCODER_2: dict[str, Codec] = {
    "keys_strings": Strs(()),
    "keys_int64s": Ints(()),
    "keys_floats": Floats(()),
    "values_strings": Strs(()),
    "values_int64s": Ints(()),
    "values_floats": Floats(()),
    "default_string": Str(UNUSED),
    "default_int64": Int(-1),
    "default_float": Float(-0.0),
}
ENCODER_4: dict[str, Codec] = {
    **ENCODER_2,
    "keys_tensor": TypedNumbers(None),
    "values_tensor": TypedNumbers(None),
    "default_tensor": TypedNumbers(None),
}


def mapped(b: Builder, x: Value, keys: Labels, values: Labels, default: float | str, to: DType) -> Value:
    """Replace each key by the value at its position, and what is no key by the default."""
    return b.Gather(b.const([*values, default], to), position_of(b, x, keys, x.dtype), b.const(0))


def read_encoder_1(b: Builder, a: Attributes, x: Value) -> Value:
    """Version 1 maps strings to their positions, and positions to strings."""
    words, numbers = a.classes_strings, tuple(range(len(a.classes_strings)))
    if x.dtype == string:
        return b.LabelEncoder(x, keys_strings=words, values_int64s=numbers, default_int64=a.default_int64)
    return b.LabelEncoder(x, keys_int64s=numbers, values_strings=words, default_string=a.default_string)


@op
class LabelEncoder(Op):
    """The value at the position of the key that an element is; the default for an element that is no key."""

    keys_strings: tuple[str, ...] = ()
    keys_int64s: tuple[int, ...] = ()
    keys_floats: tuple[float, ...] = ()
    keys_tensor: tuple[str, tuple[float | str, ...]] | None = None
    values_strings: tuple[str, ...] = ()
    values_int64s: tuple[int, ...] = ()
    values_floats: tuple[float, ...] = ()
    values_tensor: tuple[str, tuple[float | str, ...]] | None = None
    default_string: str = UNUSED
    default_int64: int = -1
    default_float: float = -0.0
    default_tensor: tuple[str, tuple[float | str, ...]] | None = None
    sig = Sig("x: T1 -> y: T2", T1={string, i64, f32, i32, i16, f64}, T2={string, i64, f32, i32, i16, f64})

    def keys(self) -> tuple[DType, Labels]:
        """The element type of the keys, and the keys."""
        return self._given("keys", self.keys_strings, self.keys_int64s, self.keys_floats, self.keys_tensor)

    def values(self) -> tuple[DType, Labels]:
        """The element type of the values, and the values."""
        return self._given("values", self.values_strings, self.values_int64s, self.values_floats, self.values_tensor)

    def _given(
        self,
        what: str,
        strings: tuple[str, ...],
        ints: tuple[int, ...],
        floats: tuple[float, ...],
        tensor: tuple[str, tuple[float | str, ...]] | None,
    ) -> tuple[DType, Labels]:
        given: list[tuple[DType, Labels]] = [
            pair for pair in ((string, strings), (i64, ints), (f32, floats)) if pair[1]
        ]
        if tensor is not None:
            given.append((DTYPES[tensor[0]], tensor[1]))
        facts = {"op": "LabelEncoder", "attribute": f"{what}_*", "given": len(given), "needed": 1}
        require(len(given) == 1, codes.ATTRIBUTE_LENGTH, **facts)
        return given[0]

    def default(self, to: DType) -> float | int | str:
        """The value of what is no key."""
        if self.default_tensor is not None:
            return self.default_tensor[1][0]
        if to == string:
            return self.default_string
        return self.default_int64 if to.is_integer else self.default_float

    def decompose(self, b: Builder, x: Value) -> Value:
        (kind, keys), (to, values) = self.keys(), self.values()
        facts = {"op": "LabelEncoder", "attribute": "values_*", "given": len(values), "needed": len(keys)}
        require(len(keys) == len(values), codes.ATTRIBUTE_LENGTH, **facts)
        allowed = kind.name
        facts = {"op": "LabelEncoder", "operand": "x", "dtype": x.dtype, "allowed": allowed}
        require(kind == x.dtype, codes.TYPE_NOT_ALLOWED, **facts)
        return mapped(b, x, keys, values, self.default(to), to)

    onnx = (
        Form(
            "LabelEncoder",
            1,
            attrs={"classes_strings": Strs(()), "default_int64": Int(-1), "default_string": Str(UNUSED)},
            T=TEXTS_AND_NUMBERS,
            read=read_encoder_1,
            domain=ML,
        ),
        Form(
            "LabelEncoder",
            2,
            attrs=ENCODER_2,
            T={"T1": PREV | {f32}, "T2": PREV | {f32}},
            read=None,
            direct=True,
            domain=ML,
        ),
        Form("LabelEncoder", 4, attrs=ENCODER_4, T={"T1": PREV | MORE, "T2": PREV | MORE}, domain=ML),
    )


@op
class CategoryMapper(Op):
    """The integer that goes with a string, or the string that goes with an integer."""

    cats_int64s: tuple[int, ...] = ()
    cats_strings: tuple[str, ...] = ()
    default_int64: int = -1
    default_string: str = UNUSED
    sig = Sig("x: T1 -> y: T2", T1={string, i64}, T2={string, i64})

    def decompose(self, b: Builder, x: Value) -> Value:
        given, needed = len(self.cats_int64s), len(self.cats_strings)
        facts = {"op": "CategoryMapper", "attribute": "cats_int64s", "given": given, "needed": needed}
        require(given == needed, codes.ATTRIBUTE_LENGTH, **facts)
        if x.dtype == string:
            return mapped(b, x, self.cats_strings, self.cats_int64s, self.default_int64, i64)
        return mapped(b, x, self.cats_int64s, self.cats_strings, self.default_string, string)

    onnx = (
        Form(
            "CategoryMapper",
            1,
            attrs={
                "cats_int64s": Ints(()),
                "cats_strings": Strs(()),
                "default_int64": Int(-1),
                "default_string": Str(UNUSED),
            },
            T=TEXTS_AND_NUMBERS,
            domain=ML,
        ),
    )
