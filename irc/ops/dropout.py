"""Dropout.  Sources: ONNX Dropout, opsets 1 to 22.  OpenVINO has none: inference is the identity."""

from __future__ import annotations

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import conversion
from irc.ir.graph import Value
from irc.ir.types import F8, FLOATS, FLOATS_BF16, TensorType, boolean
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Float, Ignored, Int
from irc.opdef.forms import Attributes, Form, Results
from irc.opdef.precision import rounded, wide
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

    mask: which elements were kept.
    """

    seed: int | None = None
    sig = Sig(
        "x: T, ratio?: T1[one], training_mode?: bool[one] -> y: T, mask: bool", T=FLOATS_BF16 | F8, T1=FLOATS_BF16 | F8
    )

    def infer(self, x: Value, ratio: Value | None = None, training_mode: Value | None = None) -> list[TensorType]:
        return [x.tensor, TensorType(boolean, x.tensor.shape)]

    def reference(
        self, x: Array, ratio: Array | None = None, training_mode: Array | None = None
    ) -> tuple[Array, Array]:
        chance = 0.5 if ratio is None else float(ratio)
        if training_mode is None or not bool(training_mode) or chance == 0.0:
            return x, np.ones(x.shape, np.bool_)
        mask: Array = np.random.RandomState(self.seed).uniform(0.0, 1.0, x.shape) >= chance  # pyright: ignore
        return rounded(mask * wide(x) * wide(x).dtype.type(1.0 / (1.0 - chance)), x), mask  # pyright: ignore

    def decompose(
        self, b: Builder, x: Value, ratio: Value | None = None, training_mode: Value | None = None
    ) -> tuple[Value, Value]:
        off = training_mode is None or (training_mode.array is not None and not bool(training_mode.array))
        off = off or (ratio is not None and ratio.array is not None and float(ratio.array) == 0.0)
        require(off, conversion.CANNOT_EXPRESS, op="Dropout in training mode", types=str(x.type), target="this target")
        return b.Identity(x), b.Expand(b.const(True, boolean), b.dims(x.shape))

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
