"""Numbers and texts at which programs break, drawn by the mutators of both formats."""

from __future__ import annotations

import math
from random import Random

INTEGERS = (
    0,
    1,
    -1,
    2,
    -2,
    3,
    4,
    5,
    7,
    8,
    16,
    31,
    63,
    64,
    65,
    127,
    128,
    255,
    256,
    1000,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32,
    -(2**31),
    2**40,
    2**53,
    2**61,
    2**62,
    2**63 - 1,
    -(2**63) + 1,
    -(2**63),
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-7, 3e38, -3e38, math.inf, -math.inf, math.nan, 2.0**31, 2.0**63)
TEXTS = (
    "",
    " ",
    "x",
    "y",
    "N",
    "None",
    "nan",
    "-1",
    "0",
    "class",
    "int",
    "double",
    "HUGE_VAL",
    "self",
    "np",
    "*/",
    '"',
    "'",
    "\\",
    "%s",
    "{0}",
    "{x}",
    "a\nb",
    "\uff58",
    "\u202e",
    "\U0001f600",
    "../x",
    "/",
    "/etc/hostname",
    "a" * 300,
    "<x>",
    "?",
    "?,3",
    "1..3",
    "3..1",
    "..",
    "1,2,3",
    "-1,-1",
    "9" * 25,
    "true",
    "false",
    "1.5",
    "NUMPY",
    "numpy",
    "0x10",
    "\u0661",
)


def integer(rng: Random, near: int = 0) -> int:
    """An integer of 64 bits: extreme, small, or a step away from `near`."""
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(INTEGERS)
    if kind < 0.7:
        return rng.randint(-4, 6)
    return max(-(2**63), min(2**63 - 1, rng.choice((near + 1, near - 1, -near, 2 * near, near // 2))))


def real(rng: Random, near: float = 0.0) -> float:
    """A float: special, small, or related to `near`."""
    return rng.choice((rng.choice(FLOATS), rng.uniform(-3, 3), -near, near * 2))


def text(rng: Random, near: str = "") -> str:
    """A text: hostile, or `near` with a piece missing, doubled or replaced."""
    if not near or rng.random() < 0.6:
        return rng.choice(TEXTS)
    at = rng.randrange(len(near))
    inserted = near[:at] + rng.choice(TEXTS)[:20] + near[at:]
    return rng.choice((near[:at], near[at:], inserted, near.upper(), near + near[:40]))


def broken_bytes(rng: Random, data: bytes) -> bytes:
    """The bytes cut, extended, with some of them replaced, or with an extreme integer written into them."""
    made = bytearray(data)
    kind = rng.randrange(5)
    if kind == 0 and made:
        return bytes(made[: rng.randrange(len(made))])
    if kind == 1:
        return bytes(made) + rng.randbytes(rng.choice((1, 3, 8, 64)))
    if kind == 2 and made:
        width = rng.choice((1, 2, 4, 8))
        at = rng.randrange(0, max(len(made) - width, 0) + 1, width)
        made[at : at + width] = (integer(rng) % 2 ** (8 * width)).to_bytes(width, "little")
        return bytes(made[: len(data)])
    for _ in range(rng.randint(1, 4)):
        if made:
            made[rng.randrange(len(made))] = rng.randrange(256)
    return bytes(made)
