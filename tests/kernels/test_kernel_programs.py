"""Kernels inside generated programs: called from a model's C code, through its interface, with and without threads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from irc.backends.c.files import EmitOptions
from irc.expr import Const, Size, call
from irc.ir.dim import Dim
from irc.ir.types import f32
from irc.kernels import Epilogue, acc, slot
from irc.loops.ir import Function, KernelCall, Program
from irc.toolchain.c_compiler import find_compiler
from tests.support.c_program import Library, buffer
from tests.support.instruction_sets import isa_under_test
from tests.support.kernels import conv_nchw, packed_gemm
from tests.support.random_numbers import RANDOM

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
ISA = isa_under_test()


def test_gemm_with_a_symbolic_number_of_rows(tmp_path: Path) -> None:
    """gelu(x w + bias) v, x[m, 20]: two constant matrices, two kernels in one file."""
    m = Dim.symbol("m", 1)
    w, bias, v = (RANDOM.standard_normal(s).astype(np.float32) for s in ((20, 70), (70,), (70, 9)))
    y = acc() + slot(0)
    gelu = y * 0.5 * (call("erf", y * 0.7071067811865476) + 1.0)
    first = packed_gemm(ISA, f32, m, 70, Epilogue(gelu, ("row",)), True)
    second = packed_gemm(ISA, f32, m, 9, Epilogue(acc()), True)
    x, out = buffer("x", f32, (m, 20), "input"), buffer("out", f32, (m, 9), "output")
    hidden = buffer("hidden", f32, (m, 70), "arena")
    packed_w, packed_v = first.pack_b(w), second.pack_b(v)
    w_, b_, v_ = (
        buffer(name, f32, a.shape, "constant", data=a) for name, a in (("w", packed_w), ("b", bias), ("v", packed_v))
    )
    rows = Size(m)
    calls = [
        KernelCall(first, (x, w_, b_), (hidden,), first.order(m=rows, n=70, k=20, a_row=20, a_col=1, c_row=70)),
        KernelCall(second, (hidden, v_), (out,), second.order(m=rows, n=9, k=70, a_row=70, a_col=1, c_row=9)),
    ]
    functions = [Function("f", [calls[0]], (x, w_, b_), (hidden,)), Function("g", [calls[1]], (hidden, v_), (out,))]
    library = Library(Program("p", [x], [out], [w_, b_, v_], functions, ["m"]), tmp_path, EmitOptions(prefix="p"))
    assert library.files["kernels_0.c"]
    for size in (1, 5, 33):
        given = RANDOM.standard_normal((size, 20)).astype(np.float32)
        (found,) = library.run(library.context([size]), [given], [(size, 9)])
        h = given.astype(np.float64) @ w + bias
        erf = np.vectorize(__import__("math").erf)
        np.testing.assert_allclose(found, h * 0.5 * (1 + erf(h * 0.5**0.5)) @ v, rtol=1e-4, atol=1e-4)


def test_convolution(tmp_path: Path) -> None:
    """relu(conv(x, w) + bias), 1x1, which is a matrix product over the channels."""
    w, bias = RANDOM.standard_normal((24, 10, 1, 1)).astype(np.float32), RANDOM.standard_normal(24).astype(np.float32)
    epilogue = Epilogue((acc() + slot(0)).max(Const(0.0, f32)), ("column",))
    kernel = conv_nchw(ISA, 10, 24, (7, 9), (1, 1), (1, 1), epilogue)
    x, y = buffer("x", f32, (2, 10, 7, 9), "input"), buffer("y", f32, (2, 24, 7, 9), "output")
    packed = kernel.pack_weights(w)
    w_, b_ = buffer("w", f32, packed.shape, "constant", data=packed), buffer("b", f32, (24,), "constant", data=bias)
    sizes = kernel.order(
        batch=2,
        ic=10,
        oc=24,
        id=1,
        ih=7,
        iw=9,
        od=1,
        oh=7,
        ow=9,
        kd=1,
        kh=1,
        kw=1,
        stride_d=1,
        stride_h=1,
        stride_w=1,
        dilation_d=1,
        dilation_h=1,
        dilation_w=1,
        pad_d=0,
        pad_h=0,
        pad_w=0,
        x_batch=630,
        x_channel=63,
        y_batch=24 * 63,
        y_channel=63,
        s0_channel=1,
    )
    body = [KernelCall(kernel, (x, w_, b_), (y,), sizes)]
    program = Program("p", [x], [y], [w_, b_], [Function("f", body, (x, w_, b_), (y,))], [])
    given = RANDOM.standard_normal((2, 10, 7, 9)).astype(np.float32)
    library = Library(program, tmp_path, EmitOptions(prefix="p"))
    (found,) = library.run(library.context(), [given], [(2, 24, 7, 9)])
    exact = np.einsum("oc,ncyx->noyx", w[:, :, 0, 0].astype(np.float64), given) + bias[:, None, None]
    np.testing.assert_allclose(found, np.maximum(exact, 0), rtol=1e-5, atol=1e-5)
