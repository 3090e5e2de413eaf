"""Narrower floats in a document that is about to be written: in its weights, or in the whole graph.

What the narrow type cannot hold, and what has no version for it, stays as it is and is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from irc.arrays import Array
from irc.border.again import document_of
from irc.border.read import read_model
from irc.border.support import bodies_of, free_keys, opset_label
from irc.diagnostics import ConversionError, Sink
from irc.diagnostics.codes import conversion as codes
from irc.editing.simplification import fold
from irc.editing.wide import BLOCK, CONVERTED, ONNX_BF16, Wide, called, origins_of, range_of
from irc.formats.document import Attr, RawGraph, RawModel, RawNode, RawTensor, RawValue
from irc.ir.graph import Graph
from irc.ir.names import unused
from irc.ir.types import DType, Extras, TensorType, bf16, dtype, f16, f32
from irc.opdef.codecs import DTypeAttr
from irc.opdef.opaque import Opaque
from irc.opdef.registry import form_at

TYPES = ("f16", "bf16")
"""The types that a whole model can be written in."""
INSIDE = frozenset({"stash_type", "softmax_precision"})
"""Attributes that say in which type a node computes, whatever its operands are."""
OLD_NAMES = {"f32": "FLOAT", "f16": "FLOAT16", "f64": "DOUBLE"}
"""The attribute of ONNX's Cast was a name before opset 6."""


def conversion(format: str, opset: int, name: str, source: str, result: RawValue, to: DType) -> RawNode:
    """Make the node that converts a value; of ONNX in that opset."""
    if format == "openvino":
        return RawNode("Convert", 1, "", name, [source], [result], {"destination_type": to.ov})
    target: Attr = to.onnx if opset >= 6 else OLD_NAMES[to.name]
    return RawNode("Cast", opset, "", name, [source], [result], {"to": target})


def narrowed(tensor: RawTensor, to: DType) -> RawTensor:
    """The constant in another float type."""

    def load() -> Array:
        array = np.asarray(tensor.load()).reshape(-1)
        made = np.empty(array.shape, to.numpy)
        with np.errstate(all="ignore"):
            for at in range(0, array.size, BLOCK):
                made[at : at + BLOCK] = array[at : at + BLOCK]
        return made.reshape(tensor.shape)

    return replace(tensor, dtype=to, load=load)


def constants_as_tensors(graph: RawGraph) -> None:
    """Make ONNX's Constant nodes of f32 initializers, unless they are results of the graph."""
    outputs = {v.key for v in graph.outputs}
    kept: list[RawNode] = []
    for node in graph.nodes:
        tensor = _tensor_of(node) if node.type == "Constant" and not node.domain else None
        if tensor is None or tensor.dtype not in CONVERTED or tensor.name in outputs:
            kept.append(node)
        else:
            graph.constants[tensor.name] = tensor
    graph.nodes = kept


def _tensor_of(node: RawNode) -> RawTensor | None:
    """What an ONNX Constant of floats says; None of other attributes."""
    key = node.outputs[0].key if node.outputs else ""
    given = node.attrs.get("value")
    if isinstance(given, RawTensor) and "values" not in given.extras:
        return replace(given, name=key, loc=node.loc, extras={})
    numbers: Any = node.attrs.get("value_float", node.attrs.get("value_floats"))
    if numbers is None:
        return None
    array = np.asarray(numbers, np.float32)
    return RawTensor(key, f32, array.shape, lambda: array, node.loc)


# --------------------------------------------------------------------------------- weights
def compress(raw: RawModel, sink: Sink) -> None:
    """Store f32 weights as f16, each behind a conversion back; those with numbers beyond f16 stay and are named.

    A single number (an epsilon, the fill of a mask) would gain nothing and stays, too.
    """
    wide: list[str] = []
    _compress(raw.graph, raw.format, raw.opsets.get("", 0), wide)
    if wide:
        names = ", ".join(f'constant "{name}"' for name in wide)
        sink.report(codes.STAYS_WIDE, what=names, type=f32, reason="numbers are beyond the range of f16")


