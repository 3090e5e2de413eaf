"""What `irc profile` shows: tables of text, JSON, and a trace for chrome://tracing; `profile_page` has the HTML."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from irc.cli import console, feeds
from irc.diagnostics.terminal import TerminalText
from irc.runtime.limits import Limits
from irc.runtime.profiling import Profile, Step, family

WIDTH, NARROWEST = 150, 12
"""Of tables where standard output is no terminal, and of the names in them."""
WIDE = 120
"""From here on there is room for headings and brackets in one line."""
COLUMNS = ("ms", "%", "calls", "GFLOP/s", "% of FMA", "GB/s", "% of memory")

MOST_LAYERS = 20
"""Of a kernel that are named in a table of text; JSON and HTML name all."""
IN_CACHES = "cache"
"""In place of a percentage of the memory's rate that is over 100."""


@dataclass
class Row:
    """Calls that are reported together.

    flops, executed, bytes: None if they are unknown of any.  layers, tensors: of all calls; of each, what it reads and
    writes.
    """

    name: str
    kind: str
    calls: int
    seconds: float
    flops: int | None
    executed: float | None
    bytes: int | None
    layers: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()

    def rate(self, amount: float | None) -> float | None:
        """Of an amount, a second."""
        return amount / self.seconds if amount and self.seconds else None


def kind_of(step: Step) -> str:
    """The families of the step's kernels; `generated` where it has none."""
    return " + ".join(dict.fromkeys(map(family, step.kernels))) or "generated"


def layers_of(step: Step) -> str:
    return ", ".join(step.layers) or step.function


def tensors_of(step: Step) -> str:
    """Write what a step reads and writes: `f32[1,8], f32[8,4] → f32[1,4]`; nothing where the profile does not say."""
    return f"{', '.join(step.operands)} → {', '.join(step.results)}" if step.operands or step.results else ""


def kernel_of(step: Step) -> str:
    """The kernels that the step calls, or the generated function itself."""
    return " + ".join(step.kernels) or step.function


def rows(steps: list[Step], name: Callable[[Step], str]) -> list[Row]:
    """The steps added up by name, the longest first."""
    found: dict[str, Row] = {}
    for s in steps:
        row = found.setdefault(name(s), Row(name(s), kind_of(s), 0, 0.0, 0, 0.0, 0))
        row.calls += 1
        row.seconds += s.seconds
        row.flops = None if row.flops is None or s.flops is None else row.flops + s.flops
        row.executed = None if row.executed is None or s.executed is None else row.executed + s.executed
        row.bytes = None if row.bytes is None or s.bytes is None else row.bytes + s.bytes
        row.layers = tuple(dict.fromkeys((*row.layers, *s.layers)))
        row.tensors = tuple(dict.fromkeys((*row.tensors, *filter(None, [tensors_of(s)]))))
    return sorted(found.values(), key=lambda r: -r.seconds)


def titled(row: Row, most: int | None = None) -> str:
    """Write a row's name, with its layers (so many at most) unless they are the name."""
    layers, rest = ", ".join(row.layers), len(row.layers) - (most or len(row.layers))
    if layers in (row.name, ""):
        return row.name
    return f"{row.name} ({', '.join(row.layers[:most])}, and {rest} more)" if rest > 0 else f"{row.name} ({layers})"


