"""What all kernels share: their face towards lowering and the C printer."""

from __future__ import annotations

from collections.abc import Mapping

from irc.expr import Expr, Operand, index
from irc.ir.dim import Dim

Sizes = Mapping[str, Dim]
"""The values of a kernel's sizes in a call, by name."""
RESULT_STRIDES = frozenset(("c_batch0", "c_batch1", "c_row", "y_batch", "y_pixel"))


class Kernel:
    """Base of kernels: a C function with pointers, then int64_t sizes, whose first argument is the thread pool."""

    @property
    def symbol(self) -> str:
        """The C name: equal for equal text."""
        raise NotImplementedError

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        """Name and C type of the pointers in the order of the call: read, written, scratch."""
        raise NotImplementedError

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the int64_t arguments, in order; strides of memory are in elements."""
        raise NotImplementedError

    @property
    def result_strides(self) -> tuple[str, ...]:
        """Those sizes that are strides of the result, where all are of rows of its last axis; else none."""
        return tuple(n for n in self.sizes if n in RESULT_STRIDES) if {"c_row", "y_pixel"} & {*self.sizes} else ()

    def flops(self, sizes: Sizes) -> Dim:
        """Floating-point operations of a call, as the definition of what it computes counts them, without epilogue."""
        raise NotImplementedError

    @property
    def executed(self) -> float:
        """How many operations the processor executes for each of `flops`."""
        return 1.0

    def source(self) -> str:
        """Definitions; needs the type irc_pool, and may share a file with other kernels."""
        raise NotImplementedError

    @property
    def features(self) -> frozenset[str]:
        """What the processor must have beyond the vectors it is made for, in the names of /proc/cpuinfo."""
        return frozenset()

    @property
    def arguments(self) -> tuple[tuple[str, str], ...]:
        """Name and C type of every argument, in order; a NULL pool means one thread."""
        return (("pool", "const irc_pool *"), *self.pointers, *((n, "int64_t ") for n in self.sizes))

    @property
    def parameters(self) -> str:
        """The parameter list in C."""
        return ", ".join(t + n for n, t in self.arguments)

    def call(self, args: list[str]) -> str:
        """The C call; `args` are the pointers and sizes, and `pool` is in scope."""
        return f"{self.symbol}({', '.join(['pool', *args])})"

    def declaration(self) -> str:
        """The prototype."""
        return f"void {self.symbol}({self.parameters});"

    def order(self, **values: Operand) -> tuple[Expr, ...]:
        """The sizes as a `KernelCall` takes them; batch strides default to 0, batch counts to 1.

        KeyError: a size is missing, or there is no such size.
        """
        unknown = set(values) - set(self.sizes)
        if unknown:
            raise KeyError(f"{self.symbol} has no size {sorted(unknown)}")
        return tuple(index(_value(name, values)) for name in self.sizes)


def _value(name: str, values: Mapping[str, Operand]) -> Operand:
    if name in values:
        return values[name]
    if name in ("batch0", "batch1", "batch", "groups"):
        return 1
    if "_batch" in name:
        return 0
    raise KeyError(f"size {name} is missing")
