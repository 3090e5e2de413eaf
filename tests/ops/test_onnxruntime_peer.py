"""ONNX Runtime computes the same: its own operators and others that ONNX has no cases of, case by case."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest

import irc
from irc.border import WriteOptions, read_model, write_model
from irc.diagnostics import Sink
from irc.formats.onnx import reader as onnx_reader, writer as onnx_writer
from irc.opdef.forms import MICROSOFT
from tests.ops.cases import ALONE, Case, Spec
from tests.ops.test_ops import FAMILIES, build, feeds, refusal_of, run, same
from tests.support.instruction_sets import saturates_in_onnxruntime

runtime = pytest.importorskip("onnxruntime")
ROWS = [
    pytest.param(case, id=f"{family}-{i}-{case.op.name}")
    for family, rows in FAMILIES.items()
    if family.startswith("microsoft_") or family in ("linear", "max_roi_pool")
    for i, case in enumerate(rows)
    if case.note != ALONE and refusal_of("onnx", case) == ""
]


def in_onnxruntime(model: onnx.ModelProto, arrays: list[Any]) -> list[Any]:
    """The results on one core: ONNX Runtime quantizes parts of a batch for each thread."""
    if saturates_in_onnxruntime(node.op_type for node in model.graph.node):
        pytest.skip("without VNNI ONNX Runtime's sums of bytes saturate")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: a for i, a in zip(session.get_inputs(), arrays, strict=True)})


@pytest.mark.parametrize("case", ROWS)
def test_onnxruntime_computes_the_same(case: Case) -> None:
    model, sink = build(case), Sink()
    want = run(model, feeds(case))
    raw = write_model(model, WriteOptions("onnx", {"": 20, MICROSOFT: 1, "ai.onnx.ml": 3}, version=10), sink)
    assert not sink.errors, sink.errors
    proto = onnx_writer.to_proto(raw)
    assert {form.name for form in type(case.op).onnx} & {n.op_type for n in proto.graph.node}
    again = read_model(onnx_reader.read(proto, sink), sink)  # type: ignore[arg-type]
    assert not sink.errors, sink.errors
    for got, expected in zip(run(again, feeds(case)), want, strict=True):
        same(got, expected, case.rtol)
    for got, expected in zip(in_onnxruntime(proto, feeds(case)), want, strict=True):
        same(got, np.asarray(expected), case.rtol)


@dataclass(frozen=True)
class Row:
    """A node of the file; operands and results that it does not have are None and ""."""

    name: str
    operands: tuple[Spec | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    results: tuple[str, ...] = ("y",)
    rtol: float = 1e-5
    domain: str = MICROSOFT

    def arrays(self) -> list[Any]:
        return [None if s is None else s.array(f"{self.name}{i}") for i, s in enumerate(self.operands)]

    def feeds(self) -> list[Any]:
        return [a for s, a in zip(self.operands, self.arrays(), strict=True) if s is not None and not s.const]

    def model(self) -> onnx.ModelProto:
        inputs, constants, names = list[Any](), list[Any](), list[str]()
        for i, (spec, array) in enumerate(zip(self.operands, self.arrays(), strict=True)):
            names.append("" if spec is None else f"x{i}")
            if spec is not None and spec.const:
                constants.append(onnx.numpy_helper.from_array(array, names[-1]))
            elif spec is not None:
                kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
                inputs.append(onnx.helper.make_tensor_value_info(names[-1], kind, array.shape))
        node = onnx.helper.make_node(self.name, names, self.results, "node", None, self.domain, **self.attributes)
        outputs = [onnx.ValueInfoProto(name=r) for r in self.results if r]
        graph = onnx.helper.make_graph([node], "graph", inputs, outputs, constants)
        opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid(MICROSOFT, 1)]
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


X, VECTOR = Spec("f32", (2, 3, 8)), Spec("f32", (8,))
QUANTIZED = Spec("u8", (1, 5, 6, 4), 0, 255), Spec("f32", (), values=0.25), Spec("u8", (), values=9)
RESULT = Spec("f32", (), values=64.0), Spec("u8", (), values=128)
NODES = [
    Row("Gelu", (X,)),
    Row("QuantizeLinear", (Spec("f32", (2, 3)), Spec("f32", (3,), 0.1, 1), Spec("u8", (3,))), {"axis": 1}),
    Row("DequantizeLinear", (Spec("i8", (2, 3)), Spec("f32", (2,)), Spec("i8", (2,))), {"axis": 0}),
    Row("SimplifiedLayerNormalization", (X, VECTOR), {"axis": -1}, ("y", "deviation"), domain=""),
    Row("Attention", (X, Spec("f32", (8, 16)), Spec("f32", (16,))), {"num_heads": 2, "qkv_hidden_sizes": [4, 4, 8]}),
    *(
        Row("SkipLayerNormalization", (X, skip, VECTOR, *more), {"epsilon": 1e-3}, ("y", "", "", "sum"))
        for skip in (X, Spec("f32", (3, 8)), Spec("f32", (1, 3, 8)))
        for more in ((), (VECTOR,), (None, VECTOR))
    ),
    *(
        Row("SkipSimplifiedLayerNormalization", (X, X, VECTOR, *more), {}, ("y", "", "", "sum"))
        for more in ((), (VECTOR,))
    ),
    *(
        Row(
            "QLinearConv",
            (
                *QUANTIZED,
                *(Spec("i8", (6, 4 // group, 3, 3), -128, 127, const=True), Spec("f32", (), values=0.5)),
                *(Spec("i8", (), values=0), *RESULT),
            ),
            {"channels_last": 1, "group": group},
        )
        for group in (1, 2)
    ),
]
"""Operators that are rows of operations of other names, and results that cases cannot leave out."""


@pytest.mark.parametrize("backend", ["numpy", "c"])
@pytest.mark.parametrize("row", NODES, ids=lambda row: row.name)
def test_rows_of_other_operations(row: Row, backend: str) -> None:
    compiled = irc.compile(row.model(), backend=backend)
    for got, want in zip(compiled(row.feeds()), in_onnxruntime(row.model(), row.feeds()), strict=True):
        same(got, want, row.rtol)


def decoder() -> onnx.ModelProto:
    """A decoder layer as exporters of language models write it, with a cache and symbolic sizes."""
    rng = np.random.default_rng(0)
    nodes, constants = list[Any](), list[Any]()

    def add(kind: str, operands: list[str], results: list[str], domain: str = MICROSOFT, **attributes: Any) -> str:
        nodes.append(onnx.helper.make_node(kind, operands, results, domain=domain, **attributes))
        return results[0]

    def constant(name: str, array: Any) -> str:
        constants.append(onnx.numpy_helper.from_array(array, name))
        return name

    def linear(x: str, name: str, k: int, n: int) -> str:
        weights = constant(f"{name}_q", rng.integers(0, 256, (n, k // 32, 16)).astype(np.uint8))
        scales = constant(f"{name}_s", (rng.random((n, k // 32)) * 0.02).astype(np.float32))
        return add("MatMulNBits", [x, weights, scales], [name], K=k, N=n, bits=4, block_size=32)

    ones = constant("ones", np.ones(64, np.float32))
    angles = [constant(f"angles{k}", rng.random((32, 8)).astype(np.float32)) for k in range(2)]
    counts = add("ReduceSum", ["attention_mask", constant("axis", np.array([1]))], ["counts"], "", keepdims=0)
    last = add("Sub", [counts, constant("one", np.array([1]))], ["last"], "")
    add("Cast", [last], ["lengths"], "", to=onnx.TensorProto.INT32)
    total = add("Gather", [add("Shape", ["attention_mask"], ["shape"], ""), constant("at", np.array(1))], ["size"], "")
    add("Cast", [total], ["total"], "", to=onnx.TensorProto.INT32)
    normal = add("SimplifiedLayerNormalization", ["x", ones], ["normal"], "")
    heads = [linear(normal, name, 64, size) for name, size in (("q", 64), ("k", 32), ("v", 32))]
    operands = [*heads, "past_key", "past_value", "lengths", "total", *angles]
    fields = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    seen = add("GroupQueryAttention", operands, ["seen", "key", "value"], **fields)
    add("SkipSimplifiedLayerNormalization", ["x", linear(seen, "projected", 64, 64), ones], ["y", "", "", "sum"])
    number, whole = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    declared = {
        "x": (number, ["batch", "steps", 64]),
        "attention_mask": (whole, ["batch", "total"]),
        "past_key": (number, ["batch", 2, "past", 16]),
        "past_value": (number, ["batch", 2, "past", 16]),
    }
    inputs = [onnx.helper.make_tensor_value_info(name, *type) for name, type in declared.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("y", "sum", "key", "value")]
    graph = onnx.helper.make_graph(nodes, "decoder", inputs, outputs, constants)
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid(MICROSOFT, 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_a_decoder_of_symbolic_sizes(backend: str) -> None:
    model, rng = decoder(), np.random.default_rng(1)
    compiled = irc.compile(model, backend=backend)
    for batch, steps, past in ((1, 6, 0), (1, 1, 6), (2, 4, 0), (2, 1, 5)):
        caches = [rng.standard_normal((batch, 2, past, 16)).astype(np.float32) for _ in range(2)]
        x = rng.standard_normal((batch, steps, 64)).astype(np.float32)
        given = [x, np.ones((batch, past + steps), np.int64), *caches]
        for got, want in zip(compiled(given), in_onnxruntime(model, given), strict=True):
            same(got, want, 1e-5)
