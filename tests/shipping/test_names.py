"""Names of what is compiled: several models in one program, and names that are refused."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import irc
from irc.backends.c.names import given_prefix, prefix_of_file
from irc.driver import CompileOptions, sources
from irc.runtime.artifact import write_artifact
from irc.toolchain.c_compiler import is_kernels, require_compiler

NAMES = ("detector", "Tracker", "kws_v2", "scorer")


def exported(k: int) -> onnx.ModelProto:
    """A small network as exporters write it: its graph is called main_graph."""
    rng = np.random.default_rng(k)
    w = numpy_helper.from_array(rng.standard_normal((4 + k, 2, 3, 3), np.float32), "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None if n == "y" else (1, 2, 6, 6)) for n in "xy")
    graph = helper.make_graph(nodes, "main_graph", [x], [y], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


CALL = """
    {{
        _Alignas(64) static unsigned char memory[{M}_CONTEXT_BYTES];
        static float x[72], y[8];
        for (int i = 0; i < 72; i++) x[i] = (float)(i % 7) - 3;
        {n}_ctx *ctx = ({n}_ctx *)memory;
        const void *in[] = {{x}};
        void *out[] = {{y}};
        if ({n}_init(ctx, NULL, NULL) || {n}_run(ctx, in, out, NULL)) return 1;
        printf("%.6g\\n", (double)y[0]);
    }}"""
MAIN = """#include <stdio.h>
#ifdef __cplusplus
#define _Alignas alignas
#endif
{include}
int main(void) {{{calls}
    return 0;
}}
"""


@pytest.mark.compiler
def test_four_models_of_one_name_link_into_one_program_in_c_and_in_cpp(tmp_path: Path) -> None:
    compiler = require_compiler().command
    for k, name in enumerate(NAMES):
        options = CompileOptions(backend="c", target="x86-64-v2", weights="embed" if k else "file", name=name)
        write_artifact(tmp_path, sources(irc.load(exported(k)), options))
    for name in NAMES[1:]:
        assert (tmp_path / f"{name}.h").exists() and (tmp_path / f"{name}.c").exists()
    own = {"manifest.json", "Makefile", "CMakeLists.txt", "main.c", "irc_rt.c", "irc_rt.h"}  # of the folder
    assert not [f for f in tmp_path.iterdir() if f.name not in own and not f.name.startswith(NAMES)]
    calls = "".join(CALL.format(n=n, M=n.upper()) for n in NAMES)
    calls = calls.replace("detector_init(ctx, NULL", "detector_init(ctx, weights")
    data = np.fromfile(tmp_path / "detector_weights.bin", np.uint8)
    table = f"_Alignas(64) static const unsigned char weights[] = {{{','.join(map(str, data.tolist()))}}};"
    include = "\n".join(f'#include "{n}.h"' for n in NAMES)
    text = MAIN.format(include=include, calls=calls).replace("int main", f"{table}\nint main")
    flags = ["-march=x86-64-v2", "-O1", "-Wall", "-Wextra", "-Werror"]
    parts = sorted(f.name for f in tmp_path.glob("*.c") if f.name not in own)
    subprocess.run([*compiler, "-std=c11", *flags, "-c", *parts], cwd=tmp_path, check=True, timeout=60)
    objects = [f"{Path(p).stem}.o" for p in parts]
    for language, command in (("c", [*compiler, "-std=c11"]), ("cpp", ["g++", "-std=c++17"])):
        if shutil.which(command[0]) is None and language == "cpp":
            continue
        (tmp_path / f"main.{language}").write_text(text)
        subprocess.run(
            [*command, *flags, f"main.{language}", *objects, "-lm", "-o", language],
            cwd=tmp_path,
            check=True,
            timeout=60,
        )
        said = subprocess.run([tmp_path / language], capture_output=True, text=True, check=True, timeout=10).stdout
        x = (np.arange(72) % 7 - 3).astype(np.float32).reshape(1, 2, 6, 6)
        wanted = [irc.compile(exported(k), backend="numpy")(x)[0].reshape(-1)[0] for k in range(len(NAMES))]
        np.testing.assert_allclose([float(line) for line in said.split()], wanted, rtol=1e-4)


@pytest.mark.compiler
def test_every_global_symbol_begins_with_the_name(tmp_path: Path) -> None:
    made = irc.compile(exported(0), backend="c", name="Tracker", cache=False)
    made.save(tmp_path / "d")
    library = next((tmp_path / "d").glob("Tracker.*[!ch]"))
    assert ctypes.CDLL(str(library)).Tracker_run
    assert (irc.load_compiled(tmp_path / "d")(np.ones((1, 2, 6, 6), np.float32))[0].shape) == (1, 4, 1, 1)


def test_names_are_checked() -> None:
    assert prefix_of_file("Kws v2") == "kws_v2" and prefix_of_file("my_kernels_3") == "my_kernels_3_model"
    assert given_prefix("Tracker") == "Tracker"
    for name in ("2d", "int", "a-b", "a_", "_a", "x" * 41, "memory", "my_kernels", "irc_x", "ä"):
        with pytest.raises(ValueError, match=r"^(an? |at most )"):
            given_prefix(name)
        with pytest.raises(irc.CompileError, match="IRC6350"):
            irc.compile(exported(0), name=name)
    assert is_kernels("kernels_0.c") and is_kernels("a_kernels_12.c")
    assert not is_kernels("a_kernels.c") and not is_kernels("kernels.c") and not is_kernels("my_kernels_3_model.c")
