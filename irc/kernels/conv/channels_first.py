"""What kernels of convolutions with the channels first have in common: the operands of a call, and its sizes."""

from __future__ import annotations

from typing import TypeVar

from irc.kernels.conv.problem import ConvProblem
from irc.kernels.core.base import Kernel
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.tile import Tile, names

P = TypeVar("P", bound=ConvProblem)


class ChannelsFirstKernel(Kernel[P]):
    """Base of these kernels: input, packed weights, the epilogue's operands, result.

    extents: names of the sizes, without the strides of the epilogue's operands.
    """

    tile: Tile
    epilogue: Epilogue
    extents: str

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        t = str(names(self.tile)["T"])
        return (("x", f"const {t} *"), ("w", f"const {t} *"), *self.epilogue.pointers(t), ("y", f"{t} *"))

    @property
    def sizes(self) -> tuple[str, ...]:
        return (*self.extents.split(), *(f"s{i}_{f}" for i, f in self.epilogue.strides("batch", "channel")))
