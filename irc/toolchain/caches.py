"""Second caches of processors: what this one says of its own, and those of processors that compilers know by name."""

from __future__ import annotations

from pathlib import Path

SYSTEM = Path("/sys/devices/system/cpu/cpu0/cache")
SECOND = {
    "haswell": 256 << 10,
    "broadwell": 256 << 10,
    "skylake": 256 << 10,
    "skylake-avx512": 1 << 20,
    "cascadelake": 1 << 20,
    "cooperlake": 1 << 20,
    "icelake-client": 512 << 10,
    "icelake-server": 1280 << 10,
    "sapphirerapids": 2 << 20,
    "znver1": 512 << 10,
    "znver2": 512 << 10,
    "znver3": 512 << 10,
    "znver4": 1 << 20,
    "znver5": 1 << 20,
}
"""Bytes of the second cache of a core, by the names of -march=."""
_UNITS = {"K": 1 << 10, "M": 1 << 20}


def second_cache(target: str, system: Path = SYSTEM) -> int:
    """Look up the bytes of the second cache of a core of a target; 0 if nothing is known of it.

    Of `native` what Linux says, below the folder `system`.
    """
    if target != "native":
        return SECOND.get(target, 0)
    try:
        for cache in sorted(system.glob("index*")):
            size = (cache / "size").read_text().strip()
            if (cache / "level").read_text().strip() == "2" and size[:-1].isdigit() and size[-1] in _UNITS:
                return int(size[:-1]) * _UNITS[size[-1]]
    except OSError:
        pass
    return 0
