"""Writers of WebP files that Pillow does not write: headers and transforms of every kind, with random contents."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np

import irc.kernels.image

TABLES = Path(irc.kernels.image.__file__ or "").with_name("webp_tables.c")


def container(tag: bytes, stream: bytes) -> bytes:
    """Put a bitstream into a file."""
    padded = stream + b"\0" * (len(stream) % 2)
    return b"RIFF" + struct.pack("<I", len(padded) + 12) + b"WEBP" + tag + struct.pack("<I", len(stream)) + padded


class BooleanEncoder:
    """The arithmetic coder of VP8 (RFC 6386, section 7.3), over an integer of any size."""

    def __init__(self) -> None:
        self.low, self.range, self.bits = 0, 255, 8

    def bit(self, bit: int, prob: int = 128) -> None:
        """Code a bit that is 0 with a probability of prob / 256."""
        split = 1 + ((self.range - 1) * prob >> 8)
        if bit:
            self.low += split
        self.range = self.range - split if bit else split
        while self.range < 128:
            self.range, self.low, self.bits = 2 * self.range, 2 * self.low, self.bits + 1

    def number(self, value: int, bits: int) -> None:
        for k in reversed(range(bits)):
            self.bit(value >> k & 1)

    def optional(self, value: int, bits: int) -> None:
        """Code a number that is left out where it is 0, with its sign."""
        self.bit(value != 0)
        if value:
            self.number(abs(value), bits)
            self.bit(value < 0)

    def data(self, rest: bytes) -> bytes:
        """The bytes; random bits may follow."""
        missing = -self.bits % 8
        return (self.low << missing).to_bytes((self.bits + missing) // 8, "big") + rest


def random_frame(seed: int, height: int, width: int) -> bytes:
    """A lossy file with a random header; its modes and coefficients are random bits.

    The quantizers are small, so that no sum exceeds what the 16-bit arithmetic of libwebp holds.
    """
    rng = np.random.default_rng(seed)
    e = BooleanEncoder()
    e.number(0, 2)
    _segments(e, rng)
    e.bit(int(rng.integers(2)))  # simple filter
    e.number(int(rng.integers(64)), 6)
    e.number(int(rng.integers(8)), 3)
    deltas = int(rng.integers(2))
    e.bit(deltas)
    if deltas:
        e.bit(1)
        for delta in rng.integers(-20, 21, 8) * rng.integers(0, 2, 8):
            e.optional(int(delta), 6)
    parts = int(rng.integers(4))
    e.number(parts, 2)
    e.number(int(rng.integers(8)), 7)
    for delta in rng.integers(-8, 9, 5) * rng.integers(0, 2, 5):
        e.optional(int(delta), 4)
    e.bit(1)
    _token_probs(e, rng)
    skips = int(rng.integers(2))
    e.bit(skips)
    if skips:
        e.number(int(rng.integers(1, 256)), 8)
    blocks = ((height + 15) // 16) * ((width + 15) // 16)
    first = e.data(rng.bytes(60 * blocks))
    contents = [b"\0" + rng.bytes(600 * blocks) for _ in range(1 << parts)]  # no encoder writes 255 first
    coefficients = b"".join(len(p).to_bytes(3, "little") for p in contents[1:]) + b"".join(contents)
    tag = (0x10 | len(first) << 5).to_bytes(3, "little")
    size = width.to_bytes(2, "little") + height.to_bytes(2, "little")
    return container(b"VP8 ", tag + b"\x9d\x01\x2a" + size + first + coefficients)


def _segments(e: BooleanEncoder, rng: np.random.Generator) -> None:
    segments, moved, given, absolute = (int(n) for n in rng.integers(0, 2, 4))
    e.bit(segments)
    if not segments:
        return
    e.bit(moved)
    e.bit(given)
    if given:
        e.bit(absolute)
        for most, bits in ((8, 7), (60, 6)):
            for value in rng.integers(0 if absolute else -most, most, 4):
                e.optional(int(value), bits)
    for prob in rng.integers(1, 256, 3) if moved else ():
        sent = int(rng.integers(2))
        e.bit(sent)
        if sent:
            e.number(int(prob), 8)


def _token_probs(e: BooleanEncoder, rng: np.random.Generator) -> None:
    """Send some probabilities of tokens. Whether one is sent is coded with a fixed probability: the decoder's."""
    table = TABLES.read_text("utf-8").split("webp_token_update_probs[4][8][3][11] = {")[1].split(";")[0]
    for prob in re.findall(r"\d+", table):
        sent = rng.random() < 0.02
        e.bit(sent, int(prob))
        if sent:
            e.number(int(rng.integers(100, 256)), 8)


