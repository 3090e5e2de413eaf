"""Derivatives against finite differences in f64, and compiled: every case of `tests/ops/cases` that has one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from zlib import crc32

import numpy as np
import pytest

import irc
from irc.diagnostics import Problem
from irc.diagnostics.codes import operation as codes
from irc.ir.dim import Dim, SizeUnknown
from irc.ir.graph import Constant, Graph, Model, Value
from irc.ir.types import TensorType, UnknownRank, f64
from irc.opdef.builder import Builder, evaluate
from irc.opdef.gradients import RULES, gradients
from irc.opdef.registry import load_all
from tests.ops.cases import Case
from tests.ops.test_ops import FAMILIES, NEWEST_ONNX, compiles_to_c, is_sampled, row

COMPOSED = [
    "ArrayFeatureExtractor",
    "Attention",
    "BatchNormalization",
    "BiasAdd",
    "BiasGelu",
    "BiasSoftmax",
    "CastLike",
    "Compress",
    "DFT",
    "DepthToSpace",
    "Einsum",
    "EmbeddingBagOffsets",
    "EmbeddingBagPacked",
    "EmbeddingSegmentsSum",
    "FastGelu",
    "FusedConv",
    "FusedGemm",
    "FusedMatMul",
    "GRN",
    "GRU",
    "GlobalAveragePool",
    "GridSample",
    "GlobalLpPool",
    "GlobalMaxPool",
    "GroupNormalization",
    "GroupedConv",
    "GroupedConvTranspose",
    "InstanceNormalization",
    "LSTM",
    "LayerNormalization",
    "MeanVarianceNormalization",
    "NegativeLogLikelihoodLoss",
    "NormalizeL2",
    "PadEach",
    "QuickGelu",
    "RMSNormalization",
    "RNN",
    "ReduceLogSum",
    "ReduceSumSquare",
    "Resize",
    "Reverse",
    "Roll",
    "RotaryEmbedding",
    "ScaledDotProductAttention",
    "ScatterUpdate",
    "STFT",
    "ShuffleChannels",
    "SkipLayerNormalization",
    "SoftmaxCrossEntropyLoss",
    "SpaceToDepth",
    "StridedSlice",
    "SwiGLU",
]
"""Operations without a rule that are differentiated as what they are composed of."""
WITHOUT = {
    "Attention": "nan where a row is masked",
    "Cast": "steps",
    "Det": "empty and singular matrices",
    "Dropout": "draws numbers again",
    "Inverse": "singular matrices",
    "Mod": "steps",
    "Round": "steps",
}
"""Operations that have cases at which finite differences say nothing."""


PARTLY = ("AffineGrid", "Col2Im", "DFT", "Inverse", "ScatterElements", "ScatterND")
"""Operations of which a rule covers some attributes only."""


def floats(case: Case) -> bool:
    return all(s is None or s.type.name in ("f64", "f32", "i64", "i32", "bool", "u8") for s in case.inputs)


def differentiated(
    prefix: str, case: Case, graph: Graph, symbolic: bool
) -> tuple[Value, list[Value], dict[Value, Any]]:
    """Add a case in f64, where its operation has that, to a graph.  Returns the sum of all results, each element times
    a number of its own, the operands to differentiate by, and the arrays of the inputs."""
    operands, arrays = list[Value | None](), dict[Value, Any]()
    for i, (spec, given) in enumerate(zip(case.inputs, case.arrays(), strict=True)):
        if spec is None or given is None:
            operands.append(None)
            continue
        type = f64 if spec.type.is_float else spec.type
        array = np.asarray(given).astype(type.numpy)
        if spec.const:
            operands.append(graph.add_constant(Constant.of(array, type), f"{prefix}c{i}"))
        else:
            sizes = [Dim.symbol(f"{prefix}s{i}_{k}") for k in range(array.ndim)] if symbolic else array.shape
            operands.append(graph.add_input(f"{prefix}x{i}", TensorType.of(type, sizes)))
            arrays[operands[-1]] = array  # type: ignore[index]
    b = Builder(graph, f"{prefix}node")
    sums: list[Value] = []
    for y in b.add_all(case.op, *operands):
        if isinstance(y.type, TensorType) and y.dtype.is_float:
            y = b.Cast(y, to=f64)
            flat = b.Reshape(y, [-1])
            weights = b.Cos(b.CumSum(b.Expand(b.const(1.0, f64), b.Shape(flat))))
            sums.append(b.ReduceSum(b.Mul(flat, weights), keepdims=False))
    return b.Sum(*sums), [x for x in arrays if x.dtype.is_float], arrays


def chosen(case: Case) -> bool:
    load_all()
    return case.op.name in {*COMPOSED, *RULES} - set(WITHOUT) and floats(case)


def cases() -> Iterator[Any]:
    for family, rows in FAMILIES.items():
        for i, case in enumerate(rows):
            if chosen(case):
                yield row(family, i, case, not is_sampled(case))


def add_gradients(
    case: Case, graph: Graph, prefix: str = "", symbolic: bool = False
) -> tuple[list[Value], dict[Value, Any]] | None:
    """Add a case's sum and its gradients as outputs.  Returns the operands they are by, and the arrays of the inputs;
    None where the operation has no f64, or nothing to differentiate."""
    try:
        y, xs, arrays = differentiated(prefix, case, graph, symbolic)
        found = gradients(Builder(graph), y, xs)
    except Problem as p:
        if p.code in (codes.TYPE_NOT_ALLOWED, codes.TYPE_MISMATCH, codes.TOO_FEW_INPUTS):
            return None
        if p.code is codes.NO_GRADIENT and case.op.name in PARTLY:
            return None
        raise
    graph.outputs += [y, *found]
    return (xs, arrays) if xs else None


@pytest.mark.parametrize("case", list(cases()))
def test_gradients_are_finite_differences(case: Case) -> None:
    graph = Graph("gradient")
    made = add_gradients(case, graph)
    if made is None:
        pytest.skip("not of f64")
    xs, arrays = made
    try:
        here, *found = evaluate(graph, arrays)
    except SizeUnknown:
        pytest.skip("has sizes that only a compiled model tells")
    rng = np.random.default_rng(0)
    graph.outputs = graph.outputs[:1]
    for x, g in zip(xs, found, strict=True):
        assert g.dtype == arrays[x].dtype and g.shape == arrays[x].shape
        step = rng.standard_normal(g.shape)
        above, below = (evaluate(graph, {**arrays, x: arrays[x] + s * step})[0] for s in (1e-6, -1e-6))
        smooth = np.isclose(above - here, here - below, rtol=1e-2, atol=1e-9)
        if smooth:  # else there is none
            np.testing.assert_allclose(np.sum(g * step), (above - below) / 2e-6, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", ["c", pytest.param("numpy", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=pytest.mark.full if crc32(f.encode()) % 2 else ()) for f in sorted(FAMILIES)]
)
def test_gradients_are_compiled(family: str, backend: str) -> None:
    """The gradients of one case of each operation as one compiled model, with sizes that the run tells.

    A half of the families by default, convolutions, products and norms among them.
    """
    graph, arrays, wanted, done = Graph(family), list[Any](), list[tuple[Case, Any]](), set[Any]()
    for i, case in enumerate(FAMILIES[family]):
        kind = (case.op.name, backend != "c" and tuple(len(s.shape) if s else None for s in case.inputs))
        alone = Graph("alone")
        if kind in done or not chosen(case) or (backend == "c" and not compiles_to_c(case)):
            continue
        made = add_gradients(case, alone)
        if made is None:
            continue
        try:
            found = evaluate(alone, made[1])
        except SizeUnknown:
            continue
        done.add(kind)
        _, own = add_gradients(case, graph, f"n{i}_", compiles_with_symbols(case)) or made
        arrays += own.values()
        wanted += [(case, a) for a in found]
    if not done:
        pytest.skip("nothing to differentiate")
    compiled = irc.compile(Model(graph, "onnx", 10, {"": NEWEST_ONNX}), backend=backend)
    for got, (case, want) in zip(compiled(arrays), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9, err_msg=str(case))


def compiles_with_symbols(case: Case) -> bool:
    """Whether the gradients need no size when compiling.

    The nearest element of Resize is another where a scale is computed in another order.
    """
    if case.op.name == "Resize":
        return False
    graph = Graph("symbolic")
    try:
        made = add_gradients(case, graph, symbolic=True)
        return made is not None and all(
            isinstance(v.type, TensorType) and v.type.shape is not None for v in graph.values()
        )
    except (Problem, UnknownRank):
        return False
