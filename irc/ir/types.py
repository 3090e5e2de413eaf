"""Element types and the types of values: tensors, sequences, optionals, maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from irc.arrays import NumpyType
from irc.diagnostics import Problem
from irc.diagnostics.codes import lowering
from irc.diagnostics.core import open_sizes
from irc.ir.dim import Dim, DimLike, product

Extras = dict[str, Any]
"""What else a file said of something, by names that its reader and its writer agree on."""


@dataclass(frozen=True)
class DType:
    """An element type.

    `bits` is the width in a weights file; `numpy` is the array type that carries it in memory,
    always whole elements (an i4 is one byte, an nf4 its float32 value, a string an object).
    `onnx` is the TensorProto enum (None: ONNX cannot name it); `ov` and `ov_port` are OpenVINO's
    spellings in attributes and in `precision=` (None: OpenVINO cannot name it).
    """

    name: str
    kind: str  # f float, i signed, u unsigned, b boolean, c complex, s string, ? unknown
    bits: int
    numpy: NumpyType
    onnx: int | None = None
    ov: str | None = None
    ov_port: str | None = None

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DType) and other.name == self.name

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        return dtype, (self.name,)

    @cached_property
    def itemsize(self) -> int:
        """Bytes of one element in memory (not in a packed file)."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def is_signed(self) -> bool:
        return self.kind in "if"

    @property
    def compute(self) -> DType:
        """The type arithmetic is done in: f32 for the narrow floats, itself otherwise."""
        return f32 if self.kind == "f" and self.bits < 32 else self


def _np(name: str) -> NumpyType:
    return np.dtype(getattr(ml_dtypes, name, name))


f64 = DType("f64", "f", 64, _np("float64"), 11, "f64", "FP64")
f32 = DType("f32", "f", 32, _np("float32"), 1, "f32", "FP32")
f16 = DType("f16", "f", 16, _np("float16"), 10, "f16", "FP16")
bf16 = DType("bf16", "f", 16, _np("bfloat16"), 16, "bf16", "BF16")
f8e4m3fn = DType("f8e4m3fn", "f", 8, _np("float8_e4m3fn"), 17, "f8e4m3", "F8E4M3")
f8e4m3fnuz = DType("f8e4m3fnuz", "f", 8, _np("float8_e4m3fnuz"), 18)
f8e5m2 = DType("f8e5m2", "f", 8, _np("float8_e5m2"), 19, "f8e5m2", "F8E5M2")
f8e5m2fnuz = DType("f8e5m2fnuz", "f", 8, _np("float8_e5m2fnuz"), 20)
f8e8m0 = DType("f8e8m0", "f", 8, _np("float8_e8m0fnu"), 24, "f8e8m0", "F8E8M0")
f6e2m3 = DType("f6e2m3", "f", 6, _np("float6_e2m3fn"), 27)
f6e3m2 = DType("f6e3m2", "f", 6, _np("float6_e3m2fn"), 28)
f4e2m1 = DType("f4e2m1", "f", 4, _np("float4_e2m1fn"), 23, "f4e2m1", "F4E2M1")
nf4 = DType("nf4", "f", 4, _np("float32"), None, "nf4", "NF4")
i64 = DType("i64", "i", 64, _np("int64"), 7, "i64", "I64")
i32 = DType("i32", "i", 32, _np("int32"), 6, "i32", "I32")
i16 = DType("i16", "i", 16, _np("int16"), 5, "i16", "I16")
i8 = DType("i8", "i", 8, _np("int8"), 3, "i8", "I8")
i4 = DType("i4", "i", 4, _np("int4"), 22, "i4", "I4")
i2 = DType("i2", "i", 2, _np("int2"), 26)
u64 = DType("u64", "u", 64, _np("uint64"), 13, "u64", "U64")
u32 = DType("u32", "u", 32, _np("uint32"), 12, "u32", "U32")
u16 = DType("u16", "u", 16, _np("uint16"), 4, "u16", "U16")
u8 = DType("u8", "u", 8, _np("uint8"), 2, "u8", "U8")
u6 = DType("u6", "u", 6, _np("uint8"), None, "u6", "U6")
u4 = DType("u4", "u", 4, _np("uint4"), 21, "u4", "U4")
u3 = DType("u3", "u", 3, _np("uint8"), None, "u3", "U3")
u2 = DType("u2", "u", 2, _np("uint2"), 25, "u2", "U2")
u1 = DType("u1", "u", 1, _np("uint8"), None, "u1", "BIN")
boolean = DType("bool", "b", 8, _np("bool"), 9, "boolean", "BOOL")
string = DType("string", "s", 0, _np("object"), 8, "string", "STRING")
c64 = DType("c64", "c", 64, _np("complex64"), 14)
c128 = DType("c128", "c", 128, _np("complex128"), 15)
dynamic = DType("dynamic", "?", 0, _np("object"), 0, "dynamic", "UNSPECIFIED")
NF4_VALUES = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
"""The 16 levels of NormalFloat4 (QLoRA, arXiv:2305.14314, appendix E), as f32 has them."""

