"""Windows of signal processing."""

from irc.ir.types import f16, f32, f64, i32, u8
from irc.ops.signal_window import BlackmanWindow, HammingWindow, HannWindow
from tests.ops.cases import Case, Spec

WINDOWS = (HannWindow, HammingWindow, BlackmanWindow)

CASES = [
    *(
        Case(op(periodic=periodic), (Spec(t, (), values=n, const=True),), 1e-6, note=f"of {n}")
        for op in WINDOWS
        for periodic in (True, False)
        for t, n in (("i64", 10), ("i32", 7), ("i64", 0))
    ),
    *(
        Case(op(output_datatype=to), (Spec("i64", (1,), values=[9], const=True),), 1e-6, note=f"in {to}")
        for op in WINDOWS
        for to in (f32, f64, f16, i32, u8)
    ),
]
