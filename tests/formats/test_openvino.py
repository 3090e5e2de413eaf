"""The OpenVINO IR container: reading, findings and their places, writing."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from irc.diagnostics import Diagnostic, Sink
from irc.diagnostics.codes import container_openvino as codes, container_weights
from irc.formats.document import RawGraph, RawModel, RawNode, RawTensor, RawValue
from irc.formats.openvino.packing import pack_strings
from irc.formats.openvino.reader import read
from irc.formats.openvino.schema import validate_schema
from irc.formats.openvino.writer import write
from irc.ir.dim import Dim
from irc.ir.types import TensorType, dtype, f32, i64, string

BASE = """<?xml version="1.0"?>
<net name="base" version="11">
	<layers>
		<layer id="0" name="x" type="Parameter" version="opset1">
			<data shape="2,?,1..5" element_type="f32" />
			<output>
				<port id="0" precision="FP32" names="x,a\\,b">
					<dim>2</dim>
					<dim>-1</dim>
					<dim>-1</dim>
					<rt_info>
						<attribute name="layout" version="0" layout="[N,C,?]" />
					</rt_info>
				</port>
			</output>
		</layer>
		<layer id="1" name="c" type="Const" version="opset1">
			<data element_type="f32" shape="3" offset="0" size="12" />
			<output>
				<port id="0" precision="FP32">
					<dim>3</dim>
				</port>
			</output>
		</layer>
		<layer id="2" name="mul" type="Multiply" version="opset1">
			<data auto_broadcast="numpy" />
			<rt_info>
				<attribute name="fused_names" version="0" value="mul" />
			</rt_info>
			<input>
				<port id="0" precision="FP32">
					<dim>2</dim>
					<dim>-1</dim>
					<dim>-1</dim>
				</port>
				<port id="1" precision="FP32">
					<dim>3</dim>
				</port>
			</input>
			<output>
				<port id="2" precision="FP32" names="y">
					<dim>2</dim>
					<dim>-1</dim>
					<dim>3</dim>
				</port>
			</output>
		</layer>
		<layer id="3" name="r" type="Result" version="opset1" output_names="y">
			<input>
				<port id="0" precision="FP32">
					<dim>2</dim>
					<dim>-1</dim>
					<dim>3</dim>
				</port>
			</input>
		</layer>
	</layers>
	<edges>
		<edge from-layer="0" from-port="0" to-layer="2" to-port="0" />
		<edge from-layer="1" from-port="0" to-layer="2" to-port="1" />
		<edge from-layer="2" from-port="2" to-layer="3" to-port="0" />
	</edges>
	<rt_info>
		<info name="conversion &lt;parameters>">
			<info name="input" value="a&quot;b" />
		</info>
	</rt_info>
