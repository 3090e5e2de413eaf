"""Memory that begins with a line of the cache: vectors of results that are in two lines take twice as long to store."""

from __future__ import annotations

import math

import numpy as np

from irc.arrays import Array, NumpyType

ALIGNMENT = 64
"""Bytes of a line of the cache."""
LARGE = 1 << 15
"""Bytes from which on an array is worth the two microseconds that aligning it takes in Python."""


def aligned_bytes(count: int) -> Array:
    """Allocate memory that begins at a multiple of `ALIGNMENT`, contents undefined."""
    memory = np.empty(count + ALIGNMENT, np.uint8)
    start = -memory.__array_interface__["data"][0] % ALIGNMENT
    return memory[start : start + count]


def aligned_array(shape: tuple[int, ...], dtype: NumpyType) -> Array:
    """Allocate an array that begins at a multiple of `ALIGNMENT`, contents undefined; one of objects as NumPy does."""
    if dtype.hasobject or min(shape, default=1) <= 0:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, aligned_bytes(math.prod(shape) * dtype.itemsize))


def result_array(shape: tuple[int, ...], dtype: NumpyType) -> Array:
    """Allocate an array for a result, contents undefined: a large one at a multiple of `ALIGNMENT`."""
    if math.prod(shape) * dtype.itemsize < LARGE:
        return np.empty(shape, dtype)
    return aligned_array(shape, dtype)


def first_elements(array: Array, shape: tuple[int, ...]) -> Array:
    """Cut an array that nobody else knows to its first elements, in this shape; a small one gives the rest back."""
    if array.flags.owndata and not array.dtype.hasobject:
        array.resize(shape, refcheck=False)
        return array
    return array.reshape(-1)[: math.prod(shape)].reshape(shape).copy()
