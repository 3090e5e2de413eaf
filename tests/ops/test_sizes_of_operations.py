"""Every operation of the case tables with every size a symbol: generated C takes sizes of 0, 1 and others that are
small and writes the results' own memory only; of huge ones it says that they are too large.

Run under sanitizers by tests/kernels/test_every_compiler.py, which sees what is read, written or computed outside.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc import driver
from irc.backends.c.sizes import EMPTY, LARGEST_SIZE, LIMIT
from irc.diagnostics import IrcError, Problem
from irc.diagnostics.codes import runtime, shape as shape_codes
from irc.ir.graph import Graph, Model
from irc.runtime.c_strings import given, in_memory
from irc.runtime.ports import Port
from irc.toolchain.libraries import build
from tests.ops.cases import Case
from tests.ops.test_ops import FAMILIES, NEWEST_ONNX, add_case, compiles_to_c

pytestmark = pytest.mark.compiler
SMALL, ROOM = 1 << 12, 1 << 24
"""Elements of tensors that are run; bytes of an arena, where what threads need for themselves takes megabytes."""
GUARD = 0xA5
DRAWS = 24


@dataclass
class Program:
    """The C interface of one case, and what a caller has to know."""

    case: Case
    prefix: str
    source: str
    inputs: list[Port]
    outputs: list[Port]
    sizes: list[int]  # those of the case, by symbol


PLANNED = 16
"""What sizes that nothing bounds get memory for."""
OF_DATA = (runtime.SIZE_BEYOND_BOUND.number, runtime.SIZE_NEGATIVE.number, shape_codes.SIZE_RANGE.number)
"""What a run may return where sizes depend on the data, which are random here."""


def symbolic(case: Case, name: str) -> Model:
    graph = Graph(name)
    add_case(graph, case, symbolic=True)
    return Model(graph, "onnx", 10, {"": NEWEST_ONNX})


def program(case: Case, name: str) -> Program | None:
    """The C of a case; None where it needs a size that is known when compiling, or that data decide."""
    if not compiles_to_c(case):
        return None
    try:
        draft = driver.sources(symbolic(case, name), driver.CompileOptions(weights="embed", cache=False))
    except (Problem, IrcError):
        return None
    manifest = draft.manifest
    known = {f"s{i}_{k}": n for i, s in enumerate(case.inputs) if s is not None for k, n in enumerate(s.shape)}
    ports = [[in_memory(Port.of(row)) for row in manifest[key]] for key in ("inputs", "outputs")]
    sizes = [known.get(row["name"], 1) for row in manifest["symbols"]] + [PLANNED] * len(manifest["limits"])
    return Program(case, manifest["prefix"], str(draft.files["model.c"]), *ports, sizes) if sizes else None


def first_of_each(cases: list[Case]) -> list[Case]:
    """One case for every operation and rank."""
    return list({(c.op.name, *(len(s.shape) if s else None for s in c.inputs)): c for c in reversed(cases)}.values())


def chosen_sizes(own: list[int], rng: np.random.Generator) -> Iterator[list[int]]:
    """The case's own sizes, the same with one changed, all alike, and some at random."""
    yield own
    for size in (0, 1, 2, 3, LARGEST_SIZE):
        yield [size] * len(own)
    for k, size in itertools.product(range(len(own)), (0, 1, own[0] + 1, 1 << 30, LARGEST_SIZE, LARGEST_SIZE + 1, -1)):
        yield [*own[:k], size, *own[k + 1 :]]
    for _ in range(DRAWS):
        yield [int(n) for n in rng.choice([0, 1, 2, 3, 5], len(own))]
        yield [int(n) for n in rng.choice([0, 1, 2, 1 << 16, 1 << 21, 1 << 30, LARGEST_SIZE], len(own))]


