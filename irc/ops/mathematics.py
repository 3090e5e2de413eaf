"""Elementary functions: exponential, logarithm, trigonometric, hyperbolic, error function.

Floats only; OpenVINO's integer operands become a conversion to f32 and back when read.
Sources: ONNX operator pages of the same names; OpenVINO specification, "Arithmetic unary operations".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from irc.expr import call
from irc.ir.graph import Value
from irc.ir.types import FLOATS, FLOATS_BF16, INTEGERS, bf16, f32
from irc.opdef.base import Array, Op
from irc.opdef.builder import Builder
from irc.opdef.codecs import Ignored
from irc.opdef.elementwise import unary
from irc.opdef.forms import PREV, Attributes, Form, Results
from irc.opdef.precision import float_read, rounded
from irc.ops.arithmetic import OV_NUMERIC

CONSUMED = {"consumed_inputs": Ignored()}


def float_rows(name: str, opsets: Sequence[int], direct: bool = True) -> tuple[Form, ...]:
    """ONNX rows of a float function: FLOATS, in the last opset with bf16; opset 1 had consumed_inputs."""
    first, *rest = opsets
    rows = [Form(name, first, attrs=CONSUMED if first == 1 else {}, T=FLOATS)]
    rows += [Form(name, n, attrs={}, T=FLOATS if n != rest[-1] else PREV | {bf16}) for n in rest]
    return tuple(rows)


def function(
    name: str, doc: str, ufunc: Callable[..., Array], fn: str, opsets: Sequence[int], ov_opset: int = 1
) -> type[Op]:
    """One row: the C function's name, the ONNX opsets, the first OpenVINO opset."""
    ov_types = FLOATS_BF16 if name == "Exp" else OV_NUMERIC
    return unary(
        name,
        doc,
        ufunc,
        lambda x: call(fn, x),
        T=FLOATS_BF16,
        onnx=float_rows(name, opsets),
        openvino=(Form(name, ov_opset, T=ov_types, read=float_read(name), direct=True),),
    )


Exp = function("Exp", "e^x", np.exp, "exp", (1, 6, 13))
Log = function("Log", "Natural logarithm; NaN below 0, -inf at 0", np.log, "log", (1, 6, 13))
Sin = function("Sin", "sin x, x in radians", np.sin, "sin", (7, 22))
Cos = function("Cos", "cos x, x in radians", np.cos, "cos", (7, 22))
Tan = function("Tan", "tan x, x in radians", np.tan, "tan", (7, 22))
Asin = function("Asin", "Inverse sine in radians; NaN outside -1..1", np.arcsin, "asin", (7, 22))
Acos = function("Acos", "Inverse cosine in radians; NaN outside -1..1", np.arccos, "acos", (7, 22))
Atan = function("Atan", "Inverse tangent in radians", np.arctan, "atan", (7, 22))
Sinh = function("Sinh", "Hyperbolic sine", np.sinh, "sinh", (9, 22))
Cosh = function("Cosh", "Hyperbolic cosine", np.cosh, "cosh", (9, 22))
Tanh = function("Tanh", "Hyperbolic tangent", np.tanh, "tanh", (1, 6, 13))
Asinh = function("Asinh", "Inverse hyperbolic sine", np.arcsinh, "asinh", (9, 22), 4)
Acosh = function("Acosh", "Inverse hyperbolic cosine; NaN below 1", np.arccosh, "acosh", (9, 22), 4)
Atanh = function("Atanh", "Inverse hyperbolic tangent; ±inf at ±1", np.arctanh, "atanh", (9, 22), 4)

# erf(x)/x as a polynomial of degree 18 in x²/8 - 1, fitted at Chebyshev points of 0 <= |x| <= 4: relative error
# 5e-10, so that results round as the exact value does in nearly all cases (0.51 ULP of f32).  erf(4) rounds to 1.
ERF_COEFFICIENTS = (
    9.735200076599649e-05,
    -0.00024670882298370023,
    0.00015834107136217278,
    -0.00032430259013257307,
    0.0014380182183598624,
    -0.0029118389831341114,
    0.004746829427955403,
    -0.00838207415419568,
    0.014397568182512623,
    -0.022563597696977716,
    0.03304758580191268,
    -0.04574400173203145,
    0.059888935443242655,
    -0.07473053609847818,
    0.09020883404940175,
    -0.10771028937934785,
    0.13167512178022497,
    -0.17657623587308285,
    0.3535309956188325,
)


def erf(x: Array) -> Array:
    """The error function; f64 by the C library's, narrower types by a polynomial in f64."""
    if x.dtype == np.float64:
        return np.array([math.erf(v) for v in x.ravel()], np.float64).reshape(x.shape)
    w = np.clip(x.astype(np.float64), -4.0, 4.0)
    u = w * w * 0.125 - 1.0
    y = np.full_like(u, ERF_COEFFICIENTS[0])
    for c in ERF_COEFFICIENTS[1:]:
        y = y * u + c
    return rounded(y * w, x)


def read_erf(b: Builder, a: Attributes, x: Value) -> Results:
    """Erf-9 allowed integers: computed in f32 and truncated."""
    return b.Cast(b.Erf(b.Cast(x, to=f32)), to=x.dtype) if x.dtype.is_integer else b.Erf(x)


Erf = unary(
    "Erf",
    "The error function",
    erf,
    lambda x: call("erf", x),
    T=FLOATS_BF16,
    onnx=(Form("Erf", 9, T=FLOATS | INTEGERS, read=read_erf, direct=True), Form("Erf", 13, T=FLOATS_BF16, read=None)),
    openvino=(Form("Erf", 1, T=OV_NUMERIC, read=float_read("Erf"), direct=True),),
)
