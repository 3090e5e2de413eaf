"""What the border knows of the formats' operation sets: which exist, which irc lacks and why."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import NamedTuple

from irc.diagnostics import Facts, Loc, Sink
from irc.diagnostics.codes import shape as codes
from irc.formats.document import RawGraph, RawNode, RawValue
from irc.ir.graph import Value
from irc.ir.types import TensorType, Type, dynamic
from irc.opdef.base import Op
from irc.opdef.codecs import AsInput, Codec, Floats, Strs
from irc.opdef.forms import Form

NEWEST_OPENVINO_OPSET = 16
IGNORED_OPENVINO_ATTRIBUTES = frozenset({"PrimitivesPriority", "alt_width", "execOrder", "execTimeMcs"})


class Unsupported(NamedTuple):
    """An operation of a format that irc lacks, the first opset that has it, and why."""

    name: str
    since: int
    reason: str


@cache
def unsupported() -> dict[tuple[str, str, str], Unsupported]:
    """(format, domain, lower-case name) → row of unsupported.toml."""
    text = resources.files("irc.ops").joinpath("unsupported.toml").read_text("utf-8")
    rows = tomllib.loads(text).get("operation", [])
    return {
        (r["format"], r.get("domain", ""), r["name"].lower()): Unsupported(r["name"], int(r["since"]), r["reason"])
        for r in rows
    }


def is_custom(format: str, domain: str) -> bool:
    """Whether an ONNX domain is none of the standard's."""
    return format == "onnx" and domain not in ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")


def why_unsupported(format: str, raw: RawNode) -> str:
    """Why irc lacks an operation that exists; empty if it does not exist in that opset."""
    row = unsupported().get((format, raw.domain, raw.type.lower()))
    return row.reason if row is not None and row.since <= raw.version else ""


def opset_label(format: str, version: int) -> str:
    return f"opset{version}" if format == "openvino" else f"opset {version}"


def opset_name(format: str, raw: RawNode) -> str:
    """The operation set as the file names it."""
    if format == "openvino":
        return str(raw.extras.get("version", f"opset{raw.version}"))
    return f"{raw.domain or 'ai.onnx'} opset {raw.version}"


@cache
def newest_onnx_opset() -> int:
    import onnx

    return int(onnx.defs.onnx_opset_version())


def newest_opset(format: str) -> str:
    newest = NEWEST_OPENVINO_OPSET if format == "openvino" else newest_onnx_opset()
    return opset_label(format, newest)


def opset_exists(format: str, raw: RawNode) -> bool:
    if format == "openvino":
        return 1 <= raw.version <= NEWEST_OPENVINO_OPSET
    return raw.domain != "" or 1 <= raw.version <= newest_onnx_opset()


def means_the_same(format: str, raw: RawNode, opsets: Mapping[str, int], max_opset: int) -> bool:
    """Whether a node that irc has no definition of, and all in its bodies, may be copied into these operation sets."""
    if format == "openvino":
        own = raw.version <= max_opset
    else:
        own = _schema(raw.type, raw.domain, raw.version) == _schema(raw.type, raw.domain, opsets.get(raw.domain, 1))
    return own and all(means_the_same(format, n, opsets, max_opset) for body in bodies_of(raw) for n in body.nodes)


def first_that_means_the_same(format: str, raw: RawNode) -> int:
    """The lowest operation set that a node which irc has no definition of may be copied into."""
    found = raw.version
    while found > 1 and means_the_same(format, raw, {raw.domain: found - 1}, found - 1):
        found -= 1
    return found


@cache
def _schema(name: str, domain: str, opset: int) -> int:
    """The version of the definition of an ONNX operation; 0 where the standard has none."""
    import onnx

    try:
        found = onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        return 0
    return -opset if found.deprecated else int(found.since_version)


def bodies_of(raw: RawNode) -> Iterator[RawGraph]:
    """The graphs a node holds."""
    yield from raw.bodies.values()
    for value in raw.attrs.values():
        for item in value if isinstance(value, list) else [value]:  # pyright: ignore[reportUnknownVariableType]
            if isinstance(item, RawGraph):
                yield item


