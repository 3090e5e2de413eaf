"""JPEG 2000 files: as Pillow with OpenJPEG reads them, and damaged ones."""

from __future__ import annotations

import struct
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.images import agrees, decoder, encoded, image, survives

pytestmark = pytest.mark.compiler
SIZES = ((1, 1), (1, 17), (17, 1), (2, 3), (33, 31), (100, 83))
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"irreversible": True},
    {"irreversible": True, "quality_mode": "dB", "quality_layers": [30, 40]},
    {"quality_layers": [40, 10, 4]},
    {"tile_size": (37, 29), "irreversible": True},
    {"tile_size": (16, 20), "no_jp2": True},
    {"num_resolutions": 1},
    {"num_resolutions": 3},
    {"codeblock_size": (4, 4)},
    {"codeblock_size": (1024, 4)},
    {"precinct_size": (64, 32), "codeblock_size": (16, 16)},
    {"mct": 0},
    {"plt": True, "comment": "a comment"},
)
PROGRESSIONS: list[dict[str, Any]] = [
    {"progression": p, "precinct_size": (32, 32), "codeblock_size": (16, 16), "tile_size": (50, 60), "irreversible": i}
    for p in ("LRCP", "RLCP", "RPCL", "PCRL", "CPRL")
    for i in (False, True)
]
RARE = {
    name: b64decode(data)
    for name, data in (
        line.split()
        for line in Path(__file__).with_name("jpeg2000_files.txt").read_text("utf-8").splitlines()
        if not line.startswith("#")
    )
}
SMALL = [
    encoded(image(20, 30), "JPEG2000"),
    encoded(image(20, 30), "JPEG2000", irreversible=True, tile_size=(16, 16)),
    encoded(image(20, 30), "JPEG2000", "L", no_jp2=True),
]


def colour_space(file: bytes, number: int) -> bytes:
    """Put another enumerated colour space into a JP2 file."""
    at = file.index(b"colr") + 7
    return file[:at] + struct.pack(">I", number) + file[at + 4 :]


def precision(codestream: bytes, bits: int) -> bytes:
    """Say that the samples have other bits: 0x80 for signed, and one less than there are."""
    data, count = bytearray(codestream), codestream[41]
    data[42 : 42 + 3 * count : 3] = bytes([bits]) * count
    return bytes(data)


@pytest.mark.parametrize("mode", ["RGB", "L", "LA", "RGBA", "YCbCr", "CMYK", "I;16"])
def test_modes(mode: str) -> None:
    def pixels(height: int, width: int, k: int) -> Any:
        made = image(height, width, k, 4)
        if mode == "I;16":
            return made[:, :, 0].astype(np.uint16) << k % 8
        return made if mode == "RGBA" else made[:, :, :3]

    files = [
        encoded(pixels(*size, k), "JPEG2000", None if mode == "I;16" else mode, **options)
        for size in SIZES
        for k, options in enumerate(OPTIONS)
        if min(size) > 8 or options.get("num_resolutions", 1) == 1
    ]
    agrees(decoder("jpeg2000"), files)


def test_progressions() -> None:
    files = [encoded(image(100, 83), "JPEG2000", **options, quality_layers=[30, 10, 3]) for options in PROGRESSIONS]
    agrees(decoder("jpeg2000"), files)


def test_offsets() -> None:
    ways: tuple[dict[str, Any], ...] = (
        {"tile_offset": (0, 0), "offset": (7, 9), "tile_size": (40, 80)},
        {"tile_offset": (3, 5), "offset": (10, 20), "tile_size": (25, 26)},
    )
    files = [encoded(image(60, 50), "JPEG2000", **o, irreversible=i) for o in ways for i in (False, True)]
    agrees(decoder("jpeg2000"), files)


def test_large() -> None:
    files = [
        encoded(image(301, 420), "JPEG2000", irreversible=i, quality_layers=[8], num_resolutions=8)
        for i in (False, True)
    ]
    agrees(decoder("jpeg2000"), files)


def test_what_pillow_does_not_write() -> None:
    agrees(decoder("jpeg2000"), list(RARE.values()))


def test_colour_spaces_and_precisions() -> None:
    spaces = [colour_space(encoded(image(9, 8), "JPEG2000", mode), n) for mode, n in (("RGB", 18), ("L", 0), ("LA", 0))]
    codestreams = [encoded(image(9, 8), "JPEG2000", mode, no_jp2=True) for mode in ("RGB", "LA", "L", "RGBA")]
    agrees(decoder("jpeg2000"), spaces + [precision(c, b) for c in codestreams for b in (0, 3, 6, 0x83, 0x87)])


def test_refused() -> None:
    whole, jp2 = SMALL[2], SMALL[0]
    wrong = [
        colour_space(jp2, 24),
        colour_space(jp2, 12),
        jp2.replace(b"ihdr", b"xxxx"),
        whole.replace(b"\xff\x52", b"\xff\x60"),
    ]
    refused = [whole[:k] for k in range(len(whole))] + [jp2[:k] for k in range(len(jp2))] + wrong
    assert decoder("jpeg2000")(refused) == [None] * len(refused)


def test_damaged() -> None:
    survives(decoder("jpeg2000", sanitize=True), [*SMALL, *RARE.values()], 4000)
