"""What kernels compute, in NumPy: the oracle that interpreted programs and tests hold calls against.

`run(kernel, reads, writes, sizes)` takes flat arrays that start where the kernel's pointers point, and sizes by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import singledispatch
from typing import Any

import numpy as np

from irc.expr import Bin, Call, Cast, Const, Expr, Select, Un, Var, fold
from irc.kernels.attention.split_bf16 import AmxAttentionKernel
from irc.kernels.attention.vector import AttentionKernel
from irc.kernels.core.base import Kernel
from irc.kernels.core.epilogue import Epilogue
from irc.kernels.movement.transpose import TransposeKernel
from irc.kernels.pool.nchw import GlobalPoolKernel, PoolKernel

Array = np.ndarray[Any, Any]
Sizes = Mapping[str, int]


@singledispatch
def run(kernel: Kernel[Any], reads: Sequence[Array], writes: Sequence[Array], sizes: Sizes) -> None:
    """Do what a call of the kernel does."""
    kernel.compute(reads, writes, sizes)


def strided(flat: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """A view of memory; every element of it must be inside."""
    last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    assert 0 in shape or 0 <= last < flat.size, f"{shape} by {strides} is outside {flat.size} elements"
    return np.lib.stride_tricks.as_strided(flat, shape, [s * flat.itemsize for s in strides])


@run.register
def transpose(kernel: TransposeKernel, reads: Sequence[Array], writes: Sequence[Array], sizes: Sizes) -> None:
    """Element by element, each array by its strides."""
    shape = [sizes[n] for n in ("n0", "n1", "n2", "rows", "cols")]
    x = strided(reads[0], shape, [sizes[n] for n in ("x0", "x1", "x2", "x_row")] + [1])
    y = strided(writes[0], shape, [sizes[n] for n in ("y0", "y1", "y2", "y_row", "y_col")])
    y[...] = x


@run.register
def attention(kernel: AttentionKernel, reads: Sequence[Array], writes: Sequence[Array], sizes: Sizes) -> None:
    """O = softmax(scale · Q Kᵀ + mask) V for every batch and head."""
    batch, heads, m, n = sizes["batch"], sizes["heads"], sizes["m"], sizes["n"]

    def at(which: str, flat: Array, shape: Sequence[int], steps: Sequence[int], count: int = heads) -> Array:
        return strided(flat, (batch, count, *shape), (sizes[f"{which}_batch"], sizes[f"{which}_head"], *steps))

    shared = heads // sizes["group"]
    q = at("q", reads[0], (m, sizes["d"]), (sizes["q_row"], 1))
    k = at("k", reads[1], (n, sizes["d"]), (sizes["k_row"], sizes["k_col"]), shared).repeat(sizes["group"], 1)
    v = at("v", reads[2], (n, sizes["dv"]), (sizes["v_row"], 1), shared).repeat(sizes["group"], 1)
    scores = np.matmul(q, k.swapaxes(-1, -2)) * np.float32(kernel.scale)
    if kernel.mask != "none":
        mask = at("mask", reads[3], (m, n), (sizes["mask_row"], sizes["mask_col"]))
        scores = scores + (mask if kernel.mask == "add" else np.where(mask != 0, 0, -np.inf).astype(np.float32))
    if kernel.causal:
        scores = np.where(np.arange(n) <= np.arange(m)[:, None] + sizes["shift"], scores, np.float32(-np.inf))
    with np.errstate(all="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
        weights = weights / weights.sum(-1, keepdims=True)
    if kernel.empty == "zero":
        weights = np.where(np.isneginf(scores).all(-1, keepdims=True), np.float32(0), weights)
    at("o", writes[0], (m, sizes["dv"]), (sizes["o_row"], 1))[...] = np.matmul(weights, v)


@run.register
def split_attention(kernel: AmxAttentionKernel, reads: Sequence[Array], writes: Sequence[Array], sizes: Sizes) -> None:
    """The same, in f32."""
    attention(kernel.plain, reads, writes, sizes)


@run.register
def pool(kernel: PoolKernel, reads: Sequence[Array], writes: Sequence[Array], sizes: Sizes) -> None:
    """The largest element, or the mean of the positions that count, of every window."""
    planes, iw, ow = (sizes["batch"], sizes["channels"]), sizes["iw"], sizes["ow"]
    x = strided(reads[0], (*planes, sizes["ih"], iw), (sizes["x_batch"], sizes["x_channel"], iw, 1))
    y = strided(writes[0], (*planes, sizes["oh"], ow), (sizes["y_batch"], sizes["y_channel"], ow, 1))
    y[...] = pooled(kernel, x, sizes)


def pooled(kernel: Any, x: Array, sizes: Sizes) -> Array:
    """The pool of x[n, c, h, w]: window, strides, dilations, mode and what is counted are the kernel's."""
    (ih, iw), (oh, ow) = x.shape[2:], (sizes["oh"], sizes["ow"])
    y = np.empty((*x.shape[:2], oh, ow), x.dtype)

    def taps(o: int, axis: int, size: int, before: int, after: int) -> tuple[list[int], int]:
        """Positions inside the input, and how many count."""
        at = [o * kernel.strides[axis] + k * kernel.dilations[axis] - before for k in range(kernel.window[axis])]
        inside = [i for i in at if 0 <= i < size]
        padded = sum(-before <= i < size + after for i in at)
        return inside, {"inside": len(inside), "padded": padded, "window": len(at)}[kernel.counted]

    for i, j in np.ndindex(oh, ow):
        rows, high = taps(i, 0, ih, sizes["pad_h"], sizes["end_h"])
        columns, wide = taps(j, 1, iw, sizes["pad_w"], sizes["end_w"])
        part = x[:, :, rows][..., columns]
        if kernel.mode == "max":
            y[:, :, i, j] = part.max((-2, -1), initial=-np.inf)
        else:
            y[:, :, i, j] = part.sum((-2, -1)) / (high * wide)
    return y


