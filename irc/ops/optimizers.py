"""Steps of training: Adagrad, Adam, Momentum, each of any number of tensors, which may be of different types.

The operands are the learning rate, how many updates there were, all tensors, all their gradients, then all their
accumulators of each kind; the results are all new tensors, then all new accumulators.  Rates are computed in f64.
Sources: ONNX operator pages of the same names, domain ai.onnx.preview.training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from irc.diagnostics import Facts, require
from irc.diagnostics.codes import operation as codes, shape as shape_codes
from irc.ir.graph import Value
from irc.ir.relation import every, same
from irc.ir.types import DType, TensorType, Type, f32, f64
from irc.opdef.base import Op, op, op_base
from irc.opdef.builder import Builder
from irc.opdef.codecs import Enum, Float, single
from irc.opdef.conversions import as_scalar, as_type
from irc.opdef.forms import Form
from irc.opdef.signature import Sig

DOMAIN = "ai.onnx.preview.training"
RATES = frozenset({f32, f64})
TYPES = {"T1": RATES}
DECAYS = single(0.9), single(0.999)
SMALL = single(1e-6)


def element_type(value: Value) -> Type | DType | None:
    """The element type of a tensor, or the type of what is none."""
    return value.dtype if isinstance(value.type, TensorType) else value.type


@op_base
class Optimizer(Op):
    """A step for tensors that have an accumulator of each of `kinds` kinds."""

    norm_coefficient: float = 0.0
    sig = Sig("rate: T1[one], count: i64[one], *xs: any -> *ys: any", T1=RATES)
    kinds: ClassVar[int]

    def decompose(self, b: Builder, rate: Value, count: Value, *xs: Value) -> tuple[Value, ...]:
        parts = 2 + self.kinds
        tensors = len(xs) // parts
        whole = tensors > 0 and len(xs) % parts == 0
        needed = f"2 and a multiple of {parts}"
        require(whole, codes.TOO_FEW_INPUTS, op=self.name, given=2 + len(xs), needed=needed, operands=self.sig.operands)
        rate, count = as_type(b, as_scalar(b, rate), f64), as_type(b, as_scalar(b, count), f64)
        rate = self.adjusted(b, rate, count)
        results: list[tuple[Value, ...]] = []
        for k in range(tensors):
            x, *others = xs[k::tensors]
            self.check_types(k, x, others)
            for y in others:
                equal = len(x.shape) == len(y.shape) and every(*map(same, x.shape, y.shape))
                require(equal, shape_codes.SHAPES_DIFFER, op=self.name, first=x.tensor, second=y.tensor)
            others[0] = b.Add(b.Mul(x, b.like(self.norm_coefficient, x)), others[0])
            results.append(self.step(b, as_type(b, rate, x.dtype), count, x, *others))
        return tuple(y for kind in zip(*results, strict=True) for y in kind)

    def check_types(self, number: int, x: Value, others: Sequence[Value]) -> None:
        """Require that a tensor is of a type that steps are made in, and its gradient and accumulators of the same."""
        facts: Facts = {"op": self.name, "operand": f"tensor {number}", "dtype": element_type(x)}
        require(element_type(x) in RATES, codes.TYPE_NOT_ALLOWED, **facts, allowed="f64, f32")
        for y in others:
            facts = {"op": self.name, "operand": f"what belongs to tensor {number}", "dtype": element_type(y)}
            equal = element_type(y) == element_type(x)
            require(equal, codes.TYPE_MISMATCH, **facts, other=f"tensor {number}", first=element_type(x))

    def result_count(self, rate: Value, count: Value, *xs: Value) -> int:
        return len(xs) // (2 + self.kinds) * (1 + self.kinds)

    def adjusted(self, b: Builder, rate: Value, count: Value) -> Value:
        """The rate of this step, from scalars of f64."""
        return rate

    def step(self, b: Builder, rate: Value, count: Value, x: Value, g: Value, *more: Value) -> tuple[Value, ...]:
        """The new tensor and accumulators; `g` is the regularized gradient."""
        raise NotImplementedError


def blend(b: Builder, weight: float, old: Value, new: Value) -> Value:
    """weight · old + (1 - weight) · new."""
    return b.Add(b.Mul(old, b.like(weight, old)), b.Mul(new, b.like(1 - weight, old)))


@op
class Adagrad(Optimizer):
    """h' = h + g²; x' = x - rate / (1 + count · decay_factor) · g / (√h' + epsilon)."""

    decay_factor: float = 0.0
    epsilon: float = SMALL
    kinds = 1

    def adjusted(self, b: Builder, rate: Value, count: Value) -> Value:
        slower = b.Add(b.Mul(count, b.like(self.decay_factor, count)), b.like(1.0, count))
        return b.Div(rate, slower)

    def step(self, b: Builder, rate: Value, count: Value, x: Value, g: Value, *more: Value) -> tuple[Value, ...]:
        squares = b.Add(more[0], b.Mul(g, g))
        root = b.Add(b.Sqrt(squares), b.like(self.epsilon, x))
        return b.Sub(x, b.Div(b.Mul(rate, g), root)), squares

    onnx = (
        Form(
            "Adagrad",
            1,
            attrs={"decay_factor": Float(0.0), "epsilon": Float(SMALL), "norm_coefficient": Float(0.0)},
            T=TYPES,
            domain=DOMAIN,
        ),
    )


@op
class Adam(Optimizer):
    """v' = alpha v + (1 - alpha) g; h' = beta h + (1 - beta) g²; x' = (x - r v' / (√h' + epsilon)) · (1 - post).

    r = rate · √(1 - beta^count) / (1 - alpha^count), or the rate itself in step 0; `norm_coefficient_post` is post.
    """

    alpha: float = DECAYS[0]
    beta: float = DECAYS[1]
    epsilon: float = SMALL
    norm_coefficient_post: float = 0.0
    kinds = 2

    def adjusted(self, b: Builder, rate: Value, count: Value) -> Value:
        one = b.like(1.0, count)
        first, second = (b.Sub(one, b.Pow(b.like(c, count), count)) for c in (self.alpha, self.beta))
        corrected = b.Div(b.Mul(rate, b.Sqrt(second)), first)
        return b.Where(b.Greater(count, b.like(0.0, count)), corrected, rate)

    def step(self, b: Builder, rate: Value, count: Value, x: Value, g: Value, *more: Value) -> tuple[Value, ...]:
        v, h = blend(b, self.alpha, more[0], g), blend(b, self.beta, more[1], b.Mul(g, g))
        root = b.Add(b.Sqrt(h), b.like(self.epsilon, x))
        y = b.Sub(x, b.Div(b.Mul(rate, v), root))
        return b.Mul(y, b.like(1 - self.norm_coefficient_post, x)), v, h

    onnx = (
        Form(
            "Adam",
            1,
            attrs={
                "alpha": Float(DECAYS[0]),
                "beta": Float(DECAYS[1]),
                "epsilon": Float(SMALL),
                "norm_coefficient": Float(0.0),
                "norm_coefficient_post": Float(0.0),
            },
            T=TYPES,
            domain=DOMAIN,
        ),
    )


@op
class Momentum(Optimizer):
    """v' = alpha v + b g; x' = x - rate · v', or (nesterov) x - rate · (g + alpha v'); b is beta, and 1 in step 0."""

    alpha: float = 0.0
    beta: float = 1.0
    nesterov: bool = False
    kinds = 1

    def step(self, b: Builder, rate: Value, count: Value, x: Value, g: Value, *more: Value) -> tuple[Value, ...]:
        later = b.Greater(count, b.like(0.0, count))
        beta = b.Where(later, b.like(self.beta, x), b.like(1.0, x))
        v = b.Add(b.Mul(more[0], b.like(self.alpha, x)), b.Mul(beta, g))
        direction = b.Add(g, b.Mul(v, b.like(self.alpha, x))) if self.nesterov else v
        return b.Sub(x, b.Mul(rate, direction)), v

    onnx = (
        Form(
            "Momentum",
            1,
            attrs={
                "alpha": Float(),
                "beta": Float(),
                "mode": Enum({"standard": False, "nesterov": True}, to="nesterov"),
                "norm_coefficient": Float(),
            },
            T=TYPES,
            domain=DOMAIN,
        ),
    )
