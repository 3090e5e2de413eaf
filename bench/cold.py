"""Measures how long models take to compile without a cache, and where that time goes.

python bench/cold.py                       the networks of `networks.py`
python bench/cold.py resnet model.onnx     these, and models in files

Each model is compiled in a process of its own, as by who compiles it for the first time: what is imported only then
counts.  "Compiler" is the wait for the C compiler when all files are printed: it begins with kernels while the others
are, which counts as "passes".  "Files" is the sum over its files, of which as many are compiled at a time as there are
processors, and "longest" the longest of them.  `irc compile MODEL --timings` lists every step and every file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from networks import NETWORKS

COMPILE = """
import json, sys, time
import irc
from irc.diagnostics.progress import timed
from irc.toolchain.libraries import C_COMPILER
began = time.perf_counter()
with timed() as taken:
    irc.compile(sys.argv[1], backend="c", cache=False)
seconds = time.perf_counter() - began
files = taken.parts.get(C_COMPILER, {})  # none of a model that is compiled for each call
print(json.dumps([seconds, taken.steps["reading"], taken.steps.get(C_COMPILER, 0), [*files.values()]]))
"""


@dataclass(frozen=True)
class Row:
    """Seconds that a model took: in all, for reading it with its imports, for the C compiler, and for each C file."""

    model: str
    seconds: float
    reading: float
    compiler: float
    files: tuple[float, ...]

    def __str__(self) -> str:
        rest = self.seconds - self.reading - self.compiler
        parts = f"{self.reading:8.2f} {rest:8.2f} {self.compiler:8.2f}"
        return f"{self.model:24}{self.seconds:8.2f} {parts} {sum(self.files):8.2f} {max(self.files, default=0):8.2f}"


TITLE = f"{'model':24}{'seconds':>8} {'reading':>8} {'passes':>8} {'compiler':>8} {'files':>8} {'longest':>8}"


def measure(model: str, path: str) -> Row:
    """Compile the model of a file once, in a new process."""
    done = subprocess.run([sys.executable, "-c", COMPILE, path], capture_output=True, text=True, check=True)
    seconds, reading, compiler, files = json.loads(done.stdout)
    return Row(model, seconds, reading, compiler, tuple(files))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[*NETWORKS], help=f"files, or among {', '.join(NETWORKS)}")
    parser.add_argument("--small", action="store_true", help="small variants of the networks")
    options = parser.parse_args(arguments)
    print(TITLE, flush=True)
    for model in options.models:
        if model not in NETWORKS:
            print(measure(Path(model).parent.name or model, model), flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder, f"{model}.onnx"))
            onnx.save(NETWORKS[model](options.small), path)
            print(measure(model, path), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
