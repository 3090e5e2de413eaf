"""Every row of `tests/ops/cases` through every layer.

For each case: inference gives the reference's shape and type, symbolic inference agrees with it, a round
trip through ONNX (at every opset where a form changes) and OpenVINO gives the same numbers, and the
text form parses back.  Then all cases of a family are compiled as one model, in C and in NumPy.
"""

from __future__ import annotations

import importlib
import pkgutil
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irc
from irc.border import WriteOptions, read_model, write_model
from irc.border.support import NEWEST_OPENVINO_OPSET as NEWEST_OPENVINO
from irc.diagnostics import Problem, Sink
from irc.formats.onnx import reader as onnx_reader, writer as onnx_writer
from irc.formats.openvino import reader as openvino_reader, writer as openvino_writer
from irc.ir.dim import Dim
from irc.ir.graph import Constant, Graph, Model, Value
from irc.ir.types import TensorType
from irc.opdef.builder import Builder, evaluate
from tests.ops import cases
from tests.ops.cases import Case

FAMILIES = {
    info.name: importlib.import_module(f"tests.ops.cases.{info.name}").CASES
    for info in pkgutil.iter_modules(cases.__path__)
}
FIRST = {case.op.name: case for rows in FAMILIES.values() for case in reversed(rows)}


def is_sampled(case: Case) -> bool:
    """Tell whether a case is an operation's first, or one of a third of the others."""
    return case is FIRST[case.op.name] or zlib.crc32(str(case).encode()) % 3 == 0


def row(family: str, number: int, case: Case, full: bool = False) -> Any:
    """Make a case a parameter.  full: of `-m full`."""
    return pytest.param(case, id=f"{family}-{number}-{case.op.name}", marks=pytest.mark.full if full else ())


ROWS = [row(family, i, case) for family, cases in FAMILIES.items() for i, case in enumerate(cases)]
SAMPLE = [
    row(family, i, case, not is_sampled(case)) for family, cases in FAMILIES.items() for i, case in enumerate(cases)
]
"""All cases; those that are not sampled are of `-m full`."""
NEWEST_ONNX = 25


def refused_cases() -> dict[str, dict[str, str]]:
    """Case → code, by format, from `cases/refused.txt`."""
    found: dict[str, dict[str, str]] = {"onnx": {}, "openvino": {}}
    for line in (Path(cases.__path__[0]) / "refused.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            format, code, case = line.split(" ", 2)
            found[format][case] = code
    return found


REFUSED = refused_cases()


def refusal_of(format: str, case: Case) -> str:
    """The code of the refusal that `cases/refused.txt` lists for a case, or for its operation; "" if there is none."""
    return REFUSED[format].get(str(case)) or REFUSED[format].get(case.op.name, "")


def add_case(graph: Graph, case: Case, prefix: str = "", symbolic: bool = False) -> list[Value]:
    """The case's node in `graph`; its results.  symbolic: every size of an input is a symbol of its own."""
    operands: list[Value | None] = []
    for i, (spec, array) in enumerate(zip(case.inputs, case.arrays(), strict=True)):
        if spec is None or array is None:
            operands.append(None)
        elif spec.const:
            operands.append(graph.add_constant(Constant.of(array, spec.type), f"{prefix}c{i}"))
        else:
            named = [Dim.symbol(f"{prefix}s{i}_{k}") for k in range(len(spec.shape))]
            type = TensorType.of(spec.type, named if symbolic else spec.shape)
            operands.append(graph.add_input(f"{prefix}x{i}", type))
    made = Builder(graph, f"{prefix}node").add_all(case.op, *operands)
    graph.outputs += made
    return list(made)


def build(case: Case) -> Model:
    graph = Graph("case")
    add_case(graph, case)
    return Model(graph, "onnx", 10, {"": NEWEST_ONNX})


def feeds(case: Case) -> list[Any]:
    return [a for s, a in zip(case.inputs, case.arrays(), strict=True) if s is not None and not s.const]


def run(model: Model, arrays: list[Any]) -> list[Any]:
    return evaluate(model.graph, dict(zip(model.inputs, arrays, strict=True)))


def reference(case: Case) -> list[Any]:
    """The results of a case's references, computed once."""
    key = id(case)  # all cases live as long as this module
    if key not in _REFERENCES:
        _REFERENCES[key] = run(build(case), feeds(case))
    return _REFERENCES[key]


_REFERENCES: dict[int, list[Any]] = {}


def same(got: Any, want: Any, rtol: float) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape, f"{got.dtype}{got.shape}, want {want.dtype}{want.shape}"
    if want.dtype.kind in "biuUO" or want.dtype.name in ("int4", "uint4"):
        np.testing.assert_array_equal(got, want)
    else:
        limit = max(rtol, 0)
        wide = np.float64 if want.dtype.kind != "c" else np.complex128
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=limit, atol=limit)


