"""What YOLO detects objects with: RegionYolo, ReorgYolo.

Sources: OpenVINO specification, RegionYolo-1, ReorgYolo-2; YOLO9000 (arXiv:1612.08242).
"""

from __future__ import annotations

from irc.diagnostics import require
from irc.diagnostics.codes import shape as codes
from irc.ir.dim import Dim, product
from irc.ir.graph import Value
from irc.ir.relation import multiple
from irc.ir.types import FLOATS_BF16
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Floats, Int, Ints
from irc.opdef.forms import Form
from irc.opdef.precision import narrowed, widened
from irc.opdef.signature import Sig
from irc.opdef.typesets import OV_ANY
from irc.ops.layout import normal_axis


@op
class RegionYolo(Op):
    """Channels of each region: the logistic function of its place and of whether there is an object; its classes.

    do_softmax: the classes are a softmax, there are `num` regions, and the axes from `axis` to `end_axis` become one.
    Otherwise they are logistic functions too, and there is a region for each number of the mask.
    """

    axis: int
    coords: int
    classes: int
    end_axis: int
    num: int
    do_softmax: bool = True
    anchors: tuple[float, ...] = ()
    mask: tuple[int, ...] = ()
    sig = Sig("x: T[4] -> y: T", T=FLOATS_BF16)

    def decompose(self, b: Builder, x: Value) -> Value:
        images, channels, height, width = x.shape
        regions = self.num if self.do_softmax else len(self.mask)
        each = self.coords + self.classes + 1
        used = b.Slice(widened(b, x), [0], [regions * each], [1])
        facts = {"op": self.name, "what": "channels", "value": channels, "expected": f"{regions} regions of {each}"}
        require(channels.bounds()[1] >= regions * each, codes.SIZE_RANGE, **facts)
        parts = b.Reshape(used, b.dims([images, Dim.of(regions), Dim.of(each), height, width]), special_zero=False)
        place, size, rest, kinds = (
            b.Slice(parts, [first], [last], [2])
            for first, last in ((0, 2), (2, self.coords), (self.coords, self.coords + 1), (self.coords + 1, each))
        )
        kinds = b.Softmax(kinds, axis=2) if self.do_softmax else b.Sigmoid(kinds)
        whole = b.Concat(b.Sigmoid(place), size, b.Sigmoid(rest), kinds, axis=2)
        shape = [images, Dim.of(regions * each), height, width]
        if self.do_softmax:
            first, last = (normal_axis(self.name, axis, 4) for axis in (self.axis, self.end_axis))
            shape = [*shape[:first], product(shape[first : last + 1]), *shape[last + 1 :]]
        return narrowed(b, b.Reshape(whole, b.dims(shape), special_zero=False), x)

    openvino = (
        Form(
            "RegionYolo",
            1,
            attrs={
                "anchors": Floats(()),
                "axis": Int(assumed=0),
                "coords": Int(assumed=0, lo=0),
                "classes": Int(assumed=0, lo=0),
                "end_axis": Int(assumed=0),
                "num": Int(assumed=0, lo=0),
                "do_softmax": Bool(True),
                "mask": Ints(()),
            },
            T=FLOATS_BF16,
        ),
    )


@op
class ReorgYolo(Op):
    """Elements in memory as [n, c / s², h · s, w · s], each of the s² places in a block as channels of its own."""

    stride: int
    sig = Sig("x: T[4] -> y: T", T=OV_ANY)

    def decompose(self, b: Builder, x: Value) -> Value:
        s = self.stride
        n, channels, height, width = x.shape
        for what, value, of in (("channels", channels, s * s), ("height", height, s), ("width", width, s)):
            facts = {"op": self.name, "what": what, "value": value, "expected": f"a multiple of {of}"}
            require(multiple(value, of), codes.SIZE_RANGE, **facts)
        inner = channels // (s * s)
        blocks = b.Reshape(x, b.dims([n, inner, height, Dim.of(s), width, Dim.of(s)]), special_zero=False)
        moved = b.Transpose(blocks, [0, 3, 5, 1, 2, 4])
        return b.Reshape(moved, b.dims([n, channels * (s * s), height // s, width // s]), special_zero=False)

    openvino = (Form("ReorgYolo", 2, attrs={"stride": Int(lo=1)}, T=OV_ANY),)
