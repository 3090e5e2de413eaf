"""TensorProto and SparseTensorProto to and from RawTensor.

`RawTensor.load` of a tensor that was read is one of the data classes here (or `external.External`);
they remember how the file stored the elements, so that writing restores exactly that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from irc.arrays import Array
from irc.diagnostics import Loc, Sink, require
from irc.diagnostics.codes import container_onnx as codes, conversion
from irc.files import DataFolder
from irc.formats.document import RawTensor
from irc.formats.onnx import external
from irc.formats.onnx.apart import Place
from irc.formats.onnx.packing import pack, packed_size, unpack
from irc.formats.onnx.residue import restore
from irc.formats.onnx.text import pairs, text
from irc.ir.types import DType, Extras, dtype_from_onnx, string

MAX_ELEMENTS = 2**63 - 1
MAX_DENSE_BYTES = 4 << 30
FIELDS = ("raw_data", "float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_TYPED = {
    "f32": "float_data",
    "c64": "float_data",
    "f64": "double_data",
    "c128": "double_data",
    "i64": "int64_data",
    "u64": "uint64_data",
    "u32": "uint64_data",
    "string": "string_data",
}
_FIELD_DTYPE = {
    "float_data": np.float32,
    "int32_data": np.int32,
    "int64_data": np.int64,
    "double_data": np.float64,
    "uint64_data": np.uint64,
}


@dataclass(frozen=True, eq=False)
class Raw:
    """Elements as they stand in `raw_data`: little-endian, 2-, 4- and 6-bit elements packed."""

    data: bytes | Array
    dtype: DType
    shape: tuple[int, ...]

    def __call__(self) -> Array:
        return unpack(np.frombuffer(self.data, np.uint8), self.dtype, self.shape)


@dataclass(frozen=True, eq=False)
class Typed:
    """Elements as they stand in a typed field: the field's numbers, or its byte strings."""

    field: str
    items: Any
    dtype: DType
    shape: tuple[int, ...]

    def __call__(self) -> Array:
        if self.field == "string_data":
            texts = np.empty(len(self.items), object)
            texts[:] = [s.decode("utf-8", "surrogateescape") for s in self.items]
            return texts.reshape(self.shape)
        if self.field != "int32_data" or self.dtype.name == "i32":
            if self.dtype.kind == "c":
                return self.items.view(self.dtype.numpy).reshape(self.shape)
            return self.items.astype(self.dtype.numpy, copy=False).reshape(self.shape)
        if self.dtype.kind == "b":
            return (self.items != 0).reshape(self.shape)
        if self.dtype.bits == 16:
            return self.items.astype(np.uint16).view(self.dtype.numpy).reshape(self.shape)
        if self.dtype.bits in (6, 8):
            return self.items.astype(np.uint8).view(self.dtype.numpy).reshape(self.shape)
        return unpack(self.items.astype(np.uint8), self.dtype, self.shape)


@dataclass(frozen=True, eq=False)
class Sparse:
    """A sparse tensor: `values` and `indices` as tensors; called, it gives the dense array."""

    values: RawTensor
    indices: RawTensor
    shape: tuple[int, ...]

    def __call__(self) -> Array:
        values, indices = self.values.load(), self.indices.load()
        fill: Any = "" if self.values.dtype == string else 0
        dense = np.full(math.prod(self.shape), fill, self.values.dtype.numpy)
        dense[flat_indices(indices, self.shape)] = values
        return dense.reshape(self.shape)


def flat_indices(indices: Array, shape: tuple[int, ...]) -> Array:
    """[NNZ] or [NNZ, rank] indices as [NNZ] positions in row-major order."""
    if indices.ndim == 1:
        return indices
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return (indices * np.array(strides, np.int64)).sum(axis=1)


