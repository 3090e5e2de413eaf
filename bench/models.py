"""Measures the networks of `networks.py` with irc beside ONNX Runtime and OpenVINO: the table in README.md.

python bench/models.py --markdown             about two minutes on two idle cores; compiling is most of the first
python bench/models.py --write README.md      the same, into the file

All engines of a network run in one process, in rounds that alternate between them; each round begins with another
engine.  A cell is the median of all runs in ms, with the minimum in brackets.  "Ratio" is the faster peer's median by
irc's: above 1, irc is the faster one.  "Difference" is the largest of irc's outputs from ONNX Runtime's, relative to
the output's largest element.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import onnx
from networks import NETWORKS, feeds

import irc
from irc.cli import bench, costs
from irc.toolchain.c_compiler import find_compiler
from irc.toolchain.processor import cpu_features, model_name

PEERS = {"onnxruntime": bench.onnxruntime_engine, "openvino": bench.openvino_engine}
MARKS = ("<!-- speed", "<!-- /speed -->")
TITLES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


@dataclass
class Row:
    """A network with a number of threads: seconds of all runs by engine, and what irc's outputs are off by."""

    network: str
    gflop: float
    threads: int
    times: dict[str, list[float]]
    difference: dict[str, float]

    def median(self, engine: str) -> float:
        return statistics.median(self.times[engine])

    def ratio(self, engine: str) -> float:
        """The fastest peer's median by this engine's."""
        return min(self.median(name) for name in PEERS) / self.median(engine)


def measure(name: str, threads: int, precisions: Sequence[str], small: bool = False) -> Row:
    """Load the network into every engine and run them in turn."""
    model = NETWORKS[name](small)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, f"{name}.onnx"))
        onnx.save(model, path)
        arrays = feeds(model)
        engines = {title: make(path, threads, arrays) for title, make in PEERS.items()}
        for precision in precisions:
            compiled = irc.compile(path, threads=threads, precision=precision)
            order = {port.name: arrays[port.name] for port in compiled.inputs}
            engines[label(precision)] = bench.irc_engine(compiled, order)
        macs, _ = costs.multiply_accumulates(irc.load(path).graph)
    apart = bench.differences(engines)
    return Row(name, 2e-9 * int(macs), threads, bench.measure({n: e.run for n, e in engines.items()}), apart)


def label(precision: str) -> str:
    return "irc" if precision == "highest" else f"irc {precision}"


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


# -------------------------------------------------------------------------------- report
def table(rows: Sequence[Row], precisions: Sequence[str], markdown: bool) -> str:
    """A line for each row and the geometric means of the ratios, for each number of threads."""
    ours = [label(p) for p in precisions]
    head = ["network", "GFLOP", "threads", *(f"{o}, ms" for o in ours), *(f"{TITLES[n]}, ms" for n in PEERS)]
    head += [*(f"ratio {o}" if len(ours) > 1 else "ratio" for o in ours), "difference"]
    lines = [head]
    for threads in sorted({r.threads for r in rows}):
        chosen = [r for r in rows if r.threads == threads]
        for r in chosen:
            cells = [f"{1e3 * r.median(n):.3g} ({1e3 * min(r.times[n]):.3g})" for n in (*ours, *PEERS)]
            apart = " ".join(f"{r.difference[o]:.1e}" for o in ours)
            ratios = [f"{r.ratio(o):.2f}" for o in ours]
            lines.append([r.network, f"{r.gflop:.2g}", str(threads), *cells, *ratios, apart])
        means = [f"{geometric_mean([r.ratio(o) for r in chosen]):.2f}" for o in ours]
        blank = [""] * (len(ours) + len(PEERS))
        lines.append(["geometric mean", "", str(threads), *blank, *means, ""])
    if markdown:
        lines.insert(1, ["---", *["---:"] * (len(head) - 1)])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def machine() -> str:
    """The processor, what it has of what matters here, and the versions of everything."""
    name = model_name().partition(":")[2].strip() or platform.machine()
    known = ("asimd", "avx2", "avx512f", "amx_bf16")
    have = [feature for feature in known if feature in cpu_features()]
    compiler = find_compiler()
    parts = [f"{name}, {os.cpu_count()} cores ({', '.join(have) or 'no vectors known'})"]
    parts += [compiler.version.split(" | ")[0] if compiler else "no C compiler", f"Python {platform.python_version()}"]
    parts += [f"irc {irc.__version__}", *(f"{TITLES[n]} {version(n)}" for n in PEERS)]
    return "; ".join(parts)


def written(text: str, report: str) -> str:
    """A file's text with the report between its marks.  ValueError: it has none."""
    before, mark, rest = text.partition(MARKS[0])
    old, end, after = rest.partition(MARKS[1])
    if not mark or not end:
        raise ValueError(f"the file has no {MARKS[0]} … {MARKS[1]}")
    return f"{before}{mark}{old.splitlines()[0]}\n\n{report}\n\n{end}{after}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NETWORK", help=f"of {', '.join(NETWORKS)}; all by default")
    parser.add_argument("--threads", default="1,2", help="default 1,2")
    parser.add_argument("--precision", default="highest", help="highest, high, medium; several with commas between")
    parser.add_argument("--markdown", action="store_true", help="print the table as README.md has it")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between the marks in a file")
    given = parser.parse_args(arguments)
    names: list[str] = given.names or list(NETWORKS)
    if unknown := set(names) - set(NETWORKS):
        parser.error(f"no such network: {', '.join(sorted(unknown))}")
    precisions: list[str] = given.precision.split(",")
    rows: list[Row] = []
    for threads in map(int, given.threads.split(",")):
        for name in names:
            print(f"{name}, threads: {threads}", file=sys.stderr, flush=True)
            rows.append(measure(name, threads, precisions))
    report = f"{table(rows, precisions, given.markdown or given.write is not None)}\n\n{machine()}."
    print(report)
    if given.write:
        given.write.write_text(written(given.write.read_text("utf-8"), report), "utf-8")


if __name__ == "__main__":
    main()
