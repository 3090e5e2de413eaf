"""How the elements of each type lie in a .bin."""

from __future__ import annotations

import numpy as np
import pytest

from irc.formats.openvino.packing import BLOCKS, NF4, pack, packed_size, unpack
from irc.ir.types import DTYPES, boolean, dtype


def test_bit_orders() -> None:
    def numbers(name: str, raw: list[int], count: int) -> list[float]:
        return unpack(dtype(name), np.array(raw, np.uint8), (count,)).astype(np.float64).tolist()

    assert numbers("u1", [0x96], 8) == [1, 0, 0, 1, 0, 1, 1, 0]
    assert numbers("u2", [0xE4], 4) == [0, 1, 2, 3]
    assert numbers("u4", [0x21], 2) == [1, 2]
    assert numbers("i4", [0x8F], 2) == [-1, -8]
    assert numbers("u3", [0b00011011, 0b00011011, 0b00001111], 8) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert numbers("u6", [0x12, 0x34, 0b00011011], 4) == [1, 18, 35, 52]
    assert numbers("nf4", [0xF0], 2) == [-1, 1] and numbers("f4e2m1", [0xF2], 2) == [1, -6]


@pytest.mark.parametrize("name", [d.name for d in DTYPES.values() if d.ov and d.kind not in "s?"])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 13])
def test_pack_undoes_unpack(name: str, count: int) -> None:
    kind = dtype(name)
    limit = 2 if kind == boolean else 256
    raw = np.random.default_rng(count).integers(0, limit, packed_size(kind, count) + 3, dtype=np.uint8)
    array = unpack(kind, raw, (count,))
    assert array.dtype == kind.numpy and array.shape == (count,)
    again = np.frombuffer(pack(kind, array), np.uint8)
    np.testing.assert_array_equal(unpack(kind, again, (count,)).astype(np.float64), array.astype(np.float64))
    if name not in BLOCKS and count:
        assert again.tobytes() == raw[: len(again)].tobytes()


def test_nf4_takes_the_nearest_level() -> None:
    nf4 = dtype("nf4")
    packed = np.frombuffer(pack(nf4, np.array([0.01, -2, 0.9, 0.08], np.float32)), np.uint8)
    assert unpack(nf4, packed, (4,)).tolist() == [0, -1, 1, NF4[8]]
