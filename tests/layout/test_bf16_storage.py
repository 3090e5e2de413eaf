"""Activations stored as bf16 between kernels of one term, in emulation and in the interpreter."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.ir.dim import Dim
from irc.ir.types import bf16
from irc.kernels import plain
from irc.kernels.conv.depthwise_nhwc import NhwcDepthwiseKernel
from irc.kernels.conv.nhwc import NhwcConvKernel
from irc.kernels.conv.split_bf16 import SplitConvKernel
from irc.kernels.conv.winograd_bf16 import SplitWinogradKernel
from irc.kernels.core.reference import LARGEST
from irc.kernels.core.text import standalone
from irc.kernels.core.tile import prelude
from irc.kernels.gemm.small_b import SmallBGemmKernel
from irc.kernels.gemm.split_bf16 import VECTOR, SplitGemmKernel
from irc.kernels.pool.nhwc import NhwcPoolKernel
from irc.kernels.vector import bf16_io as text
from irc.layout import bf16_storage
from irc.loops import interp
from irc.loops.ir import KernelCall, Program, walk
from irc.opdef.builder import evaluate
from irc.ops.pool import MaxPool
from tests.kernels.test_kernels import FLAGS, Pool, compilers, noise
from tests.kernels.test_split_bf16_gemm import error, program, pytestmark as needs_x86, same_classes
from tests.support.c_program import Library
from tests.support.instruction_sets import emulating, emulation
from tests.support.lowering import graph_of

pytestmark = needs_x86
N = Dim.symbol("n")


def weights(oc: int, ic: int, *window: int) -> np.ndarray[Any, Any]:
    taps = ic * int(np.prod(window))
    return (noise(oc, ic, *window) / taps**0.5).astype(np.float32)


def chain(b: Any, x: Any) -> Any:
    """Products, strided and padded convolutions, pools and a concatenation: what rounds its input anyway."""
    y = b.Relu(b.Conv(x, weights(48, 64, 1, 1), noise(48)))
    y = b.Relu(b.Conv(y, weights(72, 48, 3, 3), noise(72), strides=(2, 2), pads_begin=(1, 1), pads_end=(1, 1)))
    y = b.add_all(MaxPool(kernel=(3, 3), strides=(1, 1), pads_begin=(1, 1), pads_end=(1, 1)), y)[0]
    y = b.Relu(b.Conv(y, weights(64, 72, 1, 1), noise(64)))
    left = b.Relu(b.Conv(y, weights(96, 64, 1, 1), noise(96)))
    right = b.Relu(b.Conv(y, weights(40, 64, 2, 3), noise(40), pads_begin=(1, 1), pads_end=(0, 1)))
    return b.Relu(b.Conv(b.Concat(left, right, axis=1), weights(96, 136, 1, 1), noise(96)))


def network(b: Any, x: Any) -> Any:
    """The same, a depthwise convolution and residual sums, of which one is the operand of two kernels."""
    z = chain(b, x)
    d = b.Relu(b.Conv(z, weights(96, 1, 3, 3), noise(96), pads_begin=(1, 1), pads_end=(1, 1), group=96))
    d = b.Add(b.Conv(d, weights(96, 96, 1, 1), noise(96)), z)
    return b.Add(b.Conv(d, weights(96, 96, 1, 1), noise(96)), d)


def first_layers(b: Any, x: Any) -> Any:
    """Few channels: kernels of f32 that write bf16, and add a residual that is bf16."""
    y = b.Relu(b.Conv(x, weights(16, 3, 3, 3), noise(16), strides=(2, 2), pads_begin=(1, 1), pads_end=(1, 1)))
    d = b.Relu(b.Conv(y, weights(16, 1, 3, 3), noise(16), pads_begin=(1, 1), pads_end=(1, 1), group=16))
    y = b.Add(b.Conv(d, weights(16, 16, 1, 1), noise(16)), y)
    z = b.Relu(b.Conv(y, weights(104, 16, 1, 1), noise(104)))
    z = b.Conv(z, weights(104, 1, 3, 3), noise(104), strides=(2, 2), pads_begin=(1, 1), pads_end=(1, 1), group=104)
    return b.Conv(b.Relu(z), weights(40, 104, 1, 1), noise(40))


def planes(b: Any, x: Any) -> Any:
    """Two convolutions by Winograd where there is no AMX."""
    y = b.Relu(b.Conv(x, weights(64, 64, 3, 3), noise(64), pads_begin=(1, 1), pads_end=(1, 1)))
    y = b.Relu(b.Conv(y, weights(48, 64, 3, 3), noise(48), pads_begin=(1, 1), pads_end=(1, 1)))
    return b.Conv(y, weights(64, 48, 1, 1), noise(64))


def _nothing(graph: Any) -> int:
    return 0


def both(graph: Any, isa: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Program, Program]:
    """With f32 between kernels, and with bf16."""
    with monkeypatch.context() as patch:
        patch.setattr(bf16_storage, "run", _nothing)
        before = program(graph, "medium", isa)
    return before, program(graph, "medium", isa)


def kernels_of(made: Program) -> list[Any]:
    return [s.kernel for f in made.functions for s in walk(f.body) if isinstance(s, KernelCall)]


def emulated(made: Program, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    monkeypatch.setenv("CC", emulating(folder))
    return Library(made, folder)


def run(
    made: Program, x: Any, shape: tuple[int, ...], folder: Path, monkeypatch: pytest.MonkeyPatch, *dims: int
) -> Any:
    """The result of the emulation, the same with one thread and with several."""
    folder.mkdir()
    library = emulated(made, folder, monkeypatch)
    pool = Pool(3)
    found = [library.run(library.context(dims, pool=p), [x], [shape])[0] for p in (None, ctypes.byref(pool))]
    np.testing.assert_array_equal(found[0], found[1])
    return found[0]


@pytest.mark.parametrize("isa", ["amx", "avx512_bf16"])
def test_same_results(isa: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = noise(2, 64, 23, 21)
    graph = graph_of(chain, x)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    before, after = both(graph, isa, monkeypatch)
    assert not any(k.y_bf16 for k in kernels_of(before) if hasattr(k, "y_bf16"))
    kernels = kernels_of(after)
    for kind, least in ((SplitGemmKernel, 2), (SplitConvKernel, 2), (NhwcPoolKernel, 1)):
        assert sum(k.y_bf16 for k in kernels if isinstance(k, kind)) >= least, kind
    whole, stored = (
        run(made, x, wanted.shape, tmp_path / str(i), monkeypatch) for i, made in enumerate((before, after))
    )
    np.testing.assert_array_equal(whole, stored)
    assert error(stored, wanted) < 1e-2
    (meant,) = interp.run(after, [x])
    assert error(meant, wanted) < 1e-2


@pytest.mark.parametrize("isa", ["amx", "avx512_bf16"])
def test_depthwise_and_residual(isa: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would not have rounded its operands: within the error of one term."""
    x = noise(2, 64, 23, 21)
    graph = graph_of(network, x)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    made = both(graph, isa, monkeypatch)[1]
    kernels = kernels_of(made)
    assert [(k.x_bf16, k.y_bf16) for k in kernels if isinstance(k, NhwcDepthwiseKernel)] == [(True, True)]
    assert sum(bool(k.epilogue.bf16_slots) for k in kernels if hasattr(k, "epilogue")) == 2
    assert error(run(made, x, wanted.shape, tmp_path / "c", monkeypatch), wanted) < 1e-2
    (meant,) = interp.run(made, [x])
    assert error(meant, wanted) < 1e-2


