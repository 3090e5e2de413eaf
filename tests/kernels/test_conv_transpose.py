"""Generated transposed convolutions against the reference of the operation, at the edges of tiles, strips and rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.expr import Const
from irc.ir.dim import Dim
from irc.ir.types import DType, f32, f64
from irc.kernels import ISAS, Epilogue, acc, plain, slot
from irc.kernels.conv.problem import ConvTransposeProblem
from irc.kernels.conv.transposed_nchw import NchwConvTransposeKernel
from irc.kernels.core.isa import Isa
from irc.ops.conv import ConvTranspose
from tests.kernels.test_kernels import Pool, build, close, compilers, guarded, invoke, noise

pytestmark = pytest.mark.skipif(not compilers(), reason="no C compiler")
FUSED = Epilogue((acc() + slot(0)).max(Const(0.0, f32)) * slot(1) + slot(2), ("column", "row", "full"))


@dataclass(frozen=True)
class Case:
    """Channels are those of one group; `extra` lines are added below and to the right of the result."""

    ic: int
    oc: int
    size: tuple[int, int]
    window: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: int = 1
    batch: int = 1
    extra: tuple[int, int] = (0, 0)

    @property
    def op(self) -> ConvTranspose:
        return ConvTranspose(
            strides=self.strides,
            dilations=self.dilations,
            pads_begin=self.pads[:2],
            pads_end=self.pads[2:],
            group=self.groups,
            output_padding=self.extra,
        )

    def problem(self, epilogue: Epilogue) -> ConvTransposeProblem:
        spans = zip(self.size, self.window, self.strides, self.dilations, self.pads[:2], self.pads[2:], self.extra)
        oh, ow = ((n - 1) * s + (k - 1) * d + 1 + e - p - q for n, k, s, d, p, q, e in spans)
        inputs, outputs = self.groups * self.ic, self.groups * self.oc
        geometry = (self.window, self.strides, self.dilations, self.groups)
        made = ConvTransposeProblem.contiguous("nchw", epilogue, inputs, outputs, (oh, ow), *geometry)
        (ih, iw), (top, left) = map(Dim.of, self.size), map(Dim.of, self.pads[:2])
        image = Dim.of(inputs) * ih * iw
        x = (image, ih * iw, iw, Dim.of(1))
        whole = Dim.of(outputs * oh * ow)
        strides = {"column": Dim.of(0), "row": Dim.of(oh * ow), "full": whole}
        slots = tuple((strides[a], made.slots[i][1]) for i, a in enumerate(epilogue.slots))
        moved = {"size": (ih, iw), "padding": (top, left), "x": x, "y": (whole, *made.y[1:]), "slots": slots}
        return replace(made, batch=Dim.of(self.batch), **moved)


CASES = [
    Case(8, 6, (5, 5), (3, 3), (2, 2)),
    Case(7, 5, (5, 5), (5, 5), (2, 2), pads=(1, 1, 1, 1), batch=2),
    Case(3, 40, (7, 17), (4, 4), (2, 2), pads=(1, 1, 1, 1)),
    Case(20, 3, (16, 33), (5, 5), (4, 4), pads=(0, 3, 2, 0)),
    Case(5, 9, (6, 40), (2, 2), (2, 2)),
    Case(6, 4, (13, 20), (3, 3), (1, 1), pads=(2, 1, 0, 2), groups=2),
    Case(4, 3, (9, 11), (3, 2), (3, 5), (2, 3), (1, 2, 1, 0), groups=3, batch=2),
    Case(2, 2, (3, 50), (4, 7), (1, 2), (1, 2), (0, 12, 3, 1)),
    Case(4, 1, (1, 700), (1, 3), (1, 2), pads=(0, 1, 0, 0), extra=(0, 1)),
    Case(3, 4, (12, 10), (1, 1), (2, 3), extra=(1, 2)),
    Case(1, 1, (1, 1), (5, 5), (4, 4), pads=(1, 1, 1, 1)),
    Case(2, 3, (4, 4), (2, 2), (8, 8), extra=(7, 5)),
    Case(30, 20, (60, 61), (3, 3), (2, 2)),
]


def solved(isa: Isa, case: Case, epilogue: Epilogue) -> list[NchwConvTransposeKernel]:
    """Choose the cheapest variant, and the one of the most strips."""
    found = list(NchwConvTransposeKernel.candidates(case.problem(epilogue), isa))
    cheapest = NchwConvTransposeKernel.best(case.problem(epilogue), isa)
    assert cheapest is not None
    return [cheapest, max(found, key=lambda k: k.strips)]


def run(lib: Any, kernel: NchwConvTransposeKernel, case: Case, dtype: DType, pool: Pool | None) -> None:
    """Check a call; around its result nothing is written, and the function in NumPy computes the same."""
    problem = case.problem(kernel.epilogue)
    channels, shape = problem.channels, (case.batch, problem.outputs, *(int(d) for d in problem.result))
    x, w = guarded(case.batch, channels, *case.size), noise(channels, case.oc, *case.window, dtype=dtype)
    x = x if dtype == f32 else x.astype(dtype.numpy)
    wanted = case.op.reference(x.astype(np.float64), w.astype(np.float64))
    assert wanted.shape == shape
    slots: list[np.ndarray[Any, Any]] = []
    if kernel.epilogue.slots:
        slots = [noise(shape[1]), noise(case.batch, *shape[2:]), noise(*shape)]
        wanted = np.maximum(wanted + slots[0].reshape(-1, 1, 1), 0) * slots[1][:, None] + slots[2]
    sizes = kernel.arguments_for(problem)
    order = [int(e.value) for e in kernel.order(**sizes)]  # type: ignore[attr-defined]
    packed = kernel.packed(problem)
    reads = [x, packed.pack(w), *slots]
    scratch = [] if kernel.columns else [np.full(int(kernel.scratch(problem)), 255, np.uint8)]
    around = np.full(wanted.size + 128, 77, dtype.numpy)
    y = around[64:-64].reshape(shape)
    invoke(lib, kernel, *reads, y, *scratch, *order, pool=pool)
    depth = case.ic * case.window[0] * case.window[1]
    close(y, wanted, depth, dtype)
    assert (around[:64] == 77).all() and (around[-64:] == 77).all()
    if y.size < 5000:
        flat, again = [r.reshape(-1) for r in reads], np.zeros(y.size, dtype.numpy)
        kernel.compute(flat, [again], dict(zip(kernel.sizes, order, strict=True)))
        close(again.reshape(shape), wanted, depth, dtype)


def check(folder: Path, isa: Isa, dtype: DType, epilogue: Epilogue, cases: list[Case]) -> None:
    pairs = [(kernel, case) for case in cases for kernel in solved(isa, case, epilogue)]
    lib = build(folder, list({k.symbol: k for k, _ in pairs}.values()))
    for kernel, case in pairs:
        for pool in (None, Pool(1), Pool(3)):
            run(lib, kernel, case, dtype, pool)


@pytest.mark.parametrize("isa", ["avx512", "avx2", "neon", "sse", "plain"])
def test_every_case(tmp_path: Path, isa: str) -> None:
    check(tmp_path, ISAS[isa], f32, FUSED if isa != "avx2" else plain(), CASES if isa == "avx512" else CASES[::3])


def test_double(tmp_path: Path) -> None:
    check(tmp_path, ISAS["avx2"], f64, plain(f64), CASES[:4])


def test_little_stack(tmp_path: Path) -> None:
    """Strips of few rows."""
    isa = replace(ISAS["avx512"], packed=24 << 10)
    cases = [CASES[k] for k in (2, 3, 5, 6, 12)]
    assert sum(k.strips > 1 for case in cases for k in solved(isa, case, plain())) >= 3
    check(tmp_path, isa, f32, plain(), cases)


def test_little_cache(tmp_path: Path) -> None:
    """Panels that do not stay in the second cache are packed before."""
    isa = replace(ISAS["avx512"], l2=8 << 10)
    cases = [*(CASES[k] for k in (2, 3, 5, 12)), Case(130, 2, (6, 9), (2, 2), (2, 2), groups=2)]
    assert sum(not k.columns for case in cases for k in solved(isa, case, plain())) >= 3
    check(tmp_path, isa, f32, plain(), cases)
