"""Converting takes little more memory than the largest tensor, and writes the bytes that protobuf would."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

import irc

COUNT, ROWS, COLUMNS = 10, 256, 8192
TENSOR = ROWS * COLUMNS * 4
"""Bytes of one weight: 8 MB of 80; a file of up to 64 MB would be read as a whole."""

MEASURE = """
import sys
import irc
options = dict(item.split("=") for item in sys.argv[3:])
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
irc.convert("{small}", "{small_out}", **options)
before = peak()
irc.convert(sys.argv[1], sys.argv[2], **options)
print(peak() - before)
"""


def chain(folder: Path, count: int, rows: int, columns: int) -> Path:
    """A sum of products with that many weights, which lie in a file of their own."""
    path, rng = folder / "model.onnx", np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: list[TensorProto] = []
    with open(folder / "model.onnx.data", "wb") as file:
        for i in range(count):
            weight = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[rows, columns])
            weight.data_location = TensorProto.EXTERNAL
            for key, value in (
                ("location", "model.onnx.data"),
                ("offset", file.tell()),
                ("length", rows * columns * 4),
            ):
                weight.external_data.add(key=key, value=str(value))
            file.write(rng.random(rows * columns, np.float32).data)
            weights.append(weight)
            nodes += [helper.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"], f"m{i}")]
    nodes.append(helper.make_node("Sum", [f"y{i}" for i in range(count)], ["y"], "sum"))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, rows])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, columns])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    opset = [helper.make_opsetid("", 17)]
    path.write_bytes(helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString())
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """The same model in both formats, small and large."""
    found: dict[str, list[Path]] = {"onnx": [], "xml": [], "inside": []}
    for name, rows, columns in (("small", 8, 8), ("large", ROWS, COLUMNS)):
        folder = tmp_path_factory.mktemp(name)
        found["onnx"].append(chain(folder, COUNT, rows, columns))
        found["xml"].append(folder / "model.xml")
        found["inside"].append(folder / "inside.onnx")
        irc.convert(found["onnx"][-1], found["xml"][-1])
        irc.convert(found["onnx"][-1], found["inside"][-1])
    return {ending: (paths[0], paths[1]) for ending, paths in found.items()}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="measures memory as Linux tells it")
@pytest.mark.parametrize(
    ("source", "target", "tensors"),
    [
        ("onnx", "xml", 1),
        ("xml", "onnx", 1),
        ("onnx", "onnx", 1),
        ("inside", "onnx", 1),
        ("inside", "xml", 1),
        ("xml", "xml", 1),
        ("onnx", "xml compress_fp16=1", 1.5),
        ("xml", "onnx compress_fp16=1", 1.5),
    ],
)
def test_memory(models: dict[str, tuple[Path, Path]], tmp_path: Path, source: str, target: str, tensors: float) -> None:
    """Beyond what a small model takes: the tensors that are in work at once, and a few buffers."""
    ending, *options = target.split()
    small, large = models[source]
    script = MEASURE.format(small=small, small_out=tmp_path / f"small.{ending}")
    command = [sys.executable, "-c", script, str(large), str(tmp_path / f"large.{ending}"), *options]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(run.stdout) < (tensors + 0.75) * TENSOR


def test_weights_inside_of_a_large_file(models: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """They are read when they are needed, and written again as they were; a file that changed meanwhile is refused."""
    path = tmp_path / "a.onnx"
    path.write_bytes(models["inside"][1].read_bytes())
    model = irc.load(path)
    irc.save(model, tmp_path / "b.onnx")
    assert (tmp_path / "b.onnx").read_bytes() == path.read_bytes()
    with open(path, "r+b") as file:
        file.seek(-1, 2)
        file.truncate()
    with pytest.raises(irc.IrcError, match="IRC1085"):
        irc.save(model, tmp_path / "b.onnx")
    with pytest.raises(irc.IrcError, match="IRC1"):
        irc.load(path)


def test_large_weight_of_another_size(models: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    proto = onnx.load(models["inside"][1])
    proto.graph.initializer[3].dims[0] += 1
    onnx.save(proto, tmp_path / "a.onnx")
    with pytest.raises(irc.IrcError, match="w3"):
        irc.load(tmp_path / "a.onnx")


def weights() -> dict[str, NDArray[np.generic]]:
    rng = np.random.default_rng(1)
    return {
        "large": rng.random((40, 50), np.float32),
        "small": rng.random((2, 2), np.float32),
        "empty": np.zeros((0, 5), np.float32),
        "whole": rng.integers(-9, 9, (3000,)),
        "true": rng.random(2000) < 0.5,
    }


@pytest.mark.parametrize("typed", [False, True])
def test_written_bytes(tmp_path: Path, typed: bool) -> None:
    """Those of protobuf's own serialization, whatever stands around the weights."""
    made = [
        helper.make_tensor(k, helper.np_dtype_to_tensor_dtype(w.dtype), w.shape, w.reshape(-1).tolist())
        if typed
        else onnx.numpy_helper.from_array(w, k)
        for k, w in weights().items()
    ]
    made[0].doc_string = "weights"
    nodes = [helper.make_node("Identity", [k], [f"{k}_out"]) for k in weights()]
    results = [
        helper.make_tensor_value_info(f"{k}_out", t.data_type, list(t.dims))
        for k, t in zip(weights(), made, strict=True)
    ]
    model = helper.make_model(helper.make_graph(nodes, "g", [], results, made, doc_string="graph"))
    model.metadata_props.add(key="a", value="b")
    path, copy = tmp_path / "a.onnx", tmp_path / "b.onnx"
    path.write_bytes(model.SerializeToString())
    irc.convert(path, copy)
    assert copy.read_bytes() == irc.to_onnx(irc.load(path)).SerializeToString(deterministic=True)
    assert copy.read_bytes() == model.SerializeToString(deterministic=True)
