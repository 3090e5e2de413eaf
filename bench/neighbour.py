"""Measures what a busy process beside them costs irc and its peers: networks of `networks.py`, or models in files.

python bench/neighbour.py --threads 2                    a process that computes without end beside two threads
python bench/neighbour.py resnet model.onnx --seconds 30

The neighbour is started here, stopped in every other round (SIGSTOP) and ended at the end.  "Quiet" and "busy" are the
ratios of the faster peer's mean time to irc's: a run that is held up now and then counts with what it lost, which a
median would hide.  "Kept" is busy by quiet: 1 where the neighbour costs irc as much as the faster peer.
"""

from __future__ import annotations

import argparse
import math
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
from networks import NETWORKS, feeds

import irc
from irc.cli import bench

PEERS = {"onnxruntime": bench.onnxruntime_engine, "openvino": bench.openvino_engine}
BURST = 0.25  # seconds in which one engine runs


@contextmanager
def neighbour() -> Generator[Callable[[bool], None]]:
    """A process that computes; what it yields lets it run or stops it."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield lambda run: process.send_signal(signal.SIGCONT if run else signal.SIGSTOP)
    finally:
        process.kill()
        process.wait()


def measure(runs: dict[str, Callable[[], Any]], seconds: float, burst: float = BURST) -> dict[bool, dict[str, float]]:
    """The mean seconds of a run of every engine, without (False) and with a neighbour (True)."""
    spent = {busy: dict.fromkeys(runs, 0.0) for busy in (False, True)}
    made = {busy: dict.fromkeys(runs, 0) for busy in (False, True)}
    order = list(runs)
    with neighbour() as let:
        until, turn = time.perf_counter() + seconds, 0
        while time.perf_counter() < until or turn < 2 * len(order):
            busy, at = turn % 2 == 1, turn // 2 % len(order)
            let(busy)
            for name in order[at:] + order[:at]:
                runs[name]()
                begun = time.perf_counter()
                while time.perf_counter() < begun + burst:
                    runs[name]()
                    made[busy][name] += 1
                spent[busy][name] += time.perf_counter() - begun
            turn += 1
    return {busy: {name: spent[busy][name] / made[busy][name] for name in runs} for busy in spent}


def ratio(times: dict[str, float]) -> float:
    """The faster peer's time by irc's."""
    return min(times[name] for name in PEERS) / times["irc"]


def compare(name: str, threads: int, seconds: float, small: bool = False) -> tuple[float, float]:
    """The ratios of a network, or of a model in a file, without and with a neighbour."""
    model = NETWORKS[name](small) if name in NETWORKS else onnx.load(name)
    with tempfile.TemporaryDirectory() as folder:
        path = name
        if name in NETWORKS:
            path = str(Path(folder, f"{name}.onnx"))
            onnx.save(model, path)
        arrays = feeds(model)
        runs = {title: make(path, threads, arrays).run for title, make in PEERS.items()}
        compiled = irc.compile(path, threads=threads)
        runs["irc"] = bench.irc_engine(compiled, {port.name: arrays[port.name] for port in compiled.inputs}).run
    times = measure(runs, seconds)
    said = [f"{n} {1e3 * times[False][n]:.3g} to {1e3 * times[True][n]:.3g} ms" for n in runs]
    print(f"{name}: {', '.join(said)}", file=sys.stderr, flush=True)
    return ratio(times[False]), ratio(times[True])


def line(name: str, quiet: float, busy: float) -> str:
    return f"{name:28}{quiet:8.2f}{busy:8.2f}{busy / quiet:8.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NETWORK", help=f"of {', '.join(NETWORKS)}, or a file; all")
    parser.add_argument("--threads", type=int, default=2, help="default 2")
    parser.add_argument("--seconds", type=float, default=14.0, help="for each network; default 14: fewer vary much")
    given = parser.parse_args(arguments)
    print(f"{'network':28}{'quiet':>8}{'busy':>8}{'kept':>8}")
    found: list[tuple[float, float]] = []
    for name in given.names or list(NETWORKS):
        found.append(compare(name, given.threads, given.seconds))
        print(line(name, *found[-1]), flush=True)
    means = [math.exp(statistics.fmean(math.log(pair[k]) for pair in found)) for k in (0, 1)]
    print(line("geometric mean", *means))


if __name__ == "__main__":
    main()
