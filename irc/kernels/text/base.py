"""`TextKernel`: a function over tensors of strings, and the C that such functions share.

A string is the address of its text as an int64_t: the number of its bytes, as an int64_t, and then these, in UTF-8.
0 is the empty string.  What makes strings writes their texts into memory of its own, which lasts to the end of the run
(docs/adr/0023-strings.md); how many bytes that takes is measured before, by the same loops (`measures`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from irc.arrays import Array
from irc.ir.dim import Dim
from irc.kernels.core.base import Kernel, Sizes
from irc.kernels.core.text import Part, Piece, fill

TEXTS = Piece(
    "IRC_TEXTS",
    """#include <stdint.h>
#include <string.h>

/* The bytes of a string, and their number. */
static inline const char *irc_text_bytes(int64_t text) {
    return text ? (const char *)(intptr_t)text + 8 : "";
}
static inline int64_t irc_text_size(int64_t text) {
    return text ? *(const int64_t *)(intptr_t)text : 0;
}

/* Memory that texts take, and what is there: with NULL for memory, only `used` counts. */
typedef struct irc_texts {
    uint8_t *memory;
    int64_t used;
} irc_texts;

/* Begins a text of at most that many bytes.  Returns where its bytes go, NULL while the memory is measured. */
static inline char *irc_text_begin(irc_texts *texts, int64_t most) {
    char *bytes = texts->memory ? (char *)texts->memory + texts->used + 8 : 0;
    texts->used += 8 + (most + 7) / 8 * 8;
    return bytes;
}
/* Ends the text that begins there.  Returns the string. */
static inline int64_t irc_text_end(char *bytes, int64_t size) {
    if (!bytes) return 0;
    *(int64_t *)(void *)(bytes - 8) = size;
    return (int64_t)(intptr_t)(bytes - 8);
}
static inline int64_t irc_text_copy(irc_texts *texts, const char *from, int64_t size) {
    char *bytes = irc_text_begin(texts, size);
    if (bytes && size) memcpy(bytes, from, (size_t)size);
    return irc_text_end(bytes, size);
}
static inline int irc_text_order(int64_t a, int64_t b) {
    const int64_t m = irc_text_size(a), n = irc_text_size(b);
    const int order = memcmp(irc_text_bytes(a), irc_text_bytes(b), (size_t)(m < n ? m : n));
    return order ? order : m < n ? -1 : m > n;
}
""",
    ("irc_text_bytes", "irc_text_size", "irc_texts", "irc_text_copy", "irc_text_order"),
)


@dataclass(frozen=True)
class TextKernel(Kernel[Any]):
    """A function over strings. `body` is C that reads g->NAME for each of `pointers` and `sizes`.

    measures: it computes only how many bytes its texts take, into *g->bytes; else it writes these to g->texts.
    """

    name: str
    body: str
    arguments_read: tuple[tuple[str, str], ...]
    arguments_written: tuple[tuple[str, str], ...]
    sizes: tuple[str, ...] = ()  # pyright: ignore[reportIncompatibleMethodOverride]
    makes_texts: bool = False
    measures: bool = False
    pieces: tuple[Piece, ...] = ()

    @property
    def label(self) -> str:
        return self.name

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        written = self.arguments_written
        if self.measures:
            written = (("bytes", "int64_t *"),)
        elif self.makes_texts:
            written = (*written, ("texts", "uint8_t *"))
        return (*self.arguments_read, *written)

    @property
    def symbol(self) -> str:
        return f"irc_text_{self.name}" + ("_bytes" if self.measures else "")

    @property
    def summary(self) -> str:
        return f"Strings: {self.name.replace('_', ' ')}" + (", the bytes of its results." if self.measures else ".")

    def flops(self, sizes: Sizes) -> Dim:
        return Dim.of(0)

    def parts(self) -> list[Part]:
        begin = end = ""
        if self.makes_texts:
            begin = f"    irc_texts texts = {{{'0' if self.measures else 'g->texts'}, 0}};\n"
            end = "    *g->bytes = texts.used;\n" if self.measures else ""
        results = (
            ""
            if not self.measures
            else "".join(f"    {kind}const {name} = 0;\n" for name, kind in self.arguments_written)
        )
        named = "".join(f"    {kind}const {name} = g->{name};\n" for name, kind in self.arguments[: self._named])
        sizes = "".join(f"    const int64_t {name} = g->{name};\n" for name in self.sizes)
        head = f"\nvoid {self.symbol}({self.interface['parameters']}) {{\n    (void)pool;\n"
        return [TEXTS, *self.pieces, head + named + results + sizes + begin + self.body + end + "}\n"]

    @property
    def _named(self) -> int:
        return len(self.arguments_read) + (0 if self.measures else len(self.arguments_written))

    def compute(self, reads: Sequence[Array], writes: Sequence[Array], sizes: Mapping[str, int]) -> None:
        raise NotImplementedError("strings are addresses, which only C knows")


__all__ = ["TEXTS", "TextKernel", "fill"]
