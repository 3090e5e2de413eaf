"""Storage of activations as bf16 between kernels: how a kernel reads its input, and writes its result.

Stored is the nearest bf16, ties to even, as kernels of one term round what they read; but a finite value never becomes
an infinity: beyond the largest bf16 it is that.
"""

from __future__ import annotations

from irc.kernels.core.text import Part, Piece
from irc.kernels.core.tile import Tile, names as tile_names
from irc.kernels.split_bf16 import bf16_terms

_TEXT = Piece(
    "IRC_HALVES",
    """#include <immintrin.h>
typedef uint16_t irc_u16x16 __attribute__((vector_size(32)));
typedef irc_u16x16 irc_u16x16_memory __attribute__((aligned(2), may_alias));
IRC_HELPER float irc_half_value(uint16_t x) {
    const uint32_t bits = (uint32_t)x << 16;
    float y;
    __builtin_memcpy(&y, &bits, 4);
    return y;
}
/* 16 bf16 as floats.  GCC 12 converts such a vector in two halves, so not __builtin_convertvector. */
IRC_HELPER irc_f32x16 irc_half_floats(irc_u16x16 x) {
    return (irc_f32x16)((irc_u32x16)_mm512_cvtepu16_epi32((__m256i)x) << 16);
}
IRC_HELPER irc_f32x16 irc_half_load(const uint16_t *p) {
    return irc_half_floats(*(const irc_u16x16_memory *)p);
}
/* The first n, zeros behind them; nothing else is read. */
IRC_HELPER irc_f32x16 irc_half_load_part(const uint16_t *p, int64_t n) {
    const irc_u16x16 x = (irc_u16x16)_mm256_maskz_loadu_epi16((uint16_t)(n < 16 ? (1u << n) - 1 : 0xffff), p);
    return irc_half_floats(x);
}
/* The same of 32, as they are. */
IRC_HELPER irc_u16x32 irc_halves_part(const uint16_t *p, int64_t n) {
    return (irc_u16x32)_mm512_maskz_loadu_epi16(n < 32 ? (1u << n) - 1 : 0xffffffff, p);
}
/* 16 floats as bf16; finite ones stay finite. */
IRC_HELPER irc_u16x16 irc_half_of(irc_f32x16 x) {
    const __mmask16 finite = (__mmask16)~_mm512_fpclass_ps_mask((__m512)x, 0x99); /* no NaN, infinity */
    const __m512 most = (__m512)irc_f32x16_all(0x1.fep127f);
    const __m512 kept = _mm512_mask_range_ps((__m512)x, finite, (__m512)x, most, 2); /* least, x's sign */
    const __m256bh rounded = _mm512_cvtneps_pbh(kept);
    irc_u16x16 found;
    __builtin_memcpy(&found, &rounded, sizeof found);
    return found;
}
IRC_HELPER void irc_half_store(uint16_t *p, irc_f32x16 x) { *(irc_u16x16_memory *)p = irc_half_of(x); }
IRC_HELPER void irc_half_store_part(uint16_t *p, irc_f32x16 x, int64_t n) {
    _mm256_mask_storeu_epi16(p, (uint16_t)(n < 16 ? (1u << n) - 1 : 0xffff), (__m256i)irc_half_of(x));
}
""",
)


def names(x: bool, y: bool, tile: Tile | None = None) -> dict[str, object]:
    """Return the names in templates: types of an input and a result, and what reads and writes them.

    The types are bf16 or `tile`'s (None: f32 by 16).
    """
    scalar, vector = ("float", "irc_f32x16") if tile is None else (tile_names(tile)["T"], tile_names(tile)["V"])
    given: dict[str, object] = {"VX": "irc_half_value" if x else ""}
    for name, half in (("X", x), ("Y", y)):
        given[name] = "uint16_t" if half else scalar
        given[f"L{name}"] = "irc_half_load" if half else f"{vector}_load"
        given[f"S{name}"] = "irc_half_store" if half else f"{vector}_store"
    return given


def key(x: bool, y: bool) -> str:
    """Return a part of a kernel's signature."""
    return f" halves {int(x)}{int(y)}" if x or y else ""


def text(*stored: object) -> list[Part]:
    """Print helpers if any of these is bf16; needs the vector type of 16 floats."""
    return [bf16_terms.TYPES, _TEXT] if any(stored) else []
