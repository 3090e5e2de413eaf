"""The operators of ONNX Runtime's own domain, in ONNX Runtime: every case of the families `microsoft_*`."""

from typing import Any

import numpy as np
import onnx
import pytest

from irc.border import WriteOptions, read_model, write_model
from irc.diagnostics import Sink
from irc.formats.onnx import reader as onnx_reader, writer as onnx_writer
from irc.opdef.forms import MICROSOFT
from tests.ops.cases import ALONE, Case
from tests.ops.test_ops import FAMILIES, build, feeds, run, same

runtime = pytest.importorskip("onnxruntime")
ROWS = [
    pytest.param(case, id=f"{family}-{i}-{case.op.name}")
    for family, rows in FAMILIES.items()
    if family.startswith("microsoft_")
    for i, case in enumerate(rows)
    if case.note != ALONE
]


def in_onnxruntime(model: onnx.ModelProto, arrays: list[Any]) -> list[Any]:
    """The results on one core: ONNX Runtime quantizes parts of a batch for each thread."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: a for i, a in zip(session.get_inputs(), arrays, strict=True)})


@pytest.mark.parametrize("case", ROWS)
def test_onnxruntime_computes_the_same(case: Case) -> None:
    model, sink = build(case), Sink()
    want = run(model, feeds(case))
    raw = write_model(model, WriteOptions("onnx", {"": 20, MICROSOFT: 1}, version=10), sink)
    assert not sink.errors, sink.errors
    proto = onnx_writer.to_proto(raw)
    assert MICROSOFT in {n.domain for n in proto.graph.node}
    again = read_model(onnx_reader.read(proto, sink), sink)  # type: ignore[arg-type]
    assert not sink.errors, sink.errors
    for got, expected in zip(run(again, feeds(case)), want, strict=True):
        same(got, expected, case.rtol)
    for got, expected in zip(in_onnxruntime(proto, feeds(case)), want, strict=True):
        same(got, np.asarray(expected), case.rtol)
