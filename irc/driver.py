"""THE pipelines: load, validate, convert and compile, step by step.

load      reader → border.read_model → checks
validate  reader → schema (OpenVINO) → border.read_model → checks
convert   load → extract → reshape → simplify → save
save      passes.idioms (to the other format) → border.write_model → compress → writer
to_onnx   passes.idioms (to the other format) → border.write_model → compress → message
compile   load → copy → bind shapes → passes → backend → artefact

What only a step needs is imported in it: an artefact from the cache takes none of them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import traceback
import warnings
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from irc.backend_choice import c_cannot, choose_backend
from irc.diagnostics import CompileError, Diagnostic, InvalidModel, IrcError, Loc, Problem, RunError, Sink
from irc.diagnostics.codes import lowering, runtime_io as codes
from irc.diagnostics.finding import in_order
from irc.diagnostics.progress import tell
from irc.garbage_collection import collecting_rarely
from irc.runtime import cache as store, tuned
from irc.runtime.artifact import Artifact, Content, Draft
from irc.runtime.content import source_hash
from irc.runtime.executor import CompiledModel
from irc.toolchain import c_compiler, libraries, stack
from irc.version import VERSION

if TYPE_CHECKING:
    import onnx

    from irc.backends.c.files import Ready
    from irc.conversion import SaveOptions
    from irc.formats.document import RawModel
    from irc.ir.graph import Graph, Model, Value
    from irc.kernels.core.choices import Choices
    from irc.kernels.core.isa import Isa
    from irc.pipelines import Pass, Watch
    from irc.runtime.specializing import Shapes

__all__ = ["CompileOptions", "compile", "load", "save", "validate"]

PRECISIONS = ("highest", "high", "medium")
BACKENDS = ("c", "numpy")


# ----------------------------------------------------------------------- load, validate
@collecting_rarely()
def load(source: Any) -> Model:
    """A model; InvalidModel with every finding if any is an error.  A Model is handed through."""
    from irc.border import read_model
    from irc.ir.graph import Model

    if isinstance(source, Model):
        return source
    tell("reading")
    sink = Sink()
    model: Model | None = None
    with sink.catching(whole(source)):
        raw = read(source, sink)
        model = None if raw is None else read_model(raw, sink)
    sink.stop_on_errors(InvalidModel)
    if model is None:
        raise InvalidModel(sink.diagnostics)
    return model


def validate(source: Any) -> list[Diagnostic]:
    """Every finding; a crash of irc is one too (IRC9002).

    Its errors are those for which `load` refuses a file, or `save` a graph that was changed.
    """
    from irc.border import read_model
    from irc.ir.graph import Model

    sink = Sink()
    if isinstance(source, Model):
        from irc.editing import validity

        with sink.catching(Loc(source.file)):
            validity.check(source, sink)
        return in_order(sink.diagnostics)
    raw: RawModel | None = None
    try:
        with sink.catching(whole(source)):
            raw = read(source, sink)
        if is_openvino(source):
            from irc.formats.openvino.schema import validate_schema

            with sink.catching(whole(source)):
                validate_schema(str(Path(source)), sink)
        if raw is not None:
            with sink.catching(whole(source)):
                read_model(raw, sink)
    except OSError as e:  # the promise is that no file makes this raise
        sink.crash(e, whole(source))
    return in_order(sink.diagnostics)


def read(source: Any, sink: Sink) -> RawModel | None:
    """The file's content by the reader of its format; None if nothing could be read."""
    if is_openvino(source):
        from irc.formats.openvino import reader as openvino

        return openvino.read(source, sink)
    from irc.formats.onnx import reader as onnx

    return onnx.read(source, sink)


def is_openvino(source: Any) -> bool:
    """Whether a source is an OpenVINO IR: a path that ends in .xml."""
    return isinstance(source, str | os.PathLike) and str(cast("str", source)).lower().endswith(".xml")


def whole(source: Any) -> Loc:
    """The place of what concerns a file as a whole."""
    return Loc(str(cast("str", source)) if isinstance(source, str | os.PathLike) else "")


# -------------------------------------------------- extract, reshape, simplify, save
def extract(model: Model, inputs: Sequence[str] | None, outputs: Sequence[str] | None) -> Model:
    """The part of a model between these values; ConversionError with every finding."""
    from irc.editing import extraction

    return extraction.extract(model, inputs, outputs)


def reshape(model: Model, shapes: Mapping[str, Sequence[int | str | None]], notes: Sink) -> Model:
    """The model with these input shapes; ConversionError with every finding."""
    from irc.editing import reshaping

    return reshaping.reshape(model, shapes, notes)


