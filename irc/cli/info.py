"""`irc info`: what is in a model."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from irc.cli import budget, console
from irc.diagnostics.json_text import JsonText
from irc.diagnostics.terminal import TerminalText


@click.command(short_help="What is in a model: inputs, outputs, operations, memory.")
@click.argument("model", metavar="MODEL|DIR")
@click.option("--target", metavar="CPU", help="What it takes there: flash, RAM and stack, by layer and in all.")
@click.option("--shape", "shapes", metavar="x[1,3,224,224]", multiple=True, help="Fix symbolic dimensions.")
@click.option("--svg", metavar="FILE", help="Draw the arena over time.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(model: str, target: str | None, shapes: tuple[str, ...], svg: str | None, as_json: bool) -> None:
    """What is in a model: inputs, outputs, operations, parameters, multiply-accumulates, memory.

    With --target it is compiled to C for that processor, as `irc compile --emit c` does, and where a C compiler for it
    is found that C is compiled, to say how large code and stack are; nothing is kept.
    """
    fixed = console.parse_shapes(shapes)
    said = _of_folder(Path(model)) if console.is_folder(model) else _of_model(model, fixed)
    if not console.is_folder(model) and (target or svg):
        said["budget"] = budget.of_model(model, target or "native", fixed)
    if svg is not None:
        budget.draw(said.get("budget") or said.get("memory"), model, Path(svg))
    console.out(JsonText(said, indent=2) if as_json else _text(said))


def _of_model(path: str, shapes: dict[str, Any]) -> dict[str, Any]:
    import irc
    from irc.cli import costs

    with console.progress(f"reading {path}"):
        model = irc.load(path)
        elements, by_type = costs.weights(model.graph)
        macs, uncounted = costs.multiply_accumulates(model.graph)
    said: dict[str, Any] = {"file": path, "format": model.format, "version": model.version}
    if model.opsets:
        said["opsets"] = {domain or "ai.onnx": n for domain, n in model.opsets.items()}
    said["inputs"] = [_port(v) for v in model.inputs]
    said["outputs"] = [_port(v) for v in model.outputs]
    said["operations"] = _operations(model.graph)
    said["parameters"] = elements
    said["weight_bytes"] = by_type
    said["macs"] = int(macs) if macs.is_const else str(macs)
    if uncounted:
        said["macs_without"] = uncounted
    with console.progress(f"planning the memory of {path}"):
        said["memory"] = budget.of_context(model, shapes)
    return said


def _port(value: Any) -> dict[str, Any]:
    port: dict[str, Any] = {"name": value.name}
    others = [n for n in value.names if n != value.name]
    if others:
        port["names"] = others
    dtype, shape = getattr(value.type, "dtype", None), getattr(value.type, "shape", None)
    if dtype is None:
        return port | {"type": str(value.type)}
    sizes = None if shape is None else [int(d) if d.is_const else str(d) for d in shape]
    return port | {"dtype": dtype.name, "shape": sizes}


def _operations(graph: Any) -> dict[str, int]:
    """How often each operation occurs, by the file's own names, the most frequent first."""
    from irc.cli.costs import graphs_of

    counts, seen = Counter[str](), set[int]()
    for part in graphs_of(graph):
        for node in part.nodes:
            if node.origin is None or id(node.origin.raw) not in seen:
                counts[node.origin.raw.type if node.origin else node.op.name] += 1
            if node.origin is not None:
                seen.add(id(node.origin.raw))
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _of_folder(folder: Path) -> dict[str, Any]:
    """A compiled folder's manifest."""
    from irc.runtime.artifact import read_artifact
    from irc.runtime.ports import Port

    manifest = read_artifact(folder).manifest
    sizes = {f.name: f.stat().st_size for f in sorted(folder.iterdir()) if f.is_file()}
    ports = {
        kind: [
            {"name": p.name, "dtype": str(p.dtype), "shape": None if p.shape is None else list(p.shape)}
            for p in map(Port.of, manifest[kind])
        ]
        for kind in ("inputs", "outputs")
    }
    kept = {k: v for k, v in manifest.items() if isinstance(v, str | int | float) and k != "format"}
    memory = {"memory": manifest["memory"]} if "memory" in manifest else {}
    return {"file": str(folder), "format": "compiled", **kept, **ports, **memory, "files": sizes}


# -------------------------------------------------------------------------------- text
def _text(said: dict[str, Any]) -> TerminalText:
    lines = [_headline(said)]
    lines += budget.lines(said["budget"]) if "budget" in said else []
    for kind in ("inputs", "outputs"):
        lines.append(f"{kind}:")
        lines += [f"  {_port_text(p)}" for p in said[kind]]
    if "operations" in said:
        operations = said["operations"]
        lines.append(f"operations: {sum(operations.values())}")
        lines += [f"  {n:>6} {name}" for name, n in operations.items()]
        total = sum(said["weight_bytes"].values())
        by_type = ", ".join(f"{name} {size(n)}" for name, n in said["weight_bytes"].items())
        lines.append(f"parameters: {said['parameters']:,} in {size(total)}" + (f" ({by_type})" if by_type else ""))
        lines.append(f"multiply-accumulates: {_grouped(said['macs'])}")
        if "macs_without" in said:
            lines.append(f"  not counted: {', '.join(said['macs_without'])}")
        lines.append(budget.context_line(said["memory"]))
    plain = {k: v for k, v in said.items() if isinstance(v, str | int) and k not in _IN_TEXT}
    lines += [f"{key.replace('_', ' ')}: {_grouped(value)}" for key, value in plain.items()]
    if "files" in said:
        lines.append("files:")
        lines += [f"  {size(n):>10} {name}" for name, n in said["files"].items()]
    return TerminalText.lines(lines)


_IN_TEXT = ("file", "format", "version", "parameters", "macs")


def _headline(said: dict[str, Any]) -> str:
    names = {"onnx": "ONNX, IR version", "openvino": "OpenVINO IR, version"}
    kind = f"{names[said['format']]} {said['version']}" if said["format"] in names else str(said["format"])
    opsets = ", ".join(f"{domain} {n}" for domain, n in said.get("opsets", {}).items())
    return f"{said['file']}: {kind}" + (f", opsets: {opsets}" if opsets else "")


def _port_text(port: dict[str, Any]) -> str:
    if "type" in port:
        return f"{port['name']}: {port['type']}"
    shape = "..." if port["shape"] is None else ",".join(map(str, port["shape"]))
    also = f"  (also {', '.join(port['names'])})" if "names" in port else ""
    return f"{port['name']}: {port['dtype']}[{shape}]{also}"


def _grouped(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def size(n: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.4g} {unit}"
        n /= 1024
    return f"{n:.4g} GiB"