def _compress(graph: RawGraph, format: str, opset: int, wide: list[str]) -> None:
    for node in graph.nodes:
        for body in bodies_of(node):
            _compress(body, format, opset, wide)
    if format == "onnx":
        constants_as_tensors(graph)
    names, outputs = {n.name for n in graph.nodes}, {v.key for v in graph.outputs}
    made: list[RawNode] = []
    for key, tensor in list(graph.constants.items()):
        if not _is_weight(tensor) or key in outputs:
            continue
        if range_of(tensor, f16):
            wide.append(tensor.name)
            continue
        packed = f"{key}/compressed" if format == "onnx" else f"{key}_compressed"
        stored = replace(narrowed(tensor, f16), name=f"{tensor.name}_compressed")
        stored.extras = {k: v for k, v in tensor.extras.items() if k != "names"} if format == "openvino" else {}
        graph.constants[packed] = stored
        del graph.constants[key]
        made.append(
            _decompression(format, opset, unused(f"{tensor.name}/decompress", names, first=1), packed, key, tensor)
        )
    graph.nodes[:0] = made


def _is_weight(tensor: RawTensor) -> bool:
    return tensor.dtype == f32 and math.prod(tensor.shape) > 1 and "values" not in tensor.extras


def _decompression(format: str, opset: int, name: str, stored: str, key: str, tensor: RawTensor) -> RawNode:
    """The conversion of a stored weight, as OpenVINO marks it."""
    names = (key,) if format == "onnx" else tuple(tensor.extras.get("names", ()))
    result = RawValue(key, names, TensorType.of(tensor.dtype, tensor.shape))
    node = conversion(format, opset, name, stored, result, tensor.dtype)
    if format == "openvino":
        node.extras = decompression()
    return node


def decompression() -> Extras:
    """How OpenVINO marks the conversion of a stored weight: its plugins keep the weight as it is stored."""
    return {"rt_info": [{"name": "decompression", "version": "0"}]}


# ------------------------------------------------------------------------------ whole graph
def in_type(raw: RawModel, type: str, sink: Sink) -> RawModel:
    """Make the document whose floats are of that type: inputs, outputs, weights, and what is computed.

    Nodes that the type is not for are computed in their own between conversions, and are named.  ConversionError.
    """
    to = dtype(type)
    if raw.format == "onnx" and to == bf16 and raw.opsets.get("", 1) < ONNX_BF16:
        needed, asked = (opset_label("onnx", n) for n in (ONNX_BF16, raw.opsets.get("", 1)))
        sink.report(codes.NEEDS_NEWER_OPSET, op="Cast", types=to, target="ONNX", needed=needed, asked=asked)
        sink.stop_on_errors(ConversionError)
    if raw.format == "onnx":
        constants_as_tensors(raw.graph)
    # In the types that they have: computed of rounded numbers, constants would be rounded twice.
    raw = fold(raw)
    read = read_model(raw, sink)
    sink.stop_on_errors(ConversionError)
    forced: dict[int, str] = {}
    made: dict[str, DType] = {}
    while True:
        wide = Wide(raw, read.graph, to, forced)
        rewriting = _Rewriting(raw, wide, made)
        changed = rewriting.document()
        found = Sink()
        model = read_model(changed, found)
        if not rewriting.learns(model.graph, forced, made):
            found.stop_on_errors(ConversionError)
            break
    _report(rewriting.kept, sink)
    return document_of(model)


@dataclass
class _Kept:
    """What stays: a node or a constant by name, its type, and why."""

    what: str
    type: DType
    reason: str


