"""Windows over planes: what convolutions and pools read of a node, in both layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from irc.fusion.access import ZERO, Access, Space, find, row_major
from irc.fusion.epilogues import FusedEpilogue, merged
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.kernels.conv.problem import FLAT, Depth
from irc.kernels.core.epilogue import Axes, Epilogue, axes_of
from irc.kernels.core.problem import Layout, Pair
from irc.opdef.window import Windowed, spatial, window_padding
from irc.selection.selector import Selector

ONE = Dim.of(1)

T = TypeVar("T")
C = TypeVar("C")


@dataclass
class Planes:
    """Windows over planes; one spatial axis, or the only column of a plane, is a plane of one row.

    before, after: padding above and left, below and right.  flat: there is one row, of the first spatial axis.
    depth: of three spatial axes the first.  stack: of three spatial axes that are no volume, the batch and the planes,
    each of which is an image.
    """

    layout: Layout
    batch: Dim
    channels: Dim
    size: tuple[Dim, Dim]
    result: tuple[Dim, Dim]
    window: Pair
    strides: Pair
    dilations: Pair
    before: tuple[Dim, Dim]
    after: tuple[Dim, Dim]
    flat: bool
    depth: Depth = FLAT
    is_volume: bool = False
    stack: tuple[Dim, Dim] | None = None

    def problem(
        self,
        kind: Callable[..., C],
        precision: str,
        outputs: int,
        groups: int,
        source: Access,
        fused: FusedEpilogue,
        **more: Any,
    ) -> C:
        """State the problem of a kind of convolution, from the input as it stands to what is stored."""
        return kind(
            fused.value.dtype,
            precision,
            self.layout,
            self.epilogue(fused),
            self.batch,
            int(self.channels),
            outputs,
            groups,
            self.size,
            self.result,
            self.window,
            self.strides,
            self.dilations,
            self.before,
            x=self.x_strides(source),
            y=self.y_strides(fused.value.shape),
            slots=self.slots(fused),
            **more,
        )

    @property
    def channel_axis(self) -> int:
        """The axis of the channels in the input and in the result."""
        return 1 if self.layout == "nchw" else -1

    def space(self, values: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return the values that belong to spatial axes, of values for all axes of the input or the result."""
        space = values[2:] if self.layout == "nchw" else values[2 if self.stack else 1 : -1]
        return tuple(space[:1] if self.flat else space)

    def image(self, strides: Sequence[Dim]) -> Dim | None:
        """Return the stride along the images; None if they are not at equal distances."""
        if self.stack is None:
            return strides[0]
        axes = merged(self.stack, strides[:2])
        return ZERO if not axes else axes[0][1] if len(axes) == 1 else None

    def with_planes_stacked(self) -> Planes:
        """Return the planes of a volume as images, whose channels are those of all planes that a window meets."""
        d = self.depth
        return replace(
            self,
            layout="nhwc",
            batch=self.batch * d.result,
            channels=self.channels * d.window,
            depth=FLAT,
            is_volume=False,
            stack=(self.batch, d.result),
        )

    def channel(self, strides: Sequence[Dim]) -> Dim:
        """Return the stride along the channels."""
        return strides[self.channel_axis]

    def pixel(self, strides: Sequence[Dim]) -> Dim | None:
        """Return the stride along the pixels of the result; None if they are not at equal distances."""
        results = self.result[1:] if self.flat else self.result
        axes = merged((self.depth.result, *results) if self.is_volume else results, self.space(strides))
        return ZERO if not axes else axes[0][1] if len(axes) == 1 else None

    def row_and_column(self, strides: Sequence[Dim]) -> tuple[Dim, Dim | None]:
        """Return the strides along the rows and the columns of an epilogue, whose columns stand side by side."""
        channel, pixel = self.channel(strides), self.pixel(strides)
        return (channel, pixel) if self.layout == "nchw" else (pixel or ZERO, channel)

    def fits(self, access: Access) -> bool:
        """Tell whether an epilogue can read an operand: one stride along the images and one along the pixels, 0 or 1
        along its columns.
        """
        strides = access.strides
        even = self.image(strides) is not None and self.pixel(strides) is not None
        return even and self.row_and_column(strides)[1] in (0, 1)

    def axes(self, access: Access) -> Axes:
        """Return the axes of an epilogue along which an operand that `fits` varies."""
        row, column = self.row_and_column(access.strides)
        assert column is not None
        return axes_of(row, column)

    def epilogue(self, fused: FusedEpilogue) -> Epilogue:
        """State the epilogue of a problem."""
        return fused.along([self.axes(s) for s in fused.slots])

    def slots(self, fused: FusedEpilogue) -> tuple[tuple[Dim, Dim], ...]:
        """Return the strides of the epilogue's operands along images and rows."""
        rows = (self.row_and_column(s.strides)[0] for s in fused.slots)
        return tuple((self.image(s.strides) or ZERO, row) for s, row in zip(fused.slots, rows, strict=True))

    def x_strides(self, source: Access) -> tuple[Dim, Dim, Dim, Dim]:
        """Return the strides of the input along images, channels, rows and pixels."""
        space = self.space(source.strides)
        image = self.image(source.strides)
        assert image is not None
        return image, self.channel(source.strides), ZERO if self.flat else space[-2], space[-1]

    def y_strides(self, shape: Sequence[Dim]) -> tuple[Dim, Dim, Dim]:
        """Return the strides of a result without gaps along images, channels and pixels."""
        strides = row_major(tuple(shape))
        return self.image(strides) or ZERO, self.channel(strides), self.pixel(strides) or ZERO