@pytest.mark.parametrize("case", ROWS)
def test_inference_agrees_with_the_reference(case: Case) -> None:
    model = build(case)
    for value, array in zip(model.outputs, reference(case), strict=True):
        if isinstance(value.type, TensorType) and value.type.shape is not None and value.type.is_static:
            assert value.type.static_shape() == np.shape(array)
            assert value.type.dtype.numpy == np.asarray(array).dtype


@pytest.mark.parametrize("case", ROWS)
def test_symbolic_inference_is_sound(case: Case) -> None:
    """With every input size a symbol, the result's Dims evaluate to the sizes of the real result."""
    graph, sizes, operands = Graph(), dict[str, int](), list[Value | None]()
    for i, (spec, array) in enumerate(zip(case.inputs, case.arrays(), strict=True)):
        if spec is None or array is None:
            operands.append(None)
        elif spec.const:
            operands.append(graph.add_constant(Constant.of(array, spec.type), f"c{i}"))
        else:
            sizes |= {f"s{i}_{k}": n for k, n in enumerate(spec.shape)}
            shape = [Dim.symbol(f"s{i}_{k}") for k in range(len(spec.shape))]
            operands.append(graph.add_input(f"x{i}", TensorType.of(spec.type, shape)))
    try:
        made = Builder(graph).add_all(case.op, *operands)
    except Problem as p:
        assert p.code.id.startswith(("IRC2", "IRC3", "IRC4")), p
        return
    real = reference(case)
    for value, array in zip(made, real, strict=True):
        if not isinstance(value.type, TensorType) or value.type.shape is None:
            continue
        assert len(value.shape) == np.ndim(array)
        for dim, size in zip(value.shape, np.shape(array), strict=True):
            if all(s.name in sizes for s in dim.symbols()):
                assert dim.evaluate(sizes) == size, f"{dim} of {value}"


def onnx_opsets(case: Case) -> list[int]:
    """The opset of each row of the operation's, and the newest; of cases but its first, of every third the oldest."""
    opsets = sorted({f.since for f in type(case.op).onnx if not f.domain} | {NEWEST_ONNX})
    if case is FIRST[case.op.name]:
        return opsets
    return sorted({opsets[0], opsets[-1]}) if is_sampled(case) else opsets[-1:]


@pytest.mark.parametrize("case", ROWS)
def test_onnx_round_trip(case: Case) -> None:
    """`cases/refused.txt` lists what no ONNX opset can say, with the code of the refusal at the newest."""
    said = through_onnx(case, onnx_opsets(case))
    assert (said[-1] if all(said) else "") == refusal_of("onnx", case)


@pytest.mark.full
@pytest.mark.parametrize("case", ROWS)
def test_onnx_round_trip_at_every_opset(case: Case) -> None:
    said = through_onnx(case, range(1, max(onnx_opsets(case)) + 1))
    assert all(said) == bool(refusal_of("onnx", case))


