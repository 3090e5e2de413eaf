"""Loops that only convert halves or to halves: compilers make no vectors of the instructions that do so."""

from __future__ import annotations

from collections.abc import Callable
from string import Template
from typing import Any, NamedTuple

from irc.expr import Cast, Expr, Load
from irc.ir.types import f16, f32
from irc.loops.halves import REGISTERS, stands_in_registers
from irc.loops.ir import Buffer, For, Store
from irc.loops.simplify import side_by_side

WHOLE_VECTORS = "defined(__GNUC__) && !defined(__clang__) && defined(__AVX512F__)"
"""Where C says it, functions may be told to take vectors of 512 bits."""


class Conversion(NamedTuple):
    """The helper that does what a loop does, and the two elements that its first iteration writes and reads."""

    helper: str
    to: tuple[Buffer, tuple[Expr, ...]]
    source: tuple[Buffer, tuple[Expr, ...]]


def conversion_of(loop: For) -> Conversion | None:
    """Find what a loop converts, if it does nothing but convert elements side by side; else None."""
    match loop:
        case For(body=[Store(to, at, Cast(Load(source, place)))], kind="simd"):
            pass
        case _:
            return None
    if not (side_by_side(at, loop.var) and side_by_side(place, loop.var)):
        return None
    match source.dtype, to.dtype:
        case (a, b) if (a, b) == (f16, f32):
            return Conversion(f"f16_to_f32_{_form(to)}", (to, at), (source, place))
        case (a, b) if (a, b) == (f32, f16):
            return Conversion(f"f16_from_f32_{_form(source)}", (to, at), (source, place))
        case _:
            return None


def _form(floats: Buffer) -> str:
    """Name the form of a helper: for floats that stand in registers, or for any number of them."""
    return "tile" if stands_in_registers(floats) else "run"


_TO_TILE = """    typedef short some_halves __attribute__((vector_size(2 * $lanes)));
    typedef float some_floats __attribute__((vector_size(4 * $lanes)));
    uint16_t part[$n] = {0};
    if (n < $n) {
        memcpy(part, x, (size_t)n * sizeof *x);
        x = part;
    }
    for (int64_t k = 0; k < $n; k += $lanes) {
        some_halves a;
        memcpy(&a, x + k, sizeof a);
        const some_floats b = $to_floats;
        memcpy(y + k, &b, sizeof b);
    }
"""
_FROM_TILE = """    typedef short some_halves __attribute__((vector_size(2 * $lanes)));
    typedef float some_floats __attribute__((vector_size(4 * $lanes)));
    uint16_t part[$n], *const to = n < $n ? part : y;
    for (int64_t k = 0; k < $n; k += $lanes) {
        some_floats a;
        memcpy(&a, x + k, sizeof a);
        const some_halves b = $to_halves;
        memcpy(to + k, &b, sizeof b);
    }
    if (n < $n) memcpy(y, part, (size_t)n * sizeof *y);
"""
_VECTORS = (
    (
        f"#if {WHOLE_VECTORS}",
        {
            "lanes": 16,
            "to_floats": "__builtin_ia32_vcvtph2ps512_mask(a, (some_floats){0}, 0xffff, 4)",
            "to_halves": "__builtin_ia32_vcvtps2ph512_mask(a, 0, (some_halves){0}, 0xffff)",
        },
    ),
    (
        "#elif defined(__F16C__) && defined(__GNUC__)",
        {"lanes": 8, "to_floats": "__builtin_ia32_vcvtph2ps256(a)", "to_halves": "__builtin_ia32_vcvtps2ph256(a, 0)"},
    ),
)
"""How tiles of registers are converted, of the first kind there is: by vectors of the width that the loop between has.

Of another width they would be memory between the two, and a processor reads no vector from two that it is just
writing.
"""