def simplify(model: Model) -> Model:
    """The model without what it does not need; ConversionError with every finding."""
    from irc.editing import simplification

    return simplification.simplify(model)


def save(model: Model, path: str | Path, options: SaveOptions | None = None) -> list[Diagnostic]:
    """Write a model.  Returns the notes on it.

    Raises ConversionError with every finding, and then nothing is written.
    """
    from irc.conversion import SaveOptions, write_file

    try:
        return write_file(model, path, options or SaveOptions())
    except OSError as e:  # say the name that was asked for, not a temporary one
        raise type(e)(e.errno, e.strerror or str(e), os.fspath(path)) from e


def to_onnx(model: Model, options: SaveOptions, notes: Sink) -> onnx.ModelProto:
    """The model as an ONNX message; ConversionError with every finding."""
    from irc.conversion import onnx_proto

    return onnx_proto(model, options, notes)


# ----------------------------------------------------------------------------- compile
@dataclass(frozen=True)
class CompileOptions:
    """What `irc.compile` is asked for; weights: "file" or "embed"; profile: what `irc.runtime.profiling` reads;
    max_memory: bytes of constants that are made and of a run, for both the defaults of `irc.ir.limits` where None;
    max_ram: bytes that the context of the C may have (`irc.memory_limit`);
    contents: elements of integer inputs that are compiled in; name: what names in C and of its files begin with (None:
    the model's own name, and model.c)."""

    backend: str | None = None
    threads: int = 1
    precision: str = "highest"
    target: str = "native"
    shapes: dict[str, Sequence[int | str | None] | None] = field(default_factory=dict[str, Any])
    bounds: dict[str, int] = field(default_factory=dict[str, int])
    cache: bool = True
    weights: str = "file"
    profile: bool = False
    max_memory: int | None = None
    max_ram: int | None = None
    contents: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    name: str | None = None

    def check(self) -> None:
        """CompileError IRC6350 for a value that does not exist."""
        sink = Sink()

        def among(option: str, value: Any, allowed: tuple[Any, ...]) -> None:
            if value not in allowed:
                sink.report(codes.BAD_OPTION, option=option, value=value, expected=", ".join(map(str, allowed)))

        among("backend", self.backend, (*BACKENDS, None))
        among("precision", self.precision, PRECISIONS)
        among("weights", self.weights, ("file", "embed"))
        if not isinstance(self.target, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            sink.report(codes.BAD_OPTION, option="target", value=self.target, expected="a name like x86-64-v3")
        elif "+" in self.target and self.profile:  # whose functions differ
            sink.report(
                codes.BAD_OPTION, option="target", value=self.target, expected="one instruction set, to profile"
            )
        if self.max_memory is not None and self.max_memory < 1:
            sink.report(codes.BAD_OPTION, option="max_memory", value=self.max_memory, expected="a number of bytes")
        if self.max_ram is not None and (self.max_ram < 1 or self.backend == "numpy"):
            sink.report(codes.BAD_OPTION, option="max_ram", value=self.max_ram, expected="a number of bytes, of C")
        if not isinstance(self.threads, int) or self.threads < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            sink.report(codes.BAD_OPTION, option="threads", value=self.threads, expected="a number from 1 on")
        if self.name is not None:
            from irc.backends.c.names import given_prefix

            try:
                given_prefix(self.name)
            except ValueError as e:
                sink.report(codes.BAD_OPTION, option="name", value=self.name, expected=str(e))
        sink.stop_on_errors(CompileError)


def compile(source: Any, options: CompileOptions | None = None) -> CompiledModel:
    """The model compiled, or taken from the cache.  InvalidModel, CompileError."""
    options = options or CompileOptions()
    options.check()
    backend = choose_backend(options.backend)
    if backend == "numpy":  # for which every target is the same
        c_compiler.target_of_sources(options.target)
    try:
        return compile_with(source, backend, options)
    except CompileError as e:
        if options.backend is not None or backend == "numpy" or not all(c_cannot(d) for d in e.diagnostics):
            raise
        warnings.warn(f"compiling for NumPy instead of C: {e}", stacklevel=4)
    return compile_with(source, "numpy", options)


def compile_for_calls(source: Any, options: CompileOptions) -> CompiledModel:
    """`compile`, or a model that compiles itself for each call if nothing but ranks keep it from being compiled."""
    options.check()
    first = replace(options, backend=choose_backend(options.backend))
    try:
        return compile(source, first)
    except CompileError as e:
        from irc.runtime.specializing import SpecializingModel, needs_ranks

        if not needs_ranks(e):
            if options.backend is not None:
                raise
            return compile(source, options)
        error = e
    from irc.runtime.describe import describe

    model = load(source)
    graph = model.graph.copy()
    prepare(graph, options, ())
    if explicit_states(graph.copy()):
        raise error

    return SpecializingModel(
        describe(model, graph, first.backend or ""), options.threads, partial(compile_given, source, first), error
    )


def compile_given(
    source: Any, options: CompileOptions, shapes: Shapes, contents: dict[str, tuple[int, ...]]
) -> CompiledModel:
    """`compile` for the shapes, and elements of integer inputs, of a call."""
    return compile(source, replace(options, shapes={**options.shapes, **shapes}, contents=contents))


@collecting_rarely()  # around both steps that make many objects: after each of them the collector would look at all
def compile_with(source: Any, backend: str, options: CompileOptions) -> CompiledModel:
    """`compile` with one backend."""
    content = source_hash(source)
    key = cache_key(content, backend, options) if options.cache and content else None
    found = store.lookup(key) if key else None
    if found is not None:
        try:
            return CompiledModel(found, options.threads)
        except RunError:  # damaged, or made for another processor: compile again
            pass

    def make() -> Artifact:
        draft = generate(load(source), backend, options)
        draft.manifest["source_sha256"] = content
        changed = isinstance(source, str | os.PathLike) and source_hash(source) != content  # while it was read
        return store.store(key, draft) if key and not changed else store.keep_for_process(draft)

    try:
        made = make()
    except OSError as e:  # a full disk, say, is no reason not to run a model
        if not key or not store.give_up(e):
            raise
        made = make()
    return CompiledModel(made, options.threads)


@collecting_rarely()
def generate(model: Model, backend: str, options: CompileOptions) -> Draft:
    """The artefact's files and manifest; CompileError with every finding of the stage that failed."""
    from irc.ir import limits

    with located(model), limits.max_memory(options.max_memory):
        return generate_numpy(model, options) if backend == "numpy" else generate_c(model, options)


@collecting_rarely()
def sources(model: Model, options: CompileOptions, watch: Watch | None = None) -> Draft:
    """The artefact without its library, for which no compiler is needed; CompileError like `generate`."""
    from irc.ir import limits

    options.check()
    with located(model), limits.max_memory(options.max_memory):
        return generate_sources(model, options, c_compiler.target_of_sources(options.target), watch)


def library(model: Model, options: CompileOptions) -> Draft:
    """The artefact with its library, which is not loaded: it may be for another processor; CompileError."""
    options.check()
    return generate(model, "c", options)


@contextmanager
def located(model: Model) -> Generator[None]:
    """What has no place, a Problem or an exception nobody foresaw, becomes a CompileError about the node that was
    being worked on, or about the model."""
    sink = Sink()
    try:
        yield
    except Problem as p:
        sink.report(p.code, node_of(p) or Loc(model.file), p.notes, **p.facts)
        raise CompileError(sink.diagnostics) from p
    except (IrcError, OSError):
        raise
    except Exception as e:
        sink.crash(e, node_of(e) or Loc(model.file))
        raise CompileError(sink.diagnostics) from e


def node_of(error: Exception) -> Loc | None:
    """The place of the node that was being worked on: passes call it `node`, and the innermost one counts."""
    from irc.ir.graph import Node

    nodes = [frame.f_locals.get("node") for frame, _ in traceback.walk_tb(error.__traceback__)]
    places = [n.loc for n in nodes if isinstance(n, Node) and n.loc.where]
    return places[-1] if places else None


def generate_numpy(model: Model, options: CompileOptions) -> Draft:
    """compile(numpy): copy → bind shapes → COMPILE_NUMPY → emit."""
    from irc import pipelines
    from irc.backends.numpy import module as backend
    from irc.passes import requirements
    from irc.runtime.describe import describe, profile_of_groups

    graph = model.graph.copy()
    prepare(graph, options, pipelines.COMPILE_NUMPY)
    requirements.require_memory(graph)
    manifest = describe(model, graph, "numpy")
    emitted = backend.emit(graph, manifest["name"], backend.Options(options.weights, VERSION, options.profile))
    if options.profile:
        manifest["profile"] = profile_of_groups(emitted.groups, graph)
    files: dict[str, Content] = {"model.py": emitted.source}
    if emitted.weights and options.weights == "file":
        files["weights.bin"] = emitted.weight_chunks()
    return Draft(files, {**manifest, "target": "any", "precision": "highest"})


def generate_c(model: Model, options: CompileOptions) -> Draft:
    """compile(files): the sources, with kernels that were measured where artefacts are cached → compiler."""
    from irc.backends.c.instruction_sets import member_prefix
    from irc.kernels.core import choices

    c_compiler.require_libraries(options.target)
    compiler = c_compiler.require_compiler(options.target)
    target = c_compiler.resolve_target(options.target, compiler)
    compilation = libraries.Compilation(target, compiler, stack.FLAGS if stack.writes_graphs(compiler) else ())
    try:
        with choices.using(choices.Measured(measured_kernels(options, target, compiler))):
            draft = generate_sources(model, options, target, ready=compilation.begin_texts)
    except BaseException:
        compilation.end()
        raise
    names = sorted(draft.files)
    main, pool = (libraries.library_name(stem) for stem in (options.name or "model", "irc_rt"))
    others = {n: t for t in target.sets for n in names if n.startswith(member_prefix(draft.manifest["prefix"], t.name))}

    def finish(folder: Path) -> list[str]:
        graphs: list[str] = []
        with ThreadPoolExecutor(max_workers=1) as beside:  # who starts compilers has nothing to do meanwhile
            texts = beside.submit(lambda: stack.mentions_in(stack.sources_in(folder)))
            runtime = beside.submit(libraries.build_runtime, store.shared_folder("runtime"), compiler)
            library = libraries.build_with(compilation, folder, names, main, graphs, others)
        stack.note_stack(folder, manifest, graphs, texts.result(), compiler)
        shutil.copyfile(runtime.result(), folder / pool)
        return [library.name, pool]

    manifest = {**draft.manifest, "library": main, "pool": pool, "compiler": compiler.version}
    return Draft(draft.files, manifest, finish, compilation.end)


def generate_sources(
    model: Model,
    options: CompileOptions,
    target: c_compiler.Target,
    watch: Watch | None = None,
    ready: Ready | None = None,
) -> Draft:
    """sources(files), for each instruction set of the target; of one without a limit, `ready` gets kernels early."""
    if target.sets:
        from irc.instruction_sets import sources_of_sets

        return sources_of_sets(options, target, model.graph.name, partial(generate_sources, model))
    if options.max_ram is None:
        return sources_of_one(model, options, target, watch, ready)
    from irc.memory_limit import within

    return within(options.max_ram, partial(sources_of_one, model, options, target, watch))


def sources_of_one(
    model: Model, options: CompileOptions, target: c_compiler.Target, watch: Watch | None, ready: Ready | None = None
) -> Draft:
    """sources(files): copy → bind shapes → COMPILE_C → group → lower → memory → C."""
    from irc import pipelines
    from irc.backends.c import files
    from irc.fusion import group
    from irc.loops import lower, memory, states_in_context, workspaces
    from irc.loops.budget import arena
    from irc.loops.builder import COPIES, FEW_COPIES
    from irc.passes import requirements
    from irc.runtime.describe import describe, profile_of_program

    graph = model.graph.copy()
    states = explicit_states(graph)
    isa = _isa(target)
    prepare(graph, options, pipelines.compile_c(isa, options.precision), watch)
    requirements.require_ranks(graph)
    tell("loops")
    copies = COPIES if isa.has_vectors else FEW_COPIES
    program = lower.lower(graph, group.run(graph), model.graph.name or "model", copies=copies)
    states_in_context.keep(program, states)
    workspaces.allot(program, threads := options.target == "plain" or c_compiler.has_libraries(options.target))
    manifest = describe(model, graph, "c", program)
    manifest["prefix"] = prefix = manifest["prefix"] if options.name is None else options.name
    wanted = files.EmitOptions(
        prefix,
        options.name,
        "embed" if options.weights == "embed" else "file",
        target.flags,
        options.profile,
        isa.has_vectors,
        c_compiler.compiler_name(options.target),
        threads,
        target.fma == 2 and not target.sets,
    )
    manifest["weights"] = wanted.file(files.WEIGHTS)
    kernels = files.print_kernels(program, wanted, ready)
    plan = memory.plan(program)
    if watch is not None:
        watch.program(program, plan)
    requirements.require_memory(graph, plan.size)
    if options.profile:
        manifest["profile"] = profile_of_program(program)
    manifest |= {
        "target": {"name": target.name, "machine": target.machine, "features": list(target.features)},
        "precision": options.precision,
        "arena_bytes": int(plan.size) if plan.size.is_const else str(plan.size),
        "states": [name for name, *_ in program.states],
    }
    tell("writing C")
    made: dict[str, Content] = dict(files.emit(program, plan, wanted, kernels))
    manifest["memory"] = {
        "context_bytes": files.constant_of(str(made[f"{wanted.main}.h"]), "CONTEXT_BYTES"),
        "weights_bytes": files.weights_bytes(program, wanted),
        "arena": arena(program, plan),
    }
    if options.name is not None and threads:
        made |= libraries.runtime_sources()
    return Draft(made, manifest)


def graph_of_kernels(model: Model, options: CompileOptions, target: c_compiler.Target, choices: Choices) -> Graph:
    """copy → bind shapes → COMPILE_C up to select-kernels, with the kernels that `choices` picks.  CompileError."""
    from irc import pipelines
    from irc.kernels.core.choices import using

    graph = model.graph.copy()
    explicit_states(graph)
    with located(model), using(choices):
        isa = _isa(target)
        passes = pipelines.compile_c(isa, options.precision)
        prepare(graph, options, passes[: [name for name, _ in passes].index("select-kernels") + 1])
    return graph


def measured_kernels(
    options: CompileOptions, target: c_compiler.Target, compiler: c_compiler.Compiler
) -> dict[str, str]:
    """What `irc compile --tune` found in the cache that these options use."""
    return tuned.read(tuned.table_name(target, compiler, options.threads)) if options.cache else {}


def prepare(graph: Graph, options: CompileOptions, passes: Sequence[Pass], watch: Watch | None = None) -> None:
    """Give the graph the shapes asked for, and run these passes on it."""
    from irc.ir.types import TensorType, dynamic
    from irc.passes.bind import bind_contents, bind_shapes

    sink = Sink()
    bind_contents(graph, options.contents)
    bind_shapes(graph, options.shapes, options.bounds, sink)
    for value in graph.inputs:
        if isinstance(value.type, TensorType) and value.dtype == dynamic:
            sink.report(lowering.TYPE_NEEDED, value.loc, value=value.name, type=value.type)
    sink.stop_on_errors(CompileError)
    read: Pass = ("load", lambda graph, sink: None)
    for name, run in (read, *passes):
        tell(name)
        run(graph, sink)
        sink.stop_on_errors(CompileError)
        if watch is not None:
            watch.graph(name, graph)


def graph_after(model: Model, name: str, options: CompileOptions) -> Graph:
    """The graph as it is after the pass of that name (`passes_of`), for `irc compile --dump-after`.  CompileError."""
    from irc.kernels.core import choices

    graph = model.graph.copy()
    if options.backend != "numpy":
        explicit_states(graph)
    passes = _passes(options)
    compiler = None if options.backend == "numpy" else c_compiler.find_compiler()
    table: dict[str, str] = {}
    if compiler is not None:
        table = measured_kernels(options, c_compiler.target_of_sources(options.target), compiler)
    with located(model), choices.using(choices.Measured(table)):
        prepare(graph, options, passes[: ["load", *(n for n, _ in passes)].index(name)])
    return graph


def passes_of(options: CompileOptions) -> list[str]:
    """The names of what happens to a graph before code is made of it, in order; "load" stands for nothing yet."""
    return ["load", *(n for n, _ in _passes(options))]


def _passes(options: CompileOptions) -> tuple[Pass, ...]:
    from irc import pipelines

    if options.backend == "numpy":
        return pipelines.COMPILE_NUMPY
    return pipelines.compile_c(_isa(c_compiler.target_of_sources(options.target)), options.precision)


def _isa(target: c_compiler.Target) -> Isa:
    """Describe to kernels what a target has."""
    from irc.kernels import isa_of

    return isa_of(frozenset(target.features), target.machine, target.l2, target.fma)


def explicit_states(graph: Graph) -> list[tuple[Value, Value, Any]]:
    """Variables as inputs and outputs, in place; see `make_states_explicit`.  CompileError IRC4101.

    What is random is numbered before, by one more variable.
    """
    from irc.passes import number_draws
    from irc.passes.state import make_states_explicit

    sink = Sink()
    number_draws.run(graph, sink)
    states = make_states_explicit(graph, sink)
    sink.stop_on_errors(CompileError)
    return states


def cache_key(content: str, backend: str, options: CompileOptions) -> str:
    """The artefact's key: of the model's content, the options, irc itself, the compiler and the processor."""
    rest = replace(options, backend=backend, threads=1, cache=True, target="", shapes={}, bounds={}, contents={})
    tables = (options.shapes, options.bounds, options.contents)
    parts: list[Any] = [content, rest, *(sorted(t.items()) for t in tables), VERSION, store.generator_hash()]
    if backend == "c":
        c_compiler.require_libraries(options.target)
        compiler = c_compiler.require_compiler(options.target)
        target = c_compiler.resolve_target(options.target, compiler)
        parts += [str(compiler), compiler.version, target]
        parts += sorted(measured_kernels(options, target, compiler).items())
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:40]