@run.register
def global_pool(kernel: GlobalPoolKernel, reads: Sequence[Array], writes: Sequence[Array], sizes: Sizes) -> None:
    planes = (sizes["batch"], sizes["channels"])
    x = strided(reads[0], (*planes, sizes["n"]), (sizes["x_batch"], sizes["x_channel"], 1))
    y = strided(writes[0], planes, (sizes["y_batch"], sizes["y_channel"]))
    y[...] = x.max(-1) if kernel.mode == "max" else x.mean(-1)


# ------------------------------------------------------------------------- epilogues
def _erf(x: Array) -> Array:
    import math

    return np.array([math.erf(v) for v in x.reshape(-1)]).reshape(x.shape).astype(x.dtype)


_CALLS: dict[str, Callable[[Array], Array]] = {"erf": _erf, "sigmoid": lambda x: 1 / (1 + np.exp(-x))}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "min": np.minimum,
    "max": np.maximum,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "and": np.logical_and,
    "or": np.logical_or,
}


def apply(epilogue: Epilogue, accumulator: Array, slots: Sequence[Array]) -> Array:
    """The epilogue of accumulators; slots broadcast."""
    operands = (s.astype(epilogue.dtype.numpy) if i in epilogue.halves else s for i, s in enumerate(slots))
    known = {"acc": accumulator, **{f"slot{i}": s for i, s in enumerate(operands)}}

    def value(e: Expr, parts: tuple[Any, ...]) -> Any:
        match e:
            case Const():
                return e.type.numpy.type(e.value)
            case Var():
                return known[e.name]
            case Bin():
                return _BINARY[e.op](*parts)
            case Un():
                return {"neg": np.negative, "abs": np.abs, "not": np.logical_not}[e.op](*parts)
            case Call():
                return (_CALLS.get(e.fn) or getattr(np, e.fn))(*parts)
            case Select():
                return np.where(*parts)  # pyright: ignore
            case Cast():
                return np.asarray(parts[0]).astype(e.type.numpy)
            case _:
                raise NotImplementedError(type(e).__name__)

    with np.errstate(all="ignore"):
        return fold(epilogue.expr, value)
