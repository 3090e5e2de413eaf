"""Bounds of floats that follow from their expression, NaN aside: what is limited needs shorter functions."""

from __future__ import annotations

import math

from irc.expr import Bin, Call, Const, Expr, Un

Bounds = tuple[float, float]
UNKNOWN: Bounds = (-math.inf, math.inf)
RESULTS: dict[str, Bounds] = {**dict.fromkeys(("sin", "cos", "tanh", "erf"), (-1.0, 1.0)), "sigmoid": (0.0, 1.0)}


def bounds(e: Expr) -> Bounds:
    """Return what an expression is at least and at most where it is not NaN; infinities where nothing is known."""
    match e:
        case Const() if not math.isnan(float(e.value)):
            return float(e.value), float(e.value)
        case Bin(op="min" | "max"):
            chosen = min if e.op == "min" else max
            (low, high), (other_low, other_high) = bounds(e.a), bounds(e.b)
            return chosen(low, other_low), chosen(high, other_high)
        case Un(op="neg"):
            low, high = bounds(e.a)
            return -high, -low
        case Un(op="abs"):
            low, high = bounds(e.a)
            return max(low, -high, 0.0), max(-low, high)
        case Call() if e.fn in RESULTS:
            return RESULTS[e.fn]
        case _:
            return UNKNOWN
