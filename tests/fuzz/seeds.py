"""Valid files to start from: every row of `tests/ops/cases` in both formats, the samples, ONNX's own node tests.

A seed is a folder's worth of files by name; the first is the model.  Rows are written when they are asked for.
"""

from __future__ import annotations

import importlib
import pkgutil
import tempfile
import warnings
from functools import cache
from pathlib import Path
from random import Random

import onnx

import irc
from irc.ir.dim import Dim
from irc.ir.graph import Constant, Graph, Model, Value
from irc.ir.types import TensorType
from irc.opdef.builder import Builder
from tests.ops import cases
from tests.ops.cases import Case

Files = dict[str, bytes]
ROOT = Path(__file__).resolve().parents[2]
SUFFIX = {"onnx": ".onnx", "openvino": ".xml"}


@cache
def rows() -> tuple[Case, ...]:
    """All cases of all families."""
    names = sorted(info.name for info in pkgutil.iter_modules(cases.__path__))
    return tuple(case for name in names for case in importlib.import_module(f"tests.ops.cases.{name}").CASES)


def model_of(case: Case, rng: Random) -> Model:
    """A model of one case: its inputs inputs or constants, their sizes numbers or symbols, as drawn."""
    graph, operands = Graph("g"), list[Value | None]()
    constant, symbolic = rng.choice((0.0, 0.2, 1.0)), rng.choice((0.0, 0.0, 0.4))
    for i, (spec, array) in enumerate(zip(case.inputs, case.arrays(), strict=True)):
        if spec is None or array is None:
            operands.append(None)
        elif spec.const or rng.random() < constant:
            operands.append(graph.add_constant(Constant.of(array, spec.type), f"c{i}"))
        else:
            shape = [Dim.symbol(f"n{size}") if rng.random() < symbolic else Dim.of(size) for size in spec.shape]
            operands.append(graph.add_input(f"x{i}", TensorType(spec.type, tuple(shape))))
    graph.outputs += Builder(graph, "node").add_all(case.op, *operands)
    return Model(graph, "onnx", 10, {"": 25})


def of_case(case: Case, format: str, rng: Random) -> Files | None:
    """The case as a file of that format; None where the format cannot say it, or not with these operands."""
    opsets = [25, *(form.since for form in type(case.op).onnx if not form.domain)]
    options = {} if format == "openvino" else {"opset": rng.choice(opsets)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m" + SUFFIX[format])
        try:
            irc.save(model_of(case, rng), path, **options)
        except (irc.ConversionError, irc.diagnostics.Problem):
            return None
        return {p.name: p.read_bytes() for p in (path, path.with_suffix(".bin")) if p.exists()}


@cache
def samples(format: str) -> tuple[Files, ...]:
    """The models of samples/."""
    found = sorted((ROOT / "samples").rglob("*" + SUFFIX[format]))
    return tuple(
        {"m" + p.suffix: p.read_bytes() for p in (path, path.with_suffix(".bin"))[: 1 + (format == "openvino")]}
        for path in found
    )


@cache
def node_tests() -> tuple[bytes, ...]:
    """The models of the official ONNX node tests, which come with the package onnx (some 1,800, smaller than 20 kB)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_node_model_tests

        models = [case.model for case in load_node_model_tests() if case.model is not None]
    return tuple(data for m in models if len(data := onnx.ModelProto.SerializeToString(m)) < 20_000)


def draw(format: str, rng: Random, deep: bool = True) -> Files:
    """A seed of that format; `deep` includes ONNX's node tests, which take seconds to be generated once."""
    kind = rng.random()
    if kind < 0.04:
        return rng.choice(samples(format))
    if kind < 0.35 and format == "onnx" and deep:
        return {"m.onnx": rng.choice(node_tests())}
    while True:
        found = of_case(rng.choice(rows()), format, rng)
        if found is not None:
            return found