def _tile(body: str, head: str, plain: str) -> str:
    """Print a helper for tiles of registers, of a body for vectors and one line for processors without them."""
    lines = [f"{head} {{\n"]
    for condition, facts in _VECTORS:
        lines += [f"{condition}\n", Template(body).substitute(facts, n=REGISTERS)]
    return "".join([*lines, f"#else\n    {plain}\n#endif\n}}\n"])


_WHOLE_RUN = f"""#if {WHOLE_VECTORS}
    typedef short sixteen_halves __attribute__((vector_size(32)));
    typedef float sixteen_floats __attribute__((vector_size(64)));
    for (; n >= 16; n -= 16, x += 16, y += 16) {{
        sixteen_halves a;
        memcpy(&a, x, sizeof a);
        const sixteen_floats b = __builtin_ia32_vcvtph2ps512_mask(a, (sixteen_floats){{0}}, 0xffff, 4);
        memcpy(y, &b, sizeof b);
    }}
#endif
"""
"""Floats are written as whole vectors, which loops may read whole or by halves; whole ones of two halves wait."""
_RUN = Template("""/* n elements, eight or sixteen at a time where an instruction does that. */
static inline void irc_${name}_run($to *restrict y, const $source *restrict x, int64_t n) {
$whole#if defined(__F16C__) && defined(__GNUC__)
    typedef short eight_halves __attribute__((vector_size(16)));
    typedef float eight_floats __attribute__((vector_size(32)));
    for (; n >= 8; n -= 8, x += 8, y += 8) {
        $read a;
        memcpy(&a, x, sizeof a);
        const $written b = $convert;
        memcpy(y, &b, sizeof b);
    }
    if (n > 0) {
        $read a = {0};
        memcpy(&a, x, (size_t)n * sizeof *x);
        const $written b = $convert;
        memcpy(y, &b, (size_t)n * sizeof *y);
    }
#else
    for (int64_t k = 0; k < n; ++k) y[k] = irc_$name(x[k]);
#endif
}
""")


def conversion_helpers(make: Callable[..., Any]) -> dict[str, Any]:
    """Build the helpers by name; `make(code, needs)` builds one."""
    wide = {"to": "float", "source": "uint16_t", "read": "eight_halves", "written": "eight_floats"}
    narrow = {"to": "uint16_t", "source": "float", "read": "eight_floats", "written": "eight_halves"}
    read = _RUN.substitute(wide, name="f16_to_f32", convert="__builtin_ia32_vcvtph2ps256(a)", whole=_WHOLE_RUN)
    written = _RUN.substitute(narrow, name="f16_from_f32", convert="__builtin_ia32_vcvtps2ph256(a, 0)", whole="")
    found: dict[str, Any] = {}
    n, needs = REGISTERS, ("bits_f32", "f32_bits")
    head = f"""/* The floats of up to {n} halves, 0 beyond them: vectors where an instruction makes them. */
static inline void irc_f16_to_f32_tile(float *restrict y, const uint16_t *restrict x, int64_t n)"""
    plain = f"for (int64_t k = 0; k < {n}; ++k) y[k] = k < n ? irc_f16_to_f32(x[k]) : 0.0f;"
    found["f16_to_f32_tile"] = make(_tile(_TO_TILE, head, plain), ("f16_to_f32", *needs))
    head = f"""/* Up to {n} halves, of floats in registers. */
static inline void irc_f16_from_f32_tile(uint16_t *restrict y, const float *restrict x, int64_t n)"""
    plain = "for (int64_t k = 0; k < n; ++k) y[k] = irc_f16_from_f32(x[k]);"
    found["f16_from_f32_tile"] = make(_tile(_FROM_TILE, head, plain), ("f16_from_f32", *needs))
    return found | {
        "f16_to_f32_run": make(read, ("f16_to_f32", "bits_f32", "f32_bits")),
        "f16_from_f32_run": make(written, ("f16_from_f32", "bits_f32", "f32_bits")),
    }
