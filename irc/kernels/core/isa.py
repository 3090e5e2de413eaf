"""Instruction sets as kernels see them: vector width, and the register tile that fits the register file.

Kernels are written in the vector extensions that gcc (12 and later) and clang share, so any width compiles for
any target; the width only decides what is fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from irc.ir.types import DType, bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from irc.kernels.core.text import Piece, piece


@dataclass(frozen=True)
class Isa:
    """One instruction set.

    name: as in the symbols of kernels.  vector: bytes of a register.  rows, vectors: the largest tile of
    accumulators, rows × vectors, that leaves registers for the operands.  packed: bytes of operands that a task
    packs for itself, at most.  l2: bytes of second-level cache that a kernel counts on.  fma: vectors of its width that
    it multiplies and adds a cycle.  tiles: has AMX for bf16.  dots: has AVX512-BF16.  fours: multiplies and adds fours
    of bytes (VNNI).
    """

    name: str
    vector: int
    rows: int
    vectors: int
    packed: int = 128 << 10
    l2: int = 1 << 20
    fma: float = 2
    tiles: bool = False
    dots: bool = False
    fours: bool = False
    byte_tiles: bool = False

    def lanes(self, dtype: DType) -> int:
        """Count the elements of one register."""
        return self.vector // dtype.itemsize

    def halved(self) -> Isa:
        """Return the set with vectors of half the length.

        Where it multiplies and adds one vector of 512 bits a cycle, that is done as two of 256.
        """
        fma = max(self.fma, 2.0) if self.vector == AVX512.vector else self.fma
        return replace(self, vector=self.vector // 2, fma=fma)

    def filled_by(self, dtype: DType, n: int) -> Isa:
        """Return the set with vectors so short that n elements fill one, or four of them do."""
        found = self
        while found.lanes(dtype) > max(SHORTEST, n):
            found = found.halved()
        return found

    @property
    def has_vectors(self) -> bool:
        """Tell whether there are kernels for it: they are written for vectors."""
        return self.name != "scalar"

    @property
    def registers(self) -> int:
        """The number of vector registers."""
        return 32 if self.name in ("avx512", "neon") else 16


SHORTEST = 4
"""Elements of the shortest vectors that longer ones are halved to."""

AVX512 = Isa("avx512", 64, 14, 2)
AVX512_BF16 = replace(AVX512, dots=True)
AMX = replace(AVX512, l2=2 << 20, tiles=True, byte_tiles=True, dots=True, fours=True)
AVX2 = Isa("avx2", 32, 6, 2, 64 << 10, 256 << 10)
NEON = Isa("neon", 16, 12, 2, 64 << 10, 256 << 10)
SSE = Isa("sse", 16, 6, 2, 64 << 10, 256 << 10, fma=1)
SCALAR = Isa("scalar", 4, 1, 1, 0, 0)
"""No vectors: plain C11 from loops, and no kernels but those of strings and images."""
PLAIN = Isa("plain", 16, 4, 2, 32 << 10, 256 << 10, fma=0.5)
WITHOUT_VECTORS = frozenset(("any", "arm", "armv6l", "armv7l", "riscv32", "riscv64", "wasm32"))
"""Machines whose code is plain C11, without vector extensions."""
ISAS = {isa.name: isa for isa in (AVX512, AVX2, NEON, SSE, PLAIN)} | {"avx512_bf16": AVX512_BF16, "amx": AMX}


def isa_of(features: frozenset[str], machine: str, l2: int = 0, fma: int = 0) -> Isa:
    """Return the widest set that a processor has: `features` as in /proc/cpuinfo, `machine` as uname has it.

    l2: bytes of its second cache.  fma: vectors of 512 bits that it multiplies and adds a cycle.  Where either is 0,
    that is not known: then the set's own.
    """
    widest = _widest(features, machine)
    if fma and widest.vector == AVX512.vector:
        widest = replace(widest, fma=fma)
    return replace(widest, l2=l2) if l2 and widest.has_vectors else widest


def _widest(features: frozenset[str], machine: str) -> Isa:
    if machine in ("aarch64", "arm64"):
        return NEON
    if machine in WITHOUT_VECTORS:
        return SCALAR
    if machine not in ("x86_64", "amd64", "AMD64"):
        return PLAIN
    if {"avx512f", "avx512dq", "avx512bw", "avx512vl"} <= features:
        wide = AVX512
        if "avx512_bf16" in features:
            wide = AMX if {"amx_tile", "amx_bf16"} <= features else AVX512_BF16
        return replace(wide, fours="avx512_vnni" in features, byte_tiles={"amx_tile", "amx_int8"} <= features)
    if not {"avx2", "fma"} <= features:
        return SSE
    return replace(AVX2, fours=True) if "avx_vnni" in features else AVX2


C_TYPES = {"f32": ("float", "int32_t"), "f64": ("double", "int64_t")}
C_NAMES = {
    f32: "float",
    f64: "double",
    **{kind: f"int{kind.bits}_t" for kind in (i8, i16, i32, i64)},
    **{kind: f"uint{kind.bits}_t" for kind in (u8, u16, u32, u64, f16, bf16)},
}
"""C types as which elements stand in memory; of narrow floats, the bits."""

_VECTOR: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "IRC_VECTOR_${V}",
        """typedef $T ${V} __attribute__((vector_size($bytes)));
