"""`irc bench`: how fast a model runs, beside other engines where asked for."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from irc.cli import console, feeds
from irc.diagnostics.core import NOWHERE
from irc.diagnostics.json_text import JsonText
from irc.diagnostics.terminal import TerminalText

ROUNDS = 7
BURST_SECONDS = 0.2
PERCENTILES = (50, 90, 99)
PAUSE_SECONDS = 0.02
"""Between two engines: threads of the one before stop spinning."""


class Cost(NamedTuple):
    """What it takes to have a model ready: seconds to compile it (None where nothing is), seconds to load it, and bytes
    by which the process has grown after loading and the first run."""

    compile: float | None
    load: float
    memory: int | None


class Engine(NamedTuple):
    """A model loaded into an engine: one run, and the outputs of the latest."""

    run: Callable[[], Any]
    outputs: Callable[[], list[Any]]


@click.command(short_help="Time a model, also beside other engines.")
@click.argument("model", metavar="MODEL|DIR")
@click.option("--vs", metavar="onnxruntime,openvino", default="", help="Other engines to measure beside it.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True)
@click.option(
    "--precision",
    type=click.Choice(["highest", "high", "medium"]),
    default="highest",
    show_default=True,
    help="Of irc; the others compute in f32.",
)
@click.option("--shape", "shapes", metavar="x[1,3,224,224]", multiple=True, help="Fix symbolic dimensions.")
@click.option("--input", "inputs", metavar="x=FILE.npy|FILE.npz|random", multiple=True, help="Default: random.")
@click.option(
    "--time",
    "seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help=f"How long each engine is measured.  [default: {ROUNDS * BURST_SECONDS:g}]",
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(
    model: str,
    vs: str,
    threads: int,
    precision: str,
    shapes: tuple[str, ...],
    inputs: tuple[str, ...],
    seconds: float | None,
    as_json: bool,
) -> None:
    """Time a model, or a folder that `irc compile` wrote, in rounds that alternate between engines.

    Prints of each engine the time of one run (the median, the 90th and 99th percentile and the minimum), the runs a
    second, how many times as long as irc's median its median is, and the largest difference of its outputs from irc's,
    relative to the output's largest element.  Below stands what it took to compile and to load the model, and by how
    much the process had grown after its first run.
    """
    from irc.comparison.engines import PEERS

    engines = [name.strip() for name in vs.split(",") if name.strip()]
    for name in engines:
        if name not in PEERS:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(PEERS)}", param_hint="--vs")
    with console.progress(f"compiling {model}"):
        compiled, cost = _compiled(model, threads, precision, console.parse_shapes(shapes))
        arrays, _ = feeds.gather(compiled.inputs, feeds.parse_inputs(inputs))
        runs, costs = _prepare(model, engines, threads, compiled, cost, arrays)
    with console.progress("measuring"):
        times = measure(
            {name: engine.run for name, engine in runs.items()}, ROUNDS, seconds / ROUNDS if seconds else BURST_SECONDS
        )
    said = _result(model, threads, precision, arrays, times, differences(runs), costs)
    console.out(JsonText(said, indent=2) if as_json else _text(said))


def _compiled(model: str, threads: int, precision: str, shapes: dict[str, tuple[int, ...]]) -> tuple[Any, float | None]:
    """The model compiled, and the seconds that took; None of a compiled folder."""
    import irc

    if console.is_folder(model):
        if shapes or precision != "highest":
            raise click.UsageError("a compiled folder has its precision and shapes already")
        return irc.load_compiled(model, threads=threads), None
    began = time.perf_counter()
    compiled = irc.compile(model, threads=threads, precision=precision, shapes=shapes or None)
    return compiled, time.perf_counter() - began


def _prepare(
    model: str, engines: list[str], threads: int, compiled: Any, cost: float | None, arrays: dict[str, Any]
) -> tuple[dict[str, Engine], dict[str, Cost]]:
    """Load the model into every engine, one after the other; another one that cannot run it is left out."""
    import irc
    from irc.comparison.engines import guarded
    from irc.diagnostics.codes.command import ENGINE_FAILED
    from irc.runtime.executor import CompiledModel

    if engines and console.is_folder(model):
        raise click.UsageError(f"--vs needs the model's file: {model} is a compiled folder")

    def own() -> Engine:
        plain = type(compiled) is CompiledModel  # others compile themselves for the shapes of a call
        again = irc.load_compiled(compiled.artifact.folder, threads=threads) if plain else compiled
        return irc_engine(again, arrays)

    source = _as_onnx(model) if "onnxruntime" in engines else model
    makers: dict[str, Callable[[], Engine]] = {"irc": own}
    makers["onnxruntime"] = lambda: onnxruntime_engine(source, threads, arrays)
    makers["openvino"] = lambda: openvino_engine(model, threads, arrays)

    def attempt(engine: str, work: Callable[[], Any]) -> Any:
        return work() if engine == "irc" else guarded(engine, NOWHERE, work)

    runs: dict[str, Engine] = {}
    costs: dict[str, Cost] = {}
    for name in ("irc", *engines):
        before, began = resident(), time.perf_counter()
        try:
            made: Engine = attempt(name, makers[name])
            seconds = time.perf_counter() - began
            attempt(name, made.run)
        except irc.IrcError as e:
            if e.diagnostics[0].code != ENGINE_FAILED.id:
                raise
            console.note(f"{e.diagnostics[0].message}; it is left out")
            continue
        runs[name] = made
        grown = None if before is None else max(0, (resident() or before) - before)
        costs[name] = Cost(cost if name == "irc" else None, seconds, grown)
    return runs, costs


def resident() -> int | None:
    """Bytes of this process in memory; None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    import resource

    return pages * resource.getpagesize()


