"""Linear models: LinearClassifier, LinearRegressor.

Source: ONNX ai.onnx.ml; ONNX Runtime for the scores of two classes that one row of coefficients tells apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes
from irc.ir.graph import Value
from irc.ir.types import f32, f64, i32, i64, string
from irc.opdef.base import Op, op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Floats, Ignored, Int, Ints, Strs
from irc.opdef.forms import Form
from irc.opdef.signature import Sig
from irc.ops.scores import POST_TRANSFORM, chosen, either, feature_rows, opposed, table, transformed

ML = "ai.onnx.ml"
FEATURES = frozenset({f32, f64, i64, i32})


def weighted(b: Builder, op: str, x: Value, coefficients: Sequence[float], targets: int) -> Value:
    """Multiply rows of features with coefficients, those of one target after the other.  Returns [n, targets]."""
    width = len(coefficients) // targets
    given = {"op": op, "attribute": "coefficients", "given": len(coefficients)}
    fits = width > 0 and len(coefficients) == width * targets
    require(fits, codes.ATTRIBUTE_LENGTH, **given, needed=f"a multiple of {targets}")
    matrix = np.array(coefficients, np.float32).reshape(targets, width)
    return b.MatMul(x, b.graph.add_constant(np.ascontiguousarray(matrix.T)))


@op
class LinearClassifier(Op):
    """The score of each class, x · coefficientsᵀ + intercepts, transformed, and the label of the best.

    x: [n, features]; label: [n]; scores: [n, classes].  A single score s tells whether the second of two labels is
    meant: it is, if s > 0.
    """

    coefficients: tuple[float, ...]
    intercepts: tuple[float, ...] = ()
    classlabels_ints: tuple[int, ...] = ()
    classlabels_strings: tuple[str, ...] = ()
    post_transform: str = "NONE"
    sig = Sig("x: T[1..2] -> label: L, scores: f32", T=FEATURES, L={string, i64})

    def decompose(self, b: Builder, x: Value) -> tuple[Value, Value]:
        given = max(len(self.classlabels_ints), len(self.classlabels_strings))
        targets = len(self.intercepts) or given
        facts = {"op": self.name, "attribute": "classlabels_ints", "given": given, "needed": max(targets, 1)}
        require(targets == 1 or 0 < targets == given, codes.ATTRIBUTE_LENGTH, **facts)
        found = weighted(b, self.name, feature_rows(b, x), self.coefficients, targets)
        if self.intercepts:
            found = b.Add(found, b.const([self.intercepts], f32))
        labels = table(b, self.classlabels_ints, self.classlabels_strings)
        if targets > 1:
            return chosen(b, labels, found), transformed(b, self.post_transform, found)
        return self._single(b, found, labels, two=given == 2)

    def _single(self, b: Builder, found: Value, labels: Value, two: bool) -> tuple[Value, Value]:
        """The label and the scores by a single score; labels are 0 and 1 where there are not two."""
        if not two:
            labels = table(b, (0, 1), ("0", "1") if self.classlabels_strings else ())
        score = b.Squeeze(found, [1])
        label = either(b, b.Less(b.like(0, score), score), labels)
        if not two:
            return label, transformed(b, self.post_transform, found)
        return label, opposed(b, self.post_transform, score)

    onnx = (
        Form(
            "LinearClassifier",
            1,
            attrs={
                "coefficients": Floats(),
                "intercepts": Floats(()),
                "classlabels_ints": Ints(()),
                "classlabels_strings": Strs(()),
                "multi_class": Ignored(),
                "post_transform": POST_TRANSFORM,
            },
            T={"T": FEATURES, "L": {string, i64}},
            domain=ML,
        ),
    )


@op
class LinearRegressor(Op):
    """x · coefficientsᵀ + intercepts, transformed.  x: [n, features]; y: [n, targets]."""

    coefficients: tuple[float, ...] = ()
    intercepts: tuple[float, ...] = ()
    targets: int = 1
    post_transform: str = "NONE"
    sig = Sig("x: T[1..2] -> y: f32", T=FEATURES)

    def decompose(self, b: Builder, x: Value) -> Value:
        found = weighted(b, self.name, feature_rows(b, x), self.coefficients, self.targets)
        if self.intercepts:
            given = {"attribute": "intercepts", "given": len(self.intercepts), "needed": self.targets}
            require(len(self.intercepts) == self.targets, codes.ATTRIBUTE_LENGTH, op=self.name, **given)
            found = b.Add(found, b.const([self.intercepts], f32))
        return transformed(b, self.post_transform, found)

    onnx = (
        Form(
            "LinearRegressor",
            1,
            attrs={
                "coefficients": Floats(()),
                "intercepts": Floats(()),
                "targets": Int(1, lo=1),
                "post_transform": POST_TRANSFORM,
            },
            T=FEATURES,
            domain=ML,
        ),
    )
