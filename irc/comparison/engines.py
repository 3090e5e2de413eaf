"""What runs a model for a comparison: irc's own backends, and where they are installed ONNX Runtime and OpenVINO.

The other engines are never needed: they are imported when one is asked for.  They run without optimizations of
their own where they can, because what a file says is compared, not how fast it is.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from irc import driver
from irc.arrays import is_array
from irc.conversion import ending_of
from irc.diagnostics import NOWHERE, IrcError, Loc, Sink
from irc.diagnostics.code import Code
from irc.diagnostics.codes import command as codes
from irc.ir.types import bf16

IRC = ("c", "numpy")
"""irc's own engines, which read every model."""
PEERS = {"onnxruntime": "onnxruntime", "openvino": "openvino"}
"""Other engines, and the packages that bring them."""
ENGINES = (*IRC, *PEERS)
READS = {"onnxruntime": (".onnx",), "openvino": (".onnx", ".xml")}
"""The endings of the files that other engines read."""
NATIVE = {".onnx": "onnxruntime", ".xml": "openvino"}
"""The engine that a format was made for."""

Runner = Callable[[Sequence[Any]], list[Any]]
"""Runs a model on the arguments in the order of its inputs, variables at their initial values; gives its outputs."""


def reads(engine: str, path: str | Path) -> bool:
    """Whether an engine reads files of that name."""
    return engine in IRC or ending_of(path) in READS[engine]


def native_engine(path: str | Path) -> str | None:
    """The engine that the file's format was made for, if it is installed."""
    engine = NATIVE.get(ending_of(path))
    return engine if engine and is_installed(engine) else None


def is_installed(engine: str) -> bool:
    """Whether the engine's package is there; what it holds shows when it is imported."""
    try:
        return engine in IRC or importlib.util.find_spec(PEERS[engine]) is not None
    except ValueError:  # somebody put something without a specification in its place
        return False


def imported(engine: str) -> Any:
    """The engine's package, of which no types are known; IrcError IRC4904 where it cannot be imported."""
    try:
        return importlib.import_module(PEERS[engine])
    except ImportError as e:
        raise _error(codes.NO_PEER, NOWHERE, engine=engine, reason=e, package=PEERS[engine]) from e


def runner(engine: str, path: str | Path, threads: int = 1, place: Loc = NOWHERE) -> Runner:
    """The model of a file in an engine; findings are said to be at the place, by default the file.

    IrcError: IRC4904 where the engine is not installed, IRC4907 where it does not read such files, IRC4908 where it
    refuses this one or, when called, fails; of irc's own engines everything that they find.
    """
    if engine in IRC:
        return irc_runner(path, engine, threads)
    place = Loc(str(path)) if place == NOWHERE else place
    if not reads(engine, path):
        raise cannot_read(engine, place)
    package = imported(engine)
    make = _onnxruntime if engine == "onnxruntime" else _openvino
    loaded = guarded(engine, place, lambda: make(package, path, threads))
    return lambda arguments: guarded(engine, place, lambda: loaded(arguments))


def cannot_read(engine: str, place: Loc) -> IrcError:
    """The error IRC4907 of an engine that does not read the format of a file."""
    return _error(codes.ENGINE_CANNOT_READ, place, engine=engine, endings=" and ".join(READS[engine]))


def irc_runner(source: Any, backend: str, threads: int = 1) -> Runner:
    """A model (path or Model) in one of irc's own engines.  InvalidModel, CompileError."""
    compiled = driver.compile_for_calls(source, driver.CompileOptions(backend, threads, cache=False))

    def run(arguments: Sequence[Any]) -> list[Any]:
        compiled.reset_state()
        return list(compiled(list(arguments)))

    return run


def onnxruntime_session(package: Any, model: str | bytes, threads: int, optimize: bool = True) -> Any:
    """ONNX Runtime's session on the CPU."""
    options = package.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3 if optimize else 4  # what fails is reported by the exception
    if not optimize:
        options.graph_optimization_level = package.GraphOptimizationLevel.ORT_DISABLE_ALL
    return package.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def openvino_model(package: Any, model: str | bytes, threads: int) -> Any:
    """OpenVINO's compiled model on the CPU, in the precision of the file."""
    core = package.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": "1",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "EXECUTION_MODE_HINT": "ACCURACY",
        "ENABLE_CPU_PINNING": False,
    }
    return core.compile_model(core.read_model(model), "CPU", settings)


def _onnxruntime(package: Any, path: str | Path, threads: int) -> Runner:
    session = onnxruntime_session(package, str(path), threads, optimize=False)
    names = [spec.name for spec in session.get_inputs()]
    narrow = any(spec.type == "tensor(bfloat16)" for spec in session.get_outputs())

    def run(arguments: Sequence[Any]) -> list[Any]:
        given = {name: value for name, value in zip(names, arguments, strict=True) if value is not None}
        if not narrow and not any(_is_bf16(value) for value in given.values()):
            return list(session.run(None, given))
        values = {name: _value(package, value) for name, value in given.items()}
        made = session.run_with_ort_values([spec.name for spec in session.get_outputs()], values)
        return [_array_of(value) for value in made]

    return run


def _openvino(package: Any, path: str | Path, threads: int) -> Runner:
    compiled = openvino_model(package, str(path), threads)

    def run(arguments: Sequence[Any]) -> list[Any]:
        request = compiled.create_infer_request()
        for i, value in enumerate(arguments):
            narrow = _is_bf16(value)
            given = [value.view(np.uint16), package.Shape(value.shape), package.Type.bf16] if narrow else [value]
            request.set_input_tensor(i, package.Tensor(*given))
        request.infer()
        return [_array(request.get_output_tensor(i)) for i in range(len(compiled.outputs))]

    return run


def _is_bf16(value: Any) -> bool:
    return is_array(value) and value.dtype == bf16.numpy


def _value(package: Any, value: Any) -> Any:
    """ONNX Runtime's value of an array; of bf16, which it does not know from NumPy, by the bits."""
    if not _is_bf16(value):
        return package.OrtValue.ortvalue_from_numpy(value)
    return package.OrtValue.ortvalue_from_numpy_with_onnx_type(value.view(np.uint16), bf16.onnx)


def _array_of(value: Any) -> Any:
    """The array of a value of ONNX Runtime."""
    if value.data_type() != "tensor(bfloat16)":
        return value.numpy()
    shape = value.shape()
    data = ctypes.string_at(value.data_ptr(), bf16.itemsize * math.prod(shape))
    return np.frombuffer(data, bf16.numpy).reshape(shape)


def _array(tensor: Any) -> Any:
    """A copy of a tensor of OpenVINO, which the next run would overwrite; strings as irc has them."""
    if tensor.element_type.get_type_name() == "string":
        return tensor.str_data.astype(object)
    if tensor.element_type.get_type_name() == "bf16":
        return tensor.data.view(bf16.numpy).copy()
    return tensor.data.copy()


def guarded(engine: str, place: Loc, work: Callable[[], Any]) -> Any:
    """Let another engine do something.  IrcError IRC4908 with its own words where that fails."""
    try:
        return work()
    except IrcError:
        raise
    except Exception as e:  # whatever another engine raises
        reason = next((line for line in str(e).splitlines() if line.strip()), type(e).__name__).strip()
        raise _error(codes.ENGINE_FAILED, place, engine=engine, reason=reason) from e


def _error(code: Code, place: Loc, **facts: object) -> IrcError:
    sink = Sink()
    sink.report(code, place, **facts)
    return IrcError(sink.diagnostics)
