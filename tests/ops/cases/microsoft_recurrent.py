"""Recurrent layers of com.microsoft."""

from irc.ops.recurrent_quantized import DynamicQuantizeLSTM
from tests.ops.cases import Case, Spec

STEPS, BATCH, SIZE, HIDDEN = 5, 3, 4, 6


def layer(op: DynamicQuantizeLSTM, *optional: str, kind: str = "i8", columns: bool = False, batch: int = BATCH) -> Case:
    """`optional` are the operands that are present besides the weights and what quantizes them."""
    d = 2 if op.direction == "bidirectional" else 1
    per = (d, 4 * HIDDEN) if columns else (d,)
    low, high = (-128, 127) if kind == "i8" else (0, 255)
    specs = {
        "b": Spec("f32", (d, 8 * HIDDEN), -1, 1, const=True),
        "n": Spec("i32", (batch,), values=(5, 2, 0)[:batch]),
        "m": Spec("i32", (batch,), values=(4, 2, 3)[:batch]),
        "h": Spec("f32", (d, batch, HIDDEN), -1, 1),
        "c": Spec("f32", (d, batch, HIDDEN), -1, 1),
        "p": Spec("f32", (d, 3 * HIDDEN), -1, 1, const=True),
    }
    given = [
        Spec("f32", (STEPS, batch, SIZE)),
        Spec(kind, (d, SIZE, 4 * HIDDEN), low, high, const=True),
        Spec(kind, (d, HIDDEN, 4 * HIDDEN), low, high, const=True),
        *(next((specs[k] for k in choice if k in optional), None) for choice in ("b", "nm", "h", "c", "p")),
    ]
    for _ in range(2):
        given += [Spec("f32", per, 0.002, 0.01, const=True), Spec(kind, per, high - 125, high - 125, const=True)]
    return Case(op, tuple(given), 2e-5)


CASES = [
    *(
        layer(DynamicQuantizeLSTM(hidden_size=HIDDEN, direction=d), *optional, kind=kind, columns=columns)
        for d in ("forward", "reverse", "bidirectional")
        for kind, columns in (("i8", False), ("u8", True))
        for optional in ("", "bhc", "bn", "bhcm")
    ),
    layer(DynamicQuantizeLSTM(hidden_size=HIDDEN), "b", "p", "h", batch=1),
    layer(DynamicQuantizeLSTM(hidden_size=HIDDEN, clip=0.5, input_forget=True), "b", "c"),
    layer(DynamicQuantizeLSTM(hidden_size=HIDDEN, activations=("HardSigmoid", "Softsign", "Relu")), "b", kind="u8"),
]
