"""One of two models that are compared: a document, and an engine that runs any part of it."""

from __future__ import annotations

import gc
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from irc import conversion, driver
from irc.arrays import is_array
from irc.border.again import document_of, model_of
from irc.comparison import engines
from irc.comparison.segments import Segments
from irc.diagnostics import ConversionError, IrcError, Loc, Problem, Sink
from irc.diagnostics.codes import command as codes
from irc.formats.document import RawGraph, RawModel, RawTensor
from irc.ir.graph import Model
from irc.ir.types import TensorType
from irc.passes.state import METADATA, initial_array, initial_values
from irc.runtime.describe import describe
from irc.runtime.ports import Port

MAPPED_FROM = 1 << 20
"""Bytes of weights from which an ONNX file gets them beside it, where an engine can map them."""
MOVED_FROM = 1 << 16
"""Bytes of a weight from which it is kept in a file while models are compared."""
ONNX_INITIALIZERS_ALONE = 4
"""The version of ONNX from which initializers need not be listed as inputs."""


class Side:
    """A model in an engine.  Called with arguments by name, it gives all outputs; `run` gives any tensors.

    notes: what there is to say of the shapes that it got.

    What another engine runs is written for each run, in the model's format or, for ONNX Runtime, as irc converts it
    to ONNX.  Raises what `irc.load` and `irc.convert` do, and IRC4904.
    """

    def __init__(
        self,
        source: str | Path | Model,
        engine: str,
        threads: int = 1,
        shapes: Mapping[str, Sequence[int | str | None]] | None = None,
    ) -> None:
        if engine in engines.PEERS:
            engines.imported(engine)
        self.backend, self.threads = engine, threads
        self.notes = Sink()
        model = driver.reshape(driver.load(source), dict(shapes or {}), self.notes)
        self.file = model.file
        rows = describe(model, model.graph, engine)
        self.inputs = [Port.of(row) for row in rows["inputs"]]
        self.outputs = [Port.of(row) for row in rows["outputs"]]
        self._weights = tempfile.TemporaryFile(prefix="irc-")  # noqa: SIM115  # it is there as long as the side
        self.document = _mapped(_document(model, engine), self._weights)
        del model
        self._states = self._initial_states()
        self._segments = Segments(self.document.graph, self._run, partial(_kept, file=self._weights))
        gc.collect()  # a graph is full of circles: its weights would stay until some later time

    @property
    def graph(self) -> RawGraph:
        """The document's graph, whose tensors `run` can be asked for by their keys."""
        return self.document.graph

    @property
    def own_outputs(self) -> list[str]:
        """The keys of the model's outputs, without those that hand on state."""
        return [v.key for v in self.graph.outputs[: len(self.outputs)]]

    def __call__(self, arguments: Mapping[str, Any]) -> list[Any]:
        return self.run(self.own_outputs, [arguments[port.name] for port in self.inputs])

    def run(self, tensors: Sequence[str], arguments: Sequence[Any]) -> list[Any]:
        """The tensors of these keys for arguments in the order of the inputs; variables begin at their initial values.

        The engine is loaded with one segment of what leads to these tensors at a time, and given up again.
        """
        return self._segments(tensors, [*arguments, *self._states])

    def _run(self, graph: RawGraph, arguments: Sequence[Any]) -> list[Any]:
        """Load the engine with a part of the model, and run it."""
        metadata = {k: v for k, v in self.document.metadata.items() if k != METADATA}
        raw = replace(self.document, graph=graph, metadata=metadata)
        if self.backend in engines.IRC:
            try:
                return engines.irc_runner(model_of(raw), self.backend, self.threads)(arguments)
            finally:
                gc.collect()  # the graph that was compiled holds the weights of this part
        with tempfile.TemporaryDirectory(prefix="irc-") as folder:
            path = Path(folder) / ("model.xml" if raw.format == "openvino" else "model.onnx")
            _write(raw, path)
            return engines.runner(self.backend, path, self.threads, Loc(self.file))(arguments)

    def _initial_states(self) -> list[Any]:
        """What the inputs that a conversion made of state begin with: its metadata say so, zeros by default."""
        values, added = initial_values(self.document.metadata), self.graph.inputs[len(self.inputs) :]
        named = [next((values[name] for name in (v.key, *v.names) if name in values), None) for v in added]
        types = [cast("TensorType", v.type) for v in added]
        return [initial_array(t, initial) for t, initial in zip(types, named, strict=True)]


def _document(model: Model, engine: str) -> RawModel:
    if engine == "onnxruntime" and model.format != "onnx":
        return conversion.raw_model(model, ".onnx", conversion.SaveOptions(), Sink())
    return document_of(model)


def _mapped(raw: RawModel, file: IO[bytes]) -> RawModel:
    """The document whose large weights are read from the file when they are needed, so that it holds none itself."""
    constants = {key: _moved(tensor, file) for key, tensor in raw.graph.constants.items()}
    return replace(raw, graph=replace(raw.graph, constants=constants))


def _moved(tensor: RawTensor, file: IO[bytes]) -> RawTensor:
    dtype = tensor.dtype.numpy
    if dtype.kind not in "fiu" or math.prod(tensor.shape) * dtype.itemsize < MOVED_FROM:
        return tensor
    return replace(tensor, load=_mapping(tensor.load(), dtype, file))  # which keeps no hold of the tensor


def _kept(value: Any, file: IO[bytes]) -> Any:
    """The value of a run; a large array as a map of the file."""
    if not is_array(value) or value.dtype.kind == "O" or value.nbytes < MOVED_FROM:
        return value
    return _mapping(value, value.dtype, file)()


def _mapping(array: Any, dtype: Any, file: IO[bytes]) -> Callable[[], Any]:
    """Append an array to the file.  Returns what maps it from there."""
    offset = file.seek(0, os.SEEK_END)
    np.ascontiguousarray(array).tofile(file)
    return partial(np.memmap, file, dtype, "r", offset, array.shape)


def _write(raw: RawModel, path: Path) -> None:
    try:
        if raw.format == "openvino":
            from irc.formats.openvino import writer as openvino

            openvino.write(raw, path)
        else:
            from irc.formats.onnx import writer as onnx

            onnx.write(replace(raw, version=max(raw.version, ONNX_INITIALIZERS_ALONE)), path, MAPPED_FROM)
    except Problem as p:
        sink = Sink()
        sink.report(p.code, Loc(raw.file), p.notes, **p.facts)
        raise ConversionError(sink.diagnostics) from p


def paired_ports(a: Sequence[Port], b: Sequence[Port]) -> list[tuple[int, int]] | None:
    """The places of ports that belong together: by name where all names are the same; None if the counts differ."""
    if len(a) != len(b):
        return None
    places = {p.name: k for k, p in enumerate(b)}
    if len(places) == len(b) and {p.name for p in a} == set(places):
        return [(i, places[p.name]) for i, p in enumerate(a)]
    return [(i, i) for i in range(len(a))]


def misfit(what: str, a: Side, b: Side) -> IrcError:
    """The error IRC4910 of two models whose inputs or outputs are not as many."""
    ports = [(side.inputs if what == "inputs" else side.outputs) for side in (a, b)]
    said = "; ".join(", ".join(p.name for p in part) or "none" for part in ports)
    sink = Sink()
    sink.report(codes.NO_PAIRS, Loc(a.file), what=what, reason=f"{len(ports[0])} and {len(ports[1])} ({said})")
    return IrcError(sink.diagnostics)
