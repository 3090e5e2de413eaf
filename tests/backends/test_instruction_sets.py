"""Artefacts for several instruction sets: one library, the set chosen by the processor that loads it."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import irc
from irc import driver
from irc.toolchain.c_compiler import find_compiler
from irc.toolchain.processor import cpu_features, machine

pytestmark = pytest.mark.skipif(
    find_compiler() is None or machine() != "x86_64" or "sse4_2" not in cpu_features(), reason="no compiler for x86-64"
)
PROGRAM = """#include "digits.h"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    const int64_t dims[] = {1};
    float x[64], y[10];
    for (int i = 0; i < 64; i++) x[i] = (float)(i % 16);
    const void *in[] = {x};
    void *out[] = {y};
    FILE *f = fopen(argv[argc - 1], "rb");
    void *weights = aligned_alloc(64, (DIGITS_WEIGHTS_BYTES + 63) / 64 * 64);
    if (!f || fread(weights, 1, DIGITS_WEIGHTS_BYTES, f) != DIGITS_WEIGHTS_BYTES) return 1;
    digits_ctx *ctx = aligned_alloc(64, (digits_context_size(dims) + 63) / 64 * 64);
    if (digits_init(ctx, weights, 0) || digits_plan(ctx, dims) || digits_run(ctx, in, out, 0)) return 2;
    printf("%s", digits_target());
    for (int i = 0; i < 10; i++) printf(" %.6g", y[i]);
    return 0;
}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dense layer."""
    random = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(random.standard_normal(s, np.float32), n) for n, s in (("w", (64, 10)), ("b", 10))
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ("n", s)) for n, s in (("image", 64), ("y", 10))]
    nodes = [helper.make_node("MatMul", ["image", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])]
    graph = helper.make_graph(nodes, "digits", values[:1], values[1:], weights)
    path = tmp_path_factory.mktemp("model") / "digits.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, model: str) -> Path:
    """One artefact of it for three sets, built wherever the compiler runs."""
    from irc.cli import main

    made = tmp_path_factory.mktemp("sets") / "digits"
    arguments = ["compile", model, "-o", str(made), "--target", "v4+v2+v3", "--emit", "so"]
    assert main(arguments) == 0
    return made


@pytest.fixture(scope="module")
def wanted(model: str) -> Any:
    return irc.compile(model, backend="numpy")


def best() -> str:
    """The level that this processor has."""
    have = cpu_features()
    return "x86-64-v4" if "avx512vl" in have else "x86-64-v3" if "avx2" in have else "x86-64-v2"


def test_this_processor_gets_its_best(folder: Path, wanted: Any) -> None:
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert manifest["target"]["name"] == "x86-64-v2+x86-64-v3+x86-64-v4"
    assert "avx" not in manifest["target"]["features"]  # what the first set needs is what the artefact needs
    assert {f.name for f in folder.iterdir()} >= {"digits.h", "digits.so"} and not list(folder.glob("*_v*.h"))
    image = np.random.default_rng(1).standard_normal((360, 64), np.float32)
    (found,) = irc.load_compiled(folder)(image)
    np.testing.assert_allclose(found, wanted(image)[0], atol=1e-4)
    library = ctypes.CDLL(str(folder / "digits.so"))
    library.digits_target.restype = ctypes.c_char_p
    assert library.digits_target().decode() == best()


@pytest.mark.parametrize(("processor", "level"), [("Nehalem", "x86-64-v2"), ("Haswell", "x86-64-v3")])
def test_other_processors_get_theirs(folder: Path, wanted: Any, tmp_path: Path, processor: str, level: str) -> None:
    emulator, compiler = shutil.which("qemu-x86_64"), find_compiler()
    if emulator is None or compiler is None:
        pytest.skip("needs qemu-user")
    (tmp_path / "main.c").write_text(PROGRAM)
    command = [*compiler.command, "-std=c11", f"-I{folder}", "main.c", str(folder / "digits.so"), "-o", "main"]
    subprocess.run([*command, f"-Wl,-rpath,{folder}"], cwd=tmp_path, check=True)
    run = [emulator, "-cpu", processor, str(tmp_path / "main"), str(folder / "digits_weights.bin")]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=True)
    name, *values = done.stdout.split()
    image = (np.arange(64, dtype=np.float32) % 16).reshape(1, 64)
    assert name == level
    np.testing.assert_allclose(np.array(values, float), wanted(image)[0][0], atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "code"), [({"target": "v2+native"}, "IRC6005"), ({"target": "v2+v3", "profile": True}, "IRC6350")]
)
def test_what_cannot_be_joined_is_refused(model: str, options: dict[str, Any], code: str) -> None:
    with pytest.raises(irc.CompileError) as refused:
        driver.compile(model, driver.CompileOptions(**options))
    assert [d.code for d in refused.value.diagnostics] == [code]
