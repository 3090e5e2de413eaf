"""DFT and OpenVINO's transforms: lengths with small and large prime factors, cut and padded, both directions."""

from irc.ops.fourier import DFT, InverseRealTransform, RealTransform, Transform
from tests.ops.cases import Case, Spec

TOLERANCE = {"f32": 1e-5, "f64": 1e-10, "f16": 2e-2, "bf16": 2e-1}


def number(value: int, dtype: str = "i64", const: bool = True) -> Spec:
    return Spec(dtype, (), values=value, const=const)


def numbers(*values: int) -> Spec:
    return Spec("i64", (len(values),), values=values, const=True)


def case(op: DFT, shape: tuple[int, ...], *more: Spec | None, t: str = "f32", note: str = "") -> Case:
    return Case(op, (Spec(t, shape), *more), TOLERANCE[t], note)


def parts(op: DFT) -> int:
    """How many numbers an element has."""
    return 1 if op == DFT(onesided=True) else 2


KINDS = [DFT(), DFT(inverse=True), DFT(onesided=True), DFT(inverse=True, onesided=True)]
CASES = [
    *(case(op, (2, n, 2)) for op in (DFT(), DFT(inverse=True)) for n in (1, 2, 3, 4, 8, 11, 60)),
    *(case(op, (2, n, 1)) for op in (DFT(), DFT(onesided=True)) for n in (1, 5, 13, 16, 34)),
    *(case(DFT(inverse=True, onesided=True), (2, n, 2)) for n in (2, 3, 9)),
    *(case(op, (2, 6, 3, parts(op)), None, number(1)) for op in KINDS),
    *(case(op, (6, 3, parts(op)), number(n), number(-3)) for op in KINDS for n in (4, 9)),
    *(case(op, (2, 6, parts(op)), number(9, const=False), note="of the run") for op in KINDS),
    *(case(op, (2, 6, parts(op)), None, number(0, const=False), note="axis of the run") for op in KINDS),
    case(DFT(), (4, 6, 2), number(10, "i32", const=False), number(1, const=False), note="both of the run"),
    *(case(op, (3, 12, 2), t=t) for op in (DFT(), DFT(inverse=True)) for t in ("f64", "f16", "bf16")),
    case(DFT(), (0, 4, 2)),
    Case(DFT(), (Spec("f32", (1, 2100, 2)),), 1e-4, "more than a line on the stack"),  # sums are near 50
    *(
        Case(op, (Spec("f32", (4, 6, 5, 2)), *more), 1e-5)
        for op in (Transform(), Transform(inverse=True), InverseRealTransform())
        for more in [(numbers(1),), (numbers(0, 2),), (numbers(-1, 1), numbers(7, 4)), (numbers(2, 0), numbers(-1, 5))]
    ),
    *(
        Case(op, (Spec("f32", (4, 6, 2)), numbers(0, 1), Spec("i64", (2,), values=[-1, 7])), 1e-5, "sizes of the run")
        for op in (Transform(), InverseRealTransform())
    ),
    *(
        Case(RealTransform(), (Spec("f32", (4, 6, 5)), *more), 1e-5)
        for more in [(numbers(1),), (numbers(0, 2),), (numbers(-1, 1), numbers(7, 4)), (numbers(2, 0), numbers(-1, 5))]
    ),
]
