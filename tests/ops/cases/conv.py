"""Conv and ConvTranspose."""

from typing import Any

from irc.ops.conv import Conv, ConvTranspose, GroupedConv, GroupedConvTranspose
from tests.ops.cases import Case, Spec


def conv(
    x: tuple[int, ...],
    w: tuple[int, ...],
    bias: bool = False,
    dtype: str = "f32",
    rtol: float = 1e-5,
    **attributes: Any,
) -> Case:
    operands = [Spec(dtype, x), Spec(dtype, w)] + ([Spec(dtype, w[:1])] if bias else [])
    return Case(Conv(**attributes), tuple(operands), rtol)


def transposed(x: tuple[int, ...], w: tuple[int, ...], bias: int = 0, **attributes: Any) -> Case:
    operands = [Spec("f32", x), Spec("f32", w)] + ([Spec("f32", (bias,))] if bias else [])
    return Case(ConvTranspose(**attributes), tuple(operands), 1e-5)


CASES = [
    conv((1, 3, 8, 9), (4, 3, 3, 3)),
    conv((2, 3, 8, 9), (4, 3, 3, 3), bias=True, pads_begin=(1, 1), pads_end=(1, 1)),
    conv((1, 3, 8, 9), (4, 3, 3, 2), strides=(2, 1), pads_begin=(0, 1), pads_end=(2, 0)),
    conv((1, 3, 9, 9), (4, 3, 3, 3), dilations=(2, 2)),
    conv((1, 4, 7, 7), (6, 2, 3, 3), group=2, bias=True),
    conv((1, 4, 7, 7), (4, 1, 3, 3), group=4, pads_begin=(1, 1), pads_end=(1, 1)),
    conv((1, 4, 7, 7), (8, 1, 3, 3), group=4),
    conv((1, 3, 8), (4, 3, 3)),
    conv((1, 2, 5, 6, 4), (3, 2, 2, 3, 2)),
    conv((1, 3, 8, 9), (4, 3, 3, 3), auto_pad="same_upper", strides=(2, 2)),
    conv((1, 3, 8, 9), (4, 3, 2, 2), auto_pad="same_lower", strides=(2, 2)),
    conv((1, 3, 8, 9), (4, 3, 3, 3), auto_pad="valid"),
    conv((1, 20, 14, 14), (33, 20, 1, 1), bias=True),
    conv((1, 17, 19, 21), (19, 17, 3, 3), bias=True, pads_begin=(1, 1), pads_end=(1, 1)),
    conv((1, 3, 5, 5), (2, 3, 5, 5), pads_begin=(2, 2), pads_end=(2, 2)),
    conv((1, 2, 3, 3), (1, 2, 3, 3), pads_begin=(3, 3), pads_end=(3, 3)),
    conv((0, 2, 3, 3), (1, 2, 3, 3)),
    conv((1, 2, 5, 5), (3, 2, 3, 3), dtype="f64", rtol=1e-12),
    conv((1, 2, 5, 5), (3, 2, 3, 3), dtype="f16", rtol=4e-3, bias=True),
    conv((1, 2, 5, 5), (3, 2, 3, 3), dtype="bf16", rtol=4e-2),
    transposed((1, 3, 4, 5), (3, 4, 3, 3)),
    transposed((1, 3, 4, 5), (3, 4, 3, 3), bias=4, strides=(2, 2)),
    transposed((1, 3, 4, 5), (3, 4, 3, 3), strides=(2, 3), pads_begin=(1, 0), pads_end=(0, 1), output_padding=(1, 0)),
    transposed((1, 3, 4, 5), (3, 4, 3, 3), strides=(2, 2), auto_pad="same_upper"),
    transposed((1, 3, 4, 5), (3, 4, 3, 3), strides=(2, 2), output_shape=(8, 10)),
    transposed((1, 3, 4, 5), (3, 4, 2, 2), dilations=(2, 2)),
    transposed((1, 4, 4, 5), (4, 3, 3, 3), group=2),
    transposed((1, 3, 5), (3, 2, 3), strides=(2,)),
    transposed((1, 2, 3, 4, 3), (2, 3, 2, 3, 2), strides=(2, 1, 2)),
    Case(
        GroupedConv(strides=(1, 1), dilations=(1, 1)), (Spec("f32", (1, 4, 6, 6)), Spec("f32", (2, 3, 2, 3, 3))), 1e-5
    ),
    Case(
        GroupedConvTranspose(strides=(2, 2), dilations=(1, 1)),
        (Spec("f32", (1, 4, 4, 4)), Spec("f32", (2, 2, 3, 3, 3))),
        1e-5,
    ),
    *(
        Case(
            Conv(strides=(2, 1), dilations=(1, 1), pads_begin=(1, 0), pads_end=(1, 1), group=2),
            (Spec(t, (2, 4, 5, 6)), Spec(t, (6, 2, 3, 3)), *bias),
        )
        for t in ("i8", "u8", "i16", "u16", "i32", "u32")
        for bias in ((), (Spec(t, (6,)),))
    ),
    Case(Conv(strides=(1,), dilations=(2,)), (Spec("i32", (1, 2, 9)), Spec("i32", (3, 2, 3), const=True))),
]
