"""TypeProto to and from irc's types; symbols for dimensions that have no name."""

from __future__ import annotations

from typing import Any

import onnx

from irc.diagnostics import Loc, Sink, require
from irc.diagnostics.codes import container_onnx as codes, conversion
from irc.formats.onnx.text import text
from irc.ir.dim import Dim
from irc.ir.types import DType, Extras, MapType, OptionalType, SequenceType, TensorType, Type, dtype_from_onnx

MAX_DEPTH = 32
UNNAMED = frozenset({"", "?", "-1", "None"})
"""What exporters write as the name of a size that has none: Paddle's name every axis `?`, and mean no two equal."""


class TypeReader:
    """Decodes types.  `taken` are the dim_params of the model, which invented names must not meet."""

    def __init__(self, sink: Sink, taken: set[str]) -> None:
        self.sink, self.taken = sink, taken
        self._names: dict[tuple[str, str, int], str] = {}

    def value_type(
        self, proto: onnx.TypeProto, key: str, loc: Loc, scope: str = ""
    ) -> tuple[Type | None, dict[str, Any]]:
        """The type and what to keep beside it.

        Extras: `type_source` (the type and the TypeProto it was read from, so that an unchanged
        type is written back exactly), `denotation`, `dim_denotations` by axis, `unknown_dims`
        (axes whose symbol is invented), `sparse`.
        """
        extras: Extras = {}
        found = self._type(proto, key, loc, scope, extras, 0)
        source = onnx.TypeProto()
        source.CopyFrom(proto)
        extras["type_source"] = (found, source)
        if proto.denotation:
            extras["denotation"] = text(proto.denotation, "a denotation", loc, self.sink)
        return found, extras

    def _type(self, proto: onnx.TypeProto, key: str, loc: Loc, scope: str, extras: Extras, depth: int) -> Type | None:
        kind = proto.WhichOneof("value")
        if depth > MAX_DEPTH:
            return self.sink.report(codes.TOO_DEEP, loc, what=f'the type of "{key}"', limit=MAX_DEPTH)
        if kind in ("tensor_type", "sparse_tensor_type"):
            if kind == "sparse_tensor_type":
                extras["sparse"] = True
            return self._tensor(getattr(proto, kind), key, loc, scope, extras)
        if kind == "opaque_type":
            opaque = proto.opaque_type
            return self.sink.report(codes.OPAQUE_TYPE, loc, name=key, kind=f"opaque({opaque.domain}.{opaque.name})")
        if kind == "map_type":
            value = self._type(proto.map_type.value_type, key, loc, scope, extras, depth + 1)
            name = dtype_from_onnx(proto.map_type.key_type)
            if name is None:
                self.sink.report(codes.TENSOR_TYPE, loc, name=key, value=proto.map_type.key_type)
            return MapType(name, value) if name is not None and value is not None else None
        if kind in ("sequence_type", "optional_type"):
            element = self._type(getattr(proto, kind).elem_type, key, loc, scope, extras, depth + 1)
            if element is None:
                return None
            return SequenceType(element) if kind == "sequence_type" else OptionalType(element)
        return None

    def _tensor(
        self, proto: onnx.TypeProto.Tensor | onnx.TypeProto.SparseTensor, key: str, loc: Loc, scope: str, extras: Extras
    ) -> TensorType | None:
        dtype: DType | None = dtype_from_onnx(proto.elem_type)
        if dtype is None:
            return self.sink.report(codes.TENSOR_TYPE, loc, name=key, value=proto.elem_type)
        if not proto.HasField("shape"):
            return TensorType(dtype, None)
        dims: list[Dim] = []
        for axis, dim in enumerate(proto.shape.dim):
            if dim.denotation:
                extras.setdefault("dim_denotations", {})[axis] = text(dim.denotation, "a denotation", loc, self.sink)
            kind = dim.WhichOneof("value")
            if kind == "dim_value" and dim.dim_value >= 0:
                dims.append(Dim.of(dim.dim_value))
            elif kind == "dim_param" and dim.dim_param not in UNNAMED:
                dims.append(Dim.symbol(text(dim.dim_param, "a dim_param", loc, self.sink)))
            else:
                if kind == "dim_value":
                    self.sink.report(codes.NEGATIVE_DIM, loc, name=key, axis=axis, value=dim.dim_value)
                extras.setdefault("unknown_dims", []).append(axis)
                dims.append(Dim.symbol(self._invented(scope, key, axis)))
        return TensorType(dtype, tuple(dims))

    def _invented(self, scope: str, key: str, axis: int) -> str:
        """A name for a dimension without one, the same each time the same value is described."""
        place = (scope, key, axis)
        if place not in self._names:
            name = f"{key}_d{axis}"
            while name in self.taken:
                name += "_"
            self.taken.add(name)
            self._names[place] = name
        return self._names[place]


def dim_params(model: onnx.ModelProto) -> set[str]:
    """The dim_params of the main graph's inputs, outputs and value_info."""
    found: set[str] = set()
    graph = model.graph
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.WhichOneof("value") == "tensor_type":
            names = (d.dim_param for d in info.type.tensor_type.shape.dim)
            found.update(name for name in names if name not in UNNAMED)
    return found


def write_type(value: Type | None, proto: onnx.TypeProto, extras: Extras, name: str = "") -> None:
    """Fill a TypeProto; a type that is unchanged since it was read is written exactly as it stood."""
    known, source = extras.get("type_source", (None, None))
    if source is not None and known == value:
        proto.CopyFrom(source)
        return
    if value is None:
        return
    _write(value, proto, extras, name)
    if extras.get("denotation"):
        proto.denotation = extras["denotation"]


def _write(value: Type, proto: onnx.TypeProto, extras: Extras, name: str) -> None:
    match value:
        case SequenceType(element):
            _write(element, proto.sequence_type.elem_type, extras, name)
        case OptionalType(element):
            _write(element, proto.optional_type.elem_type, extras, name)
        case MapType(key, element):
            proto.map_type.key_type = _enum(key, name)
            _write(element, proto.map_type.value_type, extras, name)
        case TensorType(dtype, shape):
            tensor = proto.sparse_tensor_type if extras.get("sparse") else proto.tensor_type
            tensor.elem_type = _enum(dtype, name)
            if shape is None:
                return
            tensor.shape.SetInParent()
            denotations: dict[int, str] = extras.get("dim_denotations", {})
            for axis, dim in enumerate(shape):
                written = tensor.shape.dim.add()
                if dim.const is not None:
                    written.dim_value = dim.const
                else:
                    written.dim_param = str(dim)
                if axis in denotations:
                    written.denotation = denotations[axis]


def _enum(dtype: DType, name: str) -> int:
    require(dtype.onnx is not None, conversion.NO_ELEMENT_TYPE, name=name, type=dtype, target="ONNX")
    return dtype.onnx or 0
