"""Flash, RAM and instructions on a Cortex-M4 in QEMU, beside emx-onnx-cgen and onnx2c where they are installed.

    python -m bench.microcontrollers

needs Debian's gcc-arm-none-eabi and qemu-system-arm; emx-onnx-cgen is on PyPI, onnx2c is built from its repository.
All C is compiled with the same flags.  Flash: code, constants and weights of the model.  RAM: static memory, and the
stack that a run wrote.  Instructions: of one run, in steps of 40.
"""

from __future__ import annotations

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


def by_irc(model: Path, folder: Path) -> dict[str, int]:
    name = model.stem
    shipped.folder_of(str(model), folder, name, "cortex-m4", weights="embed")
    inputs, outputs = SIZES[name]
    infer = boards.INFER["irc"].format(name=name, NAME=name.upper(), inputs=inputs, outputs=outputs)
    return boards.measured(folder, f"{name}.c", infer)


def by_other(tool: str, model: Path, folder: Path) -> dict[str, int]:
    folder.mkdir()
    if tool == "onnx2c":
        text = subprocess.run([tool, str(model)], check=True, capture_output=True, text=True).stdout
        (folder / "model.c").write_text(text)
    else:  # what it takes from the heap otherwise is on the stack then, and counted
        command = [tool, "compile", "--large-temp-threshold", "0", str(model), str(folder / "model.c")]
        subprocess.run(command, check=True, capture_output=True)
    inputs, outputs = SIZES[model.stem]
    entry = "entry" if tool == "onnx2c" else "model"
    return boards.measured(folder, "model.c", boards.INFER["other"].format(entry=entry, inputs=inputs, outputs=outputs))


def main() -> None:
    print(f"{'':24}{'flash':>12}{'RAM':>12}{'instructions':>16}")
    with tempfile.TemporaryDirectory() as scratch:
        models(Path(scratch))
        for name in SIZES:
            model = Path(scratch, f"{name}.onnx")
            rows = {"irc": by_irc(model, Path(scratch, f"{name}-irc"))}
            for tool in ("emx-onnx-cgen", "onnx2c"):
                if shutil.which(tool):
                    rows[tool] = by_other(tool, model, Path(scratch, f"{name}-{tool}"))
            for tool, found in rows.items():
                ram = found["static"] + found["stack"]
                print(f"{name + ' ' + tool:24}{found['flash']:>12,}{ram:>12,}{found['instructions']:>16,}")


if __name__ == "__main__":
    main()
