"""What irc writes in the other format reads as if that format's own tools had written it: types of nodes, counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import irc
from irc.border.losses import conversion_losses
from irc.border.support import bodies_of
from irc.conversion import SaveOptions, raw_model
from irc.diagnostics import Sink
from irc.formats.document import RawGraph
from irc.ir.graph import Model
from irc.version import VERSION

openvino: Any = pytest.importorskip("openvino")
operations: Any = pytest.importorskip("openvino.opset13")
onnxruntime: Any = pytest.importorskip("onnxruntime")


def types(model: Model, ending: str, **options: Any) -> Counter[str]:
    """How many nodes of each type the model is written with; constants, inputs and results do not count."""
    found: Counter[str] = Counter()

    def count(graph: RawGraph) -> None:
        for node in graph.nodes:
            found[node.type] += 1
            for body in bodies_of(node):
                count(body)

    count(raw_model(model, ending, SaveOptions(**options), Sink()).graph)
    return found


def parsed(text: str, weights: dict[str, Any] | None = None, opset: int = 21) -> onnx.ModelProto:
    """A model of ONNX's text format, with these initializers."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in (weights or {}).items())
    return model


def agrees(model: onnx.ModelProto, tmp_path: Path, rtol: float = 1e-5) -> None:
    """Check that OpenVINO computes of the IR what irc computes of the ONNX file."""
    source, target = tmp_path / "m.onnx", tmp_path / "m.xml"
    source.write_bytes(model.SerializeToString())
    loaded = irc.load(str(source))
    irc.save(loaded, str(target))
    rng = np.random.default_rng(0)
    feeds = {v.name: rng.normal(size=v.tensor.static_shape()).astype(v.dtype.numpy) for v in loaded.inputs}
    wanted = irc.compile(loaded, backend="numpy")(*feeds.values())
    exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    compiled = openvino.Core().compile_model(str(target), "CPU", exact)
    for found, expected in zip(compiled(list(feeds.values())).values(), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-5)


