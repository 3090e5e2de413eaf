"""Products of bytes by instructions whose words saturate: nothing does, whatever the weights are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import irc
from irc.ir.dim import Dim
from irc.kernels.core.isa import AVX2
from irc.kernels.core.registry import candidates, select
from irc.kernels.integer.convolution import IntegerConvKernel
from irc.kernels.integer.pairing import partners
from irc.kernels.integer.problem import product_of_bytes
from irc.kernels.integer.saturating import ENDS, HEAD, LEVEL, LEVELS, SaturatingTile, crowded
from irc.toolchain.c_compiler import find_compiler
from irc.toolchain.processor import cpu_features

Array = np.ndarray[Any, Any]
LARGEST = [127, *(most for level in range(LEVELS) for most in (255 - LEVEL * level, 256 - LEVEL * (level + 1)))]
"""The largest byte, and the least one, of each level."""


def weights_of(k: int, n: int, spread: float) -> Array:
    drawn = np.random.default_rng(n).normal(0, spread, (k, n))
    return np.rint(drawn).clip(-128, 127).astype(np.int8)


def model_of(a: Array, b: Array) -> onnx.ModelProto:
    kinds = {"uint8": onnx.TensorProto.UINT8, "int8": onnx.TensorProto.INT8}
    x = onnx.helper.make_tensor_value_info("A", kinds[a.dtype.name], a.shape)
    y = onnx.helper.make_tensor_value_info("Y", onnx.TensorProto.INT32, [len(a), b.shape[1]])
    node = onnx.helper.make_node("MatMulInteger", ["A", "B"], ["Y"])
    graph = onnx.helper.make_graph([node], "bytes", [x], [y], [onnx.numpy_helper.from_array(b, "B")])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.skipif(not {"avx2"} <= cpu_features(), reason="needs AVX2")
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize(("rows", "k", "n", "spread"), [(37, 256, 50, 30), (5, 512, 32, 18), (203, 130, 16, 36)])
def test_products_of_the_largest_bytes_are_exact(kind: type[Any], rows: int, k: int, n: int, spread: float) -> None:
    b, limits = weights_of(k, n, spread), np.iinfo(kind)
    random = np.random.default_rng(k).integers(limits.min, limits.max + 1, (rows, k)).astype(kind)
    compiled = irc.compile(model_of(random, b), backend="c", target="x86-64-v3")
    assert "maddubs" in "".join(f.read_text("utf-8") for f in Path(compiled.artifact.folder).glob("*.c"))
    for a in (random, *(np.full_like(random, limits.min + most) for most in (0, *LARGEST))):
        (got,) = compiled([a])
        np.testing.assert_array_equal(got, a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("k", [256, 36, 4])
def test_panels_tell_what_fits_at_every_level(k: int) -> None:
    tile, taps = SaturatingTile(AVX2, "saturating", 4, 2), 2
    columns = weights_of(3 * tile.columns, taps * k, 32).reshape(3, tile.columns, -1)
    flat = tile.panels(columns, None, taps)
    back, own = tile.unpanelled(flat, 3, taps * k // 4, taps)
    np.testing.assert_array_equal(back, columns)
    assert not own.any()
    head = tile.head(taps, k // 4)
    panels = flat.reshape(3, -1)
    numbers = panels[:, :head].copy().view(np.int32)
    table = numbers[:, HEAD * tile.columns :]
    ends = table[:, : taps * (k // 4 + ENDS)].reshape(3, taps, -1)[..., :ENDS].reshape(3, taps, LEVELS, 2)
    ends = np.array([k // 4 // 2 * 2, k // 4]) - ends
    assert (np.diff(ends, axis=2) >= 0).all()
    assert (ends[..., 0] <= ends[..., 1]).all()
    assert k < 256 or (np.diff(ends[:, :, 0], axis=-1, prepend=0, append=k // 4) > 0).all()
    pairs = panels[:, head:].reshape(3, taps, k // 4, tile.columns, 2, 2).astype(np.int32)
    for panel, tap, level in np.ndindex(3, taps, LEVELS):
        two, alone = ends[panel, tap, level]
        assert two % 2 == 0
        both = pairs[panel, tap, :two].reshape(two // 2, 2, tile.columns, 2, 2).transpose(0, 2, 3, 1, 4)
        for sums in (pairs[panel, tap, :alone], both.reshape(two // 2, tile.columns, 2, 4)):
            for sign in (sums, -sums):
                assert np.maximum(sign, 0).sum(-1).max(initial=0) * (255 - LEVEL * level) <= 2**15 - 1
    turned = numbers[:, 2 * tile.columns : HEAD * tile.columns].reshape(3, LEVELS, tile.columns)
    for panel, level in np.ndindex(3, LEVELS):
        w = np.concatenate([pairs[panel, tap, ends[panel, tap, level, 1] :] for tap in range(taps)])
        np.testing.assert_array_equal(turned[panel, level], (np.where(w < 0, 127, 128) * w).sum((0, 2, 3)))


def test_the_share_of_crowded_pairs_decides() -> None:
    """Weights of seven bits never saturate; of weights up to the bounds most fours would be words in any case."""
    whole = np.random.default_rng(1).integers(-128, 128, (64, 512))
    assert crowded(whole // 2) == 0 < crowded(whole)
    assert crowded(np.array([[127, 1, -128, 0, 127, -128]])) == 0
    assert crowded(np.array([[127, 2], [-128, -1]])) == 1
    for w, unit in ((whole // 2, "saturating"), (whole, "pairs")):
        problem = product_of_bytes(Dim.of(196), 64, 512, False, False, crowded=crowded(w))
        found = select(problem, AVX2)
        assert isinstance(found, IntegerConvKernel)
        assert found.unit == unit
        assert {k.unit for k in candidates(problem, AVX2).values() if isinstance(k, IntegerConvKernel)} >= {unit}


@pytest.mark.parametrize("fours", [0, 1, 2, 33, 64, 97, 192])
def test_fours_have_partners_that_fit(fours: int) -> None:
    """Every four but the largest of an odd number has one partner, and pairs fit of which neighbours by size do not."""
    sums = np.abs(np.random.default_rng(fours).normal(0, 40, (3, fours, 64))).astype(np.int16).clip(0, 128)
    pairs = partners(sums, 128)
    assert pairs.shape == (3, fours // 2, 2)
    for panel, chosen in zip(sums, pairs, strict=True):
        alone = set(range(fours)) - set(chosen.flat)
        assert len(alone) == fours % 2
        assert all(panel[four].max() == panel.max() for four in alone)
        if fours < 32:
            continue
        both = panel[chosen].sum(1).max(1)
        order = np.argsort(panel.max(1))[: fours // 2 * 2].reshape(-1, 2)
        neighbours = panel[order].sum(1).max(1)
        assert np.mean(both <= 150) > 0.9 > 0.6 > np.mean(neighbours <= 150)


def test_fours_beyond_what_is_usual_are_partners() -> None:
    """Else small ones, which fit, would be multiplied as words beside them."""
    sums = np.full((1, 16, 8), 20, np.int16)
    sums[:, ::4] = 120
    pairs = partners(sums, 100)[0]
    assert {frozenset(p) for p in pairs.tolist() if sums[0, p[1]].max() > 100} == {
        frozenset((0, 4)),
        frozenset((8, 12)),
    }
