"""Element types by irc's names as NumPy dtypes; ml_dtypes is imported only when a model uses such a type."""

from __future__ import annotations

from functools import cache

import numpy as np

from irc.arrays import NumpyType

_NUMPY = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "nf4": "float32",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u64": "uint64",
    "u32": "uint32",
    "u16": "uint16",
    "u8": "uint8",
    "u6": "uint8",
    "u3": "uint8",
    "u1": "uint8",
    "bool": "bool",
    "string": "object",
    "c64": "complex64",
    "c128": "complex128",
    "dynamic": "object",
}
_ML_DTYPES = {
    "bf16": "bfloat16",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2": "float8_e5m2",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e8m0": "float8_e8m0fnu",
    "f6e2m3": "float6_e2m3fn",
    "f6e3m2": "float6_e3m2fn",
    "f4e2m1": "float4_e2m1fn",
    "i4": "int4",
    "u4": "uint4",
    "i2": "int2",
    "u2": "uint2",
}


@cache
def numpy_dtype(name: str) -> NumpyType:
    """Return the dtype of arrays with elements of this type; KeyError for a name irc does not have."""
    if name in _NUMPY:
        return np.dtype(_NUMPY[name])
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))
