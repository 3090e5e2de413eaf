"""Convolutions of groups with few channels, NCHW: random shapes, with padding, against NumPy in double precision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.expr import Const
from irc.ir.dim import Dim
from irc.ir.types import f32
from irc.kernels import ISAS, Epilogue, acc, slot
from irc.kernels.conv.depthwise_turned import TurnedDepthwiseKernel
from irc.kernels.conv.grouped_nchw import NchwGroupedKernel
from irc.kernels.conv.pointwise_nchw import NchwPointwiseKernel
from irc.kernels.conv.problem import ConvProblem
from tests.kernels.test_kernels import Pool, build, close, exact_conv, guarded, invoke, noise
from tests.support.instruction_sets import needs

EPILOGUE = Epilogue((acc() + slot(0) + slot(1)).max(Const(0.0, f32)), ("column", "full"))


def drawn(seed: int, pointwise: bool) -> dict[str, Any]:
    """Draw a convolution; if `pointwise`, of single pixels."""
    rng = np.random.default_rng(seed)

    def pick(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    while True:
        ic, oc, groups = pick(1, 1, 1, 2, 3, 5), pick(1, 1, 2, 3, 4), pick(1, 3, 8, 17, 33)
        window = pick((3, 3), (5, 5), (1, 7), (3, 5), (7, 7), (1, 15), (1, 1), (2, 3))
        strides = pick((1, 1), (2, 2), (3, 2), (1, 1))
        dilations = pick((1, 1), (1, 1), (2, 2), (3, 4), (1, 40))
        if pointwise:
            window, strides = (1, 1), (1, 1)
        size = pick((1, 70), (5, 80), (17, 17), (7, 7), (30, 33), (64, 19), (3, 700), (1, 1))
        pads = tuple(int(rng.integers(0, (k - 1) * d + 1)) for k, d in zip(window * 2, dilations * 2, strict=True))
        spans = zip(size, window, strides, dilations, pads[:2], pads[2:], strict=True)
        result = tuple((n + a + b - (k - 1) * d - 1) // s + 1 for n, k, s, d, a, b in spans)
        if min(result) > 0 and groups * (ic + oc) * size[0] * size[1] < 50_000:
            return {"batch": pick(1, 2), "ic": ic, "oc": oc, "groups": groups, "size": size, "window": window} | {
                "strides": strides, "dilations": dilations, "pads": pads, "result": result,
            }  # fmt: skip


def problem_of(c: dict[str, Any]) -> ConvProblem:
    channels, outputs, batch = c["groups"] * c["ic"], c["groups"] * c["oc"], c["batch"]
    (ih, iw), (oh, ow) = c["size"], c["result"]
    shape = (channels, outputs, (oh, ow), c["window"], c["strides"], c["dilations"], c["groups"])
    plane, whole = Dim.of(oh * ow), Dim.of(outputs * oh * ow)
    return replace(
        ConvProblem.contiguous("nchw", EPILOGUE, *shape),
        batch=Dim.of(batch),
        size=(Dim.of(ih), Dim.of(iw)),
        padding=(Dim.of(c["pads"][0]), Dim.of(c["pads"][1])),
        x=tuple(map(Dim.of, (channels * ih * iw, ih * iw, iw, 1))),
        y=(whole, plane, Dim.of(1)),
        slots=((Dim.of(0), Dim.of(1)), (whole, plane)),
    )


@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
@pytest.mark.parametrize("cls", [NchwGroupedKernel, NchwPointwiseKernel, TurnedDepthwiseKernel])
def test_any_shape(tmp_path: Path, isa: str, cls: Any) -> None:
    """What a kernel computes is exact, and the same for several threads."""
    drawings = [drawn(seed, cls is NchwPointwiseKernel) for seed in range(20)]
    cases = [(c, cls.best(problem_of(c), ISAS[isa])) for c in drawings]
    cases = [(c, kernel) for c, kernel in cases if kernel is not None]
    assert len(cases) >= 4
    lib = build(tmp_path, list({kernel.symbol: kernel for _, kernel in cases}.values()))
    for c, kernel in cases:
        problem, (batch, groups, ic, oc) = problem_of(c), (c[n] for n in ("batch", "groups", "ic", "oc"))
        x, w = guarded(batch, groups * ic, *c["size"]), noise(groups * oc, ic, *c["window"])
        exact = exact_conv(x, w, groups, c["strides"], c["dilations"], c["pads"])
        bias, add, terms = noise(groups * oc), noise(*exact.shape), w[0].size
        sizes = kernel.arguments_for(problem)
        packed = kernel.packed(problem).pack(w)
        wanted = np.maximum(exact + bias[:, None, None] + add, 0)
        found: list[np.ndarray[Any, Any]] = []
        for pool in (None, Pool(1)):
            y = np.full(exact.shape, np.nan, np.float32)
            invoke(lib, kernel, x, packed, bias, add, y, *(int(sizes[n]) for n in kernel.sizes), pool=pool)
            close(y, wanted, terms)
            found.append(y)
        assert np.array_equal(*found)
        if exact.size < 2000:
            said = np.full(exact.size, np.nan, np.float32)
            operands = [x.reshape(-1), packed, bias, add.reshape(-1)]
            kernel.compute(operands, [said], {n: int(d) for n, d in sizes.items()})
            close(said.reshape(exact.shape), wanted, terms)


def test_long_pieces_of_rows() -> None:
    """However many inputs a group has: memory is slow at short pieces of many rows."""
    for ic in (1, 32):
        kernel = NchwPointwiseKernel.best(
            ConvProblem.contiguous("nchw", EPILOGUE, ic, 80, (64, 64), (1, 1)), ISAS["avx512"]
        )
        assert kernel is not None and kernel.block >= 1000


@pytest.mark.parametrize("isa", [pytest.param("avx512", marks=needs("avx512")), "avx2", "plain"])
def test_outputs_of_few_pixels_are_shared(tmp_path: Path, isa: str) -> None:
    """32 -> 1536 channels of 5 x 5 pixels: 55 us at one and at two threads before, 37 and 22 since, Zen 4.

    Channels in whole tiles and a few more; fewer tiles than pieces; more pixels than that.
    """
    shapes = [(32, 1536, (5, 5), 8), (32, 1001, (7, 7), 8), (32, 40, (14, 14), None), (16, 200, (56, 56), None)]
    cases = [((ic, oc, size), count) for ic, oc, size, count in shapes]
    problems = {shape: ConvProblem.contiguous("nchw", EPILOGUE, *shape, (1, 1)) for shape, _ in cases}
    kernels = {shape: NchwPointwiseKernel.best(problem, ISAS[isa]) for shape, problem in problems.items()}
    lib = build(tmp_path, list({kernel.symbol: kernel for kernel in kernels.values() if kernel}.values()))
    for (shape, problem), (_, count) in zip(problems.items(), cases, strict=True):
        (ic, oc, size), kernel = shape, kernels[shape]
        assert kernel is not None
        x, w, bias, add = guarded(1, ic, *size), noise(oc, ic, 1, 1), noise(oc), noise(1, oc, *size)
        wanted = np.maximum(np.einsum("oc,nchw->nohw", w[:, :, 0, 0], x) + bias[:, None, None] + add, 0)
        packed, sizes = kernel.packed(problem).pack(w), kernel.arguments_for(problem)
        pool, found = Pool(1), list[np.ndarray[Any, Any]]()
        for each in (None, pool):
            y = np.full(wanted.shape, np.nan, np.float32)
            invoke(lib, kernel, x, packed, bias, add, y, *(int(sizes[n]) for n in kernel.sizes), pool=each)
            close(y, wanted, ic)
            found.append(y)
        assert np.array_equal(*found)
        assert pool.pieces and pool.pieces[0] >= 7 and count in (None, *pool.pieces)


@pytest.mark.parametrize("isa", [pytest.param("avx512", marks=needs("avx512")), "avx2"])
def test_outputs_of_one_row_are_shared(tmp_path: Path, isa: str) -> None:
    """12 x 64 -> 384 channels, windows of 10: 58 us at one thread, at two 58 before and 34 since, Zen 4."""
    for oc in (384, 37, 3):
        case = {"batch": 1, "groups": 1, "ic": 12, "oc": oc, "size": (1, 64), "window": (1, 10), "result": (1, 63)}
        problem = problem_of(case | {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 4, 0, 4)})
        kernel = NchwGroupedKernel.best(problem, ISAS[isa])
        assert kernel is not None
        folder = tmp_path / str(oc)
        folder.mkdir()
        lib, sizes = build(folder, [kernel]), kernel.arguments_for(problem)
        x, w, bias, add = guarded(1, 12, 1, 64), noise(oc, 12, 1, 10), noise(oc), noise(1, oc, 1, 63)
        exact = exact_conv(x, w, 1, (1, 1), (1, 1), (0, 4, 0, 4))
        wanted, found = np.maximum(exact + bias[:, None, None] + add, 0), list[np.ndarray[Any, Any]]()
        for chunk in (0, 1, 2, 3):
            y = np.full(wanted.shape, np.nan, np.float32)
            arguments = (x, kernel.packed(problem).pack(w), bias, add, y, *(int(sizes[n]) for n in kernel.sizes))
            pool = Pool(chunk) if chunk else None
            invoke(lib, kernel, *arguments, pool=pool)
            close(y, wanted, w[0].size)
            found.append(y)
            assert pool is None or (pool.calls == 1) == (oc > 3)
        assert all(np.array_equal(found[0], y) for y in found)
