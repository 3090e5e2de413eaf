"""Quantization that keeps the element type: FakeQuantize, and FakeConvert to narrow floats and back.

Narrow floats are computed in f32.  Sources: OpenVINO specification, FakeQuantize-1, FakeConvert-13.
"""

from __future__ import annotations

from irc.ir.graph import Value
from irc.ir.types import FLOATS_BF16, DType, f8e4m3fn, f8e5m2, f16
from irc.opdef.base import Op, op
from irc.opdef.broadcasting import AUTO_BROADCAST, auto_align
from irc.opdef.builder import Builder
from irc.opdef.codecs import Enum, Int
from irc.opdef.forms import Attributes, Form, Results
from irc.opdef.precision import narrowed, widened
from irc.opdef.signature import Sig


def read_fake_quantize(b: Builder, a: Attributes, x: Value, *limits: Value) -> Results:
    return b.FakeQuantize(x, *(auto_align(b, a, x, v)[1] for v in limits), levels=a.levels)


@op
class FakeQuantize(Op):
    """x rounded to one of `levels` numbers, evenly spaced from `input_low` to `input_high`, on the output's scale.

    What is at or below the lower limit gives `output_low`, what is beyond the upper one `output_high`.
    """

    levels: int
    sig = Sig("x: T, input_low: T, input_high: T, output_low: T, output_high: T -> y: T", T=FLOATS_BF16)

    def decompose(self, b: Builder, x: Value, *limits: Value) -> Value:
        w, low, high, out_low, out_high = (widened(b, v) for v in (x, *limits))
        steps = b.like(self.levels - 1, w)
        step = b.Round(b.Mul(b.Div(b.Sub(w, low), b.Sub(high, low)), steps))
        between = b.Add(b.Mul(b.Div(step, steps), b.Sub(out_high, out_low)), out_low)
        above = b.Where(b.Greater(w, b.Max(low, high)), out_high, between)
        return narrowed(b, b.Where(b.LessOrEqual(w, b.Min(low, high)), out_low, above), x)

    openvino = (
        Form(
            "FakeQuantize",
            1,
            attrs={"levels": Int(lo=2), **AUTO_BROADCAST},
            T=FLOATS_BF16,
            read=read_fake_quantize,
            direct=True,
        ),
    )


@op
class FakeConvert(Op):
    """x · scale - shift rounded to a narrow float, and back; beyond its range, to its largest.

    It is rounded to f16 before, as OpenVINO's CPU plugin does, of which the specification says nothing.
    """

    destination_type: DType = f8e4m3fn
    sig = Sig("x: T, scale: T, shift?: T -> y: T", T=FLOATS_BF16)

    def decompose(self, b: Builder, x: Value, scale: Value, shift: Value | None = None) -> Value:
        w, factor = widened(b, x), widened(b, scale)
        away = None if shift is None else widened(b, shift)
        scaled = b.Mul(w, factor)
        scaled = scaled if away is None else b.Sub(scaled, away)
        half = b.Cast(scaled, to=f16)
        back = b.Cast(b.Cast(half, to=self.destination_type), to=w.dtype)
        back = back if away is None else b.Add(back, away)
        return narrowed(b, b.Div(back, factor), x)

    openvino = (
        Form(
            "FakeConvert",
            13,
            attrs={"destination_type": Enum({"f8e4m3": f8e4m3fn, "f8e5m2": f8e5m2}, f8e4m3fn)},
            T=FLOATS_BF16,
        ),
    )
