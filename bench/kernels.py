"""Kernels beside the machine's peak: python bench/kernels.py [gemm matmul terms conv direct depthwise last
costs].

The FMA peak is measured between the kernels, in the same process, because clocks drift; processor time, the best of
several rounds.  One thread.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from irc.ir.types import f32
from irc.kernels import PROTOTYPES, Isa, isa_of, plain
from irc.kernels.conv.depthwise_nhwc import NhwcDepthwiseKernel
from irc.kernels.conv.grouped_nchw import NchwGroupedKernel
from irc.kernels.conv.nchw import NchwConvKernel
from irc.kernels.conv.nhwc import NhwcConvKernel
from irc.kernels.conv.problem import ConvProblem
from irc.kernels.core.costs import costs_of
from irc.kernels.core.invocation import argument_struct
from irc.kernels.gemm.packed import GemmKernel
from irc.kernels.gemm.problem import GemmProblem
from irc.kernels.gemm.split_bf16 import SplitGemmKernel
from irc.kernels.pool.nchw import NchwPoolKernel
from irc.kernels.pool.nhwc import NhwcGlobalPoolKernel, NhwcPoolKernel
from irc.kernels.pool.problem import GlobalPoolProblem, Mode, PoolProblem
from irc.kernels.reduction.problem import RowReductionProblem
from irc.kernels.reduction.rows import RowReductionKernel
from irc.kernels.split_bf16.bf16_terms import TERMS
from irc.toolchain import c_compiler, matrix_units

FLAGS = "-std=c11 -O3 -march=native -mprefer-vector-width=512 -ffp-contract=fast -fno-math-errno -fno-trapping-math"
PEAK = """
#include <stdint.h>
typedef float peak_vector __attribute__((vector_size(%d)));
float irc_peak(int64_t n, float x) {
    peak_vector a[12], b = x - (peak_vector){0};
    _Pragma("GCC unroll 12") for (int i = 0; i < 12; i++) a[i] = b * (float)i;
    for (int64_t k = 0; k < n; k++) {
        _Pragma("GCC unroll 12") for (int i = 0; i < 12; i++) a[i] = a[i] * b + b;
    }
    _Pragma("GCC unroll 12") for (int i = 1; i < 12; i++) a[0] += a[i];
    return a[0][0] + a[0][1];
}
"""


def host_isa() -> Isa:
    """Describe the machine that runs this, as it is described when a model is compiled for it."""
    target = c_compiler.target_of_sources("native")
    return isa_of(frozenset(target.features), target.machine, target.l2, target.fma)


def build(sources: list[str], compiler: str = "gcc", flags: str = FLAGS) -> ctypes.CDLL:
    """One shared library of the sources."""
    folder = Path(tempfile.mkdtemp(prefix="irc-kernels-"))
    (folder / "kernels.c").write_text("\n".join(sources))
    command = [*compiler.split(), *flags.split(), "-shared", "-fPIC", "-o", "kernels.so", "kernels.c", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernels.so"))


def invoke(lib: ctypes.CDLL, kernel: Any, *args: Any) -> Callable[[], None]:
    """A call of the kernel without a pool; arrays become pointers, numbers int64."""
    f = getattr(lib, kernel.symbol)
    f.restype = None
    values = [a.ctypes.data if isinstance(a, np.ndarray) else int(a) for a in args]
    own: Any = None
    if kernel.has_workspaces:
        each = kernel.own_bytes(dict(zip(kernel.sizes, values[len(kernel.pointers) :], strict=True)))
        own = aligned((each // 4 + 1,))
        values += [own.ctypes.data, each, 1]
    given = argument_struct(kernel, values)
    return lambda keep=own: f(None, ctypes.byref(given))


def best(f: Callable[[], Any], rounds: int = 7, seconds: float = 0.05) -> float:
    f()
    times: list[float] = []
    for _ in range(rounds):
        count, begin = 0, time.thread_time()
        while (spent := time.thread_time() - begin) < seconds:
            f()
            count += 1
        times.append(spent / count)
    return min(times)


def aligned(shape: tuple[int, ...], fill: str = "random") -> np.ndarray[Any, Any]:
    count = int(np.prod(shape))
    raw = np.empty(count + 16, np.float32)
    start = (-raw.ctypes.data // 4) % 16
    a = raw[start : start + count].reshape(shape)
    a[...] = np.random.default_rng(0).standard_normal(shape, np.float32) if fill == "random" else 0
    return a


def peak(lib: ctypes.CDLL) -> float:
    """GFLOP/s of independent multiply-adds."""
    lanes = host_isa().vector // 4
    lib.irc_peak.restype = ctypes.c_float
    n = 1_000_000
    return 2 * 12 * lanes * n / best(lambda: lib.irc_peak(ctypes.c_int64(n), ctypes.c_float(0.5)), 5, 0.02) / 1e9


def report(name: str, flops: float, run: Callable[[], None], lib: ctypes.CDLL) -> None:
    top, took = peak(lib), best(run)
    top = max(top, peak(lib))
    rate = flops / took / 1e9
    print(f"{name:34s} {took * 1e3:9.4f} ms {rate:8.1f} GFLOP/s of {top:6.1f} = {100 * rate / top:5.1f}%", flush=True)


GEMMS = [
    (128, 768, 768),
    (128, 3072, 768),
    (128, 768, 3072),
    (1024, 1024, 1024),
    (192, 256, 2304),
    (64, 512, 512),
    (12544, 64, 147),
    (197, 768, 768),
    (1, 768, 768),
    (1, 3072, 768),
    (1, 4096, 4096),
    (4, 768, 3072),
    (8, 768, 768),
]


def bench_gemm() -> None:
    for m, n, k in GEMMS:
        kernel = GemmKernel.best(GemmProblem.contiguous(plain(), m, n, k, True), host_isa())
        assert kernel is not None
        lib = build([PROTOTYPES, PEAK % host_isa().vector, kernel.source()])
        a, c = aligned((m, k)), aligned((m, n), "zero")
        packed = kernel.pack_b(aligned((k, n)))
        b = aligned(packed.shape)
        b[...] = packed
        run = invoke(lib, kernel, a, b, c, m, n, k, 0, 0, k, 1, 0, 0, 0, 0, n, 1, 1)
        report(f"gemm m={m} n={n} k={k}", 2 * m * n * k, run, lib)
        if m < 8:
            print(f"    {4 * n * k / best(run) / 1e9:.1f} GB/s of weights")


CONVS = [  # ic, oc, size, kernel, stride, pad: ResNet-50
    (3, 64, 224, 7, 2, 3),
    (64, 64, 56, 3, 1, 1),
    (128, 128, 56, 3, 2, 1),
    (128, 128, 28, 3, 1, 1),
    (256, 256, 14, 3, 1, 1),
    (512, 512, 14, 3, 2, 1),
    (512, 512, 7, 3, 1, 1),
    (64, 256, 56, 1, 1, 0),
    (256, 64, 56, 1, 1, 0),
    (512, 128, 28, 1, 1, 0),
    (1024, 256, 14, 1, 1, 0),
    (256, 1024, 14, 1, 1, 0),
    (2048, 512, 7, 1, 1, 0),
    (512, 2048, 7, 1, 1, 0),
    (256, 512, 56, 1, 2, 0),
]


def bench_conv() -> None:
    for ic, oc, size, window, stride, pad in CONVS:
        out = (size + 2 * pad - window) // stride + 1
        x, w, y = aligned((1, ic, size, size)), aligned((oc, ic, window, window)), aligned((1, oc, out, out), "zero")
        shape = (ic, oc, (out, out), (window, window), (stride, stride))
        kernel = NchwConvKernel.best(ConvProblem.contiguous("nchw", plain(), *shape), host_isa())
        assert kernel is not None
        lib = build([PROTOTYPES, PEAK % host_isa().vector, kernel.source()])
        packed = aligned((w.size,))
        packed[...] = kernel.pack_weights(w)
        run = invoke(
            lib,
            kernel,
            x,
            packed,
            y,
            1,
            1,
            ic,
            oc,
            size,
            size,
            out,
            out,
            window,
            window,
            stride,
            stride,
            1,
            1,
            pad,
            pad,
            ic * size * size,
            size * size,
            oc * out * out,
            out * out,
        )
        report(
            f"conv {ic}->{oc} {size} {window}x{window}/{stride}", 2 * ic * oc * out * out * window * window, run, lib
        )


DIRECT = [  # ic, oc, size, kernel, stride, pad: YOLOv8n, U-Net, super-resolution
    (3, 16, 640, 3, 2, 1),
    (16, 32, 320, 3, 2, 1),
    (32, 64, 160, 3, 2, 1),
    (32, 32, 80, 3, 1, 1),
    (64, 64, 80, 3, 1, 1),
    (64, 64, 128, 3, 1, 1),
    (64, 64, 224, 5, 1, 2),
]


def bench_direct() -> None:
    """Convolutions of NHWC tensors with windows or strides above 1, with what is selected for NCHW."""
    isa = host_isa()
    for ic, oc, size, window, stride, pad in [c for c in CONVS if max(c[3:5]) > 1] + DIRECT:
        out = (size + 2 * pad - window) // stride + 1
        shape = (ic, oc, (out, out), (window, window), (stride, stride))
        last, first = (ConvProblem.contiguous(layout, plain(), *shape) for layout in ("nhwc", "nchw"))
        direct, conv = NhwcConvKernel.best(last, isa), NchwConvKernel.best(first, isa)
        assert direct is not None and conv is not None
        lib = build([PROTOTYPES, PEAK % isa.vector, direct.source(), conv.source()])
        high = size + 2 * pad
        x, w, y = aligned((1, high, high, ic)), aligned((oc, ic, window, window)), aligned((1, out, out, oc), "zero")
        runs: list[Callable[[], None]] = []
        weights = [aligned(kernel.pack_weights(w).shape) for kernel in (direct, conv)]
        for kernel, problem, packed in zip((direct, conv), (last, first), weights, strict=True):
            packed[...] = kernel.pack_weights(w)
            order = [int(e.value) for e in kernel.order(**kernel.arguments_for(problem))]  # type: ignore[attr-defined]
            runs.append(invoke(lib, kernel, x, packed, y, *order))
        name = f"{ic}->{oc} {size} {window}x{window}/{stride}"
        report(f"direct {name}", 2 * ic * oc * out * out * window * window, runs[0], lib)
        print(f"    {best(runs[1]) / best(runs[0]):.2f} times as fast as NCHW")


MATMULS = [(12, 128, 128, 64), (12, 128, 64, 128), (12, 1, 1024, 64), (12, 1, 64, 1024), (1, 512, 512, 512)]


def bench_matmul() -> None:
    """Batches of A · Bᵀ and A · B, nothing constant: attention."""
    for batch, m, n, k in MATMULS:
        kernel = GemmKernel.best(GemmProblem.contiguous(plain(), m, n, k, False), host_isa())
        assert kernel is not None
        lib = build([PROTOTYPES, PEAK % host_isa().vector, kernel.source()])
        a, b, c = aligned((batch, m, k)), aligned((batch, k, n)), aligned((batch, m, n), "zero")
        scratch = aligned((int(kernel.scratch_bytes(n, k, batch)) // 4,), "zero")
        for name, b_row, b_col in (("A B", n, 1), ("A B^T", 1, k)):
            strides = (m * k, 0, k, 1, k * n, 0, b_row, b_col, m * n, 0, n, batch, 1)
            run = invoke(lib, kernel, a, b, c, scratch, m, n, k, *strides)
            report(f"matmul {name} {batch} x m={m} n={n} k={k}", 2 * batch * m * n * k, run, lib)


TERM_GEMMS = [  # rows, columns, products of a sum
    (128, 768, 768),
    (128, 3072, 768),
    (256, 512, 512),
    (784, 128, 512),
    (3136, 64, 256),
    (32, 768, 768),
]


def bench_terms() -> None:
    """Products from one to three bf16 terms on AMX, of weights and of two operands, as in docs/adr/0010."""
    isa = host_isa()
    if not isa.tiles or not matrix_units.permitted():
        print("no AMX here")
        return
    for m, n, k in TERM_GEMMS:
        a, b, c = aligned((m, k)), aligned((k, n)), aligned((m, n), "zero")
        for precision, terms in TERMS.items():
            for constant in (True, False):
                problem = GemmProblem.contiguous(plain(), m, n, k, constant, precision)
                kernel = SplitGemmKernel.best(problem, isa)
                assert kernel is not None
                lib = build([PROTOTYPES, PEAK % isa.vector, kernel.source()])
                given = b
                if constant:
                    packed = kernel.pack_b(b)
                    given = aligned((packed.nbytes // 4,)).view(packed.dtype)
                    given[:] = packed.reshape(-1)
                sizes = {name: int(size) for name, size in kernel.arguments_for(problem).items()}
                order = [int(e.value) for e in kernel.order(**sizes)]  # type: ignore[attr-defined]
                name = f"{terms} terms m={m} n={n} k={k}{'' if constant else ', B given'}"
                report(name, 2 * m * n * k, invoke(lib, kernel, a, given, c, *order), lib)


DEPTHWISE = [  # channels, size, window, stride: MobileNets
    (32, 112, 3, 1),
    (96, 112, 3, 2),
    (144, 56, 3, 1),
    (192, 28, 3, 1),
    (384, 14, 3, 1),
    (960, 7, 3, 1),
    (120, 28, 5, 1),
    (96, 56, 7, 1),
]


def bench_depthwise() -> None:
    for channels, size, window, stride in DEPTHWISE:
        pad = window // 2
        out = (size + 2 * pad - window) // stride + 1
        x, y = aligned((1, channels, size, size)), aligned((1, channels, out, out), "zero")
        w = aligned((channels, 1, window, window))
        shape = (channels, channels, (out, out), (window, window), (stride, stride), (1, 1), channels)
        kernel = NchwGroupedKernel.best(ConvProblem.contiguous("nchw", plain(), *shape), host_isa())
        assert kernel is not None
        lib = build([PROTOTYPES, PEAK % host_isa().vector, kernel.source()])
        extents = (1, channels, 1, 1, size, size, out, out, pad, pad)
        planes = (channels * size * size, size * size, channels * out * out, out * out)
        run = invoke(lib, kernel, x, kernel.pack_weights(w), y, *extents, *planes)
        name = f"depthwise {channels} {size} {window}x{window}/{stride}"
        report(name, 2 * channels * out * out * window * window, run, lib)
        print(f"    {(x.nbytes + y.nbytes) / best(run) / 1e9:.1f} GB/s of input and output")


DEPTHWISE_LAST = [  # channels, height, width, window, stride: MobileNets, keyword spotting, ConvNeXt
    (32, 112, 112, 3, 1),
    (96, 112, 112, 3, 2),
    (144, 56, 56, 3, 1),
    (144, 56, 56, 3, 2),
    (192, 28, 28, 3, 1),
    (384, 14, 14, 3, 1),
    (576, 14, 14, 3, 2),
    (960, 7, 7, 3, 1),
    (72, 28, 28, 5, 1),
    (120, 28, 28, 5, 1),
    (672, 14, 14, 5, 2),
    (64, 25, 5, 3, 1),
    (96, 56, 56, 7, 1),
]
POOLS_LAST: list[tuple[int, int, int, int, Mode]] = [
    (64, 112, 3, 2, "max"),
    (64, 56, 2, 2, "max"),
    (128, 20, 5, 1, "max"),
    (192, 28, 3, 1, "average"),
]
GLOBAL_LAST = [(1280, 7), (480, 14), (120, 28), (64, 112)]


def versus(name: str, size: int, last: Callable[[], None], first: Callable[[], None]) -> None:
    """Two kernels in turn: time, and bytes of input and output by time, of the first; how much longer the second."""
    times = [min(t) for t in zip(*((best(last, 1, 0.01), best(first, 1, 0.01)) for _ in range(5)), strict=True)]
    rate = size / times[0] / 1e9
    print(f"{name:34s} {times[0] * 1e6:9.1f} us {rate:6.1f} GB/s; NCHW {times[1] / times[0]:5.2f} times", flush=True)


def bench_last() -> None:
    """Kernels of channels-last activations beside those of NCHW."""
    isa = host_isa()
    for c, ih, iw, k, stride in DEPTHWISE_LAST:
        pad, oh, ow = k // 2, (ih - 1) // stride + 1, (iw - 1) // stride + 1
        x, y, w = aligned((ih, iw, c)), aligned((oh, ow, c), "zero"), aligned((c, 1, k, k))
        shape = (c, c, (oh, ow), (k, k), (stride, stride), (1, 1), c)
        last = NhwcDepthwiseKernel.best(ConvProblem.contiguous("nhwc", plain(), *shape), isa)
        first = NchwGroupedKernel.best(ConvProblem.contiguous("nchw", plain(), *shape), isa)
        assert last is not None and first is not None
        lib = build([PROTOTYPES, last.source(), first.source()])
        packed = aligned((last.packed_elements(c),))
        packed[...] = last.pack_weights(w)
        extents = (1, c, ih, iw, oh, ow, pad, pad)
        run = invoke(lib, last, x, packed, y, *extents, 0, iw * c, c, 0, c)
        other = invoke(lib, first, x, first.pack_weights(w), y, 1, c, 1, 1, *extents[2:], 0, ih * iw, 0, oh * ow)
        versus(f"depthwise {c} {ih}x{iw} {k}x{k}/{stride}", x.nbytes + y.nbytes, run, other)
    for c, size, k, stride, mode in POOLS_LAST:
        pad = k // 2 if k % 2 else 0
        out = (size + 2 * pad - k) // stride + 1
        x, y = aligned((size, size, c)), aligned((out, out, c), "zero")
        window, strides = (k, k), (stride, stride)
        pools = (
            NhwcPoolKernel.best(PoolProblem.contiguous("nhwc", plain(), mode, window, strides, result=(out, out)), isa),
            NchwPoolKernel.best(PoolProblem.contiguous("nchw", plain(), mode, window, strides), isa),
        )
        assert pools[0] is not None and pools[1] is not None
        lib = build([PROTOTYPES, pools[0].source(), pools[1].source()])
        extents = (1, c, size, size, out, out, pad, pad, pad, pad, 0)
        run = invoke(lib, pools[0], x, y, *extents, size * c, c, 0, c)
        other = invoke(lib, pools[1], x, y, *extents, size * size, 0, out * out)
        versus(f"{mode} pool {c} {size} {k}x{k}/{stride}", x.nbytes + y.nbytes, run, other)
    for c, size in GLOBAL_LAST:
        x, y = aligned((size, size, c)), aligned((c,), "zero")
        last = NhwcGlobalPoolKernel.best(GlobalPoolProblem.contiguous("nhwc", plain(), "average"), isa)
        rows = RowReductionKernel.best(RowReductionProblem.contiguous("mean", c, size * size), isa)
        assert last is not None and rows is not None
        lib = build([PROTOTYPES, last.source(), rows.source()])
        run = invoke(lib, last, x, y, 1, c, size * size, 0, c, 0)
        other = invoke(lib, rows, x, y, 1, c, 1, size * size, 0, size * size, 0)
        versus(f"mean {c} {size}x{size}", x.nbytes, run, other)


def bench_costs() -> None:
    """Measure the numbers of `irc.kernels.core.costs` on this machine: a row of COSTS for its instruction set.

    Products of n and of 2 n columns tell multiplying from packing A; a product of one row waits for B.
    """
    isa = host_isa()
    lanes, costs = isa.lanes(f32), costs_of(isa)
    tiles: dict[tuple[int, int], float] = {}
    pack = 0.0
    for rows, vectors in costs.tiles:
        m, n, k, took = rows * 16, lanes * vectors * 16, 256, list[float]()
        for columns in (n, 2 * n):
            kernel = GemmKernel.design(isa, f32, m, columns, plain(), True, (rows, vectors))
            lib = build([PROTOTYPES, PEAK % isa.vector, kernel.source()])
            b, a, c = (
                aligned(kernel.pack_b(aligned((k, columns))).shape),
                aligned((m, k)),
                aligned((m, columns), "zero"),
            )
            took.append(best(invoke(lib, kernel, a, b, c, m, columns, k, 0, 0, k, 1, 0, 0, 0, 0, columns, 1, 1)))
        top = peak(lib) * 1e9
        cycles = top / (2 * lanes * isa.fma)
        tiles[rows, vectors] = round(2 * m * n * k / top / (took[1] - took[0]), 2)
        pack = max(pack, (2 * took[0] - took[1]) * cycles / (m * k))
    n = k = 4096
    kernel = GemmKernel.design(isa, f32, 1, n, plain(), True, next(iter(costs.tiles)))
    lib = build([PROTOTYPES, PEAK % isa.vector, kernel.source()])
    b, a, c = aligned(kernel.pack_b(aligned((k, n))).shape), aligned((1, k)), aligned((1, n), "zero")
    waited = best(invoke(lib, kernel, a, b, c, 1, n, k, 0, 0, k, 1, 0, 0, 0, 0, n, 1, 1))
    stream = 4 * n * k / waited / (peak(lib) * 1e9 / (2 * lanes * isa.fma))
    print(f'    "{isa.name}": Costs({tiles}, pack={pack:.2f}, stream={stream:.1f}),')


def main() -> None:
    chosen = sys.argv[1:] or ["gemm"]
    for name in chosen:
        globals()[f"bench_{name}"]()


if __name__ == "__main__":
    main()
