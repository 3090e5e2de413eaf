"""Products of two operands of bytes: exact in i32, for every tile, sign, zero point, stride and instruction set."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import irc
from irc.ir.dim import Dim
from irc.ir.types import f32, i32, u8
from irc.kernels.core.epilogue import Epilogue, acc, slot
from irc.kernels.core.isa import AVX2, AVX512, NEON
from irc.kernels.core.registry import candidates
from irc.kernels.gemm.problem import GemmProblem
from irc.kernels.integer.problem import SUMS, IntegerGemmProblem, Rounding
from irc.toolchain.c_compiler import find_compiler
from irc.toolchain.processor import cpu_features
from tests.kernels.test_integer import beside
from tests.kernels.test_kernels import Pool, build, invoke
from tests.support.instruction_sets import of_other_kernels

AVX = pytest.mark.skipif(find_compiler() is None or not {"avx2"} <= cpu_features(), reason="needs AVX2")
TARGETS = of_other_kernels("native", "x86-64-v3")
SHAPES = [(7, 5, 9), (1, 64, 40), (33, 33, 70), (16, 128, 65), (50, 20, 197), (13, 2, 128)]
SCALED = Epilogue(acc(f32) * slot(0) + slot(1), ("row", "full"))


def problem_of(m: int, k: int, n: int, **more: Any) -> IntegerGemmProblem:
    """State a product of two matrices, three times as apart as they need be; its epilogue's operands without gaps."""
    epilogue = more.pop("epilogue", SUMS)
    stated = GemmProblem.contiguous(epilogue, m, n, k, False)
    return IntegerGemmProblem(**{**vars(stated), "stored": i32, **more})


def sets() -> Iterator[Any]:
    """Yield instruction sets that kernels of bytes have, and that this processor runs."""
    found = cpu_features()
    if {"avx512f", "avx512bw"} <= found:
        yield AVX512
        if "avx512_vnni" in found:
            yield replace(AVX512, fours=True)
    yield AVX2
    if "avx_vnni" in found:
        yield replace(AVX2, fours=True)


def bytes_of(shape: tuple[int, ...], signed: bool) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(sum(shape))
    return random.integers(-128, 128, shape).astype(np.int8) if signed else random.integers(0, 256, shape, np.uint8)


@AVX
@pytest.mark.parametrize("signed", [*itertools.product([False, True], repeat=2)])
@pytest.mark.parametrize("turned", [False, True])
def test_every_tile(tmp_path: Path, signed: tuple[bool, bool], turned: bool) -> None:
    """Sums are exact; rows of A are 5 bytes apart from each other, columns of B are rows of it where it is turned."""
    calls = [
        (kernel, (m, k, n))
        for isa in sets()
        for m, k, n in SHAPES
        for kernel in candidates(problem_of(m, k, n, signed=signed, zeroed=(True, True)), isa).values()
    ]
    lib = build(tmp_path, [*{kernel.symbol: kernel for kernel, _ in calls}.values()])
    for (kernel, (m, k, n)), pool in itertools.product(calls, (None, Pool(1))):
        a, b = bytes_of((m, k + 5), signed[0]), bytes_of((n, k) if turned else (k, n), signed[1])
        zeros = np.array([17], np.int32), np.array([-128 if signed[1] else 201], np.int32)
        c, scratch = np.full((m + 2, n), 77, np.int32), np.full(4 * (k + 64) * (m + n + 64), 255, np.uint8)
        steps = (1, k) if turned else (n, 1)
        given = {"m": m, "n": n, "k": k, "a_row": k + 5, "a_col": 1, "b_row": steps[0], "b_col": steps[1], "c_row": n}
        sizes = [given.get(s, int(s in ("batch0", "batch1"))) for s in kernel.sizes]
        invoke(lib, kernel, a, b, *zeros, c[1:], scratch, *sizes, pool=pool)
        right = (b.T if turned else b).astype(np.int32) - zeros[1]
        np.testing.assert_array_equal(c[1:-1], (a[:, :k].astype(np.int32) - zeros[0]) @ right)
        assert (c[0] == 77).all() and (c[-1] == 77).all()


