"""STFT and MelWeightMatrix: windows, frame lengths, real and complex signals, operands of the run."""

from irc.ir.types import f16, f64, i32
from irc.ops.spectrogram import STFT, MelWeightMatrix
from tests.ops.cases import Case, Spec


def number(value: float, dtype: str = "i64", const: bool = True) -> Spec:
    return Spec(dtype, (), values=value, const=const)


X = Spec("f32", (2, 30, 1))
MEL = (number(8), number(16), number(8192), number(0, "f32"), number(4096, "f32"))
CASES = [
    Case(STFT(), (X, number(8), Spec("f32", (16,)), number(16)), 1e-5),
    Case(STFT(), (X, number(5), Spec("f32", (9,))), 1e-5),
    Case(STFT(onesided=False), (X, number(4, "i32"), None, number(10, "i32")), 1e-5),
    Case(STFT(onesided=False), (Spec("f32", (1, 12, 2)), number(3), None, number(6)), 1e-5),
    Case(STFT(), (Spec("f64", (1, 12, 1)), number(3)), 1e-10),
    Case(STFT(), (Spec("bf16", (1, 12, 1)), number(3), Spec("bf16", (6,))), 2e-1),
    Case(STFT(), (X, number(8, const=False), Spec("f32", (16,)), number(16)), 1e-5, "step of the run"),
    Case(STFT(), (X, number(7, const=False), None, number(11, const=False)), 1e-5, "both of the run"),
    Case(MelWeightMatrix(), MEL, 1e-6),
    *(Case(MelWeightMatrix(output_datatype=t), MEL, 1e-3) for t in (f16, f64, i32)),
    Case(MelWeightMatrix(), (number(20, "i32"), number(257, "i32"), number(16000, "i32"), *MEL[3:]), 1e-6),
    Case(MelWeightMatrix(), (number(5, const=False), number(64, const=False), *MEL[2:]), 1e-6, "of the run"),
]
