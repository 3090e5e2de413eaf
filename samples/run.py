"""Recognises the held-out digits with both files of the model and prints how many were right.

python samples/run.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import irc

DIGITS = Path(__file__).resolve().parent / "digits"


def main() -> None:
    held = np.load(DIGITS / "heldout.npz")
    images, labels = held["image"], held["label"]
    for name in ("digits.onnx", "digits.xml"):
        (scores,) = irc.compile(str(DIGITS / name))(images)
        print(f"{name}: {(scores.argmax(1) == labels).mean():.1%} of {len(labels)} images recognised")


if __name__ == "__main__":
    main()
