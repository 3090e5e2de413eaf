"""Writes JPEG files of what Pillow does not write: any sampling factors, scans, component names and 16-bit tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

Scan = tuple[Sequence[int], int, int, int, int]
"""Components, the first and the last coefficient, and the lowest bit known before, plus 1 (0: none), and now."""

COMMON = (0x01, 0x00, 0x02, 0x11, 0x03, 0x12)
"""The AC symbols that have short codes; the others have codes of 12 bits."""


def segment(marker: int, body: bytes) -> bytes:
    """A marker and what belongs to it."""
    return bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2, "big") + body


def adobe(transform: int) -> bytes:
    """Adobe's segment, which says what the colours are."""
    return segment(0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([transform]))


JFIF = segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0")


class _Codes:
    """A Huffman table: symbols by the lengths of their codes."""

    def __init__(self, kind: int, groups: dict[int, Sequence[int]]) -> None:
        counts = bytes(len(groups.get(length, ())) for length in range(1, 17))
        self.body = bytes([kind << 4]) + counts + b"".join(bytes(g) for g in groups.values())
        self.codes, code = dict[int, str](), 0
        for length in range(1, 17):
            for symbol in groups.get(length, ()):
                self.codes[symbol] = format(code, f"0{length}b")
                code += 1
            code <<= 1

    def number(self, value: int, run: int = 0) -> str:
        """The bits of a number behind `run` zeros."""
        size = abs(value).bit_length()
        bits = value if value > 0 else value + (1 << size) - 1
        return self.codes[run << 4 | size] + (format(bits, f"0{size}b") if size else "")


DC = _Codes(0, {4: range(12)})
AC = _Codes(1, {4: COMMON, 12: [s for s in range(256) if s not in COMMON]})


def _bytes(bits: str) -> bytes:
    bits += "1" * (-len(bits) % 8)
    return bytes(int(bits[k : k + 8], 2) for k in range(0, len(bits), 8)).replace(b"\xff", b"\xff\0")


@dataclass
class JpegFile:
    """An image of random coefficients. sampling: across and down of each component; start: segments before others."""

    height: int
    width: int
    sampling: Sequence[tuple[int, int]]
    seed: int = 0
    frame: int = 0xC0
    scans: Sequence[Scan] = ()
    names: Sequence[int] = (1, 2, 3, 4)
    restart: int = 0
    start: bytes = b""
    wide_tables: bool = False
    largest: int = 12
    coefficients: list[np.ndarray[tuple[int, int, int], np.dtype[np.int64]]] = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.across, self.down = (max(s[k] for s in self.sampling) for k in (0, 1))
        self.coefficients = [self._random(*s) for s in self.sampling]

    def _random(self, across: int, down: int) -> np.ndarray[tuple[int, int, int], np.dtype[np.int64]]:
        shape = -(-self.height // (8 * self.down)) * down, -(-self.width // (8 * self.across)) * across, 64
        x = self.rng.integers(-self.largest, self.largest + 1, shape) * (self.rng.random(shape) < 0.15)
        x[..., 0] = np.cumsum(self.rng.integers(-30, 31, shape[:2]), 1) % 400 - 200
        return x

    def write(self) -> bytes:
        """The file."""
        parts, count = range(len(self.sampling)), len(self.sampling)
        out = [b"\xff\xd8", self.start]
        for k in range(2):
            steps = self.rng.integers(1, 9, 64).astype(">u2" if self.wide_tables else np.uint8)
            out.append(segment(0xDB, bytes([k | self.wide_tables << 4]) + steps.tobytes()))
        size = self.height.to_bytes(2, "big") + self.width.to_bytes(2, "big")
        rows = (bytes([self.names[k], self.sampling[k][0] << 4 | self.sampling[k][1], min(k, 1)]) for k in parts)
        out.append(segment(self.frame, b"\x08" + size + bytes([count]) + b"".join(rows)))
        out += [segment(0xC4, DC.body), segment(0xC4, AC.body)]
        if self.restart:
            out.append(segment(0xDD, self.restart.to_bytes(2, "big")))
        for scan in self.scans or [(parts, 0, 63, 0, 0)]:
            components, first, last, high, low = scan
            names = b"".join(bytes([self.names[c], 0]) for c in components)
            head = bytes([len(components)]) + names + bytes([first, last, high << 4 | low])
            out += [segment(0xDA, head), *self._data(scan)]
        return b"".join([*out, b"\xff\xd9"])

    def _units(self, components: Sequence[int]) -> Iterator[list[tuple[int, int, int]]]:
        """The blocks of each unit of a scan: component, row and column."""
        if len(components) == 1:
            (c,) = components
            across, down = self.sampling[c]
            rows, columns = -(-self.height * down // self.down), -(-self.width * across // self.across)
            yield from ([(c, i, j)] for i in range(-(-rows // 8)) for j in range(-(-columns // 8)))
            return
        for i in range(-(-self.height // (8 * self.down))):
            for j in range(-(-self.width // (8 * self.across))):
                yield [
                    (c, i * self.sampling[c][1] + y, j * self.sampling[c][0] + x)
                    for c in components
                    for y in range(self.sampling[c][1])
                    for x in range(self.sampling[c][0])
                ]

    def _data(self, scan: Scan) -> Iterator[bytes]:
        components, first, last, high, low = scan
        bits, before = list[str](), dict.fromkeys(components, 0)
        for k, unit in enumerate(self._units(components)):
            if self.restart and k and k % self.restart == 0:
                yield _bytes("".join(bits)) + bytes([0xFF, 0xD0 + (k // self.restart - 1) % 8])
                bits, before = [], dict.fromkeys(components, 0)
            for c, i, j in unit:
                x = self.coefficients[c][i, j].tolist()
                if first == 0 and high:
                    bits.append(str(x[0] >> low & 1))
                elif first == 0:
                    bits.append(DC.number((x[0] >> low) - before[c]))
                    before[c] = x[0] >> low
                bits += _ac(x, max(first, 1), last)
        yield _bytes("".join(bits))


def _ac(x: list[int], first: int, last: int) -> Iterator[str]:
    zeros = 0
    for k in range(first, last + 1):
        if x[k]:
            yield from [AC.codes[0xF0]] * (zeros // 16)
            yield AC.number(x[k], zeros % 16)
        zeros = 0 if x[k] else zeros + 1
    if zeros and last >= first:
        yield AC.codes[0x00]
