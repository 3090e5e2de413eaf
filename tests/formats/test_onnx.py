"""The ONNX container: nothing is lost, and no content makes the reader raise."""

import os
import random
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import irc
from irc.diagnostics import Code, Sink
from irc.diagnostics.codes import container_onnx
from irc.formats.document import RawGraph, RawModel, RawNode, RawTensor, RawValue
from irc.formats.onnx import reader, writer
from irc.ir.dim import Dim
from irc.ir.types import DTYPES, MapType, OptionalType, SequenceType, TensorType, f32, i64

A = onnx.AttributeProto


def read(source, *expected):
    """Read, and demand exactly these codes."""
    sink = Sink()
    model = reader.read(source, sink)
    assert sorted({d.code for d in sink}) == sorted(expected), [str(d.message) for d in sink]
    for d in sink:
        assert "<" not in d.message  # an unfilled fact
    return model, sink.diagnostics


def info(name, elem=TensorProto.FLOAT, shape=(2,)):
    return helper.make_tensor_value_info(name, elem, shape)


def make(nodes=None, inputs=None, outputs=None, opset=17, **graph):
    nodes = [helper.make_node("Relu", ["x"], ["y"])] if nodes is None else nodes
    inputs = [info("x")] if inputs is None else inputs
    outputs = [info("y")] if outputs is None else outputs
    made = helper.make_graph(nodes, "g", inputs, outputs, **graph)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def with_weight(tensor, **graph):
    return make([helper.make_node("Identity", [tensor.name], ["y"])], [], initializer=[tensor], **graph)


def round_trip(proto, *expected):
    model, _ = read(proto, *expected)
    assert writer.to_proto(model) == proto
    return model


# ------------------------------------------------------------------------ nothing is lost
def backend_models():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_node_model_tests

        yield from ((case.name, case.model) for case in load_node_model_tests() if case.model is not None)
    folder = Path(onnx.__file__).parent / "backend/test/data"
    yield from ((str(path), onnx.load(path)) for path in sorted(folder.rglob("*.onnx")))


def test_the_backend_suite_round_trips_exactly():
    count, differing = 0, []
    for name, proto in backend_models():
        sink, count = Sink(), count + 1
        model = reader.read(proto, sink)
        if model is None or sink.diagnostics or writer.to_proto(model) != proto:
            differing.append(name)
    assert count > 1000 and not differing


def test_fields_beside_the_graph_round_trip():
    proto = make(doc_string="graph doc", value_info=[info("t", shape=None)])
    proto.producer_name, proto.producer_version, proto.domain = "p", "1", "com.acme"
    proto.model_version, proto.doc_string = 7, "doc"
    proto.metadata_props.add(key="k", value="v")
    proto.opset_import.add(domain="com.acme", version=3)
    node = proto.graph.node[0]
    node.domain, node.overload, node.name, node.doc_string = "ai.onnx", "o", "n", "d"
    node.metadata_props.add(key="a", value="b")
    node.device_configurations.add(configuration_id="c")
    proto.configuration.add(name="c", num_devices=2)
    proto.graph.quantization_annotation.add(tensor_name="x")
    proto.training_info.add().algorithm.name = "t"
    dim = proto.graph.input[0].type.tensor_type.shape.dim[0]
    dim.denotation, proto.graph.input[0].type.denotation = "DATA_BATCH", "IMAGE"
    model = round_trip(proto)
    assert model.graph.nodes[0].domain == "" and model.graph.nodes[0].version == 17
    assert model.graph.inputs[0].extras["dim_denotations"] == {0: "DATA_BATCH"}
    assert model.metadata == {"k": "v"} and model.extras["producer_name"] == "p"


def test_set_but_empty_fields_and_spelled_domains_round_trip():
    proto = make()
    proto.producer_name = proto.graph.doc_string = proto.graph.node[0].name = ""
    proto.graph.node[0].domain = proto.opset_import[0].domain = "ai.onnx"
    assert round_trip(proto).opsets == {"": 17}
    proto.opset_import[0].ClearField("domain")
    round_trip(proto)


