"""Results begin with a line of the cache: those of a bound call in any case, those of a call if they are large."""

import numpy as np
import pytest

from irc.ir.types import f32, i8
from irc.runtime.alignment import ALIGNMENT, LARGE, aligned_array, result_array


@pytest.mark.parametrize("shape", [(), (3,), (0, 5), (7, 1, 5), (300, 77)])
@pytest.mark.parametrize("dtype", [f32, i8])
def test_aligned_arrays(shape: tuple[int, ...], dtype: object) -> None:
    kind = dtype.numpy  # type: ignore[attr-defined]
    for _ in range(5):
        made = aligned_array(shape, kind)
        assert made.shape == shape and made.dtype == kind and made.flags.c_contiguous and made.flags.writeable
        assert not made.size or made.ctypes.data % ALIGNMENT == 0
        made[...] = 1
        assert made.sum() == made.size


def test_large_results_are_aligned() -> None:
    kept = [result_array((LARGE + 4 * k,), np.dtype(np.int8)) for k in range(20)]
    assert all(x.ctypes.data % ALIGNMENT == 0 for x in kept)
    assert result_array((5,), np.dtype(np.float32)).base is None
