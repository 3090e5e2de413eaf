"""Generators of fast C, by family: products, convolutions, pools, attention, recurrent layers, rearrangements.

What is to be computed is a problem, for which a kernel is selected among all that solve it:

    problem = GemmProblem(…)                            # or ConvProblem, PoolProblem …: extents, strides, epilogue
    kernel = irc.kernels.core.registry.select(problem, isa)
    packed = kernel.packed(problem)                     # how constants go into the weights file, 64-byte aligned
    KernelCall(kernel, reads=(a, weights, *slots), writes=(c,), sizes=kernel.order(**kernel.arguments_for(problem)))

Every kernel has
    symbol, declaration(), source()   the C; equal symbols mean equal text.  Sources may share a file (what they share
                                      is guarded); the file needs the type irc_pool, and -ffp-contract=fast
    call(values)                      the text of a call where `pool` (const irc_pool *, may be NULL) is in scope
    pointers, sizes, arguments        names and C types of the fields of SYMBOL_args, which a call passes: pointers
                                      read, written, scratch; then int64_t sizes.  The kernel splits its own work over
                                      the pool: no parallel loop around it is needed
    order(name=value, …)              the sizes in that order; batch strides default to 0, batch counts to 1
    scratch(problem)                  bytes of the scratch buffer; no scratch pointer where it is always 0

A kernel needs up to 400 KiB of stack in every thread.  Strides are in elements.  Memory written must not overlap memory
read (a residual slot included): partial sums stand in the output while a kernel runs.  k = 0 gives epilogue(0).

The epilogue is an expression over `acc()` and `slot(0)`, `slot(1)`, …; `Epilogue(expr, axes)` says along which axes of
the tile each slot varies, and `supported(expr, slots, dtype)` whether an expression can be one.  Rows and columns are
those of a problem: of a product m and n, so that a bias over the last axis is "row"; of convolutions with the channels
first channels and pixels, so that a bias is "column"; with the channels last, and of pools, pixels and channels, so
that a bias is "row".  A residual is "full" everywhere.
"""

from irc.kernels.core.epilogue import Epilogue, acc, plain, slot, supported
from irc.kernels.core.isa import ISAS, Isa, isa_of
from irc.kernels.core.text import PROTOTYPES

__all__ = ["ISAS", "PROTOTYPES", "Epilogue", "Isa", "acc", "isa_of", "plain", "slot", "supported"]
