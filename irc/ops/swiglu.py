"""A gated activation: SwiGLU.  Source: ONNX SwiGLU."""

from __future__ import annotations

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import FLOATS_BF16, TensorType
from irc.opdef.base import Array, Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Float
from irc.opdef.forms import Form
from irc.opdef.precision import narrowed, rounded, wide, widened
from irc.opdef.signature import Sig


@op
class SwiGLU(Op):
    """gate / (1 + e^(-alpha · gate)) · x, of equal shapes; narrow floats are computed in f32."""

    alpha: float = 1.0
    sig = Sig("gate: T[r], x: T[r] -> y: T", T=FLOATS_BF16)

    def infer(self, gate: Value, x: Value) -> TensorType:
        if gate.rank is not None and x.rank is not None:
            for k, (p, q) in enumerate(zip(gate.shape, x.shape, strict=True)):
                require(same(p, q), codes.SIZES_DIFFER, op="SwiGLU", what=f"axis {k} of gate and x", a=p, b=q)
        return gate.tensor

    def reference(self, gate: Array, x: Array) -> Array:
        w = wide(gate)
        return rounded(w / (1 + np.exp(w * w.dtype.type(-self.alpha))) * wide(x), x)

    def decompose(self, b: Builder, gate: Value, x: Value) -> Value:
        w = widened(b, gate)
        return narrowed(b, b.Mul(b.Swish(w, b.const(self.alpha, w.dtype)), widened(b, x)), x)

    onnx = (Form("SwiGLU", 28, attrs={"alpha": Float(1.0)}, T=FLOATS_BF16),)
