"""Dropout.  Sources: ONNX Dropout, opsets 1 to 22.  OpenVINO has none: inference is the identity."""

from __future__ import annotations

from irc.ir.graph import Value
from irc.ir.types import F8, FLOATS, FLOATS_BF16, boolean, f64
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Float, Ignored, Int
from irc.opdef.conversions import as_scalar, as_type
from irc.opdef.forms import Attributes, Form, Results
from irc.opdef.precision import narrowed, widened
from irc.opdef.signature import Sig

BOOL = frozenset({boolean})


def read_attributes(b: Builder, a: Attributes, x: Value) -> Results:
    """Opsets 1 to 10: the ratio is an attribute; is_test (until 6) turns it off; masks had x's type until 7."""
    training = not getattr(a, "is_test", True)
    operands = (b.const(a.ratio, x.dtype), b.const(True, boolean)) if training else ()
    y, mask = b.add_all(Dropout(), x, *operands)
    return y, mask if a.opset >= 10 else b.Cast(mask, to=x.dtype)


@op
class Dropout(Op):
    """When training, elements are dropped with probability `ratio` and the rest scaled by 1 / (1 - ratio); else x.

    mask: which elements were kept.  A seed gives the numbers of NumPy's `RandomState`, as ONNX's reference does.
    """

    seed: int | None = None
    sig = Sig(
        "x: T, ratio?: T1[one], training_mode?: bool[one] -> y: T, mask: bool", T=FLOATS_BF16 | F8, T1=FLOATS_BF16 | F8
    )

    def is_identity(self, x: Value, ratio: Value | None = None, training_mode: Value | None = None) -> bool:
        """Whether nothing is dropped, whatever the run says."""
        off = training_mode is None or (training_mode.array is not None and not training_mode.array.any())
        return off or (ratio is not None and ratio.array is not None and not ratio.array.any())

    def chance(self, b: Builder, ratio: Value | None) -> Value:
        """The probability of being dropped, as an f64."""
        return b.const(0.5, f64) if ratio is None else as_type(b, as_scalar(b, ratio), f64)

    def scale(self, b: Builder, x: Value, ratio: Value | None = None, training_mode: Value | None = None) -> Value:
        """What the elements that are kept are multiplied by, as an f64."""
        one = b.const(1.0, f64)
        scale = b.Reciprocal(b.Sub(one, self.chance(b, ratio)))
        return scale if training_mode is None else b.Where(as_scalar(b, training_mode), scale, one)

    def decompose(
        self, b: Builder, x: Value, ratio: Value | None = None, training_mode: Value | None = None
    ) -> tuple[Value, Value]:
        if training_mode is None or self.is_identity(x, ratio, training_mode):
            return b.Identity(x), b.Expand(b.const(True, boolean), b.Shape(x))
        chance = self.chance(b, ratio)
        known = {} if self.seed is None else {"seed": self.seed, "generator": "numpy"}
        drawn = b.RandomRange(b.Shape(x), b.const(0.0, f64), b.const(1.0, f64), **known)
        mask = b.Or(b.GreaterOrEqual(drawn, chance), b.Not(as_scalar(b, training_mode)))
        wide = widened(b, x)
        scale = as_type(b, self.scale(b, x, ratio, training_mode), wide.dtype)
        return narrowed(b, b.Where(mask, b.Mul(wide, scale), b.like(0.0, wide)), x), mask

    onnx = (
        Form(
            "Dropout",
            1,
            T={"T": FLOATS},
            sig=Sig("x: T -> y: T, mask: T", T=FLOATS),
            read=read_attributes,
            attrs={"ratio": Float(0.5), "is_test": Int(0), "consumed_inputs": Ignored()},
        ),
        Form("Dropout", 6, attrs={"ratio": Float(0.5), "is_test": Int(0)}),
        Form("Dropout", 7, attrs={"ratio": Float(0.5)}),
        Form("Dropout", 10),
        Form("Dropout", 12, attrs={"seed": Int(None)}, T={"T": FLOATS, "T1": FLOATS}, sig=None, read=None),
        Form("Dropout", 13, T={"T": FLOATS_BF16}),
        Form("Dropout", 22, T={"T": FLOATS_BF16 | F8, "T1": FLOATS_BF16 | F8}),
    )