def test_functions_round_trip():
    body = [helper.make_node("LeakyRelu", ["a"], ["b"])]
    body[0].attribute.append(helper.make_attribute("z", 1))
    body[0].attribute.insert(0, A(name="alpha", ref_attr_name="slope", type=A.FLOAT))
    function = helper.make_function(
        "com.acme", "F", ["a"], ["b"], body, [helper.make_opsetid("", 17)], ["k"], [helper.make_attribute("slope", 0.5)]
    )
    function.value_info.append(info("b"))
    proto = make([helper.make_node("F", ["x"], ["y"], domain="com.acme")])
    proto.opset_import.add(domain="com.acme", version=1)
    proto.functions.append(function)
    decoded = round_trip(proto).functions[0]
    assert decoded.nodes[0].extras["attr_refs"] == {"alpha": "slope"} and decoded.opsets == {"": 17}
    assert decoded.attribute_defaults == {"slope": 0.5} and decoded.nodes[0].attrs == {"z": 1}


def test_attributes_of_every_type_round_trip():
    weight = numpy_helper.from_array(np.arange(3, dtype=np.int32), "w")
    inner = helper.make_graph([helper.make_node("Relu", ["x"], ["t"])], "inner", [], [info("t")])
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.float32([1, 2]), "v"), numpy_helper.from_array(np.int64([0, 5]), "i"), [2, 3]
    )
    typed = helper.make_tensor_type_proto(TensorProto.FLOAT, [None, "n"])
    node = helper.make_node("Any", ["x"], ["y"], domain="d")
    values = {
        "f": 0.1,
        "i": -3,
        "s": b"\xff\x00a",
        "t": weight,
        "g": inner,
        "sp": sparse,
        "tp": typed,
        "fs": [0.5, 2.0],
        "is": [1, 2],
        "ss": ["a", b"\xfe"],
        "ts": [weight],
        "gs": [inner],
        "sps": [sparse],
        "tps": [typed, typed],
    }
    for name, value in values.items():
        node.attribute.append(helper.make_attribute(name, value, doc_string="about" if name == "f" else None))
    node.attribute.extend(A(name=f"empty{kind}", type=kind) for kind in (A.INTS, A.FLOATS, A.STRINGS, A.GRAPHS))
    proto = make([node])
    proto.opset_import.add(domain="d", version=1)
    attrs = round_trip(proto).graph.nodes[0].attrs
    assert attrs["f"] == float(np.float32(0.1)) and attrs["s"] == "\udcff\x00a"
    assert attrs["sp"].load().tolist() == [[1, 0, 0], [0, 0, 2]]
    assert isinstance(attrs["g"], RawGraph) and str(attrs["tp"].shape[1]) == "n"


def test_attributes_without_a_type_as_ir_version_1_writes_them():
    proto = make()
    proto.graph.node[0].attribute.add(name="alpha", f=0.5)
    assert round_trip(proto).graph.nodes[0].attrs == {"alpha": 0.5}


def test_old_files_list_initializers_as_inputs():
    proto = make(
        [helper.make_node("Add", ["w", "x"], ["y"])],
        [info("w"), info("x")],
        initializer=[numpy_helper.from_array(np.float32([1, 2]), "w")],
    )
    proto.ir_version = 2
    proto.ClearField("opset_import")
    model = round_trip(proto, "IRC1423")
    assert [v.key for v in model.graph.inputs] == ["x"] and model.opsets == {"": 1}


