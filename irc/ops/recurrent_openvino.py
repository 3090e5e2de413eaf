"""OpenVINO's recurrent layers: batch first, one bias, gates in another order; sequences and single steps.

X [batch, steps, input]; states [batch, directions, hidden]; Y [batch, directions, steps, hidden]; LSTM gates
f, i, c, o.  Cells have neither steps nor directions.  Each is ONNX's layer (`irc.ops.recurrent`) with its
operands brought into that layout.  Source: OpenVINO specification, "Sequence processing".
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as shape_codes
from irc.ir.graph import Value
from irc.ir.literal import AttributeValue
from irc.ir.relation import same
from irc.ir.types import FLOATS_BF16, INTEGERS, i32
from irc.opdef.base import Op, op, op_base
from irc.opdef.builder import Builder, with_fields
from irc.opdef.codecs import Bool, Codec, Enum, Float, Floats, Int, Strs
from irc.opdef.forms import Declined, Form, Results
from irc.opdef.precision import narrowed, widened
from irc.opdef.signature import Sig
from irc.ops.recurrent import DIRECTIONS, FICO, GRU, IOFC, LSTM, RNN, Recurrent, gate_order, reordered
from irc.ops.recurrent_steps import FUNCTIONS

Values = tuple[Value, ...]
LSTM_NAMES, GRU_NAMES, RNN_NAMES = ("sigmoid", "tanh", "tanh"), ("sigmoid", "tanh"), ("tanh",)


def both_biases(b: Builder, bias: Value, linear_before_reset: bool) -> Value:
    """ONNX's pair of biases: OpenVINO's one is their sum, except in the last gate of a GRU with its own."""
    if not linear_before_reset:
        zeros = b.Mul(bias, b.like(0.0, bias))
        if bias.array is not None:
            zeros = b.const(np.zeros(bias.array.shape), bias.dtype)
        return b.Concat(bias, zeros, axis=1)
    hidden = bias.shape[1] // 4
    first = b.Slice(bias, [0], b.dims([hidden * 3]), [1])
    zeros = b.Expand(b.like(0.0, bias), b.dims([bias.shape[0], hidden * 2]))
    return b.Concat(first, zeros, b.Slice(bias, b.dims([hidden * 3]), b.dims([hidden * 4]), [1]), axis=1)


# -------------------------------------------------------------------------------------- sequences
ATTRIBUTES: dict[str, Codec] = {
    "activations": Strs(()),
    "activations_alpha": Floats((), silent=True),
    "activations_beta": Floats((), silent=True),
    "clip": Float(0.0),
}


@op_base
class OpenVinoRecurrent(Op):
    """What sequences and cells share; `activations` are OpenVINO's names, for one direction."""

    hidden_size: int = 0
    direction: str = "forward"
    activations: tuple[str, ...] = ()
    activations_alpha: tuple[float, ...] = ()
    activations_beta: tuple[float, ...] = ()
    clip: float = 0.0
    layer: ClassVar[type[Recurrent]] = RNN

    def fields(self) -> dict[str, AttributeValue]:
        """The attributes of ONNX's layer."""
        times = 2 if self.direction == "bidirectional" else 1
        found: dict[str, AttributeValue] = {
            "hidden_size": self.hidden_size,
            "direction": self.direction,
            "clip": self.clip,
            "activation_alpha": self.activations_alpha * times,
            "activation_beta": self.activations_beta * times,
        }
        known = {name.lower(): name for name in FUNCTIONS}
        names = tuple(known.get(name.lower(), name) for name in self.activations)
        if names and names != self.layer.usual:
            found["activations"] = names * times
        return found

    def sequence(
        self, b: Builder, x: Value, states: list[Value], lengths: Value | None, w: Value, r: Value, bias: Value | None
    ) -> Values:
        """The results in OpenVINO's layout."""
        fields = self.fields()
        reset = getattr(self, "linear_before_reset", False)
        if bias is not None:
            have, want = bias.shape[1], r.shape[2] * (self.layer.gates + bool(reset))
            what = "elements of B and gates · hidden size"
            require(same(have, want), shape_codes.SIZES_DIFFER, op=self.name, what=what, a=have, b=want)
        if self.layer is GRU:
            fields["linear_before_reset"] = reset
        pair = bias
        if self.layer is LSTM:
            fields["input_forget"] = getattr(self, "input_forget", False)
            order = gate_order(FICO, IOFC)
            w, r = reordered(b, w, 1, order), reordered(b, r, 1, order)
            pair = None if bias is None else reordered(b, bias, 1, order)
        pair = None if pair is None else both_biases(b, pair, reset)
        if lengths is not None and lengths.dtype != i32:
            lengths = b.Cast(lengths, to=i32)
        firsts = [b.Transpose(v, [1, 0, 2]) for v in states]
        y, *rest = b.add_all(
            with_fields(self.layer(), **fields), b.Transpose(x, [1, 0, 2]), w, r, pair, lengths, *firsts
        )
        return b.Transpose(y, [2, 1, 0, 3]), *(b.Transpose(v, [1, 0, 2]) for v in rest)


