"""What a reader of generated C meets: lines of at most 120 characters, short names, one comment above each kernel."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import irc
from irc import driver
from irc.backends.c.kernel_text import WIDTH, in_lines
from irc.ir.graph import Graph, Model, Value
from irc.ir.types import TensorType, f32
from irc.opdef.base import load_all
from irc.opdef.builder import Builder

SAMPLES = Path(__file__).parents[2] / "samples"
TARGETS = ("x86-64", "x86-64-v3", "x86-64-v4", "sapphirerapids", "aarch64")
RESIDUES = re.compile(
    r"if \([01]\b|\(1 && | && 1\)|(?<=[\w)\]]) [*/] 1(?![\w.])|(?<=[(\[])1 \* |(?<=[=,+<-] )1 \* |(?<=[(\[])0 \* \w"
    r"|\w \+ 0\)|\+ 1 - 1\b|[^<>=]= [01] \?|\w < 0; \w+\+\+|, 1\.0f\)"
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
    files = sources("convolutions", "x86-64-v3")
    text = "".join(text for name, text in files.items() if name.startswith("kernels_"))
    comments = re.findall(r"^/\* (?:.(?!\*/))*?\n \* Kernel (irc_\w+)\. \*/\n", text, re.MULTILINE | re.DOTALL)
    assert len(comments) == len(set(comments)) >= 3
    assert re.search(r"Epilogue: max\(\(acc \+ slot0\), 0\) \(slot0: one for each column\)\.", text)
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    assert not any(symbol in code for symbol in comments), "code has short names only"
    assert re.findall(r"^void (convolutions_\w+)\(", code, re.MULTILINE) != []


@pytest.mark.parametrize("name", ["digits", "products"])
def test_calls_of_kernels_name_their_arguments(name: str) -> None:
    files = sources(name, "x86-64-v3")
    kernels = re.findall(r"^void (\w+)\(const irc_pool \*pool, const (\w+) \*g\);$", files["kernels.h"], re.MULTILINE)
    assert kernels and all(args == f"{kernel}_args" for kernel, args in kernels)
    for kernel, args in kernels:
        assert re.fullmatch(rf"{name}_[a-z_]+_\d+", kernel), "a plain name: the prefix, the kind, and a number"
        struct = re.search(rf"typedef struct \{{([^}}]*)\}} {args};", files["kernels.h"])
        assert struct is not None
        fields = re.findall(r"(\w+)(?=[,;])", struct[1])
        calls = re.findall(rf"    {kernel}\(pool, &\(const {args}\)\{{(.*?)\}}\);", files["model.c"], re.DOTALL)
        assert calls and all(re.findall(r"\.(\w+) = ", call) == fields for call in calls)


def test_long_lines_break_where_they_nest_least() -> None:
    call = "    f(" + ", ".join(f"a_rather_long_argument_{k}(x, y)" for k in range(6)) + ");"
    first, *rest = in_lines(call).split("\n")
    assert first.endswith(",") and all(len(line) <= WIDTH for line in (first, *rest))
    assert first.count("(") - 1 == first.count(")")
    text = 'const char *s = "' + "word, " * 30 + '";'
    assert in_lines(text) == "const char *s =\n    " + text.split("= ")[1], "texts stay whole"
    remark = "    " + "x" * 90 + "; /* " + "why " * 12 + "*/"
    assert in_lines(remark).split("\n")[1] == "    " + "x" * 90 + ";"