@dataclass
class Report:
    """A profile of a model, and the limits of the machine where they are known.  inputs: their types by name."""

    model: str
    backend: str
    threads: int
    inputs: dict[str, str]
    profile: Profile
    limits: Limits | None

    def __post_init__(self) -> None:
        self.layers = rows(self.profile.steps, layers_of)
        self.kernels = rows(self.profile.steps, kernel_of)
        total = Row("all functions", "", len(self.profile.steps), sum(s.seconds for s in self.profile.steps), 0, 0.0, 0)
        for r in self.layers:
            total.flops = None if total.flops is None or r.flops is None else total.flops + r.flops
            total.executed = None if total.executed is None or r.executed is None else total.executed + r.executed
            total.bytes = None if total.bytes is None or r.bytes is None else total.bytes + r.bytes
        self.total = total

    # -------------------------------------------------------------------------- figures
    def figures(self, row: Row) -> dict[str, Any]:
        """Everything about a row, None where it is unknown; seconds, and per second."""
        rate, moved, executed = row.rate(row.flops), row.rate(row.bytes), row.rate(row.executed)
        fewer, most = min(rate or 0.0, executed or 0.0), self.limits
        return {
            **asdict(row),
            "share": row.seconds / self.profile.seconds if self.profile.seconds else None,
            "flops_per_second": rate,
            "executed_per_second": executed,
            "bytes_per_second": moved,
            "of_peak": fewer / most.flops if fewer and most else None,
            "of_bandwidth": moved / most.bandwidth if moved and most else None,
        }

    def cells(self, row: Row) -> list[str]:
        """The texts of COLUMNS."""
        f = self.figures(row)

        def text(value: float | None, scale: float, form: str) -> str:
            return "" if value is None else format(value * scale, form)

        rate = text(f["flops_per_second"], 1e-9, ".1f")
        if row.executed is not None and row.flops is not None and abs(row.executed - row.flops) > 0.01 * row.flops:
            rate += f" ({text(f['executed_per_second'], 1e-9, '.1f')})"
        return [
            text(row.seconds, 1e3, ".4f"),
            text(f["share"], 100, ".1f"),
            str(row.calls),
            rate,
            text(f["of_peak"], 100, ".1f"),
            text(f["bytes_per_second"], 1e-9, ".1f"),
            IN_CACHES if (f["of_bandwidth"] or 0.0) > 1 else text(f["of_bandwidth"], 100, ".1f"),
        ]

    def notes(self) -> list[str]:
        """What the cells need to be said to them."""
        shown = [self.figures(r) for r in (*self.layers, *self.kernels)]
        said = {
            "in brackets: operations that the processor executes, fewer than the definition has in Winograd's "
            "convolution, more in products of bf16 terms; % of FMA is of the fewer": any(
                "(" in self.cells(r)[3] for r in (*self.layers, *self.kernels)
            ),
            "over 100 % of FMA: products of bf16 terms, of which an instruction adds more than of f32": any(
                (f["of_peak"] or 0.0) > 1 for f in shown
            ),
            f"{IN_CACHES}: faster than memory, so caches held what was read or written": any(
                (f["of_bandwidth"] or 0.0) > 1 for f in shown
            ),
        }
        return [text for text, needed in said.items() if needed]

    def heading(self) -> list[str]:
        """What was measured, and beside what."""
        p = self.profile
        lines = [f"{self.model}: {self.backend}, threads: {self.threads}, inputs: {feeds.listed(self.inputs)}"]
        run, rest = f"{p.seconds * 1e3:.4f} ms", f"{p.rest * 1e3:.4f} ms"
        lines.append(f"one run: {run}, mean of the faster half of {p.runs}; of it outputs and state {rest}")
        if self.limits:
            flops, bandwidth = self.limits.flops / 1e9, self.limits.bandwidth / 1e9
            lines.append(f"limits: {flops:.1f} GFLOP/s of f32 multiply-adds, {bandwidth:.1f} GB/s read from memory")
        return lines

    # ---------------------------------------------------------------------------- forms
    def as_text(self, top: int) -> TerminalText:
        """Both tables, of that many rows."""
        parts: list[Any] = [str(TerminalText(line)) for line in self.heading()]
        width = console.width_of(sys.stdout) or WIDTH
        for title, found in (("layers", self.layers), ("kernel or generated function", self.kernels)):
            parts += ["", self._table(title, found, top, width)]
        parts += ["", *self.notes()] if self.notes() else []
        return TerminalText.drawn(parts, console.wants_colour(sys.stdout), width)

    def _table(self, title: str, found: list[Row], top: int, width: int) -> Any:
        """A table of at most that width: where it is narrow, headings and the figures in brackets take two lines."""
        from rich.box import SIMPLE
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        shown = [self.cells(r) for r in (*found[:top], self.total)]
        heads = list(COLUMNS)
        if width < WIDE:
            heads = [name.replace("% of ", "% of\n").replace("memory", "mem.") for name in heads]
            shown = [[cell.replace(" (", "\n(") for cell in cells] for cells in shown]
        widths = [
            max((len(line) for text in column for line in text.split("\n")), default=0)
            for column in zip(heads, *shown, strict=True)
        ]
        for name, least in zip(heads, widths, strict=True):
            table.add_column(name, justify="right", no_wrap=True, min_width=least)
        left = max(width - sum(widths) - 2 * len(widths), NARROWEST)
        table.add_column(title, overflow="fold")
        for r, cells in zip(found[:top], shown, strict=False):
            lines = broken(TerminalText(titled(r, MOST_LAYERS)), left)
            table.add_row(*cells, Text("\n".join(lines)))
        if rest := found[top:]:
            seconds = sum(r.seconds for r in rest)
            share = f"{100 * seconds / self.profile.seconds:.1f}" if self.profile.seconds else ""
            calls = str(sum(r.calls for r in rest))
            table.add_row(f"{seconds * 1e3:.4f}", share, calls, *[""] * 4, f"{len(rest)} more (--top)")
        table.add_section()
        table.add_row(*shown[-1], self.total.name)
        return table

    def as_json(self) -> dict[str, Any]:
        """All of it, in seconds, operations and bytes."""
        p = self.profile
        return {
            "model": self.model,
            "backend": self.backend,
            "threads": self.threads,
            "inputs": self.inputs,
            "seconds": p.seconds,
            "rest_seconds": p.rest,
            "runs": p.runs,
            "limits": asdict(self.limits) if self.limits else None,
            "total": self.figures(self.total),
            "layers": [self.figures(r) for r in self.layers],
            "kernels": [self.figures(r) for r in self.kernels],
            "steps": [asdict(s) for s in p.steps],
        }

    def as_trace(self) -> dict[str, Any]:
        """One run in the Trace Event Format (times in microseconds), for chrome://tracing and Perfetto."""
        events: list[dict[str, Any]] = [
            {"name": "process_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": self.model}},
            {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": f"{self.backend}: functions"}},
        ]
        for s in self.profile.steps:
            (row,) = rows([s], layers_of)
            facts = {name: value for name, value in self.figures(row).items() if value is not None}
            told = {"kernel": kernel_of(s), "function": s.function, **{k: facts[k] for k in TRACED if k in facts}}
            events.append(
                {
                    "name": layers_of(s),
                    "cat": kind_of(s),
                    "ph": "X",
                    "pid": 1,
                    "tid": 1,
                    "ts": s.begin * 1e6,
                    "dur": (s.end - s.begin) * 1e6,
                    "args": told,
                }
            )
        return {"traceEvents": events, "displayTimeUnit": "ns"}


def broken(text: str, width: int) -> list[str]:
    """Break a text into lines of that width: between words, within longer ones behind separators of names."""
    words: list[str] = []
    for word in text.split():
        words += [word] if len(word) <= width else _packed(re.findall(r"[^/._,:]*[/._,:]*", word), "", width)
    return _packed(words, " ", width) or [""]


def _packed(pieces: list[str], between: str, width: int) -> list[str]:
    """Put as many pieces as fit into each line; of one that is longer, what fits."""
    lines: list[str] = []
    for piece in pieces:
        joined = f"{lines[-1]}{between}{piece}" if lines else piece
        if lines and len(joined) <= width:
            lines[-1] = joined
        else:
            lines += [piece[k : k + width] for k in range(0, len(piece), width)]
    return lines


TRACED = ("seconds", "flops", "executed", "bytes", "flops_per_second", "bytes_per_second", "of_peak", "of_bandwidth")
