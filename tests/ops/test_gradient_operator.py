"""Gradient of ONNX: which derivative a node asks for, what stands in its way, and what it becomes in other formats."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import irc
from irc.ir.limits import DERIVATIVES
from irc.opdef import gradients as opdef_gradients

TRAINING = "ai.onnx.preview.training"
HEADER = f'<ir_version: 8, opset_import: ["" : 17, "{TRAINING}" : 1, "local" : 1]>'
BACKENDS = ["numpy", "c"]
A, B = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32), np.array([0.25, 2.0], np.float32)


def model(text: str) -> bytes:
    made = onnx.parser.parse_model(HEADER + text.replace("Gradient", f"{TRAINING}.Gradient"))
    return bytes(made.SerializeToString())


def codes_of(text: str) -> set[str]:
    return {d.code for d in irc.validate(model(text))}


def check(text: str, arrays: list[Any], *wanted: Any) -> None:
    """Run a model in both backends."""
    for backend in BACKENDS:
        found = irc.compile(model(text), backend=backend)(arrays)
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_value_in_between_is_an_independent_one() -> None:
    """Of c = a · b, only its own use in y = c² counts."""
    check(
        """m (float[2,2] a, float[2] b) => (float[2,2] dc) {
             c = Mul (a, b)
             y = Mul (c, c)
             dc = Gradient <xs = ["c"], y = "y"> (c)
           }""",
        [A, B],
        2 * A * B,
    )


def test_y_is_summed_and_operands_that_broadcast_too() -> None:
    check(
        """m (float[2,2] a, float[2] b) => (float[2,2] da, float[2] db) {
             c = Mul (a, b)
             da, db = Gradient <xs = ["a", "b"], y = "c"> (a, b)
           }""",
        [A, B],
        np.broadcast_to(B, A.shape),
        A.sum(0),
    )


def test_other_values_than_those_named() -> None:
    """The derivative at the operands of the node, not at the values with the names."""
    check(
        """m (float[2,2] a, float[2] b, float[2,2] at) => (float[2,2] da, float[2] db, float[2,2] y) {
             c = Mul (a, b)
             y = Mul (c, a)
             da, db = Gradient <xs = ["a", "b"], y = "y"> (at, b)
           }""",
        [A, B, A + 1],
        2 * (A + 1) * B,
        ((A + 1) ** 2).sum(0),
        A * A * B,
    )


def test_constants_outputs_left_out_and_what_is_held() -> None:
    check(
        """m (float[2,2] a) => (float[2] dw) <float[2] w = {3.0, 4.0}, float[2] v = {5.0, 6.0}> {
             c = Mul (a, w)
             y = Mul (c, v)
             , dw = Gradient <xs = ["a", "w"], zs = ["v"], y = "y"> (a, w, v)
           }""",
        [A],
        A.sum(0) * [5, 6],
    )


def test_of_what_does_not_depend_on_it_the_gradient_is_zero() -> None:
    check(
        """m (float[2,2] a, float[2] b) => (float[2] db) {
             y = Relu (a)
             db = Gradient <xs = ["b"], y = "y"> (b)
           }""",
        [A, B],
        np.zeros(2),
    )


def test_derivatives_of_derivatives() -> None:
    """y = a³ · b."""
    check(
        """m (float[2,2] a, float[2] b) => (float[2,2] second, float[2,2] third, float[2] mixed) {
             square = Mul (a, a)
             cube = Mul (square, a)
             y = Mul (cube, b)
             da, db = Gradient <xs = ["a", "b"], y = "y"> (a, b)
             second, mixed = Gradient <xs = ["a", "b"], y = "da"> (a, b)
             third = Gradient <xs = ["a"], zs = ["b"], y = "second"> (a, b)
           }""",
        [A, B],
        6 * A * B,
        np.broadcast_to(6 * B, A.shape),
        (3 * A * A).sum(0),
    )


def test_in_a_function() -> None:
    check(
        """m (float[2,2] a, float[2] b) => (float[2,2] da, float[2,2] again) {
             da = local.slope (a, b)
             again = local.slope (da, b)
           }
           <domain: "local", opset_import: ["" : 17, "ai.onnx.preview.training" : 1]>
           slope (a, b) => (da) {
             c = Mul (a, a)
             y = Mul (c, b)
             da = Gradient <xs = ["a"], zs = ["b"], y = "y"> (a, b)
           }""",
        [A, B],
        2 * A * B,
        4 * A * B * B,
    )


LINEAR = """m (float[n,3] x, float[3,2] w, float[2] b, int64[n] t) => (float loss, float[3,2] dw, float[2] db) {
  h = Gemm (x, w, b)
  loss = SoftmaxCrossEntropyLoss (h, t)
  dw, db = Gradient <xs = ["w", "b"], zs = ["x", "t"], y = "loss"> (w, b, x, t)
}"""


def test_training_with_a_batch_of_any_size() -> None:
    rng = np.random.default_rng(3)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((5, 3), (3, 2), (2,)))
    t = np.array([0, 1, 1, 0, 1])
    e = np.exp(x @ w + b)
    share = e / e.sum(1, keepdims=True)
    given = (share - np.eye(2)[t]) / 5
    check(LINEAR, [x, w, b, t], -np.log(share[np.arange(5), t]).mean(), x.T @ given, given.sum(0))


def test_it_is_written_as_the_operations_that_it_becomes(tmp_path: Any) -> None:
    loaded = irc.load(model(LINEAR))
    irc.convert(loaded, tmp_path / "m.xml")
    irc.convert(loaded, tmp_path / "m.onnx")
    assert not any(n.domain for n in onnx.load(tmp_path / "m.onnx").graph.node)
    rng = np.random.default_rng(4)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((4, 3), (3, 2), (2,))] + [np.array([1, 0, 1, 1])]
    wanted = irc.compile(model(LINEAR), backend="numpy")(arrays)
    for file in ("m.xml", "m.onnx"):
        for got, want in zip(irc.compile(tmp_path / file, backend="numpy")(arrays), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_result_that_only_the_gradient_reads_is_written(tmp_path: Any) -> None:
    """The places of MaxPool."""
    text = """m (float[1,1,4] x) => (float[1,1,2] y, float[1,1,4] dx) {
        y = MaxPool <kernel_shape = [2], strides = [2]> (x)
        dx = Gradient <xs = ["x"], y = "y"> (x)
      }"""
    irc.convert(model(text), tmp_path / "m.onnx")
    onnx.checker.check_model(tmp_path / "m.onnx", full_check=True)
    x = np.array([[[1.0, 3.0, 2.0, -1.0]]], np.float32)
    y, dx = irc.compile(tmp_path / "m.onnx", backend="numpy")([x])
    np.testing.assert_array_equal(y, [[[3, 2]]])
    np.testing.assert_array_equal(dx, [[[0, 1, 1, 0]]])


NODE = """m (float[2] a, float[2] b) => (float[2] g) {{ y = {op}  g = Gradient <xs = {xs}, y = "{y}"> ({operands}) }}"""


@pytest.mark.parametrize(
    ("op", "xs", "y", "operands", "code"),
    [
        ("Mul (a, b)", '["a", "b"]', "z", "a, b", "IRC1522"),
        ("Mul (a, b)", '["a", "z"]', "y", "a, b", "IRC1522"),
        ("Mul (a, b)", '["a", "b"]', "y", "a", "IRC2208"),
        ("Mul (a, b)", '["a", "b"]', "y", "a, a", "IRC2006"),
        ("Cast <to = 7> (a)", '["a"]', "y", "a", "IRC2104"),
        ("Unheard (a)", '["a"]', "y", "a", "IRC2006"),
        ("Bernoulli (a)", '["a"]', "y", "a", "IRC2006"),
    ],
)
def test_mistakes_and_operations_without_a_derivative(op: str, xs: str, y: str, operands: str, code: str) -> None:
    assert code in codes_of(NODE.format(op=op, xs=xs, y=y, operands=operands))


def test_a_body_may_not_ask_for_the_graph_around_it() -> None:
    """What lies between the two is not in the body."""
    text = """m (bool c, float[2] a) => (float[2] g) {
        y = Mul (a, a)
        g = If (c) <
          then_branch = t () => (float[2] h) { h = Gradient <xs = ["a"], y = "y"> (a) },
          else_branch = e () => (float[2] i) { i = Neg (a) }
        >
      }"""
    assert "IRC2006" in codes_of(text)
    inside = text.replace('{ h = Gradient <xs = ["a"]', '{ k = Neg (a) z = Mul (k, a) h = Gradient <xs = ["k"]')
    check(inside.replace('y = "y"> (a)', 'y = "z"> (k)'), [np.array(True), B], B)


def test_gradients_of_gradients_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opdef_gradients, "DERIVATIVES", dataclasses.replace(DERIVATIVES, most=300))
    nodes = "".join(f'g{k + 1} = Gradient <xs = ["a"], y = "g{k}"> (a)' for k in range(12))
    text = f"m (float[2] a) => (float[2] g12) {{ t = Exp (a) s = Mul (t, a) g0 = Tanh (s) {nodes} }}"
    assert "IRC3301" in codes_of(text)
