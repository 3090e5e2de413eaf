"""What recurrent layers do one step after another, once the operand has been multiplied with the weights.

LSTM, GRU and RNN decompose into one product for all steps and one of these.  They are no operations of
a format.  Layout of all: projected [steps, batch, directions, gates · hidden], gates side by side in ONNX's
order; weights [directions, hidden, gates · hidden]; states [directions, batch, hidden]; the first result
[steps, directions, batch, hidden].  `lengths` [batch] stops a sequence early: its later results are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import numpy as np

from irc.expr import Const, Expr, Tensor, call, index, select
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import INTEGERS, TensorType, f32, f64, i64
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, Op, op, op_base
from irc.opdef.forms import write_only
from irc.opdef.signature import Sig
from irc.ops.activation import sigmoid, sigmoid_expr, softplus, softplus_expr
from irc.ops.rational import rational_sigmoid, rational_sigmoid_expr, rational_tanh, rational_tanh_expr
from irc.ops.recurrent_loops import write_loops

Activation = tuple[str, float, float]
"""ONNX's name, alpha, beta."""

FUNCTIONS: dict[str, tuple[float, float]] = {
    "Sigmoid": (0.0, 0.0),
    "Tanh": (0.0, 0.0),
    "Relu": (0.0, 0.0),
    "Affine": (1.0, 0.0),
    "LeakyRelu": (0.01, 0.0),
    "ThresholdedRelu": (1.0, 0.0),
    "ScaledTanh": (1.0, 1.0),
    "HardSigmoid": (0.2, 0.5),
    "Elu": (1.0, 0.0),
    "Softsign": (0.0, 0.0),
    "Softplus": (0.0, 0.0),
}
"""Default alpha and beta of every activation."""
RATIONAL = {"Sigmoid": "RationalSigmoid", "Tanh": "RationalTanh"}
"""Activations of steps that are quantized as they run (`irc.ops.rational`)."""
LOCAL_BYTES = 32768
"""Scratch up to this size is private to a sequence, so that sequences can be computed in parallel."""
UNROLL = 4
"""Rows of the weights taken at once, so that the sums are loaded and stored a quarter as often."""
WIDE = frozenset({f32, f64})
TANH: Activation = ("Tanh", 0.0, 0.0)


def activate(kind: Activation, x: Array) -> Array:
    """The activation of an array."""
    name, alpha, beta = kind
    if name == "Sigmoid":
        return sigmoid(x)
    if name == "Tanh":
        return np.tanh(x)
    if name == "Relu":
        return np.maximum(x, 0.0)
    if name == "Affine":
        return alpha * x + beta
    if name == "LeakyRelu":
        return np.where(x < 0.0, alpha * x, x)
    if name == "ThresholdedRelu":
        return np.where(x > alpha, x, 0.0)
    if name == "ScaledTanh":
        return alpha * np.tanh(beta * x)
    if name == "HardSigmoid":
        return np.minimum(np.maximum(alpha * x + beta, 0.0), 1.0)
    if name == "Elu":
        return np.where(x < 0.0, alpha * np.expm1(x), x)
    if name == "Softsign":
        return x / (1.0 + np.abs(x))
    if name == "RationalSigmoid":
        return rational_sigmoid(x)
    return rational_tanh(x) if name == "RationalTanh" else softplus(x)


def activation_expr(kind: Activation, x: Expr) -> Expr:
    """The activation of an expression."""
    name, alpha, beta = kind
    formulas: dict[str, Callable[[], Expr]] = {
        "Sigmoid": lambda: sigmoid_expr(x),
        "Tanh": lambda: call("tanh", x),
        "Relu": lambda: x.max(0.0),
        "Affine": lambda: x * alpha + beta,
        "LeakyRelu": lambda: select(x.lt(0.0), x * alpha, x),
        "ThresholdedRelu": lambda: select(x.gt(alpha), x, 0.0),
        "ScaledTanh": lambda: call("tanh", x * beta) * alpha,
        "HardSigmoid": lambda: (x * alpha + beta).max(0.0).min(1.0),
        "Elu": lambda: select(x.lt(0.0), call("expm1", x) * alpha, x),
        "Softsign": lambda: x / (x.max(-x) + 1.0),
        "Softplus": lambda: softplus_expr(x),
        "RationalSigmoid": lambda: rational_sigmoid_expr(x),
        "RationalTanh": lambda: rational_tanh_expr(x),
    }
    return formulas[name]()


def clipped(x: Array, limit: float) -> Array:
    return np.minimum(np.maximum(x, -limit), limit) if limit else x


def step_order(reverse: bool, step: int, lengths: Array) -> Array:
    """Where each sequence of a batch stands in its step-th step."""
    return np.maximum(lengths - 1 - step, 0) if reverse else np.full(lengths.shape, step)


