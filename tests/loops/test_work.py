"""What kernels say they compute: as many operations as a count of the definition."""

from __future__ import annotations

import math

import pytest

from irc import kernels
from irc.ir.dim import Dim
from irc.ir.types import f32
from irc.kernels.conv.depthwise_turned import TurnedDepthwiseKernel
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.core.base import Kernel
from irc.kernels.core.registry import KERNELS, load_all
from irc.kernels.gemm.split_bf16 import SplitGemmKernel
from tests.support.kernels import (
    attention,
    conv_nchw,
    depthwise_nchw,
    depthwise_nhwc,
    direct_conv,
    packed_gemm,
    pool_nchw,
    pool_nhwc,
    transpose,
)

ISA = kernels.ISAS["avx512"]
PLAIN = kernels.plain(f32)
THREE = (3, 3), (1, 1), (1, 1)


def flops(kernel: Kernel | None, **sizes: int) -> int:
    """Of a call: the sizes that are not given cannot matter."""
    assert kernel is not None and set(sizes) <= set(kernel.sizes)
    return int(kernel.flops({n: Dim.of(v) for n, v in sizes.items()}))


def test_products() -> None:
    gemm = packed_gemm(ISA, f32, 5, 7, PLAIN, True)
    assert flops(gemm, batch0=2, batch1=1, m=5, n=7, k=11) == 2 * 2 * 5 * 7 * 11
    split = SplitGemmKernel(3, PLAIN, (1,), (1,), False)
    assert flops(split, batch0=1, batch1=1, m=5, n=7, k=11) == 2 * 5 * 7 * 11
    assert [SplitGemmKernel(t, PLAIN, (1,), (1,), False).executed for t in (1, 2, 3)] == [1, 3, 6]


def test_convolutions() -> None:
    whole = {"batch": 2, "groups": 3, "oc": 4, "ic": 5, "oh": 6, "ow": 7}
    expected = 2 * math.prod(whole.values()) * 9
    assert flops(conv_nchw(ISA, 5, 4, (6, 7), *THREE[:2], PLAIN), od=1, kd=1, kh=3, kw=3, **whole) == expected
    assert flops(direct_conv(ISA, 5, 16, (6, 7), *THREE, PLAIN), **whole) == expected
    each = {"batch": 2, "channels": 3, "oh": 6, "ow": 7}
    assert flops(depthwise_nhwc(ISA, *THREE, PLAIN, 7), **each) == 2 * math.prod(each.values()) * 9
    assert flops(depthwise_nchw(ISA, *THREE, PLAIN), **whole) == expected
    turned = TurnedDepthwiseKernel.best(ConvProblem.contiguous("nchw", PLAIN, 3, 6, (6, 7), *THREE, groups=3), ISA)
    assert flops(turned, batch=2, outputs=6, oh=6, ow=7) == 2 * 2 * 6 * 6 * 7 * 9
    for kernel in (pool_nchw(ISA, "max", *THREE), pool_nhwc(ISA, "max", *THREE, "inside", PLAIN, 7)):
        assert flops(kernel, **each) == math.prod(each.values()) * 9


@pytest.mark.parametrize(("m", "n", "shift"), [(4, 4, 0), (3, 8, 5), (1, 9, 8), (5, 5, 4)])
def test_causal_attention_counts_what_queries_see(m: int, n: int, shift: int) -> None:
    seen = sum(min(i + shift + 1, n) for i in range(m))
    sizes = {"batch": 2, "heads": 3, "m": m, "n": n, "d": 8, "dv": 6}
    for causal in (False, True):
        kernel = attention(ISA, m, 8, 1.0, causal=causal)
        given = {**sizes, "shift": shift} if causal else sizes
        most = 2 * 2 * 3 * m * n * (8 + 6)
        exact = 2 * 2 * 3 * seen * (8 + 6)
        assert exact <= flops(kernel, **given) <= most if causal else flops(kernel, **given) == most
        if causal and m + shift <= n:
            assert flops(kernel, **given) == exact


def test_copies_compute_nothing() -> None:
    assert flops(transpose(ISA, f32), rows=4, cols=5) == 0


def test_every_kernel_counts() -> None:
    load_all()
    made = {k for k in vars(kernels).values() if isinstance(k, type) and issubclass(k, Kernel)}
    made |= {k for classes in KERNELS.values() for k in classes}
    assert len(made) > 10
    assert [k.__name__ for k in made if k.flops is Kernel.flops] == []
