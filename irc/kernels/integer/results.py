"""How sums of products of bytes become results: what kernels of bytes share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from irc.arrays import Array
from irc.ir.types import DType, f32, i8, i32, u8, value_range
from irc.kernels.core.base import Kernel
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import C_NAMES, Isa
from irc.kernels.core.problem import Problem
from irc.kernels.core.text import Part, fill
from irc.kernels.core.tile import Tile, epilogue_of, names, prelude
from irc.kernels.integer import text
from irc.kernels.integer.problem import BYTES
from irc.kernels.integer.vectors import MEMORY, PUT, rounding, saturate, widen

FINISH = {i32: 2.0, f32: 4.0, u8: 3.0, i8: 3.0}
"""Cycles to store a vector of results of a type."""
P = TypeVar("P", bound=Problem)


class SumsOfBytes(Kernel[P]):
    """Base of kernels whose sums, in i32, are stored as they are, or as an epilogue's floats or the bytes near them."""

    isa: Isa
    stored: DType
    fits: bool
    epilogue: Epilogue

    def rounded(self, values: Array, sizes: Mapping[str, int]) -> Array:
        """Compute what is stored for values of the epilogue."""
        if self.stored not in BYTES:
            return values
        return (values.round() + sizes["y_zero"]).clip(*value_range(self.stored))

    @property
    def key(self) -> str:
        """What a variant's name has a hash of."""
        return "" if self.stored == i32 else f"{self.epilogue.key()} {'fits' if self.fits else ''}"

    def given(self, tile: Tile) -> dict[str, Any]:
        """Return the names in templates of a kernel whose sums fill a tile."""
        bits, byte = self.isa.vector * 8, self.stored in BYTES
        return names(tile) | {
            "S": self.symbol,
            "M": f"__m{bits}i",
            "mm": f"_mm{bits}",
            "bits": bits,
            "stored": C_NAMES[self.stored],
            "kind": self.stored.name,
            "load": f"irc_bytes_load_{bits}",
            "store": f"irc_bytes_store_{bits}",
            "to_f32": f"_mm{bits}_cvtepi32_ps",
            "round": f"irc_bytes_{'near' if self.fits else 'rounded'}_{bits}",
            "rounding_field": f"\n    __m{bits}i y_zero;" if byte else "",
            "rounding": f"\n    w.y_zero = _mm{bits}_set1_epi16((short)g->y_zero);" if byte else "",
            **self.interface,
        }

    def ends(self, tile: Tile, given: Mapping[str, Any]) -> list[Part]:
        """Print `SYMBOL_finish`, which stores rows of sums; it needs the type `SYMBOL_work`."""
        row = {i32: text.SUMS_ROW, f32: text.FLOATS_ROW}.get(self.stored, text.BYTES_ROW)
        return [self.out(tile, given), fill(row, **given), fill(text.FINISH, **given)]

    @property
    def in_registers(self) -> bool:
        """Whether the sums of a whole tile may stay in registers: no function of the epilogue wants them itself."""
        return not {*self.epilogue.functions()} - {"round"}

    def whole_rows(self, tile: Tile, given: Mapping[str, Any]) -> str:
        """Print the statements that store all rows and columns of a tile, bytes of half a vector two rows at once."""
        two = self.stored in BYTES and (tile.isa.vector, tile.vectors) == (32, 2) and tile.rows % 2 == 0
        return fill(text.TWO_ROWS if two else text.ROWS, **given)

    def out(self, tile: Tile, given: Mapping[str, Any]) -> Part:
        """Print the type `SYMBOL_out`, and the epilogue of floats."""
        if self.stored == i32:
            return fill("typedef struct { int32_t *c; int64_t c_row, n; } ${S}_out;\n", **given)
        return epilogue_of(self.symbol, tile, self.epilogue, C_NAMES[self.stored])

    def shared(self, tile: Tile) -> list[Part]:
        """List the pieces that all such kernels need."""
        bits = self.isa.vector * 8
        byte = [*PUT[bits], rounding(bits), saturate(self.stored, bits)] if self.stored in BYTES else []
        read = [widen(kind, bits) for kind in dict.fromkeys(kind for _, kind in self.epilogue.byte_slots)]
        return [prelude(tile, self.epilogue), MEMORY[bits], *read, *byte]