Direction = Literal["forward", "reverse", "bidirectional"]


@op_base
class Steps(Op):
    """Base of the three: attributes, shapes and the loop around a step."""

    direction: Direction = "forward"
    activations: tuple[tuple[Activation, ...], ...] = ()
    clip: float = 0.0
    gates: ClassVar[int] = 1
    sig = Sig("projected: T, weights: T, h?: T, lengths?: I -> y: T, y_h: T", T=WIDE, I=INTEGERS)

    def infer(self, projected: Value, weights: Value, *rest: Value | None) -> list[TensorType]:
        steps, batch, directions, _ = projected.shape
        hidden = weights.shape[1]
        state = TensorType(projected.dtype, (directions, batch, hidden))
        states = [state] * (len(self.sig.outputs) - 1)
        return [TensorType(projected.dtype, (steps, directions, batch, hidden)), *states]

    def unrolled(
        self,
        projected: Array,
        size: int,
        initial: Sequence[Array | None],
        lengths: Array | None,
        step: Callable[..., Sequence[Array]],
    ) -> tuple[Array, ...]:
        """`reference` around a step: y, and the last states (zeros at first where they are absent).

        `step(direction, rows of projected, *states)` gives the next states of all sequences, the result first.
        """
        steps, batch, directions, _ = projected.shape
        counts = np.full(batch, steps) if lengths is None else np.minimum(lengths, steps)
        y = np.zeros((steps, directions, batch, size), projected.dtype)
        last = [np.zeros((directions, batch, size), projected.dtype) if s is None else s.copy() for s in initial]
        rows = np.arange(batch)  # pyright: ignore
        for d in range(directions):
            for t in range(steps):
                at = step_order(self.direction == "reverse" or d == 1, t, counts)
                found = step(d, projected[at, rows, d], *[s[d] for s in last])
                live = t < counts
                for state, new in zip(last, found):
                    state[d] = np.where(live[:, None], new, state[d])
                y[at[live], d, rows[live]] = found[0][live]
        return (y, *last)

    # ------------------------------------------------------------------- loops
    def applied(self, d: Expr, position: int, x: Expr) -> Expr:
        """The activation at that position of a step, in direction `d`, of x, which is clipped unless a cell."""
        if self.clip and position < 2:
            x = x.max(-self.clip).min(self.clip)
        first, *more = [kinds[position] for kinds in self.activations]
        if not more or more[0] == first:
            return activation_expr(first, x)
        return select(d.eq(0), activation_expr(first, x), activation_expr(more[0], x))

    def place(self, d: Expr, t: Expr, count: Expr) -> Expr:
        """Which step of the operand is the t-th."""
        if self.direction == "forward":
            return t
        back = count - 1 - t
        return back if self.direction == "reverse" else select(d.eq(0), t, back)

    def over(
        self,
        b: LoopBuilder,
        projected: Tensor,
        states: Sequence[tuple[Tensor, Tensor | None]],
        lengths: Tensor | None,
        y: Tensor,
        step: Callable[[Expr, Expr, Expr], None],
    ) -> None:
        """`step(direction, row of the batch, place)` for each step; states are set to their initial values first."""
        steps, batch, directions, _ = projected.shape
        hidden = y.shape[3]
        private = hidden.is_const and int(hidden) * self.gates * y.dtype.itemsize <= LOCAL_BYTES
        with b.nest([directions, batch], "parallel" if private else "serial") as (d, n):
            for state, initial in states:
                with b.for_(hidden, "simd") as j:
                    b.store(state, (d, n, j), Const(0.0, y.dtype) if initial is None else initial[d, n, j])
            count = index(steps)
            if lengths is None:
                with b.for_(steps, name="t") as t:
                    step(d, n, b.let(self.place(d, t, count), "at"))
                return
            count = b.let(lengths[n].cast(i64).min(count).max(0), "count")
            with b.for_(count, name="t") as t:
                step(d, n, b.let(self.place(d, t, count), "at"))
            with b.for_(index(steps) - count, name="t") as t, b.for_(hidden, "simd") as j:
                b.store(y, (count + t, d, n, j), Const(0.0, y.dtype))


