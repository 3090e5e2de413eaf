"""Recurrent layers in ONNX's layout: LSTM, GRU, RNN.

X [steps, batch, input]; W [directions, gates · hidden, input]; R [directions, gates · hidden, hidden];
B [directions, 2 · gates · hidden] (of W, then of R); states [directions, batch, hidden]; Y [steps, directions,
batch, hidden].  Gates: LSTM i, o, f, c; GRU z, r, h.  Layout 1 (batch first) is transposed at the border.
Narrow floats are computed in f32.  Sources: ONNX LSTM, GRU, RNN.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from irc.diagnostics import Problem, require
from irc.diagnostics.codes import conversion as conversion_codes, operation as codes, shape as shape_codes
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.literal import AttributeValue
from irc.ir.relation import same
from irc.ir.types import FLOATS, FLOATS_BF16, TensorType, bf16, i32
from irc.opdef.base import Op, op, op_base
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Codec, Enum, Float, Floats, Ignored, Int, Strs
from irc.opdef.forms import PREV, Attributes, Form, Read, Results
from irc.opdef.precision import narrowed, widened
from irc.opdef.registry import find_op
from irc.opdef.signature import Sig
from irc.ops.layout import reshaped
from irc.ops.recurrent_steps import FUNCTIONS, Activation, Direction, GRUSteps, LSTMSteps, RNNSteps

FICO = "fico"
IOFC = "iofc"
"""Orders of the gates of an LSTM: OpenVINO's, and ONNX's."""
DIRECTIONS = ["forward", "reverse", "bidirectional"]
RNN_ACTIVATIONS = ("Tanh", "Tanh")
GRU_1_DIRECTIONS = {"foward": "forward", **{d: d for d in DIRECTIONS}}
"""The schema of GRU-1 misspells its default."""


@op_base
class Recurrent(Op):
    """What the three share.  `activations` are names for each direction in turn; empty: the usual ones.

    `activation_alpha` and `activation_beta` are given out in order to the functions that have such a number.
    """

    hidden_size: int = 0
    direction: Direction = "forward"
    activations: tuple[str, ...] = ()
    activation_alpha: tuple[float, ...] = ()
    activation_beta: tuple[float, ...] = ()
    clip: float = 0.0
    gates: ClassVar[int] = 1
    usual: ClassVar[tuple[str, ...]] = ("Tanh",)

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def functions(self) -> tuple[tuple[Activation, ...], ...]:
        """The activations of each direction with their numbers."""
        names = self.activations or self.usual * self.directions
        known = {name.lower(): name for name in FUNCTIONS}
        alphas, betas = list(self.activation_alpha), list(self.activation_beta)
        found: list[Activation] = []
        for name in names:
            known_name = known.get(name.lower())
            choices = ", ".join(FUNCTIONS)
            require(
                known_name is not None,
                codes.BAD_ENUM,
                op=self.name,
                attribute="activations",
                text=name,
                choices=choices,
                guess="",
            )
            alpha, beta = FUNCTIONS[known_name or "Tanh"]
            if known_name in WITH_ALPHA and alphas:
                alpha = alphas.pop(0)
            if known_name in WITH_BETA and betas:
                beta = betas.pop(0)
            found.append((known_name or "Tanh", alpha, beta))
        n = len(self.usual)
        needed = n * self.directions
        if self.activations == RNN_ACTIVATIONS:  # the default names both directions, whether or not there are two
            found = found[:needed]
        require(
            len(found) == needed,
            codes.ATTRIBUTE_LENGTH,
            op=self.name,
            attribute="activations",
            given=len(found),
            needed=needed,
        )
        return tuple(tuple(found[i : i + n]) for i in range(0, len(found), n))

    def infer(self, x: Value, w: Value, r: Value, *rest: Value | None) -> list[TensorType]:
        self.functions()
        hidden = r.shape[2]
        wanted: list[tuple[str, Dim, Dim]] = [
            ("directions of W", w.shape[0], Dim.of(self.directions)),
            ("directions of R", r.shape[0], Dim.of(self.directions)),
            ("rows of W and gates · hidden size", w.shape[1], hidden * self.gates),
            ("rows of R and gates · hidden size", r.shape[1], hidden * self.gates),
            ("input size of X and of W", x.shape[2], w.shape[2]),
        ]
        if self.hidden_size:
            wanted.append(("hidden_size and columns of R", Dim.of(self.hidden_size), hidden))
        named = {p.name: v for p, v in zip(self.sig.inputs[3:], rest, strict=False) if v is not None}
        state = (Dim.of(self.directions), x.shape[1], hidden)
        shapes: dict[str, tuple[Dim, ...]] = {
            "b": (state[0], hidden * self.gates * 2),
            "lengths": (x.shape[1],),
            "h": state,
            "c": state,
            "p": (state[0], hidden * 3),
        }
        for name, v in named.items():
            pairs = zip(v.shape, shapes[name], strict=True) if v.rank is not None else ()
            wanted += [(f"axis {k} of {name} and what the others ask for", a, b) for k, (a, b) in enumerate(pairs)]
        for what, a, b in wanted:
            require(same(a, b), shape_codes.SIZES_DIFFER, op=self.name, what=what, a=a, b=b)
        states = [x.tensor.with_shape(state)] * (len(self.sig.outputs) - 1)
        return [x.tensor.with_shape((x.shape[0], self.directions, x.shape[1], hidden)), *states]

    def projected(self, b: Builder, x: Value, w: Value, bias: Value | None) -> Value:
        """x · Wᵀ + bias of all steps, gates and directions in one product: [steps, batch, directions, rows of W]."""
        steps, batch, size = x.shape
        directions, rows, _ = w.shape
        flat = b.Transpose(reshaped(b, w, [directions * rows, size]), [1, 0])
        y = b.MatMul(reshaped(b, x, [steps * batch, size]), flat)
        if bias is not None:
            y = b.Add(y, reshaped(b, bias, [directions * rows]))
        return reshaped(b, y, [steps, batch, directions, rows])


WITH_ALPHA = frozenset({"Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"})
WITH_BETA = frozenset({"Affine", "ScaledTanh", "HardSigmoid"})


def halves(b: Builder, bias: Value | None) -> tuple[Value, Value] | None:
    """The biases of W and of R."""
    if bias is None:
        return None
    half = bias.shape[1] // 2
    return b.Slice(bias, [0], b.dims([half]), [1]), b.Slice(bias, b.dims([half]), b.dims([half * 2]), [1])


def summed(b: Builder, bias: Value | None) -> Value | None:
    """The bias of W plus that of R."""
    both = halves(b, bias)
    return None if both is None else b.Add(*both)


def wide_operands(b: Builder, *operands: Value | None) -> list[Value | None]:
    return [None if v is None else widened(b, v) for v in operands]


def narrow_results(b: Builder, results: Sequence[Value], like: Value) -> tuple[Value, ...]:
    return tuple(narrowed(b, v, like) for v in results)


# ---------------------------------------------------------------------------------------- reading
def swap(b: Builder, v: Value | None) -> Value | None:
    """Batch first to second, or back."""
    return None if v is None else b.Transpose(v, [1, 0, 2])


def reader(cls: type[Recurrent], states: Sequence[int]) -> Read:
    """`read` of a layer whose operands at `states` are initial states."""

    def read(b: Builder, a: Attributes, *operands: Value | None) -> Results:
        names = {f.name for f in dataclasses.fields(cls)}
        fields = {k: v for k, v in vars(a).items() if k in names and v is not None}
        r = operands[2]
        if not fields.get("hidden_size") and r is not None and r.rank == 3 and r.shape[2].is_const:
            fields["hidden_size"] = int(r.shape[2])
        made = cls(**fields)
        if not getattr(a, "layout", 0):
            return b.add_all(made, *operands)
        given = [swap(b, v) if i == 0 or i in states else v for i, v in enumerate(operands)]
        y, *rest = b.add_all(made, *given)
        return b.Transpose(y, [2, 0, 1, 3]), *(b.Transpose(v, [1, 0, 2]) for v in rest)

    return read


def attributes(opset: int, **more: Codec) -> dict[str, Codec]:
    """The attributes of all three in that opset."""
    found: dict[str, Codec] = {
        "activation_alpha": Floats(()),
        "activation_beta": Floats(()),
        "activations": Strs(()),
        "clip": Float(0.0),
        "direction": Enum(DIRECTIONS, "forward"),
        "hidden_size": Int(0),
        **more,
    }
    if opset < 7:
        found["output_sequence"] = Ignored(0)
    if opset >= 14:
        found["layout"] = Int(0, lo=0, hi=1)
    return found


def rows(name: str, sig: Sig, read: Read, opsets: Sequence[int], **more: Codec) -> tuple[Form, ...]:
    """A row an opset: they differ in `output_sequence`, `layout` and bf16."""
    found: list[Form] = []
    for k, opset in enumerate(opsets):
        types = {"T": PREV | {bf16}} if opset == 22 else {"T": FLOATS, "I": {i32}}
        row = Form(name, opset, attrs=attributes(opset, **more), T=types)
        found.append(replace(row, sig=sig, read=read, direct=True) if k == 0 else row)
    return tuple(found)


def reordered(b: Builder, v: Value, axis: int, order: list[int]) -> Value:
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


# ---------------------------------------------------------------------------------------- writing
def one_bias(b: Builder, op: Recurrent, bias: Value | None, w: Value) -> Value:
    """OpenVINO's bias from ONNX's pair."""
    if bias is None:
        extra = 1 if isinstance(op, GRU) and op.linear_before_reset else 0
        size = w.shape[1] // op.gates * (op.gates + extra)
        shape = [w.shape[0], size]
        if all(d.is_const for d in shape):
            return b.const(np.zeros([int(d) for d in shape]), w.dtype)
        return b.Expand(b.like(0.0, w), b.dims(shape))
    half = bias.shape[1] // 2
    first, second = b.Slice(bias, [0], b.dims([half]), [1]), b.Slice(bias, b.dims([half]), b.dims([half * 2]), [1])
    total = b.Add(first, second)
    if not (isinstance(op, GRU) and op.linear_before_reset):
        return total
    two, three = b.dims([half // 3 * 2]), b.dims([half])
    parts = [b.Slice(total, [0], two, [1]), b.Slice(first, two, three, [1]), b.Slice(second, two, three, [1])]
    return b.Concat(*parts, axis=1)


def write_sequence(b: Builder, op: Recurrent, *given: Value | None) -> Results:
    """ONNX's layer as OpenVINO's sequence.  Peepholes and coupled gates have no equivalent."""
    x, w, r, bias, lengths, h, c, p = (*given, *[None] * (8 - len(given)))
    assert x is not None and w is not None and r is not None
    kinds = op.functions()
    types = ", ".join(str(v.type) for v in given if v is not None)
    if p is not None or (isinstance(op, LSTM) and op.input_forget) or len(set(kinds)) > 1:
        reason = "its sequences have no peepholes, no coupled gates and one choice of activations for both directions"
        raise Problem(conversion_codes.CANNOT_EXPRESS, op=str(op), types=types, target="OpenVINO", reason=reason)
    allowed = {"sigmoid", "tanh", "relu"}
    names = tuple(name.lower() for name, _, _ in kinds[0])
    if not set(names) <= allowed:
        reason = "its sequences have the activations sigmoid, tanh and relu"
        raise Problem(conversion_codes.CANNOT_EXPRESS, op=str(op), types=types, target="OpenVINO", reason=reason)
    steps, batch, _ = x.shape
    states = [_state(b, v, x, r, op.directions) for v in ((h, c) if isinstance(op, LSTM) else (h,))]
    if lengths is None:
        lengths = b.Expand(b.dims([steps]), b.dims([batch]))
    one = one_bias(b, op, bias, w)
    if isinstance(op, LSTM):
        order = gate_order(IOFC, FICO)
        w, r, one = (reordered(b, v, 1, order) for v in (w, r, one))
    fields: dict[str, AttributeValue] = {
        "hidden_size": int(r.shape[2]),
        "direction": op.direction,
        "clip": op.clip,
        "activations": names,
    }
    if isinstance(op, GRU):
        fields["linear_before_reset"] = op.linear_before_reset
    y, *rest = b.add_all(
        find_op(f"{op.name}Sequence")(**fields), b.Transpose(x, [1, 0, 2]), *states, lengths, w, r, one
    )
    return b.Transpose(y, [2, 1, 0, 3]), *(b.Transpose(v, [1, 0, 2]) for v in rest)


def _state(b: Builder, v: Value | None, x: Value, r: Value, directions: int) -> Value:
    if v is not None:
        return b.Transpose(v, [1, 0, 2])
    return b.Expand(b.like(0.0, x), b.dims([x.shape[1], directions, r.shape[2]]))


# ------------------------------------------------------------------------------------- operations
LSTM_SIG = Sig(
    "x: T[3], w: T[3], r: T[3], b?: T[2], lengths?: I[1], h?: T[3], c?: T[3], p?: T[2] -> y: T, y_h: T, y_c: T",
    T=FLOATS_BF16,
    I={i32},
)
SIG = Sig("x: T[3], w: T[3], r: T[3], b?: T[2], lengths?: I[1], h?: T[3] -> y: T, y_h: T", T=FLOATS_BF16, I={i32})


def read_lstm(b: Builder, a: Attributes, *operands: Value | None) -> Results:
    return reader(LSTM, (5, 6))(b, a, *operands)


def read_gru(b: Builder, a: Attributes, *operands: Value | None) -> Results:
    return reader(GRU, (5,))(b, a, *operands)


def read_rnn(b: Builder, a: Attributes, *operands: Value | None) -> Results:
    return reader(RNN, (5,))(b, a, *operands)


@op
class LSTM(Recurrent):
    """i, o, f = σ(x·W + h·R + b [+ p·c]); c' = f·c + i·tanh(…); h' = o·tanh(c')."""

    input_forget: bool = False
    gates: ClassVar[int] = 4
    usual: ClassVar[tuple[str, ...]] = ("Sigmoid", "Tanh", "Tanh")
    sig = LSTM_SIG

    def decompose(
        self,
        b: Builder,
        x: Value,
        w: Value,
        r: Value,
        bias: Value | None = None,
        lengths: Value | None = None,
        h: Value | None = None,
        c: Value | None = None,
        p: Value | None = None,
    ) -> tuple[Value, ...]:
        x_, w_, r_, bias_, h_, c_, p_ = wide_operands(b, x, w, r, bias, h, c, p)
        y = self.projected(b, x_, w_, summed(b, bias_))  # type: ignore[arg-type]
        op = LSTMSteps(self.direction, self.functions(), self.clip, self.input_forget)
        made = b.add_all(op, y, b.Transpose(r_, [0, 2, 1]), h_, lengths, c_, p_)
        return narrow_results(b, made, x)

    onnx = rows("LSTM", LSTM_SIG, read_lstm, (1, 7, 14, 22), input_forget=Bool(False))
    openvino = (Form("", 5, direct=False, write=write_sequence),)


@op
class GRU(Recurrent):
    """z, r = σ(x·W + h·R + b); h' = (1 - z)·tanh(x·W + (r·h)·R + b) + z·h.

    With linear_before_reset: tanh(x·W + b + r·(h·R + b)).
    """

    linear_before_reset: bool = False
    gates: ClassVar[int] = 3
    usual: ClassVar[tuple[str, ...]] = ("Sigmoid", "Tanh")
    sig = SIG

    def decompose(
        self,
        b: Builder,
        x: Value,
        w: Value,
        r: Value,
        bias: Value | None = None,
        lengths: Value | None = None,
        h: Value | None = None,
    ) -> tuple[Value, ...]:
        x_, w_, r_, bias_, h_ = wide_operands(b, x, w, r, bias, h)
        first, inner = summed(b, bias_), None
        both = halves(b, bias_)
        if self.linear_before_reset and both is not None:
            size = r.shape[2] * 2
            ends = b.dims([size]), b.dims([size + r.shape[2]])
            inner = b.Slice(both[1], *ends, [1])
            first = b.Concat(b.Slice(first, [0], ends[0], [1]), b.Slice(both[0], *ends, [1]), axis=1)
        y = self.projected(b, x_, w_, first)  # type: ignore[arg-type]
        op = GRUSteps(self.direction, self.functions(), self.clip, self.linear_before_reset)
        made = b.add_all(op, y, b.Transpose(r_, [0, 2, 1]), h_, lengths, inner)
        return narrow_results(b, made, x)

    onnx = (
        *rows("GRU", SIG, read_gru, (1,), direction=Enum(GRU_1_DIRECTIONS, "forward")),
        *rows("GRU", SIG, read_gru, (3, 7, 14, 22), linear_before_reset=Bool(False)),
    )
    openvino = (Form("", 5, direct=False, write=write_sequence),)


@op
class RNN(Recurrent):
    """h' = tanh(x·W + h·R + b)."""

    activations: tuple[str, ...] = RNN_ACTIVATIONS
    sig = SIG

    def decompose(
        self,
        b: Builder,
        x: Value,
        w: Value,
        r: Value,
        bias: Value | None = None,
        lengths: Value | None = None,
        h: Value | None = None,
    ) -> tuple[Value, ...]:
        x_, w_, r_, bias_, h_ = wide_operands(b, x, w, r, bias, h)
        y = self.projected(b, x_, w_, summed(b, bias_))  # type: ignore[arg-type]
        made = b.add_all(
            RNNSteps(self.direction, self.functions(), self.clip), y, b.Transpose(r_, [0, 2, 1]), h_, lengths
        )
        return narrow_results(b, made, x)

    onnx = rows("RNN", SIG, read_rnn, (1, 7, 14, 22), activations=Strs(RNN_ACTIVATIONS))
    openvino = (Form("", 5, direct=False, write=write_sequence),)
