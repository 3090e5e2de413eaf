"""Sigmoid and Tanh as quotients of polynomials in f32, to the last bit as ONNX Runtime and Eigen compute them.

A network that is quantized as it runs rounds what it computes to 256 values: there another last bit is soon another
value, and after some steps another result.  Their errors are at most 1.3e-7 and 2.7e-7.
Source: Eigen, MathFunctionsImpl.h (its coefficients); ONNX Runtime, MLAS.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irc.expr import Expr
from irc.ir.types import f32, f64
from irc.opdef.base import Array

SIGMOID = (
    (4.37031012579801e-11, 1.15627324459942e-07, 6.08574864600143e-05, 8.51377133304701e-03, 2.48287947061529e-01),
    (
        6.10247389755681e-13,
        5.76102136993427e-09,
        6.29106785017040e-06,
        1.70198817374094e-03,
        1.16817656904453e-01,
        9.93151921023180e-01,
    ),
)
"""Coefficients of x² in the odd numerator, divided by x, and in the denominator, of sigmoid(x) - 1/2."""
TANH = (
    (
        -2.76076847742355e-16,
        2.00018790482477e-13,
        -8.60467152213735e-11,
        5.12229709037114e-08,
        1.48572235717979e-05,
        6.37261928875436e-04,
        4.89352455891786e-03,
    ),
    (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03),
)
"""The same of tanh(x)."""
SIGMOID_END, TANH_END = 18.0, 9.0
"""Where the operand is clipped."""


def rational_sigmoid(x: Array) -> Array:
    """sigmoid(x) of f32."""
    return np.minimum(np.maximum(_quotient(x, SIGMOID_END, SIGMOID) + np.float32(0.5), np.float32(0)), np.float32(1))


def rational_tanh(x: Array) -> Array:
    """tanh(x) of f32."""
    return _quotient(x, TANH_END, TANH)


def rational_sigmoid_expr(x: Expr) -> Expr:
    """sigmoid(x) of f32."""
    return (_quotient_expr(x, SIGMOID_END, SIGMOID) + 0.5).max(0.0).min(1.0)


def rational_tanh_expr(x: Expr) -> Expr:
    """tanh(x) of f32."""
    return _quotient_expr(x, TANH_END, TANH)


def _quotient(x: Array, end: float, parts: tuple[Sequence[float], Sequence[float]]) -> Array:
    x = np.minimum(np.maximum(x, np.float32(-end)), np.float32(end))
    square = (x * x).astype(np.float64)
    above, below = (_polynomial(square, coefficients) for coefficients in parts)
    return above * x / below


def _polynomial(square: Array, coefficients: Sequence[float]) -> Array:
    """Sum by Horner's rule, a product and a sum rounded once: f64 has the product exactly."""
    total = np.full(square.shape, coefficients[0], np.float32)
    for c in coefficients[1:]:
        total = (total.astype(np.float64) * square + np.float64(np.float32(c))).astype(np.float32)
    return total


def _quotient_expr(x: Expr, end: float, parts: tuple[Sequence[float], Sequence[float]]) -> Expr:
    x = x.max(-end).min(end)
    square = (x * x).cast(f64)
    above, below = (_polynomial_expr(square, coefficients) for coefficients in parts)
    return above * x / below


def _polynomial_expr(square: Expr, coefficients: Sequence[float]) -> Expr:
    first, second, *rest = (float(np.float32(c)) for c in coefficients)
    total = (square * first + second).cast(f32)
    for c in rest:
        total = (total.cast(f64) * square + c).cast(f32)
    return total
