"""BMP files: as Pillow reads them, and damaged ones."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tests.support.images import agrees, decoder, encoded, image, survives

pytestmark = pytest.mark.compiler
SIZES = ((1, 1), (1, 17), (33, 31), (7, 2))
MODES = ("RGB", "RGBA", "L", "1", "P")


def bitmap(
    bits: int,
    height: int,
    width: int,
    data: bytes,
    coding: int = 0,
    masks: tuple[int, ...] = (),
    colors: tuple[tuple[int, int, int], ...] = (),
    header: int = 40,
) -> bytes:
    """Write a bitmap; the header has the masks in it if it is longer than 40 bytes, else they are behind it."""
    info = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, coding, len(data), 0, 0, len(colors), 0)
    info += struct.pack(f"<{len(masks)}I", *masks)
    if header == 12:
        info = struct.pack("<IHHHH", 12, width, height, 1, bits)
    info = info.ljust(header, b"\0")
    palette = b"".join(bytes((b, g, r, 0)[: 3 if header == 12 else 4]) for r, g, b in colors)
    at = 14 + len(info) + len(palette)
    return b"BM" + struct.pack("<IHHI", at + len(data), 0, 0, at) + info + palette + data


COLORS = tuple((3 * k % 256, 255 - k, k * k % 256) for k in range(256))
NOISE = np.random.default_rng(0).integers(0, 256, 4000, np.uint8).tobytes()
MASKS = (
    *((16, m) for m in ((0xF800, 0x7E0, 0x1F), (0x7C00, 0x3E0, 0x1F))),
    *((32, m) for m in ((0xFF0000, 0xFF00, 0xFF), (0xFF000000, 0xFF0000, 0xFF00), (0xFF000000, 0xFF00, 0xFF))),
    (24, (0xFF0000, 0xFF00, 0xFF)),
)
ALPHA = (
    (0xFF000000, 0xFF0000, 0xFF00, 0xFF),
    (0xFF, 0xFF00, 0xFF0000, 0xFF000000),
    (0xFF0000, 0xFF00, 0xFF, 0xFF000000),
    (0xFF000000, 0xFF00, 0xFF, 0xFF0000),
    (0, 0, 0, 0),
)
RUNS = bytes([3, 7, 2, 1, 0, 0, 0, 5, 9, 8, 7, 6, 5, 0, 0, 0, 0, 2, 1, 1, 200, 4, 0, 0, 0, 2, 5, 0, 4, 2, 0, 1])
FOURS = bytes(
    [3, 0x7A, 2, 0x15, 0, 0, 0, 5, 0x98, 0x76, 0x50, 0, 0, 0, 0, 2, 1, 1, 200, 0x4F, 0, 0, 6, 0x12, 0x34, 0x56]
)
ROWS = b"".join(bytes([7, v, 30, 2 * v, 0, 0]) for v in range(40))
FILES = [
    *(encoded(image(h, w), "BMP", mode) for h, w in SIZES for mode in MODES),
    *(bitmap(bits, -9, 7, NOISE) for bits in (16, 24, 32)),
    *(bitmap(bits, 5, 13, NOISE, colors=COLORS[: 1 << bits]) for bits in (1, 4, 8)),
    *(bitmap(bits, 5, 13, NOISE, colors=COLORS[: 1 << bits], header=12) for bits in (1, 4, 8)),
    *(bitmap(bits, 5, 13, NOISE, header=12) for bits in (16, 24, 32)),
    bitmap(8, 5, 13, NOISE, colors=COLORS[:9]),
    bitmap(8, 5, 13, NOISE, colors=tuple((k, k, k) for k in range(9))),
    *(bitmap(bits, 5, 7, NOISE, 3, m) for bits, m in MASKS),
    *(bitmap(bits, 5, 7, NOISE, 3, m, header=52) for bits, m in MASKS),
    *(bitmap(32, 5, 7, NOISE, 3, m, header=108) for m in ALPHA),
    bitmap(8, 5, 6, RUNS, 1, colors=COLORS),
    bitmap(8, 40, 30, ROWS, 1, colors=COLORS),
    bitmap(8, 5, 1, bytes([1, 5, 1, 6, 0, 0, 1, 7, 0, 0, 1, 8, 0, 0, 1, 9, 0, 0, 1, 19]), 1, colors=COLORS[:20]),
    bitmap(4, 5, 6, FOURS, 2, colors=COLORS[:16]),
    bitmap(4, 40, 30, ROWS, 2, colors=COLORS[:16]),
]


def test_files() -> None:
    agrees(decoder("bmp"), FILES)


def test_refused() -> None:
    whole = bitmap(24, 5, 7, NOISE[: 5 * 24])
    refused = [
        *(whole[:n] for n in (0, 2, 20, 54, len(whole) - 4)),
        bitmap(24, 0, 7, NOISE),
        bitmap(2, 5, 7, NOISE),
        bitmap(24, 5, 7, NOISE, 4),
        bitmap(16, 5, 7, NOISE, 3, (0xF00, 0xF0, 0xF)),
        bitmap(8, 5, 6, RUNS[:12], 1),
    ]
    assert decoder("bmp")(refused) == [None] * len(refused)


def test_damaged() -> None:
    survives(decoder("bmp", sanitize=True), FILES, 6000)
