"""Interrupts of the command while it imports: quiet, wherever they come."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "samples" / "digits" / "digits.onnx")
WHERE = {
    "plain": "signal.raise_signal(signal.SIGINT)",
    "class": """
class Name:
    def __set_name__(self, owner, name):
        signal.raise_signal(signal.SIGINT)
type("Named", (), {"x": Name()})""",
    "callback": """
class Dropped:
    pass
dropped = Dropped()
told = weakref.ref(dropped, lambda _: signal.raise_signal(signal.SIGINT))
del dropped
time.sleep(10)""",
}
CODE = """
import signal
import sys
import time
import weakref

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            exec(where)

signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background of a script ignore it
sys.meta_path.insert(0, Interrupt())
module, where = sys.argv.pop(1), sys.argv.pop(1)
from irc.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("module", "where", "verb"),
    [
        *itertools.product(["irc.cli", "click", "numpy", "numpy._core._multiarray_umath"], ["plain"], ["info"]),
        *itertools.product(["irc.cli", "irc.cli.costs"], ["class", "callback"], ["info"]),
        ("irc.border.read", "class", "validate"),
    ],
)
def test_an_interrupt_while_importing_is_quiet(module: str, where: str, verb: str) -> None:
    """What defines a class makes another exception of it, and a callback drops it."""
    command = [sys.executable, "-c", CODE, module, WHERE[where], verb, MODEL]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")
