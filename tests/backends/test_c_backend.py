"""Generated C of programs, against plain loops in NumPy."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irc.backends.c.files import EmitOptions, emit
from irc.diagnostics.codes import name_of, runtime
from irc.diagnostics.codes.shape import SIZES_DIFFER
from irc.expr import Const, Load, Size, Var, call
from irc.ir import types as t
from irc.ir.dim import Dim
from irc.ir.relation import Comparison, SizeConstraint
from irc.ir.types import DType, boolean, f16, f32, f64, i8, i32, i64, u8
from irc.kernels.core.text import Part, Piece
from irc.loops.ir import Alloc, Assign, Buffer, For, Function, If, KernelCall, Let, Program, Stmt, Store
from irc.loops.memory import plan
from irc.toolchain.c_compiler import find_compiler
from tests.backends.test_c_expr import same
from tests.support import foreign
from tests.support.c_program import Library, buffer, elementwise

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")


# -------------------------------------------------------------------- whole programs
def two_layers(n: Dim | int, embed_data: bool = True, rows: int = 8, columns: int = 4) -> Program:
    """y = tanh(relu(x @ w)) with an arena buffer in between; the first group is parallel."""
    weights = np.random.default_rng(5).normal(size=(rows, columns)).astype(np.float32)
    size = Dim.of(n)
    extent = Const(int(size), i64) if size.is_const else Size(size)
    x, y = buffer("x", f32, (n, rows), "input"), buffer("y", f32, (n, columns), "output")
    w, hidden = (
        buffer("fc.weight", f32, (rows, columns), "constant", data=weights),
        buffer("h", f32, (n, columns), "arena"),
    )
    i, j, k, total = Var("i0"), Var("i1"), Var("r41"), Var("total0", f32)
    product = Load(x, (i, k)) * Load(w, (k, j))
    body: list[Stmt] = [
        Let(total, Const(0.0, f32), True),
        For(k, Const(rows, i64), [Assign(total, total + product)]),
        Store(hidden, (i, j), total.max(0.0)),
    ]
    first = Function(
        "fc", [For(i, extent, [For(j, Const(columns, i64), body)], "parallel")], (x, w), (hidden,), ("fc1", "relu1")
    )
    second = elementwise("tanh", y, lambda a, b: call("tanh", Load(hidden, (a, b))), [hidden], "simd")
    return Program("net", [x], [y], [w], [first, second], [s.name for s in size.symbols()])


def expected_two_layers(program: Program, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    data = program.constants[0].data
    assert data is not None
    return np.tanh(np.maximum(x @ data, 0))


def test_static_program(tmp_path: Path) -> None:
    program = two_layers(5)
    library = Library(program, tmp_path)
    x = np.random.default_rng(6).normal(size=(5, 8)).astype(np.float32)
    (y,) = library.run(library.context(), [x], [(5, 4)])
    np.testing.assert_allclose(y, expected_two_layers(program, x), rtol=1e-5)
    header = str(library.files["model.h"])
    assert "#define M_ARENA_BYTES 128" in header and "in[0]  x: float [5, 8]" in header


def test_symbolic_program_plans_for_each_size(tmp_path: Path) -> None:
    n = Dim.symbol("batch", 1, 64)
    program = two_layers(n)
    library = Library(program, tmp_path)
    memory = library.context([1], most=[64])
    for rows in (1, 7, 64):
        assert library.plan(memory, [rows]) == 0
        x = np.random.default_rng(rows).normal(size=(rows, 8)).astype(np.float32)
        (y,) = library.run(memory, [x], [(rows, 4)])
        np.testing.assert_allclose(y, expected_two_layers(program, x), rtol=1e-5)
    assert library.plan(memory, [0]) == library.plan(memory, [65]) == runtime.SIZE_OUT_OF_RANGE.number


def test_sizes_that_must_agree(tmp_path: Path) -> None:
    n, m = Dim.symbol("n"), Dim.symbol("m")
    x, z, y = buffer("x", f32, (n,), "input"), buffer("z", f32, (m,), "input"), buffer("y", f32, (n,), "output")
    f = elementwise("add", y, lambda i: Load(x, (i,)) + Load(z, (i,)), [x, z])
    constraint = SizeConstraint(Comparison("==", n, m), SIZES_DIFFER, "sizes of x and z", "Add")
    program = Program("m", [x, z], [y], [], [f], ["n", "m"], [constraint])
    library = Library(program, tmp_path)
    memory = library.context([3, 3])
    assert library.plan(memory, [3, 4]) == SIZES_DIFFER.number
    header, source = str(library.files["model.h"]), str(library.files["model.c"])
    for code in (*runtime.STATUSES, SIZES_DIFFER):
        assert f"    M_STATUS_{name_of(code)} = {code.number}, /* {code.title} */\n" in header
    assert "if (n != m) return M_STATUS_SIZES_DIFFER;" in source and not re.search(r"return \d{4};", source)
    big = Dim.symbol("a") * Dim.symbol("b") * Dim.symbol("c")
    x, y = buffer("x", f32, (big,), "input"), buffer("y", f32, (big,), "output")
    f = elementwise("copy", y, lambda i: Load(x, (i,)), [x])
    library = Library(Program("m", [x], [y], [], [f], ["a", "b", "c"]), tmp_path)
    assert library.plan(library.context([2, 3, 4]), [2**31 - 1] * 3) == runtime.MODEL_TOO_LARGE.number


@pytest.mark.parametrize("op", ["floordiv", "ceildiv", "mod", "min", "max"])
def test_sizes_as_c(op: str, tmp_path: Path) -> None:
    n, m = Dim.symbol("n"), Dim.symbol("m")
    f = {
        "floordiv": lambda: (n * 3 + 1) // 4,
        "ceildiv": lambda: n.ceildiv(m + 1),
        "mod": lambda: (n + 2) % 5,
        "min": lambda: n.minimum(m * 2) + 1,
        "max": lambda: n.maximum(m) * 2 - n,
    }[op]()
    x, y = buffer("x", f32, (n,), "input"), buffer("y", i64, (f,), "output")
    program = Program("m", [x], [y], [], [elementwise("sizes", y, lambda i: Size(f) + i, [x])], ["n", "m"])
    library = Library(program, tmp_path)
    for sizes in ((1, 1), (7, 3), (12, 30)):
        want = f.evaluate(dict(zip("nm", sizes, strict=True)))
        (found,) = library.run(library.context(sizes), [np.zeros(sizes[0], np.float32)], [(want,)])
        assert found.tolist() == [want + k for k in range(want)]


def state_program(kind: str) -> Program:
    """total' = total + x; y = total'.  The state starts at 10."""
    start = np.full(4, 10, np.float32)
    x, y = buffer("x", f32, (4,), "input"), buffer("y", f32, (4,), "output")
    now, then = buffer("now", f32, (4,), "state"), buffer("then", f32, (4,), "state")
    after = then if kind == "turn" else y
    functions = [elementwise("step", after, lambda i: Load(now, (i,)) + Load(x, (i,)), [now, x])]
    outputs = [y]
    if kind == "turn":
        functions.append(elementwise("copy", y, lambda i: Load(then, (i,)), [then]))
    return Program("m", [x], outputs, [], functions, [], [], [("total", now, after, start)])


@pytest.mark.parametrize("kind", ["turn", "copy"])
def test_state_lives_in_the_context(kind: str, tmp_path: Path) -> None:
    library = Library(state_program(kind), tmp_path)
    memory, other = library.context(), library.context()
    x = np.arange(4, dtype=np.float32)
    for k in range(1, 4):
        (y,) = library.run(memory, [x], [(4,)])
        assert y.tolist() == [10 + k * v for v in range(4)]
    assert library.run(other, [x], [(4,)])[0].tolist() == [10, 11, 12, 13]
    library.reset(memory)
    assert library.run(memory, [x], [(4,)])[0].tolist() == [10, 11, 12, 13]


def test_outputs_that_are_inputs_constants_or_doubled(tmp_path: Path) -> None:
    x, y = buffer("x", f32, (3,), "input"), buffer("y", f32, (3,), "output")
    c = buffer("c", f16, (2,), "constant", data=np.array([1.5, -2], np.float16))
    f = elementwise("double", y, lambda i: Load(x, (i,)) * 2.0, [x])
    library = Library(Program("m", [x], [y, x, c, y], [c], [f], []), tmp_path)
    given = np.array([1, 2, 3], np.float32)
    found = library.run(library.context(), [given], [(3,), (3,), (2,), (3,)])
    assert [a.tolist() for a in found] == [[2, 4, 6], [1, 2, 3], [1.5, -2], [2, 4, 6]]


def test_statements(tmp_path: Path) -> None:
    """If, Alloc, loops in loops, views."""
    x, y = buffer("x", i32, (2, 6), "input"), buffer("y", i32, (12,), "output")
    flat = Buffer("x_flat", i32, (Dim.of(12),), "input", base=x)
    tile = buffer("tile", i32, (6,), "local")
    i, k, odd = Var("i0"), Var("k"), Var("odd", boolean)
    body: list[Stmt] = [
        Alloc(tile),
        For(k, Const(6, i64), [Store(tile, (k,), Load(flat, (i * 6 + k,)))]),
        Let(odd, (i % 2).eq(1)),
        For(
            k,
            Const(6, i64),
            [If(odd, [Store(y, (i * 6 + k,), Load(tile, (k,)))], [Store(y, (i * 6 + k,), -Load(tile, (k,)))])],
        ),
    ]
    program = Program("m", [x], [y], [], [Function("rows", [For(i, Const(2, i64), body)], (x,), (y,))], [])
    library = Library(program, tmp_path)
    data = np.arange(12, dtype=np.int32).reshape(2, 6)
    (found,) = library.run(library.context(), [data], [(12,)])
    assert found.tolist() == [0, -1, -2, -3, -4, -5, 6, 7, 8, 9, 10, 11]


def test_text_does_not_depend_on_the_process(tmp_path: Path) -> None:
    from irc.expr import reduce

    program = two_layers(5)
    first = emit(program, plan(program))["model.c"]
    reduce("sum", [3], lambda i: i)  # uses up a name
    program = two_layers(5)
    assert emit(program, plan(program))["model.c"] == first
    assert "r41" not in str(first) and "r0" in str(first)
    assert "fc1, relu1" in str(first)


def test_equal_constants_are_stored_once(tmp_path: Path) -> None:
    data = np.arange(64, dtype=np.float32)
    a, b = (buffer(n, f32, (64,), "constant", data=data.copy()) for n in "ab")
    y = buffer("y", f32, (64,), "output")
    f = elementwise("add", y, lambda i: Load(a, (i,)) + Load(b, (i,)), [a, b])
    library = Library(Program("m", [], [y], [a, b], [f], []), tmp_path)
    assert library.weights.size == 256
    assert library.run(library.context(), [], [(64,)])[0].tolist() == (2 * data).tolist()


@pytest.mark.parametrize("dtype", [f32, f64, f16, t.bf16, t.f8e5m2, i8, u8, i64, t.u64, t.i4, boolean], ids=str)
def test_embedded_weights(dtype: DType, tmp_path: Path) -> None:
    data = np.array([0, 1, 2, 3, 5, 7, 1, 0]).astype(dtype.numpy)
    c, y = buffer("c", dtype, (8,), "constant", data=data), buffer("y", dtype, (8,), "output")
    program = Program("m", [], [y], [c], [elementwise("copy", y, lambda i: Load(c, (i,)), [c])], [])
    library = Library(program, tmp_path, EmitOptions(prefix="top", weights="embed"))
    assert "weights.bin" not in library.files and '#include "' not in str(library.files["model.c"])
    same(library.run(library.context(), [], [(8,)])[0], data)


def test_large_programs_are_divided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("irc.backends.c.files.LOOPS_PART", 100)
    program = two_layers(40, rows=64, columns=8)
    library = Library(program, tmp_path)
    assert [n for n in library.files if n.endswith(".c")] == ["model_1.c", "model_2.c", "model.c"]
    x = np.random.default_rng(8).normal(size=(40, 64)).astype(np.float32)
    (y,) = library.run(library.context(), [x], [(40, 8)])
    np.testing.assert_allclose(y, expected_two_layers(program, x), rtol=1e-4, atol=1e-6)


class Scale:
    """A kernel: y = 3 x."""

    symbol = "irc_scale"
    sizes = ("n",)
    has_workspaces = False
    features: frozenset[str] = frozenset()
    description = ("Three times x.",)

    def overwrites(self, sizes: Any) -> frozenset[int]:
        return frozenset()

    def declaration(self) -> str:
        fields = "const float *x; float *y; int64_t n;"
        return (
            f"typedef struct {{{fields}}} irc_scale_args;\nvoid irc_scale(const irc_pool *, const irc_scale_args *);\n"
        )

    def parts(self) -> list[Part]:
        body = "(void)pool;\n    for (int64_t i = 0; i < g->n; i++) g->y[i] = IRC_FACTOR * g->x[i];"
        factor = Piece("IRC_FACTOR", "#define IRC_FACTOR 3\n", ("IRC_FACTOR",))
        return [factor, f"void irc_scale(const irc_pool *pool, const irc_scale_args *g) {{\n    {body}\n}}\n"]

    def call(self, values: Sequence[str], pool: str = "pool") -> tuple[str, list[str], str]:
        given = [f".{name} = {value}" for name, value in zip("xyn", values, strict=True)]
        return f"irc_scale({pool}, &(const irc_scale_args){{", given, "})"


@pytest.mark.parametrize("weights", ["file", "embed"])
def test_kernels_are_emitted_once(weights: Any, tmp_path: Path) -> None:
    n = Dim.symbol("n")
    x, h, y = buffer("x", f32, (n,), "input"), buffer("h", f32, (n,), "arena"), buffer("y", f32, (n,), "output")
    functions = [
        Function(name, [KernelCall(Scale(), (a,), (b,), (Size(n),))], (a,), (b,))
        for name, a, b in (("first", x, h), ("second", h, y))
    ]
    library = Library(Program("m", [x], [y], [], functions, ["n"]), tmp_path, EmitOptions("m", weights=weights))
    assert ("kernels_0.c" in library.files) == (weights == "file")
    for once in ("#define IRC_FACTOR 3\n", "= IRC_FACTOR * g->x[i]", "/* Three times x.\n * Kernel irc_scale. */\n"):
        assert sum(str(t).count(once) for t in library.files.values()) == 1
    (found,) = library.run(library.context([5]), [np.arange(5, dtype=np.float32)], [(5,)])
    assert found.tolist() == [0, 9, 18, 27, 36]


def test_what_only_calls_kernels_is_little_optimised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    n, little = Dim.symbol("n"), '#pragma GCC optimize ("Og", "no-inline")'
    x, h, y = buffer("x", f32, (n,), "input"), buffer("h", f32, (n,), "arena"), buffer("y", f32, (n,), "output")
    scale = Function("scale", [KernelCall(Scale(), (x,), (h,), (Size(n),))], (x,), (h,))
    root = elementwise("root", y, lambda i: call("sqrt", Load(h, (i,))), [h])
    program = Program("m", [x], [y], [], [scale, root], ["n"])
    whole = emit(program, plan(program))
    assert not any(little in str(text) for text in whole.values())
    monkeypatch.setattr("irc.backends.c.files.LOOPS_PART", 1000)
    library = Library(program, tmp_path)
    text = str(library.files["model_1.c"])
    assert text.rindex("sqrtf(") < text.index(little) < text.index(".x = x, .y = h")
    main = str(library.files["model.c"])
    assert main.index(little) < main.index("m_run(")
    (found,) = library.run(library.context([5]), [np.arange(5, dtype=np.float32) * 12], [(5,)])
    np.testing.assert_allclose(found, 6 * np.sqrt(np.arange(5)), rtol=1e-6)


MAIN = """#include <stdio.h>
#include <stdlib.h>
#include "model.h"
int main(void) {
    static _Alignas(64) unsigned char weights[NET_WEIGHTS_BYTES];
    FILE *f = fopen("weights.bin", "rb");
    if (!f || fread(weights, 1, sizeof weights, f) != sizeof weights) return 2;
    fclose(f);
    const int64_t dims[] = {3};
    net_ctx *ctx = aligned_alloc(64, net_context_size(dims));
    float x[3][8], y[3][4];
    for (int i = 0; i < 24; ++i) x[i / 8][i % 8] = (float)(i - 12) / 8;
    const void *in[] = {x};
    void *out[] = {y};
    int64_t sizes[NET_OUTPUT_DIMS];
    if (net_init(ctx, weights, NULL) || net_plan(ctx, dims) || net_run(ctx, in, out, sizes)) return 3;
    for (int i = 0; i < 12; ++i) printf("%.9g\\n", y[i / 4][i % 4]);
    free(ctx);
    return sizes[0] == 3 && sizes[1] == 4 ? 0 : 4;
}
"""


@pytest.mark.parametrize("cc", ["gcc", "clang"])
@pytest.mark.parametrize("flags", [["-O2"], ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]])
def test_a_plain_c_program(cc: str, flags: list[str], tmp_path: Path) -> None:
    import shutil

    if not shutil.which(cc):
        pytest.skip(f"no {cc}")
    if foreign.machine() and "-g" in flags:
        pytest.skip("sanitisers do not run in an emulator")
    program = two_layers(Dim.symbol("batch", 1, 64))
    for name, content in emit(program, plan(program)).items():
        tmp_path.joinpath(name).write_bytes(content.encode() if isinstance(content, str) else b"".join(content))
    tmp_path.joinpath("main.c").write_text(MAIN)
    command = [
        cc,
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-ffp-contract=off",
        *flags,
        "main.c",
        "model.c",
        "-lm",
        "-o",
        "main",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    # A sanitiser's library that the interpreter was started with may be another compiler's than the program's own.
    alone = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "ASAN_OPTIONS", "UBSAN_OPTIONS")}
    command = [*foreign.emulator(), "./main"]
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, check=True)
    x = ((np.arange(24) - 12) / 8).astype(np.float32).reshape(3, 8)
    found = np.array(done.stdout.split(), np.float32).reshape(3, 4)
    np.testing.assert_allclose(found, expected_two_layers(program, x), rtol=1e-5)
