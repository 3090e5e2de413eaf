"""Compiles the digits model into a folder, and opens that folder again without the model.

python samples/compile.py [FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import irc

HERE = Path(__file__).resolve().parent


def main(folder: str) -> None:
    compiled = irc.compile(str(HERE / "digits/digits.onnx"))
    compiled.save(folder)
    again = irc.load_compiled(folder)
    images = np.load(HERE / "digits/heldout.npz")["image"][:4]
    print(f"{again}\n{', '.join(sorted(f.name for f in Path(folder).iterdir()))}")
    print(f"same results: {all(np.array_equal(a, b) for a, b in zip(compiled(images), again(images), strict=True))}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
