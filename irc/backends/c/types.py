"""Element types in C: in memory and in registers.

In memory an element is `storage(dtype)`: the narrow floats are their bit patterns, sub-byte integers one
byte each (signed ones as the low bits only, as `ml_dtypes` keeps them).  In a register a narrow float is the
`float` of the same value, and a sub-byte integer the next whole integer, already wrapped to its width.
"""

from __future__ import annotations

from irc.ir.types import DType

_STORAGE = {
    "f64": "double",
    "f32": "float",
    "nf4": "float",
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "bool": "uint8_t",
    "i64": "int64_t",
    "i32": "int32_t",
    "i16": "int16_t",
    "i8": "int8_t",
    "u64": "uint64_t",
    "u32": "uint32_t",
    "u16": "uint16_t",
    "u8": "uint8_t",
}

COMMENTS = {
    "f16": "IEEE half, bit patterns",
    "bf16": "bfloat16, bit patterns",
    "bool": "0 or 1",
    "nf4": "the float value",
}


def is_narrow(dtype: DType) -> bool:
    """Tell whether a type is a float type kept as a bit pattern and computed in f32."""
    return dtype.kind == "f" and dtype.bits < 32 and dtype.name != "nf4"


def is_sub_byte(dtype: DType) -> bool:
    return dtype.kind in "iu" and dtype.bits < 8


def storage(dtype: DType) -> str:
    """Return the C type of one element in memory."""
    return _STORAGE.get(dtype.name, "uint8_t")


def register(dtype: DType) -> str:
    """Return the C type of a value of this element type in an expression."""
    if is_narrow(dtype):
        return "float"
    return "int8_t" if dtype.kind == "i" and dtype.bits < 8 else storage(dtype)


def arithmetic(dtype: DType) -> str:
    """Return the suffix of the helpers that compute in this type: f32, f64, i8 … u64."""
    if dtype.kind == "f":
        return "f64" if dtype.name == "f64" else "f32"
    if dtype.kind == "b":
        return "u8"
    return f"{dtype.kind}{max(dtype.bits, 8)}"


def describe(dtype: DType) -> str:
    """Describe the storage type, with its meaning if the C type does not say it."""
    note = COMMENTS.get(dtype.name)
    if note is None and storage(dtype) == "uint8_t" and dtype.name != "u8":
        note = f"{dtype.name}, one element per byte"
    return f"{storage(dtype)} ({note})" if note else storage(dtype)
