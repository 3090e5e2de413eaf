"""Maps of keys to values: ZipMap, CastMap, DictVectorizer.

C has a map as two tensors (`irc.passes.pack_sequences`, docs/adr/0026-maps.md); in NumPy modules it is a dict.
Source: ONNX ai.onnx.ml; ONNX Runtime for the shapes of results, and for keys that have no place in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes, shape as shape_codes
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import DType, MapType, SequenceType, TensorType, f32, f64, i64, string
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Enum, Int, Ints, Strs
from irc.opdef.forms import Attributes, Form
from irc.opdef.signature import Sig
from irc.ops.cast import text_of
from irc.ops.find_keys import position_of
from irc.ops.scores import table

ML = "ai.onnx.ml"
CAST_TO = {"TO_FLOAT": f32, "TO_STRING": string, "TO_INT64": i64}
VALUES = {i64: frozenset({string, f32, f64}), string: frozenset({i64, f32, f64})}
"""The element types of values by those of keys."""


def map_of(op: str, x: Value, allowed: Mapping[DType, frozenset[DType]]) -> MapType:
    """Find the type of a map.  Raises Problem for what is none, or has other keys or values."""
    found = x.type
    kinds = ", ".join(f"map({key}, {value})" for key, values in allowed.items() for value in sorted(values, key=str))
    facts = {"op": op, "operand": "x", "dtype": found, "allowed": kinds}
    fits = isinstance(found, MapType) and value_of(found) in allowed.get(found.key, ())
    require(fits, codes.TYPE_NOT_ALLOWED, **facts)
    assert isinstance(found, MapType)
    return found


def value_of(type: MapType) -> DType:
    """The element type of a map's values."""
    assert isinstance(type.value, TensorType)
    return type.value.dtype


def placed(b: Builder, values: Value, place: Value, size: int) -> Value:
    """Put values at places of a vector, which is 0 or empty elsewhere; those at `size` are left out."""
    nothing: list[str] | list[int] = [""] * (size + 1) if values.dtype == string else [0] * (size + 1)
    found = b.ScatterElements(b.const(nothing, values.dtype), place, values, b.const(0))
    return b.Slice(found, [0], [size], [0])


def read_vectorizer(b: Builder, a: Attributes, x: Value) -> Value:
    """Read a DictVectorizer with the element type of its values."""
    vocabularies = {"int64_vocabulary": a.int64_vocabulary, "string_vocabulary": a.string_vocabulary}
    found = map_of("DictVectorizer", x, VALUES)
    return b.DictVectorizer(x, dtype=value_of(found), **vocabularies)


def any_type(op: DictVectorizer, x: Value) -> bool:
    return True


@op
class ZipMap(Op):
    """A map for each row, of the class labels to the elements of the row.  x: [n, classes], or a row."""

    classlabels_int64s: tuple[int, ...] = ()
    classlabels_strings: tuple[str, ...] = ()
    sig = Sig("x: f32[1..2] -> y: any")

    @property
    def labels(self) -> tuple[int, ...] | tuple[str, ...]:
        return self.classlabels_strings or self.classlabels_int64s

    def infer(self, x: Value) -> SequenceType:
        both = bool(self.classlabels_int64s and self.classlabels_strings)
        facts = {"op": "ZipMap", "attribute": "classlabels_int64s", "given": len(self.classlabels_int64s)}
        require(not both, codes.ATTRIBUTE_LENGTH, **facts, needed=0)
        columns = {"op": "ZipMap", "what": "columns and class labels", "a": x.shape[-1], "b": len(self.labels)}
        require(same(x.shape[-1], len(self.labels)), shape_codes.SIZES_DIFFER, **columns)
        key = string if self.classlabels_strings else i64
        return SequenceType(MapType(key, TensorType(f32, ())))

    def reference(self, x: Array) -> Any:
        return [dict(zip(self.labels, row)) for row in x.reshape(-1, len(self.labels)).tolist()]

    def packed(self, b: Builder, x: Value) -> list[Value]:
        """Make the tensors that stand for the maps: the labels, and the rows."""
        rows = b.Unsqueeze(x, [0]) if len(x.shape) == 1 else b.Identity(x)
        return [b.Identity(table(b, self.classlabels_int64s, self.classlabels_strings)), rows]

    onnx = (Form("ZipMap", 1, attrs={"classlabels_int64s": Ints(()), "classlabels_strings": Strs(())}, domain=ML),)


