"""Loops inside one another and behind one another that threads divide: which those are, and what they compute."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import irc
from irc import driver
from irc.expr import Load, Size, index
from irc.ir.dim import Dim
from irc.ir.types import f32
from irc.loops.builder import LoopBuilder, Place, place
from irc.loops.ir import For, Function, Program
from irc.loops.parallel_nests import apart, nest_of
from irc.toolchain.c_compiler import find_compiler
from tests.support.c_program import Library, buffer

N = Dim.symbol("N", 1)
Y = buffer("y", f32, (N, 4, 3, 5000), "output")
OUT: Place = place(Y)


def loop_of(build: Callable[[LoopBuilder], None]) -> For:
    b = LoopBuilder()
    build(b)
    (found,) = b.body
    assert isinstance(found, For)
    return found


def nested(b: LoopBuilder) -> None:
    with b.for_(N, "parallel") as i, b.for_(4, "parallel") as j:
        start = b.let(j % 3)
        with b.for_(3, "parallel") as k, b.for_(5000, "simd") as t:
            b.store(OUT, (i, j, (start + k) % 3, t), 1.0)


def test_loops_are_divided_together_until_they_are_many() -> None:
    nest = nest_of(loop_of(nested))
    assert [str(s.extent) for s in nest.loops] == [str(e) for e in (Size(N), index(4), index(3), index(5000))]
    assert [len(before) for before in nest.before] == [0, 1, 0]


def test_enough_iterations_are_not_divided_further() -> None:
    def build(b: LoopBuilder) -> None:
        with b.for_(64, "parallel") as i, b.for_(4, "parallel") as j, b.for_(8, "simd") as t:
            b.store(OUT, (i, j, 0, t), 1.0)

    assert len(nest_of(loop_of(build)).loops) == 1


def test_all_loops_of_a_nest_are_divided() -> None:
    """The outermost may be one direction of a recurrent layer, or a batch of one."""

    def build(b: LoopBuilder) -> None:
        with b.nest((1, 4), "parallel") as (i, j), b.for_(3) as k:
            b.store(OUT, (i, j, k, 0), 1.0)

    assert [str(s.extent) for s in nest_of(loop_of(build)).loops] == [str(index(1)), str(index(4))]


def test_short_vectorised_and_serial_loops_stay_whole() -> None:
    def short(b: LoopBuilder) -> None:
        with b.for_(N, "parallel") as i, b.for_(24, "simd") as t:
            b.store(OUT, (i, 0, 0, t), 1.0)

    def serial(b: LoopBuilder) -> None:
        with b.for_(N, "parallel") as i, b.for_(5000) as t:
            b.store(OUT, (i, 0, 0, t), Load(Y, (i, 0, 0, t)) + 1.0)

    assert len(nest_of(loop_of(short)).loops) == len(nest_of(loop_of(serial)).loops) == 1


def two_loops(b: LoopBuilder, local: bool) -> None:
    with b.for_(N, "parallel") as i:
        row = b.alloc(f32, [4]) if local else None
        with b.for_(4, "parallel") as j, b.for_(8, "simd") as t:
            b.store(row or OUT, (j,) if row else (i, j, 0, t), 1.0)
        for k in (1, 2):
            with b.for_(8, "simd") as t:
                b.store(OUT, (i, 0, k, t), row[(t % 4,)] if row else 2.0)


def test_loops_behind_one_another_are_divided_apart() -> None:
    first, second = apart(loop_of(lambda b: two_loops(b, local=False)))
    assert len(nest_of(first).loops) == 2
    assert len(second.body) == 2
    assert first.var == second.var


def test_loops_that_share_memory_of_an_iteration_stay_together() -> None:
    whole = loop_of(lambda b: two_loops(b, local=True))
    assert apart(whole) == [whole]


def padded(batch: int | str) -> onnx.ModelProto:
    """Scale channels, pad, turn and take maxima over rows: what loops of several kinds do with a batch of any size."""
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[{batch}, 12, 40, 30] x, float[{batch}, 12, 1, 1] scale, float[40, 1] row)
            => (float[{batch}, 12, 43, 34] padded, float[{batch}, 40, 30, 12] turned, float[{batch}, 12, 30] highest)
        <int64[8] pads = {{0, 0, 1, 3, 0, 0, 2, 1}}>
        {{
            scaled = Mul(x, scale)
            moved = Add(scaled, row)
            padded = Pad(moved, pads)
            turned = Transpose<perm = [0, 2, 3, 1]>(moved)
            highest = ReduceMax<axes = [2], keepdims = 0>(moved)
        }}""")


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_what_stands_in_front_of_inner_loops_is_declared_in_order(tmp_path: Path) -> None:
    """Constants that only other constants of their loop read are there too."""
    rows, columns = Dim.symbol("N", 1), 5000
    x, y = buffer("x", f32, (rows, 40, columns), "input"), buffer("y", f32, (rows, 40, columns), "output")
    b = LoopBuilder()
    with b.for_(rows, "parallel") as i:
        turned = b.let(i % 3)
        shift = b.let(turned + 1)
        with b.for_(40, "parallel") as j:
            row = b.let((j + shift) % 40)
            with b.for_(columns, "simd") as t:
                b.store(place(y), (i, j, t), Load(x, (i, row, t)))
    program = Program("m", [x], [y], [], [Function("turned", b.body, (x,), (y,))], ["N"])
    given = np.random.default_rng(0).standard_normal((4, 40, columns)).astype(np.float32)
    library = Library(program, tmp_path)
    (got,) = library.run(library.context([4]), [given], [given.shape])
    for i in range(4):
        np.testing.assert_array_equal(got[i], np.roll(given[i], -(i % 3 + 1), axis=0))


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("batch", ["N", 1, 5])
def test_threads_compute_all_of_them(batch: int | str) -> None:
    model = padded(batch)
    compiled = irc.compile(model, threads=3)
    for n in (1, 2, 5) if batch == "N" else (int(batch),):
        rng = np.random.default_rng(n)
        shapes = {"x": (n, 12, 40, 30), "scale": (n, 12, 1, 1), "row": (40, 1)}
        feeds: dict[str, Any] = {k: rng.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
        wanted = ReferenceEvaluator(model).run(None, feeds)
        for got, want in zip(compiled(feeds), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_a_loop_that_never_runs_divides_nothing() -> None:
    def build(b: LoopBuilder) -> None:
        with b.for_(N, "parallel") as i, b.for_(0, "parallel") as j, b.for_(8, "simd") as t:
            b.store(OUT, (i, j, 0, t), 1.0)

    assert len(nest_of(loop_of(build)).loops) == 1


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize(("direction", "batch"), [("forward", 5), ("bidirectional", 3), ("reverse", 1)])
def test_recurrent_loops_of_any_direction_and_batch(tmp_path: Path, direction: str, batch: int) -> None:
    """One thread computes the bits that four compute, which are those of the definition."""
    random, hidden, directions = np.random.default_rng(5), 64, 1 + (direction == "bidirectional")
    weights = {
        "w": (random.standard_normal((directions, hidden, 32)) / 8).astype(np.float32),
        "r": (random.standard_normal((directions, hidden, hidden)) / 8).astype(np.float32),
    }
    node = onnx.helper.make_node("RNN", ["x", "w", "r"], ["y"], direction=direction, hidden_size=hidden)
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [20, batch, 32])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [20, directions, batch, hidden])],
        [onnx.numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 14)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    x = random.standard_normal((20, batch, 32)).astype(np.float32)
    (one,), (four,) = (irc.compile(tmp_path / "m.onnx", threads=t)(x) for t in (1, 4))
    assert np.array_equal(one, four)
    wanted = np.zeros((20, directions, batch, hidden))
    for d in range(directions):
        h = np.zeros((batch, hidden))
        back = direction == "reverse" or d == 1
        for t in reversed(range(20)) if back else range(20):
            h = np.tanh(x[t] @ weights["w"][d].T.astype(np.float64) + h @ weights["r"][d].T.astype(np.float64))
            wanted[t, d] = h
    np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize(
    ("data", "updates", "divided"), [(300_000, 200, True), (12_000, 2, True), (12_000, 200, False)]
)
def test_a_copy_that_many_updates_overwrite_stays_with_one_thread(data: int, updates: int, divided: bool) -> None:
    """They would fetch it from the caches of the others."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 18]>
        m (float[{data // 10},10] x, int64[{updates},1] at, float[{updates},10] rows) => (float[{data // 10},10] y) {{
            y = ScatterND (x, at, rows)
        }}""")
    draft = driver.sources(irc.load(model), driver.CompileOptions(threads=2, cache=False))
    code = draft.files["model.c"]
    assert ("irc_parallel(pool" in code) == divided


def test_so_it_does_where_only_a_run_knows_how_many() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
        m (float[n,10] x, int64[u,1] at, float[u,10] rows) => (float[n,10] y) { y = ScatterND (x, at, rows) }""")
    code = driver.sources(irc.load(model), driver.CompileOptions(threads=2, cache=False)).files["model.c"]
    (least,) = re.findall(r"irc_parallel\(pool, \w+, \w+ >= (\w+),", code)
    assert re.search(rf"const int64_t {least} = .*\bu\b.* 32768", code)
