"""What threads need for themselves is in the arena, not on their stacks."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest

from irc.backends.c.files import EmitOptions
from irc.expr import Load, index
from irc.ir.dim import Dim
from irc.ir.types import f32
from irc.kernels import ISAS
from irc.kernels.core.registry import KERNELS, load_all
from irc.kernels.core.workspace import FRAME, MOST, aligned
from irc.loops import workspaces
from irc.loops.builder import LoopBuilder, place
from irc.loops.ir import Alloc, Function, KernelCall, Program, walk
from irc.loops.memory import plan
from irc.toolchain import libraries
from irc.toolchain.c_compiler import find_compiler
from tests.support.c_program import Library, buffer
from tests.support.kernels import M, packed_gemm, plain, variants

load_all()
ARRAY = re.compile(r"\b(float|double|u?int(?:8|16|32|64)_t)(?: \w+(?:\[[^];]+\])+,)* (\w+)((?:\[[^];]+\])+)[;,]")
SIZES = {"float": 4, "double": 8}


@pytest.mark.parametrize("isa", ["avx512", "avx2", "sse", "neon", "amx"])
def test_kernels_have_no_large_arrays(isa: str) -> None:
    """By their text, in which all sizes of arrays are numbers: what compilers make of it, the full tests check."""
    found = 0
    for cls in (c for classes in KERNELS.values() for c in classes):
        for kernel in variants(cls, ISAS[isa]):
            for kind, name, extents in ARRAY.findall(kernel.source()):
                size = SIZES.get(kind) or int(re.findall(r"\d+", kind)[0]) // 8
                count = eval(extents.strip("[]").replace("][", "*"), {}, {})
                assert count * size <= FRAME * 3 // 4, f"{kernel.symbol}: {name}"
                found += 1
    assert found > 10


def turned_rows(columns: int, rows: Dim) -> Program:
    """y[i, j] = x[i, columns - 1 - j] · 2, each row by way of a local buffer."""
    x, y = buffer("x", f32, (rows, columns), "input"), buffer("y", f32, (rows, columns), "output")
    b = LoopBuilder()
    with b.for_(rows, "parallel") as i:
        row = b.alloc(f32, [columns])
        with b.for_(columns) as j:
            b.store(row, (j,), Load(x, (i, j)) * 2.0)
        with b.for_(columns) as j:
            b.store(place(y), (i, j), row[(index(columns - 1) - j,)])
    return Program("m", [x], [y], [], [Function("turned", b.body, (x,), (y,))], ["m"])


@pytest.mark.parametrize("columns", [100, 2000])
def test_large_local_buffers_move(columns: int, tmp_path: Path) -> None:
    program = turned_rows(columns, M)
    library = Library(program, tmp_path)
    (alloc,) = [s for s in walk(program.functions[0].body) if isinstance(s, Alloc)]
    assert (alloc.own is not None) == (columns * 4 > workspaces.LOCALS)
    assert ("irc_parallel_own" in str(library.files["model.c"])) == (alloc.own is not None)
    if alloc.own is not None:
        assert (alloc.own.bytes, alloc.own.owners) == (aligned(columns * 4), MOST)
        assert plan(program).size == Dim.of(MOST * aligned(columns * 4))
    x = np.random.default_rng(0).random((40, columns), np.float32)
    (found,) = library.run(library.context([40]), [x], [(40, columns)])
    np.testing.assert_array_equal(found, x[:, ::-1] * 2)


def test_without_threads_there_is_one_workspace() -> None:
    program = turned_rows(2000, M)
    workspaces.allot(program, threads=False)
    assert plan(program).size == Dim.of(aligned(8000))


@pytest.mark.parametrize(("rows", "owners"), [(3, 1), (300, MOST)])
def test_kernels_have_as_many_as_threads_may_be_worth(rows: int, owners: int) -> None:
    kernel = packed_gemm(ISAS["avx2"], f32, rows, 64, plain(), True)
    x, w = buffer("x", f32, (rows, 64), "input"), buffer("w", f32, (64, 64), "input")
    y = buffer("y", f32, (rows, 64), "output")
    call = KernelCall(kernel, (x, w), (y,), kernel.order(m=rows, n=64, k=64, a_row=64, a_col=1, c_row=64))
    program = Program("m", [x, w], [y], [], [Function("f", [call], (x, w), (y,))], [])
    workspaces.allot(program)
    sizes = {"m": rows, "n": 64, "k": 64}
    assert call.own is not None and call.own.owners == owners
    assert call.own.bytes == aligned(kernel.own_bytes(sizes)) < aligned(kernel.own_bytes(sizes | {"k": 1 << 40}))


@pytest.mark.compiler
def test_threads_have_workspaces_of_their_own(tmp_path: Path) -> None:
    """With the pool that is shipped: more threads than this machine runs, each with rows that take a while."""
    program = turned_rows(4000, M)
    library = Library(program, tmp_path, EmitOptions(prefix="m"))
    compiler = find_compiler()
    assert compiler is not None
    runtime = ctypes.CDLL(str(libraries.build_runtime(tmp_path / "rt", compiler)))
    runtime.irc_rt_create.restype = ctypes.c_void_p
    pool = ctypes.c_void_p(runtime.irc_rt_create(24))
    x = np.random.default_rng(0).random((300, 4000), np.float32)
    context = library.context([300], pool)
    for _ in range(20):
        (found,) = library.run(context, [x], [(300, 4000)])
        np.testing.assert_array_equal(found, x[:, ::-1] * 2)
