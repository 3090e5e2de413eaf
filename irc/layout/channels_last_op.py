"""Operations whose operands have the channels last in memory: [batch, *space, channels]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from irc.expr import Expr, IndexFunction, Tensor
from irc.ir.dim import Dim
from irc.ir.graph import Value
from irc.ir.types import TensorType, Type
from irc.opdef.base import Array, Op
from irc.opdef.reference import as_list
from irc.opdef.signature import Sig

T = TypeVar("T")


@dataclass(frozen=True)
class ChannelsLast(Op):
    """`op` with the channels last, of these `operands` and of the results that have this `rank`.

    The channels take `axes` axes, as they do where a Reshape divides them into groups.
    """

    op: Op
    rank: int
    operands: tuple[int, ...]
    axes: int = 1
    sig: ClassVar[Sig] = Sig("*xs: any -> *ys: any")

    @property
    def _to_first(self) -> tuple[int, ...]:
        return first_of(self.rank, self.axes)

    @property
    def _to_last(self) -> tuple[int, ...]:
        return last_of(self.rank, self.axes)

    def infer(self, *xs: Value | None) -> list[Type]:
        first = [
            Value(x.name, permuted_type(x.tensor, self._to_first)) if x is not None and k in self.operands else x
            for k, x in enumerate(xs)
        ]
        return [self._last(t) for t in self.op.result_types(first)]

    def reference(self, *xs: Array | None) -> Any:
        first = [x.transpose(self._to_first) if x is not None and k in self.operands else x for k, x in enumerate(xs)]
        results = as_list(self.op.reference(*first))
        return [y.transpose(self._to_last) if y.ndim == self.rank else y for y in results]

    def compute(self, out: Any, *xs: Tensor | None) -> list[IndexFunction]:  # pyright: ignore
        assert self.op.compute is not None
        outs = [permuted_type(t, self._to_first) for t in as_list(out)]
        first = [self._first(x) if x is not None and k in self.operands else x for k, x in enumerate(xs)]
        found = self.op.compute(outs[0] if len(outs) == 1 else outs, *first)
        return [self._moved(f) for f in as_list(found)]

    def _moved(self, f: IndexFunction) -> IndexFunction:
        """Convert a result of `op` to an index function with the channels last."""
        return lambda *at: f(*permuted(at, self._to_first))

    def _first(self, x: Tensor) -> Tensor:
        """Convert an operand with the channels last to what `op` expects."""

        def at(i: tuple[Expr, ...]) -> Expr:
            return x.at(permuted(i, self._to_last))

        return Tensor(permuted_type(x.type, self._to_first), at)

    def _last(self, t: Type) -> Type:
        return permuted_type(t, self._to_last) if isinstance(t, TensorType) and t.rank == self.rank else t

    def __str__(self) -> str:
        return f"{self.op} channels last"


def last_of(rank: int, axes: int = 1) -> tuple[int, ...]:
    """Return the permutation that puts the channels last, which take this many axes."""
    return (0, *range(1 + axes, rank), *range(1, 1 + axes))


def first_of(rank: int, axes: int = 1) -> tuple[int, ...]:
    """Return the permutation that puts the channels back to axis 1."""
    return (0, *range(rank - axes, rank), *range(1, rank - axes))


def permuted(items: Sequence[T], order: Sequence[int]) -> tuple[T, ...]:
    return tuple(items[k] for k in order)


def permuted_type(t: TensorType, order: Sequence[int]) -> TensorType:
    return TensorType(t.dtype, permuted(t.dims(), order))


def shape_last(value: Value, axes: int = 1) -> tuple[Dim, ...]:
    """Return the shape of a value with its channels last, which take this many axes."""
    return permuted(value.shape, last_of(len(value.shape), axes))
