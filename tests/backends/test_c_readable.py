"""What a reader of generated C meets: lines of at most 120 characters, short names, one comment above each kernel."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import irc
from irc import driver
from irc.backends.c.kernel_text import WIDTH, in_lines, without_residues
from irc.ir.graph import Graph, Model, Value
from irc.ir.types import TensorType, f32
from irc.opdef.base import load_all
from irc.opdef.builder import Builder

SAMPLES = Path(__file__).parents[2] / "samples"
TARGETS = ("x86-64", "x86-64-v3", "x86-64-v4", "sapphirerapids", "aarch64")
RESIDUES = re.compile(
    r"\(1 && | && 1\)|(?<=[\w)\]]) \* 1(?![\w.])|(?<=[(\[])1 \* |(?<=[=,+<-] )1 \* |(?<=[(\[])0 \* \w|\w \+ 0\)"
)


def weights(*shape: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def convolutions(b: Builder, x: Value) -> Value:
    """1×1, 3×3, strided, depthwise; bias, ReLU, a residual."""
    y = b.Relu(b.Conv(x, weights(32, 16, 3, 3), weights(32), pads_begin=(1, 1), pads_end=(1, 1)))
    z = b.Conv(y, weights(32, 1, 3, 3), group=32, pads_begin=(1, 1), pads_end=(1, 1))
    z = b.Relu(b.Add(b.Conv(z, weights(32, 32, 1, 1)), y))
    return b.Conv(z, weights(8, 32, 3, 3), strides=(2, 2))


def products(b: Builder, x: Value) -> Value:
    """Products with a constant and with one another, a GELU, a softmax."""
    y = b.Gelu(b.Add(b.MatMul(x, weights(32, 64)), weights(64)))
    z = b.Softmax(b.MatMul(y, b.Transpose(y, [0, 1, 3, 2])), axis=-1)
    return b.MatMul(z, y)


MODELS: dict[str, tuple[tuple[int, ...], Callable[[Builder, Value], Value]]] = {
    "convolutions": ((1, 16, 20, 20), convolutions),
    "products": ((1, 4, 24, 32), products),
}


def model(name: str) -> Model:
    if name in ("digits", "encoder"):
        return irc.load(SAMPLES / name / f"{name}.onnx")
    load_all()
    graph = Graph(name)
    shape, build = MODELS[name]
    x = graph.add_input("x", TensorType.of(f32, shape))
    graph.outputs = [build(Builder(graph), x)]
    return Model(graph)


def sources(name: str, target: str) -> dict[str, str]:
    options = driver.CompileOptions(backend="c", cache=False, target=target)
    return {n: text for n, text in driver.sources(model(name), options).files.items() if isinstance(text, str)}


@pytest.mark.parametrize("name", ["digits", "encoder", *MODELS])
@pytest.mark.parametrize("target", TARGETS)
def test_lines_are_short_and_say_nothing_for_nothing(name: str, target: str) -> None:
    for file, text in sources(name, target).items():
        for number, line in enumerate(text.split("\n"), start=1):
            assert len(line) <= WIDTH, f"{file}:{number}: {line}"
            found = None if line.lstrip().startswith(("*", "/*")) else RESIDUES.search(line)
            assert found is None, f"{file}:{number}: {found and found[0]!r} in {line}"


def test_a_kernel_has_one_comment_with_its_formula_and_a_short_name() -> None:
    text = sources("convolutions", "x86-64-v3")["kernels_0.c"]
    comments = re.findall(r"^/\* (?:.(?!\*/))*?\n \* Kernel (irc_\w+)\. \*/\n", text, re.MULTILINE | re.DOTALL)
    assert len(comments) == len(set(comments)) >= 3
    assert re.search(r"Epilogue: max\(\(acc \+ slot0\), 0\) \(slot0: one for each column\)\.", text)
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    assert not any(symbol in code for symbol in comments), "code has short names only"
    assert re.findall(r"^void (convolutions_\w+)\(", code, re.MULTILINE) != []


def test_long_lines_break_where_they_nest_least() -> None:
    call = "    f(" + ", ".join(f"a_rather_long_argument_{k}(x, y)" for k in range(6)) + ");"
    first, *rest = in_lines(call).split("\n")
    assert first.endswith(",") and all(len(line) <= WIDTH for line in (first, *rest))
    assert first.count("(") - 1 == first.count(")")
    text = 'const char *s = "' + "word, " * 30 + '";'
    assert in_lines(text) == "const char *s =\n    " + text.split("= ")[1], "texts stay whole"
    remark = "    " + "x" * 90 + "; /* " + "why " * 12 + "*/"
    assert in_lines(remark).split("\n")[1] == "    " + "x" * 90 + ";"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("dx * 1;", "dx;"),
        ("x * 10 + y * 1.5f;", "x * 10 + y * 1.5f;"),
        ("(1 * 4 + a)", "(4 + a)"),
        ("a / 1 * b", "a / 1 * b"),
        ("if (1 && last) {", "if (last) {"),
        ("load(in + 0)", "load(in)"),
        ("(out + 0 * height * row + 16, n)", "(out + 16, n)"),
        ("h[0 * pitch + k]", "h[k]"),
        ("if (done && (!begun || 0))", "if (done && !begun)"),
        ("i < n && k == 1 && z", "i < n && k == 1 && z"),
        ("10 * a + 20 * b", "10 * a + 20 * b"),
    ],
)
def test_what_counts_nothing_is_left_out(code: str, expected: str) -> None:
    assert without_residues(code) == expected
