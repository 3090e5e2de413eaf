"""What expressions kernels compute with their sums, and how they spell them."""

from __future__ import annotations

import numpy as np
import pytest

from irc.expr import Bin, Const, Expr, call, select
from irc.ir.types import f32, f64
from irc.kernels import Epilogue, acc, slot, supported
from irc.kernels.core.epilogue import recognised
from irc.traversal import walk


def test_gelu_is_recognised() -> None:
    x, other = acc() + slot(0), acc() * slot(0)
    erf = call("erf", x * 0.70710678)
    for e in (x * 0.5 * (erf + 1.0), (x * 0.5) * (1.0 + erf), (erf + 1.0) * (0.5 * x), (x * (erf + 1.0)) / 2.0):
        assert Epilogue(e, ("row",)).functions() == ("gelu",)
        assert Epilogue(e * slot(1) * 3.0, ("row", "row")).functions() == ("gelu",)
    for e in (x * (erf + 1.0), x * slot(1) * (1.0 + erf)):
        assert Epilogue(e, ("row", "row")).functions() == ("gelu",)
    for e in (x * x * 0.5 + erf, x * 0.5 * (erf + 2.0), x * 0.5 * (call("erf", x) + 1.0), other * 0.5 * (erf + 1.0)):
        assert Epilogue(e, ("row",)).functions() == ("erf",)
    assert Epilogue(acc(f64) * 0.5 * (call("erf", acc(f64) * 0.5**0.5) + 1.0)).functions() == ("erf",)


def test_quotients_by_a_number() -> None:
    """Products stand for them where nothing jumps: there an error of 1 ULP could become one of 1."""

    def divides(e: Expr) -> bool:
        return any(isinstance(x, Bin) and x.op == "div" for x in walk(recognised(e)))

    x = acc()
    assert not divides(x * (x + 3.0).max(0.0).min(6.0) / 6.0)
    assert divides(call("floor", x / 6.0)) and divides(select((x / 6.0).lt(1.0), x, 1.0))
    assert divides(x / 1e-39) and divides(1.0 / (x + 2.0)) and divides(acc(f64) / 6.0)


@pytest.mark.parametrize("divisor", [3.0, 6.0, 0.7, 1.9999998, 1.0000001])
def test_error_of_quotients_by_a_number(divisor: float) -> None:
    """Of every significand."""
    product = recognised(acc() / divisor)
    assert isinstance(product, Bin) and product.op == "mul" and isinstance(product.b, Const)
    x = np.arange(0x3F800000, 0x40000000, dtype=np.int32).view(np.float32)
    found, exact = x * np.float32(product.b.value), x / np.float64(np.float32(divisor))
    error = np.abs(found - exact) / np.spacing(exact.astype(np.float32))
    assert error.max() <= 1.5


def test_epilogue_support() -> None:
    assert supported((acc() + slot(0)).max(0.0) * slot(1) * slot(2) + slot(3), 4, f32)
    assert not supported(slot(1), 1, f32)
    assert not supported(call("lgamma", acc()), 0, f32)
    assert not supported(acc().cast(f64), 0, f32)
