"""Measures random layers with irc beside ONNX Runtime and OpenVINO: is there a shape that irc is slow at?

python bench/sweep.py --seed 1 --count 150              every family in turn; about three minutes on two idle cores
python bench/sweep.py --family conv2d,einsum --threads 2
python bench/sweep.py --target x86-64-v3                beside OpenVINO, held to AVX2; ONNX Runtime cannot be, nor can
                                                        OpenVINO's products by MLAS, its reductions and its TopK:
                                                        their rows have no ratio
python bench/sweep.py --target x86-64-v4                AVX-512 without AMX, beside both: floats of ONNX Runtime take no
                                                        more than that
python bench/sweep.py --seed 1 --json l.json            keeps what was measured, for histogram.py to draw
python bench/sweep.py --seed 1 --show 42 -o layer.onnx  writes a layer, to profile it

The ratio is the faster peer's median by irc's: above 1, irc is the faster one.  A peer that cannot run a layer is left
out of its row; so is one that crashes on it, and the row says which.  "off" marks a layer whose result is not ONNX
Runtime's within 1e-4 of its largest element (1e-2 where numbers of 16 or 8 bits are rounded).  The exit status is 1 if
a layer is off or below --floor.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import layers
import layers_of_loops as loops
import numpy as np
import onnx
from layers import Draft, Layer
from own_process import Died, OwnProcess

import irc
from irc.cli import bench
from irc.comparison import engines
from irc.toolchain.processor import cpu_features, machine, model_name

FAMILIES: dict[str, Callable[[Draft], str]] = {
    "conv2d": partial(layers.convolution, rank=2),
    "depthwise": partial(layers.convolution, rank=2, group="depthwise"),
    "conv1d": partial(layers.convolution, rank=1),
    "conv3d": partial(layers.convolution, rank=3),
    "transposed": layers.transposed,
    "pool": layers.pool,
    "matmul": layers.matmul,
    "einsum": layers.einsum,
    "attention": layers.attention,
    "grouped": partial(layers.attention, shared=(2, 4, 8)),
    "recurrent": layers.recurrent,
    "half": layers.half,
    "compressed": layers.compressed,
    "quantized": layers.quantized,
    "elementwise": loops.elementwise,
    "norm": loops.norm,
    "reduction": loops.reduction,
    "movement": loops.movement,
    "sampling": loops.sampling,
    "scatter": loops.scatter,
    "dynamic": loops.dynamic_batch,
    "table": loops.table,
}
ROUGH = {"half", "quantized"}
"""Families that round to 16 or 8 bits on their way."""
ENGINES = ("irc", "ort", "openvino")
HELD = {"x86-64-v3": "AVX2", "x86-64-v4": "AVX512_CORE_VNNI"}
"""What OpenVINO's oneDNN is held to, by the target of irc."""
FREE = {"x86-64-v3"}
"""Targets beside which MLAS, of ONNX Runtime and of OpenVINO, takes more than they have."""


@dataclass
class Row:
    """A layer that was measured: medians in ms by engine, and how far irc's result is from ONNX Runtime's.

    free: what in OpenVINO cannot be held to the target's instructions, in which case there is no ratio.
    """

    index: int
    family: str
    text: str
    ms: dict[str, float] = field(default_factory=dict[str, float])
    difference: float = 0.0
    error: str = ""
    crashed: str = ""
    free: str = ""

    @property
    def ratio(self) -> float:
        """The faster peer's time by irc's; NaN if either is missing, or the peer computes with other instructions."""
        if self.free:
            return math.nan
        peers = [v for name, v in self.ms.items() if name != "irc"]
        return min(peers) / self.ms["irc"] if peers and "irc" in self.ms else math.nan

    @property
    def off(self) -> bool:
        return bool(self.error) or not self.difference <= (1e-2 if self.family in ROUGH else 1e-4)

    def __str__(self) -> str:
        times = "  ".join(f"{name} {ms:8.4f}" for name, ms in self.ms.items())
        note = f"  {self.error}" if self.error else f"  off by {self.difference:.1e}" if self.off else ""
        note += f"  {self.crashed} crashed" if self.crashed else ""
        note += f"  openvino's {self.free} is not held to the target" if self.free else ""
        return f"{self.index:4d} {self.family:11s} {self.ratio:6.2f}  {times}  {self.text}{note}"


def draw(seed: int, index: int, families: Sequence[str]) -> Layer:
    """Make layer `index` of a seed: families take turns."""
    family = families[index % len(families)]
    draft = Draft(np.random.default_rng([seed, index]))
    return draft.layer(family, FAMILIES[family](draft))


