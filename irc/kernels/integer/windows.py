"""What convolutions of bytes share: the arguments of a call, and how sums become results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from irc.arrays import Array
from irc.expr import Expr
from irc.ir.dim import Dim, product
from irc.ir.types import DType, f32, i8, i32, u8, value_range
from irc.kernels.conv import reference
from irc.kernels.core.base import Kernel, Sizes
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import C_NAMES, Isa
from irc.kernels.core.text import Part, fill
from irc.kernels.core.tile import Tile, epilogue_of, names, prelude
from irc.kernels.integer import text
from irc.kernels.integer.problem import BYTES, IntegerConvProblem
from irc.kernels.integer.vectors import MEMORY, PUT, rounding, saturate, widen
from irc.kernels.vector.pixels import slot_starts

EXTENTS = "batch groups ic oc ih iw oh ow pad_h pad_w x_batch x_row x_pixel y_batch y_pixel"
GEOMETRY = "kh kw stride_h stride_w dilation_h dilation_w"
FINISH = {i32: 2.0, f32: 4.0, u8: 3.0, i8: 3.0}
"""Cycles to store a vector of results of a type."""


class WindowsOfBytes(Kernel[IntegerConvProblem]):
    """Base of convolutions of bytes with the channels last; window, strides and dilations are sizes of the call."""

    isa: Isa
    signed: bool
    zeroed: bool
    stored: DType
    fits: bool
    epilogue: Epilogue

    problem = IntegerConvProblem

    def arguments_for(self, problem: IntegerConvProblem) -> dict[str, Dim]:
        (kh, kw), (sh, sw), (dh, dw) = problem.geometry
        fixed = dict(zip(GEOMETRY.split(), (kh, kw, sh, sw, dh, dw), strict=True)) | {"groups": problem.groups}
        if self.stored in BYTES:
            fixed["y_zero"] = problem.rounding.zero
        sizes = {n: Dim.of(v) for n, v in fixed.items()}
        return problem.arguments() | problem.channel_arguments() | sizes

    def rounded(self, values: Array, sizes: Mapping[str, int]) -> Array:
        """Compute what is stored for values of the epilogue."""
        if self.stored not in BYTES:
            return values
        return (values.round() + sizes["y_zero"]).clip(*value_range(self.stored))

    def convolve(
        self, w: Array, own: Array, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]
    ) -> None:
        """Compute the results of a call with unpacked weights [outputs, channels, kh, kw].

        own: what is added to the sums of each output.
        """
        x = reads[0].astype(np.int64) - (int(reads[2][0]) if self.zeroed else 0)
        operands = [x, reads[1], *reads[3 if self.zeroed else 2 :]]
        strides, dilations = (sizes["stride_h"], sizes["stride_w"]), (sizes["dilation_h"], sizes["dilation_w"])
        given = w.astype(np.int64), sizes["groups"], strides, dilations, self.epilogue, operands
        reference.convolve("nhwc", *given, writes, sizes, own, self.rounded)

    def overwrites(self, sizes: Mapping[str, Expr]) -> frozenset[int]:
        first, kinds = (3 if self.zeroed else 2), dict(self.epilogue.byte_slots)

        def stands_there(i: int) -> bool:
            strides = ((sizes[f"s{i}_{axis}"], sizes[f"y_{axis}"]) for axis in ("batch", "pixel"))
            return kinds[i].itemsize == self.stored.itemsize and all(own == there for own, there in strides)

        return frozenset(first + i for i in kinds if self.epilogue.is_residual(i) and stands_there(i))

    # ---------------------------------------------------------------------------------- C
    @property
    def read(self) -> tuple[tuple[str, str], ...]:
        """The pointers of a call in front of the scratch memory."""
        read = (("x", "const int8_t *" if self.signed else "const uint8_t *"), ("w", "const int8_t *"))
        zero = (("zero", "const int32_t *"),) if self.zeroed else ()
        return (*read, *zero, *self.epilogue.pointers("float"), ("y", f"{C_NAMES[self.stored]} *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        slots = (f"s{i}_{f}" for i, f in self.epilogue.strides("batch", "pixel"))
        return (*EXTENTS.split(), *GEOMETRY.split(), *slots, *(("y_zero",) if self.stored in BYTES else ()))

    def flops(self, sizes: Sizes) -> Dim:
        return product(sizes[n] for n in ("batch", "groups", "oc", "ic", "oh", "ow", "kh", "kw")) * 2

    @property
    def words(self) -> tuple[str, ...]:
        """What names of variants say of signs, zero points and results."""
        return "signed" if self.signed else "unsigned", "zero" if self.zeroed else "plain", self.stored.name

    @property
    def key(self) -> str:
        """What a variant's name has a hash of."""
        return "" if self.stored == i32 else f"{self.epilogue.key()} {'fits' if self.fits else ''}"

    def given(self, tile: Tile) -> dict[str, Any]:
        """Return the names in templates of a kernel whose sums fill a tile."""
        bits, byte = self.isa.vector * 8, self.stored in BYTES
        return names(tile) | {
            "S": self.symbol,
            "B": "int8_t" if self.signed else "uint8_t",
            "M": f"__m{bits}i",
            "mm": f"_mm{bits}",
            "bits": bits,
            "stored": C_NAMES[self.stored],
            "kind": self.stored.name,
            "load": f"irc_bytes_load_{bits}",
            "store": f"irc_bytes_store_{bits}",
            "to_f32": f"_mm{bits}_cvtepi32_ps",
            "slot_starts": slot_starts(self.epilogue),
            "round": f"irc_bytes_{'near' if self.fits else 'rounded'}_{bits}",
            "rounding_field": f"\n    __m{bits}i y_zero;" if byte else "",
            "rounding": f"\n    w.y_zero = _mm{bits}_set1_epi16((short)g->y_zero);" if byte else "",
            **self.interface,
        }

    def ends(self, tile: Tile, given: Mapping[str, Any]) -> list[Part]:
        """Print `SYMBOL_finish`, which stores rows of sums; it needs the type `SYMBOL_work`."""
        row = {i32: text.SUMS_ROW, f32: text.FLOATS_ROW}.get(self.stored, text.BYTES_ROW)
        return [self.out(tile, given), fill(row, **given), fill(text.FINISH, **given)]

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
        return [prelude(tile, self.epilogue), MEMORY[bits], *read, *byte, text.WALK]
