"""ZipMap, CastMap and DictVectorizer in both backends, beside ONNX Runtime where it takes such a map."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import irc
from irc.border import WriteOptions, read_model, write_model
from irc.diagnostics import Sink
from irc.formats.onnx import reader as onnx_reader, writer as onnx_writer
from irc.runtime.errors import InputTypeError

F32, F64, I64, TEXT = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.STRING
BACKENDS = ("numpy", "c")
SCORES = np.array([[0.25, 0.5, 0.25], [1, -2, float("inf")]], np.float32)
NUMBERS = {4: 1.5, 0: -2.0, 7: 1e20}
WORDS = {4: "1.5", 0: "-3", 9: "7"}


def map_value(name: str, key: int, value: int, sequence: bool = False) -> onnx.ValueInfoProto:
    kind = helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, None if sequence else []))
    return helper.make_value_info(name, helper.make_sequence_type_proto(kind) if sequence else kind)


def model(name: str, x: onnx.ValueInfoProto, y: onnx.ValueInfoProto, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(name, ["x"], ["y"], domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph([node], "maps", [x], [y])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def zip_map(shape: list[Any], **labels: Any) -> onnx.ModelProto:
    key = TEXT if "classlabels_strings" in labels else I64
    x = helper.make_tensor_value_info("x", F32, shape)
    return model("ZipMap", x, map_value("y", key, F32, sequence=True), **labels)


def cast_map(value: int, cast_to: str, **attributes: Any) -> onnx.ModelProto:
    kind = {"TO_FLOAT": F32, "TO_INT64": I64, "TO_STRING": TEXT}[cast_to]
    y = helper.make_tensor_value_info("y", kind, [1, None])
    return model("CastMap", map_value("x", I64, value), y, cast_to=cast_to, **attributes)


def vectorizer(key: int, value: int, vocabulary: list[Any]) -> onnx.ModelProto:
    name = "string_vocabulary" if key == TEXT else "int64_vocabulary"
    y = helper.make_tensor_value_info("y", value, [1, len(vocabulary)])
    return model("DictVectorizer", map_value("x", key, value), y, **{name: vocabulary})


def in_both(proto: onnx.ModelProto, x: Any) -> Any:
    """The result, equal in both backends and after writing the model."""
    sink = Sink()
    read = read_model(onnx_reader.read(proto, sink), sink)
    raw = write_model(read, WriteOptions("onnx", {"": 18, "ai.onnx.ml": 3}, version=9), sink)
    again = onnx_writer.to_proto(raw)
    assert not sink.errors, sink.errors
    found = [irc.compile(p, backend=name)(x)[0] for p in (proto, again) for name in BACKENDS]
    for other in found[1:]:
        same(other, found[0])
    return found[0]


def same(got: Any, want: Any) -> None:
    if isinstance(want, list):
        assert got == want
    else:
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def in_onnxruntime(proto: onnx.ModelProto, x: Any) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize("labels", [{"classlabels_int64s": [5, -3, 9]}, {"classlabels_strings": ["b", "ü", ""]}])
@pytest.mark.parametrize(
    ("shape", "x"), [(["n", 3], SCORES), ([2, 3], SCORES), ([3], SCORES[0]), (["n", 3], SCORES[:0])]
)
def test_a_map_for_each_row(labels: dict[str, Any], shape: list[Any], x: Any) -> None:
    proto = zip_map(shape, **labels)
    found = in_both(proto, x)
    keys = next(iter(labels.values()))
    assert found == [dict(zip(keys, row, strict=True)) for row in x.reshape(-1, 3).tolist()]
    if len(x):
        assert found == in_onnxruntime(proto, x)


@pytest.mark.parametrize("cast_to", ["TO_FLOAT", "TO_INT64"])
@pytest.mark.parametrize("given", [NUMBERS, {3: 1.0}, {0: 7.25, 5: 2.0}])
@pytest.mark.parametrize("form", [{"map_form": "DENSE"}, {"map_form": "SPARSE", "max_map": 6}])
def test_values_of_a_map_as_a_row(cast_to: str, given: dict[int, float], form: dict[str, Any]) -> None:
    proto = cast_map(F32, cast_to, **form)
    same(in_both(proto, given), in_onnxruntime(proto, given))


@pytest.mark.parametrize(
    ("value", "given", "cast_to", "want"),
    [
        (TEXT, WORDS, "TO_FLOAT", [[-3, 0, 0, 0, 1.5, 0]]),
        (TEXT, {0: "12", 3: "-4"}, "TO_INT64", [[12, 0, 0, -4, 0, 0]]),
        (TEXT, WORDS, "TO_STRING", [["-3", "", "", "", "1.5", ""]]),
        (F32, NUMBERS, "TO_STRING", [["-2.0", "", "", "", "1.5", ""]]),
        (F32, {-1: 5.0, 6: 7.0, 2**62: 8.0}, "TO_FLOAT", [[0] * 6]),
        (F32, {}, "TO_FLOAT", [[0] * 6]),
    ],
)
def test_keys_say_the_column(value: int, given: dict[int, Any], cast_to: str, want: list[Any]) -> None:
    """What no column is for is left out; ONNX Runtime's Python takes no maps of strings."""
    assert in_both(cast_map(value, cast_to, map_form="SPARSE", max_map=6), given).tolist() == want


