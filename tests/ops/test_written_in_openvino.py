"""ONNX operators that OpenVINO has no single operation for, or computes otherwise: what is written, in its plugin."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import openvino as ov
import pytest

import irc
from tests.support.random_numbers import RANDOM

F, I, B = np.float32, np.int64, np.bool_
INF = float("inf")


def model_of(
    node: onnx.NodeProto, arrays: Sequence[np.ndarray], opset: int, any_size: Sequence[str] = ()
) -> onnx.ModelProto:
    """A model of one node, whose inputs are as the arrays; those of `any_size` have no known size."""
    names = [name for name in node.input if name]
    shapes = [[None] * a.ndim if n in any_size else a.shape for n, a in zip(names, arrays, strict=True)]
    types = [oh.np_dtype_to_tensor_dtype(a.dtype) for a in arrays]
    made = [oh.make_tensor_value_info(*known) for known in zip(names, types, shapes, strict=True)]
    results = [onnx.ValueInfoProto(name=name) for name in node.output]
    graph = oh.make_graph([node], "one", made, results)
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", opset)], ir_version=11)


def through_openvino(model: onnx.ModelProto, arrays: Sequence[np.ndarray], folder: Path) -> list[np.ndarray]:
    """Write the model as an IR, and run that in OpenVINO."""
    onnx.save(model, folder / "m.onnx")
    irc.save(irc.load(folder / "m.onnx"), folder / "m.xml")
    core = ov.Core()
    request = core.compile_model(
        core.read_model(folder / "m.xml"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    ).create_infer_request()
    for i, array in enumerate(arrays):
        request.set_input_tensor(i, ov.Tensor(array if array.ndim == 0 else np.ascontiguousarray(array)))
    request.infer()
    return [np.array(request.get_output_tensor(i).data) for i in range(len(request.model_outputs))]


def check(model: onnx.ModelProto, arrays: Sequence[np.ndarray], folder: Path) -> None:
    """Compare with the NumPy backend, whose references are held against ONNX's own cases."""
    got = through_openvino(model, arrays, folder)
    want = irc.compile(irc.load(folder / "m.onnx"), backend="numpy", cache=False)(list(arrays))
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
        assert g.shape == w.shape


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [[0, 2], [-1, 0], [2, 1]], ids=str)
@pytest.mark.parametrize("name", ["ReduceSum", "ReduceMax", "ReduceLogSumExp"])
def test_reductions_over_axes_of_the_run(name: str, axes: list[int], keepdims: int, tmp_path: Path) -> None:
    """OpenVINO itself has no rank for the result without keepdims, and no plan."""
    arrays = [RANDOM.standard_normal((2, 3, 4)).astype(F), np.array(axes, I)]
    node = oh.make_node(name, ["x", "axes"], ["y"], keepdims=keepdims)
    check(model_of(node, arrays, 18), arrays, tmp_path)


@pytest.mark.parametrize("axes", [[], [1], [0, -1]], ids=str)
@pytest.mark.parametrize("noop", [0, 1])
@pytest.mark.parametrize("known", [False, True])
def test_axes_that_may_be_none(axes: list[int], noop: int, known: bool, tmp_path: Path) -> None:
    """No axes are all of them, or none; how many there are may be known only when the model runs."""
    arrays = [RANDOM.standard_normal((2, 3, 4)).astype(F), np.array(axes, I)]
    node = oh.make_node("ReduceL2", ["x", "axes"], ["y"], noop_with_empty_axes=noop)
    check(model_of(node, arrays, 18, [] if known else ["axes"]), arrays, tmp_path)


