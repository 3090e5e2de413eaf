"""What expressions kernels compute with their sums, and how they spell them."""

from __future__ import annotations

import numpy as np

from irc.expr import Bin, Expr, call, select
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
    """Are products where nothing jumps: there an error of 1 ULP could become one of 1."""

    def divides(e: Expr) -> bool:
        return any(isinstance(x, Bin) and x.op == "div" for x in walk(recognised(e)))

    x = acc()
    assert not divides(x * (x + 3.0).max(0.0).min(6.0) / 6.0)
    assert divides(call("floor", x / 6.0)) and divides(select((x / 6.0).lt(1.0), x, 1.0))
    assert divides(x / 1e-39) and divides(1.0 / (x + 2.0)) and divides(acc(f64) / 6.0)
    with np.errstate(all="ignore"):
        a = np.arange(1 << 23, dtype=np.uint32) + np.uint32(0x3F800000)
        quotient = a.view(np.float32) / np.float32(6)
        apart = np.abs(quotient.view(np.int32) - (a.view(np.float32) * (np.float32(1) / np.float32(6))).view(np.int32))
    assert apart.max() == 1


def test_epilogue_support() -> None:
    assert supported((acc() * slot(0) + slot(1)).max(0.0) + slot(3), 4, f32)
    assert not supported(slot(1), 1, f32)
    assert not supported(call("lgamma", acc()), 0, f32)
    assert not supported(acc().cast(f64), 0, f32)
