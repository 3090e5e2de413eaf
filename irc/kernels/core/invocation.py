"""Calling kernels of a library from Python."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from irc.kernels.core.base import Kernel


def argument_struct(kernel: Kernel[Any], values: Sequence[int]) -> ctypes.Structure:
    """Lay the struct of arguments out that a kernel's function takes; values: of its `arguments`, addresses as numbers.

    ValueError: too few or too many values.
    """
    members = [(n, ctypes.c_void_p if t.endswith("*") else ctypes.c_int64) for n, t in kernel.arguments]
    made = type(f"{kernel.symbol}_args", (ctypes.Structure,), {"_fields_": members})()
    for (name, _), value in zip(members, values, strict=True):
        setattr(made, name, value)
    return made
