"""BitCast: every width, every kind of element type, NaN with a payload."""

from irc.ir.types import dtype
from irc.ops.bitcast import BitCast
from tests.ops.cases import Case, Spec

FLOATS_8 = ("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0")
PAIRS = [
    *((a, b) for a, b in (("i8", "u8"), ("i16", "u16"), ("i32", "u32"), ("i64", "u64"), ("i4", "u4"), ("i2", "u2"))),
    *((whole, real) for real in ("f16", "bf16") for whole in ("i16", "u16")),
    *((whole, "f32") for whole in ("i32", "u32")),
    *((whole, "f64") for whole in ("i64", "u64")),
    *((whole, real) for real in FLOATS_8 for whole in ("i8", "u8")),
    ("u4", "f4e2m1"),
    ("i4", "f4e2m1"),
    ("f16", "bf16"),
    ("f8e5m2", "f8e4m3fn"),
    ("bool", "u8"),
]
LOWS = {"i2": (-2, 1), "i4": (-8, 7), "u2": (0, 3), "u4": (0, 15)}


def operand(name: str) -> Spec:
    low, high = LOWS.get(name, (-100, 100))
    return Spec(name, (3, 5), low, high) if dtype(name).is_integer else Spec(name, (3, 5))


CASES = [
    *(Case(BitCast(to=dtype(b)), (operand(a),)) for a, b in PAIRS),
    *(Case(BitCast(to=dtype(a)), (operand(b),)) for a, b in PAIRS),
    Case(BitCast(to=dtype("u32")), (Spec("f32", (4,), values=[float("nan"), float("-inf"), -0.0, 1e-40]),)),
    Case(BitCast(to=dtype("u16")), (Spec("f16", (4,), values=[float("inf"), float("-inf"), -0.0, 6e-8]),)),
    Case(BitCast(to=dtype("u16")), (Spec("u16", (2, 0)),)),
    Case(BitCast(to=dtype("f32")), (Spec("f32", ()),)),
    Case(BitCast(to=dtype("f64")), (Spec("c64", (3,)),)),
]
