"""BinaryConvolution: strides, dilations, paddings of all kinds with any value; bits in whole bytes and not."""

from irc.ops.binary_conv import BinaryConvolution
from tests.ops.cases import Case, Spec

X = Spec("f32", (2, 4, 6, 5))
BITS = Spec("u1", (3, 4, 3, 2), 0, 1, const=True)
CASES = [
    Case(BinaryConvolution(), (X, BITS)),
    Case(BinaryConvolution(pads_begin=(1, 0), pads_end=(0, 2), strides=(2, 1)), (X, BITS)),
    *(Case(BinaryConvolution(pads_begin=(1, 1), pads_end=(1, 1), pad_value=v), (X, BITS)) for v in (1.0, -1.0, 0.5)),
    *(Case(BinaryConvolution(auto_pad=p, dilations=(1, 2), pad_value=1.0), (X, BITS)) for p in ("same_upper", "valid")),
    Case(BinaryConvolution(), (Spec("i32", (1, 1, 3, 3), 0, 1), Spec("u1", (1, 1, 1, 3), 0, 1, const=True))),
]
