"""Random numbers for tests: each test draws them from their beginning, whichever tests ran before it."""

from __future__ import annotations

import numpy as np

SEED = 0
RANDOM = np.random.default_rng(SEED)
"""Only for tests while they run: what a file draws when it is loaded comes from a generator of its own."""


def restart() -> None:
    """Let `RANDOM` begin anew."""
    RANDOM.bit_generator.state = np.random.default_rng(SEED).bit_generator.state
