"""Attention as one operation becomes the kernel of attention, as it does written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from irc.diagnostics import Sink
from irc.ir.graph import Graph
from irc.ir.types import f32
from irc.kernels.attention.vector import AttentionKernel
from irc.kernels.core.isa import AVX512
from irc.ops.attention import Attention, ScaledDotProductAttention
from irc.pipelines import compile_c
from irc.selection.selector import KernelOp
from tests.support.lowering import graph_of, random

Q, KV = random(1, 2, 48, 32), random(1, 2, 40, 32, seed=1)


def kernels(build: Any, *arrays: Any) -> list[Any]:
    graph: Graph = graph_of(build, *arrays)
    sink = Sink()
    for _, run in compile_c(AVX512):
        run(graph, sink)
    return [n.op.kernel for n in graph.nodes if isinstance(n.op, KernelOp)]


def of_onnx(b: Any, q: Any, k: Any, v: Any) -> Any:
    return b.add_all(Attention(), q, k, v)[0]


def of_openvino(b: Any, q: Any, k: Any, v: Any) -> Any:
    return b.add(ScaledDotProductAttention(), q, k, v)


def with_a_scale(b: Any, q: Any, k: Any, v: Any) -> Any:
    return b.add(ScaledDotProductAttention(), q, k, v, b.const(np.float32(0), f32), b.const(np.float32(0.2), f32))


@pytest.mark.parametrize("build", [of_onnx, of_openvino, with_a_scale], ids=lambda f: f.__name__)
def test_attention_is_one_kernel(build: Any) -> None:
    (kernel,) = kernels(build, Q, KV, KV)
    assert isinstance(kernel, AttentionKernel)
