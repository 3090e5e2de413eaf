"""WebP files: as Pillow reads them, and damaged ones."""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from irc.arrays import Array
from tests.support.images import Decoder, agrees, encoded, image, survives
from tests.support.webp_files import random_frame, random_lossless

pytestmark = pytest.mark.compiler
SIZES = ((1, 1), (1, 17), (17, 1), (2, 2), (3, 5), (15, 16), (16, 16), (33, 31), (31, 34), (70, 101))


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return Decoder("webp", tmp_path_factory.mktemp("webp"))


def of_palette(height: int, width: int, colors: int) -> Array:
    rng = np.random.default_rng([height, width, colors])
    return rng.integers(0, 256, (colors, 3), np.uint8)[rng.integers(0, colors, (height, width))]


def random_files(count: int) -> list[bytes]:
    sizes = np.random.default_rng(0).integers(1, 60, (count, 2)).tolist()
    return [(random_frame, random_lossless)[k % 2](k, h, w) for k, (h, w) in enumerate(sizes)]


def animation(frames: int, **options: Any) -> bytes:
    """An animation whose first frame is transparent at its border, so that less than the canvas is stored."""
    pictures = [image(40, 50, seed, channels=4) for seed in range(frames)]
    for picture in pictures:
        picture[..., 3] = 255
    pictures[0][:11] = pictures[0][:, :9] = pictures[0][35:] = 0
    first, *more = (Image.fromarray(p) for p in pictures)
    out = io.BytesIO()
    first.save(out, "WEBP", save_all=True, append_images=more, **options)
    return out.getvalue()


@pytest.mark.parametrize("channels", [3, 4])
def test_lossy(decoder: Decoder, channels: int) -> None:
    settings = ((0, 0), (10, 1), (50, 4), (75, 3), (90, 5), (100, 6))
    agrees(
        decoder,
        [
            encoded(image(h, w, s, channels), "WEBP", quality=q, method=m)
            for s, ((h, w), (q, m)) in enumerate(itertools.product(SIZES, settings))
        ],
    )


@pytest.mark.parametrize("channels", [3, 4])
def test_lossless(decoder: Decoder, channels: int) -> None:
    settings = ((0, 0), (50, 3), (80, 4), (100, 6))
    agrees(
        decoder,
        [
            encoded(image(h, w, s, channels), "WEBP", lossless=True, quality=q, method=m, exact=bool(s % 2))
            for s, ((h, w), (q, m)) in enumerate(itertools.product(SIZES, settings))
        ],
    )


def test_palettes(decoder: Decoder) -> None:
    colors = (1, 2, 3, 4, 5, 16, 17, 256, 300)
    files = [encoded(of_palette(h, w, n), "WEBP", lossless=True) for n, (h, w) in itertools.product(colors, SIZES)]
    agrees(decoder, files)


def test_larger_images(decoder: Decoder) -> None:
    pixels = np.concatenate([image(120, 300), of_palette(120, 300, 400), of_palette(60, 300, 9)])
    options: tuple[dict[str, Any], ...] = (
        {"lossless": True},
        {"lossless": True, "quality": 60, "method": 6},
        {"quality": 60},
        {"quality": 97},
    )
    agrees(decoder, [encoded(pixels, "WEBP", **each) for each in options])


def test_chunks_around_the_image(decoder: Decoder) -> None:
    options: tuple[dict[str, Any], ...] = ({"icc_profile": b"a profile"}, {"exif": b"Exif\0\0abc"}, {"xmp": b"<x/>"})
    agrees(decoder, [encoded(image(9, 8), "WEBP", lossless=k, **each) for each in options for k in (False, True)])


@pytest.mark.parametrize("lossless", [False, True])
def test_first_frame_of_animations(decoder: Decoder, lossless: bool) -> None:
    agrees(decoder, [animation(k, lossless=lossless) for k in (2, 3)])


def test_any_header_and_transforms(decoder: Decoder) -> None:
    agrees(decoder, random_files(120))


def test_what_is_no_whole_file_is_refused(decoder: Decoder) -> None:
    each: tuple[dict[str, Any], ...] = ({"lossless": True}, {"quality": 80}, {"exif": b"Exif\0\0abc"})
    for options in each:
        file = encoded(image(20, 30), "WEBP", **options)
        assert all(pixels is None for pixels in decoder([file[:k] for k in range(len(file))]))


def test_damaged(tmp_path: Path) -> None:
    files = [encoded(image(30, 40, channels=c), "WEBP", lossless=k) for c in (3, 4) for k in (False, True)]
    files += [encoded(of_palette(30, 40, 9), "WEBP", lossless=True), animation(2), *random_files(20)]
    survives(Decoder("webp", tmp_path, sanitize=True), files, 2500)
