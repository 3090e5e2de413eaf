"""Attention, pools and transposes beside the peak or a copy: python bench/kernels_without_weights.py [name…].

As bench/kernels.py: one thread, processor time, the best of several rounds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from kernels import PEAK, aligned, best, build, host_isa, invoke, report

from irc.ir.types import f32
from irc.kernels import PROTOTYPES, plain
from irc.kernels.attention.problem import AttentionProblem
from irc.kernels.attention.vector import AttentionKernel
from irc.kernels.movement.problem import TransposeProblem
from irc.kernels.movement.transpose import TransposeKernel
from irc.kernels.pool.nchw import NchwPoolKernel
from irc.kernels.pool.problem import PoolProblem


def library(kernel: Any) -> Any:
    return build([PROTOTYPES, PEAK % host_isa().vector, kernel.source()])


def beside_copy(name: str, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], run: Callable[[], None]) -> None:
    other = np.empty_like(x)
    took, copy = best(run), best(lambda: np.copyto(other, x))
    rate = (x.nbytes + y.nbytes) / took / 1e9
    print(f"{name:40s} {took * 1e3:9.4f} ms {rate:6.1f} GB/s; a copy of the input {copy * 1e3:.4f} ms", flush=True)


def bench_attention() -> None:
    for heads, group, m, n, d in (
        (12, 1, 128, 128, 64),
        (12, 1, 197, 197, 64),
        (6, 1, 1500, 1500, 64),
        (8, 1, 512, 512, 128),
        (12, 1, 1, 1024, 64),
        (12, 4, 1, 1024, 64),
    ):
        kernel = AttentionKernel.best(AttentionProblem.contiguous(m * group, n, d, d**-0.5), host_isa())
        assert kernel is not None
        lib = library(kernel)
        q, o = aligned((heads, m, d)), aligned((heads, m, d), "zero")
        k, v = aligned((heads // group, n, d)), aligned((heads // group, n, d))
        sizes = (1, heads, group, m, n, d, d, 0, m * d, d, 0, n * d, d, 1, 0, n * d, d, 0, m * d, d)
        run = invoke(lib, kernel, q, k, v, o, *sizes)
        report(f"attention {heads}/{group} m={m} n={n} d={d}", 4 * heads * m * n * d, run, lib)
        if m == 1:
            print(f"    {(k.nbytes + v.nbytes) / best(run) / 1e9:.1f} GB/s of K and V")


def bench_pool() -> None:
    for mode, channels, size, window, stride in (
        ("max", 64, 112, 3, 2),
        ("max", 256, 20, 5, 1),
        ("average", 64, 56, 3, 2),
    ):
        pad = window // 2
        out = (size + 2 * pad - window) // stride + 1
        problem = PoolProblem.contiguous("nchw", plain(), mode, (window, window), (stride, stride))  # type: ignore[arg-type]
        kernel = NchwPoolKernel.best(problem, host_isa())
        assert kernel is not None
        x, y = aligned((channels, size, size)), aligned((channels, out, out), "zero")
        sizes = (1, channels, size, size, out, out, pad, pad, pad, pad, 0, size * size, 0, out * out)
        beside_copy(
            f"{mode} {channels} {size} {window}x{window}/{stride}", x, y, invoke(library(kernel), kernel, x, y, *sizes)
        )


def bench_transpose() -> None:
    for shape, order in (
        ((768, 768), (1, 0)),
        ((3000, 3000), (1, 0)),
        ((3136, 96), (1, 0)),
        ((3, 50176), (1, 0)),
        ((128, 12, 64), (1, 0, 2)),
        ((9, 4, 2, 112, 112), (0, 3, 1, 4, 2)),
    ):
        x, y = aligned(shape), aligned(tuple(shape[i] for i in order), "zero")
        problem = TransposeProblem.reordering(f32, shape, order)
        kernel = None if problem is None else TransposeKernel.best(problem, host_isa())
        assert problem is not None and kernel is not None
        sizes = kernel.arguments_for(problem)
        run = invoke(library(kernel), kernel, x, y, *(int(sizes[n]) for n in kernel.sizes))
        beside_copy(f"transpose {shape} {order}", x, y, run)


def main() -> None:
    for name in sys.argv[1:] or ["attention", "pool", "transpose"]:
        globals()[f"bench_{name}"]()


if __name__ == "__main__":
    main()
