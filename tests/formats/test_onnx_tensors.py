"""Tensors of ONNX files: every element type, packed, sparse, and external data."""

import math
import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from irc.diagnostics import Problem
from irc.formats.document import RawTensor
from irc.formats.onnx import writer
from irc.formats.onnx.packing import pack, unpack
from irc.ir.types import DTYPES, dtype_from_onnx
from tests.formats.test_onnx import make, read, round_trip, with_weight

STORED = [t for t in TensorProto.DataType.values() if t not in (TensorProto.UNDEFINED, TensorProto.STRING)]


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("enum", STORED, ids=TensorProto.DataType.Name)
def test_element_types(enum, raw):
    kind = helper.tensor_dtype_to_np_dtype(enum)
    array = np.array([1, 2, 4, 8, 1] if enum == TensorProto.FLOAT8E8M0 else [0, 1, 2, 3, 1], np.float32).astype(kind)
    if array.dtype.kind in "if" and array.dtype.itemsize > 1:
        array[1] = -1
    if raw:
        tensor = numpy_helper.from_array(array, "w")
    else:
        tensor = helper.make_tensor("w", enum, [5], array)
    assert tensor.HasField("raw_data") == raw
    model = round_trip(with_weight(tensor))
    found = model.graph.constants["w"]
    assert found.dtype == dtype_from_onnx(enum) and found.load().dtype == kind
    np.testing.assert_array_equal(found.load(), array)
    new = RawTensor("w", found.dtype, (5,), lambda: array)  # as a pass would make it: no memory of a file
    model.graph.constants["w"] = new
    np.testing.assert_array_equal(numpy_helper.to_array(writer.to_proto(model).graph.initializer[0]), array)


@pytest.mark.parametrize("name", ["i2", "u2", "i4", "u4", "f4e2m1", "f6e2m3", "f6e3m2"])
@pytest.mark.parametrize("count", range(10))
def test_packing_is_undone_by_unpacking(name, count):
    dtype = DTYPES[name]
    codes = np.random.default_rng(count).integers(0, 1 << dtype.bits, count, dtype=np.uint8)
    packed = pack(codes.view(dtype.numpy), dtype)
    assert packed.size == math.ceil(count * dtype.bits / 8)
    mask = (1 << dtype.bits) - 1
    assert (unpack(packed, dtype, (count,)).view(np.uint8) & mask).tolist() == codes.tolist()


def test_strings_that_are_not_utf8():
    tensor = TensorProto(name="w", data_type=TensorProto.STRING, dims=[2], string_data=[b"a\xff", "é".encode()])
    model = round_trip(with_weight(tensor))
    assert model.graph.constants["w"].load().tolist() == ["a\udcff", "é"]


def test_a_sparse_initializer_is_dense_in_memory_and_sparse_in_the_file():
    values, positions = np.float32([1, 2]), np.int64([[0, 1], [1, 2]])
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(values, "w"), numpy_helper.from_array(positions, "i"), [2, 3]
    )
    proto = make([helper.make_node("Identity", ["w"], ["y"])], [], sparse_initializer=[sparse])
    assert round_trip(proto).graph.constants["w"].load().tolist() == [[0, 1, 0], [0, 0, 2]]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"dims": [3], "raw_data": b"12345678"}, "IRC1443"),
        ({"dims": [2]}, "IRC1443"),
        ({"dims": [1], "float_data": [1, 2]}, "IRC1443"),
        ({"dims": [-1], "raw_data": b""}, "IRC1442"),
        ({"dims": [2**32, 2**32], "raw_data": b"1234"}, "IRC1442"),
        ({"dims": [2**40], "raw_data": b"1234"}, "IRC1443"),
        ({"dims": [1], "int32_data": [1]}, "IRC1444"),
        ({"dims": [1], "float_data": [1], "raw_data": b"1234"}, "IRC1444"),
        ({"dims": [1], "data_type": TensorProto.STRING, "raw_data": b"a"}, "IRC1444"),
        ({"dims": [1], "data_type": 0, "raw_data": b"1"}, "IRC1441"),
        ({"dims": [1], "data_type": 99, "raw_data": b"1"}, "IRC1441"),
        ({"dims": [1], "raw_data": b"1234", "segment": TensorProto.Segment(begin=0, end=1)}, "IRC1445"),
    ],
)
def test_broken_tensors(fields, code):
    _, found = read(with_weight(TensorProto(**{"name": "w", "data_type": TensorProto.FLOAT} | fields)), code)
    assert found[0].location.where == 'graph main, initializer "w"'


