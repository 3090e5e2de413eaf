"""Loops that only convert halves or to halves: compilers make no vectors of the instructions that do so."""

from __future__ import annotations

from collections.abc import Callable
from string import Template
from typing import Any, NamedTuple

from irc.expr import Cast, Expr, Load
from irc.ir.types import f16, f32
from irc.loops.ir import Buffer, For, Store
from irc.loops.simplify import side_by_side


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
            return Conversion("f16_to_f32_run", (to, at), (source, place))
        case (a, b) if (a, b) == (f32, f16):
            return Conversion("f16_from_f32_run", (to, at), (source, place))
        case _:
            return None


_RUN = Template("""/* n elements, eight at a time where an instruction does that. */
static inline void irc_${name}_run($to *restrict y, const $source *restrict x, int64_t n) {
#if defined(__F16C__) && defined(__GNUC__)
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
    read = _RUN.substitute(wide, name="f16_to_f32", convert="__builtin_ia32_vcvtph2ps256(a)")
    written = _RUN.substitute(narrow, name="f16_from_f32", convert="__builtin_ia32_vcvtps2ph256(a, 0)")
    return {
        "f16_to_f32_run": make(read, ("f16_to_f32", "bits_f32", "f32_bits")),
        "f16_from_f32_run": make(written, ("f16_from_f32", "bits_f32", "f32_bits")),
    }
