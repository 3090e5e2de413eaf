"""THE pipelines: load, validate, convert and compile, step by step.

load      reader → border.read_model → checks
validate  reader → schema (OpenVINO) → border.read_model → checks
save      border.write_model → compress → writer
compile   load → copy → bind shapes → passes → backend → artefact
"""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from irc.border import read_model
from irc.conversion import SaveOptions, write_file
from irc.diagnostics import CompileError, Diagnostic, InvalidModel, Loc, RunError, Sink
from irc.diagnostics.codes import internal, runtime_io as codes
from irc.diagnostics.core import fill
from irc.formats.document import RawModel
from irc.ir.graph import Model
from irc.runtime import cache as store
from irc.runtime.artifact import Artifact, Content
from irc.runtime.executor import CompiledModel
from irc.version import VERSION

__all__ = ["CompileOptions", "SaveOptions", "compile", "load", "save", "validate"]

PRECISIONS = ("highest", "high", "medium")
BACKENDS = ("c", "numpy")


# ----------------------------------------------------------------------- load, validate
def load(source: Any) -> Model:
    """A model; InvalidModel with every finding if any is an error.  A Model is handed through."""
    if isinstance(source, Model):
        return source
    sink = Sink()
    raw = read(source, sink)
    if raw is None:
        raise InvalidModel(sink.diagnostics)
    model = read_model(raw, sink)
    sink.stop_on_errors(InvalidModel)
    return model


def validate(source: Any) -> list[Diagnostic]:
    """Every finding; a crash of irc is one too (IRC9002)."""
    if isinstance(source, Model):
        return []
    sink = Sink()
    try:
        raw = read(source, sink)
        if is_openvino(source):
            from irc.formats.openvino.schema import validate_schema

            validate_schema(os.fspath(source), sink)
        if raw is not None:
            read_model(raw, sink)
    except Exception as e:  # the promise is that no file makes this raise
        report_crash(e, source, sink)
    return sink.diagnostics


def read(source: Any, sink: Sink) -> RawModel | None:
    """The file's content by the reader of its format; None if nothing could be read."""
    if is_openvino(source):
        from irc.formats.openvino import reader as openvino

        return openvino.read(source, sink)
    from irc.formats.onnx import reader as onnx

    return onnx.read(source, sink)


def is_openvino(source: Any) -> bool:
    """Whether a source is an OpenVINO IR: a path that ends in .xml."""
    return isinstance(source, str | os.PathLike) and os.fspath(source).lower().endswith(".xml")


def report_crash(error: Exception, source: Any, sink: Sink) -> None:
    """An exception nobody foresaw, as a finding; IRC_TRACEBACK=1 prints where it happened."""
    if os.environ.get("IRC_TRACEBACK"):
        traceback.print_exception(error)
    file = os.fspath(source) if isinstance(source, str | os.PathLike) else ""
    sink.report(internal.CRASH, Loc(file), what=f"{type(error).__name__}: {error}")


# ------------------------------------------------------------------------------- save
def save(model: Model, path: str | Path, options: SaveOptions | None = None) -> None:
    """Write a model; ConversionError with every finding, and then nothing is written."""
    write_file(model, path, options or SaveOptions())


# ----------------------------------------------------------------------------- compile
@dataclass(frozen=True)
class CompileOptions:
    """What `irc.compile` is asked for; weights: "file" or "embed"."""

    backend: str | None = None
    threads: int = 1
    precision: str = "highest"
    target: str = "native"
    shapes: dict[str, Sequence[int | str | None]] = field(default_factory=dict[str, Any])
    bounds: dict[str, int] = field(default_factory=dict[str, int])
    cache: bool = True
    weights: str = "file"

    def check(self) -> None:
        """CompileError IRC6350 for a value that does not exist."""
        sink = Sink()

        def among(option: str, value: Any, allowed: tuple[Any, ...]) -> None:
            if value not in allowed:
                expected = ", ".join(map(str, allowed))
                sink.report(codes.BAD_OPTION, option=option, value=value, expected=expected)

        among("backend", self.backend, (*BACKENDS, None))
        among("precision", self.precision, PRECISIONS)
        among("weights", self.weights, ("file", "embed"))
        if not isinstance(self.threads, int) or self.threads < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            sink.report(codes.BAD_OPTION, option="threads", value=self.threads, expected="a number from 1 on")
        sink.stop_on_errors(CompileError)


def compile(source: Any, options: CompileOptions | None = None) -> CompiledModel:
    """The model compiled, or taken from the cache.  InvalidModel, CompileError."""
    options = options or CompileOptions()
    options.check()
    backend = choose_backend(options.backend)
    key = cache_key(source, backend, options) if options.cache else None
    found = store.lookup(key) if key else None
    if found is not None:
        try:
            return CompiledModel(found, options.threads)
        except RunError:  # damaged, or made for another processor: compile again
            pass
    return CompiledModel(build(load(source), backend, options, key), options.threads)


def build(model: Model, backend: str, options: CompileOptions, key: str | None = None) -> Artifact:
    """Compile into the cache (with a key) or a temporary folder."""
    files, manifest = generate(model, backend, options)
    return store.store(key, files, manifest) if key else store.keep_for_process(files, manifest)


def generate(model: Model, backend: str, options: CompileOptions) -> tuple[dict[str, Content], dict[str, Any]]:
    """The files of the artefact and its manifest."""
    if backend == "numpy":
        return generate_numpy(model, options)
    raise CompileError([_note(codes.BAD_OPTION, option="backend", value=backend, expected="numpy")])


def generate_numpy(model: Model, options: CompileOptions) -> tuple[dict[str, Content], dict[str, Any]]:
    """compile(numpy): copy → bind shapes → fold, simplify → emit."""
    from irc.backends import numpy as backend
    from irc.passes.bind import bind_shapes
    from irc.runtime.describe import describe

    sink = Sink()
    graph = model.graph.copy()
    bind_shapes(graph, options.shapes, options.bounds, sink)
    sink.stop_on_errors(CompileError)
    manifest = describe(model, graph, "numpy")
    emitted = backend.emit(graph, manifest["name"], backend.Options(options.weights, VERSION))
    files: dict[str, Content] = {"model.py": emitted.source}
    if emitted.weights and options.weights == "file":
        files["weights.bin"] = emitted.weight_chunks()
    return files, {**manifest, "target": "any", "precision": "highest"}


@cache
def _tell_numpy() -> None:
    warnings.warn(f"{codes.NO_COMPILER.id}: {codes.NO_COMPILER.message}; {codes.NO_COMPILER.help}", stacklevel=5)


def choose_backend(wanted: str | None) -> str:
    """The backend to use: C where a compiler is found, else NumPy, which is said once a process."""
    return wanted or "numpy"


def cache_key(source: Any, backend: str, options: CompileOptions) -> str | None:
    """The artefact's key; None where the source has no content to go by."""
    from irc.runtime.content import source_hash

    content = source_hash(source)
    if content is None:
        return None
    import hashlib

    parts = [
        content, backend, options.precision, options.target, sorted(options.shapes.items()),
        sorted(options.bounds.items()), options.weights, VERSION, store.generator_hash(),
    ]  # fmt: skip
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:40]


def _note(code: Any, **facts: Any) -> Diagnostic:
    return Diagnostic(code.id, code.severity, fill(code.message, facts), Loc(), (), fill(code.help, facts))