SEQUENCE_ATTRIBUTES: dict[str, Codec] = {
    **ATTRIBUTES,
    "direction": Enum(DIRECTIONS, assumed="forward"),
    "hidden_size": Int(assumed=0),
}
SEQUENCE_SIG = Sig(
    "x: T[3], h: T[3], lengths: I[1], w: T[3], r: T[3], b: T[2] -> y: T, y_h: T", T=FLOATS_BF16, I=INTEGERS
)


@op
class LSTMSequence(OpenVinoRecurrent):
    """LSTM over a sequence, batch first."""

    activations: tuple[str, ...] = LSTM_NAMES
    layer: ClassVar[type[Recurrent]] = LSTM
    sig = Sig(
        "x: T[3], h: T[3], c: T[3], lengths: I[1], w: T[3], r: T[3], b: T[2] -> y: T, y_h: T, y_c: T",
        T=FLOATS_BF16,
        I=INTEGERS,
    )

    def decompose(
        self, b: Builder, x: Value, h: Value, c: Value, lengths: Value, w: Value, r: Value, bias: Value
    ) -> Values:
        return self.sequence(b, x, [h, c], lengths, w, r, bias)

    openvino = (
        Form(
            "LSTMSequence",
            5,
            attrs={**SEQUENCE_ATTRIBUTES, "activations": Strs(LSTM_NAMES)},
            T={"T": FLOATS_BF16, "I": INTEGERS},
        ),
    )


@op
class GRUSequence(OpenVinoRecurrent):
    """GRU over a sequence, batch first."""

    linear_before_reset: bool = False
    activations: tuple[str, ...] = GRU_NAMES
    layer: ClassVar[type[Recurrent]] = GRU
    sig = SEQUENCE_SIG

    def decompose(self, b: Builder, x: Value, h: Value, lengths: Value, w: Value, r: Value, bias: Value) -> Values:
        return self.sequence(b, x, [h], lengths, w, r, bias)

    openvino = (
        Form(
            "GRUSequence",
            5,
            T={"T": FLOATS_BF16, "I": INTEGERS},
            attrs={**SEQUENCE_ATTRIBUTES, "activations": Strs(GRU_NAMES), "linear_before_reset": Bool(False)},
        ),
    )


@op
class RNNSequence(OpenVinoRecurrent):
    """RNN over a sequence, batch first."""

    activations: tuple[str, ...] = RNN_NAMES
    sig = SEQUENCE_SIG

    def decompose(self, b: Builder, x: Value, h: Value, lengths: Value, w: Value, r: Value, bias: Value) -> Values:
        return self.sequence(b, x, [h], lengths, w, r, bias)

    openvino = (
        Form(
            "RNNSequence",
            5,
            attrs={**SEQUENCE_ATTRIBUTES, "activations": Strs(RNN_NAMES)},
            T={"T": FLOATS_BF16, "I": INTEGERS},
        ),
    )


# ------------------------------------------------------------------------------------------ cells
CELL_ATTRIBUTES: dict[str, Codec] = {**ATTRIBUTES, "hidden_size": Int(assumed=0)}
CELL_SIG = Sig("x: T[2], h: T[2], w: T[2], r: T[2], b?: T[1] -> y: T", T=FLOATS_BF16)


class Cell(OpenVinoRecurrent):
    """One step: a sequence of one."""

    def step(self, b: Builder, x: Value, states: list[Value], w: Value, r: Value, bias: Value | None) -> Values:
        first = [b.Unsqueeze(v, [1]) for v in (x, *states)]
        w, r = b.Unsqueeze(w, [0]), b.Unsqueeze(r, [0])
        bias = None if bias is None else b.Unsqueeze(bias, [0])
        _, *found = self.sequence(b, first[0], first[1:], None, w, r, bias)
        results = [b.Squeeze(v, [1]) for v in found]
        return tuple(results)


