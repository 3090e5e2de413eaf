"""Element storage of the .bin: bytes to whole elements and back, one array item per element.

Sub-byte types are packed over the flattened tensor and the last byte (u3, u6: block) is padded
with zeros.  Sources: OpenVINO IR specification; the bit orders of u1, u2, u3, u6 are those of
OpenVINO's serializer.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

import numpy as np

from irc.arrays import Array
from irc.ir.types import NF4_VALUES, DType

Bytes = Array  # of uint8

NF4 = np.array(NF4_VALUES, np.float32)

# Elements and bytes of one storage block of the types that are not a whole number of bytes.
BLOCKS = {
    "u1": (8, 1),
    "u2": (4, 1),
    "u3": (8, 3),
    "u4": (2, 1),
    "i4": (2, 1),
    "nf4": (2, 1),
    "f4e2m1": (2, 1),
    "u6": (4, 3),
}


def packed_size(dtype: DType, elements: int) -> int:
    """Bytes OpenVINO asks for: the bits rounded up to bytes (not for strings)."""
    return (elements * dtype.bits + 7) // 8


def stored_size(dtype: DType, elements: int) -> int:
    """Bytes that a blob takes: u3 and u6 come in whole blocks."""
    per, size = BLOCKS.get(dtype.name, (1, dtype.bits // 8))
    return -(-elements // per) * size


def unpack(dtype: DType, raw: Bytes, shape: tuple[int, ...]) -> Array:
    """The array stored in `raw` (surplus bytes are ignored); read-only and zero-copy for whole-byte types."""
    count = int(np.prod(shape, dtype=object)) if shape else 1
    if count == 0:
        return np.zeros(shape, dtype.numpy)
    if dtype.name == "string":
        return np.array(unpack_strings(raw.tobytes()), dtype=object).reshape(shape)
    if dtype.name == "bool":
        return (raw[:count] != 0).reshape(shape)
    if dtype.name not in BLOCKS:
        return raw[: count * dtype.bits // 8].view(dtype.numpy).reshape(shape)
    codes = _codes(dtype, raw, count)
    if dtype.name == "nf4":
        return NF4[codes].reshape(shape)
    if dtype.name == "i4":
        return ((codes.view(np.int8) ^ 8) - 8).astype(dtype.numpy).reshape(shape)
    if dtype.name == "f4e2m1":
        return codes.view(dtype.numpy).reshape(shape)
    return codes.astype(dtype.numpy).reshape(shape)


def _codes(dtype: DType, raw: Bytes, count: int) -> Bytes:
    """The bit patterns of the elements, one byte each."""
    per, size = BLOCKS[dtype.name]
    blocks = -(-count // per)
    data = raw[: blocks * size]
    if len(data) < blocks * size:  # u3 and u6 blobs may stop inside their last block
        data = np.concatenate([data, np.zeros(blocks * size - len(data), np.uint8)])
    if dtype.name == "u1":
        return np.unpackbits(data)[:count]
    if dtype.name == "u2":
        return np.stack([(data >> s) & 3 for s in (0, 2, 4, 6)], -1).reshape(-1)[:count]
    if dtype.name == "u3":
        b = data.reshape(-1, 3)
        low = np.stack([(b[:, i // 4] >> (6 - 2 * (i % 4))) & 3 for i in range(8)], -1)
        high = np.stack([(b[:, 2] >> (7 - i)) & 1 for i in range(8)], -1)
        return (low | (high << 2)).reshape(-1)[:count]
    if dtype.name == "u6":
        b = data.reshape(-1, 3)
        low = np.stack([(b[:, i // 2] >> (4 if i % 2 == 0 else 0)) & 15 for i in range(4)], -1)
        high = np.stack([(b[:, 2] >> (6 - 2 * i)) & 3 for i in range(4)], -1)
        return (low | (high << 4)).reshape(-1)[:count]
    return np.stack([data & 15, data >> 4], -1).reshape(-1)[:count]


def pack(dtype: DType, array: Array) -> bytes | memoryview:
    """What the .bin stores for `array`; an empty tensor is one zero byte, as OpenVINO writes it."""
    if array.size == 0:
        return b"\0"
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype.name == "string":
        return pack_strings(flat.tolist())
    if dtype.name not in BLOCKS:
        return flat.astype(dtype.numpy, copy=False).view(np.uint8).data
    if dtype.name == "nf4":
        codes = nf4_codes(flat)
    elif dtype.name == "f4e2m1":
        codes = flat.astype(dtype.numpy, copy=False).view(np.uint8) & 15
    else:
        codes = (flat.astype(np.int16) & ((1 << dtype.bits) - 1)).astype(np.uint8)
    return _pack_codes(dtype, codes).tobytes()


def nf4_codes(values: Array) -> Bytes:
    """The nearest level of each value; values that came from `unpack` map back exactly."""
    middle = (NF4[1:] + NF4[:-1]) / np.float32(2)
    return np.searchsorted(middle, values.astype(np.float32)).astype(np.uint8)


def _pack_codes(dtype: DType, codes: Bytes) -> Bytes:
    per, _ = BLOCKS[dtype.name]
    if dtype.name == "u1":
        return np.packbits(codes)
    padded = np.concatenate([codes, np.zeros(-len(codes) % per, np.uint8)]).reshape(-1, per)
    if dtype.name == "u2":
        return padded[:, 0] | (padded[:, 1] << 2) | (padded[:, 2] << 4) | (padded[:, 3] << 6)
    out = np.zeros((len(padded), 3), np.uint8)
    if dtype.name == "u3":
        for i in range(8):
            out[:, i // 4] |= (padded[:, i] & 3) << (6 - 2 * (i % 4))
            out[:, 2] |= (padded[:, i] >> 2) << (7 - i)
        return out.reshape(-1)
    if dtype.name == "u6":
        for i in range(4):
            out[:, i // 2] |= (padded[:, i] & 15) << (4 if i % 2 == 0 else 0)
            out[:, 2] |= (padded[:, i] >> 4) << (6 - 2 * i)
        return out.reshape(-1)
    return padded[:, 0] | (padded[:, 1] << 4)


def string_problem(raw: bytes, elements: int) -> str | None:
    """What is wrong with a packed string blob that should hold `elements` strings, or None."""
    if len(raw) < 4:
        return "it is shorter than its count"
    (count,) = struct.unpack_from("<i", raw)
    if count != elements:
        return f"it holds {count} strings, the shape has {elements}"
    area = 4 * (count + 2)
    if len(raw) < area:
        return f"the offsets of {count} strings do not fit"
    offsets = np.frombuffer(raw, "<i4", count + 1, 4).astype(np.int64)
    if offsets[0] != 0 or np.any(np.diff(offsets) < 0) or offsets[-1] > len(raw) - area:
        return "its offsets do not rise from 0 to the end of the text"
    return None


def unpack_strings(raw: bytes) -> list[str]:
    """The strings of a packed blob; bytes that are not UTF-8 survive as surrogate escapes."""
    (count,) = struct.unpack_from("<i", raw)
    offsets = struct.unpack_from(f"<{count + 1}i", raw, 4)
    area = 4 * (count + 2)
    return [raw[area + a : area + b].decode("utf-8", "surrogateescape") for a, b in pairwise(offsets)]


def pack_strings(texts: list[Any]) -> bytes:
    parts = [t if isinstance(t, bytes) else str(t).encode("utf-8", "surrogateescape") for t in texts]
    offsets = [0]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return struct.pack(f"<{len(offsets) + 1}i", len(parts), *offsets) + b"".join(parts)