@pytest.mark.parametrize("of_the_run", [False, True])
@pytest.mark.parametrize("name", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("shape", [(3, 4), (3, 0)], ids=str)
def test_extremes_of_booleans(name: str, shape: tuple[int, ...], of_the_run: bool, tmp_path: Path) -> None:
    x, axes = RANDOM.random(shape) < 0.5, np.array([1], I)
    model = model_of(oh.make_node(name, ["x", "axes"], ["y"]), [x, axes], 20)
    if not of_the_run:
        model.graph.initializer.append(onnx.numpy_helper.from_array(axes, "axes"))
        del model.graph.input[1]
    check(model, [x, axes] if of_the_run else [x], tmp_path)


@pytest.mark.parametrize("name", ["ReduceMax", "ReduceMin"])
def test_extremes_of_nothing(name: str, tmp_path: Path) -> None:
    """They are infinite; OpenVINO's plugin gives the largest number."""
    arrays = [np.zeros((2, 0, 4), F), np.array([1], I)]
    check(model_of(oh.make_node(name, ["x", "axes"], ["y"]), arrays, 20), arrays, tmp_path)


@pytest.mark.parametrize("axes", [[0], [3, 0], [-1, 2], [1, -2]], ids=str)
def test_unsqueeze_at_axes_of_the_run(axes: list[int], tmp_path: Path) -> None:
    arrays = [RANDOM.standard_normal((2, 3, 4)).astype(F), np.array(axes, I)]
    check(model_of(oh.make_node("Unsqueeze", ["x", "axes"], ["y"]), arrays, 13), arrays, tmp_path)


@pytest.mark.parametrize("repeats", [(2, 3, 4, 2), (1, 2, 2, 2), (1, 1, 1, 1)], ids=str)
def test_tile_by_repeats_of_the_run(repeats: tuple[int, ...], tmp_path: Path) -> None:
    """The plugin leaves memory unset where three axes behind the first are repeated."""
    arrays = [RANDOM.standard_normal((7, 6, 4, 5)).astype(F), np.array(repeats, I)]
    check(model_of(oh.make_node("Tile", ["x", "repeats"], ["y"]), arrays, 13), arrays, tmp_path)


def test_modulo_infinity(tmp_path: Path) -> None:
    x = np.array([0, -3, 3, -1, 1, INF, 1, np.nan, 5.3, -5.3, -7, 6], F)
    y = np.array([-2, INF, INF, -INF, -INF, 2, 0, INF, 1.5, 1.5, -2, -INF], F)
    check(model_of(oh.make_node("Mod", ["x", "y"], ["z"], fmod=0), [x, y], 28), [x, y], tmp_path)


@pytest.mark.parametrize("shape", [(1, 2, 5, 7), (2, 3, 4, 5, 3), (2, 1, 9)], ids=str)
def test_places_in_columns(shape: tuple[int, ...], tmp_path: Path) -> None:
    """MaxPool's storage_order."""
    kernel = [2] * (len(shape) - 2)
    node = oh.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=kernel, strides=kernel, storage_order=1)
    arrays = [RANDOM.permutation(np.arange(np.prod(shape))).reshape(shape).astype(F)]
    check(model_of(node, arrays, 22), arrays, tmp_path)


@pytest.mark.parametrize("name", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_ignored_class_that_is_none(name: str, reduction: str, tmp_path: Path) -> None:
    """OpenVINO reads elements beyond the classes from wherever that is."""
    arrays: list[Any] = [RANDOM.random((3, 5)).astype(F), np.array([10, 4, 3], I), RANDOM.random(5).astype(F)]
    node = oh.make_node(name, ["x", "t", "w"], ["y"], ignore_index=10, reduction=reduction)
    check(model_of(node, arrays, 13), arrays, tmp_path)


@pytest.mark.parametrize("name", ["OptionalHasElement", "OptionalGetElement"])
def test_tensors_are_there(name: str, tmp_path: Path) -> None:
    arrays = [RANDOM.random(4).astype(F)]
    check(model_of(oh.make_node(name, ["x"], ["y"]), arrays, 18), arrays, tmp_path)


def test_missing_operand_is_not_there(tmp_path: Path) -> None:
    check(model_of(oh.make_node("OptionalHasElement", [""], ["y"]), [], 18), [], tmp_path)


@pytest.mark.parametrize("sizes", [(2, 1, 4, 5), (2, 1, 1, 3), (1, 2, 3, 2, 4)], ids=str)
@pytest.mark.parametrize("align", [0, 1])
def test_grids_of_sizes_of_the_run(sizes: tuple[int, ...], align: int, tmp_path: Path) -> None:
    axes = len(sizes) - 2
    arrays = [RANDOM.standard_normal((sizes[0], axes, axes + 1)).astype(F), np.array(sizes, I)]
    check(model_of(oh.make_node("AffineGrid", ["t", "s"], ["y"], align_corners=align), arrays, 20), arrays, tmp_path)


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int16])
def test_shifts_beyond_the_width(direction: str, dtype: type, tmp_path: Path) -> None:
    """The plugin's shifts are those of the processor, which counts modulo the width."""
    signed = np.issubdtype(dtype, np.signedinteger)
    x = np.array([-8 if signed else 200, 5, 7, 1, -1 if signed else 255, 6], dtype)
    y = np.array([1, 2, 40, 64, -1 if signed else 8, 0], dtype)
    model = model_of(oh.make_node("BitShift", ["x", "y"], ["z"], direction=direction), [x, y], 28)
    check(model, [x, y], tmp_path)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("axis", [0, -1])