typedef $I ${V}_mask __attribute__((vector_size($bytes)));
typedef u$I ${V}_bits __attribute__((vector_size($bytes))); /* for arithmetic that wraps around */
typedef $T ${V}_memory __attribute__((vector_size($bytes), aligned($size), may_alias));
IRC_HELPER ${V} ${V}_load(const $T *p) { return *(const ${V}_memory *)p; }
IRC_HELPER void ${V}_store($T *p, ${V} x) { *(${V}_memory *)p = x; }
IRC_HELPER ${V} ${V}_all($T x) { return x - (${V}){0}; }
""",
        ("${V}", "${V}_mask", "${V}_bits", "${V}_memory", "${V}_load", "${V}_store", "${V}_all"),
    ),
    (
        "IRC_VECTOR_${V}_keep",
        """/* Keeps a vector in a register: GCC would load it again for every use. */
#if defined(__AVX512F__) || (defined(__AVX__) && $bytes <= 32) || (defined(__SSE2__) && $bytes <= 16)
#define IRC_KEEP_${V}_(x) __asm__("" : "+v"(x))
#elif defined(__aarch64__) && $bytes <= 16
#define IRC_KEEP_${V}_(x) __asm__("" : "+w"(x))
#else
#define IRC_KEEP_${V}_(x) (void)0
#endif
IRC_INLINE void ${V}_keep(${V} *x) { IRC_KEEP_${V}_(*x); (void)x; }
""",
        ("${V}_keep",),
    ),
    (
        "IRC_VECTOR_${V}_load_kept",
        """\
/* A vector for several products.  GCC would make its load a part of each of these, also of three and four rows that
   leave registers, and loads are then what takes the time. */
IRC_INLINE ${V} ${V}_load_kept(const $T *p) {
    ${V} x = ${V}_load(p);
    ${V}_keep(&x);
    return x;
}
""",
        ("${V}_load_kept",),
    ),
    (
        "IRC_VECTOR_${V}_zeros",
        """\
/* Zeros to begin sums with, made where they are: GCC would keep some in a register that sums need. */
IRC_INLINE ${V} ${V}_zeros(void) {
#if defined(__AVX__) && !defined(__AVX512F__) && $bytes == 32
    ${V} x;
    __asm__ volatile("vxor$packed %0, %0, %0" : "=x"(x)); /* volatile: else one in front of loops would do for all */
    return x;
#else
    return (${V}){0};
#endif
}
""",
        ("${V}_zeros",),
    ),
    (
        "IRC_VECTOR_${V}_add_product",
        """\
/* *sum += x * y, in the register of the sum: GCC, short of registers, would move sums about until it stores some. */
IRC_INLINE void ${V}_add_product(${V} *sum, $T x, ${V} y) {
#if defined(__FMA__) && !defined(__AVX512F__) && $bytes <= 32
    __asm__("vfmadd231$packed %2, %1, %0" : "+x"(*sum) : "x"(${V}_all(x)), "x"(y));
#else
    *sum += x * y;
#endif
}
""",
        ("${V}_add_product",),
    ),
    (
        "IRC_VECTOR_${V}_add_three_products",
        """\
/* sums[i] += *x * y[i] for i < 3: twelve sums, three operands and x are all the registers that there are, of which GCC
   would lose one to an x that it loads too early. */
IRC_INLINE void ${V}_add_three_products(${V} *sums, const $T *x, const ${V} *y) {
#if defined(__FMA__) && !defined(__AVX512F__) && $bytes == 32
    ${V} all;
    __asm__("vbroadcast$single %4, %3; vfmadd231$packed %5, %3, %0; vfmadd231$packed %6, %3, %1; "
            "vfmadd231$packed %7, %3, %2"
            : "+x"(sums[0]), "+x"(sums[1]), "+x"(sums[2]), "=&x"(all)
            : "m"(*x), "x"(y[0]), "x"(y[1]), "x"(y[2]));
#else
    EACH(i < 3) ${V}_add_product(&sums[i], *x, y[i]);
#endif
}
""",
        ("${V}_add_three_products",),
    ),
    (
        "IRC_VECTOR_${V}_load_between",
        """\
