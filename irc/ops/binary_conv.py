"""Convolution of signs: BinaryConvolution.

Source: OpenVINO specification, BinaryConvolution-1.
"""

from __future__ import annotations

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation
from irc.ir.graph import Value
from irc.ir.types import NUMERIC, f32
from irc.opdef.base import op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Enum, Float
from irc.opdef.conversions import as_type
from irc.opdef.forms import Form
from irc.opdef.signature import Sig
from irc.ops.arithmetic import OV_NUMERIC
from irc.ops.conv import OV_CONV, Convolution

MODE = Enum(["xnor-popcount"], assumed="xnor-popcount")
"""The only one there is."""


@op
class BinaryConvolution(Convolution):
    """Conv of signs: elements above 0 are 1, others -1; so are bits of the weights, the lowest of each byte first.

    Elements of the padding are `pad_value` as it is.  The specification has the highest bit first, and no word of
    elements besides 0 and 1; this is what OpenVINO's CPU plugin computes.
    """

    pad_value: float = 0.0
    mode: str = "xnor-popcount"
    sig = Sig("x: T[4], w: u1[4] -> y: T", T=NUMERIC)

    def decompose(self, b: Builder, x: Value, w: Value) -> Value:
        bits = w.array
        require(bits is not None, operation.NEEDS_CONSTANT, op=self.name, operand="weights")
        assert bits is not None
        flat = np.asarray(bits, np.uint8).reshape(-1)
        rows = np.pad(flat, (0, -len(flat) % 8)).reshape(-1, 8)[:, ::-1]
        signs = rows.reshape(-1)[: len(flat)].reshape(bits.shape).astype(np.float32) * 2 - 1
        data = b.Where(b.Greater(x, b.like(0, x)), b.const(1 - self.pad_value, f32), b.const(-1 - self.pad_value, f32))
        edge = b.const(signs.sum((1, 2, 3)) * self.pad_value, f32)
        fields = {k: v for k, v in self.attributes().items() if k not in ("pad_value", "mode")}
        y = b.Conv(data, b.const(signs, f32), edge if self.pad_value else None, **fields)
        return as_type(b, y, x.dtype)

    openvino = (
        Form("BinaryConvolution", 1, attrs={**OV_CONV, "mode": MODE, "pad_value": Float(assumed=0.0)}, T=OV_NUMERIC),
    )
