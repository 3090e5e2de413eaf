"""Units for vectors of 512 bits: how many of them processors multiply and add in a cycle, those that are known."""

from __future__ import annotations

import re
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
MODELS = {
    **dict.fromkeys([("GenuineIntel", 6, model) for model in (125, 126)], "icelake-client"),
    **dict.fromkeys([("GenuineIntel", 6, model) for model in (140, 141)], "tigerlake"),
    ("GenuineIntel", 6, 167): "rocketlake",
    ("AuthenticAMD", 25, None): "znver4",
    ("AuthenticAMD", 26, None): "znver5",
}
"""Names of -march= by vendor, family and model (None: every one of the family that has vectors of 512 bits)."""
SERVERS = frozenset(("amx_tile", "avx512_fp16"))
"""What, of Intel's processors, only those for servers have, from Sapphire Rapids on."""
MULTIPLIED = {
    "skylake-avx512": 2,
    "cascadelake": 2,
    "cooperlake": 2,
    "icelake-client": 1,
    "icelake-server": 2,
    "tigerlake": 1,
    "rocketlake": 1,
    "sapphirerapids": 2,
    "emeraldrapids": 2,
    "graniterapids": 2,
    "znver4": 1,
    "znver5": 2,
}
"""Vectors of 512 bits that a core multiplies and adds a cycle, by the names of -march=."""


def multiplied(target: str, cpuinfo: Path = CPUINFO) -> int:
    """Look up how many vectors of 512 bits a core of a target multiplies and adds a cycle; 0 if that is not known.

    Of `native` by what Linux says of this processor in the file `cpuinfo`.
    """
    return MULTIPLIED.get(_here(cpuinfo) if target == "native" else target, 0)


def _here(cpuinfo: Path) -> str:
    """Name this processor as -march= does, or one like it; "" if it is neither one of `MODELS` nor has `SERVERS`.

    What it has goes before its model, which virtual machines make up: one says Rocket Lake of a Xeon with AMX.
    """
    vendor, family, model = identity(cpuinfo)
    if vendor == "GenuineIntel" and SERVERS & features(cpuinfo):
        return "sapphirerapids"
    return MODELS.get((vendor, family, model)) or MODELS.get((vendor, family, None), "")


def features(cpuinfo: Path = CPUINFO) -> frozenset[str]:
    """Read what this processor has; nothing if the system does not say it."""
    try:
        found = re.search(r"^flags\s*: (.+)$", cpuinfo.read_text(), re.MULTILINE)
    except OSError:
        return frozenset()
    return frozenset(found[1].split()) if found else frozenset()


def identity(cpuinfo: Path = CPUINFO) -> tuple[str, int, int]:
    """Read vendor, family and model of this processor; ("", 0, 0) if the system does not say them."""
    try:
        said = dict(re.findall(r"^(vendor_id|cpu family|model)\s*: (\w+)$", cpuinfo.read_text(), re.MULTILINE))
        return said["vendor_id"], int(said["cpu family"]), int(said["model"])
    except (OSError, KeyError, ValueError):
        return "", 0, 0
