"""Boxes around the cells of a grid: PriorBox, PriorBoxClustered.

Sources: OpenVINO specification, PriorBox-1, -8, PriorBoxClustered-1; SSD (arXiv:1512.02325).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation, shape as codes
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import INTEGERS, f32
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Float, Floats
from irc.opdef.conversions import as_i64
from irc.opdef.forms import Form
from irc.opdef.signature import Sig

SAME_RATIO = 1e-6
"""Aspect ratios that are nearer than this are one."""


@dataclass(frozen=True)
class Prior:
    """A box of each cell: half its sides, where it stands from the centre, whether it is cut at the image's edge."""

    width: float
    height: float
    right: float = 0.0
    down: float = 0.0
    cut: bool = False


def check_sizes(name: str, *operands: Value) -> None:
    """Require two sizes of the grid and of the image."""
    for what, operand in zip(("sizes of the grid", "sizes of the image"), operands, strict=True):
        facts = {"op": name, "what": what, "a": operand.shape[0], "b": 2}
        require(same(operand.shape[0], 2), codes.SIZES_DIFFER, **facts)


def four_variances(name: str, given: Sequence[float]) -> list[float]:
    """The variances of the four coordinates: one is for all, none is 0.1."""
    facts = {"op": name, "attribute": "variance", "given": len(given), "needed": "0, 1 or 4"}
    require(len(given) in (0, 1, 4), operation.ATTRIBUTE_LENGTH, **facts)
    return list(given) if len(given) == 4 else list(given or (0.1,)) * 4


@dataclass(frozen=True)
class Grid:
    """A grid over an image: its sizes, and those of the image as numbers."""

    b: Builder
    layer: Value
    image: Value

    def cells(self, axis: int, start: float, step: Value | None) -> Value:
        """Compute the centres of cells along an axis; without a step the cells cover the image."""
        b = self.b
        count = b.Slice(as_i64(b, self.layer), [axis], [axis + 1], [0])
        numbers = b.Cast(b.Range(b.const(0), b.Reshape(count, []), b.const(1)), to=f32)
        step = b.Div(self.size(axis), b.Cast(count, to=f32)) if step is None else step
        return b.Mul(b.Add(numbers, b.const(start, f32)), step)

    def size(self, axis: int) -> Value:
        """The size of the image along an axis, as a vector of one number."""
        return self.b.Cast(self.b.Slice(as_i64(self.b, self.image), [axis], [axis + 1], [0]), to=f32)

    def boxes(
        self,
        priors: Sequence[Prior],
        centres: Sequence[Value],
        scale: Value | None,
        variances: Sequence[float],
        clip: bool,
        counted: int,
    ) -> Value:
        """Put the priors around centres (rows, columns).  Returns the corners, and the variances below them.

        As many boxes as there are of `counted` for a cell are kept.
        """
        b = self.b
        shape = b.Concat(as_i64(b, self.layer), b.const([len(priors), 1]), axis=0)
        sides: list[Value] = []
        for sign, bound in ((-1, 0.0), (1, 1.0)):
            for axis in (1, 0):  # x, then y
                half = b.const([p.width if axis else p.height for p in priors], f32)
                half = half if scale is None else b.Mul(half, scale)
                place = b.const([p.right if axis else p.down for p in priors], f32)
                middle = b.Add(b.Unsqueeze(centres[axis], [1]), place)
                at = b.Div(b.Add(middle, half) if sign > 0 else b.Sub(middle, half), self.size(axis))
                limits = [bound if p.cut else sign * math.inf for p in priors]
                at = b.Min(at, b.const(limits, f32)) if sign > 0 else b.Max(at, b.const(limits, f32))
                at = b.Unsqueeze(at, [0, 3] if axis else [1, 3])
                sides.append(b.Expand(at, shape))
        corners = b.Concat(*sides, axis=3)
        if clip:
            corners = b.Min(b.Max(corners, b.const(0.0, f32)), b.const(1.0, f32))
        below = b.Expand(b.const(np.array(variances).reshape(1, 1, 1, 4), f32), b.Shape(corners))
        both = b.Concat(*(b.Reshape(v, [1, -1], special_zero=False) for v in (corners, below)), axis=0)
        if counted >= len(priors):
            return both
        cells = b.ReduceProd(as_i64(b, self.layer), [0], keepdims=True)
        return b.Slice(both, [0], b.Mul(cells, b.const([4 * counted])), [1])


SIZES = "layer: I[1], image: J[1] -> boxes: f32"
FIRST = {
    "min_size": Floats(()),
    "max_size": Floats(()),
    "aspect_ratio": Floats(()),
    "density": Floats(()),
    "fixed_ratio": Floats(()),
    "fixed_size": Floats(()),
    "clip": Bool(False),
    "flip": Bool(False),
    "step": Float(0.0),
    "offset": Float(assumed=0.0),
    "variance": Floats(()),
    "scale_all_sizes": Bool(True),
}


