"""FakeQuantize and FakeConvert: levels, limits for each channel, limits the wrong way round, all types."""

from irc.ir.types import f8e4m3fn, f8e5m2
from irc.ops.fake_quantize import FakeConvert, FakeQuantize
from tests.ops.cases import Case, Spec


def limits(*values: float, dtype: str = "f32") -> tuple[Spec, ...]:
    return tuple(Spec(dtype, (), values=v, const=True) for v in values)


CHANNELS = [Spec("f32", (1, 3, 1), low, high) for low, high in ((-1.5, -0.5), (0.5, 1.5), (-2, -1), (1, 2))]
CASES = [
    *(Case(FakeQuantize(levels=n), (Spec("f32", (2, 3, 4)), *limits(-1, 1.5, -2, 3)), 1e-6) for n in (2, 16, 255, 256)),
    Case(FakeQuantize(levels=16), (Spec("f32", (2, 3, 4)), *CHANNELS), 1e-6),
    Case(FakeQuantize(levels=8), (Spec("f32", (20,)), *limits(1, -1, 2, -1)), 1e-6),
    Case(FakeQuantize(levels=4), (Spec("f32", (20,)), *limits(0.5, 0.5, -1, 1)), 1e-6),
    *(Case(FakeQuantize(levels=9), (Spec(t, (20,)), *limits(-1, 1, 0, 3, dtype=t)), 1e-2) for t in ("f16", "bf16")),
    Case(FakeQuantize(levels=9), (Spec("f64", (20,)), *limits(-1, 1, 0, 3, dtype="f64")), 1e-12),
    *(
        Case(FakeConvert(destination_type=t), (Spec("f32", (3, 40), -900, 900), *limits(0.7)), 1e-6)
        for t in (f8e4m3fn, f8e5m2)
    ),
    Case(FakeConvert(), (Spec("f32", (3, 4)), Spec("f32", (3, 1), 1, 2), Spec("f32", (3, 1))), 1e-6),
    Case(FakeConvert(destination_type=f8e5m2), (Spec("f16", (3, 4)), *limits(2, 0.5, dtype="f16")), 1e-3),
]
