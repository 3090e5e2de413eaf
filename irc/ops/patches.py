"""Windows of images as channels: ExtractImagePatches.

Source: OpenVINO specification, ExtractImagePatches-3.
"""

from __future__ import annotations

from irc.diagnostics import require
from irc.diagnostics.codes import operation, shape as codes
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import at_most
from irc.ir.types import NUMERIC
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Enum, Ints
from irc.opdef.conversions import as_scalar
from irc.opdef.forms import Form
from irc.opdef.signature import Sig
from irc.ops.embedding_bag import counted
from irc.ops.layout import reshaped


@op
class ExtractImagePatches(Op):
    """[N, C, H, W] → [N, rows · columns · C, OH, OW]: the elements of each window of `sizes`, `rates` apart.

    auto_pad: same_upper, same_lower (with zeros around, the odd one at the end or the beginning), valid.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    rates: tuple[int, ...]
    auto_pad: str
    sig = Sig("x: T[4] -> y: T", T=NUMERIC)

    def decompose(self, b: Builder, x: Value) -> Value:
        for name in ("sizes", "strides", "rates"):
            given = len(getattr(self, name))
            require(given == 2, operation.ATTRIBUTE_LENGTH, op=self.name, attribute=name, given=given, needed=2)
        n, channels, *space = x.shape
        begins, ends, counts = zip(*(self._axis(d, k) for k, d in enumerate(space)), strict=True)
        if self.auto_pad != "valid":
            zero = Dim.of(0)
            x = b.Pad(x, b.dims([zero, zero, *begins, zero, zero, *ends]))
        for k, axis in ((0, 2), (1, 4)):
            steps = counted(b, as_scalar(b, b.dims([counts[k]])))
            starts = b.Mul(b.Unsqueeze(steps, [0]), b.const(self.strides[k]))
            inside = b.const([[i * self.rates[k]] for i in range(self.sizes[k])])
            x = b.Gather(x, b.Add(starts, inside), b.const(axis))
        rows, columns = self.sizes
        return reshaped(b, b.Transpose(x, [0, 2, 4, 1, 3, 5]), [n, channels * rows * columns, *counts])

    def _axis(self, size: Dim, k: int) -> tuple[Dim, Dim, Dim]:
        """How many zeros stand before and after an axis, and how many windows are along it."""
        extent, stride = (self.sizes[k] - 1) * self.rates[k] + 1, self.strides[k]
        if self.auto_pad == "valid":
            facts = {"op": self.name, "what": f"size of axis {k + 2}", "value": size}
            require(at_most(extent, size), codes.SIZE_RANGE, **facts, expected=f"{extent} or more")
            return Dim.of(0), Dim.of(0), (size - extent) // stride + 1
        count = size.ceildiv(stride)
        total = ((count - 1) * stride + extent - size).maximum(0)
        half = total // 2
        return (half, total - half, count) if self.auto_pad == "same_upper" else (total - half, half, count)

    openvino = (
        Form(
            "ExtractImagePatches",
            3,
            attrs={
                "sizes": Ints(lo=1),
                "strides": Ints(lo=1),
                "rates": Ints(lo=1),
                "auto_pad": Enum(["same_upper", "same_lower", "valid"]),
            },
            T=NUMERIC,
        ),
    )
