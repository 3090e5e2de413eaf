"""Pools."""

from irc.ir.types import i32
from irc.ops.pool import AveragePool, GlobalAveragePool, GlobalLpPool, GlobalMaxPool, LpPool, MaxPool
from tests.ops.cases import Case, Spec


def f32(*shape: int) -> Spec:
    return Spec("f32", shape)


PLANE = f32(1, 3, 8, 9)
ONES = {"pads_begin": (1, 1), "pads_end": (1, 1)}
TWOS = {"strides": (2, 2)}

CASES = [
    Case(MaxPool((3, 3)), (PLANE,)),
    Case(MaxPool((3, 3), **TWOS, **ONES), (PLANE,)),
    Case(MaxPool((3, 3), **TWOS, rounding="ceil_torch"), (PLANE,)),
    Case(MaxPool((3, 3), **TWOS, **ONES, rounding="ceil"), (PLANE,)),
    Case(MaxPool((3, 3), **TWOS, auto_pad="same_upper"), (PLANE,)),
    Case(MaxPool((2, 2), **TWOS, auto_pad="same_lower"), (PLANE,)),
    Case(MaxPool((2, 2), dilations=(2, 2)), (PLANE,)),
    Case(MaxPool((2, 2), column_major=True), (PLANE,)),
    Case(MaxPool((2, 2), index_type=i32, axis=2), (PLANE,)),
    Case(MaxPool((3,), strides=(2,)), (f32(1, 2, 9),)),
    Case(MaxPool((2, 2, 2)), (f32(1, 2, 4, 5, 3),)),
    Case(MaxPool((2, 2)), (Spec("i8", (1, 2, 4, 4)),)),
    Case(MaxPool((2, 2)), (Spec("u8", (1, 2, 4, 4)),)),
    Case(MaxPool((2, 2)), (Spec("f16", (1, 2, 4, 4)),)),
    Case(MaxPool((2, 2)), (Spec("f64", (1, 2, 4, 4)),)),
    Case(MaxPool((2, 2), strides=(1, 1), **ONES), (Spec("bf16", (1, 2, 4, 4)),)),
    Case(AveragePool((3, 3)), (PLANE,), 1e-6),
    Case(AveragePool((3, 3), **TWOS, **ONES), (PLANE,), 1e-6),
    Case(AveragePool((3, 3), **TWOS, **ONES, counted="padded"), (PLANE,), 1e-6),
    Case(AveragePool((3, 3), **TWOS, **ONES, rounding="ceil"), (PLANE,), 1e-6),
    Case(AveragePool((3, 3), **TWOS, **ONES, rounding="ceil", counted="window"), (PLANE,), 1e-6),
    Case(AveragePool((3, 3), **TWOS, **ONES, rounding="ceil_torch", counted="padded"), (PLANE,), 1e-6),
    Case(AveragePool((3, 3), **TWOS, auto_pad="same_upper"), (PLANE,), 1e-6),
    Case(AveragePool((2, 2), dilations=(2, 2)), (PLANE,), 1e-6),
    Case(AveragePool((3,), strides=(2,)), (f32(1, 2, 9),), 1e-6),
    Case(AveragePool((2, 2, 2)), (f32(1, 2, 4, 5, 3),), 1e-6),
    Case(AveragePool((2, 2)), (Spec("f16", (1, 2, 4, 4)),), 2e-3),
    Case(AveragePool((2, 2)), (Spec("bf16", (1, 2, 4, 4)),), 2e-2),
    Case(LpPool((2, 2), p=2), (PLANE,), 1e-5),
    Case(LpPool((3, 3), p=3, **TWOS, **ONES), (PLANE,), 1e-5),
    Case(GlobalAveragePool(), (PLANE,), 1e-6),
    Case(GlobalMaxPool(), (PLANE,)),
    Case(GlobalLpPool(p=2), (PLANE,), 1e-5),
]
