"""The registry of kernels, and the selection of one for a problem: the candidate of the fewest cycles."""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, dataclass_transform

from irc.kernels.core.base import Kernel
from irc.kernels.core.choices import current
from irc.kernels.core.isa import Isa
from irc.kernels.core.problem import Problem

KERNELS: dict[type[Problem], list[type[Kernel[Any]]]] = {}
"""The kernels of each class of problems, by the names of their modules."""
C = TypeVar("C", bound=type[Kernel[Any]])
P = TypeVar("P", bound=Problem)


@dataclass_transform(frozen_default=True)
def kernel(cls: C) -> C:
    """Register a class as a kernel: a frozen dataclass, a candidate for the problems of its class `problem`."""
    cls = dataclass(frozen=True)(cls)
    kernels = KERNELS.setdefault(cls.problem, [])
    kernels.append(cls)
    kernels.sort(key=lambda k: (k.__module__, k.__name__))
    return cls


@cache
def load_all() -> None:
    """Import every module of `irc.kernels`, which registers its kernels."""
    import irc.kernels

    for info in pkgutil.walk_packages(irc.kernels.__path__, "irc.kernels."):
        importlib.import_module(info.name)


def candidates(problem: P, isa: Isa) -> Mapping[str, Kernel[P]]:
    """List the kernels that solve a problem on an instruction set, by their labels, the cheapest first.

    A program runs on any number of threads: the cheapest has the least product of the times of one and of two.
    """
    load_all()
    kernels = [k for cls in KERNELS.get(type(problem), ()) for k in cls.candidates(problem, isa)]
    labels = {k.label: k for k in sorted(kernels, key=lambda k: k.cycles(problem) * math.sqrt(k.imbalance(problem)))}
    assert len(labels) == len(kernels), f"candidates of {problem} share a label"
    return labels


def select(problem: P, isa: Isa) -> Kernel[P] | None:
    """Select the cheapest kernel for a problem, or the one that was measured to be; None if none solves it."""
    return current().pick(problem.work, candidates(problem, isa))