LENGTH_ORDER = (17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
"""In which the lengths of the code of lengths are sent in a lossless bitstream."""


class BitWriter:
    """A lossless bitstream. All of a prefix code's symbols have codes of the same length."""

    def __init__(self) -> None:
        self.bits = list[int]()

    def number(self, value: int, bits: int) -> None:
        """Write a number, its lowest bit first."""
        self.bits += [value >> k & 1 for k in range(bits)]

    def code(self, symbol: int, bits: int) -> None:
        """Write the code of a symbol, its highest bit first."""
        self.bits += [symbol >> k & 1 for k in reversed(range(bits))]

    def even_code(self, symbols: int) -> None:
        """Describe the code of the first symbols, a power of two."""
        count = LENGTH_ORDER.index(symbols.bit_length() - 1) + 1
        self.number(0, 1)
        self.number(count - 4, 4)
        for k in range(count):
            self.number(int(k == count - 1), 3)
        room = next(n for n in range(8) if symbols - 2 < 1 << (2 + 2 * n))
        self.number(1, 1)  # so many lengths follow, of no bits since all are the same
        self.number(room, 3)
        self.number(symbols - 2, 2 + 2 * room)

    def group(self, greens: int = 256, alpha: bool = True) -> None:
        """Describe five codes; without alpha that of alpha has a single symbol."""
        for symbols in (greens, 256, 256):
            self.even_code(symbols)
        if alpha:
            self.even_code(256)
        else:
            self.number(0b101 | 77 << 3, 11)
        self.even_code(32)

    def small_image(self, pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> None:
        """Write an image of literals: green, red, blue and alpha of each."""
        self.number(0, 1)
        self.group()
        for component in pixels.reshape(-1).tolist():
            self.code(component, 8)

    def extent(self, value: int, first: int, bits: int) -> None:
        """Write a length or a distance: a symbol, counted from `first`, with further bits."""
        extra = max((value - 1).bit_length() - 2, 0)
        high = (value - 1) >> extra
        self.code(first + 2 * extra + high, bits)
        self.number((value - 1) & ((1 << extra) - 1), extra)

    def data(self) -> bytes:
        return np.packbits(np.array(self.bits, np.uint8), bitorder="little").tobytes()


def _blocks(size: int, bits: int) -> int:
    return (size + (1 << bits) - 1) >> bits


def random_lossless(seed: int, height: int, width: int) -> bytes:
    """A lossless file with random transforms, of which every mode may occur, and random pixels."""
    rng = np.random.default_rng(seed)
    w, coded = BitWriter(), width
    for value, bits in ((0x2F, 8), (width - 1, 14), (height - 1, 14), (1, 1), (0, 3)):
        w.number(value, bits)
    for kind in rng.permutation(4)[: int(rng.integers(5))].tolist():
        w.number(1 | kind << 1, 3)
        if kind == 3:
            colors = int(rng.choice([1, 2, 3, 4, 5, 16, 17, 200, 256]))
            w.number(colors - 1, 8)
            w.small_image(rng.integers(0, 256, (1, colors, 4), np.uint8))
            coded = _blocks(coded, 0 if colors > 16 else 1 if colors > 4 else 2 if colors > 2 else 3)
        elif kind != 2:
            bits = int(rng.integers(8))
            w.number(bits, 3)
            w.small_image(rng.integers(0, 256, (_blocks(height, bits + 2), _blocks(coded, bits + 2), 4), np.uint8))
    w.number(0, 1)
    _random_pixels(w, rng, height, coded)
    return container(b"VP8L", w.data())


def _random_pixels(w: BitWriter, rng: np.random.Generator, height: int, width: int) -> None:
    """Write random literals, copies and colours of a cache of 256, with up to five groups of codes."""
    w.number(1 | 8 << 1, 5)
    bits, count = int(rng.integers(8)), int(rng.integers(1, 6))
    groups = np.zeros((_blocks(height, bits + 2), _blocks(width, bits + 2), 4), np.uint8)
    groups[..., 0] = rng.integers(0, count, groups.shape[:2])
    w.number(1 | bits << 1, 4)
    w.small_image(groups)
    for k in range(int(groups[..., 0].max()) + 1):
        w.group(512, alpha=k % 2 == 0)
    at, total = 0, height * width
    while at < total:
        action = int(rng.integers(4))
        if action == 0 and at:
            length = int(rng.integers(1, min(total - at, 40) + 1))
            w.extent(length, 256, 9)
            w.extent(120 + int(rng.integers(1, at + 1)), 0, 5)
            at += length
            continue
        if action == 1:
            w.code(280 + int(rng.integers(232)), 9)
        else:
            group = int(groups[(at // width) >> (bits + 2), (at % width) >> (bits + 2), 0])
            for component, size in zip(rng.integers(0, 256, 4).tolist(), (9, 8, 8, 8 * (group % 2 == 0)), strict=True):
                w.code(component, size)
        at += 1
