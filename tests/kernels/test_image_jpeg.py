"""JPEG files: as Pillow reads them, and damaged ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.images import Decoder, agrees, by_pillow, damaged, encoded, image
from tests.support.jpeg_files import JFIF, JpegFile, adobe, segment

pytestmark = pytest.mark.compiler
SIZES = ((1, 1), (1, 17), (17, 1), (2, 2), (3, 5), (8, 8), (16, 16), (33, 31), (47, 65))
ALL = (0, 1, 2)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return Decoder("jpeg", tmp_path_factory.mktemp("jpeg"))


def random_file(seed: int, frame: int = 0xC0, **options: Any) -> JpegFile:
    """A file of random size and sampling factors. Which of them the largest does not divide, Pillow refuses too."""
    rng = np.random.default_rng(seed)
    count, (height, width) = int(rng.choice([1, 3, 3, 4])), (int(n) for n in rng.integers(1, 70, 2))
    while True:
        factors = [(int(a), int(b)) for a, b in rng.choice([1, 2, 2, 3, 4], (count, 2))]
        whole = all(max(f[k] for f in factors) % f[k] == 0 for f in factors for k in (0, 1))
        if whole and sum(a * b for a, b in factors) <= 10:
            return JpegFile(height, width, factors, seed, frame, **options)


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("subsampling", ALL)
def test_sizes_and_subsampling(decoder: Decoder, subsampling: int, progressive: bool) -> None:
    options = {"subsampling": subsampling, "progressive": progressive}
    agrees(decoder, [encoded(image(h, w, s), "JPEG", **options) for s, (h, w) in enumerate((*SIZES, (256, 200)))])


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_qualities_and_options(decoder: Decoder, mode: str) -> None:
    options = itertools.product((1, 30, 90, 100), (False, True), (False, True), (0, 1, 5))
    agrees(
        decoder,
        [
            encoded(image(45, 38, s), "JPEG", mode, quality=q, progressive=p, optimize=o, restart_marker_blocks=r)
            for s, (q, p, o, r) in enumerate(options)
        ],
    )


def test_rgb_is_kept(decoder: Decoder) -> None:
    agrees(decoder, [encoded(image(h, w), "JPEG", keep_rgb=True) for h, w in SIZES])


def test_any_sampling_factors(decoder: Decoder) -> None:
    agrees(decoder, [random_file(k, restart=k % 4, wide_tables=k % 5 == 0).write() for k in range(150)])


@pytest.mark.parametrize("names", [(1, 2, 3, 4), (82, 71, 66, 75), (5, 9, 0, 255)], ids=str)
@pytest.mark.parametrize("start", [b"", JFIF, *map(adobe, ALL), JFIF + adobe(0), segment(0xEE, b"Others")], ids=len)
def test_colours(decoder: Decoder, names: tuple[int, ...], start: bytes) -> None:
    one = (1, 1)
    samplings: list[list[tuple[int, int]]] = [[one], [(2, 2)], [one] * 3, [(2, 2), one, one], [one] * 4]
    agrees(decoder, [JpegFile(19, 23, s, names=names, start=start).write() for s in samplings])


def scans_of(file: JpegFile, kind: int) -> Iterator[tuple[list[int], int, int, int, int]]:
    """Scans of one component each, of two and the rest, or progressive ones."""
    parts = list(range(len(file.sampling)))
    if kind == 0:
        yield from (([c], 0, 63, 0, 0) for c in reversed(parts))
    elif kind == 1:
        yield (parts[:2], 0, 63, 0, 0)
        yield from (([c], 0, 63, 0, 0) for c in parts[2:])
    else:
        low = file.seed % 4
        yield (parts, 0, 0, 0, low)
        yield from (([c], 1, 5 + c, 0, 0) for c in parts)
        yield from (([c], 6 + c, 63, 0, 0) for c in parts)
        yield from ((parts, 0, 0, k + 1, k) for k in reversed(range(low)))


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_scans(decoder: Decoder, kind: int) -> None:
    files = [random_file(k, 0xC2 if kind == 2 else 0xC1, restart=k % 3) for k in range(60)]
    for file in files:
        file.scans = list(scans_of(file, kind))
    agrees(decoder, [file.write() for file in files])


def test_coefficients_of_any_size(decoder: Decoder) -> None:
    """Sums that leave 8, and in damaged files 16, bits."""
    agrees(decoder, [random_file(k, largest=most).write() for k in range(40) for most in (200, 1023)])


def without(file: bytes, marker: bytes) -> bytes:
    """The file without segments of that marker."""
    while (at := file.find(marker)) >= 0:
        file = file[:at] + file[at + 2 + int.from_bytes(file[at + 2 : at + 4], "big") :]
    return file


def test_what_stands_between_markers(decoder: Decoder) -> None:
    file = encoded(image(20, 30), "JPEG", restart_marker_blocks=2)
    scan = file.index(b"\xff\xda")
    agrees(
        decoder,
        [
            without(file, b"\xff\xc4"),
            file + b"behind the end",
            file[:-2] + b"before the end" + file[-2:],
            file[:scan] + b"\xff\xff\xff" + file[scan:],
            file[:scan] + segment(0xFE, b"a comment, \xff\xd9") + file[scan:],
            file.replace(b"\xff\xd0", b"\xff\xff\xff\xd0"),
        ],
    )


def test_refused(decoder: Decoder) -> None:
    """What is not read: a damaged file, or one of a kind that is not supported."""
    file, smooth = encoded(image(20, 30), "JPEG"), encoded(image(20, 30), "JPEG", progressive=True)
    frame, scan, table = (file.index(b"\xff" + marker) for marker in (b"\xc0", b"\xda", b"\xdb"))
    marked = encoded(image(40, 40), "JPEG", restart_marker_blocks=1)
    refused = [
        b"",
        b"\xff\xd8\xff",
        file[:-2],
        file[: len(file) // 2],
        smooth[: smooth.rindex(b"\xff\xda")] + b"\xff\xd9",
        without(file, b"\xff\xdb"),
        file[:scan] + b"\xff\xd9",
        file[:scan] + file[frame:],
        file[:-2] + file[scan:],
        file[:table] + b"\xff\xcc\x00\x04\x00\x00" + file[table:],
        marked.replace(b"\xff\xd1", b"\xff\xd2"),
        *(file[: frame + 1] + bytes([kind]) + file[frame + 2 :] for kind in (0xC3, 0xC5, 0xC9, 0xCA)),
        *(file[: frame + 4] + bytes([bits]) + file[frame + 5 :] for bits in (7, 12)),
        JpegFile(20, 20, [(2, 1), (3, 1), (1, 1)]).write(),
        JpegFile(20, 20, [(2, 2), (2, 2), (2, 2)]).write(),
        JpegFile(20, 20, [(1, 1), (1, 1)]).write(),
    ]
    assert decoder(refused) == [None] * len(refused)


def test_damaged(tmp_path: Path) -> None:
    """Nothing is done that is not defined, and what is decoded is what Pillow makes of it."""
    files = [encoded(image(24, 21, s), "JPEG", subsampling=s % 3, progressive=s < 6, quality=60) for s in range(9)]
    files += [encoded(image(40, 9), "JPEG", mode, restart_marker_blocks=2) for mode in ("L", "CMYK")]
    files += [random_file(k, restart=k % 3, largest=100).write() for k in range(6)]
    given = list(damaged(files, 3000))
    decoded = [(file, got) for file, got in zip(given, Decoder("jpeg", tmp_path, sanitize=True)(given), strict=True)]
    assert sum(got is not None for _, got in decoded) > 100
    for file, got in decoded:
        if got is not None and (want := pillow_or_none(file)) is not None:
            assert np.array_equal(got, want)


def pillow_or_none(file: bytes) -> np.ndarray[Any, Any] | None:
    """The pixels; None for a file in whose segments Pillow finds fault, which it reads before libjpeg-turbo does."""
    try:
        return by_pillow(file)
    except (OSError, SyntaxError, ValueError, EOFError):
        return None
