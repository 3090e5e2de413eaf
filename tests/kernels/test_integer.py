"""Products and convolutions of bytes: exact in i32, for every sign, zero point, shape and instruction set."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import irc
from irc.diagnostics import Sink
from irc.ir.dim import Dim
from irc.ir.types import i8, i32, u8
from irc.kernels.core.isa import AMX, AVX2, AVX512, NEON
from irc.kernels.core.registry import candidates
from irc.kernels.integer.convolution import IntegerConvKernel
from irc.kernels.integer.problem import SUMS, IntegerConvProblem, product_of_bytes
from irc.kernels.integer.vectors import saturate
from irc.kernels.integer.winograd import MOST_CHANNELS
from irc.kernels.movement.transpose_bytes import TransposeBytesKernel
from irc.pipelines import compile_c
from irc.selection.selector import KernelOp
from irc.toolchain.c_compiler import find_compiler
from irc.toolchain.processor import cpu_features
from tests.support.instruction_sets import largest_weight, of_other_kernels

TARGETS = of_other_kernels("native", "x86-64-v3")
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


def beside(models: Sequence[onnx.ModelProto]) -> onnx.ModelProto:
    """Make one model of several, which is compiled in less time: inputs and outputs of one after those of another."""
    whole = onnx.ModelProto()
    for i, model in enumerate(models):
        part = onnx.compose.add_prefix(model, f"m{i}_")
        for dim in (d for y in part.graph.output for d in y.type.tensor_type.shape.dim if d.dim_param):
            dim.dim_param = f"m{i}_{dim.dim_param}"
        whole.MergeFrom(part)
    del whole.opset_import[1:]
    return whole


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.skipif(not {"avx2"} <= cpu_features(), reason="needs AVX2")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("a", "b", "zeros"),
    [("uint8", "int8", "a"), ("int8", "int8", ""), ("uint8", "uint8", "ab"), ("int8", "uint8", "ab")],
)
def test_products_are_exact(a: str, b: str, zeros: str, target: str) -> None:
    random, limits = np.random.default_rng(5), np.iinfo(a)
    models, feeds, wanted = list[onnx.ModelProto](), list[Any](), list[Any]()
    for rows, k, n in SHAPES[a == "int8" :: 2]:
        models.append(model_of(rows, k, n, a, b, zeros))
        given = [random.integers(limits.min, limits.max + 1, (2, rows, k)).astype(a)]
        given += [np.array(limits.max - 3, a)] if "a" in zeros else []
        wanted += ReferenceEvaluator(models[-1]).run(None, dict(zip(("A", "az"), given, strict=False)))
        feeds += given
    found = irc.compile(beside(models), backend="c", target=target, threads=2)(feeds)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.skipif(not {"avx2"} <= cpu_features(), reason="needs AVX2")
def test_rows_of_any_number() -> None:
    compiled = irc.compile(model_of("n", 70, 33, "uint8", "int8", "a"), backend="c")
    for rows in (1, 6, 40, 0):
        a = np.random.default_rng(rows).integers(0, 256, (2, rows, 70)).astype(np.uint8)
        weights = onnx.numpy_helper.to_array(model_of(1, 70, 33, "uint8", "int8", "a").graph.initializer[0])
        (got,) = compiled([a, np.array(9, np.uint8)])
        np.testing.assert_array_equal(got, (a.astype(np.int32) - 9) @ weights.astype(np.int32))


@pytest.mark.parametrize("bits", [256, 512])
def test_results_of_both_signs_stand_in_one_file(bits: int) -> None:
    """What rounding to u8 and to i8 share is a piece of its own: a file with kernels of both defines it once."""
    names = [set(re.findall(r"(?:IRC_HELPER \w+|}) (\w+)[(;]", saturate(kind, bits).code)) for kind in (u8, i8)]
    assert all(names) and not names[0] & names[1]


@pytest.mark.skipif(not {"avx2"} <= cpu_features(), reason="needs AVX2")
def test_all_tasks_of_many_weights_are_done() -> None:
    """Those of the same weights follow each other: several tasks of rows, and of columns."""
    rows, k, n = 70, 40, 530
    model = model_of(rows, k, n, "uint8", "int8", "a")
    a = np.random.default_rng(rows).integers(0, 256, (2, rows, k)).astype(np.uint8)
    weights = onnx.numpy_helper.to_array(model.graph.initializer[0])
    (got,) = irc.compile(model, backend="c", threads=2)([a, np.array(9, np.uint8)])
    np.testing.assert_array_equal(got, (a.astype(np.int32) - 9) @ weights.astype(np.int32))


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.skipif(not {"avx_vnni"} <= cpu_features(), reason="needs AVX-VNNI")
def test_fours_in_vectors_of_256_bits_are_exact() -> None:
    """Of a processor with AVX-VNNI and no AVX-512; bytes are the largest there are, and nothing saturates."""
    compiled = irc.compile(model_of(5, 70, 33, "int8", "int8", ""), backend="c", target="alderlake")
    folder = Path(compiled.artifact.folder)
    assert "vpdpbusd" in "".join(file.read_text("utf-8") for file in folder.glob("*.c"))
    a = np.full((2, 5, 70), 127, np.int8)
    weights = onnx.numpy_helper.to_array(model_of(5, 70, 33, "int8", "int8", "").graph.initializer[0])
    (got,) = compiled([a])
    np.testing.assert_array_equal(got, a.astype(np.int32) @ weights.astype(np.int32))


@pytest.mark.parametrize("isa", [AMX, AVX512, replace(AVX512, fours=True), AVX2, replace(AVX2, fours=True)], ids=str)
@pytest.mark.parametrize("rows", [1, 6, 100])
def test_the_interpreted_call_agrees_with_the_packing(isa: Any, rows: int) -> None:
    n, k = 45, 19
    problem = product_of_bytes(Dim.of(rows), n, k, True, True)
    random = np.random.default_rng(1)
    a, b = (random.integers(-128, 128, shape).astype(np.int8) for shape in ((rows, k), (k, n)))
    for kernel in candidates(problem, isa).values():
        packed = kernel.packed(problem)
        assert packed is not None
        added = random.integers(-9, 9, n)
        flat = packed.pack(np.concatenate([added[:, None], b.T.astype(np.int32)], 1))
        assert flat.dtype == np.int8 and flat.size == packed.elements
        y, sizes = np.empty(rows * n, np.int32), {name: int(d) for name, d in kernel.arguments_for(problem).items()}
        kernel.compute([a.reshape(-1), flat, np.array([7], np.int32)], [y], sizes)
        np.testing.assert_array_equal(y.reshape(rows, n), (a.astype(np.int32) - 7) @ b.astype(np.int32) + added)


def test_other_processors_have_no_such_kernel() -> None:
    problem = product_of_bytes(Dim.of(8), 64, 64, True, True)
    assert not candidates(problem, NEON)


GEOMETRIES: list[dict[str, Any]] = [
    {"shape": (2, 16, 9, 8), "outputs": 40, "window": 3, "pads": 1},
    {"shape": (1, 3, 19, 18), "outputs": 20, "window": 5, "pads": 2, "strides": 2},
    {"shape": (1, 12, 9, 12), "outputs": 24, "window": 3, "pads": 2, "dilations": 2, "group": 2},
    {"shape": (1, 16, 9, 8), "outputs": 70, "window": 1},
    {"shape": (2, 40, 9, 12), "outputs": 40, "window": 3, "pads": 1, "strides": 2, "group": 40},
    {"shape": (1, 24, 9, 7), "outputs": 24, "window": 5, "pads": 2, "group": 24},
    {"shape": (2, 17, 8, 23), "outputs": 17, "window": 3, "pads": 2, "dilations": 2, "group": 17},
    {"shape": (1, 33, 30, 12), "outputs": 33, "window": 3, "pads": 1, "group": 33},
    {"shape": (1, 150, 6, 9), "outputs": 150, "window": 3, "pads": 1, "group": 150},
    {"shape": (1, 131, 17, 9), "outputs": 131, "window": 3, "pads": 1, "group": 131},
    {"shape": (1, 37, 11, 7), "outputs": 19, "window": 3},
    {"shape": (2, 64, 30, 29), "outputs": 70, "window": 3, "pads": 1},
    {"shape": (3, 12, 5, 6), "outputs": 7, "window": 3, "pads": 2},
    {"shape": (1, 70, 7, 6), "outputs": 24, "window": 3, "pads": 1, "strides": 2, "group": 2},
]
"""Of convolutions, one after the other in one model."""


def convolutions(kind: type[Any], written: str, geometry: dict[str, Any]) -> tuple[onnx.ModelProto, list[Any]]:
    """Write a convolution of bytes of a type, as QLinearConv, ConvInteger or a Conv of dequantized operands."""
    helper, random = onnx.helper, np.random.default_rng(3)
    shape, outputs, k, group = geometry["shape"], geometry["outputs"], geometry["window"], geometry.get("group", 1)
    most = largest_weight() if kind is np.uint8 and written == "QLinearConv" else 127
    weights = random.integers(-most, most + 1, (outputs, shape[1] // group, k, k)).astype(np.int8)
    scales = (random.random(outputs) * 0.01 + 0.001).astype(np.float32)
    arrays = {
        "w": weights,
        "ws": scales,
        "wz": np.zeros(outputs, np.int8),
        "xs": np.float32(0.02),
        "xz": kind(3),
        "ys": np.float32(0.02 * weights[0].size ** 0.5),
        "yz": kind(5 if kind is np.uint8 else -7),
        "b": random.integers(-3000, 3000, outputs).astype(np.int32),
        "bs": scales * np.float32(0.02),
        "bz": np.zeros(outputs, np.int32),
        "none": np.int8(0),
    }
    spread = {n: geometry.get(n, 1) for n in ("strides", "dilations")}
    given = {n: [v, v] for n, v in spread.items()} | {"pads": [geometry.get("pads", 0)] * 4, "group": group}
    if written == "ConvInteger":
        nodes = [helper.make_node(written, ["x", "w", "xz", "none"], ["y"], **given)]
    elif written == "QLinearConv":
        nodes = [helper.make_node(written, ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"], **given)]
    else:
        names = {"x": ("xs", "xz"), "w": ("ws", "wz"), "b": ("bs", "bz")}
        nodes = [helper.make_node("DequantizeLinear", [n, *q], [f"{n}f"], axis=0) for n, q in names.items()]
        nodes += [helper.make_node("Conv", ["xf", "wf", "bf"], ["c"], **given), helper.make_node("Relu", ["c"], ["r"])]
        nodes += [helper.make_node("QuantizeLinear", ["r", "ys", "yz"], ["y"])]
    used = {n for node in nodes for n in node.input}
    constants = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in arrays.items() if n in used]
    types = {np.int8: onnx.TensorProto.INT8, np.uint8: onnx.TensorProto.UINT8}
    x = helper.make_tensor_value_info("x", types[kind], shape)
    result = onnx.TensorProto.INT32 if written == "ConvInteger" else types[kind]
    y = helper.make_tensor_value_info("y", result, list("nchw"))
    graph = helper.make_graph(nodes, "bytes", [x], [y], constants)
    limits = np.iinfo(kind)
    return (
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        [random.integers(limits.min, limits.max + 1, shape).astype(kind)],
    )


CONVOLUTIONS: list[tuple[type[Any], str, int]] = [
    (np.uint8, "Conv", 0),
    (np.int8, "Conv", 1),
    (np.uint8, "QLinearConv", 2),
    (np.int8, "ConvInteger", 3),
    (np.int8, "Conv", 4),
    (np.uint8, "Conv", 5),
    (np.int8, "QLinearConv", 6),
    (np.uint8, "ConvInteger", 7),
    (np.uint8, "Conv", 8),
    (np.int8, "Conv", 9),
    (np.uint8, "ConvInteger", 10),
    (np.int8, "ConvInteger", 11),
    (np.uint8, "QLinearConv", 11),
    (np.int8, "ConvInteger", 12),
    (np.int8, "ConvInteger", 13),
    (np.uint8, "Conv", 13),
]


@cache
def convolved(target: str) -> list[Any]:
    """Compile all of them as one model.  Returns their results."""
    made = [convolutions(kind, written, GEOMETRIES[number]) for kind, written, number in CONVOLUTIONS]
    compiled = irc.compile(beside([model for model, _ in made]), backend="c", target=target, threads=2)
    return compiled([x for _, given in made for x in given])


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.skipif(not {"avx2"} <= cpu_features(), reason="needs AVX2")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("kind", "written", "number"), CONVOLUTIONS)
def test_convolutions_are_those_of_onnx_runtime(kind: type[Any], written: str, number: int, target: str) -> None:
    ort = pytest.importorskip("onnxruntime")
    model, given = convolutions(kind, written, GEOMETRIES[number])
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": given[0]})
    np.testing.assert_array_equal(convolved(target)[CONVOLUTIONS.index((kind, written, number))], wanted)


@pytest.mark.skipif(not {"avx2"} <= cpu_features(), reason="needs AVX2")
def test_convolutions_are_one_kernel_from_bytes_to_bytes() -> None:
    model, _ = convolutions(np.uint8, "Conv", GEOMETRIES[0])
    graph = irc.load(model).graph
    for _, run in compile_c(replace(AVX512, fours=True)):
        run(graph, Sink())
    kernels = [n for n in graph.nodes if isinstance(n.op, KernelOp) and isinstance(n.op.kernel, IntegerConvKernel)]
    assert [n.outputs[0].dtype for n in kernels] == [u8]
    assert not [v for n in graph.nodes for v in n.outputs if v.dtype != u8]


@pytest.mark.parametrize("isa", [AMX, replace(AVX512, fours=True), AVX2], ids=str)
@pytest.mark.parametrize(
    ("signed", "groups", "ic", "oc", "width"),
    [(True, 1, 6, 20, 2), (False, 2, 6, 20, 2), (True, 21, 1, 1, 2), (True, 1, 7, 20, 3)],
)
def test_interpreted_convolutions_agree_with_the_packing(
    isa: Any, signed: bool, groups: int, ic: int, oc: int, width: int
) -> None:
    window, wide = (3, width), 7 - width
    whole = IntegerConvProblem.contiguous("nhwc", SUMS, ic * groups, oc * groups, (4, wide), window, groups=groups)
    problem = replace(whole, stored=i32, signed=signed, zeroed=True)
    random = np.random.default_rng(1)
    x = random.integers(-128, 128, (1, 6, 6, ic * groups)).astype(np.int8)
    w, added = random.integers(-128, 128, (oc * groups, ic, *window)), random.integers(-9, 9, oc * groups)
    wanted = np.zeros((4, wide, oc * groups), np.int64) + added
    for ky, kx in np.ndindex(*window):
        for g in range(groups):
            part = x[0, ky : ky + 4, kx : kx + wide, g * ic : (g + 1) * ic].astype(np.int64) - 7
            wanted[..., g * oc : (g + 1) * oc] += part @ w[g * oc : (g + 1) * oc, :, ky, kx].T
    for kernel in candidates(problem, isa).values():
        packed = kernel.packed(problem)
        assert packed is not None
        flat = packed.pack(np.concatenate([added[:, None], w.reshape(len(w), -1)], 1))
        y, sizes = np.empty(wanted.size, np.int32), {name: int(d) for name, d in kernel.arguments_for(problem).items()}
        kernel.compute([x.reshape(-1), flat, np.array([7], np.int32)], [y], sizes)
        np.testing.assert_array_equal(y.reshape(wanted.shape), wanted)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.skipif(not {"avx2"} <= cpu_features(), reason="needs AVX2")
@pytest.mark.parametrize(("byte", "weight"), [(255, 127), (255, -128), (0, -128)])
def test_the_largest_sums_that_winograd_takes_are_exact(byte: int, weight: int) -> None:
    helper, shape = onnx.helper, (1, MOST_CHANNELS, 8, 10)
    w = onnx.numpy_helper.from_array(np.full((9, MOST_CHANNELS, 3, 3), weight, np.int8), "w")
    zero = onnx.numpy_helper.from_array(np.uint8(255 - byte), "zero")
    node = helper.make_node("ConvInteger", ["x", "w", "zero"], ["y"])
    x = helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, shape)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.INT32, (1, 9, 6, 8))
    graph = helper.make_graph([node], "bytes", [x], [y], [w, zero])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = irc.compile(model, backend="c", target="x86-64-v3")
    assert "bytes_winograd" in "".join(f.read_text("utf-8") for f in Path(compiled.artifact.folder).glob("*.c"))
    (got,) = compiled([np.full(shape, byte, np.uint8)])
    assert np.all(got == 9 * MOST_CHANNELS * (2 * byte - 255) * weight)


@pytest.mark.skipif(not {"avx2"} <= cpu_features(), reason="needs AVX2")
def test_chains_stay_in_bytes_with_the_channels_last() -> None:
    model, _ = convolutions(np.uint8, "Conv", GEOMETRIES[0] | {"outputs": 16})
    both = onnx.compose.merge_models(
        model, onnx.compose.add_prefix(model, "next_"), [("y", "next_x")], producer_name="irc"
    )
    graph = irc.load(both).graph
    for _, run in compile_c(AVX512):
        run(graph, Sink())
    kernels = [type(n.op.kernel) for n in graph.nodes if isinstance(n.op, KernelOp)]
    assert not [v for n in graph.nodes for v in n.outputs if v.dtype != u8]
    # in front of the first and behind the last
    assert kernels == [TransposeBytesKernel, IntegerConvKernel, IntegerConvKernel, TransposeBytesKernel]


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.skipif(not {"avx2"} <= cpu_features(), reason="needs AVX2")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("scale", "fits"), [(0.5, True), (1e-15, False)])
def test_results_beyond_32_bits_are_the_nearest_bytes(scale: float, fits: bool, target: str) -> None:
    model, given = convolutions(np.uint8, "Conv", GEOMETRIES[0])
    (ys,) = (c for c in model.graph.initializer if c.name == "ys")
    ys.CopyFrom(onnx.numpy_helper.from_array(np.asarray(scale, np.float32), "ys"))
    graph = irc.load(model).graph
    for _, run in compile_c(replace(AVX512, fours=True)):
        run(graph, Sink())
    kernels = (n.op.kernel for n in graph.nodes if isinstance(n.op, KernelOp))
    assert [k.fits for k in kernels if isinstance(k, IntegerConvKernel)] == [fits]
    (wanted,) = irc.compile(model, backend="numpy")(given)
    (got,) = irc.compile(model, backend="c", target=target)(given)
    assert 0 < np.count_nonzero(got == 255) < got.size or fits
    assert np.abs(got.astype(int) - wanted).max() <= 1
    assert fits or np.array_equal(got, wanted)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.skipif(not {"avx2"} <= cpu_features(), reason="needs AVX2")
@pytest.mark.parametrize("target", TARGETS)
def test_products_are_divided_by_nothing(target: str) -> None:
    """Scales, biases and their quotient by the scale of the result are constants: sums are multiplied once."""
    helper, random = onnx.helper, np.random.default_rng(2)
    arrays = {
        "xs": np.float32(0.02),
        "xz": np.uint8(99),
        "w": random.integers(-127, 128, (70, 50)).astype(np.int8),
        "ws": (random.random(50) * 0.01 + 0.001).astype(np.float32),
        "wz": np.zeros(50, np.int8),
        "bias": random.standard_normal(50).astype(np.float32),
        "ys": np.float32(0.05),
        "yz": np.uint8(120),
    }
    nodes = [helper.make_node("DequantizeLinear", [n, f"{n}s", f"{n}z"], [f"{n}f"], axis=1) for n in "xw"]
    nodes += [helper.make_node("MatMul", ["xf", "wf"], ["p"]), helper.make_node("Add", ["p", "bias"], ["s"])]
    nodes += [helper.make_node("QuantizeLinear", ["s", "ys", "yz"], ["y"])]
    constants = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in arrays.items()]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, [40, 70])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, [40, 50])
    graph = helper.make_graph(nodes, "bytes", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    optimised = irc.load(model).graph
    for _, run in compile_c(AVX512):
        run(optimised, Sink())
    kernels = [n.op.kernel for n in optimised.nodes if isinstance(n.op, KernelOp)]
    (kernel,) = (k for k in kernels if isinstance(k, IntegerConvKernel))
    assert "div" not in kernel.epilogue.key() and kernel.fits
    given = random.integers(0, 256, (40, 70)).astype(np.uint8)
    (wanted,) = irc.compile(model, backend="numpy")([given])
    (got,) = irc.compile(model, backend="c", target=target)([given])
    difference = np.abs(got.astype(int) - wanted)
    assert difference.max() <= 1 and difference.mean() < 0.002 and np.unique(got).size > 100
