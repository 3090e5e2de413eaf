"""Broadcasting of symbolic shapes, and its normalisation at the border.

Inside irc every elementwise operation broadcasts by NumPy's rule.  The other rules (ONNX `broadcast`
and `axis` before opset 7, OpenVINO `auto_broadcast` none and pdpd) are turned into a Reshape when read.
"""

from __future__ import annotations

from collections.abc import Sequence

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import broadcasts, every, same
from irc.ir.types import Shape, i64
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Codec, Enum, FromOperands, Ignored, Int
from irc.opdef.conversions import as_scalar
from irc.opdef.forms import Attributes


def broadcast_dim(a: Dim, b: Dim, **facts: object) -> Dim:
    """One axis.  Where two symbols meet, either may turn out to be 1 when the model runs."""
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    require(broadcasts(a, b), codes.NOT_BROADCASTABLE, **facts)
    one = a.equals(1), b.equals(1)
    if one[0] is False or (a.is_const and not b.is_const):
        return a
    if one[1] is False or b.is_const:
        return b
    return a.maximum(b) if a.equals(b) is None else a


def broadcast_shapes(op: str, shapes: Sequence[Shape]) -> Shape:
    """The result shape of NumPy's rule; Problem IRC3101 names the shapes that do not fit."""
    rank = max((len(s) for s in shapes), default=0)
    text = " and ".join("[" + ",".join(map(str, s)) + "]" for s in shapes)
    result = [Dim.of(1)] * rank
    for shape in shapes:
        for i, d in enumerate(shape, start=rank - len(shape)):
            result[i] = broadcast_dim(result[i], d, op=op, shapes=text, axis=i - rank)
    return tuple(result)


def legacy_fit(x: Shape, y: Shape) -> int | None:
    """`broadcast` of ONNX before opset 7 that lets `y` into `x`: one element or the last axes; None if none does."""
    if x == y:
        return 0
    if len(y) > len(x):
        return None
    return 1 if all(d == 1 for d in y) or x[len(x) - len(y) :] == y else None


def legacy_fit_of(op: Op, x: Value, y: Value) -> int | None:
    return legacy_fit(x.shape, y.shape)


LEGACY_BROADCAST_6: dict[str, Codec] = {"broadcast": FromOperands(0, of=legacy_fit_of), "axis": Int(None)}
LEGACY_BROADCAST: dict[str, Codec] = {**LEGACY_BROADCAST_6, "consumed_inputs": Ignored()}
"""Attributes of the elementwise operations of ONNX opset 1..6 (consumed_inputs: opset 1..5)."""


AUTO_BROADCAST: dict[str, Codec] = {
    "auto_broadcast": Enum({"numpy": "numpy", "none": "none", "pdpd": "pdpd", "explicit": "none"}, "numpy"),
    "auto_broadcast.auto_broadcast_axis": Int(0, to="axis", silent=True),
}
"""OpenVINO's attributes of binary elementwise operations.  A missing pdpd axis is read as 0."""


def pad_shape(b: Builder, value: Value, axis: int, rank: int) -> Value:
    """`value` reshaped so that its first axis stands at `axis` of `rank` axes."""
    trailing = rank - axis - len(value.shape)
    if trailing == 0:
        return value
    return b.Unsqueeze(value, list(range(len(value.shape), len(value.shape) + trailing)))


def legacy_align(b: Builder, a: Attributes, x: Value, y: Value) -> Value:
    """`y` as NumPy's rule needs it, from the rule of ONNX opset 1..6: a suffix match, or at `axis`."""
    if not a.broadcast:
        # Shapes must be equal; the newer rule would accept more.
        if x.rank is not None and y.rank is not None:
            equal = x.rank == y.rank and every(*map(same, x.shape, y.shape))
            require(equal, codes.SHAPES_DIFFER, op=b.label, first=x.tensor, second=y.tensor)
        return y
    if all(d == 1 for d in y.shape):
        return as_scalar(b, y)
    if a.axis is None:
        return y
    axis = a.axis + len(x.shape) if a.axis < 0 else a.axis
    fits = axis >= 0 and axis + len(y.shape) <= len(x.shape)
    require(fits, codes.AXIS_DOES_NOT_FIT, op=b.label, axis=a.axis, first=x.tensor, second=y.tensor)
    return pad_shape(b, y, axis, len(x.shape))


def repeated(b: Builder, value: Value, shape: Shape) -> Value:
    """`value` broadcast to `shape` by repetition, where the sizes are known; else as it is."""
    missing = len(shape) - len(value.shape)
    sizes = [*[Dim.of(1)] * missing, *value.shape]
    if any(have != want and not want.is_const for have, want in zip(sizes, shape, strict=True)):
        return value
    if missing:
        value = b.Unsqueeze(value, list(range(missing)))
    repeats = [1 if have == want else int(want) for have, want in zip(sizes, shape, strict=True)]
    return b.Tile(value, b.const(repeats, i64)) if max(repeats, default=1) > 1 else value


def auto_align(b: Builder, a: Attributes, x: Value, y: Value) -> tuple[Value, Value]:
    """Operands as NumPy's rule needs them, from OpenVINO's `auto_broadcast`.

    Raises UnknownRank for pdpd from an axis that is counted from the left, Problem where the shapes do not fit.
    """
    if a.auto_broadcast == "numpy":
        return x, y
    if (x.rank is None or y.rank is None) and (a.auto_broadcast == "none" or a.axis == -1):
        return x, y
    if a.auto_broadcast == "none":
        equal = x.rank == y.rank and every(*map(same, x.shape, y.shape))
        require(equal, codes.SHAPES_DIFFER, op=b.label, first=x.tensor, second=y.tensor)
        return x, y
    if len(y.shape) > len(x.shape):
        require(False, codes.AXIS_DOES_NOT_FIT, op=b.label, axis=a.axis, first=x.tensor, second=y.tensor)
    axis = a.axis if a.axis != -1 else len(x.shape) - len(y.shape)
    kept = len(y.shape)
    while kept and y.shape[kept - 1] == 1:  # trailing ones are dropped before aligning
        kept -= 1
    fits = 0 <= axis <= len(x.shape) - kept
    require(fits, codes.AXIS_DOES_NOT_FIT, op=b.label, axis=a.axis, first=x.tensor, second=y.tensor)
    if kept < len(y.shape):
        y = b.Squeeze(y, list(range(kept, len(y.shape))))
    return x, pad_shape(b, y, axis, len(x.shape))
