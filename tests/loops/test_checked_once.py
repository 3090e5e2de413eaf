"""Places in a row are checked once for all rows; what lies outside gives 0 in every row, as OpenVINO has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import irc
from irc import driver
from irc.ir.types import DType, bf16, boolean, f16, i64
from irc.toolchain.c_compiler import find_compiler

compiles = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
INSIDE = [3, -1, 0, 6, -7, 3, 3]


def gather(shape: str, axis: int, then: str = "y = Identity (g)", kind: str = "float") -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 18]>
        m ({kind}[{shape}] x, int64[k] at) => ({kind}[a,b,c] y) {{
            g = Gather <axis: int = {axis}> (x, at)
            {then}
        }}""")


def code_of(model: onnx.ModelProto) -> str:
    return driver.sources(irc.load(model), driver.CompileOptions(threads=2, cache=False)).files["model.c"]


@compiles
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("then", ["y = Identity (g)", "e = Exp (g)  y = Mul (e, g)"])
@pytest.mark.parametrize("shape", ["5,40,7", "n,40,7", "n,m,7", "n,m,w"])
def test_places_inside(shape: str, then: str, threads: int) -> None:
    model = gather(shape, 2, then)
    x = np.random.default_rng(0).standard_normal((5, 40, 7)).astype(np.float32)
    feeds: dict[str, Any] = {"x": x, "at": np.array(INSIDE)}
    (want,) = ReferenceEvaluator(model).run(None, feeds)
    (got,) = irc.compile(model, backend="c", threads=threads)(feeds)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@compiles
@pytest.mark.parametrize(("kind", "type"), [("float16", f16), ("bfloat16", bf16), ("bool", boolean), ("int64", i64)])
def test_every_kind_of_element(kind: str, type: DType) -> None:
    model = gather("5,40,7", 2, kind=kind)
    x = (np.random.default_rng(0).standard_normal((5, 40, 7)) * 3).astype(type.numpy)
    (got,) = irc.compile(model, backend="c")({"x": x, "at": np.array(INSIDE)})
    np.testing.assert_array_equal(got, x[..., INSIDE])


@compiles
@pytest.mark.parametrize(
    "then",
    [
        "i = Cast <to: int = 1> (at)  y = Mul (g, i)",
        "n = BitwiseNot (at)  h = Gather <axis: int = 2> (x, n)  y = Sub (g, h)",
    ],
)
def test_indices_and_checks_that_others_need(then: str) -> None:
    """Where a row is computed by more than its places, or makes more than one check, it stays as it is."""
    model, x = gather("5,40,7", 2, then), np.random.default_rng(0).standard_normal((5, 40, 7)).astype(np.float32)
    feeds = {"x": x, "at": np.array(INSIDE)}
    (want,) = ReferenceEvaluator(model).run(None, feeds)
    (got,) = irc.compile(model, backend="c")(feeds)
    np.testing.assert_array_equal(got, want)


@compiles
@pytest.mark.parametrize("outside", [7, -8, 2**62, -(2**63)])
@pytest.mark.parametrize("kind", ["float", "int8", "double"])
def test_places_outside(kind: str, outside: int) -> None:
    """A call with one is followed by one without."""
    compiled = irc.compile(gather("5,40,7", 2, kind=kind), backend="c")
    type = {"float": np.float32, "int8": np.int8, "double": np.float64}[kind]
    x = np.arange(1, 1401).reshape(5, 40, 7).astype(type)
    (got,) = compiled({"x": x, "at": np.array([1, outside, 6])})
    np.testing.assert_array_equal(got, np.stack([x[..., 1], np.zeros_like(x[..., 0]), x[..., 6]], axis=2))
    (got,) = compiled({"x": x, "at": np.array([1, 0, 6])})
    np.testing.assert_array_equal(got, x[..., [1, 0, 6]])


@pytest.mark.parametrize(
    ("shape", "axis", "once"), [("5,40,7", 2, True), ("n,m,7", 2, True), ("5,1,7", 2, False), ("5,40,7", 1, False)]
)
def test_only_of_many_rows_by_places_in_them(shape: str, axis: int, once: bool) -> None:
    assert ("outside0_[0] == 0" in code_of(gather(shape, axis))) == once
