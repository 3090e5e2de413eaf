"""Measures every sample with irc and its peers.

python bench/samples.py [--threads N]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from irc.cli import main

SAMPLES = Path(__file__).resolve().parent.parent / "samples"
SHAPES = {
    "digits": ("image[1,1,8,8]", "image[64,1,8,8]"),
    "encoder": ("tokens[1,16],mask[1,16]", "tokens[4,48],mask[4,48]"),
}


def measure(threads: int) -> int:
    """The worst exit status of all measurements."""
    worst = 0
    for name, shapes in SHAPES.items():
        for shape in shapes:
            model = str(SAMPLES / name / f"{name}.onnx")
            options = ["--vs", "onnxruntime,openvino", "--threads", str(threads), "--shape", shape]
            worst = max(worst, main(["bench", model, *options]))
    return worst


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    sys.exit(measure(parser.parse_args().threads))