@pytest.mark.parametrize("bits", [16, 32])
def test_first_layers(bits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = noise(2, 3, 61, 58)
    graph = graph_of(first_layers, x)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    made = both(graph, "avx512_bf16", monkeypatch)[bits == 16]
    kernels = kernels_of(made)
    for kind, stored in ((NhwcConvKernel, [1]), (NhwcDepthwiseKernel, [0, 1]), (SmallBGemmKernel, [0, 1])):
        assert [k.y_bf16 for k in kernels if isinstance(k, kind)] == [bits == 16 and bool(half) for half in stored]
    assert error(run(made, x, wanted.shape, tmp_path / "c", monkeypatch), wanted) < 1e-2
    (meant,) = interp.run(made, [x])
    assert error(meant, wanted) < 1e-2


@pytest.mark.parametrize("isa", ["amx", "avx512_bf16"])
def test_not_finite(isa: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Infinities and NaN go where they go in f32, and the largest floats become none of them."""
    x = noise(1, 64, 23, 21)
    x[0, 3, 0, 1], x[0, 60, 12, 4] = np.inf, np.nan
    x[0, :, 20, 17] = np.finfo(np.float32).max / 64
    graph = graph_of(network, x)
    with np.errstate(all="ignore"):
        (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    before, after = both(graph, isa, monkeypatch)
    whole, stored = (
        run(made, x, wanted.shape, tmp_path / str(i), monkeypatch) for i, made in enumerate((before, after))
    )
    assert not np.isfinite(whole).all() and np.isfinite(whole).any()
    same_classes(stored, whole)


@pytest.mark.parametrize("count", [1, 3])
def test_winograd_and_any_number_of_images(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs of Winograd's transforms are rounded once more: results differ within the error of bf16."""
    x = noise(count, 64, 15, 14)
    graph = graph_of(planes, x, shapes=[(N, 64, 15, 14)])
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    made = program(graph, "medium", "avx512_bf16")
    found = [k for k in kernels_of(made) if isinstance(k, SplitWinogradKernel)]
    assert [(k.x_bf16, k.y_bf16) for k in found] == [(False, True), (True, True)]
    stored = run(made, x, wanted.shape, tmp_path / "c", monkeypatch, count)
    assert error(stored, wanted) < 1e-2


LARGE = np.array([1, -1, np.finfo(np.float32).max, -np.finfo(np.float32).max, 3.3895e38, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("part", [0, 5])
def test_what_is_stored(part: int, tmp_path: Path) -> None:
    """Nearest even, finite values to finite ones; lanes beyond a part are left alone."""
    body = f"irc_half_store_part(y, irc_f32x16_load(x), {part})" if part else "irc_half_store(y, irc_f32x16_load(x))"
    (tmp_path / "h.c").write_text(
        standalone(
            [
                prelude(VECTOR, plain()),
                text.text(True, True),
                f"void store(const float *x, uint16_t *y) {{ {body}; }}\n",
            ]
        )
    )
    command = [
        *compilers()[0],
        *FLAGS,
        *emulation(),
        "-Wno-unused-function",
        "-shared",
        "-fPIC",
        "-o",
        "h.so",
        "h.c",
        "-lm",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    x = np.concatenate([LARGE, noise(8)]).astype(np.float32)
    y = np.full(16, 77, np.uint16)
    ctypes.CDLL(str(tmp_path / "h.so")).store(x.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p))
    wanted = np.where(np.isfinite(x), x.clip(-LARGEST, LARGEST), x).astype(bf16.numpy)
    count = part or 16
    np.testing.assert_array_equal(y[:count].view(bf16.numpy).astype(np.float32), wanted[:count].astype(np.float32))
    assert (y[count:] == 77).all()
