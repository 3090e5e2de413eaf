"""`irc ops`: whether irc can run a model, and which of its operations are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from irc.cli import console
from irc.diagnostics.json_text import JsonText
from irc.diagnostics.terminal import TerminalText

if TYPE_CHECKING:
    from irc.diagnostics.core import Diagnostic
    from irc.formats.document import RawModel, RawNode


@click.command(short_help="Whether irc can run a model, and what is missing.")
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(model: str, as_json: bool) -> int:
    """List the operations of MODEL, what is wrong with each, and what can run the model: C, NumPy or nothing.

    No C compiler is needed: C is written, as `irc compile --emit c` does, and thrown away.
    """
    with console.progress(f"reading {model}"):
        said = _said(model)
    console.out(JsonText(said, indent=2) if as_json else _text(said))
    return 0 if said["runs_in"] else 1


def _said(path: str) -> dict[str, Any]:
    from irc import driver
    from irc.border import read_model
    from irc.diagnostics.core import IrcError, Sink

    sink = Sink()
    raw = driver.read(path, sink)
    if raw is None:
        raise IrcError(sink.diagnostics)
    model = read_model(raw, sink)
    found = list(sink.errors)
    backends = {"c": [] if found else _refusals(model, "c"), "numpy": [] if found else _refusals(model, "numpy")}
    runs_in = [] if found else [name for name, why in backends.items() if not why]
    rows = _rows(raw, found, backends)
    others = [d for d in found if not any(d.location.where in row["where"] for row in rows)]
    return {
        "file": path,
        "format": raw.format,
        "runs_in": runs_in,
        "operations": [{k: v for k, v in row.items() if k != "where"} for row in rows],
        "findings": [_brief(d) for d in others],
        "refusals": {name: [_brief(d) for d in why] for name, why in backends.items() if why},
    }


def _refusals(model: Any, backend: str) -> list[Diagnostic]:
    """Why a backend cannot compile the model."""
    from irc import driver
    from irc.diagnostics.core import IrcError

    options = driver.CompileOptions(backend=backend, target="native", cache=False)
    try:
        if backend == "c":
            driver.sources(model, options)
        else:
            driver.generate(model, backend, options)
    except IrcError as e:
        return [d for d in e.diagnostics if d.severity == "error"]
    return []


def _nodes(nodes: Sequence[RawNode]) -> Iterator[RawNode]:
    """The nodes, and those in their bodies."""
    from irc.border.support import bodies_of

    for node in nodes:
        yield node
        for body in bodies_of(node):
            yield from _nodes(body.nodes)


def _rows(raw: RawModel, found: list[Diagnostic], backends: dict[str, list[Diagnostic]]) -> list[dict[str, Any]]:
    """What is said of each operation, in each version of it that occurs, the most frequent first."""
    counts, places = Counter[tuple[str, str, int]](), dict[tuple[str, str, int], set[str]]()
    for node in [*_nodes(raw.graph.nodes), *(n for f in raw.functions for n in _nodes(f.nodes))]:
        key = (node.domain, node.type, node.version)
        counts[key] += 1
        places.setdefault(key, set()).add(node.loc.where)
    rows: list[dict[str, Any]] = []
    for (domain, type, version), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        where = places[domain, type, version]
        wrong = [d for d in found if d.location.where in where]
        row: dict[str, Any] = {"name": type, "domain": domain, "opset": version, "count": count, "where": where}
        row["missing"] = _distinct(wrong)
        row |= {
            f"{name}_cannot": _distinct([d for d in why if d.location.where in where]) for name, why in backends.items()
        }
        rows.append(row)
    return rows


def _distinct(found: list[Diagnostic]) -> list[dict[str, Any]]:
    """The findings once each, with how many nodes have them."""
    counts = Counter((d.code, d.message) for d in found)
    return [{"code": code, "message": message, "count": n} for (code, message), n in counts.items()]


def _brief(d: Diagnostic) -> dict[str, Any]:
    return {"code": d.code, "message": d.message, "where": d.location.where}


# -------------------------------------------------------------------------------- text
def _text(said: dict[str, Any]) -> TerminalText:
    names = {"c": "C", "numpy": "NumPy"}
    if said["runs_in"]:
        verdict = f"irc runs it in {' and '.join(names[b] for b in said['runs_in'])}"
    else:
        verdict = "irc cannot run it"
    lines = [f"{said['file']}: {verdict}"]
    for row in said["operations"]:
        name = f"{row['domain']}.{row['name']}" if row["domain"] else row["name"]
        lines.append(f"{row['count']:>6} {name}-{row['opset']}{_marks(row)}")
        for kind in ("missing", "c_cannot", "numpy_cannot"):
            for one in row[kind]:
                times = f" ({one['count']} times)" if one["count"] > 1 else ""
                lines.append(f"         {one['code']}: {one['message']}{times}")
    lines += [f"{d['code']}: {d['message']}" for d in said["findings"]]
    shown = {m["message"] for row in said["operations"] for k in ("c_cannot", "numpy_cannot") for m in row[k]}
    for name, why in said["refusals"].items():
        lines += [f"not in {names[name]}: {d['code']}: {d['message']}" for d in why if d["message"] not in shown]
    return TerminalText.lines(lines)


def _marks(row: dict[str, Any]) -> str:
    if row["missing"]:
        return "  MISSING"
    marks = [name for key, name in (("c_cannot", "C"), ("numpy_cannot", "NumPy")) if row[key]]
    return f"  not in {' and '.join(marks)}" if marks else ""
