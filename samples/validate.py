"""Checks the samples, and shows what irc says about a damaged one.

python samples/validate.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import irc

HERE = Path(__file__).resolve().parent


def main() -> None:
    for name in ("digits/digits.onnx", "digits/digits.xml", "encoder/encoder.onnx", "encoder/encoder.xml"):
        findings = irc.validate(str(HERE / name))
        print(f"{name}: {len(findings)} findings")
    with tempfile.TemporaryDirectory() as folder:
        damaged = Path(folder) / "digits.xml"
        damaged.write_text((HERE / "digits/digits.xml").read_text("utf-8").replace('"MaxPool"', '"MaxPol"'), "utf-8")
        damaged.with_suffix(".bin").write_bytes((HERE / "digits/digits.bin").read_bytes())
        for finding in irc.validate(str(damaged)):
            print(finding)


if __name__ == "__main__":
    main()
