"""Whole models for a processor with AMX, in every precision: compiled, loaded and run on emulated tiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irc
from irc.diagnostics import RunError
from irc.driver import CompileOptions, sources
from irc.ir.dim import Dim
from irc.ir.graph import Model
from irc.kernels.split_bf16.bf16_terms import TERMS
from irc.opdef.builder import evaluate
from irc.ops.recurrent import LSTM
from irc.toolchain import c_compiler, matrix_units, processor
from tests.kernels.test_split_bf16_gemm import compilers, pytestmark as needs_x86
from tests.support.instruction_sets import TARGETS, emulating
from tests.support.lowering import graph_of, random

pytestmark = needs_x86
SAMPLES = Path(__file__).resolve().parents[2] / "samples"
TARGET = TARGETS["amx"]
BOUND = {"highest": 2e-6, "high": 5e-5, "medium": 3e-2}
"""Largest error over the largest result."""


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tiles in C, and vectors as the tested processor has them; nobody asks the processor or the system."""
    monkeypatch.setenv("CC", emulating(tmp_path, TARGET))
    here = c_compiler.cpu_features()
    needed = frozenset(c_compiler.resolve_target(TARGET, c_compiler.require_compiler()).features)
    monkeypatch.setattr(processor, "cpu_features", lambda: here | needed)
    monkeypatch.setattr(matrix_units, "permitted", lambda: True)


def error(found: list[Any], wanted: list[Any]) -> float:
    return max(
        float(np.abs(f - w).max() / np.abs(w).max()) for f, w in zip(found, wanted, strict=True) if w.dtype.kind == "f"
    )


def precisions(one: str) -> list[Any]:
    """This one, and with -m full the others: `test_every_kernel_together` has all of them for the same kernels."""
    return [p if p == one else pytest.param(p, marks=pytest.mark.full) for p in TERMS]


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("precision", precisions("medium"))
def test_digits(precision: str) -> None:
    image = np.load(SAMPLES / "digits" / "heldout.npz")["image"].astype(np.float32)
    path = SAMPLES / "digits" / "digits.onnx"
    (wanted,) = irc.compile(path, backend="numpy")([image])
    (found,) = irc.compile(path, backend="c", target=TARGET, precision=precision, cache=False)([image])
    assert error([found], [wanted]) < BOUND[precision]
    np.testing.assert_array_equal(found.argmax(-1), wanted.argmax(-1))


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("precision", precisions("high"))
def test_encoder(precision: str) -> None:
    """Symbolic sizes: few rows in f32 vectors, many in tiles."""
    path, rng = SAMPLES / "encoder" / "encoder.onnx", np.random.default_rng(3)
    plain = irc.compile(path, backend="numpy")
    compiled = irc.compile(path, backend="c", target=TARGET, precision=precision, cache=False, threads=2)
    types = [p.dtype for p in plain.inputs]
    for batch, length in ((1, 3), (2, 48), (5, 20)):
        tokens = rng.integers(0, 20, (batch, length))
        mask = np.arange(length) < rng.integers(1, length + 1, (batch, 1))
        feeds = [x.astype(t) for x, t in zip((tokens, mask), types, strict=True)]
        assert error(compiled(feeds), plain(feeds)) < BOUND[precision]


def weights(*shape: int, seed: int) -> Any:
    """That keep the size of what they are multiplied with."""
    return random(*shape, seed=seed) / np.float32(np.prod(shape[1:]) ** 0.5)


def everything(b: Any, x: Any) -> Any:
    """Convolutions, attention of two heads over the pixels, three products, and an LSTM over them."""
    y = b.Relu(b.Conv(x, weights(64, 3, 3, 3, seed=1), random(64), pads_begin=(1, 1), pads_end=(1, 1)))
    y = b.Relu(b.Conv(y, weights(64, 64, 3, 3, seed=2), random(64), pads_begin=(1, 1), pads_end=(1, 1)))
    y = b.Add(b.Conv(y, weights(64, 64, 1, 1, seed=3), random(64)), y)
    tokens = b.Transpose(b.Reshape(y, [64, -1]), [1, 0])
    q, k, v = (
        b.Transpose(b.Reshape(b.MatMul(tokens, weights(64, 128, seed=s)), [-1, 2, 64]), [1, 0, 2]) for s in (4, 5, 6)
    )
    scores = b.Softmax(b.Mul(b.MatMul(q, b.Transpose(k, [0, 2, 1])), 0.125), axis=-1)
    mixed = b.Reshape(b.Transpose(b.MatMul(scores, v), [1, 0, 2]), [-1, 128])
    hidden = b.Relu(b.MatMul(mixed, weights(128, 512, seed=11)))
    hidden = b.Relu(b.MatMul(hidden, weights(512, 512, seed=13)))
    mixed = b.Add(mixed, b.MatMul(hidden, weights(512, 128, seed=12)))
    mixed = b.Add(b.MatMul(mixed, weights(128, 64, seed=7)), tokens)
    gates = (weights(1, 64, 64, seed=8), weights(1, 64, 16, seed=9), random(1, 128, seed=10))
    return b.add_all(LSTM(hidden_size=16), b.Unsqueeze(mixed, [1]), *gates)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(
    ("precision", "symbolic"), [*((p, False) for p in TERMS), ("high", True)], ids=[*TERMS, "high, symbolic"]
)
def test_every_kernel_together(precision: str, symbolic: bool, tmp_path: Path) -> None:
    x = random(1, 3, 20, 27)
    shape = (1, 3, 20, Dim.symbol("width")) if symbolic else x.shape
    graph = graph_of(everything, x, shapes=[shape])
    model = Model(graph, "onnx", 10, {"": 22})
    text = str(sources(model, CompileOptions(target=TARGET, precision=precision)).files)
    kernels = {"irc_gemm_amx", "irc_attention_amx"} | ({"irc_conv_amx"} if precision != "highest" else set())
    assert symbolic or all(kernel in text for kernel in kernels)
    alone = irc.compile(model, backend="c", target=TARGET, precision=precision, cache=False)
    alone.save(tmp_path / "made")
    runs = [alone, irc.load_compiled(tmp_path / "made", threads=2)]
    for width in (27, 33) if symbolic else (27,):
        x = random(1, 3, 20, width)
        wanted = evaluate(graph, {graph.inputs[0]: x})
        one, two = (compiled([x]) for compiled in runs)
        assert error(one, wanted) < BOUND[precision]
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("compiler", compilers(), ids=lambda c: c[0].rpartition("/")[2])
def test_with_the_real_instructions(compiler: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled everywhere; run where there is AMX, and refused elsewhere."""
    monkeypatch.setenv("CC", " ".join(compiler))
    x = random(1, 3, 20, 21)
    graph = graph_of(everything, x)
    model = Model(graph, "onnx", 10, {"": 22})

    def run() -> list[Any]:
        return irc.compile(model, backend="c", target=TARGET, precision="high", cache=False)([x])

    needed = c_compiler.resolve_target(TARGET, c_compiler.require_compiler()).features
    if processor.missing_features("x86_64", needed):
        with pytest.raises(RunError) as e:
            run()
        assert e.value.diagnostics[0].code == "IRC6007"
    else:
        assert error(run(), evaluate(graph, {graph.inputs[0]: x})) < BOUND["high"]
