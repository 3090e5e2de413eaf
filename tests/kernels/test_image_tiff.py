"""TIFF files: as Pillow reads them, and damaged ones."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.support.images import agrees, decoder, encoded, image, survives

pytestmark = pytest.mark.compiler
MODES = ("RGB", "RGBA", "L", "LA", "1", "P", "CMYK", "I;16", "I")
CODINGS = ("raw", "packbits", "tiff_lzw", "tiff_deflate", "tiff_adobe_deflate")
PLAIN, LZW, DEFLATE, PACKBITS = 1, 5, 8, 32773


@dataclass(frozen=True)
class Tiff:
    """What a written file is like: noise of so many samples of a pixel."""

    height: int
    width: int
    samples: int = 3
    depth: int = 8
    photo: int = 2
    big: bool = False
    coding: int = PLAIN
    part: tuple[int, int] = (0, 0)  # of a tile; with a width of 0 rows of a strip
    planes: bool = False
    predictor: int = 1
    turned: int = 1
    extra: int | None = None
    reversed: bool = False
    signed: bool = False

    def packed(self, samples: Any) -> bytes:
        """Lay out the samples [rows, columns, samples] of a strip or tile, and compress them."""
        if self.predictor == 2:
            samples = np.concatenate([samples[:, :1], np.diff(samples, axis=1)], axis=1)
        rows = samples.reshape(len(samples), -1)
        if self.depth < 8:
            bits = rows[:, :, None] >> np.arange(self.depth)[::-1] & 1
            data = np.packbits(bits.reshape(len(rows), -1).astype(np.uint8), axis=1).tobytes()
        else:
            data = rows.astype(f"{'>' if self.big else '<'}u{self.depth // 8}").tobytes()
        if self.coding == LZW:
            data = lzw(data)
        elif self.coding == DEFLATE:
            data = zlib.compress(data)
        elif self.coding == PACKBITS:
            data = packbits(data)
        return bytes(int(f"{c:08b}"[::-1], 2) for c in data) if self.reversed else data

    def parts(self) -> list[bytes]:
        """The strips or tiles, plane after plane."""
        rng = np.random.default_rng([self.height, self.width, self.samples, self.depth])
        high, wide = self.part[0] or self.height, self.part[1] or self.width
        shape = (-(-self.height // high) * high, -(-self.width // wide) * wide, self.samples)
        kind = np.uint8 if self.depth <= 8 else np.dtype(f"u{self.depth // 8}")
        noise: Any = rng.integers(0, 1 << self.depth, shape, kind)
        if self.depth > 8 and self.samples == 1:
            noise[: self.height // 2] >>= self.depth - 9
        if not self.part[1]:
            noise = noise[: self.height]
        planes = np.split(noise, self.samples, axis=2) if self.planes else [noise]
        return [
            self.packed(p[y : y + high, x : x + wide])
            for p in planes
            for y in range(0, self.height, high)
            for x in range(0, self.width, wide)
        ]

    def file(self) -> bytes:
        parts, order = self.parts(), ">" if self.big else "<"
        high, wide = self.part
        at = [8 + sum(map(len, parts[:k])) for k in range(len(parts))]
        sizes = [len(p) for p in parts]
        fields: dict[int, tuple[str, list[int]]] = {
            256: ("H", [self.width]), 257: ("I", [self.height]), 258: ("H", [self.depth] * self.samples),
            259: ("H", [self.coding]), 262: ("H", [self.photo]), 266: ("H", [1 + self.reversed]),
            274: ("H", [self.turned]), 277: ("H", [self.samples]), 284: ("H", [1 + self.planes]),
            317: ("H", [self.predictor]), 339: ("H", [1 + self.signed] * self.samples),
        }  # fmt: skip
        if wide:
            fields |= {322: ("H", [wide]), 323: ("H", [high]), 324: ("I", at), 325: ("I", sizes)}
        else:
            fields |= {273: ("I", at), 278: ("I", [high or 0xFFFFFFFF]), 279: ("I", sizes)}
        if self.photo == 3:
            fields[320] = ("H", [k * 257 % 65536 for k in range(3 << self.depth)])
        if self.extra is not None:
            fields[338] = ("H", [self.extra])
        body = b"".join(parts)
        body += bytes(len(body) % 2)
        directory, more = struct.pack(f"{order}H", len(fields)), b""
        behind = 8 + len(body) + 2 + 12 * len(fields) + 4
        for tag, (kind, values) in sorted(fields.items()):
            data = struct.pack(f"{order}{len(values)}{kind}", *values)
            place = data.ljust(4, b"\0")
            if len(data) > 4:
                place, more = struct.pack(f"{order}I", behind + len(more)), more + data
            directory += struct.pack(f"{order}HHI", tag, {"H": 3, "I": 4}[kind], len(values)) + place
        head = (b"MM\0*" if self.big else b"II*\0") + struct.pack(f"{order}I", 8 + len(body))
        return head + body + directory + bytes(4) + more


def lzw(data: bytes) -> bytes:
    """Write bytes as words of one byte, in codes of 9 bits."""
    codes = [c for k in range(0, len(data), 200) for c in (256, *data[k : k + 200])]
    bits = "".join(f"{c:09b}" for c in [*codes, 257])
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def packbits(data: bytes) -> bytes:
    """Write bytes one by one or in pairs, as they are and as runs of two."""
    found = b""
    for k in range(0, len(data), 4):
        a, b = data[k : k + 2], data[k + 2 : k + 4]
        found += bytes([len(a) - 1]) + a
        found += bytes([255, b[0], 128]) if len(b) == 2 and b[0] == b[1] else b"".join(bytes([0, c]) for c in b)
    return found


SIZE = Tiff(21, 37)
LAYOUTS = (
    SIZE,
    replace(SIZE, part=(5, 0)),
    replace(SIZE, part=(16, 16)),
    replace(SIZE, planes=True),
    replace(SIZE, planes=True, part=(16, 32)),
)
KINDS = (
    *({"photo": p, "samples": 1, "depth": d} for p in (0, 1, 3) for d in (1, 2, 4, 8)),
    {"photo": 2, "samples": 3, "depth": 8},
    {"photo": 2, "samples": 3, "depth": 16},
    *({"photo": 2, "samples": 4, "depth": 8, "extra": e} for e in (0, 1, 2)),
    {"photo": 2, "samples": 4, "depth": 16, "extra": 2},
    {"photo": 5, "samples": 4, "depth": 8},
    {"photo": 1, "samples": 1, "depth": 16},
    {"photo": 1, "samples": 1, "depth": 16, "signed": True},
    {"photo": 1, "samples": 1, "depth": 32, "signed": True},
    {"photo": 1, "samples": 2, "depth": 8, "extra": 2},
)


def written() -> list[Tiff]:
    """Files of every kind, layout and coding."""
    found = [
        replace(layout, big=big, coding=coding, **kind)
        for layout, kind, big, coding in product(LAYOUTS, KINDS, (False, True), (PLAIN, LZW, DEFLATE, PACKBITS))
    ]
    for kind, coding, layout in product(KINDS, (LZW, DEFLATE), LAYOUTS[:3]):
        if kind["depth"] >= 8:
            found += [replace(layout, coding=coding, predictor=2, big=big, **kind) for big in (False, True)]
    found += [replace(SIZE, turned=k, coding=c) for k in range(1, 9) for c in (PLAIN, LZW)]
    grey = replace(SIZE, photo=1, samples=1, reversed=True)
    return [*found, *(replace(grey, coding=c, depth=d) for c in (PLAIN, PACKBITS) for d in (1, 8))]


def read_by_pillow(t: Tiff) -> bool:
    """Whether Pillow reads such files rightly: its planes are bytes, its signed samples in the processor's order."""
    if t.planes and (t.samples < 3 or (t.coding == PLAIN and (t.depth == 16 or t.extra in (0, 1)))):
        return False
    return not (t.signed and t.big and t.depth > 8 and t.coding != PLAIN)


FILES = [t.file() for t in written() if read_by_pillow(t)]


def test_files_of_pillow() -> None:
    files = [
        encoded(image(height, width), "TIFF", mode, compression=coding)
        for height, width in ((1, 1), (33, 31), (170, 120))
        for mode in MODES
        for coding in CODINGS
    ]
    agrees(decoder("tiff"), files)


def test_files() -> None:
    agrees(decoder("tiff"), FILES)


def test_refused() -> None:
    whole = SIZE.file()
    refused = [
        *(whole[:n] for n in (0, 4, 8, 100, len(whole) - 30)),
        replace(SIZE, photo=6).file(),
        replace(SIZE, coding=7).file(),
        replace(SIZE, depth=1, coding=LZW, predictor=2, samples=1, photo=1).file(),
        replace(SIZE, part=(32, 40000), coding=DEFLATE).file(),
        replace(SIZE, coding=DEFLATE).file().replace(b"\x78\x9c", b"\x79\x9c"),
    ]
    assert decoder("tiff")(refused) == [None] * len(refused)


def test_damaged() -> None:
    survives(decoder("tiff", sanitize=True), FILES, 8000)
