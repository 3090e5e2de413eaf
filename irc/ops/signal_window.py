"""Windows of signal processing: HannWindow, HammingWindow, BlackmanWindow.

They are computed in f64 and rounded once.  Sources: ONNX HannWindow, HammingWindow, BlackmanWindow.
"""

from __future__ import annotations

import math
from typing import ClassVar

from irc.ir.graph import Value
from irc.ir.types import DType, f32, f64
from irc.opdef.base import Op, op, op_base
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, DTypeAttr
from irc.opdef.conversions import as_i64, as_scalar
from irc.opdef.forms import Form
from irc.opdef.signature import Sig
from irc.opdef.typesets import INDEX


def counted(b: Builder, count: Value) -> Value:
    """Count 0, 1, … below a scalar, in f64."""
    return b.Cast(b.Range(b.const(0), count, b.const(1)), to=f64)


@op_base
class Window(Op):
    """a - b · cos(2π n / N) + c · cos(4π n / N) for n below `size`; N is the size, or size - 1 if not periodic."""

    output_datatype: DType = f32
    periodic: bool = True
    sig = Sig("size: I[one] -> y: any", I=INDEX)
    terms: ClassVar[tuple[float, float, float]]

    def decompose(self, b: Builder, size: Value) -> Value:
        count = as_i64(b, as_scalar(b, size))
        whole = count if self.periodic else b.Sub(count, b.const(1))
        turn = b.Div(b.Mul(counted(b, count), b.const(2 * math.pi, f64)), b.Cast(whole, to=f64))
        constant, first, second = (b.const(t, f64) for t in self.terms)
        y = b.Sub(constant, b.Mul(b.Cos(turn), first))
        if self.terms[2]:
            y = b.Add(y, b.Mul(b.Cos(b.Mul(turn, b.const(2.0, f64))), second))
        return b.Cast(y, to=self.output_datatype)


def window_forms(name: str) -> tuple[Form, ...]:
    """Make the row of a window."""
    return (Form(name, 17, attrs={"output_datatype": DTypeAttr(f32), "periodic": Bool(True)}, T={"I": INDEX}),)


@op
class HannWindow(Window):
    """sin²(π n / N)."""

    terms = (0.5, 0.5, 0.0)
    onnx = window_forms("HannWindow")


@op
class HammingWindow(Window):
    """25/46 - 21/46 · cos(2π n / N)."""

    terms = (25 / 46, 21 / 46, 0.0)
    onnx = window_forms("HammingWindow")


@op
class BlackmanWindow(Window):
    """0.42 - 0.5 · cos(2π n / N) + 0.08 · cos(4π n / N)."""

    terms = (0.42, 0.5, 0.08)
    onnx = window_forms("BlackmanWindow")
