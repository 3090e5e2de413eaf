"""NHWC convolutions from bf16 terms against NumPy in float64, on emulated tiles; see `test_amx`."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.ir.types import f64
from irc.kernels import ISAS, PROTOTYPES, Epilogue, plain
from irc.kernels.conv.split_bf16 import SplitConvKernel, few_of
from irc.kernels.core.base import Kernel
from irc.kernels.gemm.split_bf16 import widths_of
from irc.loops import interp
from irc.loops.ir import KernelCall, walk
from irc.opdef.builder import evaluate
from tests.kernels.test_kernels import Pool, compilers, exact_conv, invoke, noise, with_flags
from tests.kernels.test_nhwc_conv import CASES, SAME, Case, fused, nhwc
from tests.kernels.test_split_bf16_gemm import DOT, ERROR, error, program, pytestmark as needs_x86, real, same_classes
from tests.support.c_program import Library
from tests.support.instruction_sets import emulating, emulation
from tests.support.kernels import split_conv
from tests.support.lowering import graph_of

pytestmark = needs_x86
STRIPS = Case(64, 40, (70, 66), (3, 3), pads=SAME)  # more than one strip with three terms
LONG = Case(100, 70, (5, 40), (3, 3), (2, 1), pads=SAME, batch=2)  # sums in several blocks, several panels
APART = Case(64, 40, (53, 47), (4, 5), (3, 2), dilations=(2, 3), pads=SAME)  # rows and columns by their remainders
LOW = Case(40, 70, (7, 8), (3, 3), (2, 2), pads=SAME, batch=2)  # tiles that run on from row to row
PICKED = {
    3: [*CASES[2:24:2], STRIPS, LONG, APART, LOW],
    2: [*CASES[1:24:3], LONG],
    1: [*CASES[0:24:4], STRIPS, APART, LOW],
}
PICKED[DOT] = [*CASES[:24:3], LONG, LOW]


def kernel_of(terms: int, case: Case, epilogue: Epilogue) -> SplitConvKernel:
    few = few_of(case.ic, case.window, case.dilations)
    unit = "dot" if terms == DOT else "amx"
    return SplitConvKernel(
        terms or 1, case.window, case.strides, case.dilations, epilogue, widths_of(case.oc), few, unit
    )


def built(folder: Path, kernels: Sequence[Kernel], compiler: list[str] | None = None) -> ctypes.CDLL:
    distinct = {k.symbol: k for k in kernels}.values()
    (folder / "k.c").write_text("\n".join([PROTOTYPES, *(k.source() for k in distinct)]))
    command = [*with_flags(compiler or compilers()[0]), *emulation(), "-shared", "-fPIC", "-o", "k.so", "k.c", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(folder / "k.so"))


def run(
    lib: ctypes.CDLL, kernel: SplitConvKernel, case: Case, pool: Pool | None, given: tuple[Any, Any], slots: list[Any]
) -> np.ndarray[Any, Any]:
    """Of slices of wider tensors: nothing outside them is read, or written."""
    x, w = given
    n, (oh, ow), (ih, iw) = case.batch, case.out, case.size
    channels, inputs = case.groups * case.oc, case.groups * case.ic
    image, y = nhwc(x, 3, np.nan), nhwc(np.zeros((n, channels, oh, ow), np.float32), 5, 77)
    packed = kernel.pack_weights(w, case.groups)
    assert packed.size == kernel.packed_elements(case.oc, case.ic, case.groups) and packed.dtype == kernel.w_dtype.numpy
    sizes: dict[str, Any] = {"batch": n, "groups": case.groups, "ic": case.ic, "oc": case.oc, "ih": ih, "iw": iw}
    sizes |= {"oh": oh, "ow": ow, "pad_h": case.pads[0], "pad_w": case.pads[1], "x_pixel": inputs + 3}
    sizes |= {"x_row": iw * (inputs + 3), "x_batch": ih * iw * (inputs + 3)}
    sizes |= {"y_pixel": channels + 5, "y_batch": oh * ow * (channels + 5)}
    if slots:
        sizes |= {"s0_batch": channels, "s2_batch": oh * ow * (channels + 2), "s2_pixel": channels + 2}
        sizes |= {"s3_batch": oh * ow, "s3_pixel": 1}
    sizes |= kernel.window_arguments()
    order = [int(e.value) for e in kernel.order(**sizes)]  # type: ignore[attr-defined]
    invoke(lib, kernel, image, packed, *slots, y, *order, pool=pool)
    assert (y[..., channels:] == 77).all()
    return y[..., :channels].transpose(0, 3, 1, 2)


@pytest.mark.parametrize("terms", PICKED)
def test_every_case(terms: int, tmp_path: Path) -> None:
    lib = built(tmp_path, [kernel_of(terms, case, fused()) for case in PICKED[terms]])
    for case in PICKED[terms]:
        kernel = kernel_of(terms, case, fused())
        n, channels = case.batch, case.groups * case.oc
        x, w = noise(n, case.groups * case.ic, *case.size), noise(channels, case.ic, *case.window)
        exact = exact_conv(x, w, case.groups, case.strides, case.dilations, case.pads)
        shapes = ((n, channels), (channels,), exact.shape, (n, *case.out), (1,))
        scale, bias, add, by, one = (noise(*s) for s in shapes)
        exact = np.maximum(exact * scale[:, :, None, None] + bias[:, None, None], 0) + add
        exact = exact * by[:, None] * one
        slots = [scale, bias, nhwc(add, 2, np.nan), by, one]
        found = run(lib, kernel, case, None, (x, w), slots)
        assert error(found, exact) < 2 * ERROR[terms], case
        np.testing.assert_array_equal(run(lib, kernel, case, Pool(1), (x, w), slots), found)


@pytest.mark.parametrize("terms", ERROR)
def test_not_finite(terms: int, tmp_path: Path) -> None:
    """An infinity in the input spreads over its windows alone; NaN, and the largest floats, as in f32."""
    for number, case in enumerate((Case(40, 40, (9, 11), (3, 3), pads=SAME), Case(40, 20, (9, 11), (3, 3), (2, 2)))):
        folder = tmp_path / str(number)
        folder.mkdir()
        kernel = kernel_of(terms, case, plain())
        x, w = noise(1, 40, *case.size), noise(case.oc, 40, 3, 3)
        x[0, 3, 0, 1], x[0, 39, 4, 4], x[0, 7, 8, 9] = np.inf, np.nan, np.finfo(np.float32).max
        w[5, 3, 1, 1] = 0
        w[:, 7] = np.where(w[:, 7] > 0.5, 2, np.where(w[:, 7] < -0.5, -2, 0.5))  # which one term holds
        with np.errstate(all="ignore"):
            exact = exact_conv(x, w, 1, case.strides, case.dilations, case.pads)
            wanted = exact.astype(np.float32)
        found = run(built(folder, [kernel]), kernel, case, None, (x, w), [])
        same_classes(found, wanted)
        small = np.abs(wanted) < 1e30
        assert error(found[small], exact[small]) < ERROR[terms]


@pytest.mark.parametrize("terms", [3, 1])
def test_not_finite_in_few_channels(terms: int, tmp_path: Path) -> None:
    """What a chunk reads beyond the window is not in the result."""
    case = Case(3, 20, (15, 17), (7, 5), (2, 1), pads=(3, 2, 3, 2))
    kernel = kernel_of(terms, case, plain())
    assert kernel.few == 3
    x, w = noise(1, 3, *case.size), noise(case.oc, 3, 7, 5)
    x[0, 1, 0, 9], x[0, 2, 7, 16], x[0, 0, 14, 0] = np.inf, np.nan, -np.inf
    with np.errstate(all="ignore"):
        exact = exact_conv(x, w, 1, case.strides, case.dilations, case.pads)
    found = run(built(tmp_path, [kernel]), kernel, case, None, (x, w), [])
    same_classes(found, exact)
    finite = np.isfinite(exact)
    assert error(found[finite], exact[finite]) < ERROR[terms]


def test_planes_are_small() -> None:
    kernel = SplitConvKernel(3, (3, 3), (1, 1), (1, 1), plain(), (2,))
    for ic, side in ((64, 56), (128, 28), (256, 14), (512, 7), (64, 256), (320, 80)):
        assert kernel.planes_bytes(ic, side, side) <= 1100 << 10
    assert kernel.planes_bytes(512, 100, 200) < 4 * (512 * 3 * 2 * 3 * 68)  # of part of three rows of the input


def test_selection() -> None:
    amx, square = ISAS["amx"], ((3, 3), (1, 1))
    for precision in ("highest", "high", "medium"):
        assert split_conv(amx, precision, 64, 64, (56, 56), *square, plain()) is not None
        assert split_conv(amx, precision, 64, 64, (56, 56), *square, plain(f64)) is None
        assert split_conv(ISAS["avx512"], precision, 64, 64, (56, 56), *square, plain()) is None
        assert split_conv(amx, precision, 1, 1, (56, 56), *square, plain()) is None
        dots = split_conv(ISAS["avx512_bf16"], precision, 64, 64, (56, 56), *square, plain())
        assert (dots is not None and dots.unit == "dot") == (precision == "medium")
    first = split_conv(amx, "high", 3, 64, (112, 112), (7, 7), (2, 2), plain())
    assert first is not None and first.few == 3 and first.depth(3) == 7 * 32
    assert split_conv(amx, "high", 1, 64, (224, 224), (5, 5), (1, 1), plain()) is None


@pytest.mark.parametrize("compiler", compilers(), ids=lambda c: Path(c[0]).name)
@pytest.mark.parametrize("terms", [3, 2, 1])
def test_real_instructions_compile(terms: int, compiler: list[str], tmp_path: Path) -> None:
    kernel = kernel_of(terms, Case(64, 64, (9, 9), (3, 3)), fused())
    (tmp_path / "k.c").write_text(PROTOTYPES + kernel.source())
    command = [*with_flags(compiler), *real(compiler), "-S", "-o", "-", "k.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    assert done.stdout.count("tdpbf16ps") >= {3: 36, 2: 18, 1: 6}[terms]


def block(b: Any, x: Any) -> Any:
    """Two convolutions with a residual sum, as channels last."""
    y = b.Relu(b.Conv(x, noise(64, 64, 3, 3) / 24, noise(64), pads_begin=(1, 1), pads_end=(1, 1)))
    y = b.Add(b.Conv(y, noise(64, 64, 3, 3) / 24, noise(64), pads_begin=(1, 1), pads_end=(1, 1)), x)
    return b.Relu(b.Conv(y, noise(128, 64, 1, 1) / 8, noise(128), strides=(2, 2)))


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_compiled(precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = noise(2, 64, 15, 14)
    graph = graph_of(block, x)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    made = program(graph, precision)
    calls = [s.kernel for f in made.functions for s in walk(f.body) if isinstance(s, KernelCall)]
    assert sum(isinstance(k, SplitConvKernel) for k in calls) == 3
    bound = 4 * ERROR[{"high": 2, "medium": 1}[precision]]
    (found,) = interp.run(made, [x])
    assert error(found, wanted) < bound
    monkeypatch.setenv("CC", emulating(tmp_path))
    library = Library(made, tmp_path)
    (found,) = library.run(library.context(), [x], [wanted.shape])
    assert error(found, wanted) < bound
