"""Whether two models compute the same: both run on the same random inputs, the written one also by another engine."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from irc import driver
from irc.arrays import is_array
from irc.cli import feeds
from irc.comparison import engines
from irc.comparison.measures import STEPS, allowed, as_float, difference, measure
from irc.diagnostics import IrcError, Loc
from irc.ir.graph import Graph, Model
from irc.ir.types import dtype
from irc.ops.arithmetic import Round
from irc.ops.fake_quantize import FakeQuantize
from irc.ops.quantize import DynamicQuantizeLinear, QuantizeLinear
from irc.ops.random import Random
from irc.passes.state import initial_array, initial_values


@dataclass(frozen=True)
class Outcome:
    """`same` is None where the models could not be compared, and `reason` says why.

    peer: the engine whose results are not those of irc's, where nobody asked for it, and `doubt` what it differs in.
    """

    same: bool | None
    reason: str
    peer: str = ""
    doubt: str = ""


@dataclass(frozen=True)
class _Sample:
    """A source in irc's NumPy backend: its outputs, what they are for random arguments."""

    outputs: Sequence[Any]
    arguments: list[Any]
    expected: list[Any]
    precision: str | None = None


def same_results(source: Model, written: str, engine: str | None = None, precision: str | None = None) -> Outcome:
    """Compare a model with the file that was written of it, output by output, in order.

    engine: what runs the file (or, where it cannot read that, the source), the other one being run by irc's NumPy
    backend.  None: NumPy, and then the engine that the file's format was made for, if it is installed.  IrcError
    where an engine that was asked for cannot be used.
    precision: the type that floats of the file were rounded to.  Both are then run on numbers that it has.
    """
    sample = _sampled(source, precision)
    if isinstance(sample, Outcome):
        return sample
    if engine in engines.PEERS and not engines.reads(engine, written):
        return _by_peer_of_source(source, written, engine, sample)
    outcome = _compare(
        sample, _by(engine or "numpy", source, written, sample.arguments), engine or "irc's NumPy backend"
    )
    peer = engines.native_engine(written)
    if engine is not None or peer is None or not outcome.same or _is_random(source.graph):
        return outcome
    return _confirmed(outcome, peer, source, written, sample)


def _sampled(source: Model, precision: str | None) -> _Sample | Outcome:
    """What the source computes of random arguments, or why that says nothing."""
    try:
        reference = _compiled(source)
    except IrcError as e:
        return Outcome(None, f"the source cannot be run ({e})")
    if any(p.kind not in ("tensor", "optional") or p.shape is None for p in reference.inputs):
        return Outcome(None, "random arrays cannot stand for its inputs")
    outcome = Outcome(None, "")
    for size in (feeds.SYMBOL_SIZE, 1):
        sizes = {d: size for p in reference.inputs for d in p.shape or () if isinstance(d, str)}
        arrays = [feeds.random_value(p, sizes, seed=n) for n, p in enumerate(reference.inputs)]
        if precision is not None:
            arrays = [as_float(as_float(a, dtype(precision).numpy), a) for a in arrays]
        try:
            expected, again = [_run(reference, arrays) for _ in range(2)]
        except IrcError as e:
            outcome = Outcome(None, f"the source cannot be run on random inputs ({e})")
            continue
        if any(difference(a, b) for a, b in zip(expected, again, strict=True)):
            return Outcome(None, "its results are random")
        return _Sample(reference.outputs, arrays, expected, precision or (STEPS if _quantizes(source.graph) else None))
    return outcome


def _compiled(model: Any) -> Any:
    return driver.compile_for_calls(model, driver.CompileOptions("numpy", cache=False))


def _run(compiled: Any, arrays: list[Any]) -> list[Any]:
    compiled.reset_state()
    return list(compiled(arrays))


def _by(engine: str, source: Model, written: str, arrays: list[Any]) -> list[Any]:
    """The outputs of a written model in an engine; its inputs beyond the arrays are state at its initial value."""
    model = driver.load(written)
    values = initial_values(model.metadata)
    given = [as_float(a, v.dtype.numpy) if is_array(a) else a for a, v in zip(arrays, model.graph.inputs, strict=False)]
    added = model.graph.inputs[len(arrays) :]
    states = [initial_array(v.tensor, values.get(v.name), feeds.SYMBOL_SIZE) for v in added]
    arguments = [*given, *states]
    if engine in engines.IRC:
        return engines.irc_runner(model, engine)(arguments)
    return engines.runner(engine, written, place=Loc(source.file))(arguments)


def _by_peer_of_source(source: Model, written: str, engine: str, sample: _Sample) -> Outcome:
    """Compare by an engine that reads only the source: what that gives with what NumPy makes of the written file."""
    with tempfile.TemporaryDirectory(prefix="irc-") as folder:
        path = str(Path(folder) / ("source.xml" if source.format == "openvino" else "source.onnx"))
        if not engines.reads(engine, path):
            raise engines.cannot_read(engine, Loc(source.file))
        driver.save(source, path)
        expected = engines.runner(engine, path, place=Loc(source.file))(sample.arguments)
    seen = replace(sample, expected=expected)
    return _compare(seen, _by("numpy", source, written, sample.arguments), f"{engine} running the source")


def _confirmed(outcome: Outcome, peer: str, source: Model, written: str, sample: _Sample) -> Outcome:
    """The outcome in NumPy, with what another engine says to it; that it cannot run the file refutes nothing."""
    try:
        got = _by(peer, source, written, sample.arguments)
    except IrcError as e:
        return Outcome(outcome.same, f"{outcome.reason}; {e}")
    second = _compare(sample, got, peer)
    return second if second.same else Outcome(True, outcome.reason, peer, second.reason)


def _quantizes(graph: Graph) -> bool:
    """Whether a model rounds what it computes to steps."""
    kinds = QuantizeLinear, DynamicQuantizeLinear, FakeQuantize, Round
    return any(isinstance(node.op, kinds) for part in graph.nested() for node in part.nodes)


def _is_random(graph: Graph) -> bool:
    """Whether a model draws numbers, which every engine does in a way of its own."""
    return any(isinstance(node.op, Random) for part in graph.nested() for node in part.nodes)


def _compare(sample: _Sample, got: list[Any], engine: str) -> Outcome:
    """Whether all outputs agree, and what is said of the worst one."""
    worst, place = 0.0, 0
    pairs = list(zip(sample.expected, got, strict=False))
    if sample.precision is not None:
        pairs = [(a, as_float(b, a)) for a, b in pairs]
    for n, (a, b) in enumerate(pairs):
        apart = difference(a, b) / allowed(a, sample.precision)
        if apart > worst:
            worst, place = apart, n
    if not pairs:
        return Outcome(True, "there are no outputs")
    name, (a, b) = sample.outputs[place].name, pairs[place]
    if worst > 1:
        return Outcome(False, f"output {name} in {engine}: {_apart(a, b)}")
    agree = f"{len(pairs)} output{' agrees' if len(pairs) == 1 else 's agree'}"
    return Outcome(True, f"{agree} in {engine}; the worst, {name}: {_apart(a, b)}")


def _apart(a: Any, b: Any) -> str:
    """How far two results are apart, in words."""
    if not is_array(a) or not is_array(b):
        return f"relative difference {difference(a, b):.2g}"
    if a.dtype != b.dtype or a.shape != b.shape:
        return " and ".join(feeds.describe(x.dtype, x.shape) for x in (a, b))
    found = measure(a, b)
    at = f" at [{','.join(map(str, found.at))}]" if found.absolute else ""
    return f"largest relative difference {found.relative:.2g}, absolute {found.absolute:.2g}{at}"
