"""Builds a Loop IR program to a shared library and calls it through its C interface."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from irc.backends.c.files import EmitOptions, emit
from irc.expr import Expr, Load, Size, Var, index
from irc.ir.dim import Dim
from irc.ir.types import DType
from irc.loops import workspaces
from irc.loops.ir import Buffer, For, Function, Program, Stmt, Store, Where
from irc.loops.memory import plan
from irc.toolchain.libraries import build
from tests.support import foreign

Array = np.ndarray[Any, Any]


def buffer(name: str, dtype: DType, shape: Sequence[Any], where: Where, **more: Any) -> Buffer:
    return Buffer(name, dtype, tuple(Dim.of(d) for d in shape), where, **more)


def elementwise(name: str, y: Buffer, value: Any, reads: Sequence[Buffer], kind: Any = "serial") -> Function:
    """y[i...] = value(i...) over all of y."""
    at = tuple(Var(f"i{k}") for k in range(len(y.shape)))
    body: list[Stmt] = [Store(y, at, value(*at))]
    for k in reversed(range(len(y.shape))):
        body = [
            For(
                at[k],
                index(y.shape[k]) if y.shape[k].is_const else Size(y.shape[k]),
                body,
                kind if k == 0 else "serial",
            )
        ]
    return Function(name, body, tuple(reads), (y,), (name,))


def program_of(x: Sequence[Array], dtypes: Sequence[DType], results: Sequence[tuple[DType, Any]]) -> Program:
    """One output per result: `results` are (dtype, f) with f taking the elements of the 1-D inputs."""
    inputs = [buffer(f"x{k}", d, (a.size,), "input") for k, (a, d) in enumerate(zip(x, dtypes, strict=True))]
    outputs, functions = list[Buffer](), list[Function]()
    for k, (dtype, f) in enumerate(results):
        y = buffer(f"y{k}", dtype, (x[0].size,), "output")

        def value(i: Var, f: Any = f) -> Expr:
            return f(*[Load(b, (i,)) for b in inputs])

        outputs.append(y)
        functions.append(elementwise(f"f{k}", y, value, inputs))
    return Program("m", inputs, outputs, [], functions, [])


class Library:
    """A built program."""

    def __init__(
        self, program: Program, folder: Path, options: EmitOptions | None = None, extra: Sequence[str] = ()
    ) -> None:
        options = options or EmitOptions(prefix="m")
        folder = Path(tempfile.mkdtemp(dir=folder))  # a library that is loaded must not be replaced
        self.program, self.prefix = program, options.prefix
        workspaces.allot(program, options.threads)
        self.files = emit(program, plan(program), options)
        for name, content in self.files.items():
            folder.joinpath(name).write_bytes(content.encode() if isinstance(content, str) else b"".join(content))
        self.path = build(folder, sorted(self.files), extra=("-O1", "-Wall", "-Wextra", "-Werror", *extra))
        self.library = foreign.open_library(self.path)
        self.weights = aligned(np.frombuffer(b"".join(self.files.get("weights.bin", [])), np.uint8))  # type: ignore[arg-type]

    def _there(self, dims: Sequence[int], pool: Any, most: Sequence[int]) -> foreign.Context:
        """A context of a library for another machine."""
        made = foreign.Context(self.library, self.prefix, self.weights.tobytes(), foreign.pool_of(self.library, pool))
        assert made.plan(dims, most) == 0
        return made

    def _function(self, name: str) -> Any:
        return getattr(self.library, f"{self.prefix}_{name}")

    def context(self, dims: Sequence[int] = (), pool: Any = None, most: Sequence[int] = ()) -> Any:
        """A context with those sizes, in memory for the sizes `most`: its memory, unless it is of another machine."""
        if isinstance(self.library, foreign.Guest):
            return self._there(dims, pool, most)
        numbers = (ctypes.c_int64 * len(dims))(*dims) if dims else None
        largest = (ctypes.c_int64 * len(dims))(*(most or dims)) if dims else None
        self._function("context_size").restype = ctypes.c_size_t
        size = self._function("context_size")(largest)
        assert size > 0
        memory = aligned(np.full(size, 0xCD, np.uint8))
        weights = ctypes.c_void_p(self.weights.ctypes.data) if self.weights.size else None
        assert self._function("init")(ctypes.c_void_p(memory.ctypes.data), weights, pool) == 0
        if dims:
            assert self._function("plan")(ctypes.c_void_p(memory.ctypes.data), numbers) == 0
        return memory

    def plan(self, memory: Any, dims: Sequence[int]) -> int:
        if isinstance(memory, foreign.Context):
            return memory.plan(dims, dims)
        return self._function("plan")(ctypes.c_void_p(memory.ctypes.data), (ctypes.c_int64 * len(dims))(*dims))

    def reset(self, memory: Any) -> None:
        if isinstance(memory, foreign.Context):
            memory.reset()
            return
        self._function("reset").restype = None
        self._function("reset")(ctypes.c_void_p(memory.ctypes.data))

    def run(self, memory: Any, inputs: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> list[Array]:
        """Outputs of those shapes; the sizes that the model reports must be the same."""
        outs = [np.zeros(s, b.dtype.numpy) for s, b in zip(shapes, self.program.outputs, strict=True)]
        keep = [np.ascontiguousarray(x) for x in inputs]
        if isinstance(memory, foreign.Context):
            found = np.zeros(64, np.int64)
            assert memory.run(keep, outs, found) == 0
            assert list(found)[: sum(map(len, shapes))] == [d for s in shapes for d in s]
            return outs
        given = (ctypes.c_void_p * max(len(keep), 1))(*[x.ctypes.data for x in keep])
        taken = (ctypes.c_void_p * max(len(outs), 1))(*[y.ctypes.data for y in outs])
        sizes = (ctypes.c_int64 * 64)()
        assert self._function("run")(ctypes.c_void_p(memory.ctypes.data), given, taken, sizes) == 0
        assert list(sizes)[: sum(map(len, shapes))] == [d for s in shapes for d in s]
        return outs


def aligned(array: Array) -> Array:
    """A copy that starts at a multiple of 64."""
    space = np.empty(array.nbytes + 64, np.uint8)
    start = -space.ctypes.data % 64
    view = space[start : start + array.nbytes]
    view[:] = array
    return view


def evaluate(
    folder: Path, x: Sequence[Array], dtypes: Sequence[DType], results: Sequence[tuple[DType, Any]]
) -> list[Array]:
    """The results of scalar functions on 1-D arrays, computed in C."""
    library = Library(program_of(x, dtypes, results), folder)
    return library.run(library.context(), x, [x[0].shape] * len(results))