</net>
"""
WEIGHTS = np.arange(3, dtype=np.float32).tobytes()


def put(folder: Path, xml: str, weights: bytes | None = WEIGHTS, name: str = "m") -> Path:
    path = folder / f"{name}.xml"
    path.write_text(xml, encoding="utf-8")
    if weights is not None:
        path.with_suffix(".bin").write_bytes(weights)
    return path


def load(path: Path) -> tuple[RawModel | None, list[Diagnostic]]:
    sink = Sink()
    return read(path, sink), list(sink)


def good(path: Path) -> RawModel:
    model, found = load(path)
    assert model is not None and not found, [str(d.message) for d in found]
    return model


# --------------------------------------------------------------------- reading
def test_reads_what_the_file_says(tmp_path: Path) -> None:
    model = good(put(tmp_path, BASE))
    assert (model.format, model.version, model.graph.name) == ("openvino", 11, "base")
    (x,), (y,), (node,) = model.graph.inputs, model.graph.outputs, model.graph.nodes
    assert x.key == "0:0" and x.names == ("x", "a,b") and x.extras["layout"] == "[N,C,?]"
    assert x.type == TensorType.of(f32, [2, Dim.symbol("x_d1"), Dim.symbol("x_d2", 1, 5)])
    assert (node.type, node.version, node.name, node.attrs) == ("Multiply", 1, "mul", {"auto_broadcast": "numpy"})
    assert node.inputs == ["0:0", "1:0"] and node.outputs[0].key == "2:2" and node.outputs[0].names == ("y",)
    assert y.key == "2:2" and y.extras["layer_name"] == "r" and y.names == ("y",)
    constant = model.graph.constants["1:0"]
    assert constant.name == "c" and constant.load().tolist() == [0, 1, 2]
    assert node.loc.where == 'layer 2 "mul" (Multiply, opset1)' and (node.loc.line, node.loc.column) == (25, 3)


def test_v10_layer_names_become_tensor_names_and_port_attributes_are_not_read(tmp_path: Path) -> None:
    text = BASE.replace('version="11"', 'version="10"').replace(' names="y"', "").replace(' names="x,a\\,b"', "")
    model, found = load(put(tmp_path, text))
    assert model is not None and [d.code for d in found] == ["IRC1014"]
    assert model.graph.inputs[0].names == ("x",) and model.graph.nodes[0].outputs[0].names == ("mul",)
    assert "layout" not in model.graph.inputs[0].extras


def test_nodes_come_producers_first_whatever_the_file_order(tmp_path: Path) -> None:
    layers = "".join(_relu(i, f"n{i}") for i in (2, 1, 0))
    edges = [(9, 0, 0, 0), (0, 1, 1, 0), (1, 1, 2, 0), (2, 1, 8, 0)]
    text = _net(_parameter(9, "x", "3") + _result(8) + layers, edges)
    assert [n.name for n in good(put(tmp_path, text)).graph.nodes] == ["n0", "n1", "n2"]


def test_constants_are_views_of_the_mapped_file(tmp_path: Path) -> None:
    array = good(put(tmp_path, BASE)).graph.constants["1:0"].load()
    assert not array.flags.owndata and not array.flags.writeable


def test_utf16_and_comments_and_crlf(tmp_path: Path) -> None:
    path = put(tmp_path, BASE)
    path.write_bytes(BASE.replace("<layers>", "<!-- & --><layers>").replace("\n", "\r\n").encode("utf-16"))
    assert good(path).graph.nodes[0].loc.line == 25


# ------------------------------------------------------------------ findings
EDGE = '<edge from-layer="1" from-port="0" to-layer="2" to-port="1" />'
BROKEN = [
    # (code, replace, by, text on the line that is named)
    ("IRC1003", "</layers>", "", "</net>"),
    ("IRC1004", BASE.split("\n", 1)[1], "<model />", "<model"),
    ("IRC1006", "<net name", "<!DOCTYPE net [<!ENTITY e SYSTEM 'file:///etc/hostname'>]>\n<net name", "<!DOCTYPE"),
    ("IRC1007", 'name="base"', 'name="a&b &e;"', "a&b"),
    ("IRC1010", ' version="11"', "", "<net"),
    ("IRC1011", 'version="11"', 'version="eleven"', "<net"),
    ("IRC1012", 'version="11"', 'version="7"', "<net"),
    ("IRC1013", 'version="11"', 'version="12"', "<net"),
    ("IRC1015", "layers>", "leaves>", "<net"),
    ("IRC1020", ' name="mul"', "", "Multiply"),
    ("IRC1020", 'id="2" name="mul"', 'name="mul"', "Multiply"),
    ("IRC1021", 'id="2" name="mul"', 'id="-1" name="mul"', "Multiply"),
    ("IRC1021", 'id="2" name="mul"', f'id="{"9" * 5000}" name="mul"', "Multiply"),
    ("IRC1022", 'id="1" name="c"', 'id="0" name="c"', '"c"'),
    ("IRC1023", 'type="Parameter" version="opset1"', 'type="Parameter" version="opset99"', '"Parameter"'),
    ("IRC1024", '"Const"', '"Constant"', "Constant"),
    (
        "IRC1025",
        'layout="[N,C,?]" />',
        'layout="[N,C,?]" /><attribute name="layout" version="0" layout="?" />',
        "layout=",
    ),
    ("IRC1030", '<port id="2" precision', "<port precision", 'names="y"'),
    ("IRC1031", '<port id="1"', '<port id="0"', "<port"),
    ("IRC1032", 'id="2" precision="FP32"', 'id="2"', 'names="y"'),
    ("IRC1033", 'id="2" precision="FP32"', 'id="2" precision="FP33"', 'names="y"'),
    ("IRC1034", 'id="1" precision="FP32"', 'id="1" precision="FP33"', "FP33"),
    ("IRC1035", "<dim>3</dim>\n\t\t\t\t</port>\n\t\t\t</input>", "<dim>two</dim></port></input>", "two"),
    ("IRC1035", "<dim>2</dim>", "<dim>-2</dim>", "<dim>-2"),
    ("IRC1036", "<dim>2</dim>", "<dim>2.5</dim>", "<dim>2.5"),
    ("IRC1040", ' to-port="1"', "", "to-layer"),
    ("IRC1041", 'from-layer="1"', 'from-layer="77"', "77"),
    ("IRC1042", 'to-layer="3"', 'to-layer="77"', "77"),
    ("IRC1043", 'from-layer="1" from-port="0"', 'from-layer="1" from-port="5"', 'from-port="5"'),
    ("IRC1044", 'to-port="1"', 'to-port="5"', 'to-port="5"'),
    ("IRC1045", EDGE, EDGE + EDGE, "<edge"),
    ("IRC1046", EDGE, "", '<port id="1"'),
    ("IRC1047", '<edge from-layer="2" from-port="2" to-layer="3" to-port="0" />', "", "Result"),
    ("IRC1048", 'from-layer="1" from-port="0"', 'from-layer="2" from-port="2"', "Multiply"),
    ("IRC1049", 'names="y"', 'names="x"', 'names="x"'),
    ("IRC1060", '<data shape="2,?,1..5" element_type="f32" />', "", "Parameter"),
    ("IRC1061", '1..5" element_type="f32"', '1..5"', "<data"),
    ("IRC1062", ' shape="2,?,1..5"', "", "<data"),
    ("IRC1063", '"2,?,1..5"', '"2,x,3"', "2,x,3"),
    ("IRC1063", '"2,?,1..5"', '"2,?,"', "<data"),
    ("IRC1064", "1..5", "5..1", "5..1"),
    ("IRC1065", 'element_type="f32" shape="3"', 'element_type="FP32" shape="3"', "<data"),
    ("IRC1066", '"2,?,1..5"', '"7,?,1..5"', "<port"),
    ("IRC1070", ' size="12"', "", "<data"),
    ("IRC1071", 'offset="0"', 'offset="18446744073709551612"', "<data"),
    ("IRC1072", 'shape="3" offset', 'shape="-1" offset', "<data"),
    ("IRC1073", 'shape="3" offset', 'shape="4611686018427387904, 4" offset', "<data"),
    ("IRC1073", 'shape="3" offset', 'shape="0, 9223372036854775807" offset', "<data"),
    ("IRC1074", 'size="12"', 'size="8"', "<data"),
    ("IRC1076", 'offset="0"', 'offset="4"', "<data"),
    ("IRC1077", 'element_type="f32" shape="3"', 'element_type="string" shape="3"', "<data"),
    ("IRC1078", 'element_type="f32" shape="3"', 'element_type="dynamic" shape="3"', "<data"),
    ("IRC1090", 'type="Multiply"', 'type="TensorIterator"', "TensorIterator"),
]
WARNINGS = {f"IRC{n}" for n in (1006, 1007, 1015, 1024, 1034, 1036, 1042, 1049, 1061, 1062, 1064, 1066)}


@pytest.mark.parametrize(("code", "old", "new", "line"), BROKEN)
def test_each_mistake_has_its_code_and_its_line(tmp_path: Path, code: str, old: str, new: str, line: str) -> None:
    assert old in BASE
    text = BASE.replace(old, new)
    found = {d.code: d for d in load(put(tmp_path, text))[1]}
    assert code in found, list(found)
    at = found[code].location
    assert at.line is not None and at.column is not None
    assert line in text.split("\n")[at.line - 1]
    assert "{" not in found[code].message + found[code].help
    assert (found[code].severity == "error") == (code not in WARNINGS)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, container_weights.BIN_MISSING),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n", container_weights.BIN_LFS),
        (b'<?xml version="1.0"?>\n<net/>', container_weights.BIN_IS_XML),
        (b"\0" * 8, container_weights.CONST_OUTSIDE),
        (b"", container_weights.CONST_OUTSIDE),
    ],
)
def test_useless_weights_files(tmp_path: Path, content: bytes | None, code: codes.Code) -> None:
    model, found = load(put(tmp_path, BASE, content))
    assert [d.code for d in found] == [code.id] and model is not None and len(model.graph.nodes) == 1
    assert (
        'layer 1 "c"' in found[0].location.where and "12 bytes" in found[0].message and "offset 0" in found[0].message
    )


def test_weights_that_are_a_folder(tmp_path: Path) -> None:
    path = put(tmp_path, BASE, None)
    path.with_suffix(".bin").mkdir()
    assert [d.code for d in load(path)[1]] == ["IRC1083"]


def test_files_that_are_not_models(tmp_path: Path) -> None:
    assert [d.code for d in load(tmp_path / "absent.xml")[1]] == ["IRC1001"]
    assert [d.code for d in load(tmp_path)[1]] == ["IRC1001"]
    assert [d.code for d in load(put(tmp_path, " \n"))[1]] == ["IRC1002"]
    deep = "<net version='11'>" + "<a>" * 5000 + "</a>" * 5000 + "</net>"
    assert [d.code for d in load(put(tmp_path, deep))[1]] == ["IRC1005"]


def test_oversize_constants_are_a_warning(tmp_path: Path) -> None:
    _, found = load(put(tmp_path, BASE.replace('size="12"', 'size="16"'), WEIGHTS + b"\0" * 4))
    assert [(d.code, d.severity) for d in found] == [("IRC1075", "warning")]


def test_entities_are_never_expanded(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE net [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>\n<net name="&b;"'
    model, found = load(put(tmp_path, BASE.replace('<net name="base"', bomb)))
    assert model is not None and model.graph.name == "&b;"
    assert [(d.code, d.severity) for d in found] == [("IRC1006", "warning"), ("IRC1007", "warning")]
    assert model.graph.nodes[0].loc.line == 26


def test_positions_far_beyond_65535_lines(tmp_path: Path) -> None:
    text = BASE.replace("\t<layers>", "\n" * 120_000 + "\t<layers>")
    model = good(put(tmp_path, text))
    assert (model.graph.nodes[0].loc.line, model.graph.nodes[0].loc.column) == (120_025, 3)


def test_errors_of_layers_that_nothing_needs_are_warnings(tmp_path: Path) -> None:
    dead = (
        _relu(5, "dead")
        + '<layer id="6" name="k" type="Const" version="opset1"><output><port id="0" precision="I8"/></output></layer>'
    )
    model, found = load(put(tmp_path, BASE.replace("\t</layers>", dead + "\t</layers>")))
    assert model is not None and {(d.code, d.severity) for d in found} == {
        ("IRC1046", "warning"),
        ("IRC1060", "warning"),
    }
    assert [n.extras.get("dead", False) for n in model.graph.nodes] == [False, True]


def test_a_cycle_names_its_layers(tmp_path: Path) -> None:
    layers = _parameter(0, "x", "3") + _relu(1, "a") + _relu(2, "b") + _result(3)
    _, found = load(put(tmp_path, _net(layers, [(1, 1, 2, 0), (2, 1, 1, 0), (2, 1, 3, 0)])))
    assert [d.message for d in found] == ['these layers depend on each other: 1 "a" -> 2 "b" -> 1 "a"']


def test_constants_beyond_a_cut_off_weights_file_are_one_finding(tmp_path: Path) -> None:
    text = BASE.replace("\t</layers>", _const(5) + _const(6) + "\t</layers>").replace(
        "\t</edges>", "".join(_edges([(n, 0, 2, n - 4)])[7:-8] for n in (5, 6)) + "\t</edges>"
    )
    text = text.replace(
        '<port id="1" precision="FP32">', '<port id="1" precision="FP32"/><port id="7" precision="FP32">'
    )
    text = text.replace('to-port="1" />', 'to-port="7" />').replace(
        '<port id="1" precision="FP32"/>', '<port id="1" precision="FP32"/><port id="2" precision="FP32"/>'
    )
    found = load(put(tmp_path, text, b"\0" * 4))[1]
    assert [d.code for d in found] == ["IRC1076"]
    assert found[0].notes == ("2 more constants end beyond it, the last at byte 40",)


def test_model_without_result(tmp_path: Path) -> None:
    assert [d.code for d in load(put(tmp_path, _net(_parameter(0, "x", "3"), [])))[1]] == ["IRC1016"]


def test_constant_without_output_port(tmp_path: Path) -> None:
    text = _net(
        '<layer id="0" name="x" type="Parameter" version="opset1"><data shape="" element_type="f32"/></layer>', []
    )
    assert "IRC1067" in [d.code for d in load(put(tmp_path, text))[1]]


# ------------------------------------------------------------------- schema
@pytest.mark.parametrize(
    ("code", "old", "new"),
    [
        (
            "IRC1100",
            '<data auto_broadcast="numpy" />',
            '<weights offset="0" size="12"/><data auto_broadcast="numpy" />',
        ),
        ("IRC1101", 'id="2" precision="FP32"', 'id="2" presicion="FP32" precision="FP32"'),
        ("IRC1104", "<edges>", "<edges /><edges>"),
    ],
)
def test_the_schema_says_what_the_reader_ignores(tmp_path: Path, code: str, old: str, new: str) -> None:
    sink, path = Sink(), put(tmp_path, BASE.replace(old, new))
    read(path, sink)
    before = len(sink.diagnostics)
    validate_schema(str(path), sink)
    assert [(d.code, d.severity) for d in sink.diagnostics[before:]] == [(code, "warning")]


def test_the_schema_alone_finds_missing_attributes_and_bad_values(tmp_path: Path) -> None:
    sink = Sink()
    text = BASE.replace('id="2" name="mul"', 'name="mul"').replace("<dim>2</dim>", "<dim>x</dim>")
    validate_schema(str(put(tmp_path, text)), sink)
    assert {d.code for d in sink} == {"IRC1102", "IRC1103"}


def test_what_the_reader_reports_the_schema_does_not_repeat(tmp_path: Path) -> None:
    sink, path = Sink(), put(tmp_path, BASE.replace('id="2" name="mul"', 'name="mul"'))
    read(path, sink)
    before = len(sink.diagnostics)
    validate_schema(str(path), sink)
    assert len(sink.diagnostics) == before and before


def test_children_in_any_order_and_unknown_sections_are_valid(tmp_path: Path) -> None:
    sink = Sink()
    text = BASE.replace("<edges>", "<statistics><layer/></statistics><edges>")
    validate_schema(str(put(tmp_path, text)), sink)
    assert not list(sink)


# ------------------------------------------------------------------- writing
def test_round_trip_is_exact(tmp_path: Path) -> None:
    path = put(tmp_path, BASE)
    write(good(path), tmp_path / "copy.xml")
    assert (tmp_path / "copy.xml").read_text() == path.read_text()
    assert (tmp_path / "copy.bin").read_bytes() == WEIGHTS
    assert sorted(os.listdir(tmp_path)) == ["copy.bin", "copy.xml", "m.bin", "m.xml"]


def test_writing_over_the_source(tmp_path: Path) -> None:
    path = put(tmp_path, BASE, WEIGHTS + b"tail")
    model = good(path)
    write(model, path)
    assert path.with_suffix(".bin").read_bytes() == WEIGHTS and path.read_text() == BASE


def test_odd_numbering_becomes_regular_and_then_stays(tmp_path: Path) -> None:
    text = BASE.replace('id="2" name="mul"', 'id="900" name="mul"').replace('to-layer="2"', 'to-layer="900"')
    text = text.replace('from-layer="2" from-port="2"', 'from-layer="900" from-port="2"')
    write(good(put(tmp_path, text)), tmp_path / "copy.xml")
    assert (tmp_path / "copy.xml").read_text() == BASE


def test_legacy_sections_survive(tmp_path: Path) -> None:
    legacy = '\t<meta_data>\n\t\t<MO_version value="2021" />\n\t</meta_data>\n'
    head, tail = BASE.split("\t<rt_info>\n\t\t<info", 1)
    text = head + legacy + "</net>\n"
    assert tail
    write(good(put(tmp_path, text)), tmp_path / "copy.xml")
    assert (tmp_path / "copy.xml").read_text() == text


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail() -> np.ndarray:
        raise RuntimeError("no data")

    graph = RawGraph(constants={"c": RawTensor("c", f32, (1,), fail)}, outputs=[RawValue("c")])
    with pytest.raises(RuntimeError):
        write(RawModel("openvino", 11, graph), tmp_path / "m.xml")
    assert not os.listdir(tmp_path)


def built() -> RawModel:
    """A model as a converter makes it: no places in a file, repeated names, equal blobs."""
    graph = RawGraph("built", inputs=[RawValue("x", ("x", "a,b"), TensorType.of(f32, [Dim.symbol("n"), 2]))])
    for key in ("k", "l"):
        graph.constants[key] = RawTensor("same", f32, (2,), lambda: np.ones(2, np.float32))
    out = TensorType.of(f32, [Dim.symbol("n"), 2])
    graph.nodes = [
        RawNode("Add", 1, name="add", inputs=["x", "k"], outputs=[RawValue("s", (), out)]),
        RawNode("Add", 1, name="add", inputs=["s", "l"], outputs=[RawValue("t", ('t<&"',), out)]),
    ]
    graph.outputs = [RawValue("t", ('t<&"',), out, extras={"layer_name": "out", "layout": "[N,C]"})]
    return RawModel("openvino", 11, graph)


def test_writing_a_model_that_comes_from_no_file(tmp_path: Path) -> None:
    path = tmp_path / "m.xml"
    write(built(), path)
    first = path.read_bytes()
    model = good(path)
    assert [n.name for n in model.graph.nodes] == ["add", "add0"]
    assert [c.name for c in model.graph.constants.values()] == ["same", "same0"]
    assert path.with_suffix(".bin").stat().st_size == 8, "equal blobs are stored once"
    assert model.graph.outputs[0].names == ('t<&"',) and model.graph.outputs[0].extras["layout"] == "[N,C]"
    write(model, path)
    assert path.read_bytes() == first


# -------------------------------------------------------------------- bodies
def _parameter(number: int, name: str, shape: str, kind: str = "f32") -> str:
    return (
        f'<layer id="{number}" name="{name}" type="Parameter" version="opset1"><data shape="{shape}" '
        f'element_type="{kind}"/><output><port id="0" precision="{dtype(kind).ov_port}"/></output></layer>'
    )


def _const(number: int) -> str:
    return (
        f'<layer id="{number}" name="k{number}" type="Const" version="opset1"><data element_type="f32" shape="1" '
        f'offset="36" size="4"/><output><port id="0" precision="FP32"/></output></layer>'
    )


def _relu(number: int, name: str) -> str:
    return (
        f'<layer id="{number}" name="{name}" type="ReLU" version="opset1">'
        '<input><port id="0" precision="FP32"/></input>'
        '<output><port id="1" precision="FP32"/></output></layer>'
    )


def _result(number: int) -> str:
    port = '<input><port id="0" precision="FP32"/></input>'
    return f'<layer id="{number}" name="r{number}" type="Result" version="opset1">{port}</layer>'


def _edges(edges: list[tuple[int, int, int, int]]) -> str:
    rows = (f'<edge from-layer="{a}" from-port="{b}" to-layer="{c}" to-port="{d}"/>' for a, b, c, d in edges)
    return f"<edges>{''.join(rows)}</edges>"


def _net(layers: str, edges: list[tuple[int, int, int, int]]) -> str:
    return f'<net name="m" version="11"><layers>{layers}</layers>{_edges(edges)}<rt_info/></net>'


def _iterator(entries: str, back: str = '<edge from-layer="12" to-layer="10"/>') -> str:
    body = _parameter(10, "p", "1") + _relu(11, "q") + _result(12)
    layer = (
        '<layer id="1" name="ti" type="TensorIterator" version="opset1">'
        f"<port_map>{entries}</port_map><back_edges>{back}</back_edges>"
        '<input><port id="0" precision="FP32"/></input><output><port id="1" precision="FP32"/></output>'
        f"<body><layers>{body}</layers>{_edges([(10, 0, 11, 0), (11, 1, 12, 0)])}<rt_info/></body></layer>"
    )
    return _net(_parameter(0, "x", "1") + layer + _result(2), [(0, 0, 1, 0), (1, 1, 2, 0)])


ENTRIES = '<input external_port_id="0" internal_layer_id="10"/><output external_port_id="1" internal_layer_id="12"/>'


def test_bodies_and_port_maps(tmp_path: Path) -> None:
    path = put(tmp_path, _iterator(ENTRIES))
    node = good(path).graph.nodes[0]
    body = node.bodies["body"]
    assert [v.key for v in body.inputs] == ["1/body/10:0"] and body.inputs[0].extras["id"] == "10"
    assert body.nodes[0].inputs == ["1/body/10:0"] and body.outputs[0].key == "1/body/11:1"
    assert body.nodes[0].loc.where.startswith('layer 1 "ti" (TensorIterator, opset1), body, layer 11')
    assert node.extras["port_map"][0] == {"kind": "input", "external_port_id": "0", "internal_layer_id": "10"}
    write(good(path), tmp_path / "copy.xml")
    copy = good(tmp_path / "copy.xml").graph.nodes[0]
    assert [e["internal_layer_id"] for e in copy.extras["port_map"]] == ["0", "2"]
    assert copy.extras["back_edges"] == [{"from-layer": "2", "to-layer": "0"}]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("IRC1091", _iterator(ENTRIES.replace('"12"', '"99"'))),
        ("IRC1091", _iterator(ENTRIES.replace('external_port_id="0"', 'external_port_id="7"'))),
        ("IRC1092", _iterator(ENTRIES, '<edge from-layer="12" to-layer="99"/>')),
        ("IRC1093", _iterator(ENTRIES.split("/>")[1] + "/>")),
    ],
)
def test_port_maps_must_point_at_something(tmp_path: Path, code: str, text: str) -> None:
    found = load(put(tmp_path, text))[1]
    assert code in [d.code for d in found] and all(d.location.line == 1 for d in found)


# ------------------------------------------------------------------- packing
def test_strings(tmp_path: Path) -> None:
    blob = bytes.fromhex("03000000000000000200000002000000050000006869782c79")
    assert pack_strings(["hi", "", "x,y"]) == blob
    text = BASE.replace(
        'element_type="f32" shape="3" offset="0" size="12"', 'element_type="string" shape="3" offset="0" size="25"'
    )
    text = text.replace(
        '<port id="0" precision="FP32">\n\t\t\t\t\t<dim>3', '<port id="0" precision="STRING">\n\t\t\t\t\t<dim>3'
    )
    model = good(put(tmp_path, text, blob))
    assert model.graph.constants["1:0"].load().tolist() == ["hi", "", "x,y"]
    assert model.graph.constants["1:0"].dtype == string
    write(model, tmp_path / "copy.xml")
    assert (tmp_path / "copy.bin").read_bytes() == blob


def test_scalars_and_empty_tensors(tmp_path: Path) -> None:
    graph = RawGraph("m")
    graph.constants["s"] = RawTensor("s", i64, (), lambda: np.array(7))
    graph.constants["e"] = RawTensor("e", f32, (0, 2), lambda: np.zeros((0, 2), np.float32))
    graph.outputs = [RawValue("s"), RawValue("e")]
    write(RawModel("openvino", 11, graph), tmp_path / "m.xml")
    assert (tmp_path / "m.bin").stat().st_size == 9
    again = good(tmp_path / "m.xml").graph.constants
    assert [c.load().shape for c in again.values()] == [(), (0, 2)] and again["0:0"].load() == 7


# ------------------------------------------------------------------ OpenVINO
def test_openvino_reads_what_is_written(tmp_path: Path) -> None:
    ov = pytest.importorskip("openvino")
    write(built(), tmp_path / "m.xml")
    model = ov.Core().read_model(str(tmp_path / "m.xml"))
    assert [op.get_friendly_name() for op in model.get_ordered_ops() if op.get_type_name() == "Add"] == ["add", "add0"]
    assert model.input(0).get_names() == {"x", "a,b"} and model.output(0).get_names() == {'t<&"'}
    out = ov.Core().compile_model(model, "CPU")(np.zeros((3, 2), np.float32))[0]
    assert out.tolist() == [[2, 2]] * 3


def test_the_layout_is_that_of_openvinos_serializer(tmp_path: Path) -> None:
    ov = pytest.importorskip("openvino")
    path = put(tmp_path, BASE.replace("conversion &lt;parameters>", "conversion_parameters"))
    ov.serialize(ov.Core().read_model(str(path)), str(tmp_path / "theirs.xml"))
    write(good(tmp_path / "theirs.xml"), tmp_path / "ours.xml")
    assert (tmp_path / "ours.xml").read_text() == (tmp_path / "theirs.xml").read_text()
    assert (tmp_path / "ours.bin").read_bytes() == (tmp_path / "theirs.bin").read_bytes()


def test_parameters_of_one_name_do_not_share_their_sizes(tmp_path: Path) -> None:
    text = _net(_parameter(0, "x", "?") + _parameter(1, "x", "?") + _result(2), [(1, 0, 2, 0)])
    types = [v.type for v in good(put(tmp_path, text)).graph.inputs]
    assert types[0] != types[1]
