"""Winograd convolutions of bf16 pairs against NumPy in float64, with emulated instructions; see `test_amx`."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.ir.dim import Dim
from irc.ir.types import f64
from irc.kernels import ISAS, Epilogue, plain
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.conv.winograd_bf16 import SplitWinogradKernel
from irc.kernels.core import registry
from irc.kernels.gemm.split_bf16 import widths_of
from irc.loops import interp
from irc.loops.ir import KernelCall, walk
from irc.opdef.builder import evaluate
from tests.kernels.test_kernels import Pool, exact_conv, invoke, noise
from tests.kernels.test_nhwc_conv import fused, nhwc
from tests.kernels.test_split_bf16_conv import block, built
from tests.kernels.test_split_bf16_gemm import error, program, pytestmark as needs_x86, same_classes
from tests.kernels.test_winograd import CASES
from tests.support.c_program import Library
from tests.support.instruction_sets import needs
from tests.support.lowering import graph_of

pytestmark = needs_x86
ERROR = 5e-3
"""Norm of the error over that of the result: 5 / 3 times that of a direct sum."""
NARROW = (33, 16, (9, 30), (1, 1, 1, 1), 2)


def kernel_of(case: Any, epilogue: Epilogue) -> SplitWinogradKernel:
    return SplitWinogradKernel(epilogue, widths_of(case[1]))


def run(
    lib: ctypes.CDLL,
    case: Any,
    kernel: SplitWinogradKernel,
    x: Any,
    w: Any,
    slots: list[Any],
    pool: Pool | None = None,
    tiles: int = 0,
) -> np.ndarray[Any, Any]:
    """Of slices of wider tensors: nothing outside them is read, or written.  tiles: transformed at a time, if given."""
    ic, oc, (ih, iw), (top, left, bottom, right), n = case
    oh, ow = ih + top + bottom - 2, iw + left + right - 2
    image, y = nhwc(x, 3, np.nan), nhwc(np.zeros((n, oc, oh, ow), np.float32), 5, 77)
    packed = kernel.pack_weights(w)
    assert packed.size == kernel.packed_elements(oc, ic) and packed.dtype == kernel.w_dtype.numpy
    most = tiles or kernel.most(ic, -(-oh // 2) * -(-ow // 2))
    sizes: dict[str, Any] = {"batch": n, "ic": ic, "oc": oc, "ih": ih, "iw": iw, "oh": oh, "ow": ow, "most": most}
    sizes |= {"pad_h": top, "pad_w": left, "x_pixel": ic + 3, "x_row": iw * (ic + 3)}
    sizes |= {"x_batch": ih * iw * (ic + 3), "y_pixel": oc + 5, "y_batch": oh * ow * (oc + 5)}
    if slots:
        sizes |= {"s0_batch": oc, "s2_batch": oh * ow * (oc + 2), "s2_pixel": oc + 2}
        sizes |= {"s3_batch": oh * ow, "s3_pixel": 1}
    order = [int(e.value) for e in kernel.order(**sizes)]  # type: ignore[attr-defined]
    invoke(lib, kernel, image, packed, *slots, y, *order, pool=pool)
    assert (y[..., oc:] == 77).all()
    return y[..., :oc].transpose(0, 3, 1, 2)


def test_every_case(tmp_path: Path) -> None:
    cases = [*CASES, NARROW]
    lib = built(tmp_path, [kernel_of(case, fused()) for case in cases])
    for case in cases:
        ic, oc, plane, pads, n = case
        kernel = kernel_of(case, fused())
        x, w = noise(n, ic, *plane), noise(oc, ic, 3, 3)
        exact = exact_conv(x, w, 1, (1, 1), (1, 1), pads)
        shapes = ((n, oc), (oc,), exact.shape, (n, *exact.shape[2:]), (1,))
        scale, bias, add, by, one = (noise(*s) for s in shapes)
        exact = np.maximum(exact * scale[:, :, None, None] + bias[:, None, None], 0) + add
        exact = exact * by[:, None] * one
        slots = [scale, bias, nhwc(add, 2, np.nan), by, one]
        found = run(lib, case, kernel, x, w, slots)
        assert error(found, exact) < ERROR, case
        for pool in (Pool(1), Pool(3), Pool(7)):
            np.testing.assert_array_equal(run(lib, case, kernel, x, w, slots, pool), found)
        np.testing.assert_array_equal(run(lib, case, kernel, x, w, slots, Pool(3), 5), found)


def test_error(tmp_path: Path) -> None:
    """Of the size that independent inputs make expect."""
    case = (512, 64, (14, 14), (1, 1, 1, 1), 1)
    kernel = kernel_of(case, plain())
    x, w = noise(1, 512, 14, 14), noise(64, 512, 3, 3)
    exact = exact_conv(x, w, 1, (1, 1), (1, 1), (1, 1, 1, 1))
    found = run(built(tmp_path, [kernel]), case, kernel, x, w, [])
    assert 2e-3 < error(found, exact) < ERROR
    assert np.abs(found - exact).max() < 7e-3 * np.abs(exact).max()


@pytest.mark.parametrize("case", [(40, 40, (9, 11), (1, 1, 1, 1), 1), NARROW], ids=str)
def test_not_finite(case: Any, tmp_path: Path) -> None:
    """An infinity in the input spreads over its windows alone; NaN, and the largest floats, as in f32."""
    ic, oc, plane, pads, n = case
    kernel = kernel_of(case, plain())
    x, w = noise(n, ic, *plane), noise(oc, ic, 3, 3)
    x[0, 3, 0, 1], x[0, ic - 1, 4, 4], x[0, 7, 8, 9] = np.inf, np.nan, np.finfo(np.float32).max
    w[5, 3, 1, 1] = 0
    w[:, 7] = np.where(w[:, 7] > 0.5, 2, np.where(w[:, 7] < -0.5, -2, 0.5))  # which one term holds
    with np.errstate(all="ignore"):
        exact = exact_conv(x, w, 1, (1, 1), (1, 1), pads)
        wanted = exact.astype(np.float32)
    found = run(built(tmp_path, [kernel]), case, kernel, x, w, [])
    same_classes(found, wanted)
    small = np.abs(wanted) < 1e30
    assert error(found[small], exact[small]) < ERROR


def test_selection() -> None:
    """Only for one term, where vectors multiply pairs; not for few channels, or planes of unknown size."""

    def selects(isa: str, precision: str, ic: int, oc: int, result: Any, epilogue: Epilogue) -> bool:
        problem = ConvProblem.contiguous("nhwc", epilogue, ic, oc, result, (3, 3), precision=precision)
        return isinstance(registry.select(problem, ISAS[isa]), SplitWinogradKernel)

    assert selects("avx512_bf16", "medium", 64, 64, (56, 56), plain())
    for precision in ("highest", "high"):
        assert not selects("avx512_bf16", precision, 64, 64, (56, 56), plain())
    for isa in ("amx", "avx512", "avx2"):
        assert not selects(isa, "medium", 64, 64, (56, 56), plain())
    assert not selects("avx512_bf16", "medium", 64, 64, (56, 56), plain(f64))
    w = Dim.symbol("w")
    for oc, ic, *result in ((16, 64, 56, 56), (64, 16, 56, 56), (64, 64, 56, w)):
        assert not selects("avx512_bf16", "medium", ic, oc, tuple(result), plain())


def test_lowered() -> None:
    """What the kernels of a program mean, in the interpreter."""
    x = noise(2, 64, 15, 14)
    graph = graph_of(block, x)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    made = program(graph, "medium", "avx512_bf16")
    calls = [s.kernel for f in made.functions for s in walk(f.body) if isinstance(s, KernelCall)]
    assert sum(isinstance(k, SplitWinogradKernel) for k in calls) == 2
    (found,) = interp.run(made, [x])
    assert error(found, wanted) < ERROR


@needs("avx512_bf16")
def test_on_the_processor(tmp_path: Path) -> None:
    x = noise(2, 64, 15, 14)
    graph = graph_of(block, x)
    (wanted,) = evaluate(graph, {graph.inputs[0]: x})
    library = Library(program(graph, "medium", "avx512_bf16"), tmp_path)
    (found,) = library.run(library.context(), [x], [wanted.shape])
    assert error(found, wanted) < 2 * ERROR