def percentile(times: Sequence[float], part: float) -> float:
    """The time that this percentage of runs does not exceed, by linear interpolation."""
    ordered = sorted(times)
    at = (len(ordered) - 1) * part / 100
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def measure(
    runs: dict[str, Callable[[], Any]], rounds: int = ROUNDS, seconds: float = BURST_SECONDS
) -> dict[str, list[float]]:
    """Measure the seconds of every single run.

    In each round each engine runs for this many seconds after a warm-up; each round begins with another one.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs)
    for turn in range(rounds):
        at = turn % len(order)
        for name in order[at:] + order[:at]:
            time.sleep(PAUSE_SECONDS)
            times[name] += _burst(runs[name], seconds)
    return times


def _burst(run: Callable[[], Any], seconds: float) -> list[float]:
    found: list[float] = []
    run()
    until = time.perf_counter() + seconds
    while True:
        before = time.perf_counter()
        run()
        after = time.perf_counter()
        found.append(after - before)
        if after > until:
            return found


def differences(engines: Mapping[str, Engine]) -> dict[str, float]:
    """The largest difference of each engine's outputs from the first one's, relative to the largest element."""
    from irc.comparison.measures import difference

    (_, first), *others = engines.items()
    first.run()
    ours = [o.copy() if hasattr(o, "copy") else o for o in first.outputs()]
    found: dict[str, float] = {}
    for name, engine in others:
        engine.run()
        found[name] = max((difference(b, a, False) for a, b in zip(ours, engine.outputs(), strict=True)), default=0.0)
    return found


def _result(
    model: str,
    threads: int,
    precision: str,
    arrays: dict[str, Any],
    times: dict[str, list[float]],
    apart: dict[str, float],
    costs: dict[str, Cost],
) -> dict[str, Any]:
    ours = statistics.median(times["irc"])
    rows = [
        {
            "engine": name,
            "median_ms": statistics.median(found) * 1e3,
            **{f"p{part}_ms": percentile(found, part) * 1e3 for part in PERCENTILES},
            "min_ms": min(found) * 1e3,
            "runs_per_second": len(found) / sum(found),
            "runs": len(found),
            "ratio": statistics.median(found) / ours,
            "difference": apart.get(name, 0.0) if apart.get(name) != float("inf") else None,
            "compile_seconds": costs[name].compile,
            "load_seconds": costs[name].load,
            "memory_bytes": costs[name].memory,
        }
        for name, found in times.items()
    ]
    inputs = feeds.described(arrays)
    return {"model": model, "threads": threads, "precision": precision, "inputs": inputs, "engines": rows}


def _text(said: dict[str, Any]) -> TerminalText:
    inputs, peers = feeds.listed(said["inputs"]), len(said["engines"]) > 1
    precision = said["precision"] + (", the others in f32" if peers and said["precision"] != "highest" else "")
    lines = [f"{said['model']}, threads: {said['threads']}, precision: {precision}, inputs: {inputs}"]
    heads = f"{'engine':11} {'median ms':>9} {'90 %':>8} {'99 %':>8} {'min':>8} {'runs/s':>8}"
    lines.append(heads + " / irc  difference" * peers)
    for row in said["engines"]:
        times = " ".join(f"{row[name]:8.4g}" for name in ("p90_ms", "p99_ms", "min_ms"))
        figures = f"{row['median_ms']:9.4g} {times} {_rate(row['runs_per_second'])}"
        apart = "infinite" if row["difference"] is None else f"{row['difference']:.1e}"
        apart = "" if row["engine"] == "irc" else apart
        others = f" {row['ratio']:5.2f}  {apart:>10}" if peers else ""
        lines.append(f"{row['engine']:11} {figures}{others}".rstrip())
    lines.append(f"{'engine':11} {'compiled s':>10} {'loaded s':>8} {'memory':>10} {'runs':>8}")
    lines += [_cost(row) for row in said["engines"]]
    return TerminalText.lines(lines)


def _rate(runs: float) -> str:
    return f"{runs:8.0f}" if runs >= 1000 else f"{runs:8.4g}"


def _cost(row: dict[str, Any]) -> str:
    """What it took to have the model ready."""
    from irc.cli.info import size

    compiled = "" if row["compile_seconds"] is None else f"{row['compile_seconds']:.3g}"
    memory = "" if row["memory_bytes"] is None else size(row["memory_bytes"])
    return f"{row['engine']:11} {compiled:>10} {row['load_seconds']:8.3g} {memory:>10} {row['runs']:8}"


# ----------------------------------------------------------------------------- engines
def irc_engine(compiled: Any, arrays: Mapping[str, Any]) -> Engine:
    """irc over these buffers; by plain calls where an output's size is known only after a run."""
    import irc

    try:
        call: Callable[[], Any] = compiled.bind(arrays)
    except (irc.RunError, TypeError):
        call = lambda: compiled(arrays)  # noqa: E731
    return Engine(call, lambda: list(call()))


