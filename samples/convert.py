"""Converts the digits model from ONNX to OpenVINO IR and back.

python samples/convert.py [FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import irc

HERE = Path(__file__).resolve().parent


def main(folder: str) -> None:
    target = Path(folder)
    irc.convert(str(HERE / "digits/digits.onnx"), str(target / "digits.xml"))
    irc.convert(str(target / "digits.xml"), str(target / "digits.onnx"), opset=17)
    for file in sorted(target.glob("digits.*")):
        print(f"{file.name}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
