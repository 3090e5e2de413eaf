"""Convolutions as a problem: Y[image, o, pixel] = epilogue(Σ over a group's channels and taps of X · W)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from irc.ir.dim import Dim, DimLike
from irc.kernels.core.costs import LAST_CACHE, SECOND_CACHE, costs_of
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import Layout, Pair, Problem, likely_extent, likely_images


@dataclass(frozen=True)
class Depth:
    """The first of three spatial axes: its extents in X and Y, and a window's along it; padding: in front."""

    size: Dim
    result: Dim
    window: int
    stride: int
    dilation: int
    padding: Dim


FLAT = Depth(Dim.of(1), Dim.of(1), 1, 1, 1, Dim.of(0))
"""The depth of a plane."""


@dataclass(frozen=True)
class ConvProblem(Problem):
    """A convolution of images with constant weights W[outputs, channels / groups, *window].

    A volume, whose windows have a depth too, stands as planes that follow one another, as rows do; "nchw" only.

    layout: which stand side by side, "nchw": pixels, and rows follow one another; "nhwc": channels.  size, result:
    height and width of X and Y; one spatial axis is a plane of one row.  padding: above and left.  x: strides along
    images, channels, rows and pixels; y: along images, channels and pixels, its rows follow one another.
    slots: strides of the epilogue's operands along images and the epilogue's rows: these are channels in "nchw", with
    pixels as columns, and pixels in "nhwc", with channels as columns.  resident: whether the model has so few constants
    that the weights are in the second cache when they are read; cached: that they are in the last one; near: that they
    are there even as Winograd's algorithm packs them.
    """

    layout: Layout
    epilogue: Epilogue
    batch: Dim
    channels: int
    outputs: int
    groups: int
    size: tuple[Dim, Dim]
    result: tuple[Dim, Dim]
    window: Pair
    strides: Pair
    dilations: Pair
    padding: tuple[Dim, Dim]
    x: tuple[Dim, Dim, Dim, Dim]
    y: tuple[Dim, Dim, Dim]
    slots: tuple[tuple[Dim, Dim], ...]
    depth: Depth = FLAT
    resident: bool = False
    near: bool = False
    cached: bool = False

    @classmethod
    def contiguous(
        cls,
        layout: Layout,
        epilogue: Epilogue,
        channels: int,
        outputs: int,
        result: tuple[DimLike, DimLike],
        window: Pair,
        strides: Pair = (1, 1),
        dilations: Pair = (1, 1),
        groups: int = 1,
        precision: str = "highest",
        depth: Depth = FLAT,
    ) -> ConvProblem:
        """State a convolution of one image without gaps and padding, and epilogue operands without gaps."""
        zero, one, (oh, ow) = Dim.of(0), Dim.of(1), map(Dim.of, result)
        spans = zip((oh, ow), window, strides, dilations, strict=True)
        ih, iw = ((n - 1) * s + (k - 1) * d + 1 for n, k, s, d in spans)
        first, pixels = layout == "nchw", depth.result * oh * ow
        row = pixels if first else Dim.of(outputs)
        return cls(
            epilogue.dtype,
            precision,
            layout,
            epilogue,
            one,
            channels,
            outputs,
            groups,
            (ih, iw),
            (oh, ow),
            window,
            strides,
            dilations,
            padding=(zero, zero),
            x=(zero, depth.size * ih * iw, iw, one) if first else (zero, one, iw * channels, Dim.of(channels)),
            y=(zero, pixels, one) if first else (zero, one, Dim.of(outputs)),
            slots=tuple((zero, row if axes == "full" else one) for axes in epilogue.slots),
            depth=depth,
        )

    @property
    def ic(self) -> int:
        """Input channels of a group."""
        return self.channels // self.groups

    @property
    def oc(self) -> int:
        """Output channels of a group."""
        return self.outputs // self.groups

    @property
    def taps(self) -> int:
        """Elements of a window."""
        return self.depth.window * self.window[0] * self.window[1]

    @property
    def is_volume(self) -> bool:
        """Whether there are three spatial axes."""
        return self.depth != FLAT

    @property
    def geometry(self) -> tuple[Pair, Pair, Pair]:
        """Window, strides and dilations."""
        return self.window, self.strides, self.dilations

    @property
    def is_depthwise(self) -> bool:
        """Whether each group has one channel of the input and one of the output."""
        return self.groups == self.channels == self.outputs

    @property
    def is_regular_3x3(self) -> bool:
        """Whether windows of 3 × 3 stand at every pixel, as Winograd's algorithms of bytes and of bf16 need."""
        return self.geometry == ((3, 3), (1, 1), (1, 1))

    @property
    def has_known_planes(self) -> bool:
        """Whether the size of the result is known."""
        return all(d.is_const for d in (self.depth.result, *self.result))

    def runs(self, down: int, across: int) -> Dim:
        """Count the rectangles of so many pixels, the dilations apart, that cover a plane of the result.

        At most, where neither its size nor how often the dilation goes into it is known.
        """
        return _runs(self.result[0], down, self.dilations[0]) * _runs(self.result[1], across, self.dilations[1])

    @property
    def images(self) -> int:
        """Estimated number of images."""
        return likely_images(self.batch)

    @property
    def pixels(self) -> int:
        """Estimated pixels of an image of the result."""
        return likely_extent(self.depth.result) * likely_extent(self.result[0]) * likely_extent(self.result[1])

    @property
    def work(self) -> str | None:
        if not (self.batch.is_const and self.has_known_planes):
            return None
        sides = f"{self.batch}x{self.result[0]}x{self.result[1]}, {self.groups}x{self.ic} to {self.oc} channels"
        windows = " ".join(map(str, self.geometry))
        if self.is_volume:
            d = self.depth
            windows = f"{windows}, {d.result} deep, window {d.window} {d.stride} {d.dilation}"
        work = f"convolution {self.precision} {self.dtype.name} {sides}, window {windows}"
        return work if self.layout == "nhwc" else f"{work}, nchw"

    def arguments(self) -> dict[str, Dim]:
        """Return the sizes of a call that all kernels of the layout have, by name."""
        (ih, iw), (oh, ow), (top, left) = self.size, self.result, self.padding
        sizes = {"batch": self.batch, "ih": ih, "iw": iw, "oh": oh, "ow": ow, "pad_h": top, "pad_w": left}
        sizes |= {"x_batch": self.x[0], "y_batch": self.y[0]}
        if self.layout == "nchw":
            sizes |= {"x_channel": self.x[1], "y_channel": self.y[1]}
        else:
            sizes |= {"x_row": self.x[2], "x_pixel": self.x[3], "y_pixel": self.y[2]}
        row = "channel" if self.layout == "nchw" else "pixel"
        for i, (axes, strides) in enumerate(zip(self.epilogue.slots, self.slots, strict=True)):
            sizes[f"s{i}_batch"] = strides[0]
            if axes in ("column", "full"):
                sizes[f"s{i}_{row}"] = strides[1]
        return sizes

    def channel_arguments(self) -> dict[str, Dim]:
        """Return the sizes of a call that say how many channels a group has, by name."""
        return {"ic": Dim.of(self.ic), "oc": Dim.of(self.oc)}

    def seen(self, pixels: int) -> float:
        """Return the part of the products that are not of padding alone, in tiles of so many pixels of a row or more.

        Of rows of taps; with one row of them, of taps.  1 where sizes are unknown.
        """
        axis = 1 if self.window[0] == 1 else 0
        size, result, pad = self.size[axis], self.result[axis], self.padding[axis]
        if not (size.is_const and result.is_const and pad.is_const and self.has_known_planes) or int(result) < 1:
            return 1.0
        taps, stride, dilation = self.window[axis], self.strides[axis], self.dilations[axis]
        span = pixels if axis else max(1, pixels // int(self.result[1]))
        first = np.arange(0, int(result), span)
        last = np.minimum(first + span, int(result)) - 1
        begin = np.maximum(-((last * stride - int(pad)) // dilation), 0)
        end = np.clip((int(size) + int(pad) - 1 - first * stride) // dilation + 1, 0, taps)
        products = np.maximum(end - begin, 0) * (last - first + 1)
        return float(products.sum()) / (taps * int(result))

    def waiting(self, isa: Isa, size: int) -> float:
        """Estimate the cycles that a call waits for this many bytes of packed weights, wherever they are.

        In the last cache those of windows of several taps with strides count as there: what others are compared with,
        Winograd's algorithm and products, is calibrated as if weights came from memory.
        """
        cached = self.cached and self.strides != (1, 1) and self.taps > 1
        return size / (SECOND_CACHE if self.resident else LAST_CACHE if cached else costs_of(isa).stream)


@dataclass(frozen=True)
class ConvTransposeProblem(ConvProblem):
    """The transpose of a convolution: X at q meets tap k of W[channels, outputs / groups, *window] in Y.

    It does so at q · strides + k · dilations - padding.  All other extents and strides are those of a convolution.
    """

    @classmethod
    def contiguous(
        cls,
        layout: Layout,
        epilogue: Epilogue,
        channels: int,
        outputs: int,
        result: tuple[DimLike, DimLike],
        window: Pair,
        strides: Pair = (1, 1),
        dilations: Pair = (1, 1),
        groups: int = 1,
        precision: str = "highest",
    ) -> ConvTransposeProblem:
        """State the transpose of one image without gaps and padding: the smallest image that covers the result."""
        spans = zip(result, window, strides, dilations, strict=True)
        size = tuple((Dim.of(n) - (k - 1) * d - 1).ceildiv(s) + 1 for n, k, s, d in spans)
        zero, one, (ih, iw), (oh, ow) = Dim.of(0), Dim.of(1), size, map(Dim.of, result)
        return cls(
            epilogue.dtype,
            precision,
            layout,
            epilogue,
            one,
            channels,
            outputs,
            groups,
            (ih, iw),
            (oh, ow),
            window,
            strides,
            dilations,
            padding=(zero, zero),
            x=(zero, ih * iw, iw, one),
            y=(zero, oh * ow, one),
            slots=tuple((zero, oh * ow if axes == "full" else one) for axes in epilogue.slots),
        )

    @property
    def work(self) -> str | None:
        work = super().work
        return work if work is None else f"transposed {work}, of {self.size[0]}x{self.size[1]}"


def _runs(n: Dim, side: int, apart: int) -> Dim:
    """Count the runs of so many pixels, so far apart, that cover n in a row: of each remainder by `apart` some."""
    if side == 1:
        return n
    if apart == 1 or not n.is_const:
        return n.ceildiv(side * apart) * apart
    whole, rest = divmod(int(n), side * apart)
    return Dim.of(whole * apart + min(rest, apart))