@pytest.mark.parametrize(
    ("indices", "dims", "code"),
    [
        ([0, 6], [2, 3], "IRC1446"),
        ([1, 0], [2, 3], "IRC1446"),
        ([0, 0], [6], "IRC1446"),
        ([-1, 0], [6], "IRC1446"),
        ([[0, 3], [1, 0]], [2, 3], "IRC1446"),
        ([0], [6], "IRC1446"),
        ([0, 1], [2**20, 2**20], "IRC1447"),
    ],
)
def test_broken_sparse_tensors(indices, dims, code):
    sparse = onnx.SparseTensorProto(
        values=numpy_helper.from_array(np.float32([1, 2]), "w"),
        indices=numpy_helper.from_array(np.array(indices, np.int64), "i"),
        dims=dims,
    )
    read(make([helper.make_node("Identity", ["w"], ["y"])], [], sparse_initializer=[sparse]), code)


# -------------------------------------------------------------------- external data
def external_tensor(**entries):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def saved(folder, **entries):
    (folder / "m").mkdir()
    (folder / "m/w.bin").write_bytes(np.arange(8, dtype=np.float32).tobytes())
    (folder / "outside.bin").write_bytes(bytes(64))
    (folder / "m/link.bin").symlink_to(folder / "outside.bin")
    (folder / "m/up").symlink_to(folder)
    os.mkfifo(folder / "m/pipe")
    path = folder / "m/model.onnx"
    path.write_bytes(with_weight(external_tensor(**entries)).SerializeToString())
    return path


def test_external_data_are_mapped(tmp_path):
    model, _ = read(saved(tmp_path, location="w.bin", offset=8, length=16))
    array = model.graph.constants["w"].load()
    assert isinstance(array.base, np.memmap | np.ndarray) and array.tolist() == [2, 3, 4, 5]
    assert numpy_helper.to_array(writer.to_proto(model).graph.initializer[0]).tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ({"location": "../outside.bin"}, "IRC1462"),
        ({"location": "up/outside.bin"}, "IRC1462"),
        ({"location": "link.bin"}, "IRC1462"),
        ({"location": "/etc/hostname"}, "IRC1462"),
        ({"location": "C:\\w.bin"}, "IRC1462"),
        ({"location": "a\0b"}, "IRC1462"),
        ({"location": "none.bin"}, "IRC1463"),
        ({"location": "pipe"}, "IRC1463"),
        ({"location": "."}, "IRC1463"),
        ({"location": "w.bin/x"}, "IRC1463"),
        ({}, "IRC1465"),
        ({"location": "w.bin", "offset": "-1"}, "IRC1465"),
        ({"location": "w.bin", "offset": "1e3"}, "IRC1465"),
        ({"location": "w.bin", "offset": 2**62}, "IRC1464"),
        ({"location": "w.bin", "offset": 20, "length": 16}, "IRC1464"),
        ({"location": "w.bin", "length": 12}, "IRC1464"),
        ({"location": "w.bin", "length": 0}, "IRC1464"),
    ],
)
def test_external_data_that_are_refused(tmp_path, entries, code):
    read(saved(tmp_path, **entries), code)


def test_external_data_need_a_file():
    read(with_weight(external_tensor(location="w.bin")).SerializeToString(), "IRC1461")


def test_big_weights_are_written_beside_the_model(tmp_path):
    big, small = np.random.default_rng(0).random((16, 33), np.float32), np.float32([1, 2])
    nodes = [helper.make_node("Gather", ["big", "small"], ["y"])]
    tensors = [numpy_helper.from_array(big, "big"), numpy_helper.from_array(small, "small")]
    model, _ = read(make(nodes, [], initializer=tensors))
    path = tmp_path / "model.onnx"
    writer.write(model, path, inline_limit=1000)
    first = path.read_bytes(), (tmp_path / "model.onnx.data").read_bytes()
    np.testing.assert_array_equal(numpy_helper.to_array(onnx.load(path).graph.initializer[0]), big)
    locations = [t.data_location for t in onnx.load(path, load_external_data=False).graph.initializer]
    assert locations == [TensorProto.EXTERNAL, TensorProto.DEFAULT]  # what is small stays in the protobuf
    again, _ = read(path)
    writer.write(again, path, inline_limit=1000)  # over the file that it maps
    assert (path.read_bytes(), (tmp_path / "model.onnx.data").read_bytes()) == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]
    np.testing.assert_array_equal(again.graph.constants["big"].load(), big)


def test_a_failed_write_leaves_the_old_file(tmp_path):
    model, _ = read(make())
    writer.write(model, tmp_path / "m.onnx")
    before = (tmp_path / "m.onnx").read_bytes()
    model.graph.constants["w"] = RawTensor("w", DTYPES["nf4"], (1,), lambda: np.zeros(1, np.float32))
    with pytest.raises(Problem) as caught:
        writer.write(model, tmp_path / "m.onnx")
    assert caught.value.code.id == "IRC4007"
    assert (tmp_path / "m.onnx").read_bytes() == before and len(list(tmp_path.iterdir())) == 1