def measured(index: int, given: argparse.Namespace, names: Sequence[str] = ENGINES) -> Row:
    """Load a layer into these engines and run them in turn."""
    layer = draw(given.seed, index, given.family.split(","))
    row = Row(index, layer.family, layer.text)
    data = layer.model.SerializeToString()
    runs: dict[str, bench.Engine] = {}
    try:
        if "irc" in names:
            compiled = irc.compile(data, backend="c", threads=given.threads, target=given.target)
            runs["irc"] = bench.irc_engine(compiled, layer.feeds)
    except irc.IrcError as error:
        row.error = str(error).splitlines()[0]
    for name, make in (("ort", bench.onnxruntime_engine), ("openvino", bench.openvino_engine)):
        if name not in names:
            continue
        try:
            runs[name] = make(data, given.threads, layer.feeds)
        except Exception as error:  # a peer raises what it likes
            print(f"     {name}: {str(error).splitlines()[0][:100]}", file=sys.stderr)
    if "irc" in runs and "ort" in runs:
        row.difference = bench.differences({"ort": runs["ort"], "irc": runs["irc"]})["irc"]
    if given.target in FREE:
        runs.pop("ort", None)
        row.free = unheld(data, layer.feeds, given.threads) if "openvino" in runs else ""
    seconds = given.time / given.rounds
    times = bench.measure({name: engine.run for name, engine in runs.items()}, given.rounds, seconds)
    row.ms = {name: 1e3 * statistics.median(some) for name, some in times.items()}
    return row


def unheld(model: bytes, feeds: dict[str, Any], threads: int) -> str:
    """Name OpenVINO's kernel for this model that ONEDNN_MAX_CPU_ISA does not hold; empty if there is none.

    Its products of f32 with constants are MLAS', which takes what the processor has: AVX-512, on a machine with that.
    So do its reductions and TopK, which is ArgMax too.  Kernels of symbolic sizes are chosen in the first run.
    """
    if "avx512f" not in cpu_features():
        return ""
    compiled = engines.openvino_model(engines.imported("openvino"), model, threads)
    compiled.create_infer_request().infer(feeds)
    kinds = [str(layer.get_rt_info()["primitiveType"].value) for layer in compiled.get_runtime_model().get_ops()]
    return next((kind for kind in kinds if any(word in kind for word in ("mlas", "avx512", "amx"))), "")


def survived(index: int, measure: Callable[[Sequence[str]], Row]) -> Row:
    """Measure a layer; where an engine crashes on it, once more without that one, which is found by trying."""
    try:
        return measure(ENGINES)
    except Died:
        pass
    for name in reversed(ENGINES):
        try:
            row = measure([other for other in ENGINES if other != name])
        except Died:
            continue
        row.crashed = name
        row.error = row.error or ("no result" if name == "irc" else "")
        return row
    return Row(index, "", "", error="crashes whichever engine is left out")


def summary(rows: Sequence[Row], floor: float) -> str:
    """Write a line for each family and one for all: layers, geometric mean of the ratios, lowest, below the floor."""
    lines: list[str] = []
    for family in (*FAMILIES, "all"):
        ratios = [r.ratio for r in rows if family in ("all", r.family) and not math.isnan(r.ratio)]
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            below = sum(r < floor for r in ratios)
            lines.append(
                f"{family:11s} {len(ratios):4d}  mean {mean:5.2f}  lowest {min(ratios):5.2f}  below {floor}: {below}"
            )
    return "\n".join(lines)


def title(given: argparse.Namespace) -> str:
    """State the machine and what was measured on it, as `bench/histogram.py` writes it above its picture."""
    name = model_name().partition(":")[2].strip() or machine()
    have = [feature for feature in ("asimd", "avx2", "avx512f", "amx_bf16") if feature in cpu_features()]
    target = "" if given.target == "native" else f", {given.target}"
    return f"{name} ({', '.join(have[-1:])}){target}, threads: {given.threads}, seed {given.seed}"


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=len(FAMILIES))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--family", default=",".join(FAMILIES), help="several with commas between")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--target", default="native")
    parser.add_argument("--time", type=float, default=0.15, help="seconds for each engine and layer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--floor", type=float, default=0.9)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--show", type=int, metavar="INDEX", help="write this layer instead of measuring")
    parser.add_argument("-o", "--output", type=Path, default=Path("layer.onnx"))
    given = parser.parse_args(words)
    if unknown := set(given.family.split(",")) - set(FAMILIES):
        parser.error(f"no such family: {', '.join(sorted(unknown))}")
    return given


def main(words: Sequence[str] | None = None) -> int:
    given = arguments(words)
    families: list[str] = given.family.split(",")
    if given.show is not None:
        layer = draw(given.seed, given.show, families)
        onnx.save(layer.model, given.output)
        fed: dict[str, Any] = layer.feeds
        np.savez(given.output.with_suffix(".npz"), **fed)
        print(f"{given.output}: {layer.family} {layer.text}")
        return 0
    if given.target in HELD:
        os.environ["ONEDNN_MAX_CPU_ISA"] = HELD[given.target]
    rows: list[Row] = []
    process = OwnProcess()
    for index in range(given.first, given.first + given.count):
        rows.append(survived(index, lambda names, index=index: process.call(measured, index, given, names)))
        print(rows[-1], flush=True)
    print(f"\n{summary(rows, given.floor)}\noff: {sum(r.off for r in rows)}")
    if free := sum(bool(r.free) for r in rows):
        print(f"beside what cannot be held to the target, and not counted: {free}")
    if given.json:
        layers = [{**asdict(r), "ratio": r.ratio} for r in rows]
        given.json.write_text(json.dumps({"title": title(given), "layers": layers}, indent=1), "utf-8")
    return int(any(r.off or r.ratio < given.floor for r in rows))


if __name__ == "__main__":
    sys.exit(main())