@pytest.mark.parametrize("kind", ["sequence", "optional", "map", "sparse", "no shape", "no type"])
def test_types(kind):
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])
    n = TensorType.of(f32, [Dim.symbol("n")])
    made = {
        "sequence": (helper.make_sequence_type_proto(tensor), SequenceType(n)),
        "optional": (helper.make_optional_type_proto(tensor), OptionalType(n)),
        "map": (helper.make_map_type_proto(TensorProto.INT64, tensor), MapType(i64, n)),
        "sparse": (helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, ["n"]), n),
        "no shape": (helper.make_tensor_type_proto(TensorProto.FLOAT, None), TensorType(f32, None)),
        "no type": (None, None),
    }
    proto, expected = made[kind]
    value = onnx.ValueInfoProto(name="x") if proto is None else helper.make_value_info("x", proto)
    assert round_trip(make(inputs=[value])).graph.inputs[0].type == expected


def test_opaque_types_are_kept():
    value = onnx.ValueInfoProto(name="x")
    value.type.opaque_type.name = "Handle"
    assert round_trip(make(inputs=[value]), "IRC1502").graph.inputs[0].type is None


def test_dimensions():
    value = info("x", shape=("x_d1", None, "a b+1", 3, -1))
    model = round_trip(make(inputs=[value, info("z", shape=(None,))]), "IRC1501")
    assert str(model.graph.inputs[0].type) == "f32[x_d1,x_d1_,a b+1,3,x_d4]"
    assert model.graph.inputs[0].extras["unknown_dims"] == [1, 4]
    assert str(model.graph.inputs[1].type) == "f32[z_d0]"


# --------------------------------------------------------------------- names and order
def relu(x, y, name=""):
    return helper.make_node("Relu", [x], [y], name=name)


def test_unsorted_nodes_are_sorted():
    model, found = read(make([relu("a", "y"), relu("x", "a")]), "IRC1524")
    assert [n.inputs for n in model.graph.nodes] == [["x"], ["a"]]
    assert found[0].location.where == "graph main, node 0 (Relu)"


