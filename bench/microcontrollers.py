"""Flash, RAM and instructions on a Cortex-M4 and a Cortex-M55 in QEMU, beside emx-onnx-cgen and onnx2c if installed.

    python -m bench.microcontrollers

needs Debian's gcc-arm-none-eabi and qemu-system-arm; emx-onnx-cgen is on PyPI, onnx2c is built from its repository.
All C is compiled with the same flags.  Flash: code, constants and weights of the model.  RAM: static memory, and the
stack that a run wrote.  Instructions: of one run, in steps of 40 (31 on the M55).
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import tempfile
from pathlib import Path

import onnx

from tests.support import boards, shipped

SIZES = {"digits": (64, 10), "dscnn": (490, 12)}


def models(folder: Path) -> None:
    """Write both models with all sizes fixed."""
    digits = onnx.load(shipped.SAMPLES / "digits" / "digits.onnx")
    for port in (*digits.graph.input, *digits.graph.output):
        port.type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(digits, folder / "digits.onnx")
    onnx.save(shipped.keyword_spotter(), folder / "dscnn.onnx")


def by_irc(model: Path, folder: Path, target: str) -> dict[str, int]:
    name = model.stem
    shipped.folder_of(str(model), folder, name, target, weights="embed")
    inputs, outputs = SIZES[name]
    infer = boards.INFER["irc"].format(name=name, NAME=name.upper(), inputs=inputs, outputs=outputs)
    return boards.measured(folder, f"{name}.c", infer, target)


def by_other(tool: str, model: Path, folder: Path, target: str) -> dict[str, int]:
    folder.mkdir()
    if tool == "onnx2c":
        text = subprocess.run([tool, str(model)], check=True, capture_output=True, text=True).stdout
        (folder / "model.c").write_text(text)
    else:  # what it takes from the heap otherwise is on the stack then, and counted
        command = [tool, "compile", "--large-temp-threshold", "0", str(model), str(folder / "model.c")]
        subprocess.run(command, check=True, capture_output=True)
    inputs, outputs = SIZES[model.stem]
    infer = boards.INFER["other"].format(entry="entry" if tool == "onnx2c" else "model", inputs=inputs, outputs=outputs)
    return boards.measured(folder, "model.c", infer, target)


def main() -> None:
    print(f"{'':36}{'flash':>12}{'RAM':>12}{'instructions':>16}")
    with tempfile.TemporaryDirectory() as scratch:
        models(Path(scratch))
        for target, name in itertools.product(("cortex-m4", "cortex-m55"), SIZES):
            model = Path(scratch, f"{name}.onnx")
            show(f"{target} {name} irc", by_irc(model, Path(scratch, f"{name}-irc-{target}"), target))
            for tool in filter(shutil.which, ("emx-onnx-cgen", "onnx2c")):
                try:
                    found = by_other(tool, model, Path(scratch, f"{name}-{tool}-{target}"), target)
                except boards.DoesNotRunError as e:
                    print(f"{target} {name} {tool}: {e}")
                else:
                    show(f"{target} {name} {tool}", found)


def show(title: str, found: dict[str, int]) -> None:
    ram = found["static"] + found["stack"]
    print(f"{title:36}{found['flash']:>12,}{ram:>12,}{found['instructions']:>16,}")


if __name__ == "__main__":
    main()
