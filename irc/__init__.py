"""irc reads, checks, converts and compiles neural-network models: ONNX and OpenVINO IR, to C and to NumPy.

    model = irc.load("model.xml")                    raises irc.InvalidModel with every finding
    findings = irc.validate("model.onnx")            list of irc.Diagnostic; never raises
    irc.save(model, "model.onnx", opset=17)
    proto = irc.to_onnx(model)                       the same, without a file
    irc.convert("model.onnx", "model.xml", for_openvino="2021.4")
    compiled = irc.compile("model.onnx")             then compiled(x) → list of arrays
    again = irc.load_compiled("build/")
    b = irc.Builder(model)                           changes its graph, or makes a new one, of irc.ops

This file is the whole public API.  Importing it imports only NumPy and the standard library.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from irc.shared_name import require_own_folder
from irc.version import VERSION

require_own_folder()
__version__ = VERSION

if TYPE_CHECKING:
    import onnx

    from irc import backend, ops
    from irc.diagnostics.core import CompileError, ConversionError, Diagnostic, InvalidModel, IrcError, Loc, RunError
    from irc.editing.building import Builder
    from irc.ir.graph import Graph, Model, Node, Value
    from irc.ir.types import TensorType
    from irc.runtime.executor import CompiledModel

Source = Union[str, Path, bytes, "onnx.ModelProto", "Model"]
Shapes = Mapping[str, Sequence[int | str | None]]

__all__ = [
    "Builder",
    "CompileError",
    "CompiledModel",
    "ConversionError",
    "Diagnostic",
    "Graph",
    "InvalidModel",
    "IrcError",
    "Loc",
    "Model",
    "Node",
    "RunError",
    "TensorType",
    "Value",
    "__version__",
    "backend",
    "compile",
    "convert",
    "extract",
    "load",
    "load_compiled",
    "ops",
    "save",
    "to_onnx",
    "validate",
]


def load(source: Source) -> Model:
    """Read a model: the path of an .onnx or .xml file, the bytes of an ONNX file, or a ModelProto.

    Raises InvalidModel, whose `.diagnostics` lists every finding, if any of them is an error.
    """
    from irc import driver

    return driver.load(source)


def validate(source: Source) -> list[Diagnostic]:
    """Everything irc finds about a model: errors, warnings and notes.  Never raises on a bad model.

    Of a Model, whose graph may have been changed: what `save` refuses it for.
    """
    from irc import driver

    return driver.validate(source)


def save(
    model: Model,
    path: str | Path,
    *,
    opset: int | None = None,
    ir_version: int | None = None,
    max_opset: str | int | None = None,
    for_openvino: str | None = None,
    compress_fp16: bool = False,
    to: str | None = None,
) -> list[Diagnostic]:
    """Write a model as ONNX (.onnx) or OpenVINO IR (.xml and .bin).  Returns notes on what was written.

    opset: of ONNX's default domain; by default the source's where that was ONNX, else 21 or the lowest
    higher one that can express the model.  ir_version: 10 or 11 (OpenVINO).  max_opset ("opset8") and
    for_openvino ("2021.4", which also sets ir_version) limit OpenVINO's operation sets.  compress_fp16
    stores f32 weights as f16, and all is computed as before.  to ("f16", "bf16") makes inputs, outputs, weights
    and what is computed of that type, but for what the notes name.  An option that does not apply to the file is
    an error.  Raises ConversionError, also for a graph that was changed and holds no model any more, and then
    nothing is written; OSError.
    """
    from irc import driver
    from irc.conversion import SaveOptions

    options = SaveOptions(opset, ir_version, max_opset, for_openvino, compress_fp16, to)
    return driver.save(model, path, options)


def to_onnx(
    model: Model,
    *,
    opset: int | None = None,
    compress_fp16: bool = False,
    to: str | None = None,
    shapes: Shapes | None = None,
    simplify: bool = False,
    notes: list[Diagnostic] | None = None,
) -> onnx.ModelProto:
    """Make the ONNX model that `save` would write, without a file, all weights in it.

    The options are those of `save` and `convert`; the notes that these return are added to `notes`.  Raises
    ConversionError with the same findings.
    """
    from irc import driver
    from irc.conversion import SaveOptions
    from irc.diagnostics import Sink

    found = Sink()
    model = driver.reshape(model, dict(shapes or {}), found)
    options = SaveOptions(opset=opset, compress_fp16=compress_fp16, to=to)
    proto = driver.to_onnx(driver.simplify(model) if simplify else model, options, found)
    if notes is not None:
        notes += found
    return proto


def extract(model: Model, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None) -> Model:
    """Make the model that computes these outputs from these inputs, named as values or as layers.

    A value inside of the model becomes an input of its inferred type.  By default the outputs are the model's, and the
    inputs those that they need.  Raises ConversionError: an unknown name, or an output that needs something else.
    """
    from irc import driver

    return driver.extract(model, inputs, outputs)


def convert(
    source: Source,
    path: str | Path,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    shapes: Shapes | None = None,
    simplify: bool = False,
    opset: int | None = None,
    ir_version: int | None = None,
    max_opset: str | int | None = None,
    for_openvino: str | None = None,
    compress_fp16: bool = False,
    to: str | None = None,
) -> list[Diagnostic]:
    """`load` and `save`, with a part of the model or other shapes of inputs in between.  Returns the notes on it.

    inputs, outputs: as for `extract`.  The other options are those of `save`.
    shapes: {"x": (1, 3, "h", None)} binds symbolic sizes, names them, changes fixed ones, and leaves None as it is.
    All types are inferred anew.  simplify computes what does not depend on the inputs, merges equal operations and
    leaves out what nothing needs; no operation is replaced by others.  Raises InvalidModel, ConversionError (also
    where an operation does not fit the shapes any more), OSError.
    """
    from irc import driver
    from irc.diagnostics import Sink

    notes = Sink()
    model = driver.reshape(driver.extract(load(source), inputs, outputs), dict(shapes or {}), notes)
    written = save(
        driver.simplify(model) if simplify else model,
        path,
        opset=opset,
        ir_version=ir_version,
        max_opset=max_opset,
        for_openvino=for_openvino,
        compress_fp16=compress_fp16,
        to=to,
    )
    return [*notes, *written]


def compile(
    source: Source,
    *,
    backend: str | None = None,
    threads: int = 1,
    precision: str = "highest",
    target: str = "native",
    shapes: Shapes | None = None,
    bounds: Mapping[str, int] | None = None,
    cache: bool = True,
    max_memory: int | None = None,
    max_ram: int | None = None,
    name: str | None = None,
) -> CompiledModel:
    """Compile a model.

    backend: "c", "numpy", or None (C where a compiler is found, else NumPy).  precision: the least of f32
    products where matrix units compute them from bf16 terms: "highest" (as f32), "high" (two terms, error about
    2^-16 a product), "medium" (one).  target: "native", "x86-64-v2" … "aarch64".
    shapes fixes symbolic sizes ({"x": (1, 3, 224, 224)}); bounds limits data-dependent ones ({"n": 100}).
    max_memory: the most bytes, of constants that compiling makes and of a run (docs/adr/0015-limits.md).
    max_ram: the most bytes of the context of the C, for which speed is given up.
    name: what names in C, and of its files, begin with; by default the model's own, and files are called model.c.
    With cache, artefacts are reused by content.  A model with values whose rank its inputs' shapes decide is
    compiled for the shapes of each call, and again only for others.  Raises InvalidModel, CompileError.
    """
    from irc import driver

    options = driver.CompileOptions(
        backend,
        threads,
        precision,
        target,
        dict(shapes or {}),
        dict(bounds or {}),
        cache,
        max_memory=max_memory,
        max_ram=max_ram,
        name=name,
    )
    return driver.compile_for_calls(source, options)


def load_compiled(folder: str | Path, *, threads: int = 1) -> CompiledModel:
    """Open an artefact that `CompiledModel.save` or `irc compile` wrote; needs no compiler and no model file.

    An artefact is code: load only what you trust.  Raises RunError.
    """
    from irc.runtime import executor

    return executor.load_compiled(folder, threads)


_FINDINGS = ("CompileError", "ConversionError", "Diagnostic", "InvalidModel", "IrcError", "Loc", "RunError")
_LAZY = dict.fromkeys(_FINDINGS, "irc.diagnostics.core") | {
    "Builder": "irc.editing.building",
    "CompiledModel": "irc.runtime.executor",
    "Graph": "irc.ir.graph",
    "Model": "irc.ir.graph",
    "Node": "irc.ir.graph",
    "TensorType": "irc.ir.types",
    "Value": "irc.ir.graph",
}


def __getattr__(name: str) -> Any:
    if name in ("backend", "ops"):
        return importlib.import_module(f"irc.{name}")
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'irc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
