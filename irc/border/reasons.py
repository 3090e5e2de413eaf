"""Why a format cannot say an operation, in the words of a finding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from irc.border import support
from irc.diagnostics import Problem
from irc.diagnostics.codes import conversion as codes
from irc.ir.graph import Origin, Value
from irc.ir.types import DType, TensorType, Type, dynamic, string
from irc.opdef.base import Op
from irc.opdef.forms import Form
from irc.opdef.opaque import Opaque


def facts_of(format: str, op: Op, inputs: Sequence[Value | None]) -> dict[str, str]:
    """The facts of every refusal: operation, operand types, target format."""
    types = ", ".join(str(v.type) for v in inputs if v is not None)
    return {"op": str(op), "types": types, "target": "OpenVINO" if format == "openvino" else "ONNX"}


def not_copied(format: str, op: Opaque, origin: Origin | None, asked: int) -> Problem:
    """The 4xxx for an operation that is not understood, which only its own format and definition can say."""
    source, target = ("OpenVINO", "ONNX") if op.format == "openvino" else ("ONNX", "OpenVINO")
    if op.format != format:
        return Problem(codes.CANNOT_CONVERT, op=op.type, source=source, target=target)
    lowest = op.version if origin is None else support.first_that_means_the_same(op.format, origin.raw)
    labels = [support.opset_label(op.format, n) for n in (lowest, asked)]
    return Problem(codes.CANNOT_COPY, op=op.type, made_for=labels[0], asked=labels[1])


def why_not(format: str, op: Op, inputs: Sequence[Value | None], outputs: Sequence[Value]) -> str:
    """What of the operation the format lacks: its types first, then the operation, then what this one asks of it."""
    types = [v.type for v in (*inputs, *outputs) if v is not None]
    types += [v.type for region in op.regions for v in (*region.inputs, *region.outputs)]
    if format == "openvino" and any(t is not None and not isinstance(t, TensorType) for t in types):
        return "it has tensors only, no sequences, optional values or maps"
    lacking = [d for d in _element_types(types) if (d.ov if format == "openvino" else d.onnx) is None]
    if lacking:
        return f"it has no element type {lacking[0]}"
    rows: Sequence[Form] = op.openvino if format == "openvino" else op.onnx
    own = [row for row in rows if row.name and not support.is_custom(format, row.domain)]
    called = " or ".join(dict.fromkeys(row.name for row in own))
    if not own and format == "openvino" and string in _element_types(types):
        return "it moves, packs and unpacks strings, and computes nothing else with them"
    if not own:
        return "it has no such operation, and irc knows none of its operations that make it up"
    unfit = _unfit(own, op, inputs)
    if unfit is not None:
        return f"its {called} has no {unfit}"
    return f"its {called} has no such attributes or operands, and irc knows no other way to make it up"


def _element_types(types: Sequence[Type | None]) -> Iterator[DType]:
    for t in types:
        if isinstance(t, TensorType) and t.dtype != dynamic:
            yield t.dtype


def _unfit(rows: Sequence[Form], op: Op, inputs: Sequence[Value | None]) -> DType | None:
    """The element type of an operand that no row has, if one is that."""
    for i, value in enumerate(inputs):
        if value is None or not isinstance(value.type, TensorType):
            continue
        allowed = [row for row in rows if _takes(row, op, i, value.dtype)]
        if not allowed:
            return value.dtype
    return None


def _takes(row: Form, op: Op, index: int, dtype: DType) -> bool:
    if row.sig is not None or index >= len(op.sig.inputs):
        return True  # its operands are others
    allowed = op.sig.allowed(op.sig.param(index), row.types or None)
    return not allowed or dtype in allowed
