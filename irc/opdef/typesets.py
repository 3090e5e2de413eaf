"""Sets of element types that many operations share, as the formats' versions list them.

ONNX widened "all tensor types" step by step: bf16 (13), f8 (19), 4-bit integers (21), f4e2m1 (23),
f8e8m0 (24), 2-bit integers (25).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from irc.ir.types import (
    ANY,
    COMPLEX,
    F8,
    FLOATS,
    INTEGERS,
    DType,
    bf16,
    boolean,
    f4e2m1,
    f8e8m0,
    i2,
    i4,
    i32,
    i64,
    string,
    u2,
    u4,
)
from irc.opdef.forms import Form

TypeSet = frozenset[DType]

ONNX_ALL = FLOATS | INTEGERS | COMPLEX | {boolean, string}
"""All tensor types of ONNX opset 1..12."""
ONNX_NUMBERS = FLOATS | INTEGERS
"""All numeric types of ONNX opset 1..12."""
OV_ANY = frozenset(d for d in ANY if d.ov is not None)
"""What OpenVINO's shape and movement operations accept: every type it can name."""
INDEX = frozenset({i32, i64})

ONNX_STEPS: Mapping[int, TypeSet] = {
    13: ONNX_ALL | {bf16},
    19: ONNX_ALL | {bf16} | F8,
    21: ONNX_ALL | {bf16, i4, u4} | F8,
    23: ONNX_ALL | {bf16, i4, u4, f4e2m1} | F8,
    24: ONNX_ALL | {bf16, i4, u4, f4e2m1, f8e8m0} | F8,
    25: ONNX_ALL | {bf16, i4, u4, f4e2m1, f8e8m0, i2, u2} | F8,
}
"""All tensor types from each of these opsets on."""


def onnx_all(opset: int) -> TypeSet:
    """All tensor types of that ONNX opset."""
    found = [types for first, types in ONNX_STEPS.items() if first <= opset]
    return found[-1] if found else ONNX_ALL


def onnx_rows(name: str, *opsets: int, **first: Any) -> tuple[Form, ...]:
    """Rows of type variable T that differ in the widening of "all tensor types" only; `first` is the first row's."""
    return tuple(Form(name, n, T={"T": onnx_all(n)}, **(first if n == opsets[0] else {})) for n in opsets)
