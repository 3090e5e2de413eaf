"""Operands in another element type or rank: what is as wanted already stays."""

from __future__ import annotations

from irc.ir.graph import Value
from irc.ir.types import DType, i64
from irc.opdef.builder import Builder


def as_type(b: Builder, value: Value, to: DType) -> Value:
    """Convert to an element type."""
    return value if value.dtype == to else b.Cast(value, to=to)


def as_i64(b: Builder, value: Value) -> Value:
    """Convert to i64."""
    return as_type(b, value, i64)


def as_scalar(b: Builder, value: Value) -> Value:
    """Reshape one element to a scalar."""
    return b.Reshape(value, []) if value.rank else value


def as_vector(b: Builder, value: Value) -> Value:
    """Reshape a scalar to a vector."""
    return value if value.rank == 1 else b.Reshape(value, [-1])
