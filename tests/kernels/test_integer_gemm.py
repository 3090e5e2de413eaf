"""Products of bytes: exact in i32, for every sign, zero point, shape and instruction set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

import irc
from irc.ir.dim import Dim
from irc.ir.types import i32
from irc.kernels.core.isa import AVX2, AVX512, NEON
from irc.kernels.core.registry import candidates
from irc.kernels.gemm.integer import IntegerGemmProblem
from irc.toolchain.c_compiler import find_compiler
from irc.toolchain.processor import cpu_features

TARGETS = ["native", "x86-64-v3"]
SHAPES = [(1, 64, 40), (5, 33, 70), (7, 3, 300), (16, 768, 65), (50, 129, 16), (200, 30, 7), (13, 2, 128)]


def model_of(rows: int | str, k: int, n: int, a: str, b: str, zeros: str) -> onnx.ModelProto:
    """Write Y = MatMulInteger of A [rows, k] and a constant B; zeros: the operands that have zero points."""
    random = np.random.default_rng(k * n)
    types = {"int8": np.int8, "uint8": np.uint8}
    weights = random.integers(np.iinfo(types[b]).min, np.iinfo(types[b]).max + 1, (k, n)).astype(types[b])
    constants = [onnx.numpy_helper.from_array(weights, "B")]
    constants.append(
        onnx.numpy_helper.from_array(np.array(128, np.uint8) if b == "uint8" else np.array(0, np.int8), "bz")
    )
    operands = ["A", "B", "az" if "a" in zeros else "", "bz" if "b" in zeros else ""]
    kinds = {"int8": onnx.TensorProto.INT8, "uint8": onnx.TensorProto.UINT8}
    inputs = [onnx.helper.make_tensor_value_info("A", kinds[a], [2, rows, k])]
    inputs += [onnx.helper.make_tensor_value_info("az", kinds[a], [])] if "a" in zeros else []
    node = onnx.helper.make_node("MatMulInteger", operands, ["Y"])
    y = onnx.helper.make_tensor_value_info("Y", onnx.TensorProto.INT32, [2, rows, n])
    graph = onnx.helper.make_graph([node], "bytes", inputs, [y], constants)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.skipif(not {"avx2"} <= cpu_features(), reason="needs AVX2")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("a", "b", "zeros"),
    [("uint8", "int8", "a"), ("int8", "int8", ""), ("uint8", "uint8", "ab"), ("int8", "uint8", "ab")],
)
def test_products_are_exact(a: str, b: str, zeros: str, target: str) -> None:
    ort = pytest.importorskip("onnxruntime")
    random = np.random.default_rng(5)
    for rows, k, n in SHAPES[a == "int8" :: 2]:
        model = model_of(rows, k, n, a, b, zeros)
        limits = np.iinfo(a)
        given = [random.integers(limits.min, limits.max + 1, (2, rows, k)).astype(a)]
        given += [np.array(limits.max - 3, a)] if "a" in zeros else []
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        (wanted,) = session.run(None, dict(zip(("A", "az"), given, strict=False)))
        (got,) = irc.compile(model, backend="c", target=target, threads=2)(given)
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.skipif(not {"avx2"} <= cpu_features(), reason="needs AVX2")
def test_rows_of_any_number() -> None:
    compiled = irc.compile(model_of("n", 70, 33, "uint8", "int8", "a"), backend="c")
    for rows in (1, 6, 40, 0):
        a = np.random.default_rng(rows).integers(0, 256, (2, rows, 70)).astype(np.uint8)
        weights = onnx.numpy_helper.to_array(model_of(1, 70, 33, "uint8", "int8", "a").graph.initializer[0])
        (got,) = compiled([a, np.array(9, np.uint8)])
        np.testing.assert_array_equal(got, (a.astype(np.int32) - 9) @ weights.astype(np.int32))


@pytest.mark.parametrize("isa", [AVX512, replace(AVX512, fours=True), AVX2, replace(AVX2, fours=True)], ids=str)
@pytest.mark.parametrize("rows", [1, 6, 100])
def test_the_interpreted_call_agrees_with_the_packing(isa: Any, rows: int) -> None:
    n, k = 45, 19
    problem = IntegerGemmProblem(i32, "highest", True, True, Dim.of(rows), n, k)
    random = np.random.default_rng(1)
    a, b = (random.integers(-128, 128, shape).astype(np.int8) for shape in ((rows, k), (k, n)))
    for kernel in candidates(problem, isa).values():
        packed = kernel.packed(problem)
        assert packed is not None
        flat = packed.pack(b.astype(np.int32))
        assert flat.dtype == np.int8 and flat.size == packed.elements
        y = np.empty(rows * n, np.int32)
        kernel.compute([a.reshape(-1), flat, np.array([7], np.int32)], [y], {"m": rows, "n": n, "k": k})
        np.testing.assert_array_equal(y.reshape(rows, n), (a.astype(np.int32) - 7) @ b.astype(np.int32))


def test_other_processors_have_no_such_kernel() -> None:
    problem = IntegerGemmProblem(i32, "highest", True, True, Dim.of(8), 64, 64)
    assert not candidates(problem, NEON)
