"""Quantized operators of com.microsoft.  Scales are powers of two where results are compared element by element."""

from irc.ops.microsoft_quantized import (
    DynamicQuantizeMatMul,
    MatMulIntegerToFloat,
    QGemm,
    QLinearAdd,
    QLinearAveragePool,
    QLinearConcat,
    QLinearGlobalAveragePool,
    QLinearLeakyRelu,
    QLinearMul,
    QLinearSigmoid,
    QLinearSoftmax,
    QLinearWhere,
)
from tests.ops.cases import ALONE, Case, Spec

KINDS = ("u8", "i8")


def whole(kind: str, *shape: int, const: bool = False) -> Spec:
    return Spec(kind, shape, -128 if kind == "i8" else 0, 127 if kind == "i8" else 255, const=const)


def unit(value: float) -> Spec:
    return Spec("f32", (), values=value)


def scales(*shape: int) -> Spec:
    return Spec("f32", shape, 0.01, 0.1)


def zero(kind: str, value: int = 5) -> Spec:
    return Spec(kind, (), values=value)


CASES = [
    *(
        Case(DynamicQuantizeMatMul(), (Spec("f32", a), whole(k, *w, const=c), *rest), 1e-5)
        for k in KINDS
        for a, w, c, rest in (
            ((3, 8), (8, 5), True, (scales(),)),
            ((2, 3, 8), (8, 5), False, (scales(5), whole(k, 5))),
            ((2, 3, 8), (8, 5), True, (scales(1), whole(k, 1), Spec("f32", (5,)))),
            ((3, 8), (8, 5), False, (scales(5), None, Spec("f32", (5,)))),
        )
    ),
    *(
        Case(MatMulIntegerToFloat(), (whole(a, *x), whole(w, *y), *rest), 1e-5, ALONE if (a, w) == ("i8", "u8") else "")
        for a in KINDS
        for w in KINDS
        for x, y, rest in (
            ((3, 8), (8, 5), (scales(), scales())),
            ((2, 3, 8), (2, 8, 5), (scales(), scales(), zero(a), zero(w))),
            ((2, 3, 8), (8, 5), (scales(1), scales(5), zero(a), whole(w, 5), Spec("f32", (5,)))),
        )
    ),
    *(
        Case(QGemm(), (whole(a, 4, 8), unit(0.25), zero(a), whole(w, 8, 6), unit(0.5), zero(w), *rest), 1e-5)
        for a, w in (("u8", "u8"), ("u8", "i8"), ("i8", "i8"))
        for rest in ((), (Spec("i32", (6,), -999, 999),), (Spec("i32", (4, 6), -99, 99), unit(64.0), zero(a)))
    ),
    Case(
        QGemm(alpha=0.5, transA=True, transB=True),
        (
            whole("u8", 8, 4),
            unit(0.25),
            zero("u8"),
            whole("i8", 6, 8),
            Spec("f32", (6,), 0.1, 0.9),
            Spec("i8", (6,), 0, 0),
        ),
        1e-5,
        "columns",
    ),
    Case(
        QGemm(transB=True),
        (
            *(whole("u8", 4, 8), unit(0.25), zero("u8")),
            *(whole("u8", 6, 8), Spec("f32", (6,), values=(0.5, 2, 1, 1, 4, 8)), Spec("u8", (6,), 9, 9)),
            *(None, unit(32.0), zero("u8", 128)),
        ),
    ),
    *(
        Case(op(), (whole(k, *x), unit(0.25), zero(k), whole(k, *y), unit(0.5), zero(k, 9), unit(c), zero(k, 100)))
        for op, c in ((QLinearAdd, 1.0), (QLinearMul, 64.0))
        for k in KINDS
        for x, y in (((2, 3, 5), (2, 3, 5)), ((2, 3, 5), (3, 1)), ((1,), (4, 5)), ((4, 33), (33,)))
    ),
    Case(QLinearAdd(), (whole("u8", 7), unit(0.5), None, whole("u8", 7), unit(0.5), None, unit(2.0)), 0, ALONE),
    Case(QLinearMul(), (whole("i8", 7), unit(0.5), None, whole("i8", 7), unit(0.5), None, unit(16.0)), 0, ALONE),
    *(
        Case(op, (whole(k, 3, 40), unit(x), zero(k), unit(y), zero(k, z)))
        for k in KINDS
        for op, x, y, z in (
            (QLinearSigmoid(), 0.05, 1 / 256, 0),
            (QLinearLeakyRelu(), 0.25, 0.5, 7),
            (QLinearLeakyRelu(alpha=0.25), 0.25, 0.5, 7),
        )
    ),
    Case(QLinearSigmoid(), (whole("u8", 3, 4), unit(0.05), None, unit(1 / 256)), 0, ALONE),
    *(
        Case(op, (whole(k, 3, 4, 5), unit(0.0625), zero(k), unit(1 / 256), zero(k, 0)))
        for k in KINDS
        for op in (QLinearSoftmax(), QLinearSoftmax(axis=1), QLinearSoftmax(axis=1, written_for=11))
    ),
    *(
        Case(
            QLinearConcat(axis=a),
            (unit(0.5), zero(k, 3), whole(k, *x), unit(0.25), zero(k, 1), whole(k, *y), unit(1.0), zero(k, 4)),
        )
        for k in KINDS
        for a, x, y in ((1, (2, 3, 4), (2, 1, 4)), (-1, (2, 3), (2, 5)))
    ),
    *(
        Case(
            QLinearWhere(),
            (Spec("bool", c), whole(k, *x), unit(0.25), zero(k), whole(k, *y), unit(0.5), zero(k), unit(1.0), zero(k)),
        )
        for k in KINDS
        for c, x, y in (((3, 4), (3, 4), (3, 4)), ((3, 1), (4,), (2, 3, 4)))
    ),
    *(
        Case(QLinearGlobalAveragePool(channels_last=last), (whole(k, *x), unit(0.5), zero(k), unit(0.25), zero(k)))
        for k in KINDS
        for last in (False, True)
        for x in ((2, 4, 4, 8), (1, 4, 2, 4))
    ),
    *(
        Case(op, (whole(k, *x), unit(0.5), zero(k), unit(0.25), zero(k, 2)))
        for k in KINDS
        for op, x in (
            (QLinearAveragePool(kernel=(2, 2)), (1, 3, 6, 8)),
            (QLinearAveragePool(kernel=(2, 2), strides=(2, 2), channels_last=True), (1, 6, 8, 3)),
            (QLinearAveragePool(kernel=(2, 4), pads_begin=(1, 1), pads_end=(1, 1)), (1, 3, 6, 8)),
            (QLinearAveragePool(kernel=(2, 2), pads_begin=(1, 1), pads_end=(1, 1), counted="padded"), (1, 3, 6, 8)),
            (QLinearAveragePool(kernel=(2, 2), strides=(2, 2), rounding="ceil_torch"), (1, 3, 5, 7)),
            (QLinearAveragePool(kernel=(2, 2), strides=(2, 2), auto_pad="same_upper"), (1, 3, 5, 7)),
        )
    ),
    Case(QLinearAveragePool(kernel=(4,)), (whole("u8", 1, 2, 9), unit(0.5), None, unit(0.25)), 0, ALONE),
]
