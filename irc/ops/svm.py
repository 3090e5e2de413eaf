"""Support vector machines: SVMClassifier, SVMRegressor.

Sources: ONNX ai.onnx.ml; ONNX Runtime for votes, and for scores of two classes; "Probability Estimates for Multi-class
Classification by Pairwise Coupling" (Wu, Lin, Weng; JMLR 5, 2004), section 4.2, for probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from irc.diagnostics import require
from irc.diagnostics.codes import operation as codes
from irc.expr import Const, Expr, Tensor, Un, Var, select
from irc.ir.graph import Value
from irc.ir.types import TensorType, boolean, f32, f64, i32, i64, string
from irc.loops.builder import LOCAL_BYTES, LoopBuilder
from irc.opdef.base import Array, Op, op, op_base
from irc.opdef.builder import Builder
from irc.opdef.codecs import Bool, Codec, Enum, Floats, Int, Ints, Strs
from irc.opdef.forms import Form
from irc.opdef.signature import Sig
from irc.ops.linear import weighted
from irc.ops.scores import POST_TRANSFORM, chosen, columns, feature_rows, opposed, table, transformed

ML = "ai.onnx.ml"
FEATURES = frozenset({f32, f64, i64, i32})
KERNEL: dict[str, Codec] = {
    "kernel_type": Enum(("LINEAR", "POLY", "RBF", "SIGMOID"), "LINEAR"),
    "kernel_params": Floats(()),
    "support_vectors": Floats(()),
    "rho": Floats(()),
    "post_transform": POST_TRANSFORM,
}
CERTAIN = 1e-7
"""How near to 0 and 1 the probability that one class of two is meant may come."""
STEPS = 100
NEAR_ENOUGH = 0.005
"""Probabilities are improved until an error is below this over the number of classes, or for `STEPS` steps."""


@op_base
class Machine(Op):
    """What SVMClassifier and SVMRegressor share: a kernel, and the vectors that it compares rows with."""

    coefficients: tuple[float, ...] = ()
    support_vectors: tuple[float, ...] = ()
    rho: tuple[float, ...] = ()
    kernel_type: str = "LINEAR"
    kernel_params: tuple[float, ...] = ()
    post_transform: str = "NONE"

    def kernels(self, b: Builder, x: Value, count: int) -> Value:
        """Compare each row with each of the `count` support vectors, [n, count]."""
        given = len(self.support_vectors)
        width = given // count
        facts = {"attribute": "support_vectors", "given": given, "needed": f"a multiple of {count}"}
        require(width > 0 and given == width * count, codes.ATTRIBUTE_LENGTH, op=self.name, **facts)
        gamma, shift, degree = self._params()
        if self.kernel_type == "RBF":
            vectors = np.array(self.support_vectors, np.float32).reshape(1, count, width)
            way = b.Sub(b.Unsqueeze(x, [1]), b.graph.add_constant(vectors))
            return b.Exp(b.Mul(b.ReduceSum(b.Mul(way, way), [2], keepdims=False), -gamma))
        product = weighted(b, self.name, x, self.support_vectors, count)
        if self.kernel_type == "LINEAR":
            return product
        found = b.Add(b.Mul(product, gamma), shift)
        if self.kernel_type == "SIGMOID":
            return b.Tanh(found)
        if degree == 2:
            return b.Mul(found, found)
        return b.Mul(b.Mul(found, found), found) if degree == 3 else b.Pow(found, b.like(degree, found))

    def _params(self) -> tuple[float, float, float]:
        """γ, coef0 and the degree."""
        given = {"op": self.name, "attribute": "kernel_params", "given": len(self.kernel_params), "needed": 3}
        require(len(self.kernel_params) in (0, 3), codes.ATTRIBUTE_LENGTH, **given)
        gamma, shift, degree = self.kernel_params or (0.0, 0.0, 0.0)
        return gamma, shift, degree

    def at_least(self, attribute: str, values: Sequence[float], needed: int) -> None:
        """Require that many numbers of an attribute."""
        facts = {"op": self.name, "attribute": attribute, "given": len(values), "needed": f"at least {needed}"}
        require(len(values) >= needed, codes.ATTRIBUTE_LENGTH, **facts)


@op
class SVMRegressor(Machine):
    """The sum of the coefficients times kernel(x, support vector), plus rho, transformed; one_class: its sign.

    x: [n, features]; y: [n, 1].  Without support vectors, coefficients are those of features.
    """

    n_supports: int = 0
    one_class: bool = False
    sig = Sig("x: T[1..2] -> y: f32", T=FEATURES)

    def decompose(self, b: Builder, x: Value) -> Value:
        self.at_least("rho", self.rho, 1)
        found = feature_rows(b, x)
        if self.n_supports:
            found = self.kernels(b, found, self.n_supports)
        found = b.Add(weighted(b, self.name, found, self.coefficients, 1), float(self.rho[0]))
        found = transformed(b, self.post_transform, found)
        if not self.one_class:
            return found
        return b.Where(b.Less(b.like(0, found), found), b.like(1, found), b.like(-1, found))

    onnx = (
        Form(
            "SVMRegressor",
            1,
            attrs={**KERNEL, "coefficients": Floats(()), "n_supports": Int(0, lo=0), "one_class": Bool(False)},
            T=FEATURES,
            domain=ML,
        ),
    )


@op
class SVMClassifier(Machine):
    """The class that most machines for two classes each vote for, and scores.

    x: [n, features]; label: [n].  A machine's decision is the sum of the coefficients of its two classes' support
    vectors times kernel(x, vector), plus rho.  scores: with prob_a and prob_b the probabilities of the classes; of two
    classes -s and s, of more the decisions of all machines.  Without
    vectors_per_class, coefficients are those of features, a row for each class, and the scores decide.
    """

    vectors_per_class: tuple[int, ...] = ()
    prob_a: tuple[float, ...] = ()
    prob_b: tuple[float, ...] = ()
    classlabels_ints: tuple[int, ...] = ()
    classlabels_strings: tuple[str, ...] = ()
    sig = Sig("x: T[1..2] -> label: L, scores: f32", T=FEATURES, L={string, i64})

    def decompose(self, b: Builder, x: Value) -> tuple[Value, Value]:
        classes = max(len(self.classlabels_ints), len(self.classlabels_strings))
        facts = {"op": self.name, "attribute": "classlabels_ints", "given": classes, "needed": "at least 1"}
        require(classes >= 1, codes.ATTRIBUTE_LENGTH, **facts)
        labels = table(b, self.classlabels_ints, self.classlabels_strings)
        x = feature_rows(b, x)
        if not sum(self.vectors_per_class):
            return self._linear(b, x, labels, classes)
        per_class = {"op": self.name, "attribute": "vectors_per_class"}
        for value in self.vectors_per_class:
            require(value >= 0, codes.ATTRIBUTE_RANGE, **per_class, value=value, expected="at least 0")
        given = len(self.vectors_per_class)
        require(given == classes >= 2, codes.ATTRIBUTE_LENGTH, **per_class, given=given, needed=max(classes, 2))
        decisions = self._decisions(b, x, classes)
        label = chosen(b, labels, _votes(b, decisions, classes))
        if self.prob_a:
            return label, transformed(b, self.post_transform, self._probabilities(b, decisions, classes))
        if classes > 2:
            return label, transformed(b, self.post_transform, decisions)
        score = b.Squeeze(decisions, [1])
        if self.post_transform == "NONE":
            return label, columns(b, b.Neg(score), score)
        return label, opposed(b, self.post_transform, score)

    def _linear(self, b: Builder, x: Value, labels: Value, classes: int) -> tuple[Value, Value]:
        """Of two classes the second is meant wherever a score is positive (0.5 or more, where no coefficient is
        negative)."""
        self.at_least("rho", self.rho, 1)
        found = b.Add(weighted(b, self.name, x, self.coefficients, classes), float(self.rho[0]))
        label = chosen(b, labels, found)
        if classes == 2:
            most = b.ReduceMax(found, [1], keepdims=False)
            positive = b.Less(b.like(0, most), most)
            if min(self.coefficients) >= 0:
                positive = b.LessOrEqual(b.like(0.5, most), most)
            label = b.Where(positive, b.Gather(labels, b.const(1), b.const(0)), label)
        return label, transformed(b, self.post_transform, found)

    def _decisions(self, b: Builder, x: Value, classes: int) -> Value:
        """What the machines for each two classes say, [n, machines]; summed in f64, since much of it cancels."""
        vectors, pairs = sum(self.vectors_per_class), list(combinations(range(classes), 2))
        self.at_least("coefficients", self.coefficients, (classes - 1) * vectors)
        self.at_least("rho", self.rho, len(pairs))
        filed = np.array(self.coefficients[: (classes - 1) * vectors], np.float32).reshape(classes - 1, vectors)
        ends = np.cumsum([0, *self.vectors_per_class])
        weights = np.zeros((vectors, len(pairs)), np.float64)
        for k, (i, j) in enumerate(pairs):
            mine, others = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
            weights[mine, k], weights[others, k] = filed[j - 1, mine], filed[i, others]
        found = b.MatMul(b.Cast(self.kernels(b, x, vectors), to=f64), b.graph.add_constant(weights))
        return b.Cast(b.Add(found, b.const([self.rho[: len(pairs)]], f64)), to=f32)

    def _probabilities(self, b: Builder, decisions: Value, classes: int) -> Value:
        """The probability of each class, by Platt scaling of the decisions."""
        machines = classes * (classes - 1) // 2
        self.at_least("prob_a", self.prob_a, machines)
        self.at_least("prob_b", self.prob_b, machines)
        scale, shift = (b.const([values[:machines]], f32) for values in (self.prob_a, self.prob_b))
        first = b.Sub(b.const(1.0, f32), b.Sigmoid(b.Add(b.Mul(decisions, scale), shift)))
        return b.CoupleProbabilities(b.Clip(first, b.const(CERTAIN, f32), b.const(1 - CERTAIN, f32)), classes=classes)

    onnx = (
        Form(
            "SVMClassifier",
            1,
            attrs={
                **KERNEL,
                "coefficients": Floats(()),
                "vectors_per_class": Ints(()),
                "prob_a": Floats(()),
                "prob_b": Floats(()),
                "classlabels_ints": Ints(()),
                "classlabels_strings": Strs(()),
            },
            T={"T": FEATURES, "L": {string, i64}},
            domain=ML,
        ),
    )


def _votes(b: Builder, decisions: Value, classes: int) -> Value:
    """Count for how many machines each class is the one that is meant, [n, classes]."""
    pairs = list(combinations(range(classes), 2))
    ahead = np.zeros((len(pairs), classes), np.float32)
    behind = np.zeros(classes, np.float32)
    for k, (i, j) in enumerate(pairs):
        ahead[k, i], ahead[k, j] = 1, -1
        behind[j] += 1
    positive = b.Cast(b.Less(b.like(0, decisions), decisions), to=f32)
    return b.Add(b.MatMul(positive, b.graph.add_constant(ahead)), b.graph.add_constant(behind))


@op
class CoupleProbabilities(Op):
    """The probabilities of classes by those of the first of each two: what SVMClassifier is compiled to.

    first: [n, pairs], (0, 1), (0, 2), ..., (1, 2), ...; y: [n, classes].  Minimizes the sum over each two of
    (p[j, i] · y[i] - p[i, j] · y[j])².
    """

    classes: int
    sig = Sig("first: f32[2] -> y: f32")

    def infer(self, first: Value) -> TensorType:
        return TensorType.of(f32, [first.shape[0], self.classes])

    def reference(self, first: Array) -> Array:
        n, k = len(first), self.classes
        kind = np.float32
        r = np.zeros((n, k, k), kind)
        rows, others = np.triu_indices(k, 1)
        r[:, rows, others], r[:, others, rows] = first, kind(1) - first
        q = -r.transpose(0, 2, 1) * r
        each = np.arange(k)
        q[:, each, each] = (r * r).sum(axis=1)
        p = np.full((n, k), kind(1) / kind(k), kind)
        going = np.ones(n, bool)
        for _ in range(STEPS):
            product = (q * p[:, None, :]).sum(axis=2)
            total = (p * product).sum(axis=1)
            error = np.fmax.reduce(np.abs(product - total[:, None]), axis=1, initial=kind(0))
            going = going & ~(error < kind(NEAR_ENOUGH) / kind(k))
            if not going.any():
                break
            before = p.copy()
            for i in range(k):
                diff = (total - product[:, i]) / q[:, i, i]
                p[:, i] += diff
                grown = kind(1) + diff
                total = (total + diff * (diff * q[:, i, i] + kind(2) * product[:, i])) / grown / grown
                product = (product + diff[:, None] * q[:, i]) / grown[:, None]
                p = p / grown[:, None]
            p = np.where(going[:, None], p, before)
        return p

    def loops(self, b: LoopBuilder, first: Tensor, y: Tensor) -> None:
        k = self.classes
        private = k * k * f32.itemsize <= LOCAL_BYTES
        with b.for_(y.shape[0], "parallel" if private else "serial", "n") as n:
            r, q = b.alloc(f32, (k, k), "r"), b.alloc(f32, (k, k), "q")
            product = b.alloc(f32, (k,), "product")
            self._matrices(b, first, n, (r, q))
            with b.for_(k) as i:
                b.store(y, (n, i), 1.0 / k)
            going = b.var(Const(True, boolean), "going")
            with b.for_(STEPS), b.if_(going):
                total = self._products(b, y, n, (q, product))
                error = b.var(Const(0.0, f32), "error")
                with b.for_(k) as i:
                    found = b.let(Un("abs", product[i] - total), "found")
                    b.assign(error, select(found.gt(error), found, error))
                b.assign(going, error.ge(NEAR_ENOUGH / k))
                with b.if_(going), b.for_(k) as i:
                    self._improve(b, y, (n, i), (q, product), total)

    def _matrices(self, b: LoopBuilder, first: Tensor, n: Expr, made: tuple[Tensor, Tensor]) -> None:
        """Spread the probabilities of pairs, and multiply them."""
        (r, q), k = made, self.classes
        pair = b.var(Const(0, i64), "pair")
        with b.for_(k) as i:
            b.store(r, (i, i), 0.0)
            with b.for_(k - 1 - i) as d:
                found = b.let(first[n, pair], "found")
                b.store(r, (i, i + 1 + d), found)
                b.store(r, (i + 1 + d, i), 1.0 - found)
                b.assign(pair, pair + 1)
        with b.for_(k) as i:
            square = b.var(Const(0.0, f32), "square")
            with b.for_(k) as j:
                b.assign(square, square + r[j, i] * r[j, i])
                b.store(q, (i, j), -(r[j, i] * r[i, j]))
            b.store(q, (i, i), square)

    def _products(self, b: LoopBuilder, y: Tensor, n: Expr, made: tuple[Tensor, Tensor]) -> Var:
        """Multiply the matrix with the probabilities.  Returns yᵀ · q · y."""
        q, product = made
        total = b.var(Const(0.0, f32), "total")
        with b.for_(self.classes) as i:
            row = b.var(Const(0.0, f32), "row")
            with b.for_(self.classes) as j:
                b.assign(row, row + q[i, j] * y[n, j])
            b.store(product, (i,), row)
            b.assign(total, total + y[n, i] * row)
        return total

    def _improve(
        self, b: LoopBuilder, y: Tensor, at: tuple[Expr, Expr], made: tuple[Tensor, Tensor], total: Var
    ) -> None:
        """Choose the best probability of one class; bring the sum of all back to 1."""
        (n, i), (q, product) = at, made
        diff = b.let((total - product[i]) / q[i, i], "diff")
        grown = b.let(diff + 1.0, "grown")
        b.store(y, (n, i), y[n, i] + diff)
        b.assign(total, (total + diff * (diff * q[i, i] + product[i] * 2.0)) / grown / grown)
        with b.for_(self.classes) as j:
            b.store(product, (j,), (product[j] + diff * q[i, j]) / grown)
            b.store(y, (n, j), y[n, j] / grown)