def test_running_products(axis: int, exclusive: int, tmp_path: Path) -> None:
    arrays = [RANDOM.standard_normal((3, 4)).astype(F), np.array(axis, I)]
    node = oh.make_node("CumProd", ["x", "axis"], ["y"], exclusive=exclusive, reverse=exclusive)
    check(model_of(node, arrays, 26), arrays, tmp_path)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_samples_of_volumes(mode: str, tmp_path: Path) -> None:
    arrays = [RANDOM.standard_normal((1, 2, 3, 2, 4)).astype(F), RANDOM.uniform(-1.2, 1.2, (1, 2, 3, 2, 3)).astype(F)]
    check(model_of(oh.make_node("GridSample", ["x", "g"], ["y"], mode=mode), arrays, 20), arrays, tmp_path)


@pytest.mark.parametrize("dilations", [[1, 1], [2, 1]], ids=str)
@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("name", ["LpPool", "AveragePool"])
def test_pools_whose_windows_run_over(name: str, ceil: int, dilations: list[int], tmp_path: Path) -> None:
    """OpenVINO has no LpPool, and divides by windows that reach beyond the padding as a whole."""
    node = oh.make_node(
        name,
        ["x"],
        ["y"],
        kernel_shape=[3, 2],
        strides=[3, 2],
        pads=[1, 0, 1, 1],
        ceil_mode=ceil,
        dilations=dilations,
        **({"p": 3} if name == "LpPool" else {"count_include_pad": 1}),
    )
    arrays = [RANDOM.standard_normal((1, 3, 7, 8)).astype(F)]
    check(model_of(node, arrays, 22), arrays, tmp_path)


@pytest.mark.parametrize("axis", [0, 1, -2])
@pytest.mark.parametrize("fields", [{}, {"onesided": 1}, {"inverse": 1}], ids=str)
@pytest.mark.parametrize("parts", [1, 2])
def test_transforms_along_axes_of_the_run(axis: int, fields: dict[str, int], parts: int, tmp_path: Path) -> None:
    if parts == 2 and fields.get("onesided"):
        return  # of real numbers only
    arrays = [RANDOM.standard_normal((2, 4, 3, parts)).astype(F), np.array(axis, I)]
    check(model_of(oh.make_node("DFT", ["x", "", "axis"], ["y"], **fields), arrays, 20), arrays, tmp_path)


def test_columns_of_an_image(tmp_path: Path) -> None:
    """The plugin leaves its memory where attributes that have defaults are left out."""
    arrays = [RANDOM.standard_normal((2, 6, 12)).astype(F), np.array([5, 5], I), np.array([2, 3], I)]
    check(model_of(oh.make_node("Col2Im", ["x", "i", "b"], ["y"]), arrays, 18), arrays, tmp_path)


def test_rows_that_attend_to_nothing(tmp_path: Path) -> None:
    """The plugin's largest of minus infinities is the lowest number."""
    q, k, v = (RANDOM.standard_normal((1, 2, 3, 4)).astype(F) for _ in "qkv")
    mask = np.array([[True, False, True], [False] * 3, [True] * 3])
    check(model_of(oh.make_node("Attention", list("qkvm"), ["y"]), [q, k, v, mask], 23), [q, k, v, mask], tmp_path)


