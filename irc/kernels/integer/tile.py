"""The register tile of products of bytes: rows of bytes or words by panels of columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from irc.kernels.core.base import Array
from irc.kernels.core.isa import Isa
from irc.kernels.core.text import Part, piece, tile_body
from irc.kernels.integer import text
from irc.kernels.integer.problem import STEP, Unit


@dataclass(frozen=True)
class BytesTile:
    """`rows` × `vectors` accumulators in i32 on `isa`.

    A panel has the sums of its columns, what is added to them, then the columns in groups of `STEP` neighbours in k.
    """

    isa: Isa
    unit: Unit
    rows: int
    vectors: int

    @property
    def lanes(self) -> int:
        """The sums of a vector."""
        return self.isa.vector // 4

    @property
    def columns(self) -> int:
        """The columns of a panel."""
        return self.vectors * self.lanes

    @property
    def word(self) -> type[Any]:
        """The type of elements of panels."""
        return np.int16 if self.unit == "pairs" else np.int8

    @property
    def prefix(self) -> str:
        """What the names of intrinsics begin with."""
        return f"_mm{self.isa.vector * 8}"

    @property
    def name(self) -> str:
        """The C name of the tile's body."""
        return f"irc_bytes_{self.unit}_{self.isa.vector * 8}_{self.rows}x{self.vectors}"

    @property
    def features(self) -> frozenset[str]:
        """What the processor must have beyond the vectors."""
        if self.unit != "fours":
            return frozenset()
        return frozenset(("avx512_vnni",) if self.isa.vector == 64 else ("avx_vnni",))

    @property
    def names(self) -> dict[str, Any]:
        """Return the names in templates of kernels over this tile, but V, which is the type of vectors of sums here."""
        bits, fours = self.isa.vector * 8, self.unit == "fours"
        dot = f"irc_fours_{bits}(&acc[i][v], all, b[v])"
        if not fours:
            dot = f"acc[i][v] = {self.prefix}_add_epi32(acc[i][v], {self.prefix}_madd_epi16(all, b[v]))"
        return {
            "tile": self.name,
            "E": "int16_t" if self.unit == "pairs" else "uint8_t",
            "V": f"__m{bits}i",
            "MR": self.rows,
            "NV": self.vectors,
            "NR": self.columns,
            "lanes": self.lanes,
            "bytes": self.isa.vector,
            "step": STEP[self.unit],
            "ahead": "ahead, ",
            "ahead_parameter": "int64_t ahead, ",
            "all": f"{self.prefix}_set1_epi32",
            "load": f"irc_bytes_load_{bits}",
            "store": f"irc_bytes_store_{bits}",
            "times": f"{self.prefix}_mullo_epi32",
            "minus": f"{self.prefix}_sub_epi32",
            "dot": dot,
        }

    @property
    def text(self) -> str:
        """The template of a body."""
        return text.TILE

    @property
    def body_size(self) -> str:
        """The C expression of the bytes of a panel's groups, of walk `w->walk`."""
        return f"{4 * self.columns} * w->walk.rows * w->walk.columns * w->walk.groups"

    @property
    def size(self) -> str:
        """The C expression of the bytes of a panel, of walk `w->walk`."""
        return f"{8 * self.columns} + {self.body_size}"

    def head(self, taps: int, groups: int) -> int:
        """Count the bytes in front of a panel's groups, so many for each tap."""
        return 8 * self.columns

    def bodies(self) -> Iterator[Part]:
        """Print the bodies for every number of rows."""
        yield tile_body(self.name, self.text, **self.names)
        for r in range(1, self.rows + 1):
            yield piece("IRC_TILE_${tile}_$R", text.INSTANCE, **self.names, R=r)

    def table(self) -> str:
        """Print the bodies' names by their number of rows, from 1 on."""
        return ", ".join(f"{self.name}_{r}" for r in range(1, self.rows + 1))

    def panels(self, columns: Array, own: Array | None, taps: int = 1) -> Array:
        """Pack columns[panels, `columns`, k], whole groups of each tap, and what is added to the sums of each, flat."""
        count, _, k = columns.shape
        step = STEP[self.unit]
        groups = columns.astype(self.word).reshape(count, self.columns, k // step, step).transpose(0, 2, 1, 3)
        body = np.ascontiguousarray(groups).view(np.int8).reshape(count, -1, self.columns * 4)
        head = np.zeros((count, 2, self.columns), np.int32)
        head[:, 0] = columns.sum(2, dtype=np.int32)
        if own is not None:
            head[:, 1] = own.reshape(count, self.columns)
        return np.concatenate([head.view(np.int8), body], 1).reshape(-1)

    def unpanelled(self, flat: Array, count: int, groups: int, taps: int = 1) -> tuple[Array, Array]:
        """Unpack what `panels` made of `count` panels: columns[panels, `columns`, k], and what is added."""
        whole = flat[: count * (2 + groups) * self.columns * 4].reshape(count, 2 + groups, self.columns * 4)
        own = np.ascontiguousarray(whole[:, 1]).view(np.int32)
        words = np.ascontiguousarray(whole[:, 2:]).view(self.word)
        words = words.reshape(count, groups, self.columns, STEP[self.unit]).transpose(0, 2, 1, 3)
        return words.reshape(count, self.columns, -1), own
