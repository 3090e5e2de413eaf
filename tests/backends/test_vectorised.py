"""Which loops of elementwise operations the C compiler makes vectors of: its report, for every operation.

`not_vectorised.txt` lists what it does not, by target, type and operands; the list is exact, so that what no longer
belongs there is taken out: `IRC_UPDATE=1 python -m pytest -m "full or not full" tests/backends/test_vectorised.py`.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from irc.driver import CompileOptions, sources
from irc.ir.graph import Graph, Model
from irc.ir.types import DTYPES, DType, TensorType
from irc.opdef.base import Op
from irc.opdef.builder import Builder
from irc.opdef.elementwise import Elementwise
from irc.opdef.registry import OPS, load_all
from irc.toolchain.c_compiler import COMMON, contraction, find_compiler, optimisation, resolve_target

SHAPE = (24, 200)
SECOND = {"contiguous": SHAPE, "row": (200,), "column": (24, 1)}
"""How the operands after the first broadcast, and the first of those whose type differs from the others'."""
NAMES = ("f32", "f64", "f16", "bf16", "i8", "i32", "i64", "bool")
TARGETS = ("x86-64-v3", "x86-64-v4")
LIST = Path(__file__).with_name("not_vectorised.txt")
HEAD = "# target type operands: operations whose loops GCC 12 does not make vectors of\n"


def elementwise() -> Iterator[type[Op]]:
    """The elementwise operations whose attributes all have defaults."""
    load_all()
    for cls in sorted(set(OPS.values()), key=lambda c: c.__name__):
        if issubclass(cls, Elementwise) and not any(p.variadic for p in cls.sig.inputs):
            try:
                cls()
            except TypeError:
                continue
            yield cls


def operand_types(cls: type[Op], dtype: DType) -> list[DType] | None:
    """The element types of operands when the first type variable is `dtype`; None if it must not be."""
    found: list[DType] = []
    for p in cls.sig.inputs:
        allowed = cls.sig.variables.get(p.type)
        if allowed is not None and dtype not in allowed:
            return None
        found.append(DTYPES[p.type] if allowed is None else dtype)
    return found if any(p.type in cls.sig.variables for p in cls.sig.inputs) else None


def model(dtype: DType, pattern: str) -> tuple[Graph, list[str]]:
    """One function for each operation, and the names of the operations."""
    graph, names = Graph("test"), list[str]()
    for cls in elementwise():
        types = operand_types(cls, dtype)
        if types is None or (len(types) == 1 and pattern != "contiguous"):
            continue
        shapes = [SHAPE if not k else () if p.rank.single else SECOND[pattern] for k, p in enumerate(cls.sig.inputs)]
        xs = [
            graph.add_input(f"{cls.__name__}_{k}", TensorType.of(t, shape))
            for k, (t, shape) in enumerate(zip(types, shapes, strict=True))
        ]
        graph.outputs.append(Builder(graph).add(cls(), *xs))
        graph.nodes[-1].name = cls.__name__
        names.append(cls.__name__)
    return graph, names


def report(folder: Path, text: str, target: str) -> set[int]:
    """The lines of the loops that GCC made vectors of."""
    compiler = find_compiler()
    assert compiler is not None
    (folder / "f.c").write_text(text)
    flags = [
        *COMMON,
        *resolve_target(target, compiler).flags,
        *optimisation(compiler, kernels=False),
        contraction(False),
    ]
    command = [*compiler.command, *flags, "-fopt-info-vec-optimized", "-c", "f.c", "-o", "f.o"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=600)
    return {int(m[1]) for m in re.finditer(r"^f\.c:(\d+):.* vectorized", done.stderr, re.MULTILINE)}


def scalar(text: str, lines: set[int]) -> set[str]:
    """The functions that have a loop without vectors, by their names."""
    found, function = set[str](), ""
    rows = text.splitlines()
    for at, row in enumerate(rows, 1):
        if head := re.match(r"(?:static )?void test_(\w+?)(?:_part\d+)?\(", row):
            function = head[1]
        if row.strip() == "IRC_SIMD" and at + 1 not in lines:
            found.add(function)
    return found


def scalar_functions(folder: Path, graph: Graph, target: str) -> set[str]:
    made = sources(Model(graph), CompileOptions("c", target=target, cache=False))
    for name, content in made.files.items():
        (folder / name).write_text(str(content), "utf-8")
    texts = [str(text) for name, text in sorted(made.files.items()) if re.fullmatch(r"model\w*\.c", name)]
    return {function for text in texts for function in scalar(text, report(folder, text, target))}


def not_vectorised(folder: Path, target: str, dtype: str, pattern: str) -> list[str]:
    graph, names = model(DTYPES[dtype], pattern)
    if not names:
        return []
    found = scalar_functions(folder, graph, target)
    return sorted(n for n in names if any(re.fullmatch(rf"{n}(_\d+)?_?", f) for f in found))


