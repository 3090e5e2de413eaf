"""Decoders of image files, compiled alone and run on many files, and what Pillow makes of these.

def test_plain():
    agrees(decoder("png"), [encoded(image(5, 7), "PNG")])

def test_damaged():
    survives(decoder("png", sanitize=True), [encoded(image(5, 7), "PNG")], 1000)
"""

from __future__ import annotations

import io
import shutil
import struct
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from irc.ir.dim import Dim
from irc.kernels.image.formats import FORMATS

MAIN = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
%(code)s
/* For each file on stdin, its number of bytes before it: height, width and scratch bytes, and pixels if there are. */
int main(void) {
    int64_t count;
    while (fread(&count, 8, 1, stdin) == 1) {
        uint8_t *bytes = malloc((size_t)count);
        int64_t said[3] = {0, 0, 0};
        if (count && fread(bytes, (size_t)count, 1, stdin) != 1) return 2;
        if (%(name)s_size(bytes, count, &said[0], &said[1])) said[0] = said[1] = 0;
        if (said[0] < 0 || said[1] < 0 || (said[1] && said[0] > %(most)d / said[1])) said[0] = said[1] = 0;
        said[2] = %(name)s_scratch(said[0], said[1], count);
        if (said[0] && said[1]) {
            const size_t size = (size_t)(said[0] * said[1] * 3);
            uint8_t *rgb = malloc(size), *scratch = aligned_alloc(64, ((size_t)said[2] + 127) / 64 * 64);
            uint8_t *end = scratch + said[2] / 64 * 64; /* what is behind the scratch memory stays */
            memset(scratch, 0xA5, ((size_t)said[2] + 127) / 64 * 64);
            if (%(name)s_decode(bytes, count, rgb, said[0], said[1], scratch)) said[0] = -1;
            for (int64_t k = said[2] %% 64; k < 64; k++) if (end[k] != 0xA5) return 3;
            fwrite(said, 8, 3, stdout);
            if (said[0] > 0) fwrite(rgb, 1, size, stdout);
            free(rgb);
            free(scratch);
        } else {
            fwrite(said, 8, 3, stdout);
        }
        free(bytes);
    }
    return 0;
}
"""
MOST = 1 << 22
"""Pixels of the largest image that damaged files may ask for here."""
WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic")
SANITIZE = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


class Decoder:
    """One format's decoder as a program."""

    def __init__(self, name: str, folder: Path, sanitize: bool = False) -> None:
        self.format = next(f for f in FORMATS if f.name == name)
        source, self.path = folder / f"{name}.c", folder / f"{name}{'_sanitized' if sanitize else ''}"
        code = "\n".join(p.code for p in self.format.pieces)
        source.write_text(MAIN % {"code": code, "name": f"irc_{name}", "most": MOST}, "utf-8")
        compiler = shutil.which("gcc") or shutil.which("cc") or "cc"
        flags = SANITIZE if sanitize else ("-O2",)
        subprocess.run([compiler, *WARNINGS, *flags, "-o", str(self.path), str(source)], check=True)

    def __call__(self, files: Sequence[bytes]) -> list[np.ndarray[Any, Any] | None]:
        """Decode files. Returns the pixels of each, None where it is refused."""
        given = b"".join(struct.pack("<q", len(f)) + f for f in files)
        done = subprocess.run([str(self.path)], input=given, capture_output=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr.decode("utf-8", "replace")[-4000:]
        return list(self._results(files, done.stdout))

    def _results(self, files: Sequence[bytes], out: bytes) -> Iterator[np.ndarray[Any, Any] | None]:
        at = 0
        for file in files:
            height, width, scratch = struct.unpack_from("<3q", out, at)
            at += 24
            if height > 0:
                formula = self.format.scratch(Dim.of(height), Dim.of(width), Dim.of(len(file)))
                assert scratch <= int(formula), f"{scratch} bytes of scratch memory, planned for {formula}"
                yield np.frombuffer(out, np.uint8, height * width * 3, at).reshape(height, width, 3)
                at += height * width * 3
            else:
                yield None
        assert at == len(out)


_FOLDER = tempfile.TemporaryDirectory(prefix="irc-decoders-")


@cache
def decoder(name: str, sanitize: bool = False) -> Decoder:
    """Compile a format's decoder, once for all tests."""
    return Decoder(name, Path(_FOLDER.name), sanitize)


def image(height: int, width: int, seed: int = 0, channels: int = 3) -> np.ndarray[Any, Any]:
    """Pixels that are smooth in places, noise in others and equal in some."""
    rng: Any = np.random.default_rng([seed, height, width, channels])
    y, x = np.mgrid[:height, :width]
    noisy: Any = 128 + 100 * np.sin(y / 9 + seed)[:, :, None] * np.cos(x / 7)[:, :, None] + 9 * np.arange(channels)
    noisy += rng.normal(0, 25, noisy.shape) * (x[:, :, None] > width / 2)
    noisy[height // 2 :, : width // 3] = 77
    return np.clip(noisy, 0, 255).astype(np.uint8)


def encoded(pixels: Any, format: str, mode: str | None = None, **options: Any) -> bytes:
    """Write pixels, or an image of Pillow's, to a file. mode: what they are converted to before."""
    picture = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    out = io.BytesIO()
    (picture.convert(mode) if mode else picture).save(out, format, **options)
    return out.getvalue()


def by_pillow(file: bytes) -> np.ndarray[Any, Any]:
    """The pixels as the reference of ImageDecoder has them."""
    return np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))


def agrees(decoder: Decoder, files: Sequence[bytes]) -> None:
    """Compare what a decoder and Pillow make of whole files."""
    for k, (file, got) in enumerate(zip(files, decoder(files), strict=True)):
        want = by_pillow(file)
        assert got is not None, f"file {k} of {want.shape} is refused"
        assert got.shape == want.shape, f"file {k}: {got.shape}, want {want.shape}"
        wrong = np.argwhere(got != want)
        assert not len(wrong), f"file {k} of {want.shape}: {len(wrong)} samples differ, the first at {wrong[0]}"


def damaged(files: Sequence[bytes], count: int, seed: int = 0) -> Iterator[bytes]:
    """Cut files off, and change, remove and repeat bytes of them, more often near their beginnings."""
    rng = np.random.default_rng(seed)
    for k in range(count):
        data = bytearray(files[k % len(files)])
        if rng.random() < 0.25:
            yield bytes(data[: int(rng.integers(0, len(data)))])
            continue
        for _ in range(int(rng.integers(1, 6))):
            at = int(rng.integers(0, len(data) if rng.random() < 0.5 else min(len(data), 64)))
            change = rng.random()
            if change < 0.8 or len(data) < 16:
                data[at] = int(rng.choice([0, 1, 127, 128, 255, data[at] ^ (1 << int(rng.integers(8)))]))
            elif change < 0.9:
                del data[at : at + int(rng.integers(1, 9))]
            else:
                data[at:at] = data[at : at + int(rng.integers(1, 9))]
        yield bytes(data)


def survives(decoder: Decoder, files: Sequence[bytes], count: int) -> None:
    """Decode damaged files, which a decoder with sanitizers tells if it does anything that is not defined."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        decoder(list(damaged(files, count)))
