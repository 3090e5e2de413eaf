"""What of a model beside its graph a conversion leaves behind, because the other format has no place for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from irc.border.metadata import PRODUCER, SECTION, key_of
from irc.ir.graph import Model, symbols_of


def conversion_losses(model: Model, target: str, ir_version: int | None) -> list[str]:
    """In words, one a kind; `target` is "onnx" or "openvino", and `ir_version` that of a written OpenVINO IR."""
    if model.format == target:
        return _runtime_info(model) if target == "openvino" and ir_version == 10 and model.version > 10 else []
    kinds = _of_onnx(model) if model.format == "onnx" else [*_names_of_tensors(model), *_bounds(model)]
    return kinds if model.format == "onnx" else [*kinds, *_runtime_info(model), *_other_information(model)]


def _extras(model: Model) -> Iterator[dict[str, Any]]:
    """What the file said beside types and attributes: of graphs, nodes and values."""
    for graph in model.graph.nested():
        yield graph.extras
        yield from (node.origin.raw.extras for node in graph.nodes if node.origin is not None)
        yield from (value.extras for value in graph.values())


def _any(model: Model, has: Callable[[dict[str, Any]], object], what: str) -> list[str]:
    return [what] if any(has(extras) for extras in _extras(model)) else []


def _of_onnx(model: Model) -> list[str]:
    found = ["the producer"] if model.extras.get("producer_name", PRODUCER) not in ("", PRODUCER) else []
    documented = bool(model.extras.get("doc_string"))
    found += ["doc strings"] if documented else _any(model, lambda e: e.get("doc_string"), "doc strings")
    found += _any(model, lambda e: e.get("metadata"), "metadata of graphs, nodes and values")
    found += _any(model, lambda e: e.get("denotation") or e.get("dim_denotations"), "denotations")
    names = [name for name in symbols_of(model.inputs) if name]
    return found + ([f"the names of sizes ({', '.join(names)})"] if names else [])


def _names_of_tensors(model: Model) -> list[str]:
    return ["further names of tensors"] if any(len(v.names) > 1 for v in model.graph.values()) else []


def _bounds(model: Model) -> list[str]:
    found = [str(d) for d in symbols_of(model.inputs).values() if d.bounds()[0] > 0 or d.bounds()[1] != float("inf")]
    return [f"the bounds of sizes ({', '.join(found)})"] if found else []


def _runtime_info(model: Model) -> list[str]:
    found = _any(model, lambda e: e.get("layout"), "layouts")
    return found + _any(model, lambda e: e.get("rt_info"), "runtime information of layers")


def _other_information(model: Model) -> list[str]:
    others = [key_of(tree) for tree in model.extras.get("rt_info", ()) if key_of(tree) not in (SECTION, PRODUCER)]
    found = [f"runtime information of the model ({', '.join(others)})"] if others else []
    return found + (["legacy sections"] if model.extras.get("sections") else [])