def planes_of(op: Windowed, layout: Layout, x: Value, y: Value, window: Sequence[int]) -> Planes | None:
    """Read the geometry off a convolution or a pool; None where there are more than three spatial axes.

    Channels last, windows along the first of three must be of one plane each.
    """
    rank = len(x.shape) - 2
    if rank not in (1, 2, 3):
        return None

    def space(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        return shape[2:] if layout == "nchw" else shape[1:-1]

    before, after = window_padding(op, space(x.shape), window)
    column = rank == 2 and space(x.shape)[1] == 1 and window[1] == 1 and before[1] == 0 and after[1] == 0
    flat = rank == 1 or column

    def pair(values: Sequence[T], one: T) -> tuple[T, T]:
        return (one, values[0]) if flat else (values[-2], values[-1])

    strides = spatial(op.name, "strides", op.strides, rank, 1)
    dilations = spatial(op.name, "dilations", op.dilations, rank, 1)
    depth = Depth(space(x.shape)[0], space(y.shape)[0], int(window[0]), strides[0], dilations[0], before[0])
    volume, stacked = rank == 3 and layout == "nchw", rank == 3 and layout == "nhwc"
    if stacked and (depth.window, depth.stride, before[0], after[0]) != (1, 1, 0, 0):
        return None
    return Planes(
        layout,
        y.shape[0] * depth.result if stacked else y.shape[0],
        x.shape[1 if layout == "nchw" else -1],
        pair(space(x.shape), ONE),
        pair(space(y.shape), ONE),
        pair(window, 1),
        pair(strides, 1),
        pair(dilations, 1),
        pair(before, ZERO),
        pair(after, ZERO),
        flat,
        depth if volume else FLAT,
        volume,
        (y.shape[0], depth.result) if stacked else None,
    )


def input_of(selector: Selector, planes: Planes, x: Value) -> Access:
    """Find where the input stands.

    Channels first: rows without gaps, one after the other, images and channels at any distance; channels last: these
    side by side, all else at any distance.
    """
    space, rows = Space(x.shape), row_major(x.shape)[2:]
    for access in find(selector.elements, space, x, space.at):
        if planes.layout == "nchw" and access.strides[2:] == rows:
            return access
        if (
            planes.layout == "nhwc"
            and planes.image(access.strides) is not None
            and (access.strides[-1] == 1 or x.shape[-1] == 1)
        ):
            return access
    raise AssertionError(f"{x.name} does not stand where it is stored")
