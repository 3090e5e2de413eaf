"""The inverse of pools of the largest element: MaxUnpool.

Source: ONNX MaxUnpool.
"""

from __future__ import annotations

from irc.diagnostics import Facts, require
from irc.diagnostics.codes import operation, shape as codes
from irc.ir.dim import Dim, product
from irc.ir.graph import Value
from irc.ir.relation import at_most, same
from irc.ir.types import FLOATS, FLOATS_BF16, bf16
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Codec, Ints, Pads
from irc.opdef.forms import PREV, Form
from irc.opdef.signature import Sig
from irc.opdef.window import spatial
from irc.ops.layout import reshaped

ATTRIBUTES: dict[str, Codec] = {"kernel_shape": Ints(to="kernel", lo=1), "strides": Ints((), lo=1), "pads": Pads(lo=0)}


@op
class MaxUnpool(Op):
    """The elements of x at `indices` of what was pooled, flat over the whole tensor; zeros elsewhere.

    shape: that of the result, zeros behind what was pooled; absent: that of the smallest that is pooled to x's.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    pads_begin: tuple[int, ...] = ()
    pads_end: tuple[int, ...] = ()
    sig = Sig("x: T[r>=3], indices: i64[r], shape?: i64[1] -> y: T", T=FLOATS_BF16)

    def pooled(self, x: Value) -> list[Dim]:
        """The shape of what was pooled."""
        rank = len(x.shape) - 2
        facts: Facts = {"op": self.name, "attribute": "kernel_shape", "given": len(self.kernel), "needed": rank}
        require(len(self.kernel) == rank, operation.ATTRIBUTE_LENGTH, **facts)
        given = (("strides", 1), ("pads_begin", 0), ("pads_end", 0))
        attributes = [spatial(self.name, name, getattr(self, name), rank, default) for name, default in given]
        found = list(x.shape[:2])
        for size, k, stride, begin, end in zip(x.shape[2:], self.kernel, *attributes, strict=True):
            found.append((size - 1) * stride + k - begin - end)
            facts = {"op": self.name, "what": "a size of the result", "value": found[-1]}
            require(at_most(0, found[-1]), codes.SIZE_RANGE, **facts, expected="0 or more")
        return found

    def decompose(self, b: Builder, x: Value, indices: Value, shape: Value | None = None) -> Value:
        sizes = self.pooled(x)
        for axis, (p, q) in enumerate(zip(x.shape, indices.shape, strict=True)):
            what = f"axis {axis} of x and the indices"
            require(same(p, q), codes.SIZES_DIFFER, op=self.name, what=what, a=p, b=q)
        nothing = b.Expand(b.const(0, x.dtype), b.dims([product(sizes)]))
        flat = [b.Reshape(v, b.const([-1])) for v in (indices, x)]
        y = reshaped(b, b.ScatterElements(nothing, *flat, b.const(0)), sizes)
        if shape is None:
            return y
        facts: Facts = {"op": self.name, "attribute": "output_shape", "given": shape.shape[0], "needed": len(sizes)}
        require(same(shape.shape[0], len(sizes)), operation.ATTRIBUTE_LENGTH, **facts)
        begin = b.const([0] * len(sizes))
        return b.Pad(y, b.Concat(begin, b.Sub(shape, b.dims(sizes)), axis=0))

    onnx = (
        Form("MaxUnpool", 9, attrs=ATTRIBUTES, T={"T": FLOATS}),
        Form("MaxUnpool", 11),
        Form("MaxUnpool", 22, T={"T": PREV | {bf16}}),
    )
