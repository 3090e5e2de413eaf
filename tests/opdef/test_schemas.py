"""The oracles in schemas/ are what the generator writes, and are complete and consistent."""

import importlib.util
import json
from pathlib import Path

import jsonschema
import onnx
import pytest

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "schemas"
ONNX = json.loads((SCHEMAS / "onnx_ops.json").read_text())
OPENVINO = json.loads((SCHEMAS / "openvino_ops.json").read_text())


def generator():
    spec = importlib.util.spec_from_file_location("generate_oracles", ROOT / "scripts/generate_oracles.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(onnx.__version__ != ONNX["onnx"], reason="the oracle is of another version of onnx")
def test_the_onnx_oracle_is_what_the_installed_package_says():
    made = generator()
    assert made.rendered(made.onnx_table()) == (SCHEMAS / "onnx_ops.json").read_text()


def test_the_onnx_oracle_holds_every_version():
    keys = [(op["domain"], op["name"], op["since_version"]) for op in ONNX["ops"]]
    assert keys == sorted(set(keys))
    assert [v for d, n, v in keys if (d, n) == ("", "TopK")][:3] == [1, 10, 11]
    assert {"", "ai.onnx.ml"} <= set(ONNX["newest"])
    softmax = next(op for op in ONNX["ops"] if op["name"] == "Softmax" and op["since_version"] == 11)
    assert softmax["attributes"]["axis"] == {"type": "INT", "required": False, "default": 1}


def test_every_type_variable_of_the_onnx_oracle_is_declared():
    for op in ONNX["ops"]:
        for port in (*op["inputs"], *op["outputs"]):
            assert "(" in port["type"] or port["type"] in op["types"], op["name"]


def test_the_openvino_oracle_is_consistent():
    keys = [(op["type"], op["member_of_opsets"][0]) for op in OPENVINO["ops"]]
    assert keys == sorted(set(keys)) and len(keys) > 200
    for op in OPENVINO["ops"]:
        assert op["opset"] in op["member_of_opsets"], op["type"]
        names = [a["name"] for a in op["attributes"]]
        assert names == sorted(set(names)), op["type"]
        assert all(a["accepts_absence"] in (True, False, None) for a in op["attributes"])
    in_opset_1 = {op["type"] for op in OPENVINO["ops"] if 1 in op["member_of_opsets"]}
    assert {"Convolution", "MatMul", "Const", "ReLU", "SoftMax"} <= in_opset_1  # as files spell them


def test_the_openvino_table_keeps_what_the_catalogue_says():
    attribute = {
        "name": "b",
        "type": "enum",
        "required": True,
        "default": None,
        "values": ["y", "x"],
        "how": "-",
        "reader_accepts_absence": True,
        "default_when_absent": "x",
    }
    port = {"name": "data", "required": True, "types": ["f32"], "variadic": True, "spec_types": ["float"]}
    op = {
        "type": "T",
        "opset": "opset3",
        "member_of_opsets": [3, 4],
        "inputs": [port],
        "attributes": [attribute],
        "outputs": [{"index": 0, "type": {"same_as_input": 0}}],
        "how": [],
    }
    table = generator().openvino_table({"openvino": "1.2.3-4-abc", "ops": [op]})
    assert table == {
        "openvino": "1.2.3",
        "ops": [
            {
                "type": "T",
                "opset": 3,
                "member_of_opsets": [3, 4],
                "outputs": [{"same_as_input": 0}],
                "inputs": [{"name": "data", "required": True, "types": ["f32"], "variadic": True}],
                "attributes": [
                    {
                        "name": "b",
                        "type": "enum",
                        "required": True,
                        "default": None,
                        "accepts_absence": True,
                        "absent": "x",
                        "values": ["x", "y"],
                    }
                ],
            }
        ],
    }


def finding(**changes):
    place = {"file": "m.onnx", "line": None, "column": None, "where": "graph main", "source": ""}
    found = {"code": "IRC1402", "severity": "error", "message": "m", "location": place, "notes": [], "help": ""}
    return {"schema": 1, "diagnostics": [found | changes]}


def test_the_schema_of_diagnostics():
    schema = json.loads((SCHEMAS / "diagnostics.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid(finding()) and validator.is_valid({"schema": 1, "diagnostics": []})
    for wrong in ({"code": "IRC1"}, {"severity": "fatal"}, {"message": ""}, {"location": {}}, {"extra": 1}):
        assert not validator.is_valid(finding(**wrong)), wrong
