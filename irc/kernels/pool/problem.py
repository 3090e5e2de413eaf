"""Pools as problems: the largest element or the mean of every window, and of whole planes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from irc.ir.dim import Dim, DimLike
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.problem import Layout, Pair, Problem

Mode = Literal["max", "average"]
Counted = Literal["inside", "padded", "window"]


@dataclass(frozen=True)
class PoolProblem(Problem):
    """y[i, c, p, q] = epilogue(fold of the window of x[i, c] at p, q), a fold being the largest element or the mean.

    layout: which stand side by side, "nchw": pixels, and rows follow one another; "nhwc": channels.  counted: what a
    mean divides by: the positions `inside` the input, those and the padding (`padded`), or all of the `window`.
    channels, input, result: extents, heights before widths.  padding: before and behind the rows and the columns of x.
    x: strides along images, channels, rows and pixels; y: along images, channels and pixels, its rows follow one
    another.  slots: strides of the epilogue's operands along images and pixels; its rows are pixels and its columns
    channels.
    """

    epilogue: Epilogue
    layout: Layout
    mode: Mode
    counted: Counted
    batch: Dim
    channels: Dim
    input: tuple[Dim, Dim]
    result: tuple[Dim, Dim]
    window: Pair
    strides: Pair
    dilations: Pair
    padding: tuple[tuple[Dim, Dim], tuple[Dim, Dim]]
    x: tuple[Dim, Dim, Dim, Dim]
    y: tuple[Dim, Dim, Dim]
    slots: tuple[tuple[Dim, Dim], ...]

    @classmethod
    def contiguous(
        cls,
        layout: Layout,
        epilogue: Epilogue,
        mode: Mode,
        window: Pair,
        strides: Pair = (1, 1),
        dilations: Pair = (1, 1),
        counted: Counted = "inside",
        channels: DimLike = 64,
        result: tuple[DimLike, DimLike] = (56, 56),
    ) -> PoolProblem:
        """State a pool of one image without gaps and padding, and epilogue operands without gaps."""
        zero, one, c = Dim.of(0), Dim.of(1), Dim.of(channels)
        oh, ow = map(Dim.of, result)
        ih, iw = (
            (n - 1) * s + ((w - 1) * d + 1) for n, s, w, d in zip((oh, ow), strides, window, dilations, strict=True)
        )
        first = layout == "nchw"
        slots = tuple((zero, c if axes in ("column", "full") else zero) for axes in epilogue.slots)
        return cls(
            epilogue.dtype,
            "highest",
            epilogue,
            layout,
            mode,
            counted,
            one,
            c,
            (ih, iw),
            (oh, ow),
            window,
            strides,
            dilations,
            padding=((zero, zero), (zero, zero)),
            x=(zero, ih * iw, iw, one) if first else (zero, one, iw * c, c),
            y=(zero, oh * ow, one) if first else (zero, one, c),
            slots=slots,
        )

    def arguments(self) -> dict[str, Dim]:
        """Return the sizes of calls in every layout, by name."""
        ((top, left), (bottom, right)), (ih, iw), (oh, ow) = self.padding, self.input, self.result
        sizes = {"batch": self.batch, "channels": self.channels, "ih": ih, "iw": iw, "oh": oh, "ow": ow}
        sizes |= {"pad_h": top, "pad_w": left, "end_h": bottom, "end_w": right}
        return sizes | {"x_batch": self.x[0], "y_batch": self.y[0]}


@dataclass(frozen=True)
class GlobalPoolProblem(Problem):
    """y[i, c] = epilogue(the largest element, or the mean, of the pixels of x[i, c]).

    x: strides along images, channels and pixels; y: along images and channels.  slots: strides of the epilogue's
    operands along images; its columns are channels.
    """

    epilogue: Epilogue
    mode: Mode
    batch: Dim
    channels: Dim
    pixels: Dim
    x: tuple[Dim, Dim, Dim]
    y: tuple[Dim, Dim]
    slots: tuple[Dim, ...]

    @classmethod
    def contiguous(
        cls, layout: Layout, epilogue: Epilogue, mode: Mode, channels: DimLike = 64, pixels: DimLike = 49
    ) -> GlobalPoolProblem:
        """State the pool of one image without gaps."""
        zero, one, c, n = Dim.of(0), Dim.of(1), Dim.of(channels), Dim.of(pixels)
        x = (zero, n, one) if layout == "nchw" else (zero, one, c)
        slots = (zero,) * len(epilogue.slots)
        return cls(epilogue.dtype, "highest", epilogue, mode, one, c, n, x, (c, one), slots)

    def arguments(self) -> dict[str, Dim]:
        """Return the sizes of calls in every layout, by name."""
        sizes = {"batch": self.batch, "channels": self.channels, "n": self.pixels}
        return sizes | {"x_batch": self.x[0], "y_batch": self.y[0]}
