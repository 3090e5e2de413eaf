"""Compilers that begin before the last file is written, and are ended with it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import irc
from irc import driver
from irc.backends.c import files
from irc.diagnostics import CompileError
from irc.loops import memory
from irc.loops.ir import Program
from irc.runtime.artifact import Draft, write_artifact
from irc.toolchain import c_compiler, libraries
from tests.toolchain.test_toolchain import script

pytestmark = pytest.mark.skipif(c_compiler.find_compiler() is None, reason="no C compiler")
TARGET = c_compiler.Target("native", "x86_64", (), ())


def product() -> onnx.ModelProto:
    """y = Softmax(x w): a kernel, in a file of its own, and a loop."""
    w = np.random.default_rng(5).normal(size=(64, 32)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Softmax", ["h"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [16, 64])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [16, 32])],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_kernels_are_handed_on_before_memory_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []
    plan = memory.plan

    def planning(program: Program) -> memory.MemoryPlan:
        events.append("plan")
        return plan(program)

    monkeypatch.setattr(memory, "plan", planning)
    options = driver.CompileOptions(backend="c")
    target = c_compiler.target_of_sources("native")
    draft = driver.generate_sources(driver.load(product()), options, target, ready=events.append)
    early, then = events
    assert then == "plan" and {*early} == {"kernels.h", "kernels_0.c"}
    assert all(draft.files[name] == text for name, text in early.items())


def test_each_file_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiled: list[tuple[str, Path]] = []

    def run(_: object, arguments: list[str], file: str, folder: Path, *_others: object) -> None:
        compiled.append((file, folder))
        Path(arguments[arguments.index("-o") + 1]).touch()

    monkeypatch.setattr(libraries, "_run", run)
    early, late = {"kernels.h": "", "kernels_0.c": ""}, {"model.c": "", "weights.bin": ""}
    for name, text in (early | late).items():
        tmp_path.joinpath(name).write_text(text)
    compilation = libraries.Compilation(TARGET, c_compiler.Compiler(("cc",), "cc"))
    compilation.begin_texts(early)
    library = libraries.build_with(compilation, tmp_path, [*early, *late])
    assert compiled == [("kernels_0.c", compilation.scratch), ("model.c", tmp_path), (library.name, tmp_path)]
    assert not compilation.scratch.exists()


def slow(folder: Path) -> c_compiler.Compiler:
    """Write a compiler that says that it has begun, and takes a minute."""
    return c_compiler.Compiler((script(folder, f"touch {folder}/begun\nsleep 60"),), "slow")


def test_compilers_end_with_their_compilation(tmp_path: Path) -> None:
    began = time.monotonic()
    compilation = libraries.Compilation(TARGET, slow(tmp_path))
    compilation.begin_texts({"kernels_0.c": ""})
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < began + 30
        time.sleep(0.01)
    compilation.end()
    assert time.monotonic() < began + 40 and not compilation.scratch.exists()


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[libraries.Compilation]:
    """List the compilations that were ended."""
    found: list[libraries.Compilation] = []
    end = libraries.Compilation.end

    def ending(self: libraries.Compilation) -> None:
        found.append(self)
        end(self)

    monkeypatch.setattr(libraries.Compilation, "end", ending)
    return found


def test_an_error_while_the_others_are_printed_ends_compilers(
    ended: list[libraries.Compilation], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Any:
        raise ValueError("nobody foresaw this")

    monkeypatch.setattr(files, "print_functions", broken)
    with pytest.raises(CompileError, match="nobody foresaw this"):
        irc.compile(product(), backend="c", cache=False)
    assert len(ended) == 1 and not ended[0].scratch.exists()


def test_a_folder_that_cannot_be_made_ends_compilers(ended: list[libraries.Compilation], tmp_path: Path) -> None:
    draft = driver.library(driver.load(product()), driver.CompileOptions(backend="c"))
    assert isinstance(draft, Draft) and not ended
    tmp_path.joinpath("file").touch()
    with pytest.raises(OSError, match="file"):
        write_artifact(tmp_path / "file" / "artefact", draft)
    assert len(ended) == 1 and not ended[0].scratch.exists()