def listed() -> dict[str, list[str]]:
    rows = (line.partition(":") for line in LIST.read_text("utf-8").splitlines() if not line.startswith("#"))
    return {key: sorted(names.split()) for key, _, names in rows}


def is_gcc_12() -> bool:
    compiler = find_compiler()
    if compiler is None or os.environ.get("IRC_TEST_TARGET"):
        return False
    done = subprocess.run([*compiler.command, "--version", "-v"], capture_output=True, text=True, check=False)
    return "gcc version 12." in done.stderr


def cases() -> Iterator[Any]:
    for target in TARGETS:
        for dtype in NAMES:
            fast = target == TARGETS[0] and dtype == "f32"
            yield pytest.param(target, dtype, id=f"{target}-{dtype}", marks=() if fast else pytest.mark.full)


@pytest.mark.skipif(not is_gcc_12(), reason="the list is of GCC 12 for x86-64")
@pytest.mark.parametrize(("target", "dtype"), list(cases()))
def test_loops_are_vectorised(tmp_path: Path, target: str, dtype: str) -> None:
    known = listed() if LIST.exists() else {}
    found = {f"{target} {dtype} {pattern}": not_vectorised(tmp_path, target, dtype, pattern) for pattern in SECOND}
    if os.environ.get("IRC_UPDATE"):
        known = {key: names for key, names in {**known, **found}.items() if names}
        LIST.write_text(HEAD + "".join(f"{key}: {' '.join(known[key])}\n" for key in sorted(known)), "utf-8")
    for key, names in found.items():
        assert names == known.get(key, []), f"{key}: the list in {LIST.name} is not what GCC reports"


@pytest.mark.skipif(not is_gcc_12(), reason="what GCC 12 makes of it")
def test_samples_of_a_grid_are_vectorised(tmp_path: Path) -> None:
    """Also where no instruction reads from all over memory: elements are read one by one into vectors."""
    graph = Graph("test")
    x, grid = (
        graph.add_input(n, TensorType.of(DTYPES["f32"], s)) for n, s in (("x", (1, 3, 28, 28)), ("g", (1, 9, 9, 2)))
    )
    graph.outputs += [Builder(graph).GridSample(x, grid, mode=mode) for mode in ("linear", "nearest")]
    assert scalar_functions(tmp_path, graph, TARGETS[0]) == set()


def test_every_operation_is_asked_about() -> None:
    names = {cls.__name__ for cls in elementwise()}
    assert {"Add", "Where", "Sin", "Softplus", "LeakyRelu", "Erf", "Pow", "Mod"} <= names
    graph, asked = model(DTYPES["f32"], "column")
    assert len(graph.outputs) == len(asked) > 15


def test_a_loop_without_vectors_is_found(tmp_path: Path) -> None:
    text = """static void test_Good_part1(const float *restrict x, float *restrict y) {
    IRC_SIMD
    for (int i = 0; i < 200; i++) y[i] = x[i] + 1;
}
double drand48(void);
static void test_Bad(float *y) {
    IRC_SIMD
    for (int i = 0; i < 200; i++) y[i] = (float)drand48();
}
void all(const float *restrict x, float *restrict y) { test_Good_part1(x, y), test_Bad(y); }
"""
    if find_compiler() is None:
        pytest.skip("no C compiler")
    given = f'#define IRC_SIMD _Pragma("GCC ivdep")\n{text}'
    assert scalar(given, report(tmp_path, given, "x86-64-v3")) == {"Bad"}


@pytest.mark.skipif(not is_gcc_12(), reason="what GCC 12 makes of a choice")
def test_a_limit_is_one_instruction(tmp_path: Path) -> None:
    graph = Graph("test")
    x = graph.add_input("x", TensorType.of(DTYPES["f32"], SHAPE))
    b = Builder(graph)
    graph.outputs.append(b.Min(b.Max(x, b.like(-4.0, x)), b.like(4.0, x)))
    made = sources(Model(graph), CompileOptions("c", target="x86-64-v4", cache=False))
    for name, content in made.files.items():
        (tmp_path / name).write_text(str(content), "utf-8")
    compiler = find_compiler()
    assert compiler is not None
    flags = [
        *COMMON,
        *resolve_target("x86-64-v4", compiler).flags,
        *optimisation(compiler, kernels=False),
        contraction(False),
    ]
    subprocess.run([*compiler.command, *flags, "-S", "model.c", "-o", "f.s"], cwd=tmp_path, check=True, timeout=60)
    text = (tmp_path / "f.s").read_text()
    assert "vmaxps" in text
    assert "vcmp" not in text
