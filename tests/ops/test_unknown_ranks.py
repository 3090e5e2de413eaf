"""Operands of unknown rank or element type are operands like others: valid cases stay valid with them."""

from __future__ import annotations

import pytest
from onnx import TensorProto, ValueInfoProto, helper

import irc
from irc.ir.graph import Constant, Graph, Value
from irc.ir.types import TensorType, dynamic
from tests.ops.cases import Case
from tests.ops.test_ops import SAMPLE, reference


def operands(graph: Graph, case: Case, hidden: int | None, dtype: bool) -> list[Value | None]:
    """The case's operands; nothing is known of the rank (and element type) of one, or of all."""
    found: list[Value | None] = []
    for i, (spec, array) in enumerate(zip(case.inputs, case.arrays(), strict=True)):
        if spec is None or array is None:
            found.append(None)
        elif hidden in (None, i) and not spec.const:
            found.append(graph.add_input(f"x{i}", TensorType(dynamic if dtype else spec.type, None)))
        elif spec.const:
            found.append(graph.add_constant(Constant.of(array, spec.type), f"c{i}"))
        else:
            found.append(graph.add_input(f"x{i}", TensorType.of(spec.type, spec.shape)))
    while found and found[-1] is None:
        found.pop()
    return found


@pytest.mark.parametrize("case", SAMPLE)
def test_unknown_operands_are_no_mistake(case: Case) -> None:
    real = [(a.dtype, a.shape) for a in reference(case)]
    live = [i for i, s in enumerate(case.inputs) if s is not None and not s.const]
    for hidden in [None, *live] if len(live) > 1 else live:
        for dtype in (False, True):
            types = case.op.result_types(operands(Graph(), case, hidden, dtype))
            for found, (kind, shape) in zip(types, real, strict=True):
                if not isinstance(found, TensorType):
                    continue
                assert found.dtype == dynamic or found.dtype.numpy == kind
                if found.shape is not None:
                    assert len(found.shape) == len(shape)
                    assert all(not d.is_const or int(d) == n for d, n in zip(found.shape, shape, strict=True))


@pytest.mark.parametrize("name", ["Add", "Less"])
def test_equal_shapes_of_old_operations_behind_an_operation_without_definition(name: str) -> None:
    nodes = [helper.make_node("Thing", ["x"], ["t"], domain="acme"), helper.make_node(name, ["t", "x"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [6])
    graph = helper.make_graph(nodes, "g", [x], [ValueInfoProto(name="y")])
    imports = [helper.make_opsetid("", 6), helper.make_opsetid("acme", 1)]
    found = irc.validate(helper.make_model(graph, opset_imports=imports, ir_version=8))
    assert not [d for d in found if d.severity == "error"]


@pytest.mark.parametrize("lengths", ["none", "constant", "unknown"])
@pytest.mark.parametrize("opset", [2, 11, 13, 18])
def test_split_behind_an_operation_without_definition(opset: int, lengths: str) -> None:
    nodes = [helper.make_node("Thing", ["x"], ["t", "s"], domain="acme")]
    attributes: dict[str, object] = {"num_outputs": 3} if opset >= 18 and lengths == "none" else {}
    operands, constants = ["t"], [helper.make_tensor("c", TensorProto.INT64, [3], [1, 2, 3])]
    if lengths != "none" and opset < 13:
        attributes["split"] = [1, 2, 3]
    elif lengths != "none":
        operands.append("c" if lengths == "constant" else "s")
    nodes.append(helper.make_node("Split", operands, ["a", "b", "c_"], **attributes))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [6])
    graph = helper.make_graph(nodes, "g", [x], [ValueInfoProto(name=n) for n in ("a", "b", "c_")], constants)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("acme", 1)]
    found = irc.validate(helper.make_model(graph, opset_imports=imports, ir_version=8))
    assert not [d for d in found if d.severity == "error"]