/* The lanes low to high - 1 of memory, the others of `other`; nothing else is read: one instruction on x86, while
   compilers send the loop through memory where it stands in another. */
IRC_HELPER ${V} ${V}_load_between(const $T *p, int64_t low, int64_t high, ${V} other) {
    const int begin = low < 0 ? 0 : low < $L ? (int)low : $L, end = high < 0 ? 0 : high < $L ? (int)high : $L;
#if defined(__AVX512F__) && $bytes == 64
    const uint${L}_t mask = (uint${L}_t)(((1u << end) - 1) & -(1u << begin));
    __asm__("vmovu$packed %1, %0%{%2%}" : "+v"(other) : "m"(*(const $T(*)[])p), "Yk"(mask));
    return other;
#elif defined(__AVX__) && $bytes <= 32
    const ${V}_mask lane = {$numbers}, mask = (lane >= begin) & (lane < end);
    ${V} x;
    __asm__("vmaskmov$packed %1, %2, %0" : "=x"(x) : "m"(*(const $T(*)[])p), "x"(mask));
    return (${V})((mask & (${V}_mask)x) | (~mask & (${V}_mask)other));
#else
    for (int i = begin; i < end; i++) other[i] = p[i];
    return other;
#endif
}
""",
        ("${V}_load_between",),
    ),
    (
        "IRC_VECTOR_${V}_load_part",
        """/* The first n lanes of memory, zeros behind them; nothing else is read. */
IRC_HELPER ${V} ${V}_load_part(const $T *p, int64_t n) { return ${V}_load_between(p, 0, n, (${V}){0}); }
""",
        ("${V}_load_part",),
    ),
    (
        "IRC_VECTOR_${V}_store_part",
        """/* The first n lanes to memory; nothing else is written: one instruction with AVX-512.  That of AVX takes
   twelve cycles on AMD's processors, halves of halves take a few. */
IRC_HELPER void ${V}_store_part($T *p, ${V} x, int64_t n) {
    const $I have = n < $L ? ($I)n : $L;
#if defined(__AVX512VL__) && defined(__AVX512BW__)
    const uint32_t mask = (1u << have) - 1;
    __asm__("vmovu$packed %1, %0%{%2%}" : "+m"(*($T(*)[])p) : "v"(x), "Yk"(mask));
#else
    if (have == $L) {
        ${V}_store(p, x);
        return;
    }
$halves#endif
}
""",
        ("${V}_store_part",),
    ),
    (
        "IRC_VECTOR_${V}_select",
        """/* mask ? a : b by lane; a mask is all ones or zero. */
IRC_HELPER ${V} ${V}_select(${V}_mask mask, ${V} a, ${V} b) {
    return (${V})((mask & (${V}_mask)a) | (~mask & (${V}_mask)b));
}
""",
        ("${V}_select",),
    ),
    (
        "IRC_VECTOR_${V}_bounds",
        """\
/* The smaller and the larger of a bound and x; x where either is NaN: one instruction on x86, which compilers do not
   find in the expression. */
#if defined(__AVX512F__) || (defined(__AVX__) && $bytes <= 32)
IRC_HELPER ${V} ${V}_at_most(${V} bound, ${V} x) {
    __asm__("vmin$packed %1, %2, %0" : "=v"(x) : "v"(x), "v"(bound));
    return x;
}
IRC_HELPER ${V} ${V}_at_least(${V} bound, ${V} x) {
    __asm__("vmax$packed %1, %2, %0" : "=v"(x) : "v"(x), "v"(bound));
    return x;
}
#else
IRC_HELPER ${V} ${V}_at_most(${V} bound, ${V} x) { return ${V}_select((${V}_mask)(bound < x), bound, x); }
IRC_HELPER ${V} ${V}_at_least(${V} bound, ${V} x) { return ${V}_select((${V}_mask)(bound > x), bound, x); }
#endif
""",
        ("${V}_at_most", "${V}_at_least"),
    ),
    (
        "IRC_VECTOR_${V}_nan_of",
        """\
/* The lanes of a that are NaN, the others of b: compilers make several instructions of the choice by a mask. */
IRC_HELPER ${V} ${V}_nan_of(${V} a, ${V} b) {
#if defined(__AVX512F__) && $bytes == 64
    uint${L}_t mask;
    __asm__("vcmpunord$packed %1, %1, %0" : "=Yk"(mask) : "v"(a));
    __asm__("vmova$packed %1, %0%{%2%}" : "+v"(b) : "v"(a), "Yk"(mask));
    return b;
#elif defined(__AVX__) && $bytes <= 32
    __asm__("vblendv$packed %2, %1, %0, %0" : "+x"(b) : "x"(a), "x"(a != a));
    return b;
#else
    return ${V}_select((${V}_mask)(a != a), a, b);
#endif
}
""",
        ("${V}_nan_of",),
    ),
    (
        "IRC_VECTOR_${V}_min",
        """/* The smaller; NaN where either is NaN. */
