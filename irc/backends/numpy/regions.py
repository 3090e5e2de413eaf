"""If and Loop in Python: their regions are functions of the module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from irc.backends.numpy.literals import dtype_text
from irc.backends.numpy.text import PyName, snake
from irc.diagnostics import Problem
from irc.diagnostics.codes import runtime_io as codes
from irc.ir.graph import Node, Value
from irc.ir.types import TensorType
from irc.ops.control import If, Loop

if TYPE_CHECKING:
    from irc.backends.numpy.module import ModuleWriter


def statements(writer: ModuleWriter, node: Node) -> list[str]:
    """Write a node with regions as statements.  Raises Problem for an operation that is none of these."""
    if isinstance(node.op, If):
        return _if(writer, node, node.op)
    if isinstance(node.op, Loop):
        return _loop(writer, node, node.op)
    raise Problem(codes.NO_NUMPY_SOURCE, op=node.op.name, reason="it is no If and no Loop")


def _if(writer: ModuleWriter, node: Node, op: If) -> list[str]:
    condition, *captures = map(writer.operand, node.operands)
    title = snake(node.name or "if")
    bodies = [
        writer.region(region, f"{title}_{word}", f"Results of {node.name or 'an If'} if its condition is {word}.")
        for region, word in ((op.then, "true"), (op.otherwise, "false"))
    ]
    results = ", ".join(writer.local(v) for v in node.outputs)
    comma = "," if len(node.outputs) == 1 else ""
    given = ", ".join(captures)
    return [
        f"if {condition}:",
        f"    {results}{comma} = {bodies[0]}({given})",
        "else:",
        f"    {results}{comma} = {bodies[1]}({given})",
    ]


def _loop(writer: ModuleWriter, node: Node, op: Loop) -> list[str]:
    count, condition = (*node.inputs, None, None)[:2]
    operands = [v for v in node.inputs[2:] if v is not None]
    initial, captures = operands[: op.carried], operands[op.carried :]
    body = writer.region(op.body, f"{snake(node.name or 'loop')}_body", f"One run of {node.name or 'a Loop'}.")
    carried, stacked = node.outputs[: op.carried], node.outputs[op.carried :]
    names = [writer.local(v) for v in carried]
    lists = [_fresh(writer, f"{v.name}_rows") for v in stacked]
    number, going = _fresh(writer, "number"), _fresh(writer, "going")
    lines = [f"{name} = {writer.operand(v)}" for name, v in zip(names, initial, strict=True)]
    lines += [f"{rows} = []" for rows in lists]
    lines += [f"{number} = 0", f"{going} = {'True' if condition is None else writer.operand(condition)}"]
    limit = "" if count is None else f" and {number} < {writer.operand(count)}"
    row = [_fresh(writer, "row") for _ in lists]
    given = ", ".join([f"np.asarray({number})", f"np.asarray({going})", *names, *map(writer.operand, captures)])
    targets = ", ".join([going, *names, *row])
    comma = "" if names or row else ","
    lines += [f"while {going}{limit}:", f"    {targets}{comma} = {body}({given})", f"    {number} += 1"]
    lines += [f"    {rows}.append({new})" for rows, new in zip(lists, row, strict=True)]
    results = op.body.outputs[1 + op.carried :]
    for value, rows, inner in zip(stacked, lists, results, strict=True):
        lines.append(f"{writer.local(value)} = {_stacked(rows, inner)}")
    return lines


def _fresh(writer: ModuleWriter, hint: str) -> PyName:
    return PyName.of_model(hint, writer.taken)


def _stacked(rows: PyName, inner: Value) -> str:
    """Write what stacks the rows, also if there are none; then sizes that only a run tells are 0."""
    if not isinstance(inner.type, TensorType):
        return str(rows)
    shape = (0, *(d.const or 0 for d in inner.type.shape or ()))
    return f"np.stack({rows}) if {rows} else np.zeros({shape}, {dtype_text(inner.dtype.numpy)})"
