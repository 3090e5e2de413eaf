"""PNG files: as Pillow reads them, and damaged ones."""

from __future__ import annotations

import struct
import zlib
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.support.images import agrees, decoder, encoded, image, survives

pytestmark = pytest.mark.compiler
SIZES = ((1, 1), (1, 17), (33, 31), (7, 2), (64, 80))
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
PASSES = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(
    height: int,
    width: int,
    color: int,
    depth: int,
    interlaced: bool = False,
    level: int = 6,
    parts: int = 1,
    palette: int = 256,
    filters: int = 5,
    strategy: int = zlib.Z_DEFAULT_STRATEGY,
) -> bytes:
    """Write noise with every filter, compressed in several ways, the stream in so many parts."""
    rng = np.random.default_rng([height, width, color, depth])
    raw = b""
    for y0, x0, dy, dx in PASSES if interlaced else ((0, 0, 1, 1),):
        rows, columns = -(-(height - y0) // dy), -(-(width - x0) // dx)
        if rows > 0 and columns > 0:
            size = (columns * depth * CHANNELS[color] + 7) // 8
            noise: Any = rng.integers(0, 4 if level == 9 else 256, (rows, size + 1), np.uint8)
            noise[:, 0] = (np.arange(rows) + 3) % filters
            raw += noise.tobytes()
    packer = zlib.compressobj(level, strategy=strategy)
    data = packer.compress(raw) + packer.flush()
    cuts = [len(data) * k // parts for k in range(parts + 1)]
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, int(interlaced)))
    colors = bytes((7 * k) % 256 for k in range(3 * palette))
    table = chunk(b"PLTE", colors) if color == 3 else chunk(b"teXt", b"a\0b")
    pixels = b"".join(chunk(b"IDAT", data[a:b]) for a, b in pairwise(cuts))
    return b"\x89PNG\r\n\x1a\n" + head + table + pixels + chunk(b"IEND", b"")


FILES = [
    *(encoded(image(h, w), "PNG", mode) for h, w in SIZES for mode in ("RGB", "RGBA", "L", "LA", "1", "P", "I;16")),
    *(
        png(h, w, color, depth, interlaced)
        for h, w in ((1, 1), (3, 5), (13, 19))
        for color, depths in DEPTHS.items()
        for depth in depths
        for interlaced in (False, True)
    ),
    *(png(40, 50, 2, 8, level=level, parts=3) for level in (0, 1, 9)),
    png(40, 50, 0, 8, level=9, strategy=zlib.Z_FIXED),
    png(40, 50, 0, 8, level=9, strategy=zlib.Z_HUFFMAN_ONLY),
    png(9, 9, 3, 8, palette=20),
]


def test_files() -> None:
    agrees(decoder("png"), FILES)


def test_a_large_file() -> None:
    agrees(decoder("png"), [encoded(image(256, 400), "PNG"), encoded(np.zeros((900, 999, 3), "u1"), "PNG")])


def test_refused() -> None:
    whole = png(9, 7, 2, 8)
    header, pixels = bytearray(whole), bytearray(whole)
    header[30] ^= 1  # of its check sum
    pixels[-18] ^= 1
    refused = [
        *(whole[:n] for n in (0, 8, 20, 40, len(whole) // 2, len(whole) - 40)),
        bytes(header),
        bytes(pixels),
        png(0, 7, 2, 8),
        png(9, 7, 2, 8, filters=6),
    ]
    assert decoder("png")(refused) == [None] * len(refused)


def test_damaged() -> None:
    survives(decoder("png", sanitize=True), FILES, 8000)
