"""Images of one brightness and halved colours: NV12 and I420 to RGB or BGR.

Computed in f32, rounded and cut to 0..255.  Source: OpenVINO specification, NV12toRGB-8, I420toRGB-8.
"""

from __future__ import annotations

from irc.diagnostics import Facts, require
from irc.diagnostics.codes import operation, shape as codes
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.relation import multiple, same
from irc.ir.types import FLOATS_BF16, f8e4m3fn, f8e5m2, f32, u8
from irc.opdef.base import Op, op, op_base
from irc.opdef.builder import Builder
from irc.opdef.conversions import as_type
from irc.opdef.forms import Attributes, Form, Read, Results
from irc.opdef.signature import Sig
from irc.ops.layout import reshaped

PIXELS = FLOATS_BF16 | {u8, f8e4m3fn, f8e5m2}


@op_base
class Planes(Op):
    """An image [n, height, width, 3] of planes, which are one operand [n, 3 · height / 2, width, 1], or each its own.

    Red, green, blue, or (`reverse`) the other way round.
    """

    reverse: bool = False

    def brightness(self, b: Builder, image: Value) -> tuple[Value, Value, list[Dim]]:
        """Part all planes in one.  Returns the brightness, the rest [n, elements], and the sizes of the image."""
        n, rows, width, last = image.shape
        self.check_multiple(rows, 3, "rows of the planes")
        self.check_multiple(width, 2, "width")
        self.check_last(last, 1)
        height = rows // 3 * 2
        y = b.Slice(image, [0], b.dims([height]), [1])
        rest = b.Slice(image, b.dims([height]), b.dims([rows]), [1])
        return y, reshaped(b, rest, [n, height // 2 * width]), [n, height, width]

    def check_multiple(self, size: Dim, factor: int, what: str) -> None:
        facts: Facts = {"op": self.name, "what": what, "value": size, "expected": f"a multiple of {factor}"}
        require(multiple(size, factor), codes.SIZE_RANGE, **facts)

    def check_last(self, size: Dim, wanted: int) -> None:
        what = "the last size and that of the format"
        require(same(size, wanted), codes.SIZES_DIFFER, op=self.name, what=what, a=size, b=wanted)

    def check_halves(self, y: Value, colours: Value) -> None:
        """Check that the colours have half the sizes of the brightness.  Raises Problem."""
        for axis, factor in ((0, 1), (1, 2), (2, 2)):
            what = f"axis {axis} of the brightness and that of the colours"
            p, q = y.shape[axis], colours.shape[axis] * factor
            require(same(p, q), codes.SIZES_DIFFER, op=self.name, what=what, a=p, b=q)

    def image(self, b: Builder, y: Value, u: Value, v: Value) -> Value:
        """Compute the colours of planes [n, height, width, 1] and [n, height / 2, width / 2, 1]."""
        n, height, width, _ = y.shape
        dtype = y.dtype
        bright = b.Mul(b.Sub(as_type(b, y, f32), b.const(16, f32)), b.const(1.164, f32))

        def spread(plane: Value) -> Value:
            centred = b.Sub(as_type(b, plane, f32), b.const(128, f32))
            pairs = b.Unsqueeze(centred, [2, 4])
            sizes = [n, height // 2, 2, width // 2, 2, 1]
            return reshaped(b, b.Expand(pairs, b.dims(sizes)), [n, height, width, 1])

        d, e = spread(u), spread(v)
        red = b.Add(bright, b.Mul(e, b.const(1.596, f32)))
        green = b.Sub(b.Sub(bright, b.Mul(d, b.const(0.391, f32))), b.Mul(e, b.const(0.813, f32)))
        blue = b.Add(bright, b.Mul(d, b.const(2.018, f32)))
        colours = (blue, green, red) if self.reverse else (red, green, blue)
        found = b.Clip(b.Concat(*colours, axis=3), b.const(0, f32), b.const(255, f32))
        return as_type(b, b.Round(found) if dtype == u8 else found, dtype)


def read_reversed(name: str) -> Read:
    """`read` of an operation that gives blue, green, red."""

    def read(b: Builder, a: Attributes, *planes: Value) -> Results:
        return b.operation(name)(*planes, reverse=True)

    return read


def is_reverse(op: Planes, *planes: Value | None) -> bool:
    return op.reverse


def is_forward(op: Planes, *planes: Value | None) -> bool:
    return not op.reverse


@op
class NV12toRGB(Planes):
    """Planes whose second one has both colours, u and v, in turn; see Planes."""

    sig = Sig("y: T[4], uv?: T[4] -> image: T", T=PIXELS)

    def decompose(self, b: Builder, y: Value, uv: Value | None = None) -> Value:
        if uv is None:
            y, rest, (n, height, width) = self.brightness(b, y)
            uv = reshaped(b, rest, [n, height // 2, width // 2, 2])
        self.check_last(y.shape[3], 1)
        self.check_last(uv.shape[3], 2)
        self.check_halves(y, uv)
        u, v = (b.Slice(uv, [k], [k + 1], [3]) for k in (0, 1))
        return self.image(b, y, u, v)

    openvino = (
        Form("NV12toRGB", 8, attrs={}, T=PIXELS, when=is_forward, judges=("reverse",)),
        Form("NV12toBGR", 8, attrs={}, T=PIXELS, read=read_reversed("NV12toRGB"), when=is_reverse, judges=("reverse",)),
    )


@op
class I420toRGB(Planes):
    """Planes of brightness, u and v; see Planes."""

    sig = Sig("y: T[4], u?: T[4], v?: T[4] -> image: T", T=PIXELS)

    def decompose(self, b: Builder, y: Value, u: Value | None = None, v: Value | None = None) -> Value:
        if u is None and v is None:
            y, rest, (n, height, width) = self.brightness(b, y)
            self.check_multiple(height, 2, "height")
            quarter = height // 2 * (width // 2)
            parts = (b.Slice(rest, b.dims([quarter * k]), b.dims([quarter * (k + 1)]), [1]) for k in (0, 1))
            u, v = (reshaped(b, part, [n, height // 2, width // 2, 1]) for part in parts)
        given = sum(p is not None for p in (y, u, v))
        facts: Facts = {"op": self.name, "attribute": "planes", "given": given, "needed": 3}
        require(u is not None and v is not None, operation.ATTRIBUTE_LENGTH, **facts)
        assert u is not None and v is not None
        for plane in (y, u, v):
            self.check_last(plane.shape[3], 1)
        self.check_halves(y, u)
        self.check_halves(y, v)
        return self.image(b, y, u, v)

    openvino = (
        Form("I420toRGB", 8, attrs={}, T=PIXELS, when=is_forward, judges=("reverse",)),
        Form("I420toBGR", 8, attrs={}, T=PIXELS, read=read_reversed("I420toRGB"), when=is_reverse, judges=("reverse",)),
    )
