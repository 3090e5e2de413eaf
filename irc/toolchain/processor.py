"""This machine's processor: which family, which features, and whether it can run code built for others.

Apart from the toolchain, whose imports an artefact is loaded without.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from irc.diagnostics.codes import runtime as codes
from irc.diagnostics.core import NOWHERE, RunError, Sink
from irc.toolchain import matrix_units, vector_units

GATHER_DATA_SAMPLING = "/sys/devices/system/cpu/vulnerabilities/gather_data_sampling"


def machine() -> str:
    """Name this machine's family as Linux does."""
    return {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())


def model_name() -> str:
    """Read the processor's name, or nothing: another one may have the same features."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith("model name")), "")


@cache
def gathers_at_full_rate() -> bool:
    """Tell whether this processor reads vectors from all over memory as fast as it reads their elements, or faster.

    Those of Intel with vectors of 512 bits do where the kernel says that no microcode slows them down; AMD's read
    element by element in microcode, and their cores are not affected by what that one is about.
    """
    if "avx512f" not in cpu_features() or vector_units.identity()[0] != "GenuineIntel":
        return False
    try:
        return Path(GATHER_DATA_SAMPLING).read_text().strip() == "Not affected"
    except OSError:
        return False


@cache
def cpu_features() -> frozenset[str]:
    """Read the features of this processor, in the names of /proc/cpuinfo; empty if the system does not say."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return _sysctl_features()
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return frozenset(found.group(1).split()) if found else frozenset()


def _sysctl_features() -> frozenset[str]:
    """Read the features on macOS, under the same names as far as they exist there."""
    import subprocess

    keys = ("machdep.cpu.features", "machdep.cpu.leaf7_features", "machdep.cpu.extfeatures")
    try:
        done = subprocess.run(["sysctl", "-n", *keys], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    words = done.stdout.lower().replace("avx1.0", "avx").split()
    renamed = {"sse3": "pni", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "lzcnt": "abm"}
    neon = ["asimd"] if platform.machine() == "arm64" else []
    return frozenset([renamed.get(w, w) for w in words] + neon)


def missing_features(family: str, features: Iterable[str]) -> list[str]:
    """List which of these this machine does not have; the family itself if this machine is of another."""
    if family != machine():
        return [family]
    missing = sorted(set(features) - cpu_features())
    if not missing and matrix_units.needed(features) and not matrix_units.permitted():
        return ["amx_tile (the operating system refuses it)"]
    return missing


def check_features(target: str, family: str, features: Iterable[str]) -> None:
    """Check that this processor can run code built with these features.  Raises RunError IRC6007."""
    missing = missing_features(family, features)
    if missing:
        sink = Sink()
        sink.report(codes.MISSING_FEATURES, NOWHERE, target=target, missing=", ".join(missing))
        raise RunError(sink.diagnostics)
