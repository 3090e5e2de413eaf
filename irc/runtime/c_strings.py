"""Strings of NumPy's object arrays as C takes and gives them: `irc_string`s, a pointer and a number of bytes each."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np

from irc.runtime.ports import Array, Port

FIELDS = 2
STRING = "string"


def in_memory(port: Port) -> Port:
    """Describe a port's tensor as C has it: for strings, their fields along one more axis."""
    if port.element != STRING or port.shape is None:
        return port

    return replace(
        port,
        dtype=np.dtype(np.int64),
        shape=(*port.shape, FIELDS),
        sizes=None if port.sizes is None else (*port.sizes, FIELDS),
        max_sizes=None if port.max_sizes is None else (*port.max_sizes, FIELDS),
        codes=(*port.codes, FIELDS),
    )


def given(array: Array) -> tuple[Array, object]:
    """Lay out strings for C.  Returns the pairs, and what keeps their memory alive."""
    encoded = [text.encode("utf-8", "surrogateescape") for text in array.reshape(-1)]
    memory = b"".join(encoded)
    start = ctypes.cast(ctypes.c_char_p(memory), ctypes.c_void_p).value or 0
    sizes = np.array([len(text) for text in encoded], np.int64)
    pairs = np.empty((len(encoded), FIELDS), np.int64)
    pairs[:, 0] = start + np.cumsum(sizes) - sizes
    pairs[:, 1] = sizes
    return pairs.reshape(*array.shape, FIELDS), memory


def taken(pairs: Array) -> Array:
    """Read the strings that C gives, out of the memory of its context."""
    flat = pairs.reshape(-1, FIELDS).tolist()
    made: Array = np.empty(len(flat), object)
    made[:] = [ctypes.string_at(at, size).decode("utf-8", "surrogateescape") for at, size in flat]
    return made.reshape(pairs.shape[:-1])
