"""What the tests of `irc convert` share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from irc.cli import main

DIGITS = Path(__file__).resolve().parents[2] / "samples" / "digits"
ONNX, XML = str(DIGITS / "digits.onnx"), str(DIGITS / "digits.xml")
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def convert(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `irc convert` with these arguments.  Gives its exit status, and what it said."""

    def call(*args: str) -> tuple[int, str]:
        status = main(("convert", *args))
        return status, capsys.readouterr().err

    return call
