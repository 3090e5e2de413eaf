"""PNM files: as Pillow reads them, and damaged ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.images import agrees, decoder, encoded, image, survives

pytestmark = pytest.mark.compiler
PIXELS = image(9, 13)
FILES = [
    *(encoded(image(h, w), "PPM", mode) for h, w in ((1, 1), (1, 17), (33, 31)) for mode in ("RGB", "L", "1")),
    b"P1\n# a comment\n5 2 #x\n1 0 1#y\n1 0 01111",
    b"P2 3 2 9\n0 1 2\n3 4# nine\n 9",
    b"P2 2 2 65535 0 254 256 65535",
    b"P3\n2 1\n200\n0 1 2 100 199 200 ",
    b"P5 4 2 100\n" + bytes(range(0, 80, 10)),
    b"P5 2 2 999\n" + np.array([0, 3, 4, 999], ">u2").tobytes(),
    b"P5 2 2 65535\n" + np.array([0, 254, 300, 65535], ">u2").tobytes(),
    b"P6\t2\r1\n1000 " + np.array([0, 1, 2, 500, 999, 1000], ">u2").tobytes(),
    b"P6 2 1 7\n" + bytes([0, 1, 2, 3, 6, 9]),
]


def test_files() -> None:
    agrees(decoder("pnm"), FILES)


def test_refused() -> None:
    refused = [b"", b"P6", b"P5 0 1 255\n", b"P5 2 2 0\n1234", b"P5 2 2 255\n123", b"P7\n", b"P2 1 1 9 10", b"P1 1 1 2"]
    assert decoder("pnm")(refused) == [None] * len(refused)


def test_damaged() -> None:
    survives(decoder("pnm", sanitize=True), FILES, 4000)
