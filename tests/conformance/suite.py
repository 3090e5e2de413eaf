"""The cases of onnx.backend.test: those of nodes, made in memory, and the small models that the package brings."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from irc.backend import IrcBackend
from irc.diagnostics import IrcError

BF16_RTOL = 2.0**-6
"""What the suite allows bf16: two units in the last place."""
LOADED = ("simple", "pytorch-operator", "pytorch-converted")


@dataclass(frozen=True)
class SuiteCase:
    """A model with inputs and the outputs they give."""

    name: str
    model: onnx.ModelProto
    data_sets: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float


@cache
def suite() -> list[SuiteCase]:
    """All cases, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = load_model_tests(kind="node")
    cases = [SuiteCase(t.name, t.model, [_plain(d) for d in t.data_sets], t.rtol, t.atol) for t in made]
    for kind in LOADED:
        for t in load_model_tests(kind=kind):
            cases.append(_loaded(f"{kind}/{t.name}", Path(t.model_dir), t.rtol, t.atol))
    return sorted(cases, key=lambda c: c.name)


def _plain(data: tuple[Any, Any]) -> tuple[list[Any], list[Any]]:
    inputs, outputs = ([numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v for v in d] for d in data)
    return inputs, outputs


def _loaded(name: str, folder: Path, rtol: float, atol: float) -> SuiteCase:
    model = onnx.load(folder / "model.onnx")
    sets: list[tuple[list[Any], list[Any]]] = []
    for data in sorted(folder.glob("test_data_set*")):
        inputs, outputs = (
            [_value(path, port.type) for path, port in zip(_numbered(data, what), ports, strict=False)]
            for what, ports in (("input", model.graph.input), ("output", model.graph.output))
        )
        sets.append((inputs, outputs))
    return SuiteCase(name, model, sets, rtol, atol)


def _numbered(folder: Path, what: str) -> list[Path]:
    return sorted(folder.glob(f"{what}_*.pb"), key=lambda p: int(p.stem.rpartition("_")[2]))


def _value(path: Path, type: onnx.TypeProto) -> Any:
    data = path.read_bytes()
    match type.WhichOneof("value"):
        case "sequence_type":
            return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
        case "optional_type":
            return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
        case _:
            return numpy_helper.to_array(onnx.TensorProto.FromString(data))


# ----------------------------------------------------------------------------------- outcome
def outcome(case: SuiteCase, backend: type[IrcBackend]) -> tuple[str, str]:
    """Run a case.  Returns "refused", what differs, or nothing; and what irc says where it refuses."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            prepared = backend.prepare(case.model)
            runs = [(prepared.run(list(inputs)), wanted) for inputs, wanted in case.data_sets]
    except IrcError as e:
        said = re.sub(r"^IRC\d{4}: | \((graph main|and \d+ more).*$", "", " ".join(str(e).split()))
        return "refused", said
    except Exception as e:  # a case that fails is a row of the list, whatever the mistake
        return "error", type(e).__name__
    for got, wanted in runs:
        if len(got) != len(wanted):
            return "count", ""
        for one, other in zip(got, wanted, strict=True):
            if what := difference(one, other, case.rtol, case.atol):
                return what, ""
    return "", ""


def difference(got: Any, want: Any, rtol: float, atol: float) -> str:
    """What differs: type, count, shape, dtype or values; nothing where they agree as closely as the suite asks."""
    if want is None:
        return "" if got is None or (isinstance(got, list) and not got) else "type"
    if isinstance(want, list | tuple):
        if not isinstance(got, list | tuple):
            return "type"
        if len(got) != len(want):
            return "count"
        return next((d for g, w in zip(got, want, strict=True) if (d := difference(g, w, rtol, atol))), "")
    if not hasattr(got, "dtype"):
        return "type"
    a, b = np.asarray(got), np.asarray(want)
    if a.shape != b.shape:
        return "shape"
    if b.dtype.kind in "OUST":
        return "" if a.dtype.kind in "OUST" and list(_texts(a)) == list(_texts(b)) else "values"
    if a.dtype != b.dtype:
        return "dtype"
    if b.dtype.name == "bfloat16":
        rtol = max(rtol, BF16_RTOL)
    if b.dtype.type.__module__ != "numpy":  # of ml_dtypes
        a, b = a.astype(np.float32), b.astype(np.float32)
    return "" if np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True) else "values"


def _texts(array: np.ndarray[Any, Any]) -> Iterator[str]:
    for x in array.reshape(-1).tolist():
        yield x.decode("utf-8") if isinstance(x, bytes) else str(x)
