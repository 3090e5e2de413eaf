"""Slices with every kind of bound and step: of static, symbolic and run-time operands, in C and in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import irc
from irc.ir.dim import Dim
from irc.ops.slice import slice_dim, slice_of

I64 = np.iinfo(np.int64)
FAR = (2**30 - 1, 2**30, 2**31 - 2, 2**31 - 1, 2**31, 2**33, 2**40, 2**62, int(I64.max))
BOUNDS = (*range(-7, 8), *FAR, *(-f for f in FAR), -(2**30) - 1, -(2**31) - 1, int(I64.min))
STEPS = (*range(-4, 0), *range(1, 5), *FAR[3:], *(-f for f in FAR[3:]), int(I64.min))
SIZES = (0, 1, 2, 3, 5)


def elements(start: int, end: int, step: int, size: int) -> tuple[int, int]:
    """(first index, how many), as ONNX's Slice-13 says it."""
    start += size if start < 0 else 0
    end += size if end < 0 else 0
    low, high = (0, size) if step > 0 else (0, size - 1)
    start = min(max(start, low), high)
    end = min(max(end, low if step > 0 else -1), high)
    return start, max(-((start - end) // step), 0)


def test_definition_and_sizes_for_every_bound_and_step() -> None:
    n = Dim.symbol("n")
    large = (2**30 + 5, 2**31 - 1, 2**33 + 1, 2**40)
    for start in BOUNDS:
        for end in BOUNDS:
            for step in STEPS:
                length = slice_dim(Dim.of(start), Dim.of(end), step, n)
                for size in (*SIZES, *large):
                    wanted = elements(start, end, step, size)
                    what = f"[{start}:{end}:{step}] of {size}"
                    found = range(size)[slice_of(start, end, step, size)]
                    assert len(found) == wanted[1] and (not wanted[1] or found[0] == wanted[0]), what
                    computed = [slice_dim(Dim.of(start), Dim.of(end), step, Dim.of(size))]
                    if size < 2**31:  # no input of generated C is longer
                        computed.append(length)
                    for first, count in computed:
                        assert count.evaluate({"n": size}) == wanted[1], what
                        assert not wanted[1] or first.evaluate({"n": size}) == wanted[0], what


def test_sizes_for_bounds_that_are_symbolic() -> None:
    """Also where they are negative, and then count from the end."""
    n, m = Dim.symbol("n"), Dim.symbol("m")
    bounds = [n - k for k in range(5)] + [m - 2, 3 - m, 2 * m - n, Dim.of(2), Dim.of(-1), Dim.of(int(I64.max))]
    for start in bounds:
        for end in bounds:
            for step in (1, 2, -1, -3):
                first, length = slice_dim(start, end, step, n)
                for size in range(7):
                    for other in range(5):
                        known = {"n": size, "m": other}
                        wanted = elements(start.evaluate(known), end.evaluate(known), step, size)
                        what = f"[{start}:{end}:{step}] of n for {known}"
                        assert length.evaluate(known) == wanted[1], what
                        assert not wanted[1] or first.evaluate(known) == wanted[0], what


def model(nodes: list[Any], inputs: dict[str, Any], outputs: int, constants: dict[str, Any]) -> bytes:
    """x: i32, other inputs i64; outputs y0, y1, …"""
    ins = [
        helper.make_tensor_value_info(n, TensorProto.INT32 if n == "x" else TensorProto.INT64, d)
        for n, d in inputs.items()
    ]
    outs = [helper.make_tensor_value_info(f"y{k}", TensorProto.INT32, None) for k in range(outputs)]
    made = [numpy_helper.from_array(np.asarray(v, np.int64), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "slices", ins, outs, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def random_rows(count: int) -> list[tuple[int, int, int]]:
    rng = np.random.default_rng(13)
    rows = [(-1, int(I64.min) + 1, -1), (0, -1, -1), (int(I64.max), int(I64.min), int(I64.min)), (-1, int(I64.min), -2)]
    while len(rows) < count:
        pick = [values[rng.integers(len(values))] for values in (BOUNDS, BOUNDS, STEPS)]
        rows.append((pick[0], pick[1], pick[2]))
    return rows


@pytest.mark.parametrize("dims", [["N"], [0], [1], [5]], ids=str)
def test_constant_operands(dims: list[Any]) -> None:
    rows = random_rows(120)
    constants = {f"{name}{k}": [row[p]] for k, row in enumerate(rows) for p, name in enumerate("set")}
    constants["axis"] = [0]
    nodes = [helper.make_node("Slice", ["x", f"s{k}", f"e{k}", "axis", f"t{k}"], [f"y{k}"]) for k in range(len(rows))]
    given = model(nodes, {"x": dims}, len(rows), constants)
    for backend in ("c", "numpy"):
        compiled = irc.compile(given, backend=backend, cache=False)
        for size in SIZES if dims == ["N"] else dims:
            x = np.arange(10, 10 + size, dtype=np.int32)
            for row, y in zip(rows, compiled(x), strict=True):
                first, count = elements(*row, size)
                wanted = [10 + first + k * row[2] for k in range(count)]
                assert y.tolist() == wanted, f"{backend}: {row} of {size}"


def test_operands_of_the_run() -> None:
    node = helper.make_node("Slice", ["x", "s", "e", "a", "t"], ["y0"])
    given = model([node], {"x": ["N"], "s": [1], "e": [1], "t": [1]}, 1, {"a": [0]})
    compiled = irc.compile(given, backend="numpy", cache=False)
    for size in SIZES:
        x = np.arange(10, 10 + size, dtype=np.int32)
        for row in random_rows(300):
            first, count = elements(*row, size)
            operands = [np.array([v], np.int64) for v in row]
            assert compiled(x, *operands)[0].tolist() == [10 + first + k * row[2] for k in range(count)], (row, size)


def test_bounds_computed_from_the_shape() -> None:
    """x[n - 3 : n - 1] and the like: what ONNX Runtime gives, also where a bound is negative."""
    rows = [(3, 1, 1), (3, 0, 1), (5, 2, 1), (1, 4, -1), (2, 5, -1), (3, 3, 1), (0, 4, -2)]
    nodes = [helper.make_node("Shape", ["x"], ["n"])]
    constants: dict[str, Any] = {"a": [0]}
    for k, (before, after, step) in enumerate(rows):
        constants |= {f"b{k}": [before], f"c{k}": [after], f"t{k}": [step]}
        nodes += [
            helper.make_node("Sub", ["n", f"b{k}"], [f"s{k}"]),
            helper.make_node("Sub", ["n", f"c{k}"], [f"e{k}"]),
            helper.make_node("Slice", ["x", f"s{k}", f"e{k}", "a", f"t{k}"], [f"y{k}"]),
        ]
    given = model(nodes, {"x": ["N"]}, len(rows), constants)
    session = onnxruntime.InferenceSession(given, providers=["CPUExecutionProvider"])
    for backend in ("c", "numpy"):
        compiled = irc.compile(given, backend=backend, cache=False)
        for size in range(8):
            x = np.arange(10, 10 + size, dtype=np.int32)
            for row, y, wanted in zip(rows, compiled(x), session.run(None, {"x": x}), strict=True):
                assert y.tolist() == wanted.tolist(), f"{backend}: {row} of {size}"


def test_a_matrix_of_no_rows_backwards() -> None:
    """The product takes as many rows as the slice has: none."""
    numbers = {"s": [0], "e": [-1], "a": [1], "t": [-1]}
    constants = [numpy_helper.from_array(np.asarray(v, np.int64), n) for n, v in numbers.items()]
    constants.append(numpy_helper.from_array(np.zeros((0, 3), np.float32), "w"))
    nodes = [helper.make_node("Slice", ["x", "s", "e", "a", "t"], ["v"]), helper.make_node("Gemm", ["v", "w"], ["y"])]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, [3, 0])], [value("y", TensorProto.FLOAT, None)], constants
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert irc.validate(made.SerializeToString()) == []
    (y,) = irc.compile(made.SerializeToString(), backend="c", cache=False)(np.zeros((3, 0), np.float32))
    assert y.tolist() == [[0, 0, 0]] * 3
