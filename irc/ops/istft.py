"""Signals from the transforms of their frames: ISTFT.

Source: OpenVINO specification, ISTFT-16.
"""

from __future__ import annotations

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import FLOATS_BF16, f8e4m3fn, f8e5m2
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool
from irc.opdef.conversions import as_i64, as_scalar, as_vector
from irc.opdef.forms import Form
from irc.opdef.precision import narrowed, widened
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX
from irc.ops.embedding_bag import counted

TYPES = FLOATS_BF16 | {f8e4m3fn, f8e5m2}
LEAST = 1e-11
"""Where the squares of the windows add up to less, the sum of the frames is not divided."""


@op
class ISTFT(Op):
    """The signal (…, length) whose frames have these transforms (…, elements, frames, 2), each the first half.

    Frames begin every `step` elements, are `size` long and times `window`, which stands in their middle; their sum is
    divided by that of the squares of the windows.  center: the signal begins in the middle of the first frame.
    normalized: transforms were divided by the root of the size.
    """

    center: bool = False
    normalized: bool = False
    sig = Sig("x: T[3..4], window: T[1], size: I[one], step: I[one], length?: I[one] -> y: T", T=TYPES, I=INDEX)

    def decompose(
        self, b: Builder, x: Value, window: Value, size: Value, step: Value, length: Value | None = None
    ) -> Value:
        last = x.shape[-1]
        what = "the last size and real and imaginary part"
        require(same(last, 2), codes.SIZES_DIFFER, op=self.name, what=what, a=last, b=2)
        single = len(x.shape) == 3
        given, x = x, widened(b, b.Unsqueeze(x, [0]) if single else x)
        batch, frames = x.shape[0], x.shape[2]
        n = b.Max(as_vector(b, as_i64(b, size)), b.const([1]))
        stride = b.Max(as_vector(b, as_i64(b, step)), b.const([1]))
        lines = b.DFT(b.Transpose(x, [0, 2, 1, 3]), as_scalar(b, n), b.const(2), inverse=True, onesided=True)
        lines = b.Squeeze(lines, [3])
        weights = self._window(b, widened(b, window), n)
        whole = b.Add(b.Mul(b.Sub(b.dims([frames]), b.const([1])), stride), n)
        half = b.Div(n, b.const([2])) if self.center else b.const([0])
        if length is not None:
            wanted = as_vector(b, as_i64(b, length))
        else:
            wanted = b.Max(b.Sub(whole, n) if self.center else whole, b.const([0]))
        room = b.Max(whole, b.Add(half, wanted))
        starts = b.Mul(counted(b, as_scalar(b, b.dims([frames]))), stride)
        places = b.Reshape(b.Add(b.Unsqueeze(starts, [1]), counted(b, as_scalar(b, n))), [-1, 1])
        weighted = b.Reshape(
            b.Transpose(b.Mul(lines, weights), [1, 2, 0]), b.Concat(b.const([-1]), b.dims([batch]), axis=0)
        )
        squares = b.Expand(b.Mul(weights, weights), b.Concat(b.dims([frames]), n, axis=0))
        zero = b.like(0, lines)
        total = b.ScatterND(b.Expand(zero, b.Concat(room, b.dims([batch]), axis=0)), places, weighted, reduction="add")
        scale = b.ScatterND(b.Expand(zero, room), places, b.Reshape(squares, [-1]), reduction="add")
        empty = b.Less(scale, b.like(LEAST, scale))
        y = b.Div(total, b.Unsqueeze(b.Where(empty, b.like(1, scale), scale), [1]))
        if self.normalized:
            y = b.Mul(y, b.Sqrt(b.Cast(as_scalar(b, n), to=y.dtype)))
        y = b.Transpose(b.Slice(y, half, b.Add(half, wanted), [0]), [1, 0])
        y = narrowed(b, y, given)
        return b.Squeeze(y, [0]) if single else y

    def _window(self, b: Builder, window: Value, n: Value) -> Value:
        """The window with zeros around it, as long as a frame."""
        slack = b.Sub(n, b.dims([window.shape[0]]))
        known = slack.ints()
        if known is not None and known[0] == 0:
            return window
        before = b.Div(slack, b.const([2]))
        return b.Pad(window, b.Concat(before, b.Sub(slack, before), axis=0))

    openvino = (
        Form(
            "ISTFT",
            16,
            attrs={"center": Bool(assumed=False), "normalized": Bool(assumed=False)},
            T={"T": TYPES, "I": INDEX},
        ),
    )