def through_onnx(case: Case, opsets: Iterable[int]) -> list[str]:
    """Write and read the case at these opsets and compare; for each the code of the refusal, "" where there is none."""
    model, said = build(case), list[str]()
    want = reference(case)
    for opset in opsets:
        sink = Sink()
        raw = write_model(model, WriteOptions("onnx", {"": opset, "ai.onnx.ml": 5}, version=10), sink)
        said.append(refusal(sink))
        if said[-1]:
            continue
        again = read_model(onnx_reader.read(onnx_writer.to_proto(raw), sink), sink)  # type: ignore[arg-type]
        assert not sink.errors, sink.errors
        for got, expected in zip(run(again, feeds(case)), want, strict=True):
            same(got, expected, case.rtol)
    return said


def refusal(sink: Sink) -> str:
    """The code of what the writer refuses, which is about conversion; "" where it refuses nothing."""
    assert all(d.code.startswith("IRC4") for d in sink.errors), sink.errors
    return sink.errors[0].code if sink.errors else ""


@pytest.mark.parametrize("case", ROWS)
def test_openvino_round_trip(case: Case, tmp_path: Path) -> None:
    """`cases/refused.txt` lists what OpenVINO's newest operations cannot say, with the code of the refusal."""
    assert through_openvino(case, NEWEST_OPENVINO, tmp_path) == refusal_of("openvino", case)


def test_refused_cases_exist() -> None:
    known = {name for rows in FAMILIES.values() for case in rows for name in (str(case), case.op.name)}
    assert set(REFUSED["onnx"]) | set(REFUSED["openvino"]) <= known


@pytest.mark.full
@pytest.mark.parametrize("case", ROWS)
def test_openvino_round_trip_at_every_opset(case: Case, tmp_path: Path) -> None:
    said = [through_openvino(case, opset, tmp_path) for opset in range(1, NEWEST_OPENVINO + 1)]
    assert not said[-1] or all(said), "an older opset can say it, the newest cannot"


def through_openvino(case: Case, opset: int, folder: Path) -> str:
    """Write and read the case with operations up to this opset and compare; the code of the refusal if it cannot."""
    model, sink = build(case), Sink()
    want = reference(case)
    raw = write_model(model, WriteOptions("openvino", max_opset=opset, version=11), sink)
    if code := refusal(sink):
        return code
    openvino_writer.write(raw, folder / "m.xml")
    again = read_model(openvino_reader.read(folder / "m.xml", sink), sink)  # type: ignore[arg-type]
    assert not sink.errors, sink.errors
    for got, expected in zip(run(again, feeds(case)), want, strict=True):
        same(got, expected, case.rtol)
    return ""


@pytest.mark.parametrize("backend", ["numpy", "c"])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_compiled_family(family: str, backend: str) -> None:
    """All cases of a family as one compiled model against the references."""
    graph, arrays, wanted = Graph(family), list[Any](), list[tuple[Case, Any]]()
    for i, case in enumerate(FAMILIES[family]):
        if backend == "c" and not compiles_to_c(case):
            continue
        add_case(graph, case, f"n{i}_")
        arrays += feeds(case)
        wanted += [(case, a) for a in reference(case)]
    compiled = irc.compile(Model(graph, "onnx", 10, {"": NEWEST_ONNX}), backend=backend)
    wrong: list[str] = []
    for got, (case, want) in zip(compiled(arrays), wanted, strict=True):
        try:
            same(got, want, case.rtol)
        except AssertionError as e:
            wrong.append(f"{case}: {' '.join(str(e).split())[:300]}")
    assert not wrong, "\n".join(wrong)


def compiles_to_c(case: Case) -> bool:
    """C has numbers and booleans: no strings, sequences or complex numbers, and no reference-only operations."""
    op = type(case.op)
    if op.compute is None and op.loops is None and op.decompose is None:
        return False
    return all(s is None or s.type.kind in "fiub" for s in case.inputs)
