"""The formats of images that C decodes: how a file of each begins, and what memory decoding takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from irc.ir.dim import Dim
from irc.kernels.core.text import Piece

LARGEST = 178_956_970
"""Pixels of the largest image that Pillow opens: beyond, it takes a file for an attack."""


@dataclass(frozen=True)
class ImageFormat:
    """A format of image files.

    name: that of Pillow is `pillow`; in C, NAME_size, NAME_scratch and NAME_decode are its functions.  files: their
    sources, in order.  starts: what files begin with, one of several alternatives, each as bytes at offsets.
    scratch: the formula of NAME_scratch, over height, width and the number of the file's bytes.  shared: files that
    several formats need.
    """

    name: str
    pillow: str
    files: tuple[str, ...]
    starts: tuple[tuple[tuple[int, bytes], ...], ...]
    scratch: Callable[[Dim, Dim, Dim], Dim]
    shared: tuple[str, ...] = ()

    @cached_property
    def pieces(self) -> list[Piece]:
        """What it shares, and the decoder, as a file has them: their names begin with irc_."""
        own = re.compile(rf"\b(?=(?:{'|'.join((self.name, *self.shared))})_\w)")
        parts = (*((stem, (f"{stem}.c",)) for stem in self.shared), (self.name, self.files))
        texts = {
            stem: "\n".join(Path(__file__).with_name(f).read_text("utf-8") for f in files) for stem, files in parts
        }
        return [Piece(f"IRC_IMAGE_{stem.upper()}", own.sub("irc_", text)) for stem, text in texts.items()]

    def detection(self) -> str:
        """Print the condition that a file is of this format."""
        ways = [" && ".join(_at(offset, data) for offset, data in way) for way in self.starts]
        return ways[0] if len(ways) == 1 else " || ".join(f"({way})" if "&&" in way else way for way in ways)


def _at(offset: int, data: bytes) -> str:
    """Print the condition that these bytes stand there, as octal escapes where they are no letters."""
    text = "".join(chr(c) if chr(c).isascii() and chr(c).isalnum() else f"\\{c:03o}" for c in data)
    return f'irc_image_has(bytes, count, {offset}, "{text}", {len(data)})'


FORMATS = (
    ImageFormat("bmp", "BMP", ("bmp.c",), (((0, b"BM"),),), lambda height, width, count: Dim.of(0)),
    ImageFormat(
        "jpeg",
        "JPEG",
        ("jpeg_blocks.c", "jpeg_pixels.c", "jpeg.c"),
        (((0, b"\xff\xd8\xff"),),),
        lambda height, width, count: 16384 + 8 * (height + 33) * (width + 32),
    ),
    ImageFormat(
        "jpeg2000",
        "JPEG2000",
        (
            "jpeg2000_structures.c",
            "jpeg2000_tier1.c",
            "jpeg2000_wavelets.c",
            "jpeg2000_packets.c",
            "jpeg2000_tiles.c",
            "jpeg2000_markers.c",
            "jpeg2000.c",
        ),
        (((0, b"\xff\x4f\xff\x51"),), ((0, b"\x00\x00\x00\x0cjP  \x0d\x0a\x87\x0a"),)),
        lambda height, width, count: 32 * height * width + 512 * (height + width) + 16 * count + 262144,
    ),
    ImageFormat(
        "png",
        "PNG",
        ("png.c",),
        (((0, b"\x89PNG\r\n\x1a\n"),),),
        lambda height, width, count: 8 * height * width + 4 * height + count + 32,
        ("inflate",),
    ),
    ImageFormat(
        "pnm", "PPM", ("pnm.c",), tuple(((0, b"P%d" % k),) for k in range(1, 7)), lambda height, width, count: Dim.of(0)
    ),
    ImageFormat(
        "tiff",
        "TIFF",
        ("tiff.c",),
        (((0, b"II*\0"),), ((0, b"MM\0*"),)),
        lambda height, width, count: 8 * height * width + count + 2097152,
        ("inflate",),
    ),
    ImageFormat(
        "webp",
        "WEBP",
        (
            "webp_tables.c",
            "webp_predict.c",
            "webp_filter.c",
            "webp_lossy.c",
            "webp_prefix.c",
            "webp_transform.c",
            "webp_lossless.c",
            "webp.c",
        ),
        (((0, b"RIFF"), (8, b"WEBP")),),
        lambda height, width, count: 9 * (height + 16) * (width + 16) + 8 * count + 294912,
    ),
)
"""The formats, in the order in which they are tried."""
