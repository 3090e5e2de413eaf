"""`irc bench`: how fast a model runs, beside other engines where asked for."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from irc.cli import console, feeds
from irc.diagnostics.core import IrcError

PEERS = {"onnxruntime": "onnxruntime", "openvino": "openvino"}
"""Engines to compare with, and the packages that bring them."""
ROUNDS = 7
BURST_SECONDS = 0.2


@click.command()
@click.argument("model")
@click.option("--vs", metavar="onnxruntime,openvino", default="", help="Other engines to measure beside it.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--shape", "shapes", metavar="x[1,3,224,224]", multiple=True, help="Fix symbolic dimensions.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(model: str, vs: str, threads: int, shapes: tuple[str, ...], as_json: bool) -> None:
    """Time a model, in rounds that alternate between engines, on random inputs.

    Prints the median and minimum time of one run, and the ratio of irc's median to each other engine's.
    """
    engines = [name.strip() for name in vs.split(",") if name.strip()]
    for name in engines:
        if name not in PEERS:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(PEERS)}", param_hint="--vs")
    with console.progress(f"compiling {model}"):
        runs, arrays = _prepare(model, engines, threads, console.parse_shapes(shapes))
    with console.progress("measuring"):
        times = measure(runs)
    said = _result(model, threads, arrays, times)
    console.out(json.dumps(said, indent=2) if as_json else _text(said))


def _prepare(
    model: str, engines: list[str], threads: int, shapes: dict[str, tuple[int, ...]]
) -> tuple[dict[str, Callable[[], Any]], dict[str, Any]]:
    import irc

    compiled = irc.compile(model, threads=threads, shapes=shapes or None)
    arrays, _ = feeds.gather(compiled.inputs, {})
    call: Callable[[], Any] = compiled.bind(arrays)
    makers = {"onnxruntime": _onnxruntime, "openvino": _openvino}
    return {"irc": call, **{name: makers[name](model, threads, arrays) for name in engines}}, arrays


def measure(runs: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Seconds of every single run: each round lets each engine run for a while after a warm-up."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            run()
            until = time.perf_counter() + BURST_SECONDS
            while True:
                before = time.perf_counter()
                run()
                after = time.perf_counter()
                times[name].append(after - before)
                if after > until:
                    break
    return times


def _result(model: str, threads: int, arrays: dict[str, Any], times: dict[str, list[float]]) -> dict[str, Any]:
    ours = statistics.median(times["irc"])
    rows = [
        {
            "engine": name,
            "median_ms": statistics.median(found) * 1e3,
            "min_ms": min(found) * 1e3,
            "runs": len(found),
            "irc_ratio": ours / statistics.median(found),
        }
        for name, found in times.items()
    ]
    inputs = {name: feeds.describe(a.dtype, a.shape) for name, a in arrays.items()}
    return {"model": model, "threads": threads, "inputs": inputs, "engines": rows}


def _text(said: dict[str, Any]) -> str:
    inputs = ", ".join(f"{name} {text}" for name, text in said["inputs"].items())
    lines = [f"{said['model']}, threads: {said['threads']}, inputs: {inputs or 'none'}"]
    lines.append(f"{'engine':12} {'median ms':>11} {'min ms':>11} {'runs':>7}  irc's time / its time")
    for row in said["engines"]:
        figures = f"{row['median_ms']:11.4f} {row['min_ms']:11.4f} {row['runs']:7}"
        lines.append(f"{row['engine']:12} {figures}  {row['irc_ratio']:.2f}")
    return "\n".join(lines)


# ------------------------------------------------------------------------------- peers
def _missing(engine: str, error: ImportError) -> IrcError:
    from irc.diagnostics import Sink
    from irc.diagnostics.codes import command as codes

    sink = Sink()
    sink.report(codes.NO_PEER, engine=engine, reason=str(error), package=PEERS[engine])
    return IrcError(sink.diagnostics)


def _onnxruntime(model: str, threads: int, arrays: dict[str, Any]) -> Callable[[], Any]:
    try:
        import onnxruntime
    except ImportError as e:
        raise _missing("onnxruntime", e) from e
    ort: Any = onnxruntime  # it has no types
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = ort.InferenceSession(_as_onnx(model), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for spec, array in zip(session.get_inputs(), arrays.values(), strict=True):
        binding.bind_cpu_input(spec.name, array)
    for spec in session.get_outputs():
        binding.bind_output(spec.name)
    return lambda: session.run_with_iobinding(binding)


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


def _openvino(model: str, threads: int, arrays: dict[str, Any]) -> Callable[[], Any]:
    try:
        import openvino
    except ImportError as e:
        raise _missing("openvino", e) from e
    ov: Any = openvino  # its types are partly open
    core = ov.Core()
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(core.read_model(model), "CPU", settings).create_infer_request()
    for i, array in enumerate(arrays.values()):
        request.set_input_tensor(i, ov.Tensor(array, shared_memory=True))
    return request.infer
