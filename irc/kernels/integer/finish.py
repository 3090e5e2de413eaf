"""What kernels of bytes share behind their sums: how a row of them becomes results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from irc.ir.types import DType, f32, i8, i32, u8
from irc.kernels.core.text import fill
from irc.kernels.integer import text

C_NAMES = {i32: "int32_t", f32: "float", u8: "uint8_t", i8: "int8_t"}
"""C types of results."""


def stores(stored: DType, given: Mapping[str, Any], bits: int) -> str:
    """Print how a row of sums becomes results of that type."""
    if stored == i32:
        return fill(text.STORE_SUMS, **given)
    if stored == f32:
        whole, part = "${V}_store(c + v, y)", "${V}_store_part(c + v, y, part)"
    else:
        whole, part = (f"irc_bytes_narrow_{bits}(c + v, (__m{bits})y, {n})" for n in ("$L", "part"))
    return fill(text.STORE, **given, store_whole=fill(whole, **given), store_part=fill(part, **given))
