"""LSTM, GRU, RNN, and OpenVINO's sequences and cells."""

from typing import Any

from irc.opdef.base import Op
from irc.ops.recurrent import GRU, LSTM, RNN
from irc.ops.recurrent_openvino import GRUCell, GRUSequence, LSTMCell, LSTMSequence, RNNCell, RNNSequence
from tests.ops.cases import Case, Spec

STEPS, BATCH, SIZE, HIDDEN = 5, 3, 4, 6
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
LIMITS = {"f32": 3e-6, "f64": 1e-12, "f16": 4e-3, "bf16": 4e-2}


def lengths(*values: int, dtype: str = "i32") -> Spec:
    return Spec(dtype, (len(values),), values=values)


def layer(op: Op, *optional: str, dtype: str = "f32", hidden: int = HIDDEN, const: bool = True) -> Case:
    """ONNX's layer; `optional` are the operands that are present besides X, W, R."""
    d = 2 if getattr(op, "direction") == "bidirectional" else 1  # noqa: B009
    g = GATES[op.name]
    specs = {
        "b": Spec(dtype, (d, 2 * g * hidden), -1, 1, const=const),
        "n": lengths(5, 2, 0),
        "h": Spec(dtype, (d, BATCH, hidden), -1, 1),
        "c": Spec(dtype, (d, BATCH, hidden), -1, 1),
        "p": Spec(dtype, (d, 3 * hidden), -1, 1, const=const),
    }
    order = "bnhcp" if op.name == "LSTM" else "bnh"
    given: list[Spec | None] = [
        Spec(dtype, (STEPS, BATCH, SIZE)),
        Spec(dtype, (d, g * hidden, SIZE), -1, 1, const=const),
        Spec(dtype, (d, g * hidden, hidden), -1, 1, const=const),
        *(specs[k] if k in optional else None for k in order),
    ]
    while given[-1] is None:
        given.pop()
    return Case(op, tuple(given), LIMITS[dtype])


def sequence(op: Op, bias_gates: int | None = None, dtype: str = "f32", steps: bool = True) -> Case:
    """OpenVINO's sequence or (steps=False) cell."""
    d = 2 if getattr(op, "direction", "") == "bidirectional" else 1
    g = GATES[op.name[: -len("Sequence" if steps else "Cell")]]
    lead = (d,) if steps else ()
    state = Spec(dtype, (BATCH, *lead, HIDDEN), -1, 1)
    given = [
        Spec(dtype, (BATCH, STEPS, SIZE) if steps else (BATCH, SIZE)),
        *[state] * (2 if g == 4 else 1),
        *([lengths(5, 5, 2, dtype="i64")] if steps else []),
        Spec(dtype, (*lead, g * HIDDEN, SIZE), -1, 1, const=True),
        Spec(dtype, (*lead, g * HIDDEN, HIDDEN), -1, 1, const=True),
        Spec(dtype, (*lead, (bias_gates or g) * HIDDEN), -1, 1, const=True),
    ]
    return Case(op, tuple(given), LIMITS[dtype])


def of(cls: Any, **fields: Any) -> Any:
    return cls(hidden_size=HIDDEN, **fields)


DIRECTIONS = ("forward", "reverse", "bidirectional")
CASES = [
    *(layer(of(cls, direction=d)) for cls in (LSTM, GRU, RNN) for d in DIRECTIONS),
    *(layer(of(cls, direction=d), *"bnhc") for cls in (LSTM, GRU, RNN) for d in DIRECTIONS),
    *(layer(of(LSTM, direction=d), *"bhcp") for d in DIRECTIONS),
    layer(of(LSTM, input_forget=True, clip=0.5), "b"),
    layer(of(GRU, linear_before_reset=True), "b"),
    layer(of(GRU, linear_before_reset=True, direction="bidirectional"), *"bnh"),
    layer(of(GRU, linear_before_reset=True)),
    layer(LSTM(hidden_size=5), "b", hidden=5),
    layer(LSTM(hidden_size=3), *"bnhc", hidden=3, const=False),
    layer(GRU(hidden_size=5), "b", hidden=5, const=False),
    layer(of(RNN, activations=("Relu",)), "b"),
    layer(of(RNN, activations=("Relu", "Tanh"), direction="bidirectional"), "b"),
    *(
        layer(of(RNN, activations=(name,)), "b")
        for name in ("Affine", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Elu", "Softsign", "Softplus", "Sigmoid")
    ),
    layer(
        of(
            LSTM,
            activations=("HardSigmoid", "ScaledTanh", "Affine"),
            activation_alpha=(0.3, 1.5, 0.5),
            activation_beta=(0.4, 0.75, 0.125),
        ),
        "b",
    ),
    *(layer(of(cls), *"bh", dtype=t) for cls in (LSTM, GRU, RNN) for t in ("f64", "f16", "bf16")),
    *(sequence(of(cls, direction=d)) for cls in (LSTMSequence, GRUSequence, RNNSequence) for d in DIRECTIONS),
    sequence(of(GRUSequence, linear_before_reset=True), 4),
    sequence(of(LSTMSequence, activations=("sigmoid", "relu", "tanh"), clip=0.75)),
    sequence(of(LSTMSequence), dtype="f16"),
    *(sequence(of(cls), steps=False) for cls in (LSTMCell, GRUCell, RNNCell)),
    *(layer(of(cls, clip=0.25), "b") for cls in (LSTM, GRU, RNN)),
    sequence(of(LSTMCell, input_forget=True), steps=False),
    sequence(of(GRUCell, linear_before_reset=True), 4, steps=False),
    sequence(of(RNNCell, activations=("relu",)), steps=False),
]
