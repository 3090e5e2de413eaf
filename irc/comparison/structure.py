"""In what two models differ as they stand: versions, inputs and outputs, nodes with their attributes, weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from irc import driver
from irc.border import support
from irc.diagnostics import Sink
from irc.diagnostics.core import InvalidModel, as_written
from irc.formats.document import Attr, RawGraph, RawModel, RawNode, RawTensor, RawValue
from irc.ir.graph import Constant, Graph, Model

SHOWN = 8
"""Elements of a list that are shown."""


@dataclass(frozen=True)
class Difference:
    """Something that differs: what it is in A and in B, None where it is missing."""

    kind: str
    name: str
    a: str | None
    b: str | None


@dataclass
class Contents:
    """A model as what is compared: texts by kind and name, and its weights."""

    texts: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    weights: dict[str, RawTensor | Constant] = field(default_factory=dict[str, "RawTensor | Constant"])

    def add(self, kind: str, name: str, text: str) -> None:
        """Note a text; of equal names, the later ones are numbered."""
        known = self.texts.setdefault(kind, {})
        unique, number = name, 2
        while unique in known:
            unique, number = f"{name} ({number})", number + 1
        known[unique] = text


def differences(a: str, b: str) -> tuple[list[Difference], dict[str, int]]:
    """What differs in two models' files, and how many things of each kind do not.  InvalidModel."""
    raws = [_read(a), _read(b)]
    if raws[0].format == raws[1].format:
        first, second = map(_of_file, raws)
    else:
        first, second = (_of_graph(driver.load(path)) for path in (a, b))
    found: list[Difference] = []
    same = Counter[str]()
    for kind in dict.fromkeys([*first.texts, *second.texts]):
        ours, theirs = first.texts.get(kind, {}), second.texts.get(kind, {})
        for name in dict.fromkeys([*ours, *theirs]):
            if ours.get(name) == theirs.get(name):
                same[kind] += 1
            else:
                found.append(Difference(kind, name, ours.get(name), theirs.get(name)))
    single = {d.name for d in found if d.kind == "node" and (d.a is None or d.b is None)}
    found = [d for d in found if d.kind != "attribute" or d.name.rpartition("/")[0] not in single]
    for name in dict.fromkeys([*first.weights, *second.weights]):
        told = _weights(first.weights.get(name), second.weights.get(name))
        if told is None:
            same["weight"] += 1
        else:
            found.append(Difference("weight", name, *told))
    return found, dict(same)


def _read(path: str) -> RawModel:
    sink = Sink()
    raw = driver.read(path, sink)
    sink.stop_on_errors(InvalidModel)
    if raw is None:
        raise InvalidModel(sink.diagnostics)
    return raw


# ------------------------------------------------------------------------- of one format
def _of_file(raw: RawModel) -> Contents:
    """What a file has, in its own words."""
    found = Contents()
    found.add("version", "", str(raw.version))
    for domain, version in raw.opsets.items():
        found.add("opset", domain or "ai.onnx", str(version))
    for key, text in raw.metadata.items():
        found.add("metadata", key, str(text))
    _graph(raw.graph, "", found)
    for function in raw.functions:
        prefix = f"function {function.domain}.{function.name}/"
        found.add("function", prefix[9:-1], f"({', '.join(function.inputs)}) -> ({', '.join(function.outputs)})")
        for node in function.nodes:
            _node(node, prefix, {}, found)
    return found


def _graph(graph: RawGraph, prefix: str, found: Contents) -> None:
    titles = dict(_titles(graph))
    for kind, values in (("input", graph.inputs), ("output", graph.outputs)):
        for number, value in enumerate(values):
            found.add(
                kind, prefix + _name(value, str(number)), str(as_written(value.type) if value.type else "no type")
            )
    for key, tensor in graph.constants.items():
        found.weights[prefix + (tensor.name or key)] = tensor
    for node in graph.nodes:
        _node(node, prefix, titles, found)