class _Rewriting:
    """One way through a document in order, with each float in the types that its users take.

    `made`: the types of results that are known already; of the others one is assumed, and checked afterwards.
    """

    def __init__(self, raw: RawModel, wide: Wide, made: Mapping[str, DType]) -> None:
        self.raw, self.wide, self.to, self.known = raw, wide, wide.to, made
        self.own = wide.types
        self.outputs = {v.key for v in raw.graph.outputs}
        self.values = {v.key: v for n in raw.graph.nodes for v in n.outputs} | {v.key: v for v in raw.graph.inputs}
        self.taken = set(self.own) | set(self.values)
        self.given: set[str] = set()  # keys that keep their name
        self.names = {n.name for n in raw.graph.nodes}
        self.at: dict[tuple[str, DType], str] = {}  # the key of a value in a type
        self.nodes: list[RawNode] = []
        self.constants: dict[str, RawTensor] = {}
        self.kept: list[_Kept] = []
        self.assumed: dict[str, DType] = {}
        self.came_from: dict[int, RawNode] = {}  # by the id of a node that was made: the one that it stands for

    def document(self) -> RawModel:
        """The whole document with its floats converted."""
        graph = self.raw.graph
        for value in graph.inputs:
            if self._converts(value.key):
                self.at[value.key, self.to] = value.key
                self.given.add(value.key)
        for key, tensor in graph.constants.items():
            if not self._converts(key):
                self.constants[key] = tensor
        for node in graph.nodes:
            self._node(node)
        for value in graph.outputs:
            if self._converts(value.key):
                self._in(value.key, self.to)
        made = replace(
            graph,
            inputs=[self._retyped(v) for v in graph.inputs],
            outputs=[self._retyped(v) for v in graph.outputs],
            nodes=self.nodes,
            constants=self.constants,
            values={},
        )
        return replace(self.raw, graph=made)

    def learns(self, read: Graph, forced: dict[int, str], made: dict[str, DType]) -> bool:
        """Note what reading the result showed to be otherwise; whether there was anything."""
        before = len(forced), len(made)
        for node in read.nodes:
            source = self.came_from.get(id(node.origin.raw)) if node.origin else None
            if isinstance(node.op, Opaque) and source is not None and id(source) not in self.wide.reasons:
                forced[id(source)] = f"{source.type} takes no such operands in {self.to}"
        for origin in origins_of(read):
            source = self.came_from.get(id(origin.raw))
            for value, result in zip(source.outputs if source else (), origin.outputs, strict=False):
                assumed = self.assumed.get(value.key)
                if assumed is None or not isinstance(result.type, TensorType) or result.dtype == assumed:
                    continue
                if result.dtype in (self.to, self.own[value.key]):
                    made[value.key] = result.dtype
        return (len(forced), len(made)) != before

    # ------------------------------------------------------------------- values
    def _converts(self, key: str) -> bool:
        return self.own.get(key) in CONVERTED - {self.to}

    def _retyped(self, value: RawValue) -> RawValue:
        if not self._converts(value.key) or not isinstance(value.type, TensorType):
            return value
        return replace(value, type=value.type.with_dtype(self.to))

    def _new_key(self, key: str, type: DType) -> str:
        """The key of a value in a type: its own where that is free, of a result of the graph in the narrow type."""
        if key not in self.given and (type == self.to or key not in self.outputs):
            self.given.add(key)
            return key
        return unused(f"{key}_{type}", self.taken, first=1)

    def _named(self, key: str, made: str, type: DType) -> RawValue:
        """The value that a node makes in that type, with the names by which users know it if its key is the old one."""
        value = self.values.get(key)
        names = value.names if value is not None and made == key else ()
        shape = value.type.shape if value is not None and isinstance(value.type, TensorType) else None
        return RawValue(made, (made,) if self.raw.format == "onnx" else names, TensorType(type, shape))

    def _in(self, key: str, type: DType) -> str:
        """The key under which a value is found in a type; a conversion is made where there is none."""
        if (key, type) in self.at:
            return self.at[key, type]
        tensor = self.raw.graph.constants.get(key)
        if tensor is not None:
            return self._constant(key, tensor, type)
        source = next((self.at[key, t] for t in (self.own[key], self.to) if (key, t) in self.at), None)
        return key if source is None else self._convert(key, source, type)

    def _convert(self, key: str, source: str, type: DType) -> str:
        made = self.at[key, type] = self._new_key(key, type)
        name = unused(f"{key}/{type}", self.names, first=1)
        opset = self.raw.opsets.get("", 0)
        self.nodes.append(conversion(self.raw.format, opset, name, source, self._named(key, made, type), type))
        return made

    def _constant(self, key: str, tensor: RawTensor, type: DType) -> str:
        """The key of a constant in a type; weights are stored in the narrow one also where their own is wanted."""
        fits = self.wide.range_of(key) != "large"
        if type == self.to and not fits:
            return self._convert(key, self._in(key, tensor.dtype), type)
        if type != self.to and fits and key not in self.wide.exact and math.prod(tensor.shape) > 1:
            made = self._convert(key, self._in(key, self.to), type)
            if self.raw.format == "openvino":
                self.nodes[-1].extras = decompression()
            return made
        if type != self.to and (why := self._why(key)):
            self.kept.append(_Kept(f'constant "{tensor.name}"', type, why))
        made = self.at[key, type] = self._new_key(key, type)
        self.constants[made] = tensor if type != self.to else narrowed(tensor, type)
        if made != key:
            own = {k: v for k, v in tensor.extras.items() if k != "names"}
            self.constants[made] = replace(self.constants[made], name=made, extras=own)
        return made

    def _why(self, key: str) -> str:
        """Why a constant stays: nothing of single numbers, whose nodes are named."""
        if kind := self.wide.range_of(key):
            return f"it has numbers that are {'beyond the range of' if kind == 'large' else '0 in'} {self.to}"
        return f"no operand of the kind may be {self.to}" if key in self.wide.exact else ""

    # -------------------------------------------------------------------- nodes
    def _node(self, node: RawNode) -> None:
        if not self.wide.floats(node):
            self._add(node, node)
            return
        reason = self.wide.reasons.get(id(node))
        if reason is None:
            self._narrow(node)
        else:
            self._keep(node, reason)

    def _add(self, made: RawNode, source: RawNode) -> None:
        self.came_from[id(made)] = source
        self.nodes.append(made)

    def _keep(self, node: RawNode, reason: str) -> None:
        """Add a node as it is, between conversions."""
        floats = [k for k in self.wide.floats(node) if self._converts(k)]
        if floats:
            self.kept.append(_Kept(called(node), self.own[floats[0]], reason))
        inputs = [self._in(k, self.own[k]) if self._converts(k) else k for k in node.inputs]
        inner = {k: self._in(k, self.own[k]) for b in bodies_of(node) for k in free_keys(b) if self._converts(k)}
        outputs = [self._result(v, self.own.get(v.key)) for v in node.outputs]
        made = replace(node, inputs=inputs, outputs=outputs, input_types=[])
        made.attrs = {k: _renamed(v, inner) for k, v in node.attrs.items()}
        self._add(made, node)

    def _narrow(self, node: RawNode) -> None:
        """Add a node with its floats in the narrow type."""
        takes = self.wide.takes(node)
        types = [self.to if narrow else self.own.get(k) for k, narrow in zip(node.inputs, takes, strict=True)]
        pairs = list(zip(node.inputs, types, strict=True))
        inputs = [self._in(k, t) if t is not None and self._converts(k) else k for k, t in pairs]
        attrs = self._attributes(node)
        if node.type in ("Cast", "Convert") and self._is_narrow(node.inputs[0]) and attrs != node.attrs:
            result = node.outputs[0].key
            if result not in self.outputs:
                self.at[result, self.to] = inputs[0]
                return
        changed = attrs != node.attrs or any(t == self.to and self._converts(k) for k, t in pairs)
        types = [self.known.get(v.key, self.to if changed else self.own.get(v.key)) for v in node.outputs]
        outputs = [self._result(v, t) for v, t in zip(node.outputs, types, strict=True)]
        self._add(replace(node, inputs=inputs, outputs=outputs, attrs=attrs, input_types=[]), node)

    def _is_narrow(self, key: str) -> bool:
        return self.own.get(key) == self.to or self._converts(key)

    def _result(self, value: RawValue, type: DType | None) -> RawValue:
        """A result of a node that makes it in that type."""
        if not self._converts(value.key) or type is None:
            return value
        made = self.at[value.key, type] = self._new_key(value.key, type)
        self.assumed[value.key] = type
        return replace(self._named(value.key, made, type), extras=value.extras, loc=value.loc)

    def _attributes(self, node: RawNode) -> dict[str, Attr]:
        """The attributes with the narrow type where they say that a result is of a float that is converted."""
        found = form_at(self.raw.format, node.domain, node.type, node.version)
        attrs = dict(node.attrs)
        for name, value in node.attrs.items():
            codec = found[0].attrs.get(name) if found else None
            if isinstance(value, RawTensor):
                if value.dtype in CONVERTED - {self.to} and not range_of(value, self.to):
                    attrs[name] = narrowed(value, self.to)
            elif isinstance(codec, DTypeAttr) and name not in INSIDE and self._says_float(value, codec):
                with suppress(ValueError):
                    attrs[name] = codec.encode(self.to, self.raw.format)
        return attrs

    def _says_float(self, value: Attr, codec: DTypeAttr) -> bool:
        """Whether an attribute names an element type that is converted."""
        for type in CONVERTED - {self.to}:
            with suppress(ValueError):
                if codec.encode(type, self.raw.format) == value:
                    return True
        return False


def _renamed(value: Attr, keys: Mapping[str, str]) -> Attr:
    """A body that uses values around it by other keys."""
    if not isinstance(value, RawGraph) or not keys:
        return value
    nodes = [
        replace(
            n, inputs=[keys.get(k, k) for k in n.inputs], attrs={name: _renamed(v, keys) for name, v in n.attrs.items()}
        )
        for n in value.nodes
    ]
    return replace(value, nodes=nodes, outputs=[replace(v, key=keys.get(v.key, v.key)) for v in value.outputs])


def _report(kept: Iterable[_Kept], sink: Sink) -> None:
    """Name what stays, together what stays for one reason."""
    groups: dict[tuple[DType, str], dict[str, None]] = {}
    for found in kept:
        groups.setdefault((found.type, found.reason), {})[found.what] = None
    for (type, reason), names in groups.items():
        sink.report(codes.STAYS_WIDE, what=", ".join(names), type=type, reason=reason)