def add_products(
    b: LoopBuilder,
    sums: Tensor,
    first: Expr | int,
    width: Dim,
    weights: Tensor,
    d: Expr,
    h: Callable[[Expr], Expr],
    hidden: Dim,
) -> None:
    """sums[first + j] += Σ_k h(k) · weights[d, k, first + j] for j < width, a few k at once."""

    def rows(at: Expr, count: int) -> None:
        values = [b.let(h(at + r), "h") for r in range(count)]
        with b.for_(width, "simd") as j:
            total = sums[j + first]
            for r, value in enumerate(values):
                weight = weights[d, at + r, j + first]
                total = total + value * (weight if weight.dtype == value.dtype else weight.cast(value.dtype))
            b.store(sums, (j + first,), total)

    with b.for_(hidden // UNROLL, name="k") as k:
        rows(k * UNROLL, UNROLL)
    rest = hidden % UNROLL
    if rest != 0:
        with b.for_(rest, name="k") as k:
            rows(index(hidden - rest) + k, 1)


@op_base
class LSTMCells(Steps):
    """Base of what has the cell of an LSTM.  Gates i, o, f, c.

    `peephole` [directions, 3 · hidden] are the weights of the cell in i, o, f.
    """

    input_forget: bool = False
    gates: ClassVar[int] = 4

    def cell_step(self, d: int, sums: Array, cell: Array, peephole: Array | None) -> Sequence[Array]:
        """The next result and the next cell from the gates' sums."""
        kinds = self.activations[d]
        size = cell.shape[1]
        gi, go, gf, gc = (sums[:, k * size : (k + 1) * size] for k in range(4))
        if peephole is not None:
            gi = gi + peephole[d, :size] * cell
            gf = gf + peephole[d, 2 * size :] * cell
        i = activate(kinds[0], clipped(gi, self.clip))
        f = 1.0 - i if self.input_forget else activate(kinds[0], clipped(gf, self.clip))
        fresh = f * cell + i * activate(kinds[1], clipped(gc, self.clip))
        if peephole is not None:
            go = go + peephole[d, size : 2 * size] * fresh
        return activate(kinds[0], clipped(go, self.clip)) * activate(kinds[2], fresh), fresh

    def emit_cell(
        self,
        b: LoopBuilder,
        at: tuple[Expr, Expr, Expr],
        sums: Callable[[Expr], Expr],
        peephole: Tensor | None,
        results: tuple[Tensor, Tensor, Tensor],
    ) -> None:
        """Emit what `cell_step` computes, for one sequence; `at`: place, direction, row of the batch."""
        step, d, n = at
        y, y_h, y_c = results
        size = y.shape[3]
        with b.for_(size, "simd") as j:
            cell = b.let(y_c[d, n, j], "cell")
            gi, go, gf, gc = (sums(j + index(size) * k) for k in range(4))
            if peephole is not None:
                gi = gi + peephole[d, j] * cell
                gf = gf + peephole[d, j + index(size) * 2] * cell
            i = b.let(self.applied(d, 0, gi), "i")
            f = Const(1.0, y.dtype) - i if self.input_forget else self.applied(d, 0, gf)
            fresh = b.let(f * cell + i * self.applied(d, 1, gc), "fresh")
            if peephole is not None:
                go = go + peephole[d, j + index(size)] * fresh
            out = b.let(self.applied(d, 0, go) * self.applied(d, 2, fresh), "out")
            b.store(y_c, (d, n, j), fresh)
            b.store(y_h, (d, n, j), out)
            b.store(y, (step, d, n, j), out)


@op
class LSTMSteps(LSTMCells):
    """What LSTM compiles to."""

    sig = Sig(
        "projected: T, weights: T, h?: T, lengths?: I, c?: T, peephole?: T -> y: T, y_h: T, y_c: T", T=WIDE, I=INTEGERS
    )

    def reference(
        self,
        projected: Array,
        weights: Array,
        h: Array | None = None,
        lengths: Array | None = None,
        c: Array | None = None,
        peephole: Array | None = None,
    ) -> Sequence[Array]:
        def step(d: int, x: Array, hidden: Array, cell: Array) -> Sequence[Array]:
            return self.cell_step(d, x + hidden @ weights[d], cell, peephole)

        return self.unrolled(projected, weights.shape[1], [h, c], lengths, step)

    def loops(
        self,
        b: LoopBuilder,
        projected: Tensor,
        weights: Tensor,
        h: Tensor | None,
        lengths: Tensor | None,
        c: Tensor | None,
        peephole: Tensor | None,
        y: Tensor,
        y_h: Tensor,
        y_c: Tensor,
    ) -> None:
        size = weights.shape[1]

        def step(d: Expr, n: Expr, at: Expr) -> None:
            sums = b.alloc(y.dtype, [size * 4], "gates")
            with b.for_(size * 4, "simd") as j:
                b.store(sums, (j,), projected[at, n, d, j])
            add_products(b, sums, 0, size * 4, weights, d, lambda k: y_h[d, n, k], size)
            self.emit_cell(b, (at, d, n), lambda j: sums[j], peephole, (y, y_h, y_c))

        self.over(b, projected, [(y_h, h), (y_c, c)], lengths, y, step)

    openvino = (write_only(write_loops, since=5),)


@op
class GRUSteps(Steps):
    """What GRU compiles to.  Gates z, r, h; with linear_before_reset the reset applies to h · weights + `bias`
    [directions, hidden]."""

    linear_before_reset: bool = False
    gates: ClassVar[int] = 3
    sig = Sig("projected: T, weights: T, h?: T, lengths?: I, bias?: T -> y: T, y_h: T", T=WIDE, I=INTEGERS)

    def reference(
        self,
        projected: Array,
        weights: Array,
        h: Array | None = None,
        lengths: Array | None = None,
        bias: Array | None = None,
    ) -> Sequence[Array]:
        size = weights.shape[1]

        def step(d: int, x: Array, hidden: Array) -> Sequence[Array]:
            kinds = self.activations[d]
            gates = activate(kinds[0], clipped(x[:, : 2 * size] + hidden @ weights[d][:, : 2 * size], self.clip))
            z, r = gates[:, :size], gates[:, size:]
            if self.linear_before_reset:
                product = hidden @ weights[d][:, 2 * size :]
                inner = r * (product if bias is None else product + bias[d])
            else:
                inner = (r * hidden) @ weights[d][:, 2 * size :]
            fresh = activate(kinds[1], clipped(x[:, 2 * size :] + inner, self.clip))
            return ((1.0 - z) * fresh + z * hidden,)

        return self.unrolled(projected, size, [h], lengths, step)

    def loops(
        self,
        b: LoopBuilder,
        projected: Tensor,
        weights: Tensor,
        h: Tensor | None,
        lengths: Tensor | None,
        bias: Tensor | None,
        y: Tensor,
        y_h: Tensor,
    ) -> None:
        size = weights.shape[1]
        n2 = index(size) * 2

        def step(d: Expr, n: Expr, at: Expr) -> None:
            sums = b.alloc(y.dtype, [size * 3], "gates")
            reset = b.alloc(y.dtype, [size], "reset")
            with b.for_(size * 2, "simd") as j:
                b.store(sums, (j,), projected[at, n, d, j])
            with b.for_(size, "simd") as j:
                start = projected[at, n, d, j + n2]
                if self.linear_before_reset:
                    start = Const(0.0, y.dtype) if bias is None else bias[d, j]
                b.store(sums, (j + n2,), start)
            both = size * 3 if self.linear_before_reset else size * 2
            add_products(b, sums, 0, both, weights, d, lambda k: y_h[d, n, k], size)
            with b.for_(size, "simd") as j:
                r = b.let(self.applied(d, 0, sums[j + index(size)]), "r")
                b.store(reset, (j,), r if self.linear_before_reset else r * y_h[d, n, j])
            if not self.linear_before_reset:
                add_products(b, sums, n2, size, weights, d, lambda k: reset[k], size)
            with b.for_(size, "simd") as j:
                z = b.let(self.applied(d, 0, sums[j]), "z")
                inner = sums[j + n2]
                if self.linear_before_reset:
                    inner = projected[at, n, d, j + n2] + reset[j] * inner
                fresh = b.let(self.applied(d, 1, inner), "fresh")
                out = b.let((Const(1.0, y.dtype) - z) * fresh + z * y_h[d, n, j], "out")
                b.store(y_h, (d, n, j), out)
                b.store(y, (at, d, n, j), out)

        self.over(b, projected, [(y_h, h)], lengths, y, step)


@op
class RNNSteps(Steps):
    """What RNN compiles to.  One gate: h' = f(projected + h · weights)."""

    def reference(
        self, projected: Array, weights: Array, h: Array | None = None, lengths: Array | None = None
    ) -> Sequence[Array]:
        def step(d: int, x: Array, hidden: Array) -> Sequence[Array]:
            return (activate(self.activations[d][0], clipped(x + hidden @ weights[d], self.clip)),)

        return self.unrolled(projected, weights.shape[1], [h], lengths, step)

    def loops(
        self,
        b: LoopBuilder,
        projected: Tensor,
        weights: Tensor,
        h: Tensor | None,
        lengths: Tensor | None,
        y: Tensor,
        y_h: Tensor,
    ) -> None:
        size = weights.shape[1]

        def step(d: Expr, n: Expr, at: Expr) -> None:
            sums = b.alloc(y.dtype, [size], "gates")
            with b.for_(size, "simd") as j:
                b.store(sums, (j,), projected[at, n, d, j])
            add_products(b, sums, 0, size, weights, d, lambda k: y_h[d, n, k], size)
            with b.for_(size, "simd") as j:
                out = b.let(self.applied(d, 0, sums[j]), "out")
                b.store(y_h, (d, n, j), out)
                b.store(y, (at, d, n, j), out)

        self.over(b, projected, [(y_h, h)], lengths, y, step)