SEQUENCES = {
    "the last of some": """(float[2,3] x, float[1,3] y) => (float[n,3] z) {
        s = SequenceConstruct(x, y) at = Constant<value = int64 {-1}>() first = Constant<value = int64 {0}>()
        t = SequenceErase(s, first) u = SequenceInsert(t, x, first) z = SequenceAt(u, at) }""",
    "parts": """(float[1,3] x, float[1,3] y) => (float[1,n] z, int64 count) {
        sizes = Constant<value = int64[2] {1, 2}>() s = SplitToSequence<axis = 1>(x, sizes) count = SequenceLength(s)
        at = Constant<value = int64 {1}>() part = SequenceAt(s, at) zero = SplitToSequence<axis = 0>(y)
        one = ConcatFromSequence<axis = 1>(zero) z = Concat<axis = 1>(part, one) }""",
    "stacked": """(float[2,3] x, float[2,3] y) => (float[2,3,n] z) {
        none = SequenceEmpty() s = SequenceInsert(none, x) t = SequenceInsert(s, y)
        z = ConcatFromSequence<axis = -1, new_axis = 1>(t) }""",
    "a place of the run": """(float[4,3] x, int64 at) => (float[n,3] z, int64 count) {
        s = SplitToSequence(x) z = SequenceAt(s, at) t = SequenceErase(s, at) count = SequenceLength(t) }""",
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_between_tensors(name: str, tmp_path: Path) -> None:
    """OpenVINO has no sequences: elements are taken as they are, or out of tensors that hold all of them."""
    header = '<ir_version: 10, opset_import: ["": 21]> sequences '
    model = onnx.parser.parse_model(header + SEQUENCES[name])
    shapes = [[d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input]
    arrays = [np.array(2, I) if not shape else RANDOM.random(shape).astype(F) for shape in shapes]
    check(model, arrays, tmp_path)
    known = "run" not in name
    assert (' type="Reshape"' not in (tmp_path / "m.xml").read_text()) or not known


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skips", [0, 1, 5])
@pytest.mark.parametrize("shape", [(12,), (2, 6), (3, 1)], ids=str)
def test_counts_of_grams(shape: tuple[int, ...], skips: int, mode: str, tmp_path: Path) -> None:
    """Grams of one, two and three items, of which two count at one place."""
    node = oh.make_node(
        "TfIdfVectorizer",
        ["x"],
        ["y"],
        mode=mode,
        min_gram_length=1,
        max_gram_length=3,
        max_skip_count=skips,
        ngram_counts=[0, 3, 9],
        ngram_indexes=[0, 2, 5, 1, 3, 2, 6],
        pool_int64s=[1, 2, 3, 1, 2, 2, 2, 3, 1, 1, 2, 3],
        weights=[0.5, 2.0, 3.0, 1.0, 4.0, 0.25, 8.0],
    )
    arrays = [RANDOM.integers(1, 5, shape)]
    check(model_of(node, arrays, 9), arrays, tmp_path)
    check(model_of(node, arrays, 9, ["x"]), arrays, tmp_path)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_walks_down_trees(aggregate: str, tmp_path: Path) -> None:
    """Two trees of different depths, whose leaves vote for two targets."""
    fields: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
        "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
        "nodes_featureids": [0, 0, 2, 0, 0, 1, 0, 0],
        "nodes_modes": [b"BRANCH_LEQ", b"LEAF", b"BRANCH_GT", b"LEAF", b"LEAF", b"BRANCH_EQ", b"LEAF", b"LEAF"],
        "nodes_values": [0.25, 0, -0.5, 0, 0, 1, 0, 0],
        "nodes_truenodeids": [1, 0, 3, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [2, 0, 4, 0, 0, 2, 0, 0],
        "nodes_missing_value_tracks_true": [0, 0, 1, 0, 0, 1, 0, 0],
        "target_treeids": [0, 0, 0, 0, 1, 1],
        "target_nodeids": [1, 3, 4, 4, 1, 2],
        "target_ids": [0, 1, 0, 1, 1, 0],
        "target_weights": [1.5, -2.0, 3.0, 0.5, 4.0, -1.0],
    }
    node = oh.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], "", "", "ai.onnx.ml", n_targets=2, aggregate_function=aggregate, **fields
    )
    x = RANDOM.integers(-2, 3, (20, 3)).astype(F) / 2
    x[0, 2] = x[1, 1] = np.nan
    model = model_of(node, [x], 20, ["x"])
    model.opset_import.append(oh.make_opsetid("ai.onnx.ml", 3))


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (4, 3, 3)], ids=str)
def test_determinants_in_full(shape: tuple[int, ...], tmp_path: Path) -> None:
    arrays = [RANDOM.standard_normal(shape).astype(F)]
    check(model_of(oh.make_node("Det", ["x"], ["y"]), arrays, 22), arrays, tmp_path)


@pytest.mark.parametrize(
    ("of", "to"), [(np.int8, np.uint8), (np.uint16, np.int16), (np.uint32, np.int32), (B, np.uint8)]
)
def test_bits_of_integers(of: type, to: type, tmp_path: Path) -> None:
    x = (RANDOM.random(6) < 0.5) if of is B else RANDOM.integers(np.iinfo(of).min, np.iinfo(of).max, 6).astype(of)
    node = oh.make_node("BitCast", ["x"], ["y"], to=oh.np_dtype_to_tensor_dtype(np.dtype(to)))
    check(model_of(node, [x], 26), [x], tmp_path)


