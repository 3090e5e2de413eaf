"""One row per case, one file per family; `tests/ops/test_ops.py` runs every row through every layer.

CASES = [
    Case(Relu(), (Spec("f32", (2, 3)),)),
    Case(Gather(axis=1), (Spec("f32", (4, 5)), Spec("i64", (2,), values=[3, 0], const=True))),
]
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from irc.ir.types import DType, dtype
from irc.opdef.base import Op


@dataclass(frozen=True)
class Spec:
    """An operand: element type, shape, range of its random values (or the values), whether it is constant."""

    dtype: str
    shape: tuple[int, ...]
    low: float = -2
    high: float = 2
    values: Any = None
    const: bool = False

    @property
    def type(self) -> DType:
        return dtype(self.dtype)

    def array(self, seed: str) -> np.ndarray[Any, Any]:
        """The operand's data: the same for the same case every time."""
        if self.values is not None:
            return np.array(self.values, self.type.numpy).reshape(self.shape)
        rng = np.random.default_rng(zlib.crc32(seed.encode()))
        if self.dtype == "bool":
            return rng.integers(0, 2, self.shape).astype(bool)
        if self.type.is_integer:
            low = max(self.low, 0) if self.type.kind == "u" else self.low
            return rng.integers(int(low), int(self.high) + 1, self.shape).astype(self.type.numpy)
        return np.asarray(rng.uniform(self.low, self.high, self.shape)).astype(self.type.numpy)

    def fixed(self) -> Spec:
        return replace(self, const=True)


ALONE = "not in ONNX Runtime"
"""The note of cases of com.microsoft that the schema allows and that ONNX Runtime cannot run."""


@dataclass(frozen=True)
class Case:
    """An operation with operands (None: absent).  `rtol` is relative, for C and NumPy against the reference."""

    op: Op
    inputs: tuple[Spec | None, ...]
    rtol: float = 0
    note: str = ""

    def __str__(self) -> str:
        shapes = ", ".join("-" if s is None else f"{s.dtype}{list(s.shape)}" for s in self.inputs)
        return f"{self.op} {shapes}" + (f" {self.note}" if self.note else "")

    def arrays(self) -> list[np.ndarray[Any, Any] | None]:
        return [None if s is None else s.array(f"{self}/{i}") for i, s in enumerate(self.inputs)]