# ------------------------------------------------------------------------------- reading
class TensorReader:
    """Checks and decodes tensors.  `folder` is where external data may be, None if there is no file."""

    def __init__(self, sink: Sink, folder: DataFolder | None) -> None:
        self.sink, self.folder = sink, folder

    def tensor(
        self, proto: onnx.TensorProto, loc: Loc, name: str | None = None, apart: Place | None = None
    ) -> RawTensor | None:
        """The tensor, or None with an error reported.  apart: where its raw_data are, if not in it."""
        name = text(proto.name, "a tensor's name", loc, self.sink) if name is None else name
        dtype, shape = dtype_from_onnx(proto.data_type), tuple(proto.dims)
        if dtype is None or not proto.data_type:
            return self.sink.report(codes.TENSOR_TYPE, loc, name=name, value=proto.data_type)
        if proto.HasField("segment"):
            return self.sink.report(codes.TENSOR_SEGMENT, loc, name=name)
        if not self.check_dims(name, shape, loc):
            return None
        if proto.data_location == onnx.TensorProto.EXTERNAL:
            load = external.locate(
                proto, dtype, shape, packed_size(dtype, math.prod(shape)), self.folder, self.sink, loc
            )
        else:
            load = self._inline(proto, name, dtype, shape, loc, apart)
        if load is None:
            return None
        return RawTensor(name, dtype, shape, load, loc, self._extras(proto, loc))

    def check_dims(self, name: str, shape: tuple[int, ...], loc: Loc) -> bool:
        reason = "a dimension is negative" if any(d < 0 for d in shape) else ""
        if not reason and math.prod(shape) > MAX_ELEMENTS:
            reason = "their product is over 2^63"
        if reason:
            self.sink.report(codes.TENSOR_DIMS, loc, name=name, dims=list(shape), reason=reason)
        return not reason

    def _inline(
        self, proto: onnx.TensorProto, name: str, dtype: DType, shape: tuple[int, ...], loc: Loc, apart: Place | None
    ) -> Raw | Typed | external.External | None:
        present = [f for f in FIELDS if (proto.HasField(f) if f == "raw_data" else len(getattr(proto, f)))]
        present = ["raw_data", *present] if apart is not None else present
        expected = _TYPED.get(dtype.name, "int32_data")
        field = present[0] if present else expected
        reason = ""
        if len(present) > 1:
            reason = f"{' and '.join(present)} are both set"
        elif field == "raw_data" and dtype == string:
            reason = "strings have no raw form"
        elif field not in ("raw_data", expected):
            reason = f"it belongs in {expected}"
        if reason:
            self.sink.report(codes.TENSOR_FIELD, loc, name=name, type=dtype, field=field, reason=reason)
            return None
        count = math.prod(shape)
        load: Raw | Typed | external.External
        if apart is not None:
            needed, found, unit = packed_size(dtype, count), apart.length, "bytes"
            load = external.External(apart.file, apart.offset, apart.length, dtype, shape)
        elif field == "raw_data":
            data = proto.raw_data
            needed, found, unit = packed_size(dtype, count), len(data), "bytes"
            load = Raw(data, dtype, shape)
        else:
            stored = getattr(proto, field)
            needed, found, unit = typed_count(dtype, count), len(stored), "items"
            items = list(stored) if field == "string_data" else np.array(stored, _FIELD_DTYPE[field])
            load = Typed(field, items, dtype, shape)
        if needed != found:
            self.sink.report(
                codes.TENSOR_SIZE,
                loc,
                name=name,
                type=dtype,
                dims=list(shape),
                needed=needed,
                unit=unit,
                field=field,
                found=found,
            )
            return None
        return load

    def _extras(self, proto: onnx.TensorProto, loc: Loc) -> Extras:
        extras: Extras = {}
        if proto.doc_string:
            extras["doc_string"] = text(proto.doc_string, "a doc_string", loc, self.sink)
        if proto.metadata_props:
            extras["metadata"] = pairs(proto.metadata_props, loc, self.sink)
        rest = onnx.TensorProto()  # not by residue(): listing the fields would copy the data
        for field in ("name", "doc_string", "data_location"):
            if proto.HasField(field) and not getattr(proto, field):
                setattr(rest, field, getattr(proto, field))
        if rest.ListFields():
            extras["rest"] = rest
        return extras

    def sparse(self, proto: onnx.SparseTensorProto, loc: Loc) -> RawTensor | None:
        """The sparse tensor as a dense RawTensor whose `load` is `Sparse`, or None with an error reported."""
        shape, name = tuple(proto.dims), text(proto.values.name, "a tensor's name", loc, self.sink)
        values, indices = self.tensor(proto.values, loc), self.tensor(proto.indices, loc)
        if values is None or indices is None or not self.check_dims(name, shape, loc):
            return None
        reason = _sparse_fault(values, indices, shape)
        if reason:
            return self.sink.report(codes.SPARSE_INVALID, loc, name=name, reason=reason)
        size = math.prod(shape) * values.dtype.itemsize
        if size > MAX_DENSE_BYTES:
            return self.sink.report(codes.SPARSE_TOO_BIG, loc, name=name, bytes=size, limit=MAX_DENSE_BYTES)
        return RawTensor(name, values.dtype, shape, Sparse(values, indices, shape), loc)


