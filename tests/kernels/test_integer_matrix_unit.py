"""Products and convolutions of bytes on AMX, on emulated tiles: exact, and reading nothing beyond the input."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.expr import Const, call
from irc.ir.dim import Dim
from irc.ir.types import DType, f32, i8, i32, i64, u8
from irc.kernels import ISAS, PROTOTYPES
from irc.kernels.core.epilogue import Epilogue, acc, slot
from irc.kernels.core.registry import select
from irc.kernels.integer.convolution import IntegerConvKernel
from irc.kernels.integer.matrix_unit import MatrixUnitConvKernel
from irc.kernels.integer.problem import SUMS, IntegerConvProblem, Rounding, product_of_bytes
from tests.kernels.test_kernels import Pool, compilers, invoke, with_flags
from tests.kernels.test_split_bf16_gemm import pytestmark as needs_x86, real
from tests.support.instruction_sets import emulation

pytestmark = needs_x86
AMX = replace(ISAS["amx"], fours=True)
SCALED = Epilogue(acc() * slot(0) + slot(1), ("row", "full"))
ROUND = call("round", acc() * slot(0)).max(Const(-128.0, f32)).min(Const(127.0, f32))
RESIDUAL = {
    kind: Epilogue(ROUND * Const(0.5, f32) + slot(1) * Const(0.25, f32), ("row", "full"), byte_slots=((1, kind),))
    for kind in (u8, i8)
}


def product_of(m: int, k: int, n: int, stored: DType, signed: bool) -> IntegerConvProblem:
    epilogue, rows = (SUMS, ()) if stored == i32 else (SCALED, (Dim.of(0), Dim.of(n)))
    return product_of_bytes(Dim.of(m), n, k, signed, True, epilogue, stored, rows, Rounding(3, True))


def conv_of(
    size: tuple[int, int],
    channels: tuple[int, int],
    window: tuple[int, int],
    pad: int = 0,
    stored: DType = u8,
    batch: int = 1,
    residual: bool = False,
    **given: Any,
) -> IntegerConvProblem:
    strides, dilations = given.get("strides", (1, 1)), given.get("dilations", (1, 1))
    spans = zip(size, window, strides, dilations, strict=True)
    oh, ow = ((n + 2 * pad - (k - 1) * d - 1) // s + 1 for n, k, s, d in spans)
    (ih, iw), (ic, oc) = size, channels
    epilogue = RESIDUAL[stored] if residual else SUMS if stored == i32 else SCALED
    made = IntegerConvProblem.contiguous("nhwc", epilogue, ic, oc, (oh, ow), window, **given)
    return replace(
        made,
        batch=Dim.of(batch),
        size=(Dim.of(ih), Dim.of(iw)),
        padding=(Dim.of(pad), Dim.of(pad)),
        x=(Dim.of(ih * iw * ic), Dim.of(1), Dim.of(iw * ic), Dim.of(ic)),
        y=(Dim.of(oh * ow * oc), Dim.of(1), Dim.of(oc)),
        slots=tuple((Dim.of(oh * ow * oc if a == "full" else 0), Dim.of(oc)) for a in epilogue.slots),
        stored=stored,
        rounding=Rounding(-2 if stored == i8 else 3, True),
        signed=stored == i8,
        zeroed=stored != f32,
    )


PROBLEMS: dict[str, IntegerConvProblem] = {
    "a row": product_of(1, 64, 32, u8, False),
    "tails": product_of(45, 70, 33, i8, True),
    "rows overlap": product_of(49, 192, 50, u8, False),
    "few of all": product_of(5, 3, 7, f32, True),
    "short rows": product_of(100, 4, 40, i32, False),
    "floats": product_of(33, 130, 48, f32, False),
    "sums": product_of(70, 64, 100, i32, True),
    "padded": conv_of((7, 9), (20, 40), (3, 3), 1, batch=2),
    "chunks of channels": conv_of((6, 5), (128, 16), (3, 3), 1, stored=i8),
    "strides": conv_of((13, 12), (24, 33), (3, 3), 1, strides=(2, 2)),
    "first layer": conv_of((21, 19), (3, 20), (7, 5), 2, strides=(2, 3), stored=i8),
    "pixels apart": conv_of((9, 11), (65, 31), (1, 1), strides=(2, 2), batch=2),
    "dilations": conv_of((9, 12), (12, 24), (3, 3), 2, dilations=(2, 2), stored=i8),
    "groups": conv_of((8, 7), (24, 80), (3, 3), 1, groups=2, stored=f32),
    "groups in place": conv_of((8, 7), (132, 64), (1, 1), groups=2, batch=3),
    "in place": conv_of((8, 9), (66, 40), (1, 1), stored=i32, batch=2),
    "a line": conv_of((1, 50), (10, 20), (1, 5), strides=(1, 2)),
    "wide padding": conv_of((3, 4), (8, 8), (3, 3), 5),
    "tasks of rows": product_of(530, 70, 80, u8, False),
    "tasks of columns": product_of(40, 130, 690, i8, True),
    "tasks of images": conv_of((17, 16), (40, 50), (3, 3), 1, batch=2),
    "residual": conv_of((9, 8), (20, 52), (1, 1), residual=True, batch=2),
    "signed residual": conv_of((9, 11), (40, 47), (3, 3), 1, stored=i8, residual=True),
    "tasks with a residual": conv_of((17, 16), (40, 70), (3, 3), 1, batch=2, residual=True),
    "tasks of copies": conv_of((40, 41), (64, 16), (3, 3), 1, batch=2),
}


def library(folder: Path, kernels: Sequence[MatrixUnitConvKernel]) -> ctypes.CDLL:
    distinct = {k.symbol: k for k in kernels}.values()
    (folder / "k.c").write_text("\n".join([PROTOTYPES, *(k.source() for k in distinct)]))
    command = [*with_flags(compilers()[0]), *emulation(), "-shared", "-fPIC", "-o", "k.so", "k.c", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(folder / "k.so"))


def kernel_of(problem: IntegerConvProblem) -> MatrixUnitConvKernel:
    (kernel,) = MatrixUnitConvKernel.candidates(problem, AMX)
    return kernel


class AtTheEnd:
    """Bytes of which the last one is followed by memory that nobody may read."""

    def __init__(self, data: np.ndarray[Any, Any]) -> None:
        page = mmap.PAGESIZE
        whole = -(-data.nbytes // page) * page
        self.memory = mmap.mmap(-1, whole + page)
        held = ctypes.c_char.from_buffer(self.memory)
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(ctypes.addressof(held) + whole), ctypes.c_size_t(page), 0) == 0
        self.data = np.frombuffer(self.memory, data.dtype, data.size, whole - data.nbytes)
        self.data[:] = data


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return library(tmp_path_factory.mktemp("amx"), [kernel_of(p) for p in PROBLEMS.values()])


@pytest.mark.parametrize("chunk", [0, 1, 3])
@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem(name: str, chunk: int, built: ctypes.CDLL) -> None:
    """In one thread, and in tasks that several would do."""
    problem = PROBLEMS[name]
    kernel, random = kernel_of(problem), np.random.default_rng(len(name))
    kind, pixels = (np.int8 if problem.signed else np.uint8), int(problem.result[0]) * int(problem.result[1])
    limits = np.iinfo(kind)
    shape = (int(problem.batch), int(problem.size[0]), int(problem.size[1]), problem.channels)
    x = random.integers(limits.min, limits.max + 1, shape).astype(kind)
    weights = random.integers(-128, 128, (problem.outputs, problem.ic * problem.taps))
    rows = np.concatenate([random.integers(-900, 900, (problem.outputs, 1)), weights], 1)
    packed = kernel.packed(problem)
    assert packed is not None
    w = packed.pack(rows)
    assert w.size == packed.elements
    count = int(problem.batch) * pixels * problem.outputs
    slots = [random.random(problem.outputs).astype(np.float32) / 99, random.random(count).astype(np.float32)]
    for i, kind in problem.epilogue.byte_slots:
        slots[i] = random.integers(0, 128, count).astype(kind.numpy)
    reads = [x.reshape(-1), w, *([np.array([7], np.int32)] if problem.zeroed else [])]
    reads += slots if problem.stored != i32 else []
    wanted, y = np.zeros(count, problem.stored.numpy), np.full(count + 64, 77, problem.stored.numpy)
    sizes = {n: int(d) for n, d in kernel.arguments_for(problem).items()}
    kernel.compute(reads, [wanted], sizes)
    held = AtTheEnd(reads[0])
    size = int(kernel.scratch(problem))
    scratch = np.full(size + 128, 0xA5, np.uint8)
    start = -scratch.ctypes.data % 64
    order = [int(e.value) for e in kernel.order(**sizes)]  # type: ignore[attr-defined]
    pool = Pool(chunk) if chunk else None
    invoke(built, kernel, held.data, *reads[1:], y, scratch[start:], *order, pool=pool)
    assert (scratch[:start] == 0xA5).all() and (scratch[start + size :] == 0xA5).all()
    assert (y[count:] == 77).all()
    taken = kernel.overwrites({n: Const(v, i64) for n, v in sizes.items()})
    assert taken == ({len(reads) - 1} if problem.epilogue.byte_slots else set())
    for place in taken:  # the result there is what it is elsewhere
        y[:count] = y[:count] + 1
        there = np.concatenate([reads[place], np.full(64, 77, reads[place].dtype)])
        given = [held.data, *reads[1:]]
        invoke(built, kernel, *given[:place], there, *given[place + 1 :], there, scratch[start:], *order, pool=pool)
        assert (there[count:] == 77).all()
        y = there
    if problem.stored == f32:
        np.testing.assert_allclose(y[:count], wanted, rtol=1e-6, atol=1e-6)
    else:
        np.testing.assert_array_equal(y[:count], wanted)


def test_selection() -> None:
    """Where there are enough rows and channels; the unit of vectors does the rest."""
    assert isinstance(select(product_of(128, 768, 768, u8, False), AMX), MatrixUnitConvKernel)
    assert isinstance(select(conv_of((14, 14), (256, 256), (3, 3), 1), AMX), MatrixUnitConvKernel)
    assert isinstance(select(product_of(1, 768, 768, u8, False), AMX), IntegerConvKernel)
    assert isinstance(select(product_of(128, 768, 768, u8, False), replace(AMX, byte_tiles=False)), IntegerConvKernel)


@pytest.mark.parametrize("compiler", compilers(), ids=lambda c: Path(c[0]).name)
@pytest.mark.parametrize("name", ["tails", "rows overlap"])
def test_real_instructions_compile(name: str, compiler: list[str], tmp_path: Path) -> None:
    kernel = kernel_of(PROBLEMS[name])
    (tmp_path / "k.c").write_text(PROTOTYPES + kernel.source())
    command = [*with_flags(compiler), *real(compiler), "-S", "-o", "-", "k.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    assert done.stdout.count("tdpbssd" if kernel.signed else "tdpbusd") >= 9
