"""What convolutions of bytes share: the arguments of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from irc.arrays import Array
from irc.expr import Expr
from irc.ir.dim import Dim, product
from irc.kernels.conv import reference
from irc.kernels.core.base import Sizes
from irc.kernels.core.isa import C_NAMES
from irc.kernels.core.text import Part
from irc.kernels.core.tile import Tile
from irc.kernels.integer import text
from irc.kernels.integer.problem import BYTES, IntegerConvProblem
from irc.kernels.integer.results import SumsOfBytes
from irc.kernels.vector.pixels import slot_starts

EXTENTS = "batch groups ic oc ih iw oh ow pad_h pad_w x_batch x_row x_pixel y_batch y_pixel"
GEOMETRY = "kh kw stride_h stride_w dilation_h dilation_w"


class WindowsOfBytes(SumsOfBytes[IntegerConvProblem]):
    """Base of convolutions of bytes with the channels last; window, strides and dilations are sizes of the call."""

    signed: bool
    zeroed: bool

    problem = IntegerConvProblem

    def arguments_for(self, problem: IntegerConvProblem) -> dict[str, Dim]:
        (kh, kw), (sh, sw), (dh, dw) = problem.geometry
        fixed = dict(zip(GEOMETRY.split(), (kh, kw, sh, sw, dh, dw), strict=True)) | {"groups": problem.groups}
        if self.stored in BYTES:
            fixed["y_zero"] = problem.rounding.zero
        sizes = {n: Dim.of(v) for n, v in fixed.items()}
        return problem.arguments() | problem.channel_arguments() | sizes

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

    def given(self, tile: Tile) -> dict[str, Any]:
        byte = "int8_t" if self.signed else "uint8_t"
        return super().given(tile) | {"B": byte, "slot_starts": slot_starts(self.epilogue)}

    def shared(self, tile: Tile) -> list[Part]:
        return [*super().shared(tile), text.WALK]