IRC_HELPER ${V} ${V}_min(${V} a, ${V} b) { return ${V}_nan_of(a, ${V}_at_most(a, b)); }
""",
        ("${V}_min",),
    ),
    (
        "IRC_VECTOR_${V}_max",
        """/* The larger; NaN where either is NaN. */
IRC_HELPER ${V} ${V}_max(${V} a, ${V} b) { return ${V}_nan_of(a, ${V}_at_least(a, b)); }
""",
        ("${V}_max",),
    ),
    (
        "IRC_VECTOR_${V}_abs",
        """IRC_HELPER ${V} ${V}_abs(${V} a) { return (${V})((${V}_mask)a & $absolute); }
""",
        ("${V}_abs",),
    ),
)
"""Name, code and definitions of the pieces of a vector type, of elements $T and masks of $I."""

HEAD = Piece(
    "IRC_KERNELS",
    """#include <math.h>
#include <stdint.h>
#ifdef __GNUC__ /* gcc and clang; all functions of vectors are static, so that no vector crosses an interface */
#pragma GCC diagnostic ignored "-Wpsabi"
#endif
#define IRC_INLINE static inline __attribute__((always_inline))
#define IRC_HELPER static inline __attribute__((unused))
#define IRC_APART static __attribute__((noinline)) /* what is on its stack is not on its caller's */
#define IRC_STRING(x) #x
#define IRC_STEP(p) __asm__("" : "+r"(p)) /* an address from the one before: GCC would keep those of all rows */
#ifdef __clang__
#define IRC_FULL_UNROLL _Pragma("clang loop unroll(full)")
#define IRC_UNROLL _Pragma("clang loop unroll_count(4)")
#define IRC_AS_LOOP
#else
#define IRC_FULL_UNROLL _Pragma("GCC unroll 64")
#define IRC_UNROLL _Pragma("GCC unroll 4")
#define IRC_AS_LOOP _Pragma("GCC unroll 1") /* so that it becomes an access with a mask before it is unrolled */
#endif
#ifdef __AVX512F__ /* its tiles have so many products that the instructions of the loop are few beside them */
#undef IRC_UNROLL
#define IRC_UNROLL
#endif
""",
)


FETCH_ROWS = piece(
    "IRC_FETCH_ROWS",
    """
/* Fetches a line of the cache of each of R rows, which are so many bytes apart. */
IRC_INLINE void irc_fetch_rows(const int R, const void *first, int64_t apart) {
    const char *line = first;
    IRC_FULL_UNROLL
    for (int i = 0; i < R; i++, line += apart) {
        IRC_STEP(line);
        __builtin_prefetch(line);
    }
}
""",
    "irc_fetch_rows",
)


def vector_name(lanes: int, dtype: DType) -> str:
    """Name the C type of a vector of `lanes` elements."""
    return f"irc_{dtype.name}x{lanes}"


@cache
def vector_type(lanes: int, dtype: DType) -> tuple[Piece, ...]:
    """Print one vector type and its functions; needs `HEAD`."""
    scalar, integer = C_TYPES[dtype.name]
    names: dict[str, object] = {
        "V": vector_name(lanes, dtype),
        "T": scalar,
        "I": integer,
        "L": lanes,
        "packed": "ps" if dtype.name == "f32" else "pd",
        "single": "ss" if dtype.name == "f32" else "sd",
        "bytes": lanes * dtype.itemsize,
        "numbers": ", ".join(map(str, range(lanes))),
        "size": dtype.itemsize,
        "halves": "".join(_halves(lanes)),
        "absolute": "0x7fffffff" if dtype.name == "f32" else "0x7fffffffffffffff",
    }
    return tuple(piece(name, code, *defines, **names) for name, code, defines in _VECTOR)


def _halves(lanes: int) -> Iterator[str]:
    """Print statements that store the first `have` lanes of x, half of those that may be left at a time."""
    size = lanes // 2
    while size > 1:
        behind = ", ".join(str(i ^ size) for i in range(lanes))
        yield f"""\
    if (have & {size}) {{
        __builtin_memcpy(p, &x, {size} * sizeof *p);
        p += {size};
        x = __builtin_shufflevector(x, x, {behind});
    }}
"""
        size //= 2
    yield "    if (have & 1) *p = x[0];\n"
