"""Generators of fast C for contractions.

Products and convolutions are problems, for which a kernel is selected among all that solve them:

    problem = GemmProblem(…)                            # or ConvProblem(…): extents, strides, types, epilogue
    kernel = irc.kernels.core.registry.select(problem, isa)
    packed = kernel.packed(problem)                     # how constants go into the weights file, 64-byte aligned
    KernelCall(kernel, reads=(a, weights, *slots), writes=(c,), sizes=kernel.order(**kernel.arguments_for(problem)))

The catalogue selects the others:

    kernel = select_pool_last(isa, f32, "max", window, strides, dilations, counted, epilogue, ow)   # NHWC; may be None
    kernel = select_global_pool_last(isa, f32, "average", epilogue)     # all pixels of [batch, pixels, channels]

    kernel = select_attention(isa, rows, width, scale, mask, causal)   # softmax(scale Q Kᵀ + mask) V; may be None
    kernel = select_matrix_attention(isa, precision, kernel, rows, keys)       # the same on AMX; may be None
    kernel = select_pool(isa, f32, "max", window, strides, dilations, counted)   # NCHW; may be None
    kernel = select_global_pool(isa, f32, "average")                    # planes
    kernel = select_recurrent(isa, f32, "lstm", direction, batch)      # the steps of LSTM and GRU
    weights = kernel.pack_weights(array)
    kernel = select_transpose(isa, f32)                                 # kernel.order(**transposed(shape, order))

Every kernel has
    symbol, declaration(), source()   the C; equal symbols mean equal text.  Sources may share a file (what they share
                                      is guarded); the file needs the type irc_pool, and -ffp-contract=fast
    call(arguments)                   the text of a call where `pool` (const irc_pool *, may be NULL) is in scope
    pointers, sizes, arguments        names and C types in the order of the call: pointers read, written, scratch; then
                                      int64_t sizes.  The kernel splits its own work over the pool: no parallel loop
                                      around it is needed
    order(name=value, …)              the sizes in that order; batch strides default to 0, batch counts to 1
    scratch_bytes(…)                  of the scratch buffer; no scratch pointer where it is always 0

A kernel needs up to 400 KiB of stack in every thread.  Strides are in elements.  Memory written must not overlap memory
read (a residual slot included): partial sums stand in the output while a kernel runs.  k = 0 gives epilogue(0).

The epilogue is an expression over `acc()` and `slot(0)`, `slot(1)`, …; `Epilogue(expr, axes)` says along which axes of
the tile each slot varies, and `supported(expr, slots, dtype)` whether an expression can be one.  Rows and columns are
those of a problem: of a product m and n, so that a bias over the last axis is "row"; of convolutions with the channels
first channels and pixels, so that a bias is "column"; with the channels last, and of pools, pixels and channels, so
that a bias is "row".  A residual is "full" everywhere.
"""

from irc.kernels.attention.split_bf16 import AmxAttentionKernel
from irc.kernels.attention.vector import AttentionKernel
from irc.kernels.conv.depthwise_nchw import DepthwiseKernel
from irc.kernels.conv.depthwise_nhwc import DepthwiseLastKernel
from irc.kernels.conv.nchw import ConvKernel
from irc.kernels.conv.nhwc import DirectConvKernel
from irc.kernels.conv.split_bf16 import AmxConvKernel
from irc.kernels.conv.winograd_bf16 import DotWinogradKernel
from irc.kernels.core.catalogue import (
    select_attention,
    select_global_pool,
    select_global_pool_last,
    select_matrix_attention,
    select_pool,
    select_pool_last,
    select_recurrent,
    select_transpose,
)
from irc.kernels.core.epilogue import Epilogue, acc, plain, slot, supported
from irc.kernels.core.isa import ISAS, Isa, host_isa, isa_of
from irc.kernels.core.text import PROTOTYPES
from irc.kernels.gemm.packed import GemmKernel
from irc.kernels.gemm.small_b import RowsGemmKernel
from irc.kernels.gemm.split_bf16 import AmxGemmKernel
from irc.kernels.movement.transpose import TransposeKernel, transposed
from irc.kernels.pool.nchw import GlobalPoolKernel, PoolKernel
from irc.kernels.pool.nhwc import GlobalPoolLastKernel, PoolLastKernel
from irc.kernels.recurrent.lstm_gru import RecurrentKernel

__all__ = [
    "ISAS",
    "PROTOTYPES",
    "AmxAttentionKernel",
    "AmxConvKernel",
    "AmxGemmKernel",
    "AttentionKernel",
    "ConvKernel",
    "DepthwiseKernel",
    "DepthwiseLastKernel",
    "DirectConvKernel",
    "DotWinogradKernel",
    "Epilogue",
    "GemmKernel",
    "GlobalPoolKernel",
    "GlobalPoolLastKernel",
    "Isa",
    "PoolKernel",
    "PoolLastKernel",
    "RecurrentKernel",
    "RowsGemmKernel",
    "TransposeKernel",
    "acc",
    "host_isa",
    "isa_of",
    "plain",
    "select_attention",
    "select_global_pool",
    "select_global_pool_last",
    "select_matrix_attention",
    "select_pool",
    "select_pool_last",
    "select_recurrent",
    "select_transpose",
    "slot",
    "supported",
    "transposed",
]
