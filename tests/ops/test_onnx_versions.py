"""Every version of every operator of ONNX that irc reads, against another implementation.

Of each pair of an operator and a since_version, a case of `tests/ops/cases` that is written as that version, or a row
of `tests/ops/old_versions.py`, is run by ONNX Runtime, by onnx.reference, or, because neither has what is older than
opset 7, by ONNX Runtime after onnx's own version converter.  `untested_versions.txt` lists the pairs without: it is to
shrink.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
import pytest
from onnx.reference import ReferenceEvaluator

from irc.border import WriteOptions, read_model, write_model
from irc.border.support import newest_onnx_opset, unsupported
from irc.diagnostics import Sink
from irc.formats.onnx import reader as onnx_reader, writer as onnx_writer
from irc.opdef.registry import forms_of
from tests.ops.cases import Case
from tests.ops.old_versions import ROWS, OldRow
from tests.ops.test_ops import FAMILIES, build, feeds, run, same
from tests.support.instruction_sets import saturates_in_onnxruntime

runtime = pytest.importorskip("onnxruntime")
CONVERTED = 11
"""The opset that old models are converted to for ONNX Runtime."""
SHRINKING = Path(__file__).with_name("untested_versions.txt")


@cache
def pairs() -> list[tuple[str, int, int]]:
    """(operator, since_version, the last opset with that version) of the domain of ONNX, where irc reads it."""
    since: dict[str, set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and not schema.deprecated:
            since.setdefault(schema.name, set()).add(schema.since_version)
    found: list[tuple[str, int, int]] = []
    for name, versions in sorted(since.items()):
        rows = forms_of("onnx", "", name)
        for n in sorted(versions):
            if ("onnx", "", name.lower()) in unsupported() or not any(form.since <= n for form, _ in rows):
                continue
            if any(cls.effect for _, cls in rows):  # random numbers are others everywhere
                continue
            newer = [v for v in versions if v > n]
            gone = [f.last for f, _ in rows if f.since <= n and f.last is not None]
            last = min([*(v - 1 for v in newer), *gone, newest_onnx_opset()])
            found.append((name, n, max(last, n)))
    return found


@cache
def cases_of(name: str) -> list[Case]:
    """The cases of operations that have a row of that name."""
    ops = {cls for _, cls in forms_of("onnx", "", name)}
    found = [case for rows in FAMILIES.values() for case in rows if type(case.op) in ops]
    return sorted(found, key=lambda c: sum(s is not None and s.dtype not in ("f32", "i64", "bool") for s in c.inputs))


def as_version(case: Case, name: str, opset: int) -> onnx.ModelProto | None:
    """The case as a model of that opset, if it is one node of that name then."""
    sink = Sink()
    raw = write_model(build(case), WriteOptions("onnx", {"": opset}, version=8), sink)
    if sink.errors or [n.type for n in raw.graph.nodes] != [name]:
        return None
    return onnx_writer.to_proto(raw)


# --------------------------------------------------------------------------------------- peers
def in_runtime(model: onnx.ModelProto, arrays: list[Any]) -> list[Any]:
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: a for i, a in zip(session.get_inputs(), arrays, strict=True)})


def in_reference(model: onnx.ModelProto, arrays: list[Any]) -> list[Any]:
    evaluator = ReferenceEvaluator(model)
    return list(evaluator.run(None, dict(zip(evaluator.input_names, arrays, strict=True))))


def converted(model: onnx.ModelProto, arrays: list[Any]) -> list[Any]:
    return in_runtime(onnx.version_converter.convert_version(model, CONVERTED), arrays)


def peers(opset: int) -> tuple[Callable[[onnx.ModelProto, list[Any]], list[Any]], ...]:
    """The implementations to ask, the one that knows versions of that opset best first."""
    return (in_runtime, in_reference) if opset >= 7 else (converted, in_runtime, in_reference)


DEVIATING: dict[str, Callable[[onnx.ModelProto, list[Any]], list[Any]]] = {
    "StringSplit": in_runtime,  # takes spaces for the only whitespace
    "StringNormalizer": in_reference,  # removes accents, and words within a string
}
"""Peers that do not do what the specification says."""


def by_peer(model: onnx.ModelProto, arrays: list[Any], opset: int) -> list[Any] | None:
    """The results of the first peer that runs it; None where none does."""
    for peer in peers(opset):
        if DEVIATING.get(model.graph.node[0].op_type) is peer:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return peer(model, arrays)
        except Exception:
            continue
    return None


def agrees(model: onnx.ModelProto, arrays: list[Any], opset: int, rtol: float, what: str) -> bool:
    """Whether a peer runs the model; then irc, which reads it, must compute the same."""
    want = by_peer(model, arrays, opset)
    if want is None:
        return False
    sink = Sink()
    own = run(read_model(onnx_reader.read(model, sink), sink), arrays)  # type: ignore[arg-type]
    assert not sink.errors, (what, sink.errors)
    for got, expected in zip(own, want, strict=True):
        try:
            same(np.asarray(got), np.asarray(expected), max(rtol, 1e-5))
        except AssertionError as e:
            raise AssertionError(f"{what}: {e}") from e
    return True


# --------------------------------------------------------------------------------------- tests
MOST = 60
"""How many cases of an operator are tried to find one that a peer runs."""


def candidates(name: str, opset: int) -> Iterable[tuple[onnx.ModelProto, list[Any], float, str]]:
    """Models of one node of that version: model, inputs, tolerance, description."""
    for row in ROWS:
        if row.name == name and row.opset == opset and row.want is None:
            yield row.model(), row.feeds(), row.rtol, str(row)
    for case in cases_of(name)[:MOST]:
        if (model := as_version(case, name, opset)) is not None:
            yield model, feeds(case), case.rtol, f"{name}-{opset}: {case}"


def checked(name: str, since: int, last: int) -> bool:
    """Whether irc agrees with a peer about some model of that version."""
    opsets = dict.fromkeys((since, last))
    if any(row.name == name and row.opset in opsets and row.want is not None for row in ROWS):
        return True  # `test_old_versions` sees to it
    return any(
        agrees(model, arrays, opset, rtol, what)
        for opset in opsets
        for model, arrays, rtol, what in candidates(name, opset)
    )


def untested() -> set[str]:
    lines = SHRINKING.read_text("utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


@pytest.mark.parametrize("part", range(8))
def test_versions_mean_what_a_peer_says(part: int) -> None:
    """A pair that is listed and has a case now leaves the list."""
    listed, wrong = untested(), list[str]()
    for name, since, last in pairs()[part::8]:
        pair = f"{name} {since}"
        if saturates_in_onnxruntime([name]):
            continue
        try:
            done = checked(name, since, last)
        except AssertionError as e:
            wrong.append(" ".join(str(e).split())[:500])
        else:
            if done == (pair in listed):
                wrong.append(f"{pair} is {'tested now' if done else 'not tested'}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_old_versions(row: OldRow) -> None:
    """Rows of their own for what no writer of irc says any more."""
    if row.want is None:
        assert agrees(row.model(), row.feeds(), row.opset, row.rtol, str(row)), "nobody else runs it"
        return
    sink = Sink()
    own = run(read_model(onnx_reader.read(row.model(), sink), sink), row.feeds())  # type: ignore[arg-type]
    assert not sink.errors, sink.errors
    for got, want in zip(own, row.want, strict=True):
        same(got, np.asarray(want(*row.feeds()) if callable(want) else want, got.dtype), row.rtol)


def test_listed_pairs_exist() -> None:
    assert untested() <= {f"{name} {since}" for name, since, _ in pairs()}