def _titles(graph: RawGraph) -> Iterator[tuple[str, str]]:
    """What stands for a value by its key: keys of one format are numbers, which say nothing across files."""
    for key, tensor in graph.constants.items():
        yield key, tensor.name or key
    for value in graph.inputs:
        yield value.key, _name(value, value.key)
    for node in graph.nodes:
        for number, value in enumerate(node.outputs):
            plain = value.names[0] if value.names else node.name or value.key
            yield value.key, plain if len(node.outputs) == 1 or value.names else f"{plain}.{number}"


def _name(value: RawValue, default: str) -> str:
    return str(next((n for n in (*value.names[:1], value.extras.get("layer_name")) if n), value.key or default))


def _node(node: RawNode, prefix: str, titles: Mapping[str, str], found: Contents) -> None:
    name = prefix + (node.name or next((v.key for v in node.outputs if v.key), node.type))
    kind = f"{node.domain}.{node.type}" if node.domain else node.type
    found.add("node", name, f"{kind} ({', '.join(titles.get(k, k) or '(absent)' for k in node.inputs)})")
    for key, value in node.attrs.items():
        if not isinstance(value, RawGraph):
            found.add("attribute", f"{name}/{key}", _attribute(value))
    for number, body in enumerate(support.bodies_of(node)):
        _graph(body, f"{name}/{body.name or number}/", found)


def _attribute(value: Attr) -> str:
    if isinstance(value, RawTensor):
        array = value.load()
        return f"{value.dtype}{list(value.shape)} {_listed(array.reshape(-1)[: SHOWN + 1].tolist(), array.size)}"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return _listed(list(cast("Sequence[Attr]", value)), len(value))
    return str(value)


def _listed(values: Sequence[Any], size: int) -> str:
    return f"[{', '.join(map(str, values[:SHOWN]))}{', …' if size > SHOWN else ''}]"


# --------------------------------------------------------------------- of different formats
def _of_graph(model: Model) -> Contents:
    """What irc reads: its own operations, and weights by the names of their values."""
    found = Contents()
    for kind, values in (("input", model.inputs), ("output", model.outputs)):
        for value in values:
            found.add(kind, value.name, str(as_written(value.type)))
    _canonical(model.graph, "", found)
    return found


def _canonical(graph: Graph, prefix: str, found: Contents) -> None:
    for value in graph.values():
        if value.const is not None:
            found.weights[prefix + value.name] = value.const
    for node in graph.nodes:
        name = prefix + (node.name or (node.outputs[0].name if node.outputs else node.op.name))
        operands = ", ".join("(absent)" if v is None else v.name for v in node.inputs)
        found.add("node", name, f"{node.op.name} ({operands})")
        for key, value in node.op.attributes().items():
            if isinstance(value, Graph):
                _canonical(value, f"{name}/{key}/", found)
            else:
                found.add("attribute", f"{name}/{key}", str(value))


# -------------------------------------------------------------------------------- weights
def _weights(a: RawTensor | Constant | None, b: RawTensor | Constant | None) -> tuple[str | None, str | None] | None:
    """What is said of a weight in A and in B; None where it is the same."""
    types = [None if t is None else f"{t.dtype}[{','.join(map(str, t.shape))}]" for t in (a, b)]
    if a is None or b is None or types[0] != types[1]:
        return types[0], types[1]
    first, second = np.asarray(_array(a)), np.asarray(_array(b))
    if first.dtype == object:
        different = int((first != second).sum())
    else:
        different = int((first.view(np.uint8) != second.view(np.uint8)).sum()) if first.size else 0
    if not different:
        return None
    return types[0], f"{types[1]} with other elements{_apart(first, second)}"


def _array(tensor: RawTensor | Constant) -> Any:
    return np.ascontiguousarray(tensor.load() if isinstance(tensor, RawTensor) else tensor.array).reshape(-1)


def _apart(a: Any, b: Any) -> str:
    """How many elements differ, and by how much at most."""
    if a.dtype == object:
        return ""
    with np.errstate(all="ignore"):
        wide = np.abs(a.astype(np.float64) - b.astype(np.float64))
    return f": {int((wide != 0).sum())} of {a.size}, by {np.nanmax(wide):.3g} at most"
