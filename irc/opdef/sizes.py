"""Sizes that are known only when the model runs, in operations that both formats have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from irc.ir.dim import Dim, Func, Symbol
from irc.ir.graph import Value
from irc.ir.types import TensorType
from irc.opdef.builder import Builder
from irc.opdef.forms import Declined


class SizeBuilder(Builder):
    """Computes what `dims` asks for from the shapes of the graph's inputs, by Shape and integer arithmetic.

    Declined where a symbol is not the size of an axis of an input.
    """

    def dims(self, shape: Sequence[Dim | int]) -> Value:
        if all(Dim.of(d).is_const for d in shape):
            return super().dims(shape)
        parts = [self._size(Dim.of(d)) for d in shape]
        return parts[0] if len(parts) == 1 else self.Concat(*parts, axis=0)

    def _size(self, size: Dim) -> Value:
        """The size as an i64 vector of one element."""
        if size.is_const:
            return self.const([int(size)])
        if (axis := self._axis(size)) is not None:
            return axis
        total: Value | None = None
        for atoms, factor in size.terms:
            term = self.const([factor]) if factor != 1 or not atoms else None
            for atom in atoms:
                found = self._atom(atom)
                term = found if term is None else self.Mul(term, found)
            total = term if total is None else self.Add(total, term)
        assert total is not None
        return total

    def _axis(self, size: Dim) -> Value | None:
        """The size as that of an axis of an input, if it is one."""
        return self._axis_of(self.graph.inputs, size)

    def _axis_of(self, values: Iterable[Value], size: Dim) -> Value | None:
        """The size as that of an axis of one of these values."""
        for value in values:
            if isinstance(value.type, TensorType) and value.type.shape is not None and size in value.type.shape:
                axis = value.type.shape.index(size)
                return self.Shape(value, start=axis, end=axis + 1)
        return None

    def _atom(self, atom: Symbol | Func) -> Value:
        axis = self._axis(Dim({(atom,): 1}))
        if axis is not None:
            return axis
        if isinstance(atom, Symbol):
            raise Declined
        a, b = (self._size(x) for x in atom.args)
        match atom.op:
            case "min":
                return self.Min(a, b)
            case "max":
                return self.Max(a, b)
            case "mod":
                return self.Mod(a, b)
            case "floordiv":
                return self._floor(a, b)
            case _:
                return self.Neg(self._floor(self.Neg(a), b))

    def _floor(self, a: Value, b: Value) -> Value:
        """a / b rounded down, which Div of integers does not do below 0."""
        return self.Div(self.Sub(a, self.Mod(a, b)), b)
