"""Every case of `tests/ops/cases` written in every opset of ONNX, checked by onnx, read again and run in NumPy.

What an opset cannot say is one diagnostic, which names the lowest opset that can, and that one can.
"""

from __future__ import annotations

import zlib

import onnx
import pytest

from irc.border import WriteOptions, read_model, write_model
from irc.border.support import newest_onnx_opset
from irc.diagnostics import Sink
from irc.formats.document import RawModel
from irc.formats.onnx import reader as onnx_reader, writer as onnx_writer
from irc.ir.graph import Model
from tests.ops.cases import Case
from tests.ops.test_ops import FAMILIES, build, feeds, run, same

OPSETS = (7, 9, 11, 13, 15, 17, 19, 21, newest_onnx_opset())
CASES = [case for rows in FAMILIES.values() for case in rows]
ONE_OF = 48
"""Of how many cases one runs always."""


@pytest.mark.parametrize("opset", OPSETS)
def test_a_sample_of_the_cases(opset: int) -> None:
    sample = [c for c in CASES if zlib.crc32(str(c).encode()) % ONE_OF == opset % ONE_OF]
    for case in sample:
        said_again(case, opset)


@pytest.mark.full
@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_case(family: str, opset: int) -> None:
    for case in FAMILIES[family]:
        said_again(case, opset)


def said_again(case: Case, opset: int) -> None:
    """Write and read the case; or see that it is refused as it should be."""
    model, sink = build(case), Sink()
    raw = written(model, opset, sink)
    if sink.errors:
        refused_once(case, model, opset, sink)
        return
    proto = onnx_writer.to_proto(raw)
    onnx.checker.check_model(proto)
    again = read_model(onnx_reader.read(proto, sink), sink)  # type: ignore[arg-type]
    assert not sink.errors, (str(case), sink.errors)
    want = run(model, feeds(case))
    for got, expected in zip(run(again, feeds(case)), want, strict=True):
        try:
            same(got, expected, max(case.rtol, 1e-6))
        except AssertionError as e:
            raise AssertionError(f"{case} in opset {opset}: {e}") from e


def refused_once(case: Case, model: Model, opset: int, sink: Sink) -> None:
    """One finding about conversion; the opset that it names can say the case, the one before cannot."""
    (found,) = sink.errors
    assert found.code.startswith("IRC4"), (str(case), found)
    if found.code != "IRC4003":
        sinks = [Sink() for _ in range(opset, newest_onnx_opset() + 1)]
        for n, other in enumerate(sinks, opset):
            written(model, n, other)
        assert all(s.errors for s in sinks), f"{case}: {found.message}, but a newer opset can say it"
        return
    needed = int(found.message.split("needs ONNX opset ")[1].split(";")[0])
    for n in (needed - 1, needed):
        other = Sink()
        written(model, n, other)
        assert bool(other.errors) == (n < needed), f"{case}: {found.message}"


def written(model: Model, opset: int, sink: Sink) -> RawModel:
    options = {"": opset, "ai.onnx.ml": 3, "com.microsoft": 1, "ai.onnx.preview": 1, "ai.onnx.preview.training": 1}
    return write_model(model, WriteOptions("onnx", options, version=onnx.IR_VERSION), sink)
