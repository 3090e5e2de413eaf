"""What numbers make of the templates that they are filled into."""

from __future__ import annotations

import re

import numpy as np
import pytest

from irc.kernels.core.folding import folded, marked
from irc.kernels.core.text import fill


@pytest.mark.parametrize(
    ("template", "number", "expected"),
    [
        ("dx * $n;", 1, "dx;"),
        ("x * $n + y * 1;", 1, "x + y * 1;"),
        ("($n * 4 + a)", 1, "(4 + a)"),
        ("a / $n * b", 1, "a * b"),
        ("a$n * b", 1, "a1 * b"),
        ("(g->oh + $n - 1) / $n * b", 1, "g->oh * b"),
        ("(a - b + $n - 1) / $n * b", 1, "(a - b) * b"),
        ("(a - b + $n - 1) / $n * b", 2, "(a - b + 2 - 1) / 2 * b"),
        ("x > i ? (x - i - 1) / $n + 1 : 0;", 1, "x > i ? x - i : 0;"),
        ("load(in + $n)", 0, "load(in)"),
        ("(out + $n * height * row + 16, n)", 0, "(out + 16, n)"),
        ("h[$n * pitch + k]", 0, "h[k]"),
        ("a - b * $n + c", 0, "a + c"),
        ("a % $n * b + c", 1, "c"),
        ("c * b % $n + a / b % $n", 1, "0"),
        ("v[$n - 1]", 2, "v[1]"),
        ("work * (2 + $n)", 2, "work * (2 + 2)"),
        ("work * ($n + $n)", 2, "work * 4"),
        ("for (v = 0; v < $n && v < left; v++)", 1, "for (v = 0; v < 1 && v < left; v++)"),
        ("if (step == $n && whole == 1)", 1, "if (step == 1 && whole == 1)"),
        ("if ($n && last) {", 1, "if (last) {"),
        ("if (done && (!begun || $n))", 0, "if (done && !begun)"),
        ("if (done && (!begun || $n))", 1, "if (done)"),
        ("n = $n ? a : b, m = 2;", 1, "n = a, m = 2;"),
        ("n = $n ? a : b, m = 2;", 0, "n = b, m = 2;"),
        ("n = a < $n ? a : b;", 1, "n = a < 1 ? a : b;"),
        ("    if ($n && last) {\n        f();\n    }\n    g();\n", 0, "    g();\n"),
        ("    if ($n && last) f(\n        x);\n    g();\n", 0, "    g();\n"),
        ("    for (; !$n && j < n; j++) {\n        f();\n    }\n    g();\n", 1, "    g();\n"),
        ("    IRC_FULL_UNROLL\n    for (int i = 0; i < $n; i++) f(i);\n    g();\n", 0, "    g();\n"),
        ("$n  EACH(i < 3) f(i);\n", 7, "7  IRC_FULL_UNROLL\n  for (int i = 0; i < 3; i++) f(i);\n"),
        ("  EACH(i < $n) f(i);\n", 2, "  IRC_FULL_UNROLL\n  for (int i = 0; i < 2; i++) f(i);\n"),
        (
            "EACH(i < R, w < $n) f();",
            2,
            (
                "IRC_FULL_UNROLL\nfor (int i = 0; i < R; i++) {\n"
                "    IRC_FULL_UNROLL\n    for (int w = 0; w < 2; w++) f();\n}"
            ),
        ),
        (
            "f(int a, int b) {\n    (void)a, (void)b;\n    g(a$n);\n}\n",
            3,
            "f(int a, int b) {\n    (void)a, (void)b;\n    g(a3);\n}\n",
        ),
        (
            "f(int a, int b) {\n    (void)a, (void)b;\n    g(a);\n}\n",
            3,
            "f(int a, int b) {\n    (void)b;\n    g(a);\n}\n",
        ),
    ],
)
def test_what_counts_or_decides_nothing_is_left_out(template: str, number: int, expected: str) -> None:
    assert fill(template, n=number) == expected


def test_values_stay() -> None:
    """Random expressions, of numbers that templates are filled with and of variables."""
    rng = np.random.default_rng(5)
    values = {name: int(rng.integers(2, 9)) for name in "abcd"}

    def expression(depth: int) -> str:
        if depth == 0 or rng.random() < 0.2:
            return str(rng.choice(list(values))) if rng.random() < 0.5 else marked(int(rng.integers(0, 3)))
        parts = [expression(depth - 1) for _ in range(int(rng.integers(2, 4)))]
        text = parts[0]
        for part in parts[1:]:
            by = marked(int(rng.integers(1, 3)))
            text += f" {rng.choice([f'+ {part}', f'- {part}', f'* {part}', f'/ {by}', f'% {by}'])}"
        rounded = marked(int(rng.integers(1, 3)))
        return f"({text})" if rng.random() < 0.8 else f"({text} + {rounded} - 1) / {rounded}"

    for _ in range(3000):
        text = expression(3)
        plain = re.sub("[\x02\x03]", "", text)
        wanted, found = (eval(t.replace("/", "//"), {}, values) for t in (plain, folded(text)))
        assert found == wanted, f"{plain}: {folded(text)}"


def test_templates_that_differ_in_identifiers_are_folded_once() -> None:
    """Kernels have names of their own for the same text; numbers decide what is folded."""
    template = "${S}_once(n * $n + $S[$n], ${V}_load(at));"
    assert fill(template, S="first", V="f32x4", n=1) == "first_once(n + first[1], f32x4_load(at));"
    misses = folded.cache_info().misses
    assert fill(template, S="second", V="f64x8", n=1) == "second_once(n + second[1], f64x8_load(at));"
    assert folded.cache_info().misses == misses
    assert fill(template, S="second", V="f64x8", n=2) == "second_once(n * 2 + second[2], f64x8_load(at));"
    assert folded.cache_info().misses == misses + 1
