"""What a compiled model takes: flash, RAM and stack, by layer and in all, before anything is flashed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click

from irc.cli import console


def of_model(path: str, target: str, shapes: dict[str, Any]) -> dict[str, Any]:
    """Compile a model for a target and say what it takes: context, weights and arena; code and stack where GCC builds.

    InvalidModel, CompileError.
    """
    from irc import driver
    from irc.backends.c.names import prefix_of_file
    from irc.runtime.artifact import write_artifact

    name = str(prefix_of_file(Path(path).stem))
    options = driver.CompileOptions(backend="c", target=target, shapes=shapes, name=name)
    with console.progress(f"compiling {path}"), tempfile.TemporaryDirectory(prefix="irc-") as scratch:
        draft = driver.sources(driver.load(path), options)
        write_artifact(Path(scratch, "c"), draft)
        built = _built(Path(scratch, "c"), sorted(draft.files), name, target)
    memory = draft.manifest["memory"]
    found: dict[str, Any] = {"target": target, **memory, **built}
    if "code_bytes" in built:
        found["flash_bytes"] = built["code_bytes"] + memory["weights_bytes"]
    found["steps"] = _steps(memory["arena"])
    for row in found["steps"]:
        own = f"{name}_{row['function']}"
        if own in built.get("functions", ()):  # else it is a part of the one that runs all
            row["code_bytes"] = built["functions"][own]
    return found


def of_context(model: Any, shapes: dict[str, Any]) -> dict[str, Any]:
    """What C for this machine keeps in memory in a run, by the sources alone; why, where there are none.

    CompileError where the shapes are not the model's.
    """
    from irc import driver
    from irc.diagnostics import IrcError

    try:
        memory = driver.sources(model, driver.CompileOptions(backend="c", shapes=shapes)).manifest["memory"]
    except IrcError as e:
        if console.status_of(e.diagnostics) == 2:
            raise
        return {"unknown": str(e)}
    return {**memory, "steps": _steps(memory["arena"])}


def context_line(memory: dict[str, Any]) -> str:
    """The same in a line."""
    if "unknown" in memory:
        return f"memory of a run: unknown: {memory['unknown']}"
    context = memory["context_bytes"]
    parts = [f"context {_bytes(context)}"] if context is not None else []
    parts += [f"arena {_bytes(memory['arena']['bytes'])}", f"weights {_bytes(memory['weights_bytes'])}"]
    return f"memory of a run: {', '.join(parts)}"


def _built(folder: Path, files: list[str], name: str, target: str) -> dict[str, Any]:
    """Bytes of code and of the stack that a run takes, by its calls; nothing where there is no GCC for the target."""
    from irc.diagnostics import CompileError
    from irc.toolchain import c_compiler, libraries, objects, stack

    try:
        compiler = c_compiler.require_compiler(target)
        resolved = c_compiler.resolve_target(target, compiler)
    except CompileError:
        return {}
    if not stack.writes_graphs(compiler):
        return {}
    made = libraries.compile_units(folder, files, resolved, compiler, stack.FLAGS)
    graph = stack.call_graph(
        [path.read_text() for path in folder.glob("*.ci")], stack.mentions_in(stack.sources_in(folder))
    )
    deepest = graph.deepest(f"{name}_run")
    found: dict[str, Any] = {"stack_bytes": sum(graph.frames[f] for f in deepest)}
    found["stack"] = [{"function": stack.own_name(f), "bytes": graph.frames[f]} for f in deepest]
    found["largest_frame"] = max(graph.frames.values())
    taken = objects.sections(made)
    if taken:
        found |= {"code_bytes": taken["code"], "static_bytes": taken["data"] + taken["bss"]}
        found["functions"] = objects.functions(made)
    return found


def _steps(arena: dict[str, Any]) -> list[dict[str, Any]]:
    """The bytes of the tensors that are alive at each step."""
    rows: list[dict[str, Any]] = []
    for k, step in enumerate(arena["steps"]):
        alive = [t["bytes"] for t in arena["tensors"] if t["first"] <= k <= t["last"]]
        known = all(isinstance(n, int) for n in alive)
        rows.append({**step, "alive_bytes": sum(alive) if known else " + ".join(map(str, alive))})
    return rows


def draw(memory: dict[str, Any] | None, title: str, path: Path) -> None:
    """Write the picture of the arena."""
    from irc.loops.budget import picture

    if memory is None:
        raise click.BadParameter(f"{title} has no arena", param_hint="--svg")
    try:
        text = picture(memory["arena"], Path(title).name)
    except ValueError as e:
        raise click.BadParameter(f"{e}: fix them with --shape", param_hint="--svg") from e
    path.write_text(text, "utf-8")


def lines(said: dict[str, Any]) -> list[str]:
    """The budget as text."""
    arena = said["arena"]
    known = ((k, said.get(f"{k}_bytes")) for k in ("flash", "code", "weights", "context", "static", "stack"))
    shown = [f"{name} {_bytes(n)}" for name, n in known if n is not None]
    made = [f"takes on {said['target']}: {', '.join(shown)}"]
    if "stack" in said:
        calls = [f"{row['function']} {row['bytes']}" for row in said["stack"]]
        made.append(f"stack of a run: {' > '.join(calls)}, without what libraries take")
    if "functions" in said:
        made.append("code by function, with what the compiler put into it; kernels and tables too:")
        made += [f"  {_bytes(n):>16} {function}" for function, n in said["functions"].items()]
    made.append("weights that each step reads:")
    made += [f"  {_bytes(s['weights_bytes']):>16} {k:>3} {', '.join(s['layers'])}" for k, s in enumerate(said["steps"])]
    made.append(f"arena: {_bytes(arena['bytes'])}, of the context, by tensor:")
    made += [
        f"  {_bytes(t['bytes']):>16} at {t['at']!s:>8} {t['name']}, steps {t['first']} to {t['last']}"
        for t in arena["tensors"]
    ]
    made.append("alive at each step:")
    made += [f"  {_bytes(s['alive_bytes']):>16} {k:>3} {', '.join(s['layers'])}" for k, s in enumerate(said["steps"])]
    return made


def _bytes(n: int | str) -> str:
    return f"{n:,} B" if isinstance(n, int) else f"{n} B"
