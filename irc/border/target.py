"""What is written: the format, its operation sets, and what an old release of OpenVINO has to be told otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from irc.border import support
from irc.border.reasons import facts_of
from irc.diagnostics import Problem
from irc.diagnostics.codes import conversion as codes
from irc.ir.graph import Origin, Value
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.ops.concat import Concat
from irc.ops.roi_align import RoiAlign, write_sample_pool
from irc.ops.roi_align_rotated import RoiAlignRotated

OLD = (2022, 1)
"""Releases before this one fix all sizes before they run a model, and misread some of what they have."""

COUNTED_IN_RUN = (
    "releases before 2022.1 have neither the largest of samples nor regions that turn, so that samples are written one "
    "by one, and fix all sizes before a run, which alone tells how many samples there are where sampling_ratio is 0"
)


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
        sampled = isinstance(op, RoiAlignRotated) or (isinstance(op, RoiAlign) and op.mode != "avg")
        if self.is_old and sampled and getattr(op, "sampling_ratio", 0) <= 0:
            raise Problem(codes.CANNOT_EXPRESS, **facts_of(self.format, op, inputs), reason=COUNTED_IN_RUN)
        if self.is_old and isinstance(op, Concat) and _begins_with_constant(op, inputs):
            return concat_in_front
        if self.is_old and isinstance(op, RoiAlign) and op.mode == "max_sample" and not op.half_pixel:
            return write_sample_pool
        return None

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
