"""Calls of the C backend whose arrays have the types and shapes of the call before.

What a call checks of its arguments, beside a small model, takes longer than the model.  All of it follows from types,
shapes and order in memory: where those are the same as last time, the answer is too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from irc.arrays import NumpyType
from irc.runtime.alignment import result_array
from irc.runtime.ports import Array

_from_buffer: Callable[[Any], Any] = ctypes.c_char.from_buffer
_addressof: Callable[[Any], int] = ctypes.addressof

Form = tuple[tuple[int, ...], NumpyType, int]
"""Shape, element type and alignment in bytes."""


class RepeatedCall:
    """A call of one model with arrays of given forms.

    names: the inputs' names, by which a dict gives them.
    start: runs on the addresses of inputs and outputs. Returns False if the model must be prepared anew.
    """

    def __init__(
        self, names: Sequence[str], inputs: Sequence[Array], outputs: Sequence[Array], start: Callable[[Any, Any], bool]
    ) -> None:
        self._names, self._start = names, start
        self._inputs: list[Form] = [(a.shape, a.dtype, a.dtype.alignment) for a in inputs]
        self._outputs = [(a.shape, a.dtype) for a in outputs]
        self._in_pointers = (ctypes.c_void_p * max(len(inputs), 1))()
        self._out_pointers = (ctypes.c_void_p * max(len(outputs), 1))()

    def run(self, inputs: tuple[Any, ...]) -> list[Array] | None:
        """Run on the arguments of a call; the caller holds the model's lock.

        Returns None, and has run nothing, if the arguments are of another form: they may still be valid.
        """
        given: Any = inputs
        if len(inputs) == 1:
            only, kind = inputs[0], cast("Any", type(inputs[0]))
            if kind is dict:
                if len(only) != len(self._names):
                    return None
                try:
                    given = [only[name] for name in self._names]
                except KeyError:
                    return None
            elif kind is list or kind is tuple:
                given = only
        arrays: list[Any] = list(given)  # other threads may change what was given, and so free an array of it
        if len(arrays) != len(self._inputs):
            return None
        pointers = self._in_pointers
        try:
            for k, (shape, kind, alignment) in enumerate(self._inputs):
                array = arrays[k]
                if type(array) is not np.ndarray or array.dtype is not kind or array.shape != shape:
                    return None
                address = _addressof(_from_buffer(array))  # refuses what is not contiguous
                if address % alignment:
                    return None
                pointers[k] = address
            results = [result_array(shape, kind) for shape, kind in self._outputs]
            for k, array in enumerate(results):
                self._out_pointers[k] = _addressof(_from_buffer(array))
        except (TypeError, ValueError, BufferError, MemoryError):  # read-only, say
            return None
        return results if self._start(pointers, self._out_pointers) else None
