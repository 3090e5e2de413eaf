"""Draws what `sweep.py --json` measured: how the ratios of all layers are distributed, and each layer in its family.

python bench/sweep.py --seed 1 --count 520 --json layers.json
python bench/histogram.py layers.json -o docs/images/layers.svg
python bench/histogram.py one.json two.json -o layers.svg       several runs, one below the other
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

FLOOR = 0.9
"""Ratios below it are drawn in another colour: slower than the faster peer beyond what noise explains."""
AHEAD, BEHIND = "#2f6db3", "#c8442f"
STEPS = 4
"""Bars in an octave of ratios."""


@dataclass(frozen=True)
class Run:
    """A run of `sweep.py`: where it was measured and the ratios of its layers by family."""

    title: str
    ratios: dict[str, list[float]]

    @classmethod
    def read(cls, path: Path) -> Run:
        """Read a run from a file of JSON; layers without a ratio are left out."""
        data = json.loads(path.read_text("utf-8"))
        found: dict[str, list[float]] = {}
        for row in data["layers"]:
            if not math.isnan(row["ratio"]):
                found.setdefault(row["family"], []).append(row["ratio"])
        return cls(data["title"], found)

    @property
    def all(self) -> list[float]:
        """The ratios of all families, sorted."""
        return sorted(r for some in self.ratios.values() for r in some)

    @property
    def caption(self) -> str:
        """State the number of layers, their geometric mean and how many are below the floor."""
        ratios = self.all
        mean, below = math.exp(statistics.fmean(map(math.log, ratios))), sum(r < FLOOR for r in ratios)
        return f"{self.title}\n{len(ratios)} layers, geometric mean {mean:.2f}, {below} below {FLOOR}"


def draw_bars(axes: Axes, run: Run) -> None:
    """Draw the histogram of a run: octaves of the ratio along the axis, numbers of layers upwards."""
    ratios = run.all
    first, last = (math.floor(STEPS * math.log2(r)) for r in (ratios[0], ratios[-1]))
    edges = [2 ** (step / STEPS) for step in range(first, last + 2)]
    behind = [r for r in ratios if r < FLOOR]
    axes.hist([behind, [r for r in ratios if r >= FLOOR]], bins=edges, stacked=True, color=[BEHIND, AHEAD], rwidth=0.9)
    axes.set_title(run.caption, fontsize="medium", loc="left")
    axes.set_ylabel("layers")


def draw_families(axes: Axes, run: Run) -> None:
    """Draw a line of points for each family, a point for each layer and a bar at the geometric mean."""
    names = sorted(run.ratios, key=lambda f: -statistics.fmean(map(math.log, run.ratios[f])))
    for line, name in enumerate(reversed(names)):
        ratios = run.ratios[name]
        axes.scatter(ratios, [line] * len(ratios), s=9, alpha=0.6, c=[AHEAD if r >= FLOOR else BEHIND for r in ratios])
        axes.plot([math.exp(statistics.fmean(map(math.log, ratios)))], [line], "|", color="black", markersize=11)
    axes.set_yticks(range(len(names)), names[::-1])


def picture(runs: Sequence[Run]) -> Figure:
    """Draw every run in a column of two panels that share their axis of ratios, drawn logarithmically."""
    figure = Figure(figsize=(6.5 * len(runs), 7), layout="constrained")
    panels = figure.subplots(2, len(runs), sharex=True, sharey="row", squeeze=False, height_ratios=(2, 3))
    for run, bars, families in zip(runs, *panels, strict=True):
        draw_bars(bars, run)
        draw_families(families, run)
        for axes in (bars, families):
            axes.set_xscale("log", base=2)
            axes.axvline(1, color="grey", linewidth=0.8)
            axes.spines[["top", "right"]].set_visible(False)
        families.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        families.set_xlabel("median of the faster peer / median of irc (right of 1: irc is faster)")
    return figure


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("-o", "--output", type=Path, default=Path("layers.svg"))
    given = parser.parse_args(words)
    # The same figures give the same file: no dates, no random identifiers; and text stays text.
    mpl.rcParams.update({"svg.hashsalt": "irc", "svg.fonttype": "none"})
    given.output.parent.mkdir(parents=True, exist_ok=True)
    picture([Run.read(path) for path in given.runs]).savefig(given.output, metadata={"Date": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
