"""Residual sums of bytes are the epilogue of what computes one of their terms, and may stand where another one did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

import irc
from irc.diagnostics import Sink
from irc.fusion import group
from irc.ir.graph import Graph
from irc.kernels.core.isa import AMX, AVX2, AVX512, Isa
from irc.kernels.integer.sums import SumKernel
from irc.loops.ir import KernelCall
from irc.loops.lower import lower
from irc.loops.memory import plan
from irc.pipelines import compile_c
from irc.selection.selector import KernelOp
from irc.toolchain.c_compiler import find_compiler
from irc.toolchain.processor import cpu_features
from tests.support.instruction_sets import of_other_kernels

helper = onnx.helper
EPILOGUES = [
    pytest.param(last, kind, target, marks=() if i == j else pytest.mark.full)
    for i, target in enumerate(of_other_kernels("native", "x86-64-v3"))
    for j, (last, kind) in enumerate([("Relu", np.uint8), ("Clip", np.int8), ("Identity", np.uint8)])
]
"""Each target with an epilogue of its own, with `-m full` all of them with all."""
LAYERS: dict[str, dict[str, Any]] = {
    "1 x 1": {"shape": (2, 40, 9, 8), "window": 1},
    "few": {"shape": (1, 21, 9, 7), "window": 1},
    "3 x 3": {"shape": (1, 52, 9, 10), "window": 3},
    "groups": {"shape": (1, 36, 11, 9), "window": 3, "group": 2},
    "depthwise": {"shape": (1, 37, 9, 12), "window": 3, "group": 37},
    "product": {"shape": (23, 70)},
}


def model_of(layer: dict[str, Any], kind: type[Any], last: str = "Relu", again: bool = False) -> onnx.ModelProto:
    """Write z, bytes: the sum of a layer of x, quantized, and of x, through `last`.

    again: three such blocks, of two layers each.
    """
    random, shape = np.random.default_rng(5), layer["shape"]
    channels, group, k = shape[1], layer.get("group", 1), layer.get("window", 1)
    size = (channels, channels // group, k, k) if len(shape) > 2 else (channels, channels)
    arrays: dict[str, Any] = {
        "xs": np.float32(0.031),
        "xz": kind(9),
        "ws": (random.random(channels) * 0.002 + 0.001).astype(np.float32),
        "wz": np.zeros(channels, np.int8),
        "ys": np.float32(0.004 * size[1] ** 0.5 * k),
        "yz": kind(100 if kind is np.uint8 else -3),
        "zs": np.float32(0.044),
        "zz": kind(0 if kind is np.uint8 else -128),
        "least": np.float32(-0.5),
        "most": np.float32(3),
    }
    nodes: list[onnx.NodeProto] = []

    def dequantized(x: str, y: str, by: str, **given: int) -> None:
        nodes.append(helper.make_node("DequantizeLinear", [x, f"{by}s", f"{by}z"], [y], **given))

    def layer(x: str, y: str) -> None:
        arrays[f"{y}w"] = random.integers(-127, 128, size).astype(np.int8)
        dequantized(f"{y}w", f"{y}wf", "w", axis=0 if len(shape) > 2 else 1)
        if len(shape) > 2:
            nodes.append(helper.make_node("Conv", [x, f"{y}wf"], [f"{y}c"], group=group, pads=[k // 2] * 4))
        else:
            nodes.append(helper.make_node("MatMul", [x, f"{y}wf"], [f"{y}c"]))
        nodes.append(helper.make_node("QuantizeLinear", [f"{y}c", "ys", "yz"], [f"{y}q"]))
        dequantized(f"{y}q", f"{y}d", "y")

    def block(x: str, y: str, scale: str) -> None:
        dequantized(x, f"{x}f", scale)
        if again:
            layer(f"{x}f", f"{y}i")
        layer(f"{y}id" if again else f"{x}f", y)
        nodes.append(helper.make_node("Add", [f"{x}f", f"{y}d"], [f"{y}a"]))
        bounds = ["least", "most"] if last == "Clip" else []
        nodes.append(helper.make_node(last, [f"{y}a", *bounds], [f"{y}r"]))
        nodes.append(helper.make_node("QuantizeLinear", [f"{y}r", "zs", "zz"], [y]))

    block("x", "u" if again else "z", "x")
    if again:
        block("u", "v", "z")
        block("v", "z", "z")
    used = {n for node in nodes for n in node.input}
    constants = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in arrays.items() if n in used]
    written = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    x, z = (helper.make_tensor_value_info(n, written, shape) for n in "xz")
    graph = helper.make_graph(nodes, "residual", [x], [z], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def selected(model: onnx.ModelProto, isa: Isa) -> Graph:
    graph = irc.load(model).graph
    for _, run in compile_c(isa):
        run(graph, Sink())
    return graph


@pytest.mark.parametrize("isa", [AMX, AVX512, AVX2, replace(AVX2, fours=True)], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_one_kernel_computes_layer_and_sum(name: str, isa: Isa) -> None:
    for kind in (np.uint8, np.int8):
        graph = selected(model_of(LAYERS[name], kind), isa)
        kernels = [n.op.kernel for n in graph.nodes if isinstance(n.op, KernelOp)]
        assert not [k for k in kernels if isinstance(k, SumKernel)]
        (found,) = (k for k in kernels if hasattr(k, "epilogue"))
        assert [number for number, _ in found.epilogue.byte_slots] == [1]


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.skipif(not {"avx2"} <= cpu_features(), reason="needs AVX2")
@pytest.mark.parametrize(("last", "kind", "target"), EPILOGUES)
@pytest.mark.parametrize("name", LAYERS)
def test_bytes_are_the_nearest(name: str, last: str, kind: type[Any], target: str) -> None:
    """Of three blocks, one after the other, whose results may stand where their operands did; differences grow."""
    model, limits = model_of(LAYERS[name], kind, last, again=True), np.iinfo(kind)
    x = np.random.default_rng(3).integers(limits.min, limits.max + 1, LAYERS[name]["shape"]).astype(kind)
    (wanted,) = irc.compile(model, backend="numpy")([x])
    (got,) = irc.compile(model, backend="c", target=target, threads=2)([x])
    difference = np.abs(got.astype(int) - wanted)
    assert difference.mean() < 0.05 and difference.max() <= 3 and np.unique(got).size > 40


def program_of(model: onnx.ModelProto) -> Any:
    graph = selected(model, AVX512)
    return lower(graph, group.run(graph), "m")


@pytest.mark.parametrize("name", ["1 x 1", "depthwise", "product"])
def test_results_stand_where_an_operand_did_that_nobody_reads_any_more(name: str) -> None:
    program = program_of(model_of(LAYERS[name], np.uint8, again=True))
    offsets = plan(program).offsets
    calls = [s for f in program.functions for s in f.body if isinstance(s, KernelCall)]
    shared = [
        (call, place)
        for call in calls
        for place, b in enumerate(call.reads)
        if {b.root, call.writes[0].root} <= {*offsets} and offsets[b.root] == offsets[call.writes[0].root]
    ]
    assert bool(shared) == (name != "depthwise")  # where vectors of channels overlap
    assert all(place > 1 and call.kernel.epilogue.byte_slots for call, place in shared)


def test_operands_that_others_read_stay() -> None:
    model = model_of(LAYERS["product"], np.uint8, again=True)
    model.graph.output.append(helper.make_tensor_value_info("u", onnx.TensorProto.UINT8, LAYERS["product"]["shape"]))
    program = program_of(model)
    calls = [s for f in program.functions for s in f.body if isinstance(s, KernelCall)]
    (written,) = (b for c in calls for b in c.writes if b.where == "output" and b.name.startswith("u"))
    readers = [c for c in calls if written.root in [b.root for b in c.reads]]
    assert len(readers) == 2 and written.root not in plan(program).offsets