@op
class CastMap(Op):
    """The values of a map, ascending by their keys, as a matrix of one row of another element type.

    map_form SPARSE: each at the column that its key says, of `max_map`; 0 or an empty string where no key does.
    """

    cast_to: str = "TO_FLOAT"
    map_form: str = "DENSE"
    max_map: int = 1
    sig = Sig("x: any -> y: T", T={string, f32, i64})

    def infer(self, x: Value) -> TensorType:
        map_of("CastMap", x, {i64: frozenset({string, f32})})
        columns = Dim.fresh("keys") if self.map_form == "DENSE" else self.max_map
        return TensorType.of(CAST_TO[self.cast_to], [1, columns])

    def reference(self, x: Mapping[int, Any]) -> Any:
        if self.map_form == "DENSE":
            values = [x[k] for k in sorted(x)]
        else:
            values = [x.get(k, "" if self.cast_to == "TO_STRING" else 0) for k in range(self.max_map)]
        if self.cast_to != "TO_STRING":
            numbers = np.array([[float(v) for v in values]], np.float32)
            return numbers if self.cast_to == "TO_FLOAT" else numbers.astype(np.int64)
        words = [v if isinstance(v, str) else text_of(np.float32(v)) for v in values]
        return np.array([words], object).reshape(1, len(words))

    def packed(self, b: Builder, keys: Value, values: Value) -> list[Value]:
        """Compute the result from the tensors that stand for the map."""
        found = b.Cast(values, to=CAST_TO[self.cast_to])
        if self.map_form == "SPARSE":
            inside = b.And(b.LessOrEqual(b.const(0), keys), b.Less(keys, b.const(self.max_map)))
            found = placed(b, found, b.Where(inside, keys, b.const(self.max_map)), self.max_map)
        return [b.Unsqueeze(found, [0])]

    onnx = (
        Form(
            "CastMap",
            1,
            attrs={
                "cast_to": Enum(tuple(CAST_TO), "TO_FLOAT"),
                "map_form": Enum(("DENSE", "SPARSE"), "DENSE"),
                "max_map": Int(1, lo=1),
            },
            T={"T": {string, f32, i64}},
            domain=ML,
        ),
    )


@op
class DictVectorizer(Op):
    """The values of a map in the order of a vocabulary of keys, as a matrix of one row; 0 where a key is missing."""

    int64_vocabulary: tuple[int, ...] = ()
    string_vocabulary: tuple[str, ...] = ()
    dtype: DType = f32
    sig = Sig("x: any -> y: T", T={i64, f32, f64, string})

    @property
    def vocabulary(self) -> tuple[int, ...] | tuple[str, ...]:
        return self.string_vocabulary or self.int64_vocabulary

    def infer(self, x: Value) -> TensorType:
        key = string if self.string_vocabulary else i64
        map_of("DictVectorizer", x, {key: frozenset({self.dtype}) & VALUES[key]})
        return TensorType.of(self.dtype, [1, len(self.vocabulary)])

    def reference(self, x: Mapping[Any, Any]) -> Array:
        nothing = "" if self.dtype == string else 0
        return np.array([[x.get(key, nothing) for key in self.vocabulary]], self.dtype.numpy)

    def packed(self, b: Builder, keys: Value, values: Value) -> list[Value]:
        """Compute the result from the tensors that stand for the map."""
        place = position_of(b, keys, self.vocabulary, keys.dtype)
        return [b.Unsqueeze(placed(b, values, place, len(self.vocabulary)), [0])]

    onnx = (
        Form(
            "DictVectorizer",
            1,
            attrs={"int64_vocabulary": Ints(()), "string_vocabulary": Strs(())},
            T={"T": {i64, f32, f64, string}},
            read=read_vectorizer,
            direct=True,
            when=any_type,
            judges=("dtype",),
            domain=ML,
        ),
    )