@pytest.mark.parametrize(("name", "infinity"), [("ReduceMax", -INF), ("ReduceMin", INF)])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_rows_of_infinity(name: str, infinity: float, keepdims: int, tmp_path: Path) -> None:
    """As in the function that ONNX defines Attention by."""
    x = RANDOM.standard_normal((3, 4)).astype(F)
    x[1], x[2, 1] = infinity, infinity
    model = model_of(oh.make_node(name, ["x", "axes"], ["m"], keepdims=keepdims), [x, np.array([1], I)], 20)
    for name, array in (("axes", np.array([1], I)), ("infinity", np.array(infinity, F))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    del model.graph.input[1]
    model.graph.node.append(oh.make_node("CastLike", ["infinity", "m"], ["limit"]))
    model.graph.node.append(oh.make_node("Equal", ["limit" if keepdims else "infinity", "m"], ["y"]))
    model.graph.output[0].name = "y"
    check(model, [x], tmp_path)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("fields", "optional"),
    [
        ({}, "p"),
        ({"clip": 0.3}, "np"),
        ({"input_forget": 1}, "n"),
        ({"activations": ["HardSigmoid", "Softsign", "Elu"]}, ""),
        ({"activations": ["Sigmoid", "LeakyRelu", "Affine"], "input_forget": 1}, "np"),
        ({"activations": ["ThresholdedRelu", "ScaledTanh", "Softplus"]}, "n"),
    ],
    ids=str,
)
def test_long_short_term_memory_in_loops(fields: dict[str, Any], optional: str, direction: str, tmp_path: Path) -> None:
    """Peepholes, coupled gates, and activations that OpenVINO's sequence does not have."""
    directions, steps, batch, size, hidden = 1 + (direction == "bidirectional"), 4, 3, 5, 4
    shapes = {
        "x": (steps, batch, size),
        "w": (directions, 4 * hidden, size),
        "r": (directions, 4 * hidden, hidden),
        "b": (directions, 8 * hidden),
        "n": (batch,),
        "h": (directions, batch, hidden),
        "c": (directions, batch, hidden),
        "p": (directions, 3 * hidden),
    }
    names = [name if name in "xwrbhc" + optional else "" for name in shapes]
    arrays = [
        np.array([4, 2, 1], np.int32) if name == "n" else (RANDOM.standard_normal(shapes[name]) / 2).astype(F)
        for name in names
        if name
    ]
    fields = {**fields, **({"activations": fields["activations"] * directions} if "activations" in fields else {})}
    node = oh.make_node("LSTM", names, ["y", "y_h", "y_c"], hidden_size=hidden, direction=direction, **fields)
    check(model_of(node, arrays, 17), arrays, tmp_path)


@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("mode", ["half_pixel", "output_half_pixel"])
def test_largest_weighted_elements(mode: str, ratio: int, tmp_path: Path) -> None:
    """OpenVINO's own maximum is that of the samples."""
    regions = np.array([[0, 0, 5, 6], [1.5, 2, 7, 4], [-3, -2, 2, 9], [4, 4, 4, 4]], F)
    arrays = [RANDOM.standard_normal((2, 3, 7, 8)).astype(F), regions, np.array([0, 1, 1, 0], I)]
    node = oh.make_node(
        "RoiAlign",
        ["x", "rois", "batch"],
        ["y"],
        mode="max",
        output_height=3,
        output_width=2,
        sampling_ratio=ratio,
        coordinate_transformation_mode=mode,
    )
    check(model_of(node, arrays, 16), arrays, tmp_path)


SPECIAL = [0.0, -0.0, INF, -INF, float("nan"), 1.0, -1.0, 1e-38, 3.4028235e38, 2.0, 0.99999994]


def test_bits_of_floats(tmp_path: Path) -> None:
    """Exact but for patterns of NaN, and for numbers that OpenVINO takes as 0 because they are not normal."""
    bits = RANDOM.integers(-(2**31), 2**31, 2000).astype(np.int32)
    floats = np.concatenate([bits.view(F)[np.isfinite(bits.view(F))], np.array(SPECIAL, F)])
    floats = floats[(np.abs(floats) >= np.finfo(F).tiny) | (floats == 0) | np.isnan(floats)]
    for array, to in ((floats, np.int32), (floats.view(np.int32), F)):
        node = oh.make_node("BitCast", ["x"], ["y"], to=oh.np_dtype_to_tensor_dtype(np.dtype(to)))
        (got,) = through_openvino(model_of(node, [array], 26), [array], tmp_path)
        np.testing.assert_array_equal(got.view(np.int32), array.view(np.int32))


@pytest.mark.parametrize("ratio", [0.0, 0.75])
def test_numbers_of_a_seed_that_openvino_has_no_generator_for(ratio: float, tmp_path: Path) -> None:
    """They are the same in every run, so the file gets the numbers."""
    arrays = [RANDOM.standard_normal((3, 4, 5)).astype(F), np.array(ratio, F), np.array(True)]
    node = oh.make_node("Dropout", ["x", "ratio", "training"], ["y", "mask"], seed=7)
    check(model_of(node, arrays, 13), arrays, tmp_path)