def is_ignored_attribute(format: str, name: str) -> bool:
    return format == "openvino" and name in IGNORED_OPENVINO_ATTRIBUTES


def named_keys(raw: RawNode) -> dict[str, list[str]]:
    """Keys that attributes of the node name (ONNX), by attribute."""
    if (raw.domain, raw.type) != ("ai.onnx.preview.training", "Gradient"):
        return {}
    given = {k: raw.attrs[k] for k in ("xs", "zs", "y") if k in raw.attrs}
    return {k: [str(key) for key in (v if isinstance(v, list) else [v])] for k, v in given.items()}  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]


def captured_keys(raw: RawNode) -> list[str]:
    """Keys that the node uses besides its operands (ONNX): in attributes, and in bodies from the graph around them."""
    found: dict[str, None] = dict.fromkeys(key for keys in named_keys(raw).values() for key in keys)
    for value in raw.attrs.values():
        for graph in value if isinstance(value, list) else [value]:  # pyright: ignore[reportUnknownVariableType]
            if isinstance(graph, RawGraph):
                found.update(dict.fromkeys(free_keys(graph)))
    return list(found)


def free_keys(graph: RawGraph) -> list[str]:
    """Keys that a body uses and does not define (ONNX)."""
    inside = {v.key for v in graph.inputs} | set(graph.constants)
    free: dict[str, None] = {}
    for node in graph.nodes:
        for key in [*node.inputs, *captured_keys(node)]:
            if key and key not in inside:
                free[key] = None
        inside |= {v.key for v in node.outputs}
    free.update(dict.fromkeys(v.key for v in graph.outputs if v.key not in inside))
    return list(free)


def title(raw: RawNode) -> str:
    """A node as messages call it."""
    return f'{raw.type} "{raw.name}"' if raw.name else raw.type


def compare_declared(sink: Sink, value: Value, declared: RawValue, what: str) -> None:
    """Warn where the type the file declares disagrees with inference; take it where inference knows nothing."""
    said, known = declared.type, value.type
    compare_types(sink, said, known, what, declared.loc)
    if isinstance(said, TensorType) and isinstance(known, TensorType) and known.dtype == dynamic != said.dtype:
        value.type = said


def compare_inputs(sink: Sink, inputs: Sequence[Value | None], raw: RawNode) -> None:
    """Warn where an input port (OpenVINO) declares another type than its producer has."""
    for i, (value, said) in enumerate(zip(inputs, raw.input_types, strict=False)):
        if value is not None:
            compare_types(sink, said, value.type, f"input {i} of {title(raw)}", raw.loc)


def compare_types(sink: Sink, said: Type | None, known: Type | None, what: str, loc: Loc) -> None:
    if not isinstance(said, TensorType) or not isinstance(known, TensorType):
        return
    facts: Facts = {"value": what, "declared": said, "inferred": known}
    port = re.match(r"input \d+ ", what)
    if said.dtype != dynamic and known.dtype != dynamic and said.dtype != known.dtype:
        sink.report(codes.DECLARED_TYPE, loc, **facts)
    elif said.shape is not None and known.shape is not None:
        other = [k for k, (a, b) in enumerate(zip(said.shape, known.shape, strict=False)) if a.equals(b) is False]
        if other or len(said.shape) != len(known.shape):
            part = f"{port[0] if port else ''}dim {other[0] if other else 0}"
            sink.report(codes.DECLARED_SHAPE, replace(loc, part=part), **facts)


def list_type(codec: Codec) -> int:
    """AttributeProto's number for a list that is empty, which does not show what it is a list of."""
    if isinstance(codec, AsInput) and codec.dtype is not None and codec.dtype.is_float:
        return 6
    return 6 if isinstance(codec, Floats) else 8 if isinstance(codec, Strs) else 7


def results_of(form: Form, op: Op) -> int | None:
    """How many results this version has at most; None where there may be any number."""
    sig = form.sig or op.sig
    return None if any(p.variadic for p in sig.outputs) else len(sig.outputs)
