"""What keeps compiling fast: equal layers share code, equal input gives equal output, big weights are not copied."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import irc
from irc import driver
from irc.backends.c.shared import common_name
from irc.diagnostics.progress import told_to
from irc.toolchain.c_compiler import find_compiler

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
LAYERS = 5


def repeated_layers(path: Path) -> Path:
    """softmax(tanh(x w_k + b_k)) for LAYERS different weights, then a transpose; a symbolic number of rows."""
    rng = np.random.default_rng(4)
    weights, nodes, last = list[onnx.TensorProto](), list[onnx.NodeProto](), "x"
    for k in range(LAYERS):
        for name, shape in ((f"layer.{k}.b", 12), (f"layer.{k}.w", (12, 12))):
            weights.append(numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
        steps = [("MatMul", [f"layer.{k}.w"]), ("Add", [f"layer.{k}.b"]), ("Tanh", []), ("Softmax", [])]
        for op, more in steps:
            inputs = [last, *more]
            last = f"layer.{k}.{op}"
            nodes.append(helper.make_node(op, inputs, [last], name=last))
    nodes.append(helper.make_node("Transpose", [last], ["y"], name="turn"))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 12])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [12, "n"])
    graph = helper.make_graph(nodes, "repeated", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def expected(path: Path, x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    constants = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    for k in range(LAYERS):
        e = np.exp(np.tanh(x @ constants[f"layer.{k}.w"] + constants[f"layer.{k}.b"]))
        x = e / e.sum(axis=1, keepdims=True)
    return x.T


def sources(path: Path) -> dict[str, str]:
    draft = driver.generate(irc.load(path), "c", driver.CompileOptions(cache=False))
    return {name: text for name, text in draft.files.items() if isinstance(text, str)}


@needs_compiler
def test_progress_is_told_step_by_step(tmp_path: Path) -> None:
    path, steps = repeated_layers(tmp_path / "m.onnx"), list[str]()
    with told_to(steps.append):
        irc.compile(path, backend="c", cache=False)
    assert steps[0] == "reading" and steps.index("fold") < steps.index("select-kernels") < steps.index("writing C")
    files = steps[steps.index("writing C") + 1 :]
    assert len(files) > 1 and all(f": {k} of {len(files) - 1} files" in step for k, step in enumerate(files))
    irc.compile(path, backend="c", cache=False)
    assert steps[-1] == files[-1], "nobody listens any more"


@needs_compiler
def test_equal_layers_share_a_function(tmp_path: Path) -> None:
    path = repeated_layers(tmp_path / "m.onnx")
    text = sources(path)["model.c"]
    shared = [int(n) for n in re.findall(r"(\d+) groups of layers", text)]
    assert shared and max(shared) >= LAYERS - 1  # the last may be fused with what follows it
    assert all(f"layer.{k}.Softmax" in text for k in range(LAYERS)), "the comment names every layer"
    assert text.count("expf(") < LAYERS, "the code of the layers is there once"
    x = np.random.default_rng(1).standard_normal((7, 12)).astype(np.float32)
    (found,) = irc.compile(path, backend="c", cache=False)(x)
    np.testing.assert_allclose(found, expected(path, x), rtol=1e-5, atol=1e-6)


@needs_compiler
def test_layers_that_differ_in_numbers_share_a_function(tmp_path: Path) -> None:
    numbers = [(3.5, 7.0), (2.25, 0.0), (4.0, -1.0), (2.0, 0.25)]  # scale and zero point of each layer
    nodes, weights = list[onnx.NodeProto](), list[onnx.TensorProto]()
    for k, (scale, zero) in enumerate(numbers):
        weights.append(numpy_helper.from_array(np.array(scale, np.float32), f"scale.{k}"))
        weights.append(numpy_helper.from_array(np.array(zero, np.float32), f"zero.{k}"))
        nodes.append(helper.make_node("Mul", ["x", f"scale.{k}"], [f"scaled.{k}"], name=f"layer.{k}.mul"))
        nodes.append(helper.make_node("Floor", [f"scaled.{k}"], [f"whole.{k}"], name=f"layer.{k}.floor"))
        nodes.append(helper.make_node("Add", [f"whole.{k}", f"zero.{k}"], [f"y.{k}"], name=f"layer.{k}.add"))
    names = ["x", *(f"y.{k}" for k in range(len(numbers)))]
    x, *ys = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 12]) for name in names)
    path = tmp_path / "m.onnx"
    graph = helper.make_graph(nodes, "numbers", [x], ys, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    assert re.findall(r"(\d+) groups of layers", sources(path)["model.c"]) == [str(len(numbers))]
    given = np.random.default_rng(2).standard_normal((5, 12)).astype(np.float32)
    for y, (scale, zero) in zip(irc.compile(path, backend="c", cache=False)(given), numbers, strict=True):
        np.testing.assert_array_equal(y, np.floor(given * np.float32(scale)) + np.float32(zero))


def test_what_names_have_in_common() -> None:
    assert common_name(["layer.0.bias", "layer.1.bias"]) == "layer.n.bias"
    assert common_name(["layer1.0", "layer1.1"]) == "layer1.n"
    assert common_name(["a", "b"]) == "" and common_name(["a", "a1"]) == ""


_DIGESTS = """
import hashlib, sys, irc
from irc import driver
draft = driver.generate(irc.load(sys.argv[1]), sys.argv[2], driver.CompileOptions(cache=False))
for name, content in sorted(draft.files.items()):
    parts = [content.encode()] if isinstance(content, str) else [content] if isinstance(content, bytes) else content
    print(name, hashlib.sha256(b"".join(map(bytes, parts))).hexdigest())
"""


@needs_compiler
@pytest.mark.parametrize("backend", ["c", "numpy"])
def test_files_are_the_same_in_every_process(backend: str, tmp_path: Path) -> None:
    path = repeated_layers(tmp_path / "m.onnx")
    found: set[str] = set()
    for seed in ("0", "1", "77"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", _DIGESTS, str(path), backend]
        found.add(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)
    assert len(found) == 1
    assert len(found.pop().splitlines()) >= 2
