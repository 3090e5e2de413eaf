"""A model as a document of its own format and back: what is changed in between is inferred anew."""

from __future__ import annotations

from dataclasses import replace

from irc.border.read import read_model
from irc.border.write import WriteOptions, write_model
from irc.diagnostics import ConversionError, Sink
from irc.formats.document import Attr, RawGraph, RawModel, RawNode, RawValue
from irc.ir.graph import Model
from irc.ir.types import TensorType, Type


def document_of(model: Model) -> RawModel:
    """Write the model as a document of the format and versions that it came in.  ConversionError."""
    sink = Sink()
    raw = write_model(model, WriteOptions(model.format, dict(model.opsets), version=model.version), sink)
    sink.stop_on_errors(ConversionError)
    return raw


def model_of(raw: RawModel) -> Model:
    """Read a document that was changed; what does not fit any more is ConversionError with every finding."""
    sink = Sink()
    model = read_model(raw, sink)
    sink.stop_on_errors(ConversionError)
    return model


def without_shapes(graph: RawGraph, inside: bool = False) -> RawGraph:
    """Make a graph that declares no shapes but those of its inputs; those of bodies are told from around them."""
    return replace(
        graph,
        inputs=[_unshaped(v) for v in graph.inputs] if inside else list(graph.inputs),
        outputs=[_unshaped(v) for v in graph.outputs],
        nodes=[_node(n) for n in graph.nodes],
        constants=dict(graph.constants),
        values={},
    )


def _node(node: RawNode) -> RawNode:
    return replace(
        node,
        outputs=[_unshaped(v) for v in node.outputs],
        input_types=[],
        attrs={name: _attribute(value) for name, value in node.attrs.items()},
        bodies={name: without_shapes(body, True) for name, body in node.bodies.items()},
    )


def _attribute(value: Attr) -> Attr:
    return without_shapes(value, True) if isinstance(value, RawGraph) else value


def _unshaped(value: RawValue) -> RawValue:
    return replace(value, type=_without_shape(value.type))


def _without_shape(type: Type | None) -> Type | None:
    """Forget sizes; what has none is a scalar still (ONNX Runtime wants to know that of a loop's counter)."""
    return TensorType(type.dtype, None) if isinstance(type, TensorType) and type.rank != 0 else type
