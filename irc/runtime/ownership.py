"""Ownership of results: memory of their own, whatever a generated NumPy module returned.

A NumPy operation may return a view of an operand, or the operand itself: of an input, of a constant of the model, of
another result, of a variable.  Who writes into such a result would change what it is a view of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, cast

import numpy as np

from irc.arrays import Array


def owner(array: Array) -> Any:
    """Return the object whose memory an array uses: an array, or whatever the memory came from."""
    found: Any = array
    while isinstance(found, np.ndarray):
        below: Any = cast("Array", found).base
        if below is None:
            return found  # pyright: ignore[reportUnknownVariableType]
        found = below
    return found


def arrays_in(values: Iterable[Any]) -> Iterator[Array]:
    """Yield the arrays among these values, also those inside lists, tuples and dicts."""
    for value in values:
        if isinstance(value, np.ndarray):
            yield cast("Array", value)
        elif isinstance(value, list | tuple):
            yield from arrays_in(cast("Iterable[Any]", value))
        elif isinstance(value, dict):
            yield from arrays_in(cast("dict[Any, Any]", value).values())


def owners(values: Iterable[Any]) -> set[int]:
    """Collect the identities of the owners of all arrays in these values."""
    return {id(owner(a)) for a in arrays_in(values)}


def constants_of(module: ModuleType) -> list[Array]:
    """Collect the arrays that a generated module keeps from run to run, and make them read-only."""
    found = list(arrays_in(v for name, v in vars(module).items() if not name.startswith("__")))
    for array in found:
        array.flags.writeable = False
    return found


def given_away(value: Any, taken: set[int]) -> Any:
    """Prepare a result for the caller: C-contiguous, writable arrays that share memory with nothing else.

    `taken`: the owners of memory that is in use; those of the result are added.
    """
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(cast("Any", value))
        if not _is_free(array, taken):
            array = np.array(array, order="C")
        taken.add(id(owner(array)))
        return array
    if isinstance(value, list | tuple):
        return [given_away(v, taken) for v in cast("Iterable[Any]", value)]
    if isinstance(value, dict):
        return dict(cast("dict[Any, Any]", value))
    return value


def _is_free(array: Array, taken: set[int]) -> bool:
    """Tell whether an array can be given away as it is: it is all of some memory that nothing else uses."""
    holder = owner(array)
    if not isinstance(holder, np.ndarray) or id(cast("Any", holder)) in taken:
        return False
    return cast("Array", holder).nbytes == array.nbytes and array.flags.c_contiguous and array.flags.writeable


def kept(value: Any, taken: set[int]) -> Any:
    """Keep the value of a variable: as a copy if it uses memory of `taken`, the inputs."""
    if isinstance(value, np.ndarray):
        array = cast("Array", value)
        holder = owner(array)
        return array.copy() if id(holder) in taken or not isinstance(holder, np.ndarray) else array
    if isinstance(value, list | tuple):
        return [kept(v, taken) for v in cast("Iterable[Any]", value)]
    return value
