"""The rows of ONNX Runtime's own domain against its schemas, as test_forms.py does with the standard's."""

from typing import Any

import onnx
import pytest

from irc.opdef.forms import Form
from irc.opdef.registry import FORMS
from tests.opdef.test_forms import is_of_onnxruntime, onnx_differences

state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
SCHEMAS = {(s.domain, s.name): s for s in state.get_all_operator_schema()}
KNOWN: dict[str, dict[str, str]] = {
    "GroupQueryAttention": {
        "past_key": "caches are not quantized",
        "past_value": "caches are not quantized",
        "4 results": "scores are not read",
    },
    "QLinearConcat": {"inputs": "in turn a quantized operand, its scale and its zero point"},
}
"""Differences that are meant, by operator: what the difference starts with → why."""
FORMS_OF_ONNXRUNTIME = [
    pytest.param(form, id=form.name) for rows in FORMS.values() for form, _ in rows if is_of_onnxruntime(form)
]


def default_of(attribute: Any) -> dict[str, Any]:
    proto = onnx.AttributeProto()
    proto.ParseFromString(attribute._default_value)
    value = onnx.helper.get_attribute_value(proto) if proto.type else None
    return {} if value is None else {"default": value.decode() if isinstance(value, bytes) else value}


def as_oracle(schema: Any) -> dict[str, Any]:
    """A schema in the words of schemas/onnx_ops.json."""
    return {
        "domain": schema.domain,
        "name": schema.name,
        "since_version": schema.since_version,
        "attributes": {n: {"required": a.required, **default_of(a)} for n, a in schema.attributes.items()},
        "inputs": [{"name": p.name, "type": p.typeStr} for p in schema.inputs],
        "types": {c.type_param_str: list(c.allowed_type_strs) for c in schema.type_constraints},
        "arity": [schema.min_input, schema.max_input, schema.min_output, schema.max_output],
    }


@pytest.mark.parametrize("form", FORMS_OF_ONNXRUNTIME)
def test_rows_are_those_of_onnxruntime(form: Form) -> None:
    found = onnx_differences(as_oracle(SCHEMAS[form.domain, form.name]))
    assert not [d for d in found if not any(d.startswith(k) for k in KNOWN.get(form.name, {}))]
