"""The form of elements in raw_data: little-endian; 2-, 4- and 6-bit elements packed from the low bit up."""

from __future__ import annotations

import math

import numpy as np

from irc.arrays import Array
from irc.ir.types import DType


def packed_size(dtype: DType, count: int) -> int:
    """Bytes of `count` elements in raw_data."""
    return -(-count * dtype.bits // 8)


def unpack(data: Array, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Bytes of raw_data (uint8) to an array of whole elements; no copy where elements are bytes or more."""
    count = math.prod(shape)
    if dtype.bits >= 8:
        if dtype.kind == "b":
            return (data if data.max(initial=0) < 2 else (data != 0)).view(np.bool_).reshape(shape)
        return data.view(dtype.numpy).reshape(shape)
    if dtype.bits == 6:
        wide = np.zeros((-(-count // 4), 3), np.uint8)
        wide.reshape(-1)[: data.size] = data
        a, b, c = wide.T
        whole = np.stack([a, (a >> 6) | (b << 2), (b >> 4) | (c << 4), c >> 2], axis=1) & np.uint8(0x3F)
    else:
        shifts = np.arange(0, 8, dtype.bits, dtype=np.uint8)
        whole = (data[:, None] >> shifts) & np.uint8((1 << dtype.bits) - 1)
    return whole.reshape(-1)[:count].view(dtype.numpy).reshape(shape)


def pack(array: Array, dtype: DType) -> Array:
    """An array of whole elements to the bytes of raw_data (uint8, flat); no copy where that is possible."""
    flat = np.ascontiguousarray(array, dtype.numpy).reshape(-1)
    if dtype.bits >= 8:
        return flat.view(np.uint8)
    per_group = 4 if dtype.bits == 6 else 8 // dtype.bits
    codes_ = np.zeros(-(-flat.size // per_group) * per_group, np.uint8)
    codes_[: flat.size] = flat.view(np.uint8) & np.uint8((1 << dtype.bits) - 1)
    groups = codes_.reshape(-1, per_group)
    if dtype.bits == 6:
        a, b, c, d = groups.T
        packed = np.stack([a | (b << 6), (b >> 2) | (c << 4), (c >> 4) | (d << 2)], axis=1)
    else:
        packed = np.bitwise_or.reduce(groups << np.arange(0, 8, dtype.bits, dtype=np.uint8), axis=1)
    return packed.reshape(-1)[: packed_size(dtype, flat.size)].astype(np.uint8, copy=False)