def test_nodes_are_sorted_by_what_their_subgraphs_capture():
    branch = helper.make_graph([relu("a", "t")], "b", [], [info("t")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    proto = make([node, relu("x", "a")], [info("x"), info("c", TensorProto.BOOL, ())])
    model, _ = read(proto, "IRC1524")
    assert [n.type for n in model.graph.nodes] == ["Relu", "If"]


@pytest.mark.parametrize(
    ("nodes", "codes"),
    [
        ([relu("b", "a"), relu("a", "b"), relu("x", "y")], ["IRC1523"]),
        ([relu("y", "y")], ["IRC1523"]),
        ([relu("x", "y"), relu("x", "y")], ["IRC1521"]),
        ([relu("x", "x"), relu("x", "y")], ["IRC1521", "IRC1523"]),
        ([relu("X", "y")], ["IRC1522"]),
        ([relu("x", "z")], ["IRC1522"]),
        ([relu("x", "t", "n"), relu("t", "y", "n")], ["IRC1526"]),
        ([helper.make_node("", ["x"], ["y"])], ["IRC1543"]),
    ],
)
def test_broken_graphs(nodes, codes):
    read(make(nodes), *codes)


def test_an_undefined_name_gets_a_guess():
    _, found = read(make([relu("inputs", "y")], [info("input")]), "IRC1522")
    assert found[0].help == 'did you mean "input"?'


def test_places_inside_subgraphs():
    branch = helper.make_graph([relu("nowhere", "t")], "b", [], [info("t")])
    node = helper.make_node("If", ["x"], ["y"], "if", then_branch=branch)
    _, found = read(make([node], [info("x")]), "IRC1522")
    assert found[0].location.where == 'graph main / node 0 "if" / then_branch, node 0 (Relu)'


def test_shadowing_is_a_warning_and_siblings_may_share_names():
    branch = helper.make_graph([relu("x", "t")], "b", [], [info("t")])
    node = helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch)
    read(make([node]))
    read(make([node, relu("x", "t")]), "IRC1525")


def test_duplicate_initializers_inputs_attributes_and_metadata():
    w = numpy_helper.from_array(np.float32([1, 2]), "w")
    read(make(initializer=[w, w]), "IRC1521")
    read(make(inputs=[info("x"), info("x")]), "IRC1521")
    read(make(initializer=[numpy_helper.from_array(np.float32([1, 2]))]), "IRC1527")
    proto = make(value_info=[info("t"), info("t")])
    proto.graph.node[0].attribute.extend([helper.make_attribute("a", 1), helper.make_attribute("a", 2)])
    proto.metadata_props.add(key="k")
    proto.metadata_props.add(key="k")
    read(proto, "IRC1541", "IRC1425", "IRC1503")


@pytest.mark.parametrize(
    "attribute",
    [
        A(name="a"),
        A(name="a", type=A.INT, f=1.0),
        A(name="a", type=A.TENSOR),
        A(name="a", i=1, f=1.0),
        A(name="a", type=A.INT, i=1, ints=[1]),
        A(name="a", type=A.INT, ref_attr_name="b"),
    ],
)
def test_attributes_without_a_clear_value(attribute):
    proto = make()
    proto.graph.node[0].attribute.append(attribute)
    read(proto, "IRC1542")


def test_recursive_and_duplicate_functions():
    opsets = [helper.make_opsetid("d", 1)]
    calls = {"F": "G", "G": "F"}
    functions = [
        helper.make_function("d", name, ["a"], ["b"], [helper.make_node(to, ["a"], ["b"], domain="d")], opsets)
        for name, to in calls.items()
    ]
    proto = make([helper.make_node("F", ["x"], ["y"], domain="d")])
    proto.opset_import.append(opsets[0])
    proto.functions.extend(functions)
    _, found = read(proto, "IRC1545")
    assert "d::F -> d::G -> d::F" in found[0].message
    proto.functions.append(functions[0])
    read(proto, "IRC1544", "IRC1545")


# ---------------------------------------------------------------------- the file itself
@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "IRC1402"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "IRC1403"),
        (b'<?xml version="1.0"?><net/>', "IRC1404"),
        (b"PK\x03\x04....", "IRC1404"),
        (b"\x08", "IRC1405"),
        (b"\x08\x08", "IRC1406"),
        (bytes(1000), "IRC1405"),
        (make().SerializeToString()[:-5], "IRC1405"),
    ],
)
def test_files_that_are_no_models(tmp_path, content, code):
    (tmp_path / "m.onnx").write_bytes(content)
    model, found = read(tmp_path / "m.onnx", code)
    assert model is None and found[0].location.file == str(tmp_path / "m.onnx")
    assert read(content, code)[0] is None


def test_missing_files_and_folders(tmp_path):
    read(tmp_path / "none.onnx", "IRC1401")
    read(str(tmp_path), "IRC1401")


def test_files_over_the_limit_of_protobuf(tmp_path):
    (tmp_path / "m.onnx").touch()
    os.truncate(tmp_path / "m.onnx", 2**31)  # sparse: it takes no space
    read(tmp_path / "m.onnx", "IRC1407")


def test_versions():
    proto = make()
    proto.ir_version = 99
    read(proto, "IRC1421")
    proto.ClearField("ir_version")
    read(proto, "IRC1422")
    proto = make()
    proto.opset_import.add(domain="ai.onnx", version=3)
    read(proto, "IRC1424")
    read(make([helper.make_node("Q", ["x"], ["y"], domain="nowhere")]), "IRC1423")
    proto = make()
    proto.opset_import[0].version = 0
    read(proto, "IRC1426")


def test_names_that_are_not_utf8():
    content = make([relu("x", "y", "abc")]).SerializeToString().replace(b"abc", b"a\xffc")
    read(content, "IRC1408")


