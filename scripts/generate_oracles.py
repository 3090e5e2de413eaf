"""Writes the operation oracles that tests hold irc's tables against.

    python scripts/generate_oracles.py onnx                        from the installed onnx package
    python scripts/generate_oracles.py openvino CATALOGUE.json     from a catalogue of OpenVINO's operations

The results are schemas/onnx_ops.json and schemas/openvino_ops.json, one operation version per line.
They are independent of irc on purpose: nothing here imports it.

CATALOGUE.json is `{"openvino": version, "ops": [...]}`, an operation having `type`, `opset`,
`member_of_opsets`, `inputs`, `outputs` and `attributes`; it is made by serializing single-operation
models with OpenVINO, deleting one attribute at a time, and reading them again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

SCHEMAS = Path(__file__).resolve().parent.parent / "schemas"


# ------------------------------------------------------------------------------- ONNX
def onnx_table() -> dict[str, Any]:
    """Every version of every operation of every domain.

    Float defaults are the shortest decimals that give the same float32, so compare them as float32.
    """
    schemas = sorted(defs.get_all_schemas_with_history(), key=lambda s: (s.domain, s.name, s.since_version))
    versions = {
        d: defs.onnx_opset_version() if not d else max(s.since_version for s in schemas if s.domain == d)
        for d in sorted({s.domain for s in schemas})
    }
    return {"onnx": onnx.__version__, "newest": versions, "ops": [_onnx_op(s) for s in schemas]}


def _onnx_op(schema: defs.OpSchema) -> dict[str, Any]:
    return {
        "name": schema.name,
        "domain": schema.domain,
        "since_version": schema.since_version,
        "deprecated": schema.deprecated,
        "has_function": schema.has_function or schema.has_context_dependent_function,
        "arity": [schema.min_input, schema.max_input, schema.min_output, schema.max_output],
        "attributes": {name: _onnx_attribute(schema.attributes[name]) for name in sorted(schema.attributes)},
        "inputs": [_onnx_port(p) for p in schema.inputs],
        "outputs": [_onnx_port(p) for p in schema.outputs],
        "types": {c.type_param_str: sorted(c.allowed_type_strs) for c in schema.type_constraints},
    }


def _onnx_attribute(attribute: defs.OpSchema.Attribute) -> dict[str, Any]:
    row: dict[str, Any] = {"type": attribute.type.name, "required": attribute.required}
    if attribute.default_value.type != onnx.AttributeProto.UNDEFINED:
        row["default"] = _plain(helper.get_attribute_value(attribute.default_value))
    return row


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float):
        return float(str(np.float32(value)))
    if isinstance(value, onnx.TensorProto):
        return {
            "type": onnx.TensorProto.DataType.Name(value.data_type),
            "dims": list(value.dims),
            "values": numpy_helper.to_array(value).reshape(-1).tolist(),
        }
    if isinstance(value, int | str):
        return value
    return [_plain(item) for item in value]


def _onnx_port(port: defs.OpSchema.FormalParameter) -> dict[str, Any]:
    row: dict[str, Any] = {"name": port.name, "type": port.type_str, "option": port.option.name}
    if port.option == defs.OpSchema.FormalParameterOption.Variadic:
        row |= {"homogeneous": port.is_homogeneous, "min_arity": port.min_arity}
    return row


# --------------------------------------------------------------------------- OpenVINO
def openvino_table(catalogue: dict[str, Any]) -> dict[str, Any]:
    """Every definition of every operation, with the opset that its layers name.

    An attribute's `absent` is the value that OpenVINO's reader takes without it; without `absent`,
    `accepts_absence` says whether the reader refuses (false) or it is not known (null).
    """
    ops = sorted(catalogue["ops"], key=lambda op: (op["type"], op["member_of_opsets"][0]))
    return {"openvino": catalogue["openvino"].split("-")[0], "ops": [_openvino_op(op) for op in ops]}


def _openvino_op(op: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": op["type"],
        "opset": int(op["opset"].removeprefix("opset")),
        "member_of_opsets": op["member_of_opsets"],
        "inputs": [_openvino_input(port) for port in op["inputs"]],
        "outputs": [port["type"] for port in op["outputs"]],
        "attributes": [_openvino_attribute(a) for a in sorted(op["attributes"], key=lambda a: a["name"])],
    }


def _openvino_input(port: dict[str, Any]) -> dict[str, Any]:
    row = {"name": port["name"], "required": port["required"], "types": port["types"]}
    return row | {"variadic": True} if port.get("variadic") else row


def _openvino_attribute(attribute: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {key: attribute[key] for key in ("name", "type", "required", "default")}
    row["accepts_absence"] = attribute.get("reader_accepts_absence")
    if "default_when_absent" in attribute:
        row["absent"] = attribute["default_when_absent"]
    if attribute["values"] is not None:
        row["values"] = sorted(attribute["values"])
    return row


# ------------------------------------------------------------------------------ files
def rendered(table: dict[str, Any]) -> str:
    """The table as JSON, each operation on a line of its own, so that a change is a readable diff."""
    head = "".join(f"{json.dumps(k)}: {json.dumps(v)},\n" for k, v in table.items() if k != "ops")
    return "{\n" + head + '"ops": [\n' + ",\n".join(json.dumps(op) for op in table["ops"]) + "\n]\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    formats = parser.add_subparsers(dest="format", required=True)
    formats.add_parser("onnx")
    formats.add_parser("openvino").add_argument("catalogue", type=Path)
    arguments = parser.parse_args()
    if arguments.format == "onnx":
        (SCHEMAS / "onnx_ops.json").write_text(rendered(onnx_table()))
    else:
        catalogue = json.loads(arguments.catalogue.read_text())
        (SCHEMAS / "openvino_ops.json").write_text(rendered(openvino_table(catalogue)))


if __name__ == "__main__":
    main()