def typed_count(dtype: DType, count: int) -> int:
    """Items of a typed field for `count` elements: complex numbers take two, 2- and 4-bit elements share one."""
    if dtype.kind == "c":
        return 2 * count
    return packed_size(dtype, count) if dtype.bits in (2, 4) else count


def _sparse_fault(values: RawTensor, indices: RawTensor, shape: tuple[int, ...]) -> str:
    if len(values.shape) != 1:
        return f"values have shape {list(values.shape)}, not [NNZ]"
    if indices.dtype.name != "i64" or indices.shape not in (values.shape, (*values.shape, len(shape))):
        return f"indices are {indices.dtype}{list(indices.shape)} for {values.shape[0]} values of rank {len(shape)}"
    array = indices.load()
    bound = np.array(shape, np.int64) if array.ndim == 2 else np.int64(math.prod(shape))
    outside = (array < 0) | (array >= bound)
    if array.size and bool(outside.any()):
        return f"index {int(array[outside][0])} is outside dims {list(shape)}"
    if bool((np.diff(flat_indices(array, shape)) <= 0).any()):
        return "indices are not ascending"
    return ""


# ------------------------------------------------------------------------------- writing
def write_tensor(tensor: RawTensor, proto: onnx.TensorProto, name: str, store: external.Store | None = None) -> None:
    """Fill a TensorProto; data that are big go to `store` where there is one."""
    describe_tensor(tensor, proto, name)
    load = tensor.load
    if isinstance(load, Typed) and _stored_alike(tensor):
        getattr(proto, load.field).extend(load.items)
    elif tensor.dtype == string:
        texts = load().reshape(-1)
        proto.string_data.extend(
            s if isinstance(s, bytes) else str(s).encode("utf-8", "surrogateescape") for s in texts
        )
    elif store is not None and is_large(tensor):
        store.add(proto, raw_bytes(tensor))
    else:
        data = load.data if isinstance(load, Raw) and _stored_alike(tensor) else raw_bytes(tensor)
        proto.raw_data = data if isinstance(data, bytes) else data.tobytes()


def describe_tensor(tensor: RawTensor, proto: onnx.TensorProto, name: str) -> None:
    """Fill all of a TensorProto but its data.  Problem IRC4007 where ONNX has no such element type."""
    require(tensor.dtype.onnx is not None, conversion.NO_ELEMENT_TYPE, name=name, type=tensor.dtype, target="ONNX")
    if "rest" in tensor.extras:
        proto.CopyFrom(restore(onnx.TensorProto, tensor.extras["rest"]))
    proto.dims.extend(tensor.shape)
    proto.data_type = tensor.dtype.onnx or 0
    if name:
        proto.name = name
    if tensor.extras.get("doc_string"):
        proto.doc_string = tensor.extras["doc_string"]
    for key, value in tensor.extras.get("metadata", {}).items():
        proto.metadata_props.add(key=key, value=value)


def is_large(tensor: RawTensor) -> bool:
    """Whether the tensor's data are many bytes of raw_data."""
    if tensor.dtype == string or (isinstance(tensor.load, Typed) and _stored_alike(tensor)):
        return False
    return packed_size(tensor.dtype, math.prod(tensor.shape)) >= external.SMALLEST


def _stored_alike(tensor: RawTensor) -> bool:
    """Whether the file it was read from stores it in this element type and shape."""
    load = tensor.load
    return getattr(load, "dtype", None) == tensor.dtype and getattr(load, "shape", None) == tensor.shape


def raw_bytes(tensor: RawTensor) -> Array:
    """The tensor in the form of raw_data, flat uint8."""
    load = tensor.load
    if isinstance(load, Raw | external.External) and (load.dtype, load.shape) == (tensor.dtype, tensor.shape):
        return load.packed() if isinstance(load, external.External) else np.frombuffer(load.data, np.uint8)
    return pack(load(), tensor.dtype)


def write_sparse(tensor: RawTensor, proto: onnx.SparseTensorProto, name: str) -> None:
    """Fill a SparseTensorProto from a tensor whose `load` is `Sparse`."""
    load = tensor.load
    assert isinstance(load, Sparse)
    write_tensor(load.values, proto.values, name)
    write_tensor(load.indices, proto.indices, load.indices.name)
    proto.dims.extend(tensor.shape)
