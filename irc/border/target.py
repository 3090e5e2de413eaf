"""What is written: the format, its operation sets, and what an old release of OpenVINO has to be told otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from irc.border import support
from irc.border.reasons import facts_of
from irc.diagnostics import Problem
from irc.diagnostics.codes import conversion as codes
from irc.ir.graph import Origin, Value
from irc.ir.types import FLOATS, boolean, i32, i64
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.ops.cast import Cast, CastLike
from irc.ops.concat import Concat
from irc.ops.fake_quantize import FakeQuantize
from irc.ops.roi_align import RoiAlign, write_sample_pool
from irc.ops.roi_align_rotated import RoiAlignRotated
from irc.ops.scatter import ScatterElements
from irc.ops.shape import Expand, Tile
from irc.ops.space_to_depth import BatchToSpace
from irc.ops.state import ReadValue

OLD = (2022, 1)
"""Releases before this one fix all sizes before they run a model, and misread some of what they have."""

COUNTED_IN_RUN = (
    "releases before 2022.1 have neither the largest of samples nor regions that turn, so that samples are written one "
    "by one, and fix all sizes before a run, which alone tells how many samples there are where sampling_ratio is 0"
)


BEGINS_WITH_ZEROS = "releases before 2022.1 begin with zeros, whatever the initial value is"


@dataclass(frozen=True)
class WriteOptions:
    """What to write: format "onnx" with `opsets` by domain, or "openvino" with `max_opset`.

    release: the release of OpenVINO that shall read the file, where one is named.
    """

    format: str
    opsets: dict[str, int] = field(default_factory=dict[str, int])
    max_opset: int = support.NEWEST_OPENVINO_OPSET
    version: int = 0  # ir_version or IR version
    release: tuple[int, int] | None = None

    def opset(self, domain: str) -> int:
        return self.max_opset if self.format == "openvino" else self.opsets.get(domain, 1)

    @property
    def is_old(self) -> bool:
        """Whether a release is named that comes before OLD."""
        return self.release is not None and self.release < OLD

    def other_words(self, op: Op, inputs: Sequence[Value | None]) -> Callable[..., Any] | None:
        """What says an operation that the release has but computes wrongly.

        Raises Problem where nothing says it in sizes that are known before a run.
        """
        if not self.is_old:
            return None
        sampled = isinstance(op, RoiAlignRotated) or (isinstance(op, RoiAlign) and op.mode != "avg")
        if sampled and getattr(op, "sampling_ratio", 0) <= 0:
            raise Problem(codes.CANNOT_EXPRESS, **facts_of(self.format, op, inputs), reason=COUNTED_IN_RUN)
        if isinstance(op, ReadValue) and not _is_zero(inputs[0] if inputs else None):
            raise Problem(codes.CANNOT_EXPRESS, **facts_of(self.format, op, inputs), reason=BEGINS_WITH_ZEROS)
        if isinstance(op, Concat) and _begins_with_constant(op, inputs):
            return concat_in_front
        if isinstance(op, RoiAlign) and op.mode == "max_sample" and not op.half_pixel:
            return write_sample_pool
        if isinstance(op, Cast):
            return _words_of_cast(op, inputs[0])
        if isinstance(op, ScatterElements) and _counts_from_end(inputs[1]):
            return scatter_counted
        if isinstance(op, Tile) and inputs[0] is not None and inputs[1] is not None:
            return None if inputs[1].shape[0].equals(inputs[0].rank or 0) else tile_every_axis
        crashes = isinstance(op, FakeQuantize) and op.levels == 2
        crashes = crashes or (isinstance(op, BatchToSpace) and inputs[0] is not None and inputs[0].rank == 5)
        return decomposed if crashes or isinstance(op, CastLike) else None

    def misreads(self, origin: Origin) -> bool:
        """Whether the release reads a layer as something else, or cannot run it, though its operation sets have it."""
        if not self.is_old:
            return False
        if origin.raw.type in ("ConvertLike", "Xor") or origin.raw.attrs.get("auto_broadcast") == "pdpd":
            return True
        try:
            return any(self.other_words(node.op, node.inputs) is not None for node in origin.nodes)
        except Problem:
            return True


def _begins_with_constant(op: Concat, inputs: Sequence[Value | None]) -> bool:
    """Whether results are written to where they belong in the result, which leaves out a constant in front of them.

    OpenVINO 2021.4 does so along axis 1 of a single row.
    """
    first = inputs[0]
    if first is None or len(inputs) < 2 or not first.rank:
        return False
    alone = first.rank > 1 and op.axis % first.rank == 1 and first.shape[0] == 1
    return alone and _is_constant(first)


def _is_constant(value: Value) -> bool:
    """Whether a reader of the file may compute the value before the model runs."""
    while value.const is None:
        node = value.producer
        if node is None or len(node.inputs) != 1 or node.inputs[0] is None:
            return False
        value = node.inputs[0]
    return True


def concat_in_front(b: Builder, op: Concat, *xs: Value) -> Value:
    """The same along axis 0, without the axis that has one row."""
    return b.Unsqueeze(b.Concat(*(b.Squeeze(x, [0]) for x in xs), axis=0), [0])


def _words_of_cast(op: Cast, x: Value | None) -> Callable[..., Any] | None:
    """What makes booleans, which the CPU plugin of 2021.4 leaves as they were, and whole numbers, which it rounds."""
    if x is None or x.dtype is boolean:
        return None
    if op.to is boolean:
        return differs_from_zero
    return truncated if x.dtype in FLOATS and op.to.is_integer and op.to not in (i32, i64) else None


def differs_from_zero(b: Builder, op: Cast, x: Value) -> Value:
    """The same as a comparison."""
    return b.Not(b.Equal(x, b.like(0, x)))


def truncated(b: Builder, op: Cast, x: Value) -> Value:
    """The same from whole numbers, by way of the type to which it truncates; others it takes for the type of x."""
    return b.Cast(b.Cast(b.Mul(b.Sign(x), b.Floor(b.Abs(x))), to=i32), to=op.to)


def decomposed(b: Builder, op: Op, *xs: Value | None) -> Any:
    """The same in simpler operations; the plugin crashes at two levels and at blocks of five axes."""
    assert op.decompose is not None
    return op.decompose(b, *xs)


def _counts_from_end(indices: Value | None) -> bool:
    """Whether an index is known to be below 0, which the plugin takes for a mistake."""
    return indices is not None and indices.const is not None and bool(np.any(indices.const.array < 0))


def scatter_counted(b: Builder, op: ScatterElements, data: Value, indices: Value, updates: Value, axis: Value) -> Value:
    """The same with indices that count from the beginning."""
    size = b.Gather(b.Shape(data), axis, b.const(0))
    counted = b.Where(b.Less(indices, b.like(0, indices)), b.Add(indices, b.Cast(size, to=indices.dtype)), indices)
    return b.add(op, data, counted, updates, axis)


def tile_every_axis(b: Builder, op: Tile, x: Value, repeats: Value) -> Value:
    """The same with as many repeats as axes."""
    missing = int(repeats.shape[0]) - len(x.shape)
    if missing > 0:
        return b.Tile(b.Unsqueeze(x, list(range(missing))), repeats)
    return b.Tile(x, b.Concat(b.const([1] * -missing, repeats.dtype), repeats, axis=0))


def _is_zero(value: Value | None) -> bool:
    """Whether a value is absent, or known to be zero everywhere."""
    made = None if value is None else value.producer
    if made is not None and isinstance(made.op, Expand) and made.inputs[0] is not None:
        value = made.inputs[0]
    return value is None or (value.const is not None and not np.any(value.const.array))