@op
class PriorBox(Op):
    """Boxes [xmin, ymin, xmax, ymax] of several sizes and aspect ratios around each cell of a grid, and variances.

    Coordinates are parts of the image.  Of each cell first the boxes of `fixed_size`, `density`² of each ratio, then
    for each `min_size` one of it, one between it and `max_size`, and one for each aspect ratio.
    `scale_all_sizes` false: sizes and steps are parts of the image's height.
    """

    offset: float
    min_size: tuple[float, ...] = ()
    max_size: tuple[float, ...] = ()
    aspect_ratio: tuple[float, ...] = ()
    density: tuple[float, ...] = ()
    fixed_ratio: tuple[float, ...] = ()
    fixed_size: tuple[float, ...] = ()
    clip: bool = False
    flip: bool = False
    step: float = 0.0
    variance: tuple[float, ...] = ()
    scale_all_sizes: bool = True
    min_max_aspect_ratios_order: bool = True
    sig = Sig(SIZES, I=INTEGERS, J=INTEGERS)

    def decompose(self, b: Builder, layer: Value, image: Value) -> Value:
        check_sizes(self.name, layer, image)
        grid = Grid(b, layer, image)
        variances = four_variances(self.name, self.variance)
        height = grid.size(0)
        step: Value | None = b.const([self.step], f32)
        if not self.scale_all_sizes:
            step = (
                b.Div(height, b.Cast(b.Slice(layer, [0], [1], [0]), to=f32)) if self.step == -1 else b.Mul(step, height)
            )
        if self.step == 0:
            step = None
        start = 0.5 if step is None else self.offset
        centres = [grid.cells(axis, start, step) for axis in (0, 1)]
        scale = None if self.scale_all_sizes else height
        fixed = list(self._fixed())
        sized = list(self._sized())
        if scale is not None and fixed:
            scale = b.Concat(b.const([1.0] * len(fixed), f32), b.Expand(scale, b.const([len(sized)])), axis=0)
        return grid.boxes([*fixed, *sized], centres, scale, variances, self.clip, self._counted())

    def _ratios(self) -> list[float]:
        """The aspect ratios besides 1, each once."""
        found = [1.0]
        for ratio in self.aspect_ratio:
            if all(abs(ratio - other) >= SAME_RATIO for other in found):
                found += [ratio, 1 / ratio] if self.flip else [ratio]
        return [ratio for ratio in found if abs(ratio - 1) >= SAME_RATIO]

    def _counted(self) -> int:
        """How many boxes OpenVINO counts for a cell, which may be fewer than it has for the attributes."""
        ratios = len(self._ratios()) + 1
        if self.fixed_size:
            found = ratios * len(self.fixed_size)
        elif self.scale_all_sizes:
            found = ratios * len(self.min_size) + len(self.max_size)
        else:
            found = ratios + len(self.min_size) - 1
        return found + sum((len(self.fixed_ratio) or ratios) * (int(d) ** 2 - 1) for d in self.density)

    def _fixed(self) -> Iterator[Prior]:
        """The boxes of fixed sizes."""
        for k, size in enumerate(self.fixed_size):
            ratios = list(self.fixed_ratio) or ([1.0] if self.density else []) + self._ratios()
            facts = {
                "op": self.name,
                "attribute": "density",
                "given": len(self.density),
                "needed": len(self.fixed_size),
            }
            require(not ratios or k < len(self.density), operation.ATTRIBUTE_LENGTH, **facts)
            for ratio in ratios:
                amount = int(self.density[k])
                shift = int(size / amount) if amount > 0 else 0
                first = shift / 2 - int(size) // 2
                width, height = size / 2 * math.sqrt(ratio), size / 2 / math.sqrt(ratio)
                for row in range(amount):
                    for column in range(amount):
                        yield Prior(width, height, first + column * shift, first + row * shift, cut=True)

    def _sized(self) -> Iterator[Prior]:
        """The boxes between the smallest and the largest sizes."""
        for k, size in enumerate(self.min_size):
            yield Prior(size / 2, size / 2)
            between = []
            if self.scale_all_sizes and k < len(self.max_size):
                mean = math.sqrt(size * self.max_size[k]) / 2
                between = [Prior(mean, mean)]
            shaped: list[Prior] = []
            if self.scale_all_sizes or k == len(self.min_size) - 1:
                own = size if self.scale_all_sizes else self.min_size[0]
                shaped = [Prior(own / 2 * math.sqrt(r), own / 2 / math.sqrt(r)) for r in self._ratios()]
            yield from [*between, *shaped] if self.min_max_aspect_ratios_order else [*shaped, *between]

    openvino = (
        Form("PriorBox", 1, attrs=FIRST, last=7),
        Form("PriorBox", 8, attrs={**FIRST, "min_max_aspect_ratios_order": Bool(True)}),
    )


@op
class PriorBoxClustered(Op):
    """Boxes [xmin, ymin, xmax, ymax] of given sizes around cells of a grid, as parts of the image, and variances."""

    offset: float
    step: float = 0.0
    step_w: float = 0.0
    step_h: float = 0.0
    width: tuple[float, ...] = ()
    height: tuple[float, ...] = ()
    clip: bool = True
    variance: tuple[float, ...] = ()
    sig = Sig(SIZES, I=INTEGERS, J=INTEGERS)

    def decompose(self, b: Builder, layer: Value, image: Value) -> Value:
        check_sizes(self.name, layer, image)
        facts = {"op": self.name, "attribute": "height", "given": len(self.height), "needed": len(self.width)}
        require(len(self.width) == len(self.height), operation.ATTRIBUTE_LENGTH, **facts)
        steps = [self.step_h or self.step, self.step_w or self.step]
        grid = Grid(b, layer, image)
        centres = [
            grid.cells(axis, self.offset, b.const([steps[axis]], f32) if any(steps) else None) for axis in (0, 1)
        ]
        priors = [Prior(w / 2, h / 2) for w, h in zip(self.width, self.height, strict=True)]
        return grid.boxes(priors, centres, None, four_variances(self.name, self.variance), self.clip, len(priors))

    openvino = (
        Form(
            "PriorBoxClustered",
            1,
            attrs={
                "step": Float(0.0),
                "step_w": Float(0.0),
                "step_h": Float(0.0),
                "width": Floats(()),
                "height": Floats(()),
                "clip": Bool(True),
                "offset": Float(assumed=0.0),
                "variance": Floats(()),
            },
        ),
    )