DTYPES: dict[str, DType] = {v.name: v for v in list(globals().values()) if isinstance(v, DType)}
_BY_ONNX = {d.onnx: d for d in DTYPES.values() if d.onnx is not None}
_BY_OV = {d.ov: d for d in DTYPES.values() if d.ov} | {"undefined": dynamic}
_BY_OV_PORT = {d.ov_port: d for d in DTYPES.values() if d.ov_port} | {"U1": u1, "bin": u1}
_BY_NUMPY = {d.numpy: d for d in reversed(DTYPES.values()) if d.name not in ("nf4", "u6", "u3", "u1", "dynamic")}

FLOATS = frozenset({f16, f32, f64})
FLOATS_BF16 = FLOATS | {bf16}
F8 = frozenset({f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz})
INTS = frozenset({i8, i16, i32, i64})
UINTS = frozenset({u8, u16, u32, u64})
INTEGERS = INTS | UINTS
NUMERIC = FLOATS_BF16 | INTEGERS
COMPLEX = frozenset({c64, c128})
ANY = frozenset(DTYPES.values()) - {dynamic}


def dtype(name: str) -> DType:
    """The element type of that irc name; KeyError if there is none."""
    return DTYPES[name]


def dtype_from_onnx(enum: int) -> DType | None:
    return _BY_ONNX.get(enum)


def dtype_from_ov(text: str, port: bool = False) -> DType | None:
    """OpenVINO's spelling to an element type.

    Attributes take the lower-case names in any case (a Const's does not); ports (`precision=`) take both columns as
    they stand.
    """
    return (_BY_OV.get(text) or _BY_OV_PORT.get(text)) if port else _BY_OV.get(text.lower())


def dtype_from_numpy(kind: NumpyType) -> DType:
    """The element type an array carries; KeyError where irc has none."""
    if kind.kind in "UOST":
        return string
    return _BY_NUMPY[kind]


def value_range(dtype: DType) -> tuple[int, int]:
    """The least and the greatest whole number of an element type; of floats, up to which they have all."""
    if dtype.kind == "b":
        return 0, 1
    if dtype.is_float:
        return 0, 1 << (24 if dtype.bits == 32 else 53)
    if dtype.kind == "u":
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def wrapped(number: int, dtype: DType) -> int:
    """The integer modulo 2ⁿ, in the range of the type."""
    least = value_range(dtype)[0]
    return (number - least) % (1 << dtype.bits) + least


Shape = tuple[Dim, ...]


class UnknownRank(Problem):
    """The shape of a tensor of unknown rank was asked for."""

    def __init__(self, type: TensorType) -> None:
        super().__init__(lowering.RANK_NEEDED, type=type)


@dataclass(frozen=True)
class TensorType:
    """f32[batch, 3, 224]: an element type and a shape; `shape is None` means unknown rank."""

    dtype: DType
    shape: Shape | None

    @staticmethod
    def of(dtype: DType, shape: Iterable[DimLike] | None) -> TensorType:
        return TensorType(dtype, None if shape is None else tuple(Dim.of(d) for d in shape))

    def __str__(self) -> str:
        dims = "..." if self.shape is None else ",".join(map(str, self.shape))
        return f"{self.dtype}[{dims}]"

    def as_written(self) -> str:
        """The type as findings show it: `?` for a size that the file leaves open."""
        return open_sizes(str(self))

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def is_static(self) -> bool:
        return self.shape is not None and all(d.is_const for d in self.shape)

    def dims(self) -> Shape:
        """The shape, where the rank must be known."""
        if self.shape is None:
            raise UnknownRank(self)
        return self.shape

    def static_shape(self) -> tuple[int, ...]:
        return tuple(int(d) for d in self.dims())

    def elements(self) -> Dim:
        return product(self.dims())

    def with_dtype(self, dtype: DType) -> TensorType:
        return replace(self, dtype=dtype)

    def with_shape(self, shape: Iterable[DimLike] | None) -> TensorType:
        return TensorType.of(self.dtype, shape)

    def with_dim(self, axis: int, size: DimLike) -> TensorType:
        dims = list(self.dims())
        dims[axis] = Dim.of(size)
        return TensorType(self.dtype, tuple(dims))


@dataclass(frozen=True)
class SequenceType:
    """A list of values of one type.

    `empty`: it has no elements yet, and the rank in its element type is unknown because nothing has decided it.
    """

    element: Type
    empty: bool = False

    def __str__(self) -> str:
        return f"seq({self.element})"


@dataclass(frozen=True)
class OptionalType:
    """A value that may be absent (Python: None)."""

    element: Type

    def __str__(self) -> str:
        return f"optional({self.element})"


@dataclass(frozen=True)
class MapType:
    """ai.onnx.ml's map; in Python a dict."""

    key: DType
    value: Type

    def __str__(self) -> str:
        return f"map({self.key}, {self.value})"


Type = TensorType | SequenceType | OptionalType | MapType
