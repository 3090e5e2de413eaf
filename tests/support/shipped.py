"""Folders of C as users build them, and emulators that run what was built."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import irc
from irc.driver import CompileOptions, sources
from irc.runtime.artifact import write_artifact
from tests.support import boards

SAMPLES = Path(__file__).resolve().parent.parent.parent / "samples"
HOSTED = {
    "riscv64": ("qemu-riscv64", "-L", "/usr/riscv64-linux-gnu"),
    "armv7": ("qemu-arm", "-L", "/usr/arm-linux-gnueabihf"),
    "aarch64": ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"),
}
Array = np.ndarray[Any, Any]


def folder_of(model: Any, folder: Path, name: str, target: str, **options: Any) -> Path:
    """The folder that `irc compile --emit c --name NAME --target TARGET` writes."""
    write_artifact(folder, sources(irc.load(model), CompileOptions(backend="c", name=name, target=target, **options)))
    return folder


def made(folder: Path, *arguments: str) -> None:
    """Run make."""
    done = subprocess.run(["make", *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def need(*commands: str) -> None:
    """Skip the test where a command is missing."""
    missing = [c for c in commands if shutil.which(c) is None]
    if missing:
        pytest.skip(f"there is no {', '.join(missing)}")


def run_on_board(folder: Path, name: str, target: str, arguments: Sequence[str], extra: Sequence[str] = ()) -> None:
    """Link the folder's library and main.c for a board without an operating system, and run it in its emulator."""
    board = boards.BOARDS[target]
    text = (folder / "Makefile").read_text()
    flags = next(line.partition("=")[2].split() for line in text.splitlines() if line.startswith("TARGET_FLAGS"))
    link = ["--specs=rdimon.specs", *board.script, "-lm", "-o", "board"]
    objects = [str(boards.BARE_METAL / "start.c"), "main.o", f"lib{name}.a"]
    subprocess.run(["arm-none-eabi-gcc", *flags, *extra, *objects, *link], cwd=folder, check=True, timeout=60)
    given = ",".join(f"arg={a}" for a in (name, *arguments))
    emulator = ["qemu-system-arm", "-M", board.machine, "-nographic", "-kernel", "board"]
    config = ["-semihosting-config", f"enable=on,target=native,{given}"]
    done = subprocess.run([*emulator, *config], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def keyword_spotter() -> onnx.ModelProto:
    """A depthwise separable network for keywords, as MLPerf Tiny has it, with random weights."""
    rng = np.random.default_rng(7)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def conv(x: str, oc: int, ic: int, kernel: tuple[int, int], **attributes: Any) -> str:
        k = len(nodes)
        w = rng.standard_normal((oc, ic, *kernel)).astype(np.float32) / np.sqrt(ic * kernel[0] * kernel[1])
        weights.extend(
            numpy_helper.from_array(a.astype(np.float32), f"{n}{k}") for n, a in (("w", w), ("b", rng.random(oc)))
        )
        nodes.append(helper.make_node("Conv", [x, f"w{k}", f"b{k}"], [f"c{k}"], **attributes))
        nodes.append(helper.make_node("Relu", [f"c{k}"], [f"r{k}"]))
        return f"r{k}"

    at = conv("x", 64, 1, (10, 4), pads=[4, 1, 5, 1], strides=[2, 2])
    for _ in range(4):
        at = conv(at, 64, 1, (3, 3), pads=[1, 1, 1, 1], group=64)
        at = conv(at, 64, 64, (1, 1))
    weights.append(numpy_helper.from_array(rng.standard_normal((64, 12)).astype(np.float32), "fc"))
    nodes += [
        helper.make_node("GlobalAveragePool", [at], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "fc"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 1, 49, 10))
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 12))
    graph = helper.make_graph(nodes, "main_graph", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