class Runner:
    """Calls the functions of one program with memory of exactly the sizes that it asks for."""

    def __init__(self, library: ctypes.CDLL, made: Program) -> None:
        self.made, self.libc = made, ctypes.CDLL(ctypes.util.find_library("c"))
        self.libc.aligned_alloc.restype = ctypes.c_void_p
        self.libc.aligned_alloc.argtypes = ctypes.c_size_t, ctypes.c_size_t
        self.libc.free.argtypes = (ctypes.c_void_p,)
        pointer = ctypes.c_void_p
        self.context_size, self.init, self.plan, self.run = (
            getattr(library, f"{made.prefix}_{n}") for n in ("context_size", "init", "plan", "run")
        )
        self.context_size.restype = ctypes.c_size_t
        self.init.argtypes, self.plan.argtypes, self.run.argtypes = [pointer] * 3, [pointer] * 2, [pointer] * 4

    def try_sizes(self, dims: list[int], seed: int) -> str:
        """refused, accepted (too large to run here) or run."""
        given = (ctypes.c_int64 * len(dims))(*dims)
        needed = self.context_size(given)
        if not needed:
            assert self.plan(None, given), f"{dims}: no context and no status"
            return "refused"
        assert needed <= LIMIT and needed % 64 == 0
        shapes = [[p.shape_for(dims) for p in ports] for ports in (self.made.inputs, self.made.outputs)]
        assert min((n for s in itertools.chain(*shapes) for n in s), default=0) >= 0, f"{dims}: {shapes}"
        rounds = {s: math.prod(max(int(n), 1) for n in s) for s in itertools.chain(*shapes)}
        assert all(0 not in s or n <= 64 * EMPTY for s, n in rounds.items()), "would count for long"
        if max(rounds.values()) > SMALL or needed > ROOM:
            return "accepted"
        context = self.libc.aligned_alloc(64, needed)
        try:
            assert self.init(context, None, None) == 0
            assert self.plan(context, given) == 0
            self.call(context, shapes, np.random.default_rng(seed))
        finally:
            self.libc.free(context)
        return "run"

    def call(self, context: int, shapes: list[list[tuple[int, ...]]], rng: np.random.Generator) -> None:
        arrays = [random_like(spec, shape, rng) for spec, shape in zip(self.specs(), shapes[0], strict=True)]
        pairs = [given(a) if a.dtype == object else (a, None) for a in arrays]  # of strings, with their texts
        arrays = [array for array, _ in pairs]
        results = [
            np.full(max(p.dtype.itemsize * int(np.prod(s)), 0) + 64, GUARD, np.uint8)
            for p, s in zip(self.made.outputs, shapes[1], strict=True)
        ]
        ins = (ctypes.c_void_p * max(len(arrays), 1))(*[a.ctypes.data for a in arrays])
        outs = (ctypes.c_void_p * max(len(results), 1))(*[r.ctypes.data for r in results])
        ranks = [len(p.shape or ()) for p in self.made.outputs]
        reported = (ctypes.c_int64 * max(sum(ranks), 1))()
        before = [a.tobytes() for a in arrays]
        status = self.run(context, ins, outs, reported)
        assert status == 0 or (status in OF_DATA and "STATUS_SIZE_BEYOND_BOUND;" in self.made.source)
        assert [a.tobytes() for a in arrays] == before, "an input was written"
        assert all((r[-64:] == GUARD).all() for r in results), "written behind an output"
        sizes = iter(reported)
        for port, rank, shape in zip(self.made.outputs, ranks, shapes[1] if status == 0 else [], strict=False):
            found = tuple(itertools.islice(sizes, rank))
            assert found == shape or (port.max_sizes is not None and math.prod(found) <= math.prod(shape))

    def specs(self) -> list[Any]:
        return [s for s in self.made.case.inputs if s is not None and not s.const]


def random_like(spec: Any, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Values as the case has them, where it says which, and of its range."""
    if spec.values is not None and np.size(spec.values):
        return np.resize(np.array(spec.values, spec.type.numpy), shape)
    if spec.dtype == "string":
        return np.full(shape, "a b", object)
    if spec.dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    low = max(spec.low, 0) if spec.type.kind == "u" else spec.low
    return np.asarray(rng.uniform(low, spec.high, shape)).astype(spec.type.numpy)


def check(cases: list[Case], folder: Path) -> dict[str, int]:
    """Build all cases as one library and try sizes; how often they were refused, accepted and run."""
    found = [made for k, case in enumerate(cases) if (made := program(case, f"case{k}")) is not None]
    for made in found:
        (folder / f"{made.prefix}.c").write_text(made.source)
    if not found:
        return {}
    names = [f"{made.prefix}.c" for made in found]
    library = ctypes.CDLL(str(build(folder, names, extra=("-O1", "-Wall", "-Wextra", "-Werror"))))
    counts = {"refused": 0, "accepted": 0, "run": 0}
    for made in found:
        runner, rng = Runner(library, made), np.random.default_rng(len(made.source))
        for k, dims in enumerate(chosen_sizes(made.sizes, rng)):
            try:
                counts[runner.try_sizes(dims, k)] += 1
            except AssertionError as e:
                raise AssertionError(f"{made.case} with sizes {dims}: {e}") from e
    return counts


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_sizes_of_any_kind(family: str, tmp_path: Path) -> None:
    """A case of a family."""
    counts = check(first_of_each(FAMILIES[family])[:1], tmp_path)
    assert not counts or (counts["refused"] and counts["run"]), counts


@pytest.mark.full
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_sizes_of_every_case(family: str, tmp_path: Path) -> None:
    cases = list({str(c): c for c in FAMILIES[family]}.values())
    for k in range(0, len(cases), 40):
        (tmp_path / str(k)).mkdir()
        check(cases[k : k + 40], tmp_path / str(k))
