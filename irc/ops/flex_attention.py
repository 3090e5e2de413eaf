"""Attention whose scores and weights graphs of the model may change: FlexAttention.

Source: ONNX FlexAttention, domain ai.onnx.preview.
"""

from __future__ import annotations

import math

from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes, shape as shape_codes
from irc.ir.graph import Value
from irc.ir.relation import every, multiple, same
from irc.ir.types import FLOATS_BF16, DType, f32, f64
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import DTypeAttr, Float, Region
from irc.opdef.conversions import as_type
from irc.opdef.forms import Attributes, Form, Results
from irc.opdef.regions import Body, splice
from irc.opdef.signature import Sig
from irc.ops.attention import repeated, usual_scale


def read_flex_attention(b: Builder, a: Attributes, q: Value, k: Value, v: Value) -> Results:
    """Read the graphs in place where there are some."""
    attention = FlexAttention(a.scale, a.softmax_precision)
    if a.score_mod is None and a.prob_mod is None:
        return b.add(attention, q, k, v)
    return attention.attend(b, q, k, v, a.score_mod, a.prob_mod)


@op
class FlexAttention(Op):
    """softmax(q·kᵀ·scale)·v; the softmax in `softmax_precision` (absent: f64 of f64, else f32).

    Graphs between the steps are read in place, so that a node that has some becomes its parts.
    """

    scale: float | None = None
    softmax_precision: DType | None = None
    sig = Sig("q: T1[4], k: T1[4], v: T1[4] -> y: T1", T1=FLOATS_BF16)

    def decompose(self, b: Builder, q: Value, k: Value, v: Value) -> Value:
        return self.attend(b, q, k, v, None, None)

    def attend(self, b: Builder, q: Value, k: Value, v: Value, score_mod: Body | None, prob_mod: Body | None) -> Value:
        """Build the attention with what is between its steps."""
        heads = q.shape[1]
        for x in (k, v):
            facts = {"value": heads, "expected": f"a multiple of the {x.shape[1]} of keys and values"}
            shared = multiple(heads, x.shape[1])
            require(shared, shape_codes.SIZE_RANGE, op=self.name, what="number of query heads", **facts)
        root = b.like(math.sqrt(self.scale if self.scale is not None else usual_scale(self.name, q)), q)
        keys = b.Transpose(repeated(b, k, heads), [0, 1, 3, 2])
        products = b.MatMul(b.Mul(q, root), b.Mul(keys, root))
        precision = self.softmax_precision or (f64 if q.dtype == f64 else f32)
        scores = self._changed(b, "score_mod", score_mod, as_type(b, products, precision))
        weights = self._changed(b, "prob_mod", prob_mod, b.Softmax(scores, axis=-1))
        return as_type(b, b.MatMul(weights, as_type(b, repeated(b, v, heads), precision)), q.dtype)

    def _changed(self, b: Builder, attribute: str, graph: Body | None, x: Value) -> Value:
        """What the graph makes of a value: something of the same type."""
        if graph is None:
            return x
        one = len(graph.inputs) == len(graph.outputs) == 1
        text = f"{len(graph.inputs)} inputs and {len(graph.outputs)} outputs"
        expected = "one input and one output"
        require(one, codes.BAD_ATTRIBUTE, op=self.name, attribute=attribute, text=text, expected=expected)
        (y,) = splice(b, graph.read([x.tensor], graph.captures), [x, *graph.captures])
        alike = y.dtype == x.dtype and len(y.shape) == len(x.shape) and every(*map(same, x.shape, y.shape))
        require(alike, shape_codes.SHAPES_DIFFER, op=f"{attribute} of {self.name}", first=x.tensor, second=y.tensor)
        return y

    onnx = (
        Form(
            "FlexAttention",
            1,
            attrs={
                "scale": Float(None),
                "softmax_precision": DTypeAttr(None),
                "score_mod": Region(None),
                "prob_mod": Region(None),
            },
            T={"T1": FLOATS_BF16},
            read=read_flex_attention,
            direct=True,
            domain="ai.onnx.preview",
        ),
    )
