"""What kernels share stands once in a file, and only where something mentions it."""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import irc
from irc import driver
from irc.backends.c.kernel_files import divide, together
from irc.ir.types import DType, f32, f64
from irc.kernels.core.isa import C_NAMES, HEAD, vector_type
from irc.kernels.core.text import Part, Piece, needed, own, piece, standalone
from tests.kernels.test_kernels import build, compilers

DIGITS = Path(__file__).parents[2] / "samples" / "digits" / "digits.onnx"
TYPE = Piece("TYPE", "typedef int number;\n", ("number",))
TWICE = Piece("TWICE", "static number twice(number x) { return 2 * x; }\n", ("twice",))
ALWAYS = Piece("ALWAYS", "#include <stdint.h>\n")


def test_a_piece_is_there_once_and_before_what_needs_it() -> None:
    first = [ALWAYS, [TYPE, [TWICE]], "int a(int x) { return twice(x); }\n"]
    second = [ALWAYS, TYPE, TWICE, "int b(int x) { return x; }\n"]
    assert needed([first, second]) == [ALWAYS, TYPE, TWICE]
    assert needed(second) == [ALWAYS]
    assert own(first) == "int a(int x) { return twice(x); }\n"


def test_texts_of_single_kernels_may_stand_in_one_file() -> None:
    text = standalone([TYPE, "number a;\n"]) + standalone([TYPE, "number b;\n"])
    assert text.count("#ifndef TYPE_DEFINED") == 2 and text.count("#endif") == 2


def test_names_are_filled_and_mean_one_text() -> None:
    made = piece("SUM_$T", "$T sum_$T($T a, $T b) { return a + b; }\n", "sum_$T", T="float")
    assert made == Piece("SUM_float", "float sum_float(float a, float b) { return a + b; }\n", ("sum_float",))
    with pytest.raises(ValueError, match="SUM_float"):
        needed([made, Piece("SUM_float", "other"), "sum_float"])


def test_of_a_vector_only_the_functions_that_are_called() -> None:
    names = [p.name for p in needed([HEAD, vector_type(8, f32), "irc_f32x8_abs(x)"])]
    assert names == ["IRC_KERNELS", "IRC_VECTOR_irc_f32x8", "IRC_VECTOR_irc_f32x8_abs"]
    names = [p.name for p in needed([HEAD, vector_type(8, f32), "irc_f32x8_max(x, y)"])]
    assert names[2:] == [f"IRC_VECTOR_irc_f32x8_{n}" for n in ("select", "bounds", "nan_of", "max")]


@pytest.mark.skipif(not compilers(), reason="no C compiler")
@pytest.mark.parametrize("masks", [True, False])
@pytest.mark.parametrize(("lanes", "dtype"), [(8, f32), (4, f32), (4, f64), (2, f64)])
def test_the_first_lanes_are_stored(tmp_path: Path, lanes: int, dtype: DType, masks: bool) -> None:
    """By a mask of AVX-512 or in halves of halves, without AVX's masks, which are slow on AMD's processors."""
    v, t = f"irc_{dtype.name}x{lanes}", C_NAMES[dtype]
    text = standalone(
        [
            HEAD,
            vector_type(lanes, dtype),
            f"void store({t} *y, const {t} *x, int64_t n) {{ {v}_store_part(y, {v}_load(x), n); }}\n",
        ]
    )
    assert "maskmov" not in text
    lib = build(tmp_path, [], ("" if masks else "#undef __AVX512VL__\n") + text)
    x = np.arange(1, lanes + 1, dtype=dtype.numpy)
    for n in range(lanes + 2):
        y = np.full(lanes + 1, 77, dtype.numpy)
        lib.store(ctypes.c_void_p(y.ctypes.data), ctypes.c_void_p(x.ctypes.data), ctypes.c_int64(n))
        assert y.tolist() == [*x[:n], *[77] * (lanes + 1 - min(n, lanes))]


@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3", "x86-64-v4", "aarch64"])
def test_no_function_is_defined_twice_in_a_file(target: str) -> None:
    draft = driver.sources(irc.load(DIGITS), driver.CompileOptions(backend="c", cache=False, target=target))
    texts = [t for name, t in draft.files.items() if name.startswith("kernels_") and isinstance(t, str)]
    assert texts
    for text in texts:
        defined = Counter(re.findall(r"^(?:static|IRC_INLINE|IRC_HELPER|IRC_APART)\b.*?(\w+)\(", text, re.MULTILINE))
        alternatives = {name for name in defined if name.endswith(("_at_most", "_at_least"))}
        assert {name for name, n in defined.items() if n > 1} <= alternatives
        assert "_DEFINED" not in text


def test_kernels_that_share_their_longest_piece_stand_in_one_file() -> None:
    """Of pieces with a stem, bodies of tiles and what goes through them; others all files have."""
    long, longer = (Piece(f"BODY_{n}", "int body(void);\n" * n, stem=f"irc_body_{n}") for n in (2, 3))
    kernels: list[tuple[Any, list[Part]]] = [
        (SimpleNamespace(symbol=name), [HEAD, *pieces, "int own(void);\n"])
        for name, pieces in {"a": [long], "b": [longer], "c": [], "d": [longer, long], "e": [long]}.items()
    ]
    assert [[kernel.symbol for kernel, _ in group] for group in together(kernels)] == [["a", "e"], ["b", "d"], ["c"]]


def test_kernels_that_share_much_fill_files_of_their_own() -> None:
    """Each group is in one file, unless it is so long that compilers would wait for it."""
    pieces = {n: Piece(f"BODY_{n}", "int body(void);\n" * 3000, stem=f"irc_body_{n}") for n in "abc"}
    names = ["a1", "b1", "a2", "c1", "b2", "c2"]
    kernels: list[tuple[Any, list[Part]]] = [
        (SimpleNamespace(symbol=name), [HEAD, pieces[name[0]], "int own(void);\n" * 10]) for name in names
    ]
    assert [[k.symbol for k, _ in file] for file in divide(kernels)] == [["a1", "a2"], ["b1", "b2"], ["c1", "c2"]]
    long: list[tuple[Any, list[Part]]] = [
        (SimpleNamespace(symbol=name), [HEAD, pieces["a"], "int own(void);\n" * 3000]) for name in names
    ]
    assert [len(file) for file in divide(long)] == [2, 2, 1, 1]