def onnxruntime_engine(model: str | bytes, threads: int, arrays: Mapping[str, Any]) -> Engine:
    """ONNX Runtime on these inputs, through plain calls or bound buffers: what is faster.  IrcError IRC4904."""
    from irc.comparison.engines import imported, onnxruntime_session

    session = onnxruntime_session(imported("onnxruntime"), model, threads)
    names = [spec.name for spec in session.get_inputs()]
    given = dict(zip(names, _in_order([{n} for n in names], arrays), strict=True))
    plain = Engine(lambda: session.run(None, given), lambda: session.run(None, given))
    binding = session.io_binding()
    for name, array in given.items():
        binding.bind_cpu_input(name, array)
    for spec in session.get_outputs():
        binding.bind_output(spec.name)
    bound = Engine(lambda: session.run_with_iobinding(binding), binding.copy_outputs_to_cpu)
    return min((plain, bound), key=lambda engine: _quickest(engine.run))


def _quickest(run: Callable[[], Any]) -> float:
    run()
    times: list[float] = []
    until = time.perf_counter() + 0.05
    while len(times) < 3 or time.perf_counter() < until:
        before = time.perf_counter()
        run()
        times.append(time.perf_counter() - before)
    return min(times)


def _as_onnx(model: str) -> str | bytes:
    """ONNX Runtime reads no OpenVINO IR: it gets irc's conversion of it."""
    if Path(model).suffix.lower() != ".xml":
        return model
    import tempfile

    import irc

    console.note("onnxruntime runs the model as irc converts it to ONNX")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model.onnx"
        irc.convert(model, str(target))
        return target.read_bytes()


def openvino_engine(model: str | bytes, threads: int, arrays: Mapping[str, Any]) -> Engine:
    """OpenVINO in f32 on these inputs, as shared buffers.  IrcError IRC4904."""
    from irc.comparison.engines import imported, openvino_model

    ov = imported("openvino")
    compiled = openvino_model(ov, model, threads)
    request = compiled.create_infer_request()
    for i, array in enumerate(_in_order([set(port.names) for port in compiled.inputs], arrays)):
        request.set_input_tensor(i, ov.Tensor(array, shared_memory=True))
    count = len(compiled.outputs)
    return Engine(
        lambda: request.infer(share_outputs=True),
        lambda: [request.get_output_tensor(i).data.copy() for i in range(count)],
    )


def _in_order(names: Sequence[set[str]], arrays: Mapping[str, Any]) -> list[Any]:
    """The arrays in an engine's order of inputs: by name where every name is known, else as they stand."""
    found = [next((arrays[n] for n in known if n in arrays), None) for known in names]
    return list(arrays.values()) if any(a is None for a in found) else found