def numbers(*shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# ------------------------------------------------------------------------------ ONNX → IR
def test_biases_and_groups_of_convolutions_are_constants(tmp_path: Path) -> None:
    model = parsed(
        "m (float[1,4,8,8] x) => (float[1,4,8,8] y) { y = Conv<group=2, pads=[1,1,1,1]>(x, w, b) }",
        {"w": numbers(4, 2, 3, 3), "b": numbers(4)},
    )
    assert types(irc.load(model), ".xml") == {"GroupConvolution": 1, "Add": 1}
    agrees(model, tmp_path)


def test_parts_of_an_axis_are_one_split(tmp_path: Path) -> None:
    model = parsed("m (float[1,6] x) => (float[1,3] a, float[1,3] b) { a, b = Split<axis=1, num_outputs=2>(x) }")
    assert types(irc.load(model), ".xml") == {"Split": 1}
    model = parsed("m (float[1,6] x) => (float[1,2] a, float[1,4] b) { a, b = Split<axis=1>(x, n) }", {"n": [2, 4]})
    assert types(irc.load(model), ".xml") == {"VariadicSplit": 1}
    agrees(model, tmp_path)


def test_compressed_weights_stay_compressed() -> None:
    model = parsed(
        "m (float[1,64] x) => (float[1,64] y) { f = Cast<to=1>(w)\n y = MatMul(x, f) }",
        {"w": numbers(64, 64).astype(np.float16)},
    )
    assert types(irc.load(model), ".xml") == {"Convert": 1, "MatMul": 1}


ERF = "d = Div(x, root)\n e = Erf(d)\n g = Add(e, one)\n"
TANH = "c = Pow(x, three)\n m = Mul(c, k)\n s = Add(x, m)\n t = Mul(s, w)\n h = Tanh(t)\n g = Add(h, one)\n"
NUMBERS = {"root": np.sqrt(2), "one": 1, "half": 0.5, "three": 3, "k": 0.044715, "w": np.sqrt(2 / np.pi)}


@pytest.mark.parametrize("gate", [ERF, TANH], ids=["erf", "tanh"])
@pytest.mark.parametrize(
    "product",
    ["p = Mul(x, half)\n y = Mul(p, g)", "p = Mul(half, g)\n y = Mul(x, p)", "p = Mul(x, g)\n y = Mul(p, half)"],
)
def test_gelu_is_recognised(gate: str, product: str, tmp_path: Path) -> None:
    used = {k: np.float32(v) for k, v in NUMBERS.items() if f"{k})" in gate + product or f"({k}," in gate + product}
    model = parsed(f"m (float[2,8] x) => (float[2,8] y) {{ {gate}{product} }}", used)
    assert types(irc.load(model), ".xml") == {"Gelu": 1}
    agrees(model, tmp_path)


def test_what_only_resembles_gelu_stays() -> None:
    used = {k: np.float32(v) for k, v in NUMBERS.items() if k in ("one", "half")} | {"root": np.float32(1.5)}
    text = f"m (float[2,8] x) => (float[2,8] y) {{ {ERF} p = Mul(x, half)\n y = Mul(p, g) }}"
    assert "Gelu" not in types(irc.load(parsed(text, used)), ".xml")
    used["root"] = np.float32(np.sqrt(2))
    text = f"m (float[2,8] x) => (float[2,8] y, float[2,8] g) {{ {ERF} p = Mul(x, half)\n y = Mul(p, g) }}"
    assert types(irc.load(parsed(text, used)), ".xml")["Erf"] == 1


def test_sizes_that_the_file_fixes_are_constants(tmp_path: Path) -> None:
    model = parsed(
        "m (float[2,3,4] x) => (float[2,12] y) { n = Shape<start=0, end=1>(x)\n"
        "s = Concat<axis=0>(n, m)\n y = Reshape(x, s) }",
        {"m": [-1]},
    )
    assert types(irc.load(model), ".xml") == {"Reshape": 1}
    agrees(model, tmp_path)


QDQ = "q = QuantizeLinear<axis=1>(x, s, z)\n y = DequantizeLinear<axis=1>(q, s, z)"


@pytest.mark.parametrize("zero", [np.uint8(0), np.uint8(113), np.int8(-3), np.array([1, 2, -7], np.int8)])
def test_quantized_and_back_is_fake_quantize(zero: Any, tmp_path: Path) -> None:
    scale = np.full(zero.shape, 0.03125, np.float32)
    model = parsed(f"m (float[2,3,5] x) => (float[2,3,5] y) {{ {QDQ} }}", {"s": scale, "z": zero})
    assert types(irc.load(model), ".xml") == {"FakeQuantize": 1}
    agrees(model, tmp_path)


def test_quantized_and_back_by_other_numbers_is_none() -> None:
    text = QDQ.replace("(q, s, z)", "(q, t, z)")
    weights = {"s": np.float32(0.5), "t": np.float32(0.25), "z": np.uint8(3)}
    assert "FakeQuantize" not in types(
        irc.load(parsed(f"m (float[2,3] x) => (float[2,3] y) {{ {text} }}", weights)), ".xml"
    )


@pytest.mark.parametrize(("zero", "more"), [(0, {}), (3, {"Subtract": 1})])
def test_quantized_weights_are_decompressed(zero: int, more: dict[str, int], tmp_path: Path) -> None:
    weights = np.random.default_rng(2).integers(-128, 128, (64, 48)).astype(np.int8)
    given = {"w": weights, "s": abs(numbers(48)), "z": np.full(48, zero, np.int8)}
    model = parsed(
        "m (float[1,64] x) => (float[1,48] y) { f = DequantizeLinear<axis=1>(w, s, z)\n y = MatMul(x, f) }", given
    )
    assert types(irc.load(model), ".xml") == {"Convert": 1, "Multiply": 1, "MatMul": 1, **more}
    agrees(model, tmp_path, rtol=1e-4)


@pytest.mark.parametrize(
    ("axis", "kind", "product", "summed"),
    [
        (0, "INT4", "y = MatMul(x, d)", True),
        (1, "INT4", "y = MatMul(x, d)", False),
        (0, "UINT4", "y = MatMul(x, d)", True),
        (1, "UINT4", "y = Gemm<transB=1>(x, d)", True),
        (0, "INT4", "t = Transpose<perm=[1, 0]>(d)\n y = MatMul(x, t)", False),
    ],
)
def test_blocks_of_four_bits_are_an_axis_of_their_own(
    axis: int, kind: str, product: str, summed: bool, tmp_path: Path
) -> None:
    """OpenVINO looks for that, else it computes something else from i4; floats, where products do not sum over it."""
    turned, signed = "trans" in product.lower(), kind == "INT4"
    shape = [8, 64] if turned else [64, 8]
    sizes = [2 if i == axis else n for i, n in enumerate(shape)]
    text = (
        f"d = DequantizeLinear<axis={axis}, block_size={shape[axis] // 2}>(w, s{'' if signed else ', z'})\n {product}"
    )
    rng = np.random.default_rng(4)
    model = parsed(f"m (float[2,64] x) => (float[2,8] y) {{ {text} }}", {"s": rng.random(sizes, np.float32) / 8})
    for name, dims in (("w", shape), *((("z", sizes),) if not signed else ())):
        least = -8 if signed else 0
        numbers = rng.integers(least, least + 16, int(np.prod(dims))).tolist()
        model.graph.initializer.append(onnx.helper.make_tensor(name, getattr(onnx.TensorProto, kind), dims, numbers))
    found = types(irc.load(model), ".xml")
    blocks = {"Convert": 1 if signed else 2, "Multiply": 1, "Reshape": 1, **({} if signed else {"Subtract": 1})}
    assert found == {"MatMul": 1, **(blocks if summed else {})}
    agrees(model, tmp_path, rtol=1e-3)


LSTM = {"w": numbers(1, 16, 3), "r": numbers(1, 16, 4, seed=2), "b": numbers(1, 32, seed=3)}
STATES = {"h": numbers(1, 2, 4, seed=4), "c": numbers(1, 2, 4, seed=5)}
FEWER = {
    "transposes that a sequence takes in": (
        (
            "m (float[2,7,3] x) => (float[2,1,7,4] y) { t = Transpose<perm=[1,0,2]>(x)\n"
            " s = LSTM<hidden_size=4>(t, w, r, b)\n y = Transpose<perm=[2,1,0,3]>(s) }"
        ),
        LSTM,
        {"LSTMSequence": 1},
    ),
    "a sign and a bias of zeros": (
        "m (float[1,2,5] x) => (float[1,3,5] y) { c = Conv(x, k, z)\n y = Neg(c) }",
        {"k": numbers(3, 2, 1), "z": np.zeros(3, np.float32)},
        {"Convolution": 1},
    ),
    "zeros that are added": (
        "m (float[1,2,5] x) => (float[1,2,3] y) { c = MatMul(x, k)\n y = Add(c, z) }",
        {"k": numbers(5, 3), "z": np.zeros((2, 3), np.float32)},
        {"MatMul": 1},
    ),
    "reshapes": (
        "m (float[2,12] x) => (float[2,1,3,4] y) { u = Unsqueeze(x, a)\n y = Reshape(u, s) }",
        {"a": np.array([1]), "s": np.array([-1, 1, 3, 4])},
        {"Reshape": 1},
    ),
    "a transpose of one row": (
        "m (float[1,12] x) => (float[1,4,1,3] y) { u = Reshape(x, s)\n y = Transpose<perm=[0,2,1,3]>(u) }",
        {"s": np.array([1, 1, 4, 3])},
        {"Reshape": 1},
    ),
    "a transpose in a product": (
        "m (float[2,5,4] x) => (float[2,4,3] y) { t = Transpose<perm=[0,2,1]>(x)\n y = MatMul(t, k) }",
        {"k": numbers(5, 3)},
        {"MatMul": 1},
    ),
    "nothing beside something": (
        "m (float[2,3] x) => (float[2,3] y) { r = Relu(x)\n y = Concat<axis=1>(r, none) }",
        {"none": np.zeros((2, 0), np.float32)},
        {"ReLU": 1},
    ),
}


@pytest.mark.parametrize("name", FEWER)
def test_layers_that_do_nothing_of_their_own_are_left_out(name: str, tmp_path: Path) -> None:
    text, weights, wanted = FEWER[name]
    model = parsed(text, weights)
    assert types(irc.load(model), ".xml") == wanted
    agrees(model, tmp_path)


def test_sizes_are_copied_or_come_from_the_input() -> None:
    """A shape that is computed from the operand's is a constant; others take the sizes of inputs, once."""
    text = (
        "m (float[n,k,6] x, float[6] v) => (float[n,k,2,3] y, float[n,6] z) {\n"
        "p = Relu(x)\n s = Shape(p)\n a = Gather(s, zero)\n b = Gather(s, one)\n first = Unsqueeze(a, axes)\n"
        "last = Unsqueeze(b, axes)\n shape = Concat<axis=0>(first, last, middle)\n y = Reshape(p, shape)\n"
        "t = Shape<start=0, end=1>(y)\n wide = Concat<axis=0>(t, six)\n z = Expand(v, wide) }"
    )
    given = {"zero": 0, "one": 1, "axes": [0], "middle": [2, 3], "six": [6]}
    found = types(irc.load(parsed(text, {k: np.array(v) for k, v in given.items()})), ".xml")
    assert found == {"ReLU": 1, "Reshape": 1, "ShapeOf": 1, "Gather": 1, "Concat": 1, "Broadcast": 1}


@pytest.mark.parametrize("zeros", [False, True])
def test_products_of_microsoft_are_those_of_compressed_weights(zeros: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    weights = {"w": rng.integers(0, 256, (8, 2, 16)).astype(np.uint8), "s": rng.random((8, 2), np.float32) / 8}
    weights |= {"z": rng.integers(0, 256, (8, 1)).astype(np.uint8)} if zeros else {}
    text = "y = com.microsoft.MatMulNBits<K=64, N=8, bits=4, block_size=32>(x, w, s" + ", z" * zeros + ")"
    outer = (2, 3) if zeros else (3,)
    shape = ",".join(map(str, outer))
    model = parsed(f"m (float[{shape},64] x) => (float[{shape},8] y) {{ {text} }}", weights)
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    assert types(irc.load(model), ".xml") == {"Convert": 2, "Subtract": 1, "Multiply": 1, "Reshape": 1, "MatMul": 1}
    agrees(model, tmp_path, rtol=1e-3)
    text = (tmp_path / "m.xml").read_text().replace(", ", ",")
    assert 'element_type="u4" shape="8,2,32"' in text
    assert f'element_type="u4" shape="{"8,2,1" if zeros else 1}"' in text
    back, x = irc.load(str(tmp_path / "m.xml")), numbers(*outer, 64)
    assert types(back, ".onnx") == {"DequantizeLinear": 1, "MatMul" if zeros else "Gemm": 1}
    wanted = irc.compile(irc.load(model), backend="numpy")(x)[0]
    for opset in (21, 17):  # ONNX Runtime quantizes what it multiplies with blocks in other forms
        irc.save(back, tmp_path / "back.onnx", opset=opset)
        session = onnxruntime.InferenceSession(tmp_path / "back.onnx", providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)


def test_a_weight_that_others_read_too_is_written_once(tmp_path: Path) -> None:
    text = "e = Gather(w, i)\n s = Add(e, x)\n t = Transpose<perm=[1,0]>(w)\n y = MatMul(s, t)"
    model = parsed(f"m (int64[1,2] i, float[1,2,16] x) => (float[1,2,64] y) {{ {text} }}", {"w": numbers(64, 16)})
    agrees(model, tmp_path)
    assert (tmp_path / "m.bin").stat().st_size < 64 * 16 * 4 + 200
    irc.convert(tmp_path / "m.xml", tmp_path / "back.onnx")
    assert (tmp_path / "back.onnx").stat().st_size < 64 * 16 * 4 + 800


SIX = {"three": np.float32(3), "zero": np.float32(0), "six": np.float32(6), "sixth": np.float32(1 / 6)}


@pytest.mark.parametrize(
    "product",
    ["p = Mul(x, c)\n y = Div(p, six)", "p = Div(c, six)\n y = Mul(p, x)", "p = Mul(c, x)\n y = Mul(sixth, p)"],
)
def test_hard_swish_is_recognised(product: str, tmp_path: Path) -> None:
    text = f"m (float[2,8] x) => (float[2,8] y) {{ a = Add(x, three)\n c = Clip(a, zero, six)\n {product} }}"
    model = parsed(text, {k: v for k, v in SIX.items() if k != "sixth" or "sixth" in product})
    assert types(irc.load(model), ".xml") == {"HSwish": 1}
    agrees(model, tmp_path)


def test_layer_norm_is_recognised(tmp_path: Path) -> None:
    nodes = (
        "m = ReduceMean(x, axes)\n d = Sub(x, m)\n q = Pow(d, two)\n v = ReduceMean(q, axes)\n"
        "e = Add(v, eps)\n r = Sqrt(e)\n n = Div(d, r)\n s = Mul(n, w)\n y = Add(s, b)"
    )
    weights = {"axes": [-1], "two": np.float32(2), "eps": np.float32(1e-5), "w": numbers(8), "b": numbers(8, seed=3)}
    model = parsed(f"m (float[2,3,8] x) => (float[2,3,8] y) {{ {nodes} }}", weights)
    assert types(irc.load(model), ".xml") == {"MVN": 1, "Multiply": 1, "Add": 1}
    agrees(model, tmp_path)


def test_scales_and_shifts_go_into_convolutions(tmp_path: Path) -> None:
    nodes = "c = Conv(x, k, a)\n n = BatchNormalization(c, s, b, m, v)\n p = Mul(n, f)\n y = Add(p, f)"
    weights = {"k": numbers(5, 4, 3, 3), "a": numbers(5), "f": numbers(1, 5, 1, 1), "v": abs(numbers(5, seed=9)) + 0.5}
    weights |= {name: numbers(5, seed=i) for i, name in enumerate("sbm")}
    model = parsed(f"m (float[1,4,8,8] x) => (float[1,5,6,6] y) {{ {nodes} }}", weights)
    assert types(irc.load(model), ".xml") == {"Convolution": 1, "Add": 1}
    agrees(model, tmp_path, rtol=1e-4)


def test_a_batch_norm_of_its_own_is_a_product_and_a_sum(tmp_path: Path) -> None:
    weights = {"v": abs(numbers(5, seed=9)) + 0.5} | {name: numbers(5, seed=i) for i, name in enumerate("sbm")}
    text = "m (float[1,5,6] x) => (float[1,5,6] y) { y = BatchNormalization(x, s, b, m, v) }"
    assert types(irc.load(parsed(text, weights)), ".xml") == {"Multiply": 1, "Add": 1}
    agrees(parsed(text, weights), tmp_path)


# ------------------------------------------------------------------------------ IR → ONNX
THERE_AND_BACK: dict[str, tuple[str, dict[str, Any]]] = {
    "convolutions": (
        (
            "m (float[1,4,8,8] x) => (float[1,4,10,10] y) {\n"
            "c = Conv<group=2, pads=[1,1,1,1]>(x, v, b)\n y = ConvTranspose(c, w, b) }"
        ),
        {"v": numbers(4, 2, 3, 3), "w": numbers(4, 4, 3, 3), "b": numbers(4)},
    ),
    "gemm": (
        "m (float[2,8] x) => (float[2,4] y) { y = Gemm<transB=1>(x, w, b) }",
        {"w": numbers(4, 8), "b": numbers(4)},
    ),
    "layer_norm": (
        "m (float[2,5,8] x) => (float[2,5,8] y) { y = LayerNormalization<axis=-1>(x, s, b) }",
        {"s": numbers(8), "b": numbers(8, seed=3)},
    ),
    "layer_norm_2": (
        "m (float[2,5,6,8] x) => (float[2,5,6,8] y) { y = LayerNormalization<axis=1>(x, s) }",
        {"s": numbers(5, 6, 8)},
    ),
    "instance_norm": (
        "m (float[2,3,4,5] x) => (float[2,3,4,5] y) { y = InstanceNormalization(x, s, b) }",
        {"s": numbers(3), "b": numbers(3, seed=3)},
    ),
    "instance_norm_1d": (
        "m (float[2,3,9] x) => (float[2,3,9] y) { y = InstanceNormalization(x, s, b) }",
        {"s": numbers(3), "b": numbers(3, seed=3)},
    ),
    "leaky": ("m (float[2,3] x) => (float[2,3] y) { y = LeakyRelu<alpha=0.1>(x) }", {}),
    "gelu": ('m (float[2,3] x) => (float[2,3] y) { y = Gelu<approximate="tanh">(x) }', {}),
    "pool": ("m (float[2,3,4,4] x) => (float[2,3,1,1] y) { y = GlobalAveragePool(x) }", {}),
    "attention": (
        (
            "m (float[1,6,2,4] x) => (float[1,2,6,6] y) {\n"
            "q = Transpose<perm=[0,2,1,3]>(x)\n k = Transpose<perm=[0,2,3,1]>(x)\n y = MatMul(q, k) }"
        ),
        {},
    ),
    "lstm": (
        (
            "m (float[7,2,3] x) => (float[7,1,2,4] y, float[1,2,4] last) {\n"
            "y, last = LSTM<hidden_size=4>(x, w, r, b, , h, c) }"
        ),
        LSTM | STATES,
    ),
    "dense": ("m (float[1,6,8] x) => (float[1,6,4] y) { y = MatMul(x, w) }", {"w": numbers(8, 4)}),
    "qdq": (
        f"m (float[2,3,5] x) => (float[2,3,5] y) {{ {QDQ} }}",
        {"s": np.array([0.5, 0.25, 0.125], np.float32), "z": np.array([0, 128, 14], np.uint8)},
    ),
    "weights": (
        "m (float[1,64] x) => (float[1,48] y) { f = DequantizeLinear<axis=1>(w, s, z)\n y = MatMul(x, f) }",
        {
            "w": np.random.default_rng(2).integers(-128, 128, (64, 48)).astype(np.int8),
            "s": abs(numbers(48)),
            "z": np.full(48, 3, np.int8),
        },
    ),
}


@pytest.mark.parametrize("name", THERE_AND_BACK)
def test_there_and_back_has_the_same_nodes(name: str, tmp_path: Path) -> None:
    text, weights = THERE_AND_BACK[name]
    model = parsed(text, weights)
    source = irc.load(model)
    for path in (tmp_path / "own.xml", tmp_path / "theirs.xml"):
        if path.stem == "own":
            irc.save(source, path)
        else:
            onnx_file = tmp_path / "m.onnx"
            onnx_file.write_bytes(model.SerializeToString())
            openvino.save_model(openvino.convert_model(onnx_file), path, compress_to_fp16=False)
        back = irc.load(str(path))
        assert types(back, ".onnx") == Counter(n.op_type for n in model.graph.node)
        irc.save(back, tmp_path / "back.onnx")
        feeds = [numbers(*v.tensor.static_shape(), seed=5) for v in source.inputs]
        plain = onnxruntime.SessionOptions()  # its own rewrites quantize what weights in int8 are multiplied with
        plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(tmp_path / "back.onnx", plain, providers=["CPUExecutionProvider"])
        found = session.run(None, {i.name: a for i, a in zip(session.get_inputs(), feeds, strict=True)})
        wanted = irc.compile(source, backend="numpy")(*feeds)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


WIDE = 128 * np.array([0.07, 0.11, 0.05], np.float32).reshape(3, 1)
NARROW = WIDE / 128 * 127


@pytest.mark.parametrize(
    ("limits", "levels", "zero", "before"),
    [
        ((-0.7, 1.85), 256, np.uint8(70), []),
        ((-0.71, 1.84), 256, np.uint8(71), []),
        ((-1.28, 1.27), 256, np.int8(0), []),
        ((-1.27, 1.27, -12.7, 12.7), 255, np.int8(0), ["Clip"]),
        ((-0.3, 1.2), 16, np.uint8(3), ["Clip"]),
        ((-WIDE, NARROW), 256, np.int8([0, 0, 0]), []),
        ((-NARROW, NARROW), 255, np.int8([0, 0, 0]), ["Max", "Min"]),
        ((-WIDE, NARROW, -1.28, 1.27), 256, np.int8([0, 0, 0]), []),
        ((-71, 184), 256, None, []),  # 0.5 is halfway, and 71 is odd
        ((-1, 1), 256, None, []),  # 0 is no level
    ],
)
def test_fake_quantize_is_quantized_and_back(
    limits: Any, levels: int, zero: Any, before: list[str], tmp_path: Path
) -> None:
    """Next to every half, and beyond the limits, ONNX Runtime and OpenVINO take the right level."""
    limits = [np.float32(v) for v in (limits if len(limits) == 4 else limits * 2)]
    low, high, out_low, out_high = (v.astype(np.float64) for v in limits)
    places = np.concatenate([np.arange(levels - 1) + 0.501, np.arange(levels - 1) + 0.499, [-40.0, levels + 40.0]])
    x = np.broadcast_to(low + places * (high - low) / (levels - 1), (3, len(places))).astype(np.float32)
    parameter, ends = operations.parameter(x.shape, name="x"), [operations.constant(v) for v in limits]
    made = openvino.Model([operations.fake_quantize(parameter, *ends, levels)], [parameter])
    openvino.save_model(made, tmp_path / "m.xml", compress_to_fp16=False)
    irc.convert(str(tmp_path / "m.xml"), str(tmp_path / "m.onnx"))
    graph = onnx.load(tmp_path / "m.onnx").graph
    found = [n.op_type for n in graph.node]
    assert ("QuantizeLinear" in found) == (zero is not None)
    if zero is not None:
        assert found == [*before, "QuantizeLinear", "DequantizeLinear"]
        points = [a for a in map(onnx.numpy_helper.to_array, graph.initializer) if a.dtype.kind in "iu"]
        assert len(points) == 1 and points[0].dtype == zero.dtype and np.array_equal(points[0], zero)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    level = np.clip(np.rint((x - low) / (high - low) * (levels - 1)), 0, levels - 1)
    wanted = out_low + level * (out_high - out_low) / (levels - 1)
    theirs = openvino.Core().compile_model(made, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([x])
    for got in (session.run(None, {"x": x})[0], theirs[0]):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("error")
def test_fake_quantize_without_ends_stays(tmp_path: Path) -> None:
    """As calibration leaves it where a mask is infinite: there is no step, and nobody is warned of a quotient."""
    parameter = operations.parameter((2, 3), name="x")
    ends = [operations.constant(np.float32(v)) for v in (-np.inf, np.inf)] * 2
    made = openvino.Model([operations.fake_quantize(parameter, *ends, 256)], [parameter])
    openvino.save_model(made, tmp_path / "m.xml", compress_to_fp16=False)
    irc.convert(str(tmp_path / "m.xml"), str(tmp_path / "m.onnx"))
    assert "QuantizeLinear" not in [n.op_type for n in onnx.load(tmp_path / "m.onnx").graph.node]


DYNAMIC = """m (float[2,6,8,8] x) => (float[2,4,8,8] y, float[2,6,8,5] z, float[2,6,6,6] g) {
    q, s, o = DynamicQuantizeLinear(x)
    a = ConvInteger<pads=[1,1,1,1]>(q, w, o, three)
    b = Cast<to=1>(a)
    y = Mul(b, s)
    c = MatMulInteger(q, m, o, three)
    d = Cast<to=1>(c)
    z = Mul(d, s)
    e = ConvInteger<group=3>(q, k, o)
    g = Cast<to=1>(e)
}"""


@pytest.mark.parametrize("writer", ["irc", "ovc"])
def test_dynamic_quantization_and_products_of_bytes_are_recognised(writer: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = {"w": (4, 6, 3, 3), "m": (8, 5), "k": (6, 2, 3, 3)}
    # of 7 bits: with larger ones sums of pairs saturate in ONNX Runtime on processors without VNNI
    given = {k: rng.integers(-64, 64, shape).astype(np.int8) for k, shape in weights.items()}
    model = parsed(DYNAMIC, given | {"three": np.int8(3)}, opset=17)
    onnx.save(model, tmp_path / "m.onnx")
    if writer == "irc":
        irc.convert(tmp_path / "m.onnx", tmp_path / "m.xml")
    else:
        openvino.save_model(openvino.convert_model(tmp_path / "m.onnx"), tmp_path / "m.xml", compress_to_fp16=False)
    irc.convert(tmp_path / "m.xml", tmp_path / "back.onnx")
    back = onnx.load(tmp_path / "back.onnx")
    assert Counter(n.op_type for n in back.graph.node) == Counter(n.op_type for n in model.graph.node)
    x = numbers(2, 6, 8, 8)
    wanted, found = (
        onnxruntime.InferenceSession(tmp_path / f, providers=["CPUExecutionProvider"]).run(None, {"x": x})
        for f in ("m.onnx", "back.onnx")
    )
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_bytes_of_the_run_that_become_floats_are_dequantized(tmp_path: Path) -> None:
    """As irc and as OpenVINO's converter write it, which makes products and sums of it where a Transpose stands."""
    text = "e = Gather(w, i)\n y = DequantizeLinear(e, s, o)"
    weights = {"w": np.arange(54, dtype=np.uint8).reshape(9, 6), "s": np.float32(0.0196), "o": np.uint8(24)}
    irc.save(irc.load(parsed(f"m (int64[3] i) => (float[3,6] y) {{ {text} }}", weights)), tmp_path / "m.xml")
    assert types(irc.load(str(tmp_path / "m.xml")), ".onnx") == {"Gather": 1, "DequantizeLinear": 1}
    i = operations.parameter([3], np.int64, name="i")
    f = operations.convert(operations.gather(weights["w"], i, 0), "f32")
    step, shift = np.float32(0.0196), np.float32(-24 * 0.0196)
    t = operations.transpose(f, [1, 0])
    made = [operations.add(operations.multiply(v, step), shift) for v in (f, t)]
    model = openvino.Model([operations.matmul(*made, False, False)], [i])
    openvino.save_model(model, tmp_path / "m.xml", compress_to_fp16=False)
    back = irc.load(str(tmp_path / "m.xml"))
    assert types(back, ".onnx") == {"Gather": 1, "DequantizeLinear": 1, "Transpose": 1, "MatMul": 1}
    irc.save(back, tmp_path / "back.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "back.onnx", providers=["CPUExecutionProvider"])
    floats = (weights["w"][[5, 2, 8]] - 24.0) * 0.0196
    np.testing.assert_allclose(session.run(None, {"i": np.array([5, 2, 8])})[0], floats @ floats.T, rtol=1e-5)


def test_a_bias_that_something_else_needs_stays_apart(tmp_path: Path) -> None:
    text = "m (float[2,8] x) => (float[2,4] y, float[2,4] p) { p = MatMul(x, w)\n y = Add(p, b) }"
    irc.save(irc.load(parsed(text, {"w": numbers(8, 4), "b": numbers(4)})), tmp_path / "m.xml")
    assert types(irc.load(str(tmp_path / "m.xml")), ".onnx") == {"MatMul": 1, "Add": 1}


def test_older_operation_sets_get_what_they_have(tmp_path: Path) -> None:
    text = "m (float[2,5,8] x) => (float[2,5,8] y) { y = LayerNormalization(x, s) }"
    irc.save(irc.load(parsed(text, {"s": numbers(8)})), tmp_path / "m.xml")
    assert "LayerNormalization" not in types(irc.load(str(tmp_path / "m.xml")), ".onnx", opset=13)


def test_files_say_who_wrote_them(tmp_path: Path) -> None:
    model = irc.load(parsed("m (float[2] x) => (float[2] y) { y = Relu(x) }"))
    irc.save(model, tmp_path / "m.xml")
    assert f'<info name="irc" value="{VERSION}" />' in (tmp_path / "m.xml").read_text()
    openvino.Core().read_model(tmp_path / "m.xml")
    back = irc.load(str(tmp_path / "m.xml"))
    assert conversion_losses(back, "onnx", None) == []
    proto = irc.to_onnx(back)
    assert (proto.producer_name, proto.producer_version) == ("irc", VERSION)
