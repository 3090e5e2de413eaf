"""LSTM of quantized weights, which quantizes what it multiplies with them as it runs.

The operand is quantized as a whole, the states before each step as a whole batch of a direction: u8, with the range
of what is quantized and 0 (as in DynamicQuantizeLinear; a range of 0 has scale 1).  Sums of products are exact, in
i32.  W [directions, input, 4 · hidden], R [directions, hidden, 4 · hidden], a scale and a zero point for each direction
or for each of its columns.  Source: ONNX Runtime, com.microsoft DynamicQuantizeLSTM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import shape as shape_codes
from irc.expr import Const, Expr, Tensor, call, index, select
from irc.ir.graph import Value
from irc.ir.relation import every, same
from irc.ir.types import INTEGERS, TensorType, f32, i32, i64
from irc.loops.builder import LoopBuilder
from irc.opdef.base import Array, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool
from irc.opdef.conversions import as_scalar, as_type
from irc.opdef.forms import MICROSOFT, Form, write_only
from irc.opdef.signature import Sig
from irc.ops.layout import reshaped
from irc.ops.quantize import BYTES, DynamicQuantizeLinear
from irc.ops.recurrent import Recurrent, attributes, summed
from irc.ops.recurrent_loops import write_quantized_loops
from irc.ops.recurrent_steps import RATIONAL, LSTMCells, add_products, step_order

LARGEST = 255.0
"""Of u8."""


def quantized_range(least: np.float32, largest: np.float32) -> tuple[np.float32, np.float32]:
    """The scale and the zero point of u8 for this range, which holds 0."""
    scale = (largest - least) / np.float32(255.0) if largest > least else np.float32(1.0)
    return scale, np.minimum(np.maximum(np.round(-least / scale), np.float32(0.0)), np.float32(255.0))


@op
class QuantizedLSTMSteps(LSTMCells):
    """What DynamicQuantizeLSTM compiles to: LSTMSteps with weights u8 or i8 [directions, hidden, gates · hidden].

    `scale` and `zero` [directions, gates · hidden] are those of the columns of the weights. `bias` is added last, as
    the order of the sums decides bits of the result.
    """

    sig = Sig(
        "projected: f32, weights: W, scale: f32, zero: i32, h?: f32, lengths?: I, c?: f32, peephole?: f32, bias?: f32 "
        "-> y: f32, y_h: f32, y_c: f32",
        W=BYTES,
        I=INTEGERS,
    )

    def reference(
        self,
        projected: Array,
        weights: Array,
        scale: Array,
        zero: Array,
        h: Array | None = None,
        lengths: Array | None = None,
        c: Array | None = None,
        peephole: Array | None = None,
        bias: Array | None = None,
    ) -> Sequence[Array]:
        steps, batch, directions, _ = projected.shape
        size = weights.shape[1]
        counts = np.full(batch, steps) if lengths is None else np.clip(lengths, 0, steps)
        y = np.zeros((steps, directions, batch, size), np.float32)
        y_h = np.zeros((directions, batch, size), np.float32) if h is None else h.copy()
        y_c = np.zeros((directions, batch, size), np.float32) if c is None else c.copy()
        rows = np.arange(batch)  # pyright: ignore
        for d in range(directions):
            whole = weights[d].astype(np.float64) - zero[d]  # f64 has the sums exactly, and BLAS is fast
            for t in range(steps):
                at = step_order(self.direction == "reverse" or d == 1, t, counts)
                near: Array = np.where(t <= counts, 1, 0).astype(np.float32)[:, None] * y_h[d]
                least = np.min(near, initial=np.float32(0.0))
                largest = np.max(near, initial=np.float32(0.0))
                unit, middle = quantized_range(least, largest)
                u = np.minimum(np.maximum(np.round(near / unit) + middle, np.float32(0.0)), np.float32(255.0)) - middle
                products = (u.astype(np.float64) @ whole).astype(np.float32)
                sums = projected[at, rows, d] + products * (unit * scale[d])
                sums = sums if bias is None else sums + bias[d]
                out, cell = self.cell_step(d, sums, y_c[d], peephole)
                live = t < counts
                y_h[d] = np.where(live[:, None], out, y_h[d])
                y_c[d] = np.where(live[:, None], cell, y_c[d])
                y[at[live], d, rows[live]] = out[live]
        return y, y_h, y_c

    def loops(
        self,
        b: LoopBuilder,
        projected: Tensor,
        weights: Tensor,
        scale: Tensor,
        zero: Tensor,
        h: Tensor | None,
        lengths: Tensor | None,
        c: Tensor | None,
        peephole: Tensor | None,
        bias: Tensor | None,
        y: Tensor,
        y_h: Tensor,
        y_c: Tensor,
    ) -> None:
        steps, batch, directions, columns = projected.shape
        size = weights.shape[1]
        u = b.alloc(i32, [size], "quantized")
        sums = b.alloc(i32, [columns], "sums")

        def count(n: Expr) -> Expr:
            return index(steps) if lengths is None else lengths[n].cast(i64).min(index(steps)).max(0)

        with b.for_(directions, name="d") as d:
            for state, initial in ((y_h, h), (y_c, c)):
                with b.nest([batch, size]) as (n, j):
                    b.store(state, (d, n, j), Const(0.0, f32) if initial is None else initial[d, n, j])
            with b.for_(steps, name="t") as t:
                least, largest = b.var(Const(0.0, f32), "least"), b.var(Const(0.0, f32), "largest")
                with b.for_(batch, name="n") as n, b.if_(t.le(count(n))), b.for_(size, name="j") as j:
                    value = b.let(y_h[d, n, j], "h")
                    b.assign(least, least.min(value))
                    b.assign(largest, largest.max(value))
                unit = b.let(select(largest.gt(least), (largest - least) / LARGEST, Const(1.0, f32)), "unit")
                middle = b.let(call("round", -least / unit).max(0.0).min(LARGEST), "middle")
                with b.for_(batch, name="n") as n:
                    last = b.let(count(n), "count")
                    with b.if_(t.lt(last)):
                        total = b.var(Const(0, i32), "total")
                        with b.for_(size, name="j") as j:
                            w = call("round", y_h[d, n, j] / unit) + middle
                            w = b.let(select(w.gt(0.0), w.min(LARGEST), Const(0.0, f32)) - middle, "w")
                            b.store(u, (j,), w.cast(i32))
                            b.assign(total, total + w.cast(i32))
                        with b.for_(columns, "simd") as j:
                            b.store(sums, (j,), -(total * zero[d, j]))
                        add_products(b, sums, 0, columns, weights, d, lambda k: u[k], size)
                        at = b.let(self.place(d, t, last), "at")

                        def gate(j: Expr, n: Expr = n, at: Expr = at, unit: Expr = unit) -> Expr:
                            total = projected[at, n, d, j] + sums[j].cast(f32) * (unit * scale[d, j])
                            return total if bias is None else total + bias[d, j]

                        self.emit_cell(b, (at, d, n), gate, peephole, (y, y_h, y_c))
                    with b.else_(), b.for_(size, "simd") as j:
                        b.store(y, (t, d, n, j), Const(0.0, f32))

    onnx = (write_only(write_quantized_loops, since=11),)
    openvino = (write_only(write_quantized_loops, since=5),)


@op
class DynamicQuantizeLSTM(Recurrent):
    """LSTM of quantized weights: see the top of this file."""

    input_forget: bool = False
    gates: ClassVar[int] = 4
    usual: ClassVar[tuple[str, ...]] = ("Sigmoid", "Tanh", "Tanh")
    sig = Sig(
        "x: f32[3], w: W[3], r: W[3], b?: f32[2], lengths?: i32[1], h?: f32[3], c?: f32[3], p?: f32[2], "
        "w_scale: f32[1..2], w_zero: W[1..2], r_scale: f32[1..2], r_zero: W[1..2] -> y: f32, y_h: f32, y_c: f32",
        W=BYTES,
    )

    def infer(self, x: Value, w: Value, r: Value, *rest: Value | None) -> list[TensorType]:
        w, r = (Value(v.name, v.tensor.with_shape([v.shape[k] for k in (0, 2, 1)])) for v in (w, r))
        return super().infer(x, w, r, *rest[:5])

    def decompose(
        self,
        b: Builder,
        x: Value,
        w: Value,
        r: Value,
        bias: Value | None,
        lengths: Value | None,
        h: Value | None,
        c: Value | None,
        p: Value | None,
        *quantization: Value,
    ) -> tuple[Value, ...]:
        w_scale, w_zero, r_scale, r_zero = (self.columns(b, v, w) for v in quantization)
        y = self.quantized_product(b, x, w, lengths, as_type(b, w_zero, i32), w_scale)
        functions = tuple(tuple((RATIONAL.get(k[0], k[0]), k[1], k[2]) for k in kinds) for kinds in self.functions())
        op = QuantizedLSTMSteps(self.direction, functions, self.clip, self.input_forget)
        return b.add_all(op, y, r, r_scale, as_type(b, r_zero, i32), h, lengths, c, p, summed(b, bias))

    def columns(self, b: Builder, part: Value, w: Value) -> Value:
        """A scale or a zero point for each column of each direction."""
        wanted = w.shape[0], w.shape[2]
        agree = [same(n, m) for n, m in zip(part.shape, wanted, strict=False)]
        what = "a scale or zero point and the weights"
        require(every(*agree), shape_codes.SIZES_DIFFER, op=self.name, what=what, a=part.tensor, b=w.tensor)
        return part if len(part.shape) == 2 else b.Expand(b.Unsqueeze(part, [1]), b.dims(wanted))

    def quantized_product(
        self, b: Builder, x: Value, w: Value, lengths: Value | None, zero: Value, scale: Value
    ) -> Value:
        """x · W of all steps, in f32: [steps, batch, directions, columns]."""
        steps, batch, size = x.shape
        directions, _, columns = w.shape
        if lengths is not None:  # what no sequence reaches has no part in the range
            step = b.Unsqueeze(b.Range(b.const(0), as_scalar(b, b.dims([steps])), b.const(1)), [1, 2])
            x = b.Where(b.Less(step, b.ReduceMax(b.Cast(lengths, to=i64), [0], keepdims=False)), x, b.const(0.0, f32))
        quantized, unit, middle = b.add_all(DynamicQuantizeLinear(), x)
        u = b.Sub(b.Cast(quantized, to=i32), b.Cast(middle, to=i32))
        v = b.Sub(b.Cast(w, to=i32), b.Unsqueeze(zero, [1]))
        v = reshaped(b, b.Transpose(v, [1, 0, 2]), [size, directions * columns])
        product = b.Cast(b.MatMul(reshaped(b, u, [steps * batch, size]), v), to=f32)
        product = b.Mul(product, b.Mul(unit, reshaped(b, scale, [directions * columns])))
        return reshaped(b, product, [steps, batch, directions, columns])

    onnx = (
        Form("DynamicQuantizeLSTM", 1, attrs=attributes(7, input_forget=Bool(False)), T={"W": BYTES}, domain=MICROSOFT),
    )
