"""Quantization, and products of quantized operands."""

from irc.ir.types import dtype
from irc.ops.quantize import DequantizeLinear, DynamicQuantizeLinear, QuantizeLinear
from irc.ops.quantized_products import ConvInteger, MatMulInteger, QLinearConv, QLinearMatMul
from tests.ops.cases import Case, Spec

INTEGERS = ("u8", "i8", "u16", "i16", "u4", "i4", "u2", "i2")
NARROW = ("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f4e2m1")
HALVES = (-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e9, -1e9, float("inf"), float("-inf"), float("nan"), 126.5)


def f32(*shape: int, low: float = -9, high: float = 9) -> Spec:
    return Spec("f32", shape, low, high)


def scales(*shape: int, kind: str = "f32") -> Spec:
    return Spec(kind, shape, 0.1, 0.9)


def whole(kind: str, *shape: int) -> Spec:
    return Spec(kind, shape, -128 if kind == "i8" else 0, 127 if kind == "i8" else 255)


SCALE = Spec("f32", (), values=170.5)


CASES = [
    # one scale
    *(Case(QuantizeLinear(), (f32(3, 4), scales(), Spec(t, (), 0, 1))) for t in (*INTEGERS, *NARROW)),
    *(Case(QuantizeLinear(output_dtype=dtype(t)), (f32(3, 4), scales())) for t in (*INTEGERS, *NARROW)),
    *(
        Case(QuantizeLinear(), (Spec("f32", (12,), values=HALVES), Spec("f32", (), values=1.0), Spec(t, (), 3, 3)))
        for t in INTEGERS
    ),
    *(
        Case(
            QuantizeLinear(saturate=s),
            (Spec("f32", (12,), values=HALVES), Spec("f32", (1,), values=0.25), Spec(t, (1,), 0, 0)),
        )
        for t in NARROW[:4]
        for s in (True, False)
    ),
    Case(QuantizeLinear(), (f32(), scales(1))),
    Case(QuantizeLinear(), (f32(0, 3), scales(), Spec("i8", ()))),
    Case(QuantizeLinear(), (f32(2, 3), Spec("f32", (), values=0.0), Spec("i8", (), values=3))),
    Case(QuantizeLinear(), (Spec("i32", (5,), values=(-70001, -1, 0, 65, 70001)), Spec("f32", (), values=2.0))),
    Case(QuantizeLinear(), (Spec("i32", (5,), values=(-3, -1, 1, 3, 500)), Spec("i32", (), values=2), Spec("i8", ()))),
    *(
        Case(QuantizeLinear(), (Spec(t, (3, 4)), scales(kind=t), Spec("u16", (), values=65000)))
        for t in ("f16", "bf16")
    ),
    Case(QuantizeLinear(precision=dtype("f16")), (f32(3, 4), scales(), Spec("i8", ()))),
    Case(QuantizeLinear(precision=dtype("f32")), (Spec("f16", (3, 4)), scales(kind="f16"), Spec("i8", ()))),
    Case(QuantizeLinear(), (f32(3, 2), Spec("f8e8m0", (), 0.25, 2), Spec("i8", ()))),
    # a scale for each index of an axis, or each block of it
    *(
        Case(QuantizeLinear(axis=a), (f32(2, 3, 4), scales(n), Spec("u8", (n,), 0, 200)))
        for a, n in ((1, 3), (-1, 4), (0, 2), (-3, 2))
    ),
    *(
        Case(QuantizeLinear(axis=a, block_size=n), (f32(2, 5, 4), scales(*s), Spec("i4", s)))
        for a, n, s in ((1, 2, (2, 3, 4)), (-1, 2, (2, 5, 2)), (0, 2, (1, 5, 4)), (1, 4, (2, 2, 4)))
    ),
    Case(QuantizeLinear(axis=0, block_size=2), (f32(5), scales(3))),
    # back to floats
    *(Case(DequantizeLinear(), (Spec(t, (3, 4), -9, 9), scales(), Spec(t, (), 0, 1)), 1e-6) for t in INTEGERS),
    *(Case(DequantizeLinear(), (Spec(t, (3, 4), 0, 3), scales()), 1e-6) for t in (*INTEGERS, *NARROW, "i32")),
    Case(DequantizeLinear(), (Spec("f8e5m2", (3, 4), 0, 3), scales(), Spec("f8e5m2", (), values=0)), 1e-6),
    *(
        Case(DequantizeLinear(), (Spec("u16", (3, 4), 0, 65535), scales(kind=t), Spec("u16", (), values=65535)), 1e-2)
        for t in ("f16", "bf16")
    ),
    Case(DequantizeLinear(output_dtype=dtype("f16")), (Spec("i8", (3, 4), -99, 99), scales()), 1e-3),
    Case(DequantizeLinear(output_dtype=dtype("f32")), (Spec("i8", (3, 4)), Spec("f8e8m0", (), 0.25, 2)), 1e-6),
    *(
        Case(DequantizeLinear(axis=a), (Spec("u8", (2, 3, 4), 0, 255), scales(n), Spec("u8", (n,), 0, 200)), 1e-6)
        for a, n in ((1, 3), (-1, 4), (0, 2))
    ),
    *(
        Case(DequantizeLinear(axis=a, block_size=n), (Spec("i4", (2, 5, 4)), scales(*s), Spec("i4", s)), 1e-6)
        for a, n, s in ((1, 2, (2, 3, 4)), (-1, 2, (2, 5, 2)), (0, 2, (1, 5, 4)))
    ),
    Case(DequantizeLinear(), (Spec("i8", (0, 3)), scales())),
    # a scale from the data
    *(
        Case(DynamicQuantizeLinear(), (f32(*s, low=lo, high=hi),), 1e-6)
        for s, lo, hi in (((3, 4), -2, 5), ((9,), 1, 2), ((2, 3), -3, -1))
    ),
    Case(DynamicQuantizeLinear(), (Spec("f32", (2, 2), values=(0, 0, 0, 0)),)),
    # products
    *(
        Case(
            MatMulInteger(),
            (
                whole("u8", *a),
                whole("i8", *b),
                None if z is None else whole("u8", *z),
                None if w is None else whole("i8", *w),
            ),
        )
        for a, b, z, w in [
            ((3, 4), (4, 5), None, None),
            ((3, 4), (4, 5), (), ()),
            ((3, 4), (4, 5), (3,), (5,)),
            ((2, 3, 4), (4, 5), (2, 3, 1), (5,)),
            ((2, 3, 4), (2, 4, 5), (1,), (2, 1, 5)),
            ((4,), (4, 5), (), (5,)),
            ((3, 4), (4,), (3,), ()),
            ((2, 0), (0, 3), (), ()),
        ]
    ),
    *(
        Case(
            QLinearMatMul(),
            (whole(t, *a), scales(*z), whole(t, *z), whole("i8", *b), scales(*w), whole("i8", *w), SCALE, whole(t)),
        )
        for t in ("u8", "i8")
        for a, b, z, w in [((3, 4), (4, 5), (), ()), ((2, 3, 4), (4, 5), (2, 3, 1), (5,)), ((3, 4), (4,), (3,), (1,))]
    ),
    *(
        Case(
            ConvInteger(**fields),
            (whole("u8", 1, 4, 6, 5), whole("i8", 4, 4 // fields.get("group", 1), 3, 2), whole("u8"), whole("i8", *z)),
        )
        for fields in ({}, {"pads_begin": (1, 1), "pads_end": (1, 0), "strides": (2, 1)}, {"group": 2})
        for z in ((), (4,))
    ),
    *(
        Case(
            QLinearConv(pads_begin=(1, 0), pads_end=(1, 1)),
            (
                whole(t, 1, 2, 5, 5),
                scales(),
                whole(t),
                whole("i8", 3, 2, 3, 3),
                scales(*z),
                whole("i8", *z),
                SCALE,
                whole(t),
                *bias,
            ),
        )
        for t in ("u8", "i8")
        for z in ((), (3,))
        for bias in ((), (Spec("i32", (3,), -99, 99),))
    ),
]