def test_subgraphs_that_nest_without_end():
    graph = helper.make_graph([relu("x", "y")], "g", [], [info("y")])
    for _ in range(100):
        outer = onnx.GraphProto(name="g", output=[info("y")])
        attribute = outer.node.add(op_type="If", input=["x"], output=["y"]).attribute.add(name="then_branch")
        attribute.type = A.GRAPH
        attribute.g.CopyFrom(graph)
        graph = outer
    graph.input.append(info("x"))
    proto = make()
    proto.graph.CopyFrom(graph)
    sink = Sink()
    reader.read(proto, sink)
    assert "IRC1409" in {d.code for d in sink}


def test_damaged_bytes_never_raise():
    weight = numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3), "w")
    content = make([helper.make_node("MatMul", ["x", "w"], ["y"], "m", alpha=[1, 2])], initializer=[weight])
    data, random_ = content.SerializeToString(), random.Random(0)
    for _ in range(500):
        broken = bytearray(data)
        for _ in range(random_.randint(1, 4)):
            broken[random_.randrange(len(broken))] = random_.randrange(256)
        sink = Sink()
        model = reader.read(bytes(broken), sink)
        if model is not None and not sink.errors:
            writer.to_proto(model)


def test_a_model_built_by_hand_passes_the_onnx_checker():
    n = TensorType.of(f32, [Dim.symbol("n") * 2, 3])
    inner = RawGraph("then", outputs=[RawValue("t", ("t",), n)])
    inner.nodes = [RawNode("Relu", 17, inputs=["x"], outputs=[RawValue("t")])]
    weight = RawTensor("w", DTYPES["bf16"], (2,), lambda: np.array([1, 2], ml_dtypes.bfloat16))
    graph = RawGraph("g", [RawValue("x", ("x",), n), RawValue("c", ("c",), TensorType.of(DTYPES["bool"], ()))])
    graph.constants["w"] = weight
    attrs = {"then_branch": inner, "else_branch": inner}
    graph.nodes = [RawNode("If", 17, inputs=["c"], outputs=[RawValue("y")], attrs=attrs)]
    graph.outputs = [RawValue("y", ("y",), n)]
    proto = writer.to_proto(RawModel("onnx", 8, graph, {"": 17}))
    onnx.checker.check_model(proto, full_check=True)
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "2*n"


@pytest.mark.parametrize("name", ["?", "-1", "", "None"])
def test_names_of_nothing_are_sizes_of_their_own(name: str):
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [name, 3, name, name])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [name, 3, name, name])
    node = helper.make_node("Relu", ["x"], ["y"])
    model = helper.make_model(helper.make_graph([node], "g", [image], [result]))
    found = irc.load(model)
    assert len({str(d) for d in found.inputs[0].shape}) == 4
    x = np.arange(-12, 6 * 15, dtype=np.float32).reshape(1, 3, 2, 17)
    (y,) = irc.compile(found, backend="numpy")([x])
    np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_attribute_types_of_new_values():
    found = {
        name: writer.attribute_type(value, declared, name)
        for name, value, declared in [
            ("int", 3, 0),
            ("bool", True, 0),
            ("mixed", [1, 2.0], 0),
            ("widened", 1, A.FLOAT),
            ("stale", "a", A.INT),
            ("empty", [], A.STRINGS),
        ]
    }
    assert found == {
        "int": A.INT,
        "bool": A.INT,
        "mixed": A.FLOATS,
        "widened": A.FLOAT,
        "stale": A.STRING,
        "empty": A.STRINGS,
    }
    with pytest.raises(ValueError, match="empty list"):
        writer.attribute_type([], 0, "a")


def test_every_code_of_the_container_is_tested():
    text = "".join(path.read_text() for path in Path(__file__).parent.glob("test_onnx*.py"))
    rows = [row for row in vars(container_onnx).values() if isinstance(row, Code)]
    elsewhere = {case.name.split("-")[0] for case in Path(__file__).parent.parent.joinpath("diagnostics").glob("*.txt")}
    assert [row.id for row in rows if f'"{row.id}"' not in text and row.id not in elsewhere] == []
