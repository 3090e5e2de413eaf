"""Calls of the C backend whose arrays have the types and shapes of the call before.

What a call checks of its arguments, beside a small model, takes longer than the model.  All of it follows from types,
shapes and order in memory: where those are the same as last time, the answer is too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from irc.arrays import NumpyType
from irc.runtime.alignment import first_elements, result_array
from irc.runtime.ports import Array

_from_buffer: Callable[[Any], Any] = ctypes.c_char.from_buffer
_addressof: Callable[[Any], int] = ctypes.addressof

Form = tuple[tuple[int, ...], NumpyType, int]
"""Shape, element type and alignment in bytes."""


class Result(NamedTuple):
    """An array of a result: its shape and element type; `measured` if a run tells how much of it is used.

    rank: how many sizes the result has.  The array may have one axis for all elements that there can be.
    """

    shape: tuple[int, ...]
    dtype: NumpyType
    rank: int
    measured: bool


class RepeatedCall:
    """A call of one model with arrays of given forms.

    names: the inputs' names, by which a dict gives them.
    start: runs on the addresses of inputs, of outputs and of the outputs' sizes (None if nobody asks for them). Returns
    False if the model must be prepared anew.
    """

    def __init__(
        self,
        names: Sequence[str],
        inputs: Sequence[Array],
        outputs: Sequence[Result],
        start: Callable[[Any, Any, Any], bool],
    ) -> None:
        self._names, self._start = names, start
        self._inputs: list[Form] = [(a.shape, a.dtype, a.dtype.alignment) for a in inputs]
        self._outputs = [(r.shape, r.dtype) for r in outputs]
        self._in_pointers = (ctypes.c_void_p * max(len(inputs), 1))()
        self._out_pointers = (ctypes.c_void_p * max(len(outputs), 1))()
        measured = any(r.measured for r in outputs)
        self._sizes = (ctypes.c_int64 * max(sum(r.rank for r in outputs), 1))() if measured else None
        starts = [sum(r.rank for r in outputs[:k]) for k in range(len(outputs))]
        self._measured = [
            (k, at, at + r.rank) for k, (r, at) in enumerate(zip(outputs, starts, strict=True)) if r.measured
        ]

    def run(self, inputs: tuple[Any, ...]) -> list[Array] | None:
        """Run on the arguments of a call; the caller holds the model's lock.

        Returns None, and has changed nothing, if the arguments are of another form, or sizes that the run decides need
        more room: they may still be valid.
        """
        given = inputs if len(inputs) != 1 else self._listed(inputs[0], inputs)
        if given is None:
            return None
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
        sizes = self._sizes
        if not self._start(pointers, self._out_pointers, sizes):
            return None
        if sizes is not None:
            self._cut_to(sizes, results)
        return results

    def _listed(self, only: Any, inputs: tuple[Any, ...]) -> Any:
        """Take the only argument of a call for all inputs, if it holds them; None if it names others."""
        kind = cast("Any", type(only))
        if kind is dict:
            if len(only) != len(self._names):
                return None
            try:
                return [only[name] for name in self._names]
            except KeyError:
                return None
        return only if kind is list or kind is tuple else inputs

    def _cut_to(self, sizes: Any, results: list[Array]) -> None:
        """Cut the results that are measured to the sizes that the run has found."""
        for k, begin, end in self._measured:
            array, shape = results[k], tuple(sizes[begin:end])
            if shape != array.shape:
                results[k] = first_elements(array, shape)