def test_words_in_the_order_of_their_keys() -> None:
    assert in_both(cast_map(TEXT, "TO_STRING"), WORDS).tolist() == [["-3", "1.5", "7"]]
    assert in_both(cast_map(F32, "TO_FLOAT"), {}).shape == (1, 0)


@pytest.mark.parametrize(
    ("key", "value", "vocabulary", "given", "want"),
    [
        (TEXT, F32, ["z", "b", "a"], {"a": 1.5, "z": 3.0}, [[3, 0, 1.5]]),
        (TEXT, F64, ["z", "b"], {"b": 0.1, "unknown": 3.0}, [[0, 0.1]]),
        (TEXT, I64, ["z", "ü"], {"ü": 2**60}, [[0, 2**60]]),
        (I64, F32, [4, 2, 1], {1: 1.5, 2: 3.0}, [[0, 3, 1.5]]),
        (I64, F64, [4, 2], {2: 0.1}, [[0, 0.1]]),
        (I64, TEXT, [4, 2], {2: "two", 3: "three"}, [["", "two"]]),
        (I64, F32, [4, 2], {}, [[0, 0]]),
    ],
)
def test_values_in_the_order_of_a_vocabulary(key: int, value: int, vocabulary: Any, given: Any, want: Any) -> None:
    proto = vectorizer(key, value, vocabulary)
    found = in_both(proto, given)
    assert found.tolist() == want
    if value == F32 and given:
        same(found, in_onnxruntime(proto, given))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_map_alone_or_by_its_name(backend: str) -> None:
    compiled = irc.compile(vectorizer(TEXT, F32, ["x", "a"]), backend=backend)
    for given in ({"x": {"x": 2.0}}, {"x": 2.0}, [{"x": 2.0}]):
        assert compiled(given)[0].tolist() == [[2, 0]]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("given", [{1: 2.0}, {"a": "b"}, {"a": True}, SCORES, None, {"a": 1 << 70}])
def test_maps_of_other_types_are_refused(backend: str, given: Any) -> None:
    compiled = irc.compile(vectorizer(TEXT, I64, ["a"]), backend=backend)
    with pytest.raises(InputTypeError, match="IRC6"):
        compiled(given)


def test_the_manifest_names_the_tensors_of_a_map() -> None:
    compiled = irc.compile(vectorizer(TEXT, F64, ["a"]), backend="c")
    manifest = compiled.artifact.manifest
    assert [row["name"] for row in manifest["inputs"]] == ["x/keys", "x/values"]
    assert manifest["packed"]["inputs"][0]["structure"] == ["map", "string", "f64"]
    assert irc.compile(zip_map([2, 3], classlabels_int64s=[1, 2, 3]), backend="c").artifact.manifest["packed"][
        "outputs"
    ][0]["structure"] == ["maps"]


@pytest.mark.parametrize(
    ("proto", "code"),
    [
        (zip_map([2, 4], classlabels_int64s=[1, 2, 3]), "IRC3108"),
        (model("CastMap", helper.make_tensor_value_info("x", F32, [3]), map_value("y", I64, F32)), "IRC2104"),
        (cast_map(F64, "TO_FLOAT"), "IRC2104"),
        (
            model("DictVectorizer", map_value("x", TEXT, TEXT), map_value("y", I64, F32), string_vocabulary=["a"]),
            "IRC2104",
        ),
    ],
)
def test_what_is_no_such_map_is_refused(proto: onnx.ModelProto, code: str) -> None:
    with pytest.raises(irc.IrcError) as caught:
        irc.compile(proto, backend="numpy")
    assert code in [d.code for d in caught.value.diagnostics]
