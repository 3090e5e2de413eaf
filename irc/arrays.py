"""Types of NumPy that say what irc knows of an array when it is written: nothing of its elements and shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

import numpy as np

Array = np.ndarray[Any, Any]
"""An array of any element type and shape; this alias is the one place that says so."""

NumpyType = np.dtype[Any]
"""An element type of NumPy, whichever it is."""

Data: TypeAlias = "Array | Sequence[Data] | Mapping[str | int, object] | None"
"""What a value is in Python: a tensor's array, the list of a sequence, None or the value of an optional, the dict of a
map."""


def is_array(value: object) -> TypeGuard[Array]:
    return isinstance(value, np.ndarray)
