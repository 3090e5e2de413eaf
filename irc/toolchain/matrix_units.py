"""Whether the operating system lets this process use matrix units."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Iterable

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


def permitted() -> bool:
    """Ask for AMX, for this process, all its threads and its children; whether it may be used.

    Linux 5.16 and later grant it to who asks, by arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), unless the
    processor has none, or an alternative signal stack is too small for the tiles.  Other systems: never.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    call = ctypes.CDLL(None).syscall
    call.restype, call.argtypes = ctypes.c_long, [ctypes.c_long] * 3
    return call(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0


def needed(features: Iterable[str]) -> bool:
    """Tell whether code built for these features, as in /proc/cpuinfo, needs the permission."""
    return "amx_tile" in features


def without(features: Iterable[str]) -> tuple[str, ...]:
    """List the features that are left without the permission."""
    return tuple(f for f in features if not f.startswith("amx_"))