@AVX
def test_results_are_bytes_of_an_epilogue(tmp_path: Path) -> None:
    m, k, n = 37, 60, 100
    more = {"epilogue": SCALED, "stored": u8, "rounding": Rounding(128, True), "zeroed": (True, False)}
    kernels = [kernel for isa in sets() for kernel in candidates(problem_of(m, k, n, **more), isa).values()]
    lib = build(tmp_path, kernels)
    random = np.random.default_rng(1)
    operands = [bytes_of((m, k), False), bytes_of((k, n), False), np.array([90], np.int32)]
    operands += [random.random(n).astype(np.float32) * 1e-3, random.standard_normal((m, n)).astype(np.float32) * 30]
    for kernel in kernels:
        given = {"m": m, "n": n, "k": k, "a_row": k, "a_col": 1, "b_row": n, "b_col": 1, "c_row": n, "y_zero": 128}
        sizes = {s: given.get(s, int(s in ("batch0", "batch1"))) for s in kernel.sizes} | {"s1_row": n}
        found, wanted = np.empty((m, n), np.uint8), np.empty(m * n, np.uint8)
        invoke(lib, kernel, *operands, found, np.empty(1 << 18, np.uint8), *sizes.values())
        kernel.compute([x.reshape(-1) for x in operands], [wanted], sizes)
        assert np.abs(found.reshape(-1).astype(int) - wanted).max() <= 1, "contracted products may round otherwise"
        assert (found.reshape(-1) != wanted).mean() < 0.01 and np.unique(found).size > 100


def test_no_other_set_has_a_kernel() -> None:
    assert not candidates(problem_of(7, 5, 9), NEON)


def model_of(shape: tuple[int, ...], a: str, b: str, zeros: str, turned: bool = False) -> onnx.ModelProto:
    """Write Y = MatMulInteger of two operands, [batch, m, k] and [batch, k, n], or the latter turned."""
    *batch, m, k, n = shape
    kinds = {"int8": onnx.TensorProto.INT8, "uint8": onnx.TensorProto.UINT8}
    make = onnx.helper
    inputs = [make.make_tensor_value_info("A", kinds[a], [*batch, m, k])]
    inputs.append(make.make_tensor_value_info("B", kinds[b], [*batch, n, k] if turned else [*batch, k, n]))
    inputs += [make.make_tensor_value_info(f"{z}z", kinds[{"a": a, "b": b}[z]], []) for z in zeros]
    order = [*range(len(batch)), len(batch) + 1, len(batch)]
    nodes = [make.make_node("Transpose", ["B"], ["BT"], perm=order)] if turned else []
    names = ["A", "BT" if turned else "B", "az" if "a" in zeros else "", "bz" if "b" in zeros else ""]
    nodes.append(make.make_node("MatMulInteger", names, ["Y"]))
    y = make.make_tensor_value_info("Y", onnx.TensorProto.INT32, [*batch, m, n])
    return make.make_model(
        make.make_graph(nodes, "operands", inputs, [y]), opset_imports=[make.make_opsetid("", 17)], ir_version=8
    )


@AVX
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("a", "b"), [*itertools.product(["uint8", "int8"], repeat=2)])
def test_batches_are_exact(a: str, b: str, target: str) -> None:
    random = np.random.default_rng(5)
    models, feeds, wanted = list[onnx.ModelProto](), list[Any](), list[Any]()
    cases = [((3, 20, 33, 40), "ab"), ((2, 3, 17, 32, 19), "b"), ((1, 130, 70, 150), ""), ((2, 2, 2, 300, 77), "a")]
    for (shape, zeros), turned in zip(cases, (True, False, True, False), strict=True):
        models.append(model_of(shape, a, b, zeros, turned))
        given = []
        for v in models[-1].graph.input:
            dims = [d.dim_value for d in v.type.tensor_type.shape.dim]
            kind = np.iinfo(onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type))
            given.append(random.integers(kind.min, kind.max + 1, dims).astype(kind.dtype))
        names = [v.name for v in models[-1].graph.input]
        wanted += ReferenceEvaluator(models[-1]).run(None, dict(zip(names, given, strict=True)))
        feeds += given
    compiled = irc.compile(beside(models), backend="c", target=target, threads=2)
    for got, want in zip(compiled(feeds), wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    text = "".join(p.read_text("utf-8") for p in Path(compiled.artifact.folder).glob("*.c"))
    assert "irc_operands_" in text


@AVX
def test_rows_of_any_number() -> None:
    model = model_of((1, 2, 70, 33), "uint8", "int8", "a")
    for v in (model.graph.input[0], model.graph.output[0]):
        v.type.tensor_type.shape.dim[1].dim_param = "rows"
    compiled = irc.compile(model, backend="c")
    for rows in (1, 6, 40, 0):
        a, b = bytes_of((1, rows, 70), False), bytes_of((1, 70, 33), True)
        (got,) = compiled([a, b, np.array(9, np.uint8)])
        np.testing.assert_array_equal(got, (a.astype(np.int32) - 9) @ b.astype(np.int32))


def test_scratch_holds_panels_and_copies() -> None:
    kernel = next(iter(candidates(problem_of(7, 5, 9), AVX2).values()))
    assert kernel.scratch(problem_of(7, 5, 9)) == Dim.of(4 * kernel.tile.columns * 4 + 7 * (4 + 12))
