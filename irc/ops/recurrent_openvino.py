"""OpenVINO's recurrent layers: batch first, one bias, gates in another order; sequences and single steps.

X [batch, steps, input]; states [batch, directions, hidden]; Y [batch, directions, steps, hidden]; LSTM gates
f, i, c, o.  Cells have neither steps nor directions.  Each is ONNX's layer (`irc.ops.recurrent`) with its
operands brought into that layout.  Source: OpenVINO specification, "Sequence processing".
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from irc.diagnostics import Problem, require
from irc.diagnostics.codes import conversion as conversion_codes, shape as shape_codes
from irc.ir.graph import Value
from irc.ir.relation import same
from irc.ir.types import FLOATS_BF16, INTEGERS, i32
from irc.opdef.base import Op, op
from irc.opdef.codecs import Bool, Codec, Enum, Float, Floats, Int, Strs
from irc.opdef.forms import Declined, Form
from irc.opdef.precision import narrowed, widened
from irc.opdef.signature import Sig
from irc.ops.recurrent import DIRECTIONS, GRU, LSTM, RNN, Recurrent
from irc.ops.recurrent_steps import FUNCTIONS

LSTM_NAMES, GRU_NAMES, RNN_NAMES = ("sigmoid", "tanh", "tanh"), ("sigmoid", "tanh"), ("tanh",)
FICO = "fico"
IOFC = "iofc"


def reordered(b: Any, v: Value, axis: int, order: list[int]) -> Value:
    """The equal parts of an axis in another order."""
    size = v.shape[axis]
    part = size // len(order)
    if v.array is not None:
        parts = np.split(np.asarray(v.array), len(order), axis=axis)
        return b.const(np.concatenate([parts[k] for k in order], axis=axis), v.dtype)
    slices = [b.Slice(v, b.dims([part * k]), b.dims([part * (k + 1)]), [axis]) for k in order]
    return b.Concat(*slices, axis=axis)


def gate_order(have: str, want: str) -> list[int]:
    return [have.index(g) for g in want]


def both_biases(b: Any, bias: Value, linear_before_reset: bool) -> Value:
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


def one_bias(b: Any, op: Any, bias: Value | None, w: Value) -> Value:
    """OpenVINO's bias from ONNX's pair."""
    if bias is None:
        extra = 1 if getattr(op, "linear_before_reset", False) else 0
        size = w.shape[1] // op.gates * (op.gates + extra)
        shape = [w.shape[0], size]
        if all(d.is_const for d in shape):
            return b.const(np.zeros([int(d) for d in shape]), w.dtype)
        return b.Expand(b.like(0.0, w), b.dims(shape))
    half = bias.shape[1] // 2
    first, second = b.Slice(bias, [0], b.dims([half]), [1]), b.Slice(bias, b.dims([half]), b.dims([half * 2]), [1])
    total = b.Add(first, second)
    if not getattr(op, "linear_before_reset", False):
        return total
    two, three = b.dims([half // 3 * 2]), b.dims([half])
    parts = [b.Slice(total, [0], two, [1]), b.Slice(first, two, three, [1]), b.Slice(second, two, three, [1])]
    return b.Concat(*parts, axis=1)


# ---------------------------------------------------------------------------------------- writing
def write_sequence(b: Any, op: Any, *given: Value | None) -> Any:
    """ONNX's layer as OpenVINO's sequence.  Peepholes and coupled gates have no equivalent."""
    x, w, r, bias, lengths, h, c, p = (*given, *[None] * (8 - len(given)))
    assert x is not None and w is not None and r is not None
    kinds = op.functions()
    types = ", ".join(str(v.type) for v in given if v is not None)
    if p is not None or getattr(op, "input_forget", False) or len(set(kinds)) > 1:
        raise Problem(conversion_codes.CANNOT_EXPRESS, op=str(op), types=types, target="OpenVINO")
    allowed = {"sigmoid", "tanh", "relu"}
    names = tuple(name.lower() for name, _, _ in kinds[0])
    if not set(names) <= allowed:
        raise Problem(conversion_codes.CANNOT_EXPRESS, op=str(op), types=types, target="OpenVINO")
    steps, batch, _ = x.shape
    states = [_state(b, v, x, r, op.directions) for v in ((h, c) if op.name == "LSTM" else (h,))]
    if lengths is None:
        lengths = b.Expand(b.Reshape(b.Cast(b.dims([steps]), to=i32), [1]), b.dims([batch]))
    one = one_bias(b, op, bias, w)
    if op.name == "LSTM":
        order = gate_order(IOFC, FICO)
        w, r, one = (reordered(b, v, 1, order) for v in (w, r, one))
    cls: type[Any] = {"LSTM": LSTMSequence, "GRU": GRUSequence, "RNN": RNNSequence}[op.name]
    fields: dict[str, Any] = {
        "hidden_size": int(r.shape[2]),
        "direction": op.direction,
        "clip": op.clip,
        "activations": names,
    }
    if op.name == "GRU":
        fields["linear_before_reset"] = op.linear_before_reset
    y, *rest = b.add_all(cls(**fields), b.Transpose(x, [1, 0, 2]), *states, lengths, w, r, one)
    return b.Transpose(y, [2, 1, 0, 3]), *(b.Transpose(v, [1, 0, 2]) for v in rest)


def _state(b: Any, v: Value | None, x: Value, r: Value, directions: int) -> Value:
    if v is not None:
        return b.Transpose(v, [1, 0, 2])
    return b.Expand(b.like(0.0, x), b.dims([x.shape[1], directions, r.shape[2]]))


# -------------------------------------------------------------------------------------- sequences
ATTRIBUTES: dict[str, Codec] = {
    "activations": Strs(()),
    "activations_alpha": Floats((), silent=True),
    "activations_beta": Floats((), silent=True),
    "clip": Float(0.0),
}


@dataclasses.dataclass(frozen=True, repr=False)
class OpenVinoRecurrent(Op):
    """What sequences and cells share; `activations` are OpenVINO's names, for one direction."""

    hidden_size: int = 0
    direction: str = "forward"
    activations: tuple[str, ...] = ()
    activations_alpha: tuple[float, ...] = ()
    activations_beta: tuple[float, ...] = ()
    clip: float = 0.0
    layer: ClassVar[type[Recurrent]] = RNN

    def fields(self) -> dict[str, Any]:
        """The attributes of ONNX's layer."""
        times = 2 if self.direction == "bidirectional" else 1
        found: dict[str, Any] = {
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
        self, b: Any, x: Value, states: list[Value], lengths: Value | None, w: Value, r: Value, bias: Value | None
    ) -> Any:
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
        y, *rest = b.add_all(self.layer(**fields), b.Transpose(x, [1, 0, 2]), w, r, pair, lengths, *firsts)
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

    def decompose(self, b: Any, x: Value, h: Value, c: Value, lengths: Value, w: Value, r: Value, bias: Value) -> Any:
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

    def decompose(self, b: Any, x: Value, h: Value, lengths: Value, w: Value, r: Value, bias: Value) -> Any:
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

    def decompose(self, b: Any, x: Value, h: Value, lengths: Value, w: Value, r: Value, bias: Value) -> Any:
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

    def step(self, b: Any, x: Value, states: list[Value], w: Value, r: Value, bias: Value | None) -> Any:
        first = [b.Unsqueeze(v, [1]) for v in (x, *states)]
        w, r = b.Unsqueeze(w, [0]), b.Unsqueeze(r, [0])
        bias = None if bias is None else b.Unsqueeze(bias, [0])
        _, *found = self.sequence(b, first[0], first[1:], None, w, r, bias)
        results = [b.Squeeze(v, [1]) for v in found]
        return tuple(results) if len(results) > 1 else results[0]


def write_coupled(b: Any, op: Any, x: Value, h: Value, c: Value, w: Value, r: Value, bias: Value | None = None) -> Any:
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

    def decompose(self, b: Any, x: Value, h: Value, c: Value, w: Value, r: Value, bias: Value | None = None) -> Any:
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

    def decompose(self, b: Any, x: Value, h: Value, w: Value, r: Value, bias: Value | None = None) -> Any:
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

    def decompose(self, b: Any, x: Value, h: Value, w: Value, r: Value, bias: Value | None = None) -> Any:
        return self.step(b, x, [h], w, r, bias)

    openvino = (
        Form(
            "RNNCell",
            1,
            T=FLOATS_BF16,
            attrs={**ATTRIBUTES, "activations": Strs(RNN_NAMES, least=1), "hidden_size": Int(0)},
        ),
    )