def write_coupled(
    b: Builder, op: LSTMCell, x: Value, h: Value, c: Value, w: Value, r: Value, bias: Value | None = None
) -> Results:
    """A cell with coupled gates (f = 1 - i), which LSTMCell-4 lacks, in simple operations."""
    known = {"sigmoid": b.Sigmoid, "tanh": b.Tanh, "relu": b.Relu}
    names = [name.lower() for name in op.activations]
    if not op.input_forget or len(names) != 3 or not set(names) <= set(known):
        raise Declined
    at, of, out = (known[name] for name in names)
    like = x
    x, h, c, w, r = (widened(b, v) for v in (x, h, c, w, r))
    gates = b.Add(b.MatMul(x, b.Transpose(w, [1, 0])), b.MatMul(h, b.Transpose(r, [1, 0])))
    if bias is not None:
        gates = b.Add(gates, widened(b, bias))
    if op.clip:
        gates = b.Clip(gates, b.like(-op.clip, x), b.like(op.clip, x))
    size = r.shape[1]
    i, fresh, o = (b.Slice(gates, b.dims([size * k]), b.dims([size * (k + 1)]), [1]) for k in (1, 2, 3))
    i = at(i)
    cell = b.Add(b.Mul(b.Sub(b.like(1.0, x), i), c), b.Mul(i, of(fresh)))
    return narrowed(b, b.Mul(at(o), out(cell)), like), narrowed(b, cell, like)


@op
class LSTMCell(Cell):
    """One step of an LSTM.  Opset 1 can name another order of gates, which the CPU plugin ignores."""

    input_forget: bool = False
    activations: tuple[str, ...] = LSTM_NAMES
    layer: ClassVar[type[Recurrent]] = LSTM
    sig = Sig("x: T[2], h: T[2], c: T[2], w: T[2], r: T[2], b?: T[1] -> y: T, y_c: T", T=FLOATS_BF16)

    def decompose(
        self, b: Builder, x: Value, h: Value, c: Value, w: Value, r: Value, bias: Value | None = None
    ) -> Values:
        return self.step(b, x, [h, c], w, r, bias)

    openvino = (
        Form(
            "LSTMCell",
            1,
            T=FLOATS_BF16,
            last=3,
            attrs={
                **ATTRIBUTES,
                "activations": Strs(LSTM_NAMES, least=1),
                "hidden_size": Int(lo=1),
                "input_forget": Bool(False),
                "weights_format": Enum(["fico", "icof", "ifco", "ifoc", "iofc"], "ifco"),
            },
        ),
        Form(
            "LSTMCell",
            4,
            T=FLOATS_BF16,
            attrs={**CELL_ATTRIBUTES, "activations": Strs(LSTM_NAMES, least=1)},
            write=write_coupled,
        ),
    )


@op
class GRUCell(Cell):
    """One step of a GRU."""

    linear_before_reset: bool = False
    activations: tuple[str, ...] = GRU_NAMES
    layer: ClassVar[type[Recurrent]] = GRU
    sig = CELL_SIG

    def decompose(self, b: Builder, x: Value, h: Value, w: Value, r: Value, bias: Value | None = None) -> Values:
        return self.step(b, x, [h], w, r, bias)

    openvino = (
        Form(
            "GRUCell",
            3,
            T=FLOATS_BF16,
            attrs={**CELL_ATTRIBUTES, "activations": Strs(GRU_NAMES, least=1), "linear_before_reset": Bool(False)},
        ),
    )


@op
class RNNCell(Cell):
    """One step of an RNN."""

    activations: tuple[str, ...] = RNN_NAMES
    sig = CELL_SIG

    def decompose(self, b: Builder, x: Value, h: Value, w: Value, r: Value, bias: Value | None = None) -> Values:
        return self.step(b, x, [h], w, r, bias)

    openvino = (
        Form(
            "RNNCell",
            1,
            T=FLOATS_BF16,
            attrs={**ATTRIBUTES, "activations": Strs(RNN_NAMES, least=1), "hidden_size": Int(0)},
        ),
    )
